"""`serving-stack local` as a person runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from functions.local.api import Api
from functions.local.directory import InstanceDirectory
from functions.local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from functions.local.binaries import Binaries

pytestmark = pytest.mark.usefixtures("binaries")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "d"
    InstanceDirectory(tmp_path / "d").end()


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "functions", "local", *arguments]


def _local(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), capture_output=True, text=True, timeout=100, check=False)


def _fits(text: str, directory: Path) -> bool:
    """Whether each line fits 80 columns, those apart that a path makes longer."""
    return all(len(line) <= 80 for line in text.splitlines() if str(directory) not in line)


def test_up_status_substrate_down(directory: Path) -> None:
    here = ("--dir", str(directory))
    up = _local("up", *here)
    assert (up.returncode, up.stderr) == (0, "")
    first, second = up.stdout.splitlines()
    ready = re.fullmatch(r"Ready at (https://127\.0\.0\.1:\d+) after \d+\.\d s", first)
    assert ready is not None
    assert second == f"export KUBECONFIG={directory}/kubeconfig"
    assert Api.of(directory / "kubeconfig").ready()
    servers = json.loads((directory / "control-plane" / "processes.json").read_text())["servers"]

    again = _local("up", *here)
    assert (again.returncode, again.stdout) == (0, f"Already running at {ready.group(1)}\n{second}\n")

    status = _local("status", *here)
    assert status.returncode == 0
    assert status.stdout == (
        "etcd                     running\n"
        "kube-apiserver           running\n"
        "kube-controller-manager  running\n"
        f"{ready.group(1)}  ready\n"
        f"{second}\n"
    )

    added = _local("substrate", "add", *here, "kai-scheduler", "ai-gateway")
    assert (added.returncode, added.stderr) == (0, "")
    assert added.stdout == "kai-scheduler: queues.scheduling.run.ai installed\nai-gateway: nothing was installed\n"
    removed = _local("substrate", "remove", *here, "kai-scheduler")
    assert (removed.returncode, removed.stdout) == (0, "kai-scheduler: queues.scheduling.run.ai removed\n")
    assert all(_fits(text, directory) for text in (up.stdout, status.stdout, added.stdout))

    os.kill(servers["kube-controller-manager"]["pid"], signal.SIGKILL)
    Identity(**servers["kube-controller-manager"]).kill()
    broken = _local("status", *here)
    assert broken.returncode == 1
    assert "kube-controller-manager  not running\n" in broken.stdout
    refused = _local("up", *here)
    assert refused.returncode == 1
    assert "end it with `down`" in refused.stderr

    down = _local("down", *here)
    assert (down.returncode, down.stdout) == (0, f"Ended the control plane in {directory}\n")
    assert not directory.exists()
    assert not any(Identity(**server).alive() for server in servers.values())
    down = _local("down", *here)
    assert (down.returncode, down.stdout) == (0, f"There is no control plane in {directory}\n")
    status = _local("status", *here)
    assert (status.returncode, status.stdout) == (1, f"There is no control plane in {directory}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_up_that_is_broken_off_leaves_nothing(number: signal.Signals, directory: Path) -> None:
    with subprocess.Popen(_command("up", "--dir", str(directory)), stderr=subprocess.PIPE, text=True) as up:
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
    assert not any(Identity(**server).alive() for server in servers.values())


def test_an_up_that_is_taken_down_says_so(directory: Path) -> None:
    with subprocess.Popen(_command("up", "--dir", str(directory)), stderr=subprocess.PIPE, text=True) as up:
        place = InstanceDirectory(directory)
        deadline = time.monotonic() + 60
        while not place.status().running["etcd"]:
            assert time.monotonic() < deadline
        assert _local("down", "--dir", str(directory)).returncode == 0
        _, said = up.communicate(timeout=30)
    assert (up.returncode, said) == (
        1,
        f"Error: the control plane in {directory} was taken down while it started\n",
    )
    assert not directory.exists()


def test_an_up_that_is_killed_is_cleared_by_down(directory: Path) -> None:
    with subprocess.Popen(_command("up", "--dir", str(directory)), stdout=subprocess.PIPE) as up:
        place = InstanceDirectory(directory)
        deadline = time.monotonic() + 60
        while not place.status().running["kube-apiserver"]:
            assert time.monotonic() < deadline
        up.kill()
        up.wait()
    status = _local("status", "--dir", str(directory))
    assert status.returncode == 1
    assert "Its start was broken off; end it with `down`." in status.stdout
    assert _local("down", "--dir", str(directory)).returncode == 0
    assert not directory.exists()


def test_build_tells_where_the_programs_are(binaries: Binaries) -> None:
    built = _local("build")
    assert (built.returncode, built.stdout) == (0, f"{binaries.etcd.parent}\n")


@pytest.mark.parametrize("command", ["add", "remove"])
def test_the_substrate_needs_a_control_plane(command: str, directory: Path) -> None:
    refused = _local("substrate", command, "--dir", str(directory), "grove")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (f"Error: no control plane runs in {directory}; start one with `serving-stack local up`\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(("substrate", "add", "no-such"), "'no-such' is not one of 'cert-manager'", id="unknown-component"),
        pytest.param(("substrate", "add"), "Missing argument 'COMPONENT...'", id="no-component"),
        pytest.param(("up", "--no-such"), "No such option", id="unknown-option"),
        pytest.param(("no-such",), "No such command", id="unknown-command"),
    ],
)
def test_wrong_use_is_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    refused = _local(*arguments)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_help_tells_the_default_directory() -> None:
    shown = _local("--help")
    assert shown.returncode == 0
    assert "~/.local/state/modelplane-serving-stack/local" in shown.stdout
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
