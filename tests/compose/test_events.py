"""What is told of a set while it comes, stands and goes: Kubernetes Events, CloudEvents, and the gateway's address."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from events import types
from functions.compose import kinds
from functions.compose.sets import COMPOSITIONS
from functions.compose.teardown import PATIENCE
from functions.demo.controllers import ADDRESS, FINALIZER, Controllers
from functions.local.certificates import Authority
from tests.compose.apart import MERGE, release
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, step_of
from tests.faults import Fault, hang
from tests.support import CLUSTERS, apply, conditions, get_cluster, hold, put_cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from events.event import Event
    from functions.compose.step import Composition
    from functions.local.api import Api
    from tests.compose.apart import Apart
    from tests.faults import Faulty

EVENTS = "/api/v1/namespaces/default/events"
HELD = "tests.example.com/held"
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
THE_CLASS = step_of(GATEWAY, "GatewayClass envoy")
CA = step_of(GATEWAY, "ConfigMap modelplane-cluster-ca")
ROOT, QUEUE = QUEUES.steps
HOSTNAME = f"gateway-gpu-1-{hashlib.sha256(b'gateway-gpu-1').hexdigest()[:5]}.modelplane-system.svc.cluster.local"


def told(api: Api, uid: str, composition: Composition | None = None) -> list[dict[str, Any]]:
    """The Kubernetes Events on an InferenceCluster, all of them or those of a set, the oldest first."""
    found = [each for each in api.request("GET", EVENTS).body["items"] if each["involvedObject"].get("uid") == uid]
    of_set = [each for each in found if composition is None or each["source"]["component"] == composition.manager]
    return sorted(of_set, key=lambda each: int(each["metadata"]["resourceVersion"]))


def story(api: Api, uid: str, composition: Composition) -> list[tuple[str, str]]:
    return [(each["type"], each["reason"]) for each in told(api, uid, composition)]


def everywhere(stage: Apart) -> dict[str, str]:
    """The version of every object that the functions could have written, on the hub and on the target."""
    versions = {path: each["metadata"]["resourceVersion"] for path, each in stage.objects().items()}
    collections = (CLUSTERS, f"{CLUSTERS.rpartition('/')[0]}/inferencegateways", EVENTS, "/api/v1/namespaces")
    for collection in collections:
        for each in stage.api.request("GET", collection).body["items"]:
            versions[f"hub {collection}/{each['metadata']['name']}"] = each["metadata"]["resourceVersion"]
    return versions


async def test_the_story_of_a_set_is_told_from_its_first_word_to_its_last(away: Apart) -> None:
    uid = away.uid()
    await away.compose(QUEUES)
    await away.judge()
    await away.compose(QUEUES)
    theirs = {"metadata": {"annotations": {"modelplane.ai/inference-cluster-uid": "another"}}}
    assert away.away.api.request("PATCH", ROOT.path, theirs, content_type=MERGE).status == 200
    await away.compose(QUEUES)
    ours = {"metadata": {"annotations": {"modelplane.ai/inference-cluster-uid": uid}}}
    assert away.away.api.request("PATCH", ROOT.path, ours, content_type=MERGE).status == 200
    await away.compose(QUEUES)
    hold(away.away.api, QUEUE.path, [HELD])
    away.delete()
    await away.compose(QUEUES)
    await away.time.sleep(2 * PATIENCE)
    await away.compose(QUEUES)
    release(away.away.api, QUEUE.path, HELD)
    await away.compose(QUEUES)
    assert story(away.api, uid, QUEUES) == [
        ("Normal", "WaitingForRequirements"),
        ("Normal", "Applied"),
        ("Warning", "Conflict"),
        ("Normal", "Applied"),
        ("Normal", "Removing"),
        ("Warning", "TeardownBlocked"),
        ("Normal", "Removed"),
    ]
    for each in told(away.api, uid):
        assert each["metadata"]["namespace"] == "default"
        reference = each["involvedObject"]
        assert (reference["kind"], reference["name"]) == ("InferenceCluster", "gpu-1")
        assert reference["apiVersion"] == "modelplane.ai/v1alpha1"
        assert each["message"].startswith("QueuesComposed")
    assert HELD in told(away.api, uid)[5]["message"]


async def nothing(_: Apart) -> None:
    """Nothing is installed that was judged."""


async def ready(stage: Apart) -> None:
    await stage.bring_up()


async def foreign(stage: Apart) -> None:
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": QUEUE.name}, "spec": {}}
    apply(stage.away.api, QUEUE.path, queue)
    await stage.judge()


async def without_client_ca(stage: Apart) -> None:
    await stage.judge()


async def held(stage: Apart) -> None:
    await stage.bring_up()
    for each in (ROOT, step_of(MODELEXPRESS, "Service modelexpress-server")):
        hold(stage.away.api, each.path, [HELD])
    stage.delete()
    await stage.compose()
    await stage.time.sleep(2 * PATIENCE)


async def dead(stage: Apart) -> None:
    await stage.judge()
    await stage.compose()
    await stage.restart(patience=0.2)
    stage.faulty.faults.append(hang())


@pytest.mark.parametrize("state", [nothing, ready, foreign, without_client_ca, held, dead])
async def test_where_nothing_changes_nothing_is_written_and_nothing_told(
    away: Apart, state: Callable[[Apart], Awaitable[None]]
) -> None:
    await state(away)
    await away.compose()
    said = {each.name: away.says(each) for each in COMPOSITIONS}
    before = everywhere(away)
    for number in range(10):
        await away.compose(tick=number % 2 == 1)
        await away.time.sleep(60)
    assert everywhere(away) == before
    assert {each.name: away.says(each) for each in COMPOSITIONS} == said
    away.faulty.faults.clear()


async def test_a_long_message_is_cut_for_an_event_and_shorter_in_it_than_in_the_condition(away: Apart) -> None:
    """The former InferenceCluster of that name left everything behind, which now is in conflict."""
    await away.bring_up()
    hold(away.api, f"{CLUSTERS}/gpu-1", None)
    away.delete()
    put_cluster(away.api, stack="Dynamo")
    await away.judge()
    await away.compose(GATEWAY)
    message = away.says(GATEWAY)[2]
    assert 1024 < len(message) <= 4096
    (event,) = told(away.api, away.uid(), GATEWAY)
    assert (event["type"], event["reason"]) == ("Warning", "Conflict")
    assert len(event["message"]) == 1024
    assert event["message"].endswith("…")
    assert event["message"].removesuffix("…") in f"GatewayComposed: {message}"


async def test_a_new_generation_is_followed_without_a_transition(away: Apart) -> None:
    await away.judge()
    await away.compose(QUEUES)
    before = conditions(away.api)[QUEUES.condition]
    uid, told_before = away.uid(), len(told(away.api, away.uid()))
    await away.time.sleep(60)
    tainted = {"spec": {"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]}}
    assert away.api.request("PATCH", f"{CLUSTERS}/gpu-1", tainted, content_type=MERGE).status == 200
    generation = get_cluster(away.api)["metadata"]["generation"]
    assert generation > before["observedGeneration"]
    assert await away.compose(QUEUES, tick=True) == []
    assert conditions(away.api)[QUEUES.condition] == {**before, "observedGeneration": generation}
    assert len(told(away.api, uid)) == told_before


@pytest.mark.parametrize("code", [403, 500])
async def test_a_hub_that_takes_no_events_stops_nothing(away: Apart, before_hub: Faulty, code: int) -> None:
    async def refuses(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        return web.Response(status=code, text="no Events here") if request.method == "POST" else await real()

    uid = away.uid()
    await away.judge()
    before_hub.faults.append(Fault(EVENTS, refuses))
    (said,) = await away.compose(QUEUES)
    assert said.type == types.COMPOSITION_APPLIED
    assert away.says(QUEUES)[:2] == ("True", "Applied")
    assert before_hub.faults[0].seen > 0
    away.delete()
    (said,) = await away.compose(QUEUES)
    assert said.type == types.COMPOSITION_REMOVED
    assert away.there(QUEUES) == []
    assert told(away.api, uid) == []


async def one(stage: Apart, *, tick: bool = False) -> Event:
    (said,) = await stage.compose(QUEUES, tick=tick)
    return said


async def test_what_functions_answer_tells_how_the_set_stands(away: Apart) -> None:
    waiting = await one(away)
    await away.judge()
    done = await one(away)
    theirs = {"metadata": {"annotations": {"modelplane.ai/inference-cluster-uid": "another"}}}
    assert away.away.api.request("PATCH", ROOT.path, theirs, content_type=MERGE).status == 200
    conflict = await one(away)
    hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), HELD])
    away.delete()
    removed = await one(away)
    assert await away.compose(QUEUES) == [], "of what is gone nothing is said twice"
    said = [waiting, done, conflict, removed]
    assert [each.type for each in said] == [
        types.COMPOSITION_WAITING,
        types.COMPOSITION_APPLIED,
        types.COMPOSITION_CONFLICT,
        types.COMPOSITION_REMOVED,
    ]
    assert [_reason(each) for each in said] == [
        ("False", "WaitingForRequirements"),
        ("True", "Applied"),
        ("False", "Conflict"),
        ("False", "Removed"),
    ]
    for each in said:
        assert each.subject == "gpu-1/queues"
        assert each.source == "/modelplane/serving-stack/compose/queues"
        assert each.extensions["cluster"] == "gpu-1"
        assert each.extensions["component"] == "queues"
        assert each.extensions["partitionkey"] == "gpu-1/queues"
    assert len({each.id for each in said}) == 4


def _reason(event: Event) -> tuple[str, str]:
    data = json.loads(event.data or b"{}")
    return data["status"], data["reason"]


async def test_the_same_standing_has_the_same_id_and_a_tick_says_only_what_is_new(away: Apart) -> None:
    await away.judge()
    first = await one(away, tick=True)
    assert first.type == types.COMPOSITION_APPLIED
    assert await away.compose(QUEUES, tick=True) == []
    again = await one(away)
    await away.restart()
    elsewhere = await one(away)
    assert first.id == again.id == elsewhere.id
    await away.time.sleep(1)
    assert away.away.api.request("DELETE", f"{QUEUE.path}").status == 200
    put_back = await one(away)
    assert put_back.id == first.id, "put back at once, it stands as it stood"


async def test_of_its_gateway_is_published_what_callers_need_and_nothing_before(away: Apart) -> None:
    await away.judge()
    async with Controllers(away.client):
        await away.until(lambda: away.live(CA) is not None)
        assert away.says(GATEWAY)[1] == "WaitingForClientCA"
        assert away.published() == {}
        away.publish_ca()
        await away.settle(GATEWAY)
    ca = away.live(CA)
    assert ca is not None
    assert away.published() == {"address": ADDRESS, "caCertificate": ca["data"]["ca.crt"], "hostname": HOSTNAME}
    certificate = Authority.new().certificate.decode()
    renewed = {"data": {"ca.crt": certificate}}
    assert away.away.api.request("PATCH", CA.path, renewed, content_type=MERGE).status == 200
    await away.deliver("compose/gateway", away.changed(CA))
    assert away.published()["caCertificate"] == certificate
    release(away.away.api, THE_GATEWAY.path, FINALIZER)
    hold(away.away.api, THE_CLASS.path, None)
    hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), HELD])
    away.delete()
    await away.compose(GATEWAY)
    assert away.published() == {}


async def test_without_its_own_ca_a_gateway_has_an_address_and_no_name(away: Apart) -> None:
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client, without=(kinds.BUNDLE,)):
        await away.until(lambda: bool(away.published()))
        assert away.published() == {"address": ADDRESS}
    async with Controllers(away.client):
        await away.settle(GATEWAY)
    assert away.published().keys() == {"address", "caCertificate", "hostname"}


def addresses(stage: Apart, *values: str) -> None:
    """Has the Gateway's status hold these addresses, as its controller would write."""
    status = {"status": {"addresses": [{"type": "IPAddress", "value": each} for each in values]}}
    answer = stage.away.api.request("PATCH", f"{THE_GATEWAY.path}/status", status, content_type=MERGE)
    assert answer.status == 200


