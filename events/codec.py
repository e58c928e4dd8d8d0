"""CloudEvents on HTTP: headers and a body to an `Event` and back, in binary and structured mode.

The host, the embedded broker and the publisher call it; no other module knows the wire format. What a valid
event is, the `cloudevents` package decides. Its HTTP binding is not used: it invents ids, mutates what it is
given, turns data that it cannot parse into text, and spends most of its time on dates and on parsing data that
stays bytes here (35 us for an event that takes 22 us here, and 15 ms of imports).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote

import orjson
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.v1.event import CloudEvent

from events.event import JSON, Event, rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

MAX_SIZE: Final = 1 << 20
"""The largest body, in bytes, that is read or written."""

STRUCTURED: Final = "application/cloudevents+json"

_PREFIX: Final = "ce-"
_CONTENT_TYPE: Final = "content-type"
_BATCH: Final = "application/cloudevents-batch"
_ANY_FORMAT: Final = "application/cloudevents"
_CORE: Final = frozenset(
    {"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data"}
)
_REQUIRED: Final = frozenset({"id", "source", "type"})
_EXTENSION: Final = re.compile(r"[a-z0-9]+")
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_PLAIN: Final = re.compile(r"[!#$&-~]*")
_NOT_TEXT: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_RFC3339: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_PROBLEMS_SHOWN: Final = 3

Model = TypeVar("Model", bound="BaseModel")


class Malformed(ValueError):  # noqa: N818 - named for what the message is
    """The message is no event that can be read; the text is one line that says what is wrong."""


class TooLarge(Malformed):
    """The body is larger than `MAX_SIZE`."""


@dataclass(frozen=True, slots=True)
class Message:
    """An HTTP request or response, without its method, address or status.

    Attributes:
        headers: Header names in lower case; values are printable ASCII.
        body: At most `MAX_SIZE` bytes.
    """

    headers: dict[str, str]
    body: bytes


def decode(headers: Mapping[str, str], body: bytes) -> Event:
    """Reads an event from an HTTP request or response.

    Args:
        headers: By name in any case; those that are no part of an event are ignored.
        body: The whole body.

    Raises:
        Malformed: It is no CloudEvent, or none that can be read. `TooLarge` beyond `MAX_SIZE`.
    """
    _check_size(body)
    attributes: dict[str, str] = {}
    content_type: str | None = None
    for header, value in headers.items():
        name = _attribute(header)
        if name is None:
            continue
        if name == _CONTENT_TYPE:
            if content_type is not None:
                raise Malformed("header Content-Type occurs twice")
            content_type = value
        else:
            _add(attributes, name, value)
    media_type = _media_type(content_type) if content_type is not None else ""
    if media_type.startswith(_ANY_FORMAT):
        return _decode_structured(media_type, body)
    if not attributes:
        raise Malformed(f"not a CloudEvent: there is neither a ce- header nor the content type {STRUCTURED}")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    if body and _is_json(media_type):
        _parse(body, "data, of a JSON content type,")
    return _event(attributes, body or None)


def check(event: Event) -> None:
    """Whether an event can be sent.

    Raises:
        Malformed: It breaks the specification. `TooLarge` when its data is.
    """
    _checked_attributes(event)
    _check_size(event.data or b"")


def encode_binary(event: Event) -> Message:
    """The event in binary mode: attributes as `ce-` headers, the data as the body.

    Raises:
        Malformed: The event breaks the specification. `TooLarge` when its data is.
    """
    attributes = _checked_attributes(event)
    body = event.data or b""
    _check_size(body)
    content_type = attributes.pop("datacontenttype", None)
    headers = {f"{_PREFIX}{name}": _header_value(value) for name, value in attributes.items()}
    if content_type is not None:
        headers["content-type"] = content_type
    return Message(headers, body)


def encode_structured(event: Event) -> Message:
    """The event in structured mode: all of it as one JSON object.

    JSON data goes in as JSON, whose spacing and number forms a receiver may change; other data as base64.

    Raises:
        Malformed: The event breaks the specification, or its data is not the JSON that it is said to be.
            `TooLarge` when the message is.
    """
    members: dict[str, object] = dict(_checked_attributes(event))
    if event.data:
        # An event without a content type has JSON data by the specification; data that is `null` would be lost.
        media_type = _media_type(event.datacontenttype or JSON)
        if _is_json(media_type) and _parse(event.data, "data, of a JSON content type,") is not None:
            members["data"] = orjson.Fragment(event.data)
        else:
            members["data_base64"] = base64.b64encode(event.data).decode()
    body = orjson.dumps(members)
    _check_size(body)
    return Message({"content-type": STRUCTURED}, body)


def read(event: Event, model: type[Model]) -> Model:
    """The data of an event as a model.

    Args:
        event: Its data must be JSON, whatever its content type says.
        model: The data model of the event's type.

    Raises:
        Malformed: The data does not fit the model; the text names each field and the reason, never a value.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - whoever has a model has imported it; others start sooner

    try:
        return model.model_validate_json(event.data or b"")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        # A validator of the model may quote the value in its text, so only pydantic's own texts are passed on.
        lines = [
            f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: "
            f"{'is not valid' if problem['type'] in {'value_error', 'assertion_error'} else problem['msg']}"
            for problem in problems[:_PROBLEMS_SHOWN]
        ]
        if len(problems) > _PROBLEMS_SHOWN:
            lines.append(f"and {len(problems) - _PROBLEMS_SHOWN} more")
        text = f"data of {event.type} does not fit {model.__name__}: {'; '.join(lines)}"
    # Raised out here so that the error that holds the data is not chained to it.
    raise Malformed(_NOT_TEXT.sub(" ", text))


