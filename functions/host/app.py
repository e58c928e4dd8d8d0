"""HTTP for a `Host`: an aiohttp server with a path per function; `functions.host.run` serves it.

Every answer keeps the rules of a Knative Broker: a 2xx has a CloudEvent for a body or none at all, 413 and 422 mean
never again, 408 and 503 mean later, and there is no 404 and no 500.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiohttp import web

from events.codec import MAX_SIZE, Malformed, TooLarge, decode, encode_binary
from functions.host.host import Answer, bug, later, traceparent_of
from functions.host.log import printable
from functions.host.metrics import COUNTS, exposition
from functions.host.server import CONNECTIONS, HEAD_SECONDS, Server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from events.event import Event
    from functions.host.callers import Callers
    from functions.host.host import Host

CONCURRENCY: Final = 64
BODY_SECONDS: Final = 10.0
BODIES_SIZE: Final = 64 * MAX_SIZE
"""Bytes of bodies that are on their way, all together; beyond it, whoever sends one has to come again."""
LINGER_SECONDS: Final = 2.0
"""How long what a refused sender still sends is read, so that it gets to read the answer."""

_log = logging.getLogger(__name__)


class Gate:
    """Counts the events in work, refuses those beyond a limit, and everything once draining.

    An event is in work once the whole of it is there, so that those who send slowly keep nobody out.

    Attributes:
        draining: Whether new events are refused because the process is about to end.
    """

    def __init__(self, limit: int = CONCURRENCY) -> None:
        self._limit = limit
        self._in_flight = 0
        self._idle = asyncio.Event()
        self.draining = False

    def refusal(self) -> Answer | None:
        """The answer that refuses an event now; None where it would be let in."""
        if self.draining:
            return later("this process is about to end", 1, outcome="draining")
        if self._in_flight >= self._limit:
            return later(f"{self._limit} events are in work already", 1, outcome="overloaded")
        return None

    def enter(self) -> None:
        """One event more, which must `leave`."""
        self._in_flight += 1
        COUNTS.in_flight += 1

    def leave(self) -> None:
        """One event less."""
        self._in_flight -= 1
        COUNTS.in_flight -= 1
        if self.draining and not self._in_flight:
            self._idle.set()

    async def drain(self, seconds: float) -> int:
        """Refuse new events and wait for those in work; returns how many are still in work after `seconds`."""
        self.draining = True
        if not self._in_flight:
            return 0
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return self._in_flight
        return 0


def make_server(
    host: Host,
    gate: Gate | None = None,
    *,
    callers: Callers | None = None,
    connections: int = CONNECTIONS,
    head_seconds: float = HEAD_SECONDS,
    body_seconds: float = BODY_SECONDS,
) -> Server:
    """The HTTP server: `POST /<function.name>`, or `POST /` as well where there is one function.

    It is aiohttp's low-level server, because the router of an application takes a fifth of the time of a request.

    Args:
        host: What answers the events.
        gate: Limits concurrency and drains; one with the default limit when None.
        callers: Tells who may call; None where anybody may who can.
        connections: How many may be open; one beyond is closed at once.
        head_seconds: How long a new connection may take for the head of its first request.
        body_seconds: How long a sender may take for its body.
    """
    gate = gate or Gate()
    bodies = _Bodies(body_seconds)
    receivers = {f"/{name}": _receiver(host, name, gate, bodies, callers) for name in host.functions}
    if len(receivers) == 1:
        receivers["/"] = next(iter(receivers.values()))

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if request.method == "POST":
            receive = receivers.get(path)
            return _refusal("unknown", host.unknown(path.lstrip("/"))) if receive is None else await receive(request)
        if request.method in {"GET", "HEAD"}:
            if path == "/health/readiness":
                return web.Response(text="draining", status=503) if gate.draining else web.Response(text="ok")
            if path == "/health/liveness":
                return web.Response(text="ok")
            if path == "/metrics":
                body, content_type = exposition(request.headers.get("Accept", ""))
                return web.Response(body=body, headers={"Content-Type": content_type})
        return web.Response(status=405, text="a CloudEvent comes with POST", headers={"Allow": "POST"})

    # An access log would say again what the line of each event says.
    return Server(
        answer,
        connections=connections,
        head_seconds=head_seconds,
        access_log=None,
        lingering_time=LINGER_SECONDS,
        auto_decompress=False,  # a megabyte can be made to unpack for seconds, and no Broker packs anything
    )


def _receiver(
    host: Host, name: str, gate: Gate, bodies: _Bodies, callers: Callers | None
) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    async def receive(request: web.BaseRequest) -> web.Response:
        try:
            if (refused := gate.refusal()) is not None:
                return _turned_away(name, refused, gate)
            if callers is not None:
                unwelcome = await callers.refusal(request.headers.get("Authorization"))
                if unwelcome is not None:
                    return _refusal(name, unwelcome)
            try:
                content = request.content  # usually all of it came with the headers
                body = content.read_nowait() if content.is_eof() else await bodies.read(request)
                event = event_of(request.headers, body)
            except UNREADABLE as error:
                return _refusal(name, unreadable(error, bodies.seconds))
            if (refused := gate.refusal()) is not None:  # others may have come before the last of the body
                return _turned_away(name, refused, gate)
            gate.enter()
            try:
                return _response(await host.handle(name, event, reply_limit=reply_limit(request.headers)))
            finally:
                gate.leave()
        except ConnectionError:  # the sender is gone, nobody reads an answer
            raise
        except Exception as error:  # noqa: BLE001 - aiohttp would answer 500
            return _response(bug(name, error))

    return receive


def _turned_away(function: str, answer: Answer, gate: Gate) -> web.Response:
    response = _refusal(function, answer)
    if gate.draining:
        response.force_close()
    return response


class _TooManyBodies(Exception):  # noqa: N818 - named for what there is
    """All that are on their way take up too much memory."""


class _Bodies:
    """Reads the bodies that did not come with their headers, each within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._size = 0

    async def read(self, request: web.BaseRequest) -> bytes:
        if (request.content_length or 0) > MAX_SIZE:
            raise web.HTTPRequestEntityTooLarge(MAX_SIZE)
        body = bytearray()
        try:
            async with asyncio.timeout(self.seconds):
                while chunk := await request.content.readany():
                    body += chunk
                    self._size += len(chunk)
                    if len(body) > MAX_SIZE:
                        raise web.HTTPRequestEntityTooLarge(MAX_SIZE)
                    if self._size > BODIES_SIZE:
                        raise _TooManyBodies
        finally:
            self._size -= len(body)
        return bytes(body)


