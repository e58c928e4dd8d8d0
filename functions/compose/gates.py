"""What an object waits for before it is applied first: components, a client CA, its own API, other objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.catalog import component
from functions.compose.ownership import is_handed_over, is_ours
from functions.compose.states import Reason, State, unserved
from functions.conditions import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from functions.compose.look import Look
    from functions.compose.step import Composition, Inputs, Step
    from functions.conditions import Condition


class Gates:
    """The gates of a set on one cluster.

    Attributes:
        states: How the objects stand that come before, by their steps' keys; filled by whoever applies them.
    """

    def __init__(
        self, look: Look, composition: Composition, inputs: Inputs, conditions: Mapping[str, Condition]
    ) -> None:
        """Keep what the gates go by.

        Args:
            look: What is there.
            composition: The set.
            inputs: What its objects are made from.
            conditions: Those of the InferenceCluster by type.
        """
        self.states: dict[str, State] = {}
        self._look = look
        self._composition = composition
        self._inputs = inputs
        self._conditions = conditions

    def closed(self, step: Step) -> State | None:
        """What an object waits for that is not there yet; None where it may be applied."""
        closed = [] if self._is_rested_on(step) else list(self._unmet(step))
        if closed:
            since = min((each.last_transition_time for _, each in closed if each is not None), default="")
            names = ", ".join(key for key, _ in closed)
            return State(step=step, reason=Reason.WAITING_FOR_REQUIREMENTS, waits_for=names, since=since)
        if step.client_ca and not self._inputs.client_cas.bundle:
            return self.withheld(step)
        foreign = self._foreign_beside(step)
        if foreign is not None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(foreign), detail="it is not ours")
        if not all(self._look.serves(step.kind, verb) for verb in ("get", "create", "patch")):
            return unserved(step)
        return self.rests_on(step, step.after, step.awaits)

    def rests_on(self, step: Step, applied: Iterable[str], ready: Iterable[str] = ()) -> State | None:
        """The first of the objects that it rests on that is not there, or not ready; None where all of them are."""
        others = [self.states[key] for key in applied if not self.states[key].applied]
        others += [self.states[key] for key in ready if not self.states[key].ready]
        if not others:
            return None
        return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(others[0].step), since=others[0].since)

    def _foreign_beside(self, step: Step) -> Step | None:
        """The object of somebody else that this one would change the callers of; None where there is none."""
        for other in self._composition.steps:
            found = self._look.found.get(other.key)
            if found is None or not other.guarded or step.key not in other.after:
                continue
            if not is_ours(found, self._inputs.uid) and not is_handed_over(found):
                return other
        return None

    def _unmet(self, step: Step) -> Iterator[tuple[str, Condition | None]]:
        for key in step.needs:
            found = self._conditions.get(component(key).condition)
            if found is None or found.status is not Status.TRUE:
                yield key, found

    def _is_rested_on(self, step: Step) -> bool:
        """Whether an object of ours rests on this one, which was there before then, and is put back unasked.

        That is so also where what lies between the two is gone as well.
        """
        return any(
            step.key in (*other.after, *other.awaits) and (self.is_there(other) or self._is_rested_on(other))
            for other in self._composition.steps
        )

    def is_there(self, step: Step) -> bool:
        """Whether an object of ours is there."""
        found = self._look.found.get(step.key)
        return found is not None and is_ours(found, self._inputs.uid)

    def withheld(self, step: Step) -> State:
        """Of an object that exists only while there is a client CA, of which there is none."""
        missing = self._inputs.client_cas.missing
        return State(step=step, reason=Reason.WAITING_FOR_CLIENT_CA, waits_for="a client CA", detail=missing)
