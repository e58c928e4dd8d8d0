"""What there is when nothing happens any more, and whether that is what a fresh start would have led to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from functions.access.client import MERGE_PATCH
from functions.catalog import component
from functions.compose import kinds
from functions.compose.exactness import compare
from functions.compose.ownership import OWNER_UID, is_ours, marked
from functions.compose.sets import COMPOSITIONS
from functions.compose.step import Inputs
from tests.compose.drift import ALL, CLIENT_CAS, POLICY, THE_GATEWAY
from tests.compose.land import TICK
from tests.support import CLUSTERS, conditions, get_cluster

if TYPE_CHECKING:
    from functions.compose.step import Step
    from tests.compose.land import Land

OWN = {step.key: step for _, step in ALL if not step.shared}
"""The objects that carry our mark where they are there; the cluster's own namespace is not ours here."""
_WITHIN = 60.0
_MIRRORED = "spec.template.spec.serviceAccount"
"""Where the API server repeats `serviceAccountName`, which is whose that once was."""
_HANDED_OUT = frozenset({"clusterIP", "clusterIPs"})


@dataclass(frozen=True)
class Picture:
    """What there is.

    Attributes:
        objects: The content of those that are ours, by the keys of their steps.
        conditions: Status, reason and message of the conditions of the sets, by type.
        gateway: What is published of the gateway.
    """

    objects: dict[str, Any]
    conditions: dict[str, tuple[str, str, str]]
    gateway: dict[str, str]


async def quiet(land: Land) -> Picture:
    """What is left when ticks change nothing any more and the controllers have nothing to say."""
    await land.control(on=True)
    deadline = monotonic() + _WITHIN
    former, calm, turn = "", 0, 0
    while calm < 2:
        land.time.moment += TICK
        await land.tick(land.processes[turn % 2])
        await asyncio.sleep(0.02)
        versions, waiting = await _state(land)
        calm, former, turn = (calm + 1 if versions == former and not waiting else 0), versions, turn + 1
        assert monotonic() < deadline, f"it does not come to rest: {waiting or versions}; {_said(land)}"
    return await _picture(land)


async def gone(land: Land) -> None:
    """Ticks until the InferenceCluster, which is being deleted, is gone, and everything of ours with it."""
    await land.control(on=True)
    deadline = monotonic() + _WITHIN
    while await land.uid() is not None:
        land.time.moment += TICK
        await land.tick(land.processes[0])
        assert monotonic() < deadline, f"it is not taken down: {_said(land)}"
    left = [key for key, step in OWN.items() if (found := await land.look(step)) and _is_marked(found)]
    assert not left, f"left behind: {', '.join(left)}"


def departures(land: Land, before: Picture, fresh: Picture) -> list[str]:
    """Where what there was departs from what a fresh start in the same world leads to.

    What is there is kept while its gate is closed, and so may have no counterpart; nothing else may.
    """
    found = []
    for key in before.objects.keys() | fresh.objects.keys():
        if key not in before.objects:
            found.append(f"{key} is there after a fresh start alone")
        elif key not in fresh.objects:
            if not _is_closed(land, OWN[key], fresh):
                found.append(f"{key} is not there after a fresh start")
        elif before.objects[key] != fresh.objects[key]:
            found.append(f"{key} is {before.objects[key]}, after a fresh start {fresh.objects[key]}")
    if before.objects.keys() == fresh.objects.keys():
        if before.conditions != fresh.conditions:
            found.append(f"said is {before.conditions}, after a fresh start {fresh.conditions}")
        if before.gateway != fresh.gateway:
            found.append(f"published is {before.gateway}, after a fresh start {fresh.gateway}")
    return found


