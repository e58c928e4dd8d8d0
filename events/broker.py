"""The embedded broker: delivers each event to every Trigger that it matches, by Knative's rules.

`serving-stack dev`, `demo` and the tests run it where a cluster would run a Knative Broker. It keeps the rules of
the channel-based Broker with asynchronous handling: `publish` returns once the event is accepted, a subscriber
that fails blocks no other, and what is not delivered when the process ends is lost.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from events.codec import Malformed, check
from events.delivery import Response
from events.event import Event, rfc3339
from events.triggers import InvalidTrigger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from events.delivery import Transport
    from events.triggers import Destination, Trigger

HOPS_EXTENSION: Final = "knativebrokerttl"
ARRIVAL_EXTENSION: Final = "knativearrivaltime"
MAX_HOPS: Final = 255
DEFAULT_TIMEOUT: Final = 30.0
"""Seconds for one delivery whose Trigger sets no timeout."""
MAX_RETRY_AFTER: Final = 60.0
"""The longest pause, in seconds, that a subscriber can ask for."""

_ERROR_DATA_LENGTH: Final = 1024
_SHOWN: Final = 200  # bytes of an answer that a log line quotes
_RETRIED: Final = frozenset({404, 408, 409, 429})
_PAUSED: Final = frozenset({429, 503})
_log: Final = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818 - named for what happened to the event
    """The broker does not take an event.

    Attributes:
        status: The HTTP status that says so: 400 for an event that is invalid or went round too often, 503 when
            closed.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Counts:
    """What happened so far.

    Attributes:
        accepted: Events taken, replies included.
        delivered: Deliveries that a subscriber took.
        retried: Deliveries tried again.
        dead_lettered: Deliveries that failed and that the dead letter sink took.
        lost: Deliveries that failed and that no dead letter sink took.
        refused: Events not taken.
    """

    accepted: int = 0
    delivered: int = 0
    retried: int = 0
    dead_lettered: int = 0
    lost: int = 0
    refused: int = 0


