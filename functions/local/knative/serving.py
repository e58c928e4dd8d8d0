"""Knative Services become a Deployment and a Service each, and their status says where they are reached.

It stands for Knative Serving as far as that runs the container: there is one pod always, and one revision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.access.client import MERGE_PATCH
from functions.access.errors import NotFound
from functions.local.knative.informer import key
from functions.local.knative.services import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from functions.access.client import Client
    from functions.local.knative.informer import Key

    Manifest = Mapping[str, Any]

API_VERSION: Final = "serving.knative.dev/v1"
PATH: Final = f"/apis/{API_VERSION}/services"
_MANAGER: Final = "local-serving"
_PORT: Final = 8080
# Of a revision, and of no pod.
_NOT_OF_A_POD: Final = frozenset(
    {"containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds", "idleTimeoutSeconds"}
)


class Serving:
    """Keeps what belongs to each Knative Service.

    Args:
        client: To the API server as an admin.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._applied: dict[Key, tuple[str, int]] = {}
        self._said: dict[Key, Manifest] = {}

    async def update(self, services: Mapping[Key, Manifest], deployments: Mapping[Key, Manifest]) -> None:
        """Apply what is missing, and say how it is.

        Args:
            services: The Knative Services.
            deployments: All Deployments, of which those made here tell what is ready.
        """
        for name, service in services.items():
            if "deletionTimestamp" in service["metadata"]:
                continue
            deployment = deployments.get((name[0], deployment_name(name[1])))
            version = (service["metadata"]["uid"], service["metadata"]["generation"])
            try:
                if deployment is None or self._applied.get(name) != version:
                    await self._apply(service)
                    self._applied[name] = version
                await self._tell(service, _is_available(deployment))
            except NotFound:  # it is gone by now, or its namespace is
                continue
        for gone in (self._applied.keys() | self._said.keys()) - services.keys():
            self._applied.pop(gone, None)
            self._said.pop(gone, None)

    async def _apply(self, service: Manifest) -> None:
        namespace, name = key(service)
        base = f"namespaces/{namespace}"
        deployment = deployment_of(service)
        path = f"/apis/apps/v1/{base}/deployments/{deployment['metadata']['name']}"
        await self._client.apply(path, deployment, manager=_MANAGER)
        await self._client.apply(f"/api/v1/{base}/services/{name}", service_of(service), manager=_MANAGER)

    async def _tell(self, service: Manifest, available: bool) -> None:  # noqa: FBT001 - what it tells
        namespace, name = key(service)
        url = f"http://{name}.{namespace}.svc.{DOMAIN}"
        revision = _revision(name)
        state = {"status": "True"} if available else {"status": "Unknown", "reason": "Deploying"}
        status = {
            "observedGeneration": service["metadata"]["generation"],
            "url": url,
            "address": {"url": url},
            "latestCreatedRevisionName": revision,
            "conditions": [{"type": kind, **state} for kind in ("ConfigurationsReady", "Ready", "RoutesReady")],
        }
        if available:
            status["latestReadyRevisionName"] = revision
            status["traffic"] = [{"latestRevision": True, "percent": 100, "revisionName": revision}]
        if self._said.get((namespace, name)) != status:
            path = f"/apis/{API_VERSION}/namespaces/{namespace}/services/{name}/status"
            await self._client.patch(path, {"status": status}, MERGE_PATCH)
            self._said[namespace, name] = status


def deployment_name(service: str) -> str:
    """The Deployment that is made for a Knative Service."""
    return f"{_revision(service)}-deployment"


def _revision(service: str) -> str:
    return f"{service}-00001"


def deployment_of(service: Manifest) -> dict[str, Any]:
    """The Deployment of a Knative Service: its template, with what Serving itself adds for the container."""
    template = service["spec"]["template"]
    name = service["metadata"]["name"]
    spec = {field: value for field, value in template["spec"].items() if field not in _NOT_OF_A_POD}
    spec["containers"] = [_container(spec["containers"][0], name), *spec["containers"][1:]]
    given = template.get("metadata", {})
    metadata = {"labels": {**given.get("labels", {}), **_labels(service)}}
    if "annotations" in given:
        metadata["annotations"] = given["annotations"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment_name(name), "labels": _labels(service), **_owned(service)},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _labels(service)},
            "template": {"metadata": metadata, "spec": spec},
        },
    }


def service_of(service: Manifest) -> dict[str, Any]:
    """The Service by whose name a Knative Service is called."""
    number = _port(service["spec"]["template"]["spec"]["containers"][0])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service["metadata"]["name"], "labels": _labels(service), **_owned(service)},
        "spec": {"selector": _labels(service), "ports": [{"name": "http", "port": 80, "targetPort": number}]},
    }


def _container(given: Manifest, service: str) -> dict[str, Any]:
    number = _port(given)
    known = {"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}
    own = {"PORT": str(number), "K_SERVICE": service, "K_CONFIGURATION": service, "K_REVISION": _revision(service)}
    env = [{"name": name, "value": value} for name, value in own.items()]
    env += [each for each in given.get("env", ()) if each["name"] not in known]
    ports = [{"containerPort": number, "name": "user-port", **each} for each in _ports(given)]
    container: dict[str, Any] = {"name": "user-container", **given, "env": env, "ports": ports}
    container["readinessProbe"] = _probe(given.get("readinessProbe", {}), number)
    for other in ("livenessProbe", "startupProbe"):
        if other in given:
            container[other] = _probe(given[other], number)
    return container


def _probe(given: Manifest, number: int) -> dict[str, Any]:
    """A probe with its port, which Serving lets one leave out; a connection where there is none."""
    probe = dict(given)
    for way in ("httpGet", "tcpSocket"):
        if way in probe:
            probe[way] = {**probe[way], "port": probe[way].get("port") or number}
            return probe
    return probe if {"exec", "grpc"} & probe.keys() else {**probe, "tcpSocket": {"port": number}}


def _port(container: Manifest) -> int:
    return int(_ports(container)[0].get("containerPort", _PORT))


def _ports(container: Manifest) -> Sequence[Manifest]:
    """Those that it names; else one of which nothing is said."""
    return container.get("ports") or [{}]


def _labels(service: Manifest) -> dict[str, str]:
    return {"serving.knative.dev/service": service["metadata"]["name"]}


def _owned(service: Manifest) -> dict[str, Any]:
    owner = {
        "apiVersion": API_VERSION,
        "kind": "Service",
        "name": service["metadata"]["name"],
        "uid": service["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {"ownerReferences": [owner]}


def _is_available(deployment: Manifest | None) -> bool:
    """Whether a Deployment is up, in the form that was asked for last."""
    if deployment is None:
        return False
    status = deployment.get("status", {})
    return status.get("observedGeneration") == deployment["metadata"]["generation"] and any(
        each["type"] == "Available" and each["status"] == "True" for each in status.get("conditions", ())
    )
