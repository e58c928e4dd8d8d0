"""Takes credentials out of what a server says: some echo a request's headers in their errors; used by `transport`."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

_REDACTED: Final = b"[redacted]"
# Up to the end of the line, or of the JSON string that it stands in: nobody knows how the server writes the value.
_HEADER: Final = re.compile(rb'((?i:authorization)[\\"\' ]*[:=][\\"\' ]*|\b(?:Bearer|Basic) )[^\r\n"\\]+')


def redact(body: bytes, authorization: str | None, proxy_url: str | None) -> bytes:
    """A server's answer without our credential, nor anyone's that stands in it as a header.

    Args:
        body: What the server sent.
        authorization: Value of the Authorization header that it was sent.
        proxy_url: URL of the proxy that this went through.
    """
    secrets = {*_of_header(authorization), *_of_url(proxy_url)}
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        body = body.replace(secret.encode(), _REDACTED)
    return _HEADER.sub(rb"\1" + _REDACTED, body)


def _of_header(authorization: str | None) -> Iterator[str]:
    scheme, _, proof = (authorization or "").partition(" ")
    yield proof
    if scheme == "Basic":
        yield base64.b64decode(proof).decode().partition(":")[2]


def _of_url(url: str | None) -> Iterator[str]:
    user, at, _ = urlsplit(url or "").netloc.rpartition("@")
    if at:
        plain = unquote(user)
        yield user
        yield base64.b64encode(plain.encode("latin-1", "replace")).decode()
        yield plain.partition(":")[2]
        yield user.partition(":")[2]
