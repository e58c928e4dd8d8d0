"""All objects of a kind, kept as they are in the API server by watching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import AccessError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from functions.access.client import Client

    Key = tuple[str, str]
    """Namespace and name."""

_PAUSE: Final = 0.5
_END_OF_LIST: Final = "k8s.io/initial-events-end"
_FROM_THE_START: Final = {
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
}
_log: Final = logging.getLogger(__name__)


def key(manifest: Mapping[str, Any]) -> Key:
    """Namespace and name of an object; no namespace is an empty one."""
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]


class Informer:
    """Watches a collection for as long as `run` does.

    Args:
        client: Asks the API server.
        path: Of the collection.
        changed: Called after each change.

    Attributes:
        objects: What there is, by namespace and name.
        synced: Set once everything that there was at first is in `objects`.
    """

    def __init__(self, client: Client, path: str, changed: Callable[[], None]) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.synced = asyncio.Event()
        self._client = client
        self._path = path
        self._changed = changed

    async def run(self) -> None:
        """Watch until it is cancelled; what is missed while the server is away is made up for."""
        while True:
            try:
                await self._watch()
            except AccessError as error:
                if not isinstance(error, NotFound):  # a kind that is not defined yet is no trouble
                    _log.warning("watching %s: %s", self._path, error)
                await asyncio.sleep(_PAUSE)

    async def _watch(self) -> None:
        # Until the list at the start is complete, its objects gather beside those that are known.
        found: dict[Key, dict[str, Any]] = {}
        async with contextlib.aclosing(self._client.watch(self._path, params=_FROM_THE_START)) as events:
            async for event in events:
                each = event["object"]
                if event["type"] == "DELETED":
                    found.pop(key(each), None)
                elif event["type"] != "BOOKMARK":
                    found[key(each)] = each
                elif _END_OF_LIST in each["metadata"].get("annotations", {}):
                    self.objects = found
                    self.synced.set()
                if found is self.objects:
                    self._changed()
