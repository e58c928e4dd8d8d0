"""How one composed object stands, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
