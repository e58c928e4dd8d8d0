"""Between an event and its answer: time limit, outcome, trace context, hops, publishing, log and metrics.

Knows nothing of HTTP: `functions.host.app` calls it for each request, the embedded broker in process.
"""

from __future__ import annotations

import logging
import math
import re
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from events.codec import Malformed
from events.publisher import NotAccepted
from functions.access.errors import AccessError, Throttled
from functions.function import Later, Poison
from functions.host.log import emit, printable, stack_of
from functions.host.metrics import COUNTS
from functions.host.time_limit import TimeLimit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from events.event import Event
    from events.publisher import Publisher
    from functions.function import Function
    from functions.world import World

HANDLER_SECONDS: Final = 20.0
MAX_HOPS: Final = 16
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of an event.

    Attributes:
        status: HTTP status as a Knative Broker takes it: 200 with events, 204 without, 422 for never, 503 for later.
        outcome: One word for logs and metrics.
        events: What follows from the event and is the caller's to publish; empty unless 200.
        body: One line on what is wrong; empty on 2xx.
        retry_after: Whole seconds for the Retry-After header, None to leave the pace to the sender.
    """

    status: int
    outcome: str
    events: tuple[Event, ...] = ()
    body: str = ""
    retry_after: int | None = None


_NOTHING: Final = Answer(status=204, outcome="handled")


class Host:
    """Runs the handlers of some functions.

    Attributes:
        functions: What is served, by name.

    Args:
        functions: What to serve.
        world: What the handlers reach clusters and the clock through.
        publisher: Takes the events that do not fit into an answer; without one such an event is answered 503.
        handler_seconds: How long a handler and publishing may take together.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        world: World,
        publisher: Publisher | None = None,
        *,
        handler_seconds: float = HANDLER_SECONDS,
    ) -> None:
        self.functions: Mapping[str, Function] = {function.name: function for function in functions}
        self._world = world
        self._publisher = publisher
        self._limit = TimeLimit(handler_seconds)

    async def handle(self, name: str, event: Event, *, reply_limit: int | None = None) -> Answer:
        """Answer one event; never raises but for cancellation.

        Args:
            name: Of the function, such as `probes/cert-manager`.
            event: The event as it was delivered.
            reply_limit: How many events the caller can carry in the answer; if there are more, all of them are
                published here and the answer has none. None means any number.
        """
        begun = perf_counter()
        function = self.functions.get(name)
        if function is None:
            answer = self.unknown(name)
            name = "unknown"  # a label and a log field of few values
        else:
            answer = await self._call(function, event, reply_limit)
        elapsed = perf_counter() - begun
        COUNTS.event(name, event.type, answer.outcome)
        COUNTS.duration(name, elapsed)
        _log_event(name, event, answer, elapsed)
        return answer

    def unknown(self, name: str) -> Answer:
        """The answer to an event for a function that is not served here."""
        served = ", ".join(f"/{served}" for served in self.functions)
        return Answer(
            status=422, outcome="unknown_function", body=printable(f"no function at /{name[:64]}; served are {served}")
        )

    async def _call(self, function: Function, event: Event, reply_limit: int | None) -> Answer:
        timed = self._limit()
        try:
            # What only records an event takes it however far it came: a dead letter is of one that came too far.
            hops = 0 if function.records else _hops(event)
            with timed:
                events = await function.handler(event, self._world)
                if not events:
                    return _NOTHING
                events = _marked(events, event, hops + 1)
                if reply_limit is None or len(events) <= reply_limit:
                    return Answer(status=200, outcome="handled", events=events)
                return await self._publish(function.name, events)
        except TimeoutError as error:
            if not timed.expired:
                return bug(function.name, error)
            return later(f"{function.name} did not end within {self._limit.seconds:g} s", None, outcome="timeout")
        except Exception as error:  # noqa: BLE001 - a bug of a function must neither end the process nor lose the event
            return _failure(function.name, error)

    async def _publish(self, function: str, events: Sequence[Event]) -> Answer:
        if self._publisher is None:
            return later("K_SINK is not set", None, outcome="unpublished")
        try:
            await self._publisher.publish(events)
        except NotAccepted as error:
            return later(printable(str(error)), error.retry_after, outcome="unpublished")
        except Malformed as error:
            return bug(function, error)
        COUNTS.published[function] += len(events)
        return _NOTHING


def _failure(function: str, error: Exception) -> Answer:
    match error:
        case Poison() | Malformed():  # the latter is of data that does not fit its type
            return Answer(status=422, outcome="poison", body=printable(str(error)))
        case Later():
            return later(printable(str(error)), error.retry_after)
        case AccessError():  # of the hub: what a target does not answer is a judgement, not an error
            return later(printable(str(error)), error.retry_after if isinstance(error, Throttled) else None)
        case _:
            return bug(function, error)


def later(body: str, retry_after: float | None, *, outcome: str = "later") -> Answer:
    """The answer that asks for a redelivery; a fraction of a second is rounded up."""
    seconds = None if retry_after is None else max(0, math.ceil(retry_after))
    return Answer(status=503, outcome=outcome, body=body, retry_after=seconds)


def bug(function: str, error: Exception) -> Answer:
    """Count and log an exception that no one expected; the answer names its type and nothing that it says."""
    COUNTS.bugs[function] += 1
    _log.error("bug", extra={"function": function, "stack": stack_of(error)})
    return Answer(status=503, outcome="bug", body=f"{function} failed: {type(error).__name__}, see its log")


def traceparent_of(text: str | None) -> str | None:
    """A W3C trace context as it may be passed on; None for one that is absent or malformed."""
    return text if text and _TRACEPARENT.fullmatch(text) else None


def _hops(event: Event) -> int:
    text = event.extensions.get("hops") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - more digits are no hop count
        raise Poison(f"extension hops is no number: {printable(text, 32)}")
    if int(text) >= MAX_HOPS:
        raise Poison(
            f"the event is {int(text)} hops from its origin, the limit is {MAX_HOPS}: functions wake each other"
        )
    return int(text)


def _marked(events: Sequence[Event], cause: Event, hops: int) -> tuple[Event, ...]:
    marks = {"hops": str(hops)}
    if traceparent := traceparent_of(cause.extensions.get("traceparent")):
        marks["traceparent"] = traceparent
    return tuple(replace(event, extensions={**event.extensions, **marks}) for event in events)


def _log_event(function: str, event: Event, answer: Answer, elapsed: float) -> None:
    level = logging.INFO if answer.status < 300 else logging.WARNING  # noqa: PLR2004 - HTTP's success
    fields: dict[str, Any] = {
        "function": function,
        "event_id": event.id,
        "event_type": event.type,
        "subject": event.subject,
        "cluster": event.extensions.get("cluster"),
        "outcome": answer.outcome,
        "duration_ms": round(elapsed * 1000, 3),
    }
    if answer.body:
        fields["detail"] = answer.body
    if traceparent := traceparent_of(event.extensions.get("traceparent")):
        fields["traceparent"] = traceparent
    emit(_log, level, "event", fields)
