"""`serving-stack demo` as a person runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from functions.local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("binaries")

# Each place in the story by the line that is printed there; before the first, the control plane is being started.
READY = "A Kubernetes API server of its own is ready"
INSTALLING = "Its substrate is installed"


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the demonstration has its temporary files."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    return directory


@pytest.fixture
def demo(scratch: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "functions", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"},
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_it_ends_by_itself_with_a_summary_and_leaves_nothing(demo: subprocess.Popen[str], scratch: Path) -> None:
    said, errors = demo.communicate(timeout=60)
    assert (demo.returncode, errors) == (0, "")
    lines = said.splitlines()
    assert re.fullmatch(r"median \d+ ms, slowest \d+ ms \(.*\)", lines[-1])
    assert re.match(r"\d+ changes, from the API server's acceptance", lines[-2])
    assert not any(scratch.iterdir())


@pytest.mark.parametrize(
    ("number", "line"),
    [
        pytest.param(signal.SIGINT, READY, id="Ctrl-C when ready"),
        pytest.param(signal.SIGTERM, INSTALLING, id="SIGTERM while installing"),
        pytest.param(signal.SIGHUP, INSTALLING, id="SIGHUP while installing"),
    ],
)
def test_a_signal_ends_it_and_leaves_nothing(
    number: signal.Signals, line: str, demo: subprocess.Popen[str], scratch: Path
) -> None:
    assert demo.stdout is not None
    assert any(said.startswith(line) for said in demo.stdout)
    servers = _servers(scratch)
    assert len(servers) == 3
    _end(demo, number)
    assert not any(server.alive() for server in servers)
    assert not any(scratch.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_while_the_control_plane_starts_leaves_nothing(
    number: signal.Signals, demo: subprocess.Popen[str], scratch: Path
) -> None:
    while not (servers := _servers(scratch)):
        assert demo.poll() is None
    _end(demo, number)
    assert not any(server.alive() for server in servers)
    assert not any(scratch.iterdir())


def _servers(scratch: Path) -> list[Identity]:
    """The servers of the control plane that lives in there, as far as they were started."""
    for record in scratch.glob("serving-stack-*/control-plane/processes.json"):
        return [Identity(**server) for server in json.loads(record.read_text())["servers"].values()]
    return []


def _end(demo: subprocess.Popen[str], number: signal.Signals) -> None:
    demo.send_signal(number)
    _, errors = demo.communicate(timeout=30)
    assert (demo.returncode, errors.strip()) == (128 + number, "")
