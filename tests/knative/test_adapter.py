"""Knative's own API server adapter as a process: what it tells becomes a condition, and so does what it misses."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from events.broker import Broker
from events.codec import decode
from events.delivery import HttpDelivery
from events.event import Event
from events.triggers import read_triggers
from functions.catalog import component
from functions.local.knative.programs import find_programs
from functions.local.processes import ProcessGroup
from tests.support import CRDS, crd_manifest, provide, put_cluster, put_kubeconfig, summary
from tests.support import conditions as conditions_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from pathlib import Path

    from functions.local.instance import ControlPlane

KAI, GROVE = component("kai-scheduler"), component("grove")
FUNCTIONS = "cluster,probes/sweep,probes/kai-scheduler,probes/grove"
_TRIGGER = """
---
apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {{name: {name}}}
spec:
  broker: all
  filters: [{filters}]
  subscriber: {{ref: {{apiVersion: serving.knative.dev/v1, kind: Service, name: all}}, uri: /{function}}}
  delivery: {{retry: 5, backoffPolicy: linear, backoffDelay: PT0.2S}}
"""


def _trigger(function: str, filters: Mapping[str, Mapping[str, str]]) -> str:
    written = ", ".join(json.dumps({dialect: attributes}) for dialect, attributes in filters.items())
    return _TRIGGER.format(name=function.replace("/", "-"), function=function, filters=written)


TRIGGERS = "".join(
    (
        *(
            _trigger(
                f"probes/{each.key}",
                {"prefix": {"type": "dev.knative.apiserver."}, "exact": {"name": each.requirements[0].name}},
            )
            for each in (KAI, GROVE)
        ),
        _trigger("cluster", {"exact": {"type": "dev.knative.sources.ping"}}),
        _trigger("probes/sweep", {"exact": {"type": "ai.modelplane.cluster.check.requested"}}),
    )
)


@pytest.fixture
def serve(hub: ControlPlane) -> Iterator[str]:
    """`serving-stack serve` for that hub, as a process on 127.0.0.1; its URL."""
    with ExitStack() as stack:
        command = [sys.executable, "-m", "functions", "serve", "--listen", "127.0.0.1", "--port", "0"]
        process = stack.enter_context(
            subprocess.Popen(
                [*command, "--functions", FUNCTIONS, "--kubeconfig", str(hub.kubeconfig)],
                stderr=subprocess.PIPE,
                text=True,
                env={name: value for name, value in os.environ.items() if not name.startswith(("K_", "SERVING_"))},
            )
        )
        stack.callback(process.kill)
        assert process.stderr is not None
        for line in process.stderr:
            if (said := json.loads(line))["message"] == "listening":
                yield f"http://{said['addresses'][0]}"
                break
        else:
            pytest.fail("serve ended")


class Ingress:
    """The embedded broker as an address that events are posted to, which notes what is posted."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.broker: Broker | None = None
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        event = decode(request.headers, await request.read())
        self.told.append(event)
        assert self.broker is not None
        await self.broker.publish(event)
        return web.Response(status=202)

    def names(self) -> set[str]:
        """The names of the objects of which events told."""
        return {event.extensions["name"] for event in self.told}


@pytest.fixture
async def ingress(serve: str) -> AsyncIterator[Ingress]:
    found = Ingress()
    app = web.Application()
    app.router.add_post("/", found.take)
    server = TestServer(app, host="127.0.0.1")
    await server.start_server()
    async with aiohttp.ClientSession() as session:
        found.broker = Broker(read_triggers(TRIGGERS), HttpDelivery({"all": f"{serve}/"}, session))
        found.url = str(server.make_url("/"))
        yield found
        await found.broker.close()
    await server.close()


class Adapter:
    """The program, started with what Knative's controller would give it."""

    def __init__(self, hub: ControlPlane, sink: str, log: Path) -> None:
        resource = {"Group": "apiextensions.k8s.io", "Version": "v1", "Resource": "customresourcedefinitions"}
        self._env = {
            "NAME": "crds",
            "NAMESPACE": "default",
            "KUBECONFIG": str(hub.kubeconfig),
            "K_SINK": sink,
            "K_CE_OVERRIDES": json.dumps({"extensions": {"cluster": "gpu-1"}}),
            "K_SOURCE_CONFIG": json.dumps(
                {
                    "namespaces": ["default"],
                    "allNamespaces": True,
                    "mode": "Reference",
                    "resources": [{"gvr": resource}],
                }
            ),
        }
        self._log = log
        self._group = ProcessGroup()

    def start(self) -> None:
        with self._log.open("ab") as output:
            program = str(find_programs()["apiserver_receive_adapter"])
            self._process = self._group.spawn([program], cwd=self._log.parent, output=output, env=self._env)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        self._group.kill()


@pytest.fixture
def adapter(hub: ControlPlane, ingress: Ingress, tmp_path: Path) -> Iterator[Adapter]:
    """The adapter, which runs."""
    adapter = Adapter(hub, ingress.url, tmp_path / "adapter.log")
    adapter.start()
    yield adapter
    adapter.end()


@pytest.fixture
async def watching(hub: ControlPlane, ingress: Ingress) -> Callable[[], Any]:
    """Returns once the adapter watches, which nothing but an event tells: each object that it may tell of is new."""

    async def until() -> None:
        deadline = time.monotonic() + 30
        while True:
            name = f"probes.{secrets.token_hex(4)}.example.com"
            answer = await asyncio.to_thread(hub.api.request, "POST", CRDS, crd_manifest(name, "v1"))
            assert answer.status == 201, answer
            for _ in range(10):
                if name in ingress.names():
                    return
                await asyncio.sleep(0.05)
            assert time.monotonic() < deadline, "the adapter tells nothing"

    return until


async def _turns(hub: ControlPlane, condition: str, status: str, within: float = 20) -> None:
    deadline = time.monotonic() + within
    while (found := await asyncio.to_thread(conditions_of, hub.api)).get(condition, {}).get("status") != status:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.05)


def _ping() -> Event:
    return Event(id=secrets.token_hex(4), source="/ping", type="dev.knative.sources.ping")


async def test_what_the_adapter_tells_becomes_a_condition_and_what_it_misses_is_found_by_the_tick(
    hub: ControlPlane, ingress: Ingress, adapter: Adapter, watching: Callable[[], Any]
) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api, "gpu-1", stack="Dynamo")
    assert ingress.broker is not None
    await ingress.broker.publish(_ping())
    await _turns(hub, KAI.condition, "False")
    await _turns(hub, GROVE.condition, "False")

    await watching()
    provide(hub.api, KAI.requirements[0])
    await _turns(hub, KAI.condition, "True")
    told = next(each for each in ingress.told if each.extensions["name"] == KAI.requirements[0].name)
    assert told.type == "dev.knative.apiserver.ref.add"
    assert told.extensions["cluster"] == "gpu-1"

    adapter.kill()
    provide(hub.api, GROVE.requirements[0])
    adapter.start()
    await watching()
    await ingress.broker.drain()
    assert GROVE.requirements[0].name not in ingress.names()
    assert conditions_of(hub.api)[GROVE.condition]["status"] == "False"

    await ingress.broker.publish(_ping())
    await _turns(hub, GROVE.condition, "True")
    assert summary(hub.api)[0] == "False"  # the others are still missing
