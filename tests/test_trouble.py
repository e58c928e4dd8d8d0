"""What cannot be told is Unknown and says why: bad kubeconfigs, dead, slow, denying and half-broken targets."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from aiohttp import web

from functions.access.discovery import DiscoveryReader
from functions.access.targets import ABSENT
from functions.catalog import CustomResource, Stack, component, of_stack
from functions.review import Ask, review
from tests.faults import Fault, Faulty, faulty, hang, status
from tests.support import (
    CLUSTERS,
    CRDS,
    SECRETS,
    Moving,
    apply,
    conditions,
    crd_manifest,
    get_cluster,
    open_world,
    provide_all,
    put_cluster,
    put_kubeconfig,
    served,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.world import World

BETA = b'{"version":"v1beta1","resources":[{"resource":"deviceclasses"'
ADVICE = "create it, or mend spec.cluster.existing.secretRef"
CERTIFICATES = CustomResource("certificates.cert-manager.io", "v1")


@pytest.fixture
async def world(hub: ControlPlane) -> AsyncIterator[World]:
    world = await open_world(hub.kubeconfig, patience=0.5)
    hub.api.request("DELETE", f"{SECRETS}/target")
    put_cluster(hub.api)
    yield world
    await world.close()


@pytest.fixture
def api(hub: ControlPlane) -> Api:
    return hub.api


@pytest.fixture
async def target(hub: ControlPlane) -> AsyncIterator[Faulty]:
    """A target that behaves until a test adds a fault."""
    async with faulty(hub) as server:
        put_kubeconfig(hub.api, server.kubeconfig)
        yield server


def kubeconfig(control_plane: ControlPlane, **changes: Any) -> str:
    """The admin's kubeconfig with some of its parts replaced: `cluster`, `user`, or a top-level field."""
    content: dict[str, Any] = yaml.safe_load(control_plane.kubeconfig.read_text())
    content["clusters"][0]["cluster"] |= changes.pop("cluster", {})
    content["users"][0]["user"] = changes.pop("user", content["users"][0]["user"])
    content |= changes
    return yaml.safe_dump({name: value for name, value in content.items() if value is not None})


async def judged(world: World, api: Api) -> tuple[str, str, str]:
    await review(world, "gpu-1", Ask())
    condition = conditions(api)["RequirementsMet"]
    return condition["status"], condition["reason"], condition["message"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"current-context": None}, "current-context", id="no current context"),
        pytest.param({"current-context": "other"}, "other", id="a context that is not there"),
        pytest.param({"user": {"exec": {"command": "aws", "apiVersion": "v1"}}}, "exec", id="exec helper"),
        pytest.param({"user": {"auth-provider": {"name": "gcp"}}}, "auth-provider", id="auth provider"),
        pytest.param({"user": {"tokenFile": "/etc/token"}}, "tokenFile", id="token file"),
        pytest.param({"cluster": {"insecure-skip-tls-verify": True}}, "insecure-skip-tls-verify", id="unverified TLS"),
        pytest.param(
            {"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data", id="broken base64"
        ),
    ],
)
async def test_a_kubeconfig_that_is_refused_by_name(
    world: World, hub: ControlPlane, changes: dict[str, Any], words: str
) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, **changes))
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "KubeconfigInvalid")
    assert words in message


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("", id="empty"),
        pytest.param("not: [a", id="no YAML"),
        pytest.param("- a\n- list\n", id="a list"),
        pytest.param("\x00\x01", id="binary"),
    ],
)
async def test_a_kubeconfig_that_is_none(world: World, api: Api, content: str) -> None:
    put_kubeconfig(api, content)
    status_, reason, _ = await judged(world, api)
    assert (status_, reason) == ("Unknown", "KubeconfigInvalid")


async def test_a_secret_that_is_not_there_and_then_comes(world: World, hub: ControlPlane) -> None:
    assert await judged(world, hub.api) == (
        "Unknown",
        "KubeconfigInvalid",
        f"Cannot tell: Secret modelplane-system/target does not exist; {ADVICE}",
    )
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    assert (await judged(world, hub.api))[1] == "MissingRequirements"


