"""Events per second of the host for an event that needs no work, against a bare aiohttp handler."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from tests.benchmarks.hub import started_hub
from tests.benchmarks.measure import Figure, figure, p50, ratio_at_least
from tests.benchmarks.processes import ROOT, SERVING_STACK, free_port, running, until_ready

if TYPE_CHECKING:
    from tests.benchmarks.processes import Running

_SLOTS: Final = 8
_SECONDS: Final = 1.0
_CONNECTIONS: Final = 16


async def run() -> list[Figure]:
    """One process each, the same client process, in turns."""
    with ExitStack() as stack:
        hub = stack.enter_context(started_hub())
        logs = Path(stack.enter_context(TemporaryDirectory()))
        ports = free_port(), free_port()
        serve = [SERVING_STACK, "serve", "--functions", "cluster", "--listen", "127.0.0.1", "--port", str(ports[0])]
        ours = stack.enter_context(running([*serve, "--kubeconfig", str(hub.kubeconfig)], logs / "serve"))
        command = [sys.executable, "-m", "tests.benchmarks.bare", str(ports[1])]
        bare = stack.enter_context(running(command, logs / "bare"))
        until_ready(ports[0], ours)
        until_ready(ports[1], bare)
        rates, costs = await _alternate((ours, ports[0], "/cluster"), (bare, ports[1], "/"))
    return [
        figure(
            "host: events that need no work, against bare aiohttp",
            p50(rates[0]),
            "/s",
            _SLOTS,
            limit=p50(rates[1]),
            goal=ratio_at_least(0.6),
        ),
        figure("host: CPU of such an event", p50(costs[0]) * 1e6, "us", _SLOTS, limit=p50(costs[1]) * 1e6),
    ]


async def _alternate(*servers: tuple[Running, int, str]) -> tuple[list[list[float]], list[list[float]]]:
    """Answers per second, and seconds of CPU per answer, of each server."""
    rates: list[list[float]] = [[] for _ in servers]
    costs: list[list[float]] = [[] for _ in servers]
    for _ in range(_SLOTS):
        for index, (server, port, path) in enumerate(servers):
            before = server.cpu
            total, rate = await _load(port, path)
            rates[index].append(rate)
            costs[index].append((server.cpu - before) / total)
    return rates, costs


async def _load(port: int, path: str) -> tuple[int, float]:
    """All answers of one slot, and answers per second in the midst of it."""
    arguments = (str(port), path, str(_SECONDS), str(_CONNECTIONS))
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.benchmarks.load", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(10 * _SECONDS + 10):
            said, _ = await client.communicate()
    finally:
        if client.returncode is None:
            client.kill()
    total, rate = said.split()
    return int(total), float(rate)
