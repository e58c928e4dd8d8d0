"""A cluster on which anything may happen in any order, and the functions that live through it."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from events import types
from events.event import Event
from functions.access.errors import NotFound
from functions.clusters import API_VERSION
from functions.compose.client_cas import ClientCAs, read_client_cas
from functions.compose.exactness import compare
from functions.compose.kinds import Kind
from functions.compose.ownership import OWNER_UID, marked
from functions.compose.step import Inputs
from functions.demo.controllers import Controllers
from functions.host.host import Host
from functions.registry import FUNCTIONS
from functions.watch.object_events import object_changed
from functions.watch.reflector import Key, Resource
from tests.compose.apart import MERGE
from tests.compose.certificates import certificate, expired, otherwise, private_key
from tests.compose.doomed import Audit, Fate, Killed, open_doomed
from tests.compose.drift import CLIENT_CAS, POLICY, THE_GATEWAY
from tests.compose.small import DEFINITIONS
from tests.compose.stage import GATEWAYS
from tests.support import CLUSTERS, Moving, apply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.access.client import Client
    from functions.compose.step import Step
    from functions.function import Wake
    from functions.local.instance import ControlPlane
    from functions.watch.reflector import Verb
    from functions.world import World

TICK: Final = timedelta(seconds=301)
"""Between two ticks where nothing else happens: no target rests so long, and nobody is called a fighter by then."""
SHORT: Final = timedelta(days=40)
VALID = {name: certificate(name) for name in ("one", "two")}
CERTIFICATES = {
    **VALID,
    "short": certificate("short", ends=datetime.now(UTC) + SHORT),
    "one-otherwise": otherwise(VALID["one"]),
    "expired": expired(),
    "leaf": certificate("leaf", ca=False),
    "key": private_key(),
    "rubbish": "rubbish",
}
"""What InferenceGateways publish, by a name for people."""
AUTHORITIES = {*VALID.values(), CERTIFICATES["short"]}
INFERENCE_GATEWAY: Final = Kind(API_VERSION, "InferenceGateway", "inferencegateways")
INFERENCE_CLUSTER: Final = Kind(API_VERSION, "InferenceCluster", "inferenceclusters")
_END: Final = "-----END CERTIFICATE-----\n"
_numbers = itertools.count()


@dataclass
class Process:
    """One replica of the functions."""

    world: World
    fate: Fate

    def __post_init__(self) -> None:
        self.host = Host(FUNCTIONS.values(), self.world)


@dataclass
class Land:
    """The cluster, two processes with the functions, and the stand-ins for its controllers.

    Attributes:
        plane: Hub and target in one.
        observer: Asks without being seen.
        time: Of the functions.
        published: What each InferenceGateway publishes.
        installed: The names of the CRDs that are there.
        planted: What somebody else made under the names of ours, by the keys of the steps.
        handed_over: The keys of those that their owners hand over.
        pending: Events that can be delivered, each as often as one likes.
    """

    plane: ControlPlane
    observer: Client
    time: Moving = field(default_factory=lambda: Moving(datetime.now(UTC)))

    def __post_init__(self) -> None:
        self.api = self.plane.api
        self.audit = Audit(self.is_open, self.has_client_ca)
        self.processes = [self._process() for _ in range(2)]
        self.published: dict[str, str] = {}
        self.installed = set(DEFINITIONS)
        self.planted: dict[str, dict[str, Any]] = {}
        self.handed_over: set[str] = set()
        self.pending: list[Event] = []
        self._controllers: Controllers | None = None

    async def close(self) -> None:
        await self.control(on=False)
        for each in self.processes:
            await each.world.close()

    @property
    def has_controllers(self) -> bool:
        """Whether the stand-ins for the controllers run."""
        return self._controllers is not None

    async def control(self, *, on: bool) -> None:
        """Starts or ends the stand-ins for the controllers."""
        if on and self._controllers is None:
            self._controllers = Controllers(self.observer)
            await self._controllers.__aenter__()
        elif not on and self._controllers is not None:
            await self._controllers.__aexit__()
            self._controllers = None

    # What is true.

    def has_client_ca(self) -> bool:
        return bool(self.client_cas().bundle)

    def client_cas(self) -> ClientCAs:
        """Whom the gateway has to trust now."""
        gateways = [
            {"metadata": {"name": name}, "status": {"clientCACertificate": text}}
            for name, text in self.published.items()
        ]
        return read_client_cas(gateways, self.time.now())

    async def is_open(self) -> bool:
        """Whether a listener of ours takes callers without a certificate of one of the authorities."""
        gateway = await self.look(THE_GATEWAY)
        uid = "" if gateway is None else (gateway["metadata"].get("annotations") or {}).get(OWNER_UID, "")
        if gateway is None or not uid:
            return False
        names = {each["name"] for each in (gateway.get("spec") or {}).get("listeners") or ()}
        return "https" in names and not await self._is_guarded(uid)

    async def _is_guarded(self, uid: str) -> bool:
        policy, config_map = await self.look(POLICY), await self.look(CLIENT_CAS)
        if policy is None or config_map is None:
            return False
        if compare(marked(POLICY, Inputs(cluster="gpu-1", uid=uid, client_cas=ClientCAs())), policy):
            return False
        bundle = [f"{each}{_END}" for each in (config_map.get("data") or {}).get("ca.crt", "").split(_END)[:-1]]
        return bool(bundle) and set(bundle) <= AUTHORITIES

    async def look(self, step: Step) -> dict[str, Any] | None:
        """An object as it is; None where there is none, or none of its kind can be."""
        with suppress(NotFound):
            found: dict[str, Any] = await self.observer.get(step.path)
            return found
        return None

    async def uid(self) -> str | None:
        """Of the InferenceCluster; None where there is none."""
        with suppress(NotFound):
            found = await self.observer.get_metadata(f"{CLUSTERS}/gpu-1")
            return str(found["metadata"]["uid"])
        return None

    # What happens.

    def tell(self, kind: Kind, name: str, namespace: str = "", *, verb: Verb = "update", hub: bool = False) -> None:
        """Puts an event of a change where deliveries take them from."""
        resource, key = Resource(kind.api_version, kind.name, kind.plural), Key(namespace, name)
        cluster = None if hub else "gpu-1"
        server, now = self.plane.server, self.time.now()
        self.pending.append(object_changed(verb, resource, key, server=server, cluster=cluster, now=now))

    def publish(self, gateway: str, names: Sequence[str]) -> None:
        """An InferenceGateway publishes these CERTIFICATES; without any it is gone."""
        self.published.pop(gateway, None)
        path = f"{GATEWAYS}/{gateway}"
        if not names:
            self.api.request("DELETE", path)
        else:
            text = self.published[gateway] = "".join(CERTIFICATES[each] for each in names)
            spec = {"clusterName": "gpu-1"}
            metadata = {"name": gateway}
            apply(
                self.api,
                path,
                {"apiVersion": API_VERSION, "kind": "InferenceGateway", "metadata": metadata, "spec": spec},
            )
            status = {"status": {"clientCACertificate": text}}
            assert self.api.request("PATCH", f"{path}/status", status, content_type=MERGE).status == 200
        self.tell(INFERENCE_GATEWAY, gateway, hub=True)

    async def others(self) -> None:
        """Notes what somebody else just did to what guards the listener."""
        self.audit.is_open = await self.is_open()

    # What the functions make of it.

    async def wake(self, process: Process, event: Event) -> None:
        """Delivers an event to every function that wakes on it, and what they answer in the same way."""
        events = [event]
        while events:
            each = events.pop(0)
            for name, function in process.host.functions.items():
                if any(_matches(wake, each) for wake in function.wakes_on):
                    events += await self._deliver(process, name, each)

    async def tick(self, process: Process) -> None:
        """What happens each minute."""
        await self.wake(process, Event(id=str(next(_numbers)), source="/tick", type=types.PING))

    async def _deliver(self, process: Process, name: str, event: Event) -> list[Event]:
        """Hands over an event until it is taken, as a broker does."""
        answer = await process.host.handle(name, event)
        for _ in range(200):
            if answer.status == 503 and answer.outcome != "bug":
                await asyncio.sleep(0.02)
                answer = await process.host.handle(name, event)
        if answer.status not in {200, 204}:
            self.audit.complaints.append(f"{name} does not take {event.type}: {answer.body}")
        return list(answer.events)

    async def doomed(self, number: int, at: int, *, carried_out: bool, deadly: bool) -> bool:
        """A tick that ends, or loses its connection, at this request; answers whether it came to that."""
        process = self.processes[number]
        fate, fateful = process.fate, process.fate.asked + at
        fate.at, fate.carried_out, fate.deadly = fateful, carried_out, deadly
        try:
            await self.tick(process)
        except Killed:
            await process.world.close()
            self.processes[number] = self._process()
        fate.at = None
        return fate.asked > fateful

    def _process(self) -> Process:
        fate = Fate()
        return Process(open_doomed(self.plane.kubeconfig, self.time.clock, fate, self.audit), fate)


def _matches(wake: Wake, event: Event) -> bool:
    typed = event.type.startswith(wake.type) if wake.type.endswith(".") else event.type == wake.type
    return (
        typed
        and all(event.extensions.get(key) == value for key, value in wake.attributes)
        and (not wake.names or event.extensions.get("name") in wake.names)
    )
