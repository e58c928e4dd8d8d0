"""When a composed object is ready: what its controller says of it, read from its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from functions.access.errors import one_line

NO_ADDRESS: Final = "has no address"
CA_KEY: Final = "ca.crt"
"""Key of a ConfigMap that holds certificates."""
_SILENT: Final = "its controller has not said anything yet"
_Object: TypeAlias = Mapping[str, Any]


class Unready(NamedTuple):
    """What is still wanting.

    Attributes:
        detail: In the words of its controller where there are any.
        since: RFC 3339.
    """

    detail: str
    since: str


Readiness: TypeAlias = "Callable[[_Object], Unready | None]"


def exists(_: _Object) -> Unready | None:
    """Ready as soon as it is there."""
    return None


def condition(type_: str) -> Readiness:
    """Ready when a condition of its status is True for the present generation."""

    def ready(found: _Object) -> Unready | None:
        return _judge(found, _conditions(found.get("status")), type_)

    return ready


def has_address(gateway: _Object) -> Unready | None:
    """A Gateway is ready when its controller gave it an address."""
    if address_of(gateway):
        return None
    said = _conditions(gateway.get("status"))
    programmed = _judge(gateway, said, "Programmed") or _judge(gateway, said, "Accepted")
    since = programmed.since if programmed is not None else _created(gateway)
    return Unready(f"{NO_ADDRESS} ({programmed.detail})" if programmed is not None else NO_ADDRESS, since)


def address_of(gateway: _Object) -> str:
    """The first address of a Gateway, empty where it has none."""
    addresses = (gateway.get("status") or {}).get("addresses") or ()
    return next((each["value"] for each in addresses if each.get("value")), "")


def holds_a_ca(config_map: _Object) -> Unready | None:
    """The ConfigMap of a Bundle is ready when trust-manager wrote the certificate into it."""
    if (config_map.get("data") or {}).get(CA_KEY):
        return None
    return Unready(f"trust-manager has not written {CA_KEY} into it yet", _created(config_map))


def accepted_by_an_ancestor(policy: _Object) -> Unready | None:
    """A policy is ready when it took effect on something: until then the gateway answers every request with 500."""
    ancestors = (policy.get("status") or {}).get("ancestors") or ()
    judged = [_judge(policy, _conditions(each), "Accepted") for each in ancestors]
    if None in judged:
        return None
    return next((each for each in judged if each is not None), Unready(_SILENT, _created(policy)))


def available(deployment: _Object) -> Unready | None:
    """A Deployment is ready when enough of its present pods are."""
    observed = (deployment.get("status") or {}).get("observedGeneration", 0)
    if observed < deployment["metadata"]["generation"]:
        return Unready(_behind(deployment), _created(deployment))
    return _judge(deployment, _conditions(deployment.get("status")), "Available")


def _judge(found: _Object, conditions: Iterable[_Object], type_: str) -> Unready | None:
    for each in conditions:
        if each.get("type") == type_:
            if each.get("observedGeneration", found["metadata"].get("generation", 0)) < found["metadata"].get(
                "generation", 0
            ):
                return Unready(_behind(found), _created(found))
            if each.get("status") == "True":
                return None
            said = ": ".join(filter(None, (each.get("reason"), each.get("message"))))
            text = f"{type_} is {each.get('status')}{f', {said}' if said else ''}"
            return Unready(one_line(text), each.get("lastTransitionTime") or _created(found))
    return Unready(_SILENT, _created(found))


def _conditions(status: _Object | None) -> Iterable[_Object]:
    return (status or {}).get("conditions") or ()


def _created(found: _Object) -> str:
    moment: str = found["metadata"]["creationTimestamp"]
    return moment


def _behind(found: _Object) -> str:
    return f"its controller has not looked at generation {found['metadata']['generation']} yet"
