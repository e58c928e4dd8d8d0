"""The kinds of requirement: something that a cluster serves or holds, checked by reading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class CustomResource:
    """A CustomResourceDefinition that serves a version.

    Attributes:
        name: Name of the CRD, `<plural>.<group>`.
        version: The version that must be served, such as `v1alpha1`.
    """

    name: str
    version: str

    @property
    def plural(self) -> str:
        """The resource's name in paths and in discovery."""
        return self.name.partition(".")[0]

    @property
    def group(self) -> str:
        """The API group."""
        return self.name.partition(".")[2]

    def __str__(self) -> str:
        return f"CRD {self.name} serving {self.version}"


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass of dynamic resource allocation; cluster-scoped, in `resource.k8s.io/v1`."""

    name: str

    group = "resource.k8s.io"
    version = "v1"
    plural = "deviceclasses"

    def __str__(self) -> str:
        return f"DeviceClass {self.name} ({self.group}/{self.version})"


Requirement: TypeAlias = CustomResource | DeviceClass
