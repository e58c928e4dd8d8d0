"""What is done to the API server in the course of the demonstration, as a person would do it with kubectl."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import yaml
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_fixed

from functions.access.client import JSON_PATCH, MERGE_PATCH
from functions.access.definitions import CRDS
from functions.access.errors import NotFound
from functions.access.targets import SECRETS
from functions.clusters import API_VERSION, SYSTEM_NAMESPACE
from functions.compose.kinds import GATEWAY
from functions.compose.ownership import OWNER
from functions.deploy_files import deploy_directory
from functions.hub import CLUSTERS, GATEWAYS
from functions.local.certificates import Authority

if TYPE_CHECKING:
    from functions.access.client import Client
    from functions.catalog import Stack
    from functions.compose.step import Composition

_MANAGER: Final = "serving-stack-demo"
_SERVED_WITHIN: Final = 20.0


async def install_hub(client: Client) -> None:
    """Modelplane's own CRDs, and its namespace."""
    for file in sorted((deploy_directory() / "knative" / "crds").glob("inference*.yaml")):
        manifest = yaml.safe_load(file.read_text())
        await client.apply(f"{CRDS}/{manifest['metadata']['name']}", manifest, manager=_MANAGER)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    await client.apply(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}", namespace, manager=_MANAGER)


async def register(client: Client, name: str, stack: Stack, kubeconfig: bytes) -> None:
    """An InferenceCluster and its kubeconfig; hub and target are one server here."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-kubeconfig"},
        "data": {"kubeconfig": base64.b64encode(kubeconfig).decode()},
    }
    await client.apply(f"{SECRETS}/{name}-kubeconfig", secret, manager=_MANAGER)
    existing = {"secretRef": {"name": f"{name}-kubeconfig"}, "components": "Provided"}
    spec = {"stack": str(stack), "cluster": {"source": "Existing", "existing": existing}}
    await _apply_when_served(client, f"{CLUSTERS}/{name}", _object("InferenceCluster", name, spec))


async def publish_client_ca(client: Client, name: str, cluster: str) -> None:
    """An InferenceGateway that says by which certificates its clients are known."""
    path = f"{GATEWAYS}/{name}"
    await _apply_when_served(client, path, _object("InferenceGateway", name, {"clusterName": cluster}))
    status = {"status": {"clientCACertificate": Authority.new().certificate.decode()}}
    await client.patch(f"{path}/status", status, MERGE_PATCH, manager=_MANAGER)


async def add_listener(client: Client, name: str, namespace: str, port: int) -> int:
    """A listener without TLS on a Gateway; answers with the generation that has it."""
    listener = {"name": "plain", "protocol": "HTTP", "port": port}
    patch = [{"op": "add", "path": "/spec/listeners/-", "value": listener}]
    live = await client.patch(GATEWAY.path(name, namespace), patch, JSON_PATCH, manager=_MANAGER)
    generation: int = live["metadata"]["generation"]
    return generation


async def delete_cluster(client: Client, name: str) -> None:
    """Deletes the InferenceCluster; answers at once."""
    await client.delete(f"{CLUSTERS}/{name}")


async def left_behind(client: Client, composition: Composition, cluster: str) -> list[str]:
    """What is there still of a set, by kind and name: what is marked as its own, and what others made for it."""
    found = []
    for kind in dict.fromkeys(each.kind for each in composition.steps):
        marked = await client.get(kind.path(), params={"labelSelector": f"{OWNER}={cluster}"})
        found += [f"{kind.name} {each['metadata']['name']}" for each in marked["items"]]
    for step in composition.steps:
        if step.manifest is None and await _is_there(client, step.path):
            found.append(step.key)
    return found


async def _is_there(client: Client, path: str) -> bool:
    try:
        await client.get_metadata(path)
    except NotFound:
        return False
    return True


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def _apply_when_served(client: Client, path: str, body: dict[str, Any]) -> None:
    """Applies until the definition is served.

    Raises:
        AccessError: It is not served in time, or the object is refused.
    """
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(NotFound),
        wait=wait_fixed(0.05),
        stop=stop_after_delay(_SERVED_WITHIN),
        reraise=True,
    )
    await retrying(client.apply, path, body, manager=_MANAGER)
