"""An object of somebody else's for each that we compose, of the same kind and name."""

from __future__ import annotations

import asyncio
import shlex
from time import monotonic
from typing import TYPE_CHECKING, Any

from functions.compose.sets import COMPOSITIONS
from tests.compose.apart import MERGE
from tests.support import crd_manifest

if TYPE_CHECKING:
    from functions.compose.step import Composition, Step
    from functions.local.api import Api

SOMEBODY = "somebody"
"""Field manager of what is planted."""
ADOPT = "modelplane.ai/adopt"
WITHIN = 60.0
"""Seconds that anything may take."""
_FIXED = {"issuerRef": {"name": "theirs", "kind": "ClusterIssuer"}}


def _definition(plural: str, kind: str, scope: str = "Namespaced") -> dict[str, Any]:
    content = crd_manifest(f"{plural}.modelexpress.nvidia.com", "v1alpha1")
    content["spec"]["scope"] = scope
    content["spec"]["names"] |= {"kind": kind, "listKind": f"{kind}List", "singular": kind.lower()}
    return {"spec": content["spec"]}


def _deployment(*, label: str = "modelexpress-server") -> dict[str, Any]:
    labels = {"modelplane.ai/modelexpress": label}
    container = {"name": "theirs", "image": "example.com/theirs:1", "args": ["--verbose"]}
    template = {"metadata": {"labels": {**labels, "team": "theirs"}}, "spec": {"containers": [container]}}
    return {"spec": {"replicas": 3, "paused": True, "selector": {"matchLabels": labels}, "template": template}}


