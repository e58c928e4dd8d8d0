"""Go modules that are read and not compiled: where the module cache has their files.

Used for the CRDs of the substrate and for the manifests of Knative.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from functions.local.go_toolchain import environment, find_go
from functions.local.processes import run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def module_directories(home: Path, modules: Sequence[str]) -> Mapping[str, Path]:
    """Where the module cache has each module, downloaded if need be.

    Args:
        home: The directory with the go.mod that pins them; nothing is written there.
        modules: Their paths, such as `sigs.k8s.io/lws`.

    Raises:
        LocalError: Go cannot be had, or a module cannot be downloaded.
    """
    go = str(find_go(home))
    run("Downloading Go modules", [go, "mod", "download", *modules], cwd=home, env=environment())
    listing = [go, "list", "-m", "-f", "{{.Path}}\t{{.Dir}}", *modules]
    listed = run("Looking them up", listing, cwd=home, env=environment())
    return {module: Path(directory) for module, _, directory in (line.partition("\t") for line in listed.splitlines())}
