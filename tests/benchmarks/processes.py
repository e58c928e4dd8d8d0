"""The processes that are measured: started as a user starts them, held between rounds, ended with the benchmark."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.processes import ProcessGroup, tail
from tests.benchmarks.measure import cpu_seconds

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
BIN: Final = Path(sys.executable).parent
SERVING_STACK: Final = str(BIN / "serving-stack")

_QUIET_WINDOW: Final = 0.06
_QUIET_WITHIN: Final = 4.0
_READY_POLL: Final = 0.002
_READY_WITHIN: Final = 20.0


class Running:
    """A process of one's own.

    Attributes:
        pid: Its id.
        log: What it writes.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.pid = process.pid
        self.log = log
        self._process = process

    @property
    def cpu(self) -> float:
        """Seconds of CPU that it has taken."""
        return cpu_seconds(self.pid)

    def hold(self) -> None:
        """Keeps it from running."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets it run again."""
        os.kill(self.pid, signal.SIGCONT)

    def check(self) -> None:
        """Raises RuntimeError, with what it said last, when it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._process.args!r} exited with {self._process.returncode}:\n{tail(self.log)}")


@contextmanager
def running(command: Sequence[str], log: Path, *, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Starts a process in the checkout, which is killed at the end, and whenever this process ends.

    Args:
        command: The program and its arguments.
        log: Takes its output; as on a cluster, it is no terminal.
        env: Variables beside our own environment.
    """
    group = ProcessGroup()
    try:
        with log.open("wb") as output:
            process = group.spawn(command, cwd=ROOT, output=output, env={**os.environ, **(env or {})})
        yield Running(process, log)
    finally:
        group.kill()


async def quiet(pid: int, cpu: float) -> None:
    """Returns once a process has nothing left to do, or after four seconds.

    Args:
        pid: Its id.
        cpu: Seconds of CPU within 60 ms that still pass for nothing.
    """
    deadline = time.monotonic() + _QUIET_WITHIN
    now, before = cpu_seconds(pid), float("-inf")
    while now - before > cpu and time.monotonic() < deadline:
        await asyncio.sleep(_QUIET_WINDOW)
        now, before = cpu_seconds(pid), now


def free_port() -> int:
    """A TCP port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until_ready(port: int, process: Running) -> float:
    """Asks for /health/readiness until the answer is 2xx; returns that moment (`time.perf_counter`)."""
    deadline = time.monotonic() + _READY_WITHIN
    request = b"GET /health/readiness HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
    while time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(request)
                if connection.recv(12).startswith(b"HTTP/1.1 2"):
                    return time.perf_counter()
        except ConnectionError:
            process.check()
        time.sleep(_READY_POLL)
    raise TimeoutError(f"nothing answers on port {port} within {_READY_WITHIN:.0f} s:\n{tail(process.log)}")
