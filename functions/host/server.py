"""aiohttp's low-level server with limits on connections that say nothing; `functions.host.app` answers through it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from functions.host.metrics import COUNTS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.http_parser import RawRequestMessage

CONNECTIONS: Final = 900
"""With the hub's and the targets' within the 1024 files that a process often may have."""
HEAD_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 120.0
"""How long a connection is kept for a further request: longer than Go's clients keep one (90 s), so that none is closed
as they send."""


class Server(web.Server):
    """Serves requests on a limited number of connections.

    A connection beyond the limit is closed at once, and one that has not brought the whole head of its first request in
    time.

    Args:
        answer: Answers a request.
        connections: How many may be open.
        head_seconds: How long a new one may take for the head of its first request.
        options: aiohttp's.
    """

    def __init__(
        self,
        answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        connections: int = CONNECTIONS,
        head_seconds: float = HEAD_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(answer, request_factory=self._begin, keepalive_timeout=IDLE_SECONDS, **options)
        self._limit = connections
        self._head_seconds = head_seconds
        self._open = 0
        self._silent: dict[web.RequestHandler, float] = {}  # and when each is due, the first due first
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a new connection, or close it."""
        super().connection_made(handler, transport)
        self._open += 1
        if self._open > self._limit:
            COUNTS.event("unknown", "", "too_many_connections")
            handler.force_close()
            return
        self._silent[handler] = due = self._loop.time() + self._head_seconds
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._close_silent)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        self._open -= 1
        self._silent.pop(handler, None)

    def _begin(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        self._silent.pop(protocol, None)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop)

    def pre_shutdown(self) -> None:
        """End what is idle, as the runner asks before it waits for the rest."""
        super().pre_shutdown()
        if self._timer is not None:
            self._timer.cancel()

    def _close_silent(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._silent:
            handler, due = next(iter(self._silent.items()))
            if due > now:
                self._timer = self._loop.call_at(due, self._close_silent)
                return
            del self._silent[handler]
            handler.force_close()
