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
    wanted: str
    times: deque[datetime] = field(default_factory=lambda: deque(maxlen=AT_MOST))
    fruitless: str = ""
    harmless: bool = False


class Repairs:
    """What was put right, by the uid of the object."""

    def __init__(self) -> None:
        self._histories: dict[str, _History] = {}

    def is_fought(self, uid: str, wanted: str, now: datetime) -> bool:
        """Whether somebody undid it so often lately that it is left for a while; `wanted` says what it should be."""
        history = self._histories.get(uid)
        if history is None or history.wanted != wanted or len(history.times) < AT_MOST:
            return False
        return (now - history.times[0]).total_seconds() < WITHIN

    def was_fruitless(self, uid: str, wanted: str, state: str) -> bool:
        """Whether making it what it should be was tried in this very state, and changed nothing."""
        history = self._histories.get(uid)
        return history is not None and (history.wanted, history.fruitless) == (wanted, state)

    def was_harmless(self, uid: str, wanted: str, state: str) -> bool:
        """Whether that state turned out to be what the API server itself makes of what should be."""
        return self.was_fruitless(uid, wanted, state) and self._histories[uid].harmless

    def note(self, uid: str, wanted: str, now: datetime, fruitless: str = "", *, harmless: bool = False) -> None:
        """Notes that it was made what it should be, or that this left it in the state `fruitless`."""
        history = self._histories.get(uid)
        if history is None or history.wanted != wanted:
            self._forget(now)
            history = self._histories[uid] = _History(wanted)
        history.times.append(now)
        history.fruitless, history.harmless = fruitless, harmless

    def _forget(self, now: datetime) -> None:
        old = [uid for uid, each in self._histories.items() if (now - each.times[-1]).total_seconds() > _KEPT]
        for uid in old:
            del self._histories[uid]
