"""One set on one cluster, from read to write: what every compose function does.

Read the InferenceCluster, apply or take down what can be now, write the condition if the object is still the one that
was read, and begin again until there is nothing to write. So the last writer has always seen more than it wrote, and
nothing stays on a target whose InferenceCluster is gone.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from functions.access.errors import AccessError, Conflict, NotFound
from functions.catalog import component
from functions.compose.passes import Ask, Pass, bring_up, look_at_target, take_down
from functions.compose.report import USUAL
from functions.compose.teardown import Teardown
from functions.conditions import Condition, fit, stamp
from functions.function import Later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.clusters import InferenceCluster
    from functions.compose.step import Composition
    from functions.world import World

ATTEMPTS: Final = 20
PAUSE: Final = 0.2
"""Seconds between two attempts at undoing what was begun for an InferenceCluster that is gone."""
MAX_MESSAGE: Final = 4_096
"""Longest message of a set's condition, in characters."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """How a set was left.

    Attributes:
        cluster: The InferenceCluster as it stands now.
        condition: The set's condition, also where it could not be written any more.
        changed: Whether it says something else than before.
        removed: Whether nothing of it is left to be seen to, because the InferenceCluster is being deleted.
        passing: What keeps it from being right though trying again soon may help; empty where nothing does.
    """

    cluster: InferenceCluster
    condition: Condition
    changed: bool
    removed: bool = False
    passing: str = ""


async def reconcile(world: World, composition: Composition, name: str, ask: Ask) -> Reconciled | None:
    """Sees to a set on a cluster.

    Returns:
        None where the InferenceCluster is gone, or has no such set.

    Raises:
        Later: The hub could not be asked, or others wrote the object all the while.
    """
    key = f"{composition.name}/{name}"
    work = _Work(world, composition, name)
    reconciled: Reconciled | None = await world.work.submit(key, ask, work.run)
    return reconciled


class _Work:
    """One reconciliation."""

    def __init__(self, world: World, composition: Composition, name: str) -> None:
        self._world = world
        self._composition = composition
        self._name = name
        self._created: list[tuple[str, str]] = []
        self._first: InferenceCluster | None = None

    async def run(self, asks: Sequence[Ask]) -> Reconciled | None:
        ask = Ask(
            seen=next((each.seen for each in reversed(asks) if each.seen is not None), None),
            tick=all(each.tick for each in asks),
        )
        try:
            for _ in range(ATTEMPTS):
                cluster = await self._world.hub.cluster(self._name)
                if self._first is None:
                    self._first = cluster
                if cluster is None or not self._concerns(cluster):
                    await self._undo()
                    if cluster is None:
                        await self._world.targets.forget(self._name)
                    return None
                with suppress(Conflict, NotFound):
                    reconciled = await self._once(cluster, ask)
                    if reconciled is not None:
                        return reconciled
        except AccessError as trouble:
            raise Later(f"hub: {trouble}") from trouble
        raise Later(f"{self._composition.name} of {self._name} was written by others {ATTEMPTS} times in a row")

    def _concerns(self, cluster: InferenceCluster) -> bool:
        if self._first is None or cluster.uid != self._first.uid:
            return False
        if cluster.deletion_timestamp is not None:
            return self._composition.finalizer in cluster.finalizers
        return cluster.provided and cluster.stack in self._composition.stacks

    async def _once(self, cluster: InferenceCluster, ask: Ask) -> Reconciled | None:
        """One attempt; None where the InferenceCluster has to be read again."""
        present = cluster.conditions.get(self._composition.condition)
        if present is not None and self._is_resting(cluster, present, ask):
            return Reconciled(cluster=cluster, condition=present, changed=False)
        if cluster.deletion_timestamp is None:
            done = await bring_up(self._world, self._composition, cluster, ask, self._created, before=self._before)
        else:
            done = await take_down(self._world, self._composition, cluster, ask)
        condition = self._condition(done)
        changed = _said(condition) != _said(self._before)
        if done.gone:
            await self._let_go(done, condition)
            return Reconciled(cluster=done.cluster, condition=condition, changed=changed, removed=True)
        if condition == present and done.gateway in (None, done.cluster.gateway):
            if done.wrote:  # by what was seen before: the InferenceCluster, or a client CA, may have gone meanwhile
                return None
            return Reconciled(cluster=done.cluster, condition=condition, changed=changed, passing=done.passing)
        written = await self._write(done, condition)
        if _said(condition) != _said(present):
            await self._tell(written, condition)
        # Looking again would cost another time limit, or come to the same: somebody else has a say in what we left out.
        if done.unseen or written.resource_version == done.cluster.resource_version:
            return Reconciled(cluster=written, condition=condition, changed=changed)
        return None

    @property
    def _before(self) -> Condition | None:
        """The set's condition as it was when the work began."""
        return None if self._first is None else self._first.conditions.get(self._composition.condition)

    def _is_resting(self, cluster: InferenceCluster, present: Condition, ask: Ask) -> bool:
        """Whether nothing but time asks for a look at a target that is left in peace for a while after its failures."""
        judged = present.observed_generation == cluster.generation
        deleting = cluster.deletion_timestamp is not None and cluster.orphans
        return (
            ask.tick
            and judged
            and not deleting
            and self._world.targets.is_resting(cluster.name, self._world.clock.now())
        )

    def _condition(self, done: Pass) -> Condition:
        condition = Condition(
            type=self._composition.condition,
            status=done.report.status,
            reason=done.report.reason,
            message=fit(done.report.message, MAX_MESSAGE),
            observed_generation=done.cluster.generation,
        )
        return stamp(condition, done.cluster.conditions, self._world.clock.timestamp())

    async def _write(self, done: Pass, condition: Condition) -> InferenceCluster:
        """Writes what is ours of the status, also where others wrote what is theirs in the meantime.

        Raises:
            Conflict: What it rests on is not as it was; begin again.
        """
        cluster = done.cluster
        for _ in range(ATTEMPTS):
            try:
                return await self._world.hub.write_status(
                    cluster, (condition,), manager=self._composition.manager, gateway=done.gateway
                )
            except Conflict:
                found = await self._world.hub.cluster(self._name)
                if found is None or self._basis(found) != self._basis(done.cluster):
                    raise
                cluster = found
        raise Later(f"{self._name} was written by others {ATTEMPTS} times in a row")

    def _basis(self, cluster: InferenceCluster) -> tuple[object, ...]:
        """What a pass rests on of an InferenceCluster."""
        needs = {component(key).condition for step in self._composition.steps for key in step.needs}
        return (
            cluster.uid,
            cluster.generation,
            cluster.deletion_timestamp,
            cluster.orphans,
            cluster.gateway,
            self._composition.finalizer in cluster.finalizers,
            {
                type_: each
                for type_, each in cluster.conditions.items()
                if type_ in needs | {self._composition.condition}
            },
        )

    async def _let_go(self, done: Pass, condition: Condition) -> None:
        """Takes the finalizer off; where others hold the object still, they read what became of the set."""
        cluster = done.cluster
        if cluster.finalizers != (self._composition.finalizer,) and condition != cluster.conditions.get(condition.type):
            cluster = await self._write(done, condition)
        if not await self._take_finalizer_off(cluster):
            self._world.hub.known.pop(self._name, None)
        await self._tell(cluster, condition)

    async def _take_finalizer_off(self, cluster: InferenceCluster) -> list[str]:
        """Returns the finalizers that are left; what others write meanwhile does not bring back what is gone.

        Raises:
            Later: Others wrote it all the while.
        """
        for _ in range(ATTEMPTS):
            others = [each for each in cluster.finalizers if each != self._composition.finalizer]
            try:
                await self._world.hub.write_finalizers(cluster, others)
            except NotFound:
                return []
            except Conflict:
                found = await self._world.hub.cluster(self._name)
                if found is None or found.uid != cluster.uid:
                    return []
                cluster = found
            else:
                return others
        raise Later(f"{self._name} was written by others {ATTEMPTS} times in a row")

    async def _tell(self, cluster: InferenceCluster, condition: Condition) -> None:
        """An Event for people; nothing rests on it, so that a hub that does not take it keeps nobody from working."""
        said = f"{condition.type}: {condition.message or 'everything is applied and ready'}"
        try:
            await self._world.hub.tell(
                cluster,
                teller=self._composition.manager,
                reason=condition.reason,
                message=said,
                warning=condition.reason not in USUAL,
                now=self._world.clock.now(),
            )
        except AccessError as trouble:
            if not (isinstance(trouble, Conflict) and trouble.already_exists):
                _log.warning("an Event could not be written", extra={"cluster": self._name, "detail": str(trouble)})

    async def _undo(self) -> None:
        """Takes down what was begun here for an InferenceCluster that turned out to have gone meanwhile."""
        if self._first is None or not self._created:
            return
        left = ""
        for _ in range(ATTEMPTS):
            try:
                look = await look_at_target(self._world, self._composition, self._first, leftovers=True)
                teardown = Teardown(look, self._composition.steps, self._first.uid, self._world.clock.now())
                if await teardown.run():
                    return
                left = f"{teardown.removals[-1].step} {teardown.removals[-1].detail}"
            except AccessError as trouble:
                left = str(trouble)
            await self._world.clock.sleep(PAUSE)
        _log.error(
            "an InferenceCluster is gone, and not all of its objects", extra={"cluster": self._name, "detail": left}
        )


def _said(condition: Condition | None) -> tuple[str, ...]:
    return () if condition is None else (condition.status, condition.reason, condition.message)
