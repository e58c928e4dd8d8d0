"""`serving-stack check` as a person runs it: the installed program against real API servers."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import click
import pytest
import yaml

from functions.catalog import CustomResource, Stack, of_stack
from functions.cli.check import Duration
from functions.cli.render.terminal import ASCII_MARKS, MARKS, Terminal
from functions.local.instance import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.catalog import Requirement
    from functions.local.binaries import Binaries

PROGRAM = Path(sys.executable).with_name("serving-stack")
FORMATS = ("text", "json", "yaml", "junit", "sarif", "github")
STANDARD = tuple(one for each in of_stack(Stack.STANDARD) for one in each.requirements)
DYNAMO = tuple(one for each in of_stack(Stack.DYNAMO) for one in each.requirements)
BUNDLES = CustomResource("bundles.trust.cert-manager.io", "v1alpha1")
GPU = next(each for each in STANDARD if not isinstance(each, CustomResource))


def environment(kubeconfig: str | Path, **more: str) -> dict[str, str]:
    """Ours, with that KUBECONFIG and as plain as in a pipeline."""
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM", "KUBECONFIG"}}
    return {**inherited, "KUBECONFIG": str(kubeconfig), "PYTHONUTF8": "1", **more}


def check(kubeconfig: str | Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROGRAM, "check", *arguments],
        env=environment(kubeconfig, **more),
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def waiting(kubeconfig: Path, *arguments: str) -> subprocess.Popen[str]:
    """A check that waits, once it has said on stderr what for."""
    process = subprocess.Popen(
        [PROGRAM, "check", "--wait", "1m", *arguments],
        env=environment(kubeconfig),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    assert process.stderr is not None
    assert "waiting 1m for local (Standard)" in process.stderr.readline()
    return process


def path(requirement: Requirement) -> str:
    if isinstance(requirement, CustomResource):
        return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{requirement.name}"
    return f"/apis/{requirement.group}/{requirement.version}/{requirement.plural}/{requirement.name}"


def provide(plane: ControlPlane, requirements: tuple[Requirement, ...]) -> None:
    """The least that meets each requirement, served once this returns."""
    for each in requirements:
        answer = plane.api.apply(path(each), manifest(each))
        assert answer.status in {200, 201}, answer.body
    plane.wait_until_ready()


def manifest(requirement: Requirement) -> dict[str, Any]:
    if not isinstance(requirement, CustomResource):
        api_version = f"{requirement.group}/{requirement.version}"
        return {"apiVersion": api_version, "kind": "DeviceClass", "metadata": {"name": requirement.name}, "spec": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": requirement.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": requirement.group,
            "scope": "Namespaced",
            "names": {"plural": requirement.plural, "kind": requirement.plural.capitalize()},
            "versions": [
                {
                    "name": requirement.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def provided(binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster of its own that meets all requirements of the stack Standard; tests leave it so."""
    with ControlPlane(binaries) as plane:
        provide(plane, STANDARD)
        yield plane


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig whose server refuses connections."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        file = tmp_path / "nowhere"
        write(file, f"https://127.0.0.1:{taken.getsockname()[1]}", {"token": "some-token"})
        yield file


def write(
    file: Path, server: str, user: dict[str, Any], *, name: str = "local", current: bool = True, **cluster: str
) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    file.write_text(yaml.safe_dump(content | ({"current-context": name} if current else {})), "utf-8")
    return file


def credential(plane: ControlPlane) -> dict[str, str]:
    user: dict[str, str] = json.loads(plane.kubeconfig.read_text("utf-8"))["users"][0]["user"]
    return user


def outcomes(output: str, printed: str) -> tuple[int, int]:
    """How many requirements a document says are missing, and how many cannot be told."""
    if output in {"json", "yaml"}:
        summary = (json.loads if output == "json" else yaml.safe_load)(printed)["summary"]
        return summary["missing"], summary["unknown"]
    if output == "junit":
        root = ET.fromstring(printed)  # noqa: S314 - our own
        return int(root.get("failures", "")), int(root.get("errors", ""))
    if output == "sarif":
        levels = [each["level"] for each in json.loads(printed)["runs"][0]["results"]]
        return levels.count("error"), levels.count("warning")
    if output == "github":
        lines = printed.replace("%0A", "\n").splitlines()
    else:
        lines = printed.splitlines()
    missing = [line for line in lines if line.startswith(MARKS_OF_A_MISS)]
    unknown = [line for line in lines if line.startswith("? CRD") or line.startswith("? Dev")]
    return len(missing), len(unknown)
