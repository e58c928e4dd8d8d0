from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from functions.access import errors
from functions.access.diagnosis import answer_error, unreachable
from tests.access.serving import status

SERVER = "https://host:6443"
NO_RIGHT = (
    'deviceclasses.resource.k8s.io "gpu" is forbidden: User "jane" cannot get resource "deviceclasses" '
    'in API group "resource.k8s.io" at the cluster scope'
)
NO_SECRET = 'secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace "n"'
ANONYMOUS = 'forbidden: User "system:anonymous" cannot get path "/apis"'
CLAIMED = [
    {"reason": "FieldManagerConflict", "message": 'conflict with "helm" using v1', "field": ".spec.a"},
    {"reason": "FieldManagerConflict", "message": 'conflict with "kubectl edit"', "field": ".spec.b"},
    {"reason": "FieldManagerConflict", "message": 'conflict with "helm" using v1', "field": ".spec.c"},
]


def answered(code: int, body: Any = b"", headers: dict[str, str] | None = None) -> errors.AccessError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer_error(SERVER, "GET /apis", code, headers or {}, raw)


@pytest.mark.parametrize(
    ("code", "body", "kind", "reason"),
    [
        pytest.param(400, status(400), errors.Invalid, "Invalid", id="400"),
        pytest.param(401, status(401), errors.Unauthorized, "Unauthorized", id="401"),
        pytest.param(403, status(403), errors.Forbidden, "Forbidden", id="403"),
        pytest.param(404, status(404), errors.NotFound, "NotFound", id="404"),
        pytest.param(405, status(405), errors.ApiError, "ApiError", id="405"),
        pytest.param(409, status(409), errors.Conflict, "Conflict", id="409"),
        pytest.param(410, status(410), errors.Gone, "Gone", id="410"),
        pytest.param(415, b"415: Unsupported", errors.ApiError, "ApiError", id="415-text"),
        pytest.param(422, status(422), errors.Invalid, "Invalid", id="422"),
        pytest.param(429, b"Too many requests", errors.Throttled, "Throttled", id="429-text"),
        pytest.param(500, status(500), errors.ServerError, "ServerError", id="500"),
        pytest.param(503, b"", errors.ServerError, "ServerError", id="503-empty"),
        pytest.param(599, b"\xff\xfe", errors.ServerError, "ServerError", id="599-bytes"),
        pytest.param(404, b'{"a": ', errors.NotFound, "NotFound", id="404-truncated"),
        pytest.param(404, [1], errors.NotFound, "NotFound", id="404-list"),
        pytest.param(302, b"", errors.NotKubernetes, "Unreachable", id="302"),
    ],
)
def test_class_by_status(code: int, body: Any, kind: type[errors.AccessError], reason: str) -> None:
    error = answered(code, body)
    assert type(error) is kind
    assert error.reason == reason
    if isinstance(error, errors.ApiError):
        assert error.status == code


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(403, errors.NotKubernetes, id="page-instead-of-an-api"),
        pytest.param(404, errors.NotKubernetes, id="page-404"),
        pytest.param(502, errors.ServerError, id="gateway-may-recover"),
    ],
)
def test_web_pages_are_not_quoted(code: int, kind: type[errors.AccessError]) -> None:
    error = answered(code, b"<html>request id 123</html>", {"Content-Type": "text/html; charset=utf-8"})
    assert type(error) is kind
    assert "request id" not in str(error)


@pytest.mark.parametrize(
    ("text", "causes", "denied_by", "said"),
    [
        pytest.param(
            NO_RIGHT,
            [],
            "authorization",
            'user "jane" has no right to get deviceclasses.resource.k8s.io (GET /apis)',
            id="right",
        ),
        pytest.param(
            NO_SECRET,
            [],
            "authorization",
            'user "jane" has no right to list secrets in namespace n (GET /apis)',
            id="right-in-namespace",
        ),
        pytest.param(
            'forbidden: User "jane" cannot get path "/metrics"',
            [],
            "authorization",
            'user "jane" has no right to get /metrics (GET /apis)',
            id="right-on-path",
        ),
        pytest.param(
            "unable to create new content in namespace n because it is being terminated",
            [{"reason": "NamespaceTerminating", "message": "…", "field": "metadata.namespace"}],
            "terminating-namespace",
            "being terminated",
            id="terminating-namespace",
        ),
        pytest.param(
            "create not allowed while custom resource definition is terminating",
            [],
            "terminating-definition",
            "definition is terminating",
            id="terminating-definition",
        ),
        pytest.param('pods "p" is forbidden: exceeded quota: q', [], "quota", "exceeded quota", id="quota"),
        pytest.param(
            'admission webhook "w.example.com" denied the request: no',
            [],
            "admission",
            "denied the request",
            id="webhook",
        ),
        pytest.param("", [], "authorization", "GET /apis was answered with 403", id="silent"),
    ],
)
def test_meanings_of_403(text: str, causes: list[dict[str, str]], denied_by: str, said: str) -> None:
    error = answered(403, status(403, "Forbidden", text, {"causes": causes}))
    assert isinstance(error, errors.Forbidden)
    assert error.denied_by == denied_by
    assert said in str(error)


def test_403_to_nobody_in_particular_is_no_missing_right() -> None:
    error = answered(403, status(403, "Forbidden", ANONYMOUS, {}))
    assert isinstance(error, errors.Unauthorized)
    assert str(error) == "the kubeconfig carries no credential that the server accepted (GET /apis as system:anonymous)"


