"""How many looks are asked for, and when."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from events.publisher import NotAccepted
from functions.watch.checks import APART, OBJECT, PATIENCE, WATCH_LOST, WATCH_STARTED, Checks
from functions.world import Clock
from tests.watch.fakes import WITHIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence


@dataclass(slots=True)
class Asked:
    """What was asked for; `refuse` makes it refuse so many requests."""

    refuse: int = 0
    looks: asyncio.Queue[tuple[str, tuple[str, ...]]] = field(default_factory=asyncio.Queue)
    outcomes: list[str] = field(default_factory=list)

    async def ask(self, reason: str, observed: Sequence[str]) -> None:
        if self.refuse:
            self.refuse -= 1
            raise NotAccepted("no room")
        self.looks.put_nowait((reason, tuple(observed)))

    async def next(self) -> tuple[str, tuple[str, ...]]:
        async with asyncio.timeout(WITHIN):
            return await self.looks.get()


@asynccontextmanager
async def running(asked: Asked) -> AsyncIterator[Checks]:
    checks = Checks(asked.ask, clock=Clock(), tried=lambda trouble: asked.outcomes.append(str(trouble)))
    task = asyncio.create_task(checks.run())
    try:
        yield checks
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_thirteen_lists_are_one_look_after_the_last_of_them() -> None:
    asked = Asked()
    async with running(asked) as checks:
        for number in range(13):
            checks.expect(number)
        for number in range(13):
            assert asked.looks.empty()
            checks.want(WATCH_STARTED, f"{number:02}")
            checks.settle(number)
            await asyncio.sleep(0)
        assert await asked.next() == (WATCH_STARTED, tuple(f"{number:02}" for number in range(13)))
        checks.want(WATCH_STARTED, "later")
        assert await asked.next() == (WATCH_STARTED, ("later",))


async def test_a_list_that_does_not_come_is_waited_for_a_second() -> None:
    asked = Asked()
    async with running(asked) as checks:
        checks.expect("a server that hangs")
        began = now()
        checks.want(WATCH_STARTED, "1")
        await asked.next()
        assert now() - began >= PATIENCE


async def test_looks_come_apart() -> None:
    asked = Asked()
    async with running(asked) as checks:
        checks.want(WATCH_STARTED, "1")
        await asked.next()
        before = now()
        for each in "23":
            checks.want(WATCH_STARTED, each)
            await asyncio.sleep(0)
        assert await asked.next() == (WATCH_STARTED, ("2", "3"))
        assert now() - before >= APART * 0.9


async def test_that_the_watch_is_lost_waits_for_nothing() -> None:
    asked = Asked()
    async with running(asked) as checks:
        checks.want(WATCH_STARTED, "1")
        await asked.next()
        checks.expect("a server that is gone")
        before = now()
        checks.want(WATCH_LOST, "2")
        assert await asked.next() == (WATCH_LOST, ("2",))
        assert now() - before < APART


async def test_what_is_not_taken_is_asked_for_again() -> None:
    asked = Asked(refuse=2)
    async with running(asked) as checks:
        checks.want(WATCH_STARTED, "1")
        checks.want(OBJECT, "2")
        assert {await asked.next(), await asked.next()} == {(WATCH_STARTED, ("1",)), (OBJECT, ("2",))}
    assert asked.outcomes == ["no room", "no room", "None"]
