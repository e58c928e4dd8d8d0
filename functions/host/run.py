"""Serves functions from a process of its own until it is told to end; `serving-stack serve` calls it."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Final

from aiohttp import web

from functions.host.app import CONCURRENCY, LINGER_SECONDS, Gate, make_server
from functions.host.server import CONNECTIONS

if TYPE_CHECKING:
    from functions.host.callers import Callers
    from functions.host.host import Host

GRACE_SECONDS: Final = 25.0
"""How long events in work may take after SIGTERM: longer than a handler may, shorter than Kubernetes' 30 s."""

_log = logging.getLogger(__name__)


async def serve(
    host: Host,
    *,
    port: int,
    listen: str | None = None,
    concurrency: int = CONCURRENCY,
    connections: int = CONNECTIONS,
    callers: Callers | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then answer what is in work and return; a second signal ends at once.

    Args:
        host: What answers the events.
        port: TCP port; 0 lets the system choose, and the log says which.
        listen: Address to listen on; all interfaces when None.
        concurrency: How many events may be in work at once.
        connections: How many may be open at once.
        callers: Tells who may call; None where anybody may who can.

    Raises:
        OSError: The address cannot be had.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    gate = Gate(concurrency)
    runner = web.ServerRunner(
        make_server(host, gate, connections=connections, callers=callers), shutdown_timeout=LINGER_SECONDS
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, listen, port).start()
        addresses = sorted(f"{address[0]}:{address[1]}" for address in runner.addresses)
        _log.info("listening", extra={"addresses": addresses, "functions": list(host.functions)})
        await stop.wait()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        _log.info("draining")
        abandoned = await gate.drain(GRACE_SECONDS)
        if abandoned:
            _log.warning("ended with events in work", extra={"events": abandoned})
    finally:
        await runner.cleanup()
