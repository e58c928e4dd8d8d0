"""Which names Kubernetes objects can have: what is none must not become part of a path."""

from __future__ import annotations

import re
from typing import Final

_LONGEST: Final = 253
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def is_object_name(name: str) -> bool:
    """Whether it is a DNS subdomain name, as all objects here have one."""
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None
