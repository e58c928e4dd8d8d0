"""Every component's real APIs come and go."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from functions.access.client import Client
from functions.access.kubeconfig import load_file
from functions.catalog import COMPONENTS, CustomResource, DeviceClass
from functions.deploy_files import deploy_directory
from functions.local import substrate
from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from functions.catalog import Component
    from functions.local.api import Api
    from functions.local.instance import ControlPlane

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NOTHING = {"ai-gateway", "dra-driver-critical-pods-quota"}


@pytest.fixture
async def client(clean: ControlPlane) -> AsyncIterator[Client]:
    client = Client(load_file(clean.kubeconfig))
    yield client
    await client.close()


async def _established(api: Api, name: str) -> set[str]:
    """The versions that a CRD serves, once it is Established."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        crd = (await asyncio.to_thread(api.request, "GET", f"{_CRDS}/{name}")).body
        conditions = crd.get("status", {}).get("conditions") or ()
        if {"type": "Established", "status": "True"}.items() <= {
            key: value for each in conditions if each["type"] == "Established" for key, value in each.items()
        }.items():
            return {version["name"] for version in crd["spec"]["versions"] if version["served"]}
    pytest.fail(f"{name} is not Established")


@pytest.mark.parametrize("component", COMPONENTS, ids=lambda component: component.key)
async def test_a_component_comes_and_goes(component: Component, client: Client, clean: ControlPlane) -> None:
    added = await substrate.add(client, component.key)
    assert bool(added) != (component.key in _NOTHING)
    for requirement in component.requirements:
        if isinstance(requirement, CustomResource):
            assert requirement.version in await _established(clean.api, requirement.name)
            assert f"{_CRDS}/{requirement.name}" in added
        else:
            assert isinstance(requirement, DeviceClass)
            path = f"/apis/resource.k8s.io/v1/deviceclasses/{requirement.name}"
            assert clean.api.request("GET", path).status == 200
            assert path in added
    assert await substrate.add(client, component.key) == added
    assert await substrate.remove(client, component.key) == added
    assert {clean.api.request("GET", path).status for path in added} <= {404}
    assert await substrate.remove(client, component.key) == []


async def test_removing_takes_the_instances_along_and_leaves_other_components(
    client: Client, clean: ControlPlane
) -> None:
    await substrate.add(client, "kai-scheduler")
    await substrate.add(client, "grove")
    await _established(clean.api, "queues.scheduling.run.ai")
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}}
    await client.apply("/apis/scheduling.run.ai/v2/queues/q", queue, manager="test")
    await substrate.remove(client, "kai-scheduler")
    assert clean.api.request("GET", "/apis/scheduling.run.ai/v2/queues/q").status == 404
    assert clean.api.request("GET", f"{_CRDS}/podcliquesets.grove.io").status == 200


def test_every_component_of_the_catalog_is_known() -> None:
    assert set(substrate.SOURCES) == {component.key for component in COMPONENTS}


def test_without_the_module_proxy_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOPROXY", "https://someone:secret@127.0.0.1:1")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    substrate._directories.cache_clear()
    with pytest.raises(LocalError) as failure:
        substrate.manifests("cert-manager")
    text = str(failure.value)
    assert text.startswith("The CRDs could not be downloaded; that needs the Go module proxy")
    assert "cert-manager" in text
    assert "connection refused" in text
    assert "secret" not in text


def test_downloading_changes_nothing_in_the_module() -> None:
    home = deploy_directory() / "local" / "crds"
    before = {file.name: file.read_bytes() for file in home.iterdir()}
    substrate._directories.cache_clear()
    substrate.manifests("cert-manager")
    assert {file.name: file.read_bytes() for file in home.iterdir()} == before
