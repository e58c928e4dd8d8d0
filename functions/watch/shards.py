"""Which of several watch sources follows which target."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` sources that share the targets between them.

    Attributes:
        number: From 0; the first one also tells of the hub.
        count: How many there are.
    """

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """From such as `0/3`.

        Raises:
            ValueError: It is none.
        """
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and int(number) < int(count)):
            raise ValueError(f"{text!r} is no shard; write such as 0/3, 1/3 and 2/3 for three of them")
        return cls(int(number), int(count))

    def follows(self, cluster: str) -> bool:
        """Whether the target of this InferenceCluster is this one's; each is exactly one's."""
        digest = hashlib.sha256(cluster.encode()).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number
