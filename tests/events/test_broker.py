"""The embedded broker's contract, the same over HTTP and in process, with the time of every arrival."""

from __future__ import annotations

import asyncio
import base64
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from multidict import CIMultiDict

from events import broker as broker_module
from events.broker import Broker, Refused
from events.codec import MAX_SIZE, decode, encode_binary, encode_structured
from events.delivery import HttpDelivery, InProcess, Response, retry_after
from events.event import Event
from events.triggers import InvalidTrigger, read_triggers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from events.delivery import Transport

START = datetime(2026, 12, 1, 4, tzinfo=UTC)
ADDED = Event(id="1", source="/cluster", type="crd.added", datacontenttype="application/json", data=b"{}")
MET = Event(id="met", source="/probe", type="requirement.met", data=b'{"ok": true}', datacontenttype="application/json")
OK = Response(status=204)


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def sleep(self, seconds: float) -> None:
        self.seconds = round(self.seconds + seconds, 6)
        await asyncio.sleep(0)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)


@dataclass
class Subscribers:
    """Answers each path by its script, of which the last entry repeats, and keeps what arrived when."""

    clock: Clock
    scripts: dict[str, list[Response | str]]
    arrived: list[tuple[str, Event, float]] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, path: str, event: Event) -> Response:
        self.arrived.append((path, event, self.clock.seconds))
        self.arrival.set()
        script = self.scripts.get(path, [OK])
        step = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(step, Response):
            return step
        if step == "hang":
            await self.released.wait()
            return OK
        raise ConnectionError(step)

    async def serve(self, request: web.Request) -> web.Response:
        assert request.headers["Prefer"] == "reply"
        event = decode(request.headers, await request.read())
        try:
            response = await self.handle(request.path, event)
        except ConnectionError:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        headers = {} if response.retry_after is None else {"Retry-After": f"{response.retry_after:g}"}
        body = response.body
        if response.events:
            message = encode_binary(response.events[0])
            headers, body = headers | message.headers, message.body
        return web.Response(status=response.status, headers=headers, body=body)

    def at(self, path: str) -> list[float]:
        return [seconds for reached, _, seconds in self.arrived if reached == path]

    def events(self, path: str) -> list[Event]:
        return [event for reached, event, _ in self.arrived if reached == path]


def trigger(name: str, wakes_on: str, **delivery: Any) -> dict[str, Any]:
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "probes", "namespace": "modelplane"}
    sink = {} if delivery.pop("no_sink", False) else {"deadLetterSink": {"ref": service, "uri": "/dead"}}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": name},
        "spec": {
            "filters": [{"prefix": {"type": wakes_on}}],
            "subscriber": {"ref": service, "uri": f"/{name}"},
            "delivery": {"backoffPolicy": "linear", "backoffDelay": "PT1S", **sink, **delivery},
        },
    }


@dataclass
class Scene:
    broker: Broker
    subscribers: Subscribers
    base: str

    async def publish(self, *events: Event) -> Scene:
        for event in events:
            await self.broker.publish(event)
        await self.broker.drain()
        return self


@pytest.fixture(params=["in process", "http"])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Callable[..., Any]]:
    """Makes a broker with Triggers and scripted subscribers, over each transport."""
    async with AsyncExitStack() as stack:

        async def make(
            triggers: list[dict[str, Any]], scripts: dict[str, list[Response | str]] | None = None, **options: Any
        ) -> Scene:
            clock = Clock()
            subscribers = Subscribers(clock, scripts or {})
            transport: Transport = InProcess(subscribers.handle)
            base = "http://probes.modelplane.svc.cluster.local"
            if request.param == "http":
                app = web.Application()
                app.router.add_post("/{path:.*}", subscribers.serve)
                server = TestServer(app, host="127.0.0.1")
                await server.start_server()
                stack.push_async_callback(server.close)
                session = await stack.enter_async_context(aiohttp.ClientSession())
                base = str(server.make_url("")).rstrip("/")
                transport = HttpDelivery({"probes": base + "/"}, session)
            broker = Broker(
                read_triggers(yaml.safe_dump_all(triggers)), transport, sleep=clock.sleep, now=clock.now, **options
            )
            stack.push_async_callback(broker.close)
            stack.callback(subscribers.released.set)
            return Scene(broker, subscribers, base)

        yield make


