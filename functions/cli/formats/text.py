"""The report for people, in the manner of `linkerd check`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions.cli.formats.lines import wrapped
from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.cli.formats.report import Report
    from functions.cli.formats.terminal import Terminal
    from functions.judge import Verdict

_DETAIL: Final = "    "
_HINT: Final = "  "


def as_text(report: Report, terminal: Terminal, *, quiet: bool = False) -> str:
    """The report as lines.

    Args:
        report: What was found.
        terminal: Where it will be shown.
        quiet: Only what is not met, so nothing where all is.
    """
    blocks = [] if quiet else [_header(report)]
    if report.trouble:
        blocks.append([*wrapped("? ", f"Nothing can be told: {report.trouble}", terminal)])
    if not (quiet and report.trouble):
        shown = (each for each in report.verdicts if not (quiet and each.outcome is Outcome.MET))
        blocks += [[*_component(each, report, terminal, quiet=quiet)] for each in shown]
    if not quiet:
        blocks.append([*_footer(report, terminal)])
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks)


def _header(report: Report) -> list[str]:
    return [
        f"Context:     {report.context or 'none'}",
        f"Server:      {report.server or 'none'}",
        f"Kubernetes:  {report.kubernetes_version or 'unknown'}",
        f"Stack:       {report.stack}",
    ]


def _component(verdict: Verdict, report: Report, terminal: Terminal, *, quiet: bool) -> Iterator[str]:
    component = verdict.component
    yield terminal.bold(component.key)
    yield terminal.bold("-" * len(component.key))
    for finding in verdict.findings:
        if quiet and finding.outcome is Outcome.MET:
            continue
        yield f"{terminal.mark(finding.outcome)} {finding.requirement}"
        if finding.detail and finding.detail != report.trouble:  # which stands above, once
            yield from wrapped(_DETAIL, finding.detail, terminal)
    if verdict.outcome is Outcome.MISSING:
        yield from wrapped(_HINT, f"Hint: {component.hint}", terminal)
        yield f"{_HINT}{component.link}"


def _footer(report: Report, terminal: Terminal) -> Iterator[str]:
    yield terminal.bold(terminal.paint(report.summary, report.outcome))
    if report.commands:
        yield "To see for yourself what cannot be told:"
        yield from (f"{_HINT}{each}" for each in report.commands)
    if report.not_checked:
        yield f"{report.not_checked} more demands that only you can check:"
        yield f"{_HINT}serving-stack requirements --stack {report.stack}"
