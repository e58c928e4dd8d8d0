"""The conditions that we own on an InferenceCluster: how they are formed, merged and summed up.

They are the ledger: one per component that can be checked, and `RequirementsMet` over all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from functions.catalog import of_stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from functions.catalog import Component, Stack

_REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
REQUIREMENTS_MET: Final = "RequirementsMet"
MAX_MESSAGE: Final = 32_768
"""Longest message that Kubernetes' own condition schema allows, in characters."""

MAX_DETAIL: Final = 1_024
"""Longest message of one component, so that what a cluster says about itself does not bloat the object."""


class Status(StrEnum):
    """A condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


_STATUSES: Final = frozenset(Status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A Kubernetes condition (metav1.Condition).

    Attributes:
        last_transition_time: RFC 3339, to the second as Kubernetes writes it; moves only when status flips.
    """

    type: str
    status: Status
    reason: str
    message: str = ""
    observed_generation: int = 0
    last_transition_time: str = ""

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> Condition:
        """From its JSON form; an absent or foreign value of status reads as Unknown."""
        status = value.get("status")
        return cls(
            type=value.get("type", ""),
            status=Status(status) if status in _STATUSES else Status.UNKNOWN,
            reason=value.get("reason", ""),
            message=value.get("message", ""),
            observed_generation=value.get("observedGeneration", 0),
            last_transition_time=value.get("lastTransitionTime", ""),
        )

    def to_object(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            "type": self.type,
            "status": str(self.status),
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.observed_generation,
            "lastTransitionTime": self.last_transition_time,
        }


def checked_components(stack: Stack) -> tuple[Component, ...]:
    """The components of a stack that have a condition: those with something to check."""
    return tuple(each for each in of_stack(stack) if each.requirements)


def merge(
    present: Mapping[str, Condition], judged: Iterable[Condition], *, stack: Stack, generation: int, now: str
) -> tuple[Condition, ...]:
    """All conditions of ours as they should stand now, `RequirementsMet` first, then in catalog order.

    Args:
        present: The conditions on the object by type; those that are not ours are left out of the answer.
        judged: What was just found, for some or all components.
        stack: Decides which components have a condition.
        generation: metadata.generation that `judged` was found for.
        now: RFC 3339 to the second, for those whose status flips.
    """
    fresh = {each.type: each for each in judged}
    components = []
    for component in checked_components(stack):
        condition = fresh.get(component.condition) or present.get(component.condition)
        if condition is not None:
            fitting = replace(condition, reason=_reason(condition.reason), message=fit(condition.message, MAX_DETAIL))
            components.append(stamp(fitting, present, now))
    summary = _summary(components, stack=stack, generation=generation)
    return (stamp(summary, present, now), *components)


def stamp(condition: Condition, present: Mapping[str, Condition], now: str) -> Condition:
    """The condition with its transition time: kept while the status stays, else `now`."""
    before = present.get(condition.type)
    kept = before is not None and before.status == condition.status and before.last_transition_time
    return replace(condition, last_transition_time=kept or now)


def fit(text: str, limit: int) -> str:
    """A text fit for a condition: on one line, so long at most, without what could steer a terminal.

    The API server refuses some control characters and stores others differently than they were sent.
    """
    plain = "".join(each if each.isprintable() else " " for each in text)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _summary(components: Sequence[Condition], *, stack: Stack, generation: int) -> Condition:
    """RequirementsMet over the components judged so far."""
    names = {each.condition: each.key for each in checked_components(stack)}
    missing = [each for each in components if each.status is Status.FALSE]
    unknown = [each for each in components if each.status is Status.UNKNOWN]
    waiting = [key for type_, key in names.items() if type_ not in {each.type for each in components}]
    if missing:
        message = "The cluster is missing: " + "; ".join(f"{names[each.type]} ({each.message})" for each in missing)
        if unknown:
            message += f". Cannot tell: {_grouped(unknown, names)}"
        return _condition(Status.FALSE, "MissingRequirements", message, generation)
    if unknown:
        return _condition(Status.UNKNOWN, unknown[0].reason, f"Cannot tell: {_grouped(unknown, names)}", generation)
    if waiting:
        return _condition(Status.FALSE, "Checking", f"Not judged yet: {', '.join(waiting)}", generation)
    return _condition(Status.TRUE, REQUIREMENTS_MET, "", generation)


def _reason(text: str) -> str:
    """A reason as Kubernetes' own schema allows it, which a server need not keep to."""
    return text if _REASON.fullmatch(text) else "Other"


def _grouped(conditions: Sequence[Condition], names: Mapping[str, str]) -> str:
    """The trouble of several components, each text once: a dead cluster has one message, not eleven."""
    by_message: dict[str, list[str]] = {}
    for each in conditions:
        by_message.setdefault(each.message, []).append(names[each.type])
    if len(by_message) == 1 and len(conditions) == len(names):
        return next(iter(by_message))
    return "; ".join(f"{', '.join(keys)} ({message})" for message, keys in by_message.items())


def _condition(status: Status, reason: str, message: str, generation: int) -> Condition:
    return Condition(
        type=REQUIREMENTS_MET,
        status=status,
        reason=reason,
        message=fit(message, MAX_MESSAGE),
        observed_generation=generation,
    )
