"""Fixtures for the commands that look at composed objects: a hub and a target apart from it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from functions.local.instance import ControlPlane
from tests.compose.apart import Apart, apart, install
from tests.support import Moving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from functions.local.binaries import Binaries


@pytest.fixture
def time() -> Moving:
    """The time of the functions, which stands still unless a test moves it."""
    return Moving(datetime.now(UTC))


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
