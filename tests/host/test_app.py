from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any, cast

import pytest
from prometheus_client import REGISTRY

from events.codec import MAX_SIZE, decode, read
from events.event import Event
from events.types import ObjectReference
from functions.access.errors import Throttled, Unreachable
from functions.function import Later, Poison
from functions.host import app
from functions.host.app import Gate
from functions.host.metrics import exposition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import aiohttp

    from events.publisher import Publisher
    from functions.function import Handler
    from functions.world import World
    from tests.host.conftest import Serve, Sink

HEADERS = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "test.asked"}
REPLY = HEADERS | {"Prefer": "reply"}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def event(type_: str = "test.answered", **attributes: Any) -> Event:
    return Event(id="2", source="/test/f", type=type_, datacontenttype="application/json", data=b"{}", **attributes)


def answering(*events: Event) -> Handler:
    async def f(_event: Event, _world: World) -> Sequence[Event]:
        return events

    return f


def raising(error: Exception) -> Handler:
    async def f(_event: Event, _world: World) -> Sequence[Event]:
        raise error

    return f


async def nothing(_event: Event, _world: World) -> Sequence[Event]:
    return []


class Held:
    """A handler that waits until it is let go."""

    def __init__(self) -> None:
        self.__name__ = "held"
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, _event: Event, _world: World) -> Sequence[Event]:
        self.begun.set()
        await self.go.wait()
        return []


def counted(name: str, **labels: str) -> float:
    exposition("")  # as a scrape does
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_nothing_to_say_is_204_without_a_body(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing)
    async with http.post(f"{url}/nothing", headers=REPLY) as response:
        assert (response.status, await response.read()) == (204, b"")


