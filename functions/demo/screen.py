"""What a person sees of the demonstration: a table that changes in place on a terminal, a line per change elsewhere."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from functions.conditions import REQUIREMENTS_MET, Condition, Status, checked_components

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from functions.catalog import Stack

_LOOK: Final = {
    Status.TRUE: ("\N{SQUARE ROOT}", "green"),
    Status.FALSE: ("\N{MULTIPLICATION SIGN}", "red"),
    Status.UNKNOWN: ("?", "yellow"),
}


class Screen:
    """Shows the conditions of one InferenceCluster as they turn."""

    def __init__(self, stack: Stack) -> None:
        self._console = Console(highlight=False)
        names = {REQUIREMENTS_MET: REQUIREMENTS_MET} | {each.condition: each.key for each in checked_components(stack)}
        self._names: Final = names
        self._conditions: dict[str, Condition] = {}
        self._milliseconds: dict[str, float] = {}
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line of the story."""
        self._console.print(Text(text, overflow="fold"), soft_wrap=self._live is None)

    def turned(self, condition: Condition) -> None:
        """A condition changed."""
        if condition.type not in self._names:
            return
        before = self._conditions.get(condition.type)
        self._conditions[condition.type] = condition
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        elif before is None or before.status is not condition.status:
            mark, style = _look(condition)
            line = f"  {mark} {self._names[condition.type]:<24} {condition.status!s:<8} {condition.reason}"
            self._console.print(Text(line, style=style), soft_wrap=True)

    def took(self, type_: str, milliseconds: float) -> None:
        """How long a condition took to follow what was done."""
        self._milliseconds[type_] = milliseconds
        if self._live is not None:
            self._live.update(self._table(), refresh=True)
        else:
            self._console.print(f"    after {milliseconds:.0f} ms", soft_wrap=True)

    def summary(self, latencies: Sequence[float]) -> None:
        """How long the conditions took to follow."""
        self.say("")
        self.say(f"{len(latencies)} changes, from the API server's acceptance of the last object to the condition:")
        slowest = max(latencies)
        self.say(f"median {median(latencies):.0f} ms, slowest {slowest:.0f} ms (a CRD of 600 KB takes the server long)")

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=True)
        table.add_column("")
        table.add_column("CONDITION OF gpu-1", min_width=24)
        table.add_column("STATUS")
        table.add_column("AFTER", justify="right")
        table.add_column("REASON")
        for type_, name in self._names.items():
            condition = self._conditions.get(type_)
            if condition is not None:
                mark, style = _look(condition)
                after = self._milliseconds.get(type_)
                took = "" if after is None else f"{after:.0f} ms"
                table.add_row(mark, name, str(condition.status), took, condition.reason, style=style)
        return table


def _look(condition: Condition) -> tuple[str, str]:
    """Mark and colour; while nothing was looked at yet, nothing is a miss."""
    return _LOOK[Status.UNKNOWN if condition.reason == "Checking" else condition.status]
