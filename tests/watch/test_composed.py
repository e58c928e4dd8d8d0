"""What is composed on a target is watched by name, each kind while it is served, on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
import pytest

from functions.access import kubeconfig
from functions.access.client import Client
from functions.compose import kinds
from functions.local import substrate
from tests.support import CLUSTERS, CRDS, apply, crd_manifest, gone, install, install_hub, put_cluster, put_kubeconfig
from tests.watch.watching import about, checked, started, until, watching

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from functions.local.instance import ControlPlane
    from tests.conftest import StartControlPlane

SYSTEM = "modelplane-system"
GATEWAY_SET = {
    "/api/v1/namespaces modelplane-system",
    "/api/v1/namespaces/modelplane-system/configmaps modelplane-cluster-ca",
    "/api/v1/namespaces/modelplane-system/configmaps modelplane-inference-gateway-cas",
    "/apis/cert-manager.io/v1/namespaces/modelplane-system/certificates cluster-gateway-serving",
    "/apis/cert-manager.io/v1/namespaces/modelplane-system/certificates modelplane-cluster-ca",
    "/apis/cert-manager.io/v1/namespaces/modelplane-system/issuers modelplane-cluster-ca",
    "/apis/cert-manager.io/v1/namespaces/modelplane-system/issuers modelplane-selfsigned",
    f"{kinds.CLIENT_TRAFFIC_POLICY.path(namespace='modelplane-system')} cluster-gateway-client-auth",
    "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/modelplane-system/envoyproxies cluster-gateway",
    "/apis/gateway.networking.k8s.io/v1/gatewayclasses envoy",
    "/apis/gateway.networking.k8s.io/v1/namespaces/modelplane-system/gateways cluster-gateway",
    "/apis/trust.cert-manager.io/v1alpha1/bundles modelplane-cluster-ca",
}
DYNAMO_SETS = {
    "/api/v1/namespaces/default/serviceaccounts modelexpress-server",
    "/api/v1/namespaces/default/services modelexpress-server",
    "/apis/apps/v1/namespaces/default/deployments modelexpress-server",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings modelexpress-server",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles modelexpress-server",
    "/apis/scheduling.run.ai/v2/queues modelplane",
    "/apis/scheduling.run.ai/v2/queues modelplane-root",
}
COMPOSED_FROM = ("cert-manager", "envoy-gateway", "trust-manager", "kai-scheduler")
QUEUES = "queues.scheduling.run.ai"
QUEUE = kinds.QUEUE.path("modelplane")
MERGE = "application/merge-patch+json"


def manifest(kind: kinds.Kind, name: str, namespace: str = "", **content: Any) -> dict[str, Any]:
    within = {"namespace": namespace} if namespace else {}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": name, **within}, **content}


class Watcher:
    """A user of its own with every right, whose requests the audit log tells from all others."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self.kubeconfig = control_plane.kubeconfig_for("watcher", groups=["system:masters"])
        self._log = control_plane.audit_log

    def requests(self) -> list[tuple[str, str, int]]:
        """Verb, path with the name that is selected, and status of each request to an API of the composed kinds."""
        return list(_requests(self._log))

    def followed(self) -> set[str]:
        """What was listed and watched both, with success."""
        asked = {
            verb: {path for one, path, status in self.requests() if (one, status) == (verb, 200)} for verb in VERBS
        }
        return asked["list"] & asked["watch"]


VERBS = ("list", "watch")
SERVED = {200, 429}
"""How a request to an API is answered that is served; the latter for a second after its definition was established."""


def _requests(log: Path) -> Iterator[tuple[str, str, int]]:
    mine = (line for line in log.read_bytes().rpartition(b"\n")[0].splitlines() if b'"watcher"' in line)
    for entry in map(orjson.loads, mine):
        path, _, query = entry["requestURI"].partition("?")
        composed = entry.get("objectRef", {}).get("resource") not in {None, *UNCOMPOSED}
        if entry["user"]["username"] == "watcher" and composed:
            _, _, name = query.partition("fieldSelector=metadata.name%3D")
            yield entry["verb"], f"{path} {name.partition('&')[0]}", entry["responseStatus"]["code"]


UNCOMPOSED = ("customresourcedefinitions", "deviceclasses")


@pytest.fixture
async def audited(start_control_plane: StartControlPlane) -> AsyncIterator[tuple[ControlPlane, Client]]:
    """A cluster that notes each request, and a client of it."""
    control_plane = start_control_plane(audit=True)
    made = Client(kubeconfig.load_file(control_plane.kubeconfig), timeout=30)
    yield control_plane, made
    await made.close()


