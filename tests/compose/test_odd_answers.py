"""What a target has or answers that nobody would expect: it is named, and keeps nothing else from being right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.demo.controllers import Controllers
from tests.compose.apart import JSON_PATCH, MERGE, turn
from tests.compose.drift import CLIENT_CAS, HTTP, POLICY, THE_GATEWAY
from tests.compose.stage import GATEWAY, QUEUES, step_of
from tests.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.compose.apart import Apart

PROXY = step_of(GATEWAY, "EnvoyProxy cluster-gateway")
BUNDLE = step_of(GATEWAY, "Bundle modelplane-cluster-ca")
ROOT, _ = QUEUES.steps
OPTIONAL = "/spec/tls/clientValidation/optional"
ODD_OBJECTS = [
    "[]",
    "{}",
    "null",
    '"x"',
    '{"metadata": null}',
    '{"kind": "Queue", "metadata": {"name": "modelplane-root"}}',
    '{"metadata": {"name": "modelplane-root", "uid": "1", "resourceVersion": "1", "annotations": []}, "spec": 5}',
    '{"metadata": {"name": "modelplane-root", "uid": "1", "resourceVersion": "1", "managedFields": "x"}}',
]


def answers(code: int, body: str, content_type: str = "application/json", method: str = "") -> Any:
    """Answers requests of this method, or all, with that."""

    async def answer(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if method and request.method != method:
            return await real()
        headers = {"Location": "https://elsewhere.example"} if code == 302 else {}
        return web.Response(status=code, text=body, content_type=content_type, headers=headers)

    return answer


def is_optional(stage: Apart) -> bool:
    """Whether callers without a certificate are let in."""
    return bool(stage.found(POLICY)["spec"]["tls"]["clientValidation"].get("optional"))


def make_optional(stage: Apart) -> None:
    turn(stage.away.api, POLICY.path, [{"op": "add", "path": OPTIONAL, "value": True}])


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


async def test_what_is_nested_deep_is_taken_out_and_the_rest_put_right(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    patch = {"spec": {"provider": {"kubernetes": {"envoyService": {"patch": {"value": nested(900)}}}}}}
    assert away.away.api.request("PATCH", PROXY.path, patch, content_type=MERGE).status == 200
    make_optional(away)
    await away.compose(GATEWAY)
    assert not is_optional(away)
    service = away.found(PROXY)["spec"]["provider"]["kubernetes"]["envoyService"]
    assert "patch" not in service
    assert str(PROXY) not in away.says(GATEWAY)[2]


@pytest.mark.parametrize(
    ("code", "body", "content_type"),
    [
        pytest.param(302, "", "text/plain", id="redirect"),
        pytest.param(403, "<html>no</html>", "text/html", id="web page"),
        pytest.param(200, "<html>log in</html>", "text/html", id="login"),
        pytest.param(200, "[]", "application/json", id="list"),
    ],
)
async def test_one_object_that_cannot_be_read_keeps_no_other_from_being_right(
    away: Apart, code: int, body: str, content_type: str
) -> None:
    await away.bring_up(GATEWAY)
    away.faulty.faults.append(Fault(BUNDLE.path, answers(code, body, content_type), exact=True))
    make_optional(away)
    await away.compose(GATEWAY)
    assert not is_optional(away)
    status, reason, message = away.says(GATEWAY)
    assert (status, reason) == ("Unknown", "Unreachable")
    assert str(BUNDLE) in message
    away.withdraw_ca()
    away.free()
    await away.until(lambda: away.live(THE_GATEWAY) is None)


@pytest.mark.parametrize("code", [405, 406, 413, 415])
async def test_a_write_that_is_refused_in_an_odd_way_ends_nothing_but_itself(away: Apart, code: int) -> None:
    await away.bring_up(GATEWAY)
    away.faulty.faults.append(Fault(CLIENT_CAS.path, answers(code, "no", "text/plain", method="PATCH"), exact=True))
    away.publish_ca("us")
    turn(away.away.api, THE_GATEWAY.path, [{"op": "add", "path": "/spec/listeners/-", "value": HTTP}])
    await away.compose(GATEWAY)
    assert [each["name"] for each in away.found(THE_GATEWAY)["spec"]["listeners"]] == ["https"]
    assert f"{CLIENT_CAS}: " in away.says(GATEWAY)[2]
    assert away.says(GATEWAY)[0] == "Unknown"


@pytest.mark.parametrize("body", ODD_OBJECTS)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_what_is_no_object_is_named(away: Apart, method: str, body: str) -> None:
    await away.judge()
    away.faulty.faults.append(Fault(ROOT.path, answers(200, body, method=method), exact=True))
    answer = await away.handled(QUEUES)
    assert answer.outcome == "handled", answer
    status, _, message = away.says(QUEUES)
    assert status == "Unknown"
    assert f"{ROOT}: " in message
    assert "not answer like a Kubernetes API server" in message
    away.faulty.faults.clear()


@pytest.mark.parametrize(
    "page", ['{"items": 5}', "{}", '{"items": [{}], "metadata": {}}', '{"items": [5], "metadata": {}}']
)
async def test_a_list_that_is_none_blocks_teardown_and_is_named(away: Apart, page: str) -> None:
    await away.judge()
    async with Controllers(away.client):
        await away.compose(GATEWAY)
        away.faulty.faults.append(Fault(THE_GATEWAY.kind.path(), answers(200, page), exact=True))
        away.delete()
        await away.until(lambda: away.says(GATEWAY)[1] == "TeardownBlocked")
        assert "not answer like a Kubernetes API server" in away.says(GATEWAY)[2]
        away.faulty.faults.clear()
        await away.finish()


@pytest.mark.parametrize("key", [f"f:{'x' * 5}", f"v:{'[' * 1100}", f'k:{{"name":{"[" * 1100}', "k:5", "i:x"])
async def test_field_owners_of_any_form_are_read(away: Apart, key: str) -> None:
    await away.judge()
    await away.compose(QUEUES)
    entries = away.found(ROOT)["metadata"]["managedFields"]
    odd = {
        "manager": "odd",
        "operation": "Update",
        "apiVersion": "scheduling.run.ai/v2",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:resources": {key: {}}}},
    }
    patch: Any = [{"op": "replace", "path": "/metadata/managedFields", "value": [*entries, odd]}]
    assert away.away.api.request("PATCH", ROOT.path, patch, content_type=JSON_PATCH).status == 200
    assert (await away.handled(QUEUES)).outcome == "handled"
    assert away.says(QUEUES)[0] == "True"
