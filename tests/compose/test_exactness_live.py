"""On a real API server: what others put inside a composed object is taken out, what is theirs otherwise stays."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from functions.access import kubeconfig
from functions.access.client import APPLY, JSON_PATCH, MERGE_PATCH, Client
from functions.access.discovery import DiscoveryReader
from functions.access.targets import Target
from functions.catalog import Stack
from functions.compose.apply import Applier
from functions.compose.client_cas import ClientCAs
from functions.compose.exactness import compare
from functions.compose.kinds import Kind
from functions.compose.look import look_at
from functions.compose.ownership import OWNER, OWNER_UID, marked
from functions.compose.states import Reason, State
from functions.compose.step import Composition, Inputs, Step
from functions.repairs import Repairs
from functions.world import Clock
from tests.support import CRDS, apply, happened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from functions.local.instance import ControlPlane

THING = Kind("test.example/v1", "Thing", "things")
_LISTENER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "port": {"type": "integer"},
        "weight": {"type": "integer", "default": 1},
        "hosts": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
}
_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "mode": {"type": "string", "enum": ["fast", "slow"]},
                "kind": {"type": "string", "default": "usual"},
                "settings": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "listeners": {
                    "type": "array",
                    "items": _LISTENER,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "rules": {
                    "type": "array",
                    "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
                "selector": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "x-kubernetes-map-type": "atomic",
                },
                "keep": {
                    "type": "string",
                    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "keep stays as it is"}],
                },
            },
            "x-kubernetes-validations": [
                {"rule": "!has(oldSelf.keep) || has(self.keep)", "message": "keep cannot be taken out"}
            ],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.test.example"},
    "spec": {
        "group": THING.group,
        "scope": "Cluster",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": _SCHEMA},
            }
        ],
    },
}
_SPEC = {
    "mode": "fast",
    "settings": {"depth": 3},
    "listeners": [{"name": "https", "port": 443, "hosts": ["a"]}],
    "rules": [{"verbs": ["get"]}],
    "selector": {"app": "x"},
}
STEP = Step(kind=THING, name="one", manifest=lambda _: {"spec": copy.deepcopy(_SPEC)})
COMPOSITION = Composition(name="things", condition="ThingsComposed", stacks=frozenset(Stack), steps=(STEP,))
INPUTS = Inputs(cluster="gpu-1", uid="some-uid", client_cas=ClientCAs())
_AGAIN = datetime(2026, 12, 1, tzinfo=UTC)


class Thing:
    """One object of a kind of its own, and what sees to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._target = Target(client, DiscoveryReader(client))
        self._repairs = Repairs()

    async def see_to(self) -> State:
        """Brings it to what it should be, as each wake-up does."""
        look = await look_at(self._target, COMPOSITION, leftovers=False)
        applier = Applier(
            look, COMPOSITION, INPUTS, {}, clock=Clock(lambda: _AGAIN), repairs=self._repairs, claim=_claim
        )
        (state,) = await applier.run()
        return state

    async def read(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.client.get(STEP.path)
        return found

    async def edit(self, patch: Any, *, manager: str = "kubectl", media_type: str = MERGE_PATCH) -> None:
        await self.client.patch(STEP.path, patch, media_type, manager=manager)


async def _claim() -> None:
    """Nothing has to be held here."""


@pytest.fixture
async def thing(clean: ControlPlane) -> AsyncIterator[Thing]:
    """The object, applied and exact."""
    apply(clean.api, f"{CRDS}/things.test.example", _DEFINITION)
    client = Client(kubeconfig.load_file(clean.kubeconfig))
    await happened(client, CRDS, "things.test.example", _is_established)
    found = Thing(client)
    while (await found.see_to()).reason is not Reason.APPLIED:
        pass  # discovery trails the definition by some milliseconds
    yield found
    await client.close()


def _is_established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _applied(listener: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What another manager applies for himself."""
    spec = {"listeners": [listener], **more}
    return {"apiVersion": THING.api_version, "kind": "Thing", "metadata": {"name": "one"}, "spec": spec}


EDITS = [
    pytest.param({"spec": {"mode": "slow"}}, MERGE_PATCH, id="value"),
    pytest.param({"spec": {"kind": "odd"}}, MERGE_PATCH, id="default-replaced"),
    pytest.param({"spec": {"settings": {"width": 2, "a/b~1c~": {"deep": [1]}}}}, MERGE_PATCH, id="keys-of-a-map"),
    pytest.param({"spec": {"settings": None}}, MERGE_PATCH, id="map-taken-out"),
    pytest.param({"spec": {"selector": {"tier": "y"}}}, MERGE_PATCH, id="key-in-an-atomic-map"),
    pytest.param({"spec": {"rules": [{"verbs": ["get"], "names": ["x"]}]}}, MERGE_PATCH, id="within-an-atomic-list"),
    pytest.param({"spec": {"rules": [{"verbs": ["get"]}, {"verbs": ["list"]}]}}, MERGE_PATCH, id="atomic-list-longer"),
    pytest.param({"spec": {"listeners": [{"name": "http", "port": 80}]}}, MERGE_PATCH, id="another-list"),
    pytest.param({"spec": {"listeners": []}}, MERGE_PATCH, id="empty-list"),
    pytest.param(
        [
            {"op": "add", "path": "/spec/listeners/0", "value": {"name": "a", "port": 1}},
            {"op": "add", "path": "/spec/listeners/-", "value": {"name": "b", "port": 2}},
            {"op": "add", "path": "/spec/listeners/-", "value": {"name": "c", "port": 3}},
        ],
        JSON_PATCH,
        id="several-items-of-an-associative-list",
    ),
    pytest.param(
        [
            {"op": "add", "path": "/spec/listeners/0/hosts/0", "value": "first"},
            {"op": "add", "path": "/spec/listeners/0/hosts/-", "value": "last"},
            {"op": "replace", "path": "/spec/listeners/0/weight", "value": 7},
        ],
        JSON_PATCH,
        id="values-of-a-set-and-a-default-within-an-item",
    ),
    pytest.param(_applied({"name": "http", "port": 80}), APPLY, id="applied-by-another"),
    pytest.param(_applied({"name": "https", "weight": 7}, mode="slow"), APPLY, id="applied-within-ours"),
    pytest.param({"spec": None}, MERGE_PATCH, id="all-of-it"),
    pytest.param({"metadata": {"labels": {OWNER: None}}}, MERGE_PATCH, id="owner-label-taken-off"),
    pytest.param({"metadata": {"labels": {OWNER: "another"}}}, MERGE_PATCH, id="owner-label-changed"),
]


@pytest.mark.parametrize(("patch", "media_type"), EDITS)
async def test_one_wake_up_puts_it_right_and_the_next_writes_nothing(thing: Thing, patch: Any, media_type: str) -> None:
    before = await thing.read()
    if media_type == APPLY:
        await thing.client.apply(STEP.path, patch, manager="argocd")
    else:
        await thing.edit(patch, media_type=media_type)
    await thing.edit({"metadata": {"labels": {"theirs": "yes"}, "finalizers": ["test.example/theirs"]}})
    edited = await thing.read()
    assert compare(marked(STEP, INPUTS), edited)
    assert (await thing.see_to()).reason is Reason.APPLIED
    after = await thing.read()
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"] | {"theirs": "yes"}
    assert after["metadata"]["finalizers"] == ["test.example/theirs"]
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"metadata": {"labels": {"theirs": "yes"}, "annotations": {"theirs": "yes"}}}, id="metadata"),
        pytest.param({"spec": {"mode": "fast"}}, id="the-same-value"),
        pytest.param({"spec": {"kind": "usual"}}, id="the-default"),
    ],
)
async def test_what_changes_nothing_of_ours_costs_no_write(thing: Thing, patch: dict[str, Any]) -> None:
    await thing.edit(patch)
    before = await thing.read()
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["metadata"] == before["metadata"]


async def test_a_manager_who_applies_the_same_may_own_it_as_well(thing: Thing) -> None:
    body = {"apiVersion": THING.api_version, "kind": "Thing", "metadata": {"name": "one"}, "spec": _SPEC}
    await thing.client.apply(STEP.path, body, manager="argocd", force=False)
    before = await thing.read()
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["metadata"] == before["metadata"]


async def test_a_default_that_somebody_applied_as_well_is_no_extra(thing: Thing) -> None:
    """It would be there without him: taking it out changes nothing, and is not tried again and again."""
    body = {"apiVersion": THING.api_version, "kind": "Thing", "metadata": {"name": "one"}, "spec": {"kind": "usual"}}
    await thing.client.apply(STEP.path, body, manager="argocd")
    before = await thing.read()
    for _ in range(2):
        assert (await thing.see_to()).reason is Reason.APPLIED
        assert (await thing.read())["metadata"] == before["metadata"]
    await thing.edit({"spec": {"settings": {"width": 2}, "listeners": None}})
    for _ in range(2):
        assert (await thing.see_to()).reason is Reason.APPLIED
        assert (await thing.read())["spec"] == before["spec"]
    await thing.edit({"spec": {"kind": "odd"}})
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["spec"] == before["spec"]


async def test_what_several_others_added_goes_in_one_wake_up(thing: Thing) -> None:
    before = await thing.read()
    for manager in ("one", "two", "three"):
        value = {"name": manager, "port": 1}
        added = [{"op": "add", "path": "/spec/listeners/0", "value": value}]
        await thing.edit(added, manager=manager, media_type=JSON_PATCH)
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["spec"] == before["spec"]


async def test_what_cannot_be_taken_out_is_a_conflict_that_names_it(thing: Thing) -> None:
    await thing.edit({"spec": {"keep": "me"}}, manager="stubborn")
    before = await thing.read()
    for _ in range(2):
        state = await thing.see_to()
        assert state.reason is Reason.CONFLICT
        assert "spec.keep (of stubborn)" in state.detail
        assert "keep cannot be taken out" in state.detail
    assert (await thing.read())["metadata"] == before["metadata"]


async def test_what_was_put_in_while_nothing_told_whose_it_is_goes_as_well(thing: Thing) -> None:
    before = await thing.read()
    await thing.edit({"metadata": {"managedFields": [{}]}})
    await thing.edit({"spec": {"settings": {"width": 2}, "kind": "odd"}})
    assert "managedFields" not in (await thing.read())["metadata"]
    assert (await thing.see_to()).reason is Reason.APPLIED
    after = await thing.read()
    assert after["spec"] == before["spec"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["metadata"] == after["metadata"]
    await thing.edit({"spec": {"settings": {"width": 2}}})
    assert (await thing.see_to()).reason is Reason.APPLIED
    assert (await thing.read())["spec"] == before["spec"]


async def test_a_change_by_everybody_s_own_hand_ends_in_the_same_object(thing: Thing) -> None:
    """Extras and changes of ours at once, in several fields."""
    before = await thing.read()
    await thing.edit(
        {
            "metadata": {"labels": {OWNER: None}},
            "spec": {
                "mode": "slow",
                "kind": "odd",
                "settings": {"depth": 1, "width": 2},
                "selector": {"app": "y"},
                "listeners": [{"name": "http", "port": 80}, {"name": "https", "port": 1, "hosts": ["b", "a"]}],
            },
        }
    )
    assert (await thing.see_to()).reason is Reason.APPLIED
    after = await thing.read()
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["metadata"]["annotations"][OWNER_UID] == INPUTS.uid
