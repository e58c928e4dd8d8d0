"""What each composed object waits for, out of the declarations, and how a test takes exactly that away and gives it."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from functions.access.client import DISCOVERY
from functions.catalog import component
from functions.compose.ownership import OWNER, OWNER_UID
from functions.compose.sets import COMPOSITIONS
from tests.compose.apart import release, wait_for
from tests.compose.stage import GATEWAYS, Stage
from tests.support import CLUSTERS, CRDS, apply, conditions, hold, install_hub

if TYPE_CHECKING:
    from collections.abc import Iterator

    from functions.compose.kinds import Kind
    from functions.compose.step import Composition, Step
    from functions.local.api import Api

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
HELD = "tests.example.com/held"
NAMESPACE = "Namespace modelplane-system"
DEFINITION = "CustomResourceDefinition "
UNREADY = {"reason": "OutOfOrder", "message": "the test says so"}
INFERENCE_GATEWAYS = "inferencegateways.modelplane.ai"


OWN = [(one, each) for one in COMPOSITIONS for each in one.steps if each.manifest is not None]
"""Each object that is composed, with its set."""

COMPONENTS = [pytest.param(one, each, key, id=f"{each.key} needs {key}") for one, each in OWN for key in each.needs]
"""Each object with each component of its gate."""

APIS = [pytest.param(one, each, id=f"{each.key} needs its API") for one, each in OWN if not each.kind.built_in]
"""Each object of a kind that a CRD brings."""

APPLIED = [
    pytest.param(one, each, key, id=f"{each.key} after {key}")
    for one, each in OWN
    for key in each.after
    if key != NAMESPACE
]
"""Each object with each that has to be applied before; the Namespace apart, whose going takes all in it along."""

DEFINED = [
    pytest.param(one, each, key, id=f"{each.key} awaits {key}")
    for one, each in OWN
    for key in each.awaits
    if key.startswith(DEFINITION)
]
"""Each object with each CRD that has to be established before."""

READY = [
    pytest.param(one, each, key, id=f"{each.key} awaits {key}")
    for one, each in OWN
    for key in each.awaits
    if not key.startswith(DEFINITION)
]
"""Each object with each other one that has to be ready before."""

CLIENT_CAS = [pytest.param(one, each, id=f"{each.key} needs a client CA") for one, each in OWN if each.client_ca]
"""Each object that exists only while there is a client CA."""


CUSTOM_KINDS = tuple(dict.fromkeys(each.kind for _, each in OWN if not each.kind.built_in))
"""The kinds that CRDs bring, in the order in which they are needed first."""

COMPONENTS_OF_GATES = tuple(dict.fromkeys(key for _, each in OWN for key in each.needs))
"""The components that anything waits for."""


def steps_of_kind(kind: Kind) -> tuple[Composition, list[Step]]:
    """The objects of a custom kind, and their set."""
    (composition,) = {one.name: one for one, each in OWN if each.kind == kind}.values()
    return composition, [each for _, each in OWN if each.kind == kind]


def kinds_of_component(key: str) -> list[Kind]:
    """The custom kinds that go with a component."""
    groups = {each.group for each in component(key).requirements}
    return [each for each in CUSTOM_KINDS if each.group in groups]


def resting_on(composition: Composition, step: Step) -> list[Step]:
    """The objects that rest on one, directly or not."""
    keys = {step.key}
    found: list[Step] = []
    for each in composition.steps:
        if keys & {*each.after, *each.awaits}:
            keys.add(each.key)
            found.append(each)
    return found


@dataclass
class Needs(Stage):
    """A stage on which everything is composed and ready, and no controller at work any more."""

    @property
    def away(self) -> Api:
        """The target."""
        assert self.target is not None
        return self.target

    def is_there(self, step: Step) -> bool:
        """Whether an object is there and carries the owner mark."""
        found = self.live(step)
        return found is not None and OWNER_UID in (found["metadata"].get("annotations") or {})

    def remove(self, composition: Composition, step: Step) -> None:
        """Takes away an object and all that rest on it, as a person would, whoever holds them."""
        for each in reversed([step, *resting_on(composition, step)]):
            if each.manifest is not None:
                self.delete(each)

    def delete(self, step: Step) -> None:
        """Deletes one object, whoever holds it, and returns when it is gone."""
        if self.away.request("DELETE", step.path).status == 404:
            return
        found = self.live(step)
        # The finalizer of a CRD is Kubernetes' own, and it removes it.
        if found is not None and found["metadata"].get("finalizers") and not step.key.startswith(DEFINITION):
            self.away.request("PATCH", step.path, {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
        wait_for(lambda: self.live(step) is None, f"{step} to go")

    def judged(self, key: str, status: str | None) -> None:
        """Has the condition of a component say so, or not be there."""
        path, type_ = f"{CLUSTERS}/gpu-1/status", component(key).condition
        index = list(conditions(self.api)).index(type_)
        place = f"/status/conditions/{index}"
        change: dict[str, Any] = {"op": "remove", "path": place}
        if status is not None:
            change = {"op": "replace", "path": f"{place}/status", "value": status}
        patch: Any = [{"op": "test", "path": f"{place}/type", "value": type_}, change]
        answer = self.api.request("PATCH", path, patch, content_type=JSON_PATCH)
        assert answer.status == 200, answer

    def serve(self, kind: Kind, *, served: bool) -> None:
        """Has the CRD of a kind serve its version or not; returns when API and discovery say so."""
        path = f"{CRDS}/{kind.definition}"
        versions = [each["name"] for each in self.away.request("GET", path).body["spec"]["versions"]]
        place = f"/spec/versions/{versions.index(kind.version)}/served"
        patch: Any = [{"op": "replace", "path": place, "value": served}]
        assert self.away.request("PATCH", path, patch, content_type=JSON_PATCH).status == 200
        wait_for(lambda: is_served(self.away, kind, served=served), f"{kind.definition} to be served: {served}")

    def uninstall(self, kind: Kind) -> dict[str, Any]:
        """Deletes the CRD of a kind with all its instances, whoever holds them; answers with what it was."""
        path = f"{CRDS}/{kind.definition}"
        found = self.away.request("GET", path).body
        _, those = steps_of_kind(kind)
        for each in those:
            hold(self.away, each.path, None)
        assert self.away.request("DELETE", path).status == 200
        wait_for(lambda: self.away.request("GET", path).status == 404, f"{kind.definition} to go")
        wait_for(lambda: is_served(self.away, kind, served=False), f"the API of {kind.definition} to go")
        metadata = {key: found["metadata"].get(key) for key in ("name", "annotations", "labels")}
        return {**{key: found[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}

    def reinstall(self, kind: Kind, manifest: dict[str, Any]) -> None:
        """Has a CRD as it was; returns when its API is served."""
        apply(self.away, f"{CRDS}/{kind.definition}", manifest)
        wait_for(lambda: is_served(self.away, kind), f"{kind.definition} to be served")

    def unlabel(self, step: Step) -> None:
        """Takes the owner's label off an object, as somebody might who tidies up."""
        patch = {"metadata": {"labels": {OWNER: None}}}
        assert self.away.request("PATCH", step.path, patch, content_type=MERGE_PATCH).status == 200

    @contextmanager
    def going(self, step: Step) -> Iterator[None]:
        """An object is being deleted meanwhile, and gone at the end."""
        hold(self.away, step.path, [HELD])
        assert self.away.request("DELETE", step.path).status in {200, 202}
        yield
        release(self.away, step.path, HELD)
        wait_for(lambda: self.live(step) is None, f"{step} to go")

    def say(self, step: Step, type_: str, status: str | None) -> None:
        """Has the controller of an object say so in a condition; None for a controller that never said anything."""
        found = self.live(step)
        assert found is not None
        said = {
            "type": type_,
            "status": status,
            "observedGeneration": found["metadata"].get("generation", 0),
            "lastTransitionTime": "2026-12-01T04:00:00Z",
            **UNREADY,
        }
        patch = {"status": {"conditions": [said]} if status is not None else None}
        answer = self.away.request("PATCH", f"{step.path}/status", patch, content_type=MERGE_PATCH)
        assert answer.status == 200, answer

    def is_established(self, path: str) -> bool:
        """Whether a CRD is in effect."""
        found = self.away.request("GET", path).body.get("status", {}).get("conditions") or ()
        return any((each["type"], each["status"]) == ("Established", "True") for each in found)

    def without_inference_gateways(self) -> None:
        """Takes the API InferenceGateway, with all of them, off the hub."""
        assert self.api.request("DELETE", f"{CRDS}/{INFERENCE_GATEWAYS}").status == 200
        wait_for(lambda: self.api.request("GET", f"{CRDS}/{INFERENCE_GATEWAYS}").status == 404, "the CRD to go")
        wait_for(lambda: self.api.request("GET", GATEWAYS).status == 404, "its API to go")

    def with_inference_gateways(self) -> None:
        """Gives the hub its APIs."""
        install_hub(self.api)
        wait_for(lambda: self.api.request("GET", GATEWAYS).status == 200, "InferenceGateways to be served")

    def waiting(self, composition: Composition) -> dict[str, str]:
        """What the condition of a set says that each object waits for."""
        return waiting_for(self.condition(composition)["message"])


def waiting_for(message: str) -> dict[str, str]:
    """What each object waits for, out of the message of a condition."""
    found: dict[str, str] = {}
    for part in message.split("; "):
        match = re.fullmatch(r"waiting for (.+): ([^:]+)", part)
        if match:
            found |= dict.fromkeys(match[2].split(", "), match[1])
    return found


def is_served(api: Api, kind: Kind, *, served: bool = True) -> bool:
    """Whether an API server serves a kind, or does not, by its answers and by its discovery alike."""
    groups = api.request("GET", "/apis", accept=DISCOVERY).body["items"]
    discovered = any(
        resource["resource"] == kind.plural and "create" in resource["verbs"]
        for group in groups
        if group["metadata"]["name"] == kind.group
        for version in group["versions"]
        if version["version"] == kind.version
        for resource in version["resources"]
    )
    return discovered is served and api.request("GET", kind.path()).status == (200 if served else 404)
