"""Which hosts and URLs can be used: the libraries below raise all sorts of things at others; used by `kubeconfig`."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

_LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_LONGEST_NAME: Final = 253


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
