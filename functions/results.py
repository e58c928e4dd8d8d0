"""The events that are about one cluster: how they are made, and how the name of one is read from an event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from events import types
from events.event import JSON, Event, event_id, json_data
from functions.access.names import is_object_name
from functions.conditions import REQUIREMENTS_MET, Condition, Status
from functions.function import Poison

if TYPE_CHECKING:
    from datetime import datetime

    from functions.access.targets import SecretVersion
    from functions.catalog import Component
    from functions.clusters import InferenceCluster
    from functions.review import Reviewed

_OUTCOMES: Final = {
    Status.TRUE: ("Met", types.REQUIREMENT_MET),
    Status.FALSE: ("Missing", types.REQUIREMENT_MISSING),
    Status.UNKNOWN: ("Unknown", types.REQUIREMENT_UNKNOWN),
}


def cluster_of(event: Event) -> str | None:
    """The InferenceCluster that an event is about by its extension, None where it names none.

    Raises:
        Poison: The name could not be one.
    """
    name = event.extensions.get("cluster")
    return object_name(name, "extension cluster") if name else None


def object_name(name: str, what: str) -> str:
    """A name that came with an event, fit to be part of a path.

    Raises:
        Poison: No object can have that name; `what` says where it stood.
    """
    if not is_object_name(name):
        raise Poison(f"{what} is no name that an object can have")
    return name


def requirement_judged(source: str, reviewed: Reviewed, component: Component, now: datetime) -> Event | None:
    """How a component stands: the same id for the same finding; None where the cluster does not need it."""
    condition = reviewed.cluster.conditions.get(component.condition)
    if condition is None:
        return None
    outcome, type_ = _OUTCOMES[condition.status]
    data = types.RequirementJudged.model_validate(
        {
            "outcome": outcome,
            "reason": condition.reason,
            "message": condition.message,
            "generation": condition.observed_generation,
        }
    )
    return about(source, reviewed.cluster, type_, data, now, observed=_observed(condition), component=component.key)


def requirements_judged(source: str, reviewed: Reviewed, now: datetime) -> Event | None:
    """That RequirementsMet is judged for the first time, or turned to or from True; None where it did not."""
    after = reviewed.cluster.conditions.get(REQUIREMENTS_MET)
    before = reviewed.before.get(REQUIREMENTS_MET)
    if after is None or after.reason == "Checking" or (before is not None and _gist(before) == _gist(after)):
        return None
    type_ = types.REQUIREMENTS_MET if after.status is Status.TRUE else types.REQUIREMENTS_UNMET
    data = types.RequirementsJudged.model_validate(
        {
            "status": str(after.status),
            "reason": after.reason,
            "message": after.message,
            "generation": after.observed_generation,
        }
    )
    return about(source, reviewed.cluster, type_, data, now, observed=_observed(after))


def composition_judged(
    source: str, cluster: InferenceCluster, name: str, type_: str, *, condition: Condition, now: datetime
) -> Event:
    """How a set of composed objects stands on a cluster: the same id for the same standing."""
    data = types.CompositionJudged.model_validate(
        {
            "status": str(condition.status),
            "reason": condition.reason,
            "message": condition.message,
            "generation": condition.observed_generation,
        }
    )
    return about(source, cluster, type_, data, now, observed=_observed(condition), component=name)


def check_requested(
    source: str,
    cluster: InferenceCluster,
    reason: str,
    seen: SecretVersion | None,
    now: datetime,
    *,
    observed: tuple[str, ...],
) -> Event:
    """A request to look at a cluster; `seen` is the version of its kubeconfig Secret where that is known."""
    data = types.CheckRequested(reason=reason, kubeconfig=_kubeconfig(seen))
    return about(source, cluster, types.CHECK_REQUESTED, data, now, observed=(reason, *observed))


def deleting(
    source: str, cluster: InferenceCluster, now: datetime, *, tick: bool = False, seen: SecretVersion | None = None
) -> Event:
    """That a cluster is being deleted: the same id for the same deletion.

    Args:
        source: Of the function that says it.
        cluster: The subject.
        now: The event's time.
        tick: Whether nothing but time is the reason to say it.
        seen: The version of its kubeconfig Secret where that is known.
    """
    moment = cluster.deletion_timestamp or ""
    data = types.Deleting(deletion_timestamp=moment, tick=tick, kubeconfig=_kubeconfig(seen))
    return about(source, cluster, types.DELETING, data, now, observed=(moment,))


def about(
    source: str,
    cluster: InferenceCluster,
    type_: str,
    data: types.Data,
    now: datetime,
    *,
    observed: tuple[str, ...],
    component: str = "",
) -> Event:
    """An event about a cluster, or one component or set of it.

    Args:
        source: Of the function that says it.
        cluster: The subject.
        type_: The event type.
        data: What is said.
        now: The event's time.
        observed: What was seen; decides the id together with type and subject.
        component: Key of a component, or name of a set: narrows the subject.
    """
    subject = f"{cluster.name}/{component}" if component else cluster.name
    extensions = {"cluster": cluster.name, "partitionkey": subject}
    if cluster.stack is not None:
        extensions["stack"] = str(cluster.stack)
    if component:
        extensions["component"] = component
    return Event(
        id=event_id(type_, cluster.uid, subject, *observed),
        source=source,
        type=type_,
        subject=subject,
        time=now,
        datacontenttype=JSON,
        extensions=extensions,
        data=json_data(data),
    )


def _kubeconfig(seen: SecretVersion | None) -> types.KubeconfigVersion | None:
    return None if seen is None else types.KubeconfigVersion(uid=seen.uid, resource_version=seen.resource_version)


def _observed(condition: Condition) -> tuple[str, ...]:
    return (
        condition.status,
        condition.reason,
        condition.message,
        str(condition.observed_generation),
        condition.last_transition_time,
    )


def _gist(condition: Condition) -> tuple[bool, bool]:
    return condition.status is Status.TRUE, condition.reason == "Checking"
