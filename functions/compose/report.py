"""What is said of a set as a whole: its condition, out of how each of its objects stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from functions.clusters import ORPHAN
from functions.compose.states import Reason
from functions.compose.teardown import Outcome
from functions.conditions import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from functions.access.errors import AccessError
    from functions.compose.states import State
    from functions.compose.step import Composition
    from functions.compose.teardown import Removal

REMOVING: Final = "Removing"
BLOCKED: Final = "TeardownBlocked"
REMOVED: Final = "Removed"
ORPHANED: Final = "Orphaned"
USUAL: Final = frozenset(
    {Reason.WAITING_FOR_REQUIREMENTS, Reason.WAITING_FOR_OBJECT, Reason.APPLIED, REMOVING, REMOVED}
)
"""Reasons that belong to a good course; any other wants somebody to look."""


class Report(NamedTuple):
    """A condition's status, reason and message."""

    status: Status
    reason: str
    message: str


def report(states: Sequence[State], left_out: Iterable[str]) -> Report:
    """How a set stands that is to be there; `left_out` is what is not used of what it is made from."""
    order = list(Reason)
    worst = min((each.reason for each in states), key=order.index)
    parts = [part for reason in order[:-1] for part in _parts(reason, states)]
    parts += [f"left out: {each}" for each in left_out]
    message = "; ".join(parts)
    if worst is Reason.APPLIED:
        return Report(Status.TRUE, worst, message)
    if worst is Reason.UNKNOWN:
        trouble = next(each.trouble for each in states if each.reason is worst)
        return Report(Status.UNKNOWN, trouble, message)
    return Report(Status.FALSE, worst, message)


def cannot_tell(trouble: AccessError) -> Report:
    """What is said of a set of a target that cannot be asked."""
    return Report(Status.UNKNOWN, trouble.reason, str(trouble))


def blocked(trouble: AccessError) -> Report:
    """What is said of a set that is to go, of a target that cannot be asked."""
    hint = f"to let go and leave everything where it is, annotate the InferenceCluster with {ORPHAN}=true"
    return Report(Status.FALSE, BLOCKED, f"{trouble}; {hint}")


def left_behind(composition: Composition) -> Report:
    """What is said of a set that its owner wants to be left where it is."""
    objects = ", ".join(str(each) for each in composition.steps if each.manifest is not None)
    return Report(Status.FALSE, ORPHANED, f"left behind, as annotation {ORPHAN} says, whatever is there of: {objects}")


def removal_report(removals: Sequence[Removal]) -> Report:
    """How the teardown of a set stands."""
    last = removals[-1]
    if last.outcome is Outcome.BLOCKED:
        return Report(Status.FALSE, BLOCKED, f"{last.step}: {last.detail}")
    if last.outcome is Outcome.REMOVING:
        return Report(Status.FALSE, REMOVING, f"{last.step} {last.detail}")
    kept = [f"{each.step} stays: {each.detail}" for each in removals if each.outcome is Outcome.KEPT]
    return Report(Status.FALSE, REMOVED, "; ".join(kept) or "nothing is left")


def _parts(reason: Reason, states: Iterable[State]) -> list[str]:
    """What is said of the objects that stand so, each cause once."""
    concerned = [each for each in states if each.reason is reason]
    waiting: dict[str, list[str]] = {}
    said: dict[str, list[str]] = {}
    for each in concerned:
        name = str(each.step)
        if each.waits_for and each.waits_for != name:
            waiting.setdefault(f"{each.waits_for} ({each.detail})" if each.detail else each.waits_for, []).append(name)
        else:
            said.setdefault(each.detail, []).append(name)
    own = [f"{', '.join(names)}: {detail}" if detail else ", ".join(names) for detail, names in said.items()]
    return own + [f"waiting for {cause}: {', '.join(names)}" for cause, names in waiting.items()]
