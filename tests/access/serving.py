"""What the tests of cluster access talk to: small servers on loopback, and certificates of their own making."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from functions.access.client import Client
from functions.access.connection import Connection

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority; with `bare`, one in the old style that strict X.509 checks refuse."""

    def __init__(self, name: str = "ca", *, bare: bool = False, parent: Authority | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._bare = bare
        issuer = parent or self
        builder = _builder(self.name, issuer.name, self.key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=not bare)
        self.certificate = builder.sign(issuer.key, hashes.SHA256())
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str = "127.0.0.1", *, age: dt.timedelta = DAY, life: dt.timedelta = 2 * DAY) -> Pair:
        """A certificate for a host name or address, or for a client, that was made `age` ago and lasts for `life`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, self.name, key.public_key(), age=age, life=life)
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name)]), critical=False)
        made = builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return Pair(made, private(key))


def private(key: ec.EllipticCurvePrivateKey, passphrase: bytes | None = None) -> bytes:
    """A private key as PEM."""
    hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        hidden = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)


def _general(name: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    age: dt.timedelta = DAY,
    life: dt.timedelta = 2 * DAY,
) -> x509.CertificateBuilder:
    start = dt.datetime.now(dt.UTC) - age
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
    )


def server_context(pair: Pair, *, clients: bytes | None = None) -> ssl.SSLContext:
    """A server's TLS context; with `clients` (PEM), it demands a certificate that those signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    if clients is not None:
        context.load_verify_locations(cadata=clients.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.asynccontextmanager
async def serve(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """An HTTP server; gives its URL."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def serve_raw(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """A TCP server, for what an HTTP library would not do; gives its port."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def read_head(reader: asyncio.StreamReader) -> str:
    """The request line and headers, with a body that has a length read and dropped."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    for line in head.splitlines():
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            await reader.readexactly(int(value))
    return head


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """A raw handler that never says anything."""
    await reader.read()
    await asyncio.Event().wait()


def answering(*answers: web.Response | dict[str, Any]) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """A handler that gives these answers in turn, and the last one from then on."""
    left = list(answers)

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, dict):
            return web.json_response(answer)
        return web.Response(status=answer.status, headers=answer.headers.copy(), body=answer.body or None)

    return handler


def status(code: int, reason: str = "", message: str = "", details: dict[str, Any] | None = None) -> dict[str, Any]:
    """A Status object."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details or {},
        "code": code,
    }


def connection(server: str, **fields: Any) -> Connection:
    """A connection to a server of the test."""
    return Connection(context="test", server=server, **fields)


@contextlib.asynccontextmanager
async def client_of(server: str, *, settings: dict[str, Any] | None = None, **fields: Any) -> AsyncIterator[Client]:
    """A client that repeats nothing unless the settings say so."""
    client = Client(connection(server, **fields), **{"budget": 0.0, **(settings or {})})
    try:
        yield client
    finally:
        await client.close()


def script(directory: Path, body: str) -> str:
    """An executable shell script; gives its path."""
    path = directory / "helper"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)
