"""The host in process, as the embedded broker calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from events.event import Event
from functions.function import Function
from functions.host.host import Host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.world import World

EVENT = Event(id="1", source="/test", type="test.asked", extensions={"cluster": "gpu-1"})
NO_WORLD = cast("World", None)


async def two(event: Event, _world: World) -> Sequence[Event]:
    return [Event(id=f"{event.id}-{n}", source="/f", type="test.answered") for n in range(2)]


@pytest.fixture
def host() -> Host:
    return Host([Function(name="two", handler=two, wakes_on=(), emits=(), service="s")], NO_WORLD)


async def test_the_caller_can_take_every_event(host: Host) -> None:
    answer = await host.handle("two", EVENT)
    assert answer.status == 200
    assert [(event.id, event.extensions["hops"]) for event in answer.events] == [("1-0", "1"), ("1-1", "1")]


async def test_a_function_that_is_not_served(host: Host) -> None:
    answer = await host.handle("three\x1b", EVENT)
    assert (answer.status, answer.events) == (422, ())
    assert answer.body == r"no function at /three\x1b; served are /two"


async def test_every_event_has_a_line_in_the_log(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await host.handle("two", EVENT)
    [record] = caplog.records
    fields = ("function", "event_id", "event_type", "subject", "cluster", "outcome")
    assert [getattr(record, field) for field in fields] == ["two", "1", "test.asked", None, "gpu-1", "handled"]
    assert vars(record)["duration_ms"] >= 0
