"""One pod: the first container of a template as a process in a network of its own, started again when it ends."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from functions.access.errors import AccessError, NotFound
from functions.local.directory import write_private
from functions.local.errors import LocalError
from functions.local.knative.informer import key
from functions.local.knative.pod_objects import PodObject
from functions.local.knative.template import (
    Facts,
    environment,
    mounts,
    paths,
    probe,
    relocate,
    sources,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

    from functions.access.client import Client
    from functions.local.knative.network import Namespace, Network
    from functions.local.knative.template import Probe
    from functions.local.processes import ProcessGroup

_FIRST_PAUSE: Final = 0.3
_LONGEST_PAUSE: Final = 10.0
_STEADY: Final = 10.0  # after so many seconds the pauses begin anew
_GRACE: Final = 2.0
_ASK_EVERY: Final = 0.1
_ASK_AGAIN: Final = 2.0
_TIMEOUT: Final = 2.0
_AS_KUBELET: Final = {"User-Agent": "kube-probe/1"}  # by which Knative's programs know a probe
_TOKEN_SECONDS: Final = 30 * 24 * 3600
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all pods share.

    Attributes:
        client: To the API server as an admin.
        network: Gives each pod its namespace.
        group: Holds the processes.
        home: Where logs and files of pods go.
        kubeconfig: Gives the content of a kubeconfig for a token.
        changed: Called when something about a pod did.
    """

    client: Client
    network: Network
    group: ProcessGroup
    home: Path
    kubeconfig: Callable[[str], Mapping[str, Any]]
    changed: Callable[[], None]


