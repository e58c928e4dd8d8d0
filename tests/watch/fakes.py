"""For the watch tests: an API server that answers by a script, a gate before a real one, and a collector of events."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from aiohttp import web

from events.publisher import NotAccepted
from functions.access.client import Client
from functions.access.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from events.event import Event
    from functions.watch.reflector import Key, Verb, Version

WITHIN = 30.0


@dataclass(slots=True)
class ScriptedApi:
    """One collection of an API server; what is asked beyond the script stays without an answer.

    Attributes:
        lists: Answers to lists: a status, or the text of the body.
        watches: Answers to watches: the lines, after which the stream ends, or None to stay silent.
        asked: `list`, or `watch` with the resourceVersion that it starts from.
        selected: The field selectors that were asked with.
        watched: Set once a watch was begun.
    """

    lists: deque[int | str] = field(default_factory=deque)
    watches: deque[Sequence[dict[str, Any] | None]] = field(default_factory=deque)
    asked: list[str] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    selected: list[str] = field(default_factory=list)
    watched: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.accepted.add(request.headers["Accept"])
        self.selected.append(request.query.get("fieldSelector", ""))
        if "watch" in request.query:
            self.asked.append(f"watch {request.query['resourceVersion']}")
            return await self._watch(request)
        self.asked.append("list")
        answer = self.lists.popleft() if self.lists else None
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, int):
            return web.Response(status=answer, text="404 page not found")
        return web.Response(text=answer, content_type="application/json")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        self.watched.set()
        for line in self.watches.popleft() if self.watches else (None,):
            if line is None:
                await asyncio.Event().wait()
            await response.write(json.dumps(line).encode() + b"\n")
        return response


@asynccontextmanager
async def serving(api: ScriptedApi) -> AsyncIterator[Client]:
    """A client of the scripted server that repeats nothing by itself."""
    app = web.Application()
    app.router.add_get("/{path:.*}", api.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = Client(Connection(context="fake", server=f"http://127.0.0.1:{runner.addresses[0][1]}"), budget=0)
    try:
        yield client
    finally:
        await client.close()
        await runner.cleanup()


def metadata(name: str, version: int, uid: str = "", **further: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": str(version), **further
        }
    }  # fmt: skip


def listed(version: int, *items: dict[str, Any]) -> str:
    return json.dumps({"metadata": {"resourceVersion": str(version)}, "items": list(items) or None})


def change(kind: str, name: str, version: int, uid: str = "") -> dict[str, object]:
    return {"type": kind, "object": metadata(name, version, uid)}


EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}


@dataclass(slots=True)
class Told:
    """What a reflector tells; `refuse` makes it refuse so many changes."""

    refuse: int = 0
    lines: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    async def changed(self, verb: Verb, key: Key, version: Version) -> None:
        if self.refuse:
            self.refuse -= 1
            raise NotAccepted("no room")
        self.lines.put_nowait(f"{verb} {key.namespace}/{key.name} {version.uid}")

    async def established(self, version: str) -> None:
        self.lines.put_nowait(f"established {version}")

    def absent(self) -> None:
        self.lines.put_nowait("absent")

    def troubled(self, trouble: Exception) -> None:
        self.lines.put_nowait(f"trouble {type(trouble).__name__}: {trouble}")

    async def are(self, *expected: str) -> None:
        async with asyncio.timeout(WITHIN):
            assert [await self.lines.get() for _ in expected] == list(expected)

    async def starts_with(self, expected: str) -> str:
        async with asyncio.timeout(WITHIN):
            line = await self.lines.get()
        assert line.startswith(expected), line
        return line


@dataclass(slots=True)
class Naps:
    """Sleeps that end at once, until `awake` of them were taken; then they last."""

    awake: int = 1000
    taken: list[float] = field(default_factory=list)
    tired: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)
        if len(self.taken) > self.awake:
            self.tired.set()
            await asyncio.Event().wait()


@dataclass(slots=True)
class Collected:
    """The events that a source sent; each may be waited for once.

    Attributes:
        complete: Whether everything that the source should watch was listed.
        failures: How often the target was tried in vain since it answered last.
    """

    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)
    complete: Callable[[], bool] = lambda: True
    failures: Callable[[], int] = lambda: 0

    async def publish(self, events: Sequence[Event]) -> None:
        for each in events:
            self.events.put_nowait(each)

    def forget(self) -> list[Event]:
        """The events up to now, which are passed over."""
        return [self.events.get_nowait() for _ in range(self.events.qsize())]

    async def next(self, wanted: Callable[[Event], bool]) -> Event:
        """The next event that is as wanted; those before it are passed over."""
        async with asyncio.timeout(WITHIN):
            while not wanted(event := await self.events.get()):
                pass
            return event

    async def all(self, *wanted: Callable[[Event], bool]) -> None:
        """Returns once each of these was met by some event, in whatever order."""
        left = list(wanted)
        async with asyncio.timeout(WITHIN):
            while left:
                event = await self.events.get()
                left = [each for each in left if not each(event)]

    async def until(self, wanted: Callable[[Event], bool]) -> list[Event]:
        """The events before the next one that is as wanted."""
        return (await self.through(wanted))[:-1]

    async def through(self, wanted: Callable[[Event], bool]) -> list[Event]:
        """The events up to the next one that is as wanted."""
        passed: list[Event] = []
        async with asyncio.timeout(WITHIN):
            while not passed or not wanted(passed[-1]):
                passed.append(await self.events.get())
            return passed


class Gate:
    """A TCP port that leads to a server, and can be shut; what was open then is cut."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._shut = asyncio.Event()
        self._passing: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def open(self) -> None:
        self._shut.clear()
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        self._server.close()
        self._shut.set()
        if self._passing:
            await asyncio.wait(self._passing)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        ends = {
            asyncio.ensure_future(_copy(reader, far_writer)),
            asyncio.ensure_future(_copy(far_reader, writer)),
            asyncio.ensure_future(self._shut.wait()),
        }
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        for each in (writer, far_writer):
            each.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def gated(kubeconfig: bytes) -> AsyncIterator[tuple[Gate, bytes]]:
    """A gate before the API server of a kubeconfig, and the kubeconfig that leads through it."""
    content = yaml.safe_load(kubeconfig)
    cluster = content["clusters"][0]["cluster"]
    gate = Gate(int(cluster["server"].rpartition(":")[2]))
    await gate.open()
    cluster["server"] = f"https://127.0.0.1:{gate.port}"
    try:
        yield gate, json.dumps(content).encode()
    finally:
        await gate.shut()
