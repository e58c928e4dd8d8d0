"""The limit of the host: aiohttp's low-level server on uvloop, which reads each request and answers 204.

Run as `python -m tests.benchmarks.bare PORT`.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import web


async def _nothing(request: web.BaseRequest) -> web.Response:
    await request.read()
    return web.Response(status=204)


async def _serve(port: int) -> None:
    runner = web.ServerRunner(web.Server(_nothing, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
