"""What others made is never touched: it is named, left as it is, and taken over only where its owner hands it over."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from functions.demo.controllers import Controllers
from tests.compose.foreign import ADOPT, BY_KEY, IMMUTABLE, THEIRS, WITHIN, carry_out, plant, settled, theirs
from tests.compose.needs import NAMESPACE, resting_on
from tests.compose.stage import GATEWAY, applied, step_of
from tests.faults import Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from functions.compose.step import Composition, Step
    from tests.compose.apart import Apart

SYSTEM = "modelplane-system"
OWNER = "modelplane.ai/inference-cluster"
OWNER_UID = "modelplane.ai/inference-cluster-uid"


def says(stage: Apart, composition: Composition) -> str:
    """Reason and message of the condition of a set."""
    condition = stage.condition(composition)
    return f"{condition['reason']}: {condition['message']}"


def others(composition: Composition, step: Step) -> set[str]:
    """The objects of a set that do not rest on one of them; the namespace apart, which others may have made.

    Beside a Gateway of somebody else's there is nothing either that would change who may call it.
    """
    beside = step.after if step.guarded else ()
    resting = (each.key for each in resting_on(composition, step))
    return set(applied(composition)) - {NAMESPACE, step.key, *beside, *resting}


async def composed(stage: Apart, composition: Composition, keys: set[str]) -> None:
    """Wakes a set until these objects of it are there and ours, and what was said of them is said."""
    deadline = monotonic() + WITHIN
    while not keys <= set(stage.ours(composition)):
        assert monotonic() < deadline, says(stage, composition)
        await stage.compose(composition)
    for _ in range(2):
        await stage.compose(composition)


async def conflicting(stage: Apart, composition: Composition, step: Step) -> str:
    """What is said of an object that somebody else made, when all is composed that can be."""
    await composed(stage, composition, others(composition, step))
    assert set(stage.ours(composition)) - {NAMESPACE} == others(composition, step), says(stage, composition)
    message = stage.condition(composition)["message"]
    assert stage.condition(composition)["reason"] == "Conflict"
    match = re.search(rf"(?:^|; ){re.escape(str(step))}: ([^;]+; [^;]+)", message)
    assert match, message
    return match[1]


@pytest.mark.parametrize("key", THEIRS)
async def test_what_somebody_else_made_is_named_and_stays_as_it_is(away: Apart, key: str) -> None:
    composition, step = BY_KEY[key]
    plant(away.away.api, step, THEIRS[key])
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        before = theirs(await settled(away.away.api, step))
        said = await conflicting(away, composition, step)
        assert re.match(
            r"it was made by somebody(, stand-in)?; delete it, or hand it over on the target: kubectl annotate ", said
        )
        assert theirs(away.live(step)) == before
        away.delete()
        await away.finish(within=WITHIN)
    assert theirs(away.live(step)) == before
    assert away.ours(composition) == []


@pytest.mark.parametrize("key", THEIRS)
async def test_what_is_handed_over_becomes_exactly_ours_and_goes_with_the_rest(away: Apart, key: str) -> None:
    composition, step = BY_KEY[key]
    planted = plant(away.away.api, step, THEIRS[key])
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        await settled(away.away.api, step)
        said = await conflicting(away, composition, step)
        carry_out(away.away.api, said.rpartition("hand it over on the target: ")[2])
        await away.settle(composition, within=WITHIN)
        adopted = await settled(away.away.api, step)
        assert adopted["metadata"]["uid"] == planted["metadata"]["uid"]
        assert adopted["metadata"]["labels"][OWNER] == "gpu-1"
        assert adopted["metadata"]["annotations"][OWNER_UID] == away.uid()
        assert ADOPT not in adopted["metadata"]["annotations"]
        assert away.away.api.request("DELETE", step.path).status in {200, 202}
        await away.until(lambda: is_new(away, step, planted), within=WITHIN)
        await away.settle(composition, within=WITHIN)
        made_anew = await settled(away.away.api, step)
        assert content(adopted) == content(made_anew)
        away.delete()
        await away.finish(within=WITHIN)
    assert away.there(composition) == ([NAMESPACE] if step.namespace == SYSTEM else [])


def is_new(stage: Apart, step: Step, planted: dict[str, Any]) -> bool:
    """Whether an object has been made anew since."""
    found = stage.live(step)
    return found is not None and found["metadata"]["uid"] != planted["metadata"]["uid"]


def content(found: dict[str, Any]) -> dict[str, Any]:
    """An object without what the API server and controllers note on it."""
    kept = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    if found["kind"] == "Service":
        kept["spec"] = {key: value for key, value in kept["spec"].items() if not key.startswith("clusterIP")}
    return {**kept, "labels": found["metadata"]["labels"], "annotations": found["metadata"]["annotations"]}


@pytest.mark.parametrize("key", IMMUTABLE)
async def test_what_cannot_become_exactly_ours_is_refused_and_stays_as_it_is(away: Apart, key: str) -> None:
    composition, step = BY_KEY[key]
    plant(away.away.api, step, IMMUTABLE[key])
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        await settled(away.away.api, step)
        said = await conflicting(away, composition, step)
        carry_out(away.away.api, said.rpartition("hand it over on the target: ")[2])
        before = theirs(await settled(away.away.api, step))
        for _ in range(2):
            await away.compose(composition)
        message = says(away, composition)
        assert message.startswith(f"Conflict: {step}: it is handed over, but cannot be made what it should be: ")
        assert re.search(r"immutable|cannot change", message)
        assert theirs(away.live(step)) == before
        away.delete()
        await away.finish(within=WITHIN)
    assert theirs(away.live(step)) == before


async def test_a_gateway_that_is_handed_over_is_not_touched_without_a_client_ca(away: Apart) -> None:
    step = step_of(GATEWAY, "Gateway cluster-gateway")
    plant(away.away.api, step, THEIRS[step.key])
    carry_out(
        away.away.api,
        f"kubectl annotate gateways.gateway.networking.k8s.io {step.name} -n {step.namespace} {ADOPT}=true",
    )
    await away.judge()
    async with Controllers(away.client):
        before = theirs(await settled(away.away.api, step))
        await composed(
            away, GATEWAY, {each.key for each in GATEWAY.steps if each.manifest and not each.client_ca} - {NAMESPACE}
        )
        assert says(away, GATEWAY).startswith("WaitingForClientCA: ")
        assert theirs(away.live(step)) == before
        away.delete()
        await away.finish(within=WITHIN)
    assert theirs(away.live(step)) == before


@pytest.mark.parametrize(
    "key",
    [
        "EnvoyProxy cluster-gateway",
        "GatewayClass envoy",
        "ConfigMap modelplane-inference-gateway-cas",
        "Queue modelplane-root",
        "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com",
        "ServiceAccount modelexpress-server",
        "Deployment modelexpress-server",
    ],
)
async def test_what_somebody_makes_between_look_and_create_is_not_taken_over(away: Apart, key: str) -> None:
    composition, step = BY_KEY[key]
    planted: list[dict[str, Any]] = []

    async def get_ahead(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method != "GET" and not planted:
            planted.append(plant(away.away.api, step, THEIRS[key]))
        return await real()

    away.faulty.faults.append(Fault(step.path, get_ahead, exact=True))
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        await conflicting(away, composition, step)
        (before,) = planted
        found = await settled(away.away.api, step)
    assert found["metadata"]["uid"] == before["metadata"]["uid"]
    assert {key: value for key, value in found.items() if key not in {"metadata", "status"}} == {
        key: value for key, value in before.items() if key not in {"metadata", "status"}
    }
    assert OWNER_UID not in (found["metadata"].get("annotations") or {})
