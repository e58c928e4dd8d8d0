"""`serving-stack dev`: broker, watch source and all functions in one process, against a hub."""

from __future__ import annotations

from pathlib import Path

import click

from functions.access.errors import KubeconfigInvalid


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False),
    help="Of the hub; by default what kubectl would use.",
)
@click.option(
    "--tick",
    default=60.0,
    type=click.FloatRange(min=1),
    show_default=True,
    metavar="SECONDS",
    help="How often every cluster is looked at though nothing changed.",
)
@click.option(
    "--journal",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append every event as a line of JSON; `serving-stack replay` sends them again.",
)
def dev(*, kubeconfig: str | None, tick: float, journal: Path | None) -> None:
    """Run everything in this terminal against a hub, until Ctrl-C.

    Does what the installed functions would: writes the conditions of each InferenceCluster that brings its own
    substrate, and creates, mends and deletes Modelplane's own objects on its target. Says here what turns.
    """
    from functions.watch.dev import run  # noqa: PLC0415 - `dev --help` needs none of the functions

    try:
        run(kubeconfig, tick, journal)
    except KubeconfigInvalid as error:
        raise click.UsageError(str(error)) from None
