"""The report as data, JSON or YAML: kind `CheckReport`, whose shape stays as it is within an apiVersion."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from functions.judge import Outcome

if TYPE_CHECKING:
    from functions.cli.formats.report import Report
    from functions.judge import Finding, Verdict

API_VERSION: Final = "serving-stack.modelplane.ai/v1alpha1"


def check_report(report: Report) -> dict[str, Any]:
    """The report in plain values.

    `outcome` is Met, Missing or Unknown at every level; `reason` a CamelCase word, `Provided` for a component and empty
    for a requirement that is met; `message` says why, empty when met. `context`, `server` and `kubernetesVersion` are
    empty where they are not known. `exitCode` is the one of the outcome. `summary` counts requirements; `notChecked`
    in it counts the demands that nobody can check from here, listed by `serving-stack requirements`.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "CheckReport",
        "context": report.context,
        "server": report.server,
        "kubernetesVersion": report.kubernetes_version,
        "stack": str(report.stack),
        "summary": {
            "met": report.count(Outcome.MET),
            "missing": report.count(Outcome.MISSING),
            "unknown": report.count(Outcome.UNKNOWN),
            "notChecked": report.not_checked,
        },
        "outcome": str(report.outcome),
        "exitCode": report.exit_code,
        "components": [_component(each) for each in report.verdicts],
    }


def as_json(report: Report) -> str:
    """The report as indented JSON."""
    return json.dumps(check_report(report), indent=2, ensure_ascii=False) + "\n"


def as_yaml(report: Report) -> str:
    """The report as YAML."""
    import yaml  # noqa: PLC0415 - JSON does without it

    text: str = yaml.safe_dump(check_report(report), sort_keys=False, allow_unicode=True, width=10_000)
    return text


def _component(verdict: Verdict) -> dict[str, Any]:
    return {
        "key": verdict.component.key,
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "message": verdict.message,
        "hint": verdict.component.hint,
        "link": verdict.component.link,
        "requirements": [_requirement(each) for each in verdict.findings],
    }


def _requirement(finding: Finding) -> dict[str, str]:
    requirement = finding.requirement
    return {
        "title": str(requirement),
        "group": requirement.group,
        "version": requirement.version,
        "resource": requirement.plural,
        "name": requirement.name,
        "outcome": str(finding.outcome),
        "reason": finding.reason,
        "message": finding.detail,
    }
