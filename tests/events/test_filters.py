"""Trigger filters: what passes, and what is refused before it could pass everything."""

from __future__ import annotations

import pytest

from events.event import Event
from events.filters import InvalidFilter, compile_filters

ADDED = Event(
    id="1",
    source="https://10.96.0.1:443",
    type="dev.knative.apiserver.ref.add",
    subject="/apis/resource.k8s.io/v1/namespaces//deviceclasses/gpu.nvidia.com",
    extensions={"kind": "DeviceClass", "name": "gpu.nvidia.com", "namespace": ""},
)
IS_DEVICE_CLASS = {"exact": {"kind": "DeviceClass"}}
IS_CRD = {"exact": {"kind": "CustomResourceDefinition"}}


@pytest.mark.parametrize(
    ("filters", "passes"),
    [
        pytest.param(None, True, id="none"),
        pytest.param([], True, id="empty"),
        pytest.param([IS_DEVICE_CLASS], True, id="exact"),
        pytest.param([IS_CRD], False, id="exact, other value"),
        pytest.param([{"exact": {"kind": "Device"}}], False, id="exact is not prefix"),
        pytest.param(
            [{"exact": {"kind": "DeviceClass", "name": "mig.nvidia.com"}}], False, id="exact, both must match"
        ),
        pytest.param([{"exact": {"cluster": "gpu-1"}}], False, id="exact, absent attribute"),
        pytest.param([{"exact": {"specversion": "1.0"}}], True, id="exact, specversion"),
        pytest.param([{"exact": {"time": "2026-12-01T04:00:00Z"}}], False, id="exact, absent time"),
        pytest.param([{"prefix": {"type": "dev.knative.apiserver."}}], True, id="prefix"),
        pytest.param([{"prefix": {"type": "ai.modelplane."}}], False, id="prefix, other"),
        pytest.param([{"suffix": {"subject": "/gpu.nvidia.com"}}], True, id="suffix"),
        pytest.param([{"suffix": {"cluster": "x"}}], False, id="suffix, absent attribute"),
        pytest.param([IS_DEVICE_CLASS, IS_CRD], False, id="entries are ANDed"),
        pytest.param([{"all": [IS_DEVICE_CLASS, {"prefix": {"name": "gpu."}}]}], True, id="all"),
        pytest.param([{"all": [IS_DEVICE_CLASS, IS_CRD]}], False, id="all, one does not"),
        pytest.param([{"any": [IS_CRD, IS_DEVICE_CLASS]}], True, id="any"),
        pytest.param([{"any": [IS_CRD]}], False, id="any, none does"),
        pytest.param([{"not": IS_CRD}], True, id="not"),
        pytest.param([{"not": IS_DEVICE_CLASS}], False, id="not, does"),
        pytest.param([{"not": {"any": [IS_CRD, {"not": IS_DEVICE_CLASS}]}}], True, id="nested"),
    ],
)
def test_what_passes(filters: object, passes: bool) -> None:  # noqa: FBT001
    assert compile_filters(filters)(ADDED) is passes


@pytest.mark.parametrize(
    ("filters", "attributes", "passes"),
    [
        pytest.param(None, {"kind": "DeviceClass"}, True, id="matches"),
        pytest.param(None, {"kind": "Node"}, False, id="does not"),
        pytest.param([IS_DEVICE_CLASS], {"kind": "Node"}, True, id="filters win"),
        pytest.param([], {"kind": "Node"}, False, id="empty filters do not"),
    ],
)
def test_the_older_filter(filters: object, attributes: object, passes: bool) -> None:  # noqa: FBT001
    assert compile_filters(filters, attributes)(ADDED) is passes


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        pytest.param([{"exact": {"namespace": ""}}], "filters[0].exact.namespace: is empty", id="empty value"),
        pytest.param([IS_CRD, {"not": {"prefix": {"a": ""}}}], "filters[1].not.prefix.a: is empty", id="nested"),
        pytest.param([{"exact": {"apiversion": 1.0}}], "filters[0].exact.apiversion: must be a string", id="number"),
        pytest.param([{"exact": {"apiVersion": "v1"}}], "'apiVersion' is no attribute name", id="attribute name"),
        pytest.param([{"exact": {}}], "filters[0].exact: must map", id="no attribute"),
        pytest.param([{"exact": "x"}], "filters[0].exact: must map", id="no object"),
        pytest.param([{"cesql": "TRUE"}], "filters[0].cesql: CESQL is not supported", id="CESQL"),
        pytest.param([{"all": [{"cesql": "TRUE"}]}], "filters[0].all[0].cesql: CESQL", id="CESQL nested"),
        pytest.param([{"contains": {"a": "b"}}], "filters[0].contains: is no filter dialect", id="unknown"),
        pytest.param([{**IS_CRD, "prefix": {"a": "b"}}], "exactly one of", id="two dialects"),
        pytest.param([{}], "filters[0]: must be an object with exactly one of", id="empty entry"),
        pytest.param(["exact"], "filters[0]: must be an object", id="text"),
        pytest.param({"exact": {"a": "b"}}, "filters: must be a list", id="no list"),
        pytest.param([{"all": []}], "filters[0].all: must be a list of filters that is not empty", id="all of nothing"),
        pytest.param([{"any": IS_CRD}], "filters[0].any: must be a list", id="any of no list"),
        pytest.param([{"not": [IS_CRD]}], "filters[0].not: must be an object", id="not of a list"),
    ],
)
def test_what_is_refused(filters: object, says: str) -> None:
    with pytest.raises(InvalidFilter) as refusal:
        compile_filters(filters)
    assert says in str(refusal.value)


def test_an_empty_value_in_the_older_filter_is_refused_also_where_filters_win() -> None:
    with pytest.raises(InvalidFilter, match=r"^filter\.attributes\.namespace: is empty"):
        compile_filters([IS_CRD], {"namespace": ""})
