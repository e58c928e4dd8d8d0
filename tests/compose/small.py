"""Small CRDs that carry the names of the substrate's real ones: they come and go in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions.catalog import CustomResource, component
from tests.compose.stage import GATEWAY, QUEUES, steps
from tests.support import crd_manifest

if TYPE_CHECKING:
    from functions.compose.kinds import Kind

NEEDED = tuple(dict.fromkeys(key for step in steps(GATEWAY, QUEUES) for key in step.needs))
"""The components in the gates."""
REQUIREMENTS = tuple(each for key in NEEDED for each in component(key).requirements if isinstance(each, CustomResource))
ISSUERS = CustomResource("issuers.cert-manager.io", "v1")
"""No requirement of its own: it comes with the certificates, and is the kind of an object that is composed."""
DEFINITIONS: dict[str, CustomResource] = {each.name: each for each in (*REQUIREMENTS, ISSUERS)}
_KINDS: dict[str, tuple[Kind, bool]] = {
    each.kind.definition: (each.kind, bool(each.namespace)) for each in steps(GATEWAY, QUEUES) if not each.kind.built_in
}


def definition(name: str) -> dict[str, Any]:
    """The CRD of this name, which lets through whatever is in an object."""
    manifest = crd_manifest(name, DEFINITIONS[name].version)
    manifest["spec"]["versions"][0]["subresources"] = {"status": {}}
    manifest["spec"]["scope"] = "Namespaced"
    if name in _KINDS:
        kind, namespaced = _KINDS[name]
        manifest["spec"]["scope"] = "Namespaced" if namespaced else "Cluster"
        manifest["spec"]["names"] |= {
            "kind": kind.name,
            "listKind": f"{kind.name}List",
            "singular": kind.name.lower(),
        }
    return manifest


def collection(name: str) -> str:
    """Path of all objects of a CRD."""
    crd = DEFINITIONS[name]
    return f"/apis/{crd.group}/{crd.version}/{crd.plural}"
