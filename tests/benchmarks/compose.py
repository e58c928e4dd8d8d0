"""The last requirement met → Gateway applied, and what a look costs that finds nothing to do.

The limit is the bare sequence of requests that the job needs: the InferenceCluster, the InferenceGateways, discovery,
the objects that are there, and the apply; by the same client with nothing around it. It takes turns with `dev`, which
is held still meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from functions.access.discovery import DiscoveryReader
from functions.access.errors import NotFound
from functions.catalog import Stack, component
from functions.compose.client_cas import ClientCAs
from functions.compose.gateway import COMPOSITION
from functions.compose.ownership import MANAGER, marked
from functions.compose.step import Inputs
from functions.conditions import checked_components
from functions.demo.controllers import Controllers
from functions.hub import CLUSTERS, GATEWAYS
from functions.local import substrate
from functions.local.binaries import find_binaries
from functions.local.instance import ControlPlane
from functions.registry import FUNCTIONS
from functions.world import World
from tests.benchmarks.hub import CLUSTER, check_requested, client_of, server_pid
from tests.benchmarks.measure import Figure, Stopwatch, at_most, figure, milliseconds, p50, p95, ratio_at_most
from tests.benchmarks.processes import SERVING_STACK, quiet, running
from tests.benchmarks.sweep import USER, requests
from tests.support import (
    CRDS,
    get_cluster,
    gone,
    install_hub,
    put_cluster,
    put_inference_gateway,
    put_kubeconfig,
    served,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from functions.access.client import Client
    from tests.benchmarks.processes import Running

_ROUNDS: Final = 12
_LOOKS: Final = 100
_COUNTED: Final = 10
_LAST: Final = component("gaie-crds")
_FUNCTION: Final = FUNCTIONS["compose/gateway"]
_GATEWAY: Final = COMPOSITION.steps[-1]
_APPLIED: Final = sum(each.manifest is not None for each in COMPOSITION.steps)
_IDLE: Final = 0.002
_WITHIN: Final = 30.0


async def run() -> list[Figure]:
    """Every figure of composing the gateway set."""
    async with AsyncExitStack() as stack:
        hub = stack.enter_context(ControlPlane(find_binaries(), audit=True))
        client = client_of(hub)
        stack.push_async_callback(client.close)
        await _prepare(hub, client)
        await stack.enter_async_context(Controllers(client))
        logs = Path(stack.enter_context(TemporaryDirectory()))
        limit, ours = await _rounds(hub, client, logs)
        counted, looks, bare = await _nothing_to_do(hub)
    return [
        figure(
            "compose: last requirement met to Gateway applied, p50",
            p50(ours),
            "ms",
            len(ours),
            limit=p50(limit),
            goal=ratio_at_most(2),
        ),
        figure("compose: last requirement met to Gateway applied, p95", p95(ours), "ms", len(ours), limit=p95(limit)),
        figure(
            "compose, nothing to do: requests to the API server",
            counted,
            "",
            _COUNTED,
            goal=at_most(_APPLIED, f"(one per applied object, of which there are {_APPLIED})"),
        ),
        figure("compose, nothing to do: p50", p50(looks.wall), "ms", _LOOKS, limit=p50(bare.wall)),
        figure("compose, nothing to do: CPU", looks.mean_cpu, "ms", _LOOKS, limit=bare.mean_cpu),
    ]


async def _prepare(hub: ControlPlane, client: Client) -> None:
    """All that the gateway set needs but the last component, and a client CA."""
    install_hub(hub.api)
    for each in checked_components(Stack.STANDARD):
        if each != _LAST:
            await substrate.add(client, each.key)
            await served(client, *each.requirements)
    hub.wait_until_ready()
    put_kubeconfig(hub.api, hub.kubeconfig_for(USER, groups=["system:masters"]).read_bytes())
    put_cluster(hub.api, CLUSTER)
    put_inference_gateway(hub.api, CLUSTER)


async def _rounds(hub: ControlPlane, client: Client, logs: Path) -> tuple[list[float], list[float]]:
    """Milliseconds of the limit and of `dev`, in turns."""
    limit: list[float] = []
    ours: list[float] = []
    inputs = _inputs(hub)
    command = [SERVING_STACK, "dev", "--kubeconfig", str(hub.kubeconfig), "--tick", "3600"]
    async with _seen(client, _GATEWAY.kind.path(), _is_gateway) as gateway, _seen(client, CLUSTERS, _is_met) as met:
        with running(command, logs / "dev") as dev:
            await _until_waiting(hub)
            for _ in range(_ROUNDS):
                async with asyncio.timeout(_WITHIN):
                    dev.hold()
                    await quiet(server_pid(hub), 0.01)
                    limit.append(await _bare_round(client, inputs, gateway))
                    dev.go_on()
                    await quiet(dev.pid, _IDLE)
                    ours.append(await _round(client, dev, gateway, met))
                    dev.check()
    return milliseconds(limit), milliseconds(ours)


async def _bare_round(client: Client, inputs: Inputs, gateway: asyncio.Queue[float]) -> float:
    discovery = DiscoveryReader(client)
    await discovery.read(())
    _forget(gateway)
    begun = time.perf_counter()
    await _bare_look(client, discovery)
    await client.apply(_GATEWAY.path, marked(_GATEWAY, inputs), manager=MANAGER)
    took = await gateway.get() - begun
    await client.delete(_GATEWAY.path)
    await gone(client, *_collection(_GATEWAY.path))
    return took


async def _bare_look(client: Client, discovery: DiscoveryReader) -> None:
    await client.get(f"{CLUSTERS}/{CLUSTER}")
    await client.get(GATEWAYS)
    await discovery.read(())
    await asyncio.gather(*(_read(client, each.path) for each in COMPOSITION.steps))


async def _read(client: Client, path: str) -> None:
    with suppress(NotFound):
        await client.get(path)


async def _round(client: Client, dev: Running, gateway: asyncio.Queue[float], met: asyncio.Queue[float]) -> float:
    _forget(gateway)
    _forget(met)
    await substrate.add(client, _LAST.key)
    begun = await met.get()
    took = await gateway.get() - begun
    await quiet(dev.pid, _IDLE)
    await substrate.remove(client, _LAST.key)
    await gone(client, CRDS, _LAST.requirements[0].name)
    await quiet(dev.pid, _IDLE)
    await client.delete(_GATEWAY.path)
    await gone(client, *_collection(_GATEWAY.path))
    await quiet(dev.pid, _IDLE)
    return took


async def _nothing_to_do(hub: ControlPlane) -> tuple[float, Stopwatch, Stopwatch]:
    """Requests of a look that finds nothing to do, by the audit log, and its time in turns with the bare reads."""
    looks, bare = Stopwatch(), Stopwatch()
    world = World.open(str(hub.kubeconfig_for(USER, groups=["system:masters"])))
    client = world.hub.client
    discovery = DiscoveryReader(client)
    try:
        await substrate.add(client, _LAST.key)
        await served(client, *_LAST.requirements)
        await FUNCTIONS["probes/sweep"].handler(check_requested(CLUSTER), world)
        async with asyncio.timeout(_WITHIN):
            while not _is_applied(hub):
                await _FUNCTION.handler(check_requested(CLUSTER), world)
        before = requests(hub.audit_log)
        for _ in range(_COUNTED):
            await _FUNCTION.handler(check_requested(CLUSTER), world)
        counted = (requests(hub.audit_log) - before) / _COUNTED
        await discovery.read(())
        for _ in range(_LOOKS):
            with looks:
                await _FUNCTION.handler(check_requested(CLUSTER), world)
            with bare:
                await _bare_look(client, discovery)
    finally:
        await world.close()
    return counted, looks, bare


def _inputs(hub: ControlPlane) -> Inputs:
    uid = get_cluster(hub.api, CLUSTER)["metadata"]["uid"]
    return Inputs(cluster=CLUSTER, uid=uid, client_cas=ClientCAs("a CA"))


async def _until_waiting(hub: ControlPlane) -> None:
    """Returns once no requirement but the last component's is wanting."""
    deadline = time.monotonic() + _WITHIN
    while f"waiting for {_LAST.key}: {_GATEWAY}" not in _condition(hub).get("message", "").split("; "):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the gateway set does not come to wait for {_LAST.key} alone: {_condition(hub)}")
        await asyncio.sleep(0.1)


