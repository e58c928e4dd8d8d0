"""Each account gets exactly what the whole flow takes: with that alone it works, and without any rule it does not."""

from __future__ import annotations

import asyncio
import base64
import json
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from events import types
from events.event import Event
from functions.access import kubeconfig
from functions.access.client import MERGE_PATCH, Client
from functions.catalog import Stack
from functions.catalog import of_stack as components_of
from functions.compose import kinds
from functions.compose.client_cas import ClientCAs
from functions.compose.modelexpress import COMPOSITION as MODELEXPRESS
from functions.compose.rights import on_target as taken_by
from functions.compose.sets import COMPOSITIONS
from functions.compose.step import Inputs
from functions.demo.controllers import Controllers
from functions.deploy_files import deploy_directory
from functions.hub import GATEWAYS
from functions.local import substrate
from functions.local.api import Api
from functions.manifests.permissions import TARGET, hub_accounts, on_target
from functions.registry import FUNCTIONS
from functions.rights import Atom, atoms
from tests.manifests.installed import Asked, Installed, asked, install, path_of, permissions, user
from tests.support import (
    CLUSTERS,
    CRDS,
    apply,
    conditions,
    gone,
    install_hub,
    put_cluster,
    put_inference_gateway,
    put_kubeconfig,
)
from tests.support import install as install_substrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane

WITHIN = 60.0
STALE = "v1.cert-manager.io"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = monotonic() + WITHIN
    while not condition():
        assert monotonic() < deadline, what
        await asyncio.sleep(0.05)


def says(api: Api, type_: str) -> str:
    """Status and reason of a condition."""
    found = conditions(api).get(type_, {})
    return f"{found.get('status')}/{found.get('reason')}"


async def live(plane: ControlPlane, stack: Stack, installed: Installed, admin: Client) -> None:
    """Everything that happens to a cluster, from its registration to its end."""
    api = plane.api
    apply(
        api,
        f"{API_SERVICES}/{STALE}",
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": STALE},
            "spec": {
                "group": "cert-manager.io",
                "version": "v1",
                "service": {"name": "nobody", "namespace": "default"},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
            },
        },
    )
    put_kubeconfig(api, installed.target())
    put_cluster(api, stack=stack)
    await until(lambda: says(api, "CertManagerProvided") == "Unknown/Stale", "the stale API is not told")
    assert "APIService v1.cert-manager.io (ServiceNotFound)" in conditions(api)["CertManagerProvided"]["message"]
    api.request("DELETE", f"{API_SERVICES}/{STALE}")
    await until(lambda: says(api, "GatewayComposed").startswith("False/"), "nothing is said of the gateway")
    # The hub learns of InferenceGateways later.
    await install_inference_gateways(api)
    await install_substrate(admin, *(each.key for each in components_of(stack) if each.requirements))
    put_inference_gateway(api)
    composed = [each.condition for each in COMPOSITIONS if stack in each.stacks]
    await until(lambda: says(api, "RequirementsMet").startswith("True/"), str(conditions(api)))
    await until(lambda: all(says(api, each) == "True/Applied" for each in composed), str(conditions(api)))
    put_kubeconfig(api, installed.target())  # renewed
    await drift(api)
    await installed.tick()
    await installed.deliver("dead-letters", undelivered())
    await until(lambda: told(api), "the dead letter is not told")
    await delete(api)
    await gone(admin, kinds.SECRET.path(namespace="modelplane-system"), "modelplane-cluster-ca")
    # A second life, at the end of which definitions that are gone have to prove that nothing of their kinds is left.
    await substrate.remove(admin, "cert-manager")
    put_cluster(api, stack=stack)
    await until(lambda: "modelplane.ai/gateway" in finalizers(api), "nothing is composed")
    await delete(api)
    # A hub that has lost its definition: who is asked of a cluster looks whether that is so.
    api.request("DELETE", f"{CRDS}/inferenceclusters.modelplane.ai")
    await gone(admin, CRDS, "inferenceclusters.modelplane.ai")
    await until(lambda: api.request("GET", CLUSTERS).status == 404, "InferenceClusters are served still")
    for name in ("cluster", "probes/grove", f"compose/{COMPOSITIONS[0].name}", "dead-letters"):
        await installed.deliver(name, about_a_cluster())


