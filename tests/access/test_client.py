from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access import client as client_module
from functions.access.client import APPLY, METADATA, Client
from functions.access.errors import AccessError, Gone, Invalid, NotFound, ServerError, Throttled, Unreachable
from tests.access.serving import answering, client_of, connection, read_head, serve, serve_raw, silent, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

PATH = "/api/v1/namespaces/n/configmaps/c"
OBJECT = {"metadata": {"name": "x", "uid": "1", "resourceVersion": "1"}}
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Recorder:
    """A handler that keeps what it was asked for and answers with an object."""

    def __init__(self) -> None:
        self.seen: list[web.BaseRequest] = []
        self.bodies: list[bytes] = []
        self.peers: list[Any] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        self.peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        return web.json_response(OBJECT)


async def test_refused() -> None:
    async with serve(answering({})) as url:
        pass
    async with client_of(url) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get("/version")
    assert str(caught.value) == f"{url} refused the connection"


async def test_no_answer_within_the_limit() -> None:
    async with serve_raw(silent) as port, client_of(f"http://127.0.0.1:{port}", settings={"timeout": 0.1}) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get("/version")
    assert str(caught.value) == f"http://127.0.0.1:{port} did not answer within 0.1 s"


async def test_a_body_that_stalls_is_within_the_limit() -> None:
    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(OK[:-1])
        await asyncio.Event().wait()

    async with serve_raw(stall) as port, client_of(f"http://127.0.0.1:{port}", settings={"timeout": 0.1}) as client:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            await client.get("/version")


async def test_a_handshake_that_stalls_has_a_limit_of_its_own() -> None:
    async with (
        serve_raw(silent) as port,
        client_of(f"https://127.0.0.1:{port}", skip_tls_verify=True, settings={"connect_timeout": 0.1}) as client,
    ):
        with pytest.raises(Unreachable, match=r"did not accept a connection within 0\.1 s"):
            await client.get("/version")


async def test_the_same_trouble_has_the_same_message() -> None:
    async with serve(answering({})) as url:
        pass
    said = []
    async with client_of(url) as client:
        for _ in range(2):
            with pytest.raises(Unreachable) as caught:
                await client.get("/version")
            said.append(str(caught.value))
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        pytest.param(OK[:-1], "closed the connection before its answer was complete", id="body-cut"),
        pytest.param(b"", "closed the connection before its answer was complete", id="no-answer"),
        pytest.param(b"SSH-2.0-OpenSSH\r\n\r\n", "malformed HTTP", id="not-http"),
        pytest.param(OK.replace(b"{}", b"{x"), "is not JSON", id="broken-json"),
        pytest.param(OK.replace(b"{}", b"[]"), "is not an object", id="list"),
        pytest.param(OK.replace(b"{}", b"<p"), "is not JSON", id="html"),
        pytest.param(
            b"HTTP/1.1 302 Found\r\nLocation: https://login/?token=abc\r\nContent-Length: 0\r\n\r\n",
            "redirects elsewhere (302)",
            id="redirect-not-followed",
        ),
    ],
)
async def test_not_an_api_server(raw: bytes, said: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(raw)
        await writer.drain()

    async with serve_raw(answer) as port, client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(Unreachable) as caught:
            await client.get_metadata(PATH)
    assert said in str(caught.value)
    assert "abc" not in str(caught.value)


async def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # the environment's proxies are none of ours
    recorder = Recorder()
    async with serve(recorder) as url, client_of(f"{url}/k8s/c-1", token="abc") as client:
        await client.get("/api", params={"a": "b c"})
        await client.get_metadata(PATH)
        await client.list_metadata("/api/v1/pods", {"limit": "1"})
        await client.apply(PATH, {"kind": "ConfigMap"}, manager="m")
        await client.apply(f"{PATH}/status", {}, manager="m", force=False, dry_run=True)
        await client.patch(PATH, [{"op": "remove", "path": "/x"}], client_module.JSON_PATCH)
        await client.create("/api/v1/pods", {"a": 1})
        await client.delete(PATH)
        await client.delete(PATH, uid="1", resource_version="2")
        await client.get("/api/v1/pods/what?#%2F..")
    lines = [f"{each.method} {each.raw_path}" for each in recorder.seen]
    assert lines == [
        "GET /k8s/c-1/api?a=b+c",
        f"GET /k8s/c-1{PATH}",
        "GET /k8s/c-1/api/v1/pods?limit=1",
        f"PATCH /k8s/c-1{PATH}?fieldManager=m&force=true",
        f"PATCH /k8s/c-1{PATH}/status?fieldManager=m&force=false&dryRun=All",
        f"PATCH /k8s/c-1{PATH}",
        "POST /k8s/c-1/api/v1/pods",
        f"DELETE /k8s/c-1{PATH}",
        f"DELETE /k8s/c-1{PATH}",
        "GET /k8s/c-1/api/v1/pods/what%3F%23%252F..",
    ]
    assert {each.headers["Authorization"] for each in recorder.seen} == {"Bearer abc"}
    assert {each.headers["User-Agent"] for each in recorder.seen} == {"modelplane-serving-stack"}
    assert recorder.seen[1].headers["Accept"] == METADATA
    types = [each.headers.get("Content-Type") for each in recorder.seen]
    assert types[3:8] == [APPLY, APPLY, client_module.JSON_PATCH, client_module.JSON, None]
    assert recorder.bodies[7] == b""
    assert json.loads(recorder.bodies[8])["preconditions"] == {"uid": "1", "resourceVersion": "2"}
    assert len(set(recorder.peers)) == 1, "one connection is kept"


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        pytest.param({"username": "jane", "password": "pä"}, {"Authorization": "Basic amFuZTpww6Q="}, id="basic"),
        pytest.param({}, {"Authorization": None}, id="anonymous"),
        pytest.param({"compression": False}, {"Accept-Encoding": "identity"}, id="no-compression"),
        pytest.param({"impersonate": (("Impersonate-User", "u"),)}, {"Impersonate-User": "u"}, id="impersonation"),
    ],
)
async def test_headers_of_a_connection(fields: dict[str, Any], headers: dict[str, str | None]) -> None:
    recorder = Recorder()
    async with serve(recorder) as url, client_of(url, **fields) as client:
        await client.get("/api")
    assert {name: recorder.seen[0].headers.get(name) for name in headers} == headers


