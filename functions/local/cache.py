"""What is made once per user and kept: the built control plane, and Go where the machine has none."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from functions.local.errors import LocalError
from functions.local.processes import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_UNFINISHED: Final = "unfinished-"


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME` or `~/.cache`, and in it the folder of this project; it need not exist yet."""
    return _base("XDG_CACHE_HOME", ".cache")


def state_directory() -> Path:
    """`$XDG_STATE_HOME` or `~/.local/state`, and in it the folder of this project; it need not exist yet."""
    return _base("XDG_STATE_HOME", ".local/state")


def _base(variable: str, default: str) -> Path:
    # A relative path in these variables is to be ignored (XDG Base Directory Specification).
    named = Path(os.environ.get(variable, ""))
    return (named if named.is_absolute() else Path.home() / default) / "modelplane-serving-stack"


def made_once(place: Path, what: str, make: Callable[[Path], None]) -> Path:
    """A directory that is made by whoever needs it first, whole or not at all.

    Args:
        place: Where the directory is, or will be.
        what: What it holds, for the message to those who wait for another process to make it.
        make: Fills the empty directory that it is given, beside `place`.

    Returns:
        `place`, which now exists.

    Raises:
        LocalError: The cache cannot be written; and whatever `make` raises, which leaves nothing behind.
    """
    if place.is_dir():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with _lock(place.parent / "lock", what):
            if not place.is_dir():
                _make(place, make)
    except OSError as error:
        raise LocalError(f"{what} cannot be kept in {place.parent}: {error.strerror or error}") from error
    return place


def _make(place: Path, make: Callable[[Path], None]) -> None:
    # Only the holder of the lock makes anything here, so what is unfinished was left by a process that was killed.
    for leftover in place.parent.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=place.parent))
    try:
        make(unfinished)
        unfinished.chmod(0o755)
        unfinished.rename(place)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _lock(path: Path, what: str) -> Iterator[None]:
    """Hold a lock that the operating system lets go when its holder dies."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"Waiting for another process that makes {what}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
