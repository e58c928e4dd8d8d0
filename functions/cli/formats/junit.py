"""The report as JUnit XML: a suite per component, a case per requirement, an error where it cannot be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET  # only written here, never parsed

from functions.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from functions.cli.formats.report import Report
    from functions.judge import Finding, Verdict

_ELEMENTS: Final = {Outcome.MISSING: "failure", Outcome.UNKNOWN: "error"}


def as_junit(report: Report) -> str:
    """The report as XML."""
    root = ET.Element("testsuites", {"name": f"serving-stack {report.stack}", **_counts(report.findings)})
    for verdict in report.verdicts:
        suite = ET.SubElement(root, "testsuite", {"name": verdict.component.key, **_counts(verdict.findings)})
        _properties(suite, report)
        for finding in verdict.findings:
            _case(suite, verdict, finding)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _counts(findings: Sequence[Finding]) -> dict[str, str]:
    outcomes = [each.outcome for each in findings]
    return {
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count(Outcome.MISSING)),
        "errors": str(outcomes.count(Outcome.UNKNOWN)),
    }


def _properties(suite: ET.Element, report: Report) -> None:
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("context", report.context),
        ("server", report.server),
        ("kubernetesVersion", report.kubernetes_version),
    ):
        ET.SubElement(properties, "property", {"name": name, "value": value})


def _case(suite: ET.Element, verdict: Verdict, finding: Finding) -> None:
    case = ET.SubElement(
        suite, "testcase", {"name": str(finding.requirement), "classname": f"serving-stack.{verdict.component.key}"}
    )
    if finding.outcome is Outcome.MET:
        return
    wrong = ET.SubElement(case, _ELEMENTS[finding.outcome], {"message": finding.detail, "type": finding.reason})
    if finding.outcome is Outcome.MISSING:
        wrong.text = f"{verdict.component.hint}\n{verdict.component.link}"
