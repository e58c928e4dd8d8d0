"""ServiceAccounts and what each may do, from what the functions, the watch and the sources say that they take."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from functions.catalog import Stack, of_stack
from functions.compose.rights import on_target as for_objects
from functions.compose.sets import COMPOSITIONS
from functions.deploy_files import NAMESPACE
from functions.manifests.form import documents
from functions.probes.rights import on_target as for_component
from functions.rights import REVIEW_TOKENS, Right, atoms
from functions.watch import rights as for_watch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from functions.function import Function

RBAC: Final = "rbac.authorization.k8s.io"
WATCH: Final = "watch"
TARGET: Final = "modelplane"
"""The ServiceAccount on a target, which the functions on the hub use."""


def hub_accounts(functions: Iterable[Function]) -> dict[str, tuple[Right, ...]]:
    """What each ServiceAccount of the hub takes: one for each Service, and one for the watch source."""
    accounts: dict[str, tuple[Right, ...]] = {}
    for each in functions:
        accounts[each.service] = (*accounts.get(each.service, ()), *each.rights)
    return {**accounts, WATCH: for_watch.ON_HUB}


def on_target(stack: Stack) -> tuple[Right, ...]:
    """What the ServiceAccount of a target takes, where namespace modelplane-system is there already."""
    return (
        *(right for component in of_stack(stack) for right in for_component(component)),
        *(right for each in COMPOSITIONS if stack in each.stacks for right in for_objects(each)),
        *for_watch.on_target(stack),
    )


def permissions(accounts: Mapping[str, Iterable[Right]]) -> str:
    """YAML with ServiceAccounts in our namespace, their Roles and ClusterRoles, and the bindings."""
    return documents(
        each
        for name, rights in accounts.items()
        for each in (_account(name), *_roles(name, f"{NAMESPACE}-{name}", rights))
    )


def token_reviews(functions: Iterable[Function]) -> str:
    """YAML with what each Service takes besides where its callers have to show a token."""
    services = dict.fromkeys(each.service for each in functions)
    return documents(each for name in services for each in _roles(name, f"{NAMESPACE}-{name}-tokens", REVIEW_TOKENS))


def _account(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}


def _roles(name: str, role: str, rights: Iterable[Right]) -> Iterator[dict[str, Any]]:
    for namespace, rules in _rules(rights).items():
        kind = "Role" if namespace else "ClusterRole"
        metadata = {"name": role, "namespace": namespace} if namespace else {"name": role}
        yield {
            "apiVersion": f"{RBAC}/v1",
            "kind": kind,
            "metadata": metadata,
            "rules": [each.to_object() for each in rules],
        }
        yield {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }


class _Rule(NamedTuple):
    group: str
    resources: tuple[str, ...]
    names: tuple[str, ...]
    verbs: tuple[str, ...]

    def to_object(self) -> dict[str, Any]:
        named = {"resourceNames": list(self.names)} if self.names else {}
        return {"apiGroups": [self.group], "resources": list(self.resources), **named, "verbs": list(self.verbs)}


def _rules(rights: Iterable[Right]) -> dict[str, list[_Rule]]:
    """The rules by their namespace; what differs in verbs, names or resources alone is one rule."""
    verbs: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    names: defaultdict[tuple[str, str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    resources: defaultdict[tuple[str, str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for namespace, group, resource, name, verb in sorted(atoms(rights)):
        verbs[namespace, group, resource, name].append(verb)
    for (namespace, group, resource, name), may in verbs.items():
        names[namespace, group, resource, tuple(may)].append(name)
    for (namespace, group, resource, can), of in names.items():
        resources[namespace, group, tuple(filter(None, of)), can].append(resource)
    rules: defaultdict[str, list[_Rule]] = defaultdict(list)
    for (namespace, group, which, can), on in resources.items():
        rules[namespace].append(_Rule(group, tuple(on), which, can))
    return rules
