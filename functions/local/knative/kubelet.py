"""Deployments become processes, and their status tells how these are.

Stands for the Deployment's controller, for the scheduler and for the kubelet.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from functions.access.client import MERGE_PATCH
from functions.access.errors import NotFound
from functions.local.knative.informer import key
from functions.local.knative.pod import Pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.access.client import Client
    from functions.local.knative.informer import Key
    from functions.local.knative.pod import Surroundings
    from functions.local.knative.template import Images

    Manifest = Mapping[str, Any]

_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{}/deployments/{}/status"
_log: Final = logging.getLogger(__name__)


class Kubelet:
    """Runs one pod for each Deployment that wants any.

    Args:
        surroundings: What all pods share.
        images: What stands for an image.

    Attributes:
        pods: Those that run or are being started, by namespace and name of the Deployment.
    """

    def __init__(self, surroundings: Surroundings, images: Images) -> None:
        self.pods: dict[Key, Pod] = {}
        self._around = surroundings
        self._images = images
        self._said: dict[Key, Manifest] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def update(self, deployments: Mapping[Key, Manifest], objects: Mapping[Key, Manifest]) -> None:
        """Start, stop and exchange pods so that they are what the Deployments say.

        Args:
            deployments: All there are.
            objects: The Pods in the API server; one that somebody deletes is exchanged.
        """
        wanted = {name: each for name, each in deployments.items() if _wants_pods(each)}
        for name in [name for name in self.pods if name not in wanted]:
            self._stop(name)
        for name, deployment in wanted.items():
            template = deployment["spec"]["template"]
            pod = self.pods.get(name)
            if pod is not None and (pod.template != template or _is_deleted(objects.get((name[0], pod.name)))):
                self._stop(name)
            if name not in self.pods and not self._stopping_of(name):
                command = self._images.command(template["spec"]["containers"][0])
                if command is not None:
                    self.pods[name] = Pod(self._around, deployment, command)

    async def tell(self, deployments: Mapping[Key, Manifest]) -> None:
        """Write each Deployment's status where it is another than was written last."""
        for name, deployment in deployments.items():
            status = self._status(deployment, self.pods.get(name))
            if self._said.get(name) != status:
                await self._write(self._around.client, name, status)
        for gone in self._said.keys() - deployments.keys():
            del self._said[gone]

    async def _write(self, client: Client, name: Key, status: Manifest) -> None:
        try:
            await client.patch(_DEPLOYMENTS.format(*name), {"status": status}, MERGE_PATCH)
        except NotFound:
            return
        self._said[name] = status

    def _status(self, deployment: Manifest, pod: Pod | None) -> Manifest:
        wanted = deployment["spec"].get("replicas", 1)
        running, ready = int(pod is not None), int(pod is not None and pod.ready)
        available = ready >= min(wanted, 1)
        if pod is None and wanted:
            image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
            why = (
                f"no program here stands for image {image}" if not self._stopping_of(key(deployment)) else "restarting"
            )
        else:
            why = "" if pod is None else pod.trouble
        return {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": running,
            "updatedReplicas": running,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": running - ready,
            "conditions": [
                _condition("Available", available, "MinimumReplicasAvailable", "MinimumReplicasUnavailable", why),
                _condition("Progressing", True, "NewReplicaSetAvailable", "", ""),  # noqa: FBT003 - its status
            ],
        }

    async def stop(self) -> None:
        """End all pods, and return once they are gone."""
        for name in list(self.pods):
            self._stop(name)
        while self._stopping:
            await asyncio.wait(self._stopping)

    def _stop(self, name: Key) -> None:
        """Stop a pod; another of that name is started once it is gone."""
        task = asyncio.get_running_loop().create_task(self.pods.pop(name).stop(), name="/".join(name))
        self._stopping.add(task)
        task.add_done_callback(self._stopped)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        self._stopping.discard(task)
        self._around.changed()

    def _stopping_of(self, name: Key) -> bool:
        return any(task.get_name() == "/".join(name) for task in self._stopping)


def _wants_pods(deployment: Manifest) -> bool:
    return deployment["spec"].get("replicas", 1) > 0 and "deletionTimestamp" not in deployment["metadata"]


def _is_deleted(manifest: Manifest | None) -> bool:
    return manifest is not None and "deletionTimestamp" in manifest["metadata"]


def _condition(kind: str, holds: bool, reason: str, otherwise: str, message: str) -> Manifest:  # noqa: FBT001
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason if holds else otherwise,
        "message": message,
    }
