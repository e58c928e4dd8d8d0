"""One event of one cluster, with few and with many InferenceClusters on the hub, each with a target of its own.

The targets are the hub's own API server under a kubeconfig Secret, a client and connections of their own each; all have
been looked at before. Two hubs run side by side, so that both are measured in turns.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from functions.catalog import component
from functions.clusters import API_VERSION, SYSTEM_NAMESPACE
from functions.host.host import Host
from functions.hub import CLUSTERS
from functions.registry import FUNCTIONS
from functions.world import World
from tests.benchmarks.hub import check_requested, crd_changed, started_hub
from tests.benchmarks.measure import Figure, Stopwatch, figure, p50, ratio_at_most
from tests.support import SECRETS, conditions

if TYPE_CHECKING:
    from functions.access.client import Client
    from functions.local.instance import ControlPlane

_FEW: Final = 10
_MANY: Final = 500
_EVENTS: Final = 100
_AT_ONCE: Final = 16
_SAME: Final = 1.2
_COMPONENT: Final = component("leader-worker-set")
_PROBE: Final = f"probes/{_COMPONENT.key}"
_CRD: Final = _COMPONENT.requirements[0].name


async def run() -> list[Figure]:
    """Time and CPU of the event with many, against those with few."""
    async with AsyncExitStack() as stack:
        few, many = [await _host(stack, count) for count in (_FEW, _MANY)]
        with_few, with_many = Stopwatch(), Stopwatch()
        for number in range(_EVENTS):
            for host, watch in ((few, with_few), (many, with_many)):
                event = crd_changed(_name(number % _FEW), _CRD)
                with watch:
                    answer = await host.handle(_PROBE, event)
                assert answer.outcome == "handled", answer
    name = f"one event, {_MANY} clusters against {_FEW}"
    goal = ratio_at_most(_SAME)
    return [
        figure(f"{name}: p50", p50(with_many.wall), "ms", _EVENTS, limit=p50(with_few.wall), goal=goal),
        figure(f"{name}: CPU", with_many.mean_cpu, "ms", _EVENTS, limit=with_few.mean_cpu, goal=goal),
    ]


async def _host(stack: AsyncExitStack, count: int) -> Host:
    """A host in this process around a hub with so many clusters, all of which were looked at."""
    hub = stack.enter_context(started_hub())
    world = World.open(str(hub.kubeconfig))
    stack.push_async_callback(world.close)
    limit = asyncio.Semaphore(_AT_ONCE)
    host = Host(FUNCTIONS.values(), world)

    async def one(name: str) -> None:
        async with limit:
            await _put(world.hub.client, hub, name)
            answer = await host.handle("probes/sweep", check_requested(name))
            assert answer.outcome == "handled", answer

    await asyncio.gather(*(one(_name(number)) for number in range(count)))
    assert conditions(hub.api, _name(count - 1))["RequirementsMet"]["status"] == "True"
    return host


async def _put(client: Client, hub: ControlPlane, name: str) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "stringData": {"kubeconfig": hub.kubeconfig.read_text()},
    }
    existing = {"secretRef": {"name": name}, "components": "Provided"}
    cluster = {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {"stack": "Standard", "cluster": {"source": "Existing", "existing": existing}},
    }
    await client.create(SECRETS, secret)
    await client.create(CLUSTERS, cluster)


def _name(number: int) -> str:
    return f"fleet-{number}"
