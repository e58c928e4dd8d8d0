"""The watch source at work, and what its tests look for in what it tells."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from events import types
from events.codec import read
from functions.access.targets import Targets
from functions.watch.source import WatchSource
from tests.support import open_world
from tests.watch.fakes import WITHIN, Collected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from events.event import Event


@asynccontextmanager
async def watching(hub: Path, targets: type[Targets] = Targets) -> AsyncIterator[Collected]:
    """A watch source, and what it tells; it is complete once all that `gpu-1` serves is followed."""
    world = await open_world(hub)
    world.targets = targets(world.hub.client)
    collected = Collected()
    source = WatchSource(world, collected.publish)
    collected.complete = lambda: is_complete(source)
    collected.failures = lambda: source._targets["gpu-1"][0]._definitions.reflector._failures
    task = asyncio.create_task(source.run())
    try:
        yield collected
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await world.close()


def is_complete(source: WatchSource) -> bool:
    """Whether all that the target of `gpu-1` serves is followed, and was looked at since."""
    watch, _ = source._targets.get("gpu-1", (None, None))
    if watch is None:
        return False
    first = (watch._definitions, watch._device_classes)
    followed = all(each.reflector.known is not None for each in first)
    composed = watch._composed
    return followed and not composed._unlisted and not composed._unwatched() and not watch._checks._wanted


async def started(collected: Collected) -> None:
    """Returns once the hub is watched, and of the target of gpu-1 all that is served."""
    for _ in range(2):  # for the hub's list, and for those of the target
        await collected.next(checked())
    await until(collected.complete, "everything to be followed")
    collected.forget()


async def until(reached: Callable[[], bool], what: str, within: float = WITHIN) -> None:
    """Polls, for what nothing tells of."""
    deadline = monotonic() + within
    while not reached():
        if monotonic() > deadline:
            pytest.fail(f"waited in vain for {what}")
        await asyncio.sleep(0.02)


def about(name: str, verb: str = "", cluster: str | None = "gpu-1", kind: str | None = None) -> Callable[[Event], bool]:
    """Whether an event says that this object changed, in that way and of that kind where they are given."""

    def wanted(event: Event) -> bool:
        return (
            event.extensions.get("name") == name
            and event.type.startswith(f"dev.knative.apiserver.ref.{verb}")
            and event.extensions.get("cluster") == cluster
            and kind in (None, event.extensions.get("kind"))
        )

    return wanted


def checked(cluster: str = "gpu-1", reason: str | None = None) -> Callable[[Event], bool]:
    """Whether an event asks for a look at a cluster, for that reason where one is given."""

    def wanted(event: Event) -> bool:
        return (
            event.type == types.CHECK_REQUESTED
            and event.extensions["cluster"] == cluster
            and reason in (None, read(event, types.CheckRequested).reason)
        )

    return wanted
