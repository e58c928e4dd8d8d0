"""The kinds of the composed objects, and where the API server has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object in one version.

    Attributes:
        api_version: As in an object's `apiVersion`.
        name: As in an object's `kind`.
        plural: Its name in paths and in discovery.
        built_in: Whether every API server serves it; else a CustomResourceDefinition brings it.
    """

    api_version: str
    name: str
    plural: str
    built_in: bool = False

    @property
    def group(self) -> str:
        """The API group; empty for the core one."""
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        """The version alone."""
        return self.api_version.rpartition("/")[2]

    @property
    def definition(self) -> str:
        """Name of the CustomResourceDefinition that brings it."""
        return f"{self.plural}.{self.group}"

    @property
    def attributes(self) -> tuple[tuple[str, str], ...]:
        """What the event of a change of such an object says of its kind."""
        return (("kind", self.name), ("apiversion", self.api_version))

    def path(self, name: str = "", namespace: str = "") -> str:
        """Path of an object, or of the collection where no name is given."""
        root = "apis" if self.group else "api"
        within = f"/namespaces/{namespace}" if namespace else ""
        below = f"/{name}" if name else ""
        return f"/{root}/{self.api_version}{within}/{self.plural}{below}"


NAMESPACE: Final = Kind("v1", "Namespace", "namespaces", built_in=True)
CONFIG_MAP: Final = Kind("v1", "ConfigMap", "configmaps", built_in=True)
SECRET: Final = Kind("v1", "Secret", "secrets", built_in=True)
SERVICE: Final = Kind("v1", "Service", "services", built_in=True)
SERVICE_ACCOUNT: Final = Kind("v1", "ServiceAccount", "serviceaccounts", built_in=True)
DEPLOYMENT: Final = Kind("apps/v1", "Deployment", "deployments", built_in=True)
ROLE: Final = Kind("rbac.authorization.k8s.io/v1", "Role", "roles", built_in=True)
ROLE_BINDING: Final = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", built_in=True)
DEFINITION: Final = Kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", built_in=True
)
GATEWAY_CLASS: Final = Kind("gateway.networking.k8s.io/v1", "GatewayClass", "gatewayclasses")
GATEWAY: Final = Kind("gateway.networking.k8s.io/v1", "Gateway", "gateways")
ENVOY_PROXY: Final = Kind("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy", "envoyproxies")
CLIENT_TRAFFIC_POLICY: Final = Kind("gateway.envoyproxy.io/v1alpha1", "ClientTrafficPolicy", "clienttrafficpolicies")
ISSUER: Final = Kind("cert-manager.io/v1", "Issuer", "issuers")
CERTIFICATE: Final = Kind("cert-manager.io/v1", "Certificate", "certificates")
BUNDLE: Final = Kind("trust.cert-manager.io/v1alpha1", "Bundle", "bundles")
QUEUE: Final = Kind("scheduling.run.ai/v2", "Queue", "queues")
