"""Pauses of whoever waits for something that may be told, or else has to be looked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FIRST: Final = 0.1
LONGEST: Final = 30.0
_DOUBLINGS: Final = 16  # more than the longest pause allows


def pause_after(failures: int) -> float:
    """Seconds to leave something in peace that failed so often in a row, at least once."""
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, _DOUBLINGS))


async def rest(seconds: float, woken: asyncio.Event, *, sleep: Callable[[float], Awaitable[object]]) -> None:
    """Returns after some seconds, or once `woken` is set."""
    waits = {asyncio.ensure_future(sleep(seconds)), asyncio.ensure_future(woken.wait())}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