@pytest.mark.parametrize(
    ("stack", "expected"),
    [("Standard", GATEWAY_SET), ("Dynamo", GATEWAY_SET | DYNAMO_SETS)],
    ids=["standard", "dynamo"],
)
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kinds_are_watched_by_name_once_they_are_served_and_not_asked_for_before(
    audited: tuple[ControlPlane, Client], stack: str, expected: set[str]
) -> None:
    both, client = audited
    watcher = await register(both, stack)
    async with watching(both.kubeconfig) as collected:
        await started(collected)
        built_in = {each for each in expected if is_built_in(each)}
        await until(lambda: watcher.followed() == built_in, "the built-in kinds to be watched")
        for component in COMPOSED_FROM:
            await install(client, component)
        await until(lambda: watcher.followed() == expected, "every composed kind to be watched")
        for component in COMPOSED_FROM:
            await substrate.remove(client, component)
        await until(collected.complete, "the watches to end")
        before = len(watcher.requests())
        await install(client, "cert-manager")
        issuers = {each for each in expected if "/issuers" in each}
        await until(
            lambda: issuers <= {path for _, path, _ in watcher.requests()[before:]}, "the watches to begin anew"
        )
    assert {path for _, path, _ in watcher.requests()} == expected
    assert {status for _, _, status in watcher.requests()} <= SERVED


def is_built_in(path: str) -> bool:
    return path.startswith(("/api/", "/apis/apps/", "/apis/rbac.authorization.k8s.io/"))


async def register(both: ControlPlane, stack: str) -> Watcher:
    """Makes a cluster a hub that is its own target, with `gpu-1` on that stack."""
    install_hub(both.api)
    both.wait_until_ready()
    await until(lambda: both.api.request("GET", CLUSTERS).status == 200, "InferenceClusters to be served")
    watcher = Watcher(both)
    put_kubeconfig(both.api, watcher.kubeconfig.read_bytes())
    put_cluster(both.api, stack=stack)
    return watcher


class Case(NamedTuple):
    """A composed object, and the subject of the events about it."""

    manifest: dict[str, Any]
    kind: kinds.Kind
    subject: str


