"""Random lives of a cluster: whatever happens in whichever order, what is promised of the composed objects holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from functions.access.errors import NotFound
from functions.compose import kinds
from functions.compose.ownership import ADOPT, MANAGER, OWNER_UID
from functions.compose.sets import COMPOSITIONS
from tests.compose.apart import MERGE
from tests.compose.drift import EDITS, content
from tests.compose.foreign import THEIRS, plant
from tests.compose.land import CERTIFICATES, INFERENCE_CLUSTER, SHORT, Land
from tests.compose.quiet import OWN, departures, gone, quiet
from tests.compose.small import DEFINITIONS, collection, definition
from tests.compose.stage import GATEWAYS
from tests.support import CLUSTERS, CRDS, apply, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from functions.access.client import Client
    from functions.compose.step import Step
    from functions.local.instance import ControlPlane

T = TypeVar("T")
JSON_PATCH = "application/json-patch+json"
WITHIN = 30.0
MADE = [each.path for one in COMPOSITIONS for each in one.steps if each.manifest is None]
"""Paths of what controllers make for our objects."""
crds = st.sampled_from(sorted(DEFINITIONS))
own = st.sampled_from(sorted(OWN))
edits = st.sampled_from([(key, name) for key in sorted(OWN) for name in EDITS[key]])
processes = st.integers(0, 1)
gateways = st.sampled_from(["a", "b"])
certificates = st.lists(st.sampled_from(sorted(CERTIFICATES)), max_size=2)


class Machine(RuleBasedStateMachine):
    """One life, from a cluster that was just registered to one of which nothing is left.

    Attributes:
        plane: Where it takes place; hub and target in one.
        observer: A client of it.
        runner: Runs everything.
        done: How often each thing was done, over all lives.
    """

    plane: ClassVar[ControlPlane]
    observer: ClassVar[Client]
    runner: ClassVar[asyncio.Runner]
    done: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.registered = False
        self.land = self.run(self._new_land())
        self.api = self.plane.api

    async def _new_land(self) -> Land:
        return Land(self.plane, self.observer)

    def run(self, work: Coroutine[Any, Any, T], name: str = "") -> T:
        """Does something; after a failure nothing else is looked at."""
        if name:
            self.done[name] += 1
        broken, self.broken = self.broken, True
        result = self.runner.run(work)
        self.broken = broken
        return result

    @initialize(absent=st.sets(crds, max_size=4), published=st.booleans())
    def begin(self, absent: set[str], published: bool) -> None:  # noqa: FBT001
        self.done["lives"] += 1
        put_kubeconfig(self.api, self.plane.kubeconfig.read_bytes())
        for each in sorted(absent):
            self.run(self._uninstall(each))
        if published:
            self.land.publish("a", ["one"])
        self.run(self._register())
        self.run(self.land.control(on=True))

    # What happens in the world.

    @rule(name=crds)
    def a_definition_appears_or_goes(self, name: str) -> None:
        if name in self.land.installed:
            self.run(self._uninstall(name), "definitions that went")
        else:
            self.run(self._install(name), "definitions that appeared")

    @rule(gateway=gateways, names=certificates)
    def a_gateway_publishes(self, gateway: str, names: list[str]) -> None:
        self.done["changes of client CAs"] += 1
        self.land.publish(gateway, names)

    @rule()
    def the_cluster_is_deleted_or_registered(self) -> None:
        if self.registered:
            self.done["deletions of the cluster"] += 1
            assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status in {200, 404}
            self.land.tell(INFERENCE_CLUSTER, "gpu-1", verb="delete", hub=True)
            self.registered = False
        else:
            self.run(self._register(), "registrations of the cluster")

    @rule(key=own)
    def somebody_plants_an_object(self, key: str) -> None:
        self.run(self._plant(OWN[key]), "attempts to plant a foreign object")

    @rule(key=own)
    def somebody_removes_what_he_planted(self, key: str) -> None:
        if key in self.land.planted:
            self.run(self._remove(OWN[key]), "removals of foreign objects")

    @rule(key=own)
    def somebody_hands_over_what_he_planted(self, key: str) -> None:
        if key in self.land.planted:
            self.run(self._hand_over(OWN[key]), "foreign objects handed over")

    @rule(edit=edits)
    def somebody_edits_an_object_of_ours(self, edit: tuple[str, str]) -> None:
        key, name = edit
        self.run(self._edit(OWN[key], EDITS[key][name]), "attempts to edit an object of ours")

    @rule(key=own)
    def somebody_deletes_an_object_of_ours(self, key: str) -> None:
        self.run(self._delete(OWN[key]), "attempts to delete an object of ours")

    @rule(key=own)
    def somebody_takes_an_object_of_ours(self, key: str) -> None:
        self.run(self._take(OWN[key]), "attempts to take an object of ours")

    @rule(on=st.booleans())
    def the_controllers_come_or_go(self, on: bool) -> None:  # noqa: FBT001
        self.run(self.land.control(on=on), "changes of the controllers")

    @rule(long=st.booleans())
    def time_passes(self, long: bool) -> None:  # noqa: FBT001
        self.land.time.moment += SHORT + timedelta(days=1) if long else timedelta(seconds=61)

    # What the functions get to hear of it.

    @rule(number=processes)
    def a_tick(self, number: int) -> None:
        self.run(self.land.tick(self.land.processes[number]), "ticks")

    @rule(number=processes, index=st.integers(0, 30))
    def an_event_is_delivered_once_more_or_late(self, number: int, index: int) -> None:
        pending = self.land.pending
        event = pending[index % len(pending)]
        self.run(self.land.wake(self.land.processes[number], event), "deliveries of events")

    @rule(index=st.integers(0, 30))
    def both_processes_work_at_once(self, index: int) -> None:
        one, other = self.land.processes
        event = self.land.pending[index % len(self.land.pending)]

        async def work() -> None:
            await asyncio.gather(self.land.tick(one), self.land.wake(other, event), self.land.tick(other))

        self.run(work(), "times at which both processes worked")

    @rule(number=processes, at=st.integers(0, 90), carried_out=st.booleans(), deadly=st.booleans())
    def a_process_fails_at_a_request(self, number: int, at: int, *, carried_out: bool, deadly: bool) -> None:
        came = self.run(self.land.doomed(number, at, carried_out=carried_out, deadly=deadly))
        self.done[("deaths" if deadly else "lost connections") if came else "failures that did not come"] += 1

    # What always holds.

    @invariant()
    def nothing_is_wrong(self) -> None:
        if not self.broken:
            self.run(self._look())

    def teardown(self) -> None:
        try:
            if not self.broken:
                self.run(self._end())
        finally:
            self.done.update({f"writes: {name}": number for name, number in self.land.audit.writes.items()})
            self.runner.run(self._clean())

    async def _look(self) -> None:
        assert not self.land.audit.complaints, "\n".join(self.land.audit.complaints)
        await self._forget_what_is_ours_now()
        for key, before in self.land.planted.items():
            found = await self.land.look(OWN[key])
            assert found is not None, f"{key} of somebody else is gone"
            assert found["metadata"]["uid"] == before["metadata"]["uid"], f"{key} of somebody else was made anew"
            if key not in self.land.handed_over:
                assert content(found) == content(before), f"{key} of somebody else was changed"
                touched = {each["manager"] for each in found["metadata"]["managedFields"]} - _managers(before)
                assert MANAGER not in touched, f"{key} of somebody else was written"

    async def _end(self) -> None:
        """The world comes to rest as a fresh start would leave it; then all goes."""
        if not self.registered:
            await self._register()
        before = await quiet(self.land)
        await self._look()
        await self._delete_cluster()
        await self._look()
        await self._register()
        fresh = await quiet(self.land)
        assert not (found := departures(self.land, before, fresh)), "\n".join(found)
        await self._delete_cluster()
        await self._look()

    async def _delete_cluster(self) -> None:
        assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200
        await gone(self.land)

    async def _forget_what_is_ours_now(self) -> None:
        """What was handed over and taken is nobody else's any more, and goes with the cluster."""
        for key in sorted(self.land.handed_over):
            found = await self.land.look(OWN[key])
            if found is None or OWNER_UID in (found["metadata"].get("annotations") or {}):
                self.done["foreign objects adopted"] += 1
                self.land.handed_over.discard(key)
                self.land.planted.pop(key, None)

    async def _register(self) -> None:
        await gone(self.land)
        put_cluster(self.api, stack="Dynamo")
        self.registered = True
        self.land.tell(INFERENCE_CLUSTER, "gpu-1", verb="add", hub=True)

    async def _install(self, name: str) -> None:
        apply(self.api, f"{CRDS}/{name}", definition(name))
        deadline = monotonic() + WITHIN
        while self.api.request("GET", collection(name)).status != 200:
            assert monotonic() < deadline, f"{name} is not served"
            await asyncio.sleep(0.01)
        self.land.installed.add(name)
        self.land.tell(kinds.DEFINITION, name, verb="add")

    async def _uninstall(self, name: str) -> None:
        """A CRD goes, and takes its instances along, whatever holds them."""
        for key, step in OWN.items():
            if step.kind.definition == name:
                self.land.planted.pop(key, None)
                self.land.handed_over.discard(key)
        await self._remove_definition(name, collection(name))
        self.land.installed.discard(name)
        await self.land.others()
        self.land.tell(kinds.DEFINITION, name, verb="delete")

    async def _remove_definition(self, name: str, instances: str) -> None:
        self.api.request("DELETE", f"{CRDS}/{name}")
        deadline = monotonic() + WITHIN
        while self.api.request("GET", f"{CRDS}/{name}").status != 404:
            with suppress(NotFound):
                async for each in self.observer.pages(instances):
                    await self._finish(_path_of(instances, each), each)
            touch = {"metadata": {"annotations": {"touched": str(monotonic())}}}
            self.api.request("PATCH", f"{CRDS}/{name}", touch, content_type=MERGE)
            assert monotonic() < deadline, f"{name} does not go"
            await asyncio.sleep(0.01)

    async def _finish(self, path: str, found: dict[str, Any]) -> None:
        """Takes off what holds an object that is being deleted."""
        if found["metadata"].get("finalizers"):
            self.api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)

    async def _plant(self, step: Step) -> None:
        if not step.kind.built_in and step.kind.definition not in self.land.installed:
            return
        if await self.land.look(step) is None:
            self.land.planted[step.key] = plant(self.api, step, THEIRS[step.key])
            self.done["foreign objects planted"] += 1
            self.land.tell(step.kind, step.name, step.namespace, verb="add")

    async def _remove(self, step: Step) -> None:
        del self.land.planted[step.key]
        self.land.handed_over.discard(step.key)
        await self._away(step)
        await self.land.others()
        self.land.tell(step.kind, step.name, step.namespace, verb="delete")

    async def _away(self, step: Step) -> None:
        """Returns when an object is gone, whatever holds it."""
        if step.kind is kinds.DEFINITION:
            group, plural = step.name.partition(".")[2], step.name.partition(".")[0]
            await self._remove_definition(step.name, f"/apis/{group}/v1alpha1/{plural}")
            return
        self.api.request("DELETE", step.path)
        deadline = monotonic() + WITHIN
        while (found := await self.land.look(step)) is not None:
            await self._finish(step.path, found)
            assert monotonic() < deadline, f"{step} does not go"

    async def _hand_over(self, step: Step) -> None:
        patch = {"metadata": {"annotations": {ADOPT: "true"}}}
        if self.api.request("PATCH", step.path, patch, content_type=MERGE).status == 200:
            self.land.handed_over.add(step.key)
            self.land.tell(step.kind, step.name, step.namespace)

    async def _ours(self, step: Step) -> bool:
        found = await self.land.look(step)
        return found is not None and OWNER_UID in (found["metadata"].get("annotations") or {})

    async def _edit(self, step: Step, edit: Any) -> None:
        if step.key in self.land.planted or not await self._ours(step):
            return
        media_type = JSON_PATCH if isinstance(edit, list) else MERGE
        answer = self.api.request("PATCH", f"{step.path}?fieldManager=kubectl-edit", edit, content_type=media_type)
        self.done["edits of ours" if answer.status == 200 else "edits that the API server refused"] += 1
        await self.land.others()
        self.land.tell(step.kind, step.name, step.namespace)

    async def _delete(self, step: Step) -> None:
        if step.key not in self.land.planted and await self._ours(step):
            self.done["deletions of ours"] += 1
            self.api.request("DELETE", step.path)
            await self.land.others()
            self.land.tell(step.kind, step.name, step.namespace, verb="delete")

    async def _take(self, step: Step) -> None:
        """Somebody makes an object of ours his own by taking our mark off."""
        if step.key in self.land.planted or not await self._ours(step):
            return
        patch = {"metadata": {"annotations": {OWNER_UID: None}}}
        answer = self.api.request("PATCH", step.path, patch, content_type=MERGE)
        if answer.status == 200 and "deletionTimestamp" not in answer.body["metadata"]:
            self.done["objects of ours taken"] += 1
            self.land.planted[step.key] = dict(answer.body)
        await self.land.others()
        self.land.tell(step.kind, step.name, step.namespace)

    async def _clean(self) -> None:
        """As it was before, for the next life."""
        await self.land.close()
        path = f"{CLUSTERS}/gpu-1"
        self.api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
        self.api.request("DELETE", path)
        for each in self.land.published:
            self.api.request("DELETE", f"{GATEWAYS}/{each}")
        for step in OWN.values():
            if await self.land.look(step) is not None:
                await self._away(step)
        for each in MADE:
            self.api.request("DELETE", each)
        for each in sorted(DEFINITIONS.keys() - self.land.installed):
            await self._install(each)


def _managers(found: dict[str, Any]) -> set[str]:
    return {each["manager"] for each in found["metadata"]["managedFields"]}


def _path_of(instances: str, found: dict[str, Any]) -> str:
    base, _, plural = instances.rpartition("/")
    namespace = found["metadata"].get("namespace")
    return (
        f"{base}/namespaces/{namespace}/{plural}/{found['metadata']['name']}"
        if namespace
        else (f"{instances}/{found['metadata']['name']}")
    )
