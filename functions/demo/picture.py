"""What the demonstration has seen of the API server, and how each condition and each object stands by it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from functions.catalog import component
from functions.clusters import InferenceCluster
from functions.compose.gateway import NAMESPACE, ROUTES_FROM
from functions.compose.ownership import OWNER_UID, annotations_of
from functions.compose.readiness import exists
from functions.compose.report import REMOVING
from functions.compose.states import Reason
from functions.conditions import REQUIREMENTS_MET, Status, checked_components

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from functions.catalog import Stack
    from functions.compose.step import Composition, Step
    from functions.conditions import Condition


class Mood(Enum):
    """What a row means to who looks at it."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    UNDERWAY = "underway"
    WAITING = "waiting"
    NEXT = "next"
    GONE = "gone"


_CLIENT_CA: Final = "client CA"
_MOODS: Final = {Status.TRUE: Mood.GOOD, Status.FALSE: Mood.BAD, Status.UNKNOWN: Mood.UNKNOWN}
_UNMET: Final = {"Checking": Mood.UNKNOWN, Reason.WAITING_FOR_OBJECT: Mood.UNDERWAY, REMOVING: Mood.UNDERWAY}
"""Reasons that say how it is meant that a condition is not met."""
_LONG: Final = 10_000.0
"""Milliseconds from which on they are told in seconds."""
_ROLES: Final = {
    "Issuer modelplane-selfsigned": "Issuer (selfsigned)",
    "Issuer modelplane-cluster-ca": "Issuer (cluster CA)",
    "Certificate modelplane-cluster-ca": "Certificate (CA)",
    "Certificate cluster-gateway-serving": "Certificate (TLS)",
    "ConfigMap modelplane-cluster-ca": "ConfigMap (its CA)",
    "ConfigMap modelplane-inference-gateway-cas": "ConfigMap (clients)",
}
"""How objects of one kind are told apart where there is no room for names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How a condition or an object stands.

    Attributes:
        name: Of the component, the condition or the object.
        short: The same in 19 characters at most where it is an object's.
        mood: What it means.
        status: Of a condition; empty for an object.
        text: In words.
        news: Differs where there is something new to say.
        after: Milliseconds that a condition took to follow; None where nothing is known of its cause.
    """

    name: str
    short: str
    mood: Mood
    status: str = ""
    text: str
    news: str
    after: float | None = None


