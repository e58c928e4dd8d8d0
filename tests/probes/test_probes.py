"""What probes and sweep answer, and that each reads exactly what it declares."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from events import types
from events.event import JSON, Event
from functions.catalog import COMPONENTS, Component, CustomResource, DeviceClass, component
from functions.counts import COUNTS, UNANNOUNCED
from functions.function import Poison
from functions.probes.sweep import sweep
from functions.registry import FUNCTIONS
from tests.faults import Faulty, faulty
from tests.support import (
    CRDS,
    DEVICE_CLASSES,
    conditions,
    open_world,
    provide,
    provide_all,
    put_cluster,
    put_kubeconfig,
    served,
    withdraw,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World

CERT_MANAGER = component("cert-manager")
CERTIFICATES = CustomResource("certificates.cert-manager.io", "v1")
GPU = DeviceClass("gpu.nvidia.com")
ALL = [one for each in COMPONENTS for one in each.requirements]
_numbers = itertools.count()


@pytest.fixture
async def target(hub: ControlPlane) -> AsyncIterator[Faulty]:
    """The hub itself, through something that keeps what was asked."""
    async with faulty(hub) as server:
        put_kubeconfig(hub.api, server.kubeconfig)
        yield server


@pytest.fixture
async def world(hub: ControlPlane, target: Faulty) -> AsyncIterator[World]:
    assert target.kubeconfig
    put_cluster(hub.api)
    world = await open_world(hub.kubeconfig)
    yield world
    await world.close()


@pytest.fixture
def api(hub: ControlPlane) -> Api:
    return hub.api


def changed(name: str, cluster: str | None = "gpu-1") -> Event:
    named = {} if cluster is None else {"cluster": cluster}
    return Event(
        id=str(next(_numbers)),
        source="https://target",
        type=types.OBJECT_UPDATED,
        extensions={"kind": "CustomResourceDefinition", "name": name, **named},
    )


def check(cluster: str | None = "gpu-1", **data: Any) -> Event:
    return Event(
        id=str(next(_numbers)),
        source="/modelplane/serving-stack/cluster",
        type=types.CHECK_REQUESTED,
        extensions={} if cluster is None else {"cluster": cluster},
        datacontenttype=JSON,
        data=orjson.dumps({"reason": "Tick", **data}),
    )


async def call(world: World, name: str, event: Event) -> Sequence[Event]:
    return await FUNCTIONS[f"probes/{name}"].handler(event, world)


def outcomes(events: Sequence[Event]) -> dict[str, str]:
    """The type of each event by its subject, without what all types begin with."""
    return {each.subject or "": each.type.removeprefix("ai.modelplane.") for each in events}


async def test_a_probe_answers_with_what_it_found_and_again_with_the_same_id(world: World, api: Api) -> None:
    first = await call(world, "cert-manager", changed(CERTIFICATES.name))
    again = await call(world, "cert-manager", changed(CERTIFICATES.name))
    assert outcomes(first)["gpu-1/cert-manager"] == "requirement.missing"
    assert outcomes(again) == {"gpu-1/cert-manager": "requirement.missing"}
    assert again[0].id == first[0].id

    provide(api, CERTIFICATES)
    await served(world.hub.client, CERTIFICATES)
    met = (await call(world, "cert-manager", changed(CERTIFICATES.name)))[0]
    assert met.type == types.REQUIREMENT_MET
    assert met.id != first[0].id
    assert met.extensions == {
        "cluster": "gpu-1",
        "component": "cert-manager",
        "stack": "Standard",
        "partitionkey": "gpu-1/cert-manager",
    }
    assert met.source == "/modelplane/serving-stack/probes/cert-manager"
    assert orjson.loads(met.data or b"") == {"outcome": "Met", "reason": "Provided", "message": "", "generation": 1}


async def test_a_flip_of_the_whole_is_said_by_whoever_wrote_it(world: World, api: Api) -> None:
    provide_all(api)
    await served(world.hub.client, *ALL)
    assert outcomes(await sweep(check(), world))["gpu-1"] == "requirements.met"
    withdraw(api, GPU)
    events = await call(world, "nvidia-dra-driver-gpu", changed(GPU.name))
    assert outcomes(events) == {"gpu-1/nvidia-dra-driver-gpu": "requirement.missing", "gpu-1": "requirements.unmet"}
    provide(api, GPU)
    events = await call(world, "nvidia-dra-driver-gpu", changed(GPU.name))
    assert outcomes(events) == {"gpu-1/nvidia-dra-driver-gpu": "requirement.met", "gpu-1": "requirements.met"}


async def test_the_sweep_says_only_what_changed(world: World, api: Api) -> None:
    first = await sweep(check(), world)
    assert {each for each in outcomes(first) if "/" in each} == {
        f"gpu-1/{each.key}" for each in COMPONENTS if each.requirements and each.condition in conditions(api)
    }
    assert await sweep(check(), world) == []
    provide(api, GPU)
    assert outcomes(await sweep(check(), world)) == {"gpu-1/nvidia-dra-driver-gpu": "requirement.met"}


async def test_what_only_a_tick_found_is_counted(world: World, api: Api) -> None:
    async def counted(reason: str) -> int:
        before = COUNTS[UNANNOUNCED]
        await sweep(check(reason=reason), world)
        return COUNTS[UNANNOUNCED] - before

    assert await counted("Tick") == 0, "a first judgement is no change"
    provide(api, GPU)
    assert await counted("Tick") == 1
    withdraw(api, GPU)
    assert await counted("KubeconfigChanged") == 0
    assert await counted("Tick") == 0


async def test_an_unchanged_cluster_costs_two_requests_to_its_target(world: World, api: Api, target: Faulty) -> None:
    provide_all(api)
    await served(world.hub.client, *ALL)
    await sweep(check(), world)
    target.asked.clear()
    await sweep(check(), world)
    assert sorted(target.asked) == ["GET /apis", f"GET {DEVICE_CLASSES}/{GPU.name}"]


@pytest.mark.parametrize("name", ["../x", "A", "a b", "x" * 254, "a/b"])
async def test_a_cluster_that_cannot_be_one_is_refused(world: World, name: str) -> None:
    with pytest.raises(Poison, match="extension cluster"):
        await call(world, "cert-manager", changed(CERTIFICATES.name, cluster=name))
    with pytest.raises(Poison, match="extension cluster"):
        await sweep(check(cluster=name), world)


async def test_a_sweep_of_no_cluster_is_refused(world: World) -> None:
    with pytest.raises(Poison, match="cluster"):
        await sweep(check(cluster=None), world)


async def test_who_is_not_concerned_is_silent(world: World) -> None:
    assert await call(world, "cert-manager", changed(CERTIFICATES.name, cluster=None)) == ()
    assert await call(world, "cert-manager", changed(CERTIFICATES.name, cluster="nobody")) == ()
    await sweep(check(), world)
    assert await call(world, "grove", changed("podcliquesets.grove.io")) == [], "gpu-1 runs the Standard stack"
    assert await sweep(check(cluster="nobody"), world) == ()


@pytest.mark.parametrize("one", COMPONENTS, ids=lambda each: each.key)
async def test_a_probe_reads_what_it_declares_and_no_more(
    world: World, hub: ControlPlane, target: Faulty, one: Component
) -> None:
    put_cluster(hub.api, "reader", stack=min(one.stacks))
    await sweep(check("reader"), world)
    target.asked.clear()
    for requirement in one.requirements:
        await call(world, one.key, changed(requirement.name, cluster="reader"))
    declared = {
        f"GET {CRDS if isinstance(each, CustomResource) else DEVICE_CLASSES}/{each.name}" for each in one.requirements
    }
    assert {each for each in target.asked if each != "GET /apis"} == declared
