"""What goes when an InferenceCluster is deleted, in which order, and what is said of what does not go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from aiohttp import web

from events import types
from events.event import Event
from functions.compose.sets import COMPOSITIONS
from functions.compose.teardown import PATIENCE
from functions.demo.controllers import FINALIZER, Controllers
from tests.compose.apart import deleted, finalize, release, wait_for
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, step_of
from tests.faults import Fault
from tests.support import CLUSTERS, apply, hold, put_cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from functions.compose.step import Composition, Step
    from functions.local.api import Api
    from tests.compose.apart import Apart

HELD = "tests.example.com/held"
NAMESPACE = step_of(GATEWAY, "Namespace modelplane-system")
THE_CLASS = step_of(GATEWAY, "GatewayClass envoy")
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
POLICY = step_of(GATEWAY, "ClientTrafficPolicy cluster-gateway-client-auth")
CLIENT_CAS = step_of(GATEWAY, "ConfigMap modelplane-inference-gateway-cas")
BY_NAME = [pytest.param(each, id=each.name) for each in COMPOSITIONS]


def is_going(stage: Apart, step: Step) -> bool:
    found = stage.live(step)
    return found is not None and "deletionTimestamp" in found["metadata"]


def let_go(api: Api, step: Step) -> None:
    """Takes the test's hold off an object that is being deleted; returns when it is gone."""
    release(api, step.path, HELD)
    finalize(api)
    wait_for(lambda: api.request("GET", step.path).status == 404, f"{step} to go")


