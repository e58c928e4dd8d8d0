"""One look at one InferenceCluster, from read to write: what every probe and the sweep do.

Read the InferenceCluster, observe the target, write the conditions if the object is still the one that was read, and
look once more, so that the last writer's observation is always newer than its write, whatever the order of events and
however many replicas run.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from functions.access.errors import (
    AccessError,
    Conflict,
    Forbidden,
    KubeconfigInvalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from functions.catalog import COMPONENTS, Stack
from functions.conditions import REQUIREMENTS_MET, Condition, Status, checked_components, merge
from functions.function import Later
from functions.judge import Judgement, Outcome, Verdict, judge, unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from functions.access.targets import SecretVersion, Target
    from functions.catalog import Component
    from functions.clusters import InferenceCluster
    from functions.world import World

_OURS: Final = frozenset({REQUIREMENTS_MET, *(each.condition for each in COMPONENTS if each.requirements)})
_STATUS: Final = {Outcome.MET: Status.TRUE, Outcome.MISSING: Status.FALSE, Outcome.UNKNOWN: Status.UNKNOWN}

ATTEMPTS: Final = 20
"""How often a review starts over because somebody else wrote the object; each means that somebody got ahead."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """How a review left a cluster.

    Attributes:
        cluster: The InferenceCluster as it stands now.
        before: Its conditions by type as they were before the review.
    """

    cluster: InferenceCluster
    before: Mapping[str, Condition]

    @property
    def changed(self) -> tuple[Condition, ...]:
        """The conditions that say something else than before; a new generation or time alone is nothing new."""
        return tuple(
            each for type_, each in self.cluster.conditions.items() if _said(each) != _said(self.before.get(type_))
        )


def _said(condition: Condition | None) -> tuple[str, ...]:
    return () if condition is None else (condition.status, condition.reason, condition.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What somebody wants of a review.

    Attributes:
        component: The one to judge, with those not judged for this generation yet; None for all.
        changed: Name of the object that an event pointed at.
        seen: The version of the kubeconfig Secret that the caller knows of.
        tick: Whether nothing but time is the reason; an unreachable target is then asked less and less often.
    """

    component: Component | None = None
    changed: str | None = None
    seen: SecretVersion | None = None
    tick: bool = False


async def review(world: World, name: str, ask: Ask) -> Reviewed | None:
    """Judges a cluster and writes what was found.

    Returns:
        None where the InferenceCluster is gone or none of ours.

    Raises:
        Later: The hub could not be asked, or others wrote the object all the while.
    """
    reviewed: Reviewed | None = await world.work.submit(f"review/{name}", ask, lambda asks: _review(world, name, asks))
    return reviewed


async def _review(world: World, name: str, asks: Sequence[Ask]) -> Reviewed | None:
    before: Mapping[str, Condition] | None = None
    try:
        for _ in range(ATTEMPTS):
            cluster, judgement = await _read(world, name, asks)
            if cluster is None:
                await world.targets.forget(name)
            if cluster is None or not cluster.provided:
                return None
            if before is None:
                before = cluster.conditions
            if _is_resting(world, cluster, asks):
                return Reviewed(cluster, before)
            try:
                if cluster.stack is None:
                    return Reviewed(await _write(world, cluster, (_unknown_stack(world, cluster),)), before)
                return Reviewed(await _settle(world, cluster, cluster.stack, asks, judgement), before)
            except Conflict:
                continue
            except NotFound:
                return None
    except AccessError as trouble:
        raise Later(f"hub: {trouble}") from trouble
    raise _outrun(name)


async def _read(world: World, name: str, asks: Sequence[Ask]) -> tuple[InferenceCluster | None, Judgement | None]:
    """The InferenceCluster, and what was observed for it while it was read.

    That is where it turned out to be the very one that was known before the target was asked; else there is none.
    """
    known = world.hub.known.get(name)
    if known is None or not known.provided or known.stack is None or _is_resting(world, known, asks):
        return await world.hub.cluster(name), None
    components = _to_judge(known, known.stack, asks)
    observing = asyncio.create_task(_observe(world, known, components, asks, None))
    try:
        cluster = await world.hub.cluster(name)
        if cluster is not None and cluster.uid == known.uid and cluster.resource_version == known.resource_version:
            return cluster, await observing
        return cluster, None
    finally:
        observing.cancel()
        await asyncio.wait((observing,))
        if not observing.cancelled():
            observing.exception()  # of an observation that nobody wants any more


def _is_resting(world: World, cluster: InferenceCluster, asks: Sequence[Ask]) -> bool:
    """Whether nothing but time asks for a look at a target that is left in peace for a while after its failures."""
    ticks = all(each.tick for each in asks)
    return ticks and cluster.judged and world.targets.is_resting(cluster.name, world.clock.now())


async def _settle(
    world: World, cluster: InferenceCluster, stack: Stack, asks: Sequence[Ask], judgement: Judgement | None
) -> InferenceCluster:
    """Observes and writes until what was observed after the last write is what was written.

    `judgement` is what was observed of this very object already, None where nothing was.
    """
    if REQUIREMENTS_MET not in cluster.conditions:
        cluster, judgement = await _write(world, cluster, _merged(world, cluster, stack, ())), None
    components = _to_judge(cluster, stack, asks)
    former: Judgement | None = None
    for _ in range(ATTEMPTS):
        judgement = judgement or await _observe(world, cluster, components, asks, former)
        news = [each for each in judgement.verdicts if not _is_passing(each, cluster, asks)]
        written = await _write(world, cluster, _merged(world, cluster, stack, news))
        if written is cluster or all(each.outcome is Outcome.UNKNOWN for each in news):
            return written  # where nothing can be seen, looking again would cost another time limit
        cluster, former, judgement = written, judgement, None
    raise Later(f"what {cluster.name} brings changed {ATTEMPTS} times while it was looked at")


