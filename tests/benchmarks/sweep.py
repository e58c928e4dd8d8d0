"""Requests, time and CPU of one sweep of a cluster on which nothing changed.

The limit is the same three reads by the same client with nothing around them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import orjson

from functions.access.discovery import DiscoveryReader
from functions.hub import CLUSTERS
from functions.registry import FUNCTIONS
from functions.world import World
from tests.benchmarks.hub import CLUSTER, check_requested, started_hub
from tests.benchmarks.measure import Figure, Stopwatch, at_most, figure, p50
from tests.support import DEVICE_CLASSES, put_kubeconfig, summary

if TYPE_CHECKING:
    from pathlib import Path

    from functions.access.client import Client

_SWEEPS: Final = 200
_COUNTED: Final = 10
USER: Final = "sweeper"
"""Whose requests are counted."""
_SWEEP: Final = FUNCTIONS["probes/sweep"]


async def run() -> list[Figure]:
    """Requests by the API server's audit log, then time in turns with the limit."""
    with started_hub(audit=True) as hub:
        # A user of its own, on the hub and on the target, so that the audit log tells its requests from all others.
        mine = hub.kubeconfig_for(USER, groups=["system:masters"])
        put_kubeconfig(hub.api, mine.read_bytes())
        world = World.open(str(mine))
        try:
            await _SWEEP.handler(check_requested(CLUSTER), world)
            assert summary(hub.api) == ("True", "RequirementsMet")
            before = requests(hub.audit_log)
            for _ in range(_COUNTED):
                assert not await _SWEEP.handler(check_requested(CLUSTER), world)
            counted = (requests(hub.audit_log) - before) / _COUNTED
            ours, limit = await _alternate(world)
        finally:
            await world.close()
    return [
        figure("sweep, unchanged: requests to the API server", counted, "", _COUNTED, limit=3, goal=at_most(3, "")),
        figure("sweep, unchanged: p50", p50(ours.wall), "ms", _SWEEPS, limit=p50(limit.wall), goal=at_most(6, "ms")),
        figure("sweep, unchanged: CPU", ours.mean_cpu, "ms", _SWEEPS, limit=limit.mean_cpu),
    ]


async def _alternate(world: World) -> tuple[Stopwatch, Stopwatch]:
    ours, limit = Stopwatch(), Stopwatch()
    client = world.hub.client
    discovery = DiscoveryReader(client)
    await discovery.read(())
    for _ in range(_SWEEPS):
        with ours:
            await _SWEEP.handler(check_requested(CLUSTER), world)
        with limit:
            await _three_reads(client, discovery)
    return ours, limit


async def _three_reads(client: Client, discovery: DiscoveryReader) -> None:
    await client.get(f"{CLUSTERS}/{CLUSTER}")
    await asyncio.gather(discovery.read(()), client.get_metadata(f"{DEVICE_CLASSES}/gpu.nvidia.com"))


def requests(audit_log: Path) -> int:
    """How many requests of `USER` were answered so far."""
    # A request is logged just after it is answered, so that the log is read until it grows no more.
    size = -1
    while (now := audit_log.stat().st_size) != size:
        size = now
        time.sleep(0.1)
    lines = (orjson.loads(line) for line in audit_log.read_bytes().splitlines())
    return sum(each["user"]["username"] == USER and each["stage"] == "ResponseComplete" for each in lines)
