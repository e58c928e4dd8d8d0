"""The worked examples are what Knative takes, and their transformations say what is meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from events import types
from tests.provisioning.examples import (
    FILES,
    FOLDER,
    TRANSFORMED,
    cluster_api,
    crossplane,
    documents,
    event_bus,
    of_kind,
    transformed,
)

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = {
    "ServiceAccount": "v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "RoleBinding": "rbac.authorization.k8s.io/v1",
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "ApiServerSource": "sources.knative.dev/v1",
    "IntegrationSource": "sources.knative.dev/v1alpha1",
    "EventTransform": "eventing.knative.dev/v1alpha1",
    "EventPolicy": "eventing.knative.dev/v1alpha1",
    "Broker": "eventing.knative.dev/v1",
}
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding"}
BROKER = ("Broker", "modelplane-serving-stack", "serving-stack")
files = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))


def references(value: Any, namespace: str) -> list[tuple[str, str, str]]:
    """Kind, namespace and name of everything that a `ref` or `roleRef` in it names; its version is checked here."""
    found = []
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "ref":
                assert each["apiVersion"] == VERSIONS[each["kind"]], each
                found.append((each["kind"], each.get("namespace", namespace), each["name"]))
            elif key == "roleRef":
                found.append((each["kind"], "" if each["kind"] in CLUSTER_SCOPED else namespace, each["name"]))
            else:
                found += references(each, namespace)
    elif isinstance(value, list):
        found += [one for each in value for one in references(each, namespace)]
    return found


def guessed(kind: str) -> str:
    """The plural that an ApiServerSource takes a kind to have."""
    kind = kind.lower()
    return f"{kind}es" if kind.endswith("s") else f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


@files
def test_every_object_is_of_a_version_that_knative_serves_and_in_a_namespace(file: Path) -> None:
    found = [each for each in yaml.safe_load_all(file.read_text()) if each is not None]
    assert found
    for each in found:
        assert each["apiVersion"] == VERSIONS[each["kind"]], each
        assert ("namespace" in each["metadata"]) is (each["kind"] not in CLUSTER_SCOPED), each


@files
def test_what_is_referred_to_is_there(file: Path) -> None:
    found = [each for each in yaml.safe_load_all(file.read_text()) if each is not None]
    there = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in found}
    for each in found:
        metadata = each["metadata"]
        named = references(
            {key: value for key, value in each.items() if key != "metadata"}, metadata.get("namespace", "")
        )
        assert set(named) <= there | {BROKER}, metadata
        for account in re.findall(r"'serviceAccountName': '([^']+)'", str(each)):
            assert ("ServiceAccount", metadata["namespace"], account) in there


@pytest.mark.parametrize("example", ["cluster-api", "crossplane"])
def test_a_source_may_watch_what_it_watches_and_guesses_its_plural_right(example: str) -> None:
    path = f"{example}.yaml"
    (source,) = of_kind(path, "ApiServerSource")
    (resource,) = source["spec"]["resources"]
    (role,) = of_kind(path, "Role") + of_kind(path, "ClusterRole")
    assert role["rules"] == [
        {
            "apiGroups": [resource["apiVersion"].partition("/")[0]],
            "resources": [guessed(resource["kind"])],
            "verbs": ["get", "list", "watch"],
        }
    ]
    selector = source["spec"].get("namespaceSelector")
    if role["kind"] == "Role":  # one namespace; where it is cluster-scoped, no selector at all
        assert selector == {"matchLabels": {"kubernetes.io/metadata.name": role["metadata"]["namespace"]}}
    else:
        assert selector is None


@files
def test_who_may_send_may_say_nothing_but_what_is_transformed(file: Path) -> None:
    path = str(file.relative_to(FOLDER))
    policies = of_kind(path, "EventPolicy")
    assert policies
    for policy in policies:
        assert policy["spec"]["from"], "nobody may send"
        (to,) = policy["spec"]["to"]
        if to["ref"]["kind"] == "Broker":
            allowed = set(re.findall(r"'type': '([^']+)'", str(policy["spec"]["filters"])))
            said = set(re.findall(r'"((?:ai\.modelplane|io\.)[^"]+)"', file.read_text())) or {types.PROVISIONED}
            assert allowed == said
            assert types.PROVISIONED in allowed
    assert "''" not in str([each["spec"].get("filters") for each in policies]), "an empty value lets everything pass"


def test_every_example_transforms_into_the_broker() -> None:
    for example in TRANSFORMED:
        (transform,) = of_kind(f"{example}.yaml", "EventTransform")
        assert transform["spec"]["sink"]["ref"]["name"] == "serving-stack"


def provisioned(source: str, identity: str, time: str, data: dict[str, Any]) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": identity,
        "source": source,
        "type": "ai.modelplane.cluster.provisioned",
        "subject": "gpu-1",
        "time": time,
        "datacontenttype": "application/json",
        "cluster": "gpu-1",
        "partitionkey": "gpu-1",
        "data": data,
    }


def test_an_initialized_cluster_of_cluster_api_is_provisioned() -> None:
    event = cluster_api()
    data = {"cluster": "gpu-1", "secretRef": {"name": "gpu-1-kubeconfig", "key": "value"}}
    assert transformed("cluster-api", event) == provisioned(
        "/provisioning/cluster-api", event["id"], event["time"], data
    )


def test_a_ready_composite_resource_is_provisioned() -> None:
    event = crossplane()
    data = {"cluster": "gpu-1", "secretRef": {"name": "gpu-1"}}
    assert transformed("crossplane", event) == provisioned("/provisioning/crossplane", event["id"], event["time"], data)
    unnamed = transformed("crossplane", crossplane(named=False))
    assert unnamed["data"] == {"cluster": "gpu-1"}


DELETING = {"deletionTimestamp": "2026-12-01T04:00:00Z"}


@pytest.mark.parametrize(
    ("example", "event"),
    [
        pytest.param("cluster-api", cluster_api("False"), id="Cluster API: not initialized"),
        pytest.param("cluster-api", cluster_api(None), id="Cluster API: no such condition"),
        pytest.param("cluster-api", cluster_api(metadata=DELETING), id="Cluster API: being deleted"),
        pytest.param("cluster-api", cluster_api(type="dev.knative.apiserver.resource.delete"), id="Cluster API: gone"),
        pytest.param("crossplane", crossplane("False"), id="Crossplane: not ready"),
        pytest.param("crossplane", crossplane(None), id="Crossplane: no conditions"),
        pytest.param("crossplane", crossplane(metadata=DELETING), id="Crossplane: being deleted"),
        pytest.param("crossplane", crossplane(type="dev.knative.apiserver.resource.delete"), id="Crossplane: gone"),
    ],
)
def test_what_is_not_ready_is_an_event_that_nobody_waits_for(example: str, event: dict[str, Any]) -> None:
    said = transformed(example, event)  # nothing at all would be an error to Knative
    assert said["type"] not in types.KNOWN
    assert (said["id"], said["specversion"], said["cluster"]) == (event["id"], "1.0", "gpu-1")


def test_what_a_bus_says_keeps_the_bus_own_id() -> None:
    event = event_bus(cluster="gpu-1", secretRef={"name": "gpu-1", "key": "config"})
    data = {"cluster": "gpu-1", "secretRef": {"name": "gpu-1", "key": "config"}}
    assert transformed("event-bus", event) == provisioned(
        "/provisioning/event-bus", event["data"]["id"], event["time"], data
    )
    assert transformed("event-bus", event_bus(cluster="gpu-1"))["data"] == {"cluster": "gpu-1"}


def test_what_is_no_event_of_the_bus_becomes_one_that_is_refused() -> None:
    said = transformed("event-bus", event_bus() | {"data": "not what was expected"})
    assert (said["id"], said["data"]) == (event_bus()["id"], {})
    assert transformed("event-bus", event_bus(cluster=7))["subject"] == "7"


def test_the_module_hands_the_script_what_it_reads() -> None:
    module = (FOLDER / "pipeline" / "main.tf").read_text()
    assert set(re.findall(r"var\.(\w+)", module)) == set(re.findall(r'variable "(\w+)"', module))
    script = (FOLDER / "pipeline" / "provisioned.sh").read_text()
    environment = set(re.findall(r"^ +([A-Z]+) += var", module, re.MULTILINE))
    assert environment == {"CLUSTER", "SECRET"}
    assert environment <= set(re.findall(r"\$\{?([A-Z]+)", script))


def test_the_page_names_every_file() -> None:
    page = (FOLDER / "README.md").read_text()
    for file in [*FILES, FOLDER / "pipeline" / "provisioned.sh"]:
        assert str(file.relative_to(FOLDER)) in page
    assert documents("pipeline/sender.yaml")
