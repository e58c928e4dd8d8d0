"""Which hosts and URLs can be used: the libraries below raise all sorts of things at others; used by `kubeconfig`."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_NAME: Final = 253
_METADATA: Final = frozenset(
    ipaddress.ip_address(each) for each in ("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254")
)
"""Where clouds tell a machine its credentials, beside the link-local addresses."""
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")

_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


def http_url(url: str) -> SplitResult | None:
    """The parts of a well-formed http or https URL."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and is_host(parts.hostname or "") and parts.port != 0
    except ValueError:
        return None
    return parts if usable and url.isascii() and url.isprintable() and " " not in url else None


def is_host(name: str) -> bool:
    """Whether it is an IP address, or a name that DNS could know."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        labels = name.removesuffix(".").split(".")
        return len(name) <= _LONGEST_NAME and all(_LABEL.fullmatch(label) for label in labels)
    return True


def has_usable_login(proxy_url: SplitResult) -> bool:
    """Whether basic authentication can carry the user information, if any."""
    user, password = unquote(proxy_url.username or ""), unquote(proxy_url.password or "")
    try:
        (user + password).encode("latin-1")
    except UnicodeEncodeError:
        return False
    return ":" not in user


def is_metadata_service(host: str) -> bool:
    """Whether it is an address, in whatever spelling, at which a cloud's metadata service may answer.

    A name is none, whatever it stands for: that is known when it is looked up.
    """
    address = _address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address.ipv4_mapped
        address = inner or address
    return address is not None and (address.is_link_local or address in _METADATA)


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))  # also 2852039166, 0xa9fea9fe and 169.254.43518
    except (OSError, ValueError):
        return None
