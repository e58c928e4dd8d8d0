"""Watches of one object, and of what is asked for only while it is served, against a scripted API server."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from functions.access.errors import Unreachable
from functions.watch.reflector import Reflector, Resource
from tests.watch.fakes import EXPIRED, WITHIN, Naps, ScriptedApi, Told, change, listed, metadata, serving

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from functions.access.client import Client

CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")
YES, NO = True, False


async def test_one_object_is_selected_by_its_name() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5))
    async with serving(api) as client:
        reflector = Reflector(Resource("v1", "ConfigMap", "configmaps", "ns", "mine"), always(client), Told())
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(WITHIN):
            await api.watched.wait()
        task.cancel()
        await asyncio.wait((task,))
    assert api.selected == ["metadata.name=mine"] * 2


def always(client: Client) -> Callable[[], Awaitable[Client]]:
    async def connect() -> Client:
        return client

    return connect


@dataclass(slots=True)
class Says:
    """Whether a resource is served: what is said each time, or raised."""

    answers: list[bool | Exception]

    async def serves(self) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ended(client: Client, told: Told, *answers: bool | Exception) -> Reflector:
    """A reflector of a resource that is served or not, once it has ended by itself."""
    says = Says([*answers])
    reflector = Reflector(CONFIG_MAPS, always(client), told, serves=says.serves, sleep=Naps().sleep)
    async with asyncio.timeout(WITHIN):
        await reflector.run()
    assert says.answers == []
    return reflector


async def test_nothing_is_asked_for_that_is_not_served() -> None:
    api = ScriptedApi()
    async with serving(api) as client:
        await ended(client, Told(), NO)
    assert api.asked == []


async def test_it_ends_without_a_word_where_it_turns_out_not_to_be_served() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5, metadata("a", 1)))
    api.watches.append([])
    told = Told()
    async with serving(api) as client:
        reflector = await ended(client, told, YES, NO)
        await told.are("established 5")
        assert told.lines.empty()
        await reflector.vanish()
        await told.are("delete ns/a uid-a")
    assert api.asked == ["list", "watch 5"]


async def test_it_ends_where_the_server_does_not_serve_it() -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5, metadata("a", 1)), 404])
    api.watches.append([EXPIRED])
    told = Told()
    async with serving(api) as client:
        await ended(client, told, YES, YES)
        await told.are("established 5", "delete ns/a uid-a", "absent")
    assert api.asked == ["list", "watch 5", "list"]


async def test_where_it_cannot_be_told_whether_it_is_served_that_is_tried_again() -> None:
    told = Told()
    async with serving(ScriptedApi()) as client:
        await ended(client, told, Unreachable("no answer"), NO)
    await told.are("trouble Unreachable: no answer")


async def test_an_update_that_is_silent_is_known_all_the_same() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5, metadata("a", 1)))
    api.watches.append([change("MODIFIED", "a", 6), change("MODIFIED", "a", 11), change("MODIFIED", "a", 12), None])
    told = Told()

    def by_five(before: str, after: str) -> bool:
        return int(after) - int(before) == 5

    async with serving(api) as client:
        reflector = Reflector(CONFIG_MAPS, always(client), told, silent=by_five, sleep=Naps().sleep)
        task = asyncio.create_task(reflector.run())
        await told.are("established 5", "update ns/a uid-a")
        assert told.lines.empty()  # it is compared with the state before it, not with the one that was told
        task.cancel()
        await asyncio.wait((task,))
