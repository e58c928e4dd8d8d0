"""What admission refuses, changes or cannot be asked for: named in its words, and not fought."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from functions.compose.gateway import NAMESPACE as SYSTEM
from functions.demo.controllers import Controllers
from tests.compose.apart import MERGE, PLAIN_QUEUE, namespace_of_others, tried, wait_for
from tests.compose.stage import GATEWAY, MODELEXPRESS, QUEUES, applied, step_of
from tests.faults import Fault
from tests.support import apply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from aiohttp import web

    from functions.compose.step import Step
    from functions.local.api import Api
    from tests.compose.apart import Apart

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NAMESPACE = step_of(GATEWAY, f"Namespace {SYSTEM}")
THE_GATEWAY = step_of(GATEWAY, "Gateway cluster-gateway")
POLICY = step_of(GATEWAY, "ClientTrafficPolicy cluster-gateway-client-auth")
ROOT, QUEUE = QUEUES.steps


def rules_for(step: Step, *operations: str) -> list[dict[str, Any]]:
    return [
        {
            "apiGroups": [step.kind.group],
            "apiVersions": [step.kind.version],
            "resources": [step.kind.plural],
            "operations": list(operations),
        }
    ]


@contextmanager
def admission(stage: Apart, kind: str, spec: dict[str, Any], probe: Callable[[], bool]) -> Iterator[None]:
    """An admission policy of this kind is in force for a while: until `probe` says so, and until it says no more."""
    plural = f"{kind.lower()[:-1]}ies"
    api = stage.away.api
    policy = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "tests"}}
    bound: dict[str, Any] = {"policyName": "tests"}
    if kind == "ValidatingAdmissionPolicy":
        bound["validationActions"] = ["Deny"]
    apply(api, f"{ADMISSION}/{plural}/tests", {**policy, "kind": kind, "spec": spec})
    apply(api, f"{ADMISSION}/{kind.lower()}bindings/tests", {**policy, "kind": f"{kind}Binding", "spec": bound})
    try:
        wait_for(probe, "the policy to be in force")
        yield
    finally:
        api.request("DELETE", f"{ADMISSION}/{kind.lower()}bindings/tests")
        api.request("DELETE", f"{ADMISSION}/{plural}/tests")
        wait_for(lambda: not probe(), "the policy to be out of force")


def denial(step: Step, *operations: str) -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules_for(step, *operations)},
        "validations": [{"expression": "false", "message": "the platform team says no"}],
    }


async def test_what_admission_denies_is_refused_in_its_words_and_the_rest_goes_on(away: Apart) -> None:
    await away.judge()
    api = away.away.api
    with admission(
        away, "ValidatingAdmissionPolicy", denial(ROOT, "CREATE"), lambda: tried(api, ROOT, PLAIN_QUEUE).status == 422
    ):
        await away.compose()
        for _ in range(3):
            answer = await away.handled(QUEUES)
            assert answer.status == 200, "asking for a redelivery would not help"
        state, reason, message = away.says(QUEUES)
        assert (state, reason) == ("False", "Refused")
        assert message.startswith(f"{ROOT}: ")
        assert "the platform team says no" in message
        assert f"waiting for {ROOT}: {QUEUE}" in message
        assert away.ours(MODELEXPRESS) == applied(MODELEXPRESS)
    await away.compose(QUEUES, tick=True)
    assert away.says(QUEUES)[:2] == ("True", "Applied")


async def test_a_repair_that_admission_denies_is_a_conflict_that_names_the_field(away: Apart) -> None:
    await away.judge()
    await away.compose(QUEUES)
    api = away.away.api
    drift = {"spec": {"resources": {"gpu": {"limit": 8}}}}
    assert api.request("PATCH", ROOT.path, drift, content_type=MERGE).status == 200
    with admission(
        away,
        "ValidatingAdmissionPolicy",
        denial(ROOT, "UPDATE"),
        lambda: touched(api, ROOT).status == 422,
    ):
        await away.compose(QUEUES)
        state, reason, message = away.says(QUEUES)
        assert (state, reason) == ("False", "Conflict")
        assert "spec.resources.gpu.limit" in message
        assert "the platform team says no" in message
    await away.compose(QUEUES, tick=True)
    assert away.says(QUEUES)[:2] == ("True", "Applied")
    assert away.found(ROOT)["spec"]["resources"]["gpu"]["limit"] == -1


def touched(api: Api, step: Step) -> Any:
    """The answer to a change that is only tried."""
    patch = {"metadata": {"labels": {"tests.example.com/tried": "true"}}}
    return api.request("PATCH", f"{step.path}?dryRun=All", patch, content_type=MERGE)


def mutation(step: Step, expression: str) -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": rules_for(step, "CREATE", "UPDATE")},
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
    }


def limited(api: Api) -> bool:
    """Whether the mutation of the next test is in force."""
    answer = tried(api, ROOT, PLAIN_QUEUE)
    return "resources" in answer.body.get("spec", {})


@pytest.mark.parametrize("later", [False, True], ids=["from the start", "later"])
async def test_a_mutation_that_insists_is_named_not_fought_and_put_right_when_it_is_gone(
    away: Apart, *, later: bool
) -> None:
    written: list[str] = []

    async def note(request: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        if request.method != "GET" and "dryRun" not in request.query:
            written.append(request.path)
        return await real()

    gpu = "Object.spec.resources{gpu: Object.spec.resources.gpu{limit: 8.0}}"
    insists = mutation(ROOT, f"Object{{spec: Object.spec{{resources: {gpu}}}}}")
    api = away.away.api
    await away.judge()
    if later:
        await away.compose(QUEUES)
    with admission(away, "MutatingAdmissionPolicy", insists, lambda: limited(api)):
        if later:
            touch = {"metadata": {"labels": {"a": "b"}}}
            assert api.request("PATCH", ROOT.path, touch, content_type=MERGE).status == 200
        await away.compose(QUEUES)
        state, reason, message = away.says(QUEUES)
        assert (state, reason) == ("False", "Conflict")
        assert f"{ROOT}: " in message
        assert "spec.resources.gpu.limit" in message
        at_rest = away.version(ROOT)
        away.faulty.faults.append(Fault("/", note))
        for minute in range(3):
            for _ in range(3):
                await away.compose(QUEUES, tick=minute > 0)
            await away.time.sleep(60)
        assert away.version(ROOT) == at_rest
        assert len(written) <= 1, "no more than one try where nothing changed"
        assert away.says(QUEUES) == (state, reason, message)
    await away.time.sleep(60)
    await away.compose(QUEUES, tick=True)
    assert away.says(QUEUES)[:2] == ("True", "Applied")
    assert away.found(ROOT)["spec"]["resources"]["gpu"]["limit"] == -1


LETS_IN = "Object.spec.tls{clientValidation: Object.spec.tls.clientValidation{optional: true}}"


async def test_a_mutation_that_lets_callers_in_without_a_certificate_is_named(away: Apart) -> None:
    """It adds to what was applied, which nobody owns then, so that it looks like a default of the API server's."""
    api = away.away.api
    namespace_of_others(api, **{"modelplane.ai/namespace": SYSTEM})
    away.publish_ca()
    await away.judge()
    plain = {"apiVersion": POLICY.kind.api_version, "kind": POLICY.kind.name, "metadata": {}}
    plain["spec"] = {
        "targetRefs": [{"group": THE_GATEWAY.kind.group, "kind": "Gateway", "name": "cluster-gateway"}],
        "tls": {"clientValidation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "x"}]}},
    }

    def in_force() -> bool:
        found = tried(api, POLICY, plain).body.get("spec", {})
        return bool(found.get("tls", {}).get("clientValidation", {}).get("optional"))

    insists = mutation(POLICY, f"Object{{spec: Object.spec{{tls: {LETS_IN}}}}}")
    with admission(away, "MutatingAdmissionPolicy", insists, in_force):
        await away.compose(GATEWAY)
        assert away.found(POLICY)["spec"]["tls"]["clientValidation"]["optional"] is True
        state, reason, message = away.says(GATEWAY)
        assert (state, reason) == ("False", "Conflict")
        assert "spec.tls.clientValidation.optional" in message
        assert away.live(THE_GATEWAY) is None


async def test_a_quota_refuses_in_its_words(away: Apart) -> None:
    api = away.away.api
    namespace_of_others(api)
    counted = f"count/{POLICY.kind.plural}.{POLICY.kind.group}"
    path = f"/api/v1/namespaces/{SYSTEM}/resourcequotas/tight"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": {counted: "0"}},
    }
    apply(api, path, quota)
    used = {"status": {"hard": {counted: "0"}, "used": {counted: "0"}}}  # as its controller would write
    assert api.request("PATCH", f"{path}/status", used, content_type=MERGE).status == 200
    away.publish_ca()
    await away.judge()
    await away.compose(GATEWAY)
    state, reason, message = away.says(GATEWAY)
    assert (state, reason) == ("False", "Refused")
    assert f"{POLICY}: " in message
    assert "exceeded quota: tight" in message
    assert api.request("DELETE", path).status == 200
    async with Controllers(away.client):
        await away.settle(GATEWAY)


async def test_a_webhook_that_cannot_be_called_is_tried_again_by_the_broker(away: Apart) -> None:
    path = f"{ADMISSION}/validatingwebhookconfigurations/tests"
    webhook = {
        "name": "queues.tests.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": rules_for(ROOT, "CREATE"),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    manifest = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "tests"},
        "webhooks": [webhook],
    }
    api = away.away.api
    await away.judge()
    apply(api, path, manifest)
    try:
        wait_for(lambda: tried(api, ROOT, PLAIN_QUEUE).status == 500, "the webhook to be called")
        answer = await away.handled(QUEUES)
        assert answer.status == 503
        assert "failed calling webhook" in answer.body
        state, reason, message = away.says(QUEUES)
        assert (state, reason) == ("Unknown", "ServerError")
        assert 'failed calling webhook "queues.tests.example.com"' in message
        assert (await away.handled(QUEUES, tick=True)).status == 204, "the next tick comes by itself"
    finally:
        assert api.request("DELETE", path).status == 200
    wait_for(lambda: tried(api, ROOT, PLAIN_QUEUE).status == 201, "the webhook to be called no more")
    await away.compose(QUEUES)
    assert away.says(QUEUES)[:2] == ("True", "Applied")
