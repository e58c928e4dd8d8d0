"""What there is in the API server, and who makes it so: the stand-ins together, one look at everything at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from functions.access.errors import AccessError
from functions.local.errors import LocalError
from functions.local.knative.informer import Informer
from functions.local.knative.kubelet import Kubelet
from functions.local.knative.services import Services
from functions.local.knative.serving import PATH as KNATIVE_SERVICES
from functions.local.knative.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from functions.local.knative.pod import Surroundings
    from functions.local.knative.template import Images

_DEPLOYMENTS: Final = "/apis/apps/v1/deployments"
_PODS: Final = "/api/v1/pods"
_SERVICES: Final = "/api/v1/services"
_RETRY: Final = 0.5
_log: Final = logging.getLogger(__name__)


class Cluster:
    """Runs what the API server says is to run, and says how it is.

    Args:
        around: What all pods share.
        images: What stands for an image.
        changed: Is set when something has to be looked at; `around.changed` sets it.
        record: Is told the process ids by namespace and name of the Deployment, after each change of them.

    Attributes:
        kubelet: Has the pods.
        names: Knows the names of Services.
    """

    def __init__(
        self,
        around: Surroundings,
        images: Images,
        changed: asyncio.Event,
        record: Callable[[Mapping[str, int]], None],
    ) -> None:
        self.kubelet = Kubelet(around, images)
        self.names = Services(around.client, around.network)
        self._serving = Serving(around.client)
        self._changed = changed
        self._record = record
        self._recorded: dict[str, int] = {}
        self._deployments, self._services, self._pods, self._knative_services = (
            Informer(around.client, path, changed.set) for path in (_DEPLOYMENTS, _SERVICES, _PODS, KNATIVE_SERVICES)
        )

    async def run(self) -> None:
        """Go on until it is cancelled; what fails is tried again.

        Knative Services are looked at from when their definition is there.
        """
        informers = (self._deployments, self._services, self._pods, self._knative_services)
        async with asyncio.TaskGroup() as tasks:
            for informer in informers:
                tasks.create_task(informer.run())
            tasks.create_task(self._reconcile())

    async def _reconcile(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._update()
            except (AccessError, LocalError, OSError) as error:
                _log.warning("%s", error)
                await asyncio.sleep(_RETRY)
                self._changed.set()
            pids = {"/".join(name): pod.pid for name, pod in self.kubelet.pods.items() if pod.pid}
            if pids != self._recorded:
                self._recorded = pids
                self._record(pids)

    async def _update(self) -> None:
        """Look at everything once; a Deployment is told to be ready only once its Services lead to it."""
        # As they are now; the informers go on meanwhile.
        deployments = dict(self._deployments.objects)
        self.kubelet.update(deployments, dict(self._pods.objects))
        await self.names.update(dict(self._services.objects), self.kubelet.pods)
        await self.kubelet.tell(deployments)
        await self._serving.update(dict(self._knative_services.objects), deployments)

    def waits_for(self, namespace: str) -> list[str] | None:
        """The Deployments of a namespace that are not ready; None where there are none at all."""
        pods = [(name, pod.ready) for (of, name), pod in self.kubelet.pods.items() if of == namespace]
        return [name for name, ready in pods if not ready] if pods else None

    async def stop(self) -> None:
        """End all pods."""
        await self.kubelet.stop()