def _check_size(body: bytes) -> None:
    if len(body) > MAX_SIZE:
        raise TooLarge(f"the body has {len(body)} bytes, more than the {MAX_SIZE} that are allowed")


@lru_cache(maxsize=256)
def _attribute(header: str) -> str | None:
    """The attribute that a header carries, `content-type` for the one that is none, None for any other header.

    Senders use the same few names, so that each is looked at once.
    """
    name = header.lower()
    if name.startswith(_PREFIX):
        return name[len(_PREFIX) :]
    return name if name == _CONTENT_TYPE else None


def _add(attributes: dict[str, str], name: str, value: str) -> None:
    if name in attributes:
        raise Malformed(f"header ce-{_shown(name)} occurs twice")
    if name == "datacontenttype":
        raise Malformed("header ce-datacontenttype is not allowed: in binary mode Content-Type says it")
    if "%" in value:
        try:
            value = unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise Malformed(f"header ce-{_shown(name)} is not percent-encoded UTF-8") from None
    attributes[name] = value


def _decode_structured(media_type: str, body: bytes) -> Event:
    if media_type.startswith(_BATCH):
        raise Malformed("a batch of events is not supported; send each event in a request of its own")
    if media_type != STRUCTURED:
        raise Malformed(f"the event format {_shown(media_type)} is not supported; use {STRUCTURED}")
    members = _parse(body, "the body, of content type application/cloudevents+json,")
    if not isinstance(members, dict):
        raise Malformed("the body is JSON, but not an object, so it is no CloudEvent")
    value, encoded = members.pop("data", None), members.pop("data_base64", None)
    attributes = {name: _text(name, member) for name, member in members.items() if member is not None}
    if value is not None and encoded is not None:
        raise Malformed("data and data_base64 are both given; only one is allowed")
    data: bytes | None = None
    if encoded is not None:
        data = _from_base64(encoded)
    elif value is not None:
        data = _data_bytes(value, attributes.get("datacontenttype", JSON))
    return _event(attributes, data or None)


def _text(name: str, value: object) -> str:
    """An attribute of the JSON format in the text form that it has in a header."""
    if isinstance(value, str):
        return value
    if name in _CORE or not isinstance(value, int):
        raise Malformed(f"attribute {_shown(name)} must be a string")
    return str(value).lower()  # True and 12 in the canonical forms `true` and `12`


def _from_base64(encoded: object) -> bytes:
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            pass
    raise Malformed("data_base64 is not base64")


def _data_bytes(value: object, content_type: str) -> bytes:
    if isinstance(value, str) and not _is_json(_media_type(content_type)):
        return value.encode()
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise Malformed("data is nested too deeply") from None


