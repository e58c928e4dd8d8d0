"""What is installed of Knative, and in which order: its own manifests, as the Go modules have them.

Copies of them are kept in the user's cache, so that a start needs no Go.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from typing import TYPE_CHECKING, Any, Final

from functions.deploy_files import deploy_directory
from functions.local.cache import cache_directory, made_once
from functions.local.errors import LocalError
from functions.local.go_modules import module_directories

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from functions.access.client import Client

    Manifest = Mapping[str, Any]

_CORE: Final = "config/core"
_CHANNEL: Final = "config/channels/in-memory-channel"
_BROKER: Final = "config/brokers/mt-channel-broker"
_EVENTING: Final = (
    f"{_CORE}/*.yaml",
    f"{_CORE}/roles/*.yaml",
    f"{_CORE}/configmaps/*.yaml",
    f"{_CORE}/resources/*.yaml",
    f"{_CORE}/webhooks/*.yaml",
    f"{_CORE}/deployments/controller.yaml",
    f"{_CORE}/deployments/pingsource-mt-adapter.yaml",
    f"{_CORE}/deployments/webhook.yaml",
    "third_party/eventing-integrations-latest/*.yaml",
    f"{_CHANNEL}/**/*.yaml",
    f"{_BROKER}/roles/*.yaml",
    f"{_BROKER}/deployments/broker-*.yaml",
    f"{_BROKER}/deployments/controller.yaml",
)
_SERVING: Final = (
    "config/core/300-resources/service.yaml",
    # By these Eventing may find and bind Knative Services.
    "config/core/200-roles/podspecable-bindings-clusterrole.yaml",
    "config/core/200-roles/addressable-resolvers-clusterrole.yaml",
)
MODULES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "knative.dev/eventing": ("", _EVENTING),
    "knative.dev/serving": ("serving", _SERVING),
}
"""For each module the folder below deploy/local/knative that pins it, and the files that are installed."""

# What others rest on comes first; within one of these the order does not matter.
_ORDER: Final = (
    ("Namespace",),
    ("CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "ConfigMap", "Secret"),
    ("ClusterRoleBinding", "RoleBinding", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Service"),
    ("Deployment",),
)
_MANAGER: Final = "modelplane-local"
_AT_ONCE: Final = 4


def manifests_directory() -> Path:
    """Where the manifests are, downloaded if need be; a directory for each module.

    Raises:
        LocalError: A module cannot be downloaded.
    """
    home = deploy_directory() / "local" / "knative"
    pins = [(home / folder / "go.mod").read_bytes() for folder, _ in MODULES.values()]
    digest = hashlib.sha256(b"\0".join([*pins, repr(MODULES).encode()])).hexdigest()[:16]

    def copy_all(place: Path) -> None:
        for module, (folder, patterns) in MODULES.items():
            source = module_directories(home / folder, (module,))[module]
            for file in sorted({file for pattern in patterns for file in source.glob(pattern)}):
                copy = place / module / file.relative_to(source)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)

    return made_once(cache_directory() / "knative-manifests" / digest, "the manifests of Knative", copy_all)


def load(directory: Path) -> list[Manifest]:
    """Every object in the files of a directory.

    Raises:
        LocalError: There is one of a kind that has no place in the order.
    """
    import yaml  # noqa: PLC0415 - the start of the command does without

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found = [
        document
        for file in sorted(directory.rglob("*.yaml"))
        for document in yaml.load_all(file.read_bytes(), Loader=loader)
        if document
    ]
    known = {kind for kinds in _ORDER for kind in kinds}
    if strange := {each["kind"] for each in found} - known:
        raise LocalError(f"{directory} has objects of kind {', '.join(sorted(strange))}, which is not known here")
    return found


def path_of(manifest: Manifest) -> str:
    """The API path of an object of a kind whose plural ends with an s."""
    version, metadata = manifest["apiVersion"], manifest["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    return f"{base}{inside}/{manifest['kind'].lower()}s/{metadata['name']}"


async def install(client: Client, manifests: list[Manifest]) -> None:
    """Apply all of them, those first that others rest on.

    Raises:
        AccessError: The API server refuses one.
    """
    room = asyncio.Semaphore(_AT_ONCE)

    async def apply(manifest: Manifest) -> None:
        async with room:
            await client.apply(path_of(manifest), manifest, manager=_MANAGER)

    for kinds in _ORDER:
        await asyncio.gather(*(apply(each) for each in manifests if each["kind"] in kinds))
