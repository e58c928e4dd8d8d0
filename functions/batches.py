"""Work by key, one piece at a time: whoever asks while a piece runs shares the next one.

Twenty CRDs of one cluster that come at once are then two looks at it, not twenty that get into each other's way.
Nothing rests on it: other replicas know nothing of this one's batches.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class Batches(Generic[Ask, Answer]):
    """Gathers what is asked for a key while the key's former work still runs."""

    def __init__(self) -> None:
        self._gathering: dict[str, tuple[list[Ask], asyncio.Task[Answer]]] = {}
        self._running: dict[str, asyncio.Task[Answer]] = {}

    async def submit(self, key: str, ask: Ask, work: Callable[[Sequence[Ask]], Awaitable[Answer]]) -> Answer:
        """The answer of the first work on `key` that begins after this call.

        Args:
            key: Work on different keys runs side by side.
            ask: What this caller wants of it.
            work: Does what several callers want; what it raises, each of them gets.
        """
        gathering = self._gathering.get(key)
        if gathering is None:
            asks: list[Ask] = []
            task = asyncio.create_task(self._perform(key, asks, work, self._running.get(key)))
            task.add_done_callback(_look_at)
            gathering = self._gathering[key] = (asks, task)
        asks, task = gathering
        asks.append(ask)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Ends the work under way; whoever waits for it is cancelled."""
        tasks = [*self._running.values(), *(task for _, task in self._gathering.values())]
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _perform(
        self,
        key: str,
        asks: list[Ask],
        work: Callable[[Sequence[Ask]], Awaitable[Answer]],
        former: asyncio.Task[Answer] | None,
    ) -> Answer:
        try:
            if former is not None:
                await asyncio.wait((former,))
        finally:
            task = self._running[key] = self._gathering.pop(key)[1]
        try:
            return await work(asks)
        finally:
            if self._running.get(key) is task:
                del self._running[key]


def _look_at(task: asyncio.Task[Answer]) -> None:
    """Nobody may be left to hear what it raised, which asyncio would complain about."""
    if not task.cancelled():
        task.exception()
