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
from functions.access.names import is_object_name

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
    reference: SecretKey | None = None  # None where the Secret has to be read in any case
    version: SecretVersion | None = None
    digest: bytes = b""  # of the kubeconfig that `target` is of
    target: Target | None = None
    refused: tuple[bytes, str] = (b"", "")  # digest of a kubeconfig that is of no use, and why
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
            target = entry.target if entry.reference == reference else None
            if target is None or (seen is not None and seen != entry.version):
                target = await self._read(entry, reference)
            return target

    async def refresh(self, cluster: str, reference: SecretKey) -> Target | None:
        """The target by the Secret as it is now, None where it still says the same; for a credential just refused.

        Raises:
            KubeconfigInvalid: As for `open`.
            AccessError: The hub did not let the Secret be read.
        """
        entry = self._entries.setdefault(cluster, _Entry())
        async with entry.lock:
            before = entry.digest
            target = await self._read(entry, reference)
            return target if entry.digest != before else None

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

    async def _read(self, entry: _Entry, reference: SecretKey) -> Target:
        entry.reference = None  # unknown again unless all below goes well
        secret = await self._secret(reference)
        data = _decode(secret.get("data") or {}, reference)
        digest = hashlib.sha256(data).digest()
        target = entry.target
        if target is None or digest != entry.digest:
            target = await self._swap(entry, digest, _connection(entry, digest, data))
        entry.reference, entry.version = reference, SecretVersion.of(secret["metadata"])
        return target

    async def _secret(self, reference: SecretKey) -> dict[str, Any]:
        what = f"Secret modelplane-system/{reference.name}"
        hint = "mend spec.cluster.existing.secretRef"
        if not is_object_name(reference.name):  # "..", for one, would be another path
            raise KubeconfigInvalid(f"{what} cannot exist, no Secret can have that name; {hint}")
        try:
            secret: dict[str, Any] = await self._hub.get(f"{SECRETS}/{reference.name}")
        except NotFound:
            raise KubeconfigInvalid(f"{what} does not exist; create it, or {hint}") from None
        return secret

    async def _swap(self, entry: _Entry, digest: bytes, connection: Connection) -> Target:
        """Points the entry at the connection: a new credential for the same server keeps client and watches."""
        target, entry.digest = entry.target, digest
        if target is not None and target.client.accepts(connection):
            target.client.set_credentials(connection)
            return target
        client = self._connect(connection)
        made = entry.target = Target(client, DiscoveryReader(client))
        if target is not None:
            await self._retire(entry, target.client)
        return made

    async def _retire(self, entry: _Entry, client: Client) -> None:
        """Leaves a replaced client to those who use it just now, until it is replaced once more."""
        before, entry.retired = entry.retired, client
        if before is not None:
            await before.close()


def _connection(entry: _Entry, digest: bytes, data: bytes) -> Connection:
    """The connection of a kubeconfig; one that is of no use is not looked at a second time."""
    refused, why = entry.refused
    if digest == refused:
        raise KubeconfigInvalid(why)
    try:
        return kubeconfig.from_secret(data)
    except KubeconfigInvalid as error:
        entry.refused = digest, error.message
        raise


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
