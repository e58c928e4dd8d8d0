"""What `serving-stack watch` does: the watch source alone, which sends its events to the sink of a ContainerSource."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import uvloop

from events.publisher import Publisher
from functions.host import log
from functions.watch import connections
from functions.watch.source import WatchSource
from functions.world import World

if TYPE_CHECKING:
    from collections.abc import Collection

    from functions.watch.reflector import Resource
    from functions.watch.shards import Shard

_log: Final = logging.getLogger(__name__)


def run(kubeconfig: str | None, *, shard: Shard, told: Collection[Resource], log_level: str) -> None:
    """Watches until SIGINT or SIGTERM, and logs to stderr.

    Args:
        kubeconfig: Path of the hub's; None for what kubectl would use, in a pod its ServiceAccount.
        shard: Which of the targets are watched.
        told: What is told of the hub.
        log_level: Least level that is logged.

    Raises:
        KubeconfigInvalid: There is none, or it leads nowhere.
        NoSink: The environment does not say where to send events.
    """
    log.configure(log_level)
    connections.allow_many()
    uvloop.run(_run(kubeconfig, shard, told))


async def _run(kubeconfig: str | None, shard: Shard, told: Collection[Resource]) -> None:
    world = World.open(kubeconfig)
    try:
        async with Publisher.from_environment() as publisher:
            source = WatchSource(world, publisher.publish, told=() if shard.number else told, follows=shard.follows)
            watching = asyncio.ensure_future(source.run())
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, watching.cancel)
            _log.info("watching", extra={"hub": world.hub.client.server, "shard": f"{shard.number}/{shard.count}"})
            with suppress(asyncio.CancelledError):
                await watching
    finally:
        await world.close()
    _log.info("ended")