@pytest.mark.parametrize(
    ("body", "kind_known", "said"),
    [
        pytest.param(
            status(404, "NotFound", 'crds "x" not found', {"name": "x", "kind": "crds"}),
            True,
            'crds "x" not found',
            id="object",
        ),
        pytest.param(
            status(404, "NotFound", "the server could not find the requested resource"),
            False,
            "does not serve this API",
            id="resource",
        ),
        pytest.param(b"404 page not found\n", False, "does not serve this API", id="group"),
    ],
)
def test_meanings_of_404(body: Any, *, kind_known: bool, said: str) -> None:
    error = answered(404, body)
    assert isinstance(error, errors.NotFound)
    assert error.kind_known is kind_known
    assert said in str(error)


@pytest.mark.parametrize(
    ("reason", "causes", "already_exists", "managers"),
    [
        pytest.param("AlreadyExists", [], True, (), id="create"),
        pytest.param("Conflict", [], False, (), id="stale"),
        pytest.param("Conflict", CLAIMED, False, ("helm", "kubectl edit"), id="field-managers"),
    ],
)
def test_meanings_of_409(
    reason: str, causes: list[dict[str, str]], *, already_exists: bool, managers: tuple[str, ...]
) -> None:
    error = answered(409, status(409, reason, "no", {"causes": causes}))
    assert isinstance(error, errors.Conflict)
    assert (error.already_exists, error.field_managers) == (already_exists, managers)
    if managers:
        assert str(error) == "helm, kubectl edit owns .spec.a, .spec.b, .spec.c (GET /apis)"


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        pytest.param({"Retry-After": "7"}, {}, 7.0, id="header"),
        pytest.param({}, {"retryAfterSeconds": 3}, 3.0, id="details"),
        pytest.param({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, {}, None, id="date"),
        pytest.param({}, {}, None, id="none"),
    ],
)
def test_retry_after(headers: dict[str, str], details: dict[str, Any], expected: float | None) -> None:
    error = answered(429, status(429, details=details), headers)
    assert isinstance(error, errors.Throttled)
    assert error.retry_after == expected


@pytest.mark.parametrize(
    ("text", "permanent"),
    [
        pytest.param("request to convert CR to an invalid group/version: x/v1", True, id="managed-fields"),
        pytest.param("etcdserver: request timed out", False, id="etcd"),
    ],
)
def test_which_500_is_permanent(text: str, *, permanent: bool) -> None:
    error = answered(500, status(500, "InternalError", text))
    assert isinstance(error, errors.ServerError)
    assert error.permanent is permanent


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            "read tcp 10.0.0.1:54321->10.0.0.2:443: reset", "read tcp 10.0.0.1:1->10.0.0.2:443: reset", id="port"
        ),
        pytest.param(
            "expired: current time 2026-12-01T04:00:00Z is after 2026-11-30T00:00:00Z",
            "expired: current time 2026-12-01T04:01:00Z is after 2026-11-30T00:00:00Z",
            id="time",
        ),
        pytest.param(
            "request 6f1c8b0e-0000-4000-8000-000000000001 failed",
            "request 6f1c8b0e-0000-4000-8000-0000000000ff failed",
            id="uuid",
        ),
    ],
)
def test_same_trouble_same_message(first: str, second: str) -> None:
    assert str(answered(500, status(500, "", first))) == str(answered(500, status(500, "", second)))


def test_a_message_is_one_short_line() -> None:
    message = str(answered(500, status(500, "", "a\r\n\tb\x1b[31m " + "x" * 10_000)))
    assert message.startswith("GET /apis was answered with 500: a b [31m xxx")
    assert message.endswith("…")
    assert len(message) < 400
    assert message.isprintable()


@pytest.mark.parametrize(
    "status_body",
    [
        pytest.param({"details": "text", "message": 5, "reason": None}, id="wrong-types"),
        pytest.param({"details": {"causes": "text", "retryAfterSeconds": "soon"}}, id="wrong-causes"),
        pytest.param({"details": {"causes": [1, None]}}, id="wrong-cause"),
    ],
)
def test_a_malformed_status_is_survived(status_body: dict[str, Any]) -> None:
    error = answered(409, status_body)
    assert isinstance(error, errors.Conflict)
    assert (error.field_managers, error.causes, error.retry_after) == ((), (), None)


def test_a_name_that_does_not_resolve() -> None:
    # Not provoked: a test must not ask a name server.
    key = aiohttp.client_reqrep.ConnectionKey("host", 6443, True, True, None, None, None)  # noqa: FBT003
    fault = aiohttp.ClientConnectorDNSError(key, OSError(-2, "Name or service not known"))
    assert str(unreachable(SERVER, fault, timeout=5, connect_timeout=3)) == (
        "https://host:6443 has a host name that does not resolve"
    )


@pytest.mark.parametrize(
    ("number", "said"),
    [
        pytest.param(113, "https://host:6443 is on a network without a route from here", id="no-route"),
        pytest.param(98, "https://host:6443 cannot be connected to (EADDRINUSE)", id="other"),
    ],
)
def test_network_trouble(number: int, said: str) -> None:
    key = aiohttp.client_reqrep.ConnectionKey("host", 6443, True, True, None, None, None)  # noqa: FBT003
    fault = aiohttp.ClientConnectorError(key, OSError(number, "text"))
    assert str(unreachable(SERVER, fault, timeout=5, connect_timeout=3)) == said


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("no context \x1b[31m\r\n\u2028\x85'a'", "no context [31m 'a'", id="control-characters"),
        pytest.param("x" * 5000, "x" * 999 + "…", id="long"),
        pytest.param("context 6f1c8b0e-0000-4000-8000-000000000001", None, id="our-own-names-stay"),
    ],
)
def test_any_message_is_one_line(said: str, expected: str | None) -> None:
    error = errors.KubeconfigInvalid(said)
    assert str(error) == error.message == (expected or said)
