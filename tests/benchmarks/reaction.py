"""CRD created or deleted → RequirementsMet written, and what that costs: `dev`, a plain kopf operator, and the limit.

The limit is when discovery serves the CRD with the verb `create`, or has lost that verb, as tight polling sees it.
Polling and `dev` take turns, and `dev` is held still while it is not its turn, so that nobody disturbs. The operator
has blocks of rounds between, started anew for each: held still, it would have to catch up with megabytes of events.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from functions.access.discovery import DiscoveryReader
from functions.access.errors import Throttled
from functions.catalog import CustomResource
from functions.local import substrate
from tests.benchmarks.hub import CLUSTER, REQUIREMENTS, client_of, server_pid, started_hub
from tests.benchmarks.measure import Figure, Goal, at_most, figure, milliseconds, p50, p95, ratio_at_most, within
from tests.benchmarks.processes import BIN, SERVING_STACK, quiet, running
from tests.support import CLUSTERS, CRDS, gone, put_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from functions.access.client import Client
    from functions.local.instance import ControlPlane
    from tests.benchmarks.processes import Running

_BLOCKS: Final = 3
_ROUNDS: Final = 10
"""Of each block."""
_PEER_ROUNDS: Final = 3
_SECONDS: Final = {"10 KB": 20.0, "600 KB": 60.0}
"""After which a block has no further round; that is for a machine that does other work as well."""
_PEER: Final = "peer"
_POLL: Final = 0.001
_TOUCH_POLL: Final = 0.02
_PROCESS_IDLE: Final = 0.002
_SERVER_IDLE: Final = 0.01
"""Seconds of CPU in 60 ms that are taken for nothing to do."""
_ROUND_WITHIN: Final = 30.0
_COMPONENTS: Final = {"10 KB": "gaie-crds", "600 KB": "leader-worker-set"}
_P50_SLACK: Final = 15
_P95_SLACK: Final = 60
_CPU_GOAL: Final = 10
_SAME: Final = 1.2


@dataclass(slots=True)
class Subject:
    """One of those that take turns.

    Attributes:
        process: None for the limit, which is polled here.
        created: Seconds from the request to what is waited for, of each round; `deleted` likewise.
        create_cpu: Seconds of CPU that a creation cost; `delete_cpu` likewise.
    """

    process: Running | None = None
    created: list[float] = field(default_factory=list)
    deleted: list[float] = field(default_factory=list)
    create_cpu: list[float] = field(default_factory=list)
    delete_cpu: list[float] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        return 0.0 if self.process is None else self.process.cpu


class Turns:
    """When RequirementsMet of one cluster turned, as a watch sees it."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._cluster = cluster
        self._seen: asyncio.Queue[tuple[float, str]] = asyncio.Queue()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        params = {"fieldSelector": f"metadata.name={self._cluster}"}
        async for event in self._client.watch(CLUSTERS, params=params, timeout_seconds=3600):
            moment = time.perf_counter()
            conditions = event["object"].get("status", {}).get("conditions", ())
            for each in conditions:
                if each["type"] == "RequirementsMet":
                    self._seen.put_nowait((moment, each["status"]))

    def forget(self) -> None:
        """Passes over what was seen so far."""
        while not self._seen.empty():
            self._seen.get_nowait()

    async def to(self, status: str) -> float:
        """The moment at which it turned to this status."""
        while True:
            moment, seen = await self._seen.get()
            if seen == status:
                return moment


@asynccontextmanager
async def watched(client: Client, cluster: str) -> AsyncIterator[Turns]:
    """Watches one cluster as long as the context is entered."""
    turns = Turns(client, cluster)
    watch = asyncio.ensure_future(turns.run())
    try:
        yield turns
    finally:
        watch.cancel()
        await asyncio.wait((watch,))