LISTENER = {"name": "a", "port": 80, "protocol": "HTTP"}
CASES = {
    "built-in-and-cluster-scoped": Case(
        manifest(kinds.NAMESPACE, SYSTEM),
        kinds.NAMESPACE,
        "/apis/v1/namespaces//namespaces/modelplane-system",
    ),
    "built-in-and-namespaced": Case(
        manifest(kinds.CONFIG_MAP, "modelplane-cluster-ca", SYSTEM, data={}),
        kinds.CONFIG_MAP,
        "/apis/v1/namespaces/modelplane-system/configmaps/modelplane-cluster-ca",
    ),
    "one-of-two-issuers": Case(
        manifest(kinds.ISSUER, "modelplane-selfsigned", SYSTEM, spec={"selfSigned": {}}),
        kinds.ISSUER,
        "/apis/cert-manager.io/v1/namespaces/modelplane-system/issuers/modelplane-selfsigned",
    ),
    "the-other-issuer": Case(
        manifest(kinds.ISSUER, "modelplane-cluster-ca", SYSTEM, spec={"selfSigned": {}}),
        kinds.ISSUER,
        "/apis/cert-manager.io/v1/namespaces/modelplane-system/issuers/modelplane-cluster-ca",
    ),
    "plural-that-is-guessed-wrong": Case(
        manifest(kinds.GATEWAY, "cluster-gateway", SYSTEM, spec={"gatewayClassName": "x", "listeners": [LISTENER]}),
        kinds.GATEWAY,
        "/apis/gateway.networking.k8s.io/v1/namespaces/modelplane-system/gatewaies/cluster-gateway",
    ),
    "custom-and-cluster-scoped": Case(
        manifest(kinds.QUEUE, "modelplane-root", spec={}),
        kinds.QUEUE,
        "/apis/scheduling.run.ai/v2/namespaces//queues/modelplane-root",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_changes_of_composed_objects_are_told_as_apiserversource_tells_them(
    hub: ControlPlane, target: ControlPlane, client: Client, case: Case
) -> None:
    kind, metadata = case.kind, case.manifest["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "")
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    put_cluster(hub.api, stack="Dynamo")
    path, foreign, system = kind.path(name, namespace), kind.path(f"{name}-2", namespace), kinds.NAMESPACE.path(SYSTEM)
    try:
        if namespace:
            apply(target.api, system, manifest(kinds.NAMESPACE, SYSTEM))
        async with watching(hub.kubeconfig) as collected:
            await started(collected)
            apply(target.api, foreign, {**case.manifest, "metadata": {**metadata, "name": f"{name}-2"}})
            apply(target.api, path, case.manifest)
            for each in (foreign, path):
                label = {"metadata": {"labels": {"changed": "yes"}}}
                assert target.api.request("PATCH", each, label, content_type=MERGE).status == 200
                assert target.api.request("DELETE", each).status == 200
            told = await collected.through(about(name, "delete", kind=kind.name))
    finally:
        for each in (foreign, path, system):
            target.api.request("DELETE", each)
            await gone(client, *each.rsplit("/", 1))
    told = [each for each in told if each.extensions.get("kind") == kind.name]
    assert list(dict.fromkeys(event.type.rpartition(".")[2] for event in told)) == ["add", "update", "delete"]
    attributes = {"kind": kind.name, "apiversion": kind.api_version, "name": name, "namespace": namespace}
    within = {"namespace": namespace} if namespace else {}
    reference = {"kind": kind.name, **within, "name": name, "apiVersion": kind.api_version}
    for event in told:
        assert event.extensions == {**attributes, "cluster": "gpu-1"}
        assert (event.source, event.subject) == (target.server, case.subject)
        assert orjson.loads(event.data or b"") == reference


def queues(*versions: str) -> dict[str, Any]:
    """A small definition of Queue."""
    return crd_manifest(QUEUES, *versions)


async def test_a_definition_that_goes_takes_its_objects_along_and_begins_anew_when_it_comes_back(
    audited: tuple[ControlPlane, Client],
) -> None:
    both, client = audited
    watcher = await register(both, "Dynamo")
    queue = manifest(kinds.QUEUE, "modelplane")
    async with watching(both.kubeconfig) as collected:
        await started(collected)
        for _ in range(3):
            apply(both.api, f"{CRDS}/{QUEUES}", queues("v2"))
            await collected.next(about(QUEUES, "add"))
            await until(lambda: both.api.request("GET", kinds.QUEUE.path()).status == 200, "queues to be served")
            await until(collected.complete, "queues to be watched")
            await until(lambda: both.api.apply(QUEUE, queue).status == 201, "a queue to be created")
            await collected.next(about("modelplane", "add", kind="Queue"))
            assert both.api.request("DELETE", f"{CRDS}/{QUEUES}").status == 200
            await collected.all(about("modelplane", "delete", kind="Queue"), about(QUEUES, "delete"))
            await gone(client, CRDS, QUEUES)
    assert {status for _, path, status in watcher.requests() if "queues" in path} <= SERVED


async def test_a_version_that_is_served_no_more_asks_for_a_look_and_is_not_asked_for(
    audited: tuple[ControlPlane, Client],
) -> None:
    both, _ = audited
    apply(both.api, f"{CRDS}/{QUEUES}", queues("v3", "-v2"))
    watcher = await register(both, "Dynamo")
    paths = {"/apis/scheduling.run.ai/v2/queues modelplane", "/apis/scheduling.run.ai/v2/queues modelplane-root"}
    async with watching(both.kubeconfig) as collected:
        await collected.next(checked(reason="WatchStarted"))
        apply(both.api, f"{CRDS}/{QUEUES}", queues("v3", "v2"))
        await until(lambda: paths <= watcher.followed(), "queues to be watched")
        await until(collected.complete, "a look after that")
        collected.forget()
        apply(both.api, f"{CRDS}/{QUEUES}", queues("v3", "-v2"))
        await collected.next(checked(reason="Object"))
        apply(both.api, f"{CRDS}/{QUEUES}", queues("v3", "v2"))
        await collected.next(checked(reason="WatchStarted"))
        await until(collected.complete, "queues to be watched again")
        apply(both.api, QUEUE, manifest(kinds.QUEUE, "modelplane"))
        await collected.next(about("modelplane", "add", kind="Queue"))
    assert {status for _, path, status in watcher.requests() if "queues" in path} <= SERVED


async def test_what_may_not_be_watched_is_said_once_and_harms_no_other(
    api_hub: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    may = {"apiGroups": ["*"], "resources": ["customresourcedefinitions", "deviceclasses"], "verbs": list(VERBS)}
    ours = {**may, "resources": ["configmaps"], "resourceNames": ["modelplane-cluster-ca"]}
    user = "narrow"
    put_kubeconfig(api_hub.api, api_hub.kubeconfig_for(user, rules=[may, ours]).read_bytes())
    config_map = manifest(kinds.CONFIG_MAP, "modelplane-cluster-ca", SYSTEM, data={})
    async with watching(api_hub.kubeconfig) as collected:
        await collected.next(checked())
        await until(lambda: len(troubles(caplog)) == 2, "both troubles to be said")
        apply(api_hub.api, kinds.CONFIG_MAP.path("modelplane-cluster-ca", SYSTEM), config_map)
        await collected.next(about("modelplane-cluster-ca", "add", kind="ConfigMap"))
        everything = {**may, "resources": [*may["resources"], "configmaps", "namespaces"]}
        collected.forget()
        api_hub.kubeconfig_for(user, rules=[everything])
        await collected.next(checked(reason="WatchStarted"))
        await until(collected.complete, "everything to be followed", within=60)
    assert [each.partition(" (")[0] for each in sorted(troubles(caplog))] == [
        f'user "narrow" has no right to list configmaps in namespace {SYSTEM}',
        'user "narrow" has no right to list namespaces',
    ]
    assert [each.getMessage() for each in caplog.records if each.levelname == "INFO"][-1] == "watching again"


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [vars(each)["detail"] for each in caplog.records if each.getMessage() == "cannot watch, trying again"]
