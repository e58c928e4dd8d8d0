"""A component of the serving substrate, as the user's page describes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functions.catalog.requirement import Requirement


class Stack(StrEnum):
    """The serving stacks of `spec.stack`."""

    STANDARD = "Standard"
    DYNAMO = "Dynamo"


BOTH = frozenset(Stack)


def _camel_case(key: str) -> str:
    """`cert-manager` as `CertManager`: the form in which Kubernetes writes condition types."""
    return "".join(word.capitalize() for word in key.split("-"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of the substrate that a Provided cluster brings itself.

    Attributes:
        key: Name on the user's page, kebab-case and unique.
        purpose: What Modelplane needs it for, in a few words.
        chart: Helm chart of Managed mode; None where manifests are applied instead.
        version: Version that Managed mode installs and tests against; None where the page states none.
        stacks: The stacks that need it.
        requirements: What is checked and gates; empty where nothing of it can be checked yet.
        not_checked: What is the user's to meet, a sentence each.
        not_needed: What Managed mode leaves out as well, a sentence each.
        hint: What to do when it is missing.
        link: Where its own documentation says how.
    """

    key: str
    purpose: str
    chart: str | None = None
    version: str | None = None
    stacks: frozenset[Stack] = BOTH
    requirements: tuple[Requirement, ...] = ()
    not_checked: tuple[str, ...] = ()
    not_needed: tuple[str, ...] = ()
    hint: str
    link: str

    @property
    def condition(self) -> str:
        """Type of its condition on the InferenceCluster, such as `CertManagerProvided`."""
        return f"{_camel_case(self.key)}Provided"

    @property
    def module(self) -> str:
        """Its key as a Python name, such as `cert_manager`."""
        return self.key.replace("-", "_")
