"""Watches the target of one InferenceCluster: its CRDs and DeviceClasses."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from functions.function import source_of
from functions.results import check_requested
from functions.review import open_target
from functions.watch.reflector import Resource, resource_version
from functions.watch.resource_watch import Announcer, ResourceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from events.event import Event
    from functions.access.client import Client
    from functions.access.targets import SecretVersion
    from functions.clusters import InferenceCluster
    from functions.watch.resource_watch import Publish
    from functions.world import World

CRDS: Final = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
DEVICE_CLASSES: Final = Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses")
SOURCE: Final = source_of("watch")
REASON: Final = "WatchStarted"


def _until_deletion(metadata: Mapping[str, Any]) -> str:
    """Each write until the object is being deleted, which is final: what follows is the server clearing it away.

    That is four further updates for a CRD.
    """
    moment: str | None = metadata.get("deletionTimestamp")
    return resource_version(metadata) if moment is None else moment


class TargetWatch:
    """The watches of one target.

    Attributes:
        found: The InferenceCluster as it was read last.
    """

    def __init__(
        self,
        found: InferenceCluster,
        world: World,
        publish: Publish,
        seen: Callable[[str], SecretVersion | None],
    ) -> None:
        """Keep the settings; nothing is opened before `run`.

        Args:
            found: The InferenceCluster.
            world: Opens the target.
            publish: Takes the events.
            seen: The version of a kubeconfig Secret by its name; None where it is not known.
        """
        self.found = found
        self._world = world
        self._publish = publish
        self._seen = seen
        announcer = Announcer(found.name)
        self._watches = {
            resource: ResourceWatch(
                resource,
                self._connect,
                publish,
                clock=world.clock,
                announcer=announcer,
                cluster=found.name,
                on_list=partial(self._listed, resource),
                content=_until_deletion,
            )
            for resource in (CRDS, DEVICE_CLASSES)
        }

    async def run(self) -> None:
        """Watches until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._watches.values():
                group.create_task(each.run())

    def update(self, found: InferenceCluster) -> None:
        """Goes by this version of the InferenceCluster, and by its kubeconfig Secret as it is now.

        A new credential for the same server leaves the watches as they are; another server ends them, and they begin
        there.
        """
        self.found = found
        for each in self._watches.values():
            each.reflector.wake()

    def check(self, *observed: str) -> Event:
        """The request to look at this cluster, because nothing is known of what happened before the watch."""
        now = self._world.clock.now()
        return check_requested(SOURCE, self.found, REASON, self._version(), now, observed=observed)

    def _version(self) -> SecretVersion | None:
        """Which version of its kubeconfig Secret was seen last."""
        kubeconfig = self.found.kubeconfig
        return self._seen(kubeconfig.name) if kubeconfig is not None else None

    async def _listed(self, resource: Resource, resource_version: str) -> None:
        if resource is CRDS:  # a server that came back may be a newer one, which serves DeviceClasses
            self._watches[DEVICE_CLASSES].reflector.wake()
        if self.found.deletion_timestamp is None:
            await self._publish((self.check(resource.plural, resource_version),))

    async def _connect(self) -> Client:
        target = await open_target(self._world, self.found, self._version())
        return target.client
