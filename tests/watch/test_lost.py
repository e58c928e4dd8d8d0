"""A target that cannot be followed any more is looked at once, at once, and again when it is back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from events import types
from functions.compose import kinds
from functions.watch.runtime import Runtime
from tests.support import CLUSTERS, CRDS, apply, crd_manifest, happened, open_world, put_cluster, put_kubeconfig
from tests.watch.fakes import gated
from tests.watch.watching import about, checked, is_complete, started, until, watching

if TYPE_CHECKING:
    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane


def is_unreachable(found: dict[str, Any]) -> bool:
    return says(found, "Unknown", "Unreachable")


def is_missing(found: dict[str, Any]) -> bool:
    return says(found, "False", "MissingRequirements")


def says(found: dict[str, Any], status: str, reason: str) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(
        (each["type"], each["status"], each["reason"]) == ("RequirementsMet", status, reason) for each in conditions
    )


async def test_each_loss_asks_for_one_look_however_often_it_is_tried_again(hub: ControlPlane) -> None:
    put_cluster(hub.api)
    async with gated(hub.kubeconfig.read_bytes()) as (gate, kubeconfig):
        put_kubeconfig(hub.api, kubeconfig)
        async with watching(hub.kubeconfig) as collected:
            await started(collected)
            told = []
            for _ in range(2):
                await gate.shut()
                told += await collected.through(checked(reason="WatchLost"))
                await until(lambda: collected.failures() > 4, "some tries in vain")
                await gate.open()
                told += await collected.through(checked(reason="WatchStarted"))
                await until(collected.complete, "everything to be followed again")
                told += collected.forget()
    lost = [each.id for each in told if checked(reason="WatchLost")(each)]
    assert (len(lost), len(set(lost))) == (2, 2)
    assert len([each for each in told if checked(reason="WatchStarted")(each)]) == 2
    assert {each.type for each in told} == {types.CHECK_REQUESTED}


async def test_conditions_turn_at_once_though_the_target_failed_so_often_that_ticks_leave_it_in_peace(
    hub: ControlPlane,
) -> None:
    put_cluster(hub.api)
    async with gated(hub.kubeconfig.read_bytes()) as (gate, kubeconfig):
        put_kubeconfig(hub.api, kubeconfig)
        world = await open_world(hub.kubeconfig)
        async with Runtime(world, tick=None) as runtime:
            await happened(world.hub.client, CLUSTERS, "gpu-1", is_missing)
            await until(lambda: is_complete(runtime._source), "everything to be followed")
            await runtime.broker.drain()
            for _ in range(4):
                world.targets.failed("gpu-1", world.clock.now())
            assert world.targets.is_resting("gpu-1", world.clock.now())
            await gate.shut()
            await happened(world.hub.client, CLUSTERS, "gpu-1", is_unreachable)
            await gate.open()
            await happened(world.hub.client, CLUSTERS, "gpu-1", is_missing)
        await world.close()


async def test_a_restarted_server_has_lost_nothing(start_control_plane: StartControlPlane, hub: ControlPlane) -> None:
    target = start_control_plane()
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    apply(target.api, f"{CRDS}/{kinds.QUEUE.definition}", crd_manifest(kinds.QUEUE.definition, kinds.QUEUE.version))
    await asyncio.to_thread(target.wait_until_ready)
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "modelplane"}}
    apply(target.api, kinds.QUEUE.path("modelplane"), queue)
    async with watching(hub.kubeconfig) as collected:
        await started(collected)
        await asyncio.to_thread(target.kill_api_server)
        told = await collected.through(checked(reason="WatchLost"))
        await asyncio.to_thread(target.start_api_server)
        told += await collected.through(checked(reason="WatchStarted"))
        await until(collected.complete, "everything to be followed again")
        told += collected.forget()
        apply(target.api, kinds.QUEUE.path("modelplane"), {**queue, "spec": {"changed": True}})
        await collected.next(about("modelplane", "update", kind="Queue"))
    assert [each.type for each in told if each.type != types.CHECK_REQUESTED] == []
    assert len([each for each in told if checked(reason="WatchLost")(each)]) == 1
