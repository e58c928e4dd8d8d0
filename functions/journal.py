"""Writes down every event that passes the Broker, so that what happened can be read and sent again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from functions.function import EVERY_EVENT, Function, Later

if TYPE_CHECKING:
    from collections.abc import Sequence

    from events.event import Event
    from functions.world import World

NAME: Final = "journal"


async def journal(event: Event, world: World) -> Sequence[Event]:
    """Appends a line; answers with nothing."""
    await write_down(event, world)
    return ()


async def write_down(event: Event, world: World) -> None:
    """Appends an event to the journal of this process.

    Raises:
        Later: It cannot be written, as where the disk is full.
    """
    if world.journal is None:
        raise Later("there is no journal: start with --journal FILE")
    try:
        await asyncio.to_thread(world.journal.append, event, world.clock.now())
    except OSError as trouble:
        raise Later(f"the journal cannot be written: {trouble.strerror}") from trouble


FUNCTION: Final = Function(
    name=NAME,
    handler=journal,
    wakes_on=(EVERY_EVENT,),
    emits=(),
    service="journal",
    rights=(),
    records=True,
)
