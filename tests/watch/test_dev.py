"""What the process that runs everything does before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

PROGRAM = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
from functions.watch import connections
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
connections.allow_many()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_it_may_have_as_many_connections_as_the_system_lets_it(
    start_python: Callable[[str], subprocess.Popen[str]],
) -> None:
    output, _ = start_python(PROGRAM).communicate(timeout=60)
    assert output == "True\n"
