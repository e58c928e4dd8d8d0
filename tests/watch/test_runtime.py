"""Everything in one process, on a real API server that is hub and target in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from events import types
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
from tests.watch.fakes import Collected

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from events.event import Event
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
