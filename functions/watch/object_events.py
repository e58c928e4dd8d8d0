"""The events of changed objects: what Knative's ApiServerSource sends in mode Reference, and `cluster` for a target's.

What looks odd in them is kept on purpose, so that a Trigger works with either source: core objects are under `/apis`,
the extension `namespace` of a cluster-scoped object is empty where the data has none, and the plural in the subject is
guessed from the kind.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import orjson

from events import types
from events.event import JSON, Event

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from functions.watch.reflector import Key, Resource, Verb

_TYPES: Final[Mapping[Verb, str]] = {
    "add": types.OBJECT_ADDED,
    "update": types.OBJECT_UPDATED,
    "delete": types.OBJECT_DELETED,
}


def object_changed(
    verb: Verb, resource: Resource, key: Key, *, server: str, cluster: str | None, now: datetime
) -> Event:
    """That one object was added, updated or deleted.

    Args:
        verb: What happened to it.
        resource: What it is one of.
        key: Which one.
        server: URL of the API server that said so.
        cluster: The InferenceCluster whose target that is; None for the hub.
        now: The event's time.
    """
    extensions = {
        "kind": resource.kind,
        "apiversion": resource.api_version,
        "name": key.name,
        "namespace": key.namespace,
    }
    if cluster is not None:
        extensions["cluster"] = cluster
    reference = {
        "kind": resource.kind,
        "namespace": key.namespace,
        "name": key.name,
        "apiVersion": resource.api_version,
    }
    if not key.namespace:
        del reference["namespace"]
    plural = guessed_plural(resource.kind)
    return Event(
        id=str(uuid.uuid4()),
        source=server,
        type=_TYPES[verb],
        subject=f"/apis/{resource.api_version}/namespaces/{key.namespace}/{plural}/{key.name}",
        time=now,
        datacontenttype=JSON,
        extensions=extensions,
        data=orjson.dumps(reference),
    )


def guessed_plural(kind: str) -> str:
    """The plural that Kubernetes' libraries guess, right or wrong: a Gateway's is `gatewaies`."""
    singular = kind.lower()
    if singular == "endpoints":
        return singular
    match singular[-1]:
        case "s":
            return f"{singular}es"
        case "y":
            return f"{singular[:-1]}ies"
        case _:
            return f"{singular}s"