async def test_every_trigger_that_matches_gets_the_event(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd."), trigger("b", "crd.added"), trigger("c", "node.")])
    await scene.publish(ADDED)
    assert sorted(path for path, _, _ in scene.subscribers.arrived) == ["/a", "/b"]
    arrived = scene.subscribers.events("/a")[0]
    assert arrived == replace(ADDED, extensions={"knativearrivaltime": "2026-12-01T04:00:00Z"})
    assert (scene.broker.counts.accepted, scene.broker.counts.delivered) == (1, 2)


async def test_a_reply_is_published_and_the_hop_budget_is_hidden(stage: Callable[..., Any]) -> None:
    scene = await stage(
        [trigger("probe", "crd."), trigger("compose", "requirement.")],
        {"/probe": [Response(status=200, events=(MET,))]},
    )
    await scene.publish(replace(ADDED, extensions={"knativebrokerttl": "9", "namespace": ""}))
    probe, compose = scene.subscribers.events("/probe")[0], scene.subscribers.events("/compose")[0]
    assert (compose.id, compose.data, compose.source) == (MET.id, MET.data, MET.source)
    assert set(probe.extensions) == {"namespace", "knativearrivaltime"}
    assert set(compose.extensions) == {"knativearrivaltime"}


@pytest.mark.parametrize("status", [404, 408, 409, 429, 500, 502, 503, 599])
async def test_what_may_pass_is_retried(stage: Callable[..., Any], status: int) -> None:
    scene = await stage([trigger("a", "crd.", retry=2)], {"/a": [Response(status=status), OK]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == [0, 0]
    assert not scene.subscribers.at("/dead")
    assert (scene.broker.counts.retried, scene.broker.counts.delivered) == (1, 1)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 413, 422, 425])
async def test_what_cannot_pass_is_dead_lettered_at_once(stage: Callable[..., Any], status: int) -> None:
    scene = await stage([trigger("a", "crd.", retry=5)], {"/a": [Response(status=status, body=b"unknown stack\n")]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == [0]
    letter = scene.subscribers.events("/dead")[0]
    assert (letter.id, letter.source, letter.type, letter.data) == (ADDED.id, ADDED.source, ADDED.type, ADDED.data)
    assert letter.extensions == {
        "knativearrivaltime": "2026-12-01T04:00:00Z",
        "knativeerrordest": f"{scene.base}/a",
        "knativeerrorcode": str(status),
        "knativeerrordata": base64.b64encode(b"unknown stack\n").decode(),
    }
    assert (scene.broker.counts.dead_lettered, scene.broker.counts.lost) == (1, 0)


@pytest.mark.parametrize(
    ("policy", "arrivals"),
    [
        pytest.param("linear", [0, 0, 1, 3, 6], id="linear from zero"),
        pytest.param("exponential", [0, 1, 3, 7, 15], id="exponential"),
    ],
)
async def test_tries_are_spaced_by_the_policy(stage: Callable[..., Any], policy: str, arrivals: list[float]) -> None:
    scene = await stage([trigger("a", "crd.", retry=4, backoffPolicy=policy)], {"/a": [Response(status=503)]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == arrivals
    assert scene.subscribers.at("/dead") == [arrivals[-1]]
    assert scene.subscribers.events("/dead")[0].extensions["knativeerrorcode"] == "503"


@pytest.mark.parametrize(
    ("answer", "arrivals"),
    [
        pytest.param(Response(status=429, retry_after=7), [0, 7], id="longer than the wait"),
        pytest.param(Response(status=503, retry_after=0.0), [0, 1], id="shorter"),
        pytest.param(Response(status=503, retry_after=86400), [0, broker_module.MAX_RETRY_AFTER], id="capped"),
        pytest.param(Response(status=500, retry_after=7), [0, 1], id="only of 429 and 503"),
    ],
)
async def test_retry_after_is_honoured(stage: Callable[..., Any], answer: Response, arrivals: list[float]) -> None:
    scene = await stage([trigger("a", "crd.", retry=1, backoffPolicy="exponential")], {"/a": [answer, OK]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == arrivals


async def test_no_answer_is_retried_and_then_dead_lettered_as_500(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.", retry=2)], {"/a": ["connection reset"]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == [0, 0, 1]
    letter = scene.subscribers.events("/dead")[0]
    assert letter.extensions["knativeerrorcode"] == "500"
    assert base64.b64decode(letter.extensions["knativeerrordata"]).startswith(b"no answer: ")


async def test_a_subscriber_that_hangs_is_tried_again_after_its_timeout(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.", retry=1, timeout="PT0.05S")], {"/a": ["hang", OK]})
    await scene.publish(ADDED)
    assert len(scene.subscribers.at("/a")) == 2
    assert scene.broker.counts.delivered == 1


async def test_a_body_that_is_no_event_on_2xx_is_a_failure(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.", retry=2)], {"/a": [Response(status=200, body=b"OK")]})
    await scene.publish(ADDED)
    assert scene.subscribers.at("/a") == [0, 0, 1]
    letter = scene.subscribers.events("/dead")[0]
    assert letter.extensions["knativeerrorcode"] == "502"
    assert base64.b64decode(letter.extensions["knativeerrordata"]) == b"OK"


async def test_error_data_is_cut_to_base64_that_can_still_be_read(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.")], {"/a": [Response(status=422, body=b"x" * 5000)]})
    await scene.publish(ADDED)
    data = scene.subscribers.events("/dead")[0].extensions["knativeerrordata"]
    assert (len(data), base64.b64decode(data)) == (1024, b"x" * 768)


async def test_without_a_sink_the_event_is_lost_and_counted(
    stage: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    scene = await stage([trigger("a", "crd.", no_sink=True)], {"/a": [Response(status=422)]})
    await scene.publish(ADDED)
    assert (scene.broker.counts.dead_lettered, scene.broker.counts.lost) == (0, 1)
    assert "Trigger a: event 1 of type crd.added failed with status 422 and was lost" in caplog.text


async def test_a_dead_letter_sink_that_fails_is_retried_by_the_same_policy(stage: Callable[..., Any]) -> None:
    scripts = {"/a": [Response(status=422)], "/dead": [Response(status=503)]}
    scene = await stage([trigger("a", "crd.", retry=2)], scripts)
    await scene.publish(ADDED)
    assert scene.subscribers.at("/dead") == [0, 0, 1]
    assert scene.broker.counts.lost == 1


async def test_one_that_fails_holds_up_no_other(stage: Callable[..., Any]) -> None:
    scene = await stage(
        [trigger("bad", "crd.", timeout="PT30S"), trigger("good", "crd.")], {"/bad": ["hang"], "/good": [OK]}
    )
    await scene.broker.publish(ADDED)
    await scene.broker.publish(replace(ADDED, id="2"))
    while len(scene.subscribers.at("/good")) < 2:
        scene.subscribers.arrival.clear()
        await scene.subscribers.arrival.wait()
    scene.subscribers.released.set()
    await scene.broker.drain()
    assert scene.broker.counts.delivered == 4


async def test_a_reply_loop_ends_after_255_rounds_in_the_dead_letters(stage: Callable[..., Any]) -> None:
    loop = replace(MET, type="crd.added")
    scene = await stage([trigger("a", "crd.")], {"/a": [Response(status=200, events=(loop,))]})
    await scene.publish(ADDED)
    assert len(scene.subscribers.at("/a")) == 255
    letter = scene.subscribers.events("/dead")[0]
    assert letter.extensions["knativeerrordest"] == "http://broker.localhost"
    assert letter.extensions["knativeerrorcode"] == "400"
    assert (scene.broker.counts.accepted, scene.broker.counts.refused) == (255, 1)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(replace(ADDED, extensions={"knativebrokerttl": "1"}), id="no hops left"),
        pytest.param(replace(ADDED, extensions={"knativebrokerttl": "0"}), id="none at all"),
        pytest.param(replace(ADDED, subject=""), id="invalid"),
        pytest.param(replace(ADDED, data=bytes(MAX_SIZE + 1)), id="too large"),
    ],
)
async def test_what_a_broker_would_refuse_is_refused(stage: Callable[..., Any], event: Event) -> None:
    scene = await stage([trigger("a", "crd.")])
    with pytest.raises(Refused) as refusal:
        await scene.broker.publish(event)
    assert refusal.value.status == 400
    await scene.broker.drain()
    assert scene.subscribers.arrived == []
    assert scene.broker.counts.refused == 1


@pytest.mark.parametrize("hops", ["2", "999", "many", "\N{ARABIC-INDIC DIGIT THREE}", ""])
async def test_other_hop_budgets_are_taken(stage: Callable[..., Any], hops: str) -> None:
    scene = await stage([trigger("a", "crd.")])
    await scene.publish(replace(ADDED, extensions={"knativebrokerttl": hops}))
    assert scene.subscribers.at("/a") == [0]


async def test_publish_waits_while_too_much_is_in_flight(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.")], {"/a": ["hang"]}, limit=2)
    await scene.broker.publish(ADDED)
    await scene.broker.publish(ADDED)
    third = asyncio.create_task(scene.broker.publish(ADDED))
    while len(scene.subscribers.arrived) < 2:
        scene.subscribers.arrival.clear()
        await scene.subscribers.arrival.wait()
    assert not third.done()
    scene.subscribers.released.set()
    await third
    await scene.broker.drain()
    assert len(scene.subscribers.arrived) == 3


async def test_replies_find_room_where_publishers_wait(stage: Callable[..., Any]) -> None:
    scene = await stage(
        [trigger("probe", "crd."), trigger("compose", "requirement.")],
        {"/probe": [Response(status=200, events=(MET,))]},
        limit=1,
    )
    await asyncio.gather(*(scene.broker.publish(replace(ADDED, id=str(number))) for number in range(5)))
    await scene.broker.drain()
    assert len(scene.subscribers.at("/compose")) == 5


async def test_a_closed_broker_gives_up_and_takes_nothing(stage: Callable[..., Any]) -> None:
    scene = await stage([trigger("a", "crd.")], {"/a": ["hang"]}, limit=1)
    await scene.broker.publish(ADDED)
    waiting = asyncio.create_task(scene.broker.publish(ADDED))
    while not scene.subscribers.arrived:
        scene.subscribers.arrival.clear()
        await scene.subscribers.arrival.wait()
    await scene.broker.close()
    for publishing in (waiting, scene.broker.publish(ADDED)):
        with pytest.raises(Refused) as refusal:
            await publishing
        assert refusal.value.status == 503
    assert scene.broker.counts.delivered == 0


async def test_in_process_several_replies_are_published() -> None:
    clock = Clock()
    subscribers = Subscribers(
        clock, {"/probe": [Response(status=200, events=(MET, replace(MET, id="2"), replace(MET, subject="")))]}
    )
    triggers = read_triggers(yaml.safe_dump_all([trigger("probe", "crd."), trigger("compose", "requirement.")]))
    broker = Broker(triggers, InProcess(subscribers.handle), sleep=clock.sleep, now=clock.now)
    await broker.publish(ADDED)
    await broker.drain()
    assert sorted(event.id for event in subscribers.events("/compose")) == ["2", "met"]
    assert len(subscribers.events("/dead")) == 1


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        pytest.param(encode_structured(MET).headers, encode_structured(MET).body, None, id="structured"),
        pytest.param({"ce-id": "1"}, b"", "502", id="broken event without a body"),
        pytest.param({"content-type": "application/cloudevents-batch+json"}, b"[]", "502", id="batch"),
        pytest.param({"content-type": "text/plain"}, b"", None, id="nothing"),
        pytest.param({"ce-id": "1"}, bytes(MAX_SIZE + 70_000), "502", id="too large"),
    ],
)
async def test_http_answers(headers: dict[str, str], body: bytes, expected: str | None) -> None:
    letters: list[Event] = []

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/dead":
            letters.append(decode(request.headers, await request.read()))
            return web.Response(status=202)
        return web.Response(headers=headers, body=body)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        transport = HttpDelivery({"probes": str(server.make_url("")).rstrip("/")}, session)
        broker = Broker(read_triggers(yaml.safe_dump(trigger("a", "crd."))), transport)
        await broker.publish(ADDED)
        await broker.drain()
    assert [letter.extensions["knativeerrorcode"] for letter in letters] == ([] if expected is None else [expected])


async def test_a_destination_without_an_address_is_an_error_before_the_first_event() -> None:
    triggers = read_triggers(yaml.safe_dump(trigger("a", "crd.")))
    async with aiohttp.ClientSession() as session:
        with pytest.raises(InvalidTrigger, match=r"spec\.subscriber: there is no address for Service probes"):
            Broker(triggers, HttpDelivery({"other": "http://127.0.0.1:1"}, session))
    outside = trigger("a", "crd.")
    outside["spec"]["delivery"]["deadLetterSink"] = {"uri": "http://127.0.0.1:1/"}
    with pytest.raises(InvalidTrigger, match=r"^Trigger a: spec\.delivery\.deadLetterSink: an address outside"):
        Broker(read_triggers(yaml.safe_dump(outside)), InProcess(Subscribers(Clock(), {}).handle))


async def test_an_address_outside_is_reached_over_http() -> None:
    arrived: list[bytes] = []

    async def take(request: web.Request) -> web.Response:
        assert "Content-Type" not in request.headers
        arrived.append(await request.read())
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/x", take)
    async with TestServer(app, host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        outside = trigger("a", "crd.")
        outside["spec"]["subscriber"] = {"uri": str(server.make_url("/x"))}
        outside["spec"]["delivery"] = {}
        broker = Broker(read_triggers(yaml.safe_dump(outside)), HttpDelivery({}, session))
        await broker.publish(replace(ADDED, datacontenttype=None))
        await broker.drain()
    assert [orjson.loads(body) for body in arrived] == [{}]


async def test_a_bug_in_a_filter_is_logged_and_costs_only_its_event(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event) -> bool:
        raise RuntimeError(event.id)

    subscribers = Subscribers(Clock(), {})
    (good,) = read_triggers(yaml.safe_dump(trigger("a", "crd.")))
    broker = Broker([good, replace(good, matches=broken)], InProcess(subscribers.handle), limit=1)
    for _ in range(2):
        await broker.publish(ADDED)
    await broker.drain()
    assert caplog.text.count("ended with a bug") == 2


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        pytest.param("7", 7.0, id="seconds"),
        pytest.param("Tue, 01 Dec 2026 04:00:30 GMT", 30.0, id="date"),
        pytest.param("Tue, 01 Dec 2026 04:00:30 -0000", 30.0, id="date without a zone"),
        pytest.param("Tue, 01 Dec 2026 03:00:00 GMT", 0.0, id="date in the past"),
        pytest.param("soon", None, id="words"),
        pytest.param("-1", None, id="negative"),
        pytest.param("\N{ARABIC-INDIC DIGIT SEVEN}", None, id="other digits"),
        pytest.param(None, None, id="absent"),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    headers: CIMultiDict[str] = CIMultiDict() if value is None else CIMultiDict({"retry-after": value})
    assert retry_after(headers, START) == seconds
