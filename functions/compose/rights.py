"""What a set of composed objects takes on the target, from its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions import rights
from functions.compose import kinds
from functions.compose.client_cas import ClientCAs
from functions.compose.step import Inputs
from functions.rights import DEFINITIONS, DEFINITIONS_GROUP, Right

if TYPE_CHECKING:
    from functions.compose.step import Composition, Step


def on_hub(composition: Composition) -> tuple[Right, ...]:
    """The rights on the hub."""
    return (
        *rights.READ_CLUSTERS,
        *rights.WRITE_STATUS,
        *rights.WRITE_FINALIZERS,
        *rights.READ_KUBECONFIGS,
        *rights.TELL,
        *(rights.LIST_INFERENCE_GATEWAYS if composition.has_gateway else ()),
    )


def on_target(composition: Composition) -> tuple[Right, ...]:
    """The rights on a target, where namespace modelplane-system is there already."""
    brought = {step.kind.definition for step in composition.steps if not step.kind.built_in}
    return (
        *(
            Right(step.kind.group, step.kind.plural, _verbs(step), (step.name,), step.namespace)
            for step in composition.steps
        ),
        *(right for step in composition.steps if step.kind == kinds.ROLE for right in _handed_on(step)),
        *(_instances(step) for step in composition.steps if step.kind == kinds.DEFINITION),
        # Only a definition that is not there proves that nothing of its kind is left.
        *(Right(DEFINITIONS_GROUP, DEFINITIONS, ("get",), (each,)) for each in sorted(brought)),
        # A GatewayClass stays while somebody else's Gateway uses it.
        *(
            Right(kinds.GATEWAY.group, kinds.GATEWAY.plural, ("list",))
            for step in composition.steps
            if step.kind == kinds.GATEWAY_CLASS
        ),
    )


def _verbs(step: Step) -> tuple[str, ...]:
    if step.shared:
        return ("get", "patch")
    if step.made_for:
        return ("get", "delete")
    return ("get",) if step.manifest is None else ("get", "create", "patch", "delete")


def _handed_on(step: Step) -> list[Right]:
    """Whoever creates a Role has to have what it grants."""
    assert step.manifest is not None  # noqa: S101 - a Role that nobody applies grants nothing
    rules = step.manifest(Inputs(cluster="", uid="", client_cas=ClientCAs()))["rules"]
    return [
        Right(group, resource, tuple(rule["verbs"]), namespace=step.namespace)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]


def _instances(step: Step) -> Right:
    """A definition that is deleted before anybody asked for its instances may stay for minutes."""
    plural, _, group = step.name.partition(".")
    return Right(group, plural, ("list",))
