"""A subscriber that answers by a script, and tells what arrived when. Run as a program: by a pod, or beside a test.

`SCRIPT` holds, by path, the answers in JSON; the last of a path repeats, and what has none is answered 204:

    status   of the answer
    body     what it says
    reply    the attributes of an event that it answers with
    delay    seconds until it does

GET /arrived tells what came, in JSON: path, seconds since the epoch, headers in lower case, and the body.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from aiohttp import web

SCRIPT: dict[str, list[dict[str, Any]]] = json.loads(os.environ.get("SCRIPT", "{}"))
ARRIVED: list[dict[str, Any]] = []


async def take(request: web.Request) -> web.Response:
    headers = {name.lower(): value for name, value in request.headers.items()}
    arrival = {"path": request.path, "at": time.time(), "headers": headers, "body": (await request.read()).decode()}
    ARRIVED.append(arrival)
    script = SCRIPT.get(request.path, [{}])
    answer = script.pop(0) if len(script) > 1 else script[0]
    await asyncio.sleep(answer.get("delay", 0))
    reply = {f"ce-{name}": value for name, value in answer.get("reply", {}).items()}
    return web.Response(status=answer.get("status", 200 if reply else 204), body=answer.get("body", ""), headers=reply)


async def tell(_: web.Request) -> web.Response:
    return web.json_response(ARRIVED)


if __name__ == "__main__":
    app = web.Application()
    app.router.add_get("/arrived", tell)
    app.router.add_post("/{path:.*}", take)
    web.run_app(app, host=os.environ.get("HOST"), port=int(os.environ["PORT"]), print=None)
