"""Child processes that end with their parent, however it ends, and processes told apart from recycled ids.

Used by the control plane for its three servers and by everything here that runs a command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import IO

_POLL: Final = 0.01
_ENDING: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_TAIL: Final = 4000


def exit_on_signals() -> None:
    """Have SIGHUP, SIGINT and SIGTERM raise `SystemExit` with 128 and the number, so that `finally` cleans up.

    The first is the last: none breaks off what is cleaned up then. One that is ignored, as below nohup, stays so.
    """
    heeded = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]

    def end(number: int, _frame: FrameType | None) -> None:
        for each in heeded:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in heeded:
        signal.signal(number, end)


class ProcessGroup:
    """Processes that are killed together.

    A shell leads the group and waits for the end of a pipe that only this process holds open. Ctrl-C at a terminal
    does not reach the group; when this process dies, even by SIGKILL, the pipe closes and the shell kills them all.
    (Linux's parent-death signal would do less: it fires when the *thread* that started the child ends.)

    Args:
        detached: The processes live on when this one ends; each leads a session of its own.
    """

    def __init__(self, *, detached: bool = False) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._lifeline: subprocess.Popen[bytes] | None = None
        if not detached:
            self._lifeline = subprocess.Popen(
                ["/bin/sh", "-c", "read -r _; kill -9 0"], stdin=subprocess.PIPE, process_group=0
            )

    def spawn(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        output: IO[bytes],
        errors: IO[bytes] | None = None,
        env: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        """Start a process with nothing to read; its errors go where its output goes, unless told otherwise.

        Args:
            command: The program and its arguments.
            cwd: Where it runs.
            output: Where it writes.
            errors: Where it writes its errors.
            env: Its whole environment; this process's own by default.
            keep: Descriptors of this process that stay open in it, by the same number.
        """
        detached = self._lifeline is None
        child = subprocess.Popen(  # noqa: S603 - the commands are this package's own
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors or subprocess.STDOUT,
            pass_fds=tuple(keep),
            start_new_session=detached,
            process_group=self._lifeline.pid if self._lifeline else None,
        )
        self._children.append(child)
        return child

    def kill(self) -> None:
        """Kill all of them and wait until they are gone; harmless when they are gone already."""
        if self._lifeline is not None and self._lifeline.returncode is None:
            os.killpg(self._lifeline.pid, signal.SIGKILL)
            self._lifeline.communicate()
        for child in self._children:
            child.kill()
            child.wait()
        self._children.clear()


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, and no other that gets its id later.

    Attributes:
        pid: The process id.
        started: When it started, in the terms of the operating system.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that has this id now, None when there is none or only its exit status is left."""
        started = _start_time(pid)
        return None if started is None else cls(pid, started)

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Identity.of(self.pid) == self

    def kill(self, *, within: float = 10.0) -> None:
        """Kill it if it still runs, and wait until it is gone.

        Args:
            within: Seconds to wait.

        Raises:
            LocalError: It belongs to another user, or does not go.
        """
        deadline = time.monotonic() + within
        while self.alive():
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            except PermissionError as error:
                raise LocalError(f"process {self.pid} belongs to another user: end it as that user") from error
            if time.monotonic() > deadline:
                raise LocalError(f"process {self.pid} does not end although it was killed; look at its state with ps")
            time.sleep(_POLL)


def _start_time(pid: int) -> str | None:
    if Path("/proc/self/stat").exists():
        try:
            # The second field is the command in parentheses, which may hold anything; the third is the state.
            fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    listing = subprocess.run(  # noqa: S603 - an integer is all that is put in
        ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False
    )
    state, _, started = listing.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def tail(path: Path) -> str:
    """The last lines of a log, for an error message; empty when there is none."""
    try:
        text = path.read_bytes()[-_TAIL:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-12:])


def run(
    title: str, command: Sequence[str], *, cwd: Path, env: Mapping[str, str], first: float = 1.0, every: float = 15.0
) -> str:
    """Run a command that takes a while, and show on stderr that it goes on.

    Args:
        title: What is being done, such as "Building etcd".
        command: The program and its arguments.
        cwd: Where it runs.
        env: Its whole environment.
        first: Seconds after which progress is shown at all.
        every: Seconds between two lines of progress where stderr is not a terminal.

    Returns:
        What it wrote to its standard output.

    Raises:
        LocalError: It cannot be started, or fails; the text ends with what it said last.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out, errors = Path(scratch, "out"), Path(scratch, "errors")
        group = ProcessGroup()
        try:
            with out.open("wb") as output, errors.open("wb") as complaints:
                child = group.spawn(command, cwd=cwd, env=env, output=output, errors=complaints)
            _show_progress(title, child, first, every)
        except OSError as error:
            raise LocalError(f"{title}: {command[0]} cannot be started: {error.strerror}") from error
        finally:
            group.kill()
        if child.returncode != 0:
            raise LocalError(f"{title} failed ({command[0]} exited with {child.returncode}):\n{tail(errors)}")
        return out.read_text(errors="replace")


def _show_progress(title: str, child: subprocess.Popen[bytes], first: float, every: float) -> None:
    started = time.monotonic()
    terminal = sys.stderr.isatty()
    pause = first
    shown = False
    while True:
        try:
            child.wait(timeout=pause)
            break
        except subprocess.TimeoutExpired:
            say(f"{title} ... {time.monotonic() - started:.0f} s", replaceable=True)
            shown, pause = True, 1.0 if terminal else every
    if shown:
        say(f"{title}: {time.monotonic() - started:.0f} s")


def say(line: str, *, replaceable: bool = False) -> None:
    """Write a line to stderr; on a terminal a replaceable one is overwritten by the next."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}" + ("" if replaceable else "\n"))
    else:
        sys.stderr.write(line + "\n")
    sys.stderr.flush()
