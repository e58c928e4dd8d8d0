"""What the functions read and write on the hub: InferenceClusters, and which kubeconfig Secrets there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import NotFound
from functions.access.names import is_object_name
from functions.access.targets import ABSENT, SECRETS, SecretVersion
from functions.clusters import API, API_VERSION, InferenceCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from functions.access.client import Client
    from functions.conditions import Condition

CLUSTERS: Final = f"{API}/inferenceclusters"
FIELD_MANAGER: Final = "modelplane-requirements"
PAGE: Final = 500
"""Objects asked for in one list request."""


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
        except NotFound:
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
            return [InferenceCluster.from_object(each) async for each in self._pages(CLUSTERS)]
        except NotFound:
            return []

    async def kubeconfig_versions(self) -> dict[str, SecretVersion]:
        """The version of each Secret in modelplane-system by name, without anything that a Secret holds.

        Raises:
            AccessError: The hub could not be asked.
        """
        return {
            each["metadata"]["name"]: SecretVersion.of(each["metadata"])
            async for each in self._pages(SECRETS, metadata_only=True)
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

    async def write_conditions(self, cluster: InferenceCluster, conditions: Iterable[Condition]) -> InferenceCluster:
        """Writes all conditions of ours if the object is still the one that was read; answers with the new one.

        The field manager owns every one of them, so those left out are removed.

        Raises:
            Conflict: The object has changed since.
            NotFound: It is gone.
            AccessError: The hub could not be asked.
        """
        body = {
            "apiVersion": API_VERSION,
            "kind": "InferenceCluster",
            "metadata": {"name": cluster.name, "uid": cluster.uid, "resourceVersion": cluster.resource_version},
            "status": {"conditions": [each.to_object() for each in conditions]},
        }
        path = f"{CLUSTERS}/{cluster.name}/status"
        written = InferenceCluster.from_object(await self.client.apply(path, body, manager=FIELD_MANAGER))
        self.known[cluster.name] = written
        return written

    async def _pages(self, path: str, *, metadata_only: bool = False) -> AsyncIterator[dict[str, Any]]:
        read = self.client.list_metadata if metadata_only else self.client.get
        token = ""
        while True:
            page = await read(path, params={"limit": str(PAGE), **({"continue": token} if token else {})})
            for each in page["items"] or ():  # null where a list of metadata alone is empty
                yield each
            token = page["metadata"].get("continue", "")
            if not token:
                return
