"""How an event reaches a Trigger's subscriber: over HTTP, or by a call in the same process.

The embedded broker holds one `Transport`; it knows neither sockets nor functions. Over HTTP is what a cluster
does; in process saves the sockets where broker and functions share one (`serving-stack dev`, `demo`, most tests).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import aiohttp

from events.codec import MAX_SIZE, STRUCTURED, Malformed, decode, encode_binary
from events.event import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from events.triggers import Destination

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a subscriber answered.

    Attributes:
        status: HTTP status code.
        events: The replies, to be published; over HTTP at most one.
        body: What was answered instead of an event; at most `MAX_SIZE` bytes.
        retry_after: Seconds that the subscriber asked to wait.
    """

    status: int
    events: tuple[Event, ...] = ()
    body: bytes = b""
    retry_after: float | None = None


Handler: TypeAlias = Callable[[str, Event], Awaitable[Response]]


class Transport(Protocol):
    """Carries events to destinations; never raises for what the other side does."""

    def url(self, destination: Destination) -> str:
        """The address of a destination; `LookupError` with the reason when it has none."""

    async def send(self, destination: Destination, event: Event) -> Response:
        """Delivers once. No answer at all is status 500, as Knative reports it."""


class InProcess:
    """Calls the functions of this process by their path."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def url(self, destination: Destination) -> str:
        """The address that the destination would have in a cluster."""
        if destination.ref is None:
            raise LookupError("an address outside cannot be reached in process; use a ref")
        namespace = destination.ref.namespace or "default"
        return f"http://{destination.ref.name}.{namespace}.svc.cluster.local{destination.path}"

    async def send(self, destination: Destination, event: Event) -> Response:
        """Awaits the handler; its error counts as no answer, and is logged because it is a bug."""
        try:
            return await self._handler(destination.path, event)
        except Exception as error:  # noqa: BLE001 - a bug of a function must not end the broker
            _log.exception("handler of %s failed on event %s", destination.path, event.id)
            return _no_answer(error)


class HttpDelivery:
    """POSTs events in binary mode, as Knative's brokers do.

    Args:
        base_urls: The address of each Service by name, such as `{"probes": "http://127.0.0.1:8080"}`.
        session: Stays the caller's to close.
    """

    def __init__(self, base_urls: Mapping[str, str], session: aiohttp.ClientSession) -> None:
        self._base_urls = {name: url.rstrip("/") for name, url in base_urls.items()}
        self._session = session

    def url(self, destination: Destination) -> str:
        """The address that is POSTed to."""
        if destination.ref is None:
            return destination.uri
        base = self._base_urls.get(destination.ref.name)
        if base is None:
            known = ", ".join(sorted(self._base_urls)) or "none"
            raise LookupError(f"there is no address for Service {destination.ref.name}; known: {known}")
        return base + destination.path

    async def send(self, destination: Destination, event: Event) -> Response:
        """POSTs and reads the whole answer; the time limit is the caller's."""
        message = encode_binary(event)
        try:
            async with self._session.post(
                self.url(destination),
                data=message.body,
                headers={**message.headers, "prefer": "reply"},
                skip_auto_headers=("Content-Type",),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as response:
                body = await _read(response.content)
                return _answer(response.status, response.headers, body)
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            return _no_answer(error)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait by the header Retry-After, which holds seconds or a date; None without a usable one.

    Args:
        headers: With case-insensitive look-up, as aiohttp's.
        now: With a time zone.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


def _answer(status: int, headers: Mapping[str, str], body: bytes) -> Response:
    pause = retry_after(headers, datetime.now(UTC))
    if status // 100 != 2 or not _is_event(headers):  # noqa: PLR2004 - 2xx
        return Response(status=status, body=body, retry_after=pause)
    try:
        return Response(status=status, events=(decode(headers, body),))
    except Malformed as error:
        return Response(status=502, body=f"the reply is no event: {error}".encode())


def _is_event(headers: Mapping[str, str]) -> bool:
    structured = headers.get("Content-Type", "").lower().startswith(STRUCTURED.partition("+")[0])
    return structured or any(name.lower().startswith("ce-") for name in headers)


async def _read(content: aiohttp.StreamReader) -> bytes:
    """The body, of which one byte more than is allowed is enough to see that it is too large."""
    chunks = bytearray()
    async for chunk in content.iter_chunked(1 << 16):
        chunks += chunk
        if len(chunks) > MAX_SIZE:
            break
    return bytes(chunks[: MAX_SIZE + 1])


def _no_answer(error: Exception) -> Response:
    # Only the kind of error: its text may quote an address with a password in it.
    return Response(status=500, body=f"no answer: {type(error).__name__}".encode())
