"""Modelplane's table of composed objects, stated by hand: each with its gate and its exact fields.

It knows nothing of the declarations that it is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

HOSTNAME = "gateway-byo-provided-76cbc.modelplane-system.svc.cluster.local"
SYSTEM = "modelplane-system"
BOTH, DYNAMO = {"Standard", "Dynamo"}, {"Dynamo"}
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
WITHOUT_LIMITS = {"cpu": UNLIMITED, "gpu": UNLIMITED, "memory": UNLIMITED}
ECDSA = {"algorithm": "ECDSA", "size": 256}
ALL_VERBS = ["get", "list", "create", "update", "patch", "delete"]
SERVER_PODS = {"modelplane.ai/modelexpress": "modelexpress-server"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One composed object as the table of Modelplane's objects has it.

    Attributes:
        api: apiVersion and kind.
        where: `namespace/name`, or the name alone.
        stacks: Which have it.
        needs: The components that it waits for.
        applied: The objects that have to be applied before.
        ready: The objects that have to be ready before.
        client_ca: Whether it exists only while there is a client CA.
        content: All of it but name and owner mark; None where another's controller makes it.
        labels: Beside the owner mark.
    """

    api: str
    where: str
    stacks: set[str] = field(default_factory=lambda: BOTH)
    needs: tuple[str, ...] = ()
    applied: set[str] = field(default_factory=set)
    ready: set[str] = field(default_factory=set)
    client_ca: bool = False
    content: dict[str, Any] | None = None
    labels: dict[str, str] = field(default_factory=dict)


def _issuer(name: str) -> dict[str, str]:
    return {"name": name, "kind": "Issuer", "group": "cert-manager.io"}


