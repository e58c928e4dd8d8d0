"""Everything in one process: broker, watch source, tick and functions around a hub.

`serving-stack dev`, `demo`, the benchmarks and the tests run it; on a cluster, Knative's parts stand in its place.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

from events import types
from events.broker import Broker, Refused
from events.delivery import InProcess, Response
from events.event import JSON, Event
from events.publisher import NotAccepted
from events.triggers import read_triggers
from functions import dead_letters
from functions.deploy_files import NAMESPACE, deploy_directory
from functions.host.host import Host
from functions.registry import FUNCTIONS
from functions.watch.source import WatchSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from functions.world import World

TICK_SECONDS: Final = 60.0
_GRACE_SECONDS: Final = 1.0
_TICK_SOURCE: Final = f"/apis/v1/namespaces/{NAMESPACE}/pingsources/tick"
_log: Final = logging.getLogger(__name__)


class Runtime:
    """All functions, awake while the context is entered; a bug in it ends the context.

    Attributes:
        broker: Takes further events, and can be waited for.
    """

    def __init__(
        self,
        world: World,
        *,
        tick: float | None = TICK_SECONDS,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Keep the settings; nothing runs before the context is entered.

        Args:
            world: The hub and its targets; stays the caller's to close.
            tick: Seconds between two sweeps of everything, of which the first comes at once; None for none at all.
            on_event: Called with each event that the source or a function sends.
        """
        self._world = world
        self._tick = tick
        self._on_event = on_event
        self._host = Host((each for each in FUNCTIONS.values() if world.journal or not each.records), world)
        self._source = WatchSource(world, self.publish)
        served = self._host.functions
        triggers = [each for each in read_triggers(_triggers()) if _function(each.subscriber.path) in served]
        self.broker = Broker(triggers, InProcess(self._call), sleep=world.clock.sleep)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._tasks.append(self._group.create_task(self._source.run()))
        if self._tick is not None:
            self._tasks.append(self._group.create_task(self._ticks(self._tick)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        try:
            await self._group.__aexit__(kind, error, traceback)
            with suppress(TimeoutError):  # what is in work may end, what waits for a retry may not
                async with asyncio.timeout(_GRACE_SECONDS):
                    await self.broker.drain()
        finally:
            await self.broker.close()

    async def publish(self, events: Sequence[Event]) -> None:
        """Gives events to the broker, one after the other.

        Raises:
            NotAccepted: The broker is closed. An event that it will never take is dropped instead, and logged.
        """
        for event in events:
            self._on_event(event)
            try:
                await self.broker.publish(event)
            except Refused as refusal:
                if refusal.status == HTTPStatus.SERVICE_UNAVAILABLE:
                    raise NotAccepted(str(refusal), status=refusal.status) from None
                _log.error("an event is dropped", extra={"type": event.type, "detail": str(refusal)})

    async def _call(self, path: str, event: Event) -> Response:
        if _function(path) == dead_letters.NAME:
            return Response(status=204)  # the broker has logged it with the reason
        answer = await self._host.handle(_function(path), event)
        for each in answer.events:
            self._on_event(each)
        retry_after = None if answer.retry_after is None else float(answer.retry_after)
        return Response(status=answer.status, events=answer.events, body=answer.body.encode(), retry_after=retry_after)

    async def _ticks(self, seconds: float) -> None:
        while True:
            await self.publish((tick(self._world),))
            await self._world.clock.sleep(seconds)


def tick(world: World) -> Event:
    """The event of a PingSource."""
    return Event(
        id=str(uuid.uuid4()),
        source=_TICK_SOURCE,
        type=types.PING,
        time=world.clock.now(),
        datacontenttype=JSON,
        data=b"{}",
    )


def _function(path: str) -> str:
    return path.strip("/")


def _triggers() -> str:
    """The Triggers that are installed on a cluster as well."""
    return (deploy_directory() / "knative" / "base" / "triggers.yaml").read_text()