async def test_every_impersonated_group_is_sent() -> None:
    recorder = Recorder()
    groups = (("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    async with serve(recorder) as url, client_of(url, impersonate=groups) as client:
        await client.get("/api")
    assert recorder.seen[0].headers.getall("Impersonate-Group") == ["a", "b"]


async def test_compressed_answers_and_no_cookies() -> None:
    cookies = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        cookies.append(request.headers.get("Cookie"))
        response = web.json_response({"a": "x" * 10_000})
        response.enable_compression(web.ContentCoding.gzip)
        response.set_cookie("session", "1")
        return response

    async with serve(handler) as url, client_of(url) as client:
        for _ in range(2):
            assert await client.get("/api") == {"a": "x" * 10_000}
    assert cookies == [None, None]


async def test_not_modified_is_an_answer() -> None:
    async with serve(answering(web.Response(status=304, headers={"ETag": '"1"'}))) as url, client_of(url) as client:
        reply = await client.request("GET", "/apis", headers={"If-None-Match": '"1"'})
    assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", '"1"')


def failing(code: int, **headers: str) -> web.Response:
    return web.json_response(status(code), status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})


Ask = "Callable[[Client], Awaitable[Any]]"


def get(client: Client) -> Awaitable[Any]:
    return client.get("/api")


def apply(client: Client) -> Awaitable[Any]:
    return client.apply(PATH, {}, manager="m")


def create(client: Client) -> Awaitable[Any]:
    return client.create(PATH, {})


@contextlib.asynccontextmanager
async def patient(url: str, budget: float = 8.0) -> AsyncIterator[tuple[Client, list[float]]]:
    """A client that repeats, and the waits that it would have made."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with client_of(url, settings={"budget": budget, "sleep": sleep}) as client:
        yield client, waits


@pytest.mark.parametrize(
    ("ask", "code"),
    [
        *(pytest.param(get, code, id=f"get-{code}") for code in (429, 500, 502, 503, 504)),
        *(pytest.param(apply, code, id=f"apply-{code}") for code in (429, 500, 502, 503, 504)),
    ],
)
async def test_repeated_until_it_succeeds(ask: Ask, code: int) -> None:  # type: ignore[valid-type]
    async with serve(answering(*[failing(code)] * 3, OBJECT)) as url, patient(url) as (client, waits):
        assert await ask(client) == OBJECT  # type: ignore[misc]
    assert len(waits) == 3
    assert all(low <= wait <= 2 * low for low, wait in zip((0.05, 0.1, 0.2), waits, strict=True))


async def test_retry_after_is_waited_for_whatever_was_asked() -> None:
    async with serve(answering(failing(429, Retry_After="2"), {})) as url, patient(url) as (client, waits):
        assert await client.create(PATH, {}) == {}
    assert waits == [2.0]


@pytest.mark.parametrize(
    ("ask", "answer", "kind"),
    [
        pytest.param(create, failing(503), ServerError, id="create-may-have-been-done"),
        pytest.param(create, failing(429), Throttled, id="create-throttled-by-who-knows-whom"),
        pytest.param(get, failing(404), NotFound, id="not-found"),
        pytest.param(apply, failing(422), Invalid, id="invalid"),
        pytest.param(
            apply,
            web.json_response(status(500, "", "request to convert CR to an invalid group/version: x"), status=500),
            ServerError,
            id="permanent",
        ),
        pytest.param(get, failing(429, Retry_After="9"), Throttled, id="longer-than-the-budget"),
    ],
)
async def test_not_repeated(ask: Ask, answer: web.Response, kind: type[AccessError]) -> None:  # type: ignore[valid-type]
    async with serve(answering(answer)) as url, patient(url) as (client, waits):
        with pytest.raises(kind):
            await ask(client)  # type: ignore[misc]
    assert waits == []


async def test_the_budget_ends() -> None:
    async with serve(answering(failing(503))) as url, patient(url, budget=5.0) as (client, waits):
        with pytest.raises(ServerError):
            await client.get("/api")
    assert 2.0 < sum(waits) <= 5.0


@pytest.mark.parametrize("ask", [pytest.param(get, id="get"), pytest.param(apply, id="apply")])
async def test_a_kept_connection_that_was_closed_is_replaced_at_once(ask: Ask) -> None:  # type: ignore[valid-type]
    opened = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await read_head(reader)
        body = json.dumps(OBJECT).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        await read_head(reader)  # closes on the second request without an answer

    async with serve_raw(once) as port, client_of(f"http://127.0.0.1:{port}") as client:
        assert await ask(client) == OBJECT  # type: ignore[misc]
        assert await ask(client) == OBJECT  # type: ignore[misc]
    assert opened == 2


async def test_a_create_is_not_sent_twice() -> None:
    heads = []

    async def once(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))

    async with serve_raw(once) as port, client_of(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(Unreachable, match="closed the connection"):
            await client.create(PATH, {})
    assert len(heads) == 1


@contextlib.asynccontextmanager
async def streaming(*chunks: bytes, end: bool = True) -> AsyncIterator[str]:
    """A server that answers a watch with these chunks, and then ends it or cuts it off."""

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(STREAM + b"".join(chunk(each) for each in chunks) + (b"0\r\n\r\n" if end else b""))
        await writer.drain()

    async with serve_raw(stream) as port:
        yield f"http://127.0.0.1:{port}"


def event(kind: str = "ADDED", /, **fields: Any) -> bytes:
    return json.dumps({"type": kind, "object": fields}).encode() + b"\n"


BIG = "x" * 3_000_000


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([event(a=1), event(a=2)], [{"a": 1}, {"a": 2}], id="a-line-a-chunk"),
        pytest.param([event(a=1) + event(a=2) + event(a=3)], [{"a": 1}, {"a": 2}, {"a": 3}], id="lines-in-a-chunk"),
        pytest.param([event(a=1)[:9], event(a=1)[9:-1], b"\n"], [{"a": 1}], id="split"),
        pytest.param([b"\n", event(a=1), b"\n\n"], [{"a": 1}], id="blank-lines"),
        pytest.param([event(a=BIG) + event(a=1)], [{"a": BIG}, {"a": 1}], id="3-MB"),
        pytest.param([event(a=1), event(a=2)[:-5]], [{"a": 1}], id="unfinished"),
        pytest.param([], [], id="empty"),
    ],
)
async def test_watch(chunks: list[bytes], expected: list[dict[str, Any]]) -> None:
    async with streaming(*chunks) as url, client_of(url) as client:
        seen = [each["object"] async for each in client.watch("/api/v1/pods")]
    assert seen == expected


@pytest.mark.parametrize(
    ("code", "kind"), [pytest.param(410, Gone, id="gone"), pytest.param(500, ServerError, id="server-error")]
)
async def test_an_error_within_a_watch(code: int, kind: type[AccessError]) -> None:
    error = event("ERROR", **status(code, "Expired", "too old resource version"))
    async with streaming(event(a=1), error) as url, client_of(url) as client:
        watch = client.watch("/api/v1/pods")
        assert (await anext(watch))["object"] == {"a": 1}
        with pytest.raises(kind, match=r"watch of /api/v1/pods was answered with .* too old"):
            await anext(watch)


@pytest.mark.parametrize("lines", [pytest.param(b"<html>\n", id="html"), pytest.param(b"[1]\n", id="list")])
async def test_a_watch_of_something_else(lines: bytes) -> None:
    async with streaming(lines) as url, client_of(url) as client:
        with pytest.raises(Unreachable, match="does not answer like a Kubernetes API server"):
            await anext(client.watch("/api/v1/pods"))


async def test_a_watch_that_is_cut_off() -> None:
    async with streaming(event(a=1), end=False) as url, client_of(url) as client:
        watch = client.watch("/api/v1/pods")
        assert (await anext(watch))["object"] == {"a": 1}
        with pytest.raises(Unreachable, match="closed the connection"):
            await anext(watch)


async def test_a_watch_that_goes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_WATCH_GRACE", 0.1)

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(STREAM + chunk(event(a=1)))
        await asyncio.Event().wait()

    async with serve_raw(once) as port, client_of(f"http://127.0.0.1:{port}") as client:
        watch = client.watch("/api/v1/pods", timeout_seconds=0)
        await anext(watch)
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            await anext(watch)


async def test_a_watch_that_is_never_answered() -> None:
    async with serve_raw(silent) as port, client_of(f"http://127.0.0.1:{port}", settings={"timeout": 0.1}) as client:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s"):
            await anext(client.watch("/api/v1/pods"))


async def test_a_refused_watch_is_tried_again() -> None:
    stream = web.Response(body=event(a=1))
    async with serve(answering(failing(429, Retry_After="1"), stream)) as url, patient(url) as (client, waits):
        assert [each["object"] async for each in client.watch("/api/v1/pods")] == [{"a": 1}]
    assert waits == [1.0]


async def test_closing_a_watch_closes_its_connection() -> None:
    heads: list[str] = []
    closed = asyncio.Event()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_head(reader))
        writer.write(STREAM + chunk(event(a=1)))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        closed.set()

    async with serve_raw(stream) as port, client_of(f"http://127.0.0.1:{port}") as client:
        watch = client.watch("/api/v1/pods", params={"resourceVersion": "7"}, timeout_seconds=30)
        await anext(watch)
        await watch.aclose()
        await asyncio.wait_for(closed.wait(), 5)
    assert heads[0].startswith("GET /api/v1/pods?resourceVersion=7&watch=true&timeoutSeconds=30 ")


async def test_a_new_token_keeps_connections_and_watches() -> None:
    recorder = Recorder()
    more = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return await recorder(request)
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(event(a=1))
        await more.wait()
        await stream.write(event(a=2))
        return stream

    async with serve(handler) as url, client_of(url, token="old") as client:
        watch = client.watch("/api/v1/pods")
        await anext(watch)
        await client.get("/api")
        new = dataclasses.replace(client.connection, token="new")
        assert client.accepts(new)
        client.set_credentials(new)
        await client.get("/api")
        more.set()
        assert (await anext(watch))["object"] == {"a": 2}
        await watch.aclose()
    assert [each.headers["Authorization"] for each in recorder.seen] == ["Bearer old", "Bearer new"]
    assert recorder.peers[0] == recorder.peers[1]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"server": "https://other"}, id="server"),
        pytest.param({"ca": b"other"}, id="ca"),
        pytest.param({"proxy_url": "http://p"}, id="proxy"),
        pytest.param({"tls_server_name": "n"}, id="tls-server-name"),
        pytest.param({"skip_tls_verify": True}, id="skip-verify"),
    ],
)
def test_another_way_is_not_another_credential(change: dict[str, Any]) -> None:
    there = connection("https://host")
    assert not Client(there).accepts(dataclasses.replace(there, **change))


async def test_closing_twice_and_unused_is_harmless() -> None:
    client = Client(connection("https://host"))
    await client.close()
    await client.close()
    assert client.server == "https://host"
