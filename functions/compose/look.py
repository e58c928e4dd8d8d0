"""What a look at a target found of a set's objects: each that is there, and what could not be seen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from functions.access.definitions import CRDS
from functions.access.errors import AccessError, NotFound, NotKubernetes, Unauthorized, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.access.client import Client
    from functions.access.discovery import Discovery
    from functions.access.targets import Target
    from functions.compose.kinds import Kind
    from functions.compose.step import Composition, Step


@dataclass(slots=True)
class Look:
    """One look at one target; kept up to date while steps are applied.

    Attributes:
        target: The cluster.
        composition: The set.
        discovery: What it serves.
        found: The objects that are there, by their steps' keys.
        troubles: Why a look was refused, by the steps' keys.
        unserved: The keys of those whose API is not served, so that it cannot be told whether they are there.
    """

    target: Target
    composition: Composition
    discovery: Discovery
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    troubles: dict[str, AccessError] = field(default_factory=dict)
    unserved: set[str] = field(default_factory=set)

    @property
    def client(self) -> Client:
        """What the target is asked with."""
        return self.target.client

    def serves(self, kind: Kind, verb: str) -> bool:
        """Whether the API server takes such a request; a terminating CRD loses `create`, `update` and `patch`."""
        return kind.built_in or verb in self.discovery.verbs(kind.group, kind.version, kind.plural)

    async def again(self, step: Step) -> None:
        """Looks at one object.

        Raises:
            Unreachable: The target does not answer.
            Unauthorized: It does not take the credential.
        """
        for each in (self.found, self.troubles):
            each.pop(step.key, None)
        self.unserved.discard(step.key)
        if not self.serves(step.kind, "get"):
            self.unserved.add(step.key)
            return
        try:
            # Of another's Secret only the metadata is looked at: what it holds is none of our business.
            self.found[step.key] = await self.client.get_object(step.path, metadata_only=bool(step.made_for))
        except NotFound as absent:
            if not absent.kind_known:
                self.unserved.add(step.key)
        except NotKubernetes as trouble:  # which says nothing of the others
            self.troubles[step.key] = trouble
        except (Unreachable, Unauthorized):
            raise
        except AccessError as trouble:
            self.troubles[step.key] = trouble

    async def proves_gone(self, kind: Kind) -> bool:
        """Whether nothing of an unserved kind can be left: that is so where its definition is not there.

        An unserved version, a group that cannot be asked, or a starting API server prove nothing.

        Raises:
            AccessError: It could not be looked at.
        """
        try:
            await self.client.get_metadata(f"{CRDS}/{kind.definition}")
        except NotFound as absent:
            if absent.kind_known:
                return True
            raise
        return False


async def look_at(target: Target, composition: Composition, *, leftovers: bool) -> Look:
    """Looks at every object of a set; with `leftovers`, also at what others' controllers made that has to go with it.

    Raises:
        AccessError: The target could not be asked what it serves, or stopped answering.
    """
    discovery = await target.discovery.read(_groups(composition.steps))
    look = Look(target, composition, discovery)
    results = await asyncio.gather(
        *(look.again(each) for each in composition.steps if leftovers or not each.made_for), return_exceptions=True
    )
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return look


def _groups(steps: Iterable[Step]) -> frozenset[str]:
    return frozenset(each.kind.group for each in steps if not each.kind.built_in)
