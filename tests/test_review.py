"""From a state of the target to the conditions of the InferenceCluster, on a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.catalog import COMPONENTS, CustomResource, DeviceClass, Stack, component, of_stack
from functions.review import Ask, review
from tests.faults import Fault, faulty
from tests.support import (
    CLUSTERS,
    CRDS,
    DEVICE_CLASSES,
    Moving,
    apply,
    conditions,
    crd_manifest,
    get_cluster,
    gone,
    hold,
    open_world,
    provide,
    provide_all,
    put_cluster,
    put_kubeconfig,
    served,
    summary,
    withdraw,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World

CERTIFICATES = CustomResource("certificates.cert-manager.io", "v1")
STANDARD = [one for each in of_stack(Stack.STANDARD) for one in each.requirements]


@pytest.fixture
def time() -> Moving:
    return Moving()


@pytest.fixture
async def world(hub: ControlPlane, time: Moving) -> AsyncIterator[World]:
    """A hub that is its own target, with one Provided cluster `gpu-1` on it."""
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    world = await open_world(hub.kubeconfig, time.clock)
    put_cluster(hub.api)
    yield world
    await world.close()


@pytest.fixture
def api(hub: ControlPlane) -> Api:
    return hub.api


async def test_a_bare_cluster_lacks_everything_and_is_told_so_in_order(world: World, api: Api) -> None:
    await review(world, "gpu-1", Ask())
    assert summary(api) == ("False", "MissingRequirements")
    message = conditions(api)["RequirementsMet"]["message"]
    assert [message.index(str(each)) for each in STANDARD] == sorted(message.index(str(each)) for each in STANDARD)
    assert conditions(api)["CertManagerProvided"]["reason"] == "NotInstalled"
    assert conditions(api)["NvidiaDraDriverGpuProvided"]["reason"] == "NotFound"


@pytest.mark.parametrize("stack", [str(each) for each in Stack])
async def test_a_whole_substrate_is_met_and_its_removal_noticed(world: World, api: Api, stack: str) -> None:
    put_cluster(api, "gpu-2", stack=stack)
    provide_all(api)
    await served(world.hub.client, *(one for each in COMPONENTS for one in each.requirements))
    await review(world, "gpu-2", Ask())
    assert summary(api, "gpu-2") == ("True", "RequirementsMet")
    for each in of_stack(Stack(stack)):
        for requirement in each.requirements:
            withdraw(api, requirement)
            if isinstance(requirement, CustomResource):
                await gone(world.hub.client, CRDS, requirement.name)
            await review(world, "gpu-2", Ask(component=each, changed=requirement.name))
            assert conditions(api, "gpu-2")[each.condition]["status"] == "False", requirement
            assert str(requirement) in conditions(api, "gpu-2")["RequirementsMet"]["message"]


async def test_nothing_is_written_when_nothing_changed(world: World, api: Api) -> None:
    await review(world, "gpu-1", Ask())
    before = get_cluster(api)["metadata"]["resourceVersion"]
    await review(world, "gpu-1", Ask())
    await review(world, "gpu-1", Ask(component=component("cert-manager")))
    assert get_cluster(api)["metadata"]["resourceVersion"] == before


async def test_a_new_generation_is_observed_and_no_transition_time_moves(world: World, api: Api, time: Moving) -> None:
    await review(world, "gpu-1", Ask())
    before = conditions(api)
    await time.sleep(60)
    put_cluster(api, cache={"storageClassName": "shared"})
    await review(world, "gpu-1", Ask(component=component("cert-manager")))
    after = conditions(api)
    generation = get_cluster(api)["metadata"]["generation"]
    assert generation > before["RequirementsMet"]["observedGeneration"]
    for type_, condition in after.items():
        assert condition["observedGeneration"] == generation, type_
        assert condition["lastTransitionTime"] == before[type_]["lastTransitionTime"], type_


@pytest.mark.parametrize(
    "existing", [pytest.param({"components": "Managed"}, id="managed"), pytest.param({"components": None}, id="unsaid")]
)
async def test_a_cluster_that_is_not_provided_is_left_alone(world: World, api: Api, existing: dict[str, str]) -> None:
    put_cluster(api, "managed", **existing)
    before = get_cluster(api, "managed")
    assert await review(world, "managed", Ask()) is None
    assert get_cluster(api, "managed") == before


async def test_a_cluster_that_is_not_there_is_nothing(world: World) -> None:
    assert await review(world, "nobody", Ask()) is None


@pytest.mark.parametrize(
    ("versions", "detail"),
    [
        pytest.param(["v1beta1"], "installed, but serves v1beta1, not v1", id="another version"),
        pytest.param(["v1beta1", "-v1"], "installed, but serves v1beta1, not v1", id="listed and not served"),
        pytest.param(["v2", "v1beta1"], "installed, but serves v2, v1beta1, not v1", id="several others"),
    ],
)
async def test_a_version_that_is_not_served(world: World, api: Api, versions: list[str], detail: str) -> None:
    apply(api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, *versions))
    await served(world.hub.client, CERTIFICATES)
    await review(world, "gpu-1", Ask())
    condition = conditions(api)["CertManagerProvided"]
    assert (condition["status"], condition["reason"]) == ("False", "VersionNotServed")
    assert condition["message"] == f"{CERTIFICATES}: {detail}"


async def test_a_version_taken_away_is_noticed_before_discovery_drops_it(world: World, api: Api) -> None:
    await review(world, "gpu-1", Ask())
    for _ in range(8):
        apply(api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1beta1", "v1"))
        await served(world.hub.client, CERTIFICATES)
        for _ in range(50):
            await review(world, "gpu-1", Ask(component=component("cert-manager"), changed=CERTIFICATES.name))
            if conditions(api)["CertManagerProvided"]["status"] == "True":
                break
        assert conditions(api)["CertManagerProvided"]["status"] == "True"
        apply(api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1beta1", "-v1"))
        await review(world, "gpu-1", Ask(component=component("cert-manager"), changed=CERTIFICATES.name))
        assert conditions(api)["CertManagerProvided"]["reason"] == "VersionNotServed"


async def test_a_crd_on_its_way_is_no_news_to_an_event_and_told_by_the_tick(hub: ControlPlane, time: Moving) -> None:
    async def unestablished(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = await real()
        if answer.status != 200:
            return answer
        assert isinstance(answer.body, bytes)
        document = json.loads(answer.body)
        document["status"]["conditions"] = None
        return web.json_response(document)

    async def hidden(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = await real()
        assert isinstance(answer.body, bytes)
        document = json.loads(answer.body)
        document["items"] = [each for each in document["items"] if each["metadata"]["name"] != CERTIFICATES.group]
        return web.Response(body=json.dumps(document), headers={"Content-Type": answer.headers["Content-Type"]})

    async with faulty(hub) as target:
        target.faults += [Fault("/apis", hidden, exact=True), Fault(CRDS, unestablished)]
        put_kubeconfig(hub.api, target.kubeconfig)
        world = await open_world(hub.kubeconfig, time.clock)
        put_cluster(hub.api)
        await review(world, "gpu-1", Ask())
        assert conditions(hub.api)["CertManagerProvided"]["reason"] == "NotInstalled"
        apply(hub.api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1"))
        await served(world.hub.client, CERTIFICATES)
        await review(world, "gpu-1", Ask(component=component("cert-manager"), changed=CERTIFICATES.name))
        assert conditions(hub.api)["CertManagerProvided"]["reason"] == "NotInstalled"
        await review(world, "gpu-1", Ask(tick=True))
        condition = conditions(hub.api)["CertManagerProvided"]
        assert (condition["status"], condition["reason"]) == ("False", "NotEstablished")
        assert condition["message"] == f"{CERTIFICATES}: installed, but not Established yet"
        await world.close()


async def test_a_crd_whose_names_are_taken_says_by_which_rule(world: World, api: Api) -> None:
    usurper = crd_manifest("usurpers.cert-manager.io", "v1")
    usurper["spec"]["names"]["shortNames"] = ["certificates"]
    apply(api, f"{CRDS}/usurpers.cert-manager.io", usurper)
    await served(world.hub.client, CustomResource("usurpers.cert-manager.io", "v1"))
    manifest = crd_manifest(CERTIFICATES.name, "v1")
    manifest["spec"]["names"]["kind"] = "Usurper"
    apply(api, f"{CRDS}/{CERTIFICATES.name}", manifest)
    await review(world, "gpu-1", Ask())
    condition = conditions(api)["CertManagerProvided"]
    assert (condition["status"], condition["reason"]) == ("False", "NotEstablished")
    assert 'installed, but not Established: KindConflict: "Usurper" is already in use' in condition["message"]


async def test_a_crd_that_is_being_deleted(world: World, api: Api) -> None:
    manifest = crd_manifest(CERTIFICATES.name, "v1")
    manifest["metadata"]["finalizers"] = ["example.com/held"]
    apply(api, f"{CRDS}/{CERTIFICATES.name}", manifest)
    await served(world.hub.client, CERTIFICATES)
    await review(world, "gpu-1", Ask())
    assert conditions(api)["CertManagerProvided"]["status"] == "True"
    withdraw(api, CERTIFICATES)
    await review(world, "gpu-1", Ask(component=component("cert-manager"), changed=CERTIFICATES.name))
    condition = conditions(api)["CertManagerProvided"]
    assert (condition["status"], condition["reason"]) == ("False", "BeingDeleted")
    hold(api, f"{CRDS}/{CERTIFICATES.name}", None)


async def test_a_device_class_that_is_being_deleted(world: World, api: Api) -> None:
    gpu = DeviceClass("gpu.nvidia.com")
    provide(api, gpu)
    hold(api, f"{DEVICE_CLASSES}/{gpu.name}", ["example.com/held"])
    await review(world, "gpu-1", Ask())
    assert conditions(api)["NvidiaDraDriverGpuProvided"]["status"] == "True"
    withdraw(api, gpu)
    await review(world, "gpu-1", Ask(component=component("nvidia-dra-driver-gpu"), changed=gpu.name))
    condition = conditions(api)["NvidiaDraDriverGpuProvided"]
    assert (condition["status"], condition["reason"]) == ("False", "BeingDeleted")
    hold(api, f"{DEVICE_CLASSES}/{gpu.name}", None)


async def test_a_stack_that_is_not_known_here(world: World, api: Api) -> None:
    """As of a newer Modelplane, whose definition allows one more."""
    path = f"{CRDS}/inferenceclusters.modelplane.ai"
    definition = api.request("GET", path).body
    newer = json.loads(json.dumps(definition).replace('["Standard", "Dynamo"]', '["Standard", "Dynamo", "Quantum"]'))
    assert newer != definition
    apply(api, path, _bare(newer))
    try:
        for _ in range(500):  # until the API server goes by the newer definition
            with contextlib.suppress(AssertionError):
                put_cluster(api, "future", stack="Quantum")
                break
        await review(world, "future", Ask())
        before = get_cluster(api, "future")
        await review(world, "future", Ask())
    finally:
        apply(api, path, _bare(definition))
    condition = conditions(api, "future")["RequirementsMet"]
    assert (condition["status"], condition["reason"]) == ("Unknown", "UnknownStack")
    assert "Standard, Dynamo" in condition["message"]
    assert get_cluster(api, "future")["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def _bare(crd: Mapping[str, Any]) -> dict[str, Any]:
    """A CRD as one would apply it."""
    return {
        "apiVersion": crd["apiVersion"],
        "kind": crd["kind"],
        "metadata": {"name": crd["metadata"]["name"]},
        "spec": crd["spec"],
    }


async def test_others_who_write_whenever_the_target_is_looked_at_hold_nothing_up(hub: ControlPlane) -> None:
    world = await open_world(hub.kubeconfig)
    put_cluster(hub.api)
    messages = itertools.count()

    def say() -> None:
        ready = {"type": "Ready", "status": "False", "reason": "Creating", "message": str(next(messages))}
        ready["lastTransitionTime"] = "2026-12-01T04:00:00Z"
        body = {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": "gpu-1"},
            "status": {"conditions": [ready]},
        }
        apply(hub.api, f"{CLUSTERS}/gpu-1/status", body)

    async def meanwhile(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        await asyncio.to_thread(say)
        return await real()

    async with faulty(hub) as target:
        put_kubeconfig(hub.api, target.kubeconfig)
        target.faults.append(Fault("/", meanwhile))
        await review(world, "gpu-1", Ask())
        first = len(target.asked)
        provide(hub.api, DeviceClass("gpu.nvidia.com"))
        await review(world, "gpu-1", Ask())
    await world.close()
    assert conditions(hub.api)["NvidiaDraDriverGpuProvided"]["status"] == "True"
    assert conditions(hub.api)["Ready"]["reason"] == "Creating", "theirs stays"
    assert len(target.asked) <= 3 * first, "it was not looked at again for each thing that others said"