GATEWAY_ROWS = (
    Row(api="v1 Namespace", where=SYSTEM, content={}, labels={"modelplane.ai/namespace": SYSTEM}),
    Row(
        api="gateway.envoyproxy.io/v1alpha1 EnvoyProxy",
        where=f"{SYSTEM}/cluster-gateway",
        needs=("envoy-gateway",),
        applied={f"Namespace {SYSTEM}"},
        content={
            "spec": {
                "provider": {
                    "type": "Kubernetes",
                    "kubernetes": {"envoyService": {"externalTrafficPolicy": "Cluster"}},
                }
            }
        },
    ),
    Row(
        api="gateway.networking.k8s.io/v1 GatewayClass",
        where="envoy",
        needs=("envoy-gateway",),
        applied={"EnvoyProxy cluster-gateway"},
        content={
            "spec": {
                "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
                "parametersRef": {
                    "group": "gateway.envoyproxy.io",
                    "kind": "EnvoyProxy",
                    "name": "cluster-gateway",
                    "namespace": SYSTEM,
                },
            }
        },
    ),
    Row(
        api="cert-manager.io/v1 Issuer",
        where=f"{SYSTEM}/modelplane-selfsigned",
        needs=("cert-manager",),
        applied={f"Namespace {SYSTEM}"},
        content={"spec": {"selfSigned": {}}},
    ),
    Row(
        api="cert-manager.io/v1 Certificate",
        where=f"{SYSTEM}/modelplane-cluster-ca",
        needs=("cert-manager",),
        applied={"Issuer modelplane-selfsigned"},
        content={
            "spec": {
                "isCA": True,
                "commonName": "modelplane cluster CA gateway-byo-provided-76cbc.modelplane-syst",
                "secretName": "modelplane-cluster-ca",
                "duration": "87600h",
                "renewBefore": "8760h",
                "privateKey": ECDSA,
                "issuerRef": _issuer("modelplane-selfsigned"),
            }
        },
    ),
    Row(
        api="cert-manager.io/v1 Issuer",
        where=f"{SYSTEM}/modelplane-cluster-ca",
        needs=("cert-manager",),
        ready={"Certificate modelplane-cluster-ca"},
        content={"spec": {"ca": {"secretName": "modelplane-cluster-ca"}}},
    ),
    Row(
        api="cert-manager.io/v1 Certificate",
        where=f"{SYSTEM}/cluster-gateway-serving",
        needs=("cert-manager",),
        applied={"Issuer modelplane-cluster-ca"},
        content={
            "spec": {
                "secretName": "cluster-gateway-serving",
                "dnsNames": [HOSTNAME],
                "duration": "2160h",
                "renewBefore": "720h",
                "privateKey": {**ECDSA, "rotationPolicy": "Always"},
                "issuerRef": _issuer("modelplane-cluster-ca"),
            }
        },
    ),
    Row(
        api="trust.cert-manager.io/v1alpha1 Bundle",
        where="modelplane-cluster-ca",
        needs=("trust-manager",),
        ready={"Certificate modelplane-cluster-ca"},
        content={
            "spec": {
                "sources": [{"secret": {"name": "modelplane-cluster-ca", "key": "ca.crt"}}],
                "target": {
                    "configMap": {"key": "ca.crt"},
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": SYSTEM}},
                },
            }
        },
    ),
    Row(api="v1 ConfigMap", where=f"{SYSTEM}/modelplane-cluster-ca", applied={"Bundle modelplane-cluster-ca"}),
    Row(
        api="v1 ConfigMap",
        where=f"{SYSTEM}/modelplane-inference-gateway-cas",
        needs=("envoy-gateway",),
        applied={f"Namespace {SYSTEM}"},
        client_ca=True,
        content={"data": {"ca.crt": "a certificate\n"}},
    ),
    Row(
        api="gateway.envoyproxy.io/v1alpha1 ClientTrafficPolicy",
        where=f"{SYSTEM}/cluster-gateway-client-auth",
        needs=("envoy-gateway",),
        applied={"ConfigMap modelplane-inference-gateway-cas"},
        client_ca=True,
        content={
            "spec": {
                "targetRefs": [
                    {
                        "group": "gateway.networking.k8s.io",
                        "kind": "Gateway",
                        "name": "cluster-gateway",
                        "sectionName": "https",
                    }
                ],
                "tls": {
                    "clientValidation": {
                        "optional": False,
                        "caCertificateRefs": [
                            {"kind": "ConfigMap", "group": "", "name": "modelplane-inference-gateway-cas"}
                        ],
                    }
                },
            }
        },
    ),
    Row(
        api="gateway.networking.k8s.io/v1 Gateway",
        where=f"{SYSTEM}/cluster-gateway",
        needs=("envoy-gateway", "ai-gateway-crds", "gaie-crds"),
        applied={"ConfigMap modelplane-inference-gateway-cas", "ClientTrafficPolicy cluster-gateway-client-auth"},
        ready={"GatewayClass envoy", "Certificate cluster-gateway-serving"},
        client_ca=True,
        content={
            "spec": {
                "gatewayClassName": "envoy",
                "listeners": [
                    {
                        "name": "https",
                        "protocol": "HTTPS",
                        "port": 443,
                        "hostname": HOSTNAME,
                        "tls": {"mode": "Terminate", "certificateRefs": [{"name": "cluster-gateway-serving"}]},
                        "allowedRoutes": {
                            "namespaces": {
                                "from": "Selector",
                                "selector": {
                                    "matchExpressions": [{"key": "modelplane.ai/namespace", "operator": "Exists"}]
                                },
                            }
                        },
                    }
                ],
            }
        },
    ),
)
QUEUE_ROWS = (
    Row(
        api="scheduling.run.ai/v2 Queue",
        where="modelplane-root",
        stacks=DYNAMO,
        needs=("kai-scheduler",),
        content={"spec": {"resources": WITHOUT_LIMITS}},
    ),
    Row(
        api="scheduling.run.ai/v2 Queue",
        where="modelplane",
        stacks=DYNAMO,
        needs=("kai-scheduler",),
        applied={"Queue modelplane-root"},
        content={"spec": {"parentQueue": "modelplane-root", "resources": WITHOUT_LIMITS}},
    ),
)
SERVER_ROWS = (
    Row(api="v1 ServiceAccount", where="default/modelexpress-server", stacks=DYNAMO, content={}),
    Row(
        api="rbac.authorization.k8s.io/v1 Role",
        where="default/modelexpress-server",
        stacks=DYNAMO,
        content={
            "rules": [
                {
                    "apiGroups": ["modelexpress.nvidia.com"],
                    "resources": [
                        "modelmetadatas",
                        "modelmetadatas/status",
                        "modelcacheentries",
                        "modelcacheentries/status",
                    ],
                    "verbs": ALL_VERBS,
                },
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL_VERBS},
            ]
        },
    ),
    Row(
        api="rbac.authorization.k8s.io/v1 RoleBinding",
        where="default/modelexpress-server",
        stacks=DYNAMO,
        applied={"ServiceAccount modelexpress-server", "Role modelexpress-server"},
        content={
            "subjects": [{"kind": "ServiceAccount", "name": "modelexpress-server", "namespace": "default"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "modelexpress-server"},
        },
    ),
    Row(
        api="v1 Service",
        where="default/modelexpress-server",
        stacks=DYNAMO,
        content={
            "spec": {
                "selector": SERVER_PODS,
                "ports": [{"name": "grpc", "protocol": "TCP", "port": 8001, "targetPort": 8001}],
            }
        },
    ),
    Row(
        api="apps/v1 Deployment",
        where="default/modelexpress-server",
        stacks=DYNAMO,
        applied={"RoleBinding modelexpress-server", "Service modelexpress-server"},
        ready={
            "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com",
            "CustomResourceDefinition modelcacheentries.modelexpress.nvidia.com",
        },
        content={
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": SERVER_PODS},
                "template": {
                    "metadata": {"labels": SERVER_PODS},
                    "spec": {
                        "serviceAccountName": "modelexpress-server",
                        "containers": [
                            {
                                "name": "modelexpress-server",
                                "image": "nvcr.io/nvidia/ai-dynamo/modelexpress-server:0.4.1",
                                "ports": [{"containerPort": 8001, "protocol": "TCP"}],
                                "env": [
                                    {"name": "MODEL_EXPRESS_CACHE_DIRECTORY", "value": "/mnt/models"},
                                    {"name": "HF_HUB_CACHE", "value": "/mnt/models"},
                                    {"name": "MX_METADATA_BACKEND", "value": "kubernetes"},
                                    {
                                        "name": "POD_NAMESPACE",
                                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
                                    },
                                ],
                                "volumeMounts": [{"name": "cache", "mountPath": "/mnt/models"}],
                                "readinessProbe": {"tcpSocket": {"port": 8001}, "periodSeconds": 10},
                                "livenessProbe": {"tcpSocket": {"port": 8001}, "periodSeconds": 20},
                            }
                        ],
                        "volumes": [{"name": "cache", "emptyDir": {}}],
                    },
                },
            }
        },
    ),
)
DEFINITION_ROWS = tuple(
    Row(
        api="apiextensions.k8s.io/v1 CustomResourceDefinition",
        where=f"{plural}.modelexpress.nvidia.com",
        stacks=DYNAMO,
        labels={"app.kubernetes.io/name": "modelexpress", "app.kubernetes.io/component": "crd"},
    )
    for plural in ("modelmetadatas", "modelcacheentries")
)
MADE_BY_OTHERS = {"Secret modelplane-cluster-ca", "Secret cluster-gateway-serving", "ConfigMap modelplane-cluster-ca"}
"""What the controllers of composed objects make, by the keys of the steps."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """A CRD of ModelExpress.

    Attributes:
        kind: Of its instances.
        short: Their short names.
        columns: What `kubectl get` shows of them.
        schema: The type of each field by its path; a star for what must be there, the values of an enumeration.
    """

    kind: str
    short: list[str]
    columns: list[str]
    schema: dict[str, str]


DEFINITIONS = {
    "modelmetadatas": Definition(
        kind="ModelMetadata",
        short=["mxmeta", "mm"],
        columns=["Model", "Type", "Age"],
        schema={
            "spec.modelName": "string*",
            "spec.sourceType": "string",
            "status.worker.workerRank": "integer*",
            "status.worker.backendType": "nixl|transfer_engine|none",
            "status.worker.nixlMetadata": "string",
            "status.worker.transferEngineSessionId": "string",
            "status.worker.tensorCount": "integer",
            "status.worker.tensorConfigMap": "string",
            "status.worker.metadataEndpoint": "string",
            "status.worker.agentName": "string",
            "status.worker.workerGrpcEndpoint": "string",
            "status.worker.accelerator": "string",
            "status.worker.artifactSource.artifactId": "string",
            "status.worker.artifactSource.totalSize": "integer",
            "status.worker.artifactSource.fileCount": "integer",
            "status.worker.artifactSource.chunkCount": "integer",
            "status.worker.artifactSource.nodeRank": "integer",
            "status.worker.status": "Unknown|Initializing|Ready|Stale=Unknown",
            "status.worker.updatedAt": "string",
            "status.conditions[].type": "Ready*",
            "status.conditions[].status": "True|False|Unknown*",
            "status.conditions[].reason": "string",
            "status.conditions[].message": "string",
            "status.conditions[].lastTransitionTime": "string",
            "status.observedGeneration": "integer",
            "status.publishedAt": "string",
        },
    ),
    "modelcacheentries": Definition(
        kind="ModelCacheEntry",
        short=["mxcache"],
        columns=["Model", "Phase", "LastUsed", "Age"],
        schema={
            "spec.modelName": "string*",
            "spec.provider": "HuggingFace|Ngc*",
            "status.phase": "|Downloading|Downloaded|Error",
            "status.createdAt": "string",
            "status.lastUsedAt": "string",
            "status.message": "string",
        },
    ),
}
TABLE = {
    "gateway": GATEWAY_ROWS,
    "queues": QUEUE_ROWS,
    "modelexpress": (*DEFINITION_ROWS, *SERVER_ROWS),
}
