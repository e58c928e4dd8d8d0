"""What the user's page demands of a cluster, as data: components, their requirements, and what is only advised.

Everything that lists components (probes, Triggers, documentation, the checker) is derived from `COMPONENTS`.
"""

from functions.catalog.component import Component, Stack
from functions.catalog.components import COMPONENTS, component, of_stack
from functions.catalog.requirement import CustomResource, DeviceClass, Requirement

__all__ = [
    "COMPONENTS",
    "Component",
    "CustomResource",
    "DeviceClass",
    "Requirement",
    "Stack",
    "component",
    "of_stack",
]
