from __future__ import annotations

import uuid

import pytest

from functions.watch.object_events import guessed_plural, object_changed
from functions.watch.reflector import Key, Resource, Verb
from tests.support import EPOCH

DEVICE_CLASSES = Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses")
CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")


@pytest.mark.parametrize(
    ("resource", "key", "cluster", "subject", "data"),
    [
        pytest.param(
            DEVICE_CLASSES,
            Key("", "gpu.nvidia.com"),
            "gpu-1",
            "/apis/resource.k8s.io/v1/namespaces//deviceclasses/gpu.nvidia.com",
            b'{"kind":"DeviceClass","name":"gpu.nvidia.com","apiVersion":"resource.k8s.io/v1"}',
            id="cluster-scoped",
        ),
        pytest.param(
            CONFIG_MAPS,
            Key("default", "cm1"),
            None,
            "/apis/v1/namespaces/default/configmaps/cm1",
            b'{"kind":"ConfigMap","namespace":"default","name":"cm1","apiVersion":"v1"}',
            id="core-and-namespaced",
        ),
    ],
)
def test_an_event_is_what_apiserversource_sends(
    resource: Resource, key: Key, cluster: str | None, subject: str, data: bytes
) -> None:
    event = object_changed("add", resource, key, server="https://10.96.0.1:443", cluster=cluster, now=EPOCH)
    assert (event.source, event.subject, event.data) == ("https://10.96.0.1:443", subject, data)
    assert (event.datacontenttype, event.time) == ("application/json", EPOCH)
    expected = {
        "kind": resource.kind,
        "apiversion": resource.api_version,
        "name": key.name,
        "namespace": key.namespace,
    }
    assert event.extensions == (expected if cluster is None else {**expected, "cluster": cluster})
    assert uuid.UUID(event.id).version == 4


@pytest.mark.parametrize("verb", ["add", "update", "delete"])
def test_the_type_says_what_happened(verb: Verb) -> None:
    event = object_changed(verb, CONFIG_MAPS, Key("ns", "a"), server="s", cluster=None, now=EPOCH)
    assert event.type == f"dev.knative.apiserver.ref.{verb}"


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Gateway", "gatewaies"),
        ("DeviceClass", "deviceclasses"),
        ("CustomResourceDefinition", "customresourcedefinitions"),
        ("Endpoints", "endpoints"),
        ("NetworkPolicy", "networkpolicies"),
    ],
)
def test_the_plural_is_guessed_as_kubernetes_guesses_it(kind: str, plural: str) -> None:
    assert guessed_plural(kind) == plural


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        (Resource("v1", "Secret", "secrets", "modelplane-system"), "/api/v1/namespaces/modelplane-system/secrets"),
        (DEVICE_CLASSES, "/apis/resource.k8s.io/v1/deviceclasses"),
    ],
    ids=["core-in-a-namespace", "group-in-the-cluster"],
)
def test_the_path_is_the_real_one(resource: Resource, path: str) -> None:
    assert resource.path == path
