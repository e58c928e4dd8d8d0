"""A client of one API server: the few verbs that the project needs, on plain dicts, each with a time limit.

`targets`, `discovery`, the world, the watch source and the CLI use it. It raises `errors.AccessError` and nothing else
of the network. Answers of 429 and 5xx are tried again within a budget where that is safe; what else to do about an
error is the caller's decision.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import orjson

from functions.access.credentials import HELPER_TIMEOUT
from functions.access.diagnosis import not_kubernetes, status_error, too_long
from functions.access.errors import ServerError, Throttled
from functions.access.transport import Call, Transport, hang_up

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    import aiohttp

    from functions.access.connection import Connection

_T = TypeVar("_T")

JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# A server that does not aggregate answers with the plain list of groups instead of 406.
DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.5"
APPLY: Final = "application/apply-patch+yaml"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"

PAGE: Final = 500
"""Objects asked for in one list request."""
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_PATH_CHARACTERS: Final = "/:@!$&'()*+,;=~"
_LINE_LIMIT: Final = 4 << 20  # bytes of one event of a watch
# What JSON takes as it stands and YAML does not, or reads as the end of a line.
_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_WATCH_GRACE: Final = 10.0  # beyond the time after which the server itself ends a watch


class Reply(NamedTuple):
    """An answer: status, headers by name in any case, and the body as bytes, decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_MAPS: Final = ("labels", "annotations")
_LISTS: Final = ("finalizers", "ownerReferences", "managedFields")