async def install_inference_gateways(api: Api) -> None:
    definition = yaml.safe_load((deploy_directory() / "knative" / "crds" / "inferencegateways.yaml").read_text())
    apply(api, f"{CRDS}/{definition['metadata']['name']}", definition)
    await until(lambda: api.request("GET", GATEWAYS).status == 200, "InferenceGateways are not served")


async def drift(api: Api) -> None:
    """Somebody changes an object, which is put right."""
    path = kinds.GATEWAY.path("cluster-gateway", "modelplane-system")
    listeners = api.request("GET", path).body["spec"]["listeners"]
    more = [*listeners, {"name": "more", "port": 80, "protocol": "HTTP"}]
    api.request("PATCH", path, {"spec": {"listeners": more}}, content_type=MERGE_PATCH)
    await until(lambda: len(api.request("GET", path).body["spec"]["listeners"]) == 1, "the listener stays")


def undelivered() -> Event:
    extensions = {"cluster": "gpu-1", "knativeerrorcode": "503", "knativeerrordest": "http://x/probes/grove"}
    return Event(id="dead", source="/x", type=types.OBJECT_ADDED, extensions=extensions)


def told(api: Api) -> bool:
    items = api.request("GET", "/api/v1/namespaces/default/events").body["items"]
    return any(each["reason"] == "EventUndelivered" for each in items)


def about_a_cluster() -> Event:
    extensions = {"kind": "InferenceCluster", "name": "gpu-1", "cluster": "gpu-1"}
    return Event(id="late", source="/x", type=types.OBJECT_UPDATED, extensions=extensions)


async def delete(api: Api) -> None:
    assert api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200
    await until(lambda: api.request("GET", f"{CLUSTERS}/gpu-1").status == 404, f"it stays: {finalizers(api)}")


def finalizers(api: Api) -> list[str]:
    found = api.request("GET", f"{CLUSTERS}/gpu-1").body
    return list(found.get("metadata", {}).get("finalizers") or ())


def accounts(stack: Stack) -> dict[str, frozenset[Atom]]:
    """What each account is given."""
    hub = {name: atoms(rights) for name, rights in hub_accounts(FUNCTIONS.values()).items()}
    return {**hub, TARGET: atoms(on_target(stack))}


def use(each: Asked) -> list[Atom]:
    """What a request took; whoever creates by an apply takes the right to create as well."""
    created = each.verb == "patch" and each.code == 201
    verbs = (each.verb, "create") if created else (each.verb,)
    names = ("",) if each.verb == "create" else (each.name, "")
    namespaces = (each.namespace, "")
    return [
        Atom(namespace, each.group, each.resource, name, verb)
        for verb in verbs
        for name in names
        for namespace in namespaces
    ]


def not_taken_by_a_request(stack: Stack) -> set[Atom]:
    """What is needed all the same: what the server behind a Role is granted, and why an API is not served."""
    granted = {
        each
        for each in atoms(taken_by(MODELEXPRESS))
        if not each.name and each.namespace == "default" and stack is Stack.DYNAMO
    }
    return granted | {each for each in atoms(on_target(stack)) if each.resource == "apiservices" and each.name != STALE}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stack", Stack)
async def test_the_whole_flow_takes_exactly_what_is_given(
    start_control_plane: StartControlPlane, stack: Stack, tmp_path: Path
) -> None:
    plane = start_control_plane(audit=True)
    api = plane.api
    install_hub(api)
    api.request("DELETE", f"{CRDS}/inferencegateways.modelplane.ai")
    given = permissions("knative/base", f"target/{stack.lower()}")
    install(api, given)
    admin = Client(kubeconfig.load_file(plane.kubeconfig), timeout=30)
    async with Controllers(admin), Installed(plane, tmp_path / "events.jsonl") as installed:
        await live(plane, stack, installed, admin)
    await admin.close()
    requests = asked(plane.audit_log)
    refused = sorted(each for each in requests if each.code in {401, 403})
    assert not refused, "\n".join(map(str, refused))
    for account, may in accounts(stack).items():
        taken = {atom for each in requests if each.account == account for atom in use(each)}
        unused = may - taken - not_taken_by_a_request(stack)
        assert not unused, f"{account} does not take {sorted(unused)}"
    for each in given:
        if each["kind"] in {"Role", "ClusterRole"}:
            without_any_rule(plane, each, requests, stack)


