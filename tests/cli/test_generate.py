"""`serving-stack generate`, in a copy of the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from functions.deploy_files import deploy_directory

if TYPE_CHECKING:
    from pathlib import Path

ROOT = deploy_directory().parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("events", "functions", "deploy"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path)
    assert generate(tmp_path).returncode == 0
    return tmp_path


def generate(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "functions", "generate", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_it_wrote_is_not_stale(tree: Path) -> None:
    done = generate(tree, "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("deploy/knative/base/triggers.yaml", "cert-manager", id="triggers"),
        pytest.param("README.md", "| `cert-manager` |", id="readme"),
    ],
)
def test_a_stale_file_is_named_and_left_alone(file: str, text: str, tree: Path) -> None:
    fresh = (tree / file).read_text()
    stale = fresh.replace(text, "changed", 1)
    assert stale != fresh
    (tree / file).write_text(stale)
    done = generate(tree, "--check")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: stale: {file}; run `make generate` and commit the result\n"
    assert (tree / file).read_text() == stale
    assert generate(tree).stdout == f"wrote {file}\n"
    assert (tree / file).read_text() == fresh


def test_a_readme_without_the_markers_is_named(tree: Path) -> None:
    (tree / "README.md").write_text("# nothing\n")
    done = generate(tree, "--check")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: README.md lacks the lines <!-- generated: requirements -->")
