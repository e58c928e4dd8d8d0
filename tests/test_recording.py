"""The functions that write events down: every event, and those that the broker could not deliver."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from events import types
from events.event import Event
from events.journal import Journal, read_journal
from functions.counts import COUNTS, DEAD_LETTERS
from functions.dead_letters import dead_letters, undelivered
from functions.function import Later
from functions.journal import journal
from tests.support import EPOCH, Moving, open_world, put_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from functions.local.instance import ControlPlane
    from functions.world import World

EVENTS = "/api/v1/namespaces/default/events"
ANSWER = "the hub does not answer: /probes/cert-manager gives up"


def dead(cluster: str = "gpu-1", **extensions: str) -> Event:
    """A dead letter as Knative's broker sends it."""
    return Event(
        id="7",
        source="https://target",
        type=types.OBJECT_ADDED,
        time=EPOCH,
        extensions={
            "cluster": cluster,
            "knativeerrordest": "http://probes.modelplane-serving-stack.svc.cluster.local/probes/cert-manager",
            "knativeerrorcode": "503",
            "knativeerrordata": base64.b64encode(ANSWER.encode()).decode(),
            **extensions,
        },
    )


@pytest.fixture
async def world(hub: ControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    world = await open_world(hub.kubeconfig, Moving().clock)
    world.journal = Journal(tmp_path / "events.jsonl")
    yield world
    await world.close()


def written(world: World) -> list[Event | None]:
    assert world.journal is not None
    return [each.event for each in read_journal(world.journal.path)]


def told(hub: ControlPlane, cluster: str = "gpu-1") -> list[str]:
    """The messages of the Kubernetes Events about undelivered events of a cluster."""
    items = hub.api.request("GET", EVENTS).body["items"]
    mine = [each for each in items if each["involvedObject"]["name"] == cluster]
    return [each["message"] for each in mine if each["reason"] == "EventUndelivered" and each["type"] == "Warning"]


async def test_every_event_is_written_down(world: World) -> None:
    ping = Event(id="1", source="/x", type=types.PING, time=EPOCH)
    assert not await journal(ping, world)
    assert written(world) == [ping]


async def test_a_journal_that_cannot_be_written_asks_to_come_again(world: World, tmp_path: Path) -> None:
    world.journal = Journal(tmp_path / "absent" / "events.jsonl")
    with pytest.raises(Later, match="cannot be written: No such file or directory"):
        await journal(dead(), world)


async def test_a_dead_letter_is_written_counted_and_told(hub: ControlPlane, world: World) -> None:
    put_cluster(hub.api)
    before = COUNTS[DEAD_LETTERS]
    assert not await dead_letters(dead(), world)
    assert written(world) == [dead()]
    assert COUNTS[DEAD_LETTERS] == before + 1
    assert told(hub) == [f"{types.OBJECT_ADDED} was not delivered to probes/cert-manager: 503: {ANSWER}"]


async def test_the_same_dead_letter_again_is_told_once(hub: ControlPlane, world: World) -> None:
    put_cluster(hub.api, "gpu-twice")
    for _ in range(3):
        await dead_letters(dead("gpu-twice"), world)
    assert len(written(world)) == 3
    assert len(told(hub, "gpu-twice")) == 1


@pytest.mark.parametrize("cluster", ["", "gpu-absent", "../secrets/x", "x" * 300])
async def test_one_that_names_no_cluster_of_ours_is_written_all_the_same(world: World, cluster: str) -> None:
    assert not await dead_letters(dead(cluster), world)
    assert len(written(world)) == 1


async def test_a_hub_that_is_gone_keeps_no_dead_letter_from_being_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        " clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {token: t}}]}"
    )
    world = await open_world(nowhere)
    world.journal = Journal(tmp_path / "events.jsonl")
    assert not await dead_letters(dead(), world)
    assert len(written(world)) == 1
    await world.close()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(base64.b64encode(b"why").decode(), "503: why", id="base64"),
        pytest.param(base64.b64encode(b"whywhy").decode()[:-3], "503: why", id="base64, cut anywhere"),
        pytest.param(
            "it failed\nbadly \x1b[31m", "503: it failed badly  [31m", id="plain, with what steers a terminal"
        ),
        pytest.param("", "503", id="nothing"),
    ],
)
def test_why_is_read_from_base64_and_from_plain_text(data: str, said: str) -> None:
    assert undelivered(dead(knativeerrordata=data)).endswith(f"probes/cert-manager: {said}")


def test_what_is_said_is_bounded() -> None:
    assert len(undelivered(dead(knativeerrordata="~" * 100_000, knativeerrorcode="9" * 9_000))) < 1024
