"""Modelplane's side of an InferenceCluster: its CRD as Crossplane makes it, and a controller that writes the status."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from functions.access.errors import Conflict
from functions.deploy_files import deploy_directory
from tests.support import CLUSTERS

if TYPE_CHECKING:
    from random import Random

    from functions.access.client import Client

OTHERS: Final = frozenset({"Ready", "Synced", "ClusterReady", "BackendReady"})
_REFERENCE: Final = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
_CROSSPLANE: Final = {
    "type": "object",
    "properties": {
        "compositionRef": _REFERENCE,
        "compositionRevisionRef": _REFERENCE,
        "compositionUpdatePolicy": {"type": "string", "enum": ["Automatic", "Manual"], "default": "Automatic"},
        "resourceRefs": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {
                "type": "object",
                "required": ["apiVersion", "kind"],
                "properties": {key: {"type": "string"} for key in ("apiVersion", "kind", "namespace", "name")},
            },
        },
    },
}
_CONDITIONS: Final = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["lastTransitionTime", "reason", "status", "type"],
        "properties": {
            **{key: {"type": "string"} for key in ("message", "reason", "status", "type")},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64"},
        },
    },
}
_PUBLISHED: Final = {"type": "object", "properties": {"lastPublishedTime": {"type": "string", "format": "date-time"}}}


def definition() -> dict[str, Any]:
    """The CRD of InferenceCluster as Crossplane makes it from Modelplane's definition."""
    file = deploy_directory() / "knative" / "crds" / "inferenceclusters.yaml"
    crd: dict[str, Any] = yaml.safe_load(file.read_text())
    crd["spec"]["names"]["categories"] = ["crossplane", "modelplane", "platform"]
    (version,) = crd["spec"]["versions"]
    version["additionalPrinterColumns"] = [
        {"name": "SYNCED", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Synced')].status"},
        {"name": "READY", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
        {"name": "COMPOSITION", "type": "string", "jsonPath": ".spec.crossplane.compositionRef.name"},
        {"name": "SOURCE", "type": "string", "jsonPath": ".spec.cluster.source"},
        {"name": "GATEWAY", "type": "string", "jsonPath": ".status.gateway.address"},
        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["properties"]["crossplane"] = _CROSSPLANE
    status = properties["status"]["properties"]
    status["conditions"] = _CONDITIONS
    status["crossplane"] = {"type": "object", "properties": {"connectionDetails": _PUBLISHED}}
    return crd


@dataclass(slots=True)
class Controller:
    """Writes the whole status as it read it a moment ago, with the conditions that are its own, and the spec at times.

    Attributes:
        client: What it asks and writes with.
        random: Decides on everything.
        forgets: How often it leaves out what it does not know, from 0 to 1.
        said: The status that it last gave each of its conditions.
        count: Of its `writes`, of those that came too late (`conflicts`), of those that changed the `spec` and of those
            that `forgot` what others said.
    """

    client: Client
    random: Random
    forgets: float = 0.0
    said: dict[str, str] = field(default_factory=dict)
    count: Counter[str] = field(default_factory=Counter)

    async def run(self, name: str, until: asyncio.Event) -> None:
        """Writes at random moments until it is told to end; the last write is one that keeps what it read."""
        while not until.is_set():
            await asyncio.sleep(self.random.uniform(0, 0.3))
            if self.random.random() < 0.2:
                await self._spec(name)
            await self._status(name, forgetful=self.random.random() < self.forgets)
        while not await self._status(name, forgetful=False):
            pass

    async def _spec(self, name: str) -> None:
        found = await self.client.get(f"{CLUSTERS}/{name}")
        composed = {"apiVersion": "v1", "kind": "Object", "name": f"composed-{self.random.randrange(1000)}"}
        found["spec"].setdefault("crossplane", {})["resourceRefs"] = [composed]
        self.count["spec"] += await self._put(f"{CLUSTERS}/{name}", found)

    async def _status(self, name: str, *, forgetful: bool) -> bool:
        found = await self.client.get(f"{CLUSTERS}/{name}")
        await asyncio.sleep(self.random.uniform(0, 0.05))  # it composes; meanwhile others write
        status = found.get("status") or {}
        kept = () if forgetful else (each for each in status.get("conditions", ()) if each["type"] not in OTHERS)
        said = {each: self.random.choice(("True", "False", "Unknown")) for each in sorted(OTHERS)}
        own = [
            {
                "type": each,
                "status": value,
                "reason": "Reconciling",
                "message": "",
                "observedGeneration": found["metadata"]["generation"],
                "lastTransitionTime": "2026-12-01T04:00:00Z",
            }
            for each, value in said.items()
        ]
        found["status"] = {**({} if forgetful else status), "namespace": "modelplane-system", "unknown": "is pruned"}
        found["status"]["conditions"] = [*own, *kept]
        done = await self._put(f"{CLUSTERS}/{name}/status", found)
        if done:
            self.said = said
            self.count["forgot"] += forgetful
        return done

    async def _put(self, path: str, body: dict[str, Any]) -> bool:
        try:
            await self.client.request("PUT", path, params={"fieldManager": "crossplane"}, body=body)
        except Conflict:
            self.count["conflicts"] += 1
            return False
        self.count["writes"] += 1
        return True
