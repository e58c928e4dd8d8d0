"""Teardown of a target that cannot be asked: the InferenceCluster is held, and says why, until it is orphaned."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from events import types
from events.event import Event
from functions.clusters import ORPHAN
from functions.compose.sets import COMPOSITIONS
from tests.compose.stage import QUEUES
from tests.faults import hang
from tests.support import SECRETS, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.compose.apart import Apart

HINT = f"to let go and leave everything where it is, annotate the InferenceCluster with {ORPHAN}=true"


def changed_kubeconfig(
    stage: Apart, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> None:
    content = yaml.safe_load(stage.faulty.kubeconfig)
    content["clusters"][0]["cluster"] |= cluster or {}
    content["users"][0]["user"] |= user or {}
    put_kubeconfig(stage.api, yaml.safe_dump(content))


@contextmanager
def refused(stage: Apart) -> Iterator[None]:
    changed_kubeconfig(stage, cluster={"server": "https://127.0.0.1:9"})
    yield


@contextmanager
def stopped(stage: Apart) -> Iterator[None]:
    put_kubeconfig(stage.api, stage.away.kubeconfig.read_bytes())
    stage.away.kill_api_server()
    try:
        yield
    finally:
        stage.away.start_api_server()


@contextmanager
def wrong_token(stage: Apart) -> Iterator[None]:
    changed_kubeconfig(stage, user={"token": "no-such-token"})
    yield


@contextmanager
def no_secret(stage: Apart) -> Iterator[None]:
    assert stage.api.request("DELETE", f"{SECRETS}/target").status == 200
    yield


@contextmanager
def no_kubeconfig(stage: Apart) -> Iterator[None]:
    empty = {"data": {"kubeconfig": base64.b64encode(b"{}").decode()}}
    answer = stage.api.request("PATCH", f"{SECRETS}/target", empty, content_type="application/merge-patch+json")
    assert answer.status == 200
    yield


@pytest.mark.parametrize(
    ("out_of_reach", "why"),
    [
        pytest.param(refused, "refused the connection", id="a dead port"),
        pytest.param(stopped, "refused the connection", id="a server that is stopped"),
        pytest.param(wrong_token, "did not accept the credential", id="a credential that is refused"),
        pytest.param(no_secret, "Secret modelplane-system/target does not exist", id="its Secret deleted first"),
        pytest.param(no_kubeconfig, "current-context", id="no kubeconfig any more"),
    ],
)
async def test_a_target_out_of_reach_holds_its_cluster_until_it_is_orphaned(
    away: Apart, out_of_reach: Callable[[Apart], Any], why: str
) -> None:
    await away.bring_up()
    before = away.objects()
    with out_of_reach(away):
        await away.restart(patience=1)
        away.delete()
        for minute in range(3):
            await away.compose(tick=minute > 0)
            for each in COMPOSITIONS:
                state, reason, message = away.says(each)
                assert (state, reason) == ("False", "TeardownBlocked")
                assert why in message
                assert message.endswith(HINT)
                assert away.is_held(each)
            await away.time.sleep(60)
        away.annotate(ORPHAN, "true")
        for event in await away.deliver("cluster", away.cluster_changed()):
            for each in COMPOSITIONS:
                await away.deliver(f"compose/{each.name}", event)
        assert away.is_gone()
    assert away.objects() == before


async def test_an_orphan_of_a_target_within_reach_is_left_alone_as_well(away: Apart) -> None:
    await away.bring_up()
    before = away.objects()
    away.annotate(ORPHAN, "true")
    away.delete()
    await away.compose()
    assert away.is_gone()
    assert away.objects() == before


async def test_a_target_that_is_back_is_emptied_without_being_told(away: Apart) -> None:
    await away.bring_up()
    away.free()
    with refused(away):
        await away.restart(patience=1)
        away.delete()
        await away.compose()
        assert away.says(QUEUES)[1] == "TeardownBlocked"
    put_kubeconfig(away.api, away.faulty.kubeconfig)
    for each in await away.deliver("cluster", away.secret_changed()):
        for composition in COMPOSITIONS:
            await away.deliver(f"compose/{composition.name}", each)
    await away.finish()
    assert [away.there(each) for each in COMPOSITIONS] == [[], [], []]


async def tick(stage: Apart) -> None:
    """The ping of a minute, and what the cluster function makes of it."""
    ping = Event(id="ping", source="/tick", type=types.PING)
    for each in await stage.deliver("cluster", ping):
        for composition in COMPOSITIONS:
            await stage.deliver(f"compose/{composition.name}", each)


async def test_ticks_ask_a_dead_target_less_and_less_often_and_see_at_once_that_it_is_orphaned(away: Apart) -> None:
    await away.judge()
    await away.compose(QUEUES)
    await away.restart(patience=0.2)
    away.faulty.faults.append(hang())
    away.delete()
    looked = []
    for minute in range(13):
        away.faulty.asked.clear()
        await tick(away)
        if away.faulty.asked:
            looked.append(minute)
        await away.time.sleep(60)
    assert looked == [0, 1, 3, 7, 12]
    away.annotate(ORPHAN, "true")
    await tick(away)
    assert away.is_gone()
    away.faulty.faults.clear()
    assert away.there(QUEUES) == [each.key for each in QUEUES.steps]


async def test_a_kubeconfig_that_was_mended_is_noticed_by_the_tick(away: Apart) -> None:
    await away.judge()
    await away.compose(QUEUES)
    with refused(away):
        await away.restart(patience=1)
        away.delete()
        await tick(away)
        assert away.says(QUEUES)[1] == "TeardownBlocked"
    put_kubeconfig(away.api, away.faulty.kubeconfig)
    await away.time.sleep(300)
    await tick(away)
    assert away.is_gone()
    assert away.there(QUEUES) == []
