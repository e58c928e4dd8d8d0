"""The journal: every event as one line of JSON, so that what happened can be read, and sent again.

The journal and dead-letter functions and `dev --journal` write it, `serving-stack replay` reads it. Of an event's data
only what the models of ours keep is written, so that no Secret gets into it, whoever put one into an event.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from events.codec import Malformed, decode, encode_structured, read
from events.event import Event, json_data, rfc3339
from events.types import MODELS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

MAX_BYTES: Final = 64 << 20
"""Bytes after which a file is put aside and a new one begun."""
KEPT: Final = 3
"""Files that were put aside and are kept; the oldest one beyond is deleted."""


class Journal:
    """Appends events to a file, which it puts aside as `FILE.1`, `FILE.2` and so on when it has grown."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        """Keep the settings; nothing is opened before the first event.

        Args:
            path: The file.
            max_bytes: Bytes after which it is put aside; one event may go beyond.
            kept: How many that were put aside are kept.
        """
        self.path = path
        self._max_bytes = max_bytes
        self._kept = kept

    def append(self, event: Event, now: datetime) -> None:
        """Writes one line, whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        written = line(event, now)
        with suppress(FileNotFoundError):
            if self.path.stat().st_size >= self._max_bytes:
                self._put_aside()
        with self.path.open("ab", buffering=0) as file:
            file.write(written)

    def _put_aside(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._aside(number).rename(self._aside(number + 1))
        self.path.rename(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a journal.

    Attributes:
        number: Of the line, from 1.
        event: What it says; None where it is broken.
        trouble: What is wrong with it; empty where nothing is.
    """

    number: int
    event: Event | None
    trouble: str = ""


def line(event: Event, now: datetime) -> bytes:
    """An event as a line: the CloudEvent in its JSON form and the moment at which it was recorded."""
    message = encode_structured(_without_secrets(event))
    return orjson.dumps({"recorded": rfc3339(now), "event": orjson.Fragment(message.body)}) + b"\n"


def read_journal(path: Path) -> Iterator[Entry]:
    """The lines of a file in their order, broken ones among them; empty lines are passed over.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield _entry(number, text)


def _entry(number: int, text: bytes) -> Entry:
    try:
        body = orjson.dumps(orjson.loads(text)["event"])
        return Entry(number, decode({"content-type": "application/cloudevents+json"}, body))
    except Malformed as trouble:
        return Entry(number, None, str(trouble))
    except (ValueError, KeyError, TypeError):
        return Entry(number, None, "it is no line of a journal: no JSON object with an event in it")


def _without_secrets(event: Event) -> Event:
    """The event with what its type's model keeps of the data; none of it where there is no such model, or no fit."""
    model = MODELS.get(event.type)
    if event.data is None or model is None:
        return replace(event, data=None, datacontenttype=None)
    try:
        return replace(event, data=json_data(read(event, model)))
    except Malformed:
        return replace(event, data=None, datacontenttype=None)
