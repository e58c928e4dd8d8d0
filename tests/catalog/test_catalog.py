from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from functions.catalog import COMPONENTS, Component, Stack, component, of_stack
from functions.catalog.components import EXTENSION_MANAGER
from functions.registry import FUNCTIONS

PAGE: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "page.yaml").read_text())

each_component = pytest.mark.parametrize("one", COMPONENTS, ids=lambda each: each.key)


def test_the_rows_of_the_page_are_the_components_in_order() -> None:
    assert [each.key for each in COMPONENTS] == [row["component"] for row in PAGE]


@pytest.mark.parametrize("row", PAGE, ids=lambda row: row["component"])
def test_each_row_of_the_page_is_in_the_catalog(row: dict[str, Any]) -> None:
    found = component(row["component"])
    assert (found.chart, found.version) == (row["chart"], row["version"])
    assert [str(each) for each in found.requirements] == row["checked"]
    assert len(found.not_checked) == row["unchecked"]
    assert len(found.not_needed) == row["unneeded"]
    stacks = set(Stack) if row["stack"] == "both" else {Stack(row["stack"])}
    assert found.stacks == stacks


def test_keys_and_condition_types_are_unique() -> None:
    assert len({each.key for each in COMPONENTS}) == len({each.condition for each in COMPONENTS}) == len(COMPONENTS)


def test_no_requirement_is_asked_for_twice() -> None:
    requirements = [one for each in COMPONENTS for one in each.requirements]
    assert len(set(requirements)) == len(requirements)


@each_component
def test_texts_are_whole_sentences(one: Component) -> None:
    for text in (one.hint, *one.not_checked, *one.not_needed):
        assert re.fullmatch(r"\S.*\S\.", text), text
        assert "  " not in text
    assert one.purpose
    assert not one.purpose.endswith(".")


@each_component
def test_the_link_is_a_page_of_its_project(one: Component) -> None:
    parts = urlsplit(one.link)
    assert parts.scheme == "https"
    assert "." in parts.netloc


@each_component
def test_condition_types_are_camel_case(one: Component) -> None:
    assert re.fullmatch(r"([A-Z][a-z0-9]*)+Provided", one.condition)


@each_component
def test_each_component_has_its_probe_and_file(one: Component) -> None:
    assert f"probes/{one.key}" in FUNCTIONS
    assert (Path(__file__).parents[2] / "functions" / "probes" / f"{one.module}.py").is_file()


def test_there_is_no_probe_without_a_component() -> None:
    probes = {name.removeprefix("probes/") for name in FUNCTIONS if name.startswith("probes/")} - {"sweep"}
    assert probes == {each.key for each in COMPONENTS}


def test_number_of_checks_of_each_stack() -> None:
    assert {stack: sum(len(each.requirements) for each in of_stack(stack)) for stack in Stack} == {
        Stack.STANDARD: 15,
        Stack.DYNAMO: 16,
    }


def test_extension_manager_values_are_those_of_the_page() -> None:
    values = yaml.safe_load(EXTENSION_MANAGER)["config"]["envoyGateway"]
    manager = values["extensionManager"]
    translator = manager["hooks"]["xdsTranslator"]
    assert values["extensionApis"] == {"enableBackend": True}
    assert translator["post"] == ["Translation", "Cluster", "Route"]
    assert translator["translation"] == {
        each: {"includeAll": True} for each in ("listener", "route", "cluster", "secret")
    }
    assert manager["service"]["fqdn"] == {
        "hostname": "ai-gateway-controller.envoy-ai-gateway-system.svc.cluster.local",
        "port": 1063,
    }
    assert manager["backendResources"] == [
        {"group": "inference.networking.k8s.io", "kind": "InferencePool", "version": "v1"}
    ]
