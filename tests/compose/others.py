"""What others do on a cluster: to its definitions, to objects of ours, and with objects of their own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from functions.access.errors import NotFound
from functions.compose import kinds
from functions.compose.ownership import ADOPT, OWNER_UID
from functions.demo.controllers import FINALIZERS
from tests.compose.apart import MERGE
from tests.compose.foreign import THEIRS, plant
from tests.compose.quiet import OWN
from tests.compose.small import collection, definition
from tests.support import CRDS, apply

if TYPE_CHECKING:
    from collections import Counter

    from functions.compose.step import Step
    from tests.compose.land import Land

JSON_PATCH = "application/json-patch+json"
WITHIN = 30.0


class Others:
    """Those who live on a cluster beside us; the events of what they do are there to be delivered."""

    def __init__(self, land: Land, done: Counter[str]) -> None:
        self._land = land
        self._api = land.api
        self._done = done

    async def install(self, name: str) -> None:
        apply(self._api, f"{CRDS}/{name}", definition(name))
        deadline = monotonic() + WITHIN
        while self._api.request("GET", collection(name)).status != 200:
            assert monotonic() < deadline, f"{name} is not served"
            await asyncio.sleep(0.01)
        self._land.installed.add(name)
        self._land.tell(kinds.DEFINITION, name, verb="add")

    async def uninstall(self, name: str) -> None:
        """A CRD goes, and takes its instances along, whatever holds them."""
        for key, step in OWN.items():
            if step.kind.definition == name:
                self._land.planted.pop(key, None)
                self._land.handed_over.discard(key)
        await self._remove_definition(name, collection(name))
        self._land.installed.discard(name)
        await self._land.others()
        self._land.tell(kinds.DEFINITION, name, verb="delete")

    async def _remove_definition(self, name: str, instances: str) -> None:
        self._api.request("DELETE", f"{CRDS}/{name}")
        deadline = monotonic() + WITHIN
        while self._api.request("GET", f"{CRDS}/{name}").status != 404:
            with suppress(NotFound):
                async for each in self._land.observer.pages(instances):
                    await self._finish(_path_of(instances, each), each)
            touch = {"metadata": {"annotations": {"touched": str(monotonic())}}}
            self._api.request("PATCH", f"{CRDS}/{name}", touch, content_type=MERGE)
            assert monotonic() < deadline, f"{name} does not go"
            await asyncio.sleep(0.01)

    async def _finish(self, path: str, found: dict[str, Any]) -> None:
        """Takes off what holds an object that is being deleted."""
        if found["metadata"].get("finalizers"):
            self._api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)

    async def plant(self, step: Step) -> None:
        if not step.kind.built_in and step.kind.definition not in self._land.installed:
            return
        if await self._land.look(step) is None:
            self._land.planted[step.key] = plant(self._api, step, THEIRS[step.key])
            self._done["foreign objects planted"] += 1
            await self._land.others()
            self._land.tell(step.kind, step.name, step.namespace, verb="add")

    async def remove(self, step: Step) -> None:
        del self._land.planted[step.key]
        self._land.handed_over.discard(step.key)
        await self.away(step)
        await self._land.others()
        self._land.tell(step.kind, step.name, step.namespace, verb="delete")

    async def away(self, step: Step) -> None:
        """Returns when an object is gone, whatever holds it."""
        if step.kind is kinds.DEFINITION:
            group, plural = step.name.partition(".")[2], step.name.partition(".")[0]
            await self._remove_definition(step.name, f"/apis/{group}/v1alpha1/{plural}")
            return
        self._api.request("DELETE", step.path)
        await self._land.others()
        deadline = monotonic() + WITHIN
        while (found := await self._land.look(step)) is not None:
            # Of two who take off the last finalizer at once the API server lets both delete by name, and so the slower
            # one what has come in its place.
            if not (self._land.has_controllers and FINALIZERS.issuperset(found["metadata"].get("finalizers") or ())):
                await self._finish(step.path, found)
            await asyncio.sleep(0.01)
            assert monotonic() < deadline, f"{step} does not go"

    async def hand_over(self, step: Step) -> None:
        patch = {"metadata": {"annotations": {ADOPT: "true"}}}
        if self._api.request("PATCH", step.path, patch, content_type=MERGE).status == 200:
            self._land.handed_over.add(step.key)
            self._land.tell(step.kind, step.name, step.namespace)

    async def _ours(self, step: Step) -> bool:
        found = await self._land.look(step)
        return found is not None and is_marked(found)

    async def edit(self, step: Step, edit: Any) -> None:
        if step.key in self._land.planted or not await self._ours(step):
            return
        media_type = JSON_PATCH if isinstance(edit, list) else MERGE
        answer = self._api.request("PATCH", f"{step.path}?fieldManager=kubectl-edit", edit, content_type=media_type)
        self._done["edits of ours" if answer.status == 200 else "edits that the API server refused"] += 1
        await self._land.others()
        self._land.tell(step.kind, step.name, step.namespace)

    async def delete(self, step: Step) -> None:
        if step.key not in self._land.planted and await self._ours(step):
            self._done["deletions of ours"] += 1
            self._api.request("DELETE", step.path)
            await self._land.others()
            self._land.tell(step.kind, step.name, step.namespace, verb="delete")

    async def take(self, step: Step) -> None:
        """Somebody makes an object of ours his own by taking our mark off."""
        if step.key in self._land.planted or not await self._ours(step):
            return
        patch = {"metadata": {"annotations": {OWNER_UID: None}}}
        answer = self._api.request("PATCH", step.path, patch, content_type=MERGE)
        if answer.status == 200 and "deletionTimestamp" not in answer.body["metadata"]:
            self._done["objects of ours taken"] += 1
            self._land.planted[step.key] = dict(answer.body)
        await self._land.others()
        self._land.tell(step.kind, step.name, step.namespace)


def is_marked(found: dict[str, Any]) -> bool:
    """Whether an object carries our mark."""
    return OWNER_UID in (found["metadata"].get("annotations") or {})


def _path_of(instances: str, found: dict[str, Any]) -> str:
    base, _, plural = instances.rpartition("/")
    namespace = found["metadata"].get("namespace")
    return (
        f"{base}/namespaces/{namespace}/{plural}/{found['metadata']['name']}"
        if namespace
        else (f"{instances}/{found['metadata']['name']}")
    )
