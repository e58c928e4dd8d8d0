"""What the probes take on the hub, and on a target: the objects that they look at, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions import rights
from functions.catalog import CustomResource
from functions.rights import Right

if TYPE_CHECKING:
    from functions.catalog import Component

ON_HUB: Final = (*rights.READ_CLUSTERS, *rights.WRITE_STATUS, *rights.READ_KUBECONFIGS)


def on_target(component: Component) -> tuple[Right, ...]:
    """The rights on a target."""
    return tuple(
        right
        for each in component.requirements
        for right in (
            (
                Right(rights.DEFINITIONS_GROUP, rights.DEFINITIONS, ("get",), (each.name,)),
                # Says why discovery does not tell of it.
                Right("apiregistration.k8s.io", "apiservices", ("get",), (f"{each.version}.{each.group}",)),
            )
            if isinstance(each, CustomResource)
            else (Right(each.group, each.plural, ("get",), (each.name,)),)
        )
    )