class Course:
    """Rounds of one CRD on one hub.

    Attributes:
        client: Of the hub.
        requirement: Says which CRD it is.
    """

    def __init__(
        self,
        hub: ControlPlane,
        client: Client,
        impatient: Client,
        manifest: Mapping[str, Any],
        requirement: CustomResource,
    ) -> None:
        self.client = client
        self._manifest = manifest
        self.requirement = requirement
        self._discovery = DiscoveryReader(client)
        self._impatient = impatient
        self._server = server_pid(hub)

    async def round(self, subject: Subject, turns: Turns | None) -> None:
        """Creates and deletes the CRD once.

        Args:
            subject: Whose round it is; what was measured is added to it.
            turns: Tells when it has written; None to poll discovery instead.
        """
        met: Callable[[], Awaitable[float]]
        unmet: Callable[[], Awaitable[float]]
        if turns is None:
            met, unmet = (lambda: self._polled(served=True)), (lambda: self._polled(served=False))
        else:
            met, unmet = (lambda: turns.to("True")), (lambda: turns.to("False"))
        async with asyncio.timeout(_ROUND_WITHIN):
            if subject.process is not None:
                subject.process.go_on()
            await self._quiet(subject)
            if turns is not None:
                turns.forget()
            took, cost = await self._timed(subject, self._create, met)
            subject.created.append(took)
            subject.create_cpu.append(cost)
            await self._touch()
            await quiet(self._server, _SERVER_IDLE)
            took, cost = await self._timed(subject, self._delete, unmet)
            subject.deleted.append(took)
            subject.delete_cpu.append(cost)
            await gone(self.client, CRDS, self.requirement.name)
            await self._quiet(subject)
            if subject.process is not None:
                subject.process.check()
                subject.process.hold()

    async def _timed(
        self, subject: Subject, act: Callable[[], Awaitable[object]], seen: Callable[[], Awaitable[float]]
    ) -> tuple[float, float]:
        """Seconds from the request to the moment that `seen` gives, and CPU until all is quiet again."""
        cpu, begun = subject.cpu, time.perf_counter()
        acting = asyncio.ensure_future(act())
        moment = await seen()
        await acting
        await self._quiet(subject)
        return moment - begun, subject.cpu - cpu

    async def _create(self) -> None:
        await self.client.create(CRDS, self._manifest)

    async def _delete(self) -> None:
        await self.client.delete(f"{CRDS}/{self.requirement.name}")

    async def _polled(self, *, served: bool) -> float:
        wanted = self.requirement
        while True:
            discovery = await self._discovery.read({wanted.group})
            if discovery.serves(wanted.group, wanted.version, wanted.plural) is served:
                return time.perf_counter()
            await asyncio.sleep(_POLL)

    async def _touch(self) -> None:
        """A CRD that is deleted before anybody asked for its instances can stay Terminating for minutes."""
        await self._polled(served=True)
        wanted = self.requirement
        while True:
            with suppress(Throttled):  # its storage is not ready yet; the server asks for a second, which is too long
                await self._impatient.list_metadata(f"/apis/{wanted.group}/{wanted.version}/{wanted.plural}")
                return
            await asyncio.sleep(_TOUCH_POLL)

    async def _quiet(self, subject: Subject) -> None:
        if subject.process is not None:
            await quiet(subject.process.pid, _PROCESS_IDLE)
        await quiet(self._server, _SERVER_IDLE)


async def run() -> list[Figure]:
    """Every figure of reaction time, and of CPU per event."""
    figures = []
    dev_cpu: dict[str, list[Subject]] = {}
    for size, component in _COMPONENTS.items():
        limit, dev, peer = dev_cpu[size] = await _measured(size, component)
        figures += _latencies(size, "created", limit.created, dev.created, peer.created)
        figures += _latencies(size, "deleted", limit.deleted, dev.deleted, peer.deleted)
    small, large = dev_cpu.values()
    for what in ("create", "delete"):
        figures += _costs(what, *(_cpu(each, what) for each in (small[1], large[1], small[2], large[2])))
    return figures


