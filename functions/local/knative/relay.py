"""Passes TCP connections on to another address: what kube-proxy does in a cluster, and the way in from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Target = tuple[str, int]


async def relay(
    choose: Callable[[], Target | None], *, host: str = "", port: int = 0, listener: socket.socket | None = None
) -> asyncio.Server:
    """Listen, and pass each connection on.

    Args:
        choose: Where a new connection goes; None to cut it off.
        host: The address to listen on.
        port: Its port.
        listener: A socket that listens already, instead of the two.

    Raises:
        OSError: The address cannot be had.
    """
    loop = asyncio.get_running_loop()
    if listener is not None:
        return await loop.create_server(lambda: _Near(choose), sock=listener)
    return await loop.create_server(lambda: _Near(choose), host, port)


class _End(asyncio.Protocol):
    """One of the two connections that are joined; what it receives is written to the other."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        if self.other is not None and self.other.transport is not None and self.other.transport.can_write_eof():
            self.other.transport.write_eof()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            if error is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()
        self.transport = None

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()


class _Near(_End):
    """The end of who called."""

    def __init__(self, choose: Callable[[], Target | None]) -> None:
        super().__init__()
        self._choose = choose
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).pause_reading()
        self._joining = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        target = self._choose()
        try:
            if target is None:
                raise ConnectionRefusedError
            async with asyncio.timeout(5):
                _, far = await asyncio.get_running_loop().create_connection(_End, *target)
        except OSError:
            if self.transport is not None:
                self.transport.abort()
            return
        if self.transport is None:  # it hung up meanwhile
            far.transport and far.transport.abort()
            return
        far.other, self.other = self, far
        self.transport.resume_reading()
