"""What an API server's answer to a write means: some heal by themselves, some by trying again, some not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.access.errors import Conflict, Forbidden, Invalid, NotFound, Unauthorized
from functions.compose.states import Reason, State, conflict, unknown, unserved

if TYPE_CHECKING:
    from functions.access.errors import AccessError
    from functions.compose.step import Step


def refused(step: Step, answer: AccessError) -> State:
    """How an object stands whose write was refused.

    Raises:
        Conflict: Somebody wrote it, or its namespace went, since it was looked at; look again.
        Unauthorized: It says nothing of this object alone.
    """
    match answer:
        case Conflict() if answer.field_managers:
            return conflict(step, str(answer))
        case NotFound() if answer.kind_known:
            raise Conflict(str(answer), status=answer.status) from None
        case NotFound():
            return unserved(step)
        case Forbidden():
            return _forbidden(step, answer)
        case Invalid():
            return State(step=step, reason=Reason.REFUSED, detail=answer.text)
        case Conflict() | Unauthorized():
            raise answer
        case _:
            return unknown(step, answer)


def _forbidden(step: Step, refusal: Forbidden) -> State:
    match refusal.denied_by:
        case "authorization":
            return unknown(step, refusal)
        case "terminating-namespace":
            namespace = f"Namespace {step.namespace}"
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=namespace, detail="it is being deleted")
        case "terminating-definition":
            return unserved(step)
        case _:
            return State(step=step, reason=Reason.REFUSED, detail=refusal.text)
