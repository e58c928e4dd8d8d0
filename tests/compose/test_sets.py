"""Each set against the real API server with the real CRDs: from nothing to ready to gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from functions.demo.controllers import ADDRESS, Controllers
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, applied

if TYPE_CHECKING:
    from tests.compose.stage import Stage


async def test_both_stacks_sets_from_nothing_to_ready_to_gone(stage: Stage) -> None:
    await stage.install()
    stage.publish_ca()
    await stage.judge()
    async with Controllers(stage.world.hub.client):
        await stage.settle()
        assert set(stage.ours(GATEWAY)) == set(applied(GATEWAY)) - {"Namespace modelplane-system"}
        assert stage.ours(QUEUES) == applied(QUEUES)
        assert stage.ours(MODELEXPRESS) == applied(MODELEXPRESS)
        assert stage.published()["address"] == ADDRESS
        await stage.tear_down()
        for each in (GATEWAY, QUEUES, MODELEXPRESS):
            assert stage.ours(each) == []
