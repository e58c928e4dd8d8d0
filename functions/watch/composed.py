"""Watches what is composed on one target: each object by its name, and each kind only while it is served.

What is guaranteed: a change of a composed object is told once its watch has begun; what happened before, also between
the last look at the cluster and the first list, is seen by a look that is asked for after that list. No request is
sent to an API that discovery does not list with the verbs for it.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Protocol

from functions.compose import kinds
from functions.compose.sets import COMPOSITIONS
from functions.watch.checks import OBJECT, WATCH_STARTED
from functions.watch.pauses import LONGEST, rest
from functions.watch.reflector import Resource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from functions.access.discovery import Discovery
    from functions.access.targets import Target
    from functions.catalog import Stack
    from functions.compose.kinds import Kind
    from functions.watch.checks import Checks
    from functions.watch.reflector import Verb
    from functions.watch.resource_watch import Announcer, ResourceWatch
    from functions.world import Clock

FIRST_LOOK: Final = 0.01
"""Seconds between two looks at discovery right after something happened to a definition; each pause is twice the last.

Discovery trails an Established definition by some milliseconds, by seconds where there are several API servers.
"""
_STARTING: Final = 1.0
"""Seconds for which a starting API server may leave out of discovery what it serves."""
_VERBS: Final = frozenset({"list", "watch"})


class Make(Protocol):
    """Makes the watch of one object."""

    def __call__(
        self,
        resource: Resource,
        *,
        serves: Callable[[], Awaitable[bool]],
        on_list: Callable[[str], Awaitable[None]],
        on_trouble: Callable[[Exception | None], None],
    ) -> ResourceWatch:
        """Makes it; the arguments are those of `ResourceWatch`."""


@cache
def composed(stack: Stack | None) -> Mapping[Resource, Kind]:
    """What is to be watched on a cluster of this stack; definitions are watched in any case."""
    return {
        Resource(step.kind.api_version, step.kind.name, step.kind.plural, step.namespace, step.name): step.kind
        for each in COMPOSITIONS
        if stack in each.stacks
        for step in each.steps
        if step.is_watched and step.kind != kinds.DEFINITION
    }


class ComposedWatches:
    """The watches of the composed objects of one target."""

    def __init__(
        self,
        stack: Stack | None,
        make: Make,
        connect: Callable[[], Awaitable[Target]],
        *,
        answers: asyncio.Event,
        checks: Checks,
        announcer: Announcer,
        clock: Clock,
    ) -> None:
        """Keep the settings; nothing is opened before `run`.

        Args:
            stack: Decides what is composed.
            make: Makes the watch of an object.
            connect: Opens the target.
            answers: Set while there is reason to think that the target answers; nothing is asked of it otherwise.
            checks: Asks for looks at the cluster.
            announcer: That of the cluster.
            clock: For the pauses.
        """
        self._kinds = composed(stack)
        self._make = make
        self._connect = connect
        self._answers = answers
        self._checks = checks
        self._announcer = announcer
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._watches: dict[Resource, tuple[ResourceWatch, asyncio.Task[None]]] = {}
        self._unlisted: set[Resource] = set()
        self._missed: set[Resource] = set()  # whose watch ended, and of which nobody was told yet
        self._definitions: set[str] = set()
        self._pause = 0.0
        self._next_look = 0.0
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with self._group:
            while True:
                self._stirred.clear()
                left = self._next_look - _now()
                if not self._unwatched():
                    self._checks.settle(self)
                    await self._stirred.wait()
                elif left > 0:
                    await rest(left, self._stirred, sleep=self._clock.sleep)
                else:
                    await self._look()

    def wake(self) -> None:
        """For whoever knows that the cluster, or the way to it, changed."""
        for watch, _ in self._watches.values():
            watch.reflector.wake()
        self._look_again()

    def installed(self, definitions: Iterable[str]) -> None:
        """The definitions of the target were listed."""
        self._definitions = {kind.definition for kind in self._kinds.values()}.intersection(definitions)
        self._look_again()

    async def definition_changed(self, verb: Verb, name: str) -> None:
        """A definition was added, updated or deleted."""
        concerned = [each for each, kind in self._kinds.items() if kind.definition == name]
        if verb == "delete":
            self._definitions.discard(name)
            for each in concerned:
                await self._end(each)
        elif concerned:
            self._definitions.add(name)
            self._look_again()

    def _unwatched(self) -> list[Resource]:
        """What is not watched, and may be served."""
        return [
            each
            for each, kind in self._kinds.items()
            if each not in self._watches and (kind.built_in or kind.definition in self._definitions)
        ]

    def _look_again(self) -> None:
        self._pause = self._next_look = 0.0
        self._checks.expect(self)
        self._stirred.set()

    async def _look(self) -> None:
        """Begins the watches of what is served by now."""
        self._pause = min(max(2 * self._pause, FIRST_LOOK), LONGEST)
        self._next_look = _now() + self._pause
        await self._answers.wait()
        asked = self._unwatched()
        try:
            await self._begin_served(asked)
        except Exception as trouble:  # noqa: BLE001 - a bug that one server brings out must not end other watches
            for each in asked:
                self._announcer.failed(each, trouble)
        if self._pause:  # else there is another one at once
            self._checks.settle(self)

    async def _begin_served(self, resources: Iterable[Resource]) -> None:
        custom = [each for each in resources if not self._kinds[each].built_in]
        for each in resources:
            if each not in custom:
                self._begin(each)
        if not custom:
            return
        discovery = await self._discovery({self._kinds[each] for each in custom})
        for each in self._unwatched():
            if _is_served(discovery, self._kinds[each]):
                self._begin(each)
        if self._pause > _STARTING:
            self._tell_missed()

    def _tell_missed(self) -> None:
        """What was watched is not served any more, though it has a definition still."""
        for each in self._missed.intersection(self._unwatched()):
            self._miss(each)

    def _miss(self, resource: Resource) -> None:
        self._missed.discard(resource)
        self._checks.want(OBJECT, f"{resource.path} {self._clock.timestamp()}")

    def _begin(self, resource: Resource) -> None:
        self._missed.discard(resource)
        self._unlisted.add(resource)
        self._checks.expect(resource)
        watch = self._make(
            resource,
            serves=partial(self._serves, resource),
            on_list=partial(self._listed, resource),
            on_trouble=lambda _: self._checks.settle(resource),
        )
        self._watches[resource] = watch, self._group.create_task(self._follow(resource, watch))

    async def _follow(self, resource: Resource, watch: ResourceWatch) -> None:
        """Follows an object until it is cancelled, or its API is not served any more."""
        began = _now()
        await watch.run()
        self._forget(resource)
        self._missed.add(resource)
        if _now() - began > LONGEST:
            self._look_again()
        self._stirred.set()

    async def _end(self, resource: Resource) -> None:
        """Ends a watch because its definition is gone."""
        watch, task = self._watches.get(resource, (None, None))
        if watch is not None and task is not None:
            task.cancel()
            await asyncio.wait((task,))
            await watch.reflector.vanish()
        elif resource in self._missed:
            self._miss(resource)
        self._missed.discard(resource)
        self._forget(resource)

    def _forget(self, resource: Resource) -> None:
        self._watches.pop(resource, None)
        self._unlisted.discard(resource)
        self._checks.settle(resource)
        self._announcer.forget(resource)

    async def _listed(self, resource: Resource, version: str) -> None:
        if resource in self._unlisted:
            self._unlisted.discard(resource)
            self._checks.want(WATCH_STARTED, f"{resource.path}/{resource.name} {version}")
        self._checks.settle(resource)

    async def _serves(self, resource: Resource) -> bool:
        await self._answers.wait()
        kind = self._kinds[resource]
        return kind.built_in or _is_served(await self._discovery({kind}), kind)

    async def _discovery(self, wanted: Iterable[Kind]) -> Discovery:
        target = await self._connect()
        return await target.discovery.read({each.group for each in wanted})


def _is_served(discovery: Discovery, kind: Kind) -> bool:
    return discovery.verbs(kind.group, kind.version, kind.plural) >= _VERBS


def _now() -> float:
    return asyncio.get_running_loop().time()
