"""Others live on the target too: in our namespace, on our class, with a cluster of their own: what is theirs stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose import kinds
from functions.compose.sets import COMPOSITIONS
from functions.compose.step import Step
from functions.demo.controllers import Controllers
from tests.compose.apart import MERGE
from tests.compose.foreign import SOMEBODY, WITHIN, plant, settled, theirs
from tests.compose.stage import GATEWAY, applied, step_of
from tests.support import CLUSTERS, conditions, put_cluster

if TYPE_CHECKING:
    from functions.compose.step import Composition
    from functions.local.api import Api
    from tests.compose.apart import Apart

OWNER = "modelplane.ai/inference-cluster"
OWNER_UID = "modelplane.ai/inference-cluster-uid"
ROUTES_FROM = "modelplane.ai/namespace"
CERTIFICATE_NAME = "cert-manager.io/certificate-name"
NAMESPACE = step_of(GATEWAY, "Namespace modelplane-system")
THE_CLASS = step_of(GATEWAY, "GatewayClass envoy")
PROXY = step_of(GATEWAY, "EnvoyProxy cluster-gateway")
ISSUER = step_of(GATEWAY, "Issuer modelplane-selfsigned")
CERTIFICATE = step_of(GATEWAY, "Certificate modelplane-cluster-ca")
CLIENT_CAS = step_of(GATEWAY, "ConfigMap modelplane-inference-gateway-cas")
SECRET = step_of(GATEWAY, "Secret modelplane-cluster-ca")
TRUST_MANAGER = Step(kind=kinds.DEPLOYMENT, name="trust-manager", namespace="modelplane-system")
THEIR_GATEWAY = Step(kind=kinds.GATEWAY, name="theirs", namespace="theirs")
LABELS = {"app": "trust-manager"}
POD = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "it", "image": "example.com/trust-manager:1"}]}}
RUNNING = {"spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": POD}}
LISTENER = {"name": "http", "protocol": "HTTP", "port": 80}
USING_ENVOY = {"spec": {"gatewayClassName": "envoy", "listeners": [LISTENER]}}


def label(stage: Apart, step: Step, **labels: str) -> dict[str, Any]:
    """Somebody labels an object; answers with it."""
    patch = {"metadata": {"labels": labels}}
    answer = stage.away.api.request("PATCH", f"{step.path}?fieldManager={SOMEBODY}", patch, content_type=MERGE)
    assert answer.status == 200, answer
    return dict(answer.body)


def marks(found: dict[str, Any] | None) -> set[str]:
    """What of ours an object carries that says whose it is, or what for."""
    assert found is not None
    metadata = found["metadata"]
    return {OWNER, OWNER_UID, ROUTES_FROM} & {*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})}


def plain(found: dict[str, Any] | None) -> dict[str, Any]:
    """An object without what changes whenever anybody writes to it."""
    assert found is not None
    noted = {"managedFields", "resourceVersion"}
    metadata = {key: value for key, value in found["metadata"].items() if key not in noted}
    return {**found, "metadata": metadata}


def told(api: Api, uid: str, reason: str) -> list[str]:
    """What was told of an InferenceCluster for this reason."""
    events = api.request("GET", f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.uid={uid}")
    return [each["message"] for each in events.body["items"] if each["reason"] == reason]


async def test_a_namespace_of_others_gets_a_label_and_nothing_more_and_loses_it_at_teardown(away: Apart) -> None:
    namespace = plant(away.away.api, NAMESPACE, {})
    namespace = label(away, NAMESPACE, team="theirs")
    plant(away.away.api, TRUST_MANAGER, RUNNING)
    async with Controllers(away.client):
        trust_manager = theirs(await settled(away.away.api, TRUST_MANAGER))
        await away.judge()
        await away.compose(GATEWAY)
        assert marks(away.live(NAMESPACE)) == {ROUTES_FROM}
        assert theirs(away.live(TRUST_MANAGER)) == trust_manager
        assert away.live(ISSUER) is not None
        away.delete()
        await away.finish(within=WITHIN)
    assert away.ours(GATEWAY) == []
    assert plain(away.live(NAMESPACE)) == plain(namespace)
    assert theirs(away.live(TRUST_MANAGER)) == trust_manager


async def test_a_namespace_of_ours_stays_without_our_marks_when_others_live_in_it(away: Apart) -> None:
    async with Controllers(away.client):
        await away.judge()
        await away.compose(GATEWAY)
        assert marks(away.live(NAMESPACE)) == {OWNER, OWNER_UID, ROUTES_FROM}
        plant(away.away.api, TRUST_MANAGER, RUNNING)
        trust_manager = theirs(await settled(away.away.api, TRUST_MANAGER))
        uid = away.uid()
        away.delete()
        await away.finish(within=WITHIN)
    found = away.live(NAMESPACE)
    assert marks(found) == set()
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
    assert theirs(away.live(TRUST_MANAGER)) == trust_manager
    said = "Namespace modelplane-system stays: deployments/trust-manager lives in it"
    assert [each for each in told(away.api, uid, "Removed") if said in each]


async def test_a_namespace_of_ours_goes_when_nobody_lives_in_it(away: Apart) -> None:
    async with Controllers(away.client):
        await away.judge()
        await away.compose(GATEWAY)
        assert away.live(NAMESPACE) is not None
        away.delete()
        await away.finish(within=WITHIN)
    assert away.live(NAMESPACE) is None


async def test_a_class_that_others_use_stays_with_all_that_it_needs_and_is_theirs_then(away: Apart) -> None:
    away.publish_ca()
    await away.judge()
    async with Controllers(away.client):
        await away.settle(GATEWAY, within=WITHIN)
        plant(away.away.api, THEIR_GATEWAY, USING_ENVOY)
        gateway = theirs(await settled(away.away.api, THEIR_GATEWAY))
        uid = away.uid()
        before = {each: away.live(each) for each in (THE_CLASS, PROXY)}
        away.delete()
        await away.finish(within=WITHIN)
    assert away.ours(GATEWAY) == []
    for each in (NAMESPACE, THE_CLASS, PROXY):
        assert marks(away.live(each)) == set()
    for each, was in before.items():
        found = away.live(each)
        assert was is not None
        assert found is not None
        assert (found["metadata"]["uid"], found["spec"]) == (was["metadata"]["uid"], was["spec"])
    assert theirs(away.live(THEIR_GATEWAY)) == gateway
    (said,) = (each for each in told(away.api, uid, "Removed") if each.startswith("GatewayComposed"))
    assert "GatewayClass envoy stays: Gateway theirs/theirs uses it" in said
    assert f"{PROXY} stays: GatewayClass envoy stays and needs it" in said
    assert f"{NAMESPACE} stays: {PROXY} stays and needs it" in said


@pytest.mark.parametrize(
    ("annotations", "goes"),
    [
        pytest.param({CERTIFICATE_NAME: "modelplane-cluster-ca"}, True, id="made for ours"),
        pytest.param({}, False, id="nobody says what for"),
        pytest.param({CERTIFICATE_NAME: "theirs"}, False, id="made for another"),
    ],
)
async def test_the_secret_of_a_certificate_of_ours_goes_if_it_was_made_for_it(
    away: Apart,
    annotations: dict[str, str],
    goes: bool,  # noqa: FBT001 - what is expected
) -> None:
    await away.judge()
    await away.compose(GATEWAY)
    assert away.live(CERTIFICATE) is not None
    secret = put_secret(away, annotations)
    away.delete()
    await away.finish(within=WITHIN)
    assert away.live(CERTIFICATE) is None
    assert away.live(SECRET) == (None if goes else secret)
    assert (away.live(NAMESPACE) is None) is goes


async def test_the_secret_of_a_certificate_of_others_stays(away: Apart) -> None:
    spec = {"secretName": "modelplane-cluster-ca", "dnsNames": ["example.com"], "issuerRef": {"name": "theirs"}}
    certificate = plant(away.away.api, CERTIFICATE, {"spec": spec})
    secret = put_secret(away, {CERTIFICATE_NAME: "modelplane-cluster-ca"})
    await away.judge()
    await away.compose(GATEWAY)
    assert away.live(ISSUER) is not None
    away.delete()
    await away.finish(within=WITHIN)
    assert away.live(CERTIFICATE) == certificate
    assert away.live(SECRET) == secret


def put_secret(stage: Apart, annotations: dict[str, str]) -> dict[str, Any]:
    """The Secret that the cluster CA's Certificate names."""
    plant(stage.away.api, SECRET, {"type": "kubernetes.io/tls", "data": {"tls.crt": "", "tls.key": ""}})
    patch = {"metadata": {"annotations": annotations}}
    answer = stage.away.api.request("PATCH", SECRET.path, patch, content_type=MERGE)
    assert answer.status == 200
    return dict(answer.body)


