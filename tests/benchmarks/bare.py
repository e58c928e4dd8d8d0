"""The limit of the host: an aiohttp application on uvloop with one handler, which reads each request and answers 204.

Run as `python -m tests.benchmarks.bare PORT`.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop
from aiohttp import web


async def _nothing(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(status=204)


async def _serve(port: int) -> None:
    app = web.Application()
    app.router.add_post("/", _nothing)
    app.router.add_get("/health/readiness", _nothing)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
