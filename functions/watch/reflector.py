"""Follows one resource of one API server: list, watch, and a diff on every later list, so that no gap goes unnoticed.

The watch source runs one for each resource that it looks at. Only metadata crosses the wire: a CRD with 600 KB of schema
costs what a small one costs.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from events.publisher import NotAccepted
from functions.access.client import METADATA
from functions.access.errors import AccessError, Gone, NotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from functions.access.client import Client

Verb: TypeAlias = Literal["add", "update", "delete"]

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is given up; the server sends a bookmark each minute."""
WATCH_SECONDS: Final = 300
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
_BRIEF: Final = 1.0  # a watch that ends sooner and said nothing is no sign of health
_VERBS: Final[Mapping[str, Verb]] = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}


@dataclass(frozen=True, slots=True)
class Resource:
    """What is watched: all objects of a kind, in one namespace or in the whole cluster.

    Attributes:
        plural: The resource's real name in paths, which cannot be told from the kind.
        namespace: The only one that is looked at; empty for all objects, or a cluster-scoped kind.
    """

    api_version: str
    kind: str
    plural: str
    namespace: str = ""

    @property
    def path(self) -> str:
        """The collection's path on the API server."""
        root = "apis" if "/" in self.api_version else "api"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"/{root}/{self.api_version}{within}/{self.plural}"


class Key(NamedTuple):
    """Which object; `namespace` is empty for a cluster-scoped one."""

    namespace: str
    name: str


class Version(NamedTuple):
    """Which state of it."""

    uid: str
    resource_version: str
    generation: int


class Observer(Protocol):
    """Whom a reflector tells.

    What the first two raise of `AccessError` or `NotAccepted` is trouble like any other: the same is told again later.
    """

    async def changed(self, verb: Verb, key: Key, version: Version) -> None:
        """An object was added, updated or deleted; of a deletion in a gap, `version` is the last one known."""

    async def established(self, resource_version: str) -> None:
        """A list succeeded: what changes from here on is told. Nothing was told of what the first list held."""

    def absent(self) -> None:
        """The server does not serve the resource; told once until it does."""

    def troubled(self, trouble: AccessError | NotAccepted) -> None:
        """The server cannot be followed, or an event is not taken; told at each try."""


class Reflector:
    """Follows a resource until it is cancelled.

    Attributes:
        resource: What is followed.
        known: The objects as they were told last; None until the first list.
    """

    def __init__(
        self,
        resource: Resource,
        connect: Callable[[], Awaitable[Client]],
        observer: Observer,
        *,
        silence: float = SILENCE,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Keep the settings; nothing happens before `run`.

        Args:
            resource: What to follow.
            connect: Gives the client before each list and watch; another client than before is listed anew.
            observer: Whom to tell.
            silence: Seconds without a line after which a watch is given up.
            sleep: Waits that many seconds.
            jitter: A number from 0 to 1 that shortens a pause by up to a half.
        """
        self.resource = resource
        self.known: dict[Key, Version] | None = None
        self._connect = connect
        self._observer = observer
        self._silence = silence
        self._sleep = sleep
        self._jitter = jitter
        self._client: Client | None = None
        self._resource_version = ""  # empty where a list has to come first
        self._served = True
        self._failures = 0
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Ends the pause after a failure, for whoever knows that the next try may succeed."""
        self._failures = 0
        self._woken.set()

    async def run(self) -> NoReturn:
        """Lists and watches for ever."""
        while True:
            self._woken.clear()
            try:
                await self._attempt()
            except Gone:
                self._resource_version = ""
            except NotFound:
                await self._told(self._vanish())
            except (AccessError, NotAccepted) as trouble:
                self._troubled(trouble)
            if self._failures:
                await self._pause()

    async def _attempt(self) -> None:
        """One watch, after a list where one is needed; counts as a failure unless the watch shows a sign of life."""
        self._failures += 1
        client = await self._connect()
        if client is not self._client or not self._resource_version:
            await self._list(client)
            self._client = client
        began = asyncio.get_running_loop().time()
        async with aclosing(
            client.watch(
                self.resource.path,
                params={"resourceVersion": self._resource_version, "allowWatchBookmarks": "true"},
                accept=METADATA,
                timeout_seconds=WATCH_SECONDS,
            )
        ) as stream:
            while (event := await self._next(stream, client.server)) is not None:
                self._failures = 0
                await self._take(event)
        if asyncio.get_running_loop().time() - began >= _BRIEF:
            self._failures = 0

    async def _next(self, stream: Any, server: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(self._silence):
                event: dict[str, Any] | None = await anext(stream, None)
                return event
        except TimeoutError:
            raise Unreachable(f"{server} said nothing on a watch for {self._silence:g} s") from None

    async def _take(self, event: dict[str, Any]) -> None:
        found = event.get("object")
        if event.get("type") == "BOOKMARK":
            self._resource_version = found["metadata"]["resourceVersion"]
            return
        assert self.known is not None
        verb = _VERBS[event["type"]]
        key, version = _read(found)
        await self._observer.changed(verb, key, version)
        if verb == "delete":
            self.known.pop(key, None)
        else:
            self.known[key] = version
        self._resource_version = version.resource_version