async def wake_second(stage: Apart, function: str) -> None:
    """Wakes a function for `gpu-2`."""
    await stage.deliver(function, replace(stage.check(), extensions={"cluster": "gpu-2"}))


async def second_is_gone(stage: Apart, *compositions: Composition) -> None:
    """Deletes `gpu-2` and wakes its sets until it is gone."""
    assert stage.api.request("DELETE", f"{CLUSTERS}/gpu-2").status == 200
    deadline = monotonic() + WITHIN
    while stage.api.request("GET", f"{CLUSTERS}/gpu-2").status == 200:
        assert monotonic() < deadline, conditions(stage.api, "gpu-2")
        for each in compositions:
            await wake_second(stage, f"compose/{each.name}")
        await asyncio.sleep(0)


async def test_the_second_cluster_on_a_target_is_told_of_the_first_and_leaves_it_alone(away: Apart) -> None:
    await away.bring_up()
    put_cluster(away.api, "gpu-2", stack="Dynamo")
    before = away.objects()
    await wake_second(away, "probes/sweep")
    for each in COMPOSITIONS:
        await wake_second(away, f"compose/{each.name}")
        condition = conditions(away.api, "gpu-2")[each.condition]
        assert (condition["status"], condition["reason"]) == ("False", "Conflict")
        step = step_of(each, applied(each)[-1])
        assert "it belongs to InferenceCluster gpu-1" in condition["message"]
        assert str(step) in condition["message"]
    assert away.objects() == before
    await second_is_gone(away, *COMPOSITIONS)
    assert away.objects() == before