def _is_applied(hub: ControlPlane) -> bool:
    return _condition(hub).get("status") == "True"


def _condition(hub: ControlPlane) -> dict[str, Any]:
    found = get_cluster(hub.api, CLUSTER).get("status", {}).get("conditions", ())
    return next((each for each in found if each["type"] == COMPOSITION.condition), {})


def _is_gateway(event: dict[str, Any]) -> bool:
    name: str = event["object"]["metadata"]["name"]
    return event["type"] == "ADDED" and name == _GATEWAY.name


def _is_met(event: dict[str, Any]) -> bool:
    found = event["object"].get("status", {}).get("conditions", ())
    return any(each["type"] == _LAST.condition and each["status"] == "True" for each in found)


@asynccontextmanager
async def _seen(
    client: Client, path: str, wanted: Callable[[dict[str, Any]], bool]
) -> AsyncIterator[asyncio.Queue[float]]:
    """The moments at which a watch sees what is wanted."""
    moments: asyncio.Queue[float] = asyncio.Queue()

    async def watch() -> None:
        async for event in client.watch(path, timeout_seconds=3600):
            if wanted(event):
                moments.put_nowait(time.perf_counter())

    task = asyncio.ensure_future(watch())
    try:
        yield moments
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _forget(moments: asyncio.Queue[float]) -> None:
    while not moments.empty():
        moments.get_nowait()


def _collection(path: str) -> tuple[str, str]:
    collection, _, name = path.rpartition("/")
    return collection, name
