"""The proxy that a person's environment asks for, as kubectl obeys it where the kubeconfig names none."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping


def from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The value of HTTPS_PROXY (HTTP_PROXY for a server of http), None where NO_PROXY or nature excepts the server.

    Args:
        server: URL of the API server.
        environ: The environment; names in capitals go before those in small letters.
    """
    parts = urlsplit(server)
    host = parts.hostname or ""
    proxy = _value(environ, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host):
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if any(_excepts(entry.strip().lower(), host, port) for entry in _value(environ, "no_proxy").split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _value(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _excepts(entry: str, host: str, port: int) -> bool:
    """Whether an entry of NO_PROXY (`*`, a domain, an address or a network, perhaps with a port) means this host."""
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and _address(entry) is None:
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if address is not None:
        return address == _address(entry)
    domain = entry.removeprefix("*").removeprefix(".")
    exact = entry == domain and host == domain
    return bool(domain) and (exact or host.endswith(f".{domain}"))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
