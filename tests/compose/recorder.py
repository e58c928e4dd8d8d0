"""Every state that objects of one cluster went through, in the order in which the API server went through them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import pytest

from functions.access.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.access.client import Client
    from functions.compose.step import Step

World: TypeAlias = "dict[str, dict[str, Any] | None]"


class Recorder:
    """Watches the objects of some steps, of kinds that stay served meanwhile.

    All of them are kept in one etcd, whose revisions the resourceVersions are: what came after what is certain, also
    between objects of different kinds.
    """

    def __init__(self, client: Client, steps: Sequence[Step]) -> None:
        self._client = client
        self._steps = {each.key: each for each in steps}
        self._events: dict[str, list[tuple[int, dict[str, Any] | None]]] = {each.key: [] for each in steps}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for each in self._steps.values():
            listed = await self._client.get(each.kind.path(namespace=each.namespace))
            for item in listed["items"]:
                if item["metadata"]["name"] == each.name:
                    self._events[each.key].append((int(item["metadata"]["resourceVersion"]), item))
            version = listed["metadata"]["resourceVersion"]
            self._tasks.append(asyncio.create_task(self._follow(each, version)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def moments(self) -> list[World]:
        """Each state of all of them together, the last one being that of now."""
        await self._catch_up()
        events = [(version, key, found) for key, each in self._events.items() for version, found in each]
        now: World = dict.fromkeys(self._steps)
        passed = []
        for _, key, found in sorted(events, key=lambda each: each[0]):
            now = {**now, key: found}
            passed.append(now)
        return passed

    async def _follow(self, step: Step, version: str) -> None:
        params = {"resourceVersion": version, "fieldSelector": f"metadata.name={step.name}"}
        path = step.kind.path(namespace=step.namespace)
        async with aclosing(self._client.watch(path, params=params)) as events:
            async for event in events:
                found = event["object"]
                gone = event["type"] == "DELETED"
                self._events[step.key].append((int(found["metadata"]["resourceVersion"]), None if gone else found))

    async def _catch_up(self) -> None:
        """Returns once the watches told of what is there now."""
        deadline = monotonic() + 20
        for key, step in self._steps.items():
            while True:
                present: int | None = None
                with suppress(NotFound):
                    present = int((await self._client.get_metadata(step.path))["metadata"]["resourceVersion"])
                seen = self._events[key][-1:]
                if (seen[0][0] if seen and seen[0][1] is not None else None) == present:
                    break
                if any(each.done() for each in self._tasks) or monotonic() > deadline:
                    pytest.fail(f"the watch on {step} does not tell of its last state")
                await asyncio.sleep(0.01)
