"""What holds for every function, whoever adds one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from events.triggers import read_triggers
from events.types import MODELS
from functions.manifests import DELIVERY, triggers
from functions.registry import FUNCTIONS

if TYPE_CHECKING:
    from functions.function import Function

each_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=lambda each: each.name)


@each_function
def test_nothing_is_answered_with_what_wakes_it(function: Function) -> None:
    for wake in function.wakes_on:
        assert not [each for each in function.emits if each == wake.type or each.startswith(wake.type + ".")]


@each_function
def test_every_emitted_type_has_a_model(function: Function) -> None:
    assert set(function.emits) <= set(MODELS)


def test_no_filter_has_an_empty_value() -> None:
    """The real broker drops a filter with an empty value, and lets every event through."""
    for document in yaml.safe_load_all(triggers(FUNCTIONS.values())):
        for value in _leaves(document["spec"]["filters"]):
            assert value


def test_every_trigger_has_the_full_delivery_block() -> None:
    for document in yaml.safe_load_all(triggers(FUNCTIONS.values())):
        assert document["spec"]["delivery"] == DELIVERY


def test_every_function_that_something_wakes_has_its_trigger() -> None:
    read = read_triggers(triggers(FUNCTIONS.values()))
    assert {each.name for each in read} == {
        name.replace("/", "-") for name, function in FUNCTIONS.items() if function.wakes_on
    }


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]
