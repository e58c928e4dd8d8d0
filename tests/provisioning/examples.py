"""The worked examples of deploy/provisioning, and what comes in at each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml
from jsonata import Jsonata

from functions.deploy_files import deploy_directory

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = deploy_directory() / "provisioning"
FILES: Final = sorted(FOLDER.rglob("*.yaml"))
TRANSFORMED: Final = ("cluster-api", "crossplane", "event-bus")


def documents(path: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / path).read_text()) if each is not None]


def of_kind(path: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in documents(path) if each["kind"] == kind]


def transformed(example: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """What the EventTransform of an example makes of an event in its structured form."""
    (transform,) = of_kind(f"{example}.yaml", "EventTransform")
    result: dict[str, Any] = Jsonata(transform["spec"]["jsonata"]["expression"]).evaluate(dict(event))
    return result


def _object_event(api_version: str, kind: str, status: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """As an ApiServerSource in mode Resource says that an object changed."""
    return {
        "specversion": "1.0",
        "id": "5b2c2b1e-0d0e-4f7e-9d0a-1f1f3b9f6a11",
        "source": "https://10.96.0.1:443",
        "type": changes.get("type", "dev.knative.apiserver.resource.update"),
        "subject": f"/apis/{api_version}/namespaces//{kind.lower()}s/gpu-1",
        "time": "2026-12-01T04:00:00.123456789Z",
        "datacontenttype": "application/json",
        "kind": kind,
        "apiversion": api_version,
        "name": "gpu-1",
        "data": {
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": "gpu-1", "uid": "1", **changes.get("metadata", {})},
            "spec": {"paused": False},
            "status": dict(status),
        },
    }


def cluster_api(initialized: str | None = "True", **changes: Any) -> dict[str, Any]:
    conditions = [{"type": "InfrastructureReady", "status": "True"}]
    if initialized is not None:
        conditions.append({"type": "ControlPlaneInitialized", "status": initialized})
    return _object_event("cluster.x-k8s.io/v1beta2", "Cluster", {"conditions": conditions}, **changes)


def crossplane(ready: str | None = "True", *, named: bool = True, **changes: Any) -> dict[str, Any]:
    status: dict[str, Any] = {"kubeconfigSecret": "gpu-1"} if named else {}
    if ready is not None:
        status["conditions"] = [{"type": "Synced", "status": "True"}, {"type": "Ready", "status": ready}]
    return _object_event("platform.example.com/v1alpha1", "GPUCluster", status, **changes)


def event_bus(**detail: Any) -> dict[str, Any]:
    """As an IntegrationSource passes on what EventBridge put into the queue."""
    return {
        "specversion": "1.0",
        "id": "9CC70D09569020C-0000000000000001",
        "source": "dev.knative.eventing.aws-sqs-source",
        "type": "dev.knative.connector.event.aws-sqs",
        "subject": "aws-sqs-source",
        "time": "2026-12-01T04:00:00.413Z",
        "datacontenttype": "application/json",
        "data": {
            "version": "0",
            "id": "6a7e8feb-b491-4cf7-a9f1-bf3703467718",
            "detail-type": "Cluster provisioned",
            "source": "com.example.provisioning",
            "account": "111122223333",
            "time": "2026-12-01T04:00:00Z",
            "region": "eu-central-1",
            "resources": [],
            "detail": detail,
        },
    }
