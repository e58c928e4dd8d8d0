"""`serving-stack emit`: says to a Broker what only a pipeline knows."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from functions.access.names import is_object_name
from functions.cli.formats.lines import printable

if TYPE_CHECKING:
    from events.event import Event

EPILOG = """\
Exit codes:

\b
    0  the Broker took it
    1  it did not
    2  wrong use
   70  a bug
"""


@click.group()
def emit() -> None:
    """Send an event from a pipeline."""


@emit.command(epilog=EPILOG)
@click.argument("cluster")
@click.option("--sink", envvar="K_SINK", show_envvar=True, metavar="URL", required=True, help="The Broker's URL.")
@click.option("--secret", metavar="NAME[/KEY]", help="The kubeconfig Secret in modelplane-system, where that is known.")
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Holds the token to show to a Broker that authenticates senders.",
)
@click.option("--source", default="/serving-stack/emit", show_default=True, metavar="URI", help="Who says it.")
def provisioned(cluster: str, sink: str, secret: str | None, token_file: Path | None, source: str) -> int:
    """Say that CLUSTER was provisioned, so that its InferenceCluster of that name is checked at once.

    It creates and changes nothing: where there is no such InferenceCluster yet, it is checked when it is created.
    """
    from events.publisher import NoSink, NotAccepted, Publisher  # noqa: PLC0415 - `emit --help` needs none of this

    if not is_object_name(cluster):
        raise click.BadParameter(f"{printable(cluster)!r} is no name that an InferenceCluster can have")
    event = _provisioned(cluster, secret, source)
    try:
        publisher = Publisher(sink, token_file=token_file)
    except NoSink as trouble:
        raise click.BadParameter(str(trouble), param_hint="--sink") from None

    async def send() -> None:
        async with publisher:
            await publisher.publish((event,))

    try:
        asyncio.run(send())
    except NotAccepted as trouble:
        raise click.ClickException(printable(str(trouble))) from None
    click.echo(f"{event.id} sent to {printable(sink)}", err=True)
    return 0


def _provisioned(cluster: str, secret: str | None, source: str) -> Event:
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    from events import types  # noqa: PLC0415
    from events.event import JSON, Event, json_data  # noqa: PLC0415

    reference = None
    if secret is not None:
        name, _, key = secret.partition("/")
        try:
            reference = types.SecretReference(name=name, key=key or None)
        except ValidationError:
            raise click.BadParameter("a Secret has a name, and its key one too", param_hint="--secret") from None
    return Event(
        id=str(uuid.uuid4()),
        source=source,
        type=types.PROVISIONED,
        subject=cluster,
        time=datetime.now(UTC),
        datacontenttype=JSON,
        extensions={"cluster": cluster, "partitionkey": cluster},
        data=json_data(types.Provisioned(cluster=cluster, secret_ref=reference)),
    )
