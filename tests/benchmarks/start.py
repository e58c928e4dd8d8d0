"""From exec to the first answer and to the first condition, and memory, against a bare aiohttp server."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from aiohttp import ClientSession, ClientTimeout

from events.codec import encode_binary
from tests.benchmarks.hub import CLUSTER, REQUIREMENTS, check_requested, client_of, crd_changed, started_hub
from tests.benchmarks.measure import Figure, at_most, figure, p50, ratio_at_most, resident_mib
from tests.benchmarks.processes import SERVING_STACK, free_port, running, until_ready
from tests.support import CLUSTERS, happened, put_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from functions.access.client import Client
    from functions.local.instance import ControlPlane

_STARTS: Final = 12
_FIRSTS: Final = 8
_EVENTS: Final = 300
_COLD_GOAL: Final = 1.6
_FIRST_GOAL: Final = 650
_MEMORY_GOAL: Final = 80


async def run() -> list[Figure]:
    """Starts in turns."""
    with started_hub() as hub, TemporaryDirectory() as logs:
        cold, bare = _cold_starts(hub, Path(logs))
        client = client_of(hub)
        try:
            first, met = await _firsts(hub, client, Path(logs) / "dev")
        finally:
            await client.close()
        memory, bare_memory = await _memory(hub, Path(logs))  # by now the cluster is judged, so that sweeps are silent
    return [
        figure(
            "start: exec to 2xx on /health/readiness, serve",
            p50(cold),
            "ms",
            len(cold),
            limit=p50(bare),
            goal=ratio_at_most(_COLD_GOAL),
        ),
        figure(
            "start: exec to first condition written, dev",
            p50(first),
            "ms",
            len(first),
            limit=p50(bare),
            goal=at_most(_FIRST_GOAL, "ms"),
        ),
        figure("start: exec to RequirementsMet True, dev", p50(met), "ms", len(met), limit=p50(bare)),
        figure(
            f"memory: serve, all functions, after {_EVENTS} events",
            memory,
            "MiB",
            1,
            limit=bare_memory,
            goal=at_most(_MEMORY_GOAL, "MiB"),
        ),
    ]


def _serve(hub: ControlPlane, port: int) -> list[str]:
    address = ["--listen", "127.0.0.1", "--port", str(port)]
    return [SERVING_STACK, "serve", *address, "--kubeconfig", str(hub.kubeconfig)]


def _bare(port: int) -> list[str]:
    return [sys.executable, "-m", "tests.benchmarks.bare", str(port)]


def _cold_starts(hub: ControlPlane, logs: Path) -> tuple[list[float], list[float]]:
    """Milliseconds from exec to readiness of ours and of the bare server."""
    ours, bare = [], []
    for _ in range(_STARTS):
        port = free_port()
        ours.append(_started(_serve(hub, port), port, logs / "serve"))
        bare.append(_started(_bare(port), port, logs / "bare"))
    return ours, bare


def _started(command: list[str], port: int, log: Path) -> float:
    begun = time.perf_counter()
    with running(command, log) as process:
        return (until_ready(port, process) - begun) * 1000


async def _firsts(hub: ControlPlane, client: Client, log: Path) -> tuple[list[float], list[float]]:
    """Milliseconds from exec of `dev` until a fresh cluster has a condition, and until RequirementsMet is True."""
    first, met = [], []
    for _ in range(_FIRSTS):
        hub.api.request("DELETE", f"{CLUSTERS}/{CLUSTER}")
        put_cluster(hub.api, CLUSTER)
        condition = asyncio.ensure_future(_moment(client, _has_condition))
        true = asyncio.ensure_future(_moment(client, _is_met))
        begun = time.perf_counter()
        with running([SERVING_STACK, "dev", "--kubeconfig", str(hub.kubeconfig)], log):
            first.append((await condition - begun) * 1000)
            met.append((await true - begun) * 1000)
    return first, met


async def _moment(client: Client, predicate: Callable[[dict[str, Any]], bool]) -> float:
    await happened(client, CLUSTERS, CLUSTER, predicate)
    return time.perf_counter()


def _has_condition(cluster: dict[str, Any]) -> bool:
    return bool(cluster.get("status", {}).get("conditions"))


def _is_met(cluster: dict[str, Any]) -> bool:
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(each["type"] == "RequirementsMet" and each["status"] == "True" for each in conditions)


async def _memory(hub: ControlPlane, logs: Path) -> tuple[float, float]:
    """MiB of ours and of the bare server after the same events: sweeps, and CRDs that changed."""
    with ExitStack() as stack:
        ports = free_port(), free_port()
        ours = stack.enter_context(running(_serve(hub, ports[0]), logs / "serve"))
        bare = stack.enter_context(running(_bare(ports[1]), logs / "bare"))
        until_ready(ports[0], ours)
        until_ready(ports[1], bare)
        async with ClientSession(timeout=ClientTimeout(total=20)) as session:
            for number in range(_EVENTS):
                event, path = check_requested(CLUSTER), "/probes/sweep"
                if number % 2:
                    event, path = crd_changed(CLUSTER, REQUIREMENTS[0].name), "/probes/cert-manager"
                message = encode_binary(event)
                headers = {**message.headers, "Prefer": "reply"}
                for url in (f"http://127.0.0.1:{ports[0]}{path}", f"http://127.0.0.1:{ports[1]}/"):
                    async with session.post(url, data=message.body, headers=headers) as response:
                        assert response.ok, response
        return resident_mib(ours.pid), resident_mib(bare.pid)
