"""`serving-stack render`: the objects that would be composed for an InferenceCluster, without any cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from functions.access.names import is_object_name
from functions.catalog import Stack
from functions.cli.formats.lines import printable, write_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from functions.compose.client_cas import ClientCAs
    from functions.compose.step import Composition, Step

SETS: Final = ("gateway", "queues", "modelexpress")
EXAMPLE: Final = "example"
"""Name of the InferenceCluster where none is given."""
CLIENT_CA_PLACEHOLDER: Final = (
    "<PEM of the client CAs that the InferenceGateways publish; --client-ca FILE puts one here>\n"
)
_LARGEST_CA: Final = 1 << 20

EPILOG: Final = """\
Apply them yourself only to try them out: the functions take objects that carry another uid for somebody else's.

\b
Examples:
    serving-stack render gpu-1 --stack Dynamo
    serving-stack render gpu-1 --set gateway --client-ca eu.pem
    serving-stack render gpu-1 --stack Dynamo --set queues -o json

\b
Exit codes:
    0  printed
    2  wrong use: an unknown flag or value, a name that no InferenceCluster
       can have, a set that the stack does not have, no CA in a file
   70  a bug
   74  the output could not be written
"""


def _cluster(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is not None and not is_object_name(name):
        raise click.BadParameter(
            f"no InferenceCluster can be called {name!r}; a name is at most 253 lower-case letters, digits, '-' and "
            "'.', with a letter or digit at both ends and beside each '.'"
        )
    return name


def _uid(_: click.Context, __: click.Parameter, uid: str | None) -> str | None:
    if uid is not None and (not uid.strip() or printable(uid) != uid):
        raise click.BadParameter("it has to be the InferenceCluster's metadata.uid")
    return uid


@click.command(epilog=EPILOG)
@click.argument("cluster", required=False, callback=_cluster)
@click.option(
    "--stack",
    type=click.Choice([str(each) for each in Stack], case_sensitive=False),
    default=str(Stack.STANDARD),
    metavar=f"[{'|'.join(Stack)}]",
    show_default=True,
    help="Whose objects.",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    type=click.Choice(SETS),
    help="Only this set; may be given again. All sets of the stack by default.",
)
@click.option(
    "--uid",
    callback=_uid,
    metavar="UID",
    help="Of the InferenceCluster, for the annotation that says whose the objects are.",
)
@click.option(
    "--client-ca",
    "client_cas",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="PEM of a CA whose certificates callers may show; may be given again, in the order of the gateways' names.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def render(
    *,
    cluster: str | None,
    stack: str,
    sets: tuple[str, ...],
    uid: str | None,
    client_cas: tuple[Path, ...],
    output: str,
) -> None:
    """Print the objects that are composed for an InferenceCluster.

    They are printed as they would be applied, in that order, each with what it waits for; no cluster is asked.
    """
    from functions.compose.ownership import marked  # noqa: PLC0415 - `render --help` needs none of this
    from functions.compose.step import Inputs  # noqa: PLC0415

    compositions = _compositions(Stack(stack), sets)
    authorities = _client_cas(client_cas)
    name = cluster or EXAMPLE
    inputs = Inputs(cluster=name, uid=uid or _placeholder(name), client_cas=authorities)
    steps = [each for composition in compositions for each in composition.steps if each.manifest is not None]
    objects = [marked(each, inputs) for each in steps]
    _explain(cluster, steps, withheld=not client_cas)
    _write(objects, steps, output)


def _compositions(stack: Stack, names: Sequence[str]) -> list[Composition]:
    from functions.compose.sets import COMPOSITIONS  # noqa: PLC0415

    of_stack = [each for each in COMPOSITIONS if stack in each.stacks]
    for name in names:
        if name not in {each.name for each in of_stack}:
            has = ", ".join(each.name for each in of_stack)
            raise click.BadParameter(f"stack {stack} has no set {name}; it has: {has}", param_hint="--set")
    return [each for each in of_stack if not names or each.name in names]


def _client_cas(files: Iterable[Path]) -> ClientCAs:
    """The client CAs of these files; a placeholder where there are none."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from functions.compose.client_cas import ClientCAs, read_certificates  # noqa: PLC0415

    texts = [(str(each), _read(each)) for each in files]
    if not texts:
        return ClientCAs(CLIENT_CA_PLACEHOLDER)
    now = datetime.now(UTC)
    for name, text in texts:
        alone = read_certificates([(name, text)], now)
        if not alone.bundle:
            raise click.BadParameter(printable("; ".join(alone.left_out)), param_hint="--client-ca")
    found = read_certificates(texts, now)
    for each in found.left_out:
        click.echo(printable(f"Left out: {each}"), err=True)
    return found


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(_LARGEST_CA + 1)
    except OSError as error:
        raise click.BadParameter(
            printable(f"{file} cannot be read: {error.strerror}"), param_hint="--client-ca"
        ) from None
    if len(content) > _LARGEST_CA:
        raise click.BadParameter(printable(f"{file} is larger than {_LARGEST_CA >> 20} MiB"), param_hint="--client-ca")
    return content.decode("utf-8", "replace")


def _placeholder(name: str) -> str:
    return f"<the uid of InferenceCluster {name}: kubectl get ic {name} -o jsonpath={{.metadata.uid}}>"


def _explain(cluster: str | None, steps: Iterable[Step], *, withheld: bool) -> None:
    """Says on stderr what is not as it would be applied."""
    if cluster is None:
        click.echo(f"No CLUSTER is given: these are the objects of one that is called {EXAMPLE}.", err=True)
    names = [str(each) for each in steps if each.client_ca]
    if withheld and names:
        objects = f"{', '.join(names[:-1])} and {names[-1]}"
        click.echo(f"Without a client CA {objects} are withheld; here they stand with a placeholder for it.", err=True)


def _gate(step: Step, content: Mapping[str, Any]) -> str:
    """What an object waits for, in one line."""
    gate = f"waits for: {'; '.join(step.gate) or 'nothing'}"
    if not step.shared:
        return gate
    from functions.compose.ownership import OWNER  # noqa: PLC0415

    labels = [each for each in content["metadata"]["labels"] if each != OWNER]
    return f"{gate}; one that others made only gets label {', '.join(labels)}"


def markdown(compositions: Iterable[Composition]) -> str:
    """A table of the objects of sets, in the order in which they are applied."""
    lines = ["| condition | stack | object | waits for |", "|---|---|---|---|"]
    for each in compositions:
        stack = "both" if len(each.stacks) == len(Stack) else next(iter(each.stacks))
        lines += [
            f"| `{each.condition}` | {stack} | {step} | {'; '.join(step.gate) or 'nothing'} |"
            for step in each.steps
            if step.manifest is not None
        ]
    return "\n".join([*lines, ""])


def _write(objects: Sequence[dict[str, Any]], steps: Sequence[Step], output: str) -> None:
    from functions.cli.formats.objects import as_json, as_yaml  # noqa: PLC0415

    if output == "json":
        write_document(as_json(objects))
    else:
        gates = [_gate(step, content) for step, content in zip(steps, objects, strict=True)]
        write_document(as_yaml(zip(objects, gates, strict=True)))
