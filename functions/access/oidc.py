"""The id token of an OpenID Connect login (`user.auth-provider` oidc), refreshed where it has expired."""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from functions.access import tls
from functions.access.errors import KubeconfigInvalid, Unreachable
from functions.access.lean_import import lean_import

if TYPE_CHECKING:
    from functions.access.connection import Oidc

_SKEW: Final = 10.0


async def id_token(login: Oidc, *, now: float, timeout: float) -> tuple[str, float]:  # noqa: ASYNC109 - one limit for all its requests
    """The id token and when it expires, in Unix time.

    Args:
        login: The tokens as the kubeconfig holds them.
        now: Unix time.
        timeout: Seconds that the issuer has for a refresh.

    Raises:
        KubeconfigInvalid: The login has ended.
        Unreachable: The issuer does not answer.
    """
    if login.id_token and _expiry(login.id_token) > now + _SKEW:
        return login.id_token, _expiry(login.id_token)
    if not login.refresh_token:
        raise KubeconfigInvalid("the oidc login has expired and has no refresh-token; log in again")
    answer = await _refresh(login, timeout)
    fresh = answer.get("id_token")
    if not isinstance(fresh, str):
        raise KubeconfigInvalid(f"the oidc issuer {login.issuer_url} gave no id_token; log in again")
    rotated = answer.get("refresh_token")
    if isinstance(rotated, str) and rotated != login.refresh_token:
        _keep(login, rotated)
    return fresh, _expiry(fresh)


async def _refresh(login: Oidc, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109 - as above
    openid = lean_import("kubernetes_asyncio.config.openid")
    # It uses aiohttp in older ways; that is not for our users to mend.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"kubernetes_asyncio\.")
    # Given no context, the library would not verify the issuer at all.
    trust = tls.trust(login.ca)
    requestor = openid.OpenIDRequestor(login.client_id, login.client_secret, login.issuer_url, trust)
    try:
        async with asyncio.timeout(timeout):
            answer = await requestor.refresh_token(login.refresh_token)
    except openid.ConfigException:
        raise KubeconfigInvalid(f"the oidc issuer {login.issuer_url} refused the refresh-token; log in again") from None
    except TimeoutError:
        raise Unreachable(f"the oidc issuer {login.issuer_url} did not answer within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError, KeyError):
        raise Unreachable(f"the oidc issuer {login.issuer_url} cannot be asked for a token") from None
    return answer if isinstance(answer, dict) else {}


def _expiry(token: str) -> float:
    """`exp` of a JWT in Unix time; the API server judges the rest."""
    try:
        _header, payload, _signature = token.split(".")
        claims = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims.get("exp", math.inf))
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise KubeconfigInvalid("the id-token of the oidc login is no JWT") from None


def _keep(login: Oidc, rotated: str) -> None:
    """Writes a rotated refresh token back, as kubectl does: the old one no longer works, for kubectl neither.

    Only the token's own text changes; the file's form and comments stay.
    """
    path = Path(os.path.realpath(login.file))
    try:
        changed = path.read_bytes().replace(login.refresh_token.encode(), rotated.encode())
        descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # readable by us alone
        with os.fdopen(descriptor, "wb") as file:
            file.write(changed)
        os.replace(temporary, path)  # noqa: PTH105 - mirrors mkstemp
    except OSError as error:
        raise KubeconfigInvalid(f"the new refresh-token cannot be written to {path}: {error.strerror}") from None
    login.refresh_token = rotated
