"""The project on real Knative: `kubectl apply -k deploy/knative/overlays/dev`, and everything happens by events."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from events import types
from events.codec import encode_binary
from events.event import JSON, Event
from events.journal import read_journal
from events.triggers import read_triggers
from functions.access import kubeconfig
from functions.access.client import MERGE_PATCH, Client
from functions.catalog import Stack, of_stack
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from functions.deploy_files import BROKER, NAMESPACE, deploy_directory
from functions.hub import CLUSTERS
from functions.local import substrate
from functions.local.binaries import find_kubectl
from tests.knative.venues import proxied
from tests.support import SECRETS, conditions, install, put_cluster, put_inference_gateway, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from functions.local.api import Api
    from functions.local.knative.instance import KnativeControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]
WITHIN = 90.0
OURS = "/modelplane/serving-stack/"


class Installed:
    """The project as it is installed.

    Attributes:
        plane: Hub and target in one.
    """

    def __init__(self, plane: KnativeControlPlane) -> None:
        self.plane = plane
        self.api: Api = plane.api

    def kubectl(self, *arguments: str) -> str:
        command = [str(find_kubectl()), "--kubeconfig", str(self.plane.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout

    async def until(self, reached: Callable[[], object], what: Callable[[], object] | None = None) -> None:
        """Returns once it has come to that; what is said otherwise is the conditions, or what `what` says."""
        deadline = time.monotonic() + WITHIN
        while not reached():
            assert time.monotonic() < deadline, (what or self.conditions)()
            await asyncio.sleep(0.05)

    async def end(self) -> None:
        """Has the InferenceCluster deleted, and returns when it is gone."""
        assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200
        await self.until(lambda: self.api.request("GET", f"{CLUSTERS}/gpu-1").status == 404)

    def says(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition of the InferenceCluster."""
        found = conditions(self.api).get(type_, {})
        return found.get("status", ""), found.get("reason", "")

    def conditions(self) -> object:
        return {
            type_: (each["status"], each["reason"], each["message"]) for type_, each in conditions(self.api).items()
        }

    def written(self, service: str) -> list[Event]:
        """The events that `journal` or `dead-letters` wrote down."""
        name = "events" if service == "journal" else service
        volume = self.plane.volume(NAMESPACE, f"{service}-00001-deployment", "journal")
        path = volume / f"{name}.jsonl"
        return [each.event for each in read_journal(path) if each.event is not None] if path.exists() else []

    async def publish(self, event: Event) -> int:
        """Posts an event to the Broker's ingress; the HTTP status."""
        message = encode_binary(event)
        headers = {name: value for name, value in message.headers.items() if name.lower() != "content-type"}
        path = f"{proxied('knative-eventing', 'broker-ingress')}/{NAMESPACE}/{BROKER}"
        client = Client(kubeconfig.load_file(self.plane.kubeconfig), timeout=30)
        try:
            return (await client.request("POST", path, headers=headers, body=json.loads(message.body))).status
        finally:
            await client.close()

    def restart(self, service: str) -> None:
        """The function's process ends, and is started anew some time later."""
        selector = f"serving.knative.dev/service={service}"
        self.kubectl("-n", NAMESPACE, "delete", "pod", "-l", selector, "--wait=false")

    async def target(self) -> str:
        """The kubeconfig of the account that deploy/target makes, as pods reach the API server."""
        await self.until(lambda: self._secret().get("token"), lambda: "no token")
        secret = self._secret()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "target",
            "contexts": [{"name": "target", "context": {"cluster": "target", "user": "modelplane"}}],
            "clusters": [
                {
                    "name": "target",
                    "cluster": {
                        "server": "https://kubernetes.default.svc",
                        "certificate-authority-data": secret["ca.crt"],
                    },
                }
            ],
            "users": [{"name": "modelplane", "user": {"token": base64.b64decode(secret["token"]).decode()}}],
        }
        return json.dumps(content)

    def _secret(self) -> dict[str, str]:
        found = self.api.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/modelplane").body
        return dict(found.get("data") or {})


@pytest.fixture(scope="module")
def installed(knative: KnativeControlPlane) -> Iterator[Installed]:
    """The overlay `dev` as it is, with the hub for a target as well."""
    with project(knative) as found:
        yield found


@contextmanager
def project(plane: KnativeControlPlane) -> Iterator[Installed]:
    found, deploy = Installed(plane), deploy_directory()
    found.kubectl("apply", "-k", str(deploy / "knative" / "crds"))
    found.kubectl("wait", "--for=condition=Established", "crd/inferenceclusters.modelplane.ai", "--timeout=30s")
    found.kubectl("apply", "-f", str(deploy / "knative" / "base" / "namespaces.yaml"))
    try_production(found)
    found.kubectl("apply", "--validate=strict", "-k", str(deploy / "knative" / "overlays" / "dev"))
    found.kubectl("apply", "--validate=strict", "-k", str(deploy / "target" / "dynamo"))
    kinds = ("broker", "trigger", "apiserversource", "pingsource", "containersource", "sinkbinding")
    for kind in (*kinds, "services.serving.knative.dev"):
        found.kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "--all", kind, "--timeout=120s")
    yield found
    found.api.request("DELETE", f"{CLUSTERS}/gpu-1")


