"""The watch source: what changes on the hub and on every target, as events; `serving-stack dev` and `demo` run it.

It says what Knative's ApiServerSource would say, with `cluster` on the events of a target, and what that one cannot:
what changed while nobody could watch, targets that come and go, and kinds that are installed later. One thing it leaves
out: an InferenceCluster on which nothing happened but our own writing of its conditions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NoReturn

from functions.access.targets import ABSENT, SecretVersion
from functions.clusters import API_VERSION, SYSTEM_NAMESPACE
from functions.watch import own_writes
from functions.watch.checks import WATCH_STARTED
from functions.watch.reflector import Key, Resource
from functions.watch.resource_watch import Announcer, ResourceWatch
from functions.watch.target import CRDS, TargetWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from functions.access.client import Client
    from functions.clusters import InferenceCluster
    from functions.watch.reflector import Verb, Version
    from functions.watch.resource_watch import Publish
    from functions.world import World

INFERENCE_CLUSTERS: Final = Resource(API_VERSION, "InferenceCluster", "inferenceclusters")
INFERENCE_GATEWAYS: Final = Resource(API_VERSION, "InferenceGateway", "inferencegateways")
SECRETS: Final = Resource("v1", "Secret", "secrets", SYSTEM_NAMESPACE)
HUB: Final = (INFERENCE_CLUSTERS, INFERENCE_GATEWAYS, SECRETS)
_AT_ONCE: Final = 64
_OUR_GROUP: Final = f".{API_VERSION.partition('/')[0]}"
_INSTALL: Final = "install it with: kubectl apply -k deploy/knative/crds"


class WatchSource:
    """Watches a hub, and the target of each Provided InferenceCluster on it."""

    def __init__(
        self,
        world: World,
        publish: Publish,
        *,
        told: Collection[Resource] = HUB,
        follows: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Keep the settings; nothing is opened before `run`.

        Args:
            world: The hub, and the way to its targets.
            publish: Takes the events; what it raises of `NotAccepted` makes the source say the same again later.
            told: What is told of the hub; the rest is watched and kept quiet about.
            follows: Whether the target of an InferenceCluster of this name is watched here.
        """
        self._follows = follows
        self._world = world
        self._publish = publish
        self._targets: dict[str, tuple[TargetWatch, asyncio.Task[None]]] = {}
        self._versions: dict[str, SecretVersion] = {}  # of the kubeconfig Secrets by name
        self._secrets_known = False
        self._read: dict[str, tuple[str, int]] = {}  # uid and generation of each InferenceCluster as it was read last
        self._group = asyncio.TaskGroup()
        # A thousand targets at once would keep each other from answering in time; a dead one holds a turn for seconds.
        self._turns = asyncio.Semaphore(_AT_ONCE)
        clock, announcer = world.clock, Announcer("(hub)")
        self._secrets = ResourceWatch(
            SECRETS,
            self._hub,
            publish if SECRETS in told else None,
            clock=clock,
            announcer=announcer,
            on_change=self._secret_changed,
            on_list=self._secrets_listed,
        )
        self._clusters = ResourceWatch(
            INFERENCE_CLUSTERS,
            self._hub,
            publish if INFERENCE_CLUSTERS in told else None,
            clock=clock,
            announcer=announcer,
            on_change=self._cluster_changed,
            on_list=self._clusters_listed,
            content=own_writes.content,
            silent=own_writes.only_ours,
            hint=_INSTALL,
        )
        self._gateways = ResourceWatch(
            INFERENCE_GATEWAYS,
            self._hub,
            publish if INFERENCE_GATEWAYS in told else None,
            clock=clock,
            announcer=announcer,
        )
        # The hub's own CRDs only tell when a kind begins to be served; as a target, a hub is watched like any other.
        self._definitions = ResourceWatch(
            CRDS, self._hub, None, clock=clock, announcer=announcer, on_change=self._definition_changed
        )

    async def run(self) -> NoReturn:
        """Watches until it is cancelled."""
        async with self._group:
            for each in (self._secrets, self._clusters, self._gateways, self._definitions):
                self._group.create_task(each.run())
        raise AssertionError("a watch ended by itself")

    async def _hub(self) -> Client:
        return self._world.hub.client

    async def _definition_changed(self, verb: Verb, key: Key, version: Version) -> None:  # noqa: ARG002
        if key.name.endswith(_OUR_GROUP):
            self._clusters.reflector.wake()
            self._gateways.reflector.wake()

    async def _secret_changed(self, verb: Verb, key: Key, version: Version) -> None:
        if verb == "delete":
            self._versions.pop(key.name, None)
        else:
            self._versions[key.name] = _secret_version(version)
        for each, _ in tuple(self._targets.values()):
            if each.found.kubeconfig is not None and each.found.kubeconfig.name == key.name:
                each.update(each.found)

    async def _secrets_listed(self, version: str) -> None:  # noqa: ARG002
        known = self._secrets.reflector.known or {}
        self._versions = {key.name: _secret_version(version) for key, version in known.items()}
        self._secrets_known = True
        for each, _ in tuple(self._targets.values()):
            each.update(each.found)

    async def _cluster_changed(self, verb: Verb, key: Key, version: Version) -> None:
        if verb != "delete" and self._read.get(key.name) == (version.uid, version.generation):
            return
        found = await self._world.hub.cluster(key.name)
        if found is None:
            await self._forget(key.name)
        else:
            await self._follow(found)

    async def _clusters_listed(self, version: str) -> None:
        clusters = await self._world.hub.clusters()
        for name in self._read.keys() - {each.name for each in clusters}:
            await self._forget(name)
        for each in clusters:
            await self._follow(each)
        await self._publish([watch.look(WATCH_STARTED, "hub", version) for watch, _ in self._targets.values()])

    async def _follow(self, found: InferenceCluster) -> None:
        self._read[found.name] = (found.uid, found.generation)
        watch, _ = self._targets.get(found.name, (None, None))
        if watch is not None and found.concerns_us and found.stack is watch.found.stack:
            watch.update(found)
            return
        await self._drop(found.name)
        if found.concerns_us and self._follows(found.name):
            watch = TargetWatch(found, self._world, self._publish, self._version, self._turns)
            self._targets[found.name] = watch, self._group.create_task(watch.run())

    async def _forget(self, name: str) -> None:
        self._read.pop(name, None)
        await self._drop(name)

    async def _drop(self, name: str) -> None:
        """Ends the watches of a target that is none of ours any more."""
        _, task = self._targets.pop(name, (None, None))
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            await self._world.targets.forget(name)

    def _version(self, secret: str) -> SecretVersion | None:
        """Which version of a kubeconfig Secret was seen last; None where that is not known."""
        return self._versions.get(secret, ABSENT if self._secrets_known else None)


def _secret_version(version: Version) -> SecretVersion:
    return SecretVersion(version.uid, version.resource_version)