async def test_an_address_is_cleared_when_it_is_still_gone_at_the_next_tick(away: Apart) -> None:
    await away.bring_up()
    before = away.published()
    addresses(away)
    for _ in range(2):
        await away.deliver("compose/gateway", away.changed(THE_GATEWAY))
        assert away.published() == before
        assert "has no address" in away.says(GATEWAY)[2]
    addresses(away, "203.0.113.20")
    await away.compose(GATEWAY, tick=True)
    before = {**before, "address": "203.0.113.20"}
    assert away.published() == before
    addresses(away)
    await away.compose(GATEWAY, tick=True)
    assert away.published() == before, "a tick that is the first to see it gone"
    await away.deliver("compose/gateway", away.changed(THE_GATEWAY))
    assert away.published() == before
    await away.compose(GATEWAY, tick=True)
    assert away.published() == {}
    addresses(away, ADDRESS)
    await away.deliver("compose/gateway", away.changed(THE_GATEWAY))
    assert away.published() == {**before, "address": ADDRESS}


async def test_a_gateway_that_is_made_anew_keeps_its_address_until_it_has_one_again(away: Apart) -> None:
    await away.bring_up()
    before = away.published()
    hold(away.away.api, THE_GATEWAY.path, None)
    assert away.away.api.request("DELETE", THE_GATEWAY.path).status == 200
    await away.deliver("compose/gateway", away.changed(THE_GATEWAY, "delete"))
    assert away.live(THE_GATEWAY) is not None
    assert away.published() == before
    async with Controllers(away.client):
        await away.settle(GATEWAY)
    assert away.published() == before
