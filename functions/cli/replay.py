"""`serving-stack replay`: sends the events of a journal again, to a Broker or a function."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from functions.cli.formats.lines import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from events.event import Event
    from events.publisher import Publisher

REPLAY: Final = "replay"
"""Extension of an event that was sent again; consumers that act on each event once may go by it."""
_OF_ONE_DELIVERY: Final = frozenset(
    {"knativeerrordest", "knativeerrorcode", "knativeerrordata", "knativearrivaltime", "knativebrokerttl"}
)
"""Extensions that a Broker adds; another delivery has its own."""
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


@dataclass(slots=True)
class Tally:
    """What became of the lines of a journal."""

    sent: int = 0
    refused: int = 0
    broken: int = 0


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", "sink", metavar="URL", help="Where to: a Broker's or a function's URL.")
@click.option("--cluster", metavar="NAME", help="Only events about this InferenceCluster.")
@click.option("--type", "type_", metavar="TYPE", help="Only events of this type; one that ends in a dot is a prefix.")
@click.option("--since", type=Moment(), metavar="TIME", help="Only events of that moment or later.")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), metavar="N", help="Events per second at most.")
@click.option("--dry-run", is_flag=True, help="Print what would be sent, and send nothing.")
def replay(
    *,
    file: Path,
    sink: str | None,
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
    from events.publisher import NoSink, Publisher  # noqa: PLC0415 - `replay --help` needs none of this

    def is_wanted(event: Event) -> bool:
        return (
            (cluster is None or event.extensions.get("cluster") == cluster)
            and (type_ is None or event.type == type_ or (type_.endswith(".") and event.type.startswith(type_)))
            and (since is None or (event.time is not None and event.time >= since))
        )

    tally = Tally()
    events = _events(file, is_wanted, tally)
    if dry_run:
        for event in events:
            click.echo(printable(f"{event.id} {event.type} {event.subject or ''}".rstrip()))
    elif sink is None:
        raise click.UsageError("say where to send them: --to URL, or --dry-run to see them")
    else:
        try:
            publisher = Publisher(sink, extensions={REPLAY: "true"})
        except NoSink as trouble:
            raise click.BadParameter(str(trouble), param_hint="--to") from None
        asyncio.run(_send(publisher, events, tally, pause=1 / rate if rate else 0.0))
        click.echo(f"{tally.sent} events sent to {printable(sink)}", err=True)
    return int(bool(tally.broken or tally.refused))


def _events(file: Path, is_wanted: Callable[[Event], bool], tally: Tally) -> Iterator[Event]:
    """The events that are wanted; a line that is broken is named."""
    from events.journal import read_journal  # noqa: PLC0415 - see above

    for entry in read_journal(file):
        if entry.event is None:
            tally.broken += 1
            click.echo(f"{file}:{entry.number}: {printable(entry.trouble)}; passed over", err=True)
        elif is_wanted(entry.event):
            extensions = {name: text for name, text in entry.event.extensions.items() if name not in _OF_ONE_DELIVERY}
            yield replace(entry.event, extensions=extensions)


async def _send(publisher: Publisher, events: Iterator[Event], tally: Tally, *, pause: float) -> None:
    """Sends one after the other; one that is not taken is named."""
    from events.publisher import NotAccepted  # noqa: PLC0415 - see above

    async with publisher:
        for event in events:
            if pause and tally.sent + tally.refused:
                await asyncio.sleep(pause)
            try:
                await publisher.publish((event,))
                tally.sent += 1
            except NotAccepted as trouble:
                tally.refused += 1
                click.echo(f"{printable(event.id)}: {printable(str(trouble))}", err=True)
