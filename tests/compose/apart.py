"""A hub and a target apart from it, which the functions ask through a server that can be made to fail."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import pytest

from events import types
from functions.access import kubeconfig
from functions.access.client import Client
from functions.catalog import COMPONENTS, CustomResource
from functions.clusters import API_VERSION
from functions.compose.sets import COMPOSITIONS
from functions.demo.controllers import Controllers
from functions.host.host import Host
from functions.local import substrate
from functions.registry import FUNCTIONS
from functions.watch.object_events import object_changed
from functions.watch.reflector import Key, Resource
from tests.compose.stage import GATEWAY, Stage, step_of, steps
from tests.faults import Faulty, faulty
from tests.support import CLUSTERS, conditions, hold, open_world, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from events.event import Event
    from functions.compose.kinds import Kind
    from functions.compose.step import Composition, Step
    from functions.host.host import Answer
    from functions.local.api import Answer as Answered
    from functions.local.api import Api
    from functions.local.instance import ControlPlane
    from functions.watch.reflector import Verb
    from tests.support import Moving

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
PLAIN_QUEUE: Mapping[str, Any] = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {}, "spec": {}}


@dataclass(kw_only=True)
class Apart(Stage):
    """A stage whose target is another cluster than its hub, with the substrate installed.

    Attributes:
        hub: The hub.
        away: The target.
        faulty: What the functions take for the target's API server.
        client: Of the target, without detour.
        time: Of the functions.
        path: Kubeconfig with which the functions reach the hub.
    """

    hub: ControlPlane
    away: ControlPlane
    faulty: Faulty
    client: Client
    time: Moving
    path: Path

    async def bring_up(self, *compositions: Composition) -> None:
        """Everything is there and ready; the controllers that made it so are gone again."""
        self.publish_ca()
        await self.judge()
        async with Controllers(self.client):
            await self.settle(*compositions)

    async def restart(self, *, patience: float = 5.0) -> None:
        """The functions in a new process, which remembers nothing."""
        await self.world.close()
        self.world = await open_world(self.path, self.time.clock, patience=patience)
        self.world.hub.client._budget = 0  # a request to the hub that fails is not sent again
        self.host = Host(FUNCTIONS.values(), self.world)

    def delete(self) -> None:
        """Has the InferenceCluster deleted, which its finalizers hold."""
        assert self.api.request("DELETE", f"{CLUSTERS}/gpu-1").status == 200

    def is_gone(self) -> bool:
        return self.api.request("GET", f"{CLUSTERS}/gpu-1").status == 404

    def holders(self) -> list[str]:
        """The finalizers of the InferenceCluster; none where there is none."""
        answer = self.api.request("GET", f"{CLUSTERS}/gpu-1")
        return list(answer.body["metadata"].get("finalizers") or ()) if answer.status == 200 else []

    def annotate(self, annotation: str, value: str | None) -> None:
        """On the InferenceCluster."""
        patch = {"metadata": {"annotations": {annotation: value}}}
        assert self.api.request("PATCH", f"{CLUSTERS}/gpu-1", patch, content_type=MERGE).status == 200

    def is_held(self, composition: Composition) -> bool:
        """Whether the InferenceCluster waits for a set."""
        return composition.finalizer in self.holders()

    def says(self, composition: Composition) -> tuple[str, str, str]:
        """Status, reason and message of the condition of a set."""
        found = conditions(self.api)[composition.condition]
        return found["status"], found["reason"], found["message"]

    def found(self, step: Step) -> dict[str, Any]:
        """An object that is there, as it is."""
        found = self.live(step)
        assert found is not None
        return found

    def version(self, step: Step) -> str:
        """The resourceVersion of an object."""
        return str(self.found(step)["metadata"]["resourceVersion"])

    def free(self) -> None:
        """Takes off what the controllers hold, who have gone."""
        for key in ("Gateway cluster-gateway", "GatewayClass envoy"):
            hold(self.away.api, step_of(GATEWAY, key).path, None)

    async def handled(self, composition: Composition, *, tick: bool = False) -> Answer:
        """The answer to one delivery, whatever it is."""
        return await self.host.handle(f"compose/{composition.name}", self.check(types.TICK if tick else "Object"))

    def there(self, composition: Composition) -> list[str]:
        """The keys of those objects of a set that are there and that a teardown deletes, whosever they are."""
        return [each.key for each in deleted(composition) if self.live(each) is not None]

    async def finish(self, *, within: float = 20) -> None:
        """Wakes the sets until the InferenceCluster, which is being deleted, is gone."""

        def reached() -> bool:
            finalize(self.away.api)
            return self.is_gone()

        await self.until(reached, within=within)

    def changed(self, step: Step, verb: Verb = "update") -> Event:
        """The event of a change of an object on the target."""
        return object_changed(
            verb,
            Resource(step.kind.api_version, step.kind.name, step.kind.plural),
            Key(step.namespace, step.name),
            server=self.away.server,
            cluster="gpu-1",
            now=self.time.now(),
        )

    def cluster_changed(self) -> Event:
        """The event of a change of the InferenceCluster on the hub."""
        return self._on_hub(Resource(API_VERSION, "InferenceCluster", "inferenceclusters"), Key("", "gpu-1"))

    def secret_changed(self) -> Event:
        """The event of a change of the kubeconfig Secret on the hub."""
        return self._on_hub(Resource("v1", "Secret", "secrets"), Key("modelplane-system", "target"))

    def _on_hub(self, resource: Resource, key: Key) -> Event:
        return object_changed("update", resource, key, server=self.hub.server, cluster=None, now=self.time.now())

    def objects(self) -> dict[str, Any]:
        """All objects of the composed kinds on the target by their paths."""
        return objects_of(self.away.api)


def objects_of(api: Api) -> dict[str, Any]:
    """All objects of the composed kinds by their paths."""
    found = {}
    for kind in _KINDS:
        for each in _listed(api, kind):
            found[kind.path(each["metadata"]["name"], each["metadata"].get("namespace", ""))] = each
    return found


def deleted(composition: Composition) -> list[Step]:
    """What a teardown deletes of a set, in the order of its steps."""
    return [each for each in composition.steps if each.manifest is not None or each.made_for]


def install(control_plane: ControlPlane, *components: str) -> None:
    """The real CRDs of components, all of them by default; returns once they are served."""
    keys = components or tuple(each.key for each in COMPONENTS)
    for manifest in (one for key in keys for one in substrate.manifests(key)):
        wait_for(partial(_takes, control_plane.api, manifest), manifest["metadata"]["name"])
    wanted = [one for each in COMPONENTS if each.key in keys for one in each.requirements]
    for crd in (each for each in wanted if isinstance(each, CustomResource)):
        wait_for(partial(_is_served, control_plane.api, crd), f"{crd.name} to be served")
    control_plane.wait_until_ready()


def namespace_of_others(api: Api, **labels: str) -> None:
    """The namespace, as somebody else made it."""
    path = "/api/v1/namespaces/modelplane-system"
    metadata = {"name": "modelplane-system", "labels": labels}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    answer = api.request(
        "PATCH", f"{path}?fieldManager=platform-team", manifest, content_type="application/apply-patch+yaml"
    )
    assert answer.status == 201, answer


def tried(api: Api, step: Step, manifest: Mapping[str, Any]) -> Answered:
    """The answer to a create that is only tried."""
    named = {**manifest, "metadata": {**manifest["metadata"], "name": "tried"}}
    return api.request("POST", f"{step.kind.path(namespace=step.namespace)}?dryRun=All", named)


def wait_for(reached: Callable[[], bool], what: str, within: float = 60) -> None:
    """Polls, for what nothing tells of; on a machine that is busy an answer may be too late, and is waited for."""
    deadline = monotonic() + within
    while monotonic() < deadline:
        with suppress(TimeoutError):
            if reached():
                return
        sleep(0.02)
    pytest.fail(f"waited in vain for {what}")


def release(api: Api, path: str, finalizer: str) -> None:
    """Takes one finalizer off and leaves the others; harmless where the object is gone."""
    while (found := api.request("GET", path)).status == 200:
        metadata = found.body["metadata"]
        left = [each for each in metadata.get("finalizers") or () if each != finalizer]
        patch = {"metadata": {"finalizers": left, "resourceVersion": metadata["resourceVersion"]}}
        answer = api.request("PATCH", path, patch, content_type=MERGE)
        if answer.status != 409:
            assert answer.status in {200, 404}, answer
            return


def turn(api: Api, path: str, patch: list[dict[str, Any]]) -> None:
    """Makes a JSON patch."""
    answer = api.request("PATCH", path, patch, content_type=JSON_PATCH)  # type: ignore[arg-type]
    assert answer.status == 200, answer


def finalize(api: Api) -> None:
    """Has the namespace go at once if it is being deleted, and has no finalizer but Kubernetes' own.

    Its controller would begin to empty it five seconds after the deletion.
    """
    path = "/api/v1/namespaces/modelplane-system"
    found = api.request("GET", path)
    if found.status == 200 and "deletionTimestamp" in found.body["metadata"]:
        api.request("PUT", f"{path}/finalize", {**found.body, "spec": {"finalizers": []}})


@asynccontextmanager
async def apart(hub: ControlPlane, away: ControlPlane, time: Moving) -> AsyncIterator[Apart]:
    """A stage with `gpu-1` registered on the Dynamo stack; what comes on the target meanwhile is removed at its end."""
    before = objects_of(away.api)
    client = Client(kubeconfig.load_file(away.kubeconfig))
    async with faulty(away) as server:
        put_kubeconfig(hub.api, server.kubeconfig)
        put_cluster(hub.api, stack="Dynamo")
        world = await open_world(hub.kubeconfig, time.clock)
        stage = Apart(
            hub.api, world, away.api, hub=hub, away=away, faulty=server, client=client, time=time, path=hub.kubeconfig
        )
        try:
            yield stage
        finally:
            await stage.world.close()
            await client.close()
            remove_all_but(before, away.api)


def remove_all_but(before: dict[str, Any], api: Api) -> None:
    deadline = monotonic() + 30
    while extra := {path: each for path, each in objects_of(api).items() if path not in before}:
        if monotonic() > deadline:
            pytest.fail(f"left behind after the test: {', '.join(extra)}")
        for path, each in extra.items():
            api.request("DELETE", path)
            if each["metadata"].get("finalizers") and each.get("kind") != "CustomResourceDefinition":
                api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
        finalize(api)


def _listed(api: Api, kind: Kind) -> list[Any]:
    """All objects of a kind, also of a server that was just started; none where its API is not served."""
    while (answer := api.request("GET", kind.path())).status in {429, 503}:
        sleep(0.02)
    return list(answer.body.get("items", ()))


def _takes(api: Api, manifest: Mapping[str, Any]) -> bool:
    return api.apply(substrate._path(manifest), manifest).status in {200, 201}


def _is_served(api: Api, crd: CustomResource) -> bool:
    return api.request("GET", f"/apis/{crd.group}/{crd.version}/{crd.plural}").status == 200


_KINDS: tuple[Kind, ...] = tuple(dict.fromkeys(each.kind for each in steps(*COMPOSITIONS)))
