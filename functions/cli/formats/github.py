"""The report as workflow commands of GitHub Actions, which shows them as annotations.

A step may have ten annotations of a level and no more, so that there is one per component and not per requirement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.cli.formats.report import Report
    from functions.judge import Verdict

_COMMANDS: Final = {Outcome.MISSING: "error", Outcome.UNKNOWN: "warning"}


def as_github(report: Report) -> str:
    """An error for what is missing, a warning for what cannot be told, and a notice with the summary."""
    lines = [line for verdict in report.verdicts for line in _component(verdict)]
    where = f"context {report.context or 'none'}, server {report.server or 'none'}"
    lines.append(_command("notice", "serving-stack check", f"{report.stack}: {report.summary} ({where})"))
    return "".join(f"{line}\n" for line in lines)


def _component(verdict: Verdict) -> Iterator[str]:
    for outcome, command in _COMMANDS.items():
        found = [str(each) for each in verdict.findings if each.outcome is outcome]
        if found:
            how = [verdict.component.hint, verdict.component.link] if outcome is Outcome.MISSING else []
            yield _command(command, verdict.component.key, "\n".join([*found, *how]))


def _command(name: str, title: str, message: str) -> str:
    escaped = _escape(title).replace(":", "%3A").replace(",", "%2C")
    return f"::{name} title={escaped}::{_escape(message)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
