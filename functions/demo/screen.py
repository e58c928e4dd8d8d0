"""What a person sees of the demonstration: tables that change in place on a terminal, a line per change elsewhere."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from functions.demo.picture import Mood, duration

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

    from functions.demo.picture import Picture

_LOOK: Final = {
    Mood.GOOD: ("\N{SQUARE ROOT}", "green"),
    Mood.BAD: ("\N{MULTIPLICATION SIGN}", "red"),
    Mood.UNKNOWN: ("?", "yellow"),
    Mood.UNDERWAY: ("\N{HORIZONTAL ELLIPSIS}", "yellow"),
    Mood.WAITING: ("\N{MIDDLE DOT}", "bright_black"),
    Mood.NEXT: ("\N{MIDDLE DOT}", "bright_black"),
    Mood.GONE: ("\N{MIDDLE DOT}", "bright_black"),
}
_WIDE: Final = 124
"""Columns from which on there is room for reasons and names in full."""
_STATE: Final = 25
"""Columns for how an object stands, where there are just 80 in all."""
_EVERY: Final = 0.05
"""Seconds between two drawings, so that what is shown is not late because of the showing."""


class Screen:
    """Shows a picture as it changes, and tells the story."""

    def __init__(self, picture: Picture, console: Console | None = None) -> None:
        """Keep the settings; nothing is shown before the context is entered.

        Args:
            picture: What is shown.
            console: Where; None for the standard output.
        """
        self._picture = picture
        self._console = console or Console(highlight=False)
        self._printed: dict[str, str] = {}
        self._live: Live | None = None
        self._due: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_live(self) -> bool:
        """Whether somebody watches it, and sees it change in place."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def say(self, text: str) -> None:
        """One line of the story."""
        self._console.print(Text(text, overflow="fold"), soft_wrap=not self.is_live)

    def changed(self) -> None:
        """The picture changed."""
        if not self.is_live:
            self._print()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(_EVERY, self._draw)

    def took(self, name: str, milliseconds: float) -> None:
        """How long a condition took to follow what was done."""
        if self.is_live:
            self.changed()
        else:
            self.say(f"    {name}: after {duration(milliseconds)}")

    def next_table(self) -> None:
        """Leaves the tables as they are now; what follows is shown below them."""
        self.close()
        self._open()

    def close(self) -> None:
        """Leaves the tables as they are now; what is said from now on stands below them."""
        if self._due is not None:
            self._due.cancel()
        if self._live is not None:
            self._draw()
            self._live.stop()
            self._live = None

    def _open(self) -> None:
        if self.is_live:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()

    def _draw(self) -> None:
        self._due = None
        if self._live is not None:
            self._live.update(self.tables(), refresh=True)

    def _print(self) -> None:
        rows = (*self._picture.summaries(), *self._picture.conditions(), *self._picture.objects())
        for row in rows:
            if row.mood is not Mood.NEXT and self._printed.get(row.name) != row.news:
                self._printed[row.name] = row.news
                mark, style = _LOOK[row.mood]
                said = f"{row.name:<24} {row.status:<8} {row.text}" if row.status else f"{row.name:<48} {row.text}"
                self._console.print(Text(f"  {mark} {said}", style=style), soft_wrap=True)

    def tables(self) -> RenderableType:
        """All that is shown in place."""
        if self._picture.gone:
            return Group("", self._objects(full=True))
        if self._picture.deleting:
            return Group("", self._summaries(), "", self._objects(full=True))
        wide = self._console.width >= _WIDE
        both = Table.grid(padding=(0, 1, 0, 0))
        both.add_row(self._conditions(full=wide), self._objects(full=wide))
        return Group(self._summaries(), "", both)

    def _summaries(self) -> Table:
        table = _table(None, None, None, None)
        for row in self._picture.summaries():
            mark, style = _LOOK[row.mood]
            table.add_row(mark, row.name, row.status, row.text, style=style)
        gateway = self._picture.published
        table.add_row("", "status.gateway", "", gateway.get("address", "not published"))
        if "hostname" in gateway:
            table.add_row("", "", "", gateway["hostname"])
        return table

    def _conditions(self, *, full: bool) -> Table:
        table = _table("", "CONDITION OF gpu-1", "AFTER", *(["REASON"] if full else []))
        table.columns[1].min_width = 22
        table.columns[2].justify = "right"
        table.columns[2].min_width = 7
        for row in self._picture.conditions():
            mark, style = _LOOK[row.mood]
            after = "" if row.after is None else duration(row.after)
            table.add_row(mark, row.name, after, *([row.text] if full else []), style=style)
        return table

    def _objects(self, *, full: bool) -> Table:
        table = _table("", "OBJECT ON gpu-1", "STATE")
        table.columns[1].min_width = 47 if full else 19
        for row in self._picture.objects():
            mark, style = _LOOK[row.mood]
            text = Text(row.text)
            if not full:
                text.truncate(_STATE, overflow="ellipsis")
            table.add_row(mark, row.name if full else row.short, text, style=style)
        return table


def _table(*columns: str | None) -> Table:
    """A table without lines that fits; without a header where the columns have no names."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=columns[0] is not None)
    for each in columns:
        table.add_column(each or "", no_wrap=True, overflow="ellipsis")
    return table