def _is_passing(verdict: Verdict, cluster: InferenceCluster, asks: Sequence[Ask]) -> bool:
    """Whether what is missing already is merely on its way: the event of its arrival is near, and else the tick."""
    condition = cluster.conditions.get(verdict.component.condition)
    missing = condition is not None and condition.status is Status.FALSE and cluster.judged
    return verdict.passing and missing and all(each.component is not None for each in asks)


def _to_judge(cluster: InferenceCluster, stack: Stack, asks: Sequence[Ask]) -> tuple[Component, ...]:
    """The components asked for, and those not judged for this generation; all of them where None is asked for."""
    asked = {each.component for each in asks}

    def judged(component: Component) -> bool:
        condition = cluster.conditions.get(component.condition)
        return condition is not None and condition.observed_generation == cluster.generation

    return tuple(each for each in checked_components(stack) if None in asked or each in asked or not judged(each))


async def _observe(
    world: World,
    cluster: InferenceCluster,
    components: Sequence[Component],
    asks: Sequence[Ask],
    former: Judgement | None,
) -> Judgement:
    changed = frozenset(each.changed for each in asks if each.changed is not None)
    try:
        target = await open_target(world, cluster, next((each.seen for each in reversed(asks) if each.seen), None))
    except (KubeconfigInvalid, Forbidden) as trouble:
        return unknown(components, trouble)
    judgement = await judge(target, components, sleep=world.clock.sleep, changed=changed, former=former)
    reasons = {finding.reason for verdict in judgement.verdicts for finding in verdict.findings}
    if reasons == {Unreachable.reason}:
        world.targets.failed(cluster.name, world.clock.now())
    else:
        world.targets.answered(cluster.name)
    if Unauthorized.reason in reasons:
        renewed = await _renew(world, cluster)
        if renewed is not None:
            return await judge(renewed, components, sleep=world.clock.sleep, changed=changed)
    return judgement


async def _renew(world: World, cluster: InferenceCluster) -> Target | None:
    """The target with a renewed kubeconfig, None where the Secret still holds what the target refused."""
    try:
        return await world.targets.refresh(cluster.name, cluster.secret())
    except (KubeconfigInvalid, Forbidden):
        return None


async def open_target(world: World, cluster: InferenceCluster, seen: SecretVersion | None = None) -> Target:
    """The target of a cluster.

    Args:
        world: The world.
        cluster: The InferenceCluster.
        seen: The version of the kubeconfig Secret that the caller knows of.

    Raises:
        KubeconfigInvalid: There is no kubeconfig that could be used.
        AccessError: The hub did not let it be read.
    """
    target = await world.targets.open(cluster.name, cluster.secret(), seen)
    if cluster.cloud_identity and not target.client.connection.has_credential:
        raise KubeconfigInvalid(
            "the kubeconfig holds no credential and cloud identities (identitySecretRef) are not supported yet; "
            "put a token or a client certificate into the kubeconfig"
        )
    return target


def _merged(
    world: World, cluster: InferenceCluster, stack: Stack, verdicts: Collection[Verdict]
) -> tuple[Condition, ...]:
    judged = [
        Condition(
            type=each.component.condition,
            status=_STATUS[each.outcome],
            reason=each.reason,
            message=each.message,
            observed_generation=cluster.generation,
        )
        for each in verdicts
    ]
    return merge(cluster.conditions, judged, stack=stack, generation=cluster.generation, now=world.clock.timestamp())


def _unknown_stack(world: World, cluster: InferenceCluster) -> Condition:
    present = cluster.conditions.get(REQUIREMENTS_MET)
    flips = present is None or present.status is not Status.UNKNOWN
    return Condition(
        type=REQUIREMENTS_MET,
        status=Status.UNKNOWN,
        reason="UnknownStack",
        message=f"spec.stack is none of those known here: {', '.join(Stack)}",
        observed_generation=cluster.generation,
        last_transition_time=world.clock.timestamp() if present is None or flips else present.last_transition_time,
    )


async def _write(world: World, cluster: InferenceCluster, conditions: Sequence[Condition]) -> InferenceCluster:
    """Writes what was found, also where others wrote what is theirs in the meantime: it is as true as before.

    Raises:
        Conflict: What it rests on is not as it was; begin again.
    """
    if all(cluster.conditions.get(each.type) == each for each in conditions):
        return cluster
    latest = cluster
    for _ in range(ATTEMPTS):
        try:
            return await world.hub.write_status(latest, conditions)
        except Conflict:
            found = await world.hub.cluster(cluster.name)
            if found is None or _basis(found) != _basis(cluster):
                raise
            latest = found
    raise _outrun(cluster.name)


def _basis(cluster: InferenceCluster) -> tuple[object, ...]:
    """What a finding rests on of an InferenceCluster: all but what others say of it."""
    ours = {type_: each for type_, each in cluster.conditions.items() if type_ in _OURS}
    return (cluster.uid, cluster.generation, cluster.deletion_timestamp, ours)


def _outrun(name: str) -> Later:
    return Later(f"InferenceCluster {name} was written by others {ATTEMPTS} times in a row")
