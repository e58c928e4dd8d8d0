"""From the first event to the last object, by events alone: no tick, and nobody wakes a function by hand."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from events import types
from functions.access import kubeconfig
from functions.access.client import MERGE_PATCH, Client
from functions.catalog import Stack, of_stack
from functions.compose.gateway import CLIENT_AUTH, GATEWAY
from functions.compose.kinds import CLIENT_TRAFFIC_POLICY
from functions.compose.kinds import GATEWAY as GATEWAY_KIND
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import ADDRESS, Controllers
from functions.watch.checks import APART
from functions.watch.runtime import Runtime
from functions.watch.target import SOURCE
from tests.compose.apart import objects_of
from tests.compose.stage import Stage
from tests.support import CLUSTERS, happened, install, open_world, put_cluster, put_kubeconfig
from tests.watch.watching import is_complete, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from events.event import Event
    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane

SYSTEM = "modelplane-system"
POLICIES = CLIENT_TRAFFIC_POLICY.path(namespace=SYSTEM)
GATEWAYS = GATEWAY_KIND.path(namespace=SYSTEM)
LONG = 60.0
LEAST = timedelta(seconds=APART * 0.9)


def is_true(*types: str) -> Callable[[dict[str, Any]], bool]:
    def reached(found: dict[str, Any]) -> bool:
        conditions = found.get("status", {}).get("conditions", ())
        return set(types) <= {each["type"] for each in conditions if each["status"] == "True"}

    return reached


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_everything_is_composed_put_right_and_taken_down_by_events_alone(
    hub: ControlPlane, target: ControlPlane, client: Client
) -> None:
    before = set(objects_of(target.api))
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    world = await open_world(hub.kubeconfig)
    async with Runtime(world, tick=None), Controllers(client, hold=0.2):
        put_cluster(hub.api, stack="Dynamo")
        Stage(hub.api, world).publish_ca()
        composed = is_true(*(each.condition for each in COMPOSITIONS))
        found = await happened(world.hub.client, CLUSTERS, "gpu-1", composed, within=LONG)
        assert found["status"]["gateway"]["address"] == ADDRESS

        policy = (await client.get(f"{POLICIES}/{CLIENT_AUTH}"))["metadata"]["uid"]
        await client.delete(f"{POLICIES}/{CLIENT_AUTH}")
        await happened(client, POLICIES, CLIENT_AUTH, lambda found: found["metadata"]["uid"] != policy, within=LONG)

        listeners = (await client.get(f"{GATEWAYS}/{GATEWAY}"))["spec"]["listeners"]
        further = [*listeners, {"name": "http", "protocol": "HTTP", "port": 80}]
        changed = await client.patch(
            f"{GATEWAYS}/{GATEWAY}", {"spec": {"listeners": further}}, MERGE_PATCH, manager="somebody-else"
        )
        assert len(changed["spec"]["listeners"]) == 2
        await happened(client, GATEWAYS, GATEWAY, lambda found: found["spec"]["listeners"] == listeners, within=LONG)
        await happened(world.hub.client, CLUSTERS, "gpu-1", composed, within=LONG)

        await world.hub.client.delete(f"{CLUSTERS}/gpu-1")
        path = f"{CLUSTERS}/gpu-1"
        await until(lambda: hub.api.request("GET", path).status == 404, "the cluster to be gone", within=LONG)
    await world.close()
    assert set(objects_of(target.api)) <= before


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_substrate_that_is_installed_later_is_composed_upon_by_events_alone(
    hub: ControlPlane, start_control_plane: StartControlPlane
) -> None:
    bare = start_control_plane()
    client = Client(kubeconfig.load_file(bare.kubeconfig), timeout=30)
    put_kubeconfig(hub.api, bare.kubeconfig.read_bytes())
    put_cluster(hub.api)
    world = await open_world(hub.kubeconfig)
    Stage(hub.api, world).publish_ca()
    looks: list[datetime] = []

    def keep(event: Event) -> None:
        if event.type == types.CHECK_REQUESTED and event.source == SOURCE:
            assert event.time is not None
            looks.append(event.time)

    async with Runtime(world, tick=None, on_event=keep) as runtime, Controllers(client):
        await until(lambda: is_complete(runtime._source), "the target to be watched")
        for each in of_stack(Stack.STANDARD):
            await install(client, each.key)
        await happened(world.hub.client, CLUSTERS, "gpu-1", is_true("GatewayComposed"), within=LONG)
    await world.close()
    await client.close()
    # The first one is for the hub; the others come apart, however many kinds begin to be watched one after the other.
    assert all(later - sooner > LEAST for sooner, later in pairwise(looks[1:]))
