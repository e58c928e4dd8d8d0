"""Which names Kubernetes objects can have: what is none must not become part of a path."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_object_name(name: str) -> bool:
    """Whether it is a DNS subdomain name, as all objects here have one."""
    return _NAME.fullmatch(name) is not None
