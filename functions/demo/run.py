"""The demonstration from its first download to the last trace of it; `serving-stack demo` calls it."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final

import uvloop

from functions.catalog import of_stack
from functions.demo.story import STACK, tell
from functions.host import log
from functions.local.binaries import find_binaries
from functions.local.instance import ControlPlane
from functions.local.processes import exit_on_signals
from functions.local.substrate import manifests

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType

_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def run() -> int:
    """Shows it; a signal that ends it leaves no process and no file.

    Returns:
        The exit code: 1 where something did not follow, 128 and the number of a signal that ended it.

    Raises:
        LocalError: The control plane or the CRDs cannot be had.
    """
    exit_on_signals()
    log.configure("error")
    control_plane = ControlPlane(find_binaries())
    for component in of_stack(STACK):  # beforehand, so that no network stands between an installation and its condition
        manifests(component.key)
    try:
        control_plane.start()
        return uvloop.run(until_signal(tell(control_plane)))
    finally:
        control_plane.stop()


async def until_signal(story: Coroutine[Any, Any, int]) -> int:
    """Tells the story until a signal cancels it; answers with its exit code.

    What a signal raises within an event loop may meet code that logs it and goes on, such as that which takes what came
    from a socket. So here it raises nothing.
    """
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(story)
    before = {each: signal.getsignal(each) for each in _ENDING}
    heeded = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    caught: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        for each in heeded:  # the first is the last
            signal.signal(each, signal.SIG_IGN)
        caught.append(number)
        loop.call_soon_threadsafe(task.cancel)

    for each in heeded:
        signal.signal(each, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]
    finally:
        if not caught:
            for number, handler in heeded.items():
                signal.signal(number, handler)
