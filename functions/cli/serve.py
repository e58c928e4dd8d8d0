"""`serving-stack serve`: what the container runs. Every option can come from the environment, as Knative sets it."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from events.publisher import Publisher
    from functions.function import Function


@click.command()
@click.option(
    "--functions",
    "names",
    envvar="SERVING_STACK_FUNCTIONS",
    show_envvar=True,
    metavar="A,B,…",
    help="Names of the functions; all by default.",
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
    "--log-level",
    envvar="SERVING_STACK_LOG_LEVEL",
    show_envvar=True,
    default="info",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    show_default=True,
    help="Least level that is logged.",
)
@click.option(
    "--kubeconfig",
    envvar="SERVING_STACK_KUBECONFIG",
    show_envvar=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Of the hub; by default what kubectl would use, in a pod its ServiceAccount.",
)
def serve(
    *, names: str | None, port: int, listen: str | None, concurrency: int, log_level: str, kubeconfig: str | None
) -> None:
    """Serve functions over HTTP, as Knative calls them.

    POST /<function> takes a CloudEvent; /health/liveness, /health/readiness and /metrics are there for the cluster.
    Events that do not fit into an answer go to K_SINK (with K_CE_OVERRIDES and K_CA_CERTS as a SinkBinding sets them).
    """
    gc.disable()  # what start-up makes is no garbage: looking for some would take a tenth of the time until it is ready
    import uvloop  # noqa: PLC0415 - `serve --help` needs none of this

    from functions.access.errors import KubeconfigInvalid  # noqa: PLC0415
    from functions.host import log  # noqa: PLC0415

    log.configure(log_level)
    functions = _chosen(names)
    publisher = _publisher()
    serving = _serve(functions, publisher, port=port, listen=listen, concurrency=concurrency, kubeconfig=kubeconfig)
    try:
        uvloop.run(serving)
    except (KubeconfigInvalid, OSError) as error:  # the port is taken, an address is not ours
        raise click.UsageError(str(error)) from None


def _chosen(names: str | None) -> list[Function]:
    from functions.registry import FUNCTIONS  # noqa: PLC0415

    if names is None:
        return list(FUNCTIONS.values())
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    unknown = [name for name in wanted if name not in FUNCTIONS]
    if unknown or not wanted:
        what = f"unknown function {', '.join(unknown)}" if unknown else "no function is named"
        raise click.BadParameter(f"{what}; there are {', '.join(FUNCTIONS)}", param_hint="--functions")
    return [FUNCTIONS[name] for name in wanted]


def _publisher() -> Publisher | None:
    import logging  # noqa: PLC0415
    import os  # noqa: PLC0415

    from events.publisher import NoSink, Publisher  # noqa: PLC0415

    if not os.environ.get("K_SINK"):
        logging.getLogger(__name__).warning(
            "K_SINK is not set: an event that is followed by others which do not fit into the answer is answered 503"
        )
        return None
    try:
        return Publisher.from_environment()
    except NoSink as error:
        raise click.UsageError(str(error)) from None


async def _serve(
    functions: list[Function],
    publisher: Publisher | None,
    *,
    port: int,
    listen: str | None,
    concurrency: int,
    kubeconfig: str | None,
) -> None:
    from functions.host import run  # noqa: PLC0415
    from functions.host.host import Host  # noqa: PLC0415
    from functions.world import World  # noqa: PLC0415

    world = World.open(kubeconfig)
    gc.freeze()  # it lives as long as the process, so the collector need not look at it ever again
    gc.enable()
    try:
        await run.serve(Host(functions, world, publisher), port=port, listen=listen, concurrency=concurrency)
    finally:
        await world.close()
        if publisher is not None:
            await publisher.close()
