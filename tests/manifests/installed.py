"""Everything as installed on a hub, each part with the rights of its ServiceAccount and no more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import yaml

from events.broker import Broker
from events.delivery import InProcess, Response
from events.journal import Journal
from events.triggers import read_triggers
from functions.deploy_files import NAMESPACE, deploy_directory
from functions.host.host import Host
from functions.manifests.permissions import TARGET, WATCH
from functions.registry import FUNCTIONS
from functions.watch.runtime import tick
from functions.watch.source import WatchSource
from functions.world import World
from tests.support import apply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from events.event import Event
    from functions.local.api import Api
    from functions.local.instance import ControlPlane

RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PLURALS = {"ServiceAccount": "serviceaccounts", "Role": "roles", "ClusterRole": "clusterroles"}
_PLURALS |= {f"{kind}Binding": f"{plural[:-1]}bindings" for kind, plural in tuple(_PLURALS.items())[1:]}


def user(account: str) -> str:
    """How the API server calls a ServiceAccount of ours."""
    return f"system:serviceaccount:{NAMESPACE}:{account}"


def path_of(manifest: dict[str, Any]) -> str:
    """Where the API server has an object of the generated permissions."""
    metadata = manifest["metadata"]
    root = "/api/v1" if manifest["apiVersion"] == "v1" else RBAC
    within = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{root}{within}/{_PLURALS[manifest['kind']]}/{metadata['name']}"


def permissions(*folders: str) -> list[dict[str, Any]]:
    """The objects of generated permissions below deploy/."""
    files = [deploy_directory() / each / "permissions.yaml" for each in folders]
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


def install(api: Api, manifests: Sequence[dict[str, Any]]) -> None:
    """Applies permissions and the namespaces that they are in."""
    for each in {NAMESPACE, *(each["metadata"].get("namespace", NAMESPACE) for each in manifests)}:
        apply(api, f"/api/v1/namespaces/{each}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": each}})
    for each in manifests:
        apply(api, path_of(each), each)


@dataclass
class Installed:
    """The functions, each Service's with an account of its own, the watch source with another, and a broker.

    Attributes:
        plane: Hub and target in one.
        journal: Where events are written down.
    """

    plane: ControlPlane
    journal: Path

    async def __aenter__(self) -> Self:
        services = {each.service for each in FUNCTIONS.values()}
        self._worlds = {each: World.open(str(self.plane.kubeconfig_for(user(each)))) for each in (*services, WATCH)}
        for each in ("journal", "dead-letters"):
            self._worlds[each].journal = Journal(self.journal)
        self.hosts = {
            each: Host((one for one in FUNCTIONS.values() if one.service == each), self._worlds[each])
            for each in services
        }
        triggers = read_triggers((deploy_directory() / "knative" / "base" / "triggers.yaml").read_text())
        self.broker = Broker(triggers, InProcess(self._call))
        source = WatchSource(self._worlds[WATCH], self._publish)
        self._watching = asyncio.ensure_future(source.run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watching.cancel()
        await asyncio.wait((self._watching,))
        await self.broker.close()
        for each in self._worlds.values():
            await each.close()

    def target(self) -> bytes:
        """The kubeconfig of the account on the target."""
        return self.plane.kubeconfig_for(user(TARGET)).read_bytes()

    async def tick(self) -> None:
        """What the PingSource says each minute."""
        await self.broker.publish(tick(self._worlds[WATCH]))

    async def deliver(self, name: str, event: Event) -> Response:
        """Gives an event to a function, past the broker."""
        return await self._call(f"/{name}", event)

    async def _publish(self, events: Sequence[Event]) -> None:
        for each in events:
            await self.broker.publish(each)

    async def _call(self, path: str, event: Event) -> Response:
        name = path.strip("/")
        answer = await self.hosts[FUNCTIONS[name].service].handle(name, event)
        return Response(status=answer.status, events=answer.events, body=answer.body.encode())


class Asked(NamedTuple):
    """One request of an account, as the API server logged it.

    Attributes:
        resource: The plural, with the subresource behind a slash.
        code: HTTP status of the answer.
    """

    account: str
    verb: str
    group: str
    resource: str
    namespace: str
    name: str
    code: int


def asked(log: Path) -> set[Asked]:
    """What our accounts asked for, apart from what is no object."""
    prefix, found = user(""), set()
    with log.open() as lines:
        for line in lines:
            each = json.loads(line)
            of = each.get("objectRef")
            if not each["user"]["username"].startswith(prefix) or of is None or "resource" not in of:
                continue
            resource = "/".join(filter(None, (of["resource"], of.get("subresource", ""))))
            account = each["user"]["username"].removeprefix(prefix)
            found.add(
                Asked(
                    account,
                    each["verb"],
                    of.get("apiGroup", ""),
                    resource,
                    of.get("namespace", ""),
                    of.get("name", ""),
                    each["responseStatus"]["code"],
                )
            )
    return found
