"""The inference gateway of a cluster with its PKI: namespace, class, Gateway, certificates, and who may call it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from functions.catalog import Stack
from functions.compose import kinds
from functions.compose.leftovers import foreign_class, foreign_gateway, foreign_gateways, foreign_in_namespace
from functions.compose.readiness import CA_KEY, accepted_by_an_ancestor, condition, has_address, holds_a_ca
from functions.compose.step import Composition, Step

if TYPE_CHECKING:
    from functions.compose.step import Inputs, Manifest

NAMESPACE: Final = "modelplane-system"
CLASS: Final = "envoy"
GATEWAY: Final = "cluster-gateway"
SERVING: Final = "cluster-gateway-serving"
CLUSTER_CA: Final = "modelplane-cluster-ca"
SELF_SIGNED: Final = "modelplane-selfsigned"
CLIENT_CAS: Final = "modelplane-inference-gateway-cas"
CLIENT_AUTH: Final = "cluster-gateway-client-auth"
ROUTES_FROM: Final = "modelplane.ai/namespace"
"""Label of the namespaces whose routes the listener takes."""
_LONGEST_COMMON_NAME: Final = 64


def _namespace(_: Inputs) -> Manifest:
    return {"metadata": {"labels": {ROUTES_FROM: NAMESPACE}}}


def _envoy_proxy(_: Inputs) -> Manifest:
    # With the default, Local, some load balancers never hand out an address; nobody here needs the source address.
    service = {"externalTrafficPolicy": "Cluster"}
    return {"spec": {"provider": {"type": "Kubernetes", "kubernetes": {"envoyService": service}}}}


def _gateway_class(_: Inputs) -> Manifest:
    return {
        "spec": {
            "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "parametersRef": {
                "group": kinds.ENVOY_PROXY.group,
                "kind": kinds.ENVOY_PROXY.name,
                "name": GATEWAY,
                "namespace": NAMESPACE,
            },
        }
    }


def _self_signed(_: Inputs) -> Manifest:
    return {"spec": {"selfSigned": {}}}


def _cluster_ca(inputs: Inputs) -> Manifest:
    return {
        "spec": {
            "isCA": True,
            "commonName": f"modelplane cluster CA {inputs.hostname}"[:_LONGEST_COMMON_NAME],
            "secretName": CLUSTER_CA,
            "duration": "87600h",
            "renewBefore": "8760h",
            "privateKey": {"algorithm": "ECDSA", "size": 256},
            "issuerRef": _issuer(SELF_SIGNED),
        }
    }


def _ca_issuer(_: Inputs) -> Manifest:
    return {"spec": {"ca": {"secretName": CLUSTER_CA}}}


def _serving_certificate(inputs: Inputs) -> Manifest:
    return {
        "spec": {
            "secretName": SERVING,
            "dnsNames": [inputs.hostname],
            "duration": "2160h",
            "renewBefore": "720h",
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "issuerRef": _issuer(CLUSTER_CA),
        }
    }


def _issuer(name: str) -> dict[str, Any]:
    return {"name": name, "kind": kinds.ISSUER.name, "group": kinds.ISSUER.group}


def _bundle(_: Inputs) -> Manifest:
    # The control plane reads the ConfigMap, so that it never has to read a Secret that holds a key as well.
    return {
        "spec": {
            "sources": [{"secret": {"name": CLUSTER_CA, "key": CA_KEY}}],
            "target": {
                "configMap": {"key": CA_KEY},
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
            },
        }
    }


def _client_cas(inputs: Inputs) -> Manifest:
    return {"data": {CA_KEY: inputs.client_cas.bundle}}


def _client_auth(_: Inputs) -> Manifest:
    target = {"group": kinds.GATEWAY.group, "kind": kinds.GATEWAY.name, "name": GATEWAY, "sectionName": "https"}
    authorities = [{"kind": kinds.CONFIG_MAP.name, "group": "", "name": CLIENT_CAS}]
    # Said though it is the default: what nobody applied, an admission webhook may add without anybody owning it.
    validation = {"optional": False, "caCertificateRefs": authorities}
    return {"spec": {"targetRefs": [target], "tls": {"clientValidation": validation}}}


def _gateway(inputs: Inputs) -> Manifest:
    # One listener and no other: routes name none, so that a second one would serve callers who show no certificate.
    selector = {"matchExpressions": [{"key": ROUTES_FROM, "operator": "Exists"}]}
    listener = {
        "name": "https",
        "protocol": "HTTPS",
        "port": 443,
        "hostname": inputs.hostname,
        "tls": {"mode": "Terminate", "certificateRefs": [{"name": SERVING}]},
        "allowedRoutes": {"namespaces": {"from": "Selector", "selector": selector}},
    }
    return {"spec": {"gatewayClassName": CLASS, "listeners": [listener]}}


_in_namespace: Final = partial(Step, namespace=NAMESPACE)
_proxy: Final = partial(_in_namespace, needs=("envoy-gateway",))
_pki: Final = partial(_in_namespace, needs=("cert-manager",))
_key = "{} {}".format

COMPOSITION: Final = Composition(
    name="gateway",
    condition="GatewayComposed",
    stacks=frozenset(Stack),
    steps=(
        Step(kind=kinds.NAMESPACE, name=NAMESPACE, manifest=_namespace, shared=True, keep=foreign_in_namespace),
        _proxy(
            kind=kinds.ENVOY_PROXY,
            name=GATEWAY,
            manifest=_envoy_proxy,
            after=(_key("Namespace", NAMESPACE),),
            keep=foreign_class,
        ),
        Step(
            kind=kinds.GATEWAY_CLASS,
            name=CLASS,
            manifest=_gateway_class,
            needs=("envoy-gateway",),
            after=(_key("EnvoyProxy", GATEWAY),),
            ready=condition("Accepted"),
            keep=foreign_gateways,
        ),
        _pki(kind=kinds.ISSUER, name=SELF_SIGNED, manifest=_self_signed, after=(_key("Namespace", NAMESPACE),)),
        _pki(kind=kinds.SECRET, name=CLUSTER_CA, made_for=_key("Certificate", CLUSTER_CA)),
        _pki(
            kind=kinds.CERTIFICATE,
            name=CLUSTER_CA,
            manifest=_cluster_ca,
            after=(_key("Issuer", SELF_SIGNED),),
            ready=condition("Ready"),
        ),
        _pki(kind=kinds.ISSUER, name=CLUSTER_CA, manifest=_ca_issuer, awaits=(_key("Certificate", CLUSTER_CA),)),
        _pki(kind=kinds.SECRET, name=SERVING, made_for=_key("Certificate", SERVING)),
        _pki(
            kind=kinds.CERTIFICATE,
            name=SERVING,
            manifest=_serving_certificate,
            after=(_key("Issuer", CLUSTER_CA),),
            ready=condition("Ready"),
        ),
        Step(
            kind=kinds.BUNDLE,
            name=CLUSTER_CA,
            manifest=_bundle,
            needs=("trust-manager",),
            awaits=(_key("Certificate", CLUSTER_CA),),
            ready=condition("Synced"),
        ),
        _in_namespace(kind=kinds.CONFIG_MAP, name=CLUSTER_CA, after=(_key("Bundle", CLUSTER_CA),), ready=holds_a_ca),
        _proxy(
            kind=kinds.CONFIG_MAP,
            name=CLIENT_CAS,
            manifest=_client_cas,
            client_ca=True,
            after=(_key("Namespace", NAMESPACE),),
            keep=foreign_gateway,
        ),
        _proxy(
            kind=kinds.CLIENT_TRAFFIC_POLICY,
            name=CLIENT_AUTH,
            manifest=_client_auth,
            client_ca=True,
            after=(_key("ConfigMap", CLIENT_CAS),),
            ready=accepted_by_an_ancestor,
            keep=foreign_gateway,
        ),
        _in_namespace(
            kind=kinds.GATEWAY,
            name=GATEWAY,
            manifest=_gateway,
            needs=("envoy-gateway", "ai-gateway-crds", "gaie-crds"),
            client_ca=True,
            guarded=True,
            after=(_key("ConfigMap", CLIENT_CAS), _key("ClientTrafficPolicy", CLIENT_AUTH)),
            awaits=(_key("GatewayClass", CLASS), _key("Certificate", SERVING)),
            ready=has_address,
        ),
    ),
)
