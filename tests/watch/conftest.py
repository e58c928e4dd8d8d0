"""Fixtures for the watch tests: a hub that is its own target, and a target apart from it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.catalog import COMPONENTS
from functions.local.instance import ControlPlane
from tests.support import install, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from functions.local.binaries import Binaries


@pytest.fixture
def api_hub(hub: ControlPlane) -> ControlPlane:
    """A hub that is its own target, with one Provided cluster `gpu-1`."""
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api)
    return hub


@pytest.fixture(scope="session")
def target(binaries: Binaries) -> Iterator[ControlPlane]:
    """A cluster with the whole substrate installed; whoever puts more on it takes that away again."""
    with ControlPlane(binaries) as control_plane:
        asyncio.run(_install(control_plane))
        control_plane.wait_until_ready()
        yield control_plane


@pytest.fixture
async def client(target: ControlPlane) -> AsyncIterator[Client]:
    """Of that target."""
    made = Client(kubeconfig.load_file(target.kubeconfig))
    yield made
    await made.close()


async def _install(control_plane: ControlPlane) -> None:
    client = Client(kubeconfig.load_file(control_plane.kubeconfig), timeout=30)
    try:
        for each in COMPONENTS:
            await install(client, each.key)
    finally:
        await client.close()
