"""What a CRD says of itself, read without its schemas: they are up to a megabyte that nobody here looks at.

Parsing that megabyte costs ten times what the whole look at a cluster does. The API server writes the fields of its own
kinds in a fixed order, so that what is wanted stands at known places; where it does not, all of it is parsed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.access.client import Client

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Go's own order of the fields; within a JSON string each of these quotes would stand behind a backslash.
_SPEC: Final = b',"spec":{'
_STATUS: Final = b',"status":{'
_VERSION: Final = re.compile(rb'\{"name":"([a-z0-9]+)","served":(true|false),"storage":(?:true|false)[,}]')


@dataclass(frozen=True, slots=True)
class Definition:
    """A CRD without its schemas.

    Attributes:
        being_deleted: Whether it has a deletionTimestamp.
        versions: Whether each version is served, by name in the CRD's order.
        conditions: Its conditions by type.
    """

    being_deleted: bool
    versions: Mapping[str, bool]
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def served(self) -> tuple[str, ...]:
        """The versions that it wants served."""
        return tuple(name for name, served in self.versions.items() if served)


async def read_definition(client: Client, name: str) -> Definition:
    """The CRD of this name.

    Raises:
        NotFound: There is none.
        AccessError: It could not be read.
    """
    # Not compressed: taking it apart again costs more than its way through a cluster's network.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    reply = await client.request("GET", f"{CRDS}/{name}", headers=headers)
    found = outline(reply.body) or whole(reply.body)
    if found is None:
        from functions.access.diagnosis import not_kubernetes  # noqa: PLC0415 - aiohttp takes time to import

        raise not_kubernetes(client.server, f"CRD {name} is no CRD")
    return found


def outline(body: bytes) -> Definition | None:
    """A CRD by what stands around its schemas, None where it does not stand there."""
    spec, status = body.find(_SPEC), body.rfind(_STATUS)
    versions = {name.decode(): served == b"true" for name, served in _VERSION.findall(body, spec, max(status, 0))}
    if spec < 0 or status < spec or not versions:
        return None
    try:
        metadata = orjson.loads(body[:spec] + b"}")["metadata"]
        conditions = orjson.loads(b"{" + body[status + 1 :])["status"].get("conditions")
        return _definition(metadata, versions, conditions)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def whole(body: bytes) -> Definition | None:
    """A CRD in any order of its fields, None where it is none."""
    try:
        found = orjson.loads(body)
        versions = {each["name"]: each["served"] for each in found["spec"]["versions"]}
        return _definition(found["metadata"], versions, (found.get("status") or {}).get("conditions"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _definition(metadata: Mapping[str, Any], versions: Mapping[str, bool], conditions: Any) -> Definition:
    return Definition("deletionTimestamp" in metadata, versions, {each["type"]: each for each in conditions or ()})
