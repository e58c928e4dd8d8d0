"""Everything in one process, on a real API server that is hub and target in one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from events import types
from events.event import Event
from functions.catalog import DeviceClass, component
from functions.watch.runtime import Runtime
from tests.support import (
    CLUSTERS,
    happened,
    open_world,
    provide,
    put_cluster,
    put_kubeconfig,
    withdraw,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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
    sent: list[Event] = []
    async with Runtime(world, tick=None, on_event=sent.append):
        put_cluster(hub.api)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "False"))
        provide(hub.api, CRD)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "True"))
        provide(hub.api, GPU)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "True"))
        withdraw(hub.api, GPU)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("NvidiaDraDriverGpuProvided", "False"))
        withdraw(hub.api, CRD)
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("CertManagerProvided", "False"))
    await world.close()
    said = {(event.type, event.extensions.get("component")) for event in sent}
    assert (types.REQUIREMENT_MET, "cert-manager") in said
    assert (types.REQUIREMENT_MISSING, "nvidia-dra-driver-gpu") in said


async def test_the_tick_finds_what_no_event_told(hub: ControlPlane) -> None:
    put_cluster(hub.api)
    world = await open_world(hub.kubeconfig)
    ticks = asyncio.Queue[Event]()

    def keep(event: Event) -> None:
        if event.type == types.PING:
            ticks.put_nowait(event)

    async with Runtime(world, tick=0.05, on_event=keep):
        async with asyncio.timeout(20):
            first, second = await ticks.get(), await ticks.get()
        await happened(world.hub.client, CLUSTERS, "gpu-1", turned("RequirementsMet", "Unknown"))
    await world.close()
    assert first.source == "/apis/v1/namespaces/modelplane-serving-stack/pingsources/tick"
    assert first.id != second.id
