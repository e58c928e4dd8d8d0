"""What teardown must not take along, and what it must not forget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from functions.access.diagnosis import not_kubernetes
from functions.access.errors import Forbidden, NotFound
from functions.compose import kinds
from functions.compose.ownership import annotations_of, is_ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from functions.access.client import Client
    from functions.compose.look import Look

_AT_ONCE: Final = 8
_NAMED: Final = 3
_PASSING: Final = frozenset({"events", "endpoints", "endpointslices", "leases", "controllerrevisions"})
"""What is left behind by those who work in a namespace, and says nothing of whether anybody lives there."""
_METRICS: Final = "metrics.k8s.io"
_UNSEEN: Final = "what lives in it cannot be seen: {}"
_IN_EVERY_NAMESPACE: Final = frozenset({("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")})


def was_made_for(found: Mapping[str, Any], maker: str) -> bool:
    """Whether cert-manager made a Secret for the Certificate of this step, whose name it notes on it."""
    return annotations_of(found).get("cert-manager.io/certificate-name") == maker.rpartition(" ")[2]


async def foreign_gateways(look: Look, found: Mapping[str, Any], uid: str) -> str:
    """The Gateways of others that use a GatewayClass; their listeners would go with it.

    Raises:
        AccessError: They cannot be seen.
    """
    if not look.serves(kinds.GATEWAY, "list") and await look.proves_gone(kinds.GATEWAY):
        return ""
    users = [
        f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        async for each in look.client.pages(kinds.GATEWAY.path())
        if (each.get("spec") or {}).get("gatewayClassName") == found["metadata"]["name"]
        and not (is_ours(each, uid) and _is_among(look, each))
    ]
    return f"Gateway {_some(users)} uses it" if users else ""


async def foreign_class(look: Look, found: Mapping[str, Any], uid: str) -> str:
    """A GatewayClass of others that takes an EnvoyProxy's parameters, be it one that was ours until it had to stay."""
    for each in look.found.values():
        if each["kind"] == kinds.GATEWAY_CLASS.name and not is_ours(each, uid):
            parameters = each["spec"].get("parametersRef") or {}
            if all(parameters.get(key) == found["metadata"][key] for key in ("name", "namespace")):
                return f"GatewayClass {each['metadata']['name']} needs it"
    return ""


async def foreign_gateway(look: Look, found: Mapping[str, Any], uid: str) -> str:  # noqa: ARG001 - as all of them
    """A Gateway of others under the name of ours, whose callers have to go on showing a certificate."""
    for each in look.found.values():
        if each["kind"] == kinds.GATEWAY.name and not is_ours(each, uid):
            return f"Gateway {each['metadata']['name']}, which is not ours, lets callers in by it"
    return ""


async def foreign_in_namespace(look: Look, found: Mapping[str, Any], uid: str) -> str:
    """What lives in a namespace that is not ours; where not all of it may be seen, it is taken to be inhabited.

    Raises:
        AccessError: Not all of it can be seen just now.
    """
    namespace = found["metadata"]["name"]
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def of(api_version: str, plural: str) -> list[tuple[str, dict[str, Any]]]:
        kind = kinds.Kind(api_version, "", plural)
        async with at_once:
            try:
                return [
                    (f"{plural}/{each['metadata']['name']}", each)
                    async for each in look.client.pages(kind.path(namespace=namespace), metadata_only=True)
                    if (plural, each["metadata"]["name"]) not in _IN_EVERY_NAMESPACE
                ]
            except NotFound as absent:  # its API may have gone since it was asked what is served
                if absent.kind_known or not await look.proves_gone(kind):
                    raise
                return []

    stale = [each for each in look.discovery.stale() if not each.partition("/")[0].endswith(_METRICS)]
    if stale:
        return _UNSEEN.format(f"the API server cannot ask the one behind {_some(stale)}")
    if not look.discovery.complete:
        return _UNSEEN.format("the API server does not tell of all its APIs at once")
    try:
        resources = [*await _core(look.client), *look.discovery.listable()]
    except Forbidden as trouble:
        return _UNSEEN.format(trouble)
    listed = await asyncio.gather(*(of(*each) for each in resources if not _is_passing(*each)), return_exceptions=True)
    there: list[tuple[str, dict[str, Any]]] = []
    for each in listed:
        if isinstance(each, Forbidden):
            return _UNSEEN.format(each)
        if isinstance(each, BaseException):
            raise each
        there += each
    living = sorted(_living(look, there, uid))
    return f"{_some(living)} lives in it" if living else ""


async def _core(client: Client) -> list[tuple[str, str]]:
    """The listable namespaced resources of the core group, which discovery of the others leaves out."""
    document = await client.get("/api/v1")
    try:
        found = [
            ("v1", each["name"])
            for each in document["resources"]
            if each["namespaced"] and "list" in each["verbs"] and "/" not in each["name"]
        ]
    except (KeyError, TypeError):
        found = []
    if not found:  # nothing that is no answer may pass for an empty namespace
        raise not_kubernetes(client.server, "/api/v1 lists no resources")
    return found


def _is_passing(api_version: str, plural: str) -> bool:
    return plural in _PASSING or api_version.startswith(_METRICS)


def _living(look: Look, there: list[tuple[str, dict[str, Any]]], uid: str) -> Iterator[str]:
    """What is somebody else's; what has its owner in the same namespace goes, or stays, with that one."""
    present = {each["metadata"]["uid"] for _, each in there}
    for name, each in there:
        owners = each["metadata"].get("ownerReferences") or ()
        goes_with_others = bool(owners) and all(one.get("uid") in present or _names_one(look, one) for one in owners)
        if not goes_with_others and not (is_ours(each, uid) and _is_among(look, each)):
            yield name


def _names_one(look: Look, owner: Mapping[str, Any]) -> bool:
    """Whether an owner is an object of the set: what was made of it is collected when that is gone."""
    return any(
        (owner.get("apiVersion", "").rpartition("/")[0], owner.get("kind"), owner.get("name"))
        == (step.kind.group, step.kind.name, step.name)
        for step in look.composition.steps
    )


def _is_among(look: Look, found: Mapping[str, Any]) -> bool:
    """Whether it is an object of the set, not another that carries our mark."""
    return any(each["metadata"]["uid"] == found["metadata"]["uid"] for each in look.found.values())


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
