"""When a composed object is ready: what its controller says of it, read from its status."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

from functions.access.errors import one_line

NO_ADDRESS: Final = "has no address"
CA_KEY: Final = "ca.crt"
"""Key of a ConfigMap that holds certificates."""
_CERTIFICATES: Final = re.compile(
    r"\s*(?:(?:#[^\n]*\n\s*)*-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+"
)
_SILENT: Final = "its controller has not said anything yet"
_NEVER: Final = "1970-01-01T00:00:00Z"
"""When a condition changed that is but the default of the CRD, as those of Gateway API are."""
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
        return _judge(found, found.get("status"), type_)

    return ready


def has_address(gateway: _Object) -> Unready | None:
    """A Gateway is ready when its controller gave it an address."""
    if address_of(gateway):
        return None
    said = gateway.get("status")
    programmed = _judge(gateway, said, "Programmed") or _judge(gateway, said, "Accepted")
    since = programmed.since if programmed is not None else _created(gateway)
    return Unready(f"{NO_ADDRESS} ({programmed.detail})" if programmed is not None else NO_ADDRESS, since)


def address_of(gateway: _Object) -> str:
    """The first address of a Gateway, empty where it has none."""
    values = (each.get("value") for each in _objects(gateway.get("status"), "addresses"))
    return next((each for each in values if isinstance(each, str) and each), "")


def holds_a_ca(config_map: _Object) -> Unready | None:
    """The ConfigMap of a Bundle is ready when trust-manager wrote the certificate into it."""
    text = (config_map.get("data") or {}).get(CA_KEY)
    if not text:
        return Unready(f"trust-manager has not written {CA_KEY} into it yet", _created(config_map))
    return None if is_pem(text) else Unready(f"its {CA_KEY} holds no certificate", _created(config_map))


def is_pem(text: str) -> bool:
    """Whether a text is made of certificates as PEM has them, to be told apart from what is none at a glance."""
    return _CERTIFICATES.fullmatch(text) is not None


def accepted_by_an_ancestor(policy: _Object) -> Unready | None:
    """A policy is ready when it took effect on something: until then the gateway answers every request with 500."""
    ancestors = _objects(policy.get("status"), "ancestors")
    judged = [_judge(policy, each, "Accepted") for each in ancestors]
    if None in judged:
        return None
    return next((each for each in judged if each is not None), Unready(_SILENT, _created(policy)))


def available(deployment: _Object) -> Unready | None:
    """A Deployment is ready when enough of its present pods are."""
    status = deployment.get("status")
    if isinstance(status, dict) and _is_behind(deployment, status.get("observedGeneration", 0)):
        return Unready(_behind(deployment), _created(deployment))
    return _judge(deployment, status, "Available")


def _judge(found: _Object, status: Any, type_: str) -> Unready | None:
    """What a condition says; a status may hold anything, since not every CRD says what."""
    for each in _objects(status, "conditions"):
        if each.get("type") == type_ and each.get("lastTransitionTime") != _NEVER:
            if _is_behind(found, each.get("observedGeneration")):
                return Unready(_behind(found), _created(found))
            if each.get("status") == "True":
                return None
            said = ": ".join(str(one) for one in (each.get("reason"), each.get("message")) if one)
            text = f"{type_} is {each.get('status')}{f', {said}' if said else ''}"
            return Unready(one_line(text), _moment(each.get("lastTransitionTime")) or _created(found))
    return Unready(_SILENT, _created(found))


def _objects(status: Any, field: str) -> list[_Object]:
    """The objects in a list of a status, whatever else is in there."""
    listed = status.get(field) if isinstance(status, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _is_behind(found: _Object, observed: Any) -> bool:
    """Whether what was said is of a generation before the present one."""
    return isinstance(observed, int) and observed < found["metadata"].get("generation", 0)


def _moment(value: Any) -> str:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return ""
    return str(value)


def _created(found: _Object) -> str:
    moment: str = found["metadata"]["creationTimestamp"]
    return moment


def _behind(found: _Object) -> str:
    return f"its controller has not looked at generation {found['metadata']['generation']} yet"
