"""What is kept is made once, and whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from functions.local.cache import cache_directory, made_once, state_directory
from functions.local.errors import LocalError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

_MAKER = """
import pathlib, sys
from functions.local.cache import made_once
def make(directory):
    with pathlib.Path({log!r}).open("a") as log: log.write("made\\n")
    print("making", flush=True)
    sys.stdin.readline()
    (directory / "file").touch()
made_once(pathlib.Path({place!r}), "the thing", make)
"""


def _touch(directory: Path) -> None:
    (directory / "file").touch()


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        pytest.param("XDG_CACHE_HOME", "/var/x", "/var/x/modelplane-serving-stack", id="cache"),
        pytest.param("XDG_CACHE_HOME", "", "/home/me/.cache/modelplane-serving-stack", id="cache-unset"),
        pytest.param("XDG_CACHE_HOME", "x", "/home/me/.cache/modelplane-serving-stack", id="cache-relative"),
        pytest.param("XDG_STATE_HOME", "/var/x", "/var/x/modelplane-serving-stack", id="state"),
        pytest.param("XDG_STATE_HOME", "", "/home/me/.local/state/modelplane-serving-stack", id="state-unset"),
    ],
)
def test_folders_follow_the_xdg_variables(
    variable: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv(variable, value)
    folder = cache_directory() if variable == "XDG_CACHE_HOME" else state_directory()
    assert folder == Path(expected)


def test_made_once(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "place"
    assert made_once(place, "the thing", _touch) == place
    assert [child.name for child in place.iterdir()] == ["file"]
    made_once(place, "the thing", lambda _: pytest.fail("made twice"))


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        _touch(directory)
        raise LocalError("no")

    with pytest.raises(LocalError, match=r"^no$"):
        made_once(tmp_path / "place", "the thing", fail)
    assert [child.name for child in tmp_path.iterdir()] == ["lock"]
    assert made_once(tmp_path / "place", "the thing", _touch).is_dir()


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, start_python: Callable[[str], subprocess.Popen[str]]
) -> None:
    place = tmp_path / "place"
    maker = start_python(_MAKER.format(place=str(place), log=str(tmp_path / "log")))
    assert maker.stdout is not None
    assert maker.stdout.readline() == "making\n"
    maker.kill()
    maker.wait()
    assert not place.exists()
    assert list(tmp_path.glob("unfinished-*"))
    made_once(place, "the thing", _touch)
    assert not list(tmp_path.glob("unfinished-*"))


def test_of_two_at_once_one_makes_it_and_the_other_waits(
    tmp_path: Path, start_python: Callable[[str], subprocess.Popen[str]]
) -> None:
    place, log = tmp_path / "place", tmp_path / "log"
    program = _MAKER.format(place=str(place), log=str(log))
    first = start_python(program)
    assert first.stdout is not None
    assert first.stdout.readline() == "making\n"
    second = start_python(program)
    assert second.stderr is not None
    assert second.stderr.readline() == "Waiting for another process that makes the thing\n"
    assert first.communicate("go on\n", timeout=30) == ("", "")
    assert second.communicate(timeout=30) == ("", "")
    assert (first.returncode, second.returncode) == (0, 0)
    assert log.read_text() == "made\n"
    assert (place / "file").exists()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match=f"the thing cannot be kept in {tmp_path}/file/deep: Not a directory"):
        made_once(tmp_path / "file" / "deep" / "place", "the thing", _touch)