async def _measured(size: str, component: str) -> list[Subject]:
    """The limit, ours and the peer after all rounds of one component's CRD."""
    manifest = next(iter(await asyncio.to_thread(substrate.manifests, component)))
    requirement = next(each for each in REQUIREMENTS if each.name == manifest["metadata"]["name"])
    assert isinstance(requirement, CustomResource)
    limit, dev, peer = Subject(), Subject(), Subject()
    async with AsyncExitStack() as stack:
        hub = stack.enter_context(started_hub(without=frozenset({requirement.name})))
        put_cluster(hub.api, _PEER, components="Managed")
        logs = Path(stack.enter_context(TemporaryDirectory()))
        client = client_of(hub)
        stack.push_async_callback(client.close)
        impatient = client_of(hub, budget=0)
        stack.push_async_callback(impatient.close)
        course = Course(hub, client, impatient, manifest, requirement)
        turns = await stack.enter_async_context(watched(client, CLUSTER))
        command = [SERVING_STACK, "dev", "--kubeconfig", str(hub.kubeconfig), "--tick", "3600"]
        dev.process = stack.enter_context(running(command, logs / "dev"))
        await turns.to("False")
        for _ in range(_BLOCKS):
            deadline = time.monotonic() + _SECONDS[size]
            for _ in range(_ROUNDS):
                await course.round(limit, None)
                await course.round(dev, turns)
                if time.monotonic() > deadline:
                    break
            await _peer_rounds(peer, course, hub, logs / "kopf")
    return [limit, dev, peer]


async def _peer_rounds(peer: Subject, course: Course, hub: ControlPlane, log: Path) -> None:
    env = {
        "KUBECONFIG": str(hub.kubeconfig),
        "BENCH_CRD": course.requirement.name,
        "BENCH_VERSION": course.requirement.version,
        "BENCH_CLUSTER": _PEER,
    }
    command = [str(BIN / "kopf"), "run", "--standalone", "--all-namespaces", "--quiet"]
    async with watched(course.client, _PEER) as turns:
        with running([*command, str(Path(__file__).with_name("kopf_operator.py"))], log, env=env) as peer.process:
            await turns.to("Unknown")
            for _ in range(_PEER_ROUNDS):
                await course.round(peer, turns)


def _latencies(size: str, what: str, limit: list[float], ours: list[float], peer: list[float]) -> list[Figure]:
    limit, ours, peer = milliseconds(limit), milliseconds(ours), milliseconds(peer)
    name = f"reaction: CRD of {size} {what}"

    def one(percentile: Callable[[list[float]], float], label: str, slack: float) -> Figure:
        return figure(
            f"{name}, {label}",
            percentile(ours),
            "ms",
            len(ours),
            limit=percentile(limit),
            goal=within(slack, "ms"),
        )

    return [
        one(p50, "p50", _P50_SLACK),
        one(p95, "p95", _P95_SLACK),
        figure(f"{name}, kopf p50", p50(peer), "ms", len(peer), limit=p50(limit)),
        figure(f"{name}, kopf p95", p95(peer), "ms", len(peer), limit=p95(limit)),
    ]


def _cpu(subject: Subject, what: str) -> list[float]:
    return milliseconds(subject.create_cpu if what == "create" else subject.delete_cpu)


def _costs(
    what: str, small: list[float], large: list[float], small_peer: list[float], large_peer: list[float]
) -> list[Figure]:
    """The CPU per event of ours for both sizes, and of the peer."""

    def one(name: str, samples: list[float], limit: float | None, goal: Goal | None) -> Figure:
        return figure(f"cpu: {what} a CRD of {name}", mean(samples), "ms", len(samples), limit=limit, goal=goal)

    sizes = tuple(_COMPONENTS)
    return [
        one(sizes[0], small, None, at_most(_CPU_GOAL, "ms")),
        one(sizes[1], large, mean(small), at_most(_CPU_GOAL, "ms")),
        one(f"{sizes[1]}, against {sizes[0]}", large, mean(small), ratio_at_most(_SAME)),
        one(f"{sizes[0]}, kopf", small_peer, None, None),
        one(f"{sizes[1]}, kopf", large_peer, None, None),
    ]
