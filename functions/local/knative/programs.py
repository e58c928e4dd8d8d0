"""The programs of Knative Eventing, built once from the Go module that deploy/local/knative pins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from functions.deploy_files import deploy_directory
from functions.local.binaries import build
from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_COMMANDS: Final = "knative.dev/eventing/cmd/"
PROGRAMS: Final = (
    "apiserver_receive_adapter",
    "broker/filter",
    "broker/ingress",
    "controller",
    "in_memory/channel_controller",
    "in_memory/channel_dispatcher",
    "mtchannel_broker",
    "mtping",
    "webhook",
)
"""The main packages that are built, below cmd/ of the module."""


def find_programs() -> Mapping[str, Path]:
    """The programs by their package below cmd/, built if need be: minutes the first time.

    Raises:
        LocalError: The build is not possible.
    """
    packages = {_file(program): _COMMANDS + program for program in PROGRAMS}
    directory = build(deploy_directory() / "local" / "knative", packages, kind="knative", what="Knative")
    return {program: directory / _file(program) for program in PROGRAMS}


def version() -> str:
    """The version of Knative Eventing that is built.

    Raises:
        LocalError: The module does not require any.
    """
    pins = (deploy_directory() / "local" / "knative" / "go.mod").read_text()
    found = re.search(r"^\s*knative\.dev/eventing (v\S+)", pins, re.MULTILINE)
    if found is None:
        raise LocalError("deploy/local/knative/go.mod does not require knative.dev/eventing")
    return found[1]


def _file(program: str) -> str:
    return program.replace("/", "-")
