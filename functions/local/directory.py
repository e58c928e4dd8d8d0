"""The directory of one control plane: who runs in it, and how to end that, also from another process."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from functions.local.errors import LocalError
from functions.local.processes import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVERS: Final = ("etcd", "kube-apiserver", "kube-controller-manager")
KEEPER: Final = "knative"
"""The process that keeps a control plane with Knative, and starts all the others of it."""


@dataclass(frozen=True, slots=True)
class Status:
    """What is true of a directory now.

    Attributes:
        exists: A control plane was started here and not taken down.
        starting: The process that starts it is still at work, or owns it for as long as it lives.
        running: By the name of each server, whether it runs.
        programs: By namespace and name of each Deployment that runs beside them, whether its program does.
    """

    exists: bool
    starting: bool
    running: Mapping[str, bool]
    programs: Mapping[str, bool] = field(default_factory=dict)

    @property
    def up(self) -> bool:
        """Whether every server runs."""
        return self.exists and all(self.running.values())

    @property
    def in_use(self) -> bool:
        """Whether something runs here that a second control plane must not disturb."""
        return self.starting or any(self.running.values())


class _Written(NamedTuple):
    """What is written down: who owns the instance, its servers, and the programs that run beside them."""

    owner: Identity | None
    servers: dict[str, Identity]
    programs: dict[str, Identity]


class InstanceDirectory:
    """`kubeconfig` and, in `control-plane/`, everything else of one instance. Other files in it are left alone.

    Attributes:
        root: The directory itself.
        kubeconfig: The admin's kubeconfig.
        home: Keys, data, logs, and which processes there are.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.kubeconfig = self.root / "kubeconfig"
        self.home = self.root / "control-plane"
        self._record = self.home / "processes.json"

    def log(self, server: str) -> Path:
        """The log of one of the servers."""
        return self.home / f"{server}.log"

    def claim(self) -> None:
        """Make it this process's own; what a dead instance left here is removed.

        Raises:
            LocalError: Something runs here, or a kubeconfig that is not ours is in the way.
        """
        status = self.status()
        if status.in_use:
            doing = "is running" if status.up else "is being started or stopped"
            raise LocalError(f"a control plane {doing} in {self.root}; end it with `down`, or choose another directory")
        if status.exists:
            self.end()
        elif self.kubeconfig.exists():
            raise LocalError(f"{self.kubeconfig} exists and was not made here; choose another directory")
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._move_in()
        except OSError as error:
            raise LocalError(f"{self.root} cannot be used: {error.strerror or error}") from error

    def _move_in(self) -> None:
        # A rename is all or nothing, so of two that claim at once one sees the other.
        staged = Path(tempfile.mkdtemp(prefix=".control-plane-", dir=self.root))
        try:
            write_private(staged / self._record.name, _dump(_Written(Identity.of(os.getpid()), {}, {})))
            staged.rename(self.home)
        except BaseException:
            shutil.rmtree(staged, ignore_errors=True)
            raise

    def owned(self) -> bool:
        """Whether it is this process's own still: another may have taken down what this one starts."""
        return self.owned_by(Identity.of(os.getpid()))

    def owned_by(self, process: Identity | None) -> bool:
        """Whether that process claimed it and did not let go."""
        return process is not None and self._load().owner == process

    def kept_by(self, process: Identity) -> bool:
        """Whether that process claimed it or is noted as its keeper."""
        written = self._load()
        return process in (written.owner, written.servers.get(KEEPER))

    def record(self, server: str, pid: int) -> None:
        """Note that a server runs as process `pid`."""
        written = self._load()
        identity = Identity.of(pid)
        if identity is not None:
            self._save(written._replace(servers=written.servers | {server: identity}))

    def record_programs(self, pids: Mapping[str, int]) -> None:
        """Note which programs run beside the servers; those that were noted before and are not among them ended.

        Args:
            pids: Process ids by the names that `status` tells.
        """
        found = {name: Identity.of(pid) for name, pid in pids.items()}
        programs = {name: identity for name, identity in found.items() if identity is not None}
        self._save(self._load()._replace(programs=programs))

    def disown(self) -> None:
        """Let the servers live on without this process."""
        self._save(self._load()._replace(owner=None))

    def status(self) -> Status:
        """What is true now, by the processes and not by what was written down."""
        owner, servers, programs = self._load()
        known = (*SERVERS, *(name for name in servers if name not in SERVERS))
        return Status(
            exists=self.home.is_dir(),
            starting=owner is not None and owner.alive(),
            running={name: name in servers and servers[name].alive() for name in known},
            programs={name: identity.alive() for name, identity in sorted(programs.items())},
        )

    def end(self) -> None:
        """End what runs here and remove what belongs to it; harmless where there is nothing.

        Raises:
            LocalError: A process does not end.
        """
        if not self.home.is_dir():
            return
        written = self._load()
        with contextlib.suppress(FileNotFoundError):
            self._save(written._replace(owner=None))  # so that who still starts it knows why a server ends
        # The keeper first, for it starts again what ends; the servers in reverse, so that none outlives what it talks
        # to and logs about it.
        servers = dict(written.servers)
        keeper = servers.pop(KEEPER, None)
        for identity in filter(None, (keeper, *written.programs.values(), *reversed(servers.values()))):
            identity.kill()
        self.remove()

    def remove(self) -> None:
        """Remove the files of an instance whose processes are gone, and the directory if nothing else is in it.

        What is gone already does not matter: another process may remove it at the same time.
        """
        self.kubeconfig.unlink(missing_ok=True)
        shutil.rmtree(self.home, ignore_errors=True)
        with contextlib.suppress(OSError):  # something else is in it, or it is gone
            self.root.rmdir()

    def _load(self) -> _Written:
        try:
            written = json.loads(self._record.read_bytes())
            owner = Identity(**written["owner"]) if written["owner"] else None
            return _Written(owner, _identities(written["servers"]), _identities(written.get("programs", {})))
        except (FileNotFoundError, NotADirectoryError):
            return _Written(None, {}, {})
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise LocalError(
                f"{self._record} cannot be read ({type(error).__name__}). See with ps whether an etcd or a "
                f"kube-apiserver runs from {self.home}, then delete that directory"
            ) from error

    def _save(self, written: _Written) -> None:
        fresh = self._record.with_suffix(".new")
        write_private(fresh, _dump(written))
        fresh.replace(self._record)


def _identities(written: Mapping[str, Any]) -> dict[str, Identity]:
    return {name: Identity(**identity) for name, identity in written.items()}


def _dump(written: _Written) -> bytes:
    document: dict[str, Any] = {
        "owner": asdict(written.owner) if written.owner else None,
        "servers": {name: asdict(identity) for name, identity in written.servers.items()},
    }
    if written.programs:
        document["programs"] = {name: asdict(identity) for name, identity in written.programs.items()}
    return json.dumps(document, indent=2).encode()


def write_private(path: Path, content: bytes) -> None:
    """Write a file that nobody else may read, not even for the moment between creation and chmod."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - takes a descriptor
        file.write(content)
