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

from functions.access.client import METADATA
from functions.access.diagnosis import not_kubernetes
from functions.access.errors import Gone, NotFound, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from functions.access.client import Client

Verb: TypeAlias = Literal["add", "update", "delete"]

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is given up; the server sends a bookmark each minute."""
WATCH_SECONDS: Final = 300
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 30.0
LONGEST_NAME: Final = 253
"""Characters of an object's name; neither a namespace, a uid nor a resourceVersion has more."""
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

    What the first two raise is trouble like any other: the same is told again later.
    """

    async def changed(self, verb: Verb, key: Key, version: Version) -> None:
        """An object was added, updated or deleted; of a deletion in a gap, `version` is the last one known."""

    async def established(self, resource_version: str) -> None:
        """A list succeeded: what changes from here on is told. Nothing was told of what the first list held."""

    def absent(self) -> None:
        """The server does not serve the resource; told once until it does."""

    def troubled(self, trouble: Exception) -> None:
        """The server cannot be followed, an event is not taken, or there is a bug; told at each try."""


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

    def wake(self) -> None:
        """For whoever knows that something changed: ends the pause after a failure, and a watch of a former client."""
        self._failures = 0
        self._woken.set()

    async def run(self) -> NoReturn:
        """Lists and watches for ever; whatever goes wrong in it ends with it."""
        while True:
            self._woken.clear()
            try:
                await self._attempt()
            except Exception as trouble:  # noqa: BLE001 - a bug that one server brings out must not end other watches
                self._resource_version = ""
                self._failures = max(1, self._failures)
                self._observer.troubled(trouble)
            if self._failures:
                await self._pause()

    async def _attempt(self) -> None:
        """One watch, after a list where one is needed; counts as a failure unless the watch shows a sign of life."""
        self._failures += 1
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
            version = _text(document["metadata"]["resourceVersion"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._strange(client, "a list of objects") from None
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
                await self._take(event, client)
                self._failures = 0
        if loop.time() - began >= _BRIEF:
            self._failures = 0

    async def _next(self, stream: AsyncGenerator[dict[str, Any], None], client: Client) -> dict[str, Any] | None:
        """What the server says next; None once it has ended the watch, or another server is to be watched."""
        line = asyncio.ensure_future(anext(stream, None))
        try:
            while not line.done():
                woken = asyncio.ensure_future(self._woken.wait())
                try:
                    done, _ = await asyncio.wait(
                        (line, woken), timeout=self._silence, return_when=asyncio.FIRST_COMPLETED
                    )
                finally:
                    woken.cancel()
                if not done:
                    raise Unreachable(f"{client.server} was silent on a watch for {self._silence:g} s")
                if woken in done:
                    self._woken.clear()
                    if await self._connect() is not client:
                        return None
            return line.result()
        finally:
            line.cancel()
            await asyncio.gather(line, return_exceptions=True)  # a generator that still runs cannot be closed

    async def _take(self, event: dict[str, Any], client: Client) -> None:
        try:
            kind, found = event["type"], event["object"]
            if kind == "BOOKMARK":
                self._resource_version = _text(found["metadata"]["resourceVersion"])
                return
            verb = _VERBS[kind]
            key, version = self._state(found)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._strange(client, "a change of an object") from None
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
        key = Key(_text(metadata.get("namespace", "")), _text(metadata["name"]))
        if not key.name:
            raise ValueError("an object without a name")
        uid, version = _text(metadata["uid"]), _text(metadata["resourceVersion"])
        return key, Version(uid, version, int(metadata.get("generation", 0)), _text(self._content(metadata)))

    def _strange(self, client: Client, expected: str) -> Unreachable:
        return not_kubernetes(client.server, f"what came for {self.resource.path} is not {expected}")

    async def _pause(self) -> None:
        seconds = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 16)) * (1 - self._jitter() / 2)
        waits = {asyncio.ensure_future(self._sleep(seconds)), asyncio.ensure_future(self._woken.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


def _text(value: Any) -> str:
    """The value, which is text and no longer than any name, uid or version of an object; else it is none of those."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME or not value.isprintable():
        raise ValueError("no text of an object's metadata")
    return value
