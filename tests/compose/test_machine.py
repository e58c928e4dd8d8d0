"""What is promised of the composed objects holds through random lives of a cluster."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from functions.access import kubeconfig
from functions.access.client import Client
from tests.compose.machine import Machine
from tests.compose.small import DEFINITIONS, collection, definition
from tests.support import CRDS, apply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.local.instance import ControlPlane

SOAK = float(os.environ.get("SOAK_MINUTES", "0"))
"""Minutes that `make soak` asks for; without it the test is a short one."""
_LIVES = 8
_SETTINGS = settings(
    deadline=None,
    stateful_step_count=20,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking what takes seconds takes hours
)


@pytest.fixture
def machine(hub: ControlPlane) -> Iterator[type[Machine]]:
    """The machine on a cluster with small CRDs."""
    for name in DEFINITIONS:
        apply(hub.api, f"{CRDS}/{name}", definition(name))
    for name in DEFINITIONS:
        while hub.api.request("GET", collection(name)).status != 200:
            pass
    Machine.plane, Machine.done = hub, Counter()
    with asyncio.Runner() as runner:
        Machine.runner = runner
        Machine.observer = runner.run(_client(hub))
        yield Machine
        runner.run(Machine.observer.close())


async def _client(plane: ControlPlane) -> Client:
    return Client(kubeconfig.load_file(plane.kubeconfig))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(SOAK), reason="the long one runs instead")
def test_lives(machine: type[Machine]) -> None:
    run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=_LIVES))
    assert machine.done["lives"] >= _LIVES


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.skipif(not SOAK, reason="make soak runs it")
def test_many_lives(machine: type[Machine]) -> None:
    begun = monotonic()
    while (passed := (monotonic() - begun) / 60) < SOAK:
        run_state_machine_as_test(machine, settings=settings(_SETTINGS, max_examples=10, stateful_step_count=50))
        print(f"\n{passed:.1f} of {SOAK:g} minutes: {machine.done['lives']} lives", flush=True)  # noqa: T201
    print(*(f"{number:7} {name}" for name, number in sorted(machine.done.items())), sep="\n")  # noqa: T201