@pytest.mark.parametrize("composition", BY_NAME)
async def test_the_finalizer_is_on_before_the_first_object(away: Apart, composition: Composition) -> None:
    held_at: list[bool] = []

    async def look(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method != "GET":
            held_at.append(away.is_held(composition))
        return await real()

    away.publish_ca()
    await away.judge()
    assert away.holders() == []
    away.faulty.faults.append(Fault("/", look))
    await away.compose(composition)
    assert held_at
    assert all(held_at)
    assert away.holders() == [composition.finalizer]


@pytest.mark.parametrize("composition", BY_NAME)
async def test_each_goes_when_the_one_that_came_after_it_is_really_gone(away: Apart, composition: Composition) -> None:
    await away.bring_up()
    left = deleted(composition)
    for each in left:
        hold(away.away.api, each.path, [HELD])
    away.delete()
    while left:
        await away.compose()
        assert [str(each) for each in left if is_going(away, each)] == [str(left[-1])]
        status, reason, message = away.says(composition)
        assert (status, reason) == ("False", "Removing")
        assert message.startswith(f"{left[-1]} is being deleted, held by finalizer {HELD}")
        assert away.is_held(composition)
        let_go(away.away.api, left.pop())
    await away.compose()
    assert not away.is_held(composition)
    assert away.there(composition) == []


@pytest.mark.parametrize(
    ("key", "with_it"),
    [
        pytest.param(
            "Gateway cluster-gateway",
            {"GatewayClass envoy", "EnvoyProxy cluster-gateway", POLICY.key, CLIENT_CAS.key},
            id="with what it uses and what guards it",
        ),
        pytest.param("Issuer modelplane-cluster-ca", set(), id="one in between"),
        pytest.param("Secret cluster-gateway-serving", set(), id="what cert-manager made"),
        pytest.param("ConfigMap modelplane-inference-gateway-cas", set(), id="a built-in kind"),
    ],
)
async def test_one_of_that_name_that_somebody_else_made_meanwhile_stays(
    away: Apart, key: str, with_it: set[str]
) -> None:
    """It takes the place of ours between the look and the delete, which therefore has to say which one it means."""
    step = step_of(GATEWAY, key)
    await away.bring_up()
    away.free()
    ours = away.live(step)
    assert ours is not None
    replaced: list[str] = []

    async def replace(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method == "DELETE" and not replaced:
            assert away.away.api.request("DELETE", step.path).status == 200
            replaced.append(apply(away.away.api, step.path, foreign(ours))["metadata"]["uid"])
        return await real()

    away.faulty.faults.append(Fault(step.path, replace, exact=True))
    away.delete()
    await away.finish()
    left = away.live(step)
    assert left is not None
    assert [left["metadata"]["uid"]] == replaced
    assert left["metadata"].get("deletionTimestamp") is None
    assert set(away.there(GATEWAY)) == {key, "Namespace modelplane-system", *with_it}
    assert away.ours(GATEWAY) == []


def foreign(found: dict[str, Any]) -> dict[str, Any]:
    """The same object as somebody else would make it."""
    metadata = {key: found["metadata"][key] for key in ("name", "namespace") if key in found["metadata"]}
    rest = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    return {**rest, "metadata": metadata}


async def test_a_gateway_whose_controller_has_gone_is_named_and_goes_when_it_is_back(away: Apart) -> None:
    await away.bring_up()
    away.delete()
    await away.compose()
    held = f"is being deleted, held by finalizer {FINALIZER}"
    assert away.says(GATEWAY) == ("False", "Removing", f"{THE_GATEWAY} {held}")
    await away.time.sleep(2 * PATIENCE)
    await away.compose(tick=True)
    assert away.says(GATEWAY) == (
        "False",
        "TeardownBlocked",
        f"{THE_GATEWAY}: {held} since {since(away, THE_GATEWAY)}; is envoy-gateway, which has to let it go, running?",
    )
    assert away.there(GATEWAY) == [each.key for each in deleted(GATEWAY)], "nothing else goes before the Gateway"
    async with Controllers(away.client):
        for each in (THE_GATEWAY, THE_CLASS, NAMESPACE):
            await went(away, each)
            await away.deliver("compose/gateway", away.changed(each, "delete"))
    assert not away.is_held(GATEWAY)
    assert away.there(GATEWAY) == []


def since(stage: Apart, step: Step) -> str:
    found = stage.live(step)
    assert found is not None
    return str(found["metadata"]["deletionTimestamp"])


async def went(stage: Apart, step: Step) -> None:
    async with asyncio.timeout(20):
        while stage.live(step) is not None:
            finalize(stage.away.api)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("composition", "key", "hint"),
    [
        pytest.param(GATEWAY, POLICY.key, "; is envoy-gateway, which has to let it go, running?", id="envoy-gateway"),
        pytest.param(
            GATEWAY,
            "Bundle modelplane-cluster-ca",
            "; is trust-manager, which has to let it go, running?",
            id="trust-manager",
        ),
        pytest.param(
            GATEWAY,
            "Certificate cluster-gateway-serving",
            "; is cert-manager, which has to let it go, running?",
            id="cert-manager",
        ),
        pytest.param(
            QUEUES, "Queue modelplane-root", "; is kai-scheduler, which has to let it go, running?", id="kai-scheduler"
        ),
        pytest.param(MODELEXPRESS, "Deployment modelexpress-server", "", id="nothing of the substrate"),
    ],
)
async def test_who_has_to_let_go_is_named(away: Apart, composition: Composition, key: str, hint: str) -> None:
    step = step_of(composition, key)
    await away.bring_up()
    away.free()
    hold(away.away.api, step.path, [HELD])
    away.delete()
    await away.compose()
    assert away.says(composition)[1] == "Removing"
    await away.time.sleep(2 * PATIENCE)
    await away.compose(tick=True)
    said = f"{step}: is being deleted, held by finalizer {HELD} since {since(away, step)}{hint}"
    assert away.says(composition) == ("False", "TeardownBlocked", said)
    let_go(away.away.api, step)
    await away.finish()
    assert away.there(composition) == []


async def test_without_a_client_ca_the_gateway_goes_first_and_with_one_it_comes_last(away: Apart) -> None:
    await away.bring_up()
    assert away.published().keys() == {"address", "hostname", "caCertificate"}
    left = [CLIENT_CAS, POLICY, THE_GATEWAY]
    for each in left:
        hold(away.away.api, each.path, [HELD])
    away.withdraw_ca()
    while left:
        await away.compose(GATEWAY)
        assert [str(each) for each in left if is_going(away, each)] == [str(left[-1])]
        assert away.says(GATEWAY)[:2] == ("False", "WaitingForClientCA")
        missing = "no InferenceGateway has published a client CA"
        assert f"{left[-1]}: {missing}; is being deleted, held by finalizer {HELD}" in away.says(GATEWAY)[2]
        assert away.published() == {}
        let_go(away.away.api, left.pop())
    await away.compose(GATEWAY)
    withheld = {CLIENT_CAS.key, POLICY.key, THE_GATEWAY.key}
    assert set(away.there(GATEWAY)) == {each.key for each in deleted(GATEWAY)} - withheld
    away.publish_ca("us")
    await away.compose(GATEWAY)
    came = [away.live(each) for each in (CLIENT_CAS, POLICY, THE_GATEWAY)]
    # Nobody has written to them since, so that this is the moment at which each was created.
    moments = [int(each["metadata"]["resourceVersion"]) for each in came if each is not None]
    assert len(moments) == 3
    assert moments == sorted(moments)
    async with Controllers(away.client):
        await away.settle()
    assert away.published().keys() == {"address", "hostname", "caCertificate"}


async def test_a_gateway_that_may_not_be_deleted_for_want_of_a_client_ca_is_named(away: Apart) -> None:
    await away.bring_up()
    away.withdraw_ca()
    denied = {"kind": "Status", "message": 'User "we" cannot delete resource "gateways"'}

    async def refuse(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        return web.json_response(denied, status=403) if request.method == "DELETE" else await real()

    away.faulty.faults.append(Fault(THE_GATEWAY.path, refuse))
    await away.compose(GATEWAY)
    assert away.says(GATEWAY)[:2] == ("False", "WaitingForClientCA")
    assert f"{THE_GATEWAY}: " in away.says(GATEWAY)[2]
    assert 'user "we" has no right to delete gateways' in away.says(GATEWAY)[2]
    assert {POLICY.key, CLIENT_CAS.key, THE_GATEWAY.key} <= set(away.there(GATEWAY))


async def test_others_who_hold_the_cluster_read_what_stays(away: Apart) -> None:
    await away.bring_up()
    away.free()
    theirs = "/api/v1/namespaces/modelplane-system/configmaps/theirs"
    apply(away.away.api, theirs, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}})
    hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), HELD])
    away.delete()
    await away.until(lambda: away.holders() == [HELD])
    stays = "Namespace modelplane-system stays: configmaps/theirs lives in it"
    assert away.says(GATEWAY) == ("False", "Removed", stays)
    assert away.says(QUEUES)[:2] == ("False", "Removed")
    assert away.says(MODELEXPRESS)[:2] == ("False", "Removed")
    assert away.published() == {}
    namespace = away.live(NAMESPACE)
    assert namespace is not None
    assert not any("modelplane.ai" in each for each in namespace["metadata"].get("annotations") or {})
    assert not any("modelplane.ai" in each for each in namespace["metadata"]["labels"])
    assert away.away.api.request("GET", theirs).status == 200


