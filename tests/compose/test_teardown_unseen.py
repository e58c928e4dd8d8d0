"""What cannot be seen is not taken for gone: targets out of reach, and APIs that are not served just now."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from functions.access.discovery import DiscoveryReader
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from functions.local import substrate
from tests.compose.apart import deleted, install, turn, wait_for
from tests.compose.stage import GATEWAY, QUEUES, step_of
from tests.faults import Fault, status
from tests.support import CLUSTERS, CRDS, apply, hold, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from functions.access.discovery import Discovery
    from functions.compose.step import Composition
    from tests.compose.apart import Apart

APISERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
OF_CONTROLLERS = [step_of(GATEWAY, key) for key in ("Gateway cluster-gateway", "GatewayClass envoy")]
QUEUE = step_of(QUEUES, "Queue modelplane")


async def test_crds_that_were_deleted_first_are_nothing_to_wait_for(away: Apart) -> None:
    await away.bring_up()
    brought = ("envoy-gateway", "cert-manager", "trust-manager", "kai-scheduler")
    try:
        async with Controllers(away.client):
            for each in brought:
                await substrate.remove(away.client, each)
        await away.restart()
        away.delete()
        await away.finish()
        assert [away.there(each) for each in COMPOSITIONS] == [[], [], []]
    finally:
        install(away.away, *brought)


@contextmanager
def unserved(stage: Apart) -> Iterator[None]:
    """The version of our queues is not served any more, and another one is."""
    crd = f"{CRDS}/{QUEUE.kind.definition}"
    version = stage.away.api.request("GET", crd).body["spec"]["versions"][0]
    turns: list[dict[str, Any]] = [
        {"op": "add", "path": "/spec/versions/1", "value": {**version, "name": "v3", "storage": False}},
        {"op": "replace", "path": "/spec/versions/0/served", "value": False},
    ]
    turn(stage.away.api, crd, turns)
    try:
        wait_for(lambda: stage.live(QUEUE) is None, "v2 not to be served")
        yield
    finally:
        turn(stage.away.api, crd, [{**turns[1], "value": True}])
        wait_for(lambda: stage.live(QUEUE) is not None, "v2 to be served")
        turn(stage.away.api, crd, [{"op": "remove", "path": "/spec/versions/1"}])


@contextmanager
def stale(stage: Apart, *, kind: Any) -> Iterator[None]:
    """The group-version belongs to an extension API server that nobody answers for."""
    name = f"{kind.version}.{kind.group}"
    path = f"{APISERVICES}/{name}"
    found = stage.away.api.request("GET", path).body
    spec = {
        **{key: found["spec"][key] for key in ("group", "version", "groupPriorityMinimum", "versionPriority")},
        "insecureSkipTLSVerify": True,
        "service": {"name": "nobody", "namespace": "default"},
    }
    manifest = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name, "resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": spec,
    }
    assert stage.away.api.request("PUT", path, manifest).status == 200
    try:
        yield
    finally:
        assert stage.away.api.request("DELETE", path).status == 200
        wait_for(lambda: stage.away.api.request("GET", kind.path()).status == 200, f"{name} to be served")


@contextmanager
def starting(stage: Apart) -> Iterator[None]:
    """As an API server answers that was just started: no CRD's group, though the CRDs say Established."""
    groups = {each.kind.group for one in COMPOSITIONS for each in one.steps if not each.kind.built_in}

    async def answer(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        found = await real()
        assert isinstance(found.body, bytes)
        document = json.loads(found.body)
        document["items"] = [each for each in document["items"] if each["metadata"]["name"] not in groups]
        return web.Response(body=json.dumps(document), headers={"Content-Type": found.headers["Content-Type"]})

    fault = Fault("/apis", answer, exact=True)
    stage.faulty.faults.append(fault)
    yield
    stage.faulty.faults.remove(fault)


@pytest.mark.parametrize(
    ("hidden", "composition", "first"),
    [
        pytest.param(unserved, QUEUES, "Queue modelplane", id="a version that is not served"),
        pytest.param(partial(stale, kind=QUEUE.kind), QUEUES, "Queue modelplane", id="queues that are stale"),
        pytest.param(
            partial(stale, kind=OF_CONTROLLERS[0].kind),
            GATEWAY,
            "Gateway modelplane-system/cluster-gateway",
            id="gateways that are stale",
        ),
        pytest.param(starting, QUEUES, "Queue modelplane", id="queues of a server that starts"),
        pytest.param(
            starting, GATEWAY, "Gateway modelplane-system/cluster-gateway", id="gateways of a server that starts"
        ),
    ],
)
async def test_an_api_that_is_not_served_proves_nothing(
    away: Apart, hidden: Callable[[Apart], Any], composition: Composition, first: str
) -> None:
    await away.bring_up()
    away.free()
    before = deleted_of(away, composition)
    with hidden(away):
        await away.restart()
        await hides(away, composition.steps[-1].kind)
        away.delete()
        for _ in range(2):
            await away.compose(tick=True)
            state, reason, message = away.says(composition)
            assert (state, reason) == ("False", "TeardownBlocked")
            assert message.startswith(f"{first}: its API {composition.steps[-1].kind.api_version} is not served")
            assert away.is_held(composition)
    assert deleted_of(away, composition) == before
    await away.finish()
    assert away.there(composition) == []


def deleted_of(stage: Apart, composition: Composition) -> list[str]:
    """Uids of what a teardown deletes."""
    return [found["metadata"]["uid"] for each in deleted(composition) if (found := stage.live(each)) is not None]


async def hides(stage: Apart, kind: Any) -> None:
    """Returns once the target's discovery, as the functions see it, lacks a kind."""
    target = await stage.world.targets.open("gpu-1", (await stage.world.hub.cluster("gpu-1")).secret())  # type: ignore[union-attr]
    await becomes(DiscoveryReader(target.client), lambda found: not found.verbs(kind.group, kind.version, kind.plural))


async def becomes(reader: DiscoveryReader, expected: Callable[[Discovery], bool]) -> None:
    """Returns once discovery is as expected."""
    for _ in range(3000):
        if expected(await reader.read(())):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("discovery stays as it is")


STATEFUL_SETS = "/apis/apps/v1/namespaces/modelplane-system/statefulsets"
NAMESPACE = GATEWAY.steps[0]


async def test_a_namespace_is_not_given_up_because_it_cannot_be_looked_into_just_now(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    away.free()
    failing = status(500, "not now")
    failing.path = STATEFUL_SETS
    away.faulty.faults.append(failing)
    away.delete()
    await away.compose()
    said = f"{NAMESPACE}: GET {STATEFUL_SETS} was answered with 500: not now"
    assert away.says(GATEWAY) == ("False", "TeardownBlocked", said)
    assert away.ours(GATEWAY) == [NAMESPACE.key]
    away.faulty.faults.clear()
    await away.finish()
    assert away.there(GATEWAY) == []


async def test_a_namespace_that_nobody_lets_us_look_into_is_left_to_its_users(away: Apart) -> None:
    await away.bring_up(GATEWAY)
    away.free()
    denied = {"kind": "Status", "code": 403, "message": 'User "we" cannot list resource "statefulsets"'}
    fault = status(403, json.dumps(denied))
    fault.path = STATEFUL_SETS
    away.faulty.faults.append(fault)
    hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), "tests.example.com/held"])
    away.delete()
    await away.compose()
    said = f'{NAMESPACE} stays: what lives in it cannot be seen: user "we" has no right to list statefulsets'
    assert away.says(GATEWAY) == ("False", "Removed", f"{said} (GET {STATEFUL_SETS})")
    assert away.there(GATEWAY) == [NAMESPACE.key]
    assert away.ours(GATEWAY) == []


