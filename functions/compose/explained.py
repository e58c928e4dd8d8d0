"""What is said to people of the objects of an InferenceCluster: made by `explain`, printed by the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from functions.clusters import InferenceCluster
    from functions.compose.step import Composition, Step
    from functions.conditions import Condition

APPLY: Final = "apply"
PUT_RIGHT: Final = "put right"
DELETE: Final = "delete"


class Standing(StrEnum):
    """How an object stands."""

    READY = "Ready"
    NOT_READY = "NotReady"
    DUE = "Due"
    WAITING = "Waiting"
    CONFLICT = "Conflict"
    REFUSED = "Refused"
    UNKNOWN = "Unknown"
    GONE = "Gone"
    KEPT = "Kept"
    REMOVING = "Removing"
    BLOCKED = "Blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """How one object stands.

    Attributes:
        step: The object's.
        standing: `READY` and `NOT_READY` where it is applied; `DUE` where nothing is in the way of what comes next;
            `WAITING`, `CONFLICT` and `REFUSED` where something is; `UNKNOWN` where that cannot be told. Of what is to
            go: `GONE`, `KEPT`, `REMOVING`, `BLOCKED`, and `WAITING` for the one that has to go before it.
        applied: Whether it is there exactly as it should be; of what is to go, whether it is there and ours.
        waits_for: The one requirement, client CA or object that it waits for; itself where it is not ready.
        detail: What is wrong, or what its controller last said.
        since: RFC 3339, since when; empty where that cannot be told.
        next: What is done about it next: `apply`, `put right`, `adopt`, `label` or `delete`; empty where nothing is.
        command: How its owner hands it over; empty where that is not the question.
        trouble: The reason of an access error, where that is why it cannot be told.
        at_hub: Whether that was an error of the hub, or of what it holds.
    """

    step: Step
    standing: Standing
    applied: bool = False
    waits_for: str = ""
    detail: str = ""
    since: str = ""
    next: str = ""
    command: str = ""
    trouble: str = ""
    at_hub: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedSet:
    """How a set stands.

    Attributes:
        composition: The set.
        condition: What the functions said of it last; None where they have not said anything.
        objects: Each of its objects, in the order in which they are applied, or taken down.
        left_out: What is of no use of what it is made from.
    """

    composition: Composition
    condition: Condition | None
    objects: tuple[Explained, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """How everything of an InferenceCluster stands.

    Attributes:
        cluster: The InferenceCluster.
        target: URL of its target; empty where no kubeconfig leads there.
        sets: Those of its stack; while it is being deleted also any other that holds it.
    """

    cluster: InferenceCluster
    target: str
    sets: tuple[ExplainedSet, ...]
