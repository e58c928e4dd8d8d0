"""What an exception of the HTTP library, or an answer that is no success, means: turns each into one of `errors`."""

from __future__ import annotations

import errno
import ssl
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from functions.access import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

_BY_STATUS: Final[dict[int, type[errors.ApiError]]] = {
    400: errors.Invalid,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    422: errors.Invalid,
    429: errors.Throttled,
}
_BY_ERRNO: Final = {
    errno.ECONNREFUSED: "refused the connection",
    errno.ECONNRESET: "reset the connection",
    errno.EPIPE: "reset the connection",
    errno.EHOSTUNREACH: "is on a network without a route from here",
    errno.ENETUNREACH: "is on a network without a route from here",
    errno.ETIMEDOUT: "did not accept a connection",
}
# Verification codes of OpenSSL.
_BY_VERIFY_CODE: Final = {
    9: "its TLS certificate is not valid yet",
    10: "its TLS certificate has expired",
    62: "its TLS certificate is for another host name (see tls-server-name)",
    64: "its TLS certificate is for another IP address (see tls-server-name)",
}
_UNTRUSTED: Final = "its TLS certificate is not signed by an authority that the kubeconfig trusts"
_SERVER_ERROR: Final = 500
_CLIENT_ERROR: Final = 400


def unreachable(server: str, error: Exception, *, timeout: float, connect_timeout: float) -> errors.Unreachable:
    """The meaning of an exception out of aiohttp; `timeout` and `connect_timeout` in seconds, as they were set."""
    return errors.Unreachable(f"{server} {_trouble(error, timeout, connect_timeout)}")


def _trouble(error: Exception, timeout: float, connect_timeout: float) -> str:
    match error:
        case aiohttp.ConnectionTimeoutError():
            said = f"did not accept a connection within {connect_timeout:g} s"
        case TimeoutError():
            said = f"did not answer within {timeout:g} s"
        case aiohttp.ClientHttpProxyError():
            said = f"is behind a proxy that answered with {error.status}"
        case aiohttp.ClientProxyConnectionError():
            said = f"is behind a proxy that {_connect_trouble(error)}"
        case aiohttp.ClientConnectorDNSError():
            said = "has a host name that does not resolve"
        case aiohttp.ClientConnectorCertificateError():
            said = _certificate_trouble(error.certificate_error)
        case OSError():
            said = _connect_trouble(error)
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            said = "closed the connection before its answer was complete"
        case ValueError() | TypeError() | RuntimeError():
            said = f"cannot be connected to in the way that the kubeconfig says ({type(error).__name__})"
        case _:
            said = "does not answer like a Kubernetes API server: malformed HTTP"
    return said


def _certificate_trouble(error: Exception) -> str:
    code = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    return f"is not trusted: {_BY_VERIFY_CODE.get(code, _UNTRUSTED)}"


def _connect_trouble(error: OSError) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate_trouble(cause)
    tls = _ssl_error(cause)
    if tls is not None:
        alert = "refused the TLS handshake"
        return alert if "ALERT" in tls else "does not speak TLS there (are scheme and port right?)"
    number = cause.errno or (errno.ECONNRESET if isinstance(cause, ConnectionResetError) else 0)
    return _BY_ERRNO.get(number, f"cannot be connected to ({errno.errorcode.get(number, 'no address works')})")


def _ssl_error(cause: BaseException | None) -> str | None:
    """OpenSSL's name for the trouble, from the exception or what it was raised from."""
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return str(cause.reason or cause)
        cause = cause.__cause__
    return None


def answer_error(server: str, asked: str, status: int, headers: Mapping[str, str], body: bytes) -> errors.AccessError:
    """The meaning of an answer outside 2xx.

    Args:
        server: Whose answer, for the message.
        asked: What it answers, such as `GET /version`.
        status: Its HTTP status.
        headers: Its headers, by name in any case.
        body: Its body: a Status as JSON, plain text, or anything from whatever stands in front of the API server.
    """
    if status < _CLIENT_ERROR:
        return errors.NotKubernetes(f"{server} redirects elsewhere ({status}): is it a Kubernetes API server?")
    status_body = _status_body(body)
    html = "html" in headers.get("Content-Type", "")
    if status_body is None and html and status < _SERVER_ERROR:
        return not_kubernetes(server, f"{status} with a web page")
    if status_body is None:
        status_body = {"message": "" if html else body[: 8 * errors.TEXT_LIMIT].decode("utf-8", "replace")}
    return status_error(asked, status, status_body, _seconds(headers.get("Retry-After")))


def status_error(asked: str, code: int, status: Mapping[str, Any], retry_after: float | None = None) -> errors.ApiError:
    """The meaning of a Status object (meta/v1) that came with that HTTP status, or in a watch."""
    fallback = errors.ServerError if code >= _SERVER_ERROR else errors.ApiError
    details = status.get("details")
    details = dict(details) if isinstance(details, dict) else {}
    causes = details.pop("causes", None)
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = _seconds(str(details["retryAfterSeconds"]))
    kind = _BY_STATUS.get(code, fallback)
    if kind is errors.Forbidden and f'User "{errors.ANONYMOUS}"' in str(status.get("message")):
        kind = errors.Unauthorized
    return kind(
        asked,
        status=code,
        status_reason=str(status.get("reason") or ""),
        text=errors.one_line(str(status.get("message") or "")),
        details=details,
        causes=[cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else [],
        retry_after=retry_after,
    )


def not_kubernetes(server: str, what: str) -> errors.NotKubernetes:
    """Something answers at that address, but not like an API server; `what` came instead."""
    return errors.NotKubernetes(f"{server} does not answer like a Kubernetes API server: {what}")


def too_long(server: str, limit: int, what: str) -> errors.NotKubernetes:
    """More than `limit` bytes came as one `what`; nothing is made of the part that was read."""
    size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
    return errors.NotKubernetes(f"{server} sent more than {size} as {what}")


def _status_body(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; the form with a date is not used by API servers and is passed over."""
    return float(text) if text is not None and text.isdecimal() else None