async def test_a_namespace_stays_where_an_extension_api_server_that_is_away_may_have_something_in_it(
    away: Apart,
) -> None:
    await away.bring_up(GATEWAY)
    away.free()
    path = f"{APISERVICES}/v1.tests.example.com"
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.tests.example.com"},
        "spec": {
            "group": "tests.example.com",
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"name": "nobody", "namespace": "default"},
        },
    }
    apply(away.away.api, path, service)
    try:
        await becomes(DiscoveryReader(away.client), lambda found: found.is_stale("tests.example.com", "v1"))
        hold(away.api, f"{CLUSTERS}/gpu-1", [*away.holders(), "tests.example.com/held"])
        away.delete()
        await away.compose()
        assert away.says(GATEWAY)[1] == "Removed"
        assert "the API server cannot ask the one behind tests.example.com/v1" in away.says(GATEWAY)[2]
        assert away.there(GATEWAY) == [NAMESPACE.key]
    finally:
        assert away.away.api.request("DELETE", path).status == 200


async def test_an_api_that_goes_between_a_delete_and_the_next_look_proves_nothing(away: Apart) -> None:
    await away.judge()
    await away.compose(QUEUES)
    hold(away.away.api, QUEUE.path, ["tests.example.com/held"])
    hidden: list[str] = []

    async def answer(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if hidden:
            return web.Response(status=404, text="404 page not found")
        if request.method == "DELETE":
            hidden.append(request.path)
        return await real()

    away.faulty.faults.append(Fault("/apis/scheduling.run.ai", answer))
    away.delete()
    await away.compose(QUEUES)
    assert hidden == [QUEUE.path]
    assert away.is_held(QUEUES)
    state, reason, message = away.says(QUEUES)
    assert (state, reason) == ("False", "TeardownBlocked")
    assert message.startswith("Queue modelplane: its API scheduling.run.ai/v2 is not served")
    away.faulty.faults.clear()
    hold(away.away.api, QUEUE.path, None)
    await away.finish()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_restarts_are_never_taken_for_gone(away: Apart) -> None:
    """The real thing: the functions ask all the while that the API server ends, starts, and hides its CRDs."""
    await away.bring_up()
    put_kubeconfig(away.api, away.away.kubeconfig.read_bytes())
    await away.restart(patience=1)
    held = [QUEUE, OF_CONTROLLERS[0]]
    for each in held:
        hold(away.away.api, each.path, ["tests.example.com/held"])
    away.delete()
    for _ in range(3):
        away.away.kill_api_server()
        await away.compose()
        away.away.start_api_server(wait=False)
        for _ in range(20):
            await away.compose()
        away.away.wait_until_ready()
        assert away.is_held(QUEUES)
        assert away.is_held(GATEWAY)
        assert all(away.live(each) is not None for each in held)
    for each in (*held, OF_CONTROLLERS[1]):
        hold(away.away.api, each.path, None)
    await away.finish()
    assert [away.there(each) for each in COMPOSITIONS] == [[], [], []]
