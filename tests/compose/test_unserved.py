"""No request for an object is ever sent to an API that is not served, as the API server's own log has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.errors import NotFound
from functions.access.targets import SecretKey
from functions.compose import kinds
from functions.demo.controllers import Controllers
from functions.local import substrate
from tests.compose import needs
from tests.compose.apart import install, wait_for
from tests.compose.audit import FUNCTIONS, Asked
from tests.compose.needs import Needs
from tests.support import open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane


@pytest.mark.slow
async def test_no_request_for_an_object_goes_to_an_api_that_is_not_served(
    hub: ControlPlane, start_control_plane: StartControlPlane
) -> None:
    target = start_control_plane(audit=True)
    put_kubeconfig(hub.api, target.kubeconfig_for(FUNCTIONS, groups=("system:masters",)).read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    world = await open_world(hub.kubeconfig)
    stage = Needs(hub.api, world, target.api)
    stage.publish_ca()
    admin = Client(kubeconfig.load_file(target.kubeconfig))
    async with Controllers(admin):
        await look(stage)
        for key in needs.COMPONENTS_OF_GATES:
            put_on(target, key)
            await look(stage)
        await stage.settle()
        for key in needs.COMPONENTS_OF_GATES:
            await take_off(target, admin, key)
            await look(stage)
            put_on(target, key)
            await look(stage)
        await stage.settle()
        await take_off(target, admin, "kai-scheduler")
        await stage.tear_down()
    await admin.close()
    asked = Asked(target.audit_log)
    assert asked.in_vain() == []
    assert asked.applied() == {each.definition for each in needs.CUSTOM_KINDS}
    opened = await world.targets.open("gpu-1", SecretKey("target", "kubeconfig"))
    with pytest.raises(NotFound):
        await opened.client.get(kinds.QUEUE.path())
    assert asked.in_vain() == [f"list {kinds.QUEUE.path()}"]
    await world.close()


async def look(stage: Needs) -> None:
    """Has everything judged and composed that can be now."""
    await stage.judge()
    await stage.compose()
    await stage.compose(tick=True)


def put_on(target: ControlPlane, key: str) -> None:
    """Installs a component; returns when it is served, and discovered."""
    install(target, key)
    for kind in needs.kinds_of_component(key):
        wait_for(partial(needs.is_served, target.api, kind), f"{kind.definition} to be served")


async def take_off(target: ControlPlane, admin: Client, key: str) -> None:
    """Uninstalls a component; returns when nothing of it is served any more, or discovered."""
    await substrate.remove(admin, key)
    for kind in needs.kinds_of_component(key):
        wait_for(partial(needs.is_served, target.api, kind, served=False), f"{kind.definition} to go")