async def test_a_key_that_the_secret_lacks_names_those_it_has(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes(), key="config")
    _, reason, message = await judged(world, hub.api)
    assert reason == "KubeconfigInvalid"
    assert "no key kubeconfig; its keys are: config" in message


async def test_a_deleted_secret_is_noticed_once_its_version_is_known(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    await judged(world, hub.api)
    hub.api.request("DELETE", f"{SECRETS}/target")
    await review(world, "gpu-1", Ask(seen=ABSENT))
    assert summary(hub.api) == ("Unknown", "KubeconfigInvalid")


async def test_a_cloud_identity_without_a_credential_in_the_kubeconfig(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, user={}))
    put_cluster(hub.api, identitySecretRef={"name": "identity"})
    _, reason, message = await judged(world, hub.api)
    assert reason == "KubeconfigInvalid"
    assert "cloud identities (identitySecretRef) are not supported yet" in message


async def test_no_credential_at_all_is_no_missing_right(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, user={}))
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "Unauthorized")
    assert "no credential" in message


async def test_an_expired_or_wrong_token(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, user={"token": "no-such-token"}))
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "Unauthorized")
    assert "no-such-token" not in message


async def test_a_renewed_token_is_taken_up_without_being_told(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, user={"token": "expired"}))
    await judged(world, hub.api)
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    assert (await judged(world, hub.api))[1] == "MissingRequirements"


async def test_without_rights_the_verb_and_the_resource_are_named(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig_for("nobody").read_bytes())
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "Forbidden")
    assert "get customresourcedefinitions.apiextensions.k8s.io" in message
    assert "get deviceclasses.resource.k8s.io" in message


async def test_what_discovery_serves_is_met_without_any_right(world: World, hub: ControlPlane) -> None:
    provide_all(hub.api)
    await served(world.hub.client, *(one for each in of_stack(Stack.STANDARD) for one in each.requirements))
    put_kubeconfig(hub.api, hub.kubeconfig_for("nobody").read_bytes())
    await judged(world, hub.api)
    found = conditions(hub.api)
    assert {name for name, each in found.items() if each["status"] != "True"} == {
        "RequirementsMet",
        "NvidiaDraDriverGpuProvided",
    }


async def test_a_server_that_refuses_connections(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, kubeconfig(hub, cluster={"server": "https://127.0.0.1:9"}))
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "Unreachable")
    assert message.count("refused") == 1


