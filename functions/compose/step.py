"""What a set of composed objects is made of: steps, in the order in which they are applied."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from functions.catalog import component
from functions.compose.readiness import exists

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from functions.catalog import Stack
    from functions.compose.client_cas import ClientCAs
    from functions.compose.kinds import Kind
    from functions.compose.look import Look
    from functions.compose.readiness import Readiness

Manifest: TypeAlias = dict[str, Any]

_CUT: Final = 57  # characters of a derived name before its hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What the objects of one cluster are made from.

    Attributes:
        cluster: Name of the InferenceCluster.
        uid: Its uid.
        client_cas: Who may call its gateway.
    """

    cluster: str
    uid: str
    client_cas: ClientCAs

    @property
    def hostname(self) -> str:
        """The host name of the cluster's gateway, derived from the cluster's name alone."""
        return f"{child_name('gateway', self.cluster).replace('.', '-')}.modelplane-system.svc.cluster.local"


Keep: TypeAlias = "Callable[[Look, Mapping[str, Any], str], Awaitable[str]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One object of a set.

    Attributes:
        kind: Of the object.
        name: Of the object, the same on every target.
        namespace: Of the object; empty for a cluster-scoped one.
        manifest: Makes what is applied, without name and owner mark; None for an object that another's controller makes
            for one of ours.
        needs: Keys of the components that have to be there before it is applied first.
        after: Objects that have to be applied before, by their steps' `key`.
        awaits: Objects that have to be ready before, by their steps' `key`.
        ready: Whether its controller is done with it, and else what it last said.
        client_ca: Whether it exists only while there is a client CA.
        guarded: Whether it lets callers in: then nothing is put back in it unless what it comes after is right.
        shared: Whether others may have made it, and live in it.
        made_for: Of an object without manifest: the `key` of the object that its controller made it for, and that it
            has to go with; empty where that controller takes it away itself.
        keep: Says why it has to stay where everything else goes; empty where it may go. None where nothing can.
    """

    kind: Kind
    name: str
    namespace: str = ""
    manifest: Callable[[Inputs], Manifest] | None = None
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    awaits: tuple[str, ...] = ()
    ready: Readiness = exists
    client_ca: bool = False
    guarded: bool = False
    shared: bool = False
    made_for: str = ""
    keep: Keep | None = None

    @property
    def key(self) -> str:
        """Names it within its set, such as `Gateway cluster-gateway`."""
        return f"{self.kind.name} {self.name}"

    @property
    def is_watched(self) -> bool:
        """Whether a change of it is an event; Secrets are nobody's business to watch."""
        return not self.made_for

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return self.kind.path(self.name, self.namespace)

    @property
    def gate(self) -> tuple[str, ...]:
        """What it waits for, for people; nothing where it waits for nothing."""
        return (
            *((", ".join(self.needs),) if self.needs else ()),
            *(("a client CA",) if self.client_ca else ()),
            *(f"{each} applied" for each in self.after),
            *(f"{each} ready" for each in self.awaits),
        )

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}" if self.namespace else self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A set of objects that are applied, reported and taken down together.

    Attributes:
        name: In one lower-case word.
        condition: Type of its condition on the InferenceCluster.
        stacks: The stacks that have it.
        steps: Each after those that it rests on.
    """

    name: str
    condition: str
    stacks: frozenset[Stack]
    steps: tuple[Step, ...]

    @property
    def finalizer(self) -> str:
        """Holds a deleted InferenceCluster until the set is gone."""
        return f"modelplane.ai/{self.name}"

    @property
    def manager(self) -> str:
        """Field manager of its condition."""
        return f"modelplane-{self.name}"

    @property
    def definitions(self) -> tuple[str, ...]:
        """The CRDs of its kinds that no component is asked for, so that none is met when they come."""
        asked = {one.name for step in self.steps for key in step.needs for one in component(key).requirements}
        own = (step.kind.definition for step in self.steps if not step.kind.built_in)
        return tuple(dict.fromkeys(each for each in own if each not in asked))

    @property
    def has_gateway(self) -> bool:
        """Whether it serves callers, who have to show a certificate of a client CA."""
        return any(each.client_ca for each in self.steps)


def child_name(*parts: str) -> str:
    """A name of at most 63 characters, derived as Modelplane derives them: joined, cut, and told apart by a hash."""
    whole = "-".join(parts)
    return f"{whole[:_CUT].rstrip('-')}-{hashlib.sha256(whole.encode()).hexdigest()[:5]}"
