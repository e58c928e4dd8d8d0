"""Whose an object is: the mark on everything that is composed, and what is said of an object without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import one_line
from functions.compose.step import child_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.compose.step import Inputs, Manifest, Step

MANAGER: Final = "modelplane-compose"
"""Field manager of everything that is applied to a target."""
OWNER: Final = "modelplane.ai/inference-cluster"
"""Label with the InferenceCluster's name, as far as a label can hold it."""
OWNER_UID: Final = "modelplane.ai/inference-cluster-uid"
"""Annotation with the InferenceCluster's uid, which is what decides."""
ADOPT: Final = "modelplane.ai/adopt"
"""Annotation on an object: its owner hands it over."""
_NOBODY: Final = frozenset({MANAGER, "before-first-apply"})
"""Field managers that say nothing of who made an object; the second one is the API server's for what it cannot tell."""
_LONGEST_LABEL: Final = 63


def marked(step: Step, inputs: Inputs) -> Manifest:
    """What is applied for a step: its manifest with name and owner mark."""
    assert step.manifest is not None  # noqa: S101 - who calls this asks for it first
    content = step.manifest(inputs)
    own = content.pop("metadata", {})
    metadata = {
        "name": step.name,
        **({"namespace": step.namespace} if step.namespace else {}),
        "labels": {**own.get("labels", {}), OWNER: _label(inputs.cluster)},
        "annotations": {OWNER_UID: inputs.uid},
    }
    return {"apiVersion": step.kind.api_version, "kind": step.kind.name, "metadata": metadata, **content}


def is_ours(found: Mapping[str, Any], uid: str) -> bool:
    """Whether an object was composed for the InferenceCluster of this uid."""
    return annotations_of(found).get(OWNER_UID) == uid


def is_handed_over(found: Mapping[str, Any]) -> bool:
    """Whether its owner hands an object over."""
    return annotations_of(found).get(ADOPT) == "true"


def hand_over_command(step: Step) -> str:
    """The command by which the owner of a same-named object hands it over."""
    resource = f"{step.kind.plural}.{step.kind.group}" if step.kind.group else step.kind.plural
    namespace = f" -n {step.namespace}" if step.namespace else ""
    return f"kubectl annotate {resource} {step.name}{namespace} {ADOPT}=true"


def annotations_of(found: Mapping[str, Any]) -> Mapping[str, str]:
    """The annotations of an object."""
    return found["metadata"].get("annotations") or {}


def whose(found: Mapping[str, Any]) -> str:
    """Whom an object belongs to that is not ours, as far as it says so."""
    owner = (found["metadata"].get("labels") or {}).get(OWNER)
    if owner is not None and OWNER_UID in annotations_of(found):
        return f"it belongs to InferenceCluster {owner}"
    wrote = dict.fromkeys(
        each["manager"] for each in found["metadata"].get("managedFields") or () if "subresource" not in each
    )
    managers = [each for each in wrote if each not in _NOBODY]
    if managers:
        return f"it was made by {one_line(', '.join(managers))}"
    if MANAGER in wrote:
        return "it was made for an InferenceCluster, whose mark it does not carry any more"
    return "it was made by somebody else"


def _label(name: str) -> str:
    return name if len(name) <= _LONGEST_LABEL else child_name(name)
