"""`serving-stack explain` as a person runs it: a hub and a target on real API servers, whatever stands how."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web

from functions.clusters import ORPHAN, InferenceCluster
from functions.compose.explain import explain as explain_objects
from functions.compose.ownership import hand_over_command
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import FINALIZER, Controllers
from tests.cli.explaining import CLIENT_CAS, CLUSTER, POLICY, ROOT, SERVICE, THE_GATEWAY, explain, explained, shown
from tests.compose.apart import MERGE, release
from tests.compose.certificates import expired
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, step_of
from tests.faults import Fault
from tests.support import apply, get_cluster, hold, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from functions.compose.step import Step
    from functions.local.instance import ControlPlane
    from tests.compose.apart import Apart

EVERYTHING = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}


def patch(stage: Apart, step: Step, content: dict[str, Any]) -> None:
    """Somebody changes an object on the target."""
    assert stage.away.api.request("PATCH", step.path, content, content_type=MERGE).status == 200


def say(stage: Apart, *conditions: dict[str, str]) -> None:
    """Writes conditions of the InferenceCluster, beside those it has."""
    present = {each["type"]: each for each in get_cluster(stage.api).get("status", {}).get("conditions", ())}
    said = {each["type"]: {"reason": "Said", "message": "", **each} for each in conditions}
    status = {"status": {"conditions": [*(present | said).values()]}}
    assert stage.api.request("PATCH", f"{CLUSTER}/status", status, content_type=MERGE).status == 200


async def test_everything_applied_and_ready_is_0(away: Apart) -> None:
    await away.bring_up()
    before, asked = away.objects(), len(away.faulty.asked)
    resource_version = get_cluster(away.api)["metadata"]["resourceVersion"]
    done = await explain(away.hub.kubeconfig)
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.endswith("\n21 of 21 objects applied and ready\n")
    data = await explained(away)
    for composition in COMPOSITIONS:
        assert data.states(composition) == dict.fromkeys(shown(composition), "Ready")
    assert (data.data["cluster"], data.data["stack"], data.data["exitCode"]) == ("gpu-1", "Dynamo", 0)
    assert [each["condition"]["reason"] for each in data.data["sets"]] == ["Applied"] * 3
    assert data.object(SERVICE) == {
        "apiVersion": "v1",
        "kind": "Service",
        "namespace": "default",
        "name": "modelexpress-server",
        "state": "Ready",
        "applied": True,
        "ready": True,
        "waitsFor": "",
        "detail": "",
        "since": "",
        "next": "",
    }
    assert {each.partition(" ")[0] for each in away.faulty.asked[asked:]} == {"GET"}
    assert away.objects() == before
    assert get_cluster(away.api)["metadata"]["resourceVersion"] == resource_version


async def test_reading_is_all_that_it_needs(away: Apart) -> None:
    put_kubeconfig(away.api, away.away.kubeconfig_for("reader", rules=[EVERYTHING]).read_bytes())
    await away.judge()
    done = await explain(away.hub.kubeconfig_for("reader", rules=[EVERYTHING]), "gpu-1", "-o", "json")
    assert (done.code, done.data["summary"]["unknown"]) == (1, 0)


async def test_what_was_not_judged_is_what_it_waits_for(away: Apart) -> None:
    done = await explained(away)
    assert done.code == 1
    found = done.object(ROOT)
    assert (found["state"], found["applied"], found["next"]) == ("Waiting", False, "apply")
    assert (found["waitsFor"], found["detail"]) == ("kai-scheduler", "the functions have not judged it yet")
    assert done.object(SERVICE)["state"] == "Due"
    assert [each["condition"] for each in done.data["sets"]] == [None] * 3


async def test_the_one_requirement_is_that_which_it_has_waited_for_longest(away: Apart) -> None:
    away.publish_ca()
    now = datetime.now(UTC)
    minutes = {"EnvoyGatewayProvided": 2, "AiGatewayCrdsProvided": 8, "GaieCrdsProvided": 3}
    say(
        away,
        *(
            {"type": each, "status": "False", "message": f"{each} said so", "lastTransitionTime": moment(now, ago)}
            for each, ago in minutes.items()
        ),
    )
    found = (await explained(away)).object(THE_GATEWAY)
    assert (found["waitsFor"], found["since"]) == ("ai-gateway-crds", moment(now, 8))
    assert found["detail"] == "AiGatewayCrdsProvided said so; then envoy-gateway, gaie-crds"
    said = (await explain(away.hub.kubeconfig)).line
    assert "to be applied; waits for ai-gateway-crds for 8m: AiGatewayCrdsProvided said so; then" in said


def moment(now: datetime, minutes_ago: float) -> str:
    return (now - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_an_object_waits_for_the_one_before_it_with_its_time(away: Apart) -> None:
    away.publish_ca()
    await away.judge()
    await away.compose()
    done = await explained(away)
    certificate = done.object(step_of(GATEWAY, "Certificate modelplane-cluster-ca"))
    assert (certificate["state"], certificate["applied"], certificate["ready"]) == ("NotReady", True, False)
    assert certificate["waitsFor"] == "Certificate modelplane-system/modelplane-cluster-ca"
    issuer = done.object(step_of(GATEWAY, "Issuer modelplane-cluster-ca"))
    assert (issuer["state"], issuer["waitsFor"]) == ("Waiting", certificate["waitsFor"])
    assert issuer["since"] == certificate["since"] != ""
    config_map = done.object(step_of(GATEWAY, "ConfigMap modelplane-cluster-ca"))
    assert (config_map["waitsFor"], config_map["next"]) == ("Bundle modelplane-cluster-ca", "")


async def test_an_api_that_is_not_served_is_named(hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    met = {"type": "KaiSchedulerProvided", "status": "True", "reason": "Provided", "message": ""}
    status = {"status": {"conditions": [{**met, "lastTransitionTime": "2026-12-01T04:00:00Z"}]}}
    assert hub.api.request("PATCH", f"{CLUSTER}/status", status, content_type=MERGE).status == 200
    done = await explain(hub.kubeconfig, "gpu-1", "-o", "json")
    assert (done.code, done.object(ROOT)["waitsFor"]) == (1, "CRD queues.scheduling.run.ai serving v2")


async def test_a_conflict_names_the_owner_and_how_to_hand_over(away: Apart) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE.name},
        "spec": {"ports": [{"port": 1}]},
    }
    apply(away.away.api, SERVICE.path, theirs)
    done = await explained(away)
    found = done.object(SERVICE)
    assert (done.code, found["state"], found["applied"], found["next"]) == (1, "Conflict", False, "")
    command = hand_over_command(SERVICE)
    assert found["detail"] == f"it was made by modelplane-local; delete it, or hand it over on the target: {command}"
    text = (await explain(away.hub.kubeconfig)).stdout
    assert command in " ".join(text.replace("\\\n", "").split())

    patch(away, SERVICE, {"metadata": {"annotations": {"modelplane.ai/adopt": "true"}}})
    found = (await explained(away)).object(SERVICE)
    assert (found["state"], found["next"]) == ("Due", "adopt")


async def test_what_differs_is_put_right_unless_the_functions_say_that_it_cannot(away: Apart) -> None:
    await away.judge()
    await away.compose(MODELEXPRESS)
    patch(away, SERVICE, {"spec": {"ports": [{"name": "http", "port": 80}]}})
    done = await explained(away)
    found = done.object(SERVICE)
    assert (done.code, found["state"], found["applied"], found["next"]) == (1, "Due", False, "put right")
    assert "spec.ports" in found["detail"]

    insisted = "an admission webhook keeps it otherwise: spec.ports"
    said = {
        "type": "ModelExpressComposed",
        "status": "False",
        "reason": "Conflict",
        "message": f"Role default/modelexpress-server: other; {SERVICE}: {insisted}; waiting for {SERVICE}: Deployment",
        "lastTransitionTime": "2026-12-01T04:00:00Z",
    }
    say(away, said)
    found = (await explained(away)).object(SERVICE)
    assert (found["state"], found["detail"], found["since"]) == ("Conflict", insisted, "2026-12-01T04:00:00Z")


async def test_what_was_refused_says_why(away: Apart) -> None:
    await away.judge()
    away.faulty.faults.append(denying(ROOT))
    await away.compose(QUEUES)
    done = await explained(away)
    found = done.object(ROOT)
    assert (done.code, found["state"], found["applied"]) == (1, "Refused", False)
    assert found["detail"] == 'admission webhook "queues.example" denied the request: no queue without an owner'
    assert found["since"] == away.condition(QUEUES)["lastTransitionTime"]


def denying(step: Step) -> Fault:
    """A webhook denies each write of an object."""

    async def answer(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method == "GET":
            return await real()
        message = 'admission webhook "queues.example" denied the request: no queue without an owner'
        status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": message}
        return web.json_response(status, status=403)

    return Fault(step.path, answer, exact=True)


async def test_without_a_client_ca_the_listener_waits_or_goes(away: Apart) -> None:
    await away.judge()
    for step in (CLIENT_CAS, POLICY, THE_GATEWAY):
        found = (await explained(away)).object(step)
        assert (found["state"], found["waitsFor"], found["next"]) == ("Waiting", "a client CA", "apply")
        assert found["detail"] == "no InferenceGateway has published a client CA"

    await away.bring_up()
    away.withdraw_ca()
    done = await explained(away)
    listener = done.object(THE_GATEWAY)
    assert (listener["state"], listener["applied"], listener["next"]) == ("Due", True, "delete")
    assert listener["detail"] == "no InferenceGateway has published a client CA"
    for step in (CLIENT_CAS, POLICY):
        found = done.object(step)
        assert (found["state"], found["waitsFor"], found["next"]) == ("Waiting", str(THE_GATEWAY), "delete")


async def test_a_client_ca_that_is_left_out_is_named(away: Apart) -> None:
    away.publish_ca("eu")
    away.publish_ca("us", expired())
    done = await explained(away)
    (left_out,) = done.data["sets"][0]["leftOut"]
    assert left_out.startswith("client CA of InferenceGateway us: it expired on 2")
    assert f"Left out: {left_out}" in (await explain(away.hub.kubeconfig)).line


async def test_a_deletion_from_the_first_object_to_the_last(away: Apart) -> None:
    hold(away.api, CLUSTER, ["example.com/hold"])
    await away.bring_up()
    away.delete()
    done = await explained(away)
    assert (done.code, [*done.states(GATEWAY)]) == (1, [each.key for each in reversed(GATEWAY.steps)])
    assert (done.object(THE_GATEWAY)["state"], done.object(THE_GATEWAY)["next"]) == ("Due", "delete")
    last = done.object(step_of(GATEWAY, "EnvoyProxy cluster-gateway"))
    assert (last["state"], last["applied"], last["waitsFor"]) == ("Waiting", True, str(THE_GATEWAY))

    await away.compose()
    done = await explained(away)
    listener = done.object(THE_GATEWAY)
    assert (done.code, listener["state"], listener["applied"]) == (1, "Removing", True)
    assert listener["detail"] == f"is being deleted, held by finalizer {FINALIZER}"
    assert done.object(POLICY)["since"] == listener["since"] == deleted_at(away, THE_GATEWAY)
    assert set(done.states(QUEUES).values()) == {"Gone"}

    away.time.moment += timedelta(minutes=10)
    (blocked, *others) = (await look(away))[GATEWAY.name]
    assert (blocked.step, blocked.standing, blocked.since) == (THE_GATEWAY, "Blocked", listener["since"])
    assert "is envoy-gateway, which has to let it go, running?" in blocked.detail
    assert {each.waits_for for each in others} == {str(THE_GATEWAY)}

    release(away.away.api, THE_GATEWAY.path, FINALIZER)
    async with Controllers(away.client):
        await away.until(lambda: away.holders() == ["example.com/hold"])
    done = await explain(away.hub.kubeconfig)
    assert (done.code, done.stderr) == (0, "")
    assert "held by example.com/hold" in done.line
    assert done.stdout.endswith("\n23 of 23 objects gone, or left to others\n")
    hold(away.api, CLUSTER, None)


def deleted_at(stage: Apart, step: Step) -> str:
    return str(stage.away.api.request("GET", step.path).body["metadata"]["deletionTimestamp"])


async def look(stage: Apart) -> dict[str, Sequence[Any]]:
    """What is found at the time of the functions, by set."""
    cluster = InferenceCluster.from_object(get_cluster(stage.api))
    return {each.composition.name: each.objects for each in (await explain_objects(stage.world, cluster)).sets}


async def test_what_is_not_ours_stays_and_what_is_left_behind_too(away: Apart) -> None:
    hold(away.api, CLUSTER, ["example.com/hold"])
    theirs = {"apiVersion": ROOT.kind.api_version, "kind": "Queue", "metadata": {"name": ROOT.name}, "spec": {}}
    apply(away.away.api, ROOT.path, theirs)
    await away.judge()
    await away.compose(MODELEXPRESS)
    away.delete()
    done = await explained(away)
    assert (done.object(ROOT)["state"], done.object(ROOT)["applied"]) == ("Kept", False)
    assert done.object(ROOT)["detail"] == "it is not ours: it was made by modelplane-local"
    assert done.object(SERVICE)["state"] == "Waiting"

    away.annotate(ORPHAN, "true")
    done = await explained(away)
    assert (done.code, set(done.states(MODELEXPRESS).values())) == (0, {"Kept"})
    await away.compose()
    away.annotate(ORPHAN, None)
    done = await explained(away)
    assert (done.code, done.object(SERVICE)["state"], done.object(SERVICE)["applied"]) == (0, "Kept", True)
    assert done.object(SERVICE)["detail"] == "the InferenceCluster is not held for it any more"
    hold(away.api, CLUSTER, None)
