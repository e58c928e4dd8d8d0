"""From a connection to the credential that a request carries, and for how long it is good; used by `transport`."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from functions.access.errors import KubeconfigInvalid

if TYPE_CHECKING:
    from pathlib import Path

    from functions.access.connection import Connection

HELPER_TIMEOUT: Final = 30.0
_TOKEN_FILE_LIFE: Final = 60.0  # as long as kubectl trusts what it has read
_TOKEN_FILE_LIMIT: Final = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A proof of identity.

    Attributes:
        authorization: Value of the Authorization header.
        certificate: PEM chain of a client certificate; always together with `key`.
        key: PEM.
        expires: Unix time after which it has to be obtained anew.
        renewable: Whether obtaining it anew may give another one.
    """

    authorization: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    expires: float = math.inf
    renewable: bool = False


async def obtain(connection: Connection, *, now: float, timeout: float = HELPER_TIMEOUT) -> Credential:  # noqa: ASYNC109 - the program is ended, not just left
    """The credential of a connection, from its file, program or login where it has one.

    Args:
        connection: Whose.
        now: Unix time.
        timeout: Seconds for the program or the login.

    Raises:
        KubeconfigInvalid: The file, program or login gives none.
        Unreachable: The login's issuer cannot be reached.
    """
    if connection.helper is not None:
        # Imported where needed, here and below: most connections carry their credential themselves.
        from functions.access import exec_helper  # noqa: PLC0415

        given = await exec_helper.run(connection.helper, timeout=timeout)
        certificate, key = given.certificate, given.key
        if certificate is None:
            certificate, key = connection.client_certificate, connection.client_key
        return Credential(
            authorization=_bearer(given.token),
            certificate=certificate,
            key=key,
            expires=renewal(given.expires, now),
            renewable=True,
        )
    authorization, expires = _static(connection), math.inf
    if connection.oidc is not None:
        from functions.access import oidc  # noqa: PLC0415

        token, expiry = await oidc.id_token(connection.oidc, now=now, timeout=timeout)
        authorization, expires = _bearer(token), renewal(expiry, now)
    elif connection.token_file is not None:
        authorization, expires = _bearer(_read_token(connection.token_file)), now + _TOKEN_FILE_LIFE
    return Credential(
        authorization=authorization,
        certificate=connection.client_certificate,
        key=connection.client_key,
        expires=expires,
        renewable=connection.token_file is not None,
    )


def renewal(expiry: float, now: float) -> float:
    """When to renew what expires at `expiry` (Unix time): a tenth of its life earlier, a minute at most."""
    if math.isinf(expiry):
        return expiry
    return expiry - min(60.0, max(0.0, expiry - now) / 10)


def _static(connection: Connection) -> str | None:
    if connection.username is not None:
        pair = f"{connection.username}:{connection.password or ''}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"
    return _bearer(connection.token)


def _bearer(token: str | None) -> str | None:
    return f"Bearer {token}" if token else None


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(_TOKEN_FILE_LIMIT).decode("ascii").strip()
    except OSError as error:
        raise KubeconfigInvalid(f"token file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token.isprintable() or not token:
        raise KubeconfigInvalid(f"token file {path} holds no token")
    return token
