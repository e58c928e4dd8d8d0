"""Every event type that the project reads or emits; the models of their data stand in `events.data`.

The extensions of our own events are `cluster`, `component`, `stack`, `partitionkey`, `traceparent` and `hops`;
what each type says stands at its constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from events.data import MODELS as MODELS
    from events.data import CheckRequested as CheckRequested
    from events.data import CompositionJudged as CompositionJudged
    from events.data import Data as Data
    from events.data import Deleting as Deleting
    from events.data import KubeconfigVersion as KubeconfigVersion
    from events.data import ObjectReference as ObjectReference
    from events.data import Ping as Ping
    from events.data import Provisioned as Provisioned
    from events.data import RequirementJudged as RequirementJudged
    from events.data import RequirementsJudged as RequirementsJudged
    from events.data import Resource as Resource
    from events.data import ResourceMetadata as ResourceMetadata
    from events.data import SecretReference as SecretReference

# Said by others.
OBJECT_ADDED: Final = "dev.knative.apiserver.ref.add"
OBJECT_UPDATED: Final = "dev.knative.apiserver.ref.update"
OBJECT_DELETED: Final = "dev.knative.apiserver.ref.delete"
OBJECT_CHANGED: Final = "dev.knative.apiserver."  # prefix of the three above, and of mode Resource's
PING: Final = "dev.knative.sources.ping"
PROVISIONED: Final = "ai.modelplane.cluster.provisioned"

# Said by us.
TICK: Final = "Tick"
"""Reason of a check that nothing but time asks for."""
CHECK_REQUESTED: Final = "ai.modelplane.cluster.check.requested"
DELETING: Final = "ai.modelplane.cluster.deleting"
REQUIREMENT_MET: Final = "ai.modelplane.requirement.met"
REQUIREMENT_MISSING: Final = "ai.modelplane.requirement.missing"
REQUIREMENT_UNKNOWN: Final = "ai.modelplane.requirement.unknown"
REQUIREMENTS_MET: Final = "ai.modelplane.requirements.met"
REQUIREMENTS_UNMET: Final = "ai.modelplane.requirements.unmet"
COMPOSITION_APPLIED: Final = "ai.modelplane.composition.applied"
COMPOSITION_WAITING: Final = "ai.modelplane.composition.waiting"
COMPOSITION_CONFLICT: Final = "ai.modelplane.composition.conflict"
COMPOSITION_REMOVED: Final = "ai.modelplane.composition.removed"

KNOWN: Final = frozenset(
    {
        OBJECT_ADDED,
        OBJECT_UPDATED,
        OBJECT_DELETED,
        "dev.knative.apiserver.resource.add",
        "dev.knative.apiserver.resource.update",
        "dev.knative.apiserver.resource.delete",
        PING,
        PROVISIONED,
        CHECK_REQUESTED,
        DELETING,
        REQUIREMENT_MET,
        REQUIREMENT_MISSING,
        REQUIREMENT_UNKNOWN,
        REQUIREMENTS_MET,
        REQUIREMENTS_UNMET,
        COMPOSITION_APPLIED,
        COMPOSITION_WAITING,
        COMPOSITION_CONFLICT,
        COMPOSITION_REMOVED,
    }
)
"""All of them; any other type is somebody else's business."""

if not TYPE_CHECKING:

    def __getattr__(name):
        """A model of `events.data`, imported when first used: pydantic is a fifth of a start that an event awaits."""
        if name.startswith("_"):  # the import machinery asks for a few of those
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from events import data  # noqa: PLC0415

        return getattr(data, name)
