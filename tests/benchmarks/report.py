"""The figures as a table for people and as JSON for whoever compares runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tests.benchmarks.measure import Figure

_WIDTH: Final = 120
_VERDICTS: Final = {True: "yes", False: "NO", None: ""}


def print_table(figures: Sequence[Figure], stream: TextIO) -> None:
    """Prints the table, at most 120 columns wide, in colour only on a terminal."""
    console = Console(file=stream, highlight=False)
    console.width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("figure", overflow="fold", ratio=1)
    for name in ("value", "limit", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("met", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    for each in figures:
        limit = "" if each.limit is None else _number(each.limit)
        ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
        goal = "" if each.goal is None else each.goal.text
        style = "red" if each.met is False else None
        value = f"{_number(each.value)} {each.unit}"
        table.add_row(each.name, value, limit, ratio, goal, _VERDICTS[each.met], str(each.samples), style=style)
    console.print(table)
    judged = [each for each in figures if each.goal is not None]
    console.print(f"\n{sum(each.met is True for each in judged)} of {len(judged)} goals met")


def write_json(figures: Iterable[Figure], path: Path) -> None:
    """Writes a list with an object for each figure."""
    path.write_text(json.dumps([_plain(each) for each in figures], indent=2) + "\n")


def _plain(each: Figure) -> dict[str, Any]:
    return {
        "name": each.name,
        "value": each.value,
        "unit": each.unit,
        "limit": each.limit,
        "ratio": each.ratio,
        "goal": None if each.goal is None else each.goal.text,
        "met": each.met,
        "samples": each.samples,
        "date": each.date.isoformat(timespec="seconds"),
    }


def _number(value: float) -> str:
    """Three significant digits, and all digits before the point."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
