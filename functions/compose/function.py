"""What makes a set of objects a function: what wakes it, and what it answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from events import types
from events.codec import read
from functions.access.targets import SecretVersion
from functions.compose import kinds
from functions.compose.passes import Ask
from functions.compose.reconcile import reconcile
from functions.compose.rights import on_hub
from functions.compose.states import Reason
from functions.conditions import Status
from functions.function import Function, Later, Wake, source_of
from functions.results import cluster_of, composition_judged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.event import Event
    from functions.compose.reconcile import Reconciled
    from functions.compose.step import Composition
    from functions.world import World

EMITS: Final = (
    types.COMPOSITION_APPLIED,
    types.COMPOSITION_WAITING,
    types.COMPOSITION_CONFLICT,
    types.COMPOSITION_REMOVED,
)


def composing(composition: Composition) -> Function:
    """The function that sees to a set.

    It answers every wake-up but a tick's with how the set stands, the same id for the same standing, so that an event
    lost between write and answer is made good by the redelivery. An event that names no cluster is the cluster
    function's.
    """
    name = f"compose/{composition.name}"
    source = source_of(name)

    async def handle(event: Event, world: World) -> Sequence[Event]:
        cluster = cluster_of(event)
        if cluster is None:
            return ()
        ask = _ask(event)
        reconciled = await reconcile(world, composition, cluster, ask)
        if reconciled is None:
            return ()
        if reconciled.passing and not ask.tick:
            raise Later(reconciled.passing)
        if ask.tick and not reconciled.changed:
            return ()
        said, now = reconciled.condition, world.clock.now()
        type_ = _type(reconciled)
        return (composition_judged(source, reconciled.cluster, composition.name, type_, condition=said, now=now),)

    return Function(
        name=name,
        handler=handle,
        wakes_on=_wakes(composition),
        emits=EMITS,
        service="compose",
        rights=on_hub(composition),
    )


def _ask(event: Event) -> Ask:
    if event.type == types.CHECK_REQUESTED:
        requested = read(event, types.CheckRequested)
        return Ask(seen=_seen(requested.kubeconfig), tick=requested.reason == types.TICK)
    if event.type == types.DELETING:
        deleting = read(event, types.Deleting)
        return Ask(seen=_seen(deleting.kubeconfig), tick=deleting.tick)
    return Ask()


def _seen(kubeconfig: types.KubeconfigVersion | None) -> SecretVersion | None:
    return None if kubeconfig is None else SecretVersion(kubeconfig.uid, kubeconfig.resource_version)


def _type(reconciled: Reconciled) -> str:
    if reconciled.removed:
        return types.COMPOSITION_REMOVED
    if reconciled.condition.status is Status.TRUE:
        return types.COMPOSITION_APPLIED
    return types.COMPOSITION_CONFLICT if reconciled.condition.reason == Reason.CONFLICT else types.COMPOSITION_WAITING


def _wakes(composition: Composition) -> tuple[Wake, ...]:
    """A component of a gate is there, somebody wants a look, or one of its objects changed."""
    needed = dict.fromkeys(key for step in composition.steps for key in step.needs)
    names: dict[tuple[tuple[str, str], ...], list[str]] = {}
    if composition.definitions:
        names[("kind", kinds.DEFINITION.name),] = list(composition.definitions)
    for step in composition.steps:
        if step.is_watched:
            names.setdefault(step.kind.attributes, []).append(step.name)
    return (
        Wake(type=types.CHECK_REQUESTED),
        Wake(type=types.DELETING),
        *(Wake(type=types.REQUIREMENT_MET, attributes=(("component", key),)) for key in needed),
        *(
            Wake(type=types.OBJECT_CHANGED, attributes=attributes, names=tuple(each))
            for attributes, each in names.items()
        ),
    )
