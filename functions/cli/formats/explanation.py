"""How the composed objects of an InferenceCluster stand, fit to print; made by `explain`, read by its renderers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from functions.cli.formats.lines import printable
from functions.cli.formats.report import see_for_yourself
from functions.cli.formats.terminal import WAITING
from functions.clusters import ORPHAN
from functions.compose.explained import ExplainedSet, Standing
from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from functions.compose.explained import Explained

OUTCOMES: Final = {
    Standing.READY: Outcome.MET,
    Standing.NOT_READY: WAITING,
    Standing.DUE: WAITING,
    Standing.WAITING: WAITING,
    Standing.CONFLICT: Outcome.MISSING,
    Standing.REFUSED: Outcome.MISSING,
    Standing.UNKNOWN: Outcome.UNKNOWN,
    Standing.GONE: Outcome.MET,
    Standing.KEPT: Outcome.MET,
    Standing.REMOVING: WAITING,
    Standing.BLOCKED: Outcome.MISSING,
}
"""What each standing comes to, in marks and colours."""
EXIT_CODES: Final = {Outcome.MET: 0, Outcome.MISSING: 1, WAITING: 1, Outcome.UNKNOWN: 3}
_WORST_FIRST: Final = (Outcome.MISSING, WAITING, Outcome.UNKNOWN, Outcome.MET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the InferenceCluster itself could not be read; reason and text of an access error."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainReport:
    """One look at what is composed for one InferenceCluster.

    Attributes:
        cluster: Name of the InferenceCluster.
        now: When it was looked at.
        kubectl: How kubectl is told to look at the hub, such as `kubectl --context hub`.
        context: The context of the kubeconfig that leads to the hub; empty where there is none.
        server: URL of the hub; empty where the kubeconfig does not lead to one.
        stack: Its stack; empty where it could not be read.
        target: URL of its target; empty where nothing leads there.
        secret: Where the kubeconfig of the target is; empty where nothing says so.
        deleting_since: RFC 3339, since when it is being deleted; empty where it is not.
        finalizers: Who holds it.
        sets: How each set stands.
        trouble: Why it could not be read; None where it could.
    """

    cluster: str
    now: datetime
    kubectl: str = "kubectl"
    context: str = ""
    server: str = ""
    stack: str = ""
    target: str = ""
    secret: str = ""
    deleting_since: str = ""
    finalizers: tuple[str, ...] = ()
    sets: tuple[ExplainedSet, ...] = ()
    trouble: Trouble | None = None

    @property
    def objects(self) -> tuple[Explained, ...]:
        """How every object stands."""
        return tuple(one for each in self.sets for one in each.objects)

    @property
    def outcome(self) -> str:
        """The worst of all objects; a conflict or a wait outweighs what cannot be told."""
        found = {OUTCOMES[each.standing] for each in self.objects}
        if self.trouble is not None:
            found.add(Outcome.UNKNOWN)
        return next(each for each in _WORST_FIRST if each in found or each is Outcome.MET)

    @property
    def exit_code(self) -> int:
        """What the outcome makes of the process."""
        return EXIT_CODES[self.outcome]

    def count(self, *outcomes: str) -> int:
        """How many objects come to one of these outcomes."""
        return sum(OUTCOMES[each.standing] in outcomes for each in self.objects)

    @property
    def common_trouble(self) -> str:
        """Why nothing at all can be told; empty where something can, or where the reasons differ."""
        if self.trouble is not None:
            return self.trouble.detail
        details = {each.detail for each in self.objects}
        return details.pop() if len(details) == 1 and self.count(Outcome.UNKNOWN) == len(self.objects) else ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Kubectl commands that show the same trouble of the hub, each once."""
        asked = (see_for_yourself(reason, detail) for reason, detail, at_hub in self._troubles() if at_hub)
        return tuple(dict.fromkeys(f"{self.kubectl} {each}" for each in asked if each))

    @property
    def description(self) -> str:
        """The kubectl command that shows what the functions saw of a target that could not be asked; else empty."""
        unseen = any(not at_hub for _, _, at_hub in self._troubles())
        return f"{self.kubectl} describe inferencecluster {self.cluster}" if unseen else ""

    @property
    def hints(self) -> tuple[str, ...]:
        """What to do about a target that cannot be asked, each once."""
        hints = {
            "Unreachable": "The functions may reach the target from where they run.",
            "Unauthorized": f"Renew the kubeconfig in {self.secret}.",
            "Forbidden": f"Grant the right on the target to the user of the kubeconfig in {self.secret}.",
        }
        found = [hints[reason] for reason, _, at_hub in self._troubles() if not at_hub and reason in hints]
        if found and self.deleting_since:
            found.append(
                "To let go of a target that is gone for good, and leave everything where it is: "
                f"{self.kubectl} annotate inferencecluster {self.cluster} {ORPHAN}=true"
            )
        return tuple(dict.fromkeys(found))

    def _troubles(self) -> Iterator[tuple[str, str, bool]]:
        if self.trouble is not None:
            yield self.trouble.reason, self.trouble.detail, True
        for each in self.objects:
            if each.standing is Standing.UNKNOWN:
                yield each.trouble, each.detail, each.at_hub


def cleaned(sets: Iterable[ExplainedSet]) -> tuple[ExplainedSet, ...]:
    """The sets with every text fit to print."""
    return tuple(
        ExplainedSet(
            composition=each.composition,
            condition=each.condition
            and replace(
                each.condition, reason=printable(each.condition.reason), message=printable(each.condition.message)
            ),
            objects=tuple(
                replace(one, detail=printable(one.detail), waits_for=printable(one.waits_for)) for one in each.objects
            ),
            left_out=tuple(printable(one) for one in each.left_out),
        )
        for each in sets
    )
