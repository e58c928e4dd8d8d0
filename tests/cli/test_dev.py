"""`serving-stack dev` as a person runs it, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from functions.catalog import CustomResource
from tests.support import provide, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane

CRD = CustomResource("inferencepools.inference.networking.k8s.io", "v1")


@contextmanager
def running(kubeconfig: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "functions", "dev", "--kubeconfig", str(kubeconfig), *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as process:
        try:
            yield process
        finally:
            process.kill()


def until(process: subprocess.Popen[str], wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first line that is as wanted."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        fields: dict[str, Any] = json.loads(line)
        if wanted(fields):
            return fields
        seen.append(line)
    pytest.fail(f"ended without it: {''.join(seen)}")


def says(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda fields: text in fields["message"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_it_says_what_turns_and_ends_when_told(hub: ControlPlane, number: signal.Signals) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    with running(hub.kubeconfig) as process:
        assert until(process, says("started"))["hub"] == hub.server
        assert until(process, says("gaie-crds: Missing"))["cluster"] == "gpu-1"
        assert until(process, says("RequirementsMet: False"))["see"] == "kubectl describe inferencecluster gpu-1"
        provide(hub.api, CRD)
        until(process, says("gaie-crds: Met"))
        process.send_signal(number)
        until(process, says("ended"))
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(5) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_hub_that_cannot_be_reached_is_named_and_tried_again(tmp_path: Path, number: signal.Signals) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "hub",
                "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "hub"}}],
                "clusters": [{"name": "hub", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "hub", "user": {"token": "a-token"}}],
            }
        )
    )
    with running(path) as process:
        line = until(process, says("cannot watch"))
        assert line["cluster"] == "(hub)"
        assert "http://127.0.0.1:1 refused the connection" in line["detail"]
        process.send_signal(number)
        assert process.wait(5) == 0


def test_a_cluster_without_our_crds_is_told_how_to_get_them(start_control_plane: StartControlPlane) -> None:
    with running(start_control_plane().kubeconfig) as process:
        line = until(process, says("InferenceCluster is not served yet"))
        assert "kubectl apply -k deploy/knative/crds" in line["detail"]


def test_a_kubeconfig_that_is_none_is_a_wrong_use(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("[]")
    with running(path) as process:
        assert process.stderr is not None
        assert "kubeconfig" in process.stderr.read()
        assert process.wait(5) == 2
