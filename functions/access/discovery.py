"""What an API server serves, by aggregated discovery: one conditional request tells of every group at once."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from functions.access.client import DISCOVERY
from functions.access.diagnosis import not_kubernetes
from functions.access.errors import NotFound, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from functions.access.client import Client

_AGGREGATED: Final = "g=apidiscovery.k8s.io"


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was served at one moment.

    Attributes:
        groups: Versions of each group, the preferred one first, each with `version`, `freshness` and its `resources`
            of `resource`, `verbs` and whether they are `namespaced`.
        etag: Names this answer to the server; empty where the server gives none.
        complete: Whether every group is in it, rather than those that were asked for.
    """

    groups: Mapping[str, list[dict[str, Any]]]
    etag: str = ""
    complete: bool = True

    def verbs(self, group: str, version: str, plural: str) -> frozenset[str]:
        """The verbs of a resource in a version; empty where it is not served."""
        for each in self.groups.get(group, ()):
            if each["version"] == version:
                for resource in each["resources"]:
                    if resource["resource"] == plural:
                        return frozenset(resource["verbs"])
        return frozenset()

    def serves(self, group: str, version: str, plural: str) -> bool:
        """Whether objects can be created there; a terminating CRD stays listed and loses only that verb."""
        return "create" in self.verbs(group, version, plural)

    def versions(self, group: str, plural: str) -> tuple[str, ...]:
        """The versions in which a resource is served."""
        return tuple(
            each["version"] for each in self.groups.get(group, ()) if self.serves(group, each["version"], plural)
        )

    def listable(self) -> Iterator[tuple[str, str]]:
        """API version and plural of each namespaced resource that can be listed, in the version that is preferred."""
        for group, versions in self.groups.items():
            seen: set[str] = set()
            for version in versions:
                for each in version["resources"]:
                    if each["namespaced"] and "list" in each["verbs"] and each["resource"] not in seen:
                        seen.add(each["resource"])
                        yield f"{group}/{version['version']}", each["resource"]

    def stale(self) -> Iterator[str]:
        """Each API version whose extension API server the server could not ask just now."""
        for group, versions in self.groups.items():
            yield from (f"{group}/{each['version']}" for each in versions if each["freshness"] == "Stale")

    def is_stale(self, group: str, version: str) -> bool:
        """Whether the server could not ask the extension API server behind this version just now."""
        return any(each["version"] == version and each["freshness"] == "Stale" for each in self.groups.get(group, ()))


class DiscoveryReader:
    """Reads one server's discovery; an unchanged server answers with an empty body and the former answer stands."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last: Discovery | None = None

    async def read(self, groups: Iterable[str]) -> Discovery:
        """What is served now.

        Args:
            groups: The groups that are wanted, for servers without aggregated discovery: these are asked one by one.

        Raises:
            AccessError: The server could not be asked.
        """
        last = self._last
        headers = {"Accept": DISCOVERY}
        if last is not None and last.etag:
            headers["If-None-Match"] = last.etag
        reply = await self._client.request("GET", "/apis", headers=headers)
        if last is not None and reply.status == 304:  # noqa: PLR2004 - Not Modified
            return last
        content_type = reply.headers.get("Content-Type", "")
        document = _parse(reply.body, self._client.server)
        if _AGGREGATED in content_type and document.get("kind") == "APIGroupDiscoveryList":
            with _well_formed(self._client.server, "/apis"):
                found = {
                    _text(each["metadata"]["name"]): [_version(one, "resource") for one in each.get("versions") or ()]
                    for each in document.get("items") or ()
                }
            self._last = Discovery(found, reply.headers.get("ETag", ""))
            return self._last
        if document.get("kind") != "APIGroupList":
            raise not_kubernetes(self._client.server, "/apis lists no groups")
        return Discovery(await self._one_by_one(document, frozenset(groups)), complete=False)

    async def _one_by_one(self, document: Mapping[str, Any], wanted: frozenset[str]) -> dict[str, list[dict[str, Any]]]:
        """The same from the group documents of a server that does not aggregate them."""
        with _well_formed(self._client.server, "/apis"):
            listed = {
                each["name"]: [_text(version["version"]) for version in each["versions"]]
                for each in document.get("groups") or ()
                if each["name"] in wanted
            }
        found = await asyncio.gather(
            *(self._read_version(group, version) for group, versions in listed.items() for version in versions)
        )
        by_version = iter(found)
        return {group: [next(by_version) for _ in versions] for group, versions in listed.items()}

    async def _read_version(self, group: str, version: str) -> dict[str, Any]:
        path = f"/apis/{group}/{version}"
        try:
            document = await self._client.get(path)
        except (NotFound, ServerError):
            return {"version": version, "freshness": "Stale", "resources": []}
        with _well_formed(self._client.server, path):
            return _version({"version": version, "resources": document.get("resources")}, "name")


@contextmanager
def _well_formed(server: str, path: str) -> Iterator[None]:
    """Turns what an entry of another form raises into the error of a server that is none of Kubernetes."""
    try:
        yield
    except (KeyError, TypeError, AttributeError):
        raise not_kubernetes(server, f"{path} has an entry of another form") from None


def _version(found: Mapping[str, Any], title: str) -> dict[str, Any]:
    """One version with what is used of it; `title` is the field that names a resource."""
    resources = [
        {
            "resource": each[title],
            "verbs": frozenset(each.get("verbs") or ()),
            "namespaced": each.get("scope") == "Namespaced" or each.get("namespaced") is True,
        }
        for each in found.get("resources") or ()
    ]
    freshness = found.get("freshness", "Current")
    return {"version": _text(found["version"]), "freshness": freshness, "resources": resources}


def _text(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError
    return name


def _parse(body: bytes, server: str) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise not_kubernetes(server, "/apis is no JSON object")
    return document
