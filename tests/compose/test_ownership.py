"""Whose an object is: the mark that ours carry, and what is said of others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.client_cas import ClientCAs
from functions.compose.ownership import ADOPT, MANAGER, OWNER, OWNER_UID, is_handed_over, is_ours, marked, whose
from functions.compose.sets import COMPOSITIONS
from functions.compose.step import Inputs

if TYPE_CHECKING:
    from functions.compose.step import Step

STEPS = [each for one in COMPOSITIONS for each in one.steps if each.manifest is not None]
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
LONG = [
    pytest.param("a" * 63, id="63"),
    pytest.param("a" * 64, id="64"),
    pytest.param("a" * 253, id="253"),
    pytest.param("a" * 56 + "." + "b" * 60, id="dot-at-the-cut"),
    pytest.param("a" * 55 + ".-" + "b" * 60, id="two-at-the-cut"),
    pytest.param(".".join(["ab"] * 84), id="many-dots"),
]


def inputs(cluster: str = "gpu-1", uid: str = "some-uid") -> Inputs:
    return Inputs(cluster=cluster, uid=uid, client_cas=ClientCAs("x"))


def found(managers: tuple[Any, ...] = (), **metadata: Any) -> dict[str, Any]:
    entries = [{"manager": each} if isinstance(each, str) else each for each in managers]
    return {"metadata": {"name": "x", "managedFields": entries, **metadata}}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.key)
def test_everything_that_is_composed_carries_the_mark_and_nothing_of_the_cluster_else(step: Step) -> None:
    made = marked(step, inputs())
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"], metadata["name"]) == (step.kind.api_version, step.kind.name, step.name)
    assert metadata.get("namespace", "") == step.namespace
    assert metadata["labels"][OWNER] == "gpu-1"
    assert metadata["annotations"] == {OWNER_UID: "some-uid"}
    assert is_ours(made, "some-uid")
    assert not is_ours(made, "another-uid")
    assert marked(step, inputs()) == made  # and making it changes nothing of the declaration


@pytest.mark.parametrize("name", LONG)
def test_the_label_holds_any_name_that_a_cluster_can_have(name: str) -> None:
    label = marked(STEPS[0], inputs(name))["metadata"]["labels"][OWNER]
    assert LABEL.fullmatch(label)
    if len(name) <= 63:
        assert label == name


def test_two_long_names_have_two_labels() -> None:
    labels = {marked(STEPS[0], inputs("a" * 70 + each))["metadata"]["labels"][OWNER] for each in ("b", "c")}
    assert len(labels) == 2


@pytest.mark.parametrize("metadata", [{}, {"annotations": None}, {"annotations": {}}, {"labels": {OWNER: "gpu-1"}}])
def test_the_label_alone_makes_nothing_ours(metadata: dict[str, Any]) -> None:
    assert not is_ours(found(**metadata), "some-uid")
    assert not is_handed_over(found(**metadata))


@pytest.mark.parametrize(("value", "handed_over"), [("true", True), ("false", False), ("", False), ("True", False)])
def test_handing_over(value: str, handed_over: bool) -> None:  # noqa: FBT001
    assert is_handed_over(found(annotations={ADOPT: value})) is handed_over


@pytest.mark.parametrize(
    ("managers", "metadata", "said"),
    [
        pytest.param(("helm",), {}, "it was made by helm", id="manager"),
        pytest.param(("helm", "kubectl", "helm"), {}, "it was made by helm, kubectl", id="each-once"),
        pytest.param(
            ({"manager": "controller", "subresource": "status"}, "helm"), {}, "it was made by helm", id="not-its-status"
        ),
        pytest.param((MANAGER, "helm"), {}, "it was made by helm", id="not-us"),
        pytest.param(
            (MANAGER,),
            {},
            "it was made for an InferenceCluster, whose mark it does not carry any more",
            id="left-behind",
        ),
        pytest.param(("before-first-apply",), {}, "it was made by somebody else", id="not-the-api-server"),
        pytest.param((), {}, "it was made by somebody else", id="nobody"),
        pytest.param((), {"managedFields": None}, "it was made by somebody else", id="null"),
        pytest.param(
            ("helm",),
            {"labels": {OWNER: "gpu-2"}, "annotations": {OWNER_UID: "x"}},
            "it belongs to InferenceCluster gpu-2",
            id="another-cluster",
        ),
        pytest.param(("helm",), {"labels": {OWNER: "gpu-2"}}, "it was made by helm", id="label-without-uid"),
        pytest.param(("helm",), {"annotations": {OWNER_UID: "x"}}, "it was made by helm", id="uid-without-label"),
        pytest.param(("a\nb\x1b[31m",), {}, "it was made by a b [31m", id="hostile"),
    ],
)
def test_whose(managers: tuple[Any, ...], metadata: dict[str, Any], said: str) -> None:
    assert whose(found(managers, **metadata)) == said


def test_a_long_list_of_managers_is_cut() -> None:
    assert len(whose(found(tuple(f"manager-{each}" for each in range(1000))))) < 1000
