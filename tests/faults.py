"""A server that stands before the real API server and passes everything on, but for the faults that a test asks for.

For what cannot be provoked on a real one: hanging, throttling, failing for a while, answering with something else.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import yaml
from aiohttp import web

from functions.local.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from functions.local.instance import ControlPlane

_HOP_BY_HOP = {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "content-encoding"}


@dataclass(slots=True)
class Fault:
    """Answers requests instead of the real server.

    Attributes:
        path: How the paths concerned start; with `exact`, the one path.
        answer: Makes the answer; gets the real server's where it asks for it.
        times: How many requests, None for all.
        seen: How many there were.
    """

    path: str
    answer: Callable[[web.Request, Callable[[], Awaitable[web.Response]]], Awaitable[web.StreamResponse]]
    times: int | None = None
    exact: bool = False
    seen: int = 0

    def applies(self, request: web.Request) -> bool:
        concerned = request.path == self.path if self.exact else request.path.startswith(self.path)
        return concerned and (self.times is None or self.seen < self.times)


@dataclass(slots=True)
class Faulty:
    """A faulty API server: its kubeconfig, the faults that are active, and what was asked for."""

    kubeconfig: bytes
    faults: list[Fault] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


def status(code: int, body: str = "", content_type: str = "application/json", **headers: str) -> Fault:
    """Every path answers so."""

    async def answer(_: web.Request, __: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, text=body, content_type=content_type, headers=named)

    return Fault("/", answer)


def hang() -> Fault:
    """No request is ever answered."""

    async def answer(_: web.Request, __: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    return Fault("/", answer)


@contextlib.asynccontextmanager
async def faulty(control_plane: ControlPlane) -> AsyncIterator[Faulty]:
    """A faulty server before a control plane, with the admin's rights."""
    admin = yaml.safe_load(control_plane.kubeconfig.read_text())
    token = admin["users"][0]["user"]["token"]
    authority = Authority.new()
    certificate, key = authority.serving()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(certificate + key)
        pair.flush()
        context.load_cert_chain(pair.name)
    trusted = ssl.create_default_context(cadata=control_plane.ca.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
        server = Faulty(b"")

        async def handle(request: web.Request) -> web.StreamResponse:
            server.asked.append(f"{request.method} {request.path}")
            body = await request.read()

            async def real() -> web.Response:
                headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
                url = f"{control_plane.server}{request.path_qs}"
                async with session.request(request.method, url, headers=headers, data=body or None) as found:
                    kept = {name: value for name, value in found.headers.items() if name.lower() not in _HOP_BY_HOP}
                    return web.Response(status=found.status, headers=kept, body=await found.read())

            for fault in server.faults:
                if fault.applies(request):
                    fault.seen += 1
                    return await fault.answer(request, real)
            return await real()

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        server.kubeconfig = _kubeconfig(f"https://127.0.0.1:{port}", authority.certificate, token)
        try:
            yield server
        finally:
            await runner.cleanup()


def _kubeconfig(server: str, ca: bytes, token: str) -> bytes:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()}
    content = {
        "clusters": [{"name": "faulty", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "admin"}}],
        "current-context": "faulty",
    }
    return yaml.safe_dump(content).encode()
