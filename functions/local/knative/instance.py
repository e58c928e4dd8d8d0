"""A control plane with Knative Eventing, as those see it who are outside of its network.

Used by `serving-stack local up --knative` and by the tests.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import secrets
import select
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.api import Api
from functions.local.directory import InstanceDirectory
from functions.local.errors import LocalError
from functions.local.instance import free_port
from functions.local.knative.manifests import manifests_directory
from functions.local.knative.network import require_networks, search_path, unshared
from functions.local.knative.programs import find_programs
from functions.local.knative.settings import INSIDE, Settings
from functions.local.processes import Identity, ProcessGroup, say, tail

if TYPE_CHECKING:
    import subprocess
    from types import TracebackType
    from typing import Self

    from functions.local.binaries import Binaries

_READY_WITHIN: Final = 240.0
_PORT_TRIES: Final = 5
_CHUNK: Final = 65536


class KnativeControlPlane:
    """An API server of one's own with Knative Eventing; a context manager that starts and stops it.

    Everything it starts ends with it, and at the latest with this process, also when that is killed. The API server is
    reached from outside as that of `ControlPlane` is; everything else only from its pods.

    Args:
        binaries: The programs of the control plane.
        directory: Where it lives; None for a temporary directory, from `start` to `stop`.
        audit: Log each request to `control-plane/audit.log`.
        detached: Everything outlives this process, until `InstanceDirectory.end`.

    Attributes:
        directory: Where it lives.
    """

    def __init__(
        self, binaries: Binaries, directory: Path | None = None, *, audit: bool = False, detached: bool = False
    ) -> None:
        temporary = Path(tempfile.gettempdir(), f"serving-stack-{secrets.token_hex(8)}")
        self.directory = InstanceDirectory(directory or temporary)
        self._binaries = binaries
        self._audit = audit
        self._detached = detached
        self._group: ProcessGroup | None = None
        self._keeper: Identity | None = None

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an admin, for use outside."""
        return self.directory.kubeconfig

    @property
    def kubeconfig_inside(self) -> Path:
        """The same for use by pods, such as in a Secret that an InferenceCluster names."""
        return self.directory.home / INSIDE

    @property
    def api(self) -> Api:
        """Requests to the API server as the admin."""
        return Api.of(self.kubeconfig)

    def log(self, namespace: str, deployment: str) -> Path:
        """What the process of a Deployment wrote."""
        return self.directory.home / "knative" / f"{namespace}.{deployment}.log"

    def volume(self, namespace: str, deployment: str, name: str) -> Path:
        """The directory that stands for a volume of a Deployment; it goes with the pod."""
        return self.directory.home / "knative" / f"{namespace}.{deployment}" / name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it, and return once Knative is ready for objects.

        Raises:
            LocalError: This machine lacks something, something runs in the directory, or a part does not start; nothing
                is left behind then.
        """
        require_networks()
        programs, manifests = find_programs(), manifests_directory()
        self._group = ProcessGroup(detached=self._detached)
        try:
            with _listen() as listener, tempfile.NamedTemporaryFile() as errors:
                settings = Settings(
                    directory=str(self.directory.root),
                    listener=listener.fileno(),
                    port=listener.getsockname()[1],
                    audit=self._audit,
                    binaries=tuple(str(each) for each in dataclasses.astuple(self._binaries)),
                    programs={name: str(program) for name, program in programs.items()},
                    manifests=str(manifests),
                )
                self._start_keeper(self._group, settings, Path(errors.name))
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill everything and remove its files; harmless when it is stopped already, or was never started."""
        if self._group is None:
            return
        self._group.kill()
        self._group = None
        # What it did not get to claim is somebody else's.
        if self._keeper is not None and self.directory.kept_by(self._keeper):
            self.directory.end()

    def _start_keeper(self, group: ProcessGroup, settings: Settings, errors: Path) -> None:
        command = unshared([sys.executable, "-m", "functions.local.knative.keeper", settings.dump()])
        environ = os.environ | {"PATH": search_path()}
        read, write = os.pipe()
        with open(read, "rb", buffering=0) as said:  # noqa: PTH123 - takes a descriptor
            with open(write, "wb") as output, errors.open("wb") as complaints:  # noqa: PTH123 - as above
                process = group.spawn(
                    command, cwd=Path.cwd(), output=output, errors=complaints, env=environ, keep=[settings.listener]
                )
            self._keeper = Identity.of(process.pid)
            self._wait(process, said.fileno(), errors)

    def _wait(self, process: subprocess.Popen[bytes], said: int, errors: Path) -> None:
        """Return once the keeper says that it is ready."""
        deadline = time.monotonic() + _READY_WITHIN
        text = b""
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([said], [], [], left)
            chunk = os.read(said, _CHUNK) if readable else b""
            if readable and not chunk:
                raise LocalError(f"the keeper of Knative exited with {process.wait()}:\n{tail(errors)}")
            *lines, text = (text + chunk).split(b"\n")
            for kind, told in map(json.loads, lines):
                if kind == "ready":
                    return
                if kind == "error":
                    raise LocalError(told)
                if sys.stderr.isatty():
                    say(f"Knative: {told} ...", replaceable=True)
        raise LocalError(f"Knative is not ready after {_READY_WITHIN:.0f} s")


def _listen() -> socket.socket:
    """A socket that listens on a free port of 127.0.0.1."""
    for _ in range(_PORT_TRIES):
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", free_port()))
    raise LocalError("no port of 127.0.0.1 can be had")
