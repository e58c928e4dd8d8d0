"""Where etcd, kube-apiserver, kube-controller-manager and kubectl come from, and how any Go program is built once.

`KUBEBUILDER_ASSETS` if it is set, else the user's cache, else a build from the Go modules in deploy/local.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.deploy_files import deploy_directory
from functions.local.cache import cache_directory, made_once
from functions.local.errors import LocalError
from functions.local.go_toolchain import environment, find_go
from functions.local.processes import run, say

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
KUBECTL: Final[Mapping[str, str]] = {"kubectl": "k8s.io/kubernetes/cmd/kubectl"}


@dataclass(frozen=True, slots=True)
class Binaries:
    """The three programs of a control plane."""

    etcd: Path
    kube_apiserver: Path
    kube_controller_manager: Path


def find_binaries() -> Binaries:
    """The programs of the control plane, built if need be: minutes the first time, progress is shown on stderr.

    Raises:
        LocalError: `KUBEBUILDER_ASSETS` lacks one, or the build is not possible.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    directory = _assets(Path(assets)) if assets else build(deploy_directory() / "local" / "controlplane", PACKAGES)
    return Binaries(
        etcd=directory / "etcd",
        kube_apiserver=directory / "kube-apiserver",
        kube_controller_manager=directory / "kube-controller-manager",
    )


def find_kubectl() -> Path:
    """Kubernetes' own kubectl, of the control plane's version; built if need be, as the servers are.

    Raises:
        LocalError: The build is not possible.
    """
    asset = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/none", "kubectl")
    if os.access(asset, os.X_OK):
        return asset.resolve()
    return build(deploy_directory() / "local" / "kubectl", KUBECTL, kind="kubectl", what="kubectl") / "kubectl"


def _assets(directory: Path) -> Path:
    missing = [name for name in PACKAGES if not os.access(directory / name, os.X_OK)]
    if missing:
        raise LocalError(
            f"KUBEBUILDER_ASSETS={directory} has no {', no '.join(missing)}. "
            "Put all three programs there, or unset KUBEBUILDER_ASSETS to have them built."
        )
    return directory.resolve()


def build(
    module: Path, packages: Mapping[str, str], *, kind: str = "controlplane", what: str = "the control plane"
) -> Path:
    """Build programs from a Go module, unless the cache has them from the same sources.

    Args:
        module: The directory with go.mod and go.sum; nothing is written there.
        packages: The main packages by the name of their program.
        kind: The folder of the cache that keeps such builds.
        what: What is built, for the message to those who wait for another process to build it.

    Returns:
        The directory that holds the programs.

    Raises:
        LocalError: Go cannot be had, or the build fails; nothing half-made is left.
    """
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {_version_flags(module)}".rstrip()]

    def compile_all(directory: Path) -> None:
        go = find_go(module)
        say(f"Building {', '.join(packages)}: minutes the first time, then never again")
        for program, package in packages.items():
            command = [str(go), "build", *flags, "-o", str(directory / program), package]
            run(f"Building {program}", command, cwd=module, env=environment())

    sources = [(module / name).read_bytes() for name in ("go.mod", "go.sum") if (module / name).exists()]
    inputs = [*sources, *(text.encode() for text in (*flags, *packages, sys.platform, platform.machine()))]
    digest = hashlib.sha256(b"\0".join(inputs)).hexdigest()[:16]
    return made_once(cache_directory() / kind / digest, what, compile_all)


def _version_flags(module: Path) -> str:
    """Linker flags that tell Kubernetes its own version, which is the one that go.mod requires."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        return ""
    version, major, minor = found.groups()
    variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in variables.items())
