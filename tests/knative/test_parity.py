"""For the same changes the watch source says what Knative's own adapter says: type, subject, extensions and data."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import MERGE_PATCH
from functions.local.knative.programs import find_programs
from functions.local.processes import ProcessGroup
from functions.watch.source import WatchSource
from tests.sink import listening
from tests.support import CRDS, DEVICE_CLASSES, crd_manifest, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from events.event import Event
    from functions.local.instance import ControlPlane
    from tests.sink import Sink

RESOURCES = (
    {"Group": "apiextensions.k8s.io", "Version": "v1", "Resource": "customresourcedefinitions"},
    {"Group": "resource.k8s.io", "Version": "v1", "Resource": "deviceclasses"},
)
CRD = "parities.tests.example.com"
DEVICE_CLASS = "parity.example.com"
SAID = ("kind", "apiversion", "name", "namespace", "cluster")


@pytest.fixture
def adapter(hub: ControlPlane, tmp_path: Path) -> Iterator[Sink]:
    """What the real adapter tells of the cluster."""
    with listening() as sink:
        config = {"namespaces": ["default"], "allNamespaces": True, "mode": "Reference"}
        environment = {
            "NAME": "parity",
            "NAMESPACE": "default",
            "KUBECONFIG": str(hub.kubeconfig),
            "K_SINK": sink.url,
            "K_CE_OVERRIDES": json.dumps({"extensions": {"cluster": "gpu-1"}}),
            "K_SOURCE_CONFIG": json.dumps({**config, "resources": [{"gvr": each} for each in RESOURCES]}),
        }
        group = ProcessGroup()
        with (tmp_path / "adapter.log").open("wb") as log:
            program = str(find_programs()["apiserver_receive_adapter"])
            group.spawn([program], cwd=tmp_path, output=log, env=environment)
            yield sink
            group.kill()


def said(events: Sequence[Event], name: str) -> list[tuple[Any, ...]]:
    """What was told of an object, each thing once and in order, as far as both tell it; ids and times are one's own."""
    told = [
        (each.type, each.subject, *(each.extensions.get(key) for key in SAID), json.loads(each.data or b"{}"))
        for each in events
        if each.extensions.get("name") == name
    ]
    return [each for index, each in enumerate(told) if each not in told[:index]]


@pytest.mark.timeout(180)
async def test_the_watch_source_says_what_the_adapter_says(hub: ControlPlane, adapter: Sink) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    world = await open_world(hub.kubeconfig)
    ours: list[Event] = []

    async def publish(events: Sequence[Event]) -> None:
        ours.extend(events)

    watching = asyncio.ensure_future(WatchSource(world, publish).run())
    try:
        await _both_watch(hub, adapter, ours)
        await asyncio.to_thread(_change, hub)
        for name in (CRD, DEVICE_CLASS):
            await _until(lambda name=name: _deleted(adapter.took, name) and _deleted(ours, name))
            theirs = said(adapter.took, name)
            assert [each[0].rpartition(".")[2] for each in theirs] == ["add", "update", "delete"]
            assert said(ours, name) == theirs
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
        await world.close()


def _change(hub: ControlPlane) -> None:
    """A definition and a DeviceClass come, change and go."""
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DEVICE_CLASS},
        "spec": {"selectors": [{"cel": {"expression": "true"}}]},
    }
    for collection, name, manifest in (
        (CRDS, CRD, crd_manifest(CRD, "v1")),
        (DEVICE_CLASSES, DEVICE_CLASS, device_class),
    ):
        assert hub.api.request("POST", collection, manifest).status == 201
        touch = {"metadata": {"annotations": {"touched": "1"}}}
        time.sleep(0.5)
        answer = hub.api.request("PATCH", f"{collection}/{name}", touch, content_type=MERGE_PATCH)
        assert answer.status == 200
        time.sleep(0.5)
        assert hub.api.request("DELETE", f"{collection}/{name}").status == 200


def _deleted(events: Sequence[Event], name: str) -> bool:
    return any(each.type.endswith(".delete") and each.extensions.get("name") == name for each in events)


async def _both_watch(hub: ControlPlane, adapter: Sink, ours: list[Event]) -> None:
    """Returns once both tell of objects that come: the adapter does not tell of what was there before."""
    for number in range(60):
        name = f"before{number}.tests.example.com"
        await asyncio.to_thread(hub.api.request, "POST", CRDS, crd_manifest(name, "v1"))
        for _ in range(10):
            if all(any(each.extensions.get("name") == name for each in told) for told in (adapter.took, ours)):
                return
            await asyncio.sleep(0.1)
    pytest.fail("not both of them watch")


async def _until(reached: Any, within: float = 30) -> None:
    deadline = time.monotonic() + within
    while not reached():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
