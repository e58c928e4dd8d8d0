"""`serving-stack requirements`: the table for people and the same as data."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from functions.catalog import COMPONENTS, Stack, of_stack


def requirements(*arguments: str) -> str:
    command = [sys.executable, "-m", "functions", "requirements", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("stack", [None, *Stack], ids=str)
def test_the_table_has_a_row_for_each_component(stack: Stack | None) -> None:
    components = COMPONENTS if stack is None else of_stack(stack)
    lines = requirements(*(() if stack is None else ("--stack", str(stack)))).splitlines()
    rows = {line.split("|")[1].strip(): line for line in lines if line.startswith("| `")}
    assert list(rows) == [f"`{each.key}`" for each in components]
    for each in components:
        assert all(str(requirement) in rows[f"`{each.key}`"] for requirement in each.requirements)
        assert any(line.startswith(f"- `{each.key}` ") and each.hint in line for line in lines)


@pytest.mark.parametrize("stack", [None, *Stack], ids=str)
def test_the_data_say_what_the_catalog_says(stack: Stack | None) -> None:
    components = COMPONENTS if stack is None else of_stack(stack)
    data = json.loads(requirements("-o", "json", *(() if stack is None else ("--stack", str(stack)))))
    assert [(each["key"], each["version"], each["hint"], each["link"]) for each in data] == [
        (each.key, each.version, each.hint, each.link) for each in components
    ]
    assert [[(one["name"], one["version"]) for one in each["requirements"]] for each in data] == [
        [(one.name, one.version) for one in each.requirements] for each in components
    ]
    assert all((each["condition"] is None) is (each["requirements"] == []) for each in data)
