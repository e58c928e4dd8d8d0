"""What holds for every function, whoever adds one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from events import types
from events.event import Event
from events.triggers import read_triggers
from events.types import MODELS
from functions.catalog import COMPONENTS, CustomResource
from functions.compose.sets import COMPOSITIONS
from functions.manifests.triggers import DELIVERY, triggers
from functions.registry import FUNCTIONS

if TYPE_CHECKING:
    from functions.catalog import Requirement
    from functions.function import Function


def _change(kind: str, name: str, **extensions: str) -> Event:
    extensions |= {"kind": kind, "name": name}
    return Event(id="1", source="https://target", type=types.OBJECT_UPDATED, extensions=extensions)


def _object(requirement: Requirement) -> Event:
    kind = "CustomResourceDefinition" if isinstance(requirement, CustomResource) else "DeviceClass"
    return _change(kind, requirement.name, cluster="gpu-1")


WRITES_ALL_DOWN = {"journal"}
SETS = {f"compose-{each.name}" for each in COMPOSITIONS}
each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda each: each.name)


@each_function
def test_nothing_is_answered_with_what_wakes_it(function: Function) -> None:
    for wake in function.wakes_on:
        prefix = wake.type.endswith(".")
        assert not [each for each in function.emits if each == wake.type or (prefix and each.startswith(wake.type))]


@each_function
def test_every_emitted_type_has_a_model(function: Function) -> None:
    assert set(function.emits) <= set(MODELS)


def test_every_known_type_has_a_model_and_the_other_way_round() -> None:
    assert set(MODELS) == types.KNOWN


def test_no_filter_has_an_empty_value() -> None:
    """The real broker drops a filter with an empty value, and lets every event through."""
    for document in yaml.safe_load_all(triggers(FUNCTIONS.values())):
        for value in _leaves(document["spec"].get("filters", [])):
            assert value


def test_every_trigger_has_the_full_delivery_block() -> None:
    for document in yaml.safe_load_all(triggers(FUNCTIONS.values())):
        assert document["spec"]["delivery"] == DELIVERY


def test_every_function_that_something_wakes_has_its_trigger() -> None:
    read = read_triggers(triggers(FUNCTIONS.values()))
    assert {each.name for each in read} == {
        name.replace("/", "-") for name, function in FUNCTIONS.items() if function.wakes_on
    }


@pytest.mark.parametrize(
    ("event", "woken"),
    [
        *(
            pytest.param(_object(requirement), {"cluster", f"probes-{component.key}"}, id=str(requirement))
            for component in COMPONENTS
            for requirement in component.requirements
        ),
        pytest.param(_change("CustomResourceDefinition", "widgets.example.com"), set(), id="a CRD of no interest"),
        pytest.param(_change("DeviceClass", "gpu.example.com"), set(), id="a DeviceClass of no interest"),
        pytest.param(_change("InferenceCluster", "a", apiversion="modelplane.ai/v1alpha1"), {"cluster"}, id="cluster"),
        pytest.param(_change("Secret", "a", namespace="modelplane-system"), {"cluster"}, id="a kubeconfig Secret"),
        pytest.param(_change("Secret", "a", namespace="default"), set(), id="another Secret"),
        pytest.param(Event(id="1", source="/x", type=types.PING), {"cluster"}, id="tick"),
        pytest.param(Event(id="1", source="/x", type=types.PROVISIONED), {"cluster"}, id="provisioned"),
        *(
            pytest.param(
                _change(step.kind.name, step.name, apiversion=step.kind.api_version, cluster="gpu-1"),
                {"cluster", f"compose-{composition.name}"},
                id=str(step),
            )
            for composition in COMPOSITIONS
            for step in composition.steps
            if step.is_watched
        ),
        pytest.param(
            _change("Gateway", "another", apiversion="gateway.networking.k8s.io/v1"), set(), id="a Gateway of others"
        ),
        pytest.param(
            _change("InferenceGateway", "eu", apiversion="modelplane.ai/v1alpha1"), {"cluster"}, id="client CA"
        ),
        pytest.param(
            Event(id="1", source="/x", type=types.CHECK_REQUESTED),
            {"probes-sweep", *SETS},
            id="check requested",
        ),
        pytest.param(Event(id="1", source="/x", type=types.DELETING), set(SETS), id="being deleted"),
        *(
            pytest.param(
                Event(id="1", source="/x", type=types.REQUIREMENT_MET, extensions={"component": each.key}),
                {f"compose-{one.name}" for one in COMPOSITIONS for step in one.steps if each.key in step.needs},
                id=f"{each.key} is there",
            )
            for each in COMPONENTS
        ),
        pytest.param(Event(id="1", source="/x", type=types.REQUIREMENT_MISSING), set(), id="what is missing"),
        pytest.param(Event(id="1", source="/x", type=types.COMPOSITION_APPLIED), set(), id="what compose answers"),
        pytest.param(Event(id="1", source="/x", type="com.example.other"), set(), id="unknown"),
    ],
)
def test_an_event_wakes_who_is_concerned_and_no_one_else(event: Event, woken: set[str]) -> None:
    matching = {each.name for each in read_triggers(triggers(FUNCTIONS.values())) if each.matches(event)}
    assert matching == woken | WRITES_ALL_DOWN


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]
