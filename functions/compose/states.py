"""How one composed object stands, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from functions.access.errors import AccessError, ServerError, Throttled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.compose.exactness import Difference
    from functions.compose.step import Step


class Reason(StrEnum):
    """Why a set is not all there, or that it is: reasons of its condition, the worst first."""

    CONFLICT = "Conflict"
    REFUSED = "Refused"
    UNKNOWN = "Unknown"
    WAITING_FOR_REQUIREMENTS = "WaitingForRequirements"
    WAITING_FOR_CLIENT_CA = "WaitingForClientCA"
    WAITING_FOR_OBJECT = "WaitingForObject"
    APPLIED = "Applied"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How an object stands.

    Attributes:
        step: The object's.
        reason: `APPLIED` where it is there, exactly as it should be, and ready.
        applied: Whether it is there exactly as it should be, ready or not.
        waits_for: The component, the client CA or the object that it waits for; itself where it is not ready.
        detail: What is wrong, or what its controller last said.
        since: RFC 3339, since when; empty where that cannot be told.
        next: What is about to be done about it; empty where nothing is.
        trouble: The reason of an access error, where that is why it cannot be told.
        passing: Whether trying again soon may help, though no event will tell.
    """

    step: Step
    reason: Reason
    applied: bool = False
    waits_for: str = ""
    detail: str = ""
    since: str = ""
    next: str = ""
    trouble: str = ""
    passing: bool = False

    @property
    def ready(self) -> bool:
        """Whether nothing of it is wanting."""
        return self.reason is Reason.APPLIED


def being_deleted(found: Mapping[str, Any]) -> tuple[str, str]:
    """What holds an object that is being deleted, and since when as RFC 3339."""
    finalizers = ", ".join(found["metadata"].get("finalizers") or ())
    held = f", held by finalizer {finalizers}" if finalizers else ""
    return f"is being deleted{held}", found["metadata"]["deletionTimestamp"]


def judged(step: Step, found: Mapping[str, Any]) -> State:
    """Of an object that is exactly what it should be: whether it is ready."""
    unready = step.ready(found)
    if unready is None:
        return State(step=step, reason=Reason.APPLIED, applied=True)
    return State(
        step=step,
        reason=Reason.WAITING_FOR_OBJECT,
        applied=True,
        waits_for=str(step),
        detail=unready.detail,
        since=unready.since,
    )


def insisted(step: Step, difference: Difference) -> State:
    """Of an object that somebody keeps from being what it should be."""
    return conflict(step, f"an admission webhook or another controller keeps it otherwise: {difference}")


def conflict(step: Step, detail: str) -> State:
    """Of an object that somebody else has a say in."""
    return State(step=step, reason=Reason.CONFLICT, detail=detail)


def unknown(step: Step, trouble: AccessError, whose: str = "") -> State:
    """Of an object that did not let itself be looked at, or written."""
    passing = isinstance(trouble, ServerError | Throttled)
    return State(step=step, reason=Reason.UNKNOWN, detail=f"{whose}{trouble}", trouble=trouble.reason, passing=passing)


def unserved(step: Step) -> State:
    """Of an object whose API is not served."""
    waits_for = f"CRD {step.kind.definition} serving {step.kind.version}"
    return State(step=step, reason=Reason.WAITING_FOR_REQUIREMENTS, waits_for=waits_for)
