"""The watch source on a real API server, which is hub and target in one where nothing else is said."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from events import types
from functions.access.targets import Targets
from functions.catalog import CustomResource, DeviceClass
from tests.support import (
    CLUSTERS,
    CRDS,
    SECRETS,
    apply,
    crd_manifest,
    install_hub,
    provide,
    put_cluster,
    put_kubeconfig,
    withdraw,
)
from tests.watch.fakes import WITHIN, gated
from tests.watch.watching import about, checked, started, watching

if TYPE_CHECKING:
    import pytest

    from functions.access.targets import SecretKey, SecretVersion, Target
    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane

CRD = CustomResource("certificates.cert-manager.io", "v1")
GPU = DeviceClass("gpu.nvidia.com")
WATCHED = ["customresourcedefinitions", "deviceclasses", "namespaces", "configmaps"]
WATCH = [{"apiGroups": ["*"], "resources": WATCHED, "verbs": ["list", "watch"]}]


async def test_a_target_that_begins_to_be_watched_is_checked(api_hub: ControlPlane) -> None:
    secret = api_hub.api.request("GET", f"{SECRETS}/target").body["metadata"]
    async with watching(api_hub.kubeconfig) as collected:
        event = await collected.next(checked())
        assert event.source == "/modelplane/serving-stack/watch"
        assert event.subject == "gpu-1"
        assert event.extensions == {"cluster": "gpu-1", "partitionkey": "gpu-1", "stack": "Standard"}
        while b"kubeconfig" not in (event.data or b""):
            event = await collected.next(checked())
        expected = {"uid": secret["uid"], "resourceVersion": secret["resourceVersion"]}
        assert orjson.loads(event.data or b"") == {"reason": "WatchStarted", "kubeconfig": expected}


async def test_changes_of_a_target_are_told_as_apiserversource_tells_them(api_hub: ControlPlane) -> None:
    api = api_hub.api
    async with watching(api_hub.kubeconfig) as collected:
        await started(collected)
        provide(api, CRD)
        added = await collected.next(about(CRD.name, "add"))
        provide(api, GPU)
        await collected.next(about(GPU.name, "add"))
        withdraw(api, GPU)
        deleted = await collected.next(about(GPU.name, "delete"))
        withdraw(api, CRD)
        await collected.next(about(CRD.name, "delete"))
    assert added.source == api_hub.server
    assert added.subject == f"/apis/apiextensions.k8s.io/v1/namespaces//customresourcedefinitions/{CRD.name}"
    assert added.extensions == {
        "kind": "CustomResourceDefinition",
        "apiversion": "apiextensions.k8s.io/v1",
        "name": CRD.name,
        "namespace": "",
        "cluster": "gpu-1",
    }
    assert deleted.subject == "/apis/resource.k8s.io/v1/namespaces//deviceclasses/gpu.nvidia.com"


async def test_a_large_crd_sends_no_schema(api_hub: ControlPlane) -> None:
    async with watching(api_hub.kubeconfig) as collected:
        await started(collected)
        apply(api_hub.api, f"{CRDS}/{CRD.name}", crd_manifest(CRD.name, "v1", padding=600_000))
        event = await collected.next(about(CRD.name, "add"))
        assert event.data is not None
        assert len(event.data) < 200


async def test_changes_of_the_hub_are_told_without_a_cluster(api_hub: ControlPlane) -> None:
    api = api_hub.api
    async with watching(api_hub.kubeconfig) as collected:
        await started(collected)
        put_kubeconfig(api, b"{}", name="another")
        secret = await collected.next(about("another", "add", cluster=None))
        api.request("DELETE", f"{CLUSTERS}/gpu-1")
        await collected.next(about("gpu-1", "delete", cluster=None))
    assert secret.subject == "/apis/v1/namespaces/modelplane-system/secrets/another"
    assert secret.extensions == {
        "kind": "Secret", "apiversion": "v1", "name": "another", "namespace": "modelplane-system"
    }  # fmt: skip


async def test_our_own_writing_is_not_told_and_that_of_others_is(api_hub: ControlPlane) -> None:
    api = api_hub.api
    path = f"{CLUSTERS}/gpu-1/status"

    def write(status: str, manager: str) -> None:
        condition = {
            "type": "RequirementsMet", "status": status, "reason": "Test", "message": "",
            "lastTransitionTime": "2026-12-01T04:00:00Z",
        }  # fmt: skip
        body = {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceCluster",
            "metadata": {"name": "gpu-1"},
            "status": {"conditions": [condition]},
        }
        answer = api.request(
            "PATCH", f"{path}?fieldManager={manager}&force=true", body, content_type="application/apply-patch+yaml"
        )
        assert answer.status == 200, answer

    write("False", "modelplane-requirements")
    async with watching(api_hub.kubeconfig) as collected:
        await started(collected)
        write("True", "modelplane-requirements")
        put_kubeconfig(api, b"{}", name="marker")
        passed = await collected.until(about("marker", cluster=None))
        write("False", "somebody-else")
        await collected.next(about("gpu-1", "update", cluster=None))
        wiped = [{"op": "remove", "path": "/status/conditions"}]
        assert api.request("PATCH", path, wiped, content_type="application/json-patch+json").status == 200  # type: ignore[arg-type]
        await collected.next(about("gpu-1", "update", cluster=None))
    assert "gpu-1" not in [event.extensions.get("name") for event in passed]


async def test_a_target_is_watched_from_its_creation_to_its_deletion(hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        put_cluster(hub.api, "late")
        await collected.next(checked("late"))
        provide(hub.api, GPU)
        await collected.next(about(GPU.name, "add", cluster="late"))
        hub.api.request("DELETE", f"{CLUSTERS}/late")
        await collected.next(about("late", "delete", cluster=None))
        put_cluster(hub.api, "next")
        await collected.next(checked("next"))
        withdraw(hub.api, GPU)
        passed = await collected.until(about(GPU.name, "delete", "next"))
    assert "late" not in [event.extensions.get("cluster") for event in passed]


async def test_a_target_that_is_not_provided_is_left_alone(hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api, "managed", components="Managed")
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        provide(hub.api, GPU)
        event = await collected.next(lambda event: event.extensions.get("name") == GPU.name)
        assert event.extensions["cluster"] == "gpu-1"


async def test_what_changed_while_cut_off_is_told_afterwards(hub: ControlPlane) -> None:
    put_cluster(hub.api)
    other = CustomResource("issuers.cert-manager.io", "v1")
    async with gated(hub.kubeconfig.read_bytes()) as (gate, kubeconfig):
        put_kubeconfig(hub.api, kubeconfig)
        async with watching(hub.kubeconfig) as collected:
            await started(collected)
            provide(hub.api, GPU)
            provide(hub.api, other)
            await collected.all(about(GPU.name, "add"), about(other.name, "add"))
            await gate.shut()
            withdraw(hub.api, GPU)
            provide(hub.api, CRD)
            await gate.open()
            await collected.all(about(GPU.name, "delete"), about(CRD.name, "add"), checked())


async def test_a_dead_target_costs_its_neighbour_nothing(hub: ControlPlane) -> None:
    dead = hub.kubeconfig.read_text().replace(hub.server, "https://127.0.0.1:1")
    put_kubeconfig(hub.api, dead, name="dead")
    put_cluster(hub.api, "dead", secretRef={"name": "dead"})
    put_cluster(hub.api, "lost", secretRef={"name": "nowhere"})
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        provide(hub.api, GPU)
        await collected.next(about(GPU.name, "add"))


async def test_a_bug_that_one_target_brings_out_is_logged_once_and_costs_its_neighbour_nothing(
    hub: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes(), name="odd")
    put_cluster(hub.api, "odd", secretRef={"name": "odd"})
    tries = asyncio.Event()

    class Odd(Targets):
        """Stands in for a bug of ours that only one kubeconfig brings out."""

        tried = 0

        async def open(self, cluster: str, reference: SecretKey, seen: SecretVersion | None = None) -> Target:
            if cluster == "odd":
                self.tried += 1
                if self.tried > 4:
                    tries.set()
                raise UnicodeError("label empty or too long")
            return await super().open(cluster, reference, seen)

    async with watching(hub.kubeconfig, Odd) as collected:
        await started(collected)
        put_kubeconfig(hub.api, b"{}", name="odd")
        await collected.next(about("odd", "update", cluster=None))
        provide(hub.api, GPU)
        await collected.next(about(GPU.name, "add"))
        async with asyncio.timeout(WITHIN):
            await tries.wait()
    bugs = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [(each.getMessage(), vars(each)["cluster"]) for each in bugs] == [("a bug in a watch, trying again", "odd")]
    assert bugs[0].exc_info is not None


async def test_a_kubeconfig_that_appears_later_is_used_at_once(hub: ControlPlane) -> None:
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await collected.next(checked())  # for the hub's list
        put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
        await collected.next(checked())
        provide(hub.api, GPU)
        await collected.next(about(GPU.name, "add"))


async def test_another_token_for_the_same_server_keeps_the_watches(hub: ControlPlane) -> None:
    first = hub.kubeconfig_for("first", rules=WATCH, credential="token")
    second = hub.kubeconfig_for("second", rules=WATCH, credential="token")
    put_kubeconfig(hub.api, first.read_bytes())
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        put_kubeconfig(hub.api, second.read_bytes())
        await collected.next(about("target", "update", cluster=None))
        provide(hub.api, GPU)
        passed = await collected.until(about(GPU.name, "add"))
    assert types.CHECK_REQUESTED not in [event.type for event in passed]


async def test_another_server_is_watched_instead(hub: ControlPlane, start_control_plane: StartControlPlane) -> None:
    other = start_control_plane()
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        put_kubeconfig(hub.api, other.kubeconfig.read_bytes())
        await collected.next(checked())
        provide(other.api, GPU)
        event = await collected.next(about(GPU.name, "add"))
    assert event.source == other.server


async def test_a_bare_server_becomes_a_hub_and_outlives_its_restart(start_control_plane: StartControlPlane) -> None:
    bare = start_control_plane()
    async with watching(bare.kubeconfig) as collected:
        install_hub(bare.api)
        put_kubeconfig(bare.api, bare.kubeconfig.read_bytes())
        await asyncio.to_thread(bare.wait_until_ready)
        put_cluster(bare.api)
        await collected.next(checked())
        await asyncio.to_thread(bare.kill_api_server)
        await asyncio.to_thread(bare.start_api_server)
        await started(collected)
        provide(bare.api, CRD)
        await collected.next(about(CRD.name, "add"))