class Picture:
    """What is there of one InferenceCluster and of one set of objects, and since when.

    All moments are seconds of one monotonic clock.

    Attributes:
        cluster: The InferenceCluster as it was seen last; None before it was seen.
        gone: Whether it is there no more.
        reasons: Of the Kubernetes Events on it, in order, each once in a row.
        followed: Milliseconds that each change of a condition took to follow.
    """

    def __init__(self, stack: Stack, composition: Composition) -> None:
        """An empty picture.

        Args:
            stack: Decides which components have a condition.
            composition: The set whose objects are looked at.
        """
        self.cluster: InferenceCluster | None = None
        self.gone = False
        self.reasons: list[str] = []
        self.followed: list[float] = []
        self._composition = composition
        self._steps = {each.key: each for each in composition.steps if each.is_watched}
        self._components = {each.condition: each.key for each in checked_components(stack)}
        self._objects: dict[str, Mapping[str, Any]] = {}
        self._since: dict[str, float] = {}
        self._after: dict[str, float] = {}
        self._applied: dict[str, float] = {}
        self._deleted: float | None = None
        self._left: dict[str, float] = {}

    @property
    def deleting(self) -> bool:
        """Whether the InferenceCluster is being deleted, or is gone."""
        return self._deleted is not None

    @property
    def published(self) -> Mapping[str, str]:
        """`status.gateway` of the InferenceCluster."""
        return self.cluster.gateway if self.cluster is not None else {}

    @property
    def applied(self) -> list[float]:
        """Milliseconds from the last of what an object waited for to the object, of each that was applied."""
        return list(self._applied.values())

    @property
    def torn_down(self) -> float:
        """Milliseconds from the deletion of the InferenceCluster to its going."""
        return self._left.get("", 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether neither the InferenceCluster nor any object of the set is there any more."""
        return self.gone and not self._objects

    def condition(self, type_: str) -> Condition | None:
        """A condition of the InferenceCluster as it was seen last."""
        return self.cluster.conditions.get(type_) if self.cluster is not None else None

    def since(self, condition: str) -> float:
        """The moment at which a condition was seen to turn to the status that it has."""
        return self._since[f"{condition} turned"]

    def live(self, key: str) -> Mapping[str, Any] | None:
        """An object of the set by its step's key; None where it is not there, or is not ours."""
        return self._objects.get(key)

    def stands(self, key: str) -> bool:
        """Whether an object is there, ready and as it should be."""
        found = self._objects.get(key)
        return found is not None and self._standing(self._steps[key], found)[0] is Mood.GOOD

    def see_cluster(self, found: dict[str, Any] | None, now: float) -> None:
        """The InferenceCluster was seen; None where it is not there."""
        if found is None:
            self.gone = self.cluster is not None
            if self._deleted is not None:
                self._left.setdefault("", (now - self._deleted) * 1000)
            return
        before, self.cluster = self.cluster, InferenceCluster.from_object(found)
        if self.cluster.deletion_timestamp is not None and self._deleted is None:
            self._deleted = now
        for type_, each in self.cluster.conditions.items():
            known = before.conditions.get(type_) if before is not None else None
            if known is None or known.status is not each.status:
                self._since[f"{type_} turned"] = now
            self._note(type_, now, holds=each.status is Status.TRUE)

    def see_objects(self, kind: str, found: Mapping[str, dict[str, Any]] | None, now: float) -> None:
        """These are all objects of one kind that are there, by name; None where their API is not served.

        Those that are none of ours are left out.
        """
        self._note(f"{kind} served", now, holds=found is not None)
        for step in self._steps.values():
            if step.kind.name == kind:
                self._see(step, (found or {}).get(step.name), now)

    def see_client_ca(self, now: float, *, published: bool) -> None:
        """Whether an InferenceGateway publishes a client CA."""
        self._note(_CLIENT_CA, now, holds=published)

    def see_events(self, reasons: Iterable[str]) -> None:
        """These are the reasons of all Kubernetes Events on the InferenceCluster, in order."""
        self.reasons = [reason for reason, _ in groupby(reasons)]

    def follows(self, condition: str, made: float) -> float:
        """Notes that what a condition follows was made at that moment; milliseconds that it took."""
        milliseconds = max(0.0, (self.since(condition) - made) * 1000)
        self._after[condition] = milliseconds
        self.followed.append(milliseconds)
        return milliseconds

    def summaries(self) -> Iterator[Row]:
        """The conditions over all requirements, and over all objects."""
        for type_ in (REQUIREMENTS_MET, self._composition.condition):
            found = self.condition(type_)
            if found is not None:
                yield self._row(type_, found, news=found.reason)

    def conditions(self) -> Iterator[Row]:
        """The conditions of the components."""
        for type_, name in self._components.items():
            found = self.condition(type_)
            if found is not None:
                yield self._row(name, found, news=str(found.status))

    def objects(self) -> Iterator[Row]:
        """The objects of the set in the order in which they are applied; in reverse while they are taken down.

        None before something was said of them.
        """
        if self.condition(self._composition.condition) is None:
            return
        steps = reversed(self._steps.values()) if self.deleting else self._steps.values()
        for step in steps:
            mood, text = self._standing(step, self._objects.get(step.key))
            yield Row(name=step.key, short=_ROLES.get(step.key, step.kind.name), mood=mood, text=text, news=text)
        if self.cluster is not None and self.deleting:
            name = f"InferenceCluster {self.cluster.name}"
            mood, text = self._of_cluster(self.cluster)
            yield Row(name=name, short=name, mood=mood, text=text, news=text)

    def _row(self, name: str, found: Condition, *, news: str) -> Row:
        """Says what a condition means: while nothing was looked at yet, nothing is a miss."""
        mood = _MOODS[found.status] if found.status is Status.TRUE else _UNMET.get(found.reason, _MOODS[found.status])
        return Row(
            name=name,
            short=name,
            mood=mood,
            status=str(found.status),
            text=found.reason,
            news=news,
            after=self._after.get(found.type),
        )

    def _see(self, step: Step, found: dict[str, Any] | None, now: float) -> None:
        if found is not None and not _is_ours(step, found):
            found = None
        if found is None:
            was_there = self._objects.pop(step.key, None) is not None
            if was_there and self._deleted is not None:
                self._left[step.key] = (now - self._deleted) * 1000
        else:
            if step.key not in self._objects and step.manifest is not None and not step.shared:
                self._applied[step.key] = max(0.0, (now - self._opened(step, now)) * 1000)
            self._objects[step.key] = found
        self._note(f"{step.key} applied", now, holds=found is not None)
        self._note(f"{step.key} ready", now, holds=found is not None and step.ready(found) is None)

    def _note(self, thing: str, now: float, *, holds: bool) -> None:
        if holds:
            self._since.setdefault(thing, now)
        else:
            self._since.pop(thing, None)

    def _standing(self, step: Step, found: Mapping[str, Any] | None) -> tuple[Mood, str]:
        """How an object stands, in 25 characters at most."""
        if found is None:
            return self._absent(step)
        if "deletionTimestamp" in found["metadata"]:
            return Mood.UNDERWAY, "held by its controller" if found["metadata"].get("finalizers") else "going"
        return self._present(step, found)

    def _present(self, step: Step, found: Mapping[str, Any]) -> tuple[Mood, str]:
        if step.shared:
            return Mood.GOOD, "was there, is labelled"
        if step.manifest is None:
            return Mood.GOOD, "made by its controller"
        added = found.get("spec", {}).get("listeners", ())[1:]
        if added:
            return Mood.BAD, f"listens on port {added[0]['port']} too"
        took = f"applied in {duration(self._applied[step.key])}"
        if step.ready(found) is not None:
            return Mood.UNDERWAY, took
        return Mood.GOOD, took if step.ready is exists else f"ready, {took}"

    def _absent(self, step: Step) -> tuple[Mood, str]:
        if step.shared and self.deleting:
            return Mood.GOOD, "stays, its label is off"
        if step.key in self._left:
            return Mood.GONE, f"gone after {duration(self._left[step.key])}"
        for thing, called in self._gate(step):
            if thing not in self._since:
                return Mood.WAITING if thing in {*self._components, _CLIENT_CA} else Mood.NEXT, f"waits for {called}"
        return Mood.NEXT, "comes next" if step.manifest is not None else "waits for its controller"

    def _of_cluster(self, cluster: InferenceCluster) -> tuple[Mood, str]:
        if self.gone:
            return Mood.GONE, f"gone after {duration(self.torn_down)}"
        held = ", ".join(cluster.finalizers)
        return Mood.UNDERWAY, f"held by {held}" if held else "going"

    def _gate(self, step: Step) -> Iterator[tuple[str, str]]:
        """What an object waits for, as it is noted here and as it is called."""
        for key in step.needs:
            yield component(key).condition, key
        if step.client_ca:
            yield _CLIENT_CA, "a client CA"
        yield f"{step.kind.name} served", "its API"
        for key in step.after:
            yield f"{key} applied", _called(key)
        for key in step.awaits:
            yield f"{key} ready", _called(key)

    def _opened(self, step: Step, now: float) -> float:
        """The moment at which the last of what an object waits for was there; now where that is still to be seen."""
        return max((self._since.get(thing, now) for thing, _ in self._gate(step)), default=now)


def duration(milliseconds: float) -> str:
    """In milliseconds or, where it is long, in seconds."""
    return f"{milliseconds:.0f} ms" if milliseconds < _LONG else f"{milliseconds / 1000:.1f} s"


def _is_ours(step: Step, found: Mapping[str, Any]) -> bool:
    """Whether an object carries the owner mark, or what we add to one that others made."""
    if step.shared:
        return (found["metadata"].get("labels") or {}).get(ROUTES_FROM) == NAMESPACE
    return step.manifest is None or OWNER_UID in annotations_of(found)


def _called(key: str) -> str:
    return _ROLES.get(key, key.partition(" ")[0])
