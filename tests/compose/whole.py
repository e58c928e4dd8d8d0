"""A target on which everything is composed and ready, and stays so while the tests of a module do their worst."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.demo.controllers import Controllers
from functions.host.host import Host
from functions.registry import FUNCTIONS
from tests.compose.apart import objects_of, remove_all_but, wait_for
from tests.compose.certificates import certificate
from tests.compose.drift import content
from tests.compose.stage import GATEWAYS, Stage
from tests.support import CLUSTERS, SECRETS, Moving, get_cluster, hold, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from functions.compose.step import Composition, Step
    from functions.local.api import Api
    from functions.local.instance import ControlPlane

CLIENT_CA = certificate("eu")


@dataclass(kw_only=True)
class Whole(Stage):
    """A stage with a target of its own, the substrate on it, and stand-ins for the controllers at work.

    Attributes:
        hub: The hub.
        client: Of the target.
        time: Of the functions.
    """

    target: Api
    hub: ControlPlane
    client: Client
    time: Moving

    async def restore(self) -> None:
        """Everything is ready, with the one client CA; what was put right before is long ago."""
        self.time.moment += timedelta(minutes=5)
        self.publish_only({"eu": CLIENT_CA})
        await self.judge()
        await self.settle()

    async def settle(self, *compositions: Composition, within: float = 60) -> None:
        """Wakes the sets, at least once, until nothing is wanting."""
        await self.compose(*compositions)
        await super().settle(*compositions, within=within)

    def publish_only(self, certificates: Mapping[str, str]) -> None:
        """These InferenceGateways publish a client CA, and no others are there."""
        for each in self.api.request("GET", GATEWAYS).body["items"]:
            if each["metadata"]["name"] not in certificates:
                self.withdraw_ca(each["metadata"]["name"])
        for name, pem in certificates.items():
            self.publish_ca(name, pem)

    async def restart(self) -> None:
        """The functions in a new process, which remembers nothing."""
        await self.world.close()
        self.world = await open_world(self.hub.kubeconfig, self.time.clock)
        self.host = Host(FUNCTIONS.values(), self.world)

    async def rests(self, composition: Composition) -> None:
        """Once the controllers are done, another wake-up writes nothing."""
        await self.settle()
        await self.idle(composition)
        before = self.resource_versions(composition)
        await self.compose(composition)
        assert self.resource_versions(composition) == before

    async def idle(self, composition: Composition) -> None:
        """Returns once the controllers have said all that they have to say of the objects of a set."""
        deadline = monotonic() + 20
        while behind := [each.key for each in composition.steps if self._is_behind(each)]:
            if monotonic() > deadline:
                pytest.fail(f"the controllers have not looked at {', '.join(behind)}")
            await asyncio.sleep(0.01)

    def _is_behind(self, step: Step) -> bool:
        found = self.live(step) or {}
        status, generation = found.get("status") or {}, found.get("metadata", {}).get("generation", 0)
        conditions = [*(status.get("conditions") or ())]
        conditions += [one for each in status.get("ancestors") or () for one in each["conditions"]]
        return any(each.get("observedGeneration", generation) != generation for each in conditions)

    def resource_versions(self, composition: Composition) -> dict[str, str]:
        """Of the InferenceCluster and of every object of a set."""
        found = {each.key: self.live(each) for each in composition.steps}
        versions = {key: each["metadata"]["resourceVersion"] for key, each in found.items() if each is not None}
        return versions | {"cluster": get_cluster(self.api)["metadata"]["resourceVersion"]}

    def found(self, step: Step) -> dict[str, Any]:
        """An object that has to be there."""
        found = self.live(step)
        assert found is not None, f"{step} is not there"
        return found

    def content(self, step: Step) -> dict[str, Any]:
        """What is ours to keep of an object that has to be there."""
        return content(self.found(step))

    async def delete(self, *steps: Step) -> None:
        """Deletes objects as somebody else; returns when they are gone."""
        for step in steps:
            assert self.target.request("DELETE", step.path).status == 200
        for step in steps:
            await self.gone(step.path)

    async def gone(self, path: str) -> None:
        """Returns when there is nothing at a path of the target."""
        await self.answers(path, 404)

    async def answers(self, path: str, status: int = 200) -> None:
        """Returns when the target answers so; the stand-ins go on meanwhile."""
        deadline = monotonic() + 30
        while (answer := self.target.request("GET", path)).status != status:
            if monotonic() > deadline:
                pytest.fail(f"{path} is answered with {answer.status} and {answer.body}")
            await asyncio.sleep(0.01)


@asynccontextmanager
async def everything(hub: ControlPlane, target: ControlPlane) -> AsyncIterator[Whole]:
    """`gpu-1` registered on the Dynamo stack; at the end nothing of it is left on either cluster."""
    before = objects_of(target.api)
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    wait_for(lambda: hub.api.request("GET", GATEWAYS).status == 200, "the InferenceGateways to be served")
    time = Moving(datetime.now(UTC))
    world = await open_world(hub.kubeconfig, time.clock)
    client = Client(kubeconfig.load_file(target.kubeconfig))
    stage = Whole(hub.api, world, target=target.api, hub=hub, client=client, time=time)
    try:
        async with Controllers(client):
            yield stage
    finally:
        await client.close()
        await stage.world.close()
        hold(hub.api, f"{CLUSTERS}/gpu-1", None)
        stage.publish_only({})
        for path in (f"{CLUSTERS}/gpu-1", f"{SECRETS}/target"):
            hub.api.request("DELETE", path)
        remove_all_but(before, target.api)
