"""A stand-in for the API servers of many targets: lists hold what a cluster has, watches are silent.

Run as `python -m tests.benchmarks.targets CERTIFICATE`, a file with certificate and key; prints its port. One process
stands for all targets: each of them has connections of its own to it, which is what counts for who watches.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Final
from urllib.parse import parse_qs, urlsplit

import uvloop

from functions.catalog import COMPONENTS, CustomResource
from functions.compose.sets import COMPOSITIONS

_BACKLOG: Final = 4096
_STEPS: Final = tuple(step for each in COMPOSITIONS for step in each.steps)
_NAMES: Final = sorted(
    {
        *(one.name for each in COMPONENTS for one in each.requirements if isinstance(one, CustomResource)),
        *(step.kind.definition for step in _STEPS if not step.kind.built_in),
    }
)


def _metadata(name: str) -> dict[str, object]:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "1", "generation": 1}}


def _discovery() -> bytes:
    groups: dict[str, dict[str, list[dict[str, object]]]] = {}
    for step in _STEPS:
        if not step.kind.built_in:
            resource: dict[str, object] = {
                "resource": step.kind.plural,
                "verbs": ["get", "list", "watch", "create"],
                "scope": "Namespaced",
            }
            groups.setdefault(step.kind.group, {}).setdefault(step.kind.version, []).append(resource)
    items = [
        {
            "metadata": {"name": group},
            "versions": [{"version": version, "resources": found} for version, found in versions.items()],
        }
        for group, versions in groups.items()
    ]
    return json.dumps({"kind": "APIGroupDiscoveryList", "items": items}).encode()


_DISCOVERY: Final = _discovery()
_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _list(path: str, query: dict[str, list[str]]) -> bytes:
    named = query.get("fieldSelector", [""])[0].partition("metadata.name=")[2]
    names = [named] if named else _NAMES if path.endswith("/customresourcedefinitions") else ["gpu.nvidia.com"]
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": [_metadata(each) for each in names]}).encode()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            url = urlsplit(head.split(b" ", 2)[1].decode())
            query = parse_qs(url.query)
            if "watch" in query:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                await writer.drain()
                await reader.read()  # until the other side hangs up
                return
            body, kind = (
                (_DISCOVERY, _AGGREGATED) if url.path == "/apis" else (_list(url.path, query), "application/json")
            )
            size = str(len(body)).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %s\r\n\r\n" % (kind.encode(), size))
            writer.write(body)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        return
    finally:
        writer.close()


async def _run(certificate: str) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, ssl=context, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - which is what it says
    await server.serve_forever()


if __name__ == "__main__":
    from functions.watch import connections

    connections.allow_many()
    uvloop.run(_run(sys.argv[1]))