def event_of(headers: Mapping[str, str], body: bytes) -> Event:
    """The event of a request, with the trace context of the request where it has none of its own."""
    packed = headers.get("Content-Encoding")
    if packed is not None and packed.lower() != "identity":
        raise Malformed(f"the body is packed with {packed[:32]}; send it as it is")
    event = decode(headers, body)
    if "traceparent" in event.extensions:
        return event
    traceparent = traceparent_of(headers.get("traceparent"))
    return replace(event, extensions={**event.extensions, "traceparent": traceparent}) if traceparent else event


UNREADABLE: Final[tuple[type[Exception], ...]] = (
    Malformed,
    TimeoutError,
    web.HTTPRequestEntityTooLarge,
    web.RequestPayloadError,
    _TooManyBodies,
)


def unreadable(error: Exception, seconds: float) -> Answer:
    """The answer to one of the errors in `UNREADABLE`; `seconds` is what a sender has for its body."""
    match error:
        case _TooManyBodies():
            return later("too many bodies are on their way", 1, outcome="overloaded")
        case web.HTTPRequestEntityTooLarge() | TooLarge():
            return Answer(status=413, outcome="too_large", body=f"the body is larger than {MAX_SIZE} bytes")
        case TimeoutError():
            return Answer(status=408, outcome="slow_body", body=f"the body did not come within {seconds:g} s")
        case Malformed():
            return Answer(status=422, outcome="malformed", body=printable(str(error)))
        case _:
            return Answer(status=422, outcome="malformed", body="the body is not encoded as the headers say")


def reply_limit(headers: Mapping[str, str]) -> int:
    """One event where the sender says that it publishes replies, as a Broker does; else none."""
    preferences = headers.get("Prefer")
    if preferences is None or preferences == "reply":  # as all but all senders have it
        return int(preferences is not None)
    return int("reply" in {preference.strip().lower() for preference in preferences.split(",")})


def _refusal(function: str, answer: Answer) -> web.Response:
    return _response(refused(function, answer))


def refused(function: str, answer: Answer) -> Answer:
    """The answer to what did not reach a function, counted and logged."""
    COUNTS.event(function, "", answer.outcome)
    # A line for each event that only has to come again would drown the log just when there is most to do.
    level = logging.DEBUG if answer.status == 503 else logging.WARNING  # noqa: PLR2004
    _log.log(level, "refused", extra={"function": function, "outcome": answer.outcome, "detail": answer.body})
    return answer


def _response(answer: Answer) -> web.Response:
    if answer.events:
        message = encode_binary(answer.events[0])
        return web.Response(body=message.body, headers=message.headers)
    if answer.status == 204:  # noqa: PLR2004
        return web.Response(status=204)
    headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
    return web.Response(status=answer.status, text=answer.body, headers=headers)
