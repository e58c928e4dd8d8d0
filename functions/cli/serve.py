"""`serving-stack serve`: what the container runs. Every option can come from the environment, as Knative sets it."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from functions.cli import process_options


@click.command()
@click.option(
    "--functions",
    "names",
    envvar="SERVING_STACK_FUNCTIONS",
    show_envvar=True,
    metavar="A,B,…",
    help="Names of the functions, `probes/` for all below it; all by default.",
)
@click.option(
    "--port",
    envvar="PORT",
    show_envvar=True,
    default=8080,
    type=click.IntRange(0, 65535),
    show_default=True,
    help="TCP port.",
)
@click.option(
    "--listen",
    envvar="SERVING_STACK_LISTEN",
    show_envvar=True,
    metavar="ADDRESS",
    help="Address; all interfaces by default.",
)
@click.option(
    "--concurrency",
    envvar="SERVING_STACK_CONCURRENCY",
    show_envvar=True,
    default=64,
    type=click.IntRange(min=1),
    show_default=True,
    help="Events in work at once; those beyond are answered 503.",
)
@click.option(
    "--connections",
    envvar="SERVING_STACK_CONNECTIONS",
    show_envvar=True,
    default=900,
    type=click.IntRange(min=1),
    show_default=True,
    help="Connections open at once, fewer than the process may have files; those beyond are closed.",
)
@process_options.log_level
@process_options.hub_kubeconfig
@click.option(
    "--journal",
    envvar="SERVING_STACK_JOURNAL",
    show_envvar=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where `journal` or `dead-letters` writes events; without it neither is served.",
)
@click.option(
    "--audience",
    envvar="SERVING_STACK_AUDIENCE",
    show_envvar=True,
    metavar="NAME",
    help="Take events only from those who show a token for this audience, of a ServiceAccount in our namespace.",
)
def serve(
    *,
    names: str | None,
    port: int,
    listen: str | None,
    concurrency: int,
    connections: int,
    log_level: str,
    kubeconfig: str | None,
    journal: Path | None,
    audience: str | None,
) -> None:
    """Serve functions over HTTP, as Knative calls them.

    POST /<function> takes a CloudEvent; /health/liveness, /health/readiness and /metrics are there for the cluster.
    Events that do not fit into an answer go to K_SINK (with K_CE_OVERRIDES and K_CA_CERTS as a SinkBinding sets them).
    """
    gc.disable()  # what start-up makes is no garbage: looking for some would take a tenth of the time until it is ready
    from functions.host import serve as process  # noqa: PLC0415 - `serve --help` needs none of this

    try:
        process.serve(
            names,
            port=port,
            listen=listen,
            concurrency=concurrency,
            connections=connections,
            log_level=log_level,
            kubeconfig=kubeconfig,
            journal=journal,
            audience=audience,
        )
    except process.WrongSetting as error:
        raise click.UsageError(str(error)) from None
