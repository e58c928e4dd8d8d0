"""Takes composed objects down in the reverse order of their steps, each once the former is really gone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from functions.access.client import JSON_PATCH
from functions.access.errors import (
    AccessError,
    ApiError,
    Conflict,
    NotFound,
    NotKubernetes,
    Unauthorized,
    Unreachable,
)
from functions.compose import kinds
from functions.compose.leftovers import was_made_for
from functions.compose.ownership import MANAGER, OWNER, OWNER_UID, annotations_of, is_ours
from functions.compose.states import being_deleted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from functions.compose.look import Look
    from functions.compose.step import Step

PATIENCE: Final = 30.0
"""Seconds that an object may take to go before it is called blocked."""


class Outcome(StrEnum):
    """What became of an object that is to go."""

    GONE = "Gone"
    KEPT = "Kept"
    REMOVING = "Removing"
    BLOCKED = "Blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How far the removal of an object is.

    Attributes:
        step: The object's.
        outcome: `GONE` also where there was nothing, or nothing of ours.
        detail: Why it stays, or what holds it.
        since: RFC 3339, since when it is being deleted.
    """

    step: Step
    outcome: Outcome
    detail: str = ""
    since: str = ""

    @property
    def done(self) -> bool:
        """Whether those before it may go."""
        return self.outcome in {Outcome.GONE, Outcome.KEPT}


class Teardown:
    """One pass over steps in reverse.

    Attributes:
        removals: What became of each, as far as the pass came.
    """

    def __init__(self, look: Look, steps: Sequence[Step], uid: str, now: datetime, *, acting: bool = True) -> None:
        """Keep the settings; nothing is deleted before `run`.

        Args:
            look: What is there.
            steps: What is to go, in the order in which it was applied.
            uid: Of the InferenceCluster whose objects go.
            now: For how long something has been going.
            acting: Whether anything is to be written.
        """
        self.removals: list[Removal] = []
        self._look = look
        self._steps = steps
        self._uid = uid
        self._now = now
        self._acting = acting

    async def run(self) -> bool:
        """Takes down what can be taken down now; answers whether all is gone, but for what has to stay.

        Raises:
            Conflict: Somebody wrote in between; look again.
            AccessError: The target stopped answering.
        """
        for step in reversed(self._steps):
            removal = await self._remove(step)
            self.removals.append(removal)
            if not removal.done:
                return False
        return True

    async def _remove(self, step: Step) -> Removal:
        try:
            if step.key in self._look.troubles:
                raise self._look.troubles[step.key]
            if step.key in self._look.unserved and not await self._look.proves_gone(step.kind):
                return _unproven(step)
            found = self._look.found.get(step.key)
            if found is None or not self._goes(step, found):
                if found is not None and step.shared:
                    await self._release(step, found)
                return Removal(step=step, outcome=Outcome.GONE)
            return await self._delete(step, found)
        except NotKubernetes as trouble:  # which says nothing of the others
            return Removal(step=step, outcome=Outcome.BLOCKED, detail=str(trouble))
        except (Unreachable, Unauthorized, Conflict):
            raise
        except AccessError as trouble:
            return Removal(step=step, outcome=Outcome.BLOCKED, detail=str(trouble))

    def _goes(self, step: Step, found: Mapping[str, Any]) -> bool:
        """Whether an object is ours, or was made for one that is."""
        if step.manifest is not None:
            return is_ours(found, self._uid)
        # While there is a Certificate of that name still, it is somebody else's, and so is what was issued for it.
        return bool(step.made_for) and was_made_for(found, step.made_for) and step.made_for not in self._look.found

    async def _delete(self, step: Step, found: dict[str, Any]) -> Removal:
        if "deletionTimestamp" in found["metadata"]:
            return self._going(step, found)
        why = self._needed_by(step)
        if not why and step.keep is not None:
            why = await step.keep(self._look, found, self._uid)
        if why:
            await self._release(step, found)
            return Removal(step=step, outcome=Outcome.KEPT, detail=why)
        if not self._acting:
            return Removal(step=step, outcome=Outcome.REMOVING, detail="is deleted next")
        if step.kind == kinds.DEFINITION:
            await self._ask_for_instances(found)
        metadata = found["metadata"]
        with suppress(NotFound):  # while it was looked at
            await self._look.client.delete(step.path, uid=metadata["uid"], resource_version=metadata["resourceVersion"])
        await self._look.again(step)
        if step.key in self._look.troubles:
            raise self._look.troubles[step.key]
        if step.key in self._look.unserved:  # since just now
            return _unproven(step)
        left = self._look.found.get(step.key)
        if left is None:
            return Removal(step=step, outcome=Outcome.GONE)
        return self._going(step, left)

    async def _ask_for_instances(self, found: Mapping[str, Any]) -> None:
        """A CRD that is deleted before anybody asked for its instances can stay there for minutes."""
        spec = found["spec"]
        version = next((each["name"] for each in spec["versions"] if each["served"]), "")
        kind = kinds.Kind(f"{spec['group']}/{version}", spec["names"]["kind"], spec["names"]["plural"])
        if self._look.serves(kind, "list"):
            with suppress(ApiError):
                await self._look.client.list_metadata(kind.path(), {"limit": "1"})

    def _going(self, step: Step, found: Mapping[str, Any]) -> Removal:
        if "deletionTimestamp" not in found["metadata"]:  # made anew by somebody in between
            return Removal(step=step, outcome=Outcome.REMOVING, detail="is there again")
        detail, since = being_deleted(found)
        if (self._now - datetime.fromisoformat(since)).total_seconds() < PATIENCE:
            return Removal(step=step, outcome=Outcome.REMOVING, detail=detail, since=since)
        look_at = f"; is {step.needs[0]}, which has to let it go, running?" if step.needs else ""
        return Removal(step=step, outcome=Outcome.BLOCKED, detail=f"{detail} since {since}{look_at}", since=since)

    def _needed_by(self, step: Step) -> str:
        """Why it stays: something that stays rests on it."""
        for removal in self.removals:
            other = removal.step
            if removal.outcome is Outcome.KEPT and step.key in (*other.after, *other.awaits):
                return f"{other} stays and needs it"
        return ""

    def _has_neighbour(self) -> bool:
        """Whether another InferenceCluster has any of these objects here, and needs what it shares with us."""
        return any(annotations_of(each).get(OWNER_UID, self._uid) != self._uid for each in self._look.found.values())

    async def _release(self, step: Step, found: Mapping[str, Any]) -> None:
        """Takes off what says that an object is ours, so that it is its users' from now on."""
        metadata = found["metadata"]
        if not self._acting:
            return
        if step.shared and not self._has_neighbour():
            if MANAGER in {each.get("manager") for each in metadata.get("managedFields") or ()}:
                nothing = {
                    "apiVersion": step.kind.api_version,
                    "kind": step.kind.name,
                    "metadata": {"name": step.name, "uid": metadata["uid"]},
                }
                await self._look.client.apply(step.path, nothing, manager=MANAGER)
            return
        if not is_ours(found, self._uid):
            return
        patch = [{"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}]
        for field, key in (("labels", OWNER), ("annotations", OWNER_UID)):
            if key in (metadata.get(field) or {}):
                patch.append({"op": "remove", "path": f"/metadata/{field}/{key.replace('/', '~1')}"})
        with suppress(NotFound):
            await self._look.client.patch(step.path, patch, JSON_PATCH, manager=MANAGER)


def _unproven(step: Step) -> Removal:
    said = f"its API {step.kind.api_version} is not served, so that it cannot be told whether it is left"
    return Removal(step=step, outcome=Outcome.BLOCKED, detail=said)
