"""Follows one resource of one API server: list, watch, and a diff on every later list, so that no gap goes unnoticed.

The watch source runs one for each resource that it looks at. Only metadata crosses the wire: a CRD with 600 KB of
schema costs what a small one costs.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from functions.access.client import METADATA
from functions.access.diagnosis import not_kubernetes
from functions.access.errors import Gone, NotFound, Unreachable
from functions.watch.pauses import pause_after, rest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from functions.access.client import Client

Verb: TypeAlias = Literal["add", "update", "delete"]

SILENCE: Final = 150.0
"""Seconds without a line after which a watch is given up; the server sends a bookmark each minute."""
WATCH_SECONDS: Final = 300
LONGEST_NAME: Final = 253
"""Characters of an object's name; neither a namespace, a uid nor a resourceVersion has more."""
_BRIEF: Final = 1.0  # a watch that ends sooner and said nothing is no sign of health
_VERBS: Final[Mapping[str, Verb]] = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}


@dataclass(frozen=True, slots=True)
class Resource:
    """What is watched: all objects of a kind, in one namespace or in the whole cluster, or one object alone.

    Attributes:
        plural: The resource's real name in paths, which cannot be told from the kind.
        namespace: The only one that is looked at; empty for all objects, or a cluster-scoped kind.
        name: Of the only object that is looked at; empty for all of them.
    """

    api_version: str
    kind: str
    plural: str
    namespace: str = ""
    name: str = ""

    @property
    def path(self) -> str:
        """The collection's path on the API server."""
        root = "apis" if "/" in self.api_version else "api"
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"/{root}/{self.api_version}{within}/{self.plural}"

    @property
    def selection(self) -> dict[str, str]:
        """The query by which the API server leaves out what is not looked at."""
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}


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
    """Follows a resource until it is cancelled, or the resource goes where somebody says so.

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
        silent: Callable[[str, str], bool] = lambda _, __: False,
        serves: Callable[[], Awaitable[bool]] | None = None,
        turns: AbstractAsyncContextManager[object] | None = None,
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
            silent: Whether an update from one content to another is not to be told all the same.
            serves: Asked before each list and watch, so that nothing is sent to an API that is not served: where it
                says no, or the server does, `run` ends. None to try again until the resource is served.
            turns: Lets in so many lists at once; None for any number.
            silence: Seconds without a line after which a watch is given up.
            sleep: Waits that many seconds.
            jitter: A number from 0 to 1 that shortens a pause by up to a half.
        """
        self.resource = resource
        self.known: dict[Key, Version] | None = None
        self._connect = connect
        self._observer = observer
        self._content = content
        self._silent = silent
        self._serves = serves
        self._turns = turns or nullcontext()
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

    async def vanish(self) -> None:
        """For whoever knows that the API is gone: tells of each object that it went."""
        self._resource_version = ""
        await self._differences({})

    async def run(self) -> None:
        """Lists and watches, for ever but for `serves`; whatever else goes wrong is told and tried again."""
        while True:
            self._woken.clear()
            try:
                if not await self._attempt():
                    return
            except Exception as trouble:  # noqa: BLE001 - a bug that one server brings out must not end other watches
                self._resource_version = ""
                self._failures = max(1, self._failures)
                self._observer.troubled(trouble)
            if self._failures:
                await self._pause()

    async def _attempt(self) -> bool:
        """One watch, after a list where one is needed; counts as a failure unless the watch shows a sign of life.

        Returns:
            Whether there is to be another one.
        """
        self._failures += 1
        if self._serves is not None and not await self._serves():
            return False
        client = await self._connect()
        try:
            if client is not self._client or not self._resource_version:
                await self._list(client)
            await self._watch(client)
        except Gone:
            self._resource_version = ""
        except NotFound:
            await self._missing()
            return self._serves is None
        return True

    async def _list(self, client: Client) -> None:
        async with self._turns:
            document = await client.list_metadata(self.resource.path, self.resource.selection)
        try:
            found = dict(self._state(each) for each in document["items"] or ())
            version = _text(document["metadata"]["resourceVersion"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._strange(client, "a list of objects") from None
        await self._differences(found)
        await self._observer.established(version)
        self._client, self._resource_version, self._served = client, version, True

    async def _missing(self) -> None:
        """The API is not served, so that no object of it is left either."""
        await self.vanish()
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
            elif not self._is_silent(former, version):
                await self._observer.changed("update", key, version)
        self.known = found

    async def _watch(self, client: Client) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        params = {
            "resourceVersion": self._resource_version,
            "allowWatchBookmarks": "true",
            **self.resource.selection,
        }
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
        if verb != "update" or not self._is_silent(known.get(key), version):
            await self._observer.changed(verb, key, version)
        if verb == "delete":
            known.pop(key, None)
        else:
            known[key] = version
        self._resource_version = version.resource_version

    def _is_silent(self, former: Version | None, version: Version) -> bool:
        """Whether there is nothing to tell of what happened to an object between the two."""
        if former is None or former.uid != version.uid:
            return False
        return former.content == version.content or self._silent(former.content, version.content)

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
        seconds = pause_after(self._failures) * (1 - self._jitter() / 2)
        await rest(seconds, self._woken, sleep=self._sleep)


def _text(value: Any) -> str:
    """The value, which is text and no longer than any name, uid or version of an object; else it is none of those."""
    if not isinstance(value, str) or len(value) > LONGEST_NAME or not value.isprintable():
        raise ValueError("no text of an object's metadata")
    return value
