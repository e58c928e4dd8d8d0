"""Which clusters need a look? Turns whatever happened into requests for a check, and absorbs the noise.

Our own status writes come back as changes of the InferenceCluster; only a generation that was not judged, a deletion or
another kubeconfig is worth an event. The tick asks for every cluster, which also finds what no event told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from events import types
from events.codec import read
from functions import rights
from functions.access.errors import AccessError, Forbidden
from functions.access.targets import ABSENT
from functions.catalog import COMPONENTS, CustomResource
from functions.clusters import API_VERSION, SYSTEM_NAMESPACE
from functions.compose.sets import COMPOSITIONS
from functions.function import Function, Later, Poison, Wake, source_of
from functions.results import check_requested, deleting, object_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from events.event import Event
    from functions.access.targets import SecretVersion
    from functions.clusters import InferenceCluster
    from functions.world import World

NAME: Final = "cluster"
SOURCE: Final = source_of(NAME)


async def cluster(event: Event, world: World) -> Sequence[Event]:
    """Answers with a request for a check of each cluster that the event may have changed."""
    look = _BY_TYPE.get(event.type)
    if look is None and event.type.startswith(types.OBJECT_CHANGED):
        look = _BY_KIND.get(event.extensions.get("kind", ""))
    if look is None:
        return ()
    try:
        return await look(event, world)
    except AccessError as trouble:
        raise Later(f"hub: {trouble}") from trouble


async def _inference_cluster(event: Event, world: World) -> Sequence[Event]:
    found = await world.hub.cluster(_name(event))
    if found is None:
        await world.targets.forget(_name(event))
        return ()
    if not found.concerns_us:
        return ()
    if found.deletion_timestamp is not None:
        return (deleting(SOURCE, found, world.clock.now()),)
    if found.judged:
        return ()
    reason = "Changed" if found.conditions else "Created"
    return (check_requested(SOURCE, found, reason, None, world.clock.now(), observed=(str(found.generation),)),)


async def _secret(event: Event, world: World) -> Sequence[Event]:
    """A kubeconfig Secret changed: the clusters that name it."""
    if event.extensions.get("namespace") != SYSTEM_NAMESPACE:
        return ()
    name = _name(event)
    concerned = [
        each
        for each in await world.hub.clusters()
        if each.provided and each.kubeconfig is not None and each.kubeconfig.name == name
    ]
    if not concerned:
        return ()
    version = await world.hub.kubeconfig_version(name)
    observed = (version.uid, version.resource_version)
    return [
        check_requested(SOURCE, each, "KubeconfigChanged", version, world.clock.now(), observed=observed)
        for each in concerned
    ]


async def _provisioned(event: Event, world: World) -> Sequence[Event]:
    data = read(event, types.Provisioned)
    found = await world.hub.cluster(object_name(data.cluster, "cluster in the data"))
    if found is None or not found.provided:
        return ()
    version = await world.hub.kubeconfig_version(found.kubeconfig.name) if found.kubeconfig is not None else None
    return (
        check_requested(SOURCE, found, "Provisioned", version, world.clock.now(), observed=(event.source, event.id)),
    )


async def _tick(event: Event, world: World) -> Sequence[Event]:
    return await _every_cluster(event, world, types.TICK)


async def _object(event: Event, world: World) -> Sequence[Event]:
    """Something changed on a target; whoever it concerns looks where the event says in which cluster."""
    return () if event.extensions.get("cluster") else await _every_cluster(event, world, "Object")


async def _inference_gateway(event: Event, world: World) -> Sequence[Event]:
    """A client CA may have come or gone, which every cluster's gateway has to know."""
    return await _every_cluster(event, world, "ClientCA")


async def _every_cluster(event: Event, world: World, reason: str) -> Sequence[Event]:
    clusters = [each for each in await world.hub.clusters() if each.concerns_us]
    try:
        versions: Mapping[str, SecretVersion] | None = await world.hub.kubeconfig_versions() if clusters else {}
    except Forbidden:
        versions = None  # then each check is content with the Secret that it remembers
    said = [
        deleting(SOURCE, each, world.clock.now(), tick=reason == types.TICK, seen=_version(each, versions))
        for each in clusters
        if each.deletion_timestamp is not None
    ]
    said += [
        check_requested(
            SOURCE, each, reason, _version(each, versions), world.clock.now(), observed=(event.source, event.id)
        )
        for each in clusters
        if each.deletion_timestamp is None
    ]
    return said


def _version(found: InferenceCluster, versions: Mapping[str, SecretVersion] | None) -> SecretVersion | None:
    if versions is None or found.kubeconfig is None:
        return None
    return versions.get(found.kubeconfig.name, ABSENT)


def _name(event: Event) -> str:
    name = event.extensions.get("name")
    if not name:
        raise Poison(f"{event.type} without extension name says nothing about which object changed")
    return object_name(name, "extension name")


_BY_TYPE: Final = {types.PING: _tick, types.PROVISIONED: _provisioned}
_COMPOSED: Final = tuple(step for each in COMPOSITIONS for step in each.steps if step.is_watched)
_BY_KIND: Final = {
    **dict.fromkeys(("CustomResourceDefinition", "DeviceClass", *(each.kind.name for each in _COMPOSED)), _object),
    "InferenceCluster": _inference_cluster,
    "InferenceGateway": _inference_gateway,
    "Secret": _secret,
}


def _wakes() -> tuple[Wake, ...]:
    requirements = [one for each in COMPONENTS for one in each.requirements]
    crds = [each.name for each in requirements if isinstance(each, CustomResource)]
    crds += [name for each in COMPOSITIONS for name in each.definitions]
    classes = [each.name for each in requirements if not isinstance(each, CustomResource)]
    names: dict[tuple[tuple[str, str], ...], list[str]] = {
        (("kind", "CustomResourceDefinition"),): crds,
        (("kind", "DeviceClass"),): classes,
    }
    for step in _COMPOSED:
        names.setdefault(step.kind.attributes, []).append(step.name)
    return (
        _changes(kind="InferenceCluster", apiversion=API_VERSION),
        _changes(kind="InferenceGateway", apiversion=API_VERSION),
        _changes(kind="Secret", namespace=SYSTEM_NAMESPACE),
        *(
            Wake(type=types.OBJECT_CHANGED, attributes=attributes, names=tuple(each))
            for attributes, each in names.items()
        ),
        Wake(type=types.PING),
        Wake(type=types.PROVISIONED),
    )


def _changes(**attributes: str) -> Wake:
    return Wake(type=types.OBJECT_CHANGED, attributes=tuple(attributes.items()))


FUNCTION: Final = Function(
    name=NAME,
    handler=cluster,
    wakes_on=_wakes(),
    emits=(types.CHECK_REQUESTED, types.DELETING),
    service="cluster",
    rights=(*rights.LIST_CLUSTERS, *rights.LIST_KUBECONFIGS),
)
