"""Sends one request over HTTP, as whom and in the way that a connection says; used by `client` alone."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import aiohttp
from yarl import URL

from functions.access import credentials, tls
from functions.access.addresses import is_metadata_service
from functions.access.diagnosis import answer_error, too_long, unreachable
from functions.access.errors import Unreachable
from functions.access.redaction import redact

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

    from functions.access.connection import Connection

_USER_AGENT: Final = "modelplane-serving-stack"
_SUCCESS: Final = range(200, 300)
_NOT_MODIFIED: Final = 304
_UNAUTHORIZED: Final = 401
_READ_BUFFER: Final = 1 << 20  # so that a CRD comes without pausing the connection every 128 KB
_ANSWER_LIMIT: Final = 16 << 20  # bytes, decompressed
_ERROR_LIMIT: Final = 1 << 20  # a Status that refuses an object may repeat all of it
_IDLE_CONNECTION: Final = 90.0  # outlasts a tick of a minute


class Call(NamedTuple):
    """One request, ready to be sent any number of times.

    Attributes:
        method: HTTP method.
        path: Path and query below the server's URL, percent-encoded.
        headers: Headers beside those of the credential.
        body: What is sent.
        repeatable: Whether sending it twice does no more than sending it once.
        silence: For an answer that streams: seconds that it may be silent. None where it is limited as a whole.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    repeatable: bool = False
    silence: float | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path.partition('?')[0]}"


class _Proof(NamedTuple):
    """What requests carry to be let in."""

    headers: tuple[tuple[str, str], ...]
    ssl: ssl.SSLContext | bool
    proxy: URL | None
    credential: credentials.Credential


