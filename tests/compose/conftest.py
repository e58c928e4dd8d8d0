"""Fixtures for the composed objects: a target with the real CRDs, and stand-ins for their controllers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from functions.local.instance import ControlPlane
from tests.compose.apart import Apart, apart, install
from tests.compose.stage import Stage
from tests.support import Moving, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from functions.local.binaries import Binaries


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


@pytest.fixture(scope="session")
def away_once(binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane with the substrate installed, for tests that leave it as they found it; with it, use `away`."""
    with ControlPlane(binaries) as target:
        install(target)
        yield target


@pytest.fixture
async def away(hub: ControlPlane, away_once: ControlPlane, time: Moving) -> AsyncIterator[Apart]:
    """A hub and a target apart from it, with `gpu-1` registered on the Dynamo stack and nothing composed."""
    async with apart(hub, away_once, time) as stage:
        yield stage