def _role_binding(*, role: str = "modelexpress-server") -> dict[str, Any]:
    return {
        "subjects": [{"kind": "User", "name": "theirs", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
    }


def _gateway_class(*, controller: str = "gateway.envoyproxy.io/gatewayclass-controller") -> dict[str, Any]:
    return {"spec": {"controllerName": controller, "description": "theirs"}}


def _policy() -> dict[str, Any]:
    target = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "theirs"}
    return {"spec": {"targetRefs": [target], "enableProxyProtocol": True}}


def _gateway(name: str = "theirs") -> dict[str, Any]:
    return {"spec": {"gatewayClassName": name, "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]}}


def _bundle() -> dict[str, Any]:
    selector = {"matchLabels": {"kubernetes.io/metadata.name": "modelplane-system"}}
    target = {"configMap": {"key": "theirs.pem"}, "namespaceSelector": selector}
    return {"spec": {"sources": [{"useDefaultCAs": True}], "target": target}}


def _queue() -> dict[str, Any]:
    share = {"quota": 1, "limit": 2, "overQuotaWeight": 3}
    return {"spec": {"displayName": "theirs", "priority": 7, "resources": {"cpu": share}}}


THEIRS: dict[str, dict[str, Any]] = {
    "EnvoyProxy cluster-gateway": {"spec": {"logging": {"level": {"default": "debug"}}}},
    "GatewayClass envoy": _gateway_class(),
    "Issuer modelplane-selfsigned": {"spec": {"selfSigned": {"crlDistributionPoints": ["http://example.com/crl"]}}},
    "Certificate modelplane-cluster-ca": {
        "spec": {"secretName": "theirs", "commonName": "theirs", "usages": ["cert sign"], **_FIXED}
    },
    "Issuer modelplane-cluster-ca": {"spec": {"ca": {"secretName": "theirs"}}},
    "Certificate cluster-gateway-serving": {
        "spec": {"secretName": "theirs", "dnsNames": ["example.com"], "usages": ["server auth"], **_FIXED}
    },
    "Bundle modelplane-cluster-ca": _bundle(),
    "ConfigMap modelplane-inference-gateway-cas": {"data": {"ca.crt": "theirs", "more": "theirs"}},
    "ClientTrafficPolicy cluster-gateway-client-auth": _policy(),
    "Gateway cluster-gateway": _gateway(),
    "Queue modelplane-root": _queue(),
    "Queue modelplane": _queue(),
    "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com": _definition("modelmetadatas", "ModelMetadata"),
    "CustomResourceDefinition modelcacheentries.modelexpress.nvidia.com": _definition(
        "modelcacheentries", "ModelCacheEntry"
    ),
    "ServiceAccount modelexpress-server": {"automountServiceAccountToken": False},
    "Role modelexpress-server": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    "RoleBinding modelexpress-server": _role_binding(),
    "Service modelexpress-server": {
        "spec": {"selector": {"app": "theirs"}, "ports": [{"name": "http", "port": 80}], "sessionAffinity": "ClientIP"}
    },
    "Deployment modelexpress-server": _deployment(),
}
"""What is in each, by the keys of the steps; all of it can be made ours."""

IMMUTABLE: dict[str, dict[str, Any]] = {
    "GatewayClass envoy": _gateway_class(controller="example.com/theirs"),
    "RoleBinding modelexpress-server": _role_binding(role="theirs"),
    "Deployment modelexpress-server": _deployment(label="theirs"),
    "CustomResourceDefinition modelmetadatas.modelexpress.nvidia.com": _definition(
        "modelmetadatas", "ModelMetadata", scope="Cluster"
    ),
}
"""What can never be made ours."""

_SPOKEN_OF = {"GatewayClass", "Gateway", "Certificate", "Deployment", "CustomResourceDefinition"}
"""Kinds that a controller sets conditions of."""

BY_KEY: dict[str, tuple[Composition, Step]] = {
    each.key: (one, each) for one in COMPOSITIONS for each in one.steps if each.manifest is not None
}


def plant(api: Api, step: Step, content: dict[str, Any]) -> dict[str, Any]:
    """Somebody makes an object of this kind and name; answers with it."""
    metadata = {"name": step.name, **({"namespace": step.namespace} if step.namespace else {})}
    if step.namespace:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": step.namespace}}
        api.request("POST", "/api/v1/namespaces", namespace)
    manifest = {"apiVersion": step.kind.api_version, "kind": step.kind.name, "metadata": metadata, **content}
    collection = step.kind.path(namespace=step.namespace)
    answer = api.request("POST", f"{collection}?fieldManager={SOMEBODY}", manifest)
    assert answer.status == 201, answer
    return dict(answer.body)


async def settled(api: Api, step: Step) -> dict[str, Any]:
    """An object once its controller, or a stand-in for it, has said what it has to say."""
    deadline = monotonic() + WITHIN
    while True:
        found = dict(api.request("GET", step.path).body)
        status, generation = found.get("status") or {}, found["metadata"].get("generation")
        said = any(each["status"] == "True" for each in status.get("conditions") or ())
        if step.kind.name not in _SPOKEN_OF or (said and status.get("observedGeneration", generation) == generation):
            return found
        assert monotonic() < deadline, f"nobody says anything of {step}"
        await asyncio.sleep(0.02)


def theirs(found: dict[str, Any] | None) -> dict[str, Any]:
    """All of an object but what its controller writes to it time and again."""
    assert found is not None
    metadata = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    metadata["managedFields"] = [each for each in metadata["managedFields"] if each["manager"] != "stand-in"]
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": metadata}


def carry_out(api: Api, command: str) -> None:
    """Does what `kubectl annotate` would."""
    program, verb, resource, name, *rest = shlex.split(command)
    assert (program, verb) == ("kubectl", "annotate")
    namespace = ""
    if rest[0] == "-n":
        _, namespace, *rest = rest
    (annotation,) = rest
    key, _, value = annotation.partition("=")
    kind = next(each.kind for _, each in BY_KEY.values() if resource in {each.kind.definition, each.kind.plural})
    patch = {"metadata": {"annotations": {key: value}}}
    path = f"{kind.path(name, namespace)}?fieldManager=kubectl-annotate"
    assert api.request("PATCH", path, patch, content_type=MERGE).status == 200
