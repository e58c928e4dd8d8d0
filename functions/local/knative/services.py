"""Services: their addresses lead to pods that are ready, and their names are told. Stands for kube-proxy and DNS."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import NotFound
from functions.local.errors import LocalError
from functions.local.knative.informer import key
from functions.local.knative.template import matches, port

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from functions.access.client import Client
    from functions.local.knative.informer import Key
    from functions.local.knative.network import Network
    from functions.local.knative.pod import Pod
    from functions.local.knative.relay import Target

    Manifest = Mapping[str, Any]

DOMAIN: Final = "cluster.local"
_MANAGER: Final = "local-services"
_ALIASES: Final = 8  # of a name, one after the other
_log: Final = logging.getLogger(__name__)


class _Port:
    """One port of a Service: a listener for as long as there is a pod to lead to, as a cluster refuses it else."""

    def __init__(self) -> None:
        self.targets: list[Target] = []
        self._listener: asyncio.Server | None = None
        self._turn = 0

    def choose(self) -> Target | None:
        """The pods in turn."""
        if not self.targets:
            return None
        self._turn += 1
        return self.targets[self._turn % len(self.targets)]

    async def lead_to(self, targets: list[Target], network: Network, address: str, number: int) -> None:
        """Lead to these from now on."""
        self.targets = targets
        if targets and self._listener is None:
            self._listener = await network.listen(self.choose, address, number)
        elif not targets:
            self.close()

    def close(self) -> None:
        """Refuse connections."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None


class Services:
    """All Services of the cluster.

    Args:
        client: Writes EndpointSlices.
        network: Has their addresses.
    """

    def __init__(self, client: Client, network: Network) -> None:
        self._client = client
        self._network = network
        self._ports: dict[tuple[str, int], _Port] = {}
        self._addresses: set[str] = set()
        self._names: dict[str, list[str] | str] = {}
        self._slices: dict[Key, Manifest] = {}

    def look_up(self, name: str) -> list[str] | None:
        """The addresses of `service.namespace`, with or without `.svc` and the domain; None where there is none."""
        for _ in range(_ALIASES):
            short = name.removesuffix(f".{DOMAIN}").removesuffix(".svc")
            found = self._names.get(short)
            if not isinstance(found, str):
                return found
            name = found.lower().rstrip(".")
        return None

    async def update(self, services: Mapping[Key, Manifest], pods: Mapping[Key, Pod]) -> None:
        """Make it so that addresses and names are those of `services` and lead to `pods`."""
        names: dict[str, list[str] | str] = {}
        wanted: dict[tuple[str, int], list[Target]] = {}
        selected: list[tuple[Manifest, list[Pod]]] = []
        for (namespace, name), service in services.items():
            spec = service["spec"]
            if spec.get("type") == "ExternalName":
                names[f"{name}.{namespace}"] = spec["externalName"]
                continue
            chosen = _chosen(service, pods)
            ready = [pod for pod in chosen if pod.ready]
            address = spec.get("clusterIP", "None")
            names[f"{name}.{namespace}"] = [pod.address for pod in ready] if address == "None" else [address]
            if "selector" in spec:
                selected.append((service, chosen))
                if address != "None":
                    for each in spec.get("ports", ()):
                        wanted[address, each["port"]] = [(pod.address, _target(each, pod)) for pod in ready]
        self._names = names
        await self._listen({address for address, _ in wanted}, wanted)
        # What is written last is what controllers go by.
        for service, chosen in selected:
            await self._write_slice(service, chosen)
        for gone in self._slices.keys() - services.keys():
            del self._slices[gone]

    async def _listen(self, addresses: set[str], wanted: Mapping[tuple[str, int], list[Target]]) -> None:
        for address in addresses - self._addresses:
            await self._network.add_address(address)
            self._addresses.add(address)
        for place in self._ports.keys() - wanted.keys():
            self._ports.pop(place).close()
        for (address, number), targets in wanted.items():
            await self._ports.setdefault((address, number), _Port()).lead_to(targets, self._network, address, number)
        for address in self._addresses - addresses:
            await self._network.remove_address(address)
            self._addresses.discard(address)

    async def _write_slice(self, service: Manifest, chosen: Sequence[Pod]) -> None:
        namespace, name = key(service)
        manifest = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": f"{name}-local",
                "labels": {"kubernetes.io/service-name": name},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Service", "name": name, "uid": service["metadata"]["uid"]}
                ],
            },
            "addressType": "IPv4",
            "endpoints": [
                {
                    "addresses": [pod.address],
                    "conditions": {"ready": pod.ready},
                    "targetRef": {"kind": "Pod", "namespace": namespace, "name": pod.name},
                }
                for pod in chosen
                if pod.address
            ],
            "ports": [
                {"name": each.get("name", ""), "port": _target(each, chosen[0]), "protocol": each["protocol"]}
                for each in service["spec"].get("ports", ())
                if chosen
            ],
        }
        if self._slices.get((namespace, name)) == manifest:
            return
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/{name}-local"
        try:
            await self._client.apply(path, manifest, manager=_MANAGER)
        except NotFound:  # its namespace is just being deleted
            return
        self._slices[namespace, name] = manifest


def _chosen(service: Manifest, pods: Mapping[Key, Pod]) -> list[Pod]:
    namespace, _ = key(service)
    selector = service["spec"].get("selector", {})
    return [
        pod
        for (of, _), pod in pods.items()
        if of == namespace and matches(selector, pod.template.get("metadata", {}).get("labels", {}))
    ]


def _target(each: Manifest, pod: Pod) -> int:
    try:
        return port(pod.container, each.get("targetPort", each["port"]))
    except LocalError as error:
        _log.warning("%s", error)
        return int(each["port"])
