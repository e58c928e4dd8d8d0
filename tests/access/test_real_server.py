"""What a real API server answers, as the client gives it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import DISCOVERY, JSON_PATCH, MERGE_PATCH, METADATA, Client
from functions.access.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, Unauthorized
from functions.access.kubeconfig import from_secret, load_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.instance import ControlPlane

NAMESPACES = "/api/v1/namespaces"
MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    made = Client(load_file(control_plane.kubeconfig), timeout=20)
    yield made
    await made.close()


@pytest.fixture
async def name(client: Client, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A name for the test's ConfigMap, which is removed afterwards."""
    chosen = f"access-{abs(hash(request.node.name))}"
    yield chosen
    with contextlib.suppress(NotFound):
        await client.delete(f"{MAPS}/{chosen}")


async def test_discovery_is_conditional(client: Client) -> None:
    first = await client.request("GET", "/apis", headers={"Accept": DISCOVERY})
    assert "g=apidiscovery.k8s.io" in first.headers["Content-Type"]
    etag = first.headers["ETag"]
    second = await client.request("GET", "/apis", headers={"Accept": DISCOVERY, "If-None-Match": etag})
    assert (second.status, second.body) == (304, b"")


async def test_a_secret_holds_the_same_connection(control_plane: ControlPlane) -> None:
    path = control_plane.kubeconfig
    assert dataclasses.replace(from_secret(path.read_bytes()), avoids_metadata=False) == load_file(path)


async def test_apply_create_patch_delete(client: Client, name: str) -> None:
    path = f"{MAPS}/{name}"
    tried = await client.apply(path, config_map(name, a="0"), manager="one", dry_run=True)
    assert tried["data"] == {"a": "0"}
    with pytest.raises(NotFound) as caught:
        await client.get(path)
    assert caught.value.kind_known
    made = await client.apply(path, config_map(name, a="1"), manager="one")
    patched = await client.patch(path, {"data": {"b": "2"}}, MERGE_PATCH)
    assert patched["data"] == {"a": "1", "b": "2"}
    test = [{"op": "test", "path": "/data/b", "value": "3"}, {"op": "remove", "path": "/data/b"}]
    with pytest.raises(Invalid):
        await client.patch(path, test, JSON_PATCH)
    metadata = await client.get_metadata(path)
    assert metadata["kind"] == "PartialObjectMetadata"
    assert metadata["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.delete(path, uid="another")
    with pytest.raises(Conflict):
        await client.delete(path, resource_version=made["metadata"]["resourceVersion"])
    await client.delete(path, uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await client.get(path)


async def test_conflicts_are_told_apart(client: Client, name: str) -> None:
    path = f"{MAPS}/{name}"
    await client.create(MAPS, config_map(name, a="0"))
    with pytest.raises(Conflict) as exists:
        await client.create(MAPS, config_map(name))
    assert exists.value.already_exists
    await client.apply(path, config_map(name, a="1"), manager="one")
    with pytest.raises(Conflict) as owned:
        await client.apply(path, config_map(name, a="2"), manager="two", force=False)
    assert owned.value.field_managers == ("one",)
    assert "one owns .data.a" in str(owned.value)
    stale = config_map(name, a="3")
    stale["metadata"]["resourceVersion"] = "1"
    with pytest.raises(Conflict) as old:
        await client.apply(path, stale, manager="one")
    assert (old.value.already_exists, old.value.field_managers) == (False, ())


@pytest.mark.parametrize(
    ("path", "kind_known"),
    [
        pytest.param("/apis/no.such.group/v1/things", False, id="group"),
        pytest.param("/apis/apps/v1/things", False, id="resource"),
        pytest.param(f"{NAMESPACES}/no-such-namespace", True, id="object"),
    ],
)
async def test_not_found_is_told_apart(client: Client, path: str, *, kind_known: bool) -> None:
    with pytest.raises(NotFound) as caught:
        await client.get(path)
    assert caught.value.kind_known is kind_known


async def test_credentials_are_told_apart(control_plane: ControlPlane, client: Client) -> None:
    for token, said in (("wrong", "expired or wrong"), (None, "no credential that the server accepted")):
        client.set_credentials(dataclasses.replace(load_file(control_plane.kubeconfig), token=token))
        with pytest.raises(Unauthorized, match=said):
            await client.get("/apis/apps/v1/deployments")


@pytest.mark.parametrize("credential", ["certificate", "token"])
async def test_a_missing_right_is_named(control_plane: ControlPlane, credential: Any) -> None:
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    path = control_plane.kubeconfig_for(f"access-{credential}", rules=[rule], credential=credential)
    limited = Client(load_file(path), timeout=20)
    try:
        assert (await limited.get(f"{MAPS}/kube-root-ca.crt"))["kind"] == "ConfigMap"
        with pytest.raises(Forbidden) as caught:
            await limited.get("/apis/resource.k8s.io/v1/deviceclasses")
    finally:
        await limited.close()
    assert "has no right to list deviceclasses.resource.k8s.io" in str(caught.value)
    assert caught.value.denied_by == "authorization"


async def test_a_watch_with_metadata_alone(client: Client, name: str) -> None:
    listed = await client.list_metadata(MAPS)
    assert listed["kind"] == "PartialObjectMetadataList"
    params = {"resourceVersion": listed["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    async with contextlib.aclosing(client.watch(MAPS, params=params, accept=METADATA)) as watch:
        following = asyncio.ensure_future(anext(watch))
        await client.create(MAPS, config_map(name))
        added = await following
        await client.delete(f"{MAPS}/{name}")
        deleted = await anext(watch)
    assert [added["type"], deleted["type"]] == ["ADDED", "DELETED"]
    assert added["object"]["kind"] == "PartialObjectMetadata"


async def test_the_server_ends_a_watch(client: Client) -> None:
    params = {"fieldSelector": "metadata.name=no-such-name"}
    assert [each async for each in client.watch(MAPS, params=params, timeout_seconds=1)] == []


async def test_another_media_type_is_refused(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        await client.patch(f"{NAMESPACES}/default", {}, "application/nonsense")
    assert caught.value.status == 415
