"""Deployments and Knative Services become processes; here on this machine's own network, so that it takes no rights."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import secrets
import signal
import socket
import time
from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import Client
from functions.access.kubeconfig import load_file
from functions.local.errors import LocalError
from functions.local.knative.cluster import Cluster
from functions.local.knative.manifests import load
from functions.local.knative.network import Namespace, Network
from functions.local.knative.pod import Surroundings
from functions.local.knative.template import Images
from functions.local.processes import Identity, ProcessGroup
from tests.knative.venues import PROGRAM, create, eventually, path_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path
    from subprocess import Popen

    from functions.local.instance import ControlPlane


class _Here(Namespace):
    """No namespace: what is to run in it runs here."""

    __slots__ = ()

    def inside(self, command: Any) -> list[str]:
        return list(command)


class _Loopback(Network):
    """The network of this machine, where every pod is at 127.0.0.1; for Services there is no room in it."""

    def __init__(self, group: ProcessGroup, pause: Popen[bytes]) -> None:
        super().__init__(group)
        self._holds = pause

    async def add_pod(self) -> Namespace:
        return _Here("127.0.0.1", self._holds)

    def remove_pod(self, namespace: Namespace) -> None:
        pass


class Scene:
    """A cluster that runs, and a namespace in it.

    Attributes:
        pids: Of the processes, by namespace and name of the Deployment, as they were told last.
    """

    def __init__(self, cluster: Cluster, around: Surroundings, pids: Mapping[str, int]) -> None:
        self.cluster = cluster
        self.client = around.client
        self.namespace = f"cluster-{secrets.token_hex(4)}"
        self.home = around.home
        self.pids = pids

    async def pid(self, deployment: str) -> int:
        """Of its process, once that is told."""

        async def told() -> None:
            assert f"{self.namespace}/{deployment}" in self.pids

        await eventually(told, AssertionError)
        return self.pids[f"{self.namespace}/{deployment}"]

    def volume(self, deployment: str, name: str) -> Path:
        return self.home / f"{self.namespace}.{deployment}" / name

    async def create(self, *manifests: Mapping[str, Any]) -> None:
        for manifest in manifests:
            await create(self.client, manifest, self.namespace)

    async def get(self, manifest: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(path_in(manifest, self.namespace))
        return found

    async def pods(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.get(f"/api/v1/namespaces/{self.namespace}/pods"))["items"]
        return found

    async def available(self, deployment: Mapping[str, Any]) -> None:
        """Returns once the Deployment is available in its present form."""

        async def told() -> None:
            found = await self.get(deployment)
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
            assert found["status"]["availableReplicas"] == 1, found["status"]

        await eventually(told, (AssertionError, KeyError))


@pytest.fixture
async def scene(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Scene]:
    client = Client(load_file(control_plane.kubeconfig), timeout=30)
    changed = asyncio.Event()
    group = ProcessGroup()
    with (tmp_path / "pause.log").open("wb") as nothing:
        network = _Loopback(group, group.spawn(["sleep", "1000"], cwd=tmp_path, output=nothing))

    def kubeconfig(token: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(control_plane.kubeconfig.read_bytes())
        content["users"][0]["user"] = {"token": token}
        return content

    around = Surroundings(client, network, group, tmp_path, kubeconfig, changed.set)
    known: dict[str, int] = {}

    def record(pids: Mapping[str, int]) -> None:
        known.clear()
        known.update(pids)

    cluster = Cluster(around, Images({}, ("false",)), changed, record)
    scene = Scene(cluster, around, known)
    running = asyncio.create_task(cluster.run())
    await scene.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "clerk"}})
    yield scene
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    await cluster.stop()
    group.kill()
    await client.delete(f"/api/v1/namespaces/{scene.namespace}")
    await client.close()


def _deployment(*command: str, name: str = "till", **container: Any) -> dict[str, Any]:
    labels = {"app": name}
    volume = {"name": "data", "emptyDir": {}}
    whole = {
        "name": "main",
        "image": "local/x",
        "command": list(command),
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        **container,
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [whole], "volumes": [volume], "serviceAccountName": "clerk"},
            },
        },
    }


def _shell(script: str, **more: Any) -> dict[str, Any]:
    return _deployment("sh", "-c", script, **more)


async def _content(file: Path, *, lines: int = 1) -> list[str]:
    """The lines of a file once there are so many."""

    async def written() -> None:
        assert len(_lines(file)) >= lines

    await eventually(written, (AssertionError, OSError))
    return _lines(file)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_a_deployment_becomes_a_process_that_knows_itself(scene: Scene) -> None:
    whole = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "blue"}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "hidden"},
        "data": {"word": base64.b64encode(b"hush").decode()},
    }
    env = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "word"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "WHERE", "value": "/data/said"},
    ]
    deployment = _shell('echo "$COLOUR $WORD $POD" >"$WHERE"; exec sleep 1000', env=env)
    await scene.create(whole, secret, deployment)
    await scene.available(deployment)
    [pod] = await scene.pods()
    assert await _content(scene.volume("till", "data") / "said") == [f"blue hush {pod['metadata']['name']}"]
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["podIP"] == "127.0.0.1"


async def test_volumes_of_config_maps_and_secrets_have_their_files(scene: Scene) -> None:
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"colour": "blue"}}
    deployment = _shell("cat /data/colour >/out/said; exec sleep 1000")
    spec = deployment["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": "data", "configMap": {"name": "settings"}}, {"name": "out", "emptyDir": {}}]
    spec["containers"][0]["volumeMounts"].append({"name": "out", "mountPath": "/out"})
    await scene.create(data, deployment)
    assert await _content(scene.volume("till", "out") / "said") == ["blue"]


async def test_it_is_its_service_account_to_the_api_server(scene: Scene) -> None:
    deployment = _shell('cp "$KUBECONFIG" /data/kubeconfig; exec sleep 1000')
    await scene.create(deployment)
    await _content(scene.volume("till", "data") / "kubeconfig")
    client = Client(load_file(scene.volume("till", "data") / "kubeconfig"))
    try:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        told = await client.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    finally:
        await client.close()
    assert told["status"]["userInfo"]["username"] == f"system:serviceaccount:{scene.namespace}:clerk"


async def test_one_that_ends_is_started_again_and_keeps_its_volume(scene: Scene) -> None:
    deployment = _shell("echo started >>/data/said; exec sleep 1000")
    await scene.create(deployment)
    await _content(scene.volume("till", "data") / "said")
    [before] = await scene.pods()
    os.kill(await scene.pid("till"), signal.SIGKILL)
    await _content(scene.volume("till", "data") / "said", lines=2)
    await scene.available(deployment)

    async def counted() -> None:
        [after] = await scene.pods()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["status"]["containerStatuses"][0]["restartCount"] == 1

    await eventually(counted, AssertionError)


async def test_another_template_is_another_pod(scene: Scene) -> None:
    await scene.create(_shell("echo one >>/data/said; exec sleep 1000"))
    await _content(scene.volume("till", "data") / "said")
    first = await scene.pid("till")
    changed = _shell("echo two >>/data/said; exec sleep 1001")
    await scene.create(changed)

    async def exchanged() -> None:
        assert await scene.pid("till") != first
        assert (scene.volume("till", "data") / "said").read_text() == "two\n"

    await eventually(exchanged, (AssertionError, OSError, KeyError))
    await scene.available(changed)
    assert Identity.of(first) is None
    assert len(await scene.pods()) == 1


async def test_scaled_to_nothing_or_deleted_it_ends(scene: Scene) -> None:
    deployment = _shell("exec sleep 1000")
    await scene.create(deployment)
    await scene.available(deployment)
    first = await scene.pid("till")
    await scene.create({**deployment, "spec": {**deployment["spec"], "replicas": 0}})

    async def ended() -> None:
        assert Identity.of(first) is None
        assert await scene.pods() == []
        assert (await scene.get(deployment))["status"].get("availableReplicas", 0) == 0
        assert scene.pids == {}

    await eventually(ended, (AssertionError, KeyError))
    await scene.create(deployment)
    await scene.available(deployment)
    second = await scene.pid("till")
    await scene.client.delete(path_in(deployment, scene.namespace))

    async def gone() -> None:
        assert Identity.of(second) is None
        assert await scene.pods() == []

    await eventually(gone, AssertionError)


async def test_one_that_does_not_end_when_it_is_told_to_is_killed(scene: Scene) -> None:
    deployment = _shell("trap '' TERM; echo up >/data/said; while :; do sleep 0.1; done")
    await scene.create(deployment)
    await _content(scene.volume("till", "data") / "said")
    pid = await scene.pid("till")
    began = time.monotonic()
    await scene.client.delete(path_in(deployment, scene.namespace))

    async def gone() -> None:
        assert Identity.of(pid) is None

    await eventually(gone, AssertionError)
    assert 1.5 < time.monotonic() - began < 10


async def test_what_keeps_it_from_starting_is_said(scene: Scene) -> None:
    env = [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "a"}}}]
    deployment = _shell("exec sleep 1000", env=env)
    await scene.create(deployment)

    async def said() -> None:
        found = {each["type"]: each for each in (await scene.get(deployment))["status"]["conditions"]}["Available"]
        assert found["status"] == "False"
        assert 'configmaps "later" not found' in found["message"]

    await eventually(said, (AssertionError, KeyError))
    await scene.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "later"}, "data": {"a": "1"}})
    await scene.available(deployment)


@pytest.mark.parametrize("way", ["httpGet", "tcpSocket"])
async def test_it_is_ready_when_its_probe_says_so(way: str, scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    ask = {"port": "web", **({"path": "/arrived"} if way == "httpGet" else {})}
    env = [{"name": "HOST", "value": "127.0.0.1"}, {"name": "PORT", "value": str(number)}]
    # It does not listen before the file is there.
    wait = f"echo up >/data/said; until [ -e /data/go ]; do sleep 0.05; done; exec python {PROGRAM}"
    ports = [{"name": "web", "containerPort": number}]
    deployment = _shell(wait, env=env, ports=ports, readinessProbe={way: ask})
    await scene.create(deployment)
    await _content(scene.volume("till", "data") / "said")
    await asyncio.sleep(0.5)
    found = await scene.get(deployment)
    assert (found["status"]["replicas"], found["status"].get("readyReplicas", 0)) == (1, 0)
    (scene.volume("till", "data") / "go").touch()
    await scene.available(deployment)

    async def told() -> None:
        [pod] = await scene.pods()
        assert {each["type"]: each["status"] for each in pod["status"]["conditions"]}["Ready"] == "True"

    await eventually(told, (AssertionError, KeyError))


def test_objects_that_have_no_place_in_the_order_are_refused(tmp_path: Path) -> None:
    (tmp_path / "strange.yaml").write_text("{apiVersion: v1, kind: Strange, metadata: {name: x}}")
    with pytest.raises(LocalError, match="objects of kind Strange, which is not known here"):
        load(tmp_path)
