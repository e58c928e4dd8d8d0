"""How the composed objects stand, for people: a line for each, and below it what is wanting."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from functions.cli.formats.explanation import OUTCOMES
from functions.cli.formats.lines import wrapped, wrapped_command
from functions.cli.formats.terminal import WAITING
from functions.compose.explained import DELETE, Standing
from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.cli.formats.explanation import ExplainReport
    from functions.cli.formats.terminal import Terminal
    from functions.compose.explained import Explained, ExplainedSet
    from functions.conditions import Condition

_DETAIL: Final = "    "
_COMMAND: Final = "      "
_HINT: Final = "  "
_DONE: Final = {
    "apply": "applied",
    "put right": "put right",
    "adopt": "adopted",
    "label": "labelled",
    DELETE: "deleted",
}
_HEADS: Final = {
    Standing.NOT_READY: "applied; not ready",
    Standing.CONFLICT: "not applied, in conflict on the target",
    Standing.REFUSED: "not applied, refused",
    Standing.UNKNOWN: "cannot be told",
    Standing.BLOCKED: "blocked",
}
_BESIDE_THE_NAME: Final = {Standing.GONE: ": gone", Standing.KEPT: ": stays"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def as_text(report: ExplainReport, terminal: Terminal) -> str:
    """The report as lines that fit the terminal, but for what cannot be broken."""
    blocks = [[*_header(report, terminal)]]
    if report.common_trouble:
        blocks.append(wrapped("? ", f"Nothing can be told: {report.common_trouble}", terminal))
    told: set[tuple[str, str]] = set()
    blocks += [[*_set(each, report, terminal, told)] for each in report.sets]
    blocks.append([*_footer(report, terminal)])
    return "\n".join("".join(f"{line}\n" for line in block) for block in blocks if block)


def _header(report: ExplainReport, terminal: Terminal) -> Iterator[str]:
    values = {
        "InferenceCluster": report.cluster,
        "Stack": report.stack or "unknown",
        "Context": report.context or "none",
        "Hub": report.server or "none",
        "Target": report.target or "unknown",
    }
    if report.deleting_since:
        held = f", held by {', '.join(report.finalizers)}" if report.finalizers else ""
        values["Being deleted"] = f"{_ago(report.deleting_since, report)}{held}"
    values |= {each.composition.condition: _condition(each.condition, report) for each in report.sets}
    width = max(len(each) for each in values) + 3
    for name, value in values.items():
        yield from wrapped(f"{f'{name}:':{width}}", value, terminal)


def _condition(condition: Condition | None, report: ExplainReport) -> str:
    if condition is None:
        return "the functions have not said anything yet"
    said = f"{condition.status}, {condition.reason}"
    # What is not True may have had another reason for most of that time.
    return f"{said}{_for(condition.last_transition_time, report, comma=True)}" if condition.status == "True" else said


def _set(
    explained: ExplainedSet, report: ExplainReport, terminal: Terminal, told: set[tuple[str, str]]
) -> Iterator[str]:
    name = explained.composition.name
    yield terminal.bold(name)
    yield terminal.bold("-" * len(name))
    for each in explained.objects:
        yield f"{terminal.mark(OUTCOMES[each.standing])} {each.step}{_BESIDE_THE_NAME.get(each.standing, '')}"
        yield from wrapped(_DETAIL, _sentence(_untold(each, report, told), report), terminal)
        if each.command:
            yield from wrapped_command(_COMMAND, each.command, terminal)
    for left_out in explained.left_out:
        yield from wrapped(_HINT, f"Left out: {left_out}", terminal)


def _untold(explained: Explained, report: ExplainReport, told: set[tuple[str, str]]) -> Explained:
    """An object without what was told already: of everything, or of that which it waits for."""
    cause = (explained.waits_for, explained.detail)
    if explained.detail == report.common_trouble or cause in told:
        return replace(explained, detail="")
    if explained.standing is Standing.WAITING and explained.waits_for != str(explained.step):
        told.add(cause)
    return explained


def _sentence(explained: Explained, report: ExplainReport) -> str:
    """What is to be said of an object beside its name and mark."""
    detail = explained.detail.removesuffix(explained.command).rstrip()
    since = _for(explained.since, report)
    if explained.standing is Standing.UNKNOWN and not detail:
        return ""
    if explained.standing is Standing.REMOVING:
        return f"{detail},{since}" if since else detail
    head = _head(explained, since)
    return ": ".join(filter(None, (head, detail)))


def _head(explained: Explained, since: str) -> str:
    match explained.standing:
        case Standing.DUE:
            free = "" if explained.detail else "; nothing is in its way"
            return f"to be {_DONE[explained.next]} next{free}"
        case Standing.WAITING:
            return _waiting(explained, since)
        case other:
            head = _HEADS.get(other, "")
            return f"{head}{since}" if head else ""


def _waiting(explained: Explained, since: str) -> str:
    coming = f"to be {_DONE[explained.next]}" if explained.next else "not there yet"
    if explained.waits_for != str(explained.step):
        return f"{coming}; waits for {explained.waits_for}{since}"
    return f"{coming}; waits{since}" if since else coming


def _footer(report: ExplainReport, terminal: Terminal) -> Iterator[str]:
    if report.sets:
        yield terminal.bold(terminal.paint(_summary(report), report.outcome))
    yield from (line for each in report.hints for line in wrapped("", each, terminal))
    if report.commands:
        yield "To see for yourself what cannot be told:"
        yield from (f"{_HINT}{each}" for each in report.commands)
    if report.description:
        yield "What the functions saw last:"
        yield f"{_HINT}{report.description}"


def _summary(report: ExplainReport) -> str:
    """The outcome in one line."""
    done = "gone, or left to others" if report.deleting_since else "applied and ready"
    parts = [f"{report.count(Outcome.MET)} of {len(report.objects)} objects {done}"]
    for outcome, words in ((WAITING, "on the way"), (Outcome.MISSING, "stuck"), (Outcome.UNKNOWN, "cannot be told")):
        if number := report.count(outcome):
            parts.append(f"{number} {words}")
    return ", ".join(parts)


def _for(since: str, report: ExplainReport, *, comma: bool = False) -> str:
    """Such as ` for 3m`; empty where nobody knows since when."""
    ago = _ago(since, report)
    return f"{',' if comma else ''} {ago}" if ago else ""


def _ago(since: str, report: ExplainReport) -> str:
    try:
        seconds = (report.now - datetime.fromisoformat(since)).total_seconds()
    except (ValueError, TypeError):  # a controller wrote it, in no form that is known, or without a time zone
        return ""
    return f"for {age(seconds)}"


def age(seconds: float) -> str:
    """Seconds in one unit, or two from an hour on: `45s`, `3m`, `5h10m`, `2d3h`."""
    whole = max(int(seconds), 0)
    for (length, unit), (finer_length, finer) in pairwise(_UNITS):
        if whole >= length:
            number, rest = divmod(whole, length)
            more = rest // finer_length
            return f"{number}{unit}{more}{finer}" if more and unit in "dh" else f"{number}{unit}"
    return f"{whole}s"
