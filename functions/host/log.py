"""Logs of a process that serves functions: JSON lines on stderr, or readable ones on a terminal.

Called once by `functions.host.run`; everything else logs through the standard library and passes fields as `extra`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import sys
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from typing import BinaryIO, TextIO

    from structlog.typing import Processor

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_LEVELS: Final = {number: name.lower() for name, number in logging.getLevelNamesMapping().items()}
LIMIT: Final = 256
_OPTIONS: Final = orjson.OPT_UTC_Z | orjson.OPT_APPEND_NEWLINE
_MULTILINE: Final = frozenset({"exception", "stack"})
# Whatever looks like a token, a key or a certificate, and the userinfo of a URL.
_SECRET: Final = re.compile(r"[A-Za-z0-9+/_=-]{32,}|(?<=//)[^/@\s]+(?=@)|(?<=[Bb]earer )\S+")


_lines: BinaryIO | None = None  # where `emit` writes JSON itself
_waiting: Final[list[bytes]] = []


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Send every log record of the process to one stream; replaces what was configured before.

    Args:
        level: Name of the least level that is written, such as `info`.
        stream: Where to; stderr by default.
    """
    global _lines  # noqa: PLW0603 - as the logging that it is part of, it is the process's
    _flush()
    stream = sys.stderr if stream is None else stream
    terminal = stream.isatty()
    _lines = None if terminal else getattr(stream, "buffer", None)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_console() if terminal else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def emit(logger: logging.Logger, level: int, message: str, fields: dict[str, Any]) -> None:
    """Log one record of the many: as JSON it goes out without a `LogRecord`, which takes four times as long.

    Needs a running loop, and is written when the loop next turns.

    Args:
        logger: Whose record it is; its level decides.
        level: Such as `logging.INFO`.
        message: The same for all records of a kind.
        fields: What differs; values from outside may hold anything.
    """
    if not logger.isEnabledFor(level):
        return
    if _lines is None:
        logger.log(level, message, extra=fields)
        return
    line = {"time": datetime.now(UTC), "level": _LEVELS[level], "message": message, **fields}
    texts = [value for value in fields.values() if type(value) is str]
    # Nearly always so, and one look at all values is cheaper than one at each.
    if "".join(texts).isprintable() and max(map(len, texts), default=0) <= LIMIT:
        written = orjson.dumps(line, option=_OPTIONS)
    else:
        written = _line(line, fields)
    if not _waiting:  # what is logged in one turn of the loop goes out in one system call
        asyncio.get_running_loop().call_soon(_flush)
    _waiting.append(written)


def _flush() -> None:
    written = b"".join(_waiting)
    _waiting.clear()
    # As logging does: an event is not lost because nobody reads the log.
    with contextlib.suppress(OSError, ValueError):
        if _lines is not None:
            _lines.write(written)
            _lines.flush()


def printable(text: str, limit: int = LIMIT) -> str:
    """The text on one line: whatever a terminal or a log reader could take for an order is escaped.

    Args:
        text: Any text, also from outside.
        limit: Characters to keep; a longer text ends in an ellipsis.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def stack_of(error: BaseException) -> str:
    """The stack trace of an error and of what caused it, with anything that looks like a secret blotted out."""
    return "\n".join(_stacks(error)).encode(errors="backslashreplace").decode()


def _stacks(error: BaseException) -> Iterator[str]:
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield from _stacks(cause)
    yield "".join(traceback.format_tb(error.__traceback__)) + f"{type(error).__name__}: {redacted(str(error))}"


def redacted(text: str) -> str:
    """The text with anything that looks like a token, a key, a certificate or the userinfo of a URL replaced."""
    return _SECRET.sub("[redacted]", text)


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, message, then the fields in their order."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = stack_of(record.exc_info[1])
        line = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "message": printable(record.getMessage(), 4096),
        }
        return _line(line, fields)[:-1].decode()


def _line(line: dict[str, Any], fields: dict[str, Any]) -> bytes:
    for name, value in fields.items():
        line[name] = printable(value) if type(value) is str and name not in _MULTILINE else value
    return orjson.dumps(line, default=repr, option=_OPTIONS)


def _console() -> logging.Formatter:
    # structlog imports rich, which costs a tenth of a second: only a person at a terminal waits for it.
    import structlog  # noqa: PLC0415

    def clean(_logger: object, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        record = fields["_record"]
        if record.exc_info and record.exc_info[1] is not None:
            fields["exception"] = stack_of(record.exc_info[1])
        fields.pop("exc_info", None)
        for name, value in fields.items():
            if isinstance(value, str) and name not in _MULTILINE:
                fields[name] = printable(value, 4096)
        return fields

    before: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
        clean,
    ]
    renderer = structlog.dev.ConsoleRenderer()
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processor=renderer)
