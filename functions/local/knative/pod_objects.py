"""The Pod in the API server that stands for a process.

`kubectl get pods` shows it, one that is deleted is started anew, and the API server proxies to the Services before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.access.client import MERGE_PATCH
from functions.access.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.access.client import Client

    Manifest = Mapping[str, Any]

_NOW: Final = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}


def pod_of(deployment: Manifest, name: str) -> dict[str, Any]:
    """The Pod of a Deployment, bound to a node that there is not."""
    template = deployment["spec"]["template"]
    given = template.get("metadata", {})
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": deployment["metadata"]["name"],
        "uid": deployment["metadata"]["uid"],
        "controller": True,
    }
    metadata = {"name": name, "labels": given.get("labels", {}), "annotations": given.get("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {**template["spec"], "nodeName": "local"},
    }


class PodObject:
    """One Pod in the API server.

    Args:
        client: To the API server as an admin.
        deployment: Whose template it has.
        name: Of the Pod.
    """

    def __init__(self, client: Client, deployment: Manifest, name: str) -> None:
        self._client = client
        self._manifest = pod_of(deployment, name)
        self._pods = f"/api/v1/namespaces/{deployment['metadata']['namespace']}/pods"
        self._path = f"{self._pods}/{name}"
        self._created = False

    async def create(self) -> None:
        """Make it, unless it was made before."""
        if not self._created:
            await self._client.create(self._pods, self._manifest)
            self._created = True

    async def tell(self, address: str, *, ready: bool, restarts: int) -> None:
        """Write its status.

        Args:
            address: Its IP address.
            ready: Whether it takes requests.
            restarts: How often its process was started again.
        """
        container = self._manifest["spec"]["containers"][0]
        state = "True" if ready else "False"
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": kind, "status": state} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": "",
                    "ready": ready,
                    "restartCount": restarts,
                    "state": {"running": {}},
                }
            ],
        }
        await self._client.patch(f"{self._path}/status", {"status": status}, MERGE_PATCH)

    async def delete(self) -> None:
        """Have it gone at once."""
        if self._created:
            try:
                await self._client.request("DELETE", self._path, body=_NOW)
            except NotFound:
                return
