"""Fixtures for the composed objects: a target with the real CRDs, and stand-ins for their controllers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.compose.stage import Stage
from tests.support import Moving, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.instance import ControlPlane


@pytest.fixture
def time() -> Moving:
    """The time of the functions, which stands still unless a test moves it."""
    return Moving(datetime.now(UTC))


@pytest.fixture
async def stage(hub: ControlPlane, time: Moving) -> AsyncIterator[Stage]:
    """A hub that is its own target, with `gpu-1` registered on the Dynamo stack and nothing installed."""
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    world = await open_world(hub.kubeconfig, time.clock)
    yield Stage(hub.api, world)
    await world.close()