def try_production(found: Installed) -> None:
    """Knative takes the other overlay too, with strict field validation; to run, that one needs OIDC and Kafka."""
    features = {"data": {"authentication-oidc": "enabled"}}
    path = "/api/v1/namespaces/knative-eventing/configmaps/config-features"
    assert found.api.request("PATCH", path, features, content_type=MERGE_PATCH).status == 200
    overlay = deploy_directory() / "knative" / "overlays" / "production"
    said = found.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", str(overlay))
    assert said.count("trigger.eventing.knative.dev/") == len(
        read_triggers((overlay.parents[1] / "base" / "triggers.yaml").read_text())
    )
    disabled = {"data": {"authentication-oidc": "disabled"}}
    assert found.api.request("PATCH", path, disabled, content_type=MERGE_PATCH).status == 200


async def test_a_cluster_from_its_registration_to_its_end(installed: Installed) -> None:
    api = installed.api
    client = Client(kubeconfig.load_file(installed.plane.kubeconfig), timeout=60)
    put_kubeconfig(api, await installed.target())
    put_cluster(api, stack="Dynamo")
    await installed.until(lambda: installed.says("CertManagerProvided") == ("False", "NotInstalled"))
    begun = time.monotonic()
    await substrate.add(client, "cert-manager")
    await installed.until(lambda: installed.says("CertManagerProvided") == ("True", "Provided"))
    print(f"\nCRDs added to condition: {time.monotonic() - begun:.2f} s")  # noqa: T201 - a figure for the reader
    await install(client, *(each.key for each in of_stack(Stack.DYNAMO) if each.requirements))
    put_inference_gateway(api)
    async with Controllers(client):
        for each in COMPOSITIONS:
            await installed.until(lambda each=each: installed.says(each.condition)[0] == "True")  # type: ignore[misc]
        await installed.end()
    await client.close()
    journal = installed.written("journal")
    assert {each.type for each in journal} >= {
        types.OBJECT_ADDED,
        types.CHECK_REQUESTED,
        types.REQUIREMENT_MET,
        types.REQUIREMENTS_MET,
        types.COMPOSITION_APPLIED,
        types.COMPOSITION_REMOVED,
        types.DELETING,
    }
    sources = {each.source.partition("/")[0] for each in journal if each.type == types.OBJECT_ADDED}
    assert sources
    assert "BEGIN" not in "".join(str(each.data) for each in journal)


async def test_the_tick_comes_each_minute(installed: Installed) -> None:
    await installed.until(
        lambda: any(each.type == types.PING for each in installed.written("journal")), lambda: "no tick"
    )


async def test_a_function_that_is_down_for_a_moment_gets_its_event(installed: Installed) -> None:
    put_kubeconfig(installed.api, await installed.target())
    installed.restart("probes")
    put_cluster(installed.api, stack="Dynamo")
    await installed.until(lambda: installed.says("RequirementsMet")[0] in {"True", "False"})
    await installed.end()


async def test_poison_becomes_a_dead_letter(installed: Installed) -> None:
    poison = Event(
        id="poison",
        source="/test",
        type=types.CHECK_REQUESTED,
        datacontenttype=JSON,
        extensions={"cluster": "../x"},
        data=b'{"reason": "Tick"}',
    )
    assert await installed.publish(poison) == 202
    await installed.until(lambda: _dead(installed, "poison"), lambda: installed.written("dead-letters"))
    (first, *_) = _dead(installed, "poison")
    assert first.extensions["knativeerrorcode"] == "422"
    assert "no name" in base64.b64decode(first.extensions["knativeerrordata"]).decode()


def _dead(installed: Installed, id_: str) -> list[Event]:
    return [each for each in installed.written("dead-letters") if each.id == id_]


async def test_a_pipeline_says_provisioned_and_the_cluster_is_checked(installed: Installed) -> None:
    put_kubeconfig(installed.api, await installed.target())
    put_cluster(installed.api, stack="Dynamo")
    await installed.until(lambda: installed.says("RequirementsMet")[0])
    event = Event(
        id="provisioned-1",
        source="/pipeline",
        type=types.PROVISIONED,
        subject="gpu-1",
        datacontenttype=JSON,
        extensions={"cluster": "gpu-1"},
        data=b'{"cluster": "gpu-1"}',
    )
    assert await installed.publish(event) == 202

    def asked() -> bool:
        checks = [each for each in installed.written("journal") if each.type == types.CHECK_REQUESTED]
        return any(b"Provisioned" in (each.data or b"") for each in checks)

    await installed.until(asked, lambda: "no check was asked for")
    await installed.end()
    installed.api.request("DELETE", f"{SECRETS}/target")
