"""Watches on the API server what the demonstration shows, and lets its story wait for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

from functions.access.client import Client
from functions.access.errors import AccessError, NotFound
from functions.catalog import component
from functions.conditions import Status
from functions.hub import CLUSTERS, GATEWAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import TypeAlias

    from functions.access.connection import Connection
    from functions.compose.kinds import Kind
    from functions.compose.step import Composition
    from functions.demo.picture import Picture

    Found: TypeAlias = Mapping[str, dict[str, Any]] | None
    """All objects of a collection by name; None where it is not served."""
    Take: TypeAlias = Callable[[Found, float], None]
    """Takes them, and the moment at which they were seen."""

EVENTS: Final = "/api/v1/namespaces/default/events"
_POLL: Final = 0.01


class NotFollowedError(Exception):
    """Something did not follow in time; the text says what."""


class Follower:
    """Keeps a picture up to date while its context is entered; a bug in it ends the context."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        composition: Composition,
        picture: Picture,
        *,
        within: float,
        changed: Callable[[], None],
    ) -> None:
        """Keep the settings; nothing is watched before the context is entered.

        Args:
            connection: To the API server.
            name: Of the InferenceCluster.
            composition: The set whose objects are watched.
            picture: Is told what was seen.
            within: Seconds that something may take to follow.
            changed: Called after each change of the picture.
        """
        self._client = Client(connection, budget=0.0)  # the server's advice to wait a second would show as lateness
        self._name = name
        self._composition = composition
        self._picture = picture
        self._within = within
        self._changed = changed
        self._change = asyncio.Condition()
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        collections = {(each.kind, each.namespace): None for each in self._composition.steps if each.is_watched}
        watches = [
            self._follow(CLUSTERS, self._clusters),
            self._follow(GATEWAYS, self._gateways),
            self._follow(EVENTS, self._events),
            *(self._follow_objects(kind, namespace) for kind, namespace in collections),
        ]
        self._tasks = [self._group.create_task(each) for each in watches]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in self._tasks:
            each.cancel()
        try:
            await self._group.__aexit__(kind, error, traceback)
        finally:
            await self._client.close()

    async def until(self, what: str, reached: Callable[[], bool]) -> None:
        """Waits for the picture to be as it should.

        Args:
            what: Went wrong where it does not become so, in words.
            reached: Whether it is so.

        Raises:
            NotFollowedError: It does not become so in time.
        """
        try:
            async with asyncio.timeout(self._within), self._change:
                await self._change.wait_for(reached)
        except TimeoutError:
            if reached():
                return
            raise NotFollowedError(f"{what} within {self._within:.0f} s") from None

    async def _follow_objects(self, kind: Kind, namespace: str) -> None:
        """The objects of one kind, which is not asked for before what brings it is there."""
        keys = {key for each in self._composition.steps if each.kind == kind for key in each.needs}
        types = set() if kind.built_in else {component(key).condition for key in keys}

        def is_there() -> bool:
            found = [self._picture.condition(each) for each in types]
            return all(each is not None and each.status is Status.TRUE for each in found)

        def take(found: Found, now: float) -> None:
            self._picture.see_objects(kind.name, found, now)

        await self._follow(kind.path(namespace=namespace), take, is_there)

    async def _follow(self, path: str, take: Take, ready: Callable[[], bool] = lambda: True) -> None:
        """Lists and watches a collection for ever; as long as it is not served, once it is ready."""
        while True:
            with suppress(AccessError):
                await self._follow_once(path, take)
            await asyncio.sleep(_POLL)
            async with self._change:
                await self._change.wait_for(ready)

    async def _follow_once(self, path: str, take: Take) -> None:
        """Lists and watches a collection until the watch ends.

        Raises:
            AccessError: It is not served, or not for the moment.
        """
        try:
            listed = await self._client.get(path)
        except NotFound:
            await self._seen(take, None)
            raise
        known: dict[str, dict[str, Any]] = {each["metadata"]["name"]: each for each in listed["items"]}
        await self._seen(take, known)
        since = {"resourceVersion": listed["metadata"]["resourceVersion"]}
        async with aclosing(self._client.watch(path, params=since)) as events:
            async for event in events:
                name = event["object"]["metadata"]["name"]
                if event["type"] == "DELETED":
                    known.pop(name, None)
                else:
                    known[name] = event["object"]
                await self._seen(take, known)

    async def _seen(self, take: Take, found: Found) -> None:
        now = perf_counter()
        async with self._change:
            take(found, now)
            self._change.notify_all()
        self._changed()

    def _clusters(self, found: Found, now: float) -> None:
        self._picture.see_cluster((found or {}).get(self._name), now)

    def _gateways(self, found: Found, now: float) -> None:
        published = any((each.get("status") or {}).get("clientCACertificate") for each in (found or {}).values())
        self._picture.see_client_ca(now, published=published)

    def _events(self, found: Found, now: float) -> None:  # noqa: ARG002 - taken as the others are
        events = (found or {}).values()
        self._picture.see_events(each["reason"] for each in events if each["involvedObject"]["name"] == self._name)
