"""`serving-stack replay`: sends the events of a journal again, to a Broker or a function."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from functions.cli.formats.lines import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from events.event import Event
    from events.journal import Entry
    from events.publisher import Publisher

REPLAY: Final = "replay"
"""Extension of an event that was sent again; consumers that act on each event once may go by it."""
EPILOG: Final = """\
Exit codes:

\b
    0  all that was asked for was sent
    1  a line is broken, or an event was not taken; the others were sent
    2  wrong use
   70  a bug
  130  interrupted
"""


class Moment(click.ParamType[datetime]):
    """A moment as RFC 3339 writes it."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """With a time zone; UTC where none is written."""
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time; write such as 2026-12-01T04:00:00Z", param, ctx)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", "sink", metavar="URL", required=True, help="Where to: a Broker's or a function's URL.")
@click.option("--cluster", metavar="NAME", help="Only events about this InferenceCluster.")
@click.option("--type", "type_", metavar="TYPE", help="Only events of this type; one that ends in a dot is a prefix.")
@click.option("--since", type=Moment(), metavar="TIME", help="Only events of that moment or later.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Events per second at most.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
def replay(
    *,
    file: Path,
    sink: str,
    cluster: str | None,
    type_: str | None,
    since: datetime | None,
    rate: float | None,
    dry_run: bool,
) -> int:
    """Send the events in a journal FILE again, in their order.

    Ids and sources stay as they were, and each event carries the extension `replay`. A function that gets one looks at
    the world as it is now, so that nothing is done twice.
    """
    from events.journal import read_journal  # noqa: PLC0415 - `replay --help` needs none of this
    from events.publisher import NoSink, Publisher  # noqa: PLC0415

    try:
        publisher = Publisher(sink, extensions={REPLAY: "true"})
    except NoSink as trouble:
        raise click.BadParameter(str(trouble), param_hint="--to") from None
    entries = list(read_journal(file))
    broken = [each for each in entries if each.event is None]
    for each in broken:
        click.echo(f"{file}:{each.number}: {printable(each.trouble)}; passed over", err=True)
    wanted = _wanted(entries, cluster=cluster, type_=type_, since=since)
    if dry_run:
        for event in wanted:
            click.echo(f"{event.id} {event.type} {event.subject or ''}".rstrip())
        return int(bool(broken))
    sent, refused = asyncio.run(_send(publisher, wanted, rate))
    click.echo(f"{sent} events sent to {printable(sink)}", err=True)
    return int(bool(broken or refused))


def _wanted(entries: Iterable[Entry], *, cluster: str | None, type_: str | None, since: datetime | None) -> list[Event]:
    def is_wanted(event: Event) -> bool:
        return (
            (cluster is None or event.extensions.get("cluster") == cluster)
            and (type_ is None or event.type == type_ or (type_.endswith(".") and event.type.startswith(type_)))
            and (since is None or (event.time is not None and event.time >= since))
        )

    return [each.event for each in entries if each.event is not None and is_wanted(each.event)]


async def _paced(events: Iterable[Event], rate: float | None) -> AsyncIterator[Event]:
    """The events, so many a second at most."""
    for number, event in enumerate(events):
        if rate is not None and number:
            await asyncio.sleep(1 / rate)
        yield event


async def _send(publisher: Publisher, events: Iterable[Event], rate: float | None) -> tuple[int, int]:
    """How many were taken, and how many were not; those that were not are named."""
    from events.publisher import NotAccepted  # noqa: PLC0415 - see above

    sent = refused = 0
    async with publisher:
        async for event in _paced(events, rate):
            try:
                await publisher.publish((event,))
                sent += 1
            except NotAccepted as trouble:
                refused += 1
                click.echo(f"{event.id}: {printable(str(trouble))}", err=True)
    return sent, refused
