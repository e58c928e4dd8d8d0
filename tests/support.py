"""What tests of the functions share: a hub with clusters on it, small CRDs, and a clock that a test moves."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import yaml

from functions.access import kubeconfig
from functions.access.client import MERGE_PATCH, Client
from functions.access.errors import NotFound
from functions.access.targets import Targets
from functions.catalog import COMPONENTS, CustomResource
from functions.deploy_files import deploy_directory
from functions.hub import GATEWAYS, Hub
from functions.local import substrate
from functions.local.certificates import Authority
from functions.world import Clock, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from functions.access.connection import Connection
    from functions.catalog import Component, Requirement
    from functions.local.api import Api

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLUSTERS = "/apis/modelplane.ai/v1alpha1/inferenceclusters"
SECRETS = "/api/v1/namespaces/modelplane-system/secrets"
EPOCH = datetime(2026, 12, 1, 4, 0, tzinfo=UTC)


@dataclass(slots=True)
class Moving:
    """Time that stands still but where something sleeps."""

    moment: datetime = EPOCH
    slept: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.moment

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.moment += timedelta(seconds=seconds)

    @property
    def clock(self) -> Clock:
        return Clock(self.now, self.sleep)


async def open_world(hub: Path, clock: Clock | None = None, *, patience: float = 5.0) -> World:
    """A world around a hub; `patience` is how many seconds a target may take for an answer.

    The pauses before a target is asked again are skipped.
    """
    client = Client(kubeconfig.load_file(hub))

    def connect(connection: Connection) -> Client:
        return Client(connection, timeout=patience, sleep=_at_once)

    return World(Hub(client), Targets(client, connect=connect), clock or Clock())


async def install(client: Client, *components: str) -> None:
    """Installs the real CRDs of components; a megabyte of schema may take a busy server longer than a usual request."""
    patient = Client(client.connection, timeout=60)
    try:
        for each in components:
            await substrate.add(patient, each)
    finally:
        await patient.close()


async def _at_once(_: float) -> None:
    await asyncio.sleep(0)


def crd_manifest(name: str, *versions: str, padding: int = 0) -> dict[str, Any]:
    """A small CRD of this name that serves these versions, the first one stored.

    Args:
        name: `<plural>.<group>`.
        versions: Names; one that starts with `-` is listed and not served.
        padding: Bytes of description that the schema carries besides.
    """
    plural, _, group = name.partition(".")
    kind = plural.removesuffix("s").capitalize()
    schema = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        **({"description": "x" * padding} if padding else {}),
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": plural.removesuffix("s"), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version.removeprefix("-"),
                    "served": not version.startswith("-"),
                    "storage": index == 0,
                    "schema": {"openAPIV3Schema": schema},
                }
                for index, version in enumerate(versions)
            ],
        },
    }


def provide(api: Api, requirement: Requirement) -> None:
    """Installs what a requirement asks for; whether it is served by then is not waited for."""
    if isinstance(requirement, CustomResource):
        apply(api, f"{CRDS}/{requirement.name}", crd_manifest(requirement.name, requirement.version))
    else:
        manifest = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": requirement.name},
            "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{requirement.name}'"}}]},
        }
        apply(api, f"{DEVICE_CLASSES}/{requirement.name}", manifest)


def withdraw(api: Api, requirement: Requirement) -> None:
    """Deletes what a requirement asks for; harmless where it is not there."""
    base = CRDS if isinstance(requirement, CustomResource) else DEVICE_CLASSES
    answer = api.request("DELETE", f"{base}/{requirement.name}")
    assert answer.status in {200, 404}, answer


def provide_all(api: Api, components: Iterable[Component] = COMPONENTS) -> None:
    for component in components:
        for requirement in component.requirements:
            provide(api, requirement)


def hold(api: Api, path: str, finalizers: list[str] | None) -> None:
    """Puts finalizers on an object, or takes them off."""
    patch = {"metadata": {"finalizers": finalizers}}
    assert api.request("PATCH", path, patch, content_type="application/merge-patch+json").status == 200


def apply(api: Api, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
    answer = api.apply(path, manifest)
    assert answer.status in {200, 201}, answer
    return dict(answer.body)


def install_hub(api: Api) -> None:
    """The project's CRDs and the namespace of the kubeconfig Secrets."""
    for file in sorted((deploy_directory() / "knative" / "crds").glob("inference*.yaml")):
        manifest = yaml.safe_load(file.read_text())
        apply(api, f"{CRDS}/{manifest['metadata']['name']}", manifest)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "modelplane-system"}}
    apply(api, "/api/v1/namespaces/modelplane-system", namespace)


