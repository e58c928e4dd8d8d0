"""What a stream can show: width, colour and marks; used by every text for people and by the progress of `--wait`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

import click

from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

WAITING: Final = "Waiting"
"""Beside the outcomes: what is on its way."""
MARKS: Final[Mapping[str, str]] = {
    Outcome.MET: "√",
    Outcome.MISSING: "×",  # noqa: RUF001 - the mark of a miss
    Outcome.UNKNOWN: "?",
    WAITING: "…",
}
ASCII_MARKS: Final[Mapping[str, str]] = {Outcome.MET: "+", Outcome.MISSING: "x", Outcome.UNKNOWN: "?", WAITING: "-"}
COLOURS: Final[Mapping[str, str]] = {
    Outcome.MET: "green",
    Outcome.MISSING: "red",
    Outcome.UNKNOWN: "yellow",
    WAITING: "cyan",
}
WIDTH: Final = 80
"""Columns of text; a wider terminal does not make longer lines better to read."""
HEIGHT: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A place to write to.

    Attributes:
        width: Columns.
        height: Lines.
        in_place: Whether what was written can be drawn over.
        colour: Whether it is to show colours.
        marks: What stands for each outcome, and for `WAITING`.
    """

    width: int = WIDTH
    height: int = HEIGHT
    in_place: bool = False
    colour: bool = False
    marks: Mapping[str, str]

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """What the stream can, by the environment's word (NO_COLOR, TERM) and its own encoding."""
        interactive = stream.isatty()
        capable = interactive and os.environ.get("TERM") != "dumb"
        size = os.get_terminal_size(stream.fileno()) if interactive else os.terminal_size((WIDTH, HEIGHT))
        try:
            "".join(MARKS.values()).encode(stream.encoding or "ascii")
        except UnicodeEncodeError:
            marks = ASCII_MARKS
        else:
            marks = MARKS
        return cls(
            width=min(size.columns or WIDTH, WIDTH),  # some pseudo-terminals say 0
            height=size.lines or HEIGHT,
            in_place=capable,
            colour=capable and not os.environ.get("NO_COLOR"),
            marks=marks,
        )

    def mark(self, outcome: str) -> str:
        """The mark of an outcome, in its colour."""
        return self.paint(self.marks[outcome], outcome)

    def paint(self, text: str, outcome: str) -> str:
        """Text in the colour of an outcome."""
        return click.style(text, fg=COLOURS[outcome]) if self.colour else text

    def bold(self, text: str) -> str:
        """Text that stands out."""
        return click.style(text, bold=True) if self.colour else text
