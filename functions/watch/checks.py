"""Asks for looks at one cluster: one for whatever has come together, however many watches begin at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from functions.watch.pauses import pause_after, rest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Sequence

    from functions.world import Clock

WATCH_STARTED: Final = "WatchStarted"
WATCH_LOST: Final = "WatchLost"
OBJECT: Final = "Object"
APART: Final = 0.5
"""Seconds between two requests for a look, unless the watch is lost."""
PATIENCE: Final = 1.0
"""Seconds that a request waits for lists that are still expected."""


class Checks:
    """Gathers why a cluster needs a look, and asks for it once.

    A look is asked for as soon as all lists that are under way have come, after `PATIENCE` at the latest, and not
    sooner than `APART` after the last one. So whatever happened before a list is seen by a look after that list, and
    what happens later is told by the watch that begins there. That the watch is lost waits for nothing.
    """

    def __init__(
        self,
        ask: Callable[[str, Sequence[str]], Awaitable[object]],
        *,
        clock: Clock,
        tried: Callable[[Exception | None], None],
    ) -> None:
        """Keep the settings; nothing is asked before `run`.

        Args:
            ask: Asks for a look; gets the reason and what was observed. What it raises makes it be called again later.
            clock: For the pauses.
            tried: Told each time what `ask` raised; None where it did not.
        """
        self._ask = ask
        self._clock = clock
        self._tried = tried
        self._wanted: dict[str, set[str]] = {}
        self._since = 0.0
        self._not_before = 0.0
        self._failures = 0
        self._expected: set[Hashable] = set()
        self._stirred = asyncio.Event()

    def expect(self, what: Hashable) -> None:
        """Something is under way that may be a reason for a look, and that the next request had better wait for."""
        self._expected.add(what)

    def settle(self, what: Hashable) -> None:
        """It has come, or will not come soon."""
        self._expected.discard(what)
        self._stirred.set()

    def want(self, reason: str, observed: str) -> None:
        """A look is needed."""
        if not self._wanted:
            self._since = _now()
        self._wanted.setdefault(reason, set()).add(observed)
        self._stirred.set()

    async def run(self) -> None:
        """Asks until it is cancelled."""
        while True:
            self._stirred.clear()
            left = self._due() - _now() if self._wanted else None
            if left is None:
                await self._stirred.wait()
            elif left > 0:
                await rest(left, self._stirred, sleep=self._clock.sleep)
            else:
                await self._say()

    def _due(self) -> float:
        if self._failures:
            return self._not_before
        if WATCH_LOST in self._wanted:
            return 0.0
        return max(self._not_before, self._since + PATIENCE if self._expected else 0.0)

    async def _say(self) -> None:
        wanted, self._wanted = self._wanted, {}
        try:
            for reason in tuple(wanted):
                await self._ask(reason, sorted(wanted[reason]))
                del wanted[reason]
        except Exception as trouble:  # noqa: BLE001 - a bug that one cluster brings out must not end other watches
            for reason, observed in wanted.items():
                self._wanted.setdefault(reason, set()).update(observed)
            self._failures += 1
            self._not_before = _now() + pause_after(self._failures)
            self._tried(trouble)
        else:
            self._failures = 0
            self._not_before = _now() + APART
            self._tried(None)


def _now() -> float:
    return asyncio.get_running_loop().time()