async def test_the_second_cluster_leaves_the_namespace_of_the_first_as_it_is(away: Apart) -> None:
    await away.compose(GATEWAY)  # nothing is judged for it, so that it has but its namespace
    before = away.live(NAMESPACE)
    assert away.ours(GATEWAY) == [NAMESPACE.key]
    put_cluster(away.api, "gpu-2", stack="Dynamo")
    await wake_second(away, "probes/sweep")
    await wake_second(away, "compose/gateway")
    assert away.live(ISSUER) is not None
    await second_is_gone(away, GATEWAY)
    assert away.live(ISSUER) is None
    assert away.live(NAMESPACE) == before


@pytest.mark.parametrize("planted", [False, True], ids=["of the first", "of others"])
async def test_a_shared_namespace_keeps_its_label_while_another_cluster_needs_it(
    away: Apart,
    planted: bool,  # noqa: FBT001 - whose it is
) -> None:
    if planted:
        plant(away.away.api, NAMESPACE, {})
    await both_at_home(away)
    before = away.live(NAMESPACE)
    await second_is_gone(away, GATEWAY)
    assert away.live(CLIENT_CAS) is None
    assert away.live(NAMESPACE) == before


async def test_the_namespace_stays_with_its_label_for_the_second_cluster_when_the_first_goes(away: Apart) -> None:
    await both_at_home(away)
    client_cas = away.live(CLIENT_CAS)
    away.delete()
    await away.finish(within=WITHIN)
    assert marks(away.live(NAMESPACE)) == {ROUTES_FROM}
    assert away.live(ISSUER) is None
    assert away.live(CLIENT_CAS) == client_cas
    await second_is_gone(away, GATEWAY)
    assert marks(away.live(NAMESPACE)) == set()


async def both_at_home(stage: Apart) -> None:
    """Each of two clusters has some of the objects: the first what needs no client CA, the second what does."""
    await stage.judge()
    await stage.compose(GATEWAY)
    assert stage.live(ISSUER) is not None
    put_cluster(stage.api, "gpu-2", stack="Dynamo")
    await wake_second(stage, "probes/sweep")
    stage.publish_ca()
    await wake_second(stage, "compose/gateway")
    assert "Conflict" in conditions(stage.api, "gpu-2")[GATEWAY.condition]["reason"]
    assert stage.live(CLIENT_CAS) is not None
