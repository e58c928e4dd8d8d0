"""From the first event to the last object, by events alone: no tick, and nobody wakes a function by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from functions.access.client import MERGE_PATCH, Client
from functions.compose.gateway import CLIENT_AUTH, GATEWAY
from functions.compose.kinds import CLIENT_TRAFFIC_POLICY
from functions.compose.kinds import GATEWAY as GATEWAY_KIND
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import ADDRESS, Controllers
from functions.watch.runtime import Runtime
from tests.compose.apart import objects_of
from tests.compose.stage import Stage
from tests.support import CLUSTERS, gone, happened, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from functions.local.instance import ControlPlane

SYSTEM = "modelplane-system"
POLICIES = CLIENT_TRAFFIC_POLICY.path(namespace=SYSTEM)
GATEWAYS = GATEWAY_KIND.path(namespace=SYSTEM)
LONG = 60.0


def is_true(*types: str) -> Callable[[dict[str, Any]], bool]:
    def reached(found: dict[str, Any]) -> bool:
        conditions = found.get("status", {}).get("conditions", ())
        return set(types) <= {each["type"] for each in conditions if each["status"] == "True"}

    return reached


async def test_everything_is_composed_put_right_and_taken_down_by_events_alone(
    hub: ControlPlane, target: ControlPlane, client: Client
) -> None:
    before = set(objects_of(target.api))
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    world = await open_world(hub.kubeconfig)
    async with Runtime(world, tick=None), Controllers(client):
        put_cluster(hub.api, stack="Dynamo")
        Stage(hub.api, world).publish_ca()
        composed = is_true(*(each.condition for each in COMPOSITIONS))
        found = await happened(world.hub.client, CLUSTERS, "gpu-1", composed, within=LONG)
        assert found["status"]["gateway"]["address"] == ADDRESS

        policy = (await client.get(f"{POLICIES}/{CLIENT_AUTH}"))["metadata"]["uid"]
        await client.delete(f"{POLICIES}/{CLIENT_AUTH}")
        await happened(client, POLICIES, CLIENT_AUTH, lambda found: found["metadata"]["uid"] != policy)

        listeners = (await client.get(f"{GATEWAYS}/{GATEWAY}"))["spec"]["listeners"]
        further = [*listeners, {"name": "http", "protocol": "HTTP", "port": 80}]
        changed = await client.patch(
            f"{GATEWAYS}/{GATEWAY}", {"spec": {"listeners": further}}, MERGE_PATCH, manager="somebody-else"
        )
        assert len(changed["spec"]["listeners"]) == 2
        await happened(client, GATEWAYS, GATEWAY, lambda found: found["spec"]["listeners"] == listeners)
        await happened(world.hub.client, CLUSTERS, "gpu-1", composed)

        await world.hub.client.delete(f"{CLUSTERS}/gpu-1")
        await gone(world.hub.client, CLUSTERS, "gpu-1")
    await world.close()
    assert set(objects_of(target.api)) <= before
