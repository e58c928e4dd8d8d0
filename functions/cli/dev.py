"""`serving-stack dev`: broker, watch source and all functions in one process, against a hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from events.event import Event


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
def dev(*, kubeconfig: str | None, tick: float) -> None:
    """Run everything in this terminal against a hub, until Ctrl-C.

    Writes the conditions of each InferenceCluster that brings its own substrate, as the installed functions would, and
    says here what turns.
    """
    import logging  # noqa: PLC0415 - `dev --help` needs none of this

    import uvloop  # noqa: PLC0415

    from functions.access.errors import KubeconfigInvalid  # noqa: PLC0415
    from functions.host import log  # noqa: PLC0415

    log.configure("info")
    # A line for each event is for `serve`; here the broker tells what could not be delivered.
    logging.getLogger("functions.host.host").setLevel(logging.ERROR)
    try:
        uvloop.run(_dev(kubeconfig, tick))
    except KubeconfigInvalid as error:
        raise click.UsageError(str(error)) from None


async def _dev(kubeconfig: str | None, tick: float) -> None:
    import asyncio  # noqa: PLC0415
    import logging  # noqa: PLC0415
    import signal  # noqa: PLC0415

    from functions.watch.runtime import Runtime  # noqa: PLC0415
    from functions.world import World  # noqa: PLC0415

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    logger = logging.getLogger(__name__)
    world = World.open(kubeconfig)
    try:
        async with Runtime(world, tick=tick, on_event=Reporter().report):
            hint = "kubectl get inferenceclusters shows the conditions; Ctrl-C ends"
            logger.info("started", extra={"hub": world.hub.client.server, "detail": hint})
            await stop.wait()
    finally:
        await world.close()
    logger.info("ended")


class Reporter:
    """Says which cluster turned to what; a finding that is said again is no news."""

    def __init__(self) -> None:
        import logging  # noqa: PLC0415

        self._log = logging.getLogger(__name__)
        self._said: dict[str, str] = {}

    def report(self, event: Event) -> None:
        """Logs a result, passes over any other event."""
        subject = event.subject or ""
        if not event.type.startswith("ai.modelplane.requirement") or self._said.get(subject) == event.id:
            return
        self._said[subject] = event.id
        self._say(event)

    def _say(self, event: Event) -> None:
        from events import types  # noqa: PLC0415
        from events.codec import read  # noqa: PLC0415

        fields = {"cluster": event.extensions["cluster"]}
        if "component" in event.extensions:
            judged = read(event, types.RequirementJudged)
            text = f"{event.extensions['component']}: {judged.outcome}"
            message = judged.message
        else:
            summary = read(event, types.RequirementsJudged)
            text = f"RequirementsMet: {summary.status}"
            message = summary.message
            fields["see"] = f"kubectl describe inferencecluster {fields['cluster']}"
        self._log.info(text, extra=fields | ({"detail": message} if message else {}))
