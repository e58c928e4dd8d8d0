"""`serving-stack watch`: the watch source alone, as a ContainerSource runs it."""

from __future__ import annotations

from typing import Final

import click

from functions.access.errors import KubeconfigInvalid
from functions.cli import process_options

KINDS: Final = ("InferenceCluster", "InferenceGateway", "Secret")


@click.command()
@process_options.hub_kubeconfig
@click.option(
    "--shard",
    envvar="SERVING_STACK_SHARD",
    show_envvar=True,
    default="0/1",
    show_default=True,
    metavar="I/N",
    help="Which of N sources this is, from 0; each target is watched by one of them.",
)
@click.option(
    "--hub-kinds",
    envvar="SERVING_STACK_HUB_KINDS",
    show_envvar=True,
    default=",".join(KINDS),
    show_default=True,
    metavar="A,B,…",
    help="What to tell of the hub itself; leave out what an ApiServerSource tells.",
)
@process_options.log_level
def watch(*, kubeconfig: str | None, shard: str, hub_kinds: str, log_level: str) -> None:
    """Watch the hub and the target of every InferenceCluster, and send what changes to K_SINK.

    Clusters that are added, removed or get another kubeconfig are followed without a restart.
    """
    from events.publisher import NoSink  # noqa: PLC0415 - `watch --help` needs none of this
    from functions.watch import standalone  # noqa: PLC0415
    from functions.watch.shards import Shard  # noqa: PLC0415
    from functions.watch.source import HUB  # noqa: PLC0415

    wanted = {each.strip() for each in hub_kinds.split(",") if each.strip()}
    unknown = sorted(wanted - set(KINDS))
    if unknown:
        raise click.BadParameter(f"there are {', '.join(KINDS)}, not {', '.join(unknown)}", param_hint="--hub-kinds")
    try:
        parsed = Shard.parse(shard)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--shard") from None
    told = [each for each in HUB if each.kind in wanted]
    try:
        standalone.run(kubeconfig, shard=parsed, told=told, log_level=log_level)
    except (KubeconfigInvalid, NoSink) as error:
        raise click.UsageError(str(error)) from None