class Client:
    """Talks to the API server of one connection; made anywhere, used within one event loop."""

    def __init__(
        self,
        connection: Connection,
        *,
        timeout: float = 5.0,
        connect_timeout: float = 3.0,
        budget: float = 8.0,
        helper_timeout: float = HELPER_TIMEOUT,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Keep the settings; nothing is opened before the first request.

        Args:
            connection: Where to, and as whom.
            timeout: Seconds for a request and its whole answer.
            connect_timeout: Seconds of it for TCP and TLS.
            budget: Seconds that repeating a request may add up to; 0 never repeats.
            helper_timeout: Seconds for a program, or a login, that gives the credential.
            clock: Unix time in seconds.
            sleep: Waits that many seconds.
        """
        self._budget = budget
        self._sleep = sleep
        self._transport = Transport(
            connection,
            timeout=timeout,
            connect_timeout=connect_timeout,
            helper_timeout=helper_timeout,
            clock=clock,
        )

    @property
    def server(self) -> str:
        """URL of the API server, fit for messages."""
        return self._transport.connection.server

    @property
    def connection(self) -> Connection:
        """Where to, and as whom, at present."""
        return self._transport.connection

    def accepts(self, connection: Connection) -> bool:
        """Whether that connection leads to the same server in the same way, so that only the credential differs."""
        return self.connection.endpoint == connection.endpoint

    def set_credentials(self, connection: Connection) -> None:
        """Use that connection from the next request on.

        Open watches go on as they are, and so do kept connections unless the client certificate or the server changes.
        """
        self._transport.use(connection)

    async def close(self) -> None:
        """Close every connection; open watches end."""
        await self._transport.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> Reply:
        """Ask, and give the whole answer where it is 2xx or 304.

        Args:
            method: HTTP method.
            path: Absolute API path, such as `/apis`; the path prefix of the server is put before it.
            params: Query parameters.
            headers: Headers beside those of the credential.
            body: What is sent as JSON; None for nothing.
            content_type: Media type of the body.

        Raises:
            AccessError: Any other answer, or none.
        """
        sent = tuple((headers or {}).items())
        data = None
        if body is not None:
            sent = (*sent, ("Content-Type", content_type))
            data = _yaml(orjson.dumps(body)) if content_type == APPLY else orjson.dumps(body)
        repeatable = method == "GET" or content_type == APPLY
        call = Call(method, _path(path, params), sent, data, repeatable=repeatable)
        return await self._again(self._exchange, call)

    async def get(self, path: str, *, params: Mapping[str, str] | None = None, accept: str = JSON) -> Any:
        """GET a JSON document."""
        reply = await self.request("GET", path, params=params, headers={"Accept": accept})
        return self._document(reply.body, f"GET {path}")

    async def get_metadata(self, path: str) -> dict[str, Any]:
        """GET an object as PartialObjectMetadata."""
        return self._object(await self.get(path, accept=METADATA), f"GET {path}")

    async def get_object(self, path: str, *, metadata_only: bool = False) -> dict[str, Any]:
        """GET an object, or its PartialObjectMetadata, that is one as far as everybody relies on it."""
        document = await self.get(path, accept=METADATA if metadata_only else JSON)
        return self._whole(document, f"GET {path}")

    async def list_metadata(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """LIST objects as a PartialObjectMetadataList."""
        return self._object(await self.get(path, params=params, accept=METADATA_LIST), f"GET {path}")

    async def pages(self, path: str, *, metadata_only: bool = False) -> AsyncGenerator[dict[str, Any], None]:
        """LIST objects page by page, and give one after the other."""
        read = self.list_metadata if metadata_only else self.get
        token = ""
        while True:
            page = await read(path, params={"limit": str(PAGE), **({"continue": token} if token else {})})
            if not (isinstance(page, dict) and "items" in page and isinstance(page.get("metadata"), dict)):
                raise not_kubernetes(self.server, f"what came for GET {path} is not a list")
            for each in page["items"] or ():  # null where a list of metadata alone is empty
                yield self._whole(each, f"GET {path}")
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def apply(
        self, path: str, body: Mapping[str, Any], *, manager: str, force: bool = True, dry_run: bool = False
    ) -> dict[str, Any]:
        """Server-side apply of an object, or of its status where the path says so; answers with the object.

        Args:
            path: Path of the object, which need not exist.
            body: What `manager` wants; `metadata.uid` and `metadata.resourceVersion` in it are preconditions.
            manager: Field manager.
            force: Whether to take fields that other managers own; without it these are a `Conflict`.
            dry_run: Whether to only try.
        """
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        if dry_run:
            params["dryRun"] = "All"
        written = await self._write("PATCH", path, body, params=params, content_type=APPLY)
        return self._whole(written, f"PATCH {path}", stored=not dry_run)

    async def patch(
        self, path: str, body: Any, content_type: str, *, manager: str | None = None, dry_run: bool = False
    ) -> dict[str, Any]:
        """PATCH an object with a `JSON_PATCH` list or a `MERGE_PATCH`; answers with the object.

        Args:
            path: Path of the object.
            body: The patch.
            content_type: `JSON_PATCH` or `MERGE_PATCH`.
            manager: Field manager; None for what the server makes of the user agent.
            dry_run: Whether to only try.
        """
        params = {} if manager is None else {"fieldManager": manager}
        if dry_run:
            params["dryRun"] = "All"
        written = await self._write("PATCH", path, body, params=params, content_type=content_type)
        return self._whole(written, f"PATCH {path}", stored=not dry_run)

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST an object to its collection; answers with the object."""
        return await self._write("POST", path, body)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> dict[str, Any]:
        """DELETE an object, only if it has that uid and resourceVersion still; answers with the object or a Status."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {name: value for name, value in wanted.items() if value is not None}
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        return await self._write("DELETE", path, options if preconditions else None)

    async def watch(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = JSON,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Watch a collection: each event as sent, with `type` and `object`, until the server ends the watch.

        Closing the generator closes the connection.

        Args:
            path: Path of the collection.
            params: Such as `resourceVersion`, `fieldSelector`, `allowWatchBookmarks`.
            accept: `JSON` or `METADATA`.
            timeout_seconds: After which the server ends the watch; a little later a silent connection is given up.

        Raises:
            Gone: The resourceVersion is too old.
            AccessError: The watch was refused, or was cut off.
        """
        query = {**(params or {}), "watch": "true", "timeoutSeconds": str(timeout_seconds)}
        silence = timeout_seconds + _WATCH_GRACE
        call = Call("GET", _path(path, query), (("Accept", accept),), repeatable=True, silence=silence)
        response = await self._again(self._transport.open, call)
        try:
            with self._transport.diagnosed(silence):
                async for line in _lines(response.content, self.server):
                    yield self._event(line, path)
        finally:
            hang_up(response)

    def _event(self, line: bytes, path: str) -> dict[str, Any]:
        asked = f"watch of {path}"
        event = self._object(self._document(line, asked), asked)
        if event.get("type") == "ERROR":
            status = self._object(event.get("object"), f"{asked} as an error")
            code = status.get("code")
            if not isinstance(code, int):
                raise not_kubernetes(self.server, f"an error without a code came for {asked}")
            raise status_error(asked, code, status)
        return event

    async def _write(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> dict[str, Any]:
        headers = {"Accept": JSON}
        reply = await self.request(method, path, params=params, headers=headers, body=body, content_type=content_type)
        asked = f"{method} {path}"
        return self._object(self._document(reply.body, asked), asked)

    def _document(self, body: bytes, asked: str) -> Any:
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError:
            raise not_kubernetes(self.server, f"what came for {asked} is not JSON") from None

    def _object(self, document: Any, asked: str) -> dict[str, Any]:
        if not isinstance(document, dict):
            raise not_kubernetes(self.server, f"what came for {asked} is not an object")
        return document

    def _whole(self, document: Any, asked: str, *, stored: bool = True) -> dict[str, Any]:
        """The document, if it has what every object has; one that is not stored has no resourceVersion."""
        found = self._object(document, asked)
        metadata = found.get("metadata")
        always = ("name", "uid", "resourceVersion") if stored else ("name", "uid")
        if not isinstance(metadata, dict) or not all(isinstance(metadata.get(each), str) for each in always):
            raise not_kubernetes(self.server, f"what came for {asked} is not an object")
        if not all(isinstance(metadata.get(each), dict | None) for each in _MAPS):
            raise not_kubernetes(self.server, f"what came for {asked} has metadata of another form")
        if not all(isinstance(metadata.get(each), list | None) for each in _LISTS):
            raise not_kubernetes(self.server, f"what came for {asked} has metadata of another form")
        return found

    async def _exchange(self, call: Call) -> Reply:
        response = await self._transport.open(call)
        return Reply(response.status, response.headers, await self._transport.read(response))

    async def _again(self, attempt: Callable[[Call], Awaitable[_T]], call: Call) -> _T:
        """Tries until it succeeds, fails for good, or the budget is spent."""
        left, pause = self._budget, _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                return await attempt(call)
            except (Throttled, ServerError) as error:
                if not _temporary(error, call):
                    raise
                wait = max(error.retry_after or 0.0, pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
                left -= time.monotonic() - began + wait
                if left < 0:
                    raise
            pause = min(2 * pause, _LONGEST_PAUSE)
            await self._sleep(wait)


def _temporary(error: Throttled | ServerError, call: Call) -> bool:
    """Whether the same call may succeed a little later, and does no harm when it is sent again."""
    if isinstance(error, Throttled):  # it was not begun, so that it may be any call
        return error.retry_after is not None or call.repeatable
    return call.repeatable and not error.permanent


def _path(path: str, params: Mapping[str, str] | None) -> str:
    """Path and query, percent-encoded, so that no name can turn into a query or a fragment."""
    query = f"?{urlencode(params)}" if params else ""
    return quote(path, safe=_PATH_CHARACTERS) + query


def _yaml(body: bytes) -> bytes:
    """JSON that says the same when it is read as YAML, which API servers do with the body of an apply."""
    if body.isascii() and b"\x7f" not in body:
        return body
    return _NOT_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", body.decode()).encode()


async def _lines(stream: aiohttp.StreamReader, server: str) -> AsyncGenerator[bytes, None]:
    """The lines of a stream; an unfinished last one is dropped."""
    begun: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        first, *others = chunk.split(b"\n")
        begun.append(first)
        size += len(first)
        for following in others:
            line = b"".join(begun)
            begun, size = [following], len(following)
            if line:
                yield line
        if size > _LINE_LIMIT:
            raise too_long(server, _LINE_LIMIT, "one event of a watch")
