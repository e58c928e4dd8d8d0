"""What one look at a cluster found: the verdicts with what they add up to; made by `check`, read by each renderer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from functions.catalog import CustomResource
from functions.cli.formats.lines import printable
from functions.judge import Outcome, Verdict, worst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.catalog import Stack
    from functions.judge import Finding

EXIT_CODES: Final = {Outcome.MET: 0, Outcome.MISSING: 1, Outcome.UNKNOWN: 3}

_COMMANDS: Final = {
    "Unauthorized": "auth whoami",
    "Unreachable": "get --raw /apis",
    "ServerError": "get --raw /apis",
    "Throttled": "get --raw /apis",
}
_NO_RIGHT: Final = re.compile(r"has no right to (?P<verb>\S+) (?P<what>\S+)(?: in namespace (?P<namespace>\S+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One look at one cluster.

    Attributes:
        context: The context of the kubeconfig; empty where there is none.
        server: URL of the API server; empty where the kubeconfig does not lead to one.
        kubernetes_version: As the server says it, such as `v1.37.2`; empty where it did not.
        stack: Whose requirements were judged.
        verdicts: Of every component that has something to check, in catalog order.
        not_checked: How many demands of the stack no look at the cluster can judge.
        kubectl: How kubectl is told to look at the same cluster, such as `kubectl --context gpu`.
    """

    context: str
    server: str
    kubernetes_version: str
    stack: Stack
    verdicts: tuple[Verdict, ...]
    not_checked: int = 0
    kubectl: str = "kubectl"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found of each requirement."""
        return tuple(finding for verdict in self.verdicts for finding in verdict.findings)

    def count(self, outcome: Outcome) -> int:
        """How many requirements have that outcome."""
        return sum(each.outcome is outcome for each in self.findings)

    @property
    def outcome(self) -> Outcome:
        """The worst of all findings."""
        return worst(self.findings)

    @property
    def exit_code(self) -> int:
        """What the outcome makes of the process."""
        return EXIT_CODES[self.outcome]

    @property
    def summary(self) -> str:
        """The outcome in one line."""
        total, missing, unknown = len(self.findings), self.count(Outcome.MISSING), self.count(Outcome.UNKNOWN)
        parts = [f"{self.count(Outcome.MET)} of {total} requirements met"]
        if missing:
            parts.append(f"{missing} missing")
        if unknown:
            parts.append(f"{unknown} cannot be told")
        return ", ".join(parts)

    @property
    def trouble(self) -> str:
        """Why nothing at all can be told; empty where something can, or where the reasons differ."""
        details = {each.detail for each in self.findings}
        return details.pop() if len(details) == 1 and self.count(Outcome.UNKNOWN) == len(self.findings) else ""

    @property
    def commands(self) -> tuple[str, ...]:
        """Kubectl commands that show the same trouble where something cannot be told, each once."""
        found = (self._command(each) for each in self.findings if each.outcome is Outcome.UNKNOWN)
        return tuple(dict.fromkeys(f"{self.kubectl} {each}" for each in found if each))

    def _command(self, finding: Finding) -> str:
        requirement = finding.requirement
        shown = see_for_yourself(finding.reason, finding.detail)
        if not shown and finding.reason in {"Stale", "NotDiscovered"} and isinstance(requirement, CustomResource):
            return f"get apiservice {requirement.version}.{requirement.group}"
        return shown


def see_for_yourself(reason: str, detail: str) -> str:
    """What to ask of kubectl to see the same trouble; empty where nothing shows it.

    Args:
        reason: Of the access error.
        detail: What it says.
    """
    right = _NO_RIGHT.search(detail)
    if right is None:
        return _COMMANDS.get(reason, "")
    namespace = f" -n {right['namespace']}" if right["namespace"] else ""
    return f"auth can-i {right['verb']} {right['what']}{namespace}"


def cleaned(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts with every text fit to print."""
    return tuple(
        Verdict(verdict.component, tuple(replace(each, detail=printable(each.detail)) for each in verdict.findings))
        for verdict in verdicts
    )
