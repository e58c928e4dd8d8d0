"""How often each object had to be put right lately, so that nobody is fought: neither a controller nor a webhook."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

AT_MOST: Final = 3
WITHIN: Final = 60.0
"""Seconds in which an object is put right that often and no more."""
_KEPT: Final = 600.0


@dataclass(slots=True)
class _History:
    times: deque[datetime] = field(default_factory=lambda: deque(maxlen=AT_MOST))
    fruitless: str = ""


class Repairs:
    """What was put right, by the uid of the object."""

    def __init__(self) -> None:
        self._histories: dict[str, _History] = {}

    def is_fought(self, uid: str, now: datetime) -> bool:
        """Whether somebody undid it so often lately that it is left for a while."""
        history = self._histories.get(uid)
        if history is None or len(history.times) < AT_MOST:
            return False
        return (now - history.times[0]).total_seconds() < WITHIN

    def was_fruitless(self, uid: str, state: str) -> bool:
        """Whether putting it right was tried in this very state, and changed nothing."""
        history = self._histories.get(uid)
        return history is not None and history.fruitless == state

    def note(self, uid: str, now: datetime, fruitless: str = "") -> None:
        """Notes that it was put right, or that this changed nothing of the state `fruitless`."""
        if uid not in self._histories:
            self._forget(now)
        history = self._histories.setdefault(uid, _History())
        history.times.append(now)
        history.fruitless = fruitless

    def _forget(self, now: datetime) -> None:
        old = [uid for uid, each in self._histories.items() if (now - each.times[-1]).total_seconds() > _KEPT]
        for uid in old:
            del self._histories[uid]
