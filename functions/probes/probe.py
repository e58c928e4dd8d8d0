"""What makes a component a probe: the function that judges it for one cluster when one of its objects changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from events import types
from functions.catalog import CustomResource
from functions.function import Function, Wake, source_of
from functions.probes.rights import ON_HUB
from functions.results import cluster_of, requirement_judged, requirements_judged
from functions.review import Ask, review

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.event import Event
    from functions.catalog import Component
    from functions.world import World

EMITS = (
    types.REQUIREMENT_MET,
    types.REQUIREMENT_MISSING,
    types.REQUIREMENT_UNKNOWN,
    types.REQUIREMENTS_MET,
    types.REQUIREMENTS_UNMET,
)


def probe(component: Component) -> Function:
    """The probe of a component.

    It answers every wake-up with what it found, the same id for the same finding, so that an event lost between
    write and answer is made good by the redelivery. An event that names no cluster is the cluster function's.
    """
    name = f"probes/{component.key}"
    source = source_of(name)

    async def handle(event: Event, world: World) -> Sequence[Event]:
        cluster = cluster_of(event)
        if cluster is None:
            return ()
        reviewed = await review(world, cluster, Ask(component=component, changed=event.extensions.get("name")))
        if reviewed is None:
            return ()
        now = world.clock.now()
        said = (requirement_judged(source, reviewed, component, now), requirements_judged(source, reviewed, now))
        return [each for each in said if each is not None]

    return Function(name=name, handler=handle, wakes_on=_wakes(component), emits=EMITS, service="probes", rights=ON_HUB)


def _wakes(component: Component) -> tuple[Wake, ...]:
    """Changes of exactly the objects that its requirements name."""
    crds = tuple(each.name for each in component.requirements if isinstance(each, CustomResource))
    classes = tuple(each.name for each in component.requirements if not isinstance(each, CustomResource))
    kinds = (("CustomResourceDefinition", crds), ("DeviceClass", classes))
    return tuple(
        Wake(type=types.OBJECT_CHANGED, attributes=(("kind", kind),), names=names) for kind, names in kinds if names
    )