def late(stage: Apart) -> list[Event]:
    """Every kind of event that may still be under way when its cause is long gone."""
    extensions = {"cluster": "gpu-1", "component": "kai-scheduler"}
    deletion = {"deletionTimestamp": "2026-12-01T04:00:00Z"}
    about = {"outcome": "Met", "reason": "Met", "message": "", "generation": 1}
    return [
        stage.check(),
        stage.check(types.TICK),
        stage.check("ClientCA"),
        Event(id="1", source="/t", type=types.REQUIREMENT_MET, extensions=extensions, data=orjson.dumps(about)),
        Event(id="2", source="/t", type=types.DELETING, extensions={"cluster": "gpu-1"}, data=orjson.dumps(deletion)),
        *(stage.changed(each, verb) for each in (THE_GATEWAY, THE_CLASS) for verb in ("add", "update", "delete")),
    ]


async def test_late_events_bring_nothing_back(away: Apart) -> None:
    await away.bring_up()
    away.free()
    last = [each.steps[0] for each in COMPOSITIONS]
    for each in last:
        hold(away.away.api, each.path, [HELD])
    away.delete()
    await away.compose()
    for event in late(away):
        for composition in COMPOSITIONS:
            await away.deliver(f"compose/{composition.name}", event)
    assert [away.there(each) for each in COMPOSITIONS] == [[each.key] for each in last]
    for each in last:
        let_go(away.away.api, each)
    await away.finish()
    for event in late(away):
        for composition in COMPOSITIONS:
            assert await away.deliver(f"compose/{composition.name}", event) == []
    assert [away.there(each) for each in COMPOSITIONS] == [[], [], []]
    assert away.is_gone()


async def test_a_cluster_of_the_same_name_takes_nothing_over(away: Apart) -> None:
    """Its finalizers were taken off by hand, so that its objects were left behind."""
    await away.bring_up()
    hold(away.api, f"{CLUSTERS}/gpu-1", None)
    away.delete()
    assert away.is_gone()
    put_cluster(away.api, stack="Dynamo")
    before = away.objects()
    await away.judge()
    await away.compose()
    for composition in COMPOSITIONS:
        status, reason, message = away.says(composition)
        assert (status, reason) == ("False", "Conflict")
        assert "it belongs to InferenceCluster gpu-1" in message
        for each in composition.steps:
            if each.manifest is not None and not each.shared:
                assert str(each) in message
    assert away.objects() == before
    away.delete()
    await away.compose()
    assert away.is_gone()
    assert away.objects() == before
