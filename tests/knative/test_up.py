"""`serving-stack local up --knative` as a person runs it: from nothing to ready, and back to nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from functions.local.api import Api
from functions.local.binaries import find_kubectl
from functions.local.directory import InstanceDirectory
from functions.local.errors import LocalError
from functions.local.knative.instance import KnativeControlPlane
from functions.local.knative.network import BRIDGE
from functions.local.knative.programs import find_programs
from functions.local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from functions.local.binaries import Binaries
    from functions.local.instance import ControlPlane

pytestmark = [pytest.mark.usefixtures("binaries"), pytest.mark.timeout(300)]

_PROGRAMS = (
    "eventing-controller",
    "eventing-webhook",
    "imc-controller",
    "imc-dispatcher",
    "mt-broker-controller",
    "mt-broker-filter",
    "mt-broker-ingress",
)
_PARENT = """
import pathlib, sys
from functions.local.binaries import find_binaries
from functions.local.knative.instance import KnativeControlPlane
with KnativeControlPlane(find_binaries(), pathlib.Path({directory!r})):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "d"
    InstanceDirectory(tmp_path / "d").end()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "functions", "local", *arguments]


def _local(*arguments: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*prefix, *_command(*arguments)],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env=os.environ | environment,
    )


def _identities(directory: Path) -> list[Identity]:
    written = json.loads((directory / "control-plane" / "processes.json").read_text())
    return [Identity(**each) for each in (*written["servers"].values(), *written["programs"].values())]


def _no_trace_of_the_network() -> None:
    """This machine has neither links nor addresses nor mounts of the cluster."""
    shown = subprocess.run(["ip", "-oneline", "address"], capture_output=True, text=True, check=True).stdout
    assert "10.96." not in shown
    assert "10.97." not in shown
    assert f" {BRIDGE} " not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert "resolv.conf" not in Path("/proc/self/mountinfo").read_text()


def _all_end(identities: list[Identity]) -> None:
    deadline = time.monotonic() + 10
    while left := [each.pid for each in identities if each.alive()]:
        assert time.monotonic() < deadline, f"still running: {left}"
        time.sleep(0.02)


@pytest.mark.e2e
def test_up_status_kubectl_down(directory: Path) -> None:
    find_programs()
    here = ("--dir", str(directory))
    up = _local("up", "--knative", *here)
    assert (up.returncode, up.stderr) == (0, "")
    first, export = up.stdout.splitlines()
    ready = re.fullmatch(r"Ready at (https://127\.0\.0\.1:(\d+)) after (\d+\.\d) s", first)
    assert ready is not None
    assert export == f"export KUBECONFIG={directory}/kubeconfig"
    print(f"\nKnative ready after {ready[3]} s")  # noqa: T201 - a figure for the reader
    identities = _identities(directory)
    assert all(each.alive() for each in identities)
    _no_trace_of_the_network()

    kubectl = [str(find_kubectl()), "--kubeconfig", str(directory / "kubeconfig")]
    apply = subprocess.run(
        [*kubectl, "apply", "-f", "-"],
        input="{apiVersion: eventing.knative.dev/v1, kind: Broker, metadata: {name: default, namespace: default}}",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (apply.returncode, apply.stdout) == (0, "broker.eventing.knative.dev/default created\n")
    wait = [*kubectl, "wait", "--for=condition=Ready", "broker/default", "--timeout=30s"]
    assert subprocess.run(wait, capture_output=True, check=False).returncode == 0

    again = _local("up", "--knative", *here)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, f"Already running at {ready[1]}")
    status = _local("status", *here)
    assert status.returncode == 0
    for name in ("etcd", "kube-apiserver", "knative", *(f"knative-eventing/{each}" for each in _PROGRAMS)):
        assert re.search(rf"^{name} +running$", status.stdout, re.MULTILINE), name

    down = _local("down", *here)
    assert (down.returncode, down.stdout) == (0, f"Ended the control plane in {directory}\n")
    assert not directory.exists()
    assert not any(each.alive() for each in identities)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(ready[2])), timeout=5)


