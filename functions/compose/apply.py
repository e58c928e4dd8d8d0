"""Applies the objects of a set, one step after the other, and says how each of them stands.

Nothing is sent to an API that is not served, nothing is applied before its gate is open, nothing is forced on an object
that is not ours, and what is right already costs no write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.access.client import JSON_PATCH
from functions.access.errors import (
    AccessError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Throttled,
)
from functions.catalog import component
from functions.compose.exactness import compare
from functions.compose.ownership import ADOPT, MANAGER, OWNER, is_handed_over, is_ours, marked, whose
from functions.compose.states import Reason, State
from functions.conditions import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

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
        states: How each object stands, by its step's key.
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
        self.states: dict[str, State] = {}
        self._look = look
        self._composition = composition
        self._inputs = inputs
        self._conditions = conditions
        self._clock = clock
        self._repairs = repairs
        self._claim = claim
        self._created = [] if created is None else created

    async def run(self) -> list[State]:
        """Brings every object as far as it can be brought now.

        Raises:
            Conflict: Somebody wrote in between; look again.
            AccessError: The target stopped answering.
        """
        for step in self._composition.steps:
            if not step.made_for:
                self.states[step.key] = await self._step(step)
        return list(self.states.values())

    async def _step(self, step: Step) -> State:
        trouble = self._look.troubles.get(step.key)
        if trouble is not None:
            return _unknown(step, trouble)
        found = self._look.found.get(step.key)
        if step.manifest is None:
            return self._observed(step, found)
        if found is None:
            return self._gate(step) or await self._create(step)
        return await self._present(step, found)

    async def _present(self, step: Step, found: dict[str, Any]) -> State:
        """How an object stands that is there."""
        if step.client_ca and not self._inputs.client_cas.bundle:
            return self._withheld(step)
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
            return self._gate(step) or await self._adopt(step, found)
        return _conflict(step, f"{whose(found)}; {_how_to_hand_over(step)}")

    def _observed(self, step: Step, found: Mapping[str, Any] | None) -> State:
        """How an object stands that another's controller makes."""
        if found is not None:
            return _judged(step, found)
        waiting = self._gate(step)
        if waiting is not None:
            return waiting
        return State(
            step=step,
            reason=Reason.WAITING_FOR_OBJECT,
            waits_for=str(step),
            detail="its controller has not made it yet",
        )

    def _gate(self, step: Step) -> State | None:
        """What an object waits for that is not there yet; None where it may be applied."""
        closed = [] if self._is_rested_on(step) else list(self._unmet(step))
        if closed:
            since = min((each.last_transition_time for _, each in closed if each is not None), default="")
            names = ", ".join(key for key, _ in closed)
            return State(step=step, reason=Reason.WAITING_FOR_REQUIREMENTS, waits_for=names, since=since)
        if step.client_ca and not self._inputs.client_cas.bundle:
            return self._withheld(step)
        if not all(self._look.serves(step.kind, verb) for verb in ("get", "create", "patch")):
            return _unserved(step)
        for others, satisfied in ((step.after, _is_applied), (step.awaits, _is_ready)):
            for key in others:
                other = self.states[key]
                if not satisfied(other):
                    return State(
                        step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(other.step), since=other.since
                    )
        return None

    def _unmet(self, step: Step) -> Iterator[tuple[str, Condition | None]]:
        for key in step.needs:
            found = self._conditions.get(component(key).condition)
            if found is None or found.status is not Status.TRUE:
                yield key, found

    def _is_rested_on(self, step: Step) -> bool:
        """Whether an object of ours rests on this one, which was there before then, and is put back unasked."""
        return any(
            step.key in (*other.after, *other.awaits)
            and other.key in self._look.found
            and is_ours(self._look.found[other.key], self._inputs.uid)
            for other in self._composition.steps
        )

    def _withheld(self, step: Step) -> State:
        missing = self._inputs.client_cas.missing
        return State(step=step, reason=Reason.WAITING_FOR_CLIENT_CA, waits_for="a client CA", detail=missing)

    async def _create(self, step: Step) -> State:
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="apply")
        wanted = marked(step, self._inputs)
        body = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": _NEW}}

        async def create() -> dict[str, Any]:
            made = await self._apply(step, body, force=False)
            self._created.append((step.path, made["metadata"]["uid"]))
            return made

        return await self._write(step, wanted, create)

    async def _keep(self, step: Step, found: dict[str, Any]) -> State:
        """Sees to an object of ours being exactly what it should be."""
        wanted = marked(step, self._inputs)
        difference = compare(wanted, found)
        if not difference:
            return _judged(step, found)
        if not self._look.serves(step.kind, "patch"):
            return _unserved(step)
        if self._claim is None:
            return State(
                step=step,
                reason=Reason.WAITING_FOR_OBJECT,
                waits_for=str(step),
                detail=f"differs in {difference}",
                next="put right",
            )
        uid, now = found["metadata"]["uid"], self._clock.now()
        if self._repairs.was_fruitless(uid, _version(found, difference)) or self._repairs.is_fought(uid, now):
            return _insisted(step, difference)
        return await self._write(step, wanted, lambda: self._repair(step, wanted, found, difference))

    async def _repair(
        self, step: Step, wanted: Manifest, found: dict[str, Any], difference: Difference
    ) -> dict[str, Any]:
        live, uid = found, found["metadata"]["uid"]
        if difference.changed:
            body = {**wanted, "metadata": {**wanted["metadata"], "uid": uid}}
            try:
                live = await self._apply(step, body, force=True)
            except ServerError as error:
                if not error.permanent:
                    raise
                live = await self._overwrite(step, wanted, found)
            difference = compare(wanted, live)
        if difference.added:
            removal = difference.removal(live["metadata"]["resourceVersion"])
            live = await self._look.client.patch(step.path, removal, JSON_PATCH, manager=MANAGER)
            difference = compare(wanted, live)
        self._repairs.note(uid, self._clock.now(), _version(live, difference) if difference else "")
        return live

    async def _adopt(self, step: Step, found: dict[str, Any]) -> State:
        """Takes over what was handed over, if it can be made exactly what it should be."""
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="adopt")
        wanted = marked(step, self._inputs)
        try:
            tried = await self._overwrite(step, wanted, found, dry_run=True)
        except (Invalid, Forbidden) as refusal:
            return _conflict(step, f"it is handed over, but cannot be made what it should be: {refusal.text}")
        difference = compare(wanted, tried)
        if difference:
            return _conflict(step, f"it is handed over, but cannot be made what it should be: {difference}")
        return await self._write(step, wanted, lambda: self._overwrite(step, wanted, found))

    async def _overwrite(
        self, step: Step, wanted: Manifest, found: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Makes the content of an object ours, whoever owns it, and forgets who owned what."""
        patch = _overwriting(wanted, found)
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
            return _judged(step, found)
        if OWNER in has:
            return _conflict(step, whose(found))
        if self._claim is None:
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=str(step), next="label")
        shared = {
            "apiVersion": step.kind.api_version,
            "kind": step.kind.name,
            "metadata": {"name": step.name, "uid": found["metadata"]["uid"], "labels": labels},
        }
        return await self._write(step, shared, lambda: self._apply(step, shared, force=False))

    async def _apply(self, step: Step, body: Manifest, *, force: bool) -> dict[str, Any]:
        return await self._look.client.apply(step.path, body, manager=MANAGER, force=force)

    async def _write(self, step: Step, wanted: Manifest, write: Callable[[], Awaitable[dict[str, Any]]]) -> State:
        """Writes, and tells the answers apart: those that heal by themselves, by trying again, or not at all."""
        assert self._claim is not None  # noqa: S101 - who only looks does not come here
        await self._claim()
        try:
            live = await write()
        except Conflict as conflict:
            if conflict.field_managers:
                return _conflict(step, str(conflict))
            raise
        except NotFound as absent:
            if absent.kind_known:  # its namespace, or itself, has gone since it was looked at
                raise Conflict(str(absent), status=absent.status) from None
            return _unserved(step)
        except Forbidden as refusal:
            return _forbidden(step, refusal)
        except Invalid as refusal:
            return State(step=step, reason=Reason.REFUSED, detail=refusal.text)
        except (ServerError, Throttled) as trouble:
            return _unknown(step, trouble)
        self._look.found[step.key] = live
        difference = compare(wanted, live)
        return _insisted(step, difference) if difference else _judged(step, live)


def being_deleted(found: Mapping[str, Any]) -> tuple[str, str]:
    """What holds an object that is being deleted, and since when as RFC 3339."""
    finalizers = ", ".join(found["metadata"].get("finalizers") or ())
    held = f", held by finalizer {finalizers}" if finalizers else ""
    return f"is being deleted{held}", found["metadata"]["deletionTimestamp"]


def _judged(step: Step, found: Mapping[str, Any]) -> State:
    unready = step.ready(found)
    if unready is None:
        return State(step=step, reason=Reason.APPLIED, applied=True)
    return State(
        step=step,
        reason=Reason.WAITING_FOR_OBJECT,
        applied=True,
        waits_for=str(step),
        detail=unready.detail,
        since=unready.since,
    )


def _insisted(step: Step, difference: Difference) -> State:
    return _conflict(step, f"an admission webhook or another controller keeps it otherwise: {difference}")


def _conflict(step: Step, detail: str) -> State:
    return State(step=step, reason=Reason.CONFLICT, detail=detail)


def _unknown(step: Step, trouble: AccessError) -> State:
    passing = isinstance(trouble, ServerError | Throttled)
    return State(step=step, reason=Reason.UNKNOWN, detail=str(trouble), trouble=trouble.reason, passing=passing)


def _unserved(step: Step) -> State:
    waits_for = f"CRD {step.kind.definition} serving {step.kind.version}"
    return State(step=step, reason=Reason.WAITING_FOR_REQUIREMENTS, waits_for=waits_for)


def _forbidden(step: Step, refusal: Forbidden) -> State:
    match refusal.denied_by:
        case "authorization":
            return _unknown(step, refusal)
        case "terminating-namespace":
            namespace = f"Namespace {step.namespace}"
            return State(step=step, reason=Reason.WAITING_FOR_OBJECT, waits_for=namespace, detail="it is being deleted")
        case "terminating-definition":
            return _unserved(step)
        case _:
            return State(step=step, reason=Reason.REFUSED, detail=refusal.text)


def _is_applied(state: State) -> bool:
    return state.applied


def _is_ready(state: State) -> bool:
    return state.ready


def _version(found: Mapping[str, Any], difference: Difference) -> str:
    """Which state of an object a repair was tried in; a status that is written makes no other."""
    metadata = found["metadata"]
    return f"{metadata.get('generation') or metadata['resourceVersion']} {difference}"


def _how_to_hand_over(step: Step) -> str:
    resource = f"{step.kind.plural}.{step.kind.group}" if step.kind.group else step.kind.plural
    namespace = f" -n {step.namespace}" if step.namespace else ""
    return f"delete it, or hand it over: kubectl annotate {resource} {step.name}{namespace} {ADOPT}=true"


def _overwriting(wanted: Manifest, found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch that leaves nothing but ours in an object, if it is still the same."""
    metadata = found["metadata"]
    kept = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != ADOPT}
    patch: list[dict[str, Any]] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
        {"op": "replace", "path": "/metadata/managedFields", "value": [{}]},
        {
            "op": "add",
            "path": "/metadata/labels",
            "value": {**(metadata.get("labels") or {}), **wanted["metadata"]["labels"]},
        },
        {"op": "add", "path": "/metadata/annotations", "value": {**kept, **wanted["metadata"]["annotations"]}},
    ]
    for key in (found.keys() | wanted.keys()) - {"apiVersion", "kind", "metadata", "status"}:
        if key in wanted:
            patch.append({"op": "add", "path": f"/{key}", "value": wanted[key]})
        else:
            patch.append({"op": "remove", "path": f"/{key}"})
    return patch
