"""Clients of the target clusters, one per InferenceCluster, kept as long as their kubeconfig Secret says the same."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from functions.access import kubeconfig
from functions.access.client import Client
from functions.access.discovery import DiscoveryReader
from functions.access.errors import KubeconfigInvalid, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from functions.access.connection import Connection

SECRETS: Final = "/api/v1/namespaces/modelplane-system/secrets"

RESTS: Final = (0.0, 90.0, 210.0, 270.0)
"""Seconds that an unreachable target is left in peace after one, two, three, and more failures in a row.

With a tick each minute that is each tick, every second, and then every fifth: never more than five minutes.
"""


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of a Secret in namespace modelplane-system of the hub."""

    name: str
    key: str

    def __str__(self) -> str:
        return f"Secret modelplane-system/{self.name}, key {self.key}"


@dataclass(frozen=True, slots=True)
class SecretVersion:
    """One version of one Secret."""

    uid: str
    resource_version: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> SecretVersion:
        """The version that an object's metadata is of."""
        return cls(metadata["uid"], metadata["resourceVersion"])


ABSENT: Final = SecretVersion("", "")
"""Version of a Secret that is not there; differs from every real one, so that it is noticed."""


@dataclass(slots=True)
class Target:
    """A target cluster and what is remembered of it."""

    client: Client
    discovery: DiscoveryReader


@dataclass(slots=True)
class _Entry:
    """What is kept for one InferenceCluster; `lock` lets its Secret be read once, not by each caller at once."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    reference: SecretKey | None = None
    version: SecretVersion | None = None
    digest: bytes = b""
    target: Target | None = None
    retired: Client | None = None  # the one before, which somebody may be using still
    failures: int = 0
    failed_at: datetime | None = None


class Targets:
    """Opens the target of an InferenceCluster with the kubeconfig that a Secret on the hub holds."""

    def __init__(self, hub: Client, *, connect: Callable[[Connection], Client] = Client) -> None:
        self._hub = hub
        self._connect = connect
        self._entries: dict[str, _Entry] = {}

    async def open(self, cluster: str, reference: SecretKey, seen: SecretVersion | None = None) -> Target:
        """The target of a cluster; reads the Secret only where it is not known, or known to have changed.

        Args:
            cluster: Name of the InferenceCluster.
            reference: Where its kubeconfig is.
            seen: The version of the Secret that the caller knows of; None to be content with the remembered one.

        Raises:
            KubeconfigInvalid: The Secret, its key or the kubeconfig in it is absent or unusable.
            AccessError: The hub did not let the Secret be read.
        """
        entry = self._entries.setdefault(cluster, _Entry())
        async with entry.lock:
            known = entry.target is not None and entry.reference == reference
            if not known or (seen is not None and seen != entry.version):
                await self._read(entry, reference)
            assert entry.target is not None  # noqa: S101 - _read sets it or raises
            return entry.target

    async def refresh(self, cluster: str, reference: SecretKey) -> Target | None:
        """The target by the Secret as it is now, None where it still says the same; for a credential just refused.

        Raises:
            KubeconfigInvalid: As for `open`.
            AccessError: The hub did not let the Secret be read.
        """
        entry = self._entries.setdefault(cluster, _Entry())
        async with entry.lock:
            before = entry.digest
            await self._read(entry, reference)
            return entry.target if entry.digest != before else None

    def answered(self, cluster: str) -> None:
        """Notes that a target could be asked."""
        entry = self._entries.setdefault(cluster, _Entry())
        entry.failures, entry.failed_at = 0, None

    def failed(self, cluster: str, now: datetime) -> None:
        """Notes that a target could not be reached, once more."""
        entry = self._entries.setdefault(cluster, _Entry())
        entry.failures, entry.failed_at = entry.failures + 1, now

    def is_resting(self, cluster: str, now: datetime) -> bool:
        """Whether a target failed so often and so lately that a tick is no reason to spend another time limit on it."""
        entry = self._entries.get(cluster)
        if entry is None or entry.failed_at is None:
            return False
        rest = RESTS[min(entry.failures, len(RESTS)) - 1]
        return (now - entry.failed_at).total_seconds() < rest

    async def forget(self, cluster: str) -> None:
        """Closes the client of a cluster that is gone."""
        entry = self._entries.pop(cluster, None)
        for client in _clients(entry):
            await client.close()

    async def close(self) -> None:
        """Closes every client."""
        for cluster in tuple(self._entries):
            await self.forget(cluster)

    async def _read(self, entry: _Entry, reference: SecretKey) -> None:
        same_place, entry.reference = entry.reference == reference, None  # unknown again unless all below goes well
        try:
            secret = await self._hub.get(f"{SECRETS}/{reference.name}")
        except NotFound:
            what = f"Secret modelplane-system/{reference.name} does not exist"
            raise KubeconfigInvalid(f"{what}; create it, or mend spec.cluster.existing.secretRef") from None
        version = SecretVersion.of(secret["metadata"])
        data = _decode(secret.get("data") or {}, reference)
        digest = hashlib.sha256(data).digest()
        if entry.target is None or not same_place or digest != entry.digest:
            connection = kubeconfig.from_secret(data)
            await self._swap(entry, connection)
        entry.reference, entry.version, entry.digest = reference, version, digest

    async def _swap(self, entry: _Entry, connection: Connection) -> None:
        """Points the entry at the connection: a new credential for the same server keeps client and watches."""
        target = entry.target
        if target is not None and target.client.accepts(connection):
            target.client.set_credentials(connection)
            return
        client = self._connect(connection)
        entry.target = Target(client, DiscoveryReader(client))
        if target is not None:
            await self._retire(entry, target.client)

    async def _retire(self, entry: _Entry, client: Client) -> None:
        """Leaves a replaced client to those who use it just now, until it is replaced once more."""
        before, entry.retired = entry.retired, client
        if before is not None:
            await before.close()


def _clients(entry: _Entry | None) -> list[Client]:
    clients = [] if entry is None else [entry.retired, entry.target.client if entry.target is not None else None]
    return [each for each in clients if each is not None]


def _decode(data: dict[str, str], reference: SecretKey) -> bytes:
    encoded = data.get(reference.key)
    if encoded is None:
        keys = ", ".join(sorted(data)) or "none"
        raise KubeconfigInvalid(
            f"Secret modelplane-system/{reference.name} has no key {reference.key}; its keys are: {keys}"
        )
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise KubeconfigInvalid(f"{reference} is not base64") from None
