"""A function of ours behind Knative's own Python scaffolding, as a process: it answers as our own host does."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

from events import types
from events.codec import MAX_SIZE, decode
from functions.host import func
from tests.support import put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from functions.local.instance import ControlPlane

# As the scaffolding's own main module does it.
MAIN = "from function import new; from func_python.{middleware} import serve; serve(new)"
FUNCTION = "from functions.host import func\n\n\ndef new():\n    return func.new({name!r})\n"
MIDDLEWARES = pytest.mark.parametrize("middleware", ["http", "cloudevent"])
REPLY = {"Prefer": "reply", "Content-Type": "application/json"}
EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": types.PROVISIONED}


@asynccontextmanager
async def scaffolded(
    folder: Path, name: str, middleware: str = "http", **environment: str
) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """The URL of a function in a process of its own, once it listens; the process has ended in the end."""
    package = folder / "function"
    package.mkdir()
    (package / "__init__.py").write_text(FUNCTION.format(name=name))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {"LISTEN_ADDRESS": address, "PORT": "1", "PYTHONPATH": f"{folder}:{os.getcwd()}"}  # noqa: PTH109
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MAIN.format(middleware=middleware)),
        env={key: value for key, value in os.environ.items() if key != "K_SINK"} | settings | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://{address}/health/liveness") as response:
                        assert (response.status, await response.text()) == (200, "ok")
                        break
                except aiohttp.ClientConnectionError:
                    assert process.returncode is None, "it ended"
                    await asyncio.sleep(0.05)
        yield f"http://{address}", process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def post(http: aiohttp.ClientSession, url: str, data: Any, **headers: str) -> tuple[int, str, Any]:
    """Status, text where it is no event, and the event where it is one."""
    body = data if isinstance(data, bytes) else orjson.dumps(data)
    async with http.post(url, data=body, headers=EVENT | REPLY | headers) as response:
        content = await response.read()
        event = decode(response.headers, content) if response.status == 200 else None
        return response.status, "" if event else content.decode(), event


@MIDDLEWARES
async def test_it_answers_as_our_own_host(
    hub: ControlPlane, http: aiohttp.ClientSession, tmp_path: Path, middleware: str
) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    async with scaffolded(tmp_path, "cluster", middleware, KUBECONFIG=str(hub.kubeconfig)) as (url, process):
        async with http.get(f"{url}/health/readiness") as response:
            assert (response.status, await response.text()) == (200, "ok")
        status, _, event = await post(http, url, {"cluster": "gpu-1"})
        assert status == 200
        assert (event.type, event.extensions["cluster"]) == (types.CHECK_REQUESTED, "gpu-1")
        structured: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/t", "type": types.PROVISIONED}
        structured |= {"datacontenttype": "application/json", "data": {"cluster": "gpu-1"}}
        media_type = {"Content-Type": "application/cloudevents+json"}
        async with http.post(url, data=orjson.dumps(structured), headers=media_type | {"Prefer": "reply"}) as response:
            assert response.headers["ce-type"] == types.CHECK_REQUESTED
        assert await post(http, url, {"cluster": "nobody"}) == (204, "", None)
        assert await post(http, f"{url}/cluster", {"cluster": "nobody"}) == (204, "", None), "at any path"
        status, text, _ = await post(http, url, {"cluster": "../x"})
        assert (status, len(text.splitlines())) == (422, 1)
        status, text, _ = await post(http, url, b'{"cluster": ')
        assert (status, len(text.splitlines())) == (422, 1)
        status, text, _ = await post(http, url, {"cluster": "gpu-1"}, **{"ce-hops": "16"})
        assert (status, "the limit is 16" in text) == (422, True)
        status, text, _ = await post(http, url, {"cluster": "gpu-1"}, Prefer="")
        assert (status, text) == (503, "K_SINK is not set"), "one that is to be published itself"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        log = (await process.stderr.read()).decode()
        assert await process.wait() == 0
    assert "Traceback" not in log
    assert '"outcome":"poison"' in log


async def test_what_is_no_event_and_what_is_too_large_is_refused(
    hub: ControlPlane, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    async with scaffolded(tmp_path, "cluster", KUBECONFIG=str(hub.kubeconfig)) as (url, _):
        async with http.post(url, json={"cluster": "gpu-1"}) as response:
            assert (response.status, "not a CloudEvent" in await response.text()) == (422, True)
        headers = {key: value for key, value in EVENT.items() if key != "ce-id"}
        async with http.post(url, data=b"{}", headers=headers) as response:
            assert (response.status, "id is missing" in await response.text()) == (422, True)
        async with http.post(url, data=io.BytesIO(bytes(MAX_SIZE + 1)), headers=EVENT) as response:
            assert response.status == 413
        async with http.get(url) as response:
            assert response.status == 405


async def test_a_hub_that_does_not_answer_is_503(http: aiohttp.ClientSession, tmp_path: Path) -> None:
    kubeconfig = {
        "current-context": "hub",
        "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
        "clusters": [{"name": "hub", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "hub", "user": {"token": "a-token"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_bytes(orjson.dumps(kubeconfig))
    async with scaffolded(tmp_path, "cluster", KUBECONFIG=str(file)) as (url, _):
        status, text, _ = await post(http, url, {"cluster": "gpu-1"})
    assert status == 503
    assert "127.0.0.1:1" in text


@MIDDLEWARES
@pytest.mark.parametrize(
    ("name", "environment", "why"),
    [
        pytest.param("cluster", {"KUBECONFIG": "/nowhere"}, "/nowhere", id="no hub"),
        pytest.param("cluster", {"K_SINK": "nowhere"}, "K_SINK", id="no sink"),
        pytest.param("journal", {}, "SERVING_STACK_JOURNAL", id="no journal"),
    ],
)
async def test_what_is_set_wrong_is_told(
    http: aiohttp.ClientSession, tmp_path: Path, *, middleware: str, name: str, environment: dict[str, str], why: str
) -> None:
    async with scaffolded(tmp_path, name, middleware, **environment) as (url, _):
        async with http.get(f"{url}/health/readiness") as response:
            assert response.status == 500
            assert why in await response.text()
        status, text, _ = await post(http, url, {"cluster": "gpu-1"})
        assert (status, why in text) == (503, True)


async def test_a_function_that_writes_a_file_writes_it(
    http: aiohttp.ClientSession, hub: ControlPlane, tmp_path: Path
) -> None:
    journal = tmp_path / "events.jsonl"
    settings = {"KUBECONFIG": str(hub.kubeconfig), "SERVING_STACK_JOURNAL": str(journal)}
    async with scaffolded(tmp_path, "journal", **settings) as (url, _):
        assert await post(http, url, {"cluster": "gpu-1"}) == (204, "", None)
    assert b'"gpu-1"' in journal.read_bytes()


def test_an_unknown_function_is_no_function() -> None:
    with pytest.raises(ValueError, match="no function probes/none; there are"):
        func.new("probes/none")
