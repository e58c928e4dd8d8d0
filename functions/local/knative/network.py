"""A network of our own: a bridge in one network namespace, and a namespace for each pod, joined to it.

Nothing of it is seen from outside, and it is gone with the processes in it. The range is that of a cluster: pods have
addresses of their own, so that each can listen on the ports that its manifest says.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.errors import LocalError
from functions.local.knative.relay import relay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from functions.local.knative.relay import Target
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


def unshared(command: Sequence[str]) -> list[str]:
    """The command that runs another one in a network and a mount namespace of its own, as the same process.

    Who is not root is put into a user namespace as well, and is root there.
    """
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *user, "--net", "--mount", "--", *command]


def require_networks() -> None:
    """Do nothing where networks of our own can be had.

    Raises:
        LocalError: They cannot; the text names everything that is missing.
    """
    if not Path("/proc/self/ns/net").exists():
        missing = ["network namespaces, which only Linux has"]
    else:
        packages = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2"}
        missing = [f"the command {name} (package {package})" for name, package in packages.items() if not _has(name)]
        if not _RESOLVER.exists():
            missing.append(f"the file {_RESOLVER}, over which one for the names of the cluster is put")
        if not missing and (complaint := _tried()):
            missing.append(f"{_right()}: {complaint}")
    if missing:
        raise LocalError(f"Knative runs in networks of its own, for which is missing here: {'; '.join(missing)}")


def _has(command: str) -> bool:
    return shutil.which(command, path=search_path()) is not None


def search_path() -> str:
    """The PATH, with where `ip` is on machines that keep it for root."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _right() -> str:
    return (
        "to be root, or user namespaces"
        if os.geteuid()
        else "the right to make network namespaces and bridges (CAP_SYS_ADMIN)"
    )


def _tried() -> str:
    """What making namespaces, a bridge and a pair of links complains of; empty where it succeeds."""
    script = f"ip link add {BRIDGE} type bridge && ip link add first type veth peer name second"
    tried = subprocess.run(  # noqa: S603 - the command is this module's own
        unshared(["sh", "-c", script]),
        capture_output=True,
        text=True,
        timeout=_WITHIN,
        check=False,
        env=os.environ | {"PATH": search_path()},
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
    """The bridge, and who is on it. To be used by a process that was started with `unshared`.

    Args:
        group: Holds the processes that keep namespaces open.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self._group = group
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
        await asyncio.to_thread(_redirect_resolver)

    async def add_address(self, address: str) -> None:
        """Have the bridge answer for the address of a Service."""
        await _ip(f"addr add {address}/32 dev {BRIDGE}")

    async def remove_address(self, address: str) -> None:
        """Undo `add_address`."""
        await _ip(f"addr del {address}/32 dev {BRIDGE}")

    async def listen(self, choose: Callable[[], Target | None], address: str, port: int) -> asyncio.Server:
        """Pass on what comes to a port of such an address.

        Args:
            choose: Where a new connection goes; None to cut it off.
            address: Of a Service.
            port: Of that Service.
        """
        return await relay(choose, host=address, port=port)

    async def add_pod(self) -> Namespace:
        """Make a network for a pod; it ends with `remove_pod`."""
        if self._pods == _PODS:
            raise LocalError(f"{_PODS} pods were started here; take it down and start it anew")
        self._pods += 1
        high, low = divmod(self._pods, 250)
        address, link = f"10.97.{high + 1}.{low + 1}", f"pod{self._pods}"
        pause = await asyncio.wait_for(asyncio.to_thread(self._pause), _WITHIN)
        namespace = Namespace(address, pause)
        try:
            await _ip(
                f"link add {link} type veth peer name eth0 netns {pause.pid}",
                f"link set {link} master {BRIDGE}",
                f"link set {link} up",
            )
            inside = f"addr add {address}/{_PREFIX} dev eth0\nlink set eth0 up\n"
            await asyncio.to_thread(_run, *namespace.inside(["ip", "-batch", "-"]), text=inside)
        except BaseException:
            self.remove_pod(namespace)
            raise
        return namespace

    def _pause(self) -> subprocess.Popen[bytes]:
        """A process that holds a new network namespace open."""
        read, write = os.pipe()
        try:
            with open(write, "wb") as end:  # noqa: PTH123 - takes a descriptor
                pause = self._group.spawn(["unshare", "--net", "--", *_PAUSE], cwd=Path.cwd(), output=end)
            said = os.read(read, 200)
        finally:
            os.close(read)
        if said != b"up\n":
            raise LocalError(f"a network namespace could not be made: {said.decode(errors='replace').strip()}")
        return pause

    def remove_pod(self, namespace: Namespace) -> None:
        """Let go of a pod's network; it is gone once the processes in it are."""
        namespace.pause.kill()
        namespace.pause.wait()


def _redirect_resolver() -> None:
    """Have names looked up at the bridge, by those in this mount namespace."""
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as resolver:
        resolver.write(f"nameserver {BRIDGE_ADDRESS}\noptions timeout:1 attempts:2\n")
        resolver.flush()
        Path(resolver.name).chmod(0o644)
        # What is mounted stays, although its name goes.
        _run("mount", "--bind", resolver.name, str(_RESOLVER.resolve()))


async def _ip(*commands: str) -> None:
    await asyncio.to_thread(_run, "ip", "-batch", "-", text="\n".join(commands) + "\n")


def _run(*command: str, text: str = "") -> None:
    # Not by the event loop: uvloop forks in a way that does not go together with forks of other threads.
    done = subprocess.run(  # noqa: S603 - the commands are this module's own
        command, input=text, capture_output=True, text=True, timeout=_WITHIN, check=False
    )
    if done.returncode:
        raise LocalError(f"{' '.join(command)} failed: {' '.join(done.stderr.split())}")
