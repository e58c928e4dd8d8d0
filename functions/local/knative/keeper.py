"""The process that keeps a control plane with Knative: it starts everything else, inside a network of its own.

`KnativeControlPlane` starts it with its settings as the one argument, and reads from its output how far it is.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import resource
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from functions.access.client import Client
from functions.access.errors import AccessError
from functions.access.kubeconfig import load_file
from functions.local.binaries import Binaries
from functions.local.directory import KEEPER, write_private
from functions.local.errors import LocalError
from functions.local.instance import ControlPlane, Place
from functions.local.knative import manifests
from functions.local.knative.cluster import Cluster
from functions.local.knative.dns import Responder
from functions.local.knative.network import API_SERVICE, BRIDGE_ADDRESS, Network
from functions.local.knative.pod import Surroundings
from functions.local.knative.relay import relay
from functions.local.knative.services import DOMAIN
from functions.local.knative.settings import INSIDE, Settings
from functions.local.knative.template import Images
from functions.local.processes import ProcessGroup, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMESPACE: Final = "knative-eventing"
_API_NAMES: Final = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1/"
_READY_WITHIN: Final = 150.0
_PATIENCE: Final = 30.0  # for one request, while much starts at once
_POLL: Final = 0.1
_LOOK_EVERY: Final = 2.0
_log: Final = logging.getLogger(__name__)


def main() -> int:
    """Start everything, say that it is ready, and keep it until this process is killed."""
    settings = Settings.load(sys.argv[1])
    # Each connection to a Service is two files here, and Knative's programs keep hundreds of them open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    keeper = _Keeper(settings)
    try:
        uvloop.run(keeper.run())
    except ExceptionGroup as errors:
        if errors.split((LocalError, AccessError, OSError))[1] is not None:
            keeper.clear()
            raise  # a bug, whose traceback is what there is to tell
        keeper.give_up(_leaves(errors))
    except (LocalError, AccessError, OSError) as error:
        keeper.give_up([error])
    return 1


class _Keeper:
    """Everything in the network, and what is told of it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._control_plane = ControlPlane(
            Binaries(*(Path(program) for program in settings.binaries)),
            Path(settings.directory),
            audit=settings.audit,
            place=Place(settings.port, BRIDGE_ADDRESS, names=_API_NAMES, addresses=(API_SERVICE,)),
        )
        self._ready = False

    def clear(self) -> None:
        """Leave nothing behind of what never was ready."""
        if not self._ready:
            self._control_plane.stop()

    def give_up(self, errors: Sequence[BaseException]) -> None:
        """Say why it is over."""
        text = "\n".join(str(error) or type(error).__name__ for error in errors)
        _log.error("%s", text, exc_info=errors[0] if errors else None)
        self.clear()
        if not self._ready:
            _tell("error", text)

    async def run(self) -> None:
        """Start everything and keep it.

        Raises:
            LocalError: Something does not start, or a server of the control plane ended.
            ExceptionGroup: Of these, of what the API server refused, and of errors of the operating system.
        """
        group = ProcessGroup()
        try:
            network = Network(group)
            await network.set_up()
            _tell("stage", "starting the API server")
            await asyncio.to_thread(self._control_plane.start)
            directory = self._control_plane.directory
            directory.record(KEEPER, os.getpid())
            home = directory.home / "knative"
            home.mkdir()
            write_private(home / INSIDE.name, _moved(self._control_plane.kubeconfig.read_bytes()))
            logging.basicConfig(filename=home / "keeper.log", format="%(asctime)s %(levelname)s %(message)s")
            await self._relay_api()
            client = Client(load_file(self._control_plane.kubeconfig), timeout=_PATIENCE)
            try:
                changed = asyncio.Event()
                around = Surroundings(client, network, group, home, self._kubeconfig, changed.set)
                await self._run(Cluster(around, self._images(), changed, directory.record_programs), client)
            finally:
                await client.close()
        finally:
            group.kill()

    async def _run(self, cluster: Cluster, client: Client) -> None:
        await Responder.listen(cluster.names.look_up, BRIDGE_ADDRESS)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(cluster.run())
            tasks.create_task(self._guard())
            _tell("stage", "installing Knative")
            await manifests.install(client, manifests.load(Path(self._settings.manifests)))
            _tell("stage", "waiting until Knative is ready")
            await self._until_ready(client, cluster)
            self._ready = True
            self._control_plane.directory.disown()
            _tell("ready", self._control_plane.server)
            _close_output()

    def _images(self) -> Images:
        programs = {name: Path(program) for name, program in self._settings.programs.items()}
        return Images(programs, (sys.executable, "-m", "functions"))

    async def _relay_api(self) -> None:
        """Lead to the API server from outside, and from the clusterIP of Service kubernetes."""
        port = self._settings.port
        await relay(lambda: ("127.0.0.1", port), listener=socket.socket(fileno=self._settings.listener))
        await relay(lambda: ("127.0.0.1", port), host=API_SERVICE, port=443)

    def _kubeconfig(self, token: str) -> Mapping[str, Any]:
        """The kubeconfig of a pod with that token."""
        authority = base64.b64encode(self._control_plane.ca).decode()
        server = f"https://{BRIDGE_ADDRESS}:{self._settings.port}"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": "pod", "user": {"token": token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": "pod"}}],
            "current-context": "local",
        }

    async def _guard(self) -> None:
        """Ends with an error when a server of the control plane does."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            running = self._control_plane.directory.status().running
            if ended := [name for name, runs in running.items() if not runs]:
                raise LocalError(f"{', '.join(ended)} ended; its log is in {self._control_plane.directory.home}")

    async def _until_ready(self, client: Client, cluster: Cluster) -> None:
        try:
            async with asyncio.timeout(_READY_WITHIN):
                # Nothing tells when the certificates are there.
                while cluster.waits_for(NAMESPACE) != [] or not await _admission_works(client):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            waiting = cluster.waits_for(NAMESPACE)
            missing = f"not ready: {', '.join(waiting)}" if waiting else "its webhooks have no certificate"
            logs = (tail(file) for file in sorted((self._control_plane.directory.home / "knative").glob("*.log")))
            raise LocalError(
                f"Knative is not ready after {_READY_WITHIN:.0f} s, {missing}; its programs said last:\n"
                + "\n".join(log for log in logs if log)
            ) from None


async def _admission_works(client: Client) -> bool:
    """Whether the webhooks' own certificates are in their configurations, which Knative fills in when it starts."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for each in (await client.get(_ADMISSION + kind))["items"]:
            if not all(webhook["clientConfig"].get("caBundle") for webhook in each["webhooks"]):
                return False
    return True


def _moved(kubeconfig: bytes) -> bytes:
    """The same kubeconfig with the address at which pods reach the API server."""
    content = json.loads(kubeconfig)
    content["clusters"][0]["cluster"]["server"] = "https://kubernetes.default.svc"
    return json.dumps(content, indent=2).encode()


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _tell(kind: str, text: str) -> None:
    """Tell who started this process; when nobody listens any more, that is an error."""
    sys.stdout.write(json.dumps([kind, text]) + "\n")
    sys.stdout.flush()


def _close_output() -> None:
    with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - not a path of ours
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)


if __name__ == "__main__":
    sys.exit(main())
