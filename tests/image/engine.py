"""A Docker engine for tests: the one that answers, or one of the tests' own that leaves nothing behind.

One of their own lives in a process and a mount namespace: whatever ends it, every container and every mount ends too.
It leaves the machine's network alone but for a bridge for each network that a test makes; ports are published on
loopback by Docker's proxy, so no packet filter is needed.
"""

from __future__ import annotations

import ensurepip
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.cache import cache_directory, made_once
from functions.local.processes import ProcessGroup, run, tail

if TYPE_CHECKING:
    from collections.abc import Iterator

INSTALLS: Final = ".ci/docker"
_CGROUPS: Final = Path("/sys/fs/cgroup")
_SUITE: Final = "bookworm"
_PACKAGES: Final = "python3,ca-certificates"
_RECIPE: Final = 1  # counts up when what is made of them changes
_NAMESPACES: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


class Missing(Exception):  # noqa: N818 - named for what it says
    """What is not there and how to get it; the tests cannot run."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A Docker engine that answers.

    Attributes:
        host: Where, as DOCKER_HOST names it.
        own: Whether it was started here: it has no images then, and cannot fetch any from where this runs alone.
    """

    host: str
    own: bool

    def docker(self, *arguments: str | Path) -> str:
        """What the client prints.

        Raises:
            CalledProcessError: It failed.
        """
        command = ["docker", "--host", self.host, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


@contextmanager
def running_engine() -> Iterator[Engine]:
    """Gives an engine; one of its own ends afterwards.

    Raises:
        Missing: There is none and none can be started.
    """
    if shutil.which("docker") is None:
        raise Missing(f"docker, the client, is not installed; on Debian and Ubuntu {INSTALLS} does it")
    if (answering := _answering()) is not None:
        yield Engine(answering, own=False)
        return
    lacks = [each for each in ("dockerd", "unshare") if shutil.which(each) is None]
    if lacks or os.geteuid() != 0:
        needed = f"{' and '.join(lacks)} ({INSTALLS} installs them)" if lacks else "root"
        raise Missing(f"no Docker engine answers, and to start one takes {needed}")
    with tempfile.TemporaryDirectory(prefix="serving-stack-docker-") as directory, _own(Path(directory)) as host:
        yield Engine(host, own=True)


def _answering() -> str | None:
    """Where an engine answers that is there already."""
    command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    chosen = subprocess.run(command, check=False, capture_output=True, text=True)
    host = os.environ.get("DOCKER_HOST") or chosen.stdout.strip()
    return host if host and _answers(host) else None


def _answers(host: str) -> bool:
    command = ["docker", "--host", host, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def _own(directory: Path) -> Iterator[str]:
    socket, log, configuration = directory / "socket", directory / "log", directory / "daemon.json"
    configuration.write_text("{}")  # in place of the machine's, which may say otherwise
    group = f"/{directory.name}"
    command = [
        *_NAMESPACES,
        *("dockerd", f"--config-file={configuration}", f"--host=unix://{socket}", f"--pidfile={directory / 'pid'}"),
        *(f"--data-root={directory / 'data'}", f"--exec-root={directory / 'run'}"),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
        *("--oom-score-adjust=0", "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent={group}"),
        "--log-level=warn",
    ]
    processes = ProcessGroup()
    try:
        with log.open("wb") as output:
            outside = processes.spawn(command, cwd=directory, output=output)
        host = f"unix://{socket}"
        deadline = time.monotonic() + 60
        while not _answers(host):
            if outside.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"dockerd does not start:\n{tail(log)}")
            time.sleep(0.1)
        try:
            yield host
        finally:
            _end(outside)
    finally:
        processes.kill()
        for each in [*_CGROUPS.glob(f".{group}"), *_CGROUPS.glob(f"*{group}")]:
            each.rmdir()


def _end(outside: subprocess.Popen[bytes]) -> None:
    """Ends dockerd, the one child of the process that made its namespaces, and waits for it."""
    for child in Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    try:
        outside.wait(30)
    except subprocess.TimeoutExpired:
        return  # it is killed instead


def base_image(engine: Engine) -> str | None:
    """The name of an image that the project's can be built on; None for the one that the Makefile names.

    Raises:
        Missing: None can be made here, and an engine of one's own has none.
    """
    if chosen := os.environ.get("BASE"):
        return chosen
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        if engine.own:
            raise Missing(f"without debootstrap there is no base image; {INSTALLS} installs it")
        return None
    place = cache_directory() / "base-image" / f"{_SUITE}-{platform.machine()}-{_RECIPE}"
    archive = made_once(place, "the base image", _make_base) / "base.tar"
    engine.docker("import", archive, "serving-stack-base")
    return "serving-stack-base"


def _make_base(directory: Path) -> None:
    """Python from Debian's packages, as images of Python usually are: with pip, and without compiled files."""
    root = directory / "root"
    command = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(root)]
    run("Making a base image", [*_NAMESPACES, *command], cwd=directory, env=os.environ)
    compiled = [*root.glob("usr/lib/python3*/**/__pycache__")]
    for each in (root / "var/cache/apt", root / "var/lib/apt/lists", *compiled):
        shutil.rmtree(each)
    _plant_installers(root)
    subprocess.run(["tar", "--directory", root, "--create", "--file", directory / "base.tar", "."], check=True)
    shutil.rmtree(root)


def _plant_installers(root: Path) -> None:
    """The pip of this environment where the Python in the image looks for it, and what would bring it back."""
    pip = metadata.distribution("pip")
    (library,), (packages,) = root.glob("usr/lib/python3.*"), root.glob("usr/local/lib/python3.*/dist-packages")
    planted = {Path(str(pip.locate_file(each.parts[0]))) for each in pip.files or () if each.parts[0] != ".."}
    for source, place in {**dict.fromkeys(planted, packages), Path(ensurepip.__file__).parent: library}.items():
        shutil.copytree(source, place / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    command = root / "usr/local/bin/pip"
    command.write_text("#!/usr/bin/python3\nfrom pip._internal.cli.main import main\nmain()\n")
    command.chmod(0o755)
