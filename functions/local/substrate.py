"""What a cluster's substrate consists of to those who only look at its APIs: real CRDs without the controllers.

Used by `serving-stack local substrate`, by `serving-stack demo` and by the tests. The CRDs come from the Go modules
that deploy/local/crds/go.mod pins; where no module has them, from stand-ins beside it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from functions.access.errors import AccessError, NotFound
from functions.deploy_files import deploy_directory
from functions.local.errors import LocalError
from functions.local.go_modules import module_directories

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from functions.access.client import Client

    Manifest = Mapping[str, Any]

_MANAGER: Final = "modelplane-local"
_GONE_WITHIN: Final = 30.0
_POLL: Final = 0.05


@dataclass(frozen=True, slots=True)
class Source:
    """Files with manifests.

    Attributes:
        module: The Go module that holds them; empty for deploy/local/crds itself.
        files: Their paths in it.
    """

    module: str
    files: tuple[str, ...]


def _crds(module: str, folder: str, *names: str) -> Source:
    return Source(module, tuple(f"{folder}/{name}.yaml" for name in names))


SOURCES: Final[Mapping[str, tuple[Source, ...]]] = {
    "cert-manager": (
        _crds(
            "github.com/cert-manager/cert-manager",
            "deploy/crds",
            "cert-manager.io_certificates",
            "cert-manager.io_issuers",
            "cert-manager.io_clusterissuers",
        ),
    ),
    "kube-prometheus-stack": (
        _crds(
            "github.com/prometheus-operator/prometheus-operator",
            "example/prometheus-operator-crd",
            "monitoring.coreos.com_podmonitors",
            "monitoring.coreos.com_servicemonitors",
        ),
    ),
    "node-feature-discovery": (
        _crds(
            "sigs.k8s.io/node-feature-discovery",
            "deployment/helm/node-feature-discovery/crds",
            "nfd-api-crds",
        ),
    ),
    "nvidia-dra-driver-gpu": (Source("", ("nvidia-dra-driver-gpu.yaml",)),),
    "envoy-gateway": (
        _crds(
            "sigs.k8s.io/gateway-api",
            "config/crd/standard",
            "gateway.networking.k8s.io_gatewayclasses",
            "gateway.networking.k8s.io_gateways",
            "gateway.networking.k8s.io_httproutes",
        ),
        _crds(
            "github.com/envoyproxy/gateway",
            "charts/gateway-helm/charts/crds/crds/generated",
            "gateway.envoyproxy.io_envoyproxies",
            "gateway.envoyproxy.io_backends",
            "gateway.envoyproxy.io_clienttrafficpolicies",
        ),
    ),
    "ai-gateway-crds": (
        _crds(
            "github.com/envoyproxy/ai-gateway",
            "manifests/charts/ai-gateway-crds-helm/templates",
            "aigateway.envoyproxy.io_aigatewayroutes",
        ),
    ),
    "ai-gateway": (),
    "gaie-crds": (
        _crds(
            "sigs.k8s.io/gateway-api-inference-extension",
            "config/crd/bases",
            "inference.networking.k8s.io_inferencepools",
        ),
    ),
    "trust-manager": (
        _crds(
            "github.com/cert-manager/trust-manager",
            "deploy/crds",
            "trust.cert-manager.io_bundles",
        ),
    ),
    "leader-worker-set": (
        _crds(
            "sigs.k8s.io/lws",
            "charts/lws/crds",
            "leaderworkerset.x-k8s.io_leaderworkersets",
        ),
    ),
    "dra-driver-critical-pods-quota": (),
    "grove": (Source("", ("grove.yaml",)),),
    "kai-scheduler": (Source("", ("kai-scheduler.yaml",)),),
}
"""Where the manifests of each component are; those without any have no API of their own that could be looked at."""


def manifests(component: str) -> Sequence[Manifest]:
    """The objects of one component, downloaded if need be; not to be called on an event loop.

    Raises:
        LocalError: The module cannot be downloaded.
    """
    sources = SOURCES[component]
    directories = _directories(tuple(source.module for source in sources if source.module))
    stand_ins = deploy_directory() / "local" / "crds"
    return [
        manifest
        for source in sources
        for file in source.files
        for manifest in _load(directories.get(source.module, stand_ins) / file)
    ]


async def add(client: Client, component: str) -> Sequence[str]:
    """Install what a component brings, by server-side apply; does not wait until it is served.

    Returns:
        The path of each object; none where the component has nothing to look at.

    Raises:
        LocalError: A manifest cannot be had, or an object of that name is just being deleted.
        AccessError: The cluster refuses one.
    """
    paths = []
    for manifest in await asyncio.to_thread(manifests, component):
        path = _path(manifest)
        applied = await client.apply(path, manifest, manager=_MANAGER)
        if "deletionTimestamp" in applied["metadata"]:
            raise LocalError(f"{manifest['metadata']['name']} is still being deleted; try again when it is gone")
        paths.append(path)
    return paths


async def remove(client: Client, component: str) -> Sequence[str]:
    """Delete what `add` installs, with all instances of its kinds, and wait until it is gone.

    Returns:
        The path of each object that was there.

    Raises:
        LocalError: One is still there after half a minute, as when a finalizer holds an instance.
        AccessError: The cluster refuses a request.
    """
    found = []
    for manifest in await asyncio.to_thread(manifests, component):
        await _ask_for_instances(client, manifest)
        try:
            await client.delete(_path(manifest))
        except NotFound:
            continue
        found.append((_path(manifest), manifest))
    for path, manifest in found:
        try:
            async with asyncio.timeout(_GONE_WITHIN):
                await _gone(client, path)
        except TimeoutError:
            raise LocalError(
                f"{manifest['metadata']['name']} is still there after {_GONE_WITHIN:.0f} s; "
                "see its status.conditions and the finalizers of its instances"
            ) from None
    return [path for path, _ in found]


async def _ask_for_instances(client: Client, manifest: Manifest) -> None:
    """A CRD that is deleted before anyone asked for its instances can stay Terminating for minutes."""
    if manifest["kind"] == "CustomResourceDefinition":
        spec = manifest["spec"]
        version = next(one["name"] for one in spec["versions"] if one["served"])
        try:
            await client.list_metadata(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}", {"limit": "1"})
        except AccessError:
            return  # what matters is told by the deletion


async def _gone(client: Client, path: str) -> None:
    while True:
        try:
            await client.get_metadata(path)
        except NotFound:
            return
        await asyncio.sleep(_POLL)


def _path(manifest: Manifest) -> str:
    plural = {"CustomResourceDefinition": "customresourcedefinitions", "DeviceClass": "deviceclasses"}[manifest["kind"]]
    return f"/apis/{manifest['apiVersion']}/{plural}/{manifest['metadata']['name']}"


@cache
def _directories(modules: tuple[str, ...]) -> Mapping[str, Path]:
    """Where the module cache has each module."""
    if not modules:
        return {}
    try:
        return module_directories(deploy_directory() / "local" / "crds", modules)
    except LocalError as error:
        raise LocalError(
            "The CRDs could not be downloaded; that needs the Go module proxy, or whatever GOPROXY names "
            f"(`go env GOPROXY` shows it):\n{error}"
        ) from error


@cache
def _load(file: Path) -> Sequence[Manifest]:
    import yaml  # noqa: PLC0415 - the other commands of the group do without

    # A CRD is up to a megabyte of YAML, seconds for the parser in Python.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise LocalError(
            f"{file} cannot be read ({error.strerror}); is the module in deploy/local/crds/go.mod?"
        ) from error
    return [document for document in yaml.load_all(text, Loader=loader) if document]
