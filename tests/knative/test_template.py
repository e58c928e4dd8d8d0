"""What a pod template says becomes a command, an environment and paths, as Kubernetes would make it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from functions.local.errors import LocalError
from functions.local.knative.template import (
    Facts,
    Images,
    Probe,
    environment,
    expand,
    matches,
    mounts,
    port,
    probe,
    relocate,
    sources,
)

IMAGES = Images(
    {"broker/ingress": Path("/bin/ingress"), "webhook": Path("/bin/webhook")}, ("python", "-m", "functions")
)
FACTS = Facts("pod-1", "shop", "10.97.1.2", "clerk", {"labels": {"app": "till"}})


@pytest.mark.parametrize(
    ("container", "command"),
    [
        pytest.param({"image": "ko://knative.dev/eventing/cmd/broker/ingress"}, ["/bin/ingress"], id="knative"),
        pytest.param(
            {"image": "gcr.io/knative-releases/knative.dev/eventing/cmd/webhook@sha256:1", "args": ["-v"]},
            ["/bin/webhook", "-disable-ha", "-v"],
            id="knative-that-elects-a-leader",
        ),
        pytest.param({"image": "ko://knative.dev/eventing/cmd/jobsink"}, None, id="knative-not-built"),
        pytest.param({"image": "serving-stack"}, ["python", "-m", "functions", "serve"], id="own"),
        pytest.param(
            {"image": "ghcr.io/x/modelplane-serving-stack:0.1@sha256:1", "args": ["watch"]},
            ["python", "-m", "functions", "watch"],
            id="own-with-arguments",
        ),
        pytest.param(
            {"image": "x/serving-stack", "command": ["/app/bin/serving-stack", "emit"], "args": ["-o", "json"]},
            ["python", "-m", "functions", "emit", "-o", "json"],
            id="own-with-command",
        ),
        pytest.param({"image": "x/serving-stack", "command": ["sh"]}, ["sh"], id="own-with-another-program"),
        pytest.param({"image": "local/x", "command": ["a"], "args": ["b"]}, ["a", "b"], id="local"),
        pytest.param({"image": "local/x"}, None, id="local-without-command"),
        pytest.param({"image": "serving-stack/other", "command": ["a"]}, None, id="strange"),
    ],
)
def test_an_image_stands_for_a_program(container: dict[str, Any], command: list[str] | None) -> None:
    assert IMAGES.command(container) == command


def test_the_environment_is_resolved_in_order() -> None:
    container = {
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "all"}}, {"secretRef": {"name": "hidden"}}],
        "env": [
            {"name": "PLAIN", "value": "1"},
            {"name": "EMPTY"},
            {"name": "BOTH", "value": "$(PLAIN)-$(P_A)-$(LATER)-$$(PLAIN)"},
            {"name": "LATER", "value": "2"},
            {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "IP", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "all", "key": "A"}}},
            {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "x", "optional": True}}},
        ],
    }
    assert sources(container) == {
        ("configmaps", "all", False),
        ("secrets", "hidden", False),
        ("secrets", "gone", True),
    }
    data = {("configmaps", "all"): {"A": "a"}, ("secrets", "hidden"): {"S": "s"}}
    assert environment(container, FACTS, data) == {
        "P_A": "a",
        "S": "s",
        "PLAIN": "1",
        "EMPTY": "",
        "BOTH": "1-a-$(LATER)-$(PLAIN)",
        "LATER": "2",
        "ME": "pod-1",
        "IP": "10.97.1.2",
        "APP": "till",
        "KEY": "a",
    }


def test_a_key_that_is_missing_is_named() -> None:
    container = {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "all", "key": "B"}}}]}
    with pytest.raises(LocalError, match="configmaps all has no key B"):
        environment(container, FACTS, {("configmaps", "all"): {"A": "a"}})


def test_a_field_that_is_not_known_is_named() -> None:
    container = {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostname"}}}]}
    with pytest.raises(LocalError, match=r"fieldRef spec\.hostname is not known here"):
        environment(container, FACTS, {})


def test_references_that_are_not_known_stay() -> None:
    assert expand("$(A) $(B) $$(A) $C $", {"A": "1"}) == "1 $(B) $(A) $C $"


@pytest.mark.parametrize(
    ("text", "relocated"),
    [
        ("/data", "/here/x"),
        ("/data/a", "/here/x/a"),
        ("--file=/data/a,/data/b", "--file=/here/x/a,/here/x/b"),
        ('echo >"/data/a"; cat /data', 'echo >"/here/x/a"; cat /here/x'),
        ("/data-2/a", "/data-2/a"),
        ("/var/data/a", "/var/data/a"),
        ("/database", "/database"),
        ("http://host/data", "http://host/data"),
        ("./data", "./data"),
    ],
)
def test_paths_lead_to_where_a_volume_is(text: str, relocated: str) -> None:
    assert relocate(text, {"/data": Path("/here/x")}) == relocated


def test_volumes_are_found_by_the_path_where_they_are_wanted() -> None:
    volume = {"name": "a", "emptyDir": {}}
    container = {"volumeMounts": [{"name": "a", "mountPath": "/data/"}, {"name": "none", "mountPath": "/x"}]}
    assert mounts({"spec": {"volumes": [volume]}}, container) == {"/data": volume}


@pytest.mark.parametrize(
    ("said", "found"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"exec": {"command": ["true"]}}, None, id="only-inside"),
        pytest.param({"tcpSocket": {"port": "web"}}, Probe(8080), id="connection"),
        pytest.param({"httpGet": {"port": 1}}, Probe(1, "http://{address}:1/"), id="root"),
        pytest.param(
            {
                "httpGet": {
                    "port": "web",
                    "path": "/ok",
                    "scheme": "HTTPS",
                    "httpHeaders": [{"name": "k-kubelet-probe", "value": "webhook"}],
                }
            },
            Probe(8080, "https://{address}:8080/ok", (("k-kubelet-probe", "webhook"),)),
            id="whole",
        ),
    ],
)
def test_a_probe_is_read(said: dict[str, Any], found: Probe | None) -> None:
    container: dict[str, Any] = {"ports": [{"name": "web", "containerPort": 8080}]}
    assert probe(container | ({"readinessProbe": said} if said else {})) == found


def test_a_port_without_that_name_is_named() -> None:
    assert port({"ports": []}, "80") == 80
    with pytest.raises(LocalError, match="container a has no port web"):
        port({"name": "a", "ports": [{"containerPort": 1}]}, "web")


def test_a_selector_that_is_empty_selects_nothing() -> None:
    assert matches({"a": "1"}, {"a": "1", "b": "2"})
    assert not matches({"a": "1"}, {"a": "2"})
    assert not matches({}, {"a": "1"})
