"""From the settings of `serving-stack serve`, which calls it, to a process that serves."""

from __future__ import annotations

import gc
import logging
import os
from time import monotonic
from typing import TYPE_CHECKING

import uvloop

from events.journal import Journal
from events.publisher import NoSink, Publisher
from functions.access.errors import KubeconfigInvalid
from functions.deploy_files import NAMESPACE
from functions.host import log, run
from functions.host.callers import Callers
from functions.host.host import Host
from functions.registry import FUNCTIONS
from functions.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from functions.function import Function

_log = logging.getLogger(__name__)


class WrongSetting(ValueError):  # noqa: N818 - named for what is wrong
    """A setting that cannot be had; the text names it and says what to set."""


def serve(
    names: str | None,
    *,
    port: int,
    listen: str | None,
    concurrency: int,
    connections: int,
    log_level: str,
    kubeconfig: str | None,
    journal: Path | None = None,
    audience: str | None = None,
) -> None:
    """Serve until a signal says to end.

    Args:
        names: Of the functions, separated by commas, all below a path that ends in a slash; None for all.
        port: TCP port; 0 lets the system choose.
        listen: Address; all interfaces when None.
        concurrency: How many events may be in work at once.
        connections: How many may be open at once.
        log_level: Least level that is logged.
        kubeconfig: File for the hub; None for what kubectl would use, in a pod its ServiceAccount.
        journal: File of the functions that record events; None where none of them is served.
        audience: For whom a caller's token has to be made; None where no token is asked for.

    Raises:
        WrongSetting: One cannot be had, such as a port that is taken.
    """
    log.configure(log_level)
    functions, publisher = _chosen(names, records=journal is not None), _publisher()

    async def run_until_told() -> None:
        world = World.open(kubeconfig)
        world.journal = None if journal is None else Journal(journal)
        gc.freeze()  # it lives as long as the process, so the collector need not look at it ever again
        gc.enable()
        host = Host(functions, world, publisher)
        try:
            await run.serve(
                host,
                port=port,
                listen=listen,
                concurrency=concurrency,
                connections=connections,
                callers=None
                if audience is None
                else Callers(world.hub.client, audience, NAMESPACE, monotonic=monotonic),
            )
        finally:
            await world.close()
            if publisher is not None:
                await publisher.close()

    try:
        uvloop.run(run_until_told())
    except (KubeconfigInvalid, OSError) as error:  # the port is taken, an address is not ours
        raise WrongSetting(str(error)) from None


def _chosen(names: str | None, *, records: bool) -> list[Function]:
    if names is None:
        return [each for each in FUNCTIONS.values() if records or not each.records]
    wanted = list(dict.fromkeys(each for name in names.split(",") if name.strip() for each in _below(name.strip())))
    unknown = [name for name in wanted if name not in FUNCTIONS]
    if unknown or not wanted:
        what = f"unknown function {', '.join(unknown)}" if unknown else "no function is named"
        raise WrongSetting(f"--functions: {what}; there are {', '.join(FUNCTIONS)}")
    recording = [name for name in wanted if FUNCTIONS[name].records]
    if recording and not records:
        raise WrongSetting(f"--functions: {', '.join(recording)} needs --journal FILE")
    return [FUNCTIONS[name] for name in wanted]


def _below(name: str) -> list[str]:
    """The functions below a path that ends in a slash; else the name itself."""
    return [each for each in FUNCTIONS if each.startswith(name)] or [name] if name.endswith("/") else [name]


def _publisher() -> Publisher | None:
    if not os.environ.get("K_SINK"):
        _log.warning(
            "K_SINK is not set: an event that is followed by others which do not fit into the answer is answered 503"
        )
        return None
    try:
        return Publisher.from_environment()
    except NoSink as error:
        raise WrongSetting(str(error)) from None
