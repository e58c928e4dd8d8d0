"""What can go wrong between us and a cluster: one class per answer to "what can the caller do about it".

Everything that reaches a cluster raises these and nothing else:

    AccessError
    ├── KubeconfigInvalid    mend the kubeconfig
    │   └── UnknownContext   name another context
    ├── Unreachable          mend the way to the server, or wait
    │   └── NotKubernetes    see what answers in its place; others may be asked
    └── ApiError             the API server answered with an error status
        ├── Unauthorized     401, or 403 to nobody in particular  renew the credential, or give one
        ├── Forbidden        403  grant the right, or see `denied_by`
        ├── NotFound         404  create the object, or install its API (`kind_known`)
        ├── Conflict         409  read again, or settle who owns a field (`field_managers`)
        ├── Gone             410  list again
        ├── Invalid          400, 422  mend the request
        ├── Throttled        429  wait `retry_after` seconds
        └── ServerError      5xx  wait, unless `permanent`

`reason` is a CamelCase word for a Kubernetes condition. The text is one line, holds no secret, and is the same for the
same trouble, so that a condition which carries it does not flap.
"""

# ruff: noqa: N818 - each class is named by the condition reason that it becomes
from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ANONYMOUS: Final = "system:anonymous"
_FORBIDDEN: Final = 403
TEXT_LIMIT: Final = 300  # characters of what a server said
MESSAGE_LIMIT: Final = 1000  # characters of a message as a whole

