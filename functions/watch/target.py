"""Watches the target of one InferenceCluster: its CRDs and DeviceClasses, and what is composed on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import AccessError, Forbidden, KubeconfigInvalid, Unauthorized, Unreachable
from functions.function import source_of
from functions.results import check_requested, deleting
from functions.review import open_target
from functions.watch.checks import WATCH_LOST, WATCH_STARTED, Checks
from functions.watch.composed import ComposedWatches
from functions.watch.reflector import Resource, resource_version
from functions.watch.resource_watch import Announcer, ResourceWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from events.event import Event
    from functions.access.client import Client
    from functions.access.targets import SecretVersion, Target
    from functions.clusters import InferenceCluster
    from functions.watch.reflector import Key, Verb, Version
    from functions.watch.resource_watch import Publish
    from functions.world import World

CRDS: Final = Resource("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions")
DEVICE_CLASSES: Final = Resource("resource.k8s.io/v1", "DeviceClass", "deviceclasses")
_LOOKS: Final = Resource("", "look", "looks")
"""Stands for the requests for a look where it is said what does not work."""
SOURCE: Final = source_of("watch")


def _until_deletion(metadata: Mapping[str, Any]) -> str:
    """Each write until the object is being deleted, which is final: what follows is the server clearing it away.

    That is four further updates for a CRD.
    """
    moment: str | None = metadata.get("deletionTimestamp")
    return resource_version(metadata) if moment is None else moment


class TargetWatch:
    """The watches of one target.

    The CRDs lead: they tell what else there may be to watch, and what is composed is asked for only while they are
    followed, or could be but for the right to see them, so that a dead target costs one try at growing intervals. That
    they cannot be followed any more asks for a look at the cluster, once, and so does each list of them.

    Attributes:
        found: The InferenceCluster as it was read last.
    """

    def __init__(
        self,
        found: InferenceCluster,
        world: World,
        publish: Publish,
        seen: Callable[[str], SecretVersion | None],
        turns: AbstractAsyncContextManager[object],
    ) -> None:
        """Keep the settings; nothing is opened before `run`.

        Args:
            found: The InferenceCluster.
            world: Opens the target.
            publish: Takes the events.
            seen: The version of a kubeconfig Secret by its name; None where it is not known.
            turns: Lets in so many lists of targets at once.
        """
        self.found = found
        self._world = world
        self._publish = publish
        self._seen = seen
        self._turns = turns
        self._followed = False
        self._knows_device_classes = False
        self._answers = asyncio.Event()
        self._announcer = Announcer(found.name)
        self._checks = Checks(self._ask, clock=world.clock, tried=self._asked)
        self._definitions = self._watch(
            CRDS,
            on_change=self._definition_changed,
            on_list=self._definitions_listed,
            on_trouble=self._definitions_troubled,
            content=_until_deletion,
        )
        self._device_classes = self._watch(
            DEVICE_CLASSES,
            on_list=self._device_classes_listed,
            on_trouble=lambda _: self._checks.settle(DEVICE_CLASSES),
            content=_until_deletion,
        )
        self._composed = ComposedWatches(
            found.stack,
            self._watch,
            self._open,
            answers=self._answers,
            checks=self._checks,
            announcer=self._announcer,
            clock=world.clock,
        )

    async def run(self) -> None:
        """Watches until it is cancelled."""
        for resource in (CRDS, DEVICE_CLASSES):
            self._checks.expect(resource)
        async with asyncio.TaskGroup() as group:
            for each in (self._definitions, self._device_classes, self._composed, self._checks):
                group.create_task(each.run())

    def update(self, found: InferenceCluster) -> None:
        """Goes by this version of the InferenceCluster, and by its kubeconfig Secret as it is now.

        A new credential for the same server leaves the watches as they are; another server ends them, and they begin
        there.
        """
        self.found = found
        for each in (self._definitions, self._device_classes):
            each.reflector.wake()
        self._composed.wake()

    def look(self, reason: str, *observed: str) -> Event:
        """Asks for a look at this cluster, or says that it is being deleted, which asks for one as well."""
        now = self._world.clock.now()
        if self.found.deletion_timestamp is not None:
            return deleting(SOURCE, self.found, now)
        return check_requested(SOURCE, self.found, reason, self._version(), now, observed=observed)

    def _watch(self, resource: Resource, **settings: Any) -> ResourceWatch:
        return ResourceWatch(
            resource,
            self._connect,
            self._publish,
            clock=self._world.clock,
            announcer=self._announcer,
            cluster=self.found.name,
            turns=self._turns,
            **settings,
        )

    def _version(self) -> SecretVersion | None:
        """Which version of its kubeconfig Secret was seen last."""
        kubeconfig = self.found.kubeconfig
        return self._seen(kubeconfig.name) if kubeconfig is not None else None

    async def _ask(self, reason: str, observed: Sequence[str]) -> None:
        await self._publish((self.look(reason, *observed),))

    def _asked(self, trouble: Exception | None) -> None:
        if trouble is None:
            self._announcer.fine(_LOOKS)
        else:
            self._announcer.failed(_LOOKS, trouble)

    async def _definition_changed(self, verb: Verb, key: Key, version: Version) -> None:  # noqa: ARG002
        await self._composed.definition_changed(verb, key.name)

    async def _definitions_listed(self, version: str) -> None:
        self._followed = True
        self._answers.set()
        self._device_classes.reflector.wake()  # a server that came back may be a newer one, which serves them
        self._composed.installed(key.name for key in self._definitions.reflector.known or ())
        self._checks.want(WATCH_STARTED, f"{CRDS.path} {version}")
        self._checks.settle(CRDS)

    async def _device_classes_listed(self, version: str) -> None:
        if not self._knows_device_classes:  # a later list tells how it differs from the one before
            self._knows_device_classes = True
            self._checks.want(WATCH_STARTED, f"{DEVICE_CLASSES.path} {version}")
        self._checks.settle(DEVICE_CLASSES)

    def _definitions_troubled(self, trouble: Exception | None) -> None:
        self._checks.settle(CRDS)
        match trouble:
            case Unreachable() | Unauthorized() | KubeconfigInvalid():
                self._answers.clear()
            case Forbidden():  # which says nothing of what is composed
                self._answers.set()
        if self._followed and isinstance(trouble, AccessError):
            self._followed = False
            self._checks.want(WATCH_LOST, self._world.clock.now().isoformat())

    async def _connect(self) -> Client:
        return (await self._open()).client

    async def _open(self) -> Target:
        return await open_target(self._world, self.found, self._version())
