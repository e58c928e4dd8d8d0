"""What others put inside a composed object is told from defaults, by hand-made managedFields."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.exactness import compare
from functions.compose.ownership import MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable

OURS: dict[str, Any] = {
    "metadata": {"labels": {"ours": "yes"}, "annotations": {"ours": "yes"}},
    "spec": {
        "mode": "fast",
        "settings": {"depth": 3},
        "listeners": [{"name": "https", "port": 443}],
        "zones": ["a", "b"],
        "rules": [{"verbs": ["get"]}],
        "selector": {"app": "x"},
    },
}
HTTPS = 'k:{"name":"https"}'
OWNED = (
    ("f:spec", "f:mode"),
    ("f:spec", "f:settings", "f:depth"),
    ("f:spec", "f:listeners", HTTPS, "."),
    ("f:spec", "f:listeners", HTTPS, "f:name"),
    ("f:spec", "f:listeners", HTTPS, "f:port"),
    ("f:spec", "f:zones", 'v:"a"'),
    ("f:spec", "f:zones", 'v:"b"'),
    ("f:spec", "f:rules"),
    ("f:spec", "f:selector"),
)
FieldPath = tuple[str, ...]


def entry(manager: str, *paths: FieldPath, operation: str = "Update", **more: str) -> dict[str, Any]:
    """An entry of managedFields."""
    fields: dict[str, Any] = {}
    for path in paths:
        place = fields
        for each in path:
            place = place.setdefault(each, {})
    return {"manager": manager, "operation": operation, "fieldsV1": fields, **more}


def live(*theirs: dict[str, Any], ours: Iterable[FieldPath] = OWNED, **spec: Any) -> dict[str, Any]:
    """OURS as it would come from an API server, with other fields of `spec` and the entries of others."""
    found = copy.deepcopy(OURS)
    found["spec"] |= spec
    found["metadata"]["managedFields"] = [entry(MANAGER, *ours, operation="Apply"), *theirs]
    return found


def test_what_was_applied_is_exact() -> None:
    assert not compare(OURS, live())


def test_defaults_are_nobodys_and_no_extras() -> None:
    found = live(
        listeners=[{"name": "https", "port": 443, "weight": 1}], settings={"depth": 3, "kind": "y"}, other={"x": [1]}
    )
    assert not compare(OURS, found)


@pytest.mark.parametrize(
    ("theirs", "spec", "said"),
    [
        pytest.param([("f:spec", "f:extra")], {"extra": 1}, "spec.extra (of kubectl)", id="field"),
        pytest.param(
            [("f:spec", "f:settings", "f:width")],
            {"settings": {"depth": 3, "width": 1}},
            "spec.settings.width (of kubectl)",
            id="field-below",
        ),
        pytest.param(
            [("f:spec", "f:extra", "f:below", "f:deep")],
            {"extra": {"below": {"deep": 1}}},
            "spec.extra (of kubectl)",
            id="topmost",
        ),
        pytest.param(
            [("f:spec", "f:listeners", 'k:{"name":"http"}', "f:port")],
            {"listeners": [{"name": "https", "port": 443}, {"name": "http", "port": 80}]},
            "spec.listeners[name=http] (of kubectl)",
            id="item-of-an-associative-list",
        ),
        pytest.param(
            [("f:spec", "f:listeners", HTTPS, "f:optional")],
            {"listeners": [{"name": "https", "port": 443, "optional": True}]},
            "spec.listeners[name=https].optional (of kubectl)",
            id="field-of-an-item",
        ),
        pytest.param(
            [("f:spec", "f:zones", 'v:"c"')],
            {"zones": ["a", "c", "b"]},
            "spec.zones[c] (of kubectl)",
            id="value-of-a-set",
        ),
        pytest.param(
            [("f:spec", "f:zones", "i:2")], {"zones": ["a", "b", "c"]}, "spec.zones[2] (of kubectl)", id="by-index"
        ),
        pytest.param([("f:data", "f:a")], {}, "", id="elsewhere-and-gone-since"),
    ],
)
def test_what_others_added(theirs: list[FieldPath], spec: dict[str, Any], said: str) -> None:
    difference = compare(OURS, live(entry("kubectl", *theirs), **spec))
    assert str(difference) == said
    assert difference.changed == ()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"mode": "slow"}, "spec.mode", id="value"),
        pytest.param({"settings": {}}, "spec.settings.depth", id="value-taken-out"),
        pytest.param({"listeners": [{"name": "https", "port": 80}]}, "spec.listeners[0].port", id="value-in-an-item"),
        pytest.param({"listeners": []}, "spec.listeners", id="item-taken-out"),
        pytest.param({"zones": ["b", "a"]}, "spec.zones[0], spec.zones[1]", id="order"),
        pytest.param({"rules": [{"verbs": ["get", "list"]}]}, "spec.rules[0].verbs", id="longer-atomic-list"),
        pytest.param({"settings": None}, "spec.settings", id="null"),
    ],
)
def test_what_others_changed(spec: dict[str, Any], said: str) -> None:
    difference = compare(OURS, live(**spec))
    assert str(difference) == said
    assert difference.added == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("rules", [{"verbs": ["get"], "names": ["x"]}], id="atomic-list"),
        pytest.param("selector", {"app": "x", "tier": "y"}, id="atomic-map"),
        pytest.param("selector", {"app": "x"}, id="put-back-by-somebody-else"),
    ],
)
def test_what_can_be_owned_in_one_piece_alone_and_is_another_s_is_put_back(field: str, value: Any) -> None:
    """Within it nothing tells what is whose, so that what he put beside ours would pass for a default."""
    path = ("f:spec", f"f:{field}")
    found = live(entry("kubectl", path), ours=[each for each in OWNED if each != path], **{field: value})
    difference = compare(OURS, found)
    assert difference.changed == (f"spec.{field}",)
    assert difference.added == ()


def test_fields_that_others_own_as_well_are_no_difference() -> None:
    everything = entry("argocd", *OWNED, ("f:metadata", "f:labels", "f:ours"), operation="Apply")
    assert not compare(OURS, live(everything, entry("kubectl", ("f:spec", "f:settings", "."))))


def test_metadata_and_status_of_others_are_their_business() -> None:
    found = live(
        entry("kubectl", ("f:metadata", "f:labels", "f:theirs"), ("f:metadata", "f:finalizers")),
        entry("controller", ("f:status", "f:ready")),
        entry("controller", ("f:status",), ("f:spec", "f:extra"), subresource="status"),
        status={"ready": True},
    )
    found["status"] = {"ready": True}
    found["metadata"]["labels"]["theirs"] = "yes"
    found["metadata"]["finalizers"] = ["theirs"]
    assert not compare(OURS, found)


@pytest.mark.parametrize("field", ["labels", "annotations"])
@pytest.mark.parametrize("value", [{}, {"ours": "no"}, None])
def test_our_labels_and_annotations_have_to_be_there(field: str, value: dict[str, str] | None) -> None:
    found = live()
    found["metadata"][field] = value
    assert compare(OURS, found).changed == (f"metadata.{field}.ours",)


def test_where_nothing_tells_any_more_what_is_ours() -> None:
    found = live()
    del found["metadata"]["managedFields"]
    assert compare(OURS, found).changed == ("metadata.managedFields",)


@pytest.mark.parametrize("odd", [{}, {"manager": "x"}, {"manager": "x", "fieldsV1": None}])
def test_entries_that_say_nothing(odd: dict[str, Any]) -> None:
    assert not compare(OURS, live(odd))


def test_one_patch_takes_everything_out_from_the_end_of_each_list() -> None:
    listeners = [{"name": name} for name in ("a", "https", "b", "c")]
    listeners[1]["port"] = 443  # type: ignore[assignment]
    found = live(
        entry("one", *(("f:spec", "f:listeners", f'k:{{"name":"{name}"}}') for name in "ac")),
        entry("two", ("f:spec", "f:listeners", 'k:{"name":"b"}'), ("f:spec", "f:a/b~c"), ("f:spec", "f:zones", "i:2")),
        listeners=listeners,
        zones=["a", "b", "c"],
    )
    found["spec"]["a/b~c"] = 1
    guard, *removals = compare(OURS, found).removal("17")
    assert guard == {"op": "replace", "path": "/metadata/resourceVersion", "value": "17"}
    assert {each["op"] for each in removals} == {"remove"}
    paths = [each["path"] for each in removals]
    assert [each for each in paths if "listeners" in each] == [f"/spec/listeners/{index}" for index in (3, 2, 0)]
    assert {each for each in paths if "listeners" not in each} == {"/spec/a~1b~0c", "/spec/zones/2"}
