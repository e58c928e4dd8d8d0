"""Reads what `make lock` writes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Pin(NamedTuple):
    """One version of a distribution, by what its files are."""

    version: str
    hashes: frozenset[str]


def pins(lock: Path) -> dict[str, Pin]:
    """The distributions of a lock file by name."""
    entries = re.split(r"^(?=[a-z0-9])", lock.read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for each in entries:
        name, _, rest = each.partition("==")
        found[name] = Pin(rest.split(maxsplit=1)[0], frozenset(re.findall(r"--hash=(\S+)", each)))
    return found
