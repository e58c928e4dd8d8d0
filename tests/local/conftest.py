"""What the tests of this folder need to see processes end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def wait_gone() -> Callable[[int], None]:
    """Waits until a process has ended, whoever its parent is; fails after ten seconds."""

    def wait(pid: int) -> None:
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            ended, _, _ = select.select([process], [], [], 10)
        finally:
            os.close(process)
        assert ended, f"process {pid} still runs"

    return wait


@pytest.fixture
def start_python() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a program in a new Python, with pipes to all three streams; killed at the end if need be."""
    with ExitStack() as stack:

        def start(program: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        yield start
