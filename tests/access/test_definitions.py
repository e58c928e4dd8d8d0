from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.definitions import CRDS, Definition, outline, read_definition, whole
from functions.access.errors import NotFound
from functions.catalog import CustomResource
from tests.support import apply, crd_manifest, hold, served, withdraw

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.instance import ControlPlane

WIDGETS = CustomResource("widgets.example.com", "v1")


@pytest.fixture
async def client(clean: ControlPlane) -> AsyncIterator[Client]:
    client = Client(kubeconfig.load_file(clean.kubeconfig))
    yield client
    await client.close()


def decoyed() -> dict[str, Any]:
    """A CRD whose schema and annotations hold what the outline looks for."""
    manifest = crd_manifest(WIDGETS.name, "v1", "v1beta1", "-v1alpha1")
    decoy = {"spec": {"x": 1}, "status": {"conditions": []}, "name": "v9", "served": True, "storage": True}
    manifest["metadata"]["annotations"]["example.com/decoy"] = f'x,"spec":{{"status":{json.dumps(decoy)}'
    schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] = {
        "spec": {"type": "object", "description": 'a,"status":{"conditions":[]} in words'},
        "status": {"type": "object", "properties": {"conditions": {"type": "array", "items": {"type": "string"}}}},
    }
    return manifest


async def test_an_outline_says_the_same_as_the_whole(clean: ControlPlane, client: Client) -> None:
    apply(clean.api, f"{CRDS}/{WIDGETS.name}", decoyed())
    await served(client, WIDGETS)
    body = (await client.request("GET", f"{CRDS}/{WIDGETS.name}")).body
    found = outline(body)
    assert found is not None
    assert found == whole(body)
    assert found.served == ("v1", "v1beta1")
    assert found.conditions["Established"]["status"] == "True"
    assert not found.being_deleted

    hold(clean.api, f"{CRDS}/{WIDGETS.name}", ["example.com/held"])
    withdraw(clean.api, WIDGETS)
    assert (await read_definition(client, WIDGETS.name)).being_deleted
    hold(clean.api, f"{CRDS}/{WIDGETS.name}", None)


async def test_there_is_none(client: Client) -> None:
    with pytest.raises(NotFound):
        await read_definition(client, "nobodys.example.com")


DEFINITION = Definition(
    being_deleted=False, versions={"v1": True}, conditions={"Established": {"type": "Established", "status": "True"}}
)
METADATA = {"name": "widgets.example.com"}
SPEC = {"group": "example.com", "versions": [{"name": "v1", "served": True, "storage": True, "schema": {}}]}
STATUS = {"conditions": [{"type": "Established", "status": "True"}]}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param({"metadata": METADATA, "spec": SPEC, "status": STATUS}, id="the usual order"),
        pytest.param({"status": STATUS, "spec": SPEC, "metadata": METADATA}, id="another order"),
        pytest.param(
            {"metadata": METADATA, "status": STATUS, "spec": {"versions": [{"served": True, "name": "v1"}]}},
            id="another order within",
        ),
        pytest.param({"spec": SPEC, "metadata": METADATA, "status": STATUS}, id="metadata in the middle"),
    ],
)
def test_whatever_the_order_it_is_read(document: dict[str, Any]) -> None:
    body = orjson.dumps(document)
    assert (outline(body) or whole(body)) == DEFINITION


def test_a_new_one_has_no_conditions() -> None:
    body = orjson.dumps({"metadata": METADATA, "spec": SPEC, "status": {"conditions": None}})
    found = outline(body)
    assert found is not None
    assert found.conditions == {}


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"spec":{},"status":{}', b'{"a":1,"spec":{"status":{', b"\xff"])
def test_what_is_none_is_not_read(body: bytes) -> None:
    assert outline(body) is None
    assert whole(body) is None
