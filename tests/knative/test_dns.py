"""Names are answered from a table, as a resolver asks for them."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING

import pytest

from functions.local.knative.dns import Responder, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

TABLE: Mapping[str, list[str]] = {"till.shop": ["10.96.1.2", "10.96.1.3"], "empty.shop": []}


def _query(name: str, kind: int = 1, *, flags: int = 0x0100, questions: int = 1) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", 7, flags, questions, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def _read(said: bytes | None) -> tuple[int, list[str]]:
    """The status and the addresses of an answer to a query of number 7."""
    assert said is not None
    number, flags, _, answers, _, _ = struct.unpack_from("!6H", said)
    assert (number, bool(flags & 0x8000)) == (7, True)
    records = said[len(said) - 16 * answers :]
    return flags & 0xF, [socket.inet_ntoa(records[16 * each + 12 : 16 * each + 16]) for each in range(answers)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(_query("till.shop"), (0, ["10.96.1.2", "10.96.1.3"]), id="known"),
        pytest.param(_query("TILL.Shop"), (0, ["10.96.1.2", "10.96.1.3"]), id="any-case"),
        pytest.param(_query("till.shop", 28), (0, []), id="no-ipv6"),
        pytest.param(_query("empty.shop"), (0, []), id="no-address"),
        pytest.param(_query("other.shop"), (3, []), id="no-such-name"),
    ],
)
def test_a_name_is_answered(query: bytes, expected: tuple[int, list[str]]) -> None:
    assert _read(answer(query, TABLE.get)) == expected


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(_query("till.shop")[:15], id="cut-off"),
        pytest.param(_query("till.shop", flags=0x8000), id="an-answer"),
        pytest.param(_query("till.shop", questions=2), id="two-questions"),
        pytest.param(struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", id="a-pointer"),
        pytest.param(struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\x02\xff\xff\0\0\1\0\1", id="no-ascii"),
    ],
)
def test_what_is_no_query_is_passed_over(query: bytes) -> None:
    assert answer(query, TABLE.get) is None


async def test_it_answers_over_udp() -> None:
    responder = await Responder.listen(TABLE.get, "127.0.0.1", 0)
    address = responder.get_extra_info("sockname")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(10)
        asking.sendto(b"nonsense", address)
        asking.sendto(_query("till.shop"), address)
        said = await asyncio.to_thread(asking.recv, 512)
    assert _read(said) == (0, ["10.96.1.2", "10.96.1.3"])
    responder.close()
    await asyncio.sleep(0)
