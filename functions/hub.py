"""What the functions read and write on the hub: InferenceClusters, and which kubeconfig Secrets there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from events.event import event_id
from functions.access.client import JSON_PATCH
from functions.access.definitions import CRDS
from functions.access.errors import NotFound
from functions.access.names import is_object_name
from functions.access.targets import ABSENT, SECRETS, SecretVersion
from functions.clusters import API, API_VERSION, InferenceCluster
from functions.conditions import fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from functions.access.client import Client
    from functions.conditions import Condition

CLUSTERS: Final = f"{API}/inferenceclusters"
GATEWAYS: Final = f"{API}/inferencegateways"
_DEFINITION: Final = f"inferenceclusters.{API_VERSION.partition('/')[0]}"
FIELD_MANAGER: Final = "modelplane-requirements"
_EVENTS_OF_CLUSTER_SCOPED: Final = "default"
"""Namespace that Kubernetes asks for of an Event about a cluster-scoped object."""
_LONGEST_EVENT: Final = 1024
_LONGEST_EVENT_STEM: Final = 200


class Hub:
    """The cluster that holds the InferenceClusters.

    Attributes:
        client: What it is asked with.
        known: Each InferenceCluster as it was read or written last, by name.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known: dict[str, InferenceCluster] = {}

    async def cluster(self, name: str) -> InferenceCluster | None:
        """The InferenceCluster of this name, None where there is none.

        Raises:
            AccessError: The hub could not be asked.
        """
        try:
            found = InferenceCluster.from_object(await self.client.get(f"{CLUSTERS}/{name}"))
        except NotFound as absent:
            if not absent.kind_known and not await self._lacks(_DEFINITION):
                raise
            self.known.pop(name, None)
            return None
        self.known[name] = found
        return found

    async def clusters(self) -> list[InferenceCluster]:
        """Every InferenceCluster; none where the API is not installed yet.

        Raises:
            AccessError: The hub could not be asked.
        """
        try:
            return [InferenceCluster.from_object(each) async for each in self.client.pages(CLUSTERS)]
        except NotFound:
            if not await self._lacks(_DEFINITION):
                raise
            return []

    async def kubeconfig_versions(self) -> dict[str, SecretVersion]:
        """The version of each Secret in modelplane-system by name, without anything that a Secret holds.

        Raises:
            AccessError: The hub could not be asked.
        """
        return {
            each["metadata"]["name"]: SecretVersion.of(each["metadata"])
            async for each in self.client.pages(SECRETS, metadata_only=True)
        }

    async def kubeconfig_version(self, name: str) -> SecretVersion:
        """The version of one Secret in modelplane-system; `ABSENT` where there is none, or can be none of this name.

        Raises:
            AccessError: The hub could not be asked.
        """
        if not is_object_name(name):
            return ABSENT
        try:
            return SecretVersion.of((await self.client.get_metadata(f"{SECRETS}/{name}"))["metadata"])
        except NotFound:
            return ABSENT

    async def inference_gateways(self) -> list[dict[str, Any]] | None:
        """Every InferenceGateway; None where the API is not installed.

        Raises:
            AccessError: The hub could not be asked, or has the API and does not serve it now.
        """
        try:
            return [each async for each in self.client.pages(GATEWAYS)]
        except NotFound:
            if await self._lacks(f"inferencegateways.{API_VERSION.partition('/')[0]}"):
                return None
            raise

    async def write_status(
        self,
        cluster: InferenceCluster,
        conditions: Iterable[Condition],
        *,
        manager: str = FIELD_MANAGER,
        gateway: Mapping[str, str] | None = None,
    ) -> InferenceCluster:
        """Writes all of the status that a manager owns if the object is still the one that was read.

        What the manager owns and is left out is removed.

        Args:
            cluster: The object as it was read.
            conditions: Every condition of the manager.
            manager: Field manager.
            gateway: `status.gateway`; None where that is not the manager's business.

        Returns:
            The object as it is now.

        Raises:
            Conflict: The object has changed since.
            NotFound: It is gone.
            AccessError: The hub could not be asked.
        """
        status: dict[str, Any] = {"conditions": [each.to_object() for each in conditions]}
        if gateway:
            status["gateway"] = dict(gateway)
        body = {
            "apiVersion": API_VERSION,
            "kind": "InferenceCluster",
            "metadata": {"name": cluster.name, "uid": cluster.uid, "resourceVersion": cluster.resource_version},
            "status": status,
        }
        path = f"{CLUSTERS}/{cluster.name}/status"
        return self._knows(await self.client.apply(path, body, manager=manager))

    async def write_finalizers(self, cluster: InferenceCluster, finalizers: Sequence[str]) -> InferenceCluster:
        """Sets the finalizers if the object is still the one that was read; answers with the object as it is now.

        Raises:
            Conflict: The object has changed since.
            NotFound: It is gone.
            AccessError: The hub could not be asked.
        """
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": cluster.uid},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": cluster.resource_version},
            {"op": "add", "path": "/metadata/finalizers", "value": list(finalizers)},
        ]
        return self._knows(await self.client.patch(f"{CLUSTERS}/{cluster.name}", patch, JSON_PATCH))

    async def tell(
        self, cluster: InferenceCluster, *, teller: str, reason: str, message: str, warning: bool, now: datetime
    ) -> None:
        """Creates a Kubernetes Event on an InferenceCluster, which `kubectl describe` shows.

        Args:
            cluster: What it is about.
            teller: Which function says it.
            reason: One CamelCase word.
            message: In words, cut at a kilobyte.
            warning: Whether somebody should look.
            now: The event's time.

        Raises:
            AccessError: The hub does not take it.
        """
        digest = event_id(cluster.uid, cluster.resource_version, teller, reason)
        name = f"{cluster.name[:_LONGEST_EVENT_STEM]}.{digest}"
        moment = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _EVENTS_OF_CLUSTER_SCOPED},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": "InferenceCluster",
                "name": cluster.name,
                "uid": cluster.uid,
                "resourceVersion": cluster.resource_version,
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": fit(message, _LONGEST_EVENT),
            "source": {"component": teller},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
        await self.client.create(f"/api/v1/namespaces/{_EVENTS_OF_CLUSTER_SCOPED}/events", event)

    def _knows(self, value: dict[str, Any]) -> InferenceCluster:
        found = self.known[value["metadata"]["name"]] = InferenceCluster.from_object(value)
        return found

    async def _lacks(self, definition: str) -> bool:
        """Whether it is certain that the hub has no CRD of this name."""
        try:
            await self.client.get_metadata(f"{CRDS}/{definition}")
        except NotFound as absent:
            return absent.kind_known
        return False
