"""The programs are taken from where the user says, or built once, or not at all."""

from __future__ import annotations

import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from functions.deploy_files import deploy_directory
from functions.local import binaries
from functions.local.binaries import PACKAGES, build, find_binaries, find_kubectl
from functions.local.errors import LocalError
from functions.local.go_toolchain import find_go

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A `go` that notes each build and then does it.
_NOTING_GO = """#!/bin/sh
[ "$1" = build ] && echo build >>{log}
exec {go} "$@"
"""
# A `go` whose builds never end.
_HANGING_GO = """#!/bin/sh
[ "$1" = env ] && echo go1.99.0 && exit
echo half >"$8"
exec sleep 1000
"""
_BUILD = """
import pathlib
from functions.local.binaries import build
print(build(pathlib.Path({module!r}), {{"tiny": "tiny"}}))
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A Go module with one small program."""
    directory = tmp_path / "module"
    directory.mkdir()
    (directory / "go.mod").write_text("module tiny\n\ngo 1.21\n")
    (directory / "main.go").write_text('package main\n\nfunc main() { println("tiny") }\n')
    return directory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of our own, but Go's, which makes the builds fast."""
    gos_own = subprocess.run(
        [find_go(deploy_directory() / "local" / "controlplane"), "env", "GOCACHE"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    monkeypatch.setenv("GOCACHE", gos_own.strip())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "modelplane-serving-stack" / "controlplane"


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a `go` that is a shell script first on the PATH."""

    def put(script: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "go").write_text(script)
        (folder / "go").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=":")

    return put


def _assets(directory: Path, *names: str) -> Path:
    directory.mkdir()
    for name in names:
        (directory / name).touch(0o755)
    return directory


def test_kubebuilder_assets_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = _assets(tmp_path / "assets", *PACKAGES)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    found = find_binaries()
    assert found.etcd == assets / "etcd"
    assert found.kube_apiserver == assets / "kube-apiserver"
    assert found.kube_controller_manager == assets / "kube-controller-manager"


def test_kubectl_of_the_assets_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = _assets(tmp_path / "assets", "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert find_kubectl() == assets / "kubectl"


def test_incomplete_assets_name_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What the assets of controller-runtime's envtest hold.
    assets = _assets(tmp_path / "assets", "etcd", "kube-apiserver", "kubectl")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with pytest.raises(LocalError, match=re.escape(f"KUBEBUILDER_ASSETS={assets} has no kube-controller-manager. Put")):
        find_binaries()


def test_a_file_that_cannot_be_run_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = _assets(tmp_path / "assets", *PACKAGES)
    (assets / "etcd").chmod(0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    with pytest.raises(LocalError, match="has no etcd"):
        find_binaries()


def test_a_program_is_built_and_kept(module: Path, cache: Path) -> None:
    directory = build(module, {"tiny": "tiny"})
    assert directory.parent == cache
    assert subprocess.run([directory / "tiny"], capture_output=True, check=True).stderr == b"tiny\n"
    built = (directory / "tiny").stat()
    assert build(module, {"tiny": "tiny"}) == directory
    assert (directory / "tiny").stat() == built


def test_other_sources_are_another_build(module: Path) -> None:
    first = build(module, {"tiny": "tiny"})
    (module / "go.mod").write_text("module tiny\n\ngo 1.22\n")
    assert build(module, {"tiny": "tiny"}) != first


def test_a_build_writes_nothing_into_the_module(module: Path) -> None:
    before = sorted(module.iterdir())
    module.chmod(0o555)
    build(module, {"tiny": "tiny"})
    assert sorted(module.iterdir()) == before


@pytest.mark.parametrize("setting", ["GOFLAGS=-mod=vendor", "GOOS=plan9", "GOWORK=/none", "CGO_ENABLED=1"])
def test_settings_of_the_user_do_not_change_the_build(
    setting: str, module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(*setting.split("=", 1))
    directory = build(module, {"tiny": "tiny"})
    assert subprocess.run([directory / "tiny"], capture_output=True, check=True).stderr == b"tiny\n"


def test_two_at_once_build_once(
    module: Path,
    tmp_path: Path,
    fake_go: Callable[[str], None],
    start_python: Callable[[str], subprocess.Popen[str]],
) -> None:
    log = tmp_path / "builds"
    fake_go(_NOTING_GO.format(log=log, go=find_go(module)))
    both = [start_python(_BUILD.format(module=str(module))) for _ in range(2)]
    places = {process.communicate(timeout=60)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(places) == 1
    assert log.read_text() == "build\n"


def test_a_broken_build_leaves_nothing_and_says_why(module: Path, cache: Path) -> None:
    (module / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    with pytest.raises(LocalError) as failure:
        build(module, {"tiny": "tiny"})
    assert str(failure.value).startswith("Building tiny failed")
    assert "undefined: undefined" in str(failure.value)
    assert [child.name for child in cache.iterdir()] == ["lock"]


def test_an_interrupted_build_leaves_nothing(
    module: Path,
    cache: Path,
    fake_go: Callable[[str], None],
    start_python: Callable[[str], subprocess.Popen[str]],
) -> None:
    fake_go(_HANGING_GO)
    builder = start_python(_BUILD.format(module=str(module)))
    assert builder.stderr is not None
    assert builder.stderr.readline().startswith("Building tiny:")
    assert builder.stderr.readline() == "Building tiny ... 1 s\n"
    builder.send_signal(signal.SIGINT)
    builder.communicate(timeout=30)
    assert [child.name for child in cache.iterdir()] == ["lock"]


def test_the_modules_of_the_control_plane_are_those_that_are_built() -> None:
    module = deploy_directory() / "local" / "controlplane"
    tools = re.search(r"^tool \((.*?)^\)", (module / "go.mod").read_text(), re.MULTILINE | re.DOTALL)
    assert tools is not None
    assert set(tools.group(1).split()) == set(PACKAGES.values())


def test_the_version_is_the_one_of_the_module(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n\nrequire (\n\tk8s.io/kubernetes v1.40.3\n)\n")
    flags = binaries._version_flags(tmp_path)
    assert "version.gitVersion=v1.40.3 " in flags
    assert "version.gitMajor=1 " in flags
    assert "version.gitMinor=40 " in flags
