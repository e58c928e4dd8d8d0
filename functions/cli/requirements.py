"""`serving-stack requirements`: what a cluster must bring, as a table for people or as data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from functions.catalog import COMPONENTS, Stack, of_stack
from functions.catalog.components import EXTENSION_MANAGER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.catalog import Component


@click.command()
@click.option("--stack", type=click.Choice([str(each) for each in Stack]), help="Only what this stack needs.")
@click.option("-o", "--output", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
def requirements(stack: str | None, output: str) -> None:
    """Print what an existing cluster must provide to run the serving stack."""
    components = COMPONENTS if stack is None else of_stack(Stack(stack))
    if output == "json":
        click.echo(json.dumps([_data(each) for each in components], indent=2))
    else:
        click.echo(markdown(components), nl=False)


def _data(component: Component) -> dict[str, Any]:
    return {
        "key": component.key,
        "condition": component.condition if component.requirements else None,
        "purpose": component.purpose,
        "chart": component.chart,
        "version": component.version,
        "stacks": [str(each) for each in Stack if each in component.stacks],
        "requirements": [
            {
                "title": str(each),
                "group": each.group,
                "version": each.version,
                "resource": each.plural,
                "name": each.name,
            }
            for each in component.requirements
        ],
        "notChecked": list(component.not_checked),
        "notNeeded": list(component.not_needed),
        "hint": component.hint,
        "link": component.link,
    }


def markdown(components: Iterable[Component]) -> str:
    """A table of what is checked, and below it what to do about a miss, what is not checked and what is not needed."""
    components = tuple(components)
    lines = ["| component | stack | Managed mode installs | checked |", "|---|---|---|---|"]
    lines += [_row(each) for each in components]
    lines += ["", "When something is missing:", ""]
    lines += [f"- `{each.key}` {each.purpose}. {each.hint} [How]({each.link})" for each in components]
    lines += ["", "**Not checked**, yours to meet:", ""]
    lines += [f"- `{each.key}`: {text}" for each in components for text in each.not_checked]
    lines += ["", "**Not needed**, Managed mode leaves it out as well:", ""]
    lines += [f"- `{each.key}`: {text}" for each in components for text in each.not_needed]
    lines += ["", "The `extensionManager` values for chart `gateway-helm`:", "", "```yaml"]
    lines += [*EXTENSION_MANAGER.splitlines(), "```", ""]
    return "\n".join(lines)


def _row(component: Component) -> str:
    stack = "both" if len(component.stacks) == len(Stack) else next(iter(component.stacks))
    installs = f"chart `{component.chart}` {component.version}" if component.chart else "vendored manifests"
    checked = "<br>".join(str(each) for each in component.requirements) or "nothing yet"
    return f"| `{component.key}` | {stack} | {installs} | {checked} |"
