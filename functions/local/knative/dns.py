"""The names of a cluster: answers queries for A records from a table, and that there is no other name."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER: Final = struct.Struct("!6H")
_ADDRESS: Final = 1  # the query type A, and the class Internet
_ANSWERED, _NO_SUCH_NAME = 0x8580, 0x8583
_SECONDS: Final = 5  # for which an answer may be kept


class Responder(asyncio.DatagramProtocol):
    """Answers over UDP.

    Args:
        look_up: The addresses of a name in lower case without the dot at the end; None where there is no such name.
    """

    def __init__(self, look_up: Callable[[str], list[str] | None]) -> None:
        self._look_up = look_up
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    async def listen(
        cls, look_up: Callable[[str], list[str] | None], host: str, port: int = 53
    ) -> asyncio.DatagramTransport:
        """Answer at an address until the transport is closed."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: cls(look_up), local_addr=(host, port)
        )
        return transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to answer."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, sender: tuple[str | bytes, int]) -> None:
        """Answer one query; what is none is passed over."""
        if self._transport is not None and (said := answer(data, self._look_up)) is not None:
            self._transport.sendto(said, cast("tuple[str, int]", sender))


def answer(query: bytes, look_up: Callable[[str], list[str] | None]) -> bytes | None:
    """The answer to a query with one question; None where it is no such query."""
    try:
        number, flags, questions, *_ = _HEADER.unpack_from(query)
        labels, place = [], _HEADER.size
        while length := query[place]:
            if length > 63:  # noqa: PLR2004 - a pointer, which no question begins with
                return None
            labels.append(query[place + 1 : place + 1 + length].decode("ascii"))
            place += 1 + length
        kind, _ = struct.unpack_from("!2H", query, place + 1)
    except (struct.error, IndexError, UnicodeDecodeError):
        return None
    if questions != 1 or flags & 0x8000:
        return None
    addresses = look_up(".".join(labels).lower())
    found = addresses if addresses and kind == _ADDRESS else []
    question = query[_HEADER.size : place + 5]
    status = (_NO_SUCH_NAME if addresses is None else _ANSWERED) | flags & 0x0100
    # Each record names the question's name by a pointer to it.
    records = b"".join(
        struct.pack("!3HIH", 0xC00C, _ADDRESS, 1, _SECONDS, 4) + socket.inet_aton(address) for address in found
    )
    return _HEADER.pack(number, status, 1, len(found), 0, 0) + question + records
