"""The few requests that the control plane makes to its own API server.

Synchronous, because starting and stopping is; and apart from `functions.access`, which is what tests prove with it.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Self

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TIMEOUT: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server answered; `body` is empty where it is not a JSON object."""

    status: int
    body: Mapping[str, Any]


class Api:
    """Requests to one API server as one user.

    Args:
        port: Its port on 127.0.0.1.
        ca: The certificate, as PEM, that its own must be signed with.
        token: The bearer token of the user.
    """

    def __init__(self, *, port: int, ca: bytes, token: str) -> None:
        self._port = port
        self._context = ssl.create_default_context(cadata=ca.decode())
        self._token = token

    @classmethod
    def of(cls, kubeconfig: Path) -> Self:
        """Requests as the admin of a control plane that may have been started by another process.

        Args:
            kubeconfig: As the control plane itself writes it.
        """
        content = json.loads(kubeconfig.read_bytes())
        cluster = content["clusters"][0]["cluster"]
        ca = base64.b64decode(cluster["certificate-authority-data"])
        port = int(cluster["server"].rpartition(":")[2])
        return cls(port=port, ca=ca, token=content["users"][0]["user"]["token"])

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://127.0.0.1:{self._port}"

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """Send one request over a connection of its own, within five seconds.

        Raises:
            OSError: There is no answer, or the server is not the one it should be.
        """
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept, "Content-Type": content_type}
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, timeout=_TIMEOUT, context=self._context)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            response = connection.getresponse()
            text = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {type(error).__name__}") from error
        finally:
            connection.close()
        return Answer(response.status, _json_object(text))

    def apply(self, path: str, manifest: Mapping[str, Any]) -> Answer:
        """Server-side apply with force; YAML is a superset of the JSON that is sent."""
        query = "?fieldManager=modelplane-local&force=true"
        return self.request("PATCH", path + query, manifest, content_type="application/apply-patch+yaml")

    def ready(self) -> bool:
        """Whether the server is ready and its discovery lists every API that it serves.

        A restarted server answers `/apis` without any CRD's group for some time.
        """
        try:
            return (
                self.request("GET", "/readyz").status == http.client.OK
                and self.request("GET", "/api/v1/namespaces/default").status == http.client.OK
                and self._served() <= self._discovered()
            )
        except OSError:
            return False

    def controlled(self) -> bool:
        """Whether the controllers are at work: they make each namespace a ServiceAccount."""
        try:
            return self.request("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == http.client.OK
        except OSError:
            return False

    def _discovered(self) -> set[tuple[str, str]]:
        answer = self.request("GET", "/apis", accept=_AGGREGATED)
        groups = answer.body.get("items", ())
        return {(group["metadata"]["name"], version["version"]) for group in groups for version in group["versions"]}

    def _served(self) -> set[tuple[str, str]]:
        """Group and version of what every server serves, and of each CRD that is Established."""
        answer = self.request("GET", _CRDS)
        if answer.status != http.client.OK:
            raise OSError(f"GET {_CRDS}: {answer.status}")
        served = {("apiextensions.k8s.io", "v1"), ("rbac.authorization.k8s.io", "v1"), ("resource.k8s.io", "v1")}
        for crd in answer.body["items"]:
            conditions = crd.get("status", {}).get("conditions") or ()
            if any(one["type"] == "Established" and one["status"] == "True" for one in conditions):
                versions = crd["spec"]["versions"]
                served |= {(crd["spec"]["group"], version["name"]) for version in versions if version["served"]}
        return served


def _json_object(text: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
