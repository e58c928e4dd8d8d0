"""Stand-ins for the controllers that a real cluster runs: enough of each to answer for the composed objects.

They accept the class, issue certificates, sync the Bundle, give the Gateway an address, and let it go a while after it
is deleted. The demonstration, the tests and the benchmarks run them.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from functions.access.client import MERGE_PATCH
from functions.access.discovery import DiscoveryReader
from functions.access.errors import AccessError, Conflict, NotFound
from functions.compose import kinds
from functions.local.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from functions.access.client import Client
    from functions.access.discovery import Discovery
    from functions.compose.kinds import Kind

ADDRESS: Final = "203.0.113.10"
FINALIZER: Final = "gateway.envoyproxy.io/demo"
CLASS_FINALIZER: Final = "gateway-exists-finalizer.gateway.networking.k8s.io"
FINALIZERS: Final = frozenset({FINALIZER, CLASS_FINALIZER})
"""Those that the stand-ins take off themselves."""
_POLL: Final = 0.02


class Controllers:
    """Watches the composed kinds of one cluster, each as soon as it is served, and plays their controllers."""

    def __init__(self, client: Client, *, hold: float = 0.0, without: tuple[Kind, ...] = ()) -> None:
        """Keep the settings; nothing is watched before the context is entered.

        Args:
            client: Of the cluster.
            hold: Seconds that a deleted Gateway is held by its finalizer.
            without: Kinds whose controller is not there.
        """
        self._client = client
        self._hold = hold
        self._discovery = DiscoveryReader(client)
        self._looking = asyncio.Lock()
        self._looked: tuple[float, Discovery] | None = None
        self._authority = Authority.new().certificate.decode()
        play: dict[Kind, Callable[[dict[str, Any]], Awaitable[None]]] = {
            kinds.GATEWAY_CLASS: self._gateway_class,
            kinds.GATEWAY: self._gateway,
            kinds.CERTIFICATE: self._certificate,
            kinds.BUNDLE: self._bundle,
            kinds.CLIENT_TRAFFIC_POLICY: self._policy,
            kinds.DEPLOYMENT: self._deployment,
        }
        self._play = {kind: each for kind, each in play.items() if kind not in without}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._follow(kind, each)) for kind, each in self._play.items()]
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, kind: Kind, play: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        while True:
            with suppress(AccessError):
                if kind.built_in or "watch" in (await self._look()).verbs(kind.group, kind.version, kind.plural):
                    async with aclosing(self._client.watch(kind.path())) as events:
                        async for event in events:
                            # A spec that it can make nothing of is left alone, as by a real one.
                            with suppress(NotFound, Conflict, LookupError):
                                if event["type"] in {"ADDED", "MODIFIED"}:
                                    await play(event["object"])
                                elif event["type"] == "DELETED" and kind == kinds.BUNDLE:
                                    await self._collect(event["object"])
            await asyncio.sleep(_POLL)

    async def _look(self) -> Discovery:
        """What is served, looked at once for all kinds that wait for their API."""
        async with self._looking:
            now = monotonic()
            if self._looked is None or now - self._looked[0] > _POLL / 2:
                self._looked = now, await self._discovery.read({each.group for each in self._play})
            return self._looked[1]

    async def _gateway_class(self, found: dict[str, Any]) -> None:
        if "deletionTimestamp" in found["metadata"]:
            await self._finalize(kinds.GATEWAY_CLASS, found, [])
        elif not _says(found, "Accepted"):
            await self._finalize(kinds.GATEWAY_CLASS, found, [CLASS_FINALIZER])
            await self._status(kinds.GATEWAY_CLASS, found, {"conditions": [_condition(found, "Accepted")]})

    async def _gateway(self, found: dict[str, Any]) -> None:
        if "deletionTimestamp" in found["metadata"]:
            await asyncio.sleep(self._hold)
            await self._finalize(kinds.GATEWAY, found, [])
            return
        if not _says(found, "Programmed"):
            await self._finalize(kinds.GATEWAY, found, [FINALIZER])
            conditions = [_condition(found, each) for each in ("Accepted", "Programmed")]
            addresses = [{"type": "IPAddress", "value": ADDRESS}]
            await self._status(kinds.GATEWAY, found, {"addresses": addresses, "conditions": conditions})
        policies = kinds.CLIENT_TRAFFIC_POLICY.path(namespace=found["metadata"]["namespace"])
        async for each in self._client.pages(policies):
            await self._policy(each)

    async def _certificate(self, found: dict[str, Any]) -> None:
        if _says(found, "Ready"):
            return
        metadata, spec = found["metadata"], found["spec"]
        certificate = base64.b64encode(self._authority.encode()).decode()
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {
                "name": spec["secretName"],
                "annotations": {"cert-manager.io/certificate-name": metadata["name"]},
            },
            "data": {"tls.crt": certificate, "tls.key": "", "ca.crt": certificate},
        }
        path = kinds.SECRET.path(spec["secretName"], metadata["namespace"])
        await self._client.apply(path, secret, manager="cert-manager")
        await self._status(kinds.CERTIFICATE, found, {"conditions": [_condition(found, "Ready")]})

    async def _bundle(self, found: dict[str, Any]) -> None:
        if _says(found, "Synced") or "deletionTimestamp" in found["metadata"]:
            return
        metadata = found["metadata"]
        namespace = found["spec"]["target"]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
        owner = {
            "apiVersion": kinds.BUNDLE.api_version,
            "kind": "Bundle",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        config_map = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": metadata["name"], "ownerReferences": [owner]},
            "data": {found["spec"]["target"]["configMap"]["key"]: self._authority},
        }
        path = kinds.CONFIG_MAP.path(metadata["name"], namespace)
        await self._client.apply(path, config_map, manager="trust-manager")
        await self._status(kinds.BUNDLE, found, {"conditions": [_condition(found, "Synced")]})

    async def _collect(self, bundle: dict[str, Any]) -> None:
        """Deletes what was made of a Bundle; the garbage collector hears of a new kind half a minute later only."""
        selector = bundle["spec"]["target"]["namespaceSelector"]["matchLabels"]
        path = kinds.CONFIG_MAP.path(bundle["metadata"]["name"], selector["kubernetes.io/metadata.name"])
        await self._client.delete(path)

    async def _policy(self, found: dict[str, Any]) -> None:
        target = found["spec"]["targetRefs"][0]
        namespace = found["metadata"]["namespace"]
        ancestors = (found.get("status") or {}).get("ancestors") or ()
        if any(_says({**found, "status": each}, "Accepted") for each in ancestors):
            return
        await self._client.get(kinds.GATEWAY.path(target["name"], namespace))  # NotFound: nothing to say yet
        reference = {
            "group": target["group"],
            "kind": target["kind"],
            "name": target["name"],
            "namespace": namespace,
        }
        ancestor = {
            "ancestorRef": reference,
            "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "conditions": [_condition(found, "Accepted")],
        }
        await self._status(kinds.CLIENT_TRAFFIC_POLICY, found, {"ancestors": [ancestor]})

    async def _deployment(self, found: dict[str, Any]) -> None:
        generation = found["metadata"]["generation"]
        if (found.get("status") or {}).get("observedGeneration") == generation and _says(found, "Available"):
            return
        condition = {key: value for key, value in _condition(found, "Available").items() if key != "observedGeneration"}
        replicas = found["spec"]["replicas"]
        status = {
            "observedGeneration": generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [condition],
        }
        await self._status(kinds.DEPLOYMENT, found, status)

    async def _status(self, kind: Kind, found: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        path = kind.path(found["metadata"]["name"], found["metadata"].get("namespace", ""))
        await self._client.patch(f"{path}/status", {"status": status}, MERGE_PATCH, manager="stand-in")

    async def _finalize(self, kind: Kind, found: Mapping[str, Any], finalizers: list[str]) -> None:
        if list(found["metadata"].get("finalizers") or ()) != finalizers:
            path = kind.path(found["metadata"]["name"], found["metadata"].get("namespace", ""))
            await self._client.patch(path, {"metadata": {"finalizers": finalizers}}, MERGE_PATCH, manager="stand-in")


def _says(found: Mapping[str, Any], type_: str) -> bool:
    """Whether a condition is True for the present generation."""
    generation = found["metadata"].get("generation", 0)
    return any(
        each["type"] == type_ and each["status"] == "True" and each.get("observedGeneration", generation) == generation
        for each in (found.get("status") or {}).get("conditions") or ()
    )


def _condition(found: Mapping[str, Any], type_: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": "as a stand-in for its controller says",
        "observedGeneration": found["metadata"].get("generation", 0),
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
