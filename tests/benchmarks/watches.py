"""The watch source with a thousand targets on one replica: memory, CPU, and how long until all are watched."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import yaml

from events import types
from functions.catalog import Stack
from functions.clusters import API_VERSION, SYSTEM_NAMESPACE
from functions.hub import CLUSTERS
from functions.local.certificates import Authority
from functions.watch.composed import composed
from tests.benchmarks.hub import client_of, started_hub
from tests.benchmarks.measure import Figure, at_most, figure, resident_mib
from tests.benchmarks.processes import ROOT, SERVING_STACK, running
from tests.sink import Sink, listening
from tests.support import SECRETS

if TYPE_CHECKING:
    from functions.access.client import Client
    from tests.benchmarks.processes import Running

_TARGETS: Final = 1000
_AT_ONCE: Final = 16
_WITHIN: Final = 300.0
_IDLE: Final = 20.0
_AT_REST: Final = 0.1
"""Seconds of CPU in a second below which all that was to do is done."""
_MEMORY: Final = 2048
"""MiB that deploy/knative grants the source."""


async def run() -> list[Figure]:
    """Every figure of a source that has settled."""
    async with AsyncExitStack() as stack:
        hub = stack.enter_context(started_hub())
        client = client_of(hub)
        stack.push_async_callback(client.close)
        directory = Path(stack.enter_context(TemporaryDirectory()))
        await _register(client, _targets(stack, directory))
        sink = stack.enter_context(listening())
        command = [SERVING_STACK, "watch", "--kubeconfig", str(hub.kubeconfig)]
        begun = time.monotonic()
        source = stack.enter_context(running(command, directory / "log", env={"K_SINK": sink.url}))
        await _all_watched(sink, source, begun)
        took, cpu = time.monotonic() - begun, source.cpu
        await asyncio.sleep(_IDLE)
        idle = (source.cpu - cpu) / _IDLE
        source.check()
        memory = resident_mib(source.pid)
    watches = len(composed(Stack.STANDARD)) + 2
    name = f"watch source, {_TARGETS} targets"
    return [
        figure(f"{name}: memory", memory, "MiB", 1, goal=at_most(_MEMORY, "MiB")),
        figure(f"{name}: until all are watched", took, "s", watches * _TARGETS),
        figure(f"{name}: CPU until then", cpu, "s", watches * _TARGETS),
        figure(f"{name}: CPU at rest", 1000 * idle, "ms/s", 1),
    ]


def _targets(stack: AsyncExitStack, directory: Path) -> str:
    """The kubeconfig of the stand-in for all targets."""
    authority = Authority.new()
    certificate, key = authority.serving()
    pair = directory / "pair.pem"
    pair.write_bytes(certificate + key)
    process = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.targets", str(pair)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    cluster = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
    }
    content = {
        "clusters": [{"name": "target", "cluster": cluster}],
        "users": [{"name": "target", "user": {"token": "x"}}],
        "contexts": [{"name": "target", "context": {"cluster": "target", "user": "target"}}],
        "current-context": "target",
    }
    return yaml.safe_dump(content)


async def _register(client: Client, target: str) -> None:
    """One Secret, and the InferenceClusters that name it."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "target", "namespace": SYSTEM_NAMESPACE},
        "stringData": {"kubeconfig": target},
    }
    await client.apply(f"{SECRETS}/target", secret, manager="benchmark")
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        existing = {"components": "Provided", "secretRef": {"name": "target"}}
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "InferenceCluster",
            "metadata": {"name": name},
            "spec": {"stack": "Standard", "cluster": {"source": "Existing", "existing": existing}},
        }
        async with limit:
            await client.apply(f"{CLUSTERS}/{name}", manifest, manager="benchmark")

    await asyncio.gather(*(one(f"gpu-{number}") for number in range(_TARGETS)))


async def _all_watched(sink: Sink, source: Running, begun: float) -> None:
    """Returns once a look was asked for at each target, and there is nothing more to do."""
    while True:
        before = source.cpu
        await asyncio.sleep(1)
        asked = {each.subject for each in tuple(sink.took) if each.type == types.CHECK_REQUESTED}
        if len(asked) == _TARGETS and source.cpu - before < _AT_REST:
            return
        if time.monotonic() - begun > _WITHIN:
            raise TimeoutError(f"{len(asked)} of {_TARGETS} targets are watched")
