from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from functions.batches import Batches

if TYPE_CHECKING:
    from collections.abc import Sequence


class Work:
    """Work that a test lets go on, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, ...]] = []
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    async def do(self, asks: Sequence[str]) -> int:
        self.pieces.append(tuple(asks))
        self.begun.set()
        await self.go_on.wait()
        return len(self.pieces)


async def test_whoever_asks_while_a_piece_runs_shares_the_next() -> None:
    batches: Batches[str, int] = Batches()
    work = Work()
    first = asyncio.create_task(batches.submit("a", "one", work.do))
    await work.begun.wait()
    others = [asyncio.create_task(batches.submit("a", ask, work.do)) for ask in ("two", "three")]
    work.go_on.set()
    assert await asyncio.gather(first, *others) == [1, 2, 2]
    assert work.pieces == [("one",), ("two", "three")]


async def test_keys_do_not_wait_for_each_other() -> None:
    batches: Batches[str, int] = Batches()
    held, free = Work(), Work()
    waiting = asyncio.create_task(batches.submit("held", "x", held.do))
    await held.begun.wait()
    free.go_on.set()
    assert await batches.submit("free", "y", free.do) == 1
    held.go_on.set()
    await waiting


async def test_a_failure_reaches_all_who_share_it_and_no_one_else() -> None:
    batches: Batches[str, int] = Batches()

    async def fail(_: Sequence[str]) -> int:
        raise ValueError("no")

    found = await asyncio.gather(*(batches.submit("a", "x", fail) for _ in range(2)), return_exceptions=True)
    assert [type(each) for each in found] == [ValueError, ValueError]
    work = Work()
    work.go_on.set()
    assert await batches.submit("a", "later", work.do) == 1


async def test_a_caller_that_gives_up_does_not_take_the_others_along() -> None:
    batches: Batches[str, int] = Batches()
    work = Work()
    impatient = asyncio.create_task(batches.submit("a", "one", work.do))
    patient = asyncio.create_task(batches.submit("a", "two", work.do))
    await work.begun.wait()
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    work.go_on.set()
    assert await patient == 1


async def test_closing_ends_what_runs_and_what_waits() -> None:
    batches: Batches[str, int] = Batches()
    work = Work()
    first = asyncio.create_task(batches.submit("a", "one", work.do))
    await work.begun.wait()
    second = asyncio.create_task(batches.submit("a", "two", work.do))
    await asyncio.sleep(0)
    await batches.close()
    for each in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await each
    assert work.pieces == [("one",)]
