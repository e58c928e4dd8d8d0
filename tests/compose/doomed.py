"""Functions that die, or lose a connection, at any of their requests, and whose every write is looked at."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.errors import Unreachable
from functions.access.targets import Targets
from functions.catalog import component
from functions.compose.ownership import OWNER_UID
from functions.hub import Hub
from functions.world import World
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, steps
from tests.support import CLUSTERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from functions.access.client import Reply
    from functions.access.connection import Connection
    from functions.world import Clock

COLLECTIONS = {each.path: each for each in steps(GATEWAY, QUEUES, MODELEXPRESS) if each.manifest is not None}
"""The composed objects by their paths."""


class Killed(BaseException):
    """The process ended here: nobody catches it, and it asks for nothing any more."""


@dataclass(slots=True)
class Fate:
    """What becomes of one process.

    Attributes:
        at: The number of the request, from 0, at which it happens; None for never.
        carried_out: Whether the server gets the request still, and only its answer is lost.
        deadly: Whether the process ends; else it loses the connection this once.
        asked: How many requests there were.
        dead: Whether it has ended.
    """

    at: int | None = None
    carried_out: bool = False
    deadly: bool = True
    asked: int = 0
    dead: bool = False

    async def meet(self, ask: Callable[[], Awaitable[Reply]]) -> Reply:
        """Lets the request through, or not."""
        if self.dead:
            raise Killed
        number, self.asked = self.asked, self.asked + 1
        if number != self.at:
            return await ask()
        if self.carried_out:
            await ask()
        if self.deadly:
            self.dead = True
            raise Killed
        raise Unreachable("the connection was lost")


@dataclass(slots=True)
class Audit:
    """Looks at what each write of the functions left behind.

    Attributes:
        is_open: Whether, just now, a listener of ours asks for no client certificate.
        look: Finds that out.
        has_client_ca: Whether an InferenceGateway publishes a client CA that is valid now.
        complaints: What was wrong.
        writes: How many writes there were, by verb and kind.
        met: The types of the conditions that were True at any time, by the uid of the InferenceCluster.
    """

    look: Callable[[], Awaitable[bool]]
    has_client_ca: Callable[[], bool]
    is_open: bool = False
    complaints: list[str] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    met: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answered(self, method: str, path: str, body: Any, reply: Reply) -> None:
        """Sees an answer to the functions, whether they get to see it or not."""
        if path.startswith(f"{CLUSTERS}/") and reply.body:
            found = orjson.loads(reply.body)
            conditions = (found.get("status") or {}).get("conditions") or ()
            self.met[found["metadata"]["uid"]] |= {each["type"] for each in conditions if each["status"] == "True"}
        if method == "GET" or path not in COLLECTIONS:
            return
        step = COLLECTIONS[path]
        self.writes[f"{method} {step.kind.name}"] += 1
        if reply.status == 201:
            self._created(path, orjson.loads(reply.body))
        if step.client_ca:
            await self._guarded(f"{method} {path} with {body}")

    async def _guarded(self, write: str) -> None:
        """What guards a listener, or the listener itself, was written."""
        async with self._lock:
            before, self.is_open = self.is_open, await self.look()
        if self.is_open and not before:
            self.complaints.append(f"{write} opened a listener without client authentication")

    def _created(self, path: str, found: dict[str, Any]) -> None:
        """What is created had its gate open at some time since its InferenceCluster was registered."""
        step = COLLECTIONS[path]
        uid = (found["metadata"].get("annotations") or {}).get(OWNER_UID, "")
        closed = [each for each in step.needs if component(each).condition not in self.met[uid]]
        if closed:
            self.complaints.append(f"{step} was created before its gate opened: {', '.join(closed)}")
        if step.client_ca and not self.has_client_ca():
            self.complaints.append(f"{step} was created though there is no client CA")


class DoomedClient(Client):
    """A client whose requests meet their fate, and whose answers are seen by the audit."""

    def __init__(self, connection: Connection, fate: Fate, audit: Audit) -> None:
        super().__init__(connection, sleep=_at_once)
        self._fate = fate
        self._audit = audit

    async def request(self, method: str, path: str, *, body: Any = None, **options: Any) -> Reply:
        """As every other client, as long as the process lives."""

        async def ask() -> Reply:
            reply = await Client.request(self, method, path, body=body, **options)
            await self._audit.answered(method, path, body, reply)
            return reply

        return await self._fate.meet(ask)


def open_doomed(hub: Path, clock: Clock, fate: Fate, audit: Audit) -> World:
    """The world of a process around a hub."""
    client = DoomedClient(kubeconfig.load_file(hub), fate, audit)
    targets = Targets(client, connect=lambda connection: DoomedClient(connection, fate, audit))
    return World(Hub(client), targets, clock)


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)
