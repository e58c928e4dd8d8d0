"""How many connections a process may have."""

from __future__ import annotations

import resource
from contextlib import suppress


def allow_many() -> None:
    """Lets this process have as many open files as it may: each watch is a connection, and a target has a dozen."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where the system sets a further limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
