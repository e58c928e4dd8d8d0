"""Whatever happens to the events on their way, one final tick leaves the truth in the conditions."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from events import types
from events.event import JSON, Event
from functions.catalog import COMPONENTS, CustomResource, DeviceClass, Stack, of_stack
from functions.host.host import Host
from functions.registry import FUNCTIONS
from tests.support import (
    CRDS,
    DEVICE_CLASSES,
    apply,
    conditions,
    crd_manifest,
    open_world,
    provide,
    provide_all,
    put_cluster,
    put_kubeconfig,
    served,
    withdraw,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from functions.catalog import Requirement
    from functions.local.api import Api
    from functions.local.instance import ControlPlane

CERTIFICATES = CustomResource("certificates.cert-manager.io", "v1")
POD_MONITORS = CustomResource("podmonitors.monitoring.coreos.com", "v1")
GPU = DeviceClass("gpu.nvidia.com")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the target: the requirement is met from then on, or it is not."""

    requirement: Requirement
    met: bool

    def make(self, api: Api) -> None:
        if isinstance(self.requirement, CustomResource):
            versions = ["v1", "v1beta1"] if self.met else ["v1beta1", "-v1"]
            apply(api, f"{CRDS}/{self.requirement.name}", crd_manifest(self.requirement.name, *versions))
        elif self.met:
            provide(api, self.requirement)
        else:
            withdraw(api, self.requirement)


changes = st.lists(
    st.builds(Change, st.sampled_from([CERTIFICATES, POD_MONITORS, GPU]), st.booleans()), min_size=1, max_size=6
)
# How often the event of each change is delivered, and by which of two hosts; none of it in the order of the changes.
deliveries = st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=10)


def event_of(requirement: Requirement) -> Event:
    kind = "CustomResourceDefinition" if isinstance(requirement, CustomResource) else "DeviceClass"
    return Event(
        id=str(next(_numbers)),
        source="https://target",
        type=types.OBJECT_UPDATED,
        datacontenttype=JSON,
        extensions={"kind": kind, "name": requirement.name, "cluster": "gpu-1"},
        data=b"{}",
    )


def probe_of(requirement: Requirement) -> str:
    return next(f"probes/{each.key}" for each in COMPONENTS if requirement in each.requirements)


async def deliver(host: Host, function: str, event: Event) -> list[Event]:
    """Hands over the event until it is taken, as a broker does."""
    while (answer := await host.handle(function, event)).status == 503:
        pass
    assert answer.status in {200, 204}, answer
    return list(answer.events)


async def tick(host: Host) -> None:
    ping = Event(id=str(next(_numbers)), source="/tick", type=types.PING)
    for request in await deliver(host, "cluster", ping):
        await deliver(host, "probes/sweep", request)


def truth(api: Api) -> set[str]:
    """The components of which something is missing, asked directly."""
    return {
        component.condition
        for component in of_stack(Stack.STANDARD)
        for requirement in component.requirements
        if not _there(api, requirement)
    }


def _there(api: Api, requirement: Requirement) -> bool:
    if isinstance(requirement, CustomResource):
        path = f"/apis/{requirement.group}/{requirement.version}/{requirement.plural}"
        return api.request("GET", path).status in {200, 429}  # 429 while the storage of a new CRD is set up
    return api.request("GET", f"{DEVICE_CLASSES}/{requirement.name}").status == 200


def said(found: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, each in found.items() if name != "RequirementsMet" and each["status"] == "False"}


@pytest.fixture
async def substrate(hub: ControlPlane) -> ControlPlane:
    """Everything is there, and `gpu-1` asks for it."""
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    provide_all(hub.api)
    world = await open_world(hub.kubeconfig)
    await served(world.hub.client, *(one for each in COMPONENTS for one in each.requirements))
    await world.close()
    return hub


@contextlib.asynccontextmanager
async def two_hosts(hub: ControlPlane) -> AsyncIterator[list[Host]]:
    worlds = [await open_world(hub.kubeconfig) for _ in range(2)]
    try:
        yield [Host(FUNCTIONS.values(), world) for world in worlds]
    finally:
        for world in worlds:
            await world.close()


@given(made=changes, delivered=deliveries, at_once=st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_orders_duplicates_and_losses(
    substrate: ControlPlane, *, made: list[Change], delivered: list[tuple[int, bool]], at_once: bool
) -> None:
    api = substrate.api
    async with two_hosts(substrate) as hosts:
        work = [
            deliver(hosts[second], probe_of(requirement), event_of(requirement))
            for requirement, second in _picked(made, delivered)
        ]
        changing = asyncio.to_thread(_make, api, made)
        if at_once:
            await asyncio.gather(changing, *work)
        else:
            await changing
            for each in work:
                await each
        await tick(hosts[0])
        assert said(conditions(api)) == truth(api)
        found = conditions(api)["RequirementsMet"]
        assert found["status"] == ("False" if truth(api) else "True")


def _picked(made: list[Change], delivered: Iterable[tuple[int, bool]]) -> list[tuple[Requirement, bool]]:
    return [(made[index].requirement, second) for index, second in delivered if index < len(made)]


def _make(api: Api, made: list[Change]) -> None:
    for each in made:
        each.make(api)


async def test_two_hosts_and_every_probe_at_once(substrate: ControlPlane) -> None:
    """Thirty writers of one object; all of them come through, and what they leave is true."""
    withdraw(substrate.api, GPU)
    requirements = [one for each in of_stack(Stack.STANDARD) for one in each.requirements]
    async with two_hosts(substrate) as hosts:
        await asyncio.gather(
            *(deliver(host, probe_of(each), event_of(each)) for host in hosts for each in requirements)
        )
    assert said(conditions(substrate.api)) == {"NvidiaDraDriverGpuProvided"} == truth(substrate.api)
