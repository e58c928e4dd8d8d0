"""A Trigger for each function, from what it says that wakes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from functions.deploy_files import BROKER, NAMESPACE
from functions.manifests.form import documents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from functions.function import Function, Wake

DELIVERY: Final = {
    # All of it on every Trigger: a Broker or Trigger with part of a delivery block gets no default for the rest.
    "retry": 10,
    "backoffPolicy": "exponential",
    "backoffDelay": "PT0.2S",
    "timeout": "PT30S",
    "deadLetterSink": {
        "ref": {
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Service",
            "name": "dead-letters",
            "namespace": NAMESPACE,
        },
        "uri": "/dead-letters",
    },
}


def triggers(functions: Iterable[Function]) -> str:
    """YAML with a Trigger for each function that anything wakes."""
    return documents(_trigger(each) for each in functions if each.wakes_on)


def _trigger(function: Function) -> dict[str, Any]:
    return {
        "apiVersion": "eventing.knative.dev/v1",
        "kind": "Trigger",
        "metadata": {
            "name": function.name.replace("/", "-"),
            "namespace": NAMESPACE,
            "labels": {"eventing.knative.dev/broker": BROKER},
        },
        "spec": {
            "broker": BROKER,
            **({"filters": filters} if (filters := _filters(function.wakes_on)) else {}),
            "subscriber": {
                "ref": {
                    "apiVersion": "serving.knative.dev/v1",
                    "kind": "Service",
                    "name": function.service,
                    "namespace": NAMESPACE,
                },
                "uri": f"/{function.name}",
            },
            "delivery": DELIVERY,
        },
    }


def _filters(wakes: tuple[Wake, ...]) -> list[dict[str, Any]]:
    each = [_wake(wake) for wake in wakes]
    return each[0] if len(each) == 1 else [{"any": [_one(filters) for filters in each]}]


def _wake(wake: Wake) -> list[dict[str, Any]]:
    """One way of waking as filters that all have to pass."""
    attributes = dict(wake.attributes)
    filters: list[dict[str, Any]] = []
    if wake.type.endswith("."):
        filters.append({"prefix": {"type": wake.type}})
    elif wake.type:
        attributes = {"type": wake.type, **attributes}
    if len(wake.names) == 1:
        attributes["name"] = wake.names[0]
    if attributes:
        filters.append({"exact": attributes})
    if len(wake.names) > 1:
        filters.append({"any": [{"exact": {"name": name}} for name in wake.names]})
    return filters


def _one(filters: list[dict[str, Any]]) -> dict[str, Any]:
    return filters[0] if len(filters) == 1 else {"all": filters}
