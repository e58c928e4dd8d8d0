"""What a function is: a name, what wakes it, and one coroutine from an event and a world to more events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from events.event import Event
    from functions.rights import Right
    from functions.world import World

Handler: TypeAlias = "Callable[[Event, World], Awaitable[Sequence[Event]]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wake:
    """One kind of event that a function wakes on; rendered as a filter of the function's Trigger.

    Attributes:
        type: The exact CloudEvent type, or a prefix of it when it ends in a dot; empty for every type.
        attributes: Further attributes that must be exactly so, such as `{"kind": "DeviceClass"}`; never empty values.
        names: With `attributes`, the values of `name` that count; empty means any.
    """

    type: str
    attributes: tuple[tuple[str, str], ...] = ()
    names: tuple[str, ...] = ()


EVERY_EVENT: Final = Wake(type="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function as the host serves it and the Triggers are generated from it.

    Attributes:
        name: Path below the host's root and suffix of the event source, such as `probes/cert-manager`.
        handler: Answers an event with the events that follow from it; raises `Poison` or `Later`.
        wakes_on: What its Trigger lets through.
        emits: The event types that it may answer with; disjoint from those it wakes on.
        service: The Knative Service that runs it.
        rights: What it takes on the hub.
        records: Whether it needs a journal to write to.
    """

    name: str
    handler: Handler
    wakes_on: tuple[Wake, ...]
    emits: tuple[str, ...]
    service: str
    rights: tuple[Right, ...] = ()
    records: bool = False


def source_of(name: str) -> str:
    """The CloudEvents source of what a function, or the watch, emits."""
    return f"/modelplane/serving-stack/{name}"


class Poison(Exception):  # noqa: N818 - named for what the event is, not for what went wrong here
    """The event can never be handled: answered 422, so that the broker dead-letters it at once.

    The text goes into the dead letter, so it holds one line and no secret.
    """


class Later(Exception):  # noqa: N818 - named for what the sender should do
    """The event can be handled, not now: answered 503, so that the broker delivers it again.

    Attributes:
        retry_after: Seconds for the Retry-After header, None to leave the pace to the broker.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
