"""Sends events to the sink that Knative tells a function by K_SINK.

The host calls it for what a function answers beyond one reply, the watch source for everything. An event counts as
sent only once the sink accepted it, so that whoever waits for it can be told to come again.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

import aiohttp
import orjson
import tenacity

from events.codec import encode_binary
from events.delivery import retry_after

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from events.event import Event

TRIES: Final = 6
REQUEST_TIMEOUT: Final = 5.0
"""Seconds for one request, once it has a connection."""
BUDGET: Final = 10.0
"""Seconds in tries and between them after which no further try of an event begins."""
TOKEN_FILE: Final = Path("/oidc/token")
"""Where a SinkBinding or source puts the token that says who sends, where Knative authenticates senders."""

_RETRIED: Final = frozenset({404, 408, 425, 429, 500, 502, 503, 504})
_EXTENSION: Final = re.compile(r"[a-z0-9]+", re.ASCII)
_CONNECTIONS: Final = 16
"""Requests at once; further ones wait for their turn, and that wait is on nobody's account."""


class NoSink(ValueError):  # noqa: N818 - named for what the environment lacks
    """The environment does not say where to send events, or says it wrongly; the text says what to set."""


class NotAccepted(Exception):  # noqa: N818 - named for what the sink did
    """The sink did not accept an event.

    Attributes:
        status: Its last answer; None when there was none.
        retry_after: Seconds that it asked to wait.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class _TryAgain(NotAccepted):
    """May be accepted on a further try."""


class Publisher:
    """POSTs events to one sink, in binary mode.

    Retried are missing answers and 404, 408, 425, 429 and every 5xx of a gateway or broker: what Knative's own
    sources retry, and 500 too, which a Broker answers when its channel hiccups and which costs a source the event.
    Waits grow from 0.1 s, a Retry-After is honoured, and no try begins after `BUDGET`. Many events at once take the
    time that the sink takes for them: waiting for a turn uses up neither a request's time nor the budget.

    Args:
        sink: An http(s) URL.
        extensions: Set on every event, over what it has.
        ca_certs: PEM certificates that are trusted besides the system's.
        token_file: Holds the token that says who sends; read for each request, because it is renewed.
        sleep: Waits some seconds between tries.

    Raises:
        NoSink: The sink is no URL, an extension has no valid name, or the certificates cannot be read.
    """

    def __init__(
        self,
        sink: str,
        *,
        extensions: Mapping[str, str] | None = None,
        ca_certs: str | None = None,
        token_file: Path | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sink = sink
        self._host = _host(sink)
        self._extensions = _checked(extensions or {})
        self._tls = _tls(ca_certs) if ca_certs and sink.startswith("https:") else None
        self._token_file = token_file
        self._sleep = sleep
        self._turns = asyncio.Semaphore(_CONNECTIONS)
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """A publisher by K_SINK, K_CE_OVERRIDES, K_CA_CERTS and the token, as a SinkBinding or source sets them."""
        sink = environ.get("K_SINK", "")
        if not sink:
            raise NoSink("K_SINK is not set; set it to the Broker's URL, or bind a SinkBinding to this workload")
        return cls(
            sink,
            extensions=_overrides(environ.get("K_CE_OVERRIDES", "")),
            ca_certs=environ.get("K_CA_CERTS") or None,
            token_file=TOKEN_FILE if TOKEN_FILE.exists() else None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections; a later `publish` opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def publish(self, events: Sequence[Event]) -> None:
        """Sends events side by side and returns once each is accepted.

        Each one is tried, also when another fails.

        Raises:
            NotAccepted: One was not; the first of them.
            Malformed: One breaks the specification.
        """
        outcomes = await asyncio.gather(*map(self._publish, events), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _publish(self, event: Event) -> None:
        if self._extensions:
            event = replace(event, extensions={**event.extensions, **self._extensions})
        message = encode_binary(event)
        what = f"sink {self._host} did not accept event {event.id} of type {event.type}"
        spent = 0.0

        async def attempt() -> None:
            nonlocal spent
            async with self._turns:
                begun = monotonic()
                try:
                    await self._post(message.headers, message.body, what)
                finally:
                    spent += monotonic() - begun

        def over(state: tenacity.RetryCallState) -> bool:
            return state.attempt_number >= TRIES or spent + state.idle_for + state.upcoming_sleep >= BUDGET

        retrying = tenacity.AsyncRetrying(
            sleep=self._sleep,
            stop=over,
            wait=_wait,
            retry=tenacity.retry_if_exception_type(_TryAgain),
            reraise=True,
        )
        await retrying(attempt)

    async def _post(self, headers: Mapping[str, str], body: bytes, what: str) -> None:
        try:
            async with self._connections().post(
                self._sink,
                data=body,
                headers=headers if self._token_file is None else {**headers, **_authorization(self._token_file, what)},
                skip_auto_headers=("Content-Type",),
                allow_redirects=False,
            ) as response:
                status, pause = response.status, retry_after(response.headers, datetime.now(UTC))
        except (aiohttp.ClientError, OSError) as error:
            raise _TryAgain(f"{what}: no answer ({_reason(error)})") from None
        if status // 100 == 2:  # noqa: PLR2004 - 2xx
            return
        refusal = _TryAgain if status in _RETRIED else NotAccepted
        raise refusal(f"{what}: status {status}", status=status, retry_after=pause)

    def _connections(self) -> aiohttp.ClientSession:
        if self._session is None:  # here and not in __init__, because it belongs to the running loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=True if self._tls is None else self._tls),
                timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
            )
        return self._session


def _authorization(token_file: Path, what: str) -> dict[str, str]:
    """The header that says who sends."""
    try:
        token = token_file.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise _TryAgain(f"{what}: no token in {token_file} ({type(error).__name__})") from None
    if not token.isprintable() or not token:
        raise _TryAgain(f"{what}: no token in {token_file}")
    return {"Authorization": f"Bearer {token}"}


_exponential: Final = tenacity.wait_exponential(multiplier=0.1, max=2)


def _wait(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, NotAccepted) else None
    return max(_exponential(state), asked or 0.0)


def _host(sink: str) -> str:
    """Host and port, which is all of a sink that may be shown: a URL can hold credentials."""
    try:
        parts = urlsplit(sink)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        raise NoSink("K_SINK is not an http(s) URL with a host")
    return host if port is None else f"{host}:{port}"


def _overrides(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        overrides = orjson.loads(text)
    except orjson.JSONDecodeError:
        overrides = None
    extensions = overrides.get("extensions") or {} if isinstance(overrides, dict) else None
    if not isinstance(extensions, dict):
        raise NoSink('K_CE_OVERRIDES must be JSON such as {"extensions": {"cluster": "gpu-1"}}')
    return extensions


def _checked(extensions: Mapping[str, Any]) -> dict[str, str]:
    for name, value in extensions.items():
        if not _EXTENSION.fullmatch(name) or not isinstance(value, str):
            raise NoSink(f"K_CE_OVERRIDES: extension {name!r} needs a name of a-z and 0-9 and a string as value")
    return dict(extensions)


def _tls(ca_certs: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        # Bundles carry names in comments, and the ssl module takes ASCII only.
        context.load_verify_locations(cadata=ca_certs.encode("ascii", "ignore").decode())
    except (ssl.SSLError, ValueError):
        raise NoSink("K_CA_CERTS holds no PEM certificates that can be read") from None
    return context


def _reason(error: Exception) -> str:
    # Other errors of aiohttp may quote the URL; this one names host, port and reason, such as a refused certificate.
    return str(error) if isinstance(error, aiohttp.ClientConnectorError) else type(error).__name__
