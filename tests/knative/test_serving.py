"""What a Knative Service becomes."""

from __future__ import annotations

from typing import Any

import pytest

from functions.local.knative.serving import deployment_of, service_of


def _service(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"a": "1"}, "labels": {"b": "2"}},
        "spec": {"containers": [container], **spec},
    }
    metadata = {"name": "till", "namespace": "shop", "uid": "u", "generation": 1}
    return {"metadata": metadata, "spec": {"template": template}}


def _container(given: dict[str, Any], **spec: Any) -> dict[str, Any]:
    deployment = deployment_of(_service({"image": "x", **given}, **spec))
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_a_deployment_has_the_template_and_belongs_to_the_service() -> None:
    deployment = deployment_of(_service({"image": "x"}, timeoutSeconds=5, serviceAccountName="clerk"))
    assert deployment["metadata"]["name"] == "till-00001-deployment"
    assert deployment["metadata"]["ownerReferences"][0]["uid"] == "u"
    template = deployment["spec"]["template"]
    assert template["metadata"]["annotations"] == {"a": "1"}
    assert template["metadata"]["labels"] == {"b": "2", "serving.knative.dev/service": "till"}
    assert template["spec"]["serviceAccountName"] == "clerk"
    assert "timeoutSeconds" not in template["spec"]  # of a revision, and of no pod


def test_a_container_is_told_its_port_and_its_service() -> None:
    found = _container({"env": [{"name": "A", "value": "1"}, {"name": "PORT", "value": "wrong"}]})
    assert {each["name"]: each["value"] for each in found["env"]} == {
        "A": "1",
        "PORT": "8080",
        "K_SERVICE": "till",
        "K_CONFIGURATION": "till",
        "K_REVISION": "till-00001",
    }
    assert found["name"] == "user-container"


@pytest.mark.parametrize(
    ("ports", "number"),
    [([], 8080), ([{"containerPort": 9000, "name": "h2c"}], 9000), ([{"name": "http1"}], 8080)],
    ids=["none", "number", "name-alone"],
)
def test_port_80_leads_to_the_port_of_the_container(ports: list[dict[str, Any]], number: int) -> None:
    given = {"image": "x", "ports": ports}
    assert service_of(_service(given))["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": number}]
    assert _container(given)["ports"][0]["containerPort"] == number


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, {"tcpSocket": {"port": 8080}}),
        ({"periodSeconds": 1}, {"periodSeconds": 1, "tcpSocket": {"port": 8080}}),
        ({"httpGet": {"path": "/ok"}}, {"httpGet": {"path": "/ok", "port": 8080}}),
        ({"httpGet": {"path": "/ok", "port": 0}}, {"httpGet": {"path": "/ok", "port": 8080}}),
        ({"tcpSocket": {"port": 9}}, {"tcpSocket": {"port": 9}}),
        ({"exec": {"command": ["true"]}}, {"exec": {"command": ["true"]}}),
    ],
)
def test_a_probe_may_leave_out_the_port(given: dict[str, Any], made: dict[str, Any]) -> None:
    assert _container({"readinessProbe": given})["readinessProbe"] == made
