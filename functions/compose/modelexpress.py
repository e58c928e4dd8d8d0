"""The ModelExpress server of the Dynamo stack, which engines ask at `modelexpress-server.default:8001`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from functions.catalog import Stack
from functions.compose import kinds
from functions.compose.modelexpress_crds import GROUP, MODEL_CACHE_ENTRIES, MODEL_METADATAS
from functions.compose.readiness import available, condition
from functions.compose.step import Composition, Step

if TYPE_CHECKING:
    from functions.compose.step import Inputs, Manifest

SERVER: Final = "modelexpress-server"
NAMESPACE: Final = "default"
IMAGE: Final = "nvcr.io/nvidia/ai-dynamo/modelexpress-server:0.4.1"
PORT: Final = 8001
CACHE: Final = "/mnt/models"
_PODS: Final = {"modelplane.ai/modelexpress": SERVER}
_VERBS: Final = ("get", "list", "create", "update", "patch", "delete")


def _service_account(_: Inputs) -> Manifest:
    return {}


def _role(_: Inputs) -> Manifest:
    may = {
        GROUP: ("modelmetadatas", "modelmetadatas/status", "modelcacheentries", "modelcacheentries/status"),
        "": ("configmaps",),
    }
    rules = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(_VERBS)} for group, resources in may.items()
    ]
    return {"rules": rules}


def _role_binding(_: Inputs) -> Manifest:
    return {
        "subjects": [{"kind": kinds.SERVICE_ACCOUNT.name, "name": SERVER, "namespace": NAMESPACE}],
        "roleRef": {"apiGroup": kinds.ROLE.group, "kind": kinds.ROLE.name, "name": SERVER},
    }


def _service(_: Inputs) -> Manifest:
    port = {"name": "grpc", "protocol": "TCP", "port": PORT, "targetPort": PORT}
    return {"spec": {"selector": dict(_PODS), "ports": [port]}}


def _deployment(_: Inputs) -> Manifest:
    pod = {
        "serviceAccountName": SERVER,
        "containers": [_container()],
        "volumes": [{"name": "cache", "emptyDir": {}}],
    }
    return {
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(_PODS)},
            "template": {"metadata": {"labels": dict(_PODS)}, "spec": pod},
        }
    }


def _container() -> dict[str, Any]:
    def probe(seconds: int) -> dict[str, Any]:
        return {"tcpSocket": {"port": PORT}, "periodSeconds": seconds}

    return {
        "name": SERVER,
        "image": IMAGE,
        "ports": [{"containerPort": PORT, "protocol": "TCP"}],
        "env": [
            {"name": "MODEL_EXPRESS_CACHE_DIRECTORY", "value": CACHE},
            {"name": "HF_HUB_CACHE", "value": CACHE},
            {"name": "MX_METADATA_BACKEND", "value": "kubernetes"},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
        "readinessProbe": probe(10),
        "livenessProbe": probe(20),
    }


def _definition(manifest: Manifest) -> Step:
    return Step(
        kind=kinds.DEFINITION,
        name=manifest["metadata"]["name"],
        manifest=lambda _: {**manifest, "metadata": {"labels": manifest["metadata"]["labels"]}},
        ready=condition("Established"),
    )


_server: Final = partial(Step, name=SERVER, namespace=NAMESPACE)
_definitions: Final = (_definition(MODEL_METADATAS), _definition(MODEL_CACHE_ENTRIES))

COMPOSITION: Final = Composition(
    name="modelexpress",
    condition="ModelExpressComposed",
    stacks=frozenset({Stack.DYNAMO}),
    steps=(
        *_definitions,
        _server(kind=kinds.SERVICE_ACCOUNT, manifest=_service_account),
        _server(kind=kinds.ROLE, manifest=_role),
        _server(
            kind=kinds.ROLE_BINDING,
            manifest=_role_binding,
            after=(f"ServiceAccount {SERVER}", f"Role {SERVER}"),
        ),
        _server(kind=kinds.SERVICE, manifest=_service),
        _server(
            kind=kinds.DEPLOYMENT,
            manifest=_deployment,
            awaits=tuple(each.key for each in _definitions),
            after=(f"RoleBinding {SERVER}", f"Service {SERVER}"),
            ready=available,
        ),
    ),
)
