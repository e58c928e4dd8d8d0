"""What is said and done about objects that a target does not take: each refusal in its own way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.compose.gateway import NAMESPACE as SYSTEM
from functions.compose.ownership import MANAGER
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from tests.compose.apart import (
    JSON_PATCH,
    MERGE,
    PLAIN_QUEUE,
    finalize,
    install,
    namespace_of_others,
    tried,
    turn,
    wait_for,
)
from tests.compose.stage import GATEWAY, QUEUES, step_of
from tests.faults import Fault, hang
from tests.support import CRDS, apply, hold, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.compose.apart import Apart
    from tests.faults import Faulty

NAMESPACE = step_of(GATEWAY, f"Namespace {SYSTEM}")
CLASS = step_of(GATEWAY, "GatewayClass envoy")
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
POLICY = step_of(GATEWAY, "ClientTrafficPolicy cluster-gateway-client-auth")
PROXY = step_of(GATEWAY, "EnvoyProxy cluster-gateway")
ROOT, QUEUE = QUEUES.steps


async def test_a_label_of_the_shared_namespace_that_others_own_is_theirs(away: Apart) -> None:
    namespace_of_others(away.away.api, **{"modelplane.ai/namespace": "theirs"})
    await away.judge()
    await away.compose(GATEWAY)
    state, reason, message = away.says(GATEWAY)
    assert (state, reason) == ("False", "Conflict")
    assert f"{NAMESPACE}: platform-team owns .metadata.labels.modelplane.ai/namespace" in message
    assert away.found(NAMESPACE)["metadata"]["labels"]["modelplane.ai/namespace"] == "theirs"
    assert away.ours(GATEWAY) == []
    nothing = {"metadata": {"labels": {"modelplane.ai/namespace": None}}}
    assert away.away.api.request("PATCH", NAMESPACE.path, nothing, content_type=MERGE).status == 200
    await away.compose(GATEWAY)
    assert away.found(NAMESPACE)["metadata"]["labels"]["modelplane.ai/namespace"] == SYSTEM
    assert PROXY.key in away.ours(GATEWAY)


async def test_ownership_noted_in_a_version_that_is_gone_is_written_anew(away: Apart) -> None:
    """An apply on such an object fails for ever with a 500; ours is put right all the same, and only ours."""
    await away.judge()
    await away.compose(QUEUES)
    crd = f"{CRDS}/{QUEUE.kind.definition}"
    only = away.away.api.request("GET", crd).body["spec"]["versions"][0]
    turn(away.away.api, crd, [{"op": "add", "path": "/spec/versions/1", "value": old_version(only)}])
    older = ROOT.path.replace("/v2/", "/v1/")
    try:
        wait_for(lambda: away.away.api.request("GET", older).status == 200, "v1 to be served")
        body = {**away.found(ROOT), "apiVersion": "scheduling.run.ai/v1"}
        body["metadata"] = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
        body["spec"]["resources"]["cpu"]["quota"] = 5
        path = f"{older}?fieldManager={MANAGER}&force=true"
        answer = away.away.api.request("PATCH", path, body, content_type="application/apply-patch+yaml")
        assert answer.status == 200, answer
    finally:
        turn(away.away.api, crd, [{"op": "remove", "path": "/spec/versions/1"}])
    wait_for(lambda: away.away.api.request("GET", older).status == 404, "v1 not to be served")
    assert {each["apiVersion"] for each in away.found(ROOT)["metadata"]["managedFields"]} >= {"scheduling.run.ai/v1"}
    mine = f"{ROOT.path}?fieldManager={MANAGER}&force=true"
    body = {**body, "apiVersion": "scheduling.run.ai/v2"}
    refused = away.away.api.request("PATCH", mine, body, content_type="application/apply-patch+yaml")
    assert refused.status == 500
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("True", "Applied")
    assert away.found(ROOT)["spec"]["resources"]["cpu"]["quota"] == -1
    assert {each["apiVersion"] for each in away.found(ROOT)["metadata"]["managedFields"]} == {"scheduling.run.ai/v2"}


def old_version(version: dict[str, Any]) -> dict[str, Any]:
    return {**version, "name": "v1", "storage": False}


async def test_a_namespace_that_is_going_is_waited_for(away: Apart) -> None:
    namespace_of_others(away.away.api)
    hold(away.away.api, NAMESPACE.path, ["tests.example.com/held"])
    assert away.away.api.request("DELETE", NAMESPACE.path).status == 200
    away.publish_ca()
    await away.judge()
    await away.compose(GATEWAY)
    state, reason, message = away.says(GATEWAY)
    assert (state, reason) == ("False", "WaitingForObject")
    assert f"{NAMESPACE}: is being deleted, held by finalizer tests.example.com/held" in message
    assert f"waiting for {NAMESPACE}" in message
    assert away.ours(GATEWAY) == []
    hold(away.away.api, NAMESPACE.path, None)
    finalize(away.away.api)
    wait_for(lambda: away.live(NAMESPACE) is None, "the namespace to go")
    await away.compose(GATEWAY)
    assert NAMESPACE.key in away.ours(GATEWAY)
    assert PROXY.key in away.ours(GATEWAY)


async def test_a_namespace_that_goes_just_then_is_waited_for(away: Apart) -> None:
    """Its content is refused with a 403 that has nothing to do with rights."""
    namespace_of_others(away.away.api, **{"modelplane.ai/namespace": SYSTEM})
    hold(away.away.api, NAMESPACE.path, ["tests.example.com/held"])

    async def delete_it(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        assert away.away.api.request("DELETE", NAMESPACE.path).status == 200
        return await real()

    away.publish_ca()
    await away.judge()
    envoy_proxies = f"/apis/{PROXY.kind.api_version}/namespaces/{SYSTEM}/envoyproxies/"
    fault = Fault(envoy_proxies, delete_it, times=1)
    fault_on_write(away.faulty, fault)
    await away.compose(GATEWAY)
    assert fault.seen == 1
    state, reason, message = away.says(GATEWAY)
    assert (state, reason) == ("False", "WaitingForObject")
    assert "is being deleted" in message
    assert str(NAMESPACE) in message


def fault_on_write(server: Faulty, fault: Fault) -> None:
    """Has a fault befall writes alone."""
    answer = fault.answer

    async def only_writes(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method == "GET":
            fault.seen -= 1
            return await real()
        return await answer(request, real)

    fault.answer = only_writes
    server.faults.append(fault)


@pytest.mark.parametrize("just_then", [False, True], ids=["before the look", "after the look"])
async def test_a_crd_that_is_going_is_waited_for(away: Apart, *, just_then: bool) -> None:
    api = away.away.api
    crd = f"{CRDS}/{QUEUE.kind.definition}"
    theirs = f"{QUEUE.kind.path()}/theirs"
    apply(api, theirs, {**PLAIN_QUEUE, "metadata": {"name": "theirs"}})
    hold(api, theirs, ["tests.example.com/held"])
    await away.judge()

    def delete_it() -> None:
        assert api.request("DELETE", crd).status == 200
        wait_for(lambda: tried(api, QUEUE, PLAIN_QUEUE).status == 403, "the CRD to be going")

    async def meanwhile(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        delete_it()
        return await real()

    try:
        if just_then:
            fault_on_write(away.faulty, Fault(ROOT.path, meanwhile, times=1, exact=True))
        else:
            delete_it()
        await away.compose(QUEUES)
        state, reason, message = away.says(QUEUES)
        assert (state, reason) == ("False", "WaitingForRequirements")
        assert f"waiting for CRD {QUEUE.kind.definition} serving v2: {ROOT}" in message
        assert away.ours(QUEUES) == []
    finally:
        hold(api, theirs, None)
        wait_for(lambda: api.request("GET", crd).status == 404, "the CRD to go")
        install(away.away, "kai-scheduler")
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("True", "Applied")


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        pytest.param({"verbs": ["create", "patch"]}, "has no right to patch issuers.cert-manager.io", id="to write"),
        pytest.param({"verbs": ["get", "list"]}, "has no right to get issuers.cert-manager.io", id="to see"),
    ],
)
async def test_a_right_that_is_wanting_is_named_and_the_rest_goes_on(
    away: Apart, denied: dict[str, list[str]], said: str
) -> None:
    issuers = step_of(GATEWAY, "Issuer modelplane-selfsigned")
    verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
    everything_else = [
        {"apiGroups": [group], "resources": ["*"], "verbs": verbs}
        for group in dict.fromkeys(each.kind.group for one in COMPOSITIONS for each in one.steps)
        if group != issuers.kind.group
    ]
    rules = [
        *everything_else,
        {"apiGroups": [issuers.kind.group], "resources": ["certificates"], "verbs": verbs},
        {
            "apiGroups": [issuers.kind.group],
            "resources": ["issuers"],
            "verbs": [each for each in verbs if each not in denied["verbs"]],
        },
    ]
    put_kubeconfig(away.api, away.away.kubeconfig_for("limited", rules=rules).read_bytes())
    away.publish_ca()
    await away.judge()
    await away.compose(GATEWAY)
    state, reason, message = away.says(GATEWAY)
    assert (state, reason) == ("Unknown", "Forbidden")
    assert f'user "limited" {said} in namespace {SYSTEM}' in message
    assert {NAMESPACE.key, PROXY.key, CLASS.key, POLICY.key} <= set(away.ours(GATEWAY))
    rights = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    away.away.kubeconfig_for("limited", rules=rights)
    async with Controllers(away.client):
        await away.settle(GATEWAY)


async def test_a_target_that_hangs_costs_one_time_limit_per_look(away: Apart) -> None:
    await away.judge()
    await away.compose()
    await away.restart(patience=0.3)
    away.faulty.faults.append(hang())
    away.faulty.asked.clear()
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("Unknown", "Unreachable")
    assert "did not answer within 0.3 s" in away.says(QUEUES)[2]
    assert away.faulty.asked == ["GET /apis"]
    away.faulty.faults[0].path = "/apis/scheduling.run.ai"
    away.faulty.asked.clear()
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("Unknown", "Unreachable")
    assert sorted(away.faulty.asked) == ["GET /apis", f"GET {QUEUE.path}", f"GET {ROOT.path}"]
    away.faulty.faults.clear()
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("True", "Applied")


async def test_ticks_ask_a_dead_target_less_and_less_often(away: Apart) -> None:
    await away.judge()
    await away.restart(patience=0.2)
    away.faulty.faults.append(hang())
    looked = []
    for minute in range(20):
        away.faulty.asked.clear()
        await away.compose(QUEUES, tick=True)
        if away.faulty.asked:
            looked.append(minute)
        await away.time.sleep(60)
    assert looked == [0, 1, 3, 7, 12, 17]
    away.faulty.asked.clear()
    await away.compose(QUEUES)
    assert away.faulty.asked, "an event is always a reason to look"


async def test_a_renewed_credential_is_taken_up(away: Apart) -> None:
    await away.judge()
    await away.restart()
    expired = away.faulty.kubeconfig.replace(b"token: ", b"token: expired-")
    assert expired != away.faulty.kubeconfig
    put_kubeconfig(away.api, expired)
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("Unknown", "Unauthorized")
    assert away.ours(QUEUES) == []
    put_kubeconfig(away.api, away.faulty.kubeconfig)
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("True", "Applied")


@pytest.mark.parametrize(
    ("path", "method"),
    [
        pytest.param("/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1", "GET", id="the cluster is not given"),
        pytest.param("/apis/modelplane.ai/v1alpha1/inferencegateways", "GET", id="nor are the client CAs"),
        pytest.param("/api/v1/namespaces/modelplane-system/secrets/target", "GET", id="nor is the kubeconfig"),
        pytest.param("/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1", "PATCH", id="the finalizer is not taken"),
        pytest.param("/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1/status", "PATCH", id="nor is the condition"),
    ],
)
async def test_trouble_with_the_hub_is_for_later(away: Apart, before_hub: Faulty, path: str, method: str) -> None:
    async def fails(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        return web.Response(status=500, text="etcd is away") if request.method == method else await real()

    away.publish_ca()
    await away.judge()
    await away.restart()
    before_hub.faults.append(Fault(path, fails, exact=True))
    for tick in (False, True):
        answer = await away.handled(GATEWAY, tick=tick)
        assert answer.status == 503
        assert answer.outcome == "later"
        assert "etcd is away" in answer.body
    if not path.endswith("/status"):
        assert away.ours(GATEWAY) == []
    before_hub.faults.clear()
    await away.compose(GATEWAY)
    assert away.says(GATEWAY)[1] == "WaitingForObject"
    assert PROXY.key in away.ours(GATEWAY)


async def test_a_controller_that_fights_is_named_after_three_repairs(away: Apart) -> None:
    await away.bring_up()

    def fight() -> None:
        plain = {"name": "http", "protocol": "HTTP", "port": 80}
        patch = [{"op": "add", "path": "/spec/listeners/-", "value": plain}]
        path = f"{THE_GATEWAY.path}?fieldManager=fighter"
        answer = away.away.api.request("PATCH", path, patch, content_type=JSON_PATCH)  # type: ignore[arg-type]
        assert answer.status == 200

    for _ in range(3):
        fight()
        await away.deliver("compose/gateway", away.changed(THE_GATEWAY))
        assert len(away.found(THE_GATEWAY)["spec"]["listeners"]) == 1
        await away.time.sleep(5)
    fight()
    at_rest = away.version(THE_GATEWAY)
    for _ in range(4):
        await away.deliver("compose/gateway", away.changed(THE_GATEWAY))
        state, reason, message = away.says(GATEWAY)
        assert (state, reason) == ("False", "Conflict")
        assert "spec.listeners[name=http] (of fighter)" in message
        assert away.version(THE_GATEWAY) == at_rest
        await away.time.sleep(5)
    await away.time.sleep(60)
    await away.compose(GATEWAY, tick=True)
    assert len(away.found(THE_GATEWAY)["spec"]["listeners"]) == 1
    async with Controllers(away.client):
        await away.settle(GATEWAY)
