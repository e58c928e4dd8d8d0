"""One pass over a set on its target: up while the InferenceCluster is there, down while it is being deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from functions.access.errors import (
    AccessError,
    Conflict,
    Forbidden,
    Invalid,
    KubeconfigInvalid,
    NotFound,
    Unauthorized,
    Unreachable,
)
from functions.compose.apply import Applier
from functions.compose.client_cas import NOT_INSTALLED, ClientCAs, read_client_cas
from functions.compose.look import look_at
from functions.compose.ownership import is_ours
from functions.compose.published import published
from functions.compose.report import Report, blocked, cannot_tell, left_behind, removal_report, report
from functions.compose.step import Inputs
from functions.compose.teardown import Teardown
from functions.function import Later
from functions.review import open_target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from functions.access.targets import SecretVersion
    from functions.clusters import InferenceCluster
    from functions.compose.look import Look
    from functions.compose.states import State
    from functions.compose.step import Composition
    from functions.compose.teardown import Removal
    from functions.conditions import Condition
    from functions.world import World

_First = TypeVar("_First")
_Second = TypeVar("_Second")
_NO_CLIENT_CAS: Final = ClientCAs()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What somebody wants of a pass.

    Attributes:
        seen: The version of the kubeconfig Secret that the caller knows of.
        tick: Whether nothing but time is the reason.
    """

    seen: SecretVersion | None = None
    tick: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What one pass found and did.

    Attributes:
        cluster: The InferenceCluster as it was when the pass ended: the finalizer may have been put on it.
        report: What to say.
        gateway: What to publish of the gateway; None where that is not the set's business.
        gone: Whether nothing is left to be taken down.
        unseen: Whether the target did not let itself be looked at.
        passing: What keeps it from being right though trying again soon may help; empty where nothing does.
        wrote: Whether an object was written, so that what it rests on has to be looked at once more.
    """

    cluster: InferenceCluster
    report: Report
    gateway: dict[str, str] | None = None
    gone: bool = False
    unseen: bool = False
    passing: str = ""
    wrote: bool = False


async def bring_up(
    world: World,
    composition: Composition,
    cluster: InferenceCluster,
    ask: Ask,
    created: list[tuple[str, str]],
    *,
    before: Condition | None,
) -> Pass:
    """Applies what can be applied now, and says how all of it stands.

    Args:
        world: The world.
        composition: The set.
        cluster: The InferenceCluster as it was read just now.
        ask: Why.
        created: Takes path and uid of what is created, also where the pass does not come to its end.
        before: The set's condition as it was before anybody asked for this.

    Raises:
        Conflict: Somebody wrote in between; read again.
        Later: The hub could not be asked.
    """
    kept = dict(cluster.gateway) if composition.has_gateway else None
    holder = _Holder(world, cluster, composition.finalizer)
    try:
        authorities, look = await _both(
            client_cas(world, composition), look_at_target(world, composition, cluster, ask.seen)
        )
        inputs = Inputs(cluster=cluster.name, uid=cluster.uid, client_cas=authorities)
        withdrawal: list[Removal] = []
        if composition.has_gateway and not authorities.bundle and authorities.trouble is None:
            withheld = [each for each in composition.steps if each.client_ca]
            teardown = Teardown(look, withheld, cluster.uid, world.clock.now())
            await teardown.run()
            withdrawal = teardown.removals
        applier = Applier(
            look,
            composition,
            inputs,
            cluster.conditions,
            clock=world.clock,
            repairs=world.repairs,
            claim=holder.claim,
            created=created,
        )
        if any(is_ours(each, cluster.uid) for each in look.found.values()):
            await holder.claim()  # somebody may have taken the finalizer off, and then nothing would be taken down
        states = _withdrawn(await applier.run(), withdrawal)
    except Conflict:
        raise
    except AccessError as trouble:
        return Pass(cluster=holder.cluster, report=cannot_tell(trouble), gateway=kept, unseen=True)
    return Pass(
        cluster=holder.cluster,
        report=report(states, inputs.client_cas.left_out),
        gateway=published(look, inputs, cluster.gateway, before, tick=ask.tick) if composition.has_gateway else None,
        passing=next((each.detail for each in states if each.passing), ""),
        wrote=applier.wrote,
    )


async def take_down(world: World, composition: Composition, cluster: InferenceCluster, ask: Ask) -> Pass:
    """Takes down what can be taken down now, and says what holds the rest.

    Raises:
        Conflict: Somebody wrote in between; read again.
    """
    gateway: dict[str, str] | None = {} if composition.has_gateway else None
    if cluster.orphans:
        return Pass(cluster=cluster, report=left_behind(composition), gateway=gateway, gone=True)
    try:
        look = await look_at_target(world, composition, cluster, ask.seen, leftovers=True)
        teardown = Teardown(look, composition.steps, cluster.uid, world.clock.now())
        gone = await teardown.run()
    except Conflict:
        raise
    except AccessError as trouble:
        return Pass(cluster=cluster, report=blocked(trouble), gateway=gateway, unseen=True)
    return Pass(cluster=cluster, report=removal_report(teardown.removals), gateway=gateway, gone=gone)


async def client_cas(world: World, composition: Composition) -> ClientCAs:
    """Who may call the gateway of a set; nobody where it has none.

    Raises:
        Later: The hub could not be asked.
    """
    if not composition.has_gateway:
        return _NO_CLIENT_CAS
    try:
        gateways = await world.hub.inference_gateways()
    except (Forbidden, NotFound) as trouble:  # no right to see them, or the hub has the API and does not serve it
        return ClientCAs(trouble=trouble)
    except AccessError as trouble:
        raise Later(f"hub: {trouble}") from trouble
    return NOT_INSTALLED if gateways is None else read_client_cas(gateways, world.clock.now())


async def look_at_target(
    world: World,
    composition: Composition,
    cluster: InferenceCluster,
    seen: SecretVersion | None = None,
    *,
    leftovers: bool = False,
) -> Look:
    """Looks at a set's objects on the target of a cluster; a credential that is refused is read anew, once.

    Args:
        world: The world.
        composition: The set.
        cluster: The InferenceCluster.
        seen: The version of the kubeconfig Secret that the caller knows of.
        leftovers: Whether to look also at what others' controllers made that has to go with the set.

    Raises:
        AccessError: The target could not be asked.
        Later: The hub could not be asked for its kubeconfig.
    """
    target = await _of_hub(open_target(world, cluster, seen))
    try:
        look = await look_at(target, composition, leftovers=leftovers)
    except Unauthorized:
        renewed = await _of_hub(world.targets.refresh(cluster.name, cluster.secret()))
        if renewed is None:
            raise
        look = await look_at(renewed, composition, leftovers=leftovers)
    except Unreachable:
        world.targets.failed(cluster.name, world.clock.now())
        raise
    world.targets.answered(cluster.name)
    return look


def _withdrawn(states: list[State], removals: Sequence[Removal]) -> list[State]:
    """The same, with what holds the one that should be gone for want of a client CA, and is not yet."""
    held = next((each for each in removals if not each.done), None)
    if held is None:
        return states
    return [
        replace(each, waits_for="", detail="; ".join(filter(None, (each.detail, held.detail))))
        if each.step is held.step
        else each
        for each in states
    ]


async def _of_hub(answer: Awaitable[_First]) -> _First:
    """What the hub says of a target.

    Raises:
        KubeconfigInvalid: There is no kubeconfig that could be used.
        Forbidden: There is no right to read it.
        Later: The hub could not be asked.
    """
    try:
        return await answer
    except (KubeconfigInvalid, Forbidden):
        raise
    except AccessError as trouble:
        raise Later(f"hub: {trouble}") from trouble


async def _both(first: Awaitable[_First], second: Awaitable[_Second]) -> tuple[_First, _Second]:
    """Both at once; what the first one raises comes before what the second one does."""
    one, other = await asyncio.gather(first, second, return_exceptions=True)
    if isinstance(one, BaseException):
        raise one
    if isinstance(other, BaseException):
        raise other
    return one, other


class _Holder:
    """Sees to the finalizer on an InferenceCluster before the first object is written.

    Attributes:
        cluster: The InferenceCluster as it is now.
    """

    def __init__(self, world: World, cluster: InferenceCluster, finalizer: str) -> None:
        self.cluster = cluster
        self._world = world
        self._finalizer = finalizer

    async def claim(self) -> None:
        """Returns once the finalizer is on.

        Raises:
            Conflict: The InferenceCluster is not what it was, such as being deleted.
            Later: The hub could not be asked.
        """
        if self._finalizer in self.cluster.finalizers:
            return
        try:
            self.cluster = await self._world.hub.write_finalizers(
                self.cluster, (*self.cluster.finalizers, self._finalizer)
            )
        except (Invalid, NotFound) as gone:
            raise Conflict(str(gone), status=gone.status) from None
        except Conflict:
            raise
        except AccessError as trouble:
            raise Later(f"hub: {trouble}") from trouble