DeniedBy = Literal["authorization", "terminating-namespace", "terminating-definition", "quota", "admission"]

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_NO_RIGHT: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) (?:resource "(?P<resource>[^"]*)"|path "(?P<path>[^"]*)")'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_FIELD_MANAGER: Final = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
# What differs from one answer to the next although the trouble is the same.
_VOLATILE: Final = (
    (re.compile(r"\S+:\d+->(?=\S+:\d+)"), ""),  # the near end of a TCP connection
    (re.compile(r"current time \S+ is"), "it is"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uid>"),
)


def one_line(text: str, limit: int = TEXT_LIMIT) -> str:
    """What a server said, fit for a condition: one line, at most `limit` characters, without what varies by itself."""
    line = _printable(text[: 8 * limit])
    for pattern, plain in _VOLATILE:
        line = pattern.sub(plain, line)
    return _cut(line, limit)


def _printable(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 1] + "…"


class AccessError(Exception):
    """A cluster could not be asked, or did not do what was asked.

    Attributes:
        reason: CamelCase word for a Kubernetes condition.
        message: One stable line of at most `MESSAGE_LIMIT` characters, without secrets; what `str()` gives.
    """

    reason: ClassVar[str] = "AccessError"

    def __init__(self, message: str) -> None:
        # What names are in it, a kubeconfig chose.
        self.message = _cut(_printable(message[: 8 * MESSAGE_LIMIT]), MESSAGE_LIMIT)
        super().__init__(self.message)


class KubeconfigInvalid(AccessError):
    """The kubeconfig is missing, malformed, or asks for something that is refused by name."""

    reason = "KubeconfigInvalid"


class UnknownContext(KubeconfigInvalid):
    """The context that was asked for is not in the kubeconfig."""


class Unreachable(AccessError):
    """No answer from a Kubernetes API: name, network, time limit, TLS, or something else answers at that address."""

    reason = "Unreachable"


class NotKubernetes(Unreachable):
    """Something answered, but not with what an API server answers to this; it may answer others as it should."""


class ApiError(AccessError):
    """The API server answered with an error status.

    Attributes:
        status: HTTP status, or `code` of a Status sent within a watch.
        status_reason: `reason` of the Status body, such as `AlreadyExists`; empty where there was none.
        text: What the server said, as `one_line` gives it.
        details: `details` of the Status body without its causes; empty where there was none.
        causes: `details.causes` of the Status body, each with `reason`, `message` and `field`.
        retry_after: Seconds to wait as the server asked, None where it did not.
    """

    reason = "ApiError"

    def __init__(
        self,
        asked: str,
        *,
        status: int,
        status_reason: str = "",
        text: str = "",
        details: Mapping[str, Any] = _NOTHING,
        causes: Sequence[Mapping[str, Any]] = (),
        retry_after: float | None = None,
    ) -> None:
        """Keep the parts of the answer; `asked` says what it answers, such as `GET /version`."""
        self.status = status
        self.status_reason = status_reason
        self.text = text
        self.details = details
        self.causes = tuple(causes)
        self.retry_after = retry_after
        super().__init__(self._describe(asked))

    def _describe(self, asked: str) -> str:
        said = f": {self.text}" if self.text else ""
        return f"{asked} was answered with {self.status}{said}"


class Unauthorized(ApiError):
    """401: the server knows no such credential. 403 where it saw none: no right is what is wanting."""

    reason = "Unauthorized"

    def _describe(self, asked: str) -> str:
        if self.status == _FORBIDDEN:
            return f"the kubeconfig carries no credential that the server accepted ({asked} as {ANONYMOUS})"
        return f"the server did not accept the credential, it is expired or wrong ({asked} was answered with 401)"


class Forbidden(ApiError):
    """403, which has several meanings: see `denied_by`."""

    reason = "Forbidden"

    @property
    def denied_by(self) -> DeniedBy:
        """What refused: a missing right, a namespace or a definition on its way out, a quota, or admission control."""
        if any(cause.get("reason") == "NamespaceTerminating" for cause in self.causes):
            return "terminating-namespace"
        if "custom resource definition is terminating" in self.text:
            return "terminating-definition"
        if "exceeded quota" in self.text or "failed quota" in self.text:
            return "quota"
        if _NO_RIGHT.search(self.text) or not self.text:
            return "authorization"
        return "admission"

    def _describe(self, asked: str) -> str:
        match = _NO_RIGHT.search(self.text)
        if match is None:
            return super()._describe(asked)
        what = match["path"] or ".".join(filter(None, (match["resource"], match["group"])))
        where = f" in namespace {match['namespace']}" if match["namespace"] else ""
        return f'user "{match["user"]}" has no right to {match["verb"]} {what}{where} ({asked})'


class NotFound(ApiError):
    """404: the object, or the whole API."""

    reason = "NotFound"

    @property
    def kind_known(self) -> bool:
        """True when the API is served and the object is missing, False when the API itself is not served."""
        return bool(self.details.get("kind"))

    def _describe(self, asked: str) -> str:
        if not self.kind_known:
            return f"the server does not serve this API ({asked})"
        return f"{self.text or 'not found'} ({asked})"


class Conflict(ApiError):
    """409: someone else was there first.

    Neither `already_exists` nor any `field_managers`: a stale resourceVersion, or the uid is another object's.
    """

    reason = "Conflict"

    @property
    def already_exists(self) -> bool:
        """Whether a create met an object of that name."""
        return self.status_reason == "AlreadyExists"

    @property
    def field_managers(self) -> tuple[str, ...]:
        """Who owns the fields that an unforced apply wanted, each once, in the server's order."""
        owners = (
            _FIELD_MANAGER.search(str(cause.get("message", "")))
            for cause in self.causes
            if cause.get("reason") == "FieldManagerConflict"
        )
        return tuple(dict.fromkeys(owner[1] for owner in owners if owner))

    def _describe(self, asked: str) -> str:
        if not self.field_managers:
            return super()._describe(asked)
        fields = ", ".join(dict.fromkeys(str(cause.get("field", "")) for cause in self.causes))
        return one_line(f"{', '.join(self.field_managers)} owns {fields} ({asked})")


class Gone(ApiError):
    """410: the resourceVersion is too old; list again."""

    reason = "Gone"


class Invalid(ApiError):
    """400 or 422: the server does not take the request in this form."""

    reason = "Invalid"


class Throttled(ApiError):
    """429: the server, or a disruption budget, asks to wait."""

    reason = "Throttled"


class ServerError(ApiError):
    """5xx: the server, or something in front of it, failed."""

    reason = "ServerError"

    @property
    def permanent(self) -> bool:
        """Whether the same request can never succeed, such as an apply on managedFields of a version that is gone."""
        return "invalid group/version" in self.text
