"""The one in-memory form of a CloudEvent: immutable, with its data as the bytes that were on the wire."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

JSON: Final = "application/json"
_NO_EXTENSIONS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A CloudEvent 1.0.

    Attributes:
        id: Together with `source` it identifies the event; a redelivery keeps both.
        source: URI reference of who says it.
        type: Reverse-DNS name of what happened.
        subject: What it happened to, in the terms of the source.
        time: When, with a time zone.
        datacontenttype: Media type of `data`.
        dataschema: URI of the data's schema.
        extensions: Further attributes by lower-case name; an empty value is legal and kept.
        data: The payload as bytes; None where the event has none.
    """

    id: str
    source: str
    type: str
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str] = field(default_factory=lambda: _NO_EXTENSIONS)
    data: bytes | None = None

    def attribute(self, name: str) -> str | None:
        """The value of a context attribute or extension as text, None when it is absent.

        Args:
            name: Attribute name as in the CloudEvents specification, such as `type` or `cluster`.
        """
        if name in {"id", "source", "type", "subject", "datacontenttype", "dataschema"}:
            value: str | None = getattr(self, name)
            return value
        if name == "specversion":
            return "1.0"
        if name == "time":
            return None if self.time is None else rfc3339(self.time)
        return self.extensions.get(name)


def rfc3339(moment: datetime) -> str:
    """RFC 3339 text in UTC, such as `2026-12-01T04:00:00.000001Z`; `moment` must carry a time zone."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def event_id(*observed: str) -> str:
    """A deterministic id: 32 hex digits over what was observed, the same for the same observation."""
    return hashlib.sha256("\x1f".join(observed).encode()).hexdigest()[:32]


def json_data(model: BaseModel) -> bytes:
    """The JSON bytes of a data model, keys sorted and unset values left out, so that equal data is equal bytes."""
    return orjson.dumps(model.model_dump(mode="json", by_alias=True, exclude_none=True), option=orjson.OPT_SORT_KEYS)