class Transport:
    """The connections to one API server, and the credential that they are used with."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float,
        connect_timeout: float,
        helper_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self.connection = connection
        self._limit = aiohttp.ClientTimeout(total=timeout, sock_connect=connect_timeout)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._helper_timeout = helper_timeout
        self._clock = clock
        self._http: aiohttp.ClientSession | None = None
        self._closed = False
        self._proof: _Proof | None = None
        self._renewal: asyncio.Task[_Proof] | None = None
        self._context: tuple[tuple[object, ...], ssl.SSLContext] | None = None

    def use(self, connection: Connection) -> None:
        """Send what follows as that connection says; what is open goes on as it is."""
        self.connection = connection
        self._proof = None

    async def close(self) -> None:
        """Close every connection, for good: what is asked from now on is `Unreachable`."""
        if self._renewal is not None:
            self._renewal.cancel()
        http, self._http, self._closed = self._http, None, True
        if http is not None:
            await http.close()

    async def open(self, call: Call) -> aiohttp.ClientResponse:
        """The head of an answer of 2xx or 304; a refused credential that can be renewed is renewed once.

        Raises:
            AccessError: Any other answer, or none.
        """
        proof = await self._prove()
        response = await self._send(call, proof)
        if response.status == _UNAUTHORIZED and proof.credential.renewable:
            response.close()
            proof = await self._prove(refused=proof)
            response = await self._send(call, proof)
        if response.status in _SUCCESS or response.status == _NOT_MODIFIED:
            return response
        body = await self.read(response, _ERROR_LIMIT)
        said = redact(body, proof.credential.authorization, None if proof.proxy is None else str(proof.proxy))
        raise answer_error(self.connection.server, str(call), response.status, response.headers, said)

    async def read(self, response: aiohttp.ClientResponse, limit: int = _ANSWER_LIMIT) -> bytes:
        """The whole body of an answer, decompressed, of at most `limit` bytes.

        Raises:
            Unreachable: It is longer, or was cut off.
        """
        chunks: list[bytes] = []
        size = 0
        try:
            with self.diagnosed():
                # A chunk is what has arrived, decompressed to no more than the read buffer each time.
                while size <= limit and (chunk := await response.content.readany()):
                    chunks.append(chunk)
                    size += len(chunk)
        except BaseException:
            hang_up(response)
            raise
        if size > limit:
            hang_up(response)
            raise too_long(self.connection.server, limit, "one answer")
        return b"".join(chunks)

    @contextmanager
    def diagnosed(self, timeout: float | None = None) -> Iterator[None]:
        """Turns what the HTTP library raises into `Unreachable`; `timeout` in seconds where it is not the usual one."""
        try:
            yield
        # The last three come of hosts, names and headers that the libraries below do not take.
        except (aiohttp.ClientError, OSError, ValueError, TypeError, RuntimeError) as error:
            if self._closed:
                raise self._parted() from None
            limit = self._timeout if timeout is None else timeout
            # Not chained: the library's own text may hold the proxy's user information.
            raise unreachable(
                self.connection.server, error, timeout=limit, connect_timeout=self._connect_timeout
            ) from None

    async def _send(self, call: Call, proof: _Proof) -> aiohttp.ClientResponse:
        with self.diagnosed():
            try:
                return await self._start(call, proof)
            except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
                # A kept connection that the server has closed meanwhile. The library itself repeats GET and DELETE.
                if not (call.method == "PATCH" and call.repeatable) or isinstance(error, aiohttp.ClientConnectorError):
                    raise
            return await self._start(call, proof)

    async def _start(self, call: Call, proof: _Proof) -> aiohttp.ClientResponse:
        if self._closed:
            raise self._parted()
        http = self._http or self._session()
        limit = self._limit
        if call.silence is not None:
            limit = aiohttp.ClientTimeout(sock_connect=self._connect_timeout, sock_read=call.silence)
        async with asyncio.timeout(self._timeout):
            return await http.request(
                call.method,
                URL(self.connection.server + call.path, encoded=True),
                headers=proof.headers + call.headers,
                data=call.body,
                allow_redirects=False,
                timeout=limit,
                ssl=proof.ssl,
                server_hostname=self.connection.tls_server_name,
                proxy=proof.proxy,
            )

    def _parted(self) -> Unreachable:
        return Unreachable(f"{self.connection.server} is no longer connected to")

    def _session(self) -> aiohttp.ClientSession:
        make = _guarded_socket if self.connection.avoids_metadata else _socket
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION, socket_factory=make),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
        )
        return self._http

    async def _prove(self, refused: _Proof | None = None) -> _Proof:
        """What lets us in: kept until it expires or was refused; callers at once share one renewal, and its failure."""
        proof = self._proof
        if proof is not None and proof is not refused and self._clock() < proof.credential.expires:
            return proof
        if self._closed:
            raise self._parted()
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(self._renewed)
        renewal = self._renewal
        await asyncio.wait({renewal})  # which a caller that is cancelled leaves to the others
        if renewal.cancelled():
            raise self._parted()
        return renewal.result()

    async def _renew(self) -> _Proof:
        while True:
            connection = self.connection
            credential = await credentials.obtain(connection, now=self._clock(), timeout=self._helper_timeout)
            if connection is self.connection:  # else it was swapped meanwhile
                with self.diagnosed():
                    self._proof = self._armed(connection, credential)
                return self._proof

    def _renewed(self, renewal: asyncio.Task[_Proof]) -> None:
        self._renewal = None
        if not renewal.cancelled():
            renewal.exception()  # perhaps nobody waits for it any more, which asyncio would complain about

    def _armed(self, connection: Connection, credential: credentials.Credential) -> _Proof:
        encoding = "gzip" if connection.compression else "identity"
        headers = [("User-Agent", _USER_AGENT), ("Accept-Encoding", encoding), *connection.impersonate]
        if credential.authorization is not None:
            headers.append(("Authorization", credential.authorization))
        proxy = None if connection.proxy_url is None else URL(connection.proxy_url)
        return _Proof(tuple(headers), self._tls(connection, credential), proxy, credential)

    def _tls(self, connection: Connection, credential: credentials.Credential) -> ssl.SSLContext | bool:
        """The context for that trust and client certificate: the same one as before while both are the same.

        The library finds a kept connection by its context, so that a new token goes on using those of the old one.
        """
        if not connection.server.startswith("https:"):
            return True
        key = (connection.ca, connection.skip_tls_verify, credential.certificate, credential.key)
        if self._context is None or self._context[0] != key:
            context = tls.trust(connection.ca, verify=not connection.skip_tls_verify)
            if credential.certificate and credential.key:
                tls.present(context, credential.certificate, credential.key)
            self._context = key, context
        return self._context[1]


def hang_up(response: aiohttp.ClientResponse) -> None:
    """Drop a connection whose answer is not wanted to its end."""
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()  # else TLS takes leave at length of a server that sends on
    response.close()


def _guarded_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket, where the address that a name stands for is not one that a Secret must not lead to."""
    if is_metadata_service(str(address[4][0])):
        raise PermissionError(errno.EACCES, "it is a cloud's metadata service")
    return _socket(address)


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within half a minute that its peer is gone, so that no watch stays on a dead connection."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
