"""The rules of delivery, tried on the embedded broker and on Knative's own."""

from __future__ import annotations

import base64
import contextlib
import itertools
import secrets
import time
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from events.event import Event
from tests.knative.venues import Embedded, Real, arrivals, trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from functions.local.knative.instance import KnativeControlPlane
    from tests.knative.venues import Arrival, Script, Venue

# The embedded broker handles events asynchronously, as Knative's does with this.
_ASYNC = {"messaging.knative.dev/async-handler": "true"}
_TOLERANCE = 0.45  # seconds that a delivery may be late


class Opens(Protocol):
    """Opens a venue with Triggers, one for each path that has a script or a delivery."""

    async def __call__(self, script: Script, *names: str, delivery: Mapping[str, Any] | None = None) -> Venue: ...


@pytest.fixture(params=["embedded", pytest.param("knative", marks=[pytest.mark.e2e, pytest.mark.timeout(300)])])
async def opens(request: pytest.FixtureRequest) -> AsyncIterator[Opens]:
    async with contextlib.AsyncExitStack() as stack:

        async def opened(script: Script, *names: str, delivery: Mapping[str, Any] | None = None) -> Venue:
            triggers = [trigger(name, delivery=delivery) for name in names]
            if request.param == "embedded":
                return await stack.enter_async_context(Embedded.opened(triggers, script))
            knative = request.getfixturevalue("knative")
            return await stack.enter_async_context(Real.opened(knative, triggers, script, _ASYNC))

        yield opened


def _event(name: str) -> Event:
    return Event(
        id=secrets.token_hex(4),
        source="/contract",
        type=f"contract.{name}",
        datacontenttype="application/json",
        data=b'{"a":1}',
    )


def _gaps(found: list[Arrival]) -> list[float]:
    return [later.at - earlier.at for earlier, later in itertools.pairwise(found)]


async def test_linear_back_off_begins_with_no_wait_at_all(opens: Opens) -> None:
    script: Script = {"/flaky": [{"status": 503}, {"status": 503}, {"status": 503}, {"status": 204}]}
    venue = await opens(script, "flaky", delivery={"retry": 5, "backoffPolicy": "linear", "backoffDelay": "PT0.5S"})
    await venue.publish(_event("flaky"))
    gaps = _gaps(await arrivals(venue, "/flaky", 4))
    for gap, expected in zip(gaps, (0.0, 0.5, 1.0), strict=True):
        assert expected <= gap + 0.01
        assert gap < expected + _TOLERANCE
    assert await arrivals(venue, "/dead/flaky", 0) == []


async def test_what_can_never_be_handled_is_dead_lettered_at_once(opens: Opens) -> None:
    venue = await opens({"/poison": [{"status": 422, "body": "no such cluster"}]}, "poison", delivery={"retry": 5})
    event = _event("poison")
    await venue.publish(event)
    [tried] = await arrivals(venue, "/poison", 1)
    [dead] = await arrivals(venue, "/dead/poison", 1)
    assert dead.at - tried.at < _TOLERANCE
    assert dead.headers["ce-id"] == event.id
    assert dead.headers["ce-type"] == event.type
    assert dead.body == '{"a":1}'
    assert dead.headers["ce-knativeerrorcode"] == "422"
    assert dead.headers["ce-knativeerrordest"] == f"{venue.subscriber}/poison"
    assert base64.b64decode(dead.headers["ce-knativeerrordata"]) == b"no such cluster"


async def test_what_may_pass_is_tried_once_and_as_often_again_as_the_trigger_says(opens: Opens) -> None:
    venue = await opens({"/busy": [{"status": 503, "body": "later"}]}, "busy", delivery={"retry": 2})
    await venue.publish(_event("busy"))
    [dead] = await arrivals(venue, "/dead/busy", 1)
    assert dead.headers["ce-knativeerrorcode"] == "503"
    assert len(await arrivals(venue, "/busy", 3)) == 3


async def test_a_reply_is_published_and_no_hop_count_is_shown(opens: Opens) -> None:
    reply = {"specversion": "1.0", "id": "r1", "source": "/probe", "type": "contract.answer"}
    venue = await opens({"/question": [{"reply": reply}]}, "question", "answer")
    await venue.publish(_event("question"))
    [asked] = await arrivals(venue, "/question", 1)
    [answered] = await arrivals(venue, "/answer", 1)
    assert answered.headers["ce-id"] == "r1"
    assert answered.headers["ce-source"] == "/probe"
    for each in (asked, answered):
        assert each.headers["prefer"] == "reply"
        assert "ce-knativearrivaltime" in each.headers
        assert "ce-knativebrokerttl" not in each.headers


async def test_success_with_a_body_that_is_no_event_is_a_failure(opens: Opens) -> None:
    venue = await opens({"/chatty": [{"status": 200, "body": "ok"}]}, "chatty", delivery={"retry": 1})
    await venue.publish(_event("chatty"))
    [dead] = await arrivals(venue, "/dead/chatty", 1)
    # Knative's own says nothing of why in this one case.
    assert dead.headers.get("ce-knativeerrorcode") == ("502" if isinstance(venue, Embedded) else None)
    assert len(await arrivals(venue, "/chatty", 2)) == 2


async def test_one_event_that_fails_holds_up_no_other(opens: Opens) -> None:
    script: Script = {"/stuck": [{"status": 503}], "/fine": [{"status": 204}]}
    venue = await opens(script, "stuck", "fine", delivery={"retry": 3, "backoffDelay": "PT1S"})
    await venue.publish(_event("stuck"))
    await arrivals(venue, "/stuck", 2)  # in the midst of its retries
    began = time.time()
    await venue.publish(_event("fine"))
    [fine] = await arrivals(venue, "/fine", 1)
    assert fine.at - began < _TOLERANCE
    assert await arrivals(venue, "/dead/stuck", 1)


@pytest.mark.e2e
@pytest.mark.timeout(300)
async def test_a_broker_that_is_not_asynchronous_waits_for_the_one_that_fails(knative: KnativeControlPlane) -> None:
    """What the embedded broker does not imitate, and the manifests avoid: its publisher waits for every retry."""
    policy = {"retry": 2, "backoffPolicy": "linear", "backoffDelay": "PT1S"}
    script: Script = {"/stuck": [{"status": 503}]}
    async with Real.opened(knative, [trigger("stuck", delivery=policy)], script, {}) as venue:
        began = time.monotonic()
        await venue.publish(_event("stuck"))
        # 0 and 1 s between its three tries; an asynchronous broker takes the event at once.
        assert 1.0 < time.monotonic() - began < 1.0 + 4 * _TOLERANCE
        assert await arrivals(venue, "/dead/stuck", 1)
