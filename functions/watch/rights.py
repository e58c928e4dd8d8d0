"""What the watch source takes on the hub, and on a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions import rights
from functions.rights import Right
from functions.watch.composed import composed
from functions.watch.source import INFERENCE_CLUSTERS, INFERENCE_GATEWAYS, SECRETS
from functions.watch.target import CRDS, DEVICE_CLASSES

if TYPE_CHECKING:
    from functions.catalog import Stack
    from functions.watch.reflector import Resource

_FOLLOW: Final = ("list", "watch")


def _follow(resource: Resource) -> Right:
    group = resource.api_version.rpartition("/")[0]
    names = (resource.name,) if resource.name else ()
    return Right(group, resource.plural, _FOLLOW, names, resource.namespace)


ON_HUB: Final = (
    *rights.GET_CLUSTERS,  # it watches the definitions anyway
    *rights.READ_KUBECONFIGS,
    *(_follow(each) for each in (INFERENCE_CLUSTERS, INFERENCE_GATEWAYS, SECRETS, CRDS)),
)


def on_target(stack: Stack) -> tuple[Right, ...]:
    """The rights on a target of this stack."""
    return tuple(_follow(each) for each in (CRDS, DEVICE_CLASSES, *composed(stack)))
