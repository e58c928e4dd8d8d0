"""Random lives of a cluster: whatever happens in whichever order, what is promised of the composed objects holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from functions.compose.ownership import MANAGER
from functions.compose.sets import COMPOSITIONS
from tests.compose.apart import MERGE
from tests.compose.drift import CLIENT_CAS, EDITS, POLICY, THE_GATEWAY, content
from tests.compose.land import CERTIFICATES, INFERENCE_CLUSTER, SHORT, Land
from tests.compose.others import Others, is_marked
from tests.compose.quiet import OWN, departures, gone, quiet
from tests.compose.small import DEFINITIONS
from tests.compose.stage import GATEWAYS
from tests.support import CLUSTERS, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from functions.access.client import Client
    from functions.local.instance import ControlPlane

T = TypeVar("T")
MADE = [each.path for one in COMPOSITIONS for each in one.steps if each.manifest is None]
"""Paths of what controllers make for our objects."""
LEFT_TO = {THE_GATEWAY.key: (POLICY.key, CLIENT_CAS.key), "GatewayClass envoy": ("EnvoyProxy cluster-gateway",)}
"""What stays for others who need it, by the keys of what they have under the name of ours."""
crds = st.sampled_from(sorted(DEFINITIONS))
own = st.sampled_from(sorted(OWN))
all_edits = [(key, name) for key in sorted(OWN) for name in EDITS[key]]
edits = st.sampled_from(all_edits)
edits_of_guards = st.sampled_from([each for each in all_edits if OWN[each[0]].client_ca])
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
        self.others = Others(self.land, self.done)
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

    @initialize(absent=st.sets(crds, max_size=2), published=certificates, whole=st.booleans())
    def begin(self, absent: set[str], published: list[str], whole: bool) -> None:  # noqa: FBT001
        self.done["lives"] += 1
        put_kubeconfig(self.api, self.plane.kubeconfig.read_bytes())
        self.land.publish("a", published)
        self.run(self._register())
        self.run(self.land.control(on=True))
        if whole:
            self.land.publish("b", ["one"])
            self.run(quiet(self.land), "lives that begin with everything composed")
        for each in sorted(absent):
            self.run(self.others.uninstall(each))

    # What happens in the world.

    @rule(name=crds)
    def a_definition_appears_or_goes(self, name: str) -> None:
        if name in self.land.installed:
            self.run(self.others.uninstall(name), "definitions that went")
        else:
            self.run(self.others.install(name), "definitions that appeared")

    @rule(gateway=gateways, names=certificates)
    def a_gateway_publishes(self, gateway: str, names: list[str]) -> None:
        self.done["changes of client CAs"] += 1
        self.land.publish(gateway, names)

    @rule(sure=st.integers(0, 3))
    def the_cluster_is_deleted_or_registered(self, sure: int) -> None:
        if not self.registered:
            self.run(self._register(), "registrations of the cluster")
        elif sure == 0:
            self.done["deletions of the cluster"] += 1
            assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status in {200, 404}
            self.land.tell(INFERENCE_CLUSTER, "gpu-1", verb="delete", hub=True)
            self.registered = False

    @rule(key=own, instead=st.booleans(), handed_over=st.booleans())
    def somebody_plants_an_object(self, key: str, *, instead: bool, handed_over: bool) -> None:
        if instead and key not in self.land.planted:
            self.run(self.others.away(OWN[key]))
        self.run(self.others.plant(OWN[key]))
        if handed_over and key in self.land.planted:
            self.run(self.others.hand_over(OWN[key]), "foreign objects handed over")

    @rule(index=st.integers(0, 30), handed_over=st.booleans())
    def somebody_removes_what_he_planted_or_hands_it_over(self, index: int, *, handed_over: bool) -> None:
        planted = sorted(self.land.planted)
        if planted:
            step = OWN[planted[index % len(planted)]]
            if handed_over:
                self.run(self.others.hand_over(step), "foreign objects handed over")
            else:
                self.run(self.others.remove(step), "removals of foreign objects")

    @rule(edit=edits)
    def somebody_edits_an_object_of_ours(self, edit: tuple[str, str]) -> None:
        key, name = edit
        self.run(self.others.edit(OWN[key], EDITS[key][name]))

    @rule(edit=edits_of_guards)
    def somebody_edits_what_guards_the_listener(self, edit: tuple[str, str]) -> None:
        key, name = edit
        self.run(self.others.edit(OWN[key], EDITS[key][name]))

    @rule(key=own)
    def somebody_deletes_an_object_of_ours(self, key: str) -> None:
        self.run(self.others.delete(OWN[key]))

    @rule(key=own, sure=st.booleans())
    def somebody_takes_an_object_of_ours(self, key: str, *, sure: bool) -> None:
        if sure:
            self.run(self.others.take(OWN[key]))

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
        await self._note_what_was_left_to_others()
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
            if found is None or is_marked(found):
                self.done["foreign objects adopted"] += 1
                self.land.handed_over.discard(key)
                self.land.planted.pop(key, None)

    async def _note_what_was_left_to_others(self) -> None:
        """What somebody else's object of our name needs loses our mark instead of going."""
        for needed_by, keys in LEFT_TO.items():
            for key in keys if needed_by in self.land.planted else ():
                found = await self.land.look(OWN[key])
                if found is not None and key not in self.land.planted and not is_marked(found):
                    self.done["objects of ours left to others"] += 1
                    self.land.planted[key] = found

    async def _register(self) -> None:
        await gone(self.land)
        put_cluster(self.api, stack="Dynamo")
        self.registered = True
        self.land.tell(INFERENCE_CLUSTER, "gpu-1", verb="add", hub=True)

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
                await self.others.away(step)
        for each in MADE:
            self.api.request("DELETE", each)
        for each in sorted(DEFINITIONS.keys() - self.land.installed):
            await self.others.install(each)


def _managers(found: dict[str, Any]) -> set[str]:
    return {each["manager"] for each in found["metadata"]["managedFields"]}
