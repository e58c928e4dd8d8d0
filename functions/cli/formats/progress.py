"""How `check --wait` shows on stderr what turns: a board redrawn in place on a terminal, else a line per change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from functions.cli.formats.report import Report
    from functions.cli.formats.terminal import Terminal
    from functions.judge import Finding

_CLEAR_BELOW: Final = "\r\033[J"
_KEY_COLUMNS: Final = 24  # the longest key, and a space


class Progress(Protocol):
    """Sees each look at the cluster."""

    def show(self, report: Report, left: float) -> None:
        """Show a look, with so many seconds left to wait."""

    def end(self) -> None:
        """Leave the stream to others."""


def progress(stream: TextIO, terminal: Terminal) -> Progress:
    """What fits the stream, which `terminal` describes."""
    return Board(stream, terminal) if terminal.in_place else Lines(stream, terminal)


class Silence:
    """Shows nothing."""

    def show(self, report: Report, left: float) -> None:
        """Show nothing."""

    def end(self) -> None:
        """There is nothing to end."""


class Board:
    """A line per component, redrawn in place, and gone at the end: the report takes its place."""

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._stream = stream
        self._terminal = terminal
        self._lines = 0

    def show(self, report: Report, left: float) -> None:
        """Draw over the former look."""
        lines = [f"{report.summary}; waiting {duration(left)} more for {report.context} ({report.stack})"]
        for verdict in report.verdicts:
            mark = self._terminal.mark(verdict.outcome)
            rest = f" {verdict.component.key:{_KEY_COLUMNS}}{verdict.message}"
            lines.append(mark + self._cut(rest, self._terminal.width - 1))
        lines[0] = self._cut(lines[0], self._terminal.width)
        lines = lines[: self._terminal.height - 1]  # what has scrolled off can no longer be drawn over
        self._stream.write(self._back() + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._lines = len(lines)

    def end(self) -> None:
        """Wipe it."""
        self._stream.write(self._back())
        self._stream.flush()
        self._lines = 0

    def _back(self) -> str:
        return (f"\033[{self._lines}A" if self._lines else "") + _CLEAR_BELOW

    @staticmethod
    def _cut(text: str, width: int) -> str:
        return text if len(text) <= width else f"{text[: width - 3]}..."


class Lines:
    """A line per requirement that has turned."""

    def __init__(self, stream: TextIO, terminal: Terminal) -> None:
        self._stream = stream
        self._terminal = terminal
        self._before: frozenset[Finding] = frozenset()

    def show(self, report: Report, left: float) -> None:
        """Write what has turned since the former look, the first time what is waited for if anything is."""
        if not self._before and not left:
            return
        turned = [each for each in report.findings if each not in self._before]
        if not self._before:
            self._write(f"{report.summary}; waiting {duration(left)} for {report.context} ({report.stack})")
            turned = [each for each in turned if each.detail]
        for finding in turned:
            self._write(f"{self._terminal.mark(finding.outcome)} {finding}")
        self._before = frozenset(report.findings)

    def end(self) -> None:
        """Leave the lines."""

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Seconds as Go writes durations, without fractions: `90` as `1m30s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
