"""What `serving-stack dev` does: the whole runtime in this terminal until it is told to end."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import TYPE_CHECKING, Final

import uvloop

from events import types
from events.codec import read
from events.journal import Journal
from functions.compose.sets import COMPOSITIONS
from functions.function import source_of
from functions.host import log
from functions.watch import connections
from functions.watch.runtime import Runtime
from functions.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from events.event import Event

_OF_A_SET: Final = "ai.modelplane.composition."
_RESULTS: Final = ("ai.modelplane.requirement", _OF_A_SET)
_CONDITIONS: Final = {source_of(f"compose/{each.name}"): each.condition for each in COMPOSITIONS}
_log: Final = logging.getLogger(__name__)


def run(kubeconfig: str | None, tick: float, journal: Path | None = None) -> None:
    """Runs until SIGINT or SIGTERM, and logs to stderr.

    Args:
        kubeconfig: Path of the hub's; None for what kubectl would use.
        tick: Seconds between two sweeps of everything.
        journal: File to which each event is appended; None for none.

    Raises:
        KubeconfigInvalid: There is none, or it leads nowhere.
    """
    log.configure("info")
    # A line for each event is for `serve`; here the broker tells what could not be delivered.
    logging.getLogger("functions.host.host").setLevel(logging.ERROR)
    connections.allow_many()
    uvloop.run(_run(kubeconfig, tick, journal))


async def _run(kubeconfig: str | None, tick: float, journal: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    world = World.open(kubeconfig)
    world.journal = None if journal is None else Journal(journal)
    try:
        async with Runtime(world, tick=tick, on_event=Reporter().report):
            hint = "kubectl get inferenceclusters shows the conditions; Ctrl-C ends"
            _log.info("started", extra={"hub": world.hub.client.server, "detail": hint})
            await stop.wait()
    finally:
        await world.close()
    _log.info("ended")


class Reporter:
    """Says which cluster turned to what; a finding that is said again is no news."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def report(self, event: Event) -> None:
        """Logs a result, passes over any other event."""
        subject = event.subject or ""
        if not event.type.startswith(_RESULTS) or self._said.get(f"{event.source} {subject}") == event.id:
            return
        self._said[f"{event.source} {subject}"] = event.id
        fields = {"cluster": event.extensions["cluster"]}
        if event.type.startswith(_OF_A_SET):
            composed = read(event, types.CompositionJudged)
            text = f"{_CONDITIONS[event.source]}: {composed.status}, {composed.reason}"
            message = composed.message
        elif "component" in event.extensions:
            judged = read(event, types.RequirementJudged)
            text = f"{event.extensions['component']}: {judged.outcome}"
            message = judged.message
        else:
            summary = read(event, types.RequirementsJudged)
            text = f"RequirementsMet: {summary.status}"
            message = summary.message
            fields["see"] = f"kubectl describe inferencecluster {fields['cluster']}"
        _log.info(text, extra=fields | ({"detail": message} if message else {}))
