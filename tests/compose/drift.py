"""What others may do to each composed object: the edits that tests make, and how they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import JSON_PATCH, MERGE_PATCH
from functions.compose.ownership import ADOPT, OWNER
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, step_of

if TYPE_CHECKING:
    from functions.compose.step import Step
    from functions.local.api import Api

HTTP = {"name": "http", "protocol": "HTTP", "port": 80}
NAMESPACE = step_of(GATEWAY, "Namespace modelplane-system")
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
POLICY = step_of(GATEWAY, "ClientTrafficPolicy cluster-gateway-client-auth")
CLIENT_CAS = step_of(GATEWAY, "ConfigMap modelplane-inference-gateway-cas")
MODEL_METADATAS = step_of(MODELEXPRESS, "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com")
DEPLOYMENT = step_of(MODELEXPRESS, "Deployment modelexpress-server")
ALL = [(one, each) for one in (GATEWAY, QUEUES, MODELEXPRESS) for each in one.steps if each.manifest is not None]
"""Each object that is composed, with its set."""


def _add(path: str, value: Any) -> list[dict[str, Any]]:
    return [{"op": "add", "path": path, "value": value}]


def _replace(path: str, value: Any) -> list[dict[str, Any]]:
    return [{"op": "replace", "path": path, "value": value}]


def _remove(path: str) -> list[dict[str, Any]]:
    return [{"op": "remove", "path": path}]


_LISTENER = "/spec/listeners/0"
_VALIDATION = "/spec/tls/clientValidation"
_POD = "/spec/template/spec"
_CONTAINER = f"{_POD}/containers/0"
_OTHER_GATEWAY = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "other"}
_FOREIGN_ROLE = {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}
VERSION = {
    "name": "v1beta1",
    "served": True,
    "storage": False,
    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
_SCHEMA = "/spec/versions/0/schema/openAPIV3Schema"

_STRIPPED = {"metadata": {"labels": {OWNER: None}}}
EDITS: dict[str, dict[str, Any]] = {
    "Namespace modelplane-system": {
        "routes-label": {"metadata": {"labels": {"modelplane.ai/namespace": "other"}}},
        "no-routes-label": {"metadata": {"labels": {"modelplane.ai/namespace": None}}},
    },
    "EnvoyProxy cluster-gateway": {
        "policy": _replace("/spec/provider/kubernetes/envoyService/externalTrafficPolicy", "Local"),
        "replicas": _add("/spec/provider/kubernetes/envoyDeployment", {"replicas": 5}),
        "logging": _add("/spec/logging", {"level": {"default": "debug"}}),
        "empty": _replace("/spec", {}),
    },
    "GatewayClass envoy": {
        "other-parameters": _replace("/spec/parametersRef/name", "other"),
        "no-parameters": _remove("/spec/parametersRef"),
        "description": _add("/spec/description", "theirs"),
        "handed-over": {"metadata": {"annotations": {ADOPT: "true"}}},
    },
    "Issuer modelplane-selfsigned": {
        "within": _add("/spec/selfSigned/crlDistributionPoints", ["http://example.com"]),
        "other-type": {"spec": {"selfSigned": None, "ca": {"secretName": "other"}}},
    },
    "Certificate modelplane-cluster-ca": {
        "no-ca": _replace("/spec/isCA", value=False),
        "other-secret": _replace("/spec/secretName", "other"),
        "names": _add("/spec/dnsNames", ["example.com"]),
    },
    "Issuer modelplane-cluster-ca": {"other-secret": _replace("/spec/ca/secretName", "other")},
    "Certificate cluster-gateway-serving": {
        "one-more-name": _add("/spec/dnsNames/-", "example.com"),
        "other-name": _replace("/spec/dnsNames", ["example.com"]),
        "addresses": _add("/spec/ipAddresses", ["203.0.113.7"]),
        "other-issuer": _replace("/spec/issuerRef/name", "other"),
        "duration": _replace("/spec/duration", "8760h"),
        "key": {"spec": {"privateKey": {"algorithm": "RSA", "size": 2048}}},
    },
    "Bundle modelplane-cluster-ca": {
        "one-more-source": _add("/spec/sources/-", {"inLine": "theirs"}),
        "other-source": _replace("/spec/sources", [{"configMap": {"name": "other", "key": "ca.crt"}}]),
        "another-key": {"spec": {"target": {"configMap": {"key": "other.crt"}}}},
        "everywhere": _remove("/spec/target/namespaceSelector"),
    },
    "ConfigMap modelplane-inference-gateway-cas": {
        "one-more-key": {"data": {"more.crt": "theirs"}},
        "one-more-ca": {"data": {"ca.crt": "theirs"}},
        "no-ca": {"data": {"ca.crt": None}},
        "nothing": {"data": None},
        "binary": {"binaryData": {"more": "AAAA"}},
    },
    "ClientTrafficPolicy cluster-gateway-client-auth": {
        "optional": _add(f"{_VALIDATION}/optional", value=True),
        "no-validation": _remove(_VALIDATION),
        "no-tls": {"spec": {"tls": None}},
        "another-gateway": _replace("/spec/targetRefs/0/name", "other"),
        "another-section": _replace("/spec/targetRefs/0/sectionName", "http"),
        "no-section": _remove("/spec/targetRefs/0/sectionName"),
        "one-more-target": _add("/spec/targetRefs/-", _OTHER_GATEWAY),
        "other-authority": _replace(f"{_VALIDATION}/caCertificateRefs/0/name", "other"),
        "authority-elsewhere": _add(f"{_VALIDATION}/caCertificateRefs/0/namespace", "default"),
        "one-more-authority": _add(
            f"{_VALIDATION}/caCertificateRefs/-", {"kind": "ConfigMap", "group": "", "name": "other"}
        ),
        "old-tls": _add("/spec/tls/minVersion", "1.0"),
        "proxy-protocol": _add("/spec/enableProxyProtocol", value=True),
    },
    "Gateway cluster-gateway": {
        "one-more-listener": _add("/spec/listeners/-", HTTP),
        "other-listeners": _replace("/spec/listeners", [HTTP]),
        "two-more-listeners": [
            *_add("/spec/listeners/0", HTTP),
            *_add("/spec/listeners/-", {**HTTP, "name": "x", "port": 81}),
        ],
        "another-in-its-place": [
            *_replace(f"{_LISTENER}/name", "http"),
            *_replace(f"{_LISTENER}/allowedRoutes", {"namespaces": {"from": "All"}}),
        ],
        "other-host": _replace(f"{_LISTENER}/hostname", "example.com"),
        "any-host": _remove(f"{_LISTENER}/hostname"),
        "passthrough": [
            *_replace(f"{_LISTENER}/tls", {"mode": "Passthrough"}),
            *_replace(f"{_LISTENER}/protocol", "TLS"),
        ],
        "other-certificate": _replace(f"{_LISTENER}/tls/certificateRefs/0/name", "other"),
        "certificate-elsewhere": _add(f"{_LISTENER}/tls/certificateRefs/0/namespace", "default"),
        "options": _add(f"{_LISTENER}/tls/options", {"example.com/x": "y"}),
        "all-routes": _replace(f"{_LISTENER}/allowedRoutes", {"namespaces": {"from": "All"}}),
        "other-routes": _add(f"{_LISTENER}/allowedRoutes/namespaces/selector/matchLabels", {"a": "b"}),
        "some-kinds": _add(f"{_LISTENER}/allowedRoutes/kinds", [{"kind": "HTTPRoute"}]),
        "port": _replace(f"{_LISTENER}/port", 8443),
        "class": _replace("/spec/gatewayClassName", "other"),
        "address": _add("/spec/addresses", [{"value": "203.0.113.7"}]),
        "labels-of-the-proxy": _add("/spec/infrastructure", {"labels": {"a": "b"}}),
    },
    "Queue modelplane-root": {
        "limit": _replace("/spec/resources/gpu/limit", 1),
        "parent": _add("/spec/parentQueue", "other"),
        "priority": _add("/spec/priority", 7),
    },
    "Queue modelplane": {
        "quota": {"spec": {"resources": {"cpu": {"quota": 7}, "memory": None}}},
        "parent": _replace("/spec/parentQueue", "other"),
        "no-parent": _remove("/spec/parentQueue"),
    },
    "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com": {
        "property": _add(f"{_SCHEMA}/properties/spec/properties/extra", {"type": "string"}),
        "anything": _add(f"{_SCHEMA}/properties/spec/x-kubernetes-preserve-unknown-fields", value=True),
        "one-more-version": _add("/spec/versions/-", VERSION),
        "categories": _add("/spec/names/categories", ["all"]),
        "no-short-names": _remove("/spec/names/shortNames"),
    },
    "CustomResourceDefinition modelcacheentries.modelexpress.nvidia.com": {
        "columns": _remove("/spec/versions/0/additionalPrinterColumns"),
        "optional": _replace(f"{_SCHEMA}/properties/spec/required", ["modelName"]),
    },
    "ServiceAccount modelexpress-server": {
        "no-token": {"automountServiceAccountToken": False},
        "pull-secrets": {"imagePullSecrets": [{"name": "theirs"}]},
    },
    "Role modelexpress-server": {
        "one-more-rule": _add("/rules/-", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}),
        "one-more-resource": _add("/rules/0/resources/-", "secrets"),
        "any-verb": _replace("/rules/1/verbs", ["*"]),
        "some-names": _add("/rules/1/resourceNames", ["theirs"]),
        "nothing": {"rules": None},
    },
    "RoleBinding modelexpress-server": {
        "one-more-subject": _add("/subjects/-", _FOREIGN_ROLE),
        "other-subject": _replace("/subjects/0/name", "other"),
        "nobody": {"subjects": None},
    },
    "Service modelexpress-server": {
        "other-port": _replace("/spec/ports/0/port", 80),
        "other-target": _replace("/spec/ports/0/targetPort", 80),
        "one-more-port": _add("/spec/ports/-", {"name": "x", "port": 80}),
        "other-pods": _replace("/spec/selector", {"app": "theirs"}),
        "fewer-pods": _add("/spec/selector/app", "theirs"),
        "type": _replace("/spec/type", "NodePort"),
        "addresses": _add("/spec/externalIPs", ["203.0.113.7"]),
    },
    "Deployment modelexpress-server": {
        "image": _replace(f"{_CONTAINER}/image", "example.com/theirs"),
        "replicas": _replace("/spec/replicas", 0),
        "scaled": {"spec": {"replicas": 3}},
        "other-value": _replace(f"{_CONTAINER}/env/0/value", "theirs"),
        "one-more-variable": _add(f"{_CONTAINER}/env/-", {"name": "X", "value": "theirs"}),
        "no-variables": _remove(f"{_CONTAINER}/env"),
        "from-elsewhere": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
        "one-more-container": _add(f"{_POD}/containers/0", {"name": "theirs", "image": "example.com/theirs"}),
        "before-it": _add(f"{_POD}/initContainers", [{"name": "theirs", "image": "example.com/theirs"}]),
        "host-network": _add(f"{_POD}/hostNetwork", value=True),
        "account": _replace(f"{_POD}/serviceAccountName", "default"),
        "user": _add(f"{_CONTAINER}/securityContext", {"runAsUser": 0}),
        "arguments": _add(f"{_CONTAINER}/args", ["--theirs"]),
        "probe": _replace(f"{_CONTAINER}/readinessProbe/periodSeconds", 99),
        "restarted": _add("/spec/template/metadata/annotations", {"kubectl.kubernetes.io/restartedAt": "now"}),
        "strategy": _replace("/spec/strategy", {"type": "Recreate"}),
    },
}
"""Patches of the content by the step's key: a JSON patch where it is a list, else a merge patch."""


