"""What `serving-stack check` prints, from hand-made verdicts: golden files, and what each format promises.

`UPDATE_GOLDEN=1 pytest tests/cli/test_check_formats.py` writes the golden files anew; read the difference then.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from functions.access.errors import Unreachable
from functions.catalog import Component, CustomResource, DeviceClass, Stack
from functions.cli.formats import DOCUMENTS, document
from functions.cli.formats.progress import Board, Lines, duration
from functions.cli.formats.report import Report, cleaned
from functions.cli.formats.terminal import ASCII_MARKS, MARKS, Terminal
from functions.cli.formats.text import as_text
from functions.judge import Finding, Outcome, Verdict, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN = Path(__file__).parent / "golden"

CERTIFICATES = CustomResource("certificates.cert-manager.io", "v1")
PODS = CustomResource("podmonitors.monitoring.coreos.com", "v1")
SERVICES = CustomResource("servicemonitors.monitoring.coreos.com", "v1")
GPU = DeviceClass("gpu.nvidia.com")
BUNDLES = CustomResource("bundles.trust.cert-manager.io", "v1alpha1")

CERT_MANAGER = Component(
    key="cert-manager",
    purpose="issues certificates",
    requirements=(CERTIFICATES,),
    hint="Install chart cert-manager with its CRDs.",
    link="https://cert-manager.example/docs/",
)
PROMETHEUS = Component(
    key="kube-prometheus-stack",
    purpose="scrapes metrics",
    requirements=(PODS, SERVICES),
    hint="Install chart kube-prometheus-stack, or the operator alone; 100% of its CRDs: both of them, that is.",
    link="https://prometheus.example/docs/getting-started/which/is/a/link/longer/than/the/terminal/is/wide/",
)
DRA = Component(
    key="nvidia-dra-driver-gpu",
    purpose="hands out GPUs",
    requirements=(GPU,),
    hint="Install the DRA driver.",
    link="https://dra.example/",
)
TRUST_MANAGER = Component(
    key="trust-manager",
    purpose="publishes the cluster CA",
    requirements=(BUNDLES,),
    hint="Install chart trust-manager.",
    link="https://trust.example/",
)
COMPONENTS = (CERT_MANAGER, PROMETHEUS, DRA, TRUST_MANAGER)

FORBIDDEN = Finding(
    BUNDLES,
    Outcome.UNKNOWN,
    "Forbidden",
    'user "jane" has no right to get customresourcedefinitions.apiextensions.k8s.io '
    "(GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/bundles.trust.cert-manager.io)",
)
NOT_SERVED = Finding(PODS, Outcome.MISSING, "VersionNotServed", "installed, but serves v1alpha1, v1beta1, not v1")
NOT_FOUND = Finding(GPU, Outcome.MISSING, "NotFound", "not found")
STALE = Finding(SERVICES, Outcome.UNKNOWN, "Stale", "the API server cannot ask APIService v1.monitoring.coreos.com")


def met(*requirements: CustomResource | DeviceClass) -> tuple[Finding, ...]:
    return tuple(Finding(each, Outcome.MET) for each in requirements)


def report(*verdicts: Verdict, kubernetes_version: str = "v1.37.2") -> Report:
    return Report(
        context="gpu-1",
        server="https://gpu-1.example:6443",
        kubernetes_version=kubernetes_version,
        stack=Stack.STANDARD,
        verdicts=cleaned(verdicts),
        not_checked=13,
        kubectl="kubectl --context gpu-1",
    )


REPORTS = {
    "met": report(*(Verdict(each, met(*each.requirements)) for each in COMPONENTS)),
    "missing": report(
        Verdict(CERT_MANAGER, met(CERTIFICATES)),
        Verdict(PROMETHEUS, (NOT_SERVED, *met(SERVICES))),
        Verdict(DRA, (NOT_FOUND,)),
        Verdict(TRUST_MANAGER, met(BUNDLES)),
    ),
    "mixed": report(
        Verdict(CERT_MANAGER, met(CERTIFICATES)),
        Verdict(PROMETHEUS, (NOT_SERVED, STALE)),
        Verdict(DRA, met(GPU)),
        Verdict(TRUST_MANAGER, (FORBIDDEN,)),
    ),
    "unreachable": report(
        *unknown(COMPONENTS, Unreachable("https://gpu-1.example:6443 refused the connection")).verdicts,
        kubernetes_version="",
    ),
}
PLAIN = Terminal(marks=MARKS)
TEXTS: dict[str, Callable[[Report, Terminal], str]] = {
    "txt": as_text,
    "quiet.txt": lambda each, terminal: as_text(each, terminal, quiet=True),
    "colour.txt": lambda each, _: as_text(each, Terminal(marks=MARKS, colour=True)),
    "ascii.txt": lambda each, _: as_text(each, Terminal(marks=ASCII_MARKS)),
}


def matches_golden(name: str, printed: str) -> None:
    file = GOLDEN / f"check-{name}"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(printed, "utf-8")
    assert printed == file.read_text("utf-8")


@pytest.mark.parametrize("case", REPORTS)
@pytest.mark.parametrize("output", DOCUMENTS)
def test_a_document_is_as_its_golden_file(case: str, output: str) -> None:
    matches_golden(f"{case}.{output}", document(REPORTS[case], output))


@pytest.mark.parametrize("case", REPORTS)
@pytest.mark.parametrize("kind", TEXTS)
def test_text_is_as_its_golden_file(case: str, kind: str) -> None:
    matches_golden(f"{case}.{kind}", TEXTS[kind](REPORTS[case], PLAIN))


@pytest.mark.parametrize(
    ("case", "code", "outcome"),
    [("met", 0, "Met"), ("missing", 1, "Missing"), ("mixed", 1, "Missing"), ("unreachable", 3, "Unknown")],
)
def test_json_and_yaml_say_the_same(case: str, code: int, outcome: str) -> None:
    data = json.loads(document(REPORTS[case], "json"))
    assert data == yaml.safe_load(document(REPORTS[case], "yaml"))
    assert (data["apiVersion"], data["kind"]) == ("serving-stack.modelplane.ai/v1alpha1", "CheckReport")
    assert (data["exitCode"], data["outcome"]) == (code, outcome)
    counted = data["summary"]
    assert counted["met"] + counted["missing"] + counted["unknown"] == sum(
        len(each["requirements"]) for each in data["components"]
    )


def test_a_miss_outweighs_what_cannot_be_told() -> None:
    assert REPORTS["mixed"].exit_code == 1


@pytest.mark.parametrize("case", REPORTS)
def test_no_line_of_text_is_too_wide_unless_it_cannot_be_broken(case: str) -> None:
    for line in as_text(REPORTS[case], PLAIN).splitlines():
        assert len(line) <= 80 or " " not in line.strip() or line.strip() in REPORTS[case].commands


@pytest.mark.parametrize("case", REPORTS)
def test_colour_adds_nothing_but_colour(case: str) -> None:
    coloured = as_text(REPORTS[case], Terminal(marks=MARKS, colour=True))
    assert coloured != as_text(REPORTS[case], PLAIN)
    assert re.sub(r"\033\[\d+m", "", coloured) == as_text(REPORTS[case], PLAIN)


def test_text_says_once_why_nothing_can_be_told() -> None:
    assert as_text(REPORTS["unreachable"], PLAIN).count("refused the connection") == 1


def test_junit_counts_what_it_lists() -> None:
    root = ET.fromstring(document(REPORTS["mixed"], "junit"))  # noqa: S314 - our own
    for scope in (root, *root.iter("testsuite")):
        cases = [*scope.iter("testcase")]
        assert scope.get("tests") == str(len(cases))
        assert scope.get("failures") == str(sum(case.find("failure") is not None for case in cases))
        assert scope.get("errors") == str(sum(case.find("error") is not None for case in cases))


def test_sarif_has_what_its_schema_requires() -> None:
    log = json.loads(document(REPORTS["mixed"], "sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["helpUri"].startswith("https://") for rule in rules)
    assert [(each["level"], each["ruleId"]) for each in run["results"]] == [
        ("error", "podmonitors.monitoring.coreos.com/v1"),
        ("warning", "servicemonitors.monitoring.coreos.com/v1"),
        ("warning", "bundles.trust.cert-manager.io/v1alpha1"),
    ]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"]
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]


NASTY = 'a\x1b[31mred\x07 \x00<b>&"\ud800 100%\r\n::error::forged, or: not'


@pytest.mark.parametrize("output", ["text", *DOCUMENTS])
def test_no_text_from_outside_breaks_out(output: str) -> None:
    broken = report(Verdict(CERT_MANAGER, (Finding(CERTIFICATES, Outcome.MISSING, "NotEstablished", NASTY),)))
    printed = as_text(broken, PLAIN) if output == "text" else document(broken, output)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed)
    printed.encode("utf-8")
    _parses(output, printed)


def _parses(output: str, printed: str) -> None:
    said = 'a [31mred <b>&" 100% ::error::forged, or: not'
    readers: dict[str, Any] = {"json": json.loads, "yaml": yaml.safe_load, "sarif": json.loads}
    if output in {"json", "yaml"}:
        assert readers[output](printed)["components"][0]["requirements"][0]["message"] == said
    elif output == "sarif":
        assert said in readers[output](printed)["runs"][0]["results"][0]["message"]["text"]
    elif output == "junit":
        failure = ET.fromstring(printed).find(".//failure")  # noqa: S314 - our own
        assert failure is not None
        assert failure.get("message") == said
    elif output == "github":
        assert [line.partition(" ")[0] for line in printed.splitlines()] == ["::error", "::notice"]


def test_github_escapes_as_its_runner_reads() -> None:
    error = document(REPORTS["missing"], "github").splitlines()[0]
    head, _, message = error.removeprefix("::").partition("::")
    assert head == "error title=kube-prometheus-stack"
    assert "100%25 of" in message
    assert message.split("%0A")[-1] == PROMETHEUS.link


def test_lines_say_what_turns_and_nothing_else() -> None:
    stream = io.StringIO()
    lines = Lines(stream, PLAIN)
    lines.show(REPORTS["missing"], 600.0)
    lines.show(REPORTS["missing"], 599.0)
    lines.show(REPORTS["met"], 0.0)
    lines.end()
    assert stream.getvalue().splitlines() == [
        "3 of 5 requirements met, 2 missing; waiting 10m for gpu-1 (Standard)",
        f"× {NOT_SERVED}",  # noqa: RUF001 - the mark of a miss
        f"× {NOT_FOUND}",  # noqa: RUF001
        "√ CRD podmonitors.monitoring.coreos.com serving v1: met",
        "√ DeviceClass gpu.nvidia.com (resource.k8s.io/v1): met",
    ]


class Screen:
    """The few control sequences of a terminal that the board uses, to see what is left on the screen."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = 0

    def read(self, written: str) -> list[str]:
        for up, clear, newline, text in re.findall(r"\033\[(\d+)A|(\r\033\[J)|(\n)|([^\033\r\n]+)", written):
            if up:
                self.row -= int(up)
            elif clear:
                del self.lines[self.row :]
                self.lines.append("")
            elif newline:
                self.lines.append("")
            else:
                self.lines[self.row] += text
            self.row = self.row if up else len(self.lines) - 1
        return self.lines


@pytest.mark.parametrize("height", [24, 3], ids=["room", "no-room"])
def test_the_board_is_redrawn_in_place_and_goes(height: int) -> None:
    stream, screen = io.StringIO(), Screen()
    board = Board(stream, Terminal(marks=MARKS, height=height))
    board.show(REPORTS["missing"], 600.0)
    board.show(REPORTS["met"], 0.0)
    shown = screen.read(stream.getvalue())
    expected = ["5 of 5 requirements met; waiting 0s more for gpu-1 (Standard)"]
    expected += [f"√ {each.key}" for each in COMPONENTS]
    assert [line.rstrip() for line in shown] == [*expected[: height - 1], ""]
    assert all(len(line) <= 80 for line in shown)
    written = len(stream.getvalue())
    board.end()
    assert screen.read(stream.getvalue()[written:]) == [""]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0s"), (59.6, "1m"), (90, "1m30s"), (3600, "1h"), (5400.4, "1h30m")]
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
