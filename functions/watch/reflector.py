"""Follows one resource of one API server: list, watch, and a diff on every later list, so that no gap goes unnoticed.

The watch source runs one for each resource that it looks at. Only metadata crosses the wire: a CRD with 600 KB of
schema costs what a small one costs.
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
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

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
    """Which state of it.

    Attributes:
        content: What has to differ for an update to be told.
    """

    uid: str
    resource_version: str
    generation: int
    content: str

    def same(self, other: Version | None) -> bool:
        """Whether there is nothing to tell between the two."""
        return other is not None and (self.uid, self.content) == (other.uid, other.content)


def resource_version(metadata: Mapping[str, Any]) -> str:
    """The usual content: each write of an object is an update."""
    version: str = metadata["resourceVersion"]
    return version


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
        content: Callable[[Mapping[str, Any]], str] = resource_version,
        silence: float = SILENCE,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        """Keep the settings; nothing happens before `run`.

        Args:
            resource: What to follow.
            connect: Gives the client before each list and watch; another client than before is listed anew.
            observer: Whom to tell.
            content: From an object's metadata, what has to differ for an update to be told.
            silence: Seconds without a line after which a watch is given up.
            sleep: Waits that many seconds.
            jitter: A number from 0 to 1 that shortens a pause by up to a half.
        """
        self.resource = resource
        self.known: dict[Key, Version] | None = None
        self._connect = connect
        self._observer = observer
        self._content = content
        self._silence = silence
        self._sleep = sleep
        self._jitter = jitter
        self._client: Client | None = None
        self._resource_version = ""  # empty where a list has to come first
        self._served = True
        self._failures = 0
        self._woken = asyncio.Event()
        self._moved = False
        self._watchdog: asyncio.Timeout | None = None  # while a line is waited for

    def wake(self, client: Client | None = None) -> None:
        """Ends the pause after a failure, for whoever knows that the next try may succeed.

        Args:
            client: What `connect` gives now; ends a watch that goes on with another one. None where it did not change.
        """
        self._failures = 0
        self._woken.set()
        if client is not None and self._client is not None and client is not self._client:
            self._moved = True
            if self._watchdog is not None:
                self._watchdog.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> NoReturn:
        """Lists and watches for ever."""
        while True:
            self._woken.clear()
            try:
                await self._attempt()
            except (AccessError, NotAccepted) as trouble:
                self._resource_version = ""
                self._failures = max(1, self._failures)
                self._observer.troubled(trouble)
            if self._failures:
                await self._pause()

    async def _attempt(self) -> None:
        """One watch, after a list where one is needed; counts as a failure unless the watch shows a sign of life."""
        self._failures += 1
        self._moved = False
        client = await self._connect()
        try:
            if client is not self._client or not self._resource_version:
                await self._list(client)
            await self._watch(client)
        except Gone:
            self._resource_version = ""
        except NotFound:
            await self._vanish()

    async def _list(self, client: Client) -> None:
        document = await client.list_metadata(self.resource.path)
        try:
            found = dict(self._state(each) for each in document["items"] or ())
            version: str = document["metadata"]["resourceVersion"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _strange(client, self.resource) from None
        await self._differences(found)
        await self._observer.established(version)
        self._client, self._resource_version, self._served = client, version, True

    async def _vanish(self) -> None:
        """The API is not served, so that no object of it is left either."""
        self._resource_version = ""
        await self._differences({})
        if self._served:
            self._served = False
            self._observer.absent()

    async def _differences(self, found: dict[Key, Version]) -> None:
        """Tells how `found` differs from what was told; nothing where nothing was told before."""
        before = found if self.known is None else self.known
        for key, version in before.items():
            if key not in found or found[key].uid != version.uid:
                await self._observer.changed("delete", key, version)
        for key, version in found.items():
            former = before.get(key)
            if former is None or former.uid != version.uid:
                await self._observer.changed("add", key, version)
            elif not version.same(former):
                await self._observer.changed("update", key, version)
        self.known = found

    async def _watch(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        params = {"resourceVersion": self._resource_version, "allowWatchBookmarks": "true"}
        stream = client.watch(self.resource.path, params=params, accept=METADATA, timeout_seconds=WATCH_SECONDS)
        async with aclosing(stream):
            while (event := await self._next(stream, client)) is not None:
                self._failures = 0
                await self._take(event, client)
        if loop.time() - began >= _BRIEF:
            self._failures = 0

    async def _next(self, stream: AsyncGenerator[dict[str, Any], None], client: Client) -> dict[str, Any] | None:
        """What the server says next; None once it has ended the watch, or another server is to be watched."""
        if self._moved:
            return None
        try:
            async with asyncio.timeout(self._silence) as self._watchdog:
                return await anext(stream, None)
        except TimeoutError:
            self._excuse(client)
            return None
        finally:
            self._watchdog = None

    def _excuse(self, client: Client) -> None:
        """A wait that ended without a line is trouble unless it was ended on purpose."""
        if not self._moved:
            raise Unreachable(f"{client.server} was silent on a watch for {self._silence:g} s") from None

    async def _take(self, event: dict[str, Any], client: Client) -> None:
        try:
            kind, found = event["type"], event["object"]
            if kind == "BOOKMARK":
                self._resource_version = found["metadata"]["resourceVersion"]
                return
            verb = _VERBS[kind]
            key, version = self._state(found)
        except (AttributeError, KeyError, TypeError):
            raise _strange(client, self.resource) from None
        known = self.known if self.known is not None else {}
        if verb != "update" or not version.same(known.get(key)):
            await self._observer.changed(verb, key, version)
        if verb == "delete":
            known.pop(key, None)
        else:
            known[key] = version
        self._resource_version = version.resource_version

    def _state(self, found: Mapping[str, Any]) -> tuple[Key, Version]:
        metadata = found["metadata"]
        return (
            Key(metadata.get("namespace", ""), metadata["name"]),
            Version(
                metadata["uid"], metadata["resourceVersion"], metadata.get("generation", 0), self._content(metadata)
            ),
        )

    async def _pause(self) -> None:
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 16)) * (1 - self._jitter() / 2)
        waits = {asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._woken.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


def _strange(client: Client, resource: Resource) -> Unreachable:
    return Unreachable(f"{client.server} does not answer like a Kubernetes API server at {resource.path}")
