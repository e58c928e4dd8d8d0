"""Says how each composed object of an InferenceCluster stands, with the eyes of the functions, and writes nothing.

It makes the same passes over the same steps, without claiming the InferenceCluster or taking anything down.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from functions.access.errors import AccessError
from functions.catalog import component
from functions.compose.apply import Applier
from functions.compose.client_cas import ClientCAs
from functions.compose.explain_removal import explain_removal, explain_withdrawal
from functions.compose.explained import APPLY, PUT_RIGHT, Explained, ExplainedSet, Explanation, Standing
from functions.compose.ownership import hand_over_command
from functions.compose.passes import client_cas, look_at_target
from functions.compose.sets import COMPOSITIONS
from functions.compose.states import Reason
from functions.compose.step import Inputs
from functions.conditions import Status
from functions.function import Later
from functions.review import open_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.clusters import InferenceCluster
    from functions.compose.states import State
    from functions.compose.step import Composition, Step
    from functions.conditions import Condition
    from functions.world import World

_SETTLED_BY_PEOPLE: Final = frozenset({Reason.CONFLICT, Reason.REFUSED})
_NOT_JUDGED: Final = "the functions have not judged it yet"


async def explain(world: World, cluster: InferenceCluster) -> Explanation:
    """Looks at everything that is composed for an InferenceCluster; what cannot be told is said of each object."""
    deleting = cluster.deletion_timestamp is not None
    concerned = [
        each
        for each in COMPOSITIONS
        if cluster.stack in each.stacks or (deleting and each.finalizer in cluster.finalizers)
    ]
    try:
        target = (await open_target(world, cluster)).client.server
    except AccessError as trouble:
        unseen = [_unseen(cluster, each, trouble, at_hub=True) for each in concerned]
        return Explanation(cluster=cluster, target="", sets=tuple(unseen))
    sets = await asyncio.gather(*(_explain(world, cluster, each) for each in concerned))
    return Explanation(cluster=cluster, target=target, sets=tuple(sets))


async def _explain(world: World, cluster: InferenceCluster, composition: Composition) -> ExplainedSet:
    try:
        if cluster.deletion_timestamp is None:
            return await _coming(world, cluster, composition)
        objects = await explain_removal(world, cluster, composition)
    except AccessError as trouble:
        return _unseen(cluster, composition, trouble)
    except Later as later:
        if not isinstance(later.__cause__, AccessError):
            raise
        return _unseen(cluster, composition, later.__cause__, at_hub=True)
    return _set(cluster, composition, objects)


def _unseen(
    cluster: InferenceCluster, composition: Composition, trouble: AccessError, *, at_hub: bool = False
) -> ExplainedSet:
    """A set of a target that does not let itself be looked at."""
    steps = composition.steps if cluster.deletion_timestamp is None else reversed(composition.steps)
    objects = [
        Explained(step=each, standing=Standing.UNKNOWN, detail=str(trouble), trouble=trouble.reason, at_hub=at_hub)
        for each in steps
        if each.is_watched
    ]
    return _set(cluster, composition, objects)


def _set(
    cluster: InferenceCluster, composition: Composition, objects: list[Explained], left_out: tuple[str, ...] = ()
) -> ExplainedSet:
    condition = cluster.conditions.get(composition.condition)
    return ExplainedSet(composition=composition, condition=condition, objects=tuple(objects), left_out=left_out)


async def _coming(world: World, cluster: InferenceCluster, composition: Composition) -> ExplainedSet:
    """A set that is to be there."""
    authorities = ClientCAs()
    trouble: AccessError | Later | None = None
    try:
        authorities = await client_cas(world, composition)
        trouble = authorities.trouble
    except Later as found:  # which hides no other object
        trouble = found
    look = await look_at_target(world, composition, cluster)
    inputs = Inputs(cluster=cluster.name, uid=cluster.uid, client_cas=authorities)
    applier = Applier(look, composition, inputs, cluster.conditions, clock=world.clock, repairs=world.repairs)
    states = await applier.run()
    explained = {each.step.key: _explained(each, cluster, composition) for each in states}
    if trouble is not None:
        explained |= {each.step.key: _untold(each.step, trouble) for each in states if _needs_client_ca(each)}
    elif composition.has_gateway and not authorities.bundle:
        going = await explain_withdrawal(look, composition, cluster.uid, world.clock.now())
        because = authorities.missing
        explained |= {
            each.step.key: replace(each, detail="; ".join(filter(None, (each.detail, because)))) for each in going
        }
    return _set(cluster, composition, list(explained.values()), authorities.left_out)


def _needs_client_ca(state: State) -> bool:
    return state.step.client_ca and state.reason in {Reason.WAITING_FOR_CLIENT_CA, Reason.UNKNOWN}


def _untold(step: Step, trouble: AccessError | Later) -> Explained:
    """An object that rests on what the hub did not tell."""
    cause = trouble.__cause__ if isinstance(trouble, Later) else trouble
    reason = cause.reason if isinstance(cause, AccessError) else AccessError.reason
    detail = f"whether there is a client CA cannot be told: {trouble}"
    return Explained(step=step, standing=Standing.UNKNOWN, detail=detail, trouble=reason, at_hub=True)


def _explained(state: State, cluster: InferenceCluster, composition: Composition) -> Explained:
    """How an object stands that is to be there."""
    conditions = cluster.conditions
    explained = Explained(
        step=state.step,
        standing=_standing(state),
        applied=state.applied,
        waits_for=state.waits_for,
        detail=state.detail,
        since=_since(state, cluster),
        next=state.next,
        trouble=state.trouble,
    )
    if explained.standing is Standing.DUE:
        return _tried(explained, conditions.get(composition.condition))
    if explained.standing is Standing.CONFLICT:
        command = hand_over_command(state.step)
        return replace(explained, command=command) if state.detail.endswith(command) else explained
    if explained.standing is Standing.WAITING:
        explained = replace(explained, next=APPLY if state.step.manifest is not None else "")
        return _for_requirement(explained, conditions) if state.reason is Reason.WAITING_FOR_REQUIREMENTS else explained
    return explained


def _since(state: State, cluster: InferenceCluster) -> str:
    """Since when an object waits for another: not before its own components, and its InferenceCluster, were there."""
    if not state.since or state.reason is not Reason.WAITING_FOR_OBJECT:
        return state.since
    needed = [cluster.conditions.get(component(key).condition) for key in state.step.needs]
    return max(state.since, cluster.created, *(each.last_transition_time for each in needed if each is not None))


def _standing(state: State) -> Standing:
    if state.next:
        return Standing.DUE
    if state.applied:
        return Standing.READY if state.ready else Standing.NOT_READY
    alone = {
        Reason.CONFLICT: Standing.CONFLICT,
        Reason.REFUSED: Standing.REFUSED,
        Reason.UNKNOWN: Standing.UNKNOWN,
    }
    return alone.get(state.reason, Standing.WAITING)


def _for_requirement(explained: Explained, conditions: Mapping[str, Condition]) -> Explained:
    """The one component that it has waited for longest, with what is wrong with it."""
    closed = {
        key: condition
        for key in explained.step.needs
        if (condition := conditions.get(component(key).condition)) is None or condition.status is not Status.TRUE
    }
    if explained.waits_for != ", ".join(closed):  # its own API, which is not served
        return explained
    first = next(
        (key for key, each in closed.items() if each is not None and each.last_transition_time == explained.since),
        next(iter(closed)),
    )
    condition = closed.pop(first)
    detail = condition.message if condition is not None else _NOT_JUDGED
    besides = f"; then {', '.join(closed)}" if closed else ""
    return replace(explained, waits_for=first, detail=f"{detail}{besides}")


def _tried(due: Explained, condition: Condition | None) -> Explained:
    """What is due, unless the functions have tried it already and say why it is not done."""
    if condition is None or condition.reason not in _SETTLED_BY_PEOPLE:
        return due
    for part in condition.message.split("; "):
        names, _, said = part.partition(": ")
        if said and str(due.step) in names.split(", "):
            standing = Standing.CONFLICT if due.next == PUT_RIGHT else Standing.REFUSED
            return replace(due, standing=standing, detail=said, since=condition.last_transition_time, waits_for="")
    return due
