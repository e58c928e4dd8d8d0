"""From what a provisioning system says to a check of that very cluster, through the real host and a real hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from events import types
from tests.provisioning.examples import cluster_api, crossplane, event_bus, transformed
from tests.served import serving
from tests.support import CLUSTERS, SECRETS, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from tests.served import Said, Served

STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BINARY = {
    "ce-specversion": "1.0",
    "ce-id": "1",
    "ce-source": "/provisioning/test",
    "ce-type": types.PROVISIONED,
    "Content-Type": "application/json",
}


@pytest.fixture
async def served(hub: ControlPlane) -> AsyncIterator[Served]:
    """The cluster function; `gpu-1` and `gpu-2` are Provided, `managed` is not."""
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    put_cluster(hub.api, "gpu-2")
    put_cluster(hub.api, "managed", components="Managed")
    world = await open_world(hub.kubeconfig)
    async with serving(world, "cluster") as served:
        yield served
    await world.close()


@pytest.fixture
def untouched(hub: ControlPlane, served: Served) -> Iterator[None]:  # noqa: ARG001 - what it put there counts
    """At the end of the test, that no InferenceCluster and no Secret was made, changed or removed."""
    before = everything(hub.api)
    assert len(before) >= 4
    yield
    assert everything(hub.api) == before


def everything(api: Api) -> dict[str, str]:
    found = [each["metadata"] for path in (CLUSTERS, SECRETS) for each in api.request("GET", path).body["items"]]
    return {each["uid"]: each["resourceVersion"] for each in found}


async def say(served: Served, data: Any, **headers: str) -> Said:
    return await served.send("cluster", BINARY | headers, orjson.dumps(data))


def asks_for(said: Said, cluster: str) -> dict[str, Any]:
    """The data of the request for a check of this cluster, which is what was answered."""
    assert (said.status, said.text) == (200, "")
    assert said.event is not None
    assert (said.event.type, said.event.subject) == (types.CHECK_REQUESTED, cluster)
    assert said.event.extensions["cluster"] == cluster
    assert said.event.data is not None
    data: dict[str, Any] = orjson.loads(said.event.data)
    assert data["reason"] == "Provisioned"
    return data


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("example", "event"),
    [
        pytest.param("cluster-api", cluster_api(), id="Cluster API"),
        pytest.param("crossplane", crossplane(), id="Crossplane"),
        pytest.param("event-bus", event_bus(cluster="gpu-1"), id="a bus"),
    ],
)
async def test_what_an_example_says_asks_for_a_check_of_that_cluster(
    served: Served, example: str, event: dict[str, Any]
) -> None:
    said = await served.send("cluster", STRUCTURED, orjson.dumps(transformed(example, event)))
    asks_for(said, "gpu-1")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("example", "event"),
    [
        pytest.param("cluster-api", cluster_api("False"), id="Cluster API"),
        pytest.param("crossplane", crossplane("False"), id="Crossplane"),
    ],
)
async def test_what_is_not_ready_asks_for_nothing(served: Served, example: str, event: dict[str, Any]) -> None:
    said = await served.send("cluster", STRUCTURED, orjson.dumps(transformed(example, event)))
    assert (said.status, said.text) == (204, "")


@pytest.mark.usefixtures("untouched")
async def test_a_bus_that_names_no_cluster_is_refused(served: Served) -> None:
    said = await served.send("cluster", STRUCTURED, orjson.dumps(transformed("event-bus", event_bus())))
    assert said.status == 422
    assert "cluster" in said.text


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("cluster", ["nobody", "managed"])
async def test_a_cluster_that_is_none_of_ours_asks_for_nothing(served: Served, cluster: str) -> None:
    said = await say(served, {"cluster": cluster, "secretRef": {"name": "target"}})
    assert (said.status, said.text) == (204, "")


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    "further",
    [
        pytest.param({"region": "eu", "nodes": [{"gpu": 8}], "spec": {"stack": "Dynamo"}}, id="fields nobody knows"),
        pytest.param({"secretRef": {"name": "target", "key": "kubeconfig", "namespace": "x"}}, id="and in the Secret"),
        pytest.param({"secretRef": None}, id="no Secret"),
    ],
)
async def test_what_is_not_known_is_ignored(served: Served, further: dict[str, Any]) -> None:
    asks_for(await say(served, {"cluster": "gpu-1", **further}), "gpu-1")


@pytest.mark.usefixtures("untouched")
async def test_a_secret_that_disagrees_changes_nothing(hub: ControlPlane, served: Served) -> None:
    said = await say(served, {"cluster": "gpu-1", "secretRef": {"name": "another", "key": "other"}})
    secret = hub.api.request("GET", f"{SECRETS}/target").body["metadata"]
    seen = {"uid": secret["uid"], "resourceVersion": secret["resourceVersion"]}
    assert asks_for(said, "gpu-1")["kubeconfig"] == seen, "of the Secret that the InferenceCluster names"


@pytest.mark.usefixtures("untouched")
async def test_subject_and_extension_do_not_overrule_the_data(served: Served) -> None:
    said = await say(served, {"cluster": "gpu-1"}, **{"ce-subject": "gpu-2", "ce-cluster": "gpu-2"})
    asks_for(said, "gpu-1")


MALFORMED = {
    b'{"cluster": ': "JSON",
    b"": "data",
    b"[]": "Provisioned",
    b'"gpu-1"': "Provisioned",
    b"{}": "cluster",
    b'{"cluster": 7}': "cluster",
    b'{"cluster": null}': "cluster",
    b'{"cluster": "gpu-1", "secretRef": "target"}': "secretRef",
    b'{"cluster": "gpu-1", "secretRef": {}}': "secretRef",
    b'{"cluster": "../x"}': "cluster",
    b'{"cluster": "gpu-1/status"}': "cluster",
    b'{"cluster": "gpu-1?force=true"}': "cluster",
    b'{"cluster": "GPU-1"}': "cluster",
}


@pytest.mark.usefixtures("untouched")
async def test_malformed_data_is_refused_with_a_reason_on_one_line(served: Served) -> None:
    said = {body: await served.send("cluster", BINARY, body) for body in MALFORMED}
    assert {body: each.status for body, each in said.items()} == dict.fromkeys(MALFORMED, 422)
    assert [each.text for body, each in said.items() if MALFORMED[body] not in each.text] == []
    assert [each.text for each in said.values() if len(each.text.splitlines()) != 1 or len(each.text) > 256] == []