async def test_a_server_of_another_authority(world: World, hub: ControlPlane, target: Faulty) -> None:
    other = yaml.safe_load(target.kubeconfig)
    other["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(hub.ca).decode()
    put_kubeconfig(hub.api, yaml.safe_dump(other))
    status_, reason, message = await judged(world, hub.api)
    assert (status_, reason) == ("Unknown", "Unreachable")
    assert "certificate" in message


async def test_a_server_that_hangs_costs_one_time_limit(world: World, api: Api, target: Faulty) -> None:
    target.faults.append(hang())
    status_, reason, message = await judged(world, api)
    assert (status_, reason) == ("Unknown", "Unreachable")
    assert "did not answer within 0.5 s" in message
    assert len(target.asked) == 2, "discovery and the DeviceClass, side by side and once"


async def test_the_same_trouble_is_written_once(world: World, api: Api, target: Faulty) -> None:
    target.faults.append(status(500, "down"))
    await judged(world, api)
    before = get_cluster(api)["metadata"]["resourceVersion"]
    for _ in range(3):
        await judged(world, api)
    assert get_cluster(api)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
async def test_a_target_that_fails_for_a_moment_is_asked_again(
    world: World, api: Api, target: Faulty, code: int
) -> None:
    trouble = status(code, "not now", "text/plain", Retry_After="1")
    trouble.times = 2
    target.faults.append(trouble)
    assert (await judged(world, api))[1] == "MissingRequirements"


async def test_something_that_is_no_kubernetes(world: World, api: Api, target: Faulty) -> None:
    target.faults.append(status(200, "<html>Sign in</html>", "text/html"))
    status_, reason, message = await judged(world, api)
    assert (status_, reason) == ("Unknown", "Unreachable")
    assert "Kubernetes" in message


async def test_a_server_without_aggregated_discovery_is_asked_group_by_group(
    world: World, hub: ControlPlane, target: Faulty
) -> None:
    async def plain(request: web.Request, _: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = hub.api.request("GET", request.path)
        return web.json_response(dict(answer.body), status=answer.status)

    target.faults.append(Fault("/apis", plain))
    provide_all(hub.api)
    await served(world.hub.client, *(one for each in of_stack(Stack.STANDARD) for one in each.requirements))
    assert (await judged(world, hub.api))[:2] == ("True", "RequirementsMet")
    assert f"GET /apis/{CERTIFICATES.group}/v1" in target.asked


async def test_a_dead_apiservice_hides_its_own_group_and_no_other(world: World, hub: ControlPlane) -> None:
    put_kubeconfig(hub.api, hub.kubeconfig.read_bytes())
    apply(hub.api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1"))
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1alpha1.trust.cert-manager.io"},
        "spec": {
            "group": "trust.cert-manager.io",
            "version": "v1alpha1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"name": "nobody", "namespace": "default"},
        },
    }
    await served(world.hub.client, CERTIFICATES)
    apply(hub.api, "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.trust.cert-manager.io", service)
    await _stale(world, "trust.cert-manager.io", "v1alpha1")
    await judged(world, hub.api)
    found = conditions(hub.api)
    assert found["CertManagerProvided"]["status"] == "True"
    assert (found["TrustManagerProvided"]["status"], found["TrustManagerProvided"]["reason"]) == ("Unknown", "Stale")
    assert "APIService v1alpha1.trust.cert-manager.io (ServiceNotFound)" in found["TrustManagerProvided"]["message"]


async def test_a_404_of_something_else_is_no_miss(world: World, api: Api, target: Faulty) -> None:
    """What discovery serves is met, and what it lacks cannot be told, where a proxy hides the CRDs themselves."""
    apply(api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1"))
    await served(world.hub.client, CERTIFICATES)
    hiding = status(404, "404 page not found", "text/plain")
    hiding.path = CRDS
    target.faults.append(hiding)
    await review(world, "gpu-1", Ask(component=component("cert-manager"), changed=CERTIFICATES.name))
    found = conditions(api)
    assert found["CertManagerProvided"]["status"] == "True"
    lacking = found["NodeFeatureDiscoveryProvided"]
    assert (lacking["status"], lacking["reason"]) == ("Unknown", "NotFound")


async def test_a_cluster_too_old_for_the_device_api(world: World, api: Api, target: Faulty) -> None:
    async def absent(_: web.Request, __: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found")

    async def older(_: web.Request, __: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        return web.json_response({"gitVersion": "v1.33.4"})

    async def beta(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = await real()
        assert isinstance(answer.body, bytes)
        body = answer.body.replace(b'{"version":"v1","resources":[{"resource":"deviceclasses"', BETA)
        return web.Response(body=body, headers={"Content-Type": answer.headers["Content-Type"]})

    target.faults += [
        Fault("/apis/resource.k8s.io", absent),
        Fault("/version", older),
        Fault("/apis", beta, exact=True),
    ]
    await judged(world, api)
    condition = conditions(api)["NvidiaDraDriverGpuProvided"]
    assert (condition["status"], condition["reason"]) == ("False", "ApiNotServed")
    assert "resource.k8s.io/v1 is not served (only v1beta1)" in condition["message"]
    assert "1.34 or newer serves it, this one is v1.33.4" in condition["message"]


async def test_a_starting_server_that_hides_every_crd_group(world: World, api: Api, target: Faulty) -> None:
    """As met after a restart: discovery answers without any CRD's group, the CRD says Established."""
    apply(api, f"{CRDS}/{CERTIFICATES.name}", crd_manifest(CERTIFICATES.name, "v1"))
    await served(world.hub.client, CERTIFICATES)

    async def without_crds(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        answer = await real()
        assert isinstance(answer.body, bytes)
        document = json.loads(answer.body)
        document["items"] = [each for each in document["items"] if each["metadata"]["name"] != CERTIFICATES.group]
        return web.Response(body=json.dumps(document), headers={"Content-Type": answer.headers["Content-Type"]})

    target.faults.append(Fault("/apis", without_crds, exact=True))
    await judged(world, api)
    condition = conditions(api)["CertManagerProvided"]
    assert condition["status"] == "Unknown"
    assert condition["reason"] == "NotDiscovered"
    assert "APIService v1.cert-manager.io" in condition["message"]


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_thirty_restarts_never_say_missing(
    world: World, hub: ControlPlane, start_control_plane: Callable[[], ControlPlane]
) -> None:
    """Everything stays installed while the target's API server comes and goes, and is asked all the while."""
    target = start_control_plane()
    provide_all(target.api)
    put_kubeconfig(hub.api, target.kubeconfig.read_bytes())
    while (await judged(world, hub.api))[0] != "True":
        pass
    version = get_cluster(hub.api)["metadata"]["resourceVersion"]
    said: list[dict[str, Any]] = []
    for _ in range(30):
        target.kill_api_server()
        starting = asyncio.create_task(asyncio.to_thread(target.start_api_server))
        while not starting.done():
            await review(world, "gpu-1", Ask())
        await starting
        await review(world, "gpu-1", Ask())
        assert summary(hub.api) == ("True", "RequirementsMet")
        since, version = version, get_cluster(hub.api)["metadata"]["resourceVersion"]  # the hub forgets soon
        said += await _versions_between(world, since, version)
    assert said, "the restarts were not noticed at all"
    assert {each["reason"] for each in said if each["status"] == "False"} == set()


async def _versions_between(world: World, version: str, latest: str) -> list[dict[str, Any]]:
    """RequirementsMet in every version of the cluster after the first of these, up to the second."""
    found: list[dict[str, Any]] = []
    if version == latest:
        return found
    params = {"resourceVersion": version, "fieldSelector": "metadata.name=gpu-1"}
    async with contextlib.aclosing(world.hub.client.watch(CLUSTERS, params=params)) as events:
        async for event in events:
            found += [each for each in event["object"]["status"]["conditions"] if each["type"] == "RequirementsMet"]
            if event["object"]["metadata"]["resourceVersion"] == latest:
                break
    return found


async def _stale(world: World, group: str, version: str) -> None:
    """Returns once discovery marks the group-version as stale."""
    reader = DiscoveryReader(world.hub.client)
    for _ in range(500):
        if (await reader.read(())).is_stale(group, version):
            return
    raise AssertionError(f"{group}/{version} never became stale")


async def test_a_cluster_deleted_while_it_is_probed(world: World, hub: ControlPlane, target: Faulty) -> None:
    async def delete_first(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        hub.api.request("DELETE", "/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1")
        return await real()

    target.faults.append(Fault("/apis", delete_first, times=1))
    assert await review(world, "gpu-1", Ask(component=component("cert-manager"))) is None
    assert hub.api.request("GET", "/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1").status == 404


async def test_others_write_before_every_write_of_ours(world: World, hub: ControlPlane, target: Faulty) -> None:
    """Each observation is overtaken by another writer three times; then the truth is written all the same."""

    async def touch(_: web.Request, real: Callable[[], Awaitable[web.Response]]) -> web.StreamResponse:
        patch = {"metadata": {"annotations": {"touched": str(len(target.asked))}}}
        path = "/apis/modelplane.ai/v1alpha1/inferenceclusters/gpu-1"
        hub.api.request("PATCH", path, patch, content_type="application/merge-patch+json")
        return await real()

    target.faults.append(Fault("/apis", touch, times=3))
    assert (await judged(world, hub.api))[1] == "MissingRequirements"


async def test_a_dead_target_is_asked_at_growing_intervals_by_ticks_alone(hub: ControlPlane, target: Faulty) -> None:
    time = Moving()
    world = await open_world(hub.kubeconfig, time.clock, patience=0.2)
    put_cluster(hub.api)
    target.faults.append(hang())
    looked = []
    for minute in range(20):
        target.asked.clear()
        await review(world, "gpu-1", Ask(tick=True))
        if target.asked:
            looked.append(minute)
        await time.sleep(60)
    assert looked == [0, 1, 3, 7, 12, 17]
    target.asked.clear()
    await review(world, "gpu-1", Ask())
    assert target.asked, "an event is always a reason to look"
    target.faults.clear()
    await review(world, "gpu-1", Ask())
    target.asked.clear()
    await review(world, "gpu-1", Ask(tick=True))
    assert target.asked, "a target that answered again is asked at each tick"
    await world.close()