def put_kubeconfig(api: Api, content: bytes | str, name: str = "target", key: str = "kubeconfig") -> None:
    text = content.encode() if isinstance(content, str) else content
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(text).decode()},
    }
    apply(api, f"{SECRETS}/{name}", manifest)


def put_cluster(api: Api, name: str = "gpu-1", *, stack: str = "Standard", **existing: Any) -> dict[str, Any]:
    """A Provided InferenceCluster whose kubeconfig is Secret `target`; `existing` overrides its block."""
    block = {"secretRef": {"name": "target"}, "components": "Provided", **existing}
    manifest = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {"stack": stack, "cluster": {"source": "Existing", "existing": block}},
    }
    return apply(api, f"{CLUSTERS}/{name}", manifest)


def put_inference_gateway(api: Api, cluster: str = "gpu-1") -> None:
    """InferenceGateway `eu`, which publishes a client CA."""
    gateway = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceGateway",
        "metadata": {"name": "eu"},
        "spec": {"clusterName": cluster},
        "status": {"clientCACertificate": Authority.new().certificate.decode()},
    }
    apply(api, f"{GATEWAYS}/eu", gateway)
    apply(api, f"{GATEWAYS}/eu/status", gateway)


def get_cluster(api: Api, name: str = "gpu-1") -> dict[str, Any]:
    answer = api.request("GET", f"{CLUSTERS}/{name}")
    assert answer.status == 200, answer
    return dict(answer.body)


def conditions(api: Api, name: str = "gpu-1") -> dict[str, dict[str, Any]]:
    """The conditions of a cluster by type."""
    return {each["type"]: each for each in get_cluster(api, name).get("status", {}).get("conditions", ())}


def summary(api: Api, name: str = "gpu-1") -> tuple[str, str]:
    """Status and reason of RequirementsMet."""
    condition = conditions(api, name)["RequirementsMet"]
    return condition["status"], condition["reason"]


async def served(client: Client, *requirements: Requirement) -> None:
    """Returns once every CRD among these is Established."""
    for each in requirements:
        if isinstance(each, CustomResource):
            await happened(client, CRDS, each.name, _established)


async def gone(client: Client, path: str, name: str) -> None:
    """Returns once the object is really gone.

    A CRD that is deleted before its storage is set up can stay Terminating until somebody touches it.
    """
    for attempt in range(10):
        try:
            found = await client.get(f"{path}/{name}")
            params = {"fieldSelector": f"metadata.name={name}", "resourceVersion": found["metadata"]["resourceVersion"]}
            async with asyncio.timeout(2), contextlib.aclosing(client.watch(path, params=params)) as events:
                async for event in events:
                    if event["type"] == "DELETED":
                        return
        except NotFound:
            return
        except TimeoutError:
            touch = {"metadata": {"annotations": {"touched": str(attempt)}}}
            with contextlib.suppress(NotFound):
                await client.patch(f"{path}/{name}", touch, MERGE_PATCH)
    raise AssertionError(f"{name} is still there")


async def happened(
    client: Client, path: str, name: str, predicate: Callable[[dict[str, Any]], bool], within: float = 20
) -> dict[str, Any]:
    """The object once it is as it should be, by watching it; TimeoutError after `within` seconds."""
    params = {"fieldSelector": f"metadata.name={name}"}
    async with asyncio.timeout(within), contextlib.aclosing(client.watch(path, params=params)) as events:
        async for event in events:
            found: dict[str, Any] = event["object"]
            if event["type"] != "DELETED" and predicate(found):
                return found
    raise AssertionError(f"the watch on {name} ended before it was as expected")


def _established(crd: dict[str, Any]) -> bool:
    found = crd.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in found)
