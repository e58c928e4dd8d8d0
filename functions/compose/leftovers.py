"""What teardown must not take along, and what it must not forget."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import Forbidden, NotFound
from functions.compose import kinds
from functions.compose.ownership import annotations_of, is_ours

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        if each["spec"]["gatewayClassName"] == found["metadata"]["name"] and not is_ours(each, uid)
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

    async def of(api_version: str, plural: str) -> list[str]:
        kind = kinds.Kind(api_version, "", plural)
        async with at_once:
            try:
                return [
                    f"{plural}/{each['metadata']['name']}"
                    async for each in look.client.pages(kind.path(namespace=namespace), metadata_only=True)
                    if _lives_there(plural, each, uid)
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
    living: list[str] = []
    for each in listed:
        if isinstance(each, Forbidden):
            return _UNSEEN.format(each)
        if isinstance(each, BaseException):
            raise each
        living += each
    return f"{_some(sorted(living))} lives in it" if living else ""


async def _core(client: Client) -> list[tuple[str, str]]:
    """The listable namespaced resources of the core group, which discovery of the others leaves out."""
    document = await client.get("/api/v1")
    return [
        ("v1", each["name"])
        for each in document.get("resources") or ()
        if each.get("namespaced") and "list" in (each.get("verbs") or ()) and "/" not in each["name"]
    ]


def _is_passing(api_version: str, plural: str) -> bool:
    return plural in _PASSING or api_version.startswith(_METRICS)


def _lives_there(plural: str, found: Mapping[str, Any], uid: str) -> bool:
    """Whether an object is somebody else's; one with an owner goes, or stays, with that."""
    metadata = found["metadata"]
    return (
        not is_ours(found, uid)
        and not metadata.get("ownerReferences")
        and (plural, metadata["name"]) not in _IN_EVERY_NAMESPACE
    )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown
