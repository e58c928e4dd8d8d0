"""Which cluster a command talks to: told, found and named as kubectl does it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from functions.access.errors import KubeconfigInvalid, UnknownContext
from functions.cli.formats.lines import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from functions.access.connection import Connection

_Command = TypeVar("_Command", bound="Callable[..., Any]")


def cluster_options(command: _Command) -> _Command:
    """Gives a command `--kubeconfig` and `--context`, parameters `kubeconfig` and `context`."""
    context = click.option("--context", metavar="NAME", help="Of the kubeconfig; its current context by default.")
    file = click.option(
        "--kubeconfig",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="By default what kubectl would use: KUBECONFIG, else ~/.kube/config.",
    )
    return file(context(command))


def as_kubectl(kubeconfig: str | None, context: str | None) -> str:
    """How kubectl is told to look at the same cluster."""
    flags = [("--kubeconfig", kubeconfig), ("--context", context)]
    return printable(shlex.join(["kubectl", *(word for name, value in flags if value for word in (name, value))]))


def find_connection(path: str | None, context: str | None) -> Connection:
    """The way to the cluster.

    Raises:
        KubeconfigInvalid: There is no usable kubeconfig.
        BadParameter: It does not have the context that --context names.
    """
    from functions.access import kubeconfig  # noqa: PLC0415 - no command's `--help` needs it

    try:
        return kubeconfig.from_files([Path(path)] if path else None, context)
    except KubeconfigInvalid as trouble:
        if context and isinstance(trouble, UnknownContext):
            raise click.BadParameter(printable(trouble.message), param_hint="--context") from None
        raise
