from __future__ import annotations

import asyncio

import pytest

from functions.host.time_limit import TimeLimit


async def test_a_body_in_time_gives_its_result() -> None:
    with TimeLimit(10)() as timed:
        await asyncio.sleep(0)
    assert not timed.expired


async def test_each_body_that_takes_too_long_is_interrupted() -> None:
    limit = TimeLimit(0.01)

    async def wait() -> bool:
        timed = limit()
        try:
            with timed:
                await asyncio.Event().wait()
        except TimeoutError:
            return timed.expired
        return False

    assert all(await asyncio.gather(wait(), wait(), wait()))
    with limit():  # one that begins after the others, with a timer of its own
        await asyncio.sleep(0)
    assert await wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_later_body_has_its_own_time() -> None:
    limit = TimeLimit(0.01)
    first_ended = asyncio.Event()

    async def first() -> None:
        with pytest.raises(TimeoutError), limit():
            await asyncio.Event().wait()
        first_ended.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(first())
        await asyncio.sleep(0)  # let it begin
        limit.seconds = 10
        with limit() as second:
            await first_ended.wait()
    assert not second.expired


async def test_cancellation_from_outside_stays_one() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        with TimeLimit(10)():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_out_of_the_body_itself_is_told_apart() -> None:
    with pytest.raises(TimeoutError), TimeLimit(10)() as timed:
        raise TimeoutError
    assert not timed.expired
