"""The process: its port, its log, and how it ends. A registry of its own stands in for the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson
import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Start = Callable[[], Awaitable[tuple[asyncio.subprocess.Process, str]]]

PROGRAM = """
import asyncio, os, sys
import uvloop
from functions.function import Function
from functions.host import log, run
from functions.host.host import Host

async def held(event, world):
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return []

log.configure()
functions = [Function(name="held", handler=held, wakes_on=(), emits=(), service="s")]
uvloop.run(run.serve(Host(functions, None), port=int(os.environ["PORT"]), listen="127.0.0.1"))
"""
EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "test.asked"}


async def line(process: asyncio.subprocess.Process, message: str) -> dict[str, Any]:
    """The next line of the log with this message."""
    assert process.stderr is not None
    async for text in process.stderr:
        fields: dict[str, Any] = orjson.loads(text)
        if fields["message"] == message:
            return fields
    raise AssertionError(f"the log ended without {message}")


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    processes: list[asyncio.subprocess.Process] = []

    async def begin() -> tuple[asyncio.subprocess.Process, str]:
        pipe = asyncio.subprocess.PIPE
        environment = os.environ | {"PORT": "0"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
        )
        processes.append(process)
        [address] = (await line(process, "listening"))["addresses"]
        return process, f"http://{address}"

    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_an_idle_process_ends_at_once(
    start: Start,
    http: aiohttp.ClientSession,
    number: signal.Signals,
) -> None:
    process, url = await start()
    async with http.get(f"{url}/health/readiness") as response:
        assert response.status == 200
    process.send_signal(number)
    assert await process.wait() == 0


async def test_what_is_in_work_is_answered_before_the_end(start: Start, http: aiohttp.ClientSession) -> None:
    process, url = await start()
    assert process.stdin is not None
    assert process.stdout is not None
    first = asyncio.create_task(http.post(f"{url}/held", headers=EVENT))
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    await line(process, "draining")
    async with http.post(f"{url}/held", headers=EVENT) as response:
        assert response.status == 503
    async with http.get(f"{url}/health/readiness") as response:
        assert response.status == 503
    process.stdin.write(b"\n")
    assert (await first).status == 204
    assert await process.wait() == 0


async def test_a_second_signal_ends_at_once(start: Start, http: aiohttp.ClientSession) -> None:
    process, url = await start()
    assert process.stdout is not None
    first = asyncio.create_task(http.post(f"{url}/held", headers=EVENT))
    assert await process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    await line(process, "draining")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await first
