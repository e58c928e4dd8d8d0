"""An EventType for each type of ours, so that `kubectl get eventtypes` tells what there is to subscribe to."""

from __future__ import annotations

import inspect
from typing import Any, Final

from events.data import MODELS
from events.types import PROVISIONED
from functions.deploy_files import BROKER, NAMESPACE
from functions.function import source_of
from functions.manifests.form import documents

_OURS: Final = "ai.modelplane."
_EXTENSIONS: Final = ("cluster", "component", "stack", "partitionkey", "hops", "traceparent")
_ALWAYS: Final = frozenset({"cluster", "partitionkey"})


def event_types() -> str:
    """YAML with an EventType for each."""
    return documents(_event_type(each) for each in MODELS if each.startswith(_OURS))


def _event_type(type_: str) -> dict[str, Any]:
    doc = inspect.getdoc(MODELS[type_]) or ""
    said = doc.partition("\n")[0]
    return {
        "apiVersion": "eventing.knative.dev/v1beta3",
        "kind": "EventType",
        "metadata": {"name": type_, "namespace": NAMESPACE},
        "spec": {
            "reference": {"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "name": BROKER},
            "description": said.rpartition("`: ")[2] if "`: " in said else said,
            "attributes": [
                {"name": "type", "required": True, "value": type_},
                {
                    "name": "source",
                    "required": True,
                    "value": "{anyone}" if type_ == PROVISIONED else source_of("{function}"),
                },
                {"name": "subject", "required": True, "value": _subject(type_)},
                *({"name": each, "required": each in _ALWAYS, "value": f"{{{each}}}"} for each in _EXTENSIONS),
            ],
        },
    }


def _subject(type_: str) -> str:
    return "{cluster}/{component}" if type_.startswith(f"{_OURS}requirement.") else "{cluster}"
