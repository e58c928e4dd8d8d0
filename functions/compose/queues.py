"""KAI's queues on the Dynamo stack: a root without limits, and below it the one that Modelplane's pods name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from functions.catalog import Stack
from functions.compose import kinds
from functions.compose.step import Composition, Step

if TYPE_CHECKING:
    from functions.compose.step import Inputs, Manifest

ROOT: Final = "modelplane-root"
QUEUE: Final = "modelplane"


def _root(_: Inputs) -> Manifest:
    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    return {"spec": {"resources": {each: dict(unlimited) for each in ("cpu", "gpu", "memory")}}}


def _queue(inputs: Inputs) -> Manifest:
    return {"spec": {**_root(inputs)["spec"], "parentQueue": ROOT}}


COMPOSITION: Final = Composition(
    name="queues",
    condition="QueuesComposed",
    stacks=frozenset({Stack.DYNAMO}),
    steps=(
        Step(kind=kinds.QUEUE, name=ROOT, manifest=_root, needs=("kai-scheduler",)),
        Step(kind=kinds.QUEUE, name=QUEUE, manifest=_queue, needs=("kai-scheduler",), after=(f"Queue {ROOT}",)),
    ),
)
