"""Fixtures for the composed objects: a target with the real CRDs, and stand-ins for their controllers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from functions.local.instance import ControlPlane
from tests.compose.apart import Apart, apart, install
from tests.compose.stage import Stage
from tests.compose.whole import Whole, everything
from tests.faults import Faulty, faulty
from tests.support import Moving, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

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


@pytest.fixture
async def before_hub(away: Apart, tmp_path: Path) -> AsyncIterator[Faulty]:
    """What the functions on stage `away` take for the hub's API server; behaves until a test adds a fault."""
    async with faulty(away.hub) as server:
        away.path = tmp_path / "hub.kubeconfig"
        away.path.write_bytes(server.kubeconfig)
        await away.restart()
        yield server
        await away.world.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole_once(hub_once: ControlPlane, away_once: ControlPlane) -> AsyncIterator[Whole]:
    """A target on which everything is composed, as long as the module runs; with it, use `whole`."""
    async with everything(hub_once, away_once) as stage:
        yield stage


@pytest_asyncio.fixture(loop_scope="module")
async def whole(whole_once: Whole) -> AsyncIterator[Whole]:
    """Everything is composed and ready before the test, and can be made so again after it."""
    await whole_once.restore()
    yield whole_once
    await whole_once.restore()
