"""Everything in one process, on a real API server that is hub and target in one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from events import types
from events.event import Event
from events.publisher import NotAccepted
from functions.catalog import DeviceClass, component
from functions.watch.runtime import Runtime
from functions.world import World
from tests.support import (
    CLUSTERS,
    happened,
    open_world,
    provide,
    put_cluster,
    put_kubeconfig,
    withdraw,
)
from tests.watch.fakes import WITHIN, Collected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from functions.local.instance import ControlPlane

CRD = component("cert-manager").requirements[0]
GPU = DeviceClass("gpu.nvidia.com")


def turned(condition: str, status: str) -> Callable[[dict[str, Any]], bool]:
    def is_so(found: dict[str, Any]) -> bool:
        conditions = found.get("status", {}).get("conditions", ())
        return any(each["type"] == condition and each["status"] == status for each in conditions)

    return is_so


async def test_what_comes_and_goes_on_the_target_turns_the_conditions(hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    world = await open_world(hub.kubeconfig)
    sent = Collected()

    def judged(type_: str, component: str) -> Callable[[Event], bool]:
        return lambda event: event.type == type_ and event.extensions.get("component") == component

    async with Runtime(world, tick=None, on_event=sent.events.put_nowait):
        put_cluster(hub.api)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "False"))
        provide(hub.api, CRD)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "True"))
        await sent.next(judged(types.REQUIREMENT_MET, "cert-manager"))
        provide(hub.api, GPU)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "True"))
        await sent.next(judged(types.REQUIREMENT_MET, "nvidia-dra-driver-gpu"))
        withdraw(hub.api, GPU)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "False"))
        await sent.next(judged(types.REQUIREMENT_MISSING, "nvidia-dra-driver-gpu"))
        withdraw(hub.api, CRD)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "False"))
    await world.close()


async def test_the_tick_finds_what_no_event_told(hub: ControlPlane) -> None:
    get = {"apiGroups": ["*"], "resources": ["customresourcedefinitions", "deviceclasses"], "verbs": ["get"]}
    put_kubeconfig(hub.api, hub.kubeconfig_for("blind", rules=[get]).read_bytes())
    put_cluster(hub.api)
    world = await open_world(hub.kubeconfig)
    ticks: list[Event] = []

    def keep(event: Event) -> None:
        if event.type == types.PING:
            ticks.append(event)

    async with Runtime(world, tick=0.2, on_event=keep):
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "False"))
        provide(hub.api, GPU)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "True"))
    await world.close()
    assert {event.source for event in ticks} == {"/apis/v1/namespaces/modelplane-serving-stack/pingsources/tick"}
    assert len({event.id for event in ticks}) == len(ticks)


def event(**further: Any) -> Event:
    return Event(**{"id": "1", "source": "/test", "type": "com.example.nobody-cares", **further})


@pytest.fixture
def nowhere(tmp_path: Path) -> str:
    """A kubeconfig of a hub that is not there."""
    content = {
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
        "clusters": [{"name": "hub", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "hub", "user": {"token": "a-token"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(content))
    return str(path)


async def test_an_event_that_the_broker_never_takes_is_dropped_and_the_next_one_is_taken(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World.open(nowhere)
    async with Runtime(world, tick=None) as runtime:
        await runtime.publish((event(subject=""), event()))
        await runtime.broker.drain()
        assert (runtime.broker.counts.refused, runtime.broker.counts.accepted) == (1, 1)
    await world.close()
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == ["an event is dropped"]


async def test_a_closed_broker_is_a_reason_to_say_it_again(nowhere: str) -> None:
    world = World.open(nowhere)
    async with Runtime(world, tick=None) as runtime:
        await runtime.broker.close()
        with pytest.raises(NotAccepted, match="closed"):
            await runtime.publish((event(),))
    await world.close()


async def test_nothing_runs_on_after_the_end_though_a_target_hangs(hub: ControlPlane) -> None:
    asked = asyncio.Event()
    hanging: set[asyncio.Task[Any] | None] = set()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hanging.add(asyncio.current_task())
        asked.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    address = f"https://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    put_kubeconfig(hub.api, hub.kubeconfig.read_text().replace(hub.server, address))
    put_cluster(hub.api)
    before = asyncio.all_tasks()
    world = await open_world(hub.kubeconfig)
    async with Runtime(world, tick=0.5), asyncio.timeout(WITHIN):
        await asked.wait()
    await world.close()
    silent.close()
    await asyncio.gather(*(each for each in hanging if each is not None))
    assert asyncio.all_tasks() - before == set()
