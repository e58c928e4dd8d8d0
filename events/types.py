"""Every event type that the project reads or emits, and the models of their data.

The extensions of our own events are `cluster`, `component`, `stack`, `partitionkey`, `traceparent` and `hops`;
what each type says stands at its constant.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

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


class Data(BaseModel):
    """Base of every data model: camelCase on the wire, immutable, unknown fields ignored."""

    # Built when first used: a process that starts for one event needs few of them.
    model_config = ConfigDict(
        frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore", defer_build=True
    )


class ObjectReference(Data):
    """`dev.knative.apiserver.ref.*`: which object changed. `namespace` is absent for cluster-scoped kinds."""

    api_version: str
    kind: str
    name: str
    namespace: str | None = None


class ResourceMetadata(Data):
    """What names the object of a `Resource`."""

    name: str
    namespace: str | None = None


class Resource(Data):
    """`dev.knative.apiserver.resource.*`: the whole object; only what names it is read."""

    api_version: str
    kind: str
    metadata: ResourceMetadata


class Ping(Data):
    """`dev.knative.sources.ping`: the tick; whatever the PingSource was told to carry is not read."""


class SecretReference(Data):
    """A key of a Secret in namespace modelplane-system of the hub."""

    name: str = Field(min_length=1, max_length=253)
    key: str | None = Field(default=None, min_length=1, max_length=253)


class Provisioned(Data):
    """`ai.modelplane.cluster.provisioned`: a provisioning system made a cluster; subject is its name."""

    cluster: str = Field(min_length=1, max_length=253)
    secret_ref: SecretReference | None = None


class KubeconfigVersion(Data):
    """Which version of the kubeconfig Secret was seen when a check was asked for."""

    uid: str
    resource_version: str


class CheckRequested(Data):
    """`ai.modelplane.cluster.check.requested`: one cluster needs a look.

    Attributes:
        reason: Why, in one CamelCase word: Created, Changed, KubeconfigChanged, Tick, WatchStarted, Provisioned,
            Object.
        kubeconfig: The Secret as it was seen; absent where it was not looked at.
    """

    reason: str
    kubeconfig: KubeconfigVersion | None = None


class Deleting(Data):
    """`ai.modelplane.cluster.deleting`: the InferenceCluster has a deletionTimestamp."""

    deletion_timestamp: str


class RequirementJudged(Data):
    """`ai.modelplane.requirement.*`: one component of one cluster was judged.

    Attributes:
        outcome: What was found.
        reason: The condition's reason, CamelCase.
        message: The condition's message; empty when met.
        generation: metadata.generation of the InferenceCluster that it was judged for.
    """

    outcome: Literal["Met", "Missing", "Unknown"]
    reason: str
    message: str = ""
    generation: int


class RequirementsJudged(Data):
    """`ai.modelplane.requirements.*`: RequirementsMet flipped."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    generation: int


MODELS: Final[dict[str, type[Data]]] = {
    OBJECT_ADDED: ObjectReference,
    OBJECT_UPDATED: ObjectReference,
    OBJECT_DELETED: ObjectReference,
    "dev.knative.apiserver.resource.add": Resource,
    "dev.knative.apiserver.resource.update": Resource,
    "dev.knative.apiserver.resource.delete": Resource,
    PING: Ping,
    PROVISIONED: Provisioned,
    CHECK_REQUESTED: CheckRequested,
    DELETING: Deleting,
    REQUIREMENT_MET: RequirementJudged,
    REQUIREMENT_MISSING: RequirementJudged,
    REQUIREMENT_UNKNOWN: RequirementJudged,
    REQUIREMENTS_MET: RequirementsJudged,
    REQUIREMENTS_UNMET: RequirementsJudged,
}
