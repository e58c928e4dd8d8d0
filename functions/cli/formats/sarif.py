"""The report as SARIF 2.1.0: a rule per requirement, a result for each that is not met."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from functions.judge import Outcome

if TYPE_CHECKING:
    from functions.cli.formats.report import Report
    from functions.judge import Finding, Verdict

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_LEVELS: Final = {Outcome.MISSING: "error", Outcome.UNKNOWN: "warning"}


def as_sarif(report: Report) -> str:
    """The report as indented JSON; where a result is, its logical location says: in a cluster, not in a file."""
    judged = [(verdict, finding) for verdict in report.verdicts for finding in verdict.findings]
    run = {
        "tool": {"driver": {"name": "serving-stack", "rules": [_rule(*each) for each in judged]}},
        "invocations": [{"executionSuccessful": report.outcome is not Outcome.UNKNOWN, "exitCode": report.exit_code}],
        "properties": {
            "context": report.context,
            "server": report.server,
            "kubernetesVersion": report.kubernetes_version,
            "stack": str(report.stack),
        },
        "results": [
            _result(report, index, finding)
            for index, (_, finding) in enumerate(judged)
            if finding.outcome is not Outcome.MET
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False) + "\n"


def _rule(verdict: Verdict, finding: Finding) -> dict[str, Any]:
    component = verdict.component
    return {
        "id": _rule_id(finding),
        "shortDescription": {"text": f"{finding.requirement}."},
        "fullDescription": {"text": f"{component.key} {component.purpose}; it has to bring {finding.requirement}."},
        "help": {"text": component.hint},
        "helpUri": component.link,
        "properties": {"component": component.key},
    }


def _result(report: Report, index: int, finding: Finding) -> dict[str, Any]:
    requirement = finding.requirement
    return {
        "ruleId": _rule_id(finding),
        "ruleIndex": index,
        "level": _LEVELS[finding.outcome],
        "message": {"text": str(finding)},
        "locations": [
            {
                "logicalLocations": [
                    {
                        "name": requirement.name,
                        "fullyQualifiedName": f"{report.context}/{requirement.name}",
                        "kind": "resource",
                    }
                ]
            }
        ],
        "properties": {"reason": finding.reason},
    }


def _rule_id(finding: Finding) -> str:
    """Stable from release to release, as long as the requirement is the same."""
    return f"{finding.requirement.name}/{finding.requirement.version}"
