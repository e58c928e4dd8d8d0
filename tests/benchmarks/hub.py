"""A hub that is its own target, where all that the Standard stack asks for is installed and one cluster has it."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import orjson

from events import types
from events.event import JSON, Event
from functions.access import kubeconfig
from functions.access.client import Client
from functions.catalog import Stack, of_stack
from functions.local.binaries import find_binaries
from functions.local.instance import ControlPlane
from tests.support import install_hub, provide, put_cluster, put_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Iterator

CLUSTER: Final = "gpu-1"
REQUIREMENTS: Final = tuple(one for each in of_stack(Stack.STANDARD) for one in each.requirements)


@contextmanager
def started_hub(*, without: frozenset[str] = frozenset(), audit: bool = False) -> Iterator[ControlPlane]:
    """Starts it, and returns once all is served.

    Args:
        without: Names of CRDs that are left out.
        audit: Whether each request is logged.
    """
    with ControlPlane(find_binaries(), audit=audit) as control_plane:
        api = control_plane.api
        install_hub(api)
        for each in REQUIREMENTS:
            if each.name not in without:
                provide(api, each)
        control_plane.wait_until_ready()
        put_kubeconfig(api, control_plane.kubeconfig.read_bytes())
        put_cluster(api, CLUSTER)
        yield control_plane


def client_of(control_plane: ControlPlane, *, budget: float = 8.0) -> Client:
    """A client with the admin's rights, the caller's to close; `budget` as for `Client`."""
    return Client(kubeconfig.load_file(control_plane.kubeconfig), budget=budget)


def server_pid(control_plane: ControlPlane) -> int:
    """The process id of its API server."""
    return control_plane._servers["kube-apiserver"].pid


def check_requested(cluster: str) -> Event:
    """The request to look at a whole cluster."""
    return _about(cluster, types.CHECK_REQUESTED, b'{"reason":"Tick"}', {})


def crd_changed(cluster: str, name: str) -> Event:
    """A CRD of a cluster changed."""
    kind = {"apiversion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "name": name}
    data = orjson.dumps({"apiVersion": kind["apiversion"], "kind": kind["kind"], "name": name})
    return _about(cluster, types.OBJECT_UPDATED, data, kind)


def _about(cluster: str, type_: str, data: bytes, extensions: dict[str, str]) -> Event:
    return Event(
        id=str(uuid.uuid4()),
        source="/benchmark",
        type=type_,
        subject=cluster,
        datacontenttype=JSON,
        data=data,
        extensions={"cluster": cluster, **extensions},
    )
