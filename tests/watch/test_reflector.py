"""Against an API server that answers by a script, since a real one cannot be made to do these things on demand."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from functions.access.client import METADATA, METADATA_LIST
from functions.watch.reflector import Reflector, Resource
from tests.watch.fakes import EXPIRED, WITHIN, Naps, ScriptedApi, Told, change, listed, metadata, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from functions.access.client import Client

CONFIG_MAPS = Resource("v1", "ConfigMap", "configmaps")


@asynccontextmanager
async def running(
    client: Client, told: Told, naps: Naps | None = None, silence: float = 60
) -> AsyncIterator[Reflector]:
    async def connect() -> Client:
        return client

    async with following(connect, told, naps, silence) as reflector:
        yield reflector


@asynccontextmanager
async def following(
    connect: Callable[[], Awaitable[Client]], told: Told, naps: Naps | None = None, silence: float = 60
) -> AsyncIterator[Reflector]:
    reflector = Reflector(CONFIG_MAPS, connect, told, silence=silence, sleep=(naps or Naps()).sleep, jitter=lambda: 0.5)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_the_first_list_tells_no_object_and_the_watch_each_change() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5, metadata("a", 1)))
    api.watches.append([change("ADDED", "b", 6), change("MODIFIED", "a", 7), change("DELETED", "b", 8), None])
    told = Told()
    async with serving(api) as client, running(client, told) as reflector:
        await told.are("established 5", "add ns/b uid-b", "update ns/a uid-a", "delete ns/b uid-b")
        assert {key.name for key in reflector.known or {}} == {"a"}
    assert api.asked == ["list", "watch 5"]
    assert api.accepted == {METADATA, METADATA_LIST}


async def test_a_watch_that_ends_goes_on_where_the_last_bookmark_was() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5))
    api.watches.append([change("ADDED", "a", 6), {"type": "BOOKMARK", "object": metadata("", 9)}])
    api.watches.append([change("MODIFIED", "a", 10), None])
    told, naps = Told(), Naps()
    async with serving(api) as client, running(client, told, naps):
        await told.are("established 5", "add ns/a uid-a", "update ns/a uid-a")
    assert api.asked == ["list", "watch 5", "watch 9"]
    assert naps.taken == []


async def test_what_an_expired_watch_lost_is_found_by_the_next_list() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5, metadata("changed", 1), metadata("gone", 2), metadata("same", 3), metadata("anew", 4)))
    api.watches.append([EXPIRED])
    api.lists.append(
        listed(
            20,
            metadata("changed", 11),
            metadata("same", 3),
            metadata("anew", 12, uid="uid-2"),
            metadata("fresh", 13),
        )
    )
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.are(
            "established 5",
            "delete ns/gone uid-gone",
            "delete ns/anew uid-anew",
            "update ns/changed uid-changed",
            "add ns/anew uid-2",
            "add ns/fresh uid-fresh",
            "established 20",
        )


async def test_a_silent_watch_is_given_up() -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5), listed(6, metadata("a", 6))])
    told = Told()
    async with serving(api) as client, running(client, told, silence=0.05):
        await told.are("established 5")
        assert "was silent on a watch for 0.05 s" in await told.starts_with("trouble Unreachable: ")
        await told.are("add ns/a uid-a", "established 6")


async def test_an_api_that_is_not_served_has_no_objects_until_it_is() -> None:
    api = ScriptedApi()
    api.lists.extend([404, 404, listed(5, metadata("a", 1)), 404, listed(9)])
    api.watches.append([EXPIRED])
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.are("absent", "add ns/a uid-a", "established 5", "delete ns/a uid-a", "absent", "established 9")


async def test_pauses_grow_with_trouble_and_end_when_woken() -> None:
    api = ScriptedApi()
    api.lists.extend([503] * 12)
    told, naps = Told(), Naps(awake=10)
    async with serving(api) as client, running(client, told, naps) as reflector:
        for _ in range(11):
            await told.starts_with("trouble ServerError")
        await naps.tired.wait()
        assert naps.taken == pytest.approx([0.075 * 2**n for n in range(9)] + [22.5, 22.5])
        reflector.wake()
        await told.starts_with("trouble ServerError")
        api.lists.append(listed(5))
        reflector.wake()
        await told.are("established 5")


async def test_watches_that_end_at_once_are_no_reason_to_ask_in_a_hurry() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5))
    api.watches.extend([[], [], []])
    naps = Naps(awake=2)
    async with serving(api) as client, running(client, Told(), naps):
        async with asyncio.timeout(WITHIN):
            await naps.tired.wait()
    assert naps.taken == pytest.approx([0.075, 0.15, 0.3])
    assert api.asked == ["list", "watch 5", "watch 5", "watch 5"]


async def test_a_change_that_was_not_taken_is_told_again() -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5), listed(6, metadata("a", 6))])
    api.watches.append([change("ADDED", "a", 6), None])
    told = Told(refuse=1)
    async with serving(api) as client, running(client, told):
        await told.are("established 5", "trouble NotAccepted: no room", "add ns/a uid-a", "established 6")


NAMED = {"uid": "u", "resourceVersion": "1"}
ODD_METADATA = {
    "no-name": NAMED,
    "name-null": {**NAMED, "name": None},
    "name-empty": {**NAMED, "name": ""},
    "name-number": {**NAMED, "name": 5},
    "name-list": {**NAMED, "name": ["a"]},
    "name-of-two-lines": {**NAMED, "name": "a\nb"},
    "name-too-long": {**NAMED, "name": "a" * 254},
    "namespace-object": {**NAMED, "name": "a", "namespace": {}},
    "uid-number": {**NAMED, "name": "a", "uid": 1},
    "version-number": {**NAMED, "name": "a", "resourceVersion": 1},
    "generation-word": {**NAMED, "name": "a", "generation": "new"},
    "metadata-text": "a",
}
odd_metadata = pytest.mark.parametrize("odd", ODD_METADATA.values(), ids=ODD_METADATA)


@pytest.mark.parametrize(
    "body",
    [
        "<html>sign in</html>",
        "[]",
        '{"items": []}',
        '{"metadata": {"resourceVersion": "1"}}',
        '{"metadata": {"resourceVersion": 1}, "items": null}',
        '{"metadata": {"resourceVersion": "1"}, "items": 5}',
        '{"metadata": {"resourceVersion": "1"}, "items": [{"a": 1}]}',
    ],
    ids=["html", "not-an-object", "no-metadata", "no-items", "version-number", "items-number", "item-without-metadata"],
)
async def test_what_is_no_kubernetes_is_trouble_and_no_crash(body: str) -> None:
    api = ScriptedApi()
    api.lists.extend([body, listed(5)])
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.starts_with("trouble NotKubernetes: ")
        await told.are("established 5")


@odd_metadata
async def test_a_list_with_an_odd_object_is_trouble_and_not_told(odd: object) -> None:
    api = ScriptedApi()
    odd_list = {"metadata": {"resourceVersion": "6"}, "items": [{"metadata": odd}]}
    api.lists.extend([listed(5), json.dumps(odd_list), listed(7)])
    api.watches.append([EXPIRED])
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.are("established 5")
        assert "not a list of objects" in await told.starts_with("trouble NotKubernetes: ")
        await told.are("established 7")


@odd_metadata
async def test_a_change_of_an_odd_object_is_trouble_and_not_told(odd: object) -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5), listed(6)])
    api.watches.append([{"type": "ADDED", "object": {"metadata": odd}}])
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.are("established 5")
        assert "not a change of an object" in await told.starts_with("trouble NotKubernetes: ")
        await told.are("established 6")


@pytest.mark.parametrize(
    "line",
    [
        {"type": "SURPRISE", "object": {}},
        {"type": ["ADDED"], "object": metadata("a", 6)},
        {"type": "ADDED"},
        {"type": "ADDED", "object": "a"},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": {}}}},
    ],
    ids=["unknown-type", "type-list", "no-object", "object-text", "bookmark-without-version"],
)
async def test_a_line_that_is_no_event_is_trouble_and_no_crash(line: dict[str, object]) -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5), listed(6)])
    api.watches.append([line])
    told = Told()
    async with serving(api) as client, running(client, told):
        await told.are("established 5")
        await told.starts_with("trouble NotKubernetes: ")
        await told.are("established 6")


async def test_a_server_that_always_sends_garbage_is_asked_less_and_less_often() -> None:
    api = ScriptedApi()
    api.lists.extend([listed(5)] * 4)
    api.watches.extend([[{"type": "SURPRISE", "object": {}}]] * 4)
    naps = Naps(awake=3)
    async with serving(api) as client, running(client, Told(), naps):
        async with asyncio.timeout(WITHIN):
            await naps.tired.wait()
    assert naps.taken == pytest.approx([0.075, 0.15, 0.3, 0.6])


async def test_a_bug_met_on_the_way_is_told_and_tried_again() -> None:
    api = ScriptedApi()
    api.lists.append(listed(5))
    told, naps = Told(), Naps()
    async with serving(api) as client:
        faults: list[Exception] = [UnicodeError("label empty"), RuntimeError("a bug")]

        async def connect() -> Client:
            if faults:
                raise faults.pop(0)
            return client

        async with following(connect, told, naps):
            await told.are("trouble UnicodeError: label empty", "trouble RuntimeError: a bug", "established 5")
    assert naps.taken == pytest.approx([0.075, 0.15])


async def test_a_client_that_is_closed_under_a_watch_is_a_lost_connection() -> None:
    first, second = ScriptedApi(), ScriptedApi()
    first.lists.append(listed(5, metadata("a", 1)))
    second.lists.append(listed(6, metadata("a", 1)))
    told = Told()
    async with serving(first) as one, serving(second) as other:
        clients = iter([one, other])

        async def connect() -> Client:
            return next(clients)

        async with following(connect, told):
            await told.are("established 5")
            await first.watched.wait()
            await one.close()
            await told.starts_with("trouble Unreachable: ")
            await told.are("established 6")


async def test_woken_in_a_watch_it_stays_unless_another_server_is_to_be_watched() -> None:
    first, second = ScriptedApi(), ScriptedApi()
    first.lists.append(listed(5))
    first.watches.append([None])
    second.lists.append(listed(3, metadata("b", 2)))
    told = Told()
    async with serving(first) as one, serving(second) as other:
        now = one
        asked: asyncio.Queue[Client] = asyncio.Queue()

        async def connect() -> Client:
            asked.put_nowait(now)
            return now

        async with following(connect, told) as reflector, asyncio.timeout(WITHIN):
            await told.are("established 5")
            await first.watched.wait()
            assert await asked.get() is one
            reflector.wake()
            assert await asked.get() is one
            now = other
            for _ in range(4):  # also at the very moment at which the first one ends the watch
                reflector.wake()
                await asyncio.sleep(0)
            await told.are("add ns/b uid-b", "established 3")
    assert first.asked == ["list", "watch 5"]


async def test_another_server_is_listed_anew_and_differs_from_the_former_one() -> None:
    first, second = ScriptedApi(), ScriptedApi()
    first.lists.append(listed(5, metadata("a", 1)))
    first.watches.append([{"type": "BOOKMARK", "object": metadata("", 9)}])
    second.lists.append(listed(3, metadata("b", 2)))
    told = Told()
    async with serving(first) as one, serving(second) as other:
        clients = iter([one, other])

        async def connect() -> Client:
            return next(clients)

        async with following(connect, told):
            await told.are("established 5", "delete ns/a uid-a", "add ns/b uid-b", "established 3")
    assert second.asked[0] == "list"
