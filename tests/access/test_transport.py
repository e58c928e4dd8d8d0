"""What the client stands: odd connections, being closed at any moment, answers without end, echoed credentials."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access import client as client_module
from functions.access import transport as transport_module
from functions.access.errors import ServerError, Unreachable
from tests.access.serving import answering, client_of, read_head, script, serve, serve_raw
from tests.access.test_client import PATH, Recorder, event, streaming

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"server": "https://a..b"}, id="server-empty-label"),
        pytest.param({"server": "https://.x"}, id="server-dot"),
        pytest.param({"server": f"https://{'a' * 64}.x"}, id="server-long-label"),
        pytest.param({"server": "https://a\\b"}, id="server-backslash"),
        pytest.param({"proxy_url": "http://a..b"}, id="proxy-empty-label"),
        pytest.param({"proxy_url": "http://\\x"}, id="proxy-backslash"),
        pytest.param({"proxy_url": "http://u%3a:s3cr3t@127.0.0.1:1"}, id="proxy-user"),
    ],
)
async def test_what_the_libraries_do_not_take(fields: dict[str, Any]) -> None:
    # A kubeconfig that holds these is refused; who makes a connection in another way gets no surprise either.
    async with client_of(**{"server": "https://127.0.0.1:1", **fields}) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get("/version")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"server": "https://localhost:1"}, id="a name"),
        pytest.param({"server": "https://127.0.0.1:1"}, id="an address"),
        pytest.param({"server": "https://host:6443", "proxy_url": "http://localhost:1"}, id="a proxy"),
    ],
)
async def test_what_stands_for_a_metadata_service_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    # As if it were on this machine, so that a test that fails asks no real one.
    monkeypatch.setattr(transport_module, "is_metadata_service", {"127.0.0.1", "::1"}.__contains__)
    for avoided, reason in ((True, "EACCES"), (False, "ECONNREFUSED|refused the connection")):
        async with client_of(**fields, avoids_metadata=avoided) as client:
            with pytest.raises(Unreachable, match=reason):
                await client.get("/version")


async def test_a_closed_client_connects_no_more() -> None:
    recorder = Recorder()
    async with serve(recorder) as url, client_of(url) as client:
        await client.get("/api")
        await client.close()
        for ask in (client.get("/api"), client.apply(PATH, {}, manager="m"), anext(client.watch("/api/v1/pods"))):
            with pytest.raises(Unreachable) as caught:
                await ask
            assert str(caught.value) == f"{url} is no longer connected to"
    assert len(recorder.seen) == 1


async def test_closing_ends_what_is_under_way() -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        asked.set()
        await reader.read()

    async with serve_raw(hang) as port, client_of(f"http://127.0.0.1:{port}") as client:
        asking = asyncio.create_task(client.get("/api"))
        await asked.wait()
        await client.close()
        with pytest.raises(Unreachable, match="is no longer connected to"):
            await asking


async def test_closing_ends_a_helper_that_is_waited_for(tmp_path: Path) -> None:
    from functions.access.connection import ExecHelper  # noqa: PLC0415

    started = tmp_path / "started"
    command = script(tmp_path, f"mkfifo {started}.fifo; : > {started}; cat {started}.fifo")
    helper = ExecHelper(api_version="client.authentication.k8s.io/v1", command=command)
    async with client_of("https://127.0.0.1:1", helper=helper) as client:
        asking = [asyncio.create_task(client.get("/api")) for _ in range(2)]
        await asyncio.wait(asking, timeout=0.05)
        await client.close()
        for each in asking:
            with pytest.raises(Unreachable, match="is no longer connected to"):
                await each


async def test_a_cancelled_caller_leaves_the_renewal_to_the_others(tmp_path: Path) -> None:
    from functions.access.connection import ExecHelper  # noqa: PLC0415

    given = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "abc"},
    }
    fifo = tmp_path / "fifo"
    command = script(tmp_path, f"[ -p {fifo} ] || mkfifo {fifo}; cat {fifo}")
    helper = ExecHelper(api_version="client.authentication.k8s.io/v1", command=command)
    recorder = Recorder()
    async with serve(recorder) as url, client_of(url, helper=helper) as client:
        first, second = (asyncio.create_task(client.get("/api")) for _ in range(2))
        await asyncio.wait({first, second}, timeout=0.05)
        first.cancel()
        await asyncio.wait({first})
        assert first.cancelled()
        while not fifo.exists():
            await asyncio.wait({second}, timeout=0.02)
        await asyncio.to_thread(fifo.write_text, json.dumps(given))
        assert await second
    assert [each.headers["Authorization"] for each in recorder.seen] == ["Bearer abc"]


def endless(status: int) -> Any:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        while True:
            await response.write(b"x" * MIB)

    return handler


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        pytest.param(endless(200), "sent more than 16 MiB as one answer", id="answer"),
        pytest.param(endless(500), "sent more than 1 MiB as one answer", id="error"),
        pytest.param(
            answering(web.Response(headers={"Content-Encoding": "gzip"}, body=gzip.compress(b" " * (17 * MIB)))),
            "sent more than 16 MiB as one answer",
            id="gzip",
        ),
        pytest.param(
            answering(web.Response(body=b" " * (17 * MIB))), "sent more than 16 MiB as one answer", id="with-a-length"
        ),
    ],
)
async def test_an_answer_without_end(handler: Any, said: str) -> None:
    async with serve(handler) as url, client_of(url) as client:
        with pytest.raises(Unreachable) as caught:
            await client.get("/api")
    assert str(caught.value) == f"{url} {said}"


async def test_an_answer_just_within_the_limit_and_its_connection_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_ANSWER_LIMIT", 10)
    peers = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        return web.Response(body=b'"' + b"x" * 8 + b'"')

    async with serve(handler) as url, client_of(url) as client:
        assert await client.get("/api") == "x" * 8
        assert await client.get("/api") == "x" * 8
    assert peers[0] == peers[1]


async def test_a_watch_event_without_end() -> None:
    async with serve(endless(200)) as url, client_of(url) as client:
        with pytest.raises(Unreachable, match="sent more than 4 MiB as one event of a watch"):
            await anext(client.watch("/api/v1/pods"))


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"type": "ERROR", "object": "boom"}, id="text"),
        pytest.param({"type": "ERROR", "object": {"code": "abc"}}, id="code-text"),
        pytest.param({"type": "ERROR", "object": {"code": None}}, id="code-null"),
        pytest.param({"type": "ERROR", "object": {}}, id="codeless"),
        pytest.param({"type": "ERROR"}, id="objectless"),
        pytest.param({"type": "ERROR", "object": [1]}, id="list"),
    ],
)
async def test_an_error_within_a_watch_that_is_none(said: dict[str, Any]) -> None:
    async with streaming(json.dumps(said).encode() + b"\n") as url, client_of(url) as client:
        with pytest.raises(Unreachable, match="does not answer like a Kubernetes API server"):
            await anext(client.watch("/api/v1/pods"))


async def test_events_before_a_long_one_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_LINE_LIMIT", 100)
    lines = event(a=1) * 50  # together they may be as long as they like
    async with streaming(lines, b"x" * 101) as url, client_of(url) as client:
        watch = client.watch("/api/v1/pods")
        for _ in range(50):
            assert (await anext(watch))["object"] == {"a": 1}
        with pytest.raises(Unreachable, match="as one event of a watch"):
            await anext(watch)


@pytest.mark.parametrize(
    ("fields", "secrets"),
    [
        pytest.param({"token": "tok-123"}, ["tok-123"], id="token"),
        pytest.param({"username": "jane", "password": "s3cr3t"}, ["s3cr3t", "amFuZTpzM2NyM3Q="], id="basic"),
    ],
)
async def test_a_server_that_echoes_the_request(fields: dict[str, Any], secrets: list[str]) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        proof = request.headers["Authorization"]
        return web.Response(status=500, text=f"debug: Authorization={proof}; token {proof.split()[1]}\nend s3cr3t")

    async with serve(echo) as url, client_of(url, **fields) as client:
        with pytest.raises(ServerError) as caught:
            await client.get("/api")
    assert "debug: Authorization=[redacted]" in str(caught.value)
    assert not any(secret in f"{caught.value} {caught.value.text}" for secret in secrets)


@pytest.mark.parametrize(
    "character",
    [pytest.param(each, id=f"U+{ord(each):04X}") for each in "\x7f\x80\x85\x9f\u2028\u2029\ufeff\ufffe\uffff"],
)
async def test_an_apply_is_the_same_in_yaml(character: str) -> None:
    recorder = Recorder()
    body = {"data": {"a": f"ä{character}\U0001f600"}}
    async with serve(recorder) as url, client_of(url) as client:
        await client.apply(PATH, body, manager="m")
        await client.create(PATH, body)
    applied, created = recorder.bodies
    assert json.loads(applied) == json.loads(created) == body
    assert character not in applied.decode()
    assert "ä" in applied.decode()
    assert character in created.decode()
