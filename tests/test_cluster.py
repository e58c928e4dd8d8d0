"""Which clusters need a look? The cluster function on a real hub."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from events import types
from events.codec import Malformed
from events.event import JSON, Event
from functions.cluster import cluster
from functions.function import Poison
from functions.review import Ask, review
from tests.support import (
    CLUSTERS,
    SECRETS,
    get_cluster,
    open_world,
    put_cluster,
    put_kubeconfig,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World

_numbers = itertools.count()


@pytest.fixture
async def world(hub: ControlPlane) -> AsyncIterator[World]:
    """`gpu-1` and `gpu-2` are Provided with one kubeconfig each, `managed` is not."""
    for name in ("target", "other"):
        put_kubeconfig(hub.api, hub.kubeconfig.read_bytes(), name)
    world = await open_world(hub.kubeconfig)
    put_cluster(hub.api)
    put_cluster(hub.api, "gpu-2", secretRef={"name": "other"})
    put_cluster(hub.api, "managed", components="Managed")
    yield world
    await world.close()


@pytest.fixture
def api(hub: ControlPlane) -> Api:
    return hub.api


def changed(kind: str, name: str | None, **extensions: str) -> Event:
    named = {} if name is None else {"name": name}
    return Event(
        id=str(next(_numbers)),
        source="https://hub",
        type=types.OBJECT_UPDATED,
        extensions={"kind": kind, **named, **extensions},
    )


def provisioned(**data: Any) -> Event:
    return Event(
        id=str(next(_numbers)),
        source="/terraform",
        type=types.PROVISIONED,
        datacontenttype=JSON,
        data=orjson.dumps(data),
    )


def said(events: Any) -> list[tuple[str, str, str]]:
    """Type, cluster and, for a check, the reason."""
    return [(each.type, each.extensions["cluster"], orjson.loads(each.data).get("reason", "")) for each in events]


def tick() -> Event:
    return Event(id=str(next(_numbers)), source="/tick", type=types.PING)


async def test_the_tick_asks_for_every_provided_cluster(world: World, api: Api) -> None:
    events = await cluster(tick(), world)
    assert said(events) == [
        (types.CHECK_REQUESTED, "gpu-1", "Tick"),
        (types.CHECK_REQUESTED, "gpu-2", "Tick"),
    ]
    secret = api.request("GET", f"{SECRETS}/target").body["metadata"]
    assert orjson.loads(events[0].data or b"")["kubeconfig"] == {
        "uid": secret["uid"],
        "resourceVersion": secret["resourceVersion"],
    }


async def test_the_tick_tells_of_an_absent_secret(world: World, api: Api) -> None:
    api.request("DELETE", f"{SECRETS}/target")
    first = (await cluster(tick(), world))[0]
    assert orjson.loads(first.data or b"")["kubeconfig"] == {"uid": "", "resourceVersion": ""}


@pytest.mark.usefixtures("world")
async def test_without_the_right_to_list_secrets_the_tick_still_comes(hub: ControlPlane) -> None:
    rules = [{"apiGroups": ["modelplane.ai"], "resources": ["inferenceclusters"], "verbs": ["get", "list"]}]
    lesser = await open_world(hub.kubeconfig_for("ticker", rules=rules))
    events = await cluster(tick(), lesser)
    assert [orjson.loads(each.data or b"").get("kubeconfig") for each in events] == [None, None]
    await lesser.close()


async def test_a_new_cluster_is_asked_for_until_it_was_judged(world: World) -> None:
    event = changed("InferenceCluster", "gpu-1")
    assert said(await cluster(event, world)) == [(types.CHECK_REQUESTED, "gpu-1", "Created")]
    await review(world, "gpu-1", Ask())
    assert await cluster(event, world) == (), "our own write of the status"


async def test_a_new_generation_is_asked_for(world: World, api: Api) -> None:
    await review(world, "gpu-1", Ask())
    put_cluster(api, cache={"storageClassName": "shared"})
    assert said(await cluster(changed("InferenceCluster", "gpu-1"), world)) == [
        (types.CHECK_REQUESTED, "gpu-1", "Changed")
    ]


async def test_wiped_conditions_are_asked_for(world: World, api: Api) -> None:
    await review(world, "gpu-1", Ask())
    wiped = get_cluster(api) | {"status": {}}
    api.request("PUT", f"{CLUSTERS}/gpu-1/status", wiped)
    assert len(await cluster(changed("InferenceCluster", "gpu-1"), world)) == 1


async def test_a_deletion_is_told(world: World, api: Api) -> None:
    patch = {"metadata": {"finalizers": ["example.com/held"]}}
    api.request("PATCH", f"{CLUSTERS}/gpu-1", patch, content_type="application/merge-patch+json")
    api.request("DELETE", f"{CLUSTERS}/gpu-1")
    assert said(await cluster(changed("InferenceCluster", "gpu-1"), world)) == [(types.DELETING, "gpu-1", "")]
    assert (types.DELETING, "gpu-1", "") in said(await cluster(tick(), world))


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(changed("InferenceCluster", "nobody"), id="unknown cluster"),
        pytest.param(changed("InferenceCluster", "managed"), id="managed cluster"),
        pytest.param(changed("Secret", "unused", namespace="modelplane-system"), id="a secret nobody names"),
        pytest.param(changed("Secret", "target", namespace="default"), id="a secret of another namespace"),
        pytest.param(changed("Widget", "target", namespace="modelplane-system"), id="another kind"),
        pytest.param(
            changed("CustomResourceDefinition", "certificates.cert-manager.io", cluster="gpu-1"),
            id="the probe's business",
        ),
        pytest.param(Event(id="1", source="/x", type="com.example.unknown"), id="unknown type"),
        pytest.param(provisioned(cluster="nobody"), id="provisioned, not registered yet"),
        pytest.param(provisioned(cluster="managed"), id="provisioned and managed"),
    ],
)
async def test_noise_is_absorbed(world: World, event: Event) -> None:
    assert await cluster(event, world) == ()


async def test_a_kubeconfig_secret_concerns_the_clusters_that_name_it(world: World, api: Api) -> None:
    event = changed("Secret", "target", namespace="modelplane-system")
    assert said(await cluster(event, world)) == [(types.CHECK_REQUESTED, "gpu-1", "KubeconfigChanged")]
    api.request("DELETE", f"{SECRETS}/target")
    gone = (await cluster(event, world))[0]
    assert orjson.loads(gone.data or b"")["kubeconfig"] == {"uid": "", "resourceVersion": ""}


async def test_a_crd_of_nobody_in_particular_concerns_every_cluster(world: World) -> None:
    event = changed("CustomResourceDefinition", "certificates.cert-manager.io")
    assert [name for _, name, _ in said(await cluster(event, world))] == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        pytest.param(changed("Gateway", "cluster-gateway"), "Object", id="a composed object"),
        pytest.param(changed("InferenceGateway", "eu"), "ClientCA", id="an InferenceGateway"),
    ],
)
async def test_what_may_concern_every_cluster_asks_for_every_cluster(world: World, event: Event, reason: str) -> None:
    found = said(await cluster(event, world))
    assert [(name, why) for _, name, why in found] == [("gpu-1", reason), ("gpu-2", reason)]


async def test_a_composed_object_of_a_known_cluster_is_the_compose_functions_business(world: World) -> None:
    assert await cluster(changed("Gateway", "cluster-gateway", cluster="gpu-1"), world) == ()


async def test_a_provisioned_cluster_is_asked_for_at_once(world: World) -> None:
    event = provisioned(cluster="gpu-1", region="eu", secretRef={"name": "target"})
    assert said(await cluster(event, world)) == [(types.CHECK_REQUESTED, "gpu-1", "Provisioned")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="no cluster"),
        pytest.param({"cluster": ""}, id="empty"),
        pytest.param({"cluster": 7}, id="a number"),
    ],
)
async def test_malformed_data_is_refused(world: World, data: dict[str, Any]) -> None:
    with pytest.raises((Malformed, Poison)):
        await cluster(provisioned(**data), world)


@pytest.mark.parametrize("name", ["../secrets/x", "a/b", "A", "x" * 254, "a?b", ""])
async def test_a_name_that_is_none_reaches_no_path(world: World, name: str) -> None:
    for event in (changed("InferenceCluster", name), provisioned(cluster=name)):
        with pytest.raises((Malformed, Poison)):
            await cluster(event, world)


async def test_an_object_event_without_a_name_is_refused(world: World) -> None:
    with pytest.raises(Poison, match="extension name"):
        await cluster(changed("InferenceCluster", None), world)


async def test_a_redelivery_asks_with_the_same_ids(world: World) -> None:
    event = tick()
    first, again = [[each.id for each in await cluster(event, world)] for _ in range(2)]
    assert first == again
    assert len(set(first)) == 2
