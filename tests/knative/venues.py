"""Where the contract of a broker is tried: the embedded one, and Knative's, with the same Triggers and subscriber."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import yaml

from events.broker import Broker
from events.codec import encode_binary
from events.delivery import HttpDelivery
from events.triggers import read_triggers
from functions.access.client import Client
from functions.access.errors import AccessError
from functions.access.kubeconfig import load_file
from functions.local.knative.manifests import path_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from events.event import Event
    from functions.local.knative.instance import KnativeControlPlane

PROGRAM = Path(__file__).with_name("subscriber.py")
BROKER = "contract"
SUBSCRIBER = {"apiVersion": "v1", "kind": "Service", "name": "subscriber"}
_WITHIN = 30.0

Script = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Arrival:
    """A request that the subscriber got: where, when in seconds, its headers in lower case, and its body."""

    path: str
    at: float
    headers: Mapping[str, str]
    body: str


class Venue(Protocol):
    """A broker with Triggers, and a subscriber behind them."""

    subscriber: str
    """The URL by which the broker knows the subscriber, without a path."""

    async def publish(self, event: Event) -> None:
        """Hands an event to the broker."""

    async def arrived(self) -> list[Arrival]:
        """What the subscriber got so far."""


async def arrivals(venue: Venue, path: str, count: int, *, within: float = _WITHIN) -> list[Arrival]:
    """What arrived at a path, once it is so many; a moment later there are no more."""
    deadline = time.monotonic() + within
    while len(found := [each for each in await venue.arrived() if each.path == path]) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} came to {path}: {await venue.arrived()}"
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)
    found = [each for each in await venue.arrived() if each.path == path]
    assert len(found) == count
    return found


def trigger(name: str, *, delivery: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A Trigger that gives events of type `contract.<name>` to the subscriber's path `/<name>`."""
    sink = {"deadLetterSink": {"ref": SUBSCRIBER, "uri": f"/dead/{name}"}}
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {"name": name, "labels": {"eventing.knative.dev/broker": BROKER}},
        "spec": {
            "broker": BROKER,
            "filters": [{"exact": {"type": f"contract.{name}"}}],
            "subscriber": {"ref": SUBSCRIBER, "uri": f"/{name}"},
            "delivery": {"retry": 0, "backoffPolicy": "linear", "backoffDelay": "PT0S", **sink, **(delivery or {})},
        },
    }


class Embedded:
    """The broker of `serving-stack dev`, with the subscriber as a process on 127.0.0.1."""

    def __init__(self, broker: Broker, session: aiohttp.ClientSession, subscriber: str) -> None:
        self.subscriber = subscriber
        self._broker = broker
        self._session = session

    async def publish(self, event: Event) -> None:
        await self._broker.publish(event)

    async def arrived(self) -> list[Arrival]:
        async with self._session.get(f"{self.subscriber}/arrived") as answer:
            return [Arrival(**each) for each in await answer.json()]

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, triggers: Sequence[dict[str, Any]], script: Script) -> AsyncIterator[Embedded]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        environ = {"HOST": "127.0.0.1", "PORT": str(port), "SCRIPT": json.dumps(script), "PATH": os.environ["PATH"]}
        process = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), env=environ)
        url = f"http://127.0.0.1:{port}"
        async with aiohttp.ClientSession() as session:
            transport = HttpDelivery({"subscriber": f"{url}/"}, session)
            broker = Broker(read_triggers(yaml.safe_dump_all(triggers)), transport)
            venue = cls(broker, session, url)
            try:
                await eventually(venue.arrived, (OSError, aiohttp.ClientError))
                yield venue
            finally:
                await broker.close()
                process.kill()
                await process.wait()


class Real:
    """Knative's own broker, with the subscriber as a pod; both are reached through the API server."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.subscriber = f"http://subscriber.{namespace}.svc.cluster.local"
        self._client = client
        self._namespace = namespace

    async def publish(self, event: Event) -> None:
        message = encode_binary(event)
        headers = {name: value for name, value in message.headers.items() if name.lower() != "content-type"}
        path = f"{proxied('knative-eventing', 'broker-ingress')}/{self._namespace}/{BROKER}"
        await self._client.request("POST", path, headers=headers, body=json.loads(message.body))

    async def arrived(self) -> list[Arrival]:
        found = await self._client.get(f"{proxied(self._namespace, 'subscriber')}/arrived")
        return [Arrival(**each) for each in found]

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(
        cls,
        knative: KnativeControlPlane,
        triggers: Sequence[dict[str, Any]],
        script: Script,
        annotations: Mapping[str, str],
    ) -> AsyncIterator[Real]:
        client = Client(load_file(knative.kubeconfig), timeout=30)
        namespace = f"contract-{secrets.token_hex(4)}"
        venue = cls(client, namespace)
        try:
            for manifest in (*_subscriber(script), _broker(annotations), *triggers):
                await create(client, manifest, namespace)
            for manifest in (_broker({}), *triggers):
                await ready(client, manifest, namespace)
            await eventually(venue.arrived, AccessError)
            yield venue
        finally:
            await client.delete(f"/api/v1/namespaces/{namespace}")
            await client.close()


def proxied(namespace: str, service: str) -> str:
    """The API path that leads to port 80 of a Service."""
    return f"/api/v1/namespaces/{namespace}/services/{service}:80/proxy"


async def create(client: Client, manifest: Mapping[str, Any], namespace: str) -> None:
    """Makes an object in a namespace, and the namespace where it is not there yet."""
    whole = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await client.apply(f"/api/v1/namespaces/{namespace}", whole, manager="test")
    await client.apply(path_in(manifest, namespace), manifest, manager="test")


async def ready(client: Client, manifest: Mapping[str, Any], namespace: str, within: float = _WITHIN) -> None:
    """Returns once the object's condition Ready is True."""
    path = path_in(manifest, namespace)
    deadline = time.monotonic() + within
    while True:
        conditions = (await client.get(path)).get("status", {}).get("conditions", ())
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            return
        assert time.monotonic() < deadline, f"{path} is not ready: {conditions}"
        await asyncio.sleep(0.1)


def path_in(manifest: Mapping[str, Any], namespace: str) -> str:
    """The API path of an object of a namespace."""
    return path_of({**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}})


async def eventually(
    attempt: Callable[[], Awaitable[object]], errors: type[Exception] | tuple[type[Exception], ...]
) -> None:
    """Returns once it succeeds."""
    deadline = time.monotonic() + _WITHIN
    while True:
        try:
            await attempt()
        except errors:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)
        else:
            return


def _broker(annotations: Mapping[str, str]) -> dict[str, Any]:
    metadata = {"name": BROKER, "annotations": dict(annotations)}
    return {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": metadata}


def _subscriber(script: Script) -> list[dict[str, Any]]:
    labels = {"app": "subscriber"}
    container = {
        "name": "subscriber",
        "image": "local/python",
        "command": ["python", str(PROGRAM)],
        "env": [{"name": "PORT", "value": "8080"}, {"name": "SCRIPT", "value": json.dumps(script)}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "http"}},
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "subscriber"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "subscriber"},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": "http"}]},
        },
    ]
