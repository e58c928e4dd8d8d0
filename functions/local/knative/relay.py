"""Passes TCP connections on to another address: what kube-proxy does in a cluster, and the way in from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    Target = tuple[str, int]

_CONNECT_WITHIN: Final = 5.0


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
    """One of the two connections that are joined; what it receives is written to the other.

    What comes before they are joined is kept for then. A connection may end one way and go on the other; when both
    ways have ended, or it is broken, both connections are closed.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._other: _End | None = None
        self._early: list[bytes] = []
        self._ended = False

    def join(self, other: _End) -> None:
        """Write to that one from now on."""
        self._other = other
        for data in self._early:
            other.write(data)
        self._early.clear()
        if self._ended:
            other.finish()

    def write(self, data: bytes) -> None:
        """Send something."""
        if self._transport is not None:
            self._transport.write(data)

    def finish(self) -> None:
        """Send no more; where nothing more is received either, it is closed once all is sent."""
        if self._transport is None:
            return
        if self._ended:
            self._transport.close()
        elif not self._transport.is_closing():
            self._transport.write_eof()

    def hang_up(self) -> None:
        """Close it now."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            self._other.write(data)

    def eof_received(self) -> bool:
        self._ended = True
        if self._other is not None:
            self._other.finish()
            if self._other.has_ended:
                self.finish()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._other is not None:
            if error is None:
                self._other.finish()
            else:
                self._other.hang_up()

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is received."""
        return self._ended or self._transport is None

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.pause(paused=True)

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other.pause(paused=False)

    def pause(self, *, paused: bool) -> None:
        """Receive nothing for now, or go on."""
        if self._transport is not None and not self._transport.is_closing():
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class _Near(_End):
    """The end of who called."""

    def __init__(self, choose: Callable[[], Target | None]) -> None:
        super().__init__()
        self._choose = choose
        self._joining: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._joining = asyncio.get_running_loop().create_task(self._join())

    async def _join(self) -> None:
        target = self._choose()
        try:
            if target is None:
                raise ConnectionRefusedError
            async with asyncio.timeout(_CONNECT_WITHIN):
                _, far = await asyncio.get_running_loop().create_connection(_End, *target)
        except OSError:
            self.hang_up()
            return
        if self._transport is None:  # it hung up meanwhile
            far.hang_up()
            return
        far.join(self)
        self.join(far)
