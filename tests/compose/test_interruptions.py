"""A function that is killed, or held up, between any two of its requests: what it leaves is put right, or goes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.ownership import OWNER_UID
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from functions.host.host import Host
from functions.registry import FUNCTIONS
from tests.compose.apart import deleted, finalize
from tests.compose.stage import GATEWAY, QUEUES
from tests.faults import Fault
from tests.support import CLUSTERS, conditions, open_world, put_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from aiohttp import web

    from functions.compose.step import Composition
    from tests.compose.apart import Apart
    from tests.faults import Faulty

BY_NAME = [pytest.param(each, id=each.name) for each in COMPOSITIONS]


@dataclass
class Point:
    """The write at which something happens, on the hub or on the target.

    Attributes:
        after: How many writes are let through before it; None for never.
        carried_out: Whether that write itself comes through, and only its answer does not.
        reached: Set when it came.
        go_on: Set when it may come through.
    """

    after: int | None = None
    carried_out: bool = False
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def set(self, after: int | None, *, carried_out: bool) -> None:
        self.after, self.carried_out = after, carried_out
        self.reached.clear()
        self.go_on.clear()

    @property
    def fault(self) -> Fault:
        return Fault("/", self._answer)

    async def _answer(self, request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method == "GET" or self.after is None:
            return await real()
        if self.after > 0:
            self.after -= 1
            return await real()
        self.after = None
        early = await real() if self.carried_out else None
        self.reached.set()
        await self.go_on.wait()
        return early if early is not None else await real()


@pytest.fixture
async def point(away: Apart, before_hub: Faulty) -> AsyncIterator[Point]:
    """Where the functions on the stage are stopped, on their way to the hub or to the target."""
    point = Point()
    before_hub.faults.append(point.fault)
    away.faulty.faults.append(point.fault)
    yield point
    point.go_on.set()


async def killed(stage: Apart, point: Point, composition: Composition) -> bool:
    """Delivers a check; whether the process was killed over it, and is a new one now."""
    handling = asyncio.create_task(stage.host.handle(f"compose/{composition.name}", stage.check()))
    dying = asyncio.create_task(point.reached.wait())
    await asyncio.wait({handling, dying}, return_when=asyncio.FIRST_COMPLETED)
    over = point.reached.is_set()
    if over:
        handling.cancel()
        await stage.restart()
    dying.cancel()
    await asyncio.wait({handling, dying})
    point.set(None, carried_out=False)
    return over


def picture(stage: Apart, composition: Composition) -> dict[str, Any]:
    """What there is of a set, without what differs from one time to the next."""
    found: dict[str, Any] = {}
    for each in composition.steps:
        live = stage.live(each)
        if live is not None:
            mark = (live["metadata"].get("annotations") or {}).get(OWNER_UID)
            assert mark in {None, stage.uid()}
            rest = {key: value for key, value in live.items() if key not in {"metadata", "status", "data"}}
            for address in ("clusterIP", "clusterIPs"):  # which the API server gives to a Service
                rest.get("spec", {}).pop(address, None)
            found[each.key] = (live["metadata"].get("labels"), mark is not None, rest)
    condition = conditions(stage.api)[composition.condition]
    said = {key: value for key, value in condition.items() if key != "lastTransitionTime"}
    return {**found, "condition": said, "held": stage.is_held(composition)}


async def start(stage: Apart) -> None:
    put_cluster(stage.api, stack="Dynamo")
    await stage.judge()


@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
async def test_killed_at_any_write_one_more_delivery_makes_up_for_it(
    away: Apart, point: Point, *, carried_out: bool
) -> None:
    await start(away)
    await away.compose(QUEUES)
    undisturbed = picture(away, QUEUES)
    away.delete()
    await away.compose(QUEUES)
    assert away.is_gone()
    writes = 0
    while True:
        await start(away)
        point.set(writes, carried_out=carried_out)
        over = await killed(away, point, QUEUES)
        await away.compose(QUEUES)
        assert picture(away, QUEUES) == undisturbed
        away.delete()
        point.set(writes, carried_out=carried_out)
        over |= await killed(away, point, QUEUES)
        await away.compose(QUEUES)
        assert away.is_gone()
        assert away.there(QUEUES) == []
        if not over:
            break
        writes += 1
    assert writes >= 4, "a finalizer, two queues and a condition"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("composition", BY_NAME)
async def test_killed_after_every_single_write_it_comes_to_its_end(
    away: Apart, point: Point, composition: Composition
) -> None:
    """No process lives longer than one write, which is the worst that can be."""
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        await away.settle(composition)
        undisturbed = picture(away, composition)
        away.delete()
        await away.finish()
        await start(away)
        kills = await _kill_until(away, point, composition, lambda: _is_true(away, composition))
        assert kills >= len(deleted(composition)), "each object is one write"
        assert picture(away, composition) == undisturbed
        away.delete()
        kills = await _kill_until(away, point, composition, lambda: not away.is_held(composition))
        assert kills >= len(deleted(composition)) - 1, "but for what a controller takes along"
    assert away.there(composition) == []


async def _kill_until(stage: Apart, point: Point, composition: Composition, reached: Callable[[], bool]) -> int:
    kills = 0
    async with asyncio.timeout(90):
        while True:
            point.set(0, carried_out=True)
            over = await killed(stage, point, composition)
            kills += over
            finalize(stage.away.api)
            if not over and reached():
                return kills


def _is_true(stage: Apart, composition: Composition) -> bool:
    found = conditions(stage.api).get(composition.condition)
    return found is not None and found["status"] == "True"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("composition", "carried_out", "anew"),
    [
        pytest.param(QUEUES, False, False, id="queues, before, gone"),
        pytest.param(QUEUES, False, True, id="queues, before, made anew"),
        pytest.param(QUEUES, True, False, id="queues, after, gone"),
        pytest.param(QUEUES, True, True, id="queues, after, made anew"),
        pytest.param(GATEWAY, False, True, id="gateway, before, made anew"),
        pytest.param(GATEWAY, True, False, id="gateway, after, gone"),
    ],
)
async def test_held_up_at_any_write_until_another_took_all_down_it_leaves_nothing(
    away: Apart, point: Point, composition: Composition, *, carried_out: bool, anew: bool
) -> None:
    other = await open_world(away.hub.kubeconfig, away.time.clock)
    host = Host(FUNCTIONS.values(), other)
    away.publish_ca()
    writes = 0
    try:
        while True:
            await start(away)
            before = away.uid()
            point.set(writes, carried_out=carried_out)
            handling = asyncio.create_task(away.deliver(f"compose/{composition.name}", away.check()))
            stopped = asyncio.create_task(point.reached.wait())
            await asyncio.wait({handling, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            caught, point.after = point.reached.is_set(), None  # the writes of the other one are not counted
            await _take_down(away, host)
            if anew:
                put_cluster(away.api, stack="Dynamo")
            point.go_on.set()
            await handling
            assert [each for each in _owners(away, composition) if each == before] == [], f"write {writes}"
            if anew:
                away.delete()
                await _take_down(away, host)
            finalize(away.away.api)
            if not caught:
                break
            writes += 1
    finally:
        await other.close()
    assert writes >= 4


async def _take_down(stage: Apart, host: Host) -> None:
    """Another host has the InferenceCluster gone, and all that there is of it so far."""
    answer = stage.api.request("DELETE", f"{CLUSTERS}/gpu-1")
    assert answer.status in {200, 404}
    async with asyncio.timeout(30):
        while not stage.is_gone():
            finalize(stage.away.api)
            for each in COMPOSITIONS:
                await host.handle(f"compose/{each.name}", stage.check())


def _owners(stage: Apart, composition: Composition) -> list[str]:
    """Whose the objects of a set are, by their marks, but for a namespace that is going."""
    found = [stage.live(each) for each in composition.steps]
    staying = [each for each in found if each is not None and "deletionTimestamp" not in each["metadata"]]
    marks = [(each["metadata"].get("annotations") or {}).get(OWNER_UID) for each in staying]
    return [each for each in marks if each is not None]
