"""A client that keeps a server busy: each connection sends the next request when its answer is there.

Run as `python -m tests.benchmarks.load PORT PATH SECONDS CONNECTIONS`; prints all answers,
and the answers per second. It speaks as
little HTTP as will do, so that it is several times as fast as what it measures.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final, cast

import uvloop

if TYPE_CHECKING:
    from collections.abc import Sequence

_WARM_UP: Final = 0.2


def request(path: str) -> bytes:
    """A CloudEvent in binary mode that no function has anything to do for."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "ce-specversion: 1.0",
        "ce-id: 8f0d0c1e-6d0e-4b63-9f0e-0b1a2c3d4e5f",
        "ce-source: https://10.96.0.1:443",
        "ce-type: dev.knative.apiserver.ref.update",
        "ce-subject: /apis/apps/v1/namespaces/default/deployments/web",
        "ce-time: 2026-12-01T04:00:00.000001Z",
        "ce-apiversion: apps/v1",
        "ce-kind: Deployment",
        "ce-name: web",
        "ce-namespace: default",
        f"Content-Length: {len(_BODY)}",
        "",
        "",
    )
    return "\r\n".join(lines).encode() + _BODY


_BODY: Final = b'{"apiVersion":"apps/v1","kind":"Deployment","name":"web","namespace":"default"}'


class _Sender(asyncio.Protocol):
    """One connection."""

    def __init__(self, message: bytes) -> None:
        self.answers = 0
        self.trouble = ""
        self._message = message
        self._transport: asyncio.Transport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._message)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._received.endswith(b"\r\n\r\n"):
            return
        if not self._received.startswith(b"HTTP/1.1 204"):
            self.trouble = self._received[:200].decode(errors="replace")
            return
        self._received = b""
        self.answers += 1
        if self._transport is not None:
            self._transport.write(self._message)


async def load(port: int, path: str, seconds: float, connections: int) -> tuple[int, float]:
    """All answers, and answers per second after a short warm-up."""
    loop = asyncio.get_running_loop()
    message = request(path)
    opened = [await loop.create_connection(lambda: _Sender(message), "127.0.0.1", port) for _ in range(connections)]
    senders = [sender for _, sender in opened]
    await asyncio.sleep(_WARM_UP)
    before, begun = _answers(senders), time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (_answers(senders) - before) / (time.perf_counter() - begun)
    for transport, _ in opened:
        transport.close()
    return _answers(senders), rate


def _answers(senders: Sequence[_Sender]) -> int:
    for each in senders:
        if each.trouble:
            raise RuntimeError(f"the server answered: {each.trouble}")
    return sum(each.answers for each in senders)


if __name__ == "__main__":
    port, path, seconds, connections = sys.argv[1:]
    print(*uvloop.run(load(int(port), path, float(seconds), int(connections))))  # noqa: T201