@pytest.mark.e2e
@pytest.mark.parametrize("whose", ["keeper", "parent"])
def test_everything_ends_with_the_keeper_and_with_who_started_it(
    whose: str, directory: Path, start_python: Callable[[str], subprocess.Popen[str]]
) -> None:
    find_programs()
    parent = start_python(_PARENT.format(directory=str(directory)))
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    identities = _identities(directory)
    assert len(identities) == 4 + len(_PROGRAMS)
    keeper = json.loads((directory / "control-plane" / "processes.json").read_text())["servers"]["knative"]["pid"]
    os.kill(keeper if whose == "keeper" else parent.pid, signal.SIGKILL)
    _all_end(identities)
    status = _local("status", "--dir", str(directory))
    assert status.returncode == 1
    assert "running" not in status.stdout.replace("not running", "")
    assert _local("down", "--dir", str(directory)).returncode == 0
    assert not directory.exists()


@pytest.mark.e2e
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_up_that_is_broken_off_leaves_nothing(number: signal.Signals, directory: Path) -> None:
    find_programs()
    with subprocess.Popen(
        _command("up", "--knative", "--dir", str(directory)), stderr=subprocess.PIPE, text=True
    ) as up:
        place = InstanceDirectory(directory)
        deadline = time.monotonic() + 60
        while not place.status().running["kube-apiserver"]:
            assert time.monotonic() < deadline
        servers = json.loads((place.home / "processes.json").read_text())["servers"]
        up.send_signal(number)
        _, said = up.communicate(timeout=30)
    assert up.returncode == 128 + number
    assert "Traceback" not in said
    assert not directory.exists()
    _all_end([Identity(**each) for each in servers.values()])


@pytest.mark.e2e
def test_a_server_that_ends_takes_the_rest_along_and_status_names_it(directory: Path) -> None:
    find_programs()
    assert _local("up", "--knative", "--dir", str(directory)).returncode == 0
    identities = _identities(directory)
    written = json.loads((directory / "control-plane" / "processes.json").read_text())["servers"]
    os.kill(written["etcd"]["pid"], signal.SIGKILL)
    _all_end(identities)
    log = (directory / "control-plane" / "knative" / "keeper.log").read_text()
    assert "etcd ended; its log is in" in log or "etcd, kube-apiserver ended" in log
    assert _local("down", "--dir", str(directory)).returncode == 0


@pytest.mark.e2e
def test_a_directory_in_use_is_refused_and_left_alone(control_plane: ControlPlane, binaries: Binaries) -> None:
    with pytest.raises(LocalError, match="a control plane is running in"):
        KnativeControlPlane(binaries, control_plane.directory.root).start()
    assert control_plane.api.ready()


def test_one_without_knative_is_not_taken_for_one_with_it(directory: Path) -> None:
    assert _local("up", "--dir", str(directory)).returncode == 0
    refused = _local("up", "--knative", "--dir", str(directory))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"Error: the control plane in {directory} runs without Knative; end it with `down` first\n"
    )
    assert Api.of(directory / "kubeconfig").ready()


def test_each_missing_tool_is_named(directory: Path) -> None:
    refused = _local("up", "--knative", "--dir", str(directory), PATH="/nowhere")
    assert refused.returncode == 1
    assert "for which is missing here: the command unshare (package util-linux); the command nsenter" in refused.stderr
    assert not directory.exists()


def test_a_missing_right_is_named(directory: Path) -> None:
    as_root = () if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--")
    without = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--")
    refused = _local("up", "--knative", "--dir", str(directory), prefix=(*as_root, *without))
    right = "the right to make network namespaces and bridges (CAP_SYS_ADMIN)"
    assert refused.returncode == 1
    assert f"for which is missing here: {right}: unshare: unshare failed: Operation not permitted" in refused.stderr
    assert not directory.exists()
