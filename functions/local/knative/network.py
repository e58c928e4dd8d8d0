"""A network of our own: a bridge in one network namespace, and a namespace for each pod, joined to it.

Nothing of it is seen from outside, and it is gone with the processes in it. The range is that of a cluster: pods have
addresses of their own, so that each can listen on the ports that its manifest says.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.local.processes import ProcessGroup

BRIDGE: Final = "cluster"
BRIDGE_ADDRESS: Final = "10.97.0.1"
"""Where the API server and the DNS are."""
API_SERVICE: Final = "10.96.0.1"
"""The clusterIP of Service kubernetes, the first of the range."""
_PREFIX: Final = 12  # covers the addresses of pods and of Services
_PODS: Final = 200 * 250
_RESOLVER: Final = Path("/etc/resolv.conf")
_WITHIN: Final = 10.0
# Waits until it is killed; what it says first tells that it is in its namespace.
_PAUSE: Final = ("sh", "-c", "ip link set lo up && echo up && exec sleep 2147483647")


def missing_tools() -> list[str]:
    """What this machine lacks for networks of our own, each in words; empty where there is nothing."""
    if not Path("/proc/self/ns/net").exists():
        return ["network namespaces, which only Linux has"]
    packages = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2"}
    missing = [f"the command {name} (package {package})" for name, package in packages.items() if not _which(name)]
    if not _RESOLVER.exists():
        missing.append(f"{_RESOLVER}, over which the one of the cluster is put")
    if not missing and (complaint := _tried()):
        who = "root" if os.geteuid() else "the right to make network namespaces (CAP_SYS_ADMIN)"
        missing.append(f"{who}: `{' '.join(UNSHARE)} true` says: {complaint}")
    return missing


UNSHARE: Final = ("unshare", "--net", "--mount", "--")
"""Runs a command in a network and a mount namespace of its own, as the same process."""


def _which(command: str) -> str | None:
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _tried() -> str:
    """What making namespaces and a bridge complains of; empty where it succeeds."""
    script = f"ip link add {BRIDGE} type bridge && ip link add a type veth peer name b"
    tried = subprocess.run(  # noqa: S603 - the command is this module's own
        [*UNSHARE, "sh", "-c", script], capture_output=True, text=True, timeout=_WITHIN, check=False
    )
    return " ".join(tried.stderr.split()) if tried.returncode else ""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The network of one pod.

    Attributes:
        address: Its address on the bridge.
        pause: The process that holds the namespace open.
    """

    address: str
    pause: subprocess.Popen[bytes]

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one there, as the same process."""
        return ["nsenter", f"--net=/proc/{self.pause.pid}/ns/net", "--", *command]


class Network:
    """The bridge, and who is on it. To be used by a process that was started by `UNSHARE`.

    Args:
        group: Holds the processes that keep namespaces open.
        home: A directory for small files.
    """

    def __init__(self, group: ProcessGroup, home: Path) -> None:
        self._group = group
        self._home = home
        self._pods = 0

    async def set_up(self) -> None:
        """Make the bridge, and have names looked up at its address."""
        await _ip(
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {BRIDGE_ADDRESS}/{_PREFIX} dev {BRIDGE}",
            f"link set {BRIDGE} up",
        )
        await self.add_address(API_SERVICE)
        resolver = self._home / "resolv.conf"
        resolver.write_text(f"nameserver {BRIDGE_ADDRESS}\noptions timeout:1 attempts:2\n")
        await _run("mount", "--bind", str(resolver), str(_RESOLVER.resolve()))

    async def add_address(self, address: str) -> None:
        """Have the bridge answer for the address of a Service."""
        await _ip(f"addr add {address}/32 dev {BRIDGE}")

    async def remove_address(self, address: str) -> None:
        """Undo `add_address`."""
        await _ip(f"addr del {address}/32 dev {BRIDGE}")

    async def add_pod(self) -> Namespace:
        """Make a network for a pod; it ends with `remove_pod`."""
        if self._pods == _PODS:
            raise LocalError(f"{_PODS} pods were started here; take it down and start it anew")
        self._pods += 1
        high, low = divmod(self._pods, 250)
        address, link = f"10.97.{high + 1}.{low + 1}", f"pod{self._pods}"
        read, write = os.pipe()
        try:
            with open(write, "wb") as end:  # noqa: PTH123 - takes a descriptor
                pause = self._group.spawn([UNSHARE[0], "--net", "--", *_PAUSE], cwd=self._home, output=end)
            said = await asyncio.wait_for(asyncio.to_thread(os.read, read, 200), _WITHIN)
        finally:
            os.close(read)
        if said != b"up\n":
            raise LocalError(f"a network namespace could not be made: {said.decode(errors='replace').strip()}")
        namespace = Namespace(address, pause)
        await _ip(
            f"link add {link} type veth peer name eth0 netns {pause.pid}",
            f"link set {link} master {BRIDGE}",
            f"link set {link} up",
        )
        await _run(*namespace.inside(["ip", "addr", "add", f"{address}/{_PREFIX}", "dev", "eth0"]))
        await _run(*namespace.inside(["ip", "link", "set", "eth0", "up"]))
        return namespace

    def remove_pod(self, namespace: Namespace) -> None:
        """Let go of a pod's network; it is gone once the processes in it are."""
        namespace.pause.kill()
        namespace.pause.wait()


async def _ip(*commands: str) -> None:
    await _run("ip", "-batch", "-", text="\n".join(commands) + "\n")


async def _run(*command: str, text: str = "") -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(text.encode()), _WITHIN)
    if process.returncode:
        raise LocalError(f"{' '.join(command)} failed: {' '.join(said.decode(errors='replace').split())}")