async def _picture(land: Land) -> Picture:
    uid = await land.uid()
    inputs = Inputs(cluster="gpu-1", uid=uid or "", client_cas=land.client_cas())
    objects = {}
    for key, step in OWN.items():
        found = await land.look(step)
        if found is not None and uid is not None and is_ours(found, uid):
            difference = compare(marked(step, inputs), found)
            added = [text for _, text, _ in difference.added if text != _MIRRORED]
            assert not added, f"{step} differs in {difference}"
            assert not difference.changed or _is_left_closed(land, step), f"{step} differs in {difference}"
            objects[key] = _essence(found)
    guards = {POLICY.key, CLIENT_CAS.key}
    if THE_GATEWAY.key in objects and not guards & land.planted.keys() and POLICY.kind.definition in land.installed:
        assert not await land.is_open(), "a listener without client authentication is left open"
    said = {key: each for key, each in conditions(land.api).items() if key in {one.condition for one in COMPOSITIONS}}
    published = dict(get_cluster(land.api).get("status", {}).get("gateway") or {})
    return Picture(
        objects,
        {key: (each["status"], each["reason"], each["message"]) for key, each in said.items()},
        published | {"caCertificate": "…"} if "caCertificate" in published else published,
    )


def _is_left_closed(land: Land, step: Step) -> bool:
    """Whether nothing is put back in it, since that would let callers in whom nothing asks for a certificate."""
    unserved = POLICY.kind.definition not in land.installed
    return step is THE_GATEWAY and (unserved or bool({POLICY.key, CLIENT_CAS.key} & land.planted.keys()))


def _essence(found: dict[str, Any]) -> dict[str, Any]:
    """An object without what differs from one to the next."""
    kept = {key: value for key, value in found.items() if key not in {"metadata", "status"}}
    if isinstance(kept.get("spec"), dict):
        kept["spec"] = {key: value for key, value in kept["spec"].items() if key not in _HANDED_OUT}
    return kept


def _is_closed(land: Land, step: Step, fresh: Picture) -> bool:
    """Whether something keeps an object away that is not there, so that it may be there only from before."""
    met = {type_ for type_, each in conditions(land.api).items() if each["status"] == "True"}
    if step.key in land.planted or any(component(each).condition not in met for each in step.needs):
        return True
    if not step.kind.built_in and step.kind.definition not in land.installed:
        return True
    rests_on = [OWN[key] for key in (*step.after, *step.awaits) if key in OWN and key not in fresh.objects]
    return any(_is_closed(land, each, fresh) for each in rests_on)


async def _state(land: Land) -> tuple[str, str]:
    """The versions of everything that the functions write, and what controllers have to say something of still."""
    cluster = await land.observer.get(f"{CLUSTERS}/gpu-1")
    uid = cluster["metadata"]["uid"]
    found = {key: each for key, step in OWN.items() if (each := await land.look(step)) is not None}
    versions = [cluster, *found.values()]
    waiting = [
        key
        for key, each in found.items()
        if _is_going(land, OWN[key], each) or (is_ours(each, uid) and OWN[key].ready(each) is not None)
    ]
    if THE_GATEWAY.key not in found or not is_ours(found[THE_GATEWAY.key], uid):
        waiting = [key for key in waiting if key != POLICY.key]  # there is nothing for it to take effect on
    return " ".join(each["metadata"]["resourceVersion"] for each in versions), ", ".join(waiting)


def _is_going(land: Land, step: Step, found: dict[str, Any]) -> bool:
    """Whether an object is being deleted; the API server may have to be reminded of a definition that is."""
    going = "deletionTimestamp" in found["metadata"]
    if going and step.kind is kinds.DEFINITION:
        land.api.request(
            "PATCH", step.path, {"metadata": {"annotations": {"touched": str(monotonic())}}}, content_type=MERGE_PATCH
        )
    return going


def _is_marked(found: dict[str, Any]) -> bool:
    return OWNER_UID in (found["metadata"].get("annotations") or {})


def _said(land: Land) -> str:
    return "; ".join(
        f"{each['type']} {each['reason']}: {each['message']}"
        for each in (get_cluster(land.api).get("status") or {}).get("conditions") or ()
        if each["type"].endswith("Composed")
    )
