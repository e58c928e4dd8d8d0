"""HTTP for a `Host`: an aiohttp application with a path per function; `functions.host.run` serves it.

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
from functions.host import metrics
from functions.host.host import Answer, bug, later, traceparent_of
from functions.host.log import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from events.event import Event
    from functions.function import Function
    from functions.host.host import Host

CONCURRENCY: Final = 64
BODY_SECONDS: Final = 10.0
_UNREADABLE: Final = (Malformed, TimeoutError, web.HTTPRequestEntityTooLarge, web.RequestPayloadError)
_log = logging.getLogger(__name__)


class Gate:
    """Counts the requests that have no answer yet, refuses those beyond a limit, and everything once draining.

    Attributes:
        draining: Whether new events are refused because the process is about to end.
    """

    def __init__(self, limit: int = CONCURRENCY) -> None:
        self._limit = limit
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    def enter(self) -> Answer | None:
        """Let a request in, or give the answer that refuses it; who is let in must `leave`."""
        if self.draining:
            return later("this process is about to end", 1, outcome="draining")
        if self._in_flight >= self._limit:
            return later(f"{self._limit} events are in work already", 1, outcome="overloaded")
        self._in_flight += 1
        self._idle.clear()
        metrics.IN_FLIGHT.inc()
        return None

    def leave(self) -> None:
        """One request less."""
        self._in_flight -= 1
        metrics.IN_FLIGHT.dec()
        if not self._in_flight:
            self._idle.set()

    async def drain(self, seconds: float) -> int:
        """Refuse new events and wait for those in work; returns how many are still in work after `seconds`."""
        self.draining = True
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return self._in_flight
        return 0


def make_app(host: Host, gate: Gate | None = None, *, body_seconds: float = BODY_SECONDS) -> web.Application:
    """The application: `POST /<function.name>`, or `POST /` as well where there is one function.

    Args:
        host: What answers the events.
        gate: Limits concurrency and drains; one with the default limit when None. Needs a running loop.
        body_seconds: How long a sender may take for its body.
    """
    gate = gate or Gate()
    app = web.Application(client_max_size=MAX_SIZE)
    for function in host.functions.values():
        receive = _receiver(host, function, gate, body_seconds)
        app.router.add_post(f"/{function.name}", receive)
        if len(host.functions) == 1:
            app.router.add_post("/", receive)

    async def liveness(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readiness(_: web.Request) -> web.Response:
        return web.Response(text="draining\n", status=503) if gate.draining else web.Response(text="ok\n")

    async def elsewhere(request: web.Request) -> web.Response:
        if request.method != "POST":
            return web.Response(status=405, text="events are POSTed\n", headers={"Allow": "POST"})
        return _refusal("unknown", host.unknown(request.path.strip("/")))

    app.router.add_get("/health/liveness", liveness)
    app.router.add_get("/health/readiness", readiness)
    app.router.add_get("/metrics", _metrics)
    app.router.add_route("*", "/{path:.*}", elsewhere)
    return app


async def _metrics(request: web.Request) -> web.Response:
    body, content_type = metrics.exposition(request.headers.get("Accept", ""))
    return web.Response(body=body, headers={"Content-Type": content_type})


def _receiver(
    host: Host, function: Function, gate: Gate, body_seconds: float
) -> Callable[[web.Request], Awaitable[web.Response]]:
    name = function.name

    async def receive(request: web.Request) -> web.Response:
        if (refused := gate.enter()) is not None:
            response = _refusal(name, refused)
            if gate.draining:
                response.force_close()
            return response
        try:
            event = await _event(request, body_seconds)
            answer = await host.handle(name, event, reply_limit=_reply_limit(request))
            return _response(answer)
        except _UNREADABLE as error:
            return _refusal(name, _unreadable(error, body_seconds))
        except ConnectionError:  # the sender is gone, nobody reads an answer
            raise
        except Exception as error:  # noqa: BLE001 - aiohttp would answer 500
            return _response(bug(name, error))
        finally:
            gate.leave()

    return receive


async def _event(request: web.Request, seconds: float) -> Event:
    """The event of a request; raises one of `_UNREADABLE` where it brings none."""
    if (request.content_length or 0) > MAX_SIZE:
        raise web.HTTPRequestEntityTooLarge(MAX_SIZE)
    if request.content.is_eof():  # the usual case: the body came with the headers and needs no timer
        body = await request.read()
    else:
        async with asyncio.timeout(seconds):
            body = await request.read()
    event = decode(request.headers, body)
    if "traceparent" in event.extensions:
        return event
    traceparent = traceparent_of(request.headers.get("traceparent"))
    return replace(event, extensions={**event.extensions, "traceparent": traceparent}) if traceparent else event


def _unreadable(error: Exception, seconds: float) -> Answer:
    match error:
        case web.HTTPRequestEntityTooLarge() | TooLarge():
            return Answer(status=413, outcome="too_large", body=f"the body is larger than {MAX_SIZE} bytes")
        case TimeoutError():
            return Answer(status=408, outcome="slow_body", body=f"the body did not come within {seconds:g} s")
        case Malformed():
            return Answer(status=422, outcome="malformed", body=printable(str(error)))
        case _:
            return Answer(status=422, outcome="malformed", body="the body is not encoded as the headers say")


def _reply_limit(request: web.Request) -> int:
    """One event where the sender says that it publishes replies, as a Broker does; else none."""
    preferences = request.headers.get("Prefer", "").lower().split(",")
    return 1 if any(preference.strip() == "reply" for preference in preferences) else 0


def _refusal(function: str, answer: Answer) -> web.Response:
    """The response to what did not reach a function, counted and logged."""
    metrics.count(function, "", answer.outcome)
    # A line for each event that only has to come again would drown the log just when there is most to do.
    level = logging.DEBUG if answer.status == 503 else logging.WARNING  # noqa: PLR2004
    _log.log(level, "refused", extra={"function": function, "outcome": answer.outcome, "detail": answer.body})
    return _response(answer)


def _response(answer: Answer) -> web.Response:
    if answer.events:
        message = encode_binary(answer.events[0])
        return web.Response(body=message.body, headers=message.headers)
    if answer.status == 204:  # noqa: PLR2004
        return web.Response(status=204)
    headers = {} if answer.retry_after is None else {"Retry-After": str(answer.retry_after)}
    return web.Response(status=answer.status, text=answer.body, headers=headers)
