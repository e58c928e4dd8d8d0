"""`serving-stack check` on a cluster with all met: the process, and the check inside it.

The peers are a shell script with one `kubectl get` for each requirement and a single call of kubectl, where that is
installed; the limit of the check is a connection of its own and one full read of discovery.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Final

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.discovery import DiscoveryReader
from functions.access.targets import Target
from functions.catalog import CustomResource, Stack, of_stack
from functions.judge import Outcome, judge
from tests.benchmarks.hub import REQUIREMENTS, started_hub
from tests.benchmarks.measure import Figure, Stopwatch, at_most, figure, p50
from tests.benchmarks.processes import ROOT, SERVING_STACK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from functions.catalog import Requirement

_PROCESSES: Final = 12
_SCRIPTS: Final = 4
_CHECKS: Final = 40
_GOAL: Final = 500
_INSIDE_GOAL: Final = 15


async def run() -> list[Figure]:
    """Processes in turns, then the check in this one."""
    with started_hub() as hub:
        ours, script, single = await _processes(hub.kubeconfig)
        inside, limit = await _inside(hub.kubeconfig)
    once = p50(single) if single else None
    figures = [
        figure("check: whole process", p50(ours), "ms", len(ours), limit=once, goal=at_most(_GOAL, "ms")),
        figure(
            "check: inside the process",
            p50(inside.wall),
            "ms",
            _CHECKS,
            limit=p50(limit.wall),
            goal=at_most(_INSIDE_GOAL, "ms"),
        ),
        figure("check: inside the process, CPU", inside.mean_cpu, "ms", _CHECKS, limit=limit.mean_cpu),
    ]
    if script:
        name = "check: shell script with a kubectl get each"
        figures.append(figure(name, p50(script), "ms", len(script), limit=once))
    return figures


async def _processes(path: Path) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of our process, of the script and of the single call; the latter two empty without kubectl."""
    file = str(path)
    gets = "\n".join(_kubectl_get(file, each) for each in REQUIREMENTS)
    ours: list[float] = []
    script: list[float] = []
    single: list[float] = []
    kubectl = shutil.which("kubectl")
    for number in range(_PROCESSES):
        ours.append(await _wall([SERVING_STACK, "check", "--kubeconfig", file]))
        if kubectl:
            single.append(await _wall([kubectl, "--kubeconfig", file, "get", "--raw", "/apis"]))
            if number < _SCRIPTS:
                script.append(await _wall(["/bin/sh", "-euc", gets]))
    return ours, script, single


def _kubectl_get(file: str, requirement: Requirement) -> str:
    kind = "customresourcedefinition" if isinstance(requirement, CustomResource) else "deviceclass"
    return shlex.join(["kubectl", "--kubeconfig", file, "get", kind, requirement.name, "--output=name"])


async def _wall(command: Sequence[str]) -> float:
    """Milliseconds from exec to the end of a command, which must succeed."""
    quiet = asyncio.subprocess.DEVNULL
    begun = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=quiet, stderr=quiet)
    if await process.wait():
        raise RuntimeError(f"{command[:2]} exited with {process.returncode}")
    return (time.perf_counter() - begun) * 1000


async def _inside(path: Path) -> tuple[Stopwatch, Stopwatch]:
    """From the kubeconfig file to the verdicts with a client of its own each time, in turns with the limit."""
    ours, limit = Stopwatch(), Stopwatch()
    components = [each for each in of_stack(Stack.STANDARD) if each.requirements]
    for _ in range(_CHECKS):
        with ours:
            client = Client(kubeconfig.from_files([path]))
            judged = judge(Target(client, DiscoveryReader(client)), components)
            judgement, _ = await asyncio.gather(judged, client.get("/version"))
            await client.close()
        assert all(each.outcome is Outcome.MET for each in judgement.verdicts)
        with limit:
            client = Client(kubeconfig.load_file(path))
            await DiscoveryReader(client).read(())
            await client.close()
    return ours, limit
