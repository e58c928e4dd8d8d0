"""How the composed objects stand as data: kind `ExplainReport`, whose shape stays as it is within an apiVersion."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from functions.cli.formats.data import API_VERSION
from functions.cli.formats.terminal import WAITING
from functions.compose.explained import Standing
from functions.judge import Outcome

if TYPE_CHECKING:
    from functions.cli.formats.explanation import ExplainReport
    from functions.compose.explained import Explained, ExplainedSet
    from functions.conditions import Condition

_OUTCOMES: Final = {Outcome.MET: "Done", Outcome.MISSING: "Pending", WAITING: "Pending", Outcome.UNKNOWN: "Unknown"}


def explain_report(report: ExplainReport) -> dict[str, Any]:
    """The report in plain values; a text is empty where there is nothing to say, a moment is RFC 3339.

    `context` and `server` are of the hub, `target` is the URL of the cluster that the InferenceCluster stands for.
    `deletionTimestamp` is empty unless it is being deleted, and `finalizers` are those that hold it. `outcome` is Done,
    Pending or Unknown, and `exitCode` 0, 1 or 3 accordingly; `summary` counts objects by it. `trouble` says why nothing
    at all can be told.

    A set has its `name`, its `condition` as the functions wrote it last, null where they did not, what is `leftOut` of
    client CAs with the reason, and its `objects` in the order in which they are applied, or taken down. Of an object:

    - `state`: Ready; NotReady, it is applied and its controller is not done; Due, nothing is in the way of `next`;
      Waiting for `waitsFor`; Conflict; Refused; Unknown. Of what is to go: Gone; Kept; Removing; Blocked; and Waiting.
    - `applied`: whether it is there exactly as it should be; of what is to go, whether it is there and ours.
    - `ready`: whether nothing of it is wanting.
    - `waitsFor`: the one component, client CA or object; the object itself where its controller is not done with it.
    - `detail`: what is wrong, or what its controller last said; `since` when.
    - `next`: apply, put right, adopt, label or delete.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "ExplainReport",
        "context": report.context,
        "server": report.server,
        "cluster": report.cluster,
        "stack": report.stack,
        "target": report.target,
        "deletionTimestamp": report.deleting_since,
        "finalizers": list(report.finalizers),
        "summary": {
            "objects": len(report.objects),
            "done": report.count(Outcome.MET),
            "pending": report.count(Outcome.MISSING, WAITING),
            "unknown": report.count(Outcome.UNKNOWN),
        },
        "outcome": _OUTCOMES[report.outcome],
        "exitCode": report.exit_code,
        "trouble": report.common_trouble,
        "sets": [_set(each) for each in report.sets],
    }


def as_json(report: ExplainReport) -> str:
    """The report as indented JSON."""
    return json.dumps(explain_report(report), indent=2, ensure_ascii=False) + "\n"


def _set(explained: ExplainedSet) -> dict[str, Any]:
    return {
        "name": explained.composition.name,
        "condition": _condition(explained.condition),
        "leftOut": list(explained.left_out),
        "objects": [_object(each) for each in explained.objects],
    }


def _condition(condition: Condition | None) -> dict[str, Any] | None:
    return None if condition is None else condition.to_object()


def _object(explained: Explained) -> dict[str, Any]:
    step = explained.step
    return {
        "apiVersion": step.kind.api_version,
        "kind": step.kind.name,
        "namespace": step.namespace,
        "name": step.name,
        "state": str(explained.standing),
        "applied": explained.applied,
        "ready": explained.standing is Standing.READY,
        "waitsFor": explained.waits_for,
        "detail": explained.detail,
        "since": explained.since,
        "next": explained.next,
    }
