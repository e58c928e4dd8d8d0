"""Judges every component of one cluster at once and writes once: on a request for a check, such as each tick's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from events import types
from events.codec import read
from functions.access.targets import SecretVersion
from functions.catalog import of_stack
from functions.conditions import REQUIREMENTS_MET
from functions.counts import COUNTS, UNANNOUNCED
from functions.function import Function, Poison, Wake, source_of
from functions.probes.probe import EMITS
from functions.probes.rights import ON_HUB
from functions.results import cluster_of, requirement_judged, requirements_judged
from functions.review import Ask, review

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.event import Event
    from functions.world import World

NAME: Final = "probes/sweep"
SOURCE: Final = source_of(NAME)


async def sweep(event: Event, world: World) -> Sequence[Event]:
    """Publishes only what the look changed: an unchanged cluster is silent."""
    cluster = cluster_of(event)
    if cluster is None:
        raise Poison("a check was requested without saying of which cluster: extension cluster is missing")
    requested = read(event, types.CheckRequested)
    kubeconfig = requested.kubeconfig
    seen = SecretVersion(kubeconfig.uid, kubeconfig.resource_version) if kubeconfig is not None else None
    tick = requested.reason == types.TICK
    reviewed = await review(world, cluster, Ask(seen=seen, tick=tick))
    if reviewed is None or reviewed.cluster.stack is None:
        return ()
    now = world.clock.now()
    changed = {each.type for each in reviewed.changed}
    if tick:
        COUNTS[UNANNOUNCED] += len(changed & reviewed.before.keys() - {REQUIREMENTS_MET})
    said = [
        requirement_judged(SOURCE, reviewed, component, now)
        for component in of_stack(reviewed.cluster.stack)
        if component.condition in changed
    ]
    said.append(requirements_judged(SOURCE, reviewed, now))
    return [each for each in said if each is not None]


FUNCTION = Function(
    name=NAME,
    handler=sweep,
    wakes_on=(Wake(type=types.CHECK_REQUESTED),),
    emits=EMITS,
    service="probes",
    rights=ON_HUB,
)
