"""The models of the events' data; `events.types` has them too, and imports this module when first asked for one."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from events import types


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
        reason: Why, in one CamelCase word: Created, Changed, KubeconfigChanged, ClientCA, Tick, WatchStarted,
            WatchLost, Provisioned, Object.
        kubeconfig: The Secret as it was seen; absent where it was not looked at.
    """

    reason: str
    kubeconfig: KubeconfigVersion | None = None


class Deleting(Data):
    """`ai.modelplane.cluster.deleting`: the InferenceCluster has a deletionTimestamp.

    Attributes:
        deletion_timestamp: Its metadata.deletionTimestamp.
        tick: Whether nothing but time is the reason to say so once more.
        kubeconfig: The Secret as it was seen; absent where it was not looked at.
    """

    deletion_timestamp: str
    tick: bool = False
    kubeconfig: KubeconfigVersion | None = None


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


class CompositionJudged(Data):
    """`ai.modelplane.composition.*`: how a set of composed objects stands on one cluster.

    Attributes:
        status: The condition's status.
        reason: The condition's reason, CamelCase.
        message: The condition's message.
        generation: metadata.generation of the InferenceCluster that it holds for.
    """

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    generation: int


MODELS: Final[dict[str, type[Data]]] = {
    types.OBJECT_ADDED: ObjectReference,
    types.OBJECT_UPDATED: ObjectReference,
    types.OBJECT_DELETED: ObjectReference,
    "dev.knative.apiserver.resource.add": Resource,
    "dev.knative.apiserver.resource.update": Resource,
    "dev.knative.apiserver.resource.delete": Resource,
    types.PING: Ping,
    types.PROVISIONED: Provisioned,
    types.CHECK_REQUESTED: CheckRequested,
    types.DELETING: Deleting,
    types.REQUIREMENT_MET: RequirementJudged,
    types.REQUIREMENT_MISSING: RequirementJudged,
    types.REQUIREMENT_UNKNOWN: RequirementJudged,
    types.REQUIREMENTS_MET: RequirementsJudged,
    types.REQUIREMENTS_UNMET: RequirementsJudged,
    types.COMPOSITION_APPLIED: CompositionJudged,
    types.COMPOSITION_WAITING: CompositionJudged,
    types.COMPOSITION_CONFLICT: CompositionJudged,
    types.COMPOSITION_REMOVED: CompositionJudged,
}
