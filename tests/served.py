"""The functions as a Broker reaches them: the real ones, over HTTP on a loopback port."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from events.codec import decode, encode_binary
from functions.host.app import make_server
from functions.host.host import Host
from functions.registry import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from events.event import Event
    from events.publisher import Publisher
    from functions.world import World


@dataclass(frozen=True, slots=True)
class Said:
    """What was answered: the status, the event where there is one, and otherwise the text."""

    status: int
    event: Event | None
    text: str


@dataclass(frozen=True, slots=True)
class Served:
    """Functions behind a URL."""

    url: str
    session: aiohttp.ClientSession

    async def post(self, function: str, event: Event) -> Said:
        """Delivers an event as a Broker does."""
        message = encode_binary(event)
        return await self.send(function, message.headers, message.body)

    async def send(self, function: str, headers: Mapping[str, str], body: bytes) -> Said:
        """Delivers whatever this is."""
        wanted = {**headers, "Prefer": "reply"}
        async with self.session.post(f"{self.url}/{function}", headers=wanted, data=body) as response:
            content = await response.read()
            event = decode(response.headers, content) if response.status == 200 else None
            return Said(response.status, event, "" if event else content.decode())


@asynccontextmanager
async def serving(world: World, *names: str, publisher: Publisher | None = None) -> AsyncIterator[Served]:
    """Serves the functions of these names around a world."""
    runner = web.ServerRunner(make_server(Host([FUNCTIONS[each] for each in names], world, publisher)))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            yield Served(f"http://127.0.0.1:{runner.addresses[0][1]}", session)
    finally:
        await runner.cleanup()
