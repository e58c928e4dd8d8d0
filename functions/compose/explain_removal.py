"""Says of each object that is to go how far that is, and deletes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from functions.clusters import ORPHAN
from functions.compose.explained import DELETE, Explained, Standing
from functions.compose.leftovers import was_made_for
from functions.compose.ownership import is_ours, whose
from functions.compose.passes import look_at_target
from functions.compose.teardown import Outcome, Teardown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from functions.clusters import InferenceCluster
    from functions.compose.look import Look
    from functions.compose.step import Composition, Step
    from functions.compose.teardown import Removal
    from functions.world import World

_STANDING: Final = {
    Outcome.KEPT: Standing.KEPT,
    Outcome.REMOVING: Standing.REMOVING,
    Outcome.BLOCKED: Standing.BLOCKED,
}


async def explain_removal(world: World, cluster: InferenceCluster, composition: Composition) -> list[Explained]:
    """How far the objects of a deleted InferenceCluster are, in the order in which they go.

    Raises:
        AccessError: The target could not be asked.
    """
    if cluster.orphans:
        said = f"whatever is there of it is left behind, as annotation {ORPHAN} says"
        return [_kept(each, said) for each in reversed(composition.steps) if each.manifest is not None]
    look = await look_at_target(world, composition, cluster, leftovers=True)
    if composition.finalizer not in cluster.finalizers:
        return [_left(look, each, cluster.uid) for each in reversed(composition.steps)]
    return await _removed(look, composition.steps, cluster.uid, world.clock.now())


async def explain_withdrawal(look: Look, composition: Composition, uid: str, now: datetime) -> list[Explained]:
    """How far those objects are that go because there is no client CA any more; those that are not there left out.

    Raises:
        AccessError: The target stopped answering.
    """
    withheld = [each for each in composition.steps if each.client_ca]
    settled = {Standing.GONE, Standing.KEPT}
    return [each for each in await _removed(look, withheld, uid, now) if each.standing not in settled]


async def _removed(look: Look, steps: Sequence[Step], uid: str, now: datetime) -> list[Explained]:
    teardown = Teardown(look, steps, uid, now, acting=False)
    await teardown.run()
    reached = {each.step.key: each for each in teardown.removals if each.outcome is not Outcome.GONE}
    last = teardown.removals[-1]
    return [
        _reached(look, reached[step.key]) if step.key in reached else _beside(look, step, uid, last)
        for step in reversed(steps)
    ]


def _reached(look: Look, removal: Removal) -> Explained:
    """An object that is on its way, or stays."""
    step = removal.step
    found = look.found.get(step.key)
    if removal.outcome is Outcome.REMOVING and found is not None and "deletionTimestamp" not in found["metadata"]:
        return Explained(step=step, standing=Standing.DUE, applied=True, next=DELETE)
    return Explained(
        step=step,
        standing=_STANDING[removal.outcome],
        applied=found is not None,
        detail=removal.detail,
        since=removal.since,
    )


def _beside(look: Look, step: Step, uid: str, last: Removal) -> Explained:
    """An object that is gone, is none of ours, or has to wait for the one that the teardown came to at last."""
    waiting = Explained(step=step, standing=Standing.WAITING, waits_for=str(last.step), since=last.since, next=DELETE)
    if step.key in look.unserved and not last.done:
        return replace(waiting, detail=f"its API {step.kind.api_version} is not served")
    return replace(waiting, applied=True) if _is_to_go(look, step, uid) else _left(look, step, uid)


def _left(look: Look, step: Step, uid: str) -> Explained:
    """An object that nobody takes away any more, if it is there."""
    trouble = look.troubles.get(step.key)
    if trouble is not None:
        return Explained(step=step, standing=Standing.UNKNOWN, detail=str(trouble), trouble=trouble.reason)
    found = look.found.get(step.key)
    if found is None:
        return Explained(step=step, standing=Standing.GONE)
    if _is_to_go(look, step, uid):
        return replace(_kept(step, "the InferenceCluster is not held for it any more"), applied=True)
    return _kept(step, f"it is not ours: {whose(found)}")


def _is_to_go(look: Look, step: Step, uid: str) -> bool:
    """Whether an object is there and ours, or was made for one that is."""
    found = look.found.get(step.key)
    if found is None:
        return False
    if step.manifest is not None:
        return is_ours(found, uid)
    if step.made_for:
        maker = look.found.get(step.made_for)
        return was_made_for(found, step.made_for) and (maker is None or is_ours(maker, uid))
    return any(is_ours(look.found[each], uid) for each in step.after if each in look.found)


def _kept(step: Step, why: str) -> Explained:
    return Explained(step=step, standing=Standing.KEPT, detail=why)