def patch(api: Api, step: Step, edit: Any) -> None:
    """Makes an edit as somebody else."""
    media_type = JSON_PATCH if isinstance(edit, list) else MERGE_PATCH
    answer = api.request("PATCH", f"{step.path}?fieldManager=kubectl-edit", edit, content_type=media_type)
    assert answer.status == 200, answer


def edits() -> list[Any]:
    """Each edit with the set and the step, as parameters of a test."""
    found = []
    for composition, step in ALL:
        some = EDITS[step.key] if step.shared else {**EDITS[step.key], "owner-label": _STRIPPED}
        found += [pytest.param(composition, step, edit, id=f"{step.key} {name}") for name, edit in some.items()]
    return found


def objects() -> list[Any]:
    """Each object with its set, as parameters of a test; the Namespace apart, whose going takes the others along."""
    return [pytest.param(composition, step, id=step.key) for composition, step in ALL if not step.shared]


def content(found: dict[str, Any]) -> dict[str, Any]:
    """What is ours to keep of an object: all but its status and the metadata that the API server or others write."""
    kept = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    metadata = {key: found["metadata"].get(key) for key in ("name", "namespace")}
    metadata |= {key: found["metadata"].get(key) or {} for key in ("labels", "annotations")}
    return {**kept, "metadata": metadata}