def _event(attributes: dict[str, str], data: bytes | None) -> Event:
    """An event of attributes in their text form, which are checked here and used up."""
    for name in ("specversion", "id"):  # the library would invent them
        if name not in attributes:
            raise Malformed(f"required attribute {name} is missing")
    _check_text(attributes)
    written = attributes.pop("time", None)
    time = None if written is None else _time(written)
    _check(attributes, time)
    content_type = attributes.pop("datacontenttype", None)
    if content_type is not None and not content_type.isascii():
        raise Malformed("datacontenttype has characters other than ASCII")
    del attributes["specversion"]
    return Event(
        id=attributes.pop("id"),
        source=attributes.pop("source"),
        type=attributes.pop("type"),
        subject=attributes.pop("subject", None),
        time=time,
        datacontenttype=content_type,
        dataschema=attributes.pop("dataschema", None),
        extensions=MappingProxyType(attributes),
        data=data,
    )


def _checked_attributes(event: Event) -> dict[str, str]:
    """The attributes of an event in their text form, once they are found valid."""
    attributes = {
        "specversion": "1.0",
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "subject": event.subject,
        "datacontenttype": event.datacontenttype,
        "dataschema": event.dataschema,
    }
    present = {name: value for name, value in attributes.items() if value is not None}
    for name, value in event.extensions.items():
        if name in _CORE:
            raise Malformed(f"{name} is an attribute of every event and cannot be an extension")
        present[name] = value
    _check_text(present)
    _check(present, event.time)
    if not present.get("datacontenttype", "").isascii():
        raise Malformed("datacontenttype has characters other than ASCII")
    if event.time is not None:
        present["time"] = rfc3339(event.time)
    return present


def _check_text(attributes: Mapping[str, str]) -> None:
    """Control characters and surrogates are no part of an attribute, and could forge log lines and headers."""
    text = "".join([*attributes, *attributes.values()])
    if text.isprintable() or not _NOT_TEXT.search(text):  # the first is the fast one and also refuses odd spaces
        return
    name = next(name for name, value in attributes.items() if _NOT_TEXT.search(name + value))
    raise Malformed(f"attribute {_shown(name)} holds control characters or is not valid Unicode")


def _check(attributes: Mapping[str, str], time: datetime | None) -> None:
    """Lets the library judge the attributes, unless they are plainly valid, which it takes 27 us to find."""
    if is_plainly_valid(attributes, time):
        return
    judged: dict[str, Any] = {**attributes, "time": time} if time is not None else dict(attributes)
    try:
        CloudEvent(judged)  # a copy, because it writes into what it is given
    except CloudEventValidationError as error:
        name, problems = next(iter(error.errors.items()))
        raise Malformed(f"attribute {_shown(name)} is not valid: {_shown(str(problems[0]), 200)}") from None


def is_plainly_valid(attributes: Mapping[str, str], time: datetime | None) -> bool:
    """Whether the library would find nothing wrong with attributes; where this says no, it has the last word."""
    if attributes.get("specversion") != "1.0" or not attributes.keys() >= _REQUIRED:
        return False
    if time is not None and time.tzinfo is None:
        return False
    for name, value in attributes.items():
        if not (value if name in _CORE else _is_extension(name)):
            return False
    return "data" not in attributes


@lru_cache(maxsize=256)
def _is_extension(name: str) -> bool:
    return _EXTENSION.fullmatch(name) is not None


def _time(written: str) -> datetime:
    if _RFC3339.fullmatch(written):
        try:
            return datetime.fromisoformat(written.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise Malformed("attribute time is not an RFC 3339 time with a zone, such as 2026-12-01T04:00:00Z")


def _header_value(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)


def _parse(body: bytes, what: str) -> Any:
    try:
        return orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        reason = error.msg if isinstance(error, orjson.JSONDecodeError) else "nested too deeply"
        text = f"{what} is not valid JSON: {reason}"
    # Raised out here: the parser's error holds the whole body.
    raise Malformed(text)


@lru_cache(maxsize=64)
def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _is_json(media_type: str) -> bool:
    return media_type.endswith(("/json", "+json"))


def _shown(text: str, length: int = 60) -> str:
    """Text from outside as it may stand in an error: short and on one line."""
    return _NOT_TEXT.sub("?", text[:length])
