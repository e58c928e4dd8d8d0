"""Follows one resource and publishes what changed; the hub's and the targets' watches are made of these."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from events.publisher import NotAccepted
from functions.access.errors import AccessError
from functions.watch.object_events import object_changed
from functions.watch.reflector import Reflector, resource_version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from typing import TypeAlias

    from events.event import Event
    from functions.access.client import Client
    from functions.watch.reflector import Key, Resource, Verb, Version
    from functions.world import Clock

    Publish: TypeAlias = Callable[[Sequence[Event]], Awaitable[object]]

_log: Final = logging.getLogger(__name__)


class Announcer:
    """Logs what keeps the watches of one cluster from working: each trouble once, however many resources have it."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._troubles: dict[Resource, str] = {}
        self._bugs: set[str] = set()

    def failed(self, resource: Resource, error: Exception) -> None:
        """The resource cannot be watched now, or something here goes wrong with it."""
        if isinstance(error, AccessError | NotAccepted):
            self._trouble(resource, str(error))
        else:
            self._bug(resource, error)

    def _trouble(self, resource: Resource, text: str) -> None:
        known = self._troubles.values()
        if text not in known:
            self._say(logging.WARNING, "cannot watch, trying again", detail=text)
        self._troubles[resource] = text

    def _bug(self, resource: Resource, error: Exception) -> None:
        """The stack is worth saying once."""
        kind = type(error).__name__
        if kind not in self._bugs:
            self._bugs.add(kind)
            fields = {"cluster": self._cluster, "detail": f"{kind} at {resource.plural}"}
            _log.error("a bug in a watch, trying again", exc_info=error, extra=fields)

    def absent(self, resource: Resource, hint: str) -> None:
        """The resource is not served; worth a warning where there is something to do about it."""
        level = logging.WARNING if hint else logging.INFO
        self._say(level, f"{resource.kind} is not served yet, waiting for it", **({"detail": hint} if hint else {}))
        self._troubles[resource] = "not served"

    def fine(self, resource: Resource) -> None:
        """The resource is watched; said once that holds for all of them again."""
        if self._troubles.pop(resource, None) is not None and not self._troubles:
            self._say(logging.INFO, "watching again")

    def forget(self, resource: Resource) -> None:
        """The resource is not to be watched any more."""
        self._troubles.pop(resource, None)

    def _say(self, level: int, message: str, **fields: str) -> None:
        _log.log(level, message, extra={"cluster": self._cluster, **fields})


class ResourceWatch:
    """One resource of one cluster: a reflector, and what is to be done about what it tells.

    Attributes:
        reflector: Holds what is known of the objects.
    """

    def __init__(
        self,
        resource: Resource,
        connect: Callable[[], Awaitable[Client]],
        publish: Publish | None,
        *,
        clock: Clock,
        announcer: Announcer,
        cluster: str | None = None,
        on_change: Callable[[Verb, Key, Version], Awaitable[None]] | None = None,
        on_list: Callable[[str], Awaitable[None]] | None = None,
        on_trouble: Callable[[Exception | None], None] | None = None,
        content: Callable[[Mapping[str, Any]], str] = resource_version,
        silent: Callable[[str, str], bool] = lambda _, __: False,
        serves: Callable[[], Awaitable[bool]] | None = None,
        turns: AbstractAsyncContextManager[object] | None = None,
        hint: str = "",
    ) -> None:
        """Keep the settings; nothing happens before `run`.

        Args:
            resource: What to follow.
            connect: Gives the client; see `Reflector`.
            publish: Takes the events; None where nothing is to be said of these objects.
            clock: For the events' time, and for the pauses after trouble.
            announcer: That of the cluster.
            cluster: The InferenceCluster whose target this is; None for the hub.
            on_change: Called after the event of each change.
            on_list: Called with the resourceVersion of each list.
            on_trouble: Called each time that the resource cannot be followed; with None where it is not served.
            content: See `Reflector`.
            silent: See `Reflector`.
            serves: See `Reflector`.
            turns: See `Reflector`.
            hint: What to do where the resource is not served.
        """
        self.reflector = Reflector(
            resource, self._client, self, content=content, silent=silent, serves=serves, turns=turns, sleep=clock.sleep
        )
        self._resource = resource
        self._connect = connect
        self._publish = publish
        self._clock = clock
        self._cluster = cluster
        self._on_change = on_change
        self._on_list = on_list
        self._on_trouble = on_trouble
        self._hint = hint
        self._server = ""
        self._announcer = announcer

    async def run(self) -> None:
        """Follows until it is cancelled, or ends as `Reflector.run` does."""
        await self.reflector.run()

    async def changed(self, verb: Verb, key: Key, version: Version) -> None:
        """Publishes, then does what else there is to do: the event must not wait for it."""
        if self._publish is not None:
            now = self._clock.now()
            event = object_changed(verb, self._resource, key, server=self._server, cluster=self._cluster, now=now)
            await self._publish((event,))
        if self._on_change is not None:
            await self._on_change(verb, key, version)

    async def established(self, version: str) -> None:
        """Does what there is to do after a list."""
        if self._on_list is not None:
            await self._on_list(version)
        self._announcer.fine(self._resource)

    def absent(self) -> None:
        """Says so."""
        self._announcer.absent(self._resource, self._hint)
        if self._on_trouble is not None:
            self._on_trouble(None)

    def troubled(self, trouble: Exception) -> None:
        """Says so."""
        self._announcer.failed(self._resource, trouble)
        if self._on_trouble is not None:
            self._on_trouble(trouble)

    async def _client(self) -> Client:
        client = await self._connect()
        self._server = client.server
        return client
