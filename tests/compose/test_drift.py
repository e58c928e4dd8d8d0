"""Whatever others do to a composed object, the next wake-up makes it exactly what it should be, and then rests."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.ownership import OWNER_UID
from functions.repairs import AT_MOST, WITHIN
from tests.compose.drift import CLIENT_CAS, DEPLOYMENT, MODEL_METADATAS, VERSION, edits, objects, patch
from tests.compose.stage import GATEWAY, MODELEXPRESS

if TYPE_CHECKING:
    from functions.compose.step import Composition, Step
    from tests.compose.whole import Whole

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(("composition", "step", "edit"), edits())
async def test_an_edit_is_undone_by_one_wake_up(whole: Whole, composition: Composition, step: Step, edit: Any) -> None:
    before, uid = whole.content(step), whole.found(step)["metadata"]["uid"]
    patch(whole.target, step, edit)
    patch(whole.target, step, {"metadata": {"annotations": {"example.com/theirs": "yes"}}})
    before["metadata"]["annotations"] |= {"example.com/theirs": "yes"}
    assert whole.content(step) != before
    await whole.compose(composition)
    assert whole.content(step) == before
    assert whole.found(step)["metadata"]["uid"] == uid
    await whole.rests(composition)


@pytest.mark.parametrize(("composition", "step"), objects())
async def test_an_object_that_was_deleted_is_back_after_one_wake_up(
    whole: Whole, composition: Composition, step: Step
) -> None:
    before = _without_what_the_server_hands_out(whole.content(step))
    before["metadata"]["annotations"] = {OWNER_UID: whole.uid()}
    await whole.delete(step)
    await whole.compose(composition)
    assert _without_what_the_server_hands_out(whole.content(step)) == before
    await whole.rests(composition)


def _without_what_the_server_hands_out(found: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in (found.get("spec") or {}).items() if key not in {"clusterIP", "clusterIPs"}}
    return {**found, "spec": spec}


async def test_everything_at_once(whole: Whole) -> None:
    """One edit of each object, of all sets, and one wake-up of each set."""
    some = {each.values[1]: each.values[2] for each in edits()}
    before = {step: whole.content(step) for step in some}
    for step, edit in some.items():
        patch(whole.target, step, edit)
    await whole.compose()
    assert {step: whole.content(step) for step in some} == before


@pytest.mark.parametrize(
    ("composition", "step", "edit", "said"),
    [
        pytest.param(GATEWAY, CLIENT_CAS, {"immutable": True}, "immutable (of kubectl-edit)", id="immutable"),
        pytest.param(
            MODELEXPRESS,
            MODEL_METADATAS,
            [
                {"op": "replace", "path": "/spec/versions/0/storage", "value": False},
                {"op": "add", "path": "/spec/versions/-", "value": {**VERSION, "storage": True}},
            ],
            "spec.versions",
            id="stored-version",
        ),
    ],
)
async def test_what_the_api_server_does_not_undo_is_a_conflict_that_names_it(
    whole: Whole, composition: Composition, step: Step, edit: Any, said: str
) -> None:
    patch(whole.target, step, edit)
    before = whole.found(step)
    for _ in range(2):
        await whole.compose(composition)
        condition = whole.condition(composition)
        assert (condition["status"], condition["reason"]) == ("False", "Conflict")
        assert f"{step}: " in condition["message"]
        assert said in condition["message"]
    assert whole.found(step)["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await whole.delete(step)
    await whole.settle()


async def test_somebody_who_insists_is_named_and_left_in_peace_for_a_minute(whole: Whole) -> None:
    """An autoscaler, say: each of its changes is undone a few times, and no more in a minute."""
    for _ in range(AT_MOST):
        patch(whole.target, DEPLOYMENT, {"spec": {"replicas": 5}})
        await whole.compose(MODELEXPRESS)
        assert whole.found(DEPLOYMENT)["spec"]["replicas"] == 1
        whole.time.moment += timedelta(seconds=1)
    patch(whole.target, DEPLOYMENT, {"spec": {"replicas": 5}})
    for _ in range(3):
        await whole.compose(MODELEXPRESS)
        assert whole.found(DEPLOYMENT)["spec"]["replicas"] == 5
        condition = whole.condition(MODELEXPRESS)
        assert condition["reason"] == "Conflict"
        assert "Deployment default/modelexpress-server" in condition["message"]
        assert "spec.replicas" in condition["message"]
    whole.time.moment += timedelta(seconds=WITHIN)
    await whole.compose(MODELEXPRESS)
    assert whole.found(DEPLOYMENT)["spec"]["replicas"] == 1
