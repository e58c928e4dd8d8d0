"""Children end with their parent, and nobody else's process is ever killed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from functions.local.errors import LocalError
from functions.local.processes import Identity, ProcessGroup, run, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PARENT = """
import sys, tempfile, pathlib
from functions.local.processes import ProcessGroup
group = ProcessGroup()
with tempfile.TemporaryFile() as output:
    children = [group.spawn(["sleep", "1000"], cwd=pathlib.Path("/"), output=output) for _ in range(2)]
print(*(child.pid for child in children), flush=True)
sys.stdin.read() if {waits} else None
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def _spawn(group: ProcessGroup, tmp_path: Path, *command: str) -> int:
    with (tmp_path / "log").open("ab") as output:
        return group.spawn(command, cwd=tmp_path, output=output).pid


def test_all_of_a_group_end_when_it_is_killed(tmp_path: Path) -> None:
    group = ProcessGroup()
    pids = [_spawn(group, tmp_path, "sleep", "1000") for _ in range(3)]
    group.kill()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_child_that_ignores_signals_ends_too(tmp_path: Path) -> None:
    group = ProcessGroup()
    pid = _spawn(group, tmp_path, "sh", "-c", "trap '' INT TERM HUP; sleep 1000")
    group.kill()
    assert not Path(f"/proc/{pid}").exists()


def test_killing_twice_is_harmless(tmp_path: Path) -> None:
    group = ProcessGroup()
    _spawn(group, tmp_path, "true")
    group.kill()
    group.kill()


def test_a_detached_child_outlives_its_parent(start_python: Callable[[str], subprocess.Popen[str]]) -> None:
    program = _PARENT.replace("ProcessGroup()", "ProcessGroup(detached=True)").format(waits=False)
    said, _ = start_python(program).communicate(timeout=30)
    children = [Identity.of(int(pid)) for pid in said.split()]
    assert len(children) == 2
    for child in children:
        assert child is not None
        child.kill()
        assert not child.alive()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL], ids=lambda n: n.name)
def test_children_end_with_a_parent_that_a_signal_ends(
    number: signal.Signals, start_python: Callable[[str], subprocess.Popen[str]], wait_gone: Callable[[int], None]
) -> None:
    parent = start_python(_PARENT.format(waits=True))
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert all(Identity.of(pid) for pid in pids)
    parent.send_signal(number)
    for pid in pids:
        wait_gone(pid)


def test_an_identity_is_of_one_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    assert identity.alive()


def test_a_recycled_id_is_not_killed(sleeper: subprocess.Popen[bytes]) -> None:
    former = Identity(sleeper.pid, "0")
    assert not former.alive()
    former.kill()
    assert sleeper.poll() is None


def test_a_process_that_ended_but_was_not_waited_for_is_gone(wait_gone: Callable[[int], None]) -> None:
    with subprocess.Popen(["true"]) as process:
        wait_gone(process.pid)
        assert Path(f"/proc/{process.pid}").exists()
        assert Identity.of(process.pid) is None


def test_a_name_with_spaces_and_parentheses_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 ("
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "1000"]) as process:
        identity = Identity.of(process.pid)
        assert identity is not None
        assert identity.started.isdigit()
        identity.kill()


def test_run_returns_the_output(tmp_path: Path) -> None:
    said = run("Saying", ["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=os.environ)
    assert said == "out\n"


def test_run_tells_what_a_failing_command_said_last(tmp_path: Path) -> None:
    program = ["sh", "-c", "seq 100 >&2; exit 3"]
    with pytest.raises(LocalError) as failure:
        run("Counting", program, cwd=tmp_path, env=os.environ)
    text = str(failure.value)
    assert text.startswith("Counting failed (sh exited with 3):\n")
    assert text.endswith("99\n100")
    assert "\n50\n" not in text


def test_run_names_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="Building: no-such-program cannot be started"):
        run("Building", ["no-such-program"], cwd=tmp_path, env=os.environ)


def test_run_shows_that_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("Waiting", ["sleep", "0.2"], cwd=tmp_path, env=os.environ, first=0.05, every=0.05)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Waiting ... 0 s"
    assert lines[-1] == "Waiting: 0 s"


def test_run_says_nothing_about_what_is_done_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("Waiting", ["true"], cwd=tmp_path, env=os.environ)
    assert capsys.readouterr().err == ""


def test_the_tail_of_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert tail(tmp_path / "none.log") == ""
