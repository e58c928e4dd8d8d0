"""`serving-stack generate`: writes what is derived from the declarations, for those who work on the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from functions.catalog import COMPONENTS, Stack
from functions.cli.render import markdown as objects
from functions.cli.requirements import markdown as requirements
from functions.compose.sets import COMPOSITIONS
from functions.deploy_files import deploy_directory
from functions.manifests import tables
from functions.manifests.event_types import event_types
from functions.manifests.permissions import TARGET, hub_accounts, on_target, permissions, token_reviews
from functions.manifests.sources import source_accounts
from functions.manifests.triggers import triggers
from functions.registry import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

BEGIN = "<!-- generated: {} -->\n"
END = "<!-- end of generated -->\n"


@click.command(hidden=True)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 where a file is stale.")
def generate(*, check: bool) -> None:
    """Write Triggers, permissions, event types, and the tables of the READMEs."""
    root = deploy_directory().parent
    wanted = {**_manifests(), **_documents(root)}
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(root)) for path in stale)
        raise click.ClickException(f"stale: {names}; run `make generate` and commit the result")
    for path in stale:
        path.write_text(wanted[path])
        click.echo(f"wrote {path.relative_to(root)}")


def _manifests() -> dict[Path, str]:
    base, target = deploy_directory() / "knative" / "base", deploy_directory() / "target"
    accounts = hub_accounts(FUNCTIONS.values()) | source_accounts((base / "sources.yaml").read_text())
    return {
        base / "triggers.yaml": triggers(FUNCTIONS.values()),
        base / "permissions.yaml": permissions(accounts),
        base / "event-types.yaml": event_types(),
        base.parent / "overlays" / "production" / "permissions.yaml": token_reviews(FUNCTIONS.values()),
        **{target / each.lower() / "permissions.yaml": permissions({TARGET: on_target(each)}) for each in Stack},
    }


def _documents(root: Path) -> dict[Path, str]:
    functions = tuple(FUNCTIONS.values())
    texts = {
        root / "README.md": {"requirements": requirements(COMPONENTS), "objects": objects(COMPOSITIONS)},
        deploy_directory() / "knative" / "README.md": {
            "events": tables.events(functions),
            "functions": tables.wakes(functions),
            "hub": tables.rights(hub_accounts(functions)),
        },
        deploy_directory() / "target" / "README.md": {
            each.lower(): tables.rights({TARGET: on_target(each)}) for each in Stack
        },
    }
    return {path: _filled(path, each) for path, each in texts.items()}


def _filled(path: Path, texts: Mapping[str, str]) -> str:
    """The file with each text between the markers of its name."""
    content = path.read_text()
    for name, text in texts.items():
        marker = BEGIN.format(name)
        before, begin, rest = content.partition(marker)
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise click.ClickException(f"{path.name} lacks the lines {marker.strip()} and {END.strip()}")
        content = f"{before}{begin}\n{text}\n{end}{after}"
    return content