def without_any_rule(plane: ControlPlane, role: dict[str, Any], requests: Iterable[Asked], stack: Stack) -> None:
    """Takes away each rule in turn, and sees that something is refused then."""
    account = role["metadata"]["name"].removeprefix("modelplane-serving-stack-")
    for number in range(len(role["rules"])):
        rest = {**role, "rules": [each for index, each in enumerate(role["rules"]) if index != number]}
        rule = role["rules"][number]
        if account.startswith("source-"):
            continue  # Knative's own controller asks for these, and refuses to start the source; tests/knative
        apply(plane.api, path_of(role), rest)
        deadline = monotonic() + 10
        mine = [each for each in requests if each.account == account and allows(rule, role["metadata"], each)]
        while not refuses(plane, account, mine, grants=stack is Stack.DYNAMO and account == TARGET):
            assert monotonic() < deadline, f"{account} does not need {rule}"
        apply(plane.api, path_of(role), role)


def refuses(plane: ControlPlane, account: str, requests: Iterable[Asked], *, grants: bool) -> bool:
    """Whether the API server refuses any of these, or the Role that an account grants."""
    return any(not may(plane.api, account, each) for each in requests) or (grants and not may_grant(plane))


def allows(rule: dict[str, Any], metadata: dict[str, Any], each: Asked) -> bool:
    """Whether a rule of the Role with this metadata allows a request."""
    namespace = metadata.get("namespace", "")
    return (
        each.group in rule["apiGroups"]
        and each.resource in rule["resources"]
        and each.verb in rule["verbs"]
        and (not namespace or each.namespace == namespace)
        and each.name in rule.get("resourceNames", (each.name,))
    )


def may(api: Api, account: str, each: Asked) -> bool:
    """What the API server's authorizer says."""
    resource, _, subresource = each.resource.partition("/")
    attributes = {
        "verb": each.verb,
        "group": each.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": each.namespace,
        "name": each.name,
    }
    spec = {"user": user(account), "groups": ["system:authenticated"], "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.request("POST", REVIEWS, review)
    assert answer.status == 201, answer
    return bool(answer.body["status"]["allowed"])


def may_grant(plane: ControlPlane) -> bool:
    """Whether the account on the target may create the Role that it applies, which it has to have itself."""
    api = target_api(plane)
    (step,) = [each for each in MODELEXPRESS.steps if each.kind == kinds.ROLE]
    assert step.manifest is not None
    rules = step.manifest(Inputs(cluster="", uid="", client_cas=ClientCAs()))["rules"]
    manifest = {
        "apiVersion": step.kind.api_version,
        "kind": "Role",
        "metadata": {"name": step.name, "namespace": step.namespace},
        "rules": rules,
    }
    path = f"{step.path}?fieldManager=test&dryRun=All"
    return api.request("PATCH", path, manifest, content_type="application/apply-patch+yaml").status in {200, 201}


def target_api(plane: ControlPlane) -> Api:
    token = plane.api.request(
        "POST",
        "/api/v1/namespaces/modelplane-serving-stack/serviceaccounts/modelplane/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}},
    ).body["status"]["token"]
    content = json.loads(plane.kubeconfig.read_bytes())
    ca = base64.b64decode(content["clusters"][0]["cluster"]["certificate-authority-data"])
    return Api(port=int(plane.server.rpartition(":")[2]), ca=ca, token=token)


def test_there_is_no_wildcard_and_no_secret_of_all_namespaces() -> None:
    for each in permissions("knative/base", "target/standard", "target/dynamo"):
        for rule in each.get("rules", ()):
            assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}, each["metadata"]["name"]
            assert not (each["kind"] == "ClusterRole" and "secrets" in rule["resources"]), each["metadata"]["name"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
