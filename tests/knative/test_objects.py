"""Knative Eventing from nothing: its objects turn ready, and an event comes through each of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import Client
from functions.access.errors import AccessError, NotFound
from functions.access.kubeconfig import load_file
from tests.knative.venues import create, eventually, path_in, proxied, ready
from tests.support import CRDS, crd_manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from functions.local.knative.instance import KnativeControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

_EVENTING = "eventing.knative.dev/v1"
_SOURCES = "sources.knative.dev/v1"
_SERVING = "serving.knative.dev/v1"
_SINK = {"ref": {"apiVersion": _EVENTING, "kind": "Broker", "name": "all"}}
_RIGHTS = {"apiGroups": ["apiextensions.k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
_DEPLOYMENT = "events-00001-deployment"


def _object(version: str, kind: str, name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


BROKER = _object(_EVENTING, "Broker", "all")
# This project's own image, which writes each event to a file.
EVENTS = _object(
    _SERVING,
    "Service",
    "events",
    spec={
        "template": {
            "spec": {
                "containers": [
                    {
                        "image": "example.com/modelplane-serving-stack:1",
                        "args": ["serve", "--functions", "journal"],
                        "env": [{"name": "SERVING_STACK_JOURNAL", "value": "/data/journal.jsonl"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                        "readinessProbe": {"httpGet": {"path": "/health/readiness"}},
                    }
                ],
                "volumes": [{"name": "data", "emptyDir": {}}],
            }
        }
    },
)
TRIGGER = _object(
    _EVENTING,
    "Trigger",
    "events",
    spec={
        "broker": "all",
        "subscriber": {"ref": {"apiVersion": _SERVING, "kind": "Service", "name": "events"}, "uri": "/journal"},
    },
)
CRD_SOURCE = _object(
    _SOURCES,
    "ApiServerSource",
    "crds",
    spec={
        "serviceAccountName": "default",
        "mode": "Reference",
        "resources": [{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}],
        "sink": _SINK,
    },
)
TICK = _object(_SOURCES, "PingSource", "tick", spec={"schedule": "* * * * *", "sink": _SINK})
# Its image is one that stands for programs of this machine.
CONTAINER = _object(
    _SOURCES,
    "ContainerSource",
    "container",
    spec={
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "source",
                        "image": "local/shell",
                        "command": ["sh", "-c", 'echo "$K_SINK" >/data/sink; exec sleep 1000'],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "emptyDir": {}}],
            }
        },
        "sink": _SINK,
    },
)


@pytest.fixture
async def client(knative: KnativeControlPlane) -> AsyncIterator[Client]:
    opened = Client(load_file(knative.kubeconfig), timeout=30)
    yield opened
    await opened.close()


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace whose default ServiceAccount may look at CRDs."""
    name = f"objects-{secrets.token_hex(4)}"
    version = "rbac.authorization.k8s.io/v1"
    role = _object(version, "ClusterRole", name, rules=[_RIGHTS])
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": name}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = _object(version, "ClusterRoleBinding", name, roleRef=reference, subjects=[subject])
    for manifest, plural in ((role, "clusterroles"), (binding, "clusterrolebindings")):
        await client.apply(f"/apis/{version}/{plural}/{name}", manifest, manager="test")
    await create(client, BROKER, name)
    yield name
    with contextlib.suppress(NotFound):
        await client.delete(f"/api/v1/namespaces/{name}")
    for plural in ("clusterroles", "clusterrolebindings"):
        await client.delete(f"/apis/{version}/{plural}/{name}")


@pytest.fixture
def journal(knative: KnativeControlPlane, namespace: str) -> Callable[[], list[dict[str, Any]]]:
    """The events that came to Knative Service `events` so far."""

    def read() -> list[dict[str, Any]]:
        file = knative.volume(namespace, _DEPLOYMENT, "data") / "journal.jsonl"
        return [json.loads(line)["event"] for line in file.read_text().splitlines()] if file.exists() else []

    return read


async def _comes(journal: Callable[[], list[dict[str, Any]]], within: float, **attributes: str) -> dict[str, Any]:
    """The first event with these attributes, once it is there."""
    deadline = time.monotonic() + within
    while True:
        for each in journal():
            if attributes.items() <= each.items():
                return each
        assert time.monotonic() < deadline, f"no event with {attributes} among {journal()}"
        await asyncio.sleep(0.1)


async def test_everything_turns_ready_and_events_come_through(
    client: Client, namespace: str, journal: Callable[[], list[dict[str, Any]]]
) -> None:
    objects = (EVENTS, TRIGGER, CRD_SOURCE, TICK)
    for each in objects:
        await create(client, each, namespace)
    for each in (BROKER, *objects):
        await ready(client, each, namespace)
    crd = f"things.{namespace}.example.com"
    await client.create(CRDS, crd_manifest(crd, "v1"))
    try:
        added = await _comes(journal, 20, type="dev.knative.apiserver.ref.add", name=crd)
        assert added["kind"] == "CustomResourceDefinition"
        assert added["namespace"] == ""
    finally:
        await client.delete(f"{CRDS}/{crd}")
    await _comes(journal, 20, type="dev.knative.apiserver.ref.delete", name=crd)
    await _comes(journal, 70, type="dev.knative.sources.ping")


