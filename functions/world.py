"""The world as a function meets it: the only way to reach a cluster or the clock."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.targets import Targets
from functions.batches import Batches
from functions.hub import Hub
from functions.repairs import Repairs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from events.journal import Journal


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, to be replaced by one that a test moves.

    Attributes:
        now: The current moment in UTC.
        sleep: Waits so many seconds.
    """

    now: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep

    def timestamp(self) -> str:
        """The current moment as Kubernetes writes it: RFC 3339 to the second."""
        return self.now().strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(slots=True)
class World:
    """What a function may touch.

    Attributes:
        hub: The cluster that holds the InferenceClusters.
        targets: The clusters that they stand for.
        work: The looks at each cluster that are under way.
        repairs: What was put right lately on the targets.
        journal: Where events are written down; None where nothing is.
    """

    hub: Hub
    targets: Targets
    clock: Clock = field(default_factory=Clock)
    work: Batches[Any, Any] = field(default_factory=Batches)
    repairs: Repairs = field(default_factory=Repairs)
    journal: Journal | None = None

    @classmethod
    def open(cls, path: str | None = None) -> World:
        """The world around a hub.

        Args:
            path: The hub's kubeconfig file; None for what kubectl would use, which in a pod is its ServiceAccount.

        Raises:
            KubeconfigInvalid: There is no usable kubeconfig.
        """
        connection = kubeconfig.from_files([Path(path)] if path else None)
        client = Client(connection)
        return cls(Hub(client), Targets(client))

    async def close(self) -> None:
        """Ends the looks under way and closes every connection."""
        await self.work.close()
        await self.targets.close()
        await self.hub.client.close()
