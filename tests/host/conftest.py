"""A real host on a loopback port, and a real sink for what it publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import aiohttp
import pytest
from aiohttp import web

from events.codec import decode
from events.publisher import Publisher
from functions.function import Function, Wake
from functions.host.app import Gate, make_server
from functions.host.host import HANDLER_SECONDS, Host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from events.event import Event
    from functions.function import Handler
    from functions.world import World

NO_WORLD = cast("World", None)


class Serve(Protocol):
    async def __call__(
        self,
        *handlers: Handler,
        gate: Gate | None = None,
        publisher: Publisher | None = None,
        handler_seconds: float = HANDLER_SECONDS,
        body_seconds: float = 10.0,
        **limits: Any,
    ) -> str: ...


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves handlers as functions of their names; gives the base URL."""
    runners = []

    async def start(
        *handlers: Handler,
        gate: Gate | None = None,
        publisher: Publisher | None = None,
        handler_seconds: float = HANDLER_SECONDS,
        body_seconds: float = 10.0,
        **limits: Any,
    ) -> str:
        functions = [
            Function(
                name=cast("Any", handler).__name__, handler=handler, wakes_on=(Wake(type="t"),), emits=(), service="s"
            )
            for handler in handlers
        ]
        host = Host(functions, NO_WORLD, publisher, handler_seconds=handler_seconds)
        runner = web.ServerRunner(make_server(host, gate, body_seconds=body_seconds, **limits), shutdown_timeout=1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        yield session


class Sink:
    """Takes events over HTTP and keeps what it took; answers with `status`, or with `statuses` by type."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.refuse: set[str] = set()
        self.url = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        event = decode(request.headers, await request.content.read())
        if event.type in self.refuse:
            return web.Response(status=400)
        self.events.append(event)
        return web.Response(status=202)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = Sink()
    runner = web.ServerRunner(web.Server(sink.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sink.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield sink
    await runner.cleanup()


@pytest.fixture
async def publisher(sink: Sink) -> AsyncIterator[Publisher]:
    async with Publisher(sink.url) as publisher:
        yield publisher
