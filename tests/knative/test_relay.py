"""A relay passes on what it gets, both ways and to the end, and cuts off where there is nobody."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from functions.local.knative.relay import relay

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    """Lets connections that a test closes be closed within it."""
    yield
    await asyncio.sleep(0.1)


def _address(server: asyncio.Server) -> tuple[str, int]:
    host, port = server.sockets[0].getsockname()[:2]
    return host, port


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers, once all was read, with its length and its digest."""
    whole = await reader.read()
    writer.write(f"{len(whole)} {hashlib.sha256(whole).hexdigest()}".encode())
    await writer.drain()
    writer.close()


async def test_much_goes_through_and_the_end_is_passed_on() -> None:
    target = await asyncio.start_server(_echo, "127.0.0.1", 0)
    near = await relay(lambda: _address(target), host="127.0.0.1")
    sent = b"0123456789abcdef" * (1 << 18)  # more than fits into buffers
    reader, writer = await asyncio.open_connection(*_address(near))
    writer.write(sent)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 20)
    assert answer == f"{len(sent)} {hashlib.sha256(sent).hexdigest()}".encode()
    writer.close()
    near.close()
    target.close()


async def test_one_that_does_not_read_holds_up_who_writes() -> None:
    done, hung_up = asyncio.Event(), asyncio.Event()

    async def deaf(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cast("asyncio.Transport", writer.transport).pause_reading()
        await done.wait()
        writer.transport.abort()
        hung_up.set()

    async def write(writer: asyncio.StreamWriter) -> None:
        for _ in range(1000):
            writer.write(b"x" * (1 << 20))
            await writer.drain()

    target = await asyncio.start_server(deaf, "127.0.0.1", 0)
    near = await relay(lambda: _address(target), host="127.0.0.1")
    _, writer = await asyncio.open_connection(*_address(near))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write(writer), 2)
    writer.transport.abort()
    done.set()
    await asyncio.wait_for(hung_up.wait(), 10)
    near.close()
    target.close()


@pytest.mark.parametrize("target", [None, ("127.0.0.1", 1)], ids=["nobody", "nobody-listens"])
async def test_where_there_is_nobody_the_connection_is_cut_off(target: tuple[str, int] | None) -> None:
    near = await relay(lambda: target, host="127.0.0.1")
    reader, writer = await asyncio.open_connection(*_address(near))
    writer.write(b"hello")
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    near.close()


async def test_who_hangs_up_is_hung_up_on() -> None:
    ended = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        ended.set()
        writer.close()

    target = await asyncio.start_server(hold, "127.0.0.1", 0)
    near = await relay(lambda: _address(target), host="127.0.0.1")
    _, writer = await asyncio.open_connection(*_address(near))
    await asyncio.sleep(0.1)
    writer.transport.abort()
    await asyncio.wait_for(ended.wait(), 10)
    near.close()
    target.close()


async def test_a_socket_that_listens_already_is_taken() -> None:
    target = await asyncio.start_server(_echo, "127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = await relay(lambda: _address(target), listener=listener.dup())
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write_eof()
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"0 ")
        writer.close()
        near.close()
    target.close()


async def test_nothing_stays_open_of_a_connection_that_ended() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        writer.close()

    target = await asyncio.start_server(greet, "127.0.0.1", 0)
    near = await relay(lambda: _address(target), host="127.0.0.1")
    before = _open_files()
    for _ in range(50):
        reader, writer = await asyncio.open_connection(*_address(near))
        assert await asyncio.wait_for(reader.read(), 10) == b"hello"
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(10):
        while _open_files() > before:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.05)
    near.close()
    target.close()


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
