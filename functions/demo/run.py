"""The demonstration from its first download to the last trace of it; `serving-stack demo` calls it."""

from __future__ import annotations

import uvloop

from functions.catalog import of_stack
from functions.demo.story import STACK, tell
from functions.host import log
from functions.local.binaries import find_binaries
from functions.local.instance import ControlPlane
from functions.local.processes import exit_on_signals
from functions.local.substrate import manifests


def run() -> int:
    """Shows it; a signal that ends it leaves no process and no file.

    Returns:
        The exit code: 1 where a condition did not follow.

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
        return uvloop.run(tell(control_plane))
    finally:
        control_plane.stop()
