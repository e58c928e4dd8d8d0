"""Who may call a gateway is right at every moment: no step of ours opens a listener that asks for no certificate."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.client_cas import ClientCAs
from functions.compose.exactness import compare
from functions.compose.ownership import OWNER, is_ours, marked
from functions.compose.step import Inputs
from tests.compose.certificates import certificate, expired, otherwise, private_key
from tests.compose.drift import CLIENT_CAS, HTTP, POLICY, THE_GATEWAY, patch
from tests.compose.recorder import Recorder
from tests.compose.stage import GATEWAY, step_of
from tests.compose.whole import CLIENT_CA
from tests.support import CRDS, conditions, get_cluster, install, put_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.compose.step import Step
    from tests.compose.recorder import World
    from tests.compose.whole import Whole

pytestmark = pytest.mark.asyncio(loop_scope="module")
GUARDED = (CLIENT_CAS, POLICY, THE_GATEWAY)
ENVOY_PROXY = step_of(GATEWAY, "EnvoyProxy cluster-gateway")
OTHER_CA = certificate("other")


def trusted(stage: Whole) -> str:
    """Whom the gateway trusts."""
    return str(stage.found(CLIENT_CAS)["data"]["ca.crt"])


async def withdrawn(stage: Whole) -> None:
    """Returns when no listener is left, and what guarded it, by ticks alone."""
    await stage.until(lambda: all(stage.live(each) is None for each in GUARDED), tick=True)


async def test_the_same_ca_from_two_gateways_in_two_encodings_is_in_the_bundle_once(whole: Whole) -> None:
    whole.publish_ca("us", otherwise(CLIENT_CA))
    await whole.compose(GATEWAY)
    assert trusted(whole) == CLIENT_CA
    whole.publish_only({"us": otherwise(CLIENT_CA)})
    await whole.compose(GATEWAY)
    assert trusted(whole) == CLIENT_CA
    await whole.rests(GATEWAY)


async def test_the_tick_takes_out_a_ca_that_expired(whole: Whole) -> None:
    soon = certificate("us", ends=whole.time.now() + timedelta(hours=1))
    whole.publish_ca("us", soon)
    await whole.compose(GATEWAY)
    assert trusted(whole) == CLIENT_CA + soon
    gateway = whole.found(THE_GATEWAY)
    whole.time.moment += timedelta(hours=2)
    await whole.compose(GATEWAY, tick=True)
    assert trusted(whole) == CLIENT_CA
    assert whole.found(THE_GATEWAY)["metadata"] == gateway["metadata"]
    condition = whole.condition(GATEWAY)
    assert condition["status"] == "True"
    assert "left out: client CA of InferenceGateway us: it expired on " in condition["message"]
    await whole.rests(GATEWAY)


async def test_the_tick_withdraws_the_gateway_when_the_last_ca_expired(whole: Whole) -> None:
    whole.publish_ca("eu", certificate("eu", ends=whole.time.now() + timedelta(hours=1)))
    await whole.settle()
    whole.time.moment += timedelta(hours=2)
    await withdrawn(whole)
    condition = whole.condition(GATEWAY)
    assert (condition["status"], condition["reason"]) == ("False", "WaitingForClientCA")
    assert "no InferenceGateway has published a client CA that is valid now" in condition["message"]
    assert "client CA of InferenceGateway eu: it expired on " in condition["message"]
    assert whole.published() == {}
    await whole.compose(GATEWAY, tick=True)
    renewed = certificate("eu", begins=whole.time.now() - timedelta(minutes=1))
    whole.publish_ca("eu", renewed)
    await whole.settle()
    assert trusted(whole) == renewed


async def test_a_renewed_ca_takes_the_place_of_the_old_one_and_the_gateway_stays(whole: Whole) -> None:
    gateway, policy = whole.found(THE_GATEWAY), whole.found(POLICY)
    for published in (CLIENT_CA + OTHER_CA, OTHER_CA):
        whole.publish_ca("eu", published)
        await whole.compose(GATEWAY)
        assert trusted(whole) == published
    assert whole.found(THE_GATEWAY)["metadata"] == gateway["metadata"]
    assert whole.found(POLICY)["metadata"] == policy["metadata"]


async def test_a_private_key_that_somebody_publishes_gets_nowhere(whole: Whole) -> None:
    key = private_key()
    whole.publish_ca("us", key)
    whole.publish_ca("za", OTHER_CA + key)
    await whole.compose(GATEWAY)
    assert trusted(whole) == CLIENT_CA + OTHER_CA
    condition = whole.condition(GATEWAY)
    assert "left out: client CA of InferenceGateway us: it is no PEM certificate" in condition["message"]
    events = whole.api.request("GET", "/api/v1/namespaces/default/events").body["items"]
    said = [get_cluster(whole.api)["status"], whole.found(CLIENT_CAS), events]
    assert not [line for line in key.splitlines() if line in str(said)]


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param([POLICY], id="policy"),
        pytest.param([POLICY, CLIENT_CAS], id="policy-and-authorities"),
        pytest.param([CLIENT_CAS], id="authorities"),
        pytest.param([POLICY, CLIENT_CAS, ENVOY_PROXY], id="and-the-proxy"),
    ],
)
async def test_what_guards_the_gateway_is_put_back_though_a_requirement_is_unmet(
    whole: Whole, gone: list[Step]
) -> None:
    """What is there is kept, also while a component that it needed at first is incomplete."""
    backends = f"{CRDS}/backends.gateway.envoyproxy.io"
    before = {step: whole.content(step) for step in gone}
    assert whole.target.request("DELETE", backends).status == 200
    try:
        await whole.gone(backends)
        await whole.judge()
        assert conditions(whole.api)["EnvoyGatewayProvided"]["status"] == "False"
        await whole.delete(*gone)
        await whole.compose(GATEWAY)
        assert {step: whole.content(step) for step in gone} == before
    finally:
        await install(whole.client, "envoy-gateway")
        await whole.answers("/apis/gateway.envoyproxy.io/v1alpha1/backends")


def foreign(step: Step) -> dict[str, Any]:
    """What somebody else may have made under the name of one of ours."""
    spec = {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "theirs"}]}
    return {
        "apiVersion": step.kind.api_version,
        "kind": step.kind.name,
        "metadata": {"name": step.name, "namespace": step.namespace},
        "spec": spec,
    }


async def test_no_gateway_comes_while_the_policy_is_somebody_elses(whole: Whole) -> None:
    await whole.delete(THE_GATEWAY, POLICY)
    assert whole.target.request("POST", POLICY.kind.path(namespace=POLICY.namespace), foreign(POLICY)).status == 201
    before = whole.found(POLICY)
    await whole.compose(GATEWAY)
    assert whole.live(THE_GATEWAY) is None
    assert whole.found(POLICY)["spec"] == before["spec"]
    condition = whole.condition(GATEWAY)
    assert condition["reason"] == "Conflict"
    assert str(POLICY) in condition["message"]
    await whole.delete(POLICY)
    await whole.settle()


async def test_no_listener_is_put_back_while_the_policy_is_somebody_elses(whole: Whole) -> None:
    patch(whole.target, THE_GATEWAY, [{"op": "replace", "path": "/spec/listeners", "value": [HTTP]}])
    await whole.delete(POLICY)
    assert whole.target.request("POST", POLICY.kind.path(namespace=POLICY.namespace), foreign(POLICY)).status == 201
    for _ in range(2):
        await whole.compose(GATEWAY)
        assert "https" not in listeners(whole.found(THE_GATEWAY))
    await whole.delete(POLICY)
    await whole.settle()
    assert listeners(whole.found(THE_GATEWAY)) == ["https"]


def listeners(gateway: dict[str, Any]) -> list[str]:
    return [each["name"] for each in gateway["spec"]["listeners"]]


def open_moments(moments: Iterable[World], uids: set[str], authorities: set[str]) -> list[World]:
    """The moments in which a listener of ours took callers without a certificate of one of these authorities."""
    wanted = [marked(POLICY, Inputs(cluster="gpu-1", uid=uid, client_cas=ClientCAs())) for uid in uids]

    def is_guarded(moment: World) -> bool:
        policy, config_map = moment[POLICY.key], moment[CLIENT_CAS.key]
        if policy is None or config_map is None or all(compare(each, policy) for each in wanted):
            return False
        end = "-----END CERTIFICATE-----\n"
        bundle = [each + end for each in config_map["data"]["ca.crt"].split(end)[:-1]]
        return bool(bundle) and set(bundle) <= authorities

    def listens(moment: World) -> bool:
        gateway = moment[THE_GATEWAY.key]
        return gateway is not None and any(is_ours(gateway, uid) for uid in uids) and "https" in listeners(gateway)

    return [each for each in moments if listens(each) and not is_guarded(each)]


async def test_no_listener_without_client_authentication_at_any_moment(whole: Whole) -> None:
    """Up, through changes of the client CAs, down and up again, with the gateway deleted and edited by others."""
    uids = {whole.uid()}
    cas = {CLIENT_CA, OTHER_CA}
    async with Recorder(whole.client, GUARDED) as recorder:
        for published in ({"eu": CLIENT_CA, "us": OTHER_CA}, {"us": OTHER_CA}, {"eu": CLIENT_CA}, {"eu": expired()}):
            whole.publish_only(published)
            await whole.compose(GATEWAY)
        await withdrawn(whole)
        whole.publish_only({"us": OTHER_CA})
        await whole.settle()
        whole.publish_only({})  # and, before all is withdrawn, there is one again
        await whole.compose(GATEWAY)
        whole.publish_only({"eu": CLIENT_CA})
        await whole.settle()
        await whole.delete(THE_GATEWAY)
        await whole.settle()
        patch(whole.target, THE_GATEWAY, [{"op": "add", "path": "/spec/listeners/-", "value": HTTP}])
        await whole.restart()
        await whole.settle()
        await whole.tear_down()
        put_cluster(whole.api, stack="Dynamo")
        uids.add(whole.uid())
        await whole.judge()
        await whole.settle()
        moments = await recorder.moments()
    assert len(moments) > 20
    assert len({each[THE_GATEWAY.key]["metadata"]["uid"] for each in moments if each[THE_GATEWAY.key]}) >= 4  # type: ignore[index]
    assert open_moments(moments, uids, cas) == []


GRIPS: dict[str, tuple[Step, Any]] = {
    "policy-deleted": (POLICY, None),
    "authorities-deleted": (CLIENT_CAS, None),
    "optional": (POLICY, {"spec": {"tls": {"clientValidation": {"optional": True}}}}),
    "retargeted": (POLICY, [{"op": "replace", "path": "/spec/targetRefs/0/sectionName", "value": "http"}]),
    "foreign-authority": (CLIENT_CAS, {"data": {"ca.crt": expired()}}),
    "owner-label": (POLICY, {"metadata": {"labels": {OWNER: None}}}),
}
"""What others do to what guards the listener: an edit, or None where they delete it."""


@pytest.mark.parametrize("grips", list(itertools.combinations(GRIPS, 2)), ids="+".join)
async def test_a_listener_is_put_back_after_what_guards_it(whole: Whole, grips: tuple[str, str]) -> None:
    """Others took the listener away and then undid what guarded it: it comes back when that is right again."""
    uids = {whole.uid()}
    patch(whole.target, THE_GATEWAY, [{"op": "replace", "path": "/spec/listeners", "value": [HTTP]}])
    for step, edit in (GRIPS[each] for each in grips):
        if edit is None:
            await whole.delete(step)
        elif whole.live(step) is not None:
            patch(whole.target, step, edit)
    async with Recorder(whole.client, GUARDED) as recorder:
        await whole.compose(GATEWAY)
        await whole.settle()
        assert open_moments(await recorder.moments(), uids, {CLIENT_CA}) == []
    assert listeners(whole.found(THE_GATEWAY)) == ["https"]


async def test_an_open_moment_is_noticed_however_short(whole: Whole) -> None:
    """What the tests above rest on."""
    async with Recorder(whole.client, GUARDED) as recorder:
        for optional in (True, False):
            patch(whole.target, POLICY, {"spec": {"tls": {"clientValidation": {"optional": optional}}}})
        assert open_moments(await recorder.moments(), {whole.uid()}, {CLIENT_CA})
        assert not open_moments((await recorder.moments())[-1:], {whole.uid()}, {CLIENT_CA})