async def test_the_webhooks_of_knative_are_at_work(client: Client, namespace: str) -> None:
    whole = await client.get(path_in(BROKER, namespace))
    assert whole["metadata"]["annotations"]["eventing.knative.dev/broker.class"] == "MTChannelBasedBroker"
    strange = {**CRD_SOURCE, "spec": {**CRD_SOURCE["spec"], "mode": "Everything"}}
    with pytest.raises(AccessError, match=r"invalid value: Everything.*spec\.mode"):
        await create(client, strange, namespace)


async def test_without_the_right_to_look_the_source_says_so(client: Client, namespace: str) -> None:
    await create(client, _object("v1", "ServiceAccount", "nobody"), namespace)
    source = {**CRD_SOURCE, "spec": {**CRD_SOURCE["spec"], "serviceAccountName": "nobody"}}
    await create(client, source, namespace)

    async def refused() -> None:
        status = (await client.get(path_in(source, namespace))).get("status", {})
        found = {each["type"]: each for each in status.get("conditions", ())}
        assert found["SufficientPermissions"]["status"] == "False"
        assert f"system:serviceaccount:{namespace}:nobody" in found["SufficientPermissions"]["message"]

    await eventually(refused, (AssertionError, KeyError))


async def test_a_container_source_runs_its_program(
    client: Client, namespace: str, knative: KnativeControlPlane
) -> None:
    await create(client, CONTAINER, namespace)
    await ready(client, CONTAINER, namespace)
    file = knative.volume(namespace, "container-deployment", "data") / "sink"

    async def told() -> None:
        assert file.read_text() == f"http://broker-ingress.knative-eventing.svc.cluster.local/{namespace}/all\n"

    await eventually(told, (AssertionError, OSError))


async def test_a_pod_that_is_deleted_or_killed_comes_back(client: Client, namespace: str) -> None:
    await create(client, EVENTS, namespace)
    await ready(client, EVENTS, namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"
    health = f"{proxied(namespace, 'events')}/health/readiness"
    [before] = (await client.get(pods))["items"]
    await client.delete(f"{pods}/{before['metadata']['name']}")

    async def another() -> None:
        [found] = (await client.get(pods))["items"]
        assert found["metadata"]["uid"] != before["metadata"]["uid"]
        assert (await client.request("GET", health)).body == b"ok"

    await eventually(another, (AssertionError, AccessError, ValueError))


async def test_a_knative_service_is_exchanged_with_its_template_and_ends_with_it(
    client: Client, namespace: str, knative: KnativeControlPlane
) -> None:
    await create(client, EVENTS, namespace)
    await ready(client, EVENTS, namespace)
    found = await client.get(path_in(EVENTS, namespace))
    url = f"http://events.{namespace}.svc.cluster.local"
    assert (found["status"]["url"], found["status"]["address"]) == (url, {"url": url})
    assert {each["type"] for each in found["status"]["conditions"]} == {"ConfigurationsReady", "Ready", "RoutesReady"}
    name = f"{namespace}/{_DEPLOYMENT}"
    assert knative.directory.status().programs[name]
    pods = f"/api/v1/namespaces/{namespace}/pods"
    [before] = (await client.get(pods))["items"]

    template = {"metadata": {"annotations": {"changed": "true"}}, **EVENTS["spec"]["template"]}
    await create(client, {**EVENTS, "spec": {"template": template}}, namespace)

    async def exchanged() -> None:
        [after] = (await client.get(pods))["items"]
        assert after["metadata"]["uid"] != before["metadata"]["uid"]
        whole = await client.get(path_in(EVENTS, namespace))
        assert whole["status"]["observedGeneration"] == whole["metadata"]["generation"] == 2
        assert (await client.request("GET", f"{proxied(namespace, 'events')}/health/readiness")).body == b"ok"

    await eventually(exchanged, (AssertionError, AccessError, ValueError))
    await client.delete(path_in(EVENTS, namespace))

    async def gone() -> None:
        assert name not in knative.directory.status().programs
        assert (await client.get(pods))["items"] == []

    await eventually(gone, AssertionError)


async def test_an_image_that_nothing_stands_for_is_named(client: Client, namespace: str) -> None:
    template = {"spec": {"containers": [{"image": "example.com/other:1"}]}}
    strange = _object(_SERVING, "Service", "strange", spec={"template": template})
    await create(client, strange, namespace)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/strange-00001-deployment"

    async def told() -> None:
        status = (await client.get(path))["status"]
        found = {each["type"]: each for each in status.get("conditions", ())}["Available"]
        assert (found["status"], found["message"]) == ("False", "no program here stands for image example.com/other:1")

    await eventually(told, (AssertionError, AccessError, KeyError))
    assert {each["status"] for each in (await client.get(path_in(strange, namespace)))["status"]["conditions"]} == {
        "Unknown"
    }