class Broker:
    """Triggers and a transport, joined by the delivery rules.

    Args:
        triggers: All of them are this broker's.
        transport: How subscribers are reached.
        limit: Published events in flight at once; beyond it `publish` waits. An event is in flight until its
            deliveries and those of the replies to it have ended, so replies never wait for room.
        url: What dead letters name as the place that failed when a reply was refused.
        sleep: Waits some seconds between tries.
        now: The current time, with a time zone.

    Raises:
        InvalidTrigger: A destination has no address.
    """

    def __init__(
        self,
        triggers: Sequence[Trigger],
        transport: Transport,
        *,
        limit: int = 1000,
        url: str = "http://broker.localhost",
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.counts = Counts()
        self._triggers = tuple(triggers)
        self._transport = transport
        self._room = asyncio.Semaphore(limit)
        self._url = url
        self._sleep = sleep
        self._now = now
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        for trigger in self._triggers:
            _require_address(trigger, "subscriber", trigger.subscriber, transport)
            if trigger.delivery.dead_letter_sink is not None:
                field = "delivery.deadLetterSink"
                _require_address(trigger, field, trigger.delivery.dead_letter_sink, transport)

    async def publish(self, event: Event) -> None:
        """Accepts an event; its deliveries run on their own.

        Raises:
            Refused: It is invalid, went round too often, or the broker is closed.
        """
        hops = self._admit(event)
        await self._room.acquire()
        if self._closed:
            self._room.release()
            raise self._refusal("the broker is closed", 503)
        task = asyncio.create_task(self._fan_out(event, hops))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def drain(self) -> None:
        """Returns once nothing is in flight, retries, replies and dead letters included."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Takes no more events and gives up what is in flight."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await self.drain()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("an event's delivery ended with a bug", exc_info=error)

    def _admit(self, event: Event, hops: int | None = None) -> int:
        """How many hops the replies to `event` have left; `hops` are those of the event that it replies to."""
        written = event.extensions.get(HOPS_EXTENSION, "")
        if hops is None and written.isascii() and written.isdigit():
            hops = min(int(written[:4]), MAX_HOPS)
        left = MAX_HOPS if hops is None else hops - 1
        if left <= 0:
            raise self._refusal(f"event {event.id} of type {event.type} has no hops left of {MAX_HOPS}", 400)
        try:
            check(event)
        except Malformed as error:
            raise self._refusal(f"the event cannot be sent: {error}", 400) from None
        return left

    def _refusal(self, message: str, status: int) -> Refused:
        self.counts.refused += 1
        return Refused(message, status)

    async def _fan_out(self, event: Event, hops: int) -> None:
        self.counts.accepted += 1
        extensions = {name: value for name, value in event.extensions.items() if name != HOPS_EXTENSION}
        event = replace(event, extensions={**extensions, ARRIVAL_EXTENSION: rfc3339(self._now())})
        async with asyncio.TaskGroup() as group:
            for trigger in self._triggers:
                if trigger.matches(event):
                    group.create_task(self._deliver(trigger, event, hops))

    async def _deliver(self, trigger: Trigger, event: Event, hops: int) -> None:
        response = await self._send(trigger, trigger.subscriber, event)
        if not _is_success(response):
            url = self._transport.url(trigger.subscriber)
            await self._dead_letter(trigger, event, url, response.status, response.body)
            return
        self.counts.delivered += 1
        async with asyncio.TaskGroup() as group:
            for reply in response.events:
                try:
                    left = self._admit(reply, hops)
                except Refused as refusal:
                    # As in Knative: the event is dead-lettered though its subscriber took it.
                    body = str(refusal).encode()
                    group.create_task(self._dead_letter(trigger, event, self._url, refusal.status, body))
                else:
                    group.create_task(self._fan_out(reply, left))

    async def _dead_letter(self, trigger: Trigger, event: Event, url: str, status: int, body: bytes) -> None:
        sink = trigger.delivery.dead_letter_sink
        taken = False
        if sink is not None:
            error = {
                "knativeerrordest": url,
                "knativeerrorcode": str(status),
                "knativeerrordata": base64.b64encode(body[:_ERROR_DATA_LENGTH])[:_ERROR_DATA_LENGTH].decode(),
            }
            letter = replace(event, extensions={**event.extensions, **error})
            taken = _is_success(await self._send(trigger, sink, letter))
        if taken:
            self.counts.dead_lettered += 1
        else:
            self.counts.lost += 1
        _log.warning(
            "Trigger %s: event %s of type %s failed with status %d and was %s: %s",
            trigger.name,
            event.id,
            event.type,
            status,
            "dead-lettered" if taken else "lost",
            " ".join(body[:_SHOWN].decode(errors="replace").split()) or "no reason given",
        )

    async def _send(self, trigger: Trigger, destination: Destination, event: Event) -> Response:
        """Tries as often as the Trigger says; the last answer counts."""
        policy = trigger.delivery
        response = await self._try(trigger, destination, event)
        for failed in range(policy.retry):
            if not _is_retried(response):
                break
            wait = policy.wait(failed)
            if response.status in _PAUSED and response.retry_after is not None:
                wait = max(wait, min(response.retry_after, MAX_RETRY_AFTER))
            self.counts.retried += 1
            await self._sleep(wait)
            response = await self._try(trigger, destination, event)
        return response

    async def _try(self, trigger: Trigger, destination: Destination, event: Event) -> Response:
        timeout = trigger.delivery.timeout
        limit = DEFAULT_TIMEOUT if timeout is None else timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                response = await self._transport.send(destination, event)
        except TimeoutError:
            return Response(status=500, body=f"no answer within {limit:g} s".encode())
        if _is_success(response) and response.body:
            return Response(status=502, body=response.body, retry_after=response.retry_after)
        return response


def _require_address(trigger: Trigger, field: str, destination: Destination, transport: Transport) -> None:
    try:
        transport.url(destination)
    except LookupError as error:
        raise InvalidTrigger(f"Trigger {trigger.name}: spec.{field}: {error.args[0]}") from None


def _is_success(response: Response) -> bool:
    return 200 <= response.status < 300  # noqa: PLR2004 - HTTP's own ranges


def _is_retried(response: Response) -> bool:
    return response.status in _RETRIED or response.status >= 500  # noqa: PLR2004 - HTTP's own ranges