class Pod:
    """The process of one Deployment.

    Args:
        surroundings: What all pods share.
        deployment: Whose template it has.
        command: What the first container runs.

    Attributes:
        name: Of the Pod in the API server.
        template: As the Deployment has it.
        ready: Whether its readiness probe succeeded last; without one, whether it runs.
        address: Its IP address; empty until it has one.
        pid: Of its process; 0 while none runs.
        trouble: Why it is not started; empty while there is nothing.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        deployment: Mapping[str, Any],
        command: list[str],
    ) -> None:
        namespace, owner = key(deployment)
        self.name = f"{owner}-{secrets.token_hex(3)}"
        self.template: Mapping[str, Any] = deployment["spec"]["template"]
        self.ready = False
        self.address = ""
        self.pid = 0
        self.trouble = ""
        self._around = surroundings
        self._namespace = namespace
        self._home = surroundings.home / f"{namespace}.{owner}"
        self._command = command
        self._container: Mapping[str, Any] = self.template["spec"]["containers"][0]
        self._object = PodObject(surroundings.client, deployment, self.name)
        self._restarts = 0
        self._task = asyncio.get_running_loop().create_task(self._live())

    @property
    def container(self) -> Mapping[str, Any]:
        """The container that runs."""
        return self._container

    async def stop(self) -> None:
        """End it: asked to at first, and killed two seconds later."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _live(self) -> None:
        network: Namespace | None = None
        pause = _FIRST_PAUSE
        shutil.rmtree(self._home, ignore_errors=True)  # what a former one left
        try:
            while True:
                began = asyncio.get_running_loop().time()
                try:
                    if network is None:
                        network = await self._around.network.add_pod()
                        self.address = network.address
                    await self._object.create()
                    await self._run_once(network)
                    self._restarts += 1
                    await self._object.tell(self.address, ready=False, restarts=self._restarts)
                except (AccessError, LocalError, OSError) as error:
                    self._say(str(error) or type(error).__name__)
                if asyncio.get_running_loop().time() - began > _STEADY:
                    pause = _FIRST_PAUSE
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            if network is not None:
                self._around.network.remove_pod(network)
            try:
                await self._object.delete()
            except AccessError as error:
                self._say(str(error))

    def _say(self, trouble: str) -> None:
        if trouble != self.trouble:
            _log.warning("%s/%s: %s", self._namespace, self.name, trouble)
        self.trouble = trouble
        self._around.changed()

    async def _run_once(self, network: Namespace) -> None:
        """Start the process, and return once it has ended."""
        environ, places = await self._environment()
        command, how = paths(self._command, places, environ), probe(self._container)
        log = self._around.home / f"{self._home.name}.log"
        with log.open("ab") as output:
            process = self._around.group.spawn(network.inside(command), cwd=self._home, output=output, env=environ)
        self.pid = process.pid
        self._say("")
        asking = asyncio.get_running_loop().create_task(self._ask(how))
        try:
            await _ended(process)
            self._say(f"exited with {process.wait()}; see {log}")
        finally:
            asking.cancel()
            self.ready, self.pid = False, 0
            self._around.changed()
            await _end(process)

    async def _environment(self) -> tuple[dict[str, str], dict[str, Path]]:
        """The process's environment, and the directories that stand for its volumes."""
        spec = self.template["spec"]
        account = spec.get("serviceAccountName", "default")
        volumes = mounts(self.template, self._container)
        content = {volume["name"]: await self._content(volume) for volume in volumes.values()}
        _lay_out(self._home, content)
        places = {path: self._home / volume["name"] for path, volume in volumes.items()}
        facts = Facts(self.name, self._namespace, self.address, account, self.template.get("metadata", {}))
        data = {
            (kind, name): await self._read(kind, name, optional=optional)
            for kind, name, optional in sources(self._container)
        }
        asked = environment(self._container, facts, data)
        kubeconfig = self._home / "kubeconfig"
        write_private(kubeconfig, json.dumps(self._around.kubeconfig(await self._token(account))).encode())
        given = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(self._home),
            "HOSTNAME": self.name,
            "KUBECONFIG": str(kubeconfig),
        }
        return given | {name: relocate(value, places) for name, value in asked.items()}, places

    async def _content(self, volume: Mapping[str, Any]) -> Mapping[str, str]:
        """The files of a volume; one that is made empty has none."""
        for kind, source, name in (("configmaps", "configMap", "name"), ("secrets", "secret", "secretName")):
            if source in volume:
                optional = bool(volume[source].get("optional"))
                return await self._read(kind, volume[source][name], optional=optional)
        return {}

    async def _read(self, kind: str, name: str, *, optional: bool) -> Mapping[str, str]:
        """The content of a ConfigMap or Secret as text."""
        try:
            found = await self._around.client.get(f"/api/v1/namespaces/{self._namespace}/{kind}/{name}")
        except NotFound:
            if optional:
                return {}
            raise
        data: dict[str, str] = found.get("data") or {}
        if kind == "secrets":
            return {each: base64.b64decode(value).decode(errors="replace") for each, value in data.items()}
        return data

    async def _token(self, account: str) -> str:
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _TOKEN_SECONDS},
        }
        path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
        answer = await self._around.client.create(path, request)
        token: str = answer["status"]["token"]
        return token

    async def _ask(self, how: Probe | None) -> None:
        """Keep `ready` and the Pod's status up to date."""
        told: bool | None = None
        while True:
            ready = how is None or await _answers(how, self.address)
            if ready != self.ready:
                self.ready = ready
                self._around.changed()
            if ready != told:
                try:
                    await self._object.tell(self.address, ready=ready, restarts=self._restarts)
                    told = ready
                except AccessError as error:
                    _log.warning("%s/%s: %s", self._namespace, self.name, error)
            await asyncio.sleep(_ASK_AGAIN if ready else _ASK_EVERY)


def _lay_out(home: Path, volumes: Mapping[str, Mapping[str, str]]) -> None:
    """Make a directory with one for each volume and its files in it; what is there stays, as an emptyDir does."""
    home.mkdir(parents=True, exist_ok=True)
    for volume, files in volumes.items():
        (home / volume).mkdir(exist_ok=True)
        for name, text in files.items():
            (home / volume / name).write_text(text)


async def _answers(how: Probe, address: str) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT):
            if not how.url:
                _, writer = await asyncio.open_connection(address, how.port)
                writer.close()
                return True
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    how.url.format(address=address), headers=_AS_KUBELET | dict(how.headers), ssl=False
                ) as answer,
            ):
                return 200 <= answer.status < 400  # noqa: PLR2004 - as the kubelet takes it
    except (OSError, aiohttp.ClientError):
        return False


async def _ended(process: subprocess.Popen[bytes]) -> None:
    """Return once the process has ended; its status is left to be read."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = os.pidfd_open(process.pid)
    try:
        loop.add_reader(descriptor, _settle, ended)
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(_ended(process), _GRACE)
    except (TimeoutError, asyncio.CancelledError):
        process.kill()
    process.wait()
