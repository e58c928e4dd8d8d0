"""The InferenceCluster as the functions see it: what they read of the object, parsed once and immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import KubeconfigInvalid
from functions.access.targets import SecretKey
from functions.catalog import Stack
from functions.conditions import REQUIREMENTS_MET, Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

API: Final = "/apis/modelplane.ai/v1alpha1"
API_VERSION: Final = "modelplane.ai/v1alpha1"
OUR_FINALIZERS: Final = frozenset({"modelplane.ai/gateway", "modelplane.ai/queues", "modelplane.ai/modelexpress"})
"""By which the sets of composed objects hold an InferenceCluster until they are gone."""
ORPHAN: Final = "modelplane.ai/orphan"
"""Annotation on an InferenceCluster: when it is deleted, what was composed for it is left where it is."""
SYSTEM_NAMESPACE: Final = "modelplane-system"
_STACKS: Final = {str(each): each for each in Stack}


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceCluster:
    """One InferenceCluster at one resourceVersion.

    Attributes:
        stack: None where `spec.stack` is none that is known here.
        kubeconfig: Where its kubeconfig is; None unless it is an existing cluster.
        cloud_identity: Whether `identitySecretRef` asks for a cloud identity beside the kubeconfig.
        provided: Whether it brings its own substrate: an existing cluster with `components: Provided`.
        conditions: Every condition on it by type, ours and others'.
        finalizers: Who holds it when it is deleted.
        orphans: Whether its objects are to be left behind when it is deleted.
        gateway: What is published of its gateway: `address`, `hostname` and `caCertificate`.
        created: RFC 3339.
    """

    name: str
    uid: str
    resource_version: str
    generation: int
    stack: Stack | None
    provided: bool
    deletion_timestamp: str | None = None
    kubeconfig: SecretKey | None = None
    cloud_identity: bool = False
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    orphans: bool = False
    gateway: Mapping[str, str] = field(default_factory=dict)
    created: str = ""

    @classmethod
    def from_object(cls, value: Mapping[str, Any]) -> InferenceCluster:
        """From the object that the API server returned."""
        metadata, spec = value["metadata"], value.get("spec", {})
        source = spec.get("cluster", {})
        existing = source.get("existing") or {}
        reference = existing.get("secretRef")
        status = value.get("status") or {}
        conditions = status.get("conditions") or ()
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            generation=metadata.get("generation", 0),
            deletion_timestamp=metadata.get("deletionTimestamp"),
            stack=_STACKS.get(spec.get("stack", "Standard")),
            provided=source.get("source") == "Existing" and existing.get("components") == "Provided",
            kubeconfig=SecretKey(reference["name"], reference.get("key", "kubeconfig")) if reference else None,
            cloud_identity="identitySecretRef" in existing,
            conditions={each["type"]: Condition.from_object(each) for each in conditions},
            finalizers=tuple(metadata.get("finalizers") or ()),
            orphans=(metadata.get("annotations") or {}).get(ORPHAN) == "true",
            gateway=status.get("gateway") or {},
            created=metadata.get("creationTimestamp", ""),
        )

    def secret(self) -> SecretKey:
        """Where its kubeconfig is.

        Raises:
            KubeconfigInvalid: Nowhere.
        """
        if self.kubeconfig is None:
            raise KubeconfigInvalid("spec.cluster.existing.secretRef names no kubeconfig Secret")
        return self.kubeconfig

    @property
    def concerns_us(self) -> bool:
        """Whether there is anything to do for it: it is Provided, or is being deleted and somebody of ours holds it."""
        held = not OUR_FINALIZERS.isdisjoint(self.finalizers)
        return self.provided or (self.deletion_timestamp is not None and held)

    @property
    def judged(self) -> bool:
        """Whether RequirementsMet speaks of this very generation."""
        condition = self.conditions.get(REQUIREMENTS_MET)
        return condition is not None and condition.observed_generation == self.generation