async def test_one_event_is_the_reply(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(answering(event(subject="gpu-1", extensions={"cluster": "gpu-1"})))
    async with http.post(f"{url}/f", headers=REPLY) as response:
        assert response.status == 200
        reply = decode(response.headers, await response.read())
    assert reply == event(subject="gpu-1", extensions={"cluster": "gpu-1", "hops": "1"})


@pytest.mark.parametrize(
    ("headers", "events"),
    [
        pytest.param(HEADERS, [event("a")], id="no reply wanted"),
        pytest.param(HEADERS | {"Prefer": "return=minimal"}, [event("a")], id="another preference"),
        pytest.param(REPLY, [event("a"), event("b")], id="more than fit into a reply"),
    ],
)
async def test_what_does_not_fit_is_published(
    serve: Serve,
    http: aiohttp.ClientSession,
    sink: Sink,
    publisher: Publisher,
    *,
    headers: dict[str, str],
    events: list[Event],
) -> None:
    url = await serve(answering(*events), publisher=publisher)
    async with http.post(f"{url}/f", headers=headers) as response:
        assert (response.status, await response.read()) == (204, b"")
    assert sorted(event.type for event in sink.events) == [event.type for event in events]


async def test_several_preferences_may_hold_reply(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(answering(event()))
    async with http.post(f"{url}/f", headers=HEADERS | {"Prefer": "respond-async, Reply"}) as response:
        assert response.status == 200


async def test_one_refused_event_asks_for_a_redelivery(
    serve: Serve, http: aiohttp.ClientSession, sink: Sink, publisher: Publisher
) -> None:
    sink.refuse = {"b"}
    url = await serve(answering(event("a"), event("b")), publisher=publisher)
    async with http.post(f"{url}/f", headers=REPLY) as response:
        assert response.status == 503
        assert "did not accept event 2 of type b" in await response.text()


async def test_without_a_sink_no_event_is_lost(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(answering(event("a"), event("b")))
    async with http.post(f"{url}/f", headers=REPLY) as response:
        assert (response.status, await response.text()) == (503, "K_SINK is not set")


@pytest.mark.parametrize(
    ("error", "status", "text", "retry_after"),
    [
        pytest.param(Poison("no such stack"), 422, "no such stack", None, id="poison"),
        pytest.param(Poison("two\nlines\x1b[2J"), 422, r"two\nlines\x1b[2J", None, id="poison of several lines"),
        pytest.param(Later("not yet"), 503, "not yet", None, id="later"),
        pytest.param(Later("not yet", retry_after=1.2), 503, "not yet", "2", id="later, rounded up"),
        pytest.param(Unreachable("hub is away"), 503, "hub is away", None, id="hub unreachable"),
        pytest.param(
            Throttled("GET /", status=429, retry_after=3), 503, "GET / was answered with 429", "3", id="hub throttles"
        ),
        pytest.param(KeyError("hunter2"), 503, "f failed: KeyError, see its log", None, id="bug"),
        pytest.param(TimeoutError(), 503, "f failed: TimeoutError, see its log", None, id="time-out of its own"),
    ],
)
async def test_errors_of_a_function(
    serve: Serve, http: aiohttp.ClientSession, *, error: Exception, status: int, text: str, retry_after: str | None
) -> None:
    url = await serve(raising(error))
    async with http.post(f"{url}/f", headers=REPLY) as response:
        assert response.status == status
        assert response.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert response.headers.get("Retry-After") == retry_after
        assert await response.text() == text


async def test_a_bug_is_counted_and_logged_without_secrets(
    serve: Serve, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "eyJhbGciOiJSUzI1NiIsImtpZCI6InNlY3JldCJ9"
    url = await serve(raising(ValueError(f"bad token {secret}")))
    before = counted("serving_stack_bugs_total", function="f")
    async with http.post(f"{url}/f", headers=REPLY) as response:
        assert secret not in await response.text()
    assert counted("serving_stack_bugs_total", function="f") == before + 1
    [stack] = [cast("Any", record).stack for record in caplog.records if record.message == "bug"]
    assert "in f\n" in stack
    assert stack.endswith("ValueError: bad token [redacted]")


async def test_data_that_does_not_fit_is_poison(serve: Serve, http: aiohttp.ClientSession) -> None:
    async def f(event: Event, _world: World) -> Sequence[Event]:
        read(event, ObjectReference)
        return []

    url = await serve(f)
    async with http.post(f"{url}/f", headers=HEADERS | {"Content-Type": "application/json"}, data=b"{}") as response:
        assert response.status == 422
        assert "does not fit ObjectReference" in await response.text()


@pytest.mark.parametrize("prefer", ["reply", ""], ids=["as a reply", "published"])
async def test_an_event_of_a_function_that_breaks_the_specification_is_a_bug(
    serve: Serve, http: aiohttp.ClientSession, publisher: Publisher, prefer: str
) -> None:
    url = await serve(answering(event(extensions={"Not-A-Name": "x"})), publisher=publisher)
    async with http.post(f"{url}/f", headers=HEADERS | {"Prefer": prefer}) as response:
        assert (response.status, await response.text()) == (503, "f failed: Malformed, see its log")


async def test_a_handler_has_a_time_limit(serve: Serve, http: aiohttp.ClientSession) -> None:
    held = Held()
    url = await serve(held, handler_seconds=0.01)
    async with http.post(f"{url}/held", headers=REPLY) as response:
        assert (response.status, await response.text()) == (503, "held did not end within 0.01 s")


STRUCTURED = {"Content-Type": "application/cloudevents+json"}


@pytest.mark.parametrize(
    ("headers", "body", "text"),
    [
        pytest.param({"Content-Type": "application/json"}, b"{}", "not a CloudEvent", id="plain JSON"),
        pytest.param({}, b"", "not a CloudEvent", id="empty"),
        pytest.param({k: v for k, v in HEADERS.items() if k != "ce-id"}, b"", "id is missing", id="no id"),
        pytest.param({k: v for k, v in HEADERS.items() if k != "ce-type"}, b"", "type", id="no type"),
        pytest.param({"Content-Type": "application/cloudevents-batch+json"}, b"[]", "batch", id="batch"),
        pytest.param(STRUCTURED, b"<html>", "not valid JSON", id="HTML"),
        pytest.param(STRUCTURED, b'{"id":"1\\n{}"}', "", id="structured and broken"),
        pytest.param(HEADERS | {"ce-hops": "many"}, b"", "hops is no number: many", id="hops is no number"),
        pytest.param(HEADERS | {"ce-hops": "16"}, b"", "the limit is 16", id="too many hops"),
        pytest.param(HEADERS | {"ce-hops": "9" * 5000}, b"", "hops is no number", id="endless hops"),
    ],
)
async def test_what_can_never_be_handled_is_422(
    serve: Serve, http: aiohttp.ClientSession, headers: dict[str, str], body: bytes, text: str
) -> None:
    url = await serve(nothing)
    async with http.post(f"{url}/nothing", headers=headers, data=body) as response:
        answer = await response.text()
    assert (response.status, text in answer, len(answer.splitlines())) == (422, True, 1)
    assert len(answer) <= 256


async def test_an_unknown_type_is_the_functions_to_judge(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing)
    labels = {"function": "nothing", "type": "other", "outcome": "handled"}
    before = counted("serving_stack_events_total", **labels)
    async with http.post(f"{url}/nothing", headers=REPLY | {"ce-type": "com.example.never.heard.of"}) as response:
        assert response.status == 204
    assert counted("serving_stack_events_total", **labels) == before + 1


async def test_an_unknown_path_names_those_served(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing, answering())
    for path in ("/other", "/"):
        async with http.post(url + path, headers=REPLY) as response:
            assert response.status == 422
            assert (await response.text()).endswith("served are /nothing, /f")


async def test_one_function_alone_is_served_at_the_root(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing)
    async with http.post(url, headers=REPLY) as response:
        assert response.status == 204


async def test_only_post_brings_events(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing)
    async with http.put(f"{url}/nothing", headers=REPLY) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")


async def chunks(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 65536):
        yield bytes(65536)


@pytest.mark.parametrize(
    ("size", "chunked", "status"),
    [
        pytest.param(MAX_SIZE, False, 204, id="1 MiB"),
        pytest.param(MAX_SIZE, True, 204, id="1 MiB in chunks"),
        pytest.param(2 * MAX_SIZE, False, 413, id="2 MiB"),
        pytest.param(2 * MAX_SIZE, True, 413, id="2 MiB in chunks"),
    ],
)
async def test_a_body_has_a_size_limit(
    serve: Serve, http: aiohttp.ClientSession, *, size: int, chunked: bool, status: int
) -> None:
    url = await serve(nothing)
    data = chunks(size) if chunked else io.BytesIO(bytes(size))
    headers = REPLY | {"Content-Type": "application/octet-stream"}
    async with http.post(f"{url}/nothing", headers=headers, data=data) as response:
        assert response.status == status


async def raw(url: str, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    return reader, writer


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nce-id: 1\r\nce-specversion: 1.0\r\nce-source: /s\r\nce-type: t\r\n"


async def test_a_body_has_a_time_limit(serve: Serve) -> None:
    url = await serve(nothing, body_seconds=0.01)
    reader, writer = await raw(url, HEAD + b"Content-Length: 10\r\n\r\nslow")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_a_broken_chunk_is_422(serve: Serve) -> None:
    url = await serve(nothing)
    reader, writer = await raw(url, HEAD + b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n")
    assert (await reader.readuntil(b"\r\n")).split()[1] in {b"400", b"422"}
    writer.close()


async def test_those_who_send_slowly_keep_nobody_out(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing, gate=Gate(1))
    slow = [await raw(url, HEAD + b"Content-Length: 4\r\n\r\nha") for _ in range(4)]
    async with http.post(f"{url}/nothing", headers=REPLY) as response:
        assert response.status == 204
    slow.pop()[1].close()  # one goes away
    for reader, writer in slow:
        writer.write(b"lf")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        writer.close()
    assert counted("serving_stack_events_in_flight") == 0


async def test_a_body_that_ends_when_all_places_are_taken_comes_again(
    serve: Serve, http: aiohttp.ClientSession
) -> None:
    held = Held()
    url = await serve(held, gate=Gate(1))
    reader, writer = await raw(url, HEAD + b"Content-Length: 8\r\n\r\nhalf")
    first = asyncio.create_task(http.post(f"{url}/held", headers=REPLY))
    await held.begun.wait()
    async with http.get(f"{url}/health/liveness") as response:
        assert response.status == 200
    writer.write(b"half")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 503 ")
    writer.close()
    held.go.set()
    assert (await first).status == 204


async def test_bodies_on_their_way_take_only_so_much_memory(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODIES_SIZE", 1000)
    url = await serve(nothing)
    for size, status in ((900, 204), (MAX_SIZE, 503), (900, 204)):  # the middle one cannot come with its headers
        reader, writer = await raw(url, HEAD + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
        assert int((await reader.readuntil(b"\r\n\r\n")).split()[1]) == status
        writer.close()


async def test_a_connection_beyond_the_limit_is_closed(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(nothing, connections=2)
    first, second = await raw(url, b"G"), await raw(url, b"G")
    before = counted("serving_stack_events_total", function="unknown", type="other", outcome="too_many_connections")
    third, writer = await raw(url, b"")
    assert await third.read() == b""
    writer.close()
    labels = {"function": "unknown", "type": "other", "outcome": "too_many_connections"}
    assert counted("serving_stack_events_total", **labels) == before + 1
    for _, each in (first, second):
        each.close()
        await each.wait_closed()
    async with http.post(f"{url}/nothing", headers=REPLY) as response:
        assert response.status == 204


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: x\r\n"], ids=["nothing", "half a head"])
async def test_a_connection_that_does_not_ask_in_time_is_closed(serve: Serve, sent: bytes) -> None:
    url = await serve(nothing, head_seconds=0.05)
    asked, kept = await raw(url, b"GET /health/liveness HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await asked.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
    silent, writer = await raw(url, sent)
    assert await silent.read() == b""
    kept.write(b"GET /health/liveness HTTP/1.1\r\nHost: x\r\n\r\n")  # it has had its first request
    assert (await asked.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 ")
    for each in (kept, writer):
        each.close()


async def test_beyond_the_concurrency_limit_an_event_is_refused_at_once(
    serve: Serve, http: aiohttp.ClientSession
) -> None:
    held = Held()
    url = await serve(held, gate=Gate(1))
    first = asyncio.create_task(http.post(f"{url}/held", headers=REPLY))
    await held.begun.wait()
    assert counted("serving_stack_events_in_flight") == 1
    # The length is announced, the body never comes: the answer does not wait for it.
    reader, writer = await raw(url, HEAD + b"Content-Length: 10\r\n\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 1\r\n" in head
    writer.close()
    held.go.set()
    assert (await first).status == 204
    async with http.post(f"{url}/held", headers=REPLY) as response:
        assert response.status == 204


async def test_draining_refuses_what_is_new_and_ends_what_is_not(serve: Serve, http: aiohttp.ClientSession) -> None:
    held, gate = Held(), Gate()
    url = await serve(held, gate=gate)
    async with http.get(f"{url}/health/readiness") as response:
        assert response.status == 200
    first = asyncio.create_task(http.post(f"{url}/held", headers=REPLY))
    await held.begun.wait()
    drained = asyncio.create_task(gate.drain(10))
    await asyncio.sleep(0)  # let it begin
    async with http.post(f"{url}/held", headers=REPLY) as response:
        assert (response.status, response.headers["Retry-After"]) == (503, "1")
        assert response.headers["Connection"] == "close"
    async with http.get(f"{url}/health/readiness") as response:
        assert response.status == 503
    async with http.get(f"{url}/health/liveness") as response:
        assert response.status == 200
    assert not drained.done()
    held.go.set()
    assert (await first).status == 204
    assert await drained == 0


async def test_draining_ends_though_a_handler_does_not(serve: Serve, http: aiohttp.ClientSession) -> None:
    held, gate = Held(), Gate()
    url = await serve(held, gate=gate)
    first = asyncio.create_task(http.post(f"{url}/held", headers=REPLY))
    await held.begun.wait()
    assert await gate.drain(0.01) == 1
    held.go.set()
    assert (await first).status == 204


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"traceparent": TRACE}, TRACE, id="header"),
        pytest.param({"ce-traceparent": TRACE}, TRACE, id="extension"),
        pytest.param({"ce-traceparent": TRACE, "traceparent": TRACE.replace("c", "d")}, TRACE, id="extension wins"),
        pytest.param({"traceparent": "00-short"}, None, id="malformed header"),
        pytest.param({"ce-traceparent": "00-short"}, None, id="malformed extension"),
        pytest.param({}, None, id="none"),
    ],
)
async def test_the_trace_context_is_passed_on(
    serve: Serve,
    http: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
    headers: dict[str, str],
    expected: str | None,
) -> None:
    caplog.set_level("INFO")
    url = await serve(answering(event()))
    async with http.post(f"{url}/f", headers=REPLY | headers) as response:
        reply = decode(response.headers, await response.read())
    assert reply.extensions.get("traceparent") == expected
    [record] = [record for record in caplog.records if record.message == "event"]
    assert getattr(record, "traceparent", None) == expected


async def test_hops_grow_by_one(serve: Serve, http: aiohttp.ClientSession) -> None:
    url = await serve(answering(event(extensions={"hops": "99"})))
    async with http.post(f"{url}/f", headers=REPLY | {"ce-hops": "15"}) as response:
        assert decode(response.headers, await response.read()).extensions["hops"] == "16"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("", "text/plain", id="plain"),
        pytest.param("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", id="OpenMetrics"),
    ],
)
async def test_metrics(serve: Serve, http: aiohttp.ClientSession, accept: str, content_type: str) -> None:
    url = await serve(nothing)
    async with http.post(f"{url}/nothing", headers=REPLY | {"ce-type": "dev.knative.sources.ping"}):
        pass
    async with http.get(f"{url}/metrics", headers={"Accept": accept}) as response:
        assert (response.status, response.content_type) == (200, content_type)
        text = await response.text()
    line = 'serving_stack_events_total{function="nothing",outcome="handled",type="dev.knative.sources.ping"}'
    assert line in text
    assert 'serving_stack_event_duration_seconds_bucket{function="nothing",le="20.0"}' in text
