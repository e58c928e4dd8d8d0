"""What others do between a look and the write that rests on it: nothing of theirs is lost, and nobody gets in."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose import kinds
from functions.compose.ownership import OWNER, OWNER_UID
from functions.demo.controllers import FINALIZER, Controllers
from functions.host.host import Host
from functions.registry import FUNCTIONS
from tests.compose.apart import MERGE, finalize, turn
from tests.compose.drift import CLIENT_CAS, NAMESPACE, POLICY, THE_GATEWAY
from tests.compose.stage import GATEWAY, QUEUES, step_of
from tests.faults import Fault, faulty
from tests.support import CLUSTERS, hold, open_world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from aiohttp import web

    from tests.compose.apart import Apart

ROOT, _ = QUEUES.steps
CLASS = step_of(GATEWAY, "GatewayClass envoy")
SYSTEM = "/api/v1/namespaces/modelplane-system"
UNMARKED = {"metadata": {"labels": {OWNER: None}, "annotations": {OWNER_UID: None}}}


class Meanwhile(Fault):
    """Does something once, right before a request of this method is carried out.

    Attributes:
        came: Whether it came to that.
    """

    def __init__(
        self,
        path: str,
        method: str,
        do: Callable[[], Awaitable[object]],
        *,
        body: bytes = b"",
        after: Callable[[], bool] = lambda: True,
    ) -> None:
        self.came = False

        async def answer(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
            if request.method == method and body in await request.read() and not self.came and after():
                self.came = True
                await do()
            return await real()

        super().__init__(path, answer, exact=True)


@asynccontextmanager
async def another_replica(stage: Apart) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """A further process with the functions; gives what wakes its gateway set."""
    world = await open_world(stage.path, stage.time.clock)
    host = Host(FUNCTIONS.values(), world)
    try:
        yield lambda: host.handle("compose/gateway", stage.check())
    finally:
        await world.close()


async def test_no_gateway_is_made_by_a_look_that_another_replica_made_wrong(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    made = f"PATCH {THE_GATEWAY.path}"
    async with Controllers(away.client), another_replica(away) as wake:
        away.withdraw_ca()
        await away.until(lambda: away.live(CLIENT_CAS) is None)
        away.faulty.asked.clear()
        away.publish_ca()

        async def withdraw() -> None:
            away.withdraw_ca()
            await wake()
            assert away.live(POLICY) is None

        # What guards the Gateway is looked at last before it is made.
        fault = Meanwhile(POLICY.path, "GET", withdraw, after=lambda: f"PATCH {POLICY.path}" in away.faulty.asked)
        away.faulty.faults.append(fault)
        await away.compose(GATEWAY)
        assert fault.came
        assert away.live(THE_GATEWAY) is None
        assert made not in away.faulty.asked
        away.publish_ca()
        await away.settle(GATEWAY)
        assert made in away.faulty.asked


async def test_a_client_ca_that_is_withdrawn_while_the_bundle_is_written_is_out_again(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    added = away.publish_ca("us")

    async def withdraw() -> None:
        away.withdraw_ca("us")

    fault = Meanwhile(CLIENT_CAS.path, "PATCH", withdraw)
    away.faulty.faults.append(fault)
    await away.compose(GATEWAY)
    assert fault.came
    assert added not in away.found(CLIENT_CAS)["data"]["ca.crt"]


async def test_a_policy_is_kept_right_while_the_gateway_is_held(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    away.withdraw_ca()
    await away.compose(GATEWAY)
    assert away.found(THE_GATEWAY)["metadata"]["finalizers"] == [FINALIZER]
    turn(away.away.api, POLICY.path, [{"op": "add", "path": "/spec/tls/clientValidation/optional", "value": True}])
    await away.compose(GATEWAY)
    assert not away.found(POLICY)["spec"]["tls"]["clientValidation"].get("optional")
    away.away.api.request("DELETE", POLICY.path)
    await away.compose(GATEWAY)
    assert away.live(POLICY) is not None
    assert away.says(GATEWAY)[1] == "WaitingForClientCA"
    away.free()
    await away.until(lambda: away.live(POLICY) is None)
    assert away.live(CLIENT_CAS) is None


async def test_a_bundle_that_was_made_immutable_is_made_anew(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    patch = {"immutable": True}
    assert away.away.api.request("PATCH", CLIENT_CAS.path, patch, content_type=MERGE).status == 200
    added = away.publish_ca("us")
    await away.compose(GATEWAY)
    found = away.found(CLIENT_CAS)
    assert added in found["data"]["ca.crt"]
    assert "immutable" not in found


async def test_finalizers_that_somebody_took_off_are_put_back(away: Apart) -> None:
    await away.bring_up(GATEWAY, QUEUES)
    found = away.api.request("GET", f"{CLUSTERS}/gpu-1").body
    metadata = {"name": "gpu-1", "resourceVersion": found["metadata"]["resourceVersion"]}
    replaced = {**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}
    assert away.api.request("PUT", f"{CLUSTERS}/gpu-1", replaced).status == 200
    assert away.holders() == []
    await away.compose(tick=True)
    assert {GATEWAY.finalizer, QUEUES.finalizer} <= set(away.holders())


@pytest.mark.parametrize("deleting", [False, True])
async def test_what_somebody_takes_over_between_look_and_write_stays_his(away: Apart, deleting: bool) -> None:  # noqa: FBT001
    await away.judge()
    await away.compose(QUEUES)
    theirs = {**UNMARKED, "spec": {"displayName": "theirs", "resources": {"cpu": {"quota": 9}}}}

    async def take_over() -> None:
        answer = away.away.api.request("PATCH", f"{ROOT.path}?fieldManager=team", theirs, content_type=MERGE)
        assert answer.status == 200

    fault = Meanwhile(ROOT.path, "DELETE" if deleting else "PATCH", take_over)
    away.faulty.faults.append(fault)
    if deleting:
        away.delete()
        await away.until(away.is_gone)
    else:
        edit = {"spec": {"resources": {"cpu": {"quota": 7}}}}
        assert away.away.api.request("PATCH", ROOT.path, edit, content_type=MERGE).status == 200
        await away.compose(QUEUES)
        assert away.says(QUEUES)[1] == "Conflict"
    assert fault.came
    assert away.found(ROOT)["spec"]["displayName"] == "theirs"


def owned(name: str, owner: Mapping[str, Any]) -> dict[str, Any]:
    reference = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": owner["metadata"]["name"]}
    references = [{**reference, "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": references}}


async def test_a_namespace_stays_for_what_has_its_owner_elsewhere(away: Apart) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    manifest = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}}
    await away.judge()
    async with Controllers(away.client):
        await away.compose(GATEWAY)
        owner = away.away.api.request("POST", roles, manifest).body
        made = away.away.api.request("POST", f"{SYSTEM}/configmaps", owned("operand", owner))
        assert made.status == 201
        away.delete()
        await away.until(away.is_gone)
    found = away.live(NAMESPACE)
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    assert away.away.api.request("GET", f"{SYSTEM}/configmaps/operand").status == 200
    away.away.api.request("DELETE", f"{roles}/operator")
    away.away.api.request("DELETE", SYSTEM)
    finalize(away.away.api)


async def test_what_carries_our_mark_under_another_name_is_not_ours(away: Apart) -> None:
    await away.judge()
    mark = {"labels": {OWNER: "gpu-1"}, "annotations": {OWNER_UID: away.uid()}}
    copied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "copy", **mark}}
    gateway = {
        "apiVersion": kinds.GATEWAY.api_version,
        "kind": "Gateway",
        "metadata": {"name": "theirs", **mark},
        "spec": {"gatewayClassName": "envoy", "listeners": [{"name": "a", "protocol": "HTTP", "port": 80}]},
    }
    theirs = kinds.GATEWAY.path(namespace="default")
    async with Controllers(away.client):
        await away.compose(GATEWAY)
        assert away.away.api.request("POST", f"{SYSTEM}/configmaps", copied).status == 201
        assert away.away.api.request("POST", theirs, gateway).status == 201
        await away.until(lambda: away.live(CLASS) is not None)
        away.delete()
        await away.until(away.is_gone)
    assert away.live(CLASS) is not None
    assert away.live(NAMESPACE) is not None
    hold(away.away.api, f"{theirs}/theirs", None)
    away.away.api.request("DELETE", f"{theirs}/theirs")
    hold(away.away.api, CLASS.path, None)


async def test_what_stays_is_still_said_where_others_write_at_the_end(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), "tests.example.com/other"])
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}}
    assert away.away.api.request("POST", f"{SYSTEM}/configmaps", manifest).status == 201

    async def touch() -> None:
        away.annotate("tests.example.com/touched", "1")

    async with faulty(away.hub) as before:
        path = away.path.with_name("faulty-hub")
        path.write_bytes(before.kubeconfig)
        world = await open_world(path, away.time.clock)
        fault = Meanwhile(f"{CLUSTERS}/gpu-1", "PATCH", touch, body=b"/metadata/finalizers")
        before.faults.append(fault)
        away.delete()
        away.free()
        host = Host(FUNCTIONS.values(), world)
        for _ in range(20):
            await host.handle("compose/gateway", away.check())
            away.free() if away.live(THE_GATEWAY) or away.live(CLASS) else None
            if not away.is_held(GATEWAY):
                break
        await world.close()
    assert fault.came
    assert away.says(GATEWAY)[1] == "Removed"
    assert "configmaps/theirs lives in it" in away.says(GATEWAY)[2]
    hold(away.api, f"{CLUSTERS}/gpu-1", None)
