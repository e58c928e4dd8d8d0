"""Beside Modelplane, whose controller writes the whole status all the time: no condition of either side is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.catalog import CustomResource, DeviceClass, Stack, component
from functions.conditions import checked_components
from functions.watch.runtime import Runtime
from tests.support import (
    CLUSTERS,
    CRDS,
    apply,
    get_cluster,
    happened,
    open_world,
    provide,
    put_cluster,
    put_kubeconfig,
    served,
    withdraw,
)
from tests.watch.modelplane import OTHERS, Controller, definition
from tests.watch.watching import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World
    from tests.conftest import StartControlPlane

TICK = 0.5
SEED = 1
RESTS = 10
"""How often it may turn out not to have come to rest yet."""
ENOUGH = {"writes": 30, "conflicts": 2, "spec": 3}
OURS = frozenset(
    {"RequirementsMet", "GatewayComposed", *(each.condition for each in checked_components(Stack.STANDARD))}
)
COMES_AND_GOES = (
    component("cert-manager").requirements[0],
    component("trust-manager").requirements[0],
    DeviceClass("gpu.nvidia.com"),
)


@pytest.fixture
def hub(start_control_plane: StartControlPlane) -> ControlPlane:
    """A hub that is its own target, with Modelplane's definition of an InferenceCluster in place of the project's."""
    hub = start_control_plane()
    crd = definition()
    apply(hub.api, f"{CRDS}/{crd['metadata']['name']}", crd)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "modelplane-system"}}
    apply(hub.api, "/api/v1/namespaces/modelplane-system", namespace)
    hub.wait_until_ready()
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    return hub


@pytest.fixture
async def world(hub: ControlPlane) -> AsyncIterator[World]:
    world = await open_world(hub.kubeconfig)
    yield world
    await world.close()


@pytest.fixture
async def client(hub: ControlPlane) -> AsyncIterator[Client]:
    """Of the other controller, and of whoever looks on."""
    client = Client(kubeconfig.load_file(hub.kubeconfig))
    yield client
    await client.close()


@dataclass(slots=True)
class Seen:
    """Every version of the InferenceCluster as a watch tells of it.

    Attributes:
        lacking: What a version lacked that an earlier one had, each time that it began to.
    """

    had: set[str] = field(default_factory=set)
    lacking: list[str] = field(default_factory=list)
    _missed: set[str] = field(default_factory=set)

    def note(self, found: dict[str, Any]) -> None:
        there = {each["type"] for each in found.get("status", {}).get("conditions", ())}
        missed = self.had - there
        self.lacking += sorted(missed - self._missed)
        self.had |= there
        self._missed = missed


@asynccontextmanager
async def noted(client: Client) -> AsyncIterator[Seen]:
    """What is seen of gpu-1 in the meantime."""
    seen = Seen()

    async def watch() -> None:
        async with aclosing(client.watch(CLUSTERS, params={"fieldSelector": "metadata.name=gpu-1"})) as events:
            async for event in events:
                seen.note(event["object"])

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def come_and_go(api: Api, random: Random, over: asyncio.Event) -> set[str]:
    """Provides and withdraws requirements at random; the names of those that are there in the end."""
    there: set[str] = set()
    while not over.is_set():
        each = random.choice(COMES_AND_GOES)
        await asyncio.to_thread(withdraw if each.name in there else provide, api, each)
        there ^= {each.name}
        await asyncio.sleep(random.uniform(0, 0.2))
    return there


def by_type(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in found.get("status", {}).get("conditions", ())}


def is_right(found: dict[str, Any], there: set[str], said: dict[str, str]) -> bool:
    """Whether every condition of both sides is there and says what is so, of this very generation."""
    conditions = by_type(found)
    expected = {
        each.condition: "True" if {one.name for one in each.requirements} <= there else "False"
        for each in checked_components(Stack.STANDARD)
    }
    expected |= {"RequirementsMet": "False", "GatewayComposed": "False", **said}
    generations = {conditions[each]["observedGeneration"] for each in OURS & set(conditions)}
    return (
        {type_: each["status"] for type_, each in conditions.items()} == expected
        and generations == {found["metadata"]["generation"]}
        and found["status"]["namespace"] == "modelplane-system"
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("forgets", [0.0, 0.2], ids=["it keeps what it read", "it forgets what it does not know"])
async def test_no_condition_of_either_side_is_lost(
    hub: ControlPlane, world: World, client: Client, forgets: float
) -> None:
    put_cluster(hub.api)
    other = Controller(client, Random(SEED), forgets)  # noqa: S311 - a test's
    enough = ENOUGH | ({"forgot": 4} if forgets else {})
    over = asyncio.Event()
    async with Runtime(world, tick=TICK), noted(client) as seen:
        writing = asyncio.create_task(other.run("gpu-1", over))
        changing = asyncio.create_task(come_and_go(hub.api, Random(SEED), over))  # noqa: S311 - a test's
        await until(lambda: seen.had == OURS | OTHERS, "every condition", within=60)
        before = other.count.copy()
        await until(lambda: (other.count - before) >= Counter(enough), "enough of it", within=60)
        over.set()
        there = await changing
        await writing
        crds = [each for each in COMES_AND_GOES if isinstance(each, CustomResource) and each.name in there]
        await served(client, *crds)
        await happened(client, CLUSTERS, "gpu-1", lambda found: is_right(found, there, other.said))
        for _ in range(RESTS):  # what a set waits for is said a moment later
            right = get_cluster(hub.api)
            await asyncio.sleep(3 * TICK)
            if get_cluster(hub.api) == right:
                break
        else:
            pytest.fail("it is written and written, though nothing changes")
        assert is_right(right, there, other.said)
    if forgets:
        assert set(seen.lacking) <= OURS, "what it forgot itself"
    else:
        assert seen.lacking == []
