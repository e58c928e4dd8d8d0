from __future__ import annotations

import asyncio
import io
import logging
import os
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from functions.host import log

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("test")


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    log.configure(stream=io.StringIO())
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", line_buffering=True)


def written(stream: io.TextIOWrapper) -> bytes:
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue()


async def emitted(level: int, fields: dict[str, Any]) -> None:
    log.emit(logger, level, "event", fields)
    await asyncio.sleep(0)  # the turn of the loop in which it is written


def lines(stream: io.TextIOWrapper) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in written(stream).splitlines()]


async def test_both_ways_give_the_same_line(stream: io.TextIOWrapper) -> None:
    log.configure("info", stream)
    logger.info("event", extra={"event_id": "1", "duration_ms": 0.5})
    await emitted(logging.INFO, {"event_id": "1", "duration_ms": 0.5})
    first, second = lines(stream)
    assert list(first) == list(second) == ["time", "level", "message", "event_id", "duration_ms"]
    assert first.pop("time").endswith("Z")
    assert second.pop("time").endswith("Z")
    assert first == second == {"level": "info", "message": "event", "event_id": "1", "duration_ms": 0.5}


async def test_below_the_level_nothing_is_written(stream: io.TextIOWrapper) -> None:
    log.configure("warning", stream)
    logger.info("event")
    await emitted(logging.INFO, {})
    assert written(stream) == b""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param('x\n{"level":"info"}', 'x\\n{"level":"info"}', id="a second line"),
        pytest.param("\x1b[2J\x9b\x07", "\\x1b[2J\\x9b\\x07", id="terminal orders"),
        pytest.param("a\u2028b\u202e", "a\\u2028b\\u202e", id="line separator and direction"),
        pytest.param("\udc80", "\\udc80", id="surrogate"),
        pytest.param("ü 漢", "ü 漢", id="letters stay"),
        pytest.param("x" * 300, "x" * 255 + "…", id="too long"),
    ],
)
async def test_values_from_outside_stay_values(stream: io.TextIOWrapper, value: str, expected: str) -> None:
    log.configure("info", stream)
    await emitted(logging.INFO, {"event_id": value})
    logger.info("event", extra={"event_id": value})
    assert [line["event_id"] for line in lines(stream)] == [expected, expected]


async def test_a_terminal_gets_text_that_cannot_steer_it() -> None:
    stream = Terminal(io.BytesIO(), encoding="utf-8", line_buffering=True)
    log.configure("info", stream)
    await emitted(logging.WARNING, {"event_id": "\x1b[2J\nforged"})
    logger.warning("a\nb")
    text = written(stream).decode()
    assert len(text.splitlines()) == 2
    assert "\x1b[2J" not in text
    assert "\\x1b[2J\\nforged" in text


def fail(text: str) -> None:
    raise ValueError(text)


def test_a_terminal_gets_stack_traces_without_secrets() -> None:
    stream = Terminal(io.BytesIO(), encoding="utf-8", line_buffering=True)
    log.configure("info", stream)
    url = "http://user:hunter2@hub/"
    try:
        fail(url)
    except ValueError:
        logger.exception("bug")
    text = written(stream).decode()
    assert "ValueError" in text
    assert "hunter2" not in text


def test_an_exception_goes_into_one_line(stream: io.TextIOWrapper) -> None:
    log.configure("info", stream)
    try:
        try:
            fail("inner")
        except ValueError:
            fail("outer \udc80")
    except ValueError:
        logger.exception("bug")
    [line] = lines(stream)
    assert line["exception"].index("ValueError: inner") < line["exception"].index("ValueError: outer \\udc80")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("token eyJhbGciOiJSUzI1NiIsImtpZCI6InNlY3JldCJ9", "token [redacted]", id="JWT"),
        pytest.param("Bearer abc", "Bearer [redacted]", id="bearer"),
        pytest.param("https://me:pw@hub:6443/api", "https://[redacted]@hub:6443/api", id="userinfo"),
        pytest.param("cannot list deviceclasses", "cannot list deviceclasses", id="plain words"),
    ],
)
def test_redacted(text: str, expected: str) -> None:
    assert log.redacted(text) == expected


async def test_a_log_that_nobody_reads_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    log.configure("info", stream)
    await emitted(logging.INFO, {})
    with pytest.raises(BrokenPipeError):  # it was tried
        stream.close()
