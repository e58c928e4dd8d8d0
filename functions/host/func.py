"""A function in the shape that Knative's `func` loads: `new(name)` makes what its Python scaffolding serves.

A project of `func` needs a package `function` with these lines beside its func.yaml, which says `invoke: http`:

    from functions.host import func

    def new():
        return func.new("probes/sweep")

The scaffolding (func-python 0.8.1) does not await `start`, `stop`, `alive` and `ready` and swallows what `start`
raises; where `handle` raises or sends nothing it answers 500, which to a Broker means the same again. So `start` keeps
what goes wrong for `ready`, and `handle` always answers, in the words of our own host. It listens on LISTEN_ADDRESS,
whatever PORT says. With `invoke: cloudevent` it decodes first, and what it cannot decode gets its own answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from cloudevents.core.bindings.http import to_structured_event
from multidict import CIMultiDict

from events.codec import MAX_SIZE, encode_binary
from events.journal import Journal
from events.publisher import NoSink, Publisher
from functions.access.errors import KubeconfigInvalid
from functions.host import log
from functions.host.app import BODY_SECONDS, UNREADABLE, Gate, event_of, refused, reply_limit, unreadable
from functions.host.host import Answer, Host, bug, later
from functions.registry import FUNCTIONS
from functions.world import World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]


def new(name: str) -> ServedByFunc:
    """The function of this name, such as `probes/sweep`; ValueError where there is none."""
    return ServedByFunc(name)


class ServedByFunc:
    """One function around the hub of the KUBECONFIG or, in a pod, of its ServiceAccount."""

    def __init__(self, name: str) -> None:
        if name not in FUNCTIONS:
            raise ValueError(f"there is no function {name}; there are {', '.join(FUNCTIONS)}")
        self._function = FUNCTIONS[name]
        self._gate = Gate()
        self._host: Host | None = None
        self._trouble = "it was not started"

    def start(self, cfg: Mapping[str, str]) -> None:
        """Open the hub and the sink that the environment names; what is wrong with them is told by `ready`."""
        log.configure(cfg.get("SERVING_STACK_LOG_LEVEL", "info"))
        journal = cfg.get("SERVING_STACK_JOURNAL")
        if self._function.records and not journal:
            self._trouble = f"{self._function.name} needs SERVING_STACK_JOURNAL, the file that it writes to"
            return
        try:
            publisher = Publisher.from_environment(cfg) if cfg.get("K_SINK") else None
            world = World.open(cfg.get("SERVING_STACK_KUBECONFIG"))
        except (KubeconfigInvalid, NoSink, OSError) as error:
            self._trouble = str(error)
            return
        world.journal = Journal(Path(journal)) if journal else None
        self._host, self._trouble = Host([self._function], world, publisher), ""

    def stop(self) -> None:
        """Take no more events; the process ends, and its connections with it."""
        self._gate.draining = True

    def alive(self) -> tuple[bool, str]:
        """Always: what is wrong is outside this process, or the end of it."""
        return True, "ok"

    def ready(self) -> tuple[bool, str]:
        """Whether events are taken, else why not."""
        if self._gate.draining:
            return False, "draining"
        return (False, self._trouble) if self._trouble else (True, "ok")

    async def handle(self, scope: Mapping[str, Any], receive: Receive, send: Any) -> None:
        """Answer one event, in every case."""
        respond: Send = getattr(send, "http", send)  # what is given with `invoke: cloudevent` answers in its own way
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:  # noqa: BLE001 - the scaffolding would answer 500, with what it says
            answer = bug(self._function.name, error)
        headers = {} if answer.retry_after is None else {"retry-after": str(answer.retry_after)}
        body = answer.body.encode()
        if body:
            headers["content-type"] = "text/plain; charset=utf-8"
        if answer.events:
            message = encode_binary(answer.events[0])
            headers, body = {**message.headers}, message.body
        written = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await respond({"type": "http.response.start", "status": answer.status, "headers": written})
        await respond({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Mapping[str, Any], receive: Receive) -> Answer:
        name = self._function.name
        if scope["method"] != "POST":
            return Answer(status=405, outcome="malformed", body="a CloudEvent comes with POST")
        if self._host is None:
            return later(log.printable(self._trouble), None, outcome="not_started")
        headers = CIMultiDict((key.decode("latin-1"), value.decode("latin-1")) for key, value in scope["headers"])
        try:
            body = _written(scope["event"], headers) if "event" in scope else await _read(receive)
            event = event_of(headers, body)
        except UNREADABLE as error:
            return refused(name, unreadable(error, BODY_SECONDS))
        if (refusal := self._gate.refusal()) is not None:
            return refused(name, refusal)
        self._gate.enter()
        try:
            return await self._host.handle(name, event, reply_limit=reply_limit(headers))
        finally:
            self._gate.leave()


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    async with asyncio.timeout(BODY_SECONDS):
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > MAX_SIZE:
                raise web.HTTPRequestEntityTooLarge(MAX_SIZE)
            if not message.get("more_body", False):
                return bytes(body)


def _written(event: Any, headers: Mapping[str, str]) -> bytes:
    """The body of a request that the scaffolding has decoded."""
    if headers.get("content-type", "").lower().startswith("application/cloudevents"):
        return to_structured_event(event).body
    data = event.get_data()
    if isinstance(data, str):
        return data.encode()
    return data if isinstance(data, bytes) else b"" if data is None else orjson.dumps(data)
