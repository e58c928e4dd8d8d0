"""What the tests of the composed objects do again and again: install, wake the functions, look at the world."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from events import types
from events.event import JSON, Event
from functions.catalog import COMPONENTS, CustomResource
from functions.compose.ownership import OWNER_UID
from functions.compose.sets import COMPOSITIONS
from functions.host.host import Host
from functions.local.certificates import Authority
from functions.registry import FUNCTIONS
from tests.support import CLUSTERS, conditions, get_cluster, install, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from functions.compose.step import Composition, Step
    from functions.local.api import Api
    from functions.world import World

GATEWAYS = "/apis/modelplane.ai/v1alpha1/inferencegateways"
GATEWAY, QUEUES, MODELEXPRESS = COMPOSITIONS
_numbers = itertools.count()


@dataclass
class Stage:
    """A hub, the functions on it, and its target.

    Attributes:
        api: Of the hub.
        world: What the functions reach both through.
        target: Of the target; None where that is the hub itself.
    """

    api: Api
    world: World
    target: Api | None = None

    def __post_init__(self) -> None:
        self.host = Host(FUNCTIONS.values(), self.world)
        self._uids: set[str] = set()
        self._note_uids()

    async def install(self, *components: str) -> None:
        """Installs the real CRDs of components, all of them by default, and waits until they are served."""
        keys = components or tuple(each.key for each in COMPONENTS)
        await install(self.world.hub.client, *keys)
        wanted = [one for each in COMPONENTS if each.key in keys for one in each.requirements]
        await served(self.world.hub.client, *wanted)
        for each in wanted:
            if isinstance(each, CustomResource):
                await self._answers(each)

    async def judge(self) -> None:
        """Has all conditions of the components written."""
        await self.deliver("probes/sweep", self.check())

    async def compose(self, *compositions: Composition, tick: bool = False) -> list[Event]:
        """Wakes the sets, all of them by default; answers with what they said."""
        said: list[Event] = []
        for each in compositions or COMPOSITIONS:
            said += await self.deliver(f"compose/{each.name}", self.check(types.TICK if tick else "Object"))
        return said

    async def settle(self, *compositions: Composition, within: float = 20) -> None:
        """Wakes the sets until nothing is wanting; for tests with stand-ins for the controllers."""
        await self.until(lambda: all(self._is_applied(each) for each in compositions or COMPOSITIONS), within=within)

    async def tear_down(self, within: float = 20) -> None:
        """Deletes the InferenceCluster and wakes the sets until it is gone."""
        assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200
        await self.until(lambda: self.api.request("GET", f"{CLUSTERS}/gpu-1").status == 404, within=within)

    async def until(self, reached: Callable[[], bool], *, within: float = 20, tick: bool = False) -> None:
        """Wakes the sets until the world is as it should be."""
        deadline = monotonic() + within
        while not reached():
            await self.compose(tick=tick)
            if monotonic() > deadline:
                pytest.fail("\n".join(f"{key}: {each['reason']}: {each['message']}" for key, each in self._said()))

    def _is_applied(self, composition: Composition) -> bool:
        found = conditions(self.api).get(composition.condition)
        return found is not None and found["status"] == "True"

    def _said(self) -> list[tuple[str, dict[str, Any]]]:
        return [(key, each) for key, each in conditions(self.api).items() if key.endswith("Composed")]

    async def deliver(self, function: str, event: Event) -> list[Event]:
        """Hands over an event until it is taken, as a broker does."""
        answer = await self.host.handle(function, event)
        for _ in range(200):
            if answer.status != 503:
                break
            await asyncio.sleep(0.02)
            answer = await self.host.handle(function, event)
        assert answer.status in {200, 204}, answer
        return list(answer.events)

    def check(self, reason: str = "Object") -> Event:
        """A request to look at the cluster."""
        return Event(
            id=str(next(_numbers)),
            source="/test",
            type=types.CHECK_REQUESTED,
            datacontenttype=JSON,
            extensions={"cluster": "gpu-1"},
            data=f'{{"reason": "{reason}"}}'.encode(),
        )

    def publish_ca(self, name: str = "eu", certificate: str | None = None) -> str:
        """An InferenceGateway that publishes a client CA; answers with its PEM."""
        pem = Authority.new().certificate.decode() if certificate is None else certificate
        gateway = {
            "apiVersion": "modelplane.ai/v1alpha1",
            "kind": "InferenceGateway",
            "metadata": {"name": name},
            "spec": {"clusterName": "gpu-1"},
        }
        assert self.api.apply(f"{GATEWAYS}/{name}", gateway).status in {200, 201}
        status = {"status": {"clientCACertificate": pem}}
        answer = self.api.request(
            "PATCH", f"{GATEWAYS}/{name}/status", status, content_type="application/merge-patch+json"
        )
        assert answer.status == 200, answer
        return pem

    def withdraw_ca(self, name: str = "eu") -> None:
        assert self.api.request("DELETE", f"{GATEWAYS}/{name}").status == 200

    def condition(self, composition: Composition) -> dict[str, Any]:
        """The condition of a set."""
        return conditions(self.api)[composition.condition]

    def published(self) -> dict[str, str]:
        """`status.gateway` of the cluster."""
        return dict(get_cluster(self.api)["status"].get("gateway") or {})

    def uid(self) -> str:
        return str(get_cluster(self.api)["metadata"]["uid"])

    def live(self, step: Step) -> dict[str, Any] | None:
        """An object as it is on the target; None where there is none."""
        answer = (self.target or self.api).request("GET", step.path)
        return dict(answer.body) if answer.status == 200 else None

    def ours(self, composition: Composition) -> list[str]:
        """The keys of those objects of a set that are there and carry the owner mark of a cluster of this test."""
        self._note_uids()
        found = {each.key: self.live(each) for each in composition.steps}
        return [
            key
            for key, each in found.items()
            if each is not None and (each["metadata"].get("annotations") or {}).get(OWNER_UID) in self._uids
        ]

    def _note_uids(self) -> None:
        found = self.api.request("GET", CLUSTERS).body.get("items", ())
        self._uids |= {each["metadata"]["uid"] for each in found}

    async def _answers(self, crd: CustomResource) -> None:
        path = f"/apis/{crd.group}/{crd.version}/{crd.plural}"
        for _ in range(1000):
            if self.api.request("GET", path).status == 200:
                return
            await asyncio.sleep(0.01)
        pytest.fail(f"{path} is not served")


def applied(composition: Composition) -> list[str]:
    """The keys of what a set applies itself."""
    return [each.key for each in composition.steps if each.manifest is not None]


def step_of(composition: Composition, key: str) -> Step:
    return next(each for each in composition.steps if each.key == key)


def steps(*compositions: Composition) -> Iterable[Step]:
    return (step for each in compositions for step in each.steps)
