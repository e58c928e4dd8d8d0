"""Applies the objects of a set, one step after the other, and says how each of them stands.

Nothing is sent to an API that is not served, nothing is applied before its gate is open, nothing is forced on an object
that is not ours, and what is right already costs no write.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson

from functions.access.client import JSON_PATCH
from functions.access.errors import ApiError, Conflict, Forbidden, Invalid, NotKubernetes, ServerError
from functions.compose import kinds
from functions.compose.answers import refused
from functions.compose.exactness import NESTED, OWNERSHIP, compare, overwriting
from functions.compose.gates import Gates
from functions.compose.ownership import MANAGER, OWNER, hand_over_command, is_handed_over, is_ours, marked, whose
from functions.compose.states import Reason, State, being_deleted, conflict, insisted, judged, unknown, unserved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from functions.compose.exactness import Difference
    from functions.compose.look import Look
    from functions.compose.step import Composition, Inputs, Manifest, Step
    from functions.conditions import Condition
    from functions.repairs import Repairs
    from functions.world import Clock

_NEW: Final = "1"
"""resourceVersion that no object can have: an apply with it creates, and is a conflict where there is an object."""


class Applier:
    """One pass over the steps of a set.

    Attributes:
        wrote: Whether anything was written.
    """

    def __init__(
        self,
        look: Look,
        composition: Composition,
        inputs: Inputs,
        conditions: Mapping[str, Condition],
        *,
        clock: Clock,
        repairs: Repairs,
        claim: Callable[[], Awaitable[None]] | None = None,
        created: list[tuple[str, str]] | None = None,
    ) -> None:
        """Keep the settings; nothing is written before `run`.

        Args:
            look: What is there.
            composition: The set.
            inputs: What its objects are made from.
            conditions: Those of the InferenceCluster by type, which decide the gates.
            clock: For what is remembered of repairs.
            repairs: What was put right lately.
            claim: Called before anything is written: sees to the finalizer. None where nothing is to be written.
            created: Takes path and uid of each object that is created, also where the pass does not come to its end.
        """
        self._look = look
        self._composition = composition
        self._inputs = inputs
        self._gates = Gates(look, composition, inputs, conditions)
        self._clock = clock
        self._repairs = repairs
        self._claim = claim
        self._created = [] if created is None else created
        self.wrote = False

    async def run(self) -> list[State]:
        """Brings every object as far as it can be brought now.

        Raises:
            Conflict: Somebody wrote in between; look again.
            AccessError: The target stopped answering.
        """
        for step in self._composition.steps:
            if not step.made_for:
                self._gates.states[step.key] = await self._step(step)
        return list(self._gates.states.values())

    async def _step(self, step: Step) -> State:
        trouble = self._look.troubles.get(step.key)
        if trouble is not None:
            return unknown(step, trouble)
        if step.client_ca and self._inputs.client_cas.trouble is not None:
            return unknown(step, self._inputs.client_cas.trouble, whose="hub: ")
        found = self._look.found.get(step.key)
        if self._guards_what_should_be_gone(step):
            return await self._keep_guarding(step, found)
        if step.manifest is None:
            return self._observed(step, found)
        if found is None:
            return self._gates.closed(step) or await self._create(step)
        return await self._present(step, found)

    def _guards_what_should_be_gone(self, step: Step) -> bool:
        """Whether callers are still let in, by an object of ours that is to go, and this is what they are asked for."""
        return (
            step.client_ca
            and not step.guarded
            and step.kind != kinds.CONFIG_MAP  # which can hold no other client CA than those that were there
            and not self._inputs.client_cas.bundle
            and any(
                each.guarded and step.key in each.after and self._gates.is_there(each)
                for each in self._composition.steps
            )
        )

    async def _keep_guarding(self, step: Step, found: dict[str, Any] | None) -> State:
        """Sees to a guard being what it should be until nothing is left to be guarded."""
        if found is None and self._look.serves(step.kind, "create"):
            await self._create(step)
        elif found is not None and "deletionTimestamp" not in found["metadata"] and self._gates.is_there(step):
            state = await self._keep(step, found)
            if state.reason is Reason.CONFLICT:
                return state
        return self._gates.withheld(step)

    async def _present(self, step: Step, found: dict[str, Any]) -> State:
        """How an object stands that is there."""
        if step.client_ca and not self._inputs.client_cas.bundle:
            return self._gates.withheld(step)
        if "deletionTimestamp" in found["metadata"]:
            detail, since = being_deleted(found)
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), detail=detail, since=since)
        if is_ours(found, self._inputs.uid):
            return await self._keep(step, found)
        return await self._foreign(step, found)

    async def _foreign(self, step: Step, found: dict[str, Any]) -> State:
        """How an object stands that somebody else made."""
        if step.shared:
            return await self._share(step, found)
        if is_handed_over(found):
            return self._gates.closed(step) or await self._adopt(step, found)
        return conflict(step, f"{whose(found)}; delete it, or hand it over on the target: {hand_over_command(step)}")

    def _observed(self, step: Step, found: Mapping[str, Any] | None) -> State:
        """How an object stands that another's controller makes."""
        if found is not None:
            return judged(step, found)
        waiting = self._gates.closed(step)
        if waiting is not None:
            return waiting
        return State(
            step=step,
            reason=Reason.WAITING_FOR_OBJECT,
            waits_for=str(step),
            detail="its controller has not made it yet",
        )

    async def _create(self, step: Step) -> State:
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="apply")
        if step.guarded:
            await self._see_guards(step)
        wanted = marked(step, self._inputs)
        body = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": _NEW}}

        async def create() -> dict[str, Any]:
            made = await self._apply(step, body, force=False)
            self._created.append((step.path, made["metadata"]["uid"]))
            return made

        return await self._write(step, create, wanted)

    async def _see_guards(self, step: Step) -> None:
        """Looks once more at what keeps callers out, right before they are let in: another replica may have taken it.

        Raises:
            Conflict: It is not what it was when everything was looked at; look again.
        """
        for guard in self._composition.steps:
            if guard.key in step.after:
                before = self._look.found.get(guard.key)
                await self._look.again(guard)
                after = self._look.found.get(guard.key)
                if before is None or after is None or _version_of(before) != _version_of(after):
                    raise Conflict(f"{guard} was written by others", status=HTTPStatus.CONFLICT)

    async def _keep(self, step: Step, found: dict[str, Any]) -> State:
        """Sees to an object of ours being exactly what it should be."""
        wanted = marked(step, self._inputs)
        difference = compare(wanted, found)
        if not difference or self._is_harmless(wanted, found, difference):
            return judged(step, found)
        if not self._look.serves(step.kind, "patch"):
            return unserved(step)
        if self._claim is None:
            return State(
                step=step,
                reason=Reason.WAITING_FOR_OBJECT,
                waits_for=str(step),
                detail=f"differs in {difference}",
                next="put right",
            )
        return await self._put_right(step, wanted, found, difference)

    async def _put_right(self, step: Step, wanted: Manifest, found: dict[str, Any], difference: Difference) -> State:
        """Makes an object of ours what it should be, unless somebody insists on something else."""
        uid, digest, repairs = found["metadata"]["uid"], _digest(wanted), self._repairs
        if repairs.is_fought(uid, digest, self._clock.now()):
            return insisted(step, difference)
        if repairs.was_fruitless(uid, digest, _version(found, difference)) and not await self._would_help(
            step, wanted, found, difference
        ):
            return insisted(step, difference)
        waiting = self._unguarded(step)
        if waiting is not None and difference.changed and not difference.added:
            return waiting
        state = await self._write(step, lambda: self._repair(step, wanted, found, difference), wanted)
        if state.reason is Reason.REFUSED:
            return conflict(step, f"{difference} cannot be put right: {state.detail}")
        return state

    async def _would_help(self, step: Step, wanted: Manifest, found: dict[str, Any], difference: Difference) -> bool:
        """Whether putting an object right would come out otherwise than it did before; only tried, nothing is written.

        No event tells when an admission policy, or a webhook, goes.
        """
        client, metadata = self._look.client, found["metadata"]
        try:
            if difference.changed:
                body = {**wanted, "metadata": {**wanted["metadata"], "uid": metadata["uid"]}}
                tried = await client.apply(step.path, body, manager=MANAGER, dry_run=True)
            else:
                removal = difference.removal(metadata["resourceVersion"])
                tried = await client.patch(step.path, removal, JSON_PATCH, manager=MANAGER, dry_run=True)
        except ApiError:
            return False
        return compare(wanted, tried) != difference

    async def _repair(
        self, step: Step, wanted: Manifest, found: dict[str, Any], difference: Difference
    ) -> dict[str, Any]:
        live, uid = found, found["metadata"]["uid"]
        if difference.changed and self._unguarded(step) is None:
            live = await self._put_back(step, wanted, found, difference)
            difference = compare(wanted, live)
        harmless = False
        if difference.added:
            removal = difference.removal(live["metadata"]["resourceVersion"])
            live = await self._look.client.patch(step.path, removal, JSON_PATCH, manager=MANAGER)
            difference = compare(wanted, live)
            # What is there again at once, and others' still, the API server itself puts there: they only named it.
            harmless = not difference.changed
        fruitless = _version(live, difference) if difference else ""
        self._repairs.note(uid, _digest(wanted), self._clock.now(), fruitless, harmless=harmless)
        return live

    def _unguarded(self, step: Step) -> State | None:
        """What has to be right before anything is put back in an object that lets callers in; None where it is."""
        return self._gates.rests_on(step, step.after) if step.guarded else None

    def _is_harmless(self, wanted: Manifest, found: Mapping[str, Any], difference: Difference) -> bool:
        return self._repairs.was_harmless(found["metadata"]["uid"], _digest(wanted), _version(found, difference))

    async def _put_back(
        self, step: Step, wanted: Manifest, found: dict[str, Any], difference: Difference
    ) -> dict[str, Any]:
        """Applies an object anew, whoever owns what of it; the whole of it where nobody can tell, or apply fails."""
        if {OWNERSHIP, NESTED}.intersection(difference.changed):
            return await self._overwrite(step, wanted, found)
        metadata = found["metadata"]
        guard = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {**wanted, "metadata": {**wanted["metadata"], **guard}}
        try:
            return await self._apply(step, body, force=True)
        except ServerError as error:
            if not error.permanent:
                raise
        except Invalid:
            if found.get("immutable") is True:
                await self._look.client.delete(
                    step.path, uid=metadata["uid"], resource_version=metadata["resourceVersion"]
                )
                raise Conflict(f"{step} is made anew, for it cannot be written", status=HTTPStatus.CONFLICT) from None
            if not difference.added:  # else it may be what others added that does not go with ours
                raise
        return await self._overwrite(step, wanted, found)

    async def _adopt(self, step: Step, found: dict[str, Any]) -> State:
        """Takes over what was handed over, if it can be made exactly what it should be."""
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="adopt")
        wanted = marked(step, self._inputs)
        try:
            tried = await self._overwrite(step, wanted, found, dry_run=True)
        except (Invalid, Forbidden) as refusal:
            return conflict(step, f"it is handed over, but cannot be made what it should be: {refusal.text}")
        difference = compare(wanted, tried)
        if difference:
            return conflict(step, f"it is handed over, but cannot be made what it should be: {difference}")
        return await self._write(step, lambda: self._overwrite(step, wanted, found), wanted)

    async def _overwrite(
        self, step: Step, wanted: Manifest, found: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Makes the content of an object ours, whoever owns it, and forgets who owned what."""
        patch = overwriting(wanted, found)
        live = await self._look.client.patch(step.path, patch, JSON_PATCH, manager=MANAGER, dry_run=dry_run)
        if dry_run:
            return live
        body = {**wanted, "metadata": {**wanted["metadata"], "uid": found["metadata"]["uid"]}}
        return await self._apply(step, body, force=True)

    async def _share(self, step: Step, found: dict[str, Any]) -> State:
        """Adds our labels to what others made, and nothing else."""
        wanted = marked(step, self._inputs)
        labels = {key: value for key, value in wanted["metadata"]["labels"].items() if key != OWNER}
        has = found["metadata"].get("labels") or {}
        if all(has.get(key) == value for key, value in labels.items()):
            return judged(step, found)
        if OWNER in has:
            return conflict(step, whose(found))
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="label")
        shared = {
            "apiVersion": step.kind.api_version,
            "kind": step.kind.name,
            "metadata": {"name": step.name, "uid": found["metadata"]["uid"], "labels": labels},
        }
        return await self._write(step, lambda: self._apply(step, shared, force=False))

    async def _apply(self, step: Step, body: Manifest, *, force: bool) -> dict[str, Any]:
        return await self._look.client.apply(step.path, body, manager=MANAGER, force=force)

    async def _write(
        self, step: Step, write: Callable[[], Awaitable[dict[str, Any]]], wanted: Manifest | None = None
    ) -> State:
        """Writes, and tells the answers apart: those that heal by themselves, by trying again, or not at all.

        Args:
            step: The object's.
            write: Does it, and answers with the object.
            wanted: What has to come out of it exactly; None where the rest of the object is others' business.
        """
        assert self._claim is not None  # noqa: S101 - who only looks does not come here
        await self._claim()
        try:
            live = await write()
        except (ApiError, NotKubernetes) as answer:
            return refused(step, answer)
        self.wrote = True
        self._look.found[step.key] = live
        difference = compare(wanted, live) if wanted is not None else None
        if wanted is None or not difference or self._is_harmless(wanted, live, difference):
            return judged(step, live)
        return insisted(step, difference)


def _version_of(found: Mapping[str, Any]) -> tuple[str, object, bool]:
    """What has to stay of an object that others rest on; its status may change."""
    metadata = found["metadata"]
    return metadata["uid"], metadata.get("generation", metadata["resourceVersion"]), "deletionTimestamp" in metadata


def _digest(wanted: Manifest) -> str:
    return hashlib.sha256(orjson.dumps(wanted)).hexdigest()


def _version(found: Mapping[str, Any], difference: Difference) -> str:
    """Which state of an object a repair was tried in; a status that is written makes no other."""
    metadata = found["metadata"]
    return f"{metadata.get('generation') or metadata['resourceVersion']} {difference}"
