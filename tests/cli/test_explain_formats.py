"""What `serving-stack explain` prints, from hand-made explanations: golden files, and what each format promises.

`UPDATE_GOLDEN=1 pytest tests/cli/test_explain_formats.py` writes the golden files anew; read the difference then.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from functions.cli.formats.explanation_data import as_json
from functions.cli.formats.explanation_text import age, as_text
from functions.cli.formats.terminal import ASCII_MARKS, MARKS, Terminal
from functions.compose.explained import Explained, Standing
from functions.compose.sets import COMPOSITIONS
from functions.conditions import Status
from tests.cli.explanations import (
    BUNDLE,
    CA,
    FORBIDDEN,
    GATEWAY,
    HAND_OVER,
    HAND_OVER_POLICY,
    ISSUER,
    QUEUE,
    QUEUES,
    REPORTS,
    ROOT,
    of_set,
    report,
    stands,
    waits,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from functions.cli.formats.explanation import ExplainReport
    from functions.compose.step import Composition

GOLDEN = Path(__file__).parent / "golden"
PLAIN = Terminal(marks=MARKS)
FORMS: dict[str, Callable[[ExplainReport], str]] = {
    "txt": lambda each: as_text(each, PLAIN),
    "colour.txt": lambda each: as_text(each, Terminal(marks=MARKS, colour=True)),
    "ascii.txt": lambda each: as_text(each, Terminal(marks=ASCII_MARKS)),
    "json": as_json,
}
CODES = {
    "ready": 0,
    "waiting": 1,
    "conflict": 1,
    "deleting": 1,
    "gone": 0,
    "forbidden": 3,
    "unreachable": 3,
    "no-secret": 3,
    "no-hub": 3,
}


@pytest.mark.parametrize("case", REPORTS)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_printed_as_its_golden_file(case: str, form: str) -> None:
    file, printed = GOLDEN / f"explain-{case}.{form}", FORMS[form](REPORTS[case])
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(printed, "utf-8")
    assert printed == file.read_text("utf-8")


@pytest.mark.parametrize("case", REPORTS)
def test_json_and_exit_code_say_the_same(case: str) -> None:
    data = json.loads(as_json(REPORTS[case]))
    outcome = {0: "Done", 1: "Pending", 3: "Unknown"}[CODES[case]]
    assert (REPORTS[case].exit_code, data["exitCode"], data["outcome"]) == (CODES[case], CODES[case], outcome)
    counted = data["summary"]
    assert counted["objects"] == sum(len(each["objects"]) for each in data["sets"])
    assert counted["objects"] == counted["done"] + counted["pending"] + counted["unknown"]


def test_what_is_on_its_way_outweighs_what_cannot_be_told() -> None:
    mixed = report(
        of_set(
            QUEUES,
            Status.TRUE,
            "Applied",
            stands(QUEUES, ROOT, Standing.UNKNOWN, detail=FORBIDDEN, trouble="Forbidden"),
            waits(QUEUES, QUEUE, ROOT),
        )
    )
    assert mixed.exit_code == 1


@pytest.mark.parametrize("case", REPORTS)
def test_every_line_fits_eighty_columns(case: str) -> None:
    assert all(len(line) <= 80 for line in as_text(REPORTS[case], PLAIN).splitlines())


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("standing", Standing)
def test_every_object_fits_eighty_columns(composition: Composition, standing: Standing) -> None:
    found = [Explained(step=each, standing=standing, next="apply") for each in composition.steps]
    for line in as_text(
        report(of_set(composition, Status.FALSE, "WaitingForRequirements", *found)), PLAIN
    ).splitlines():
        assert len(line) <= 80


@pytest.mark.parametrize("case", REPORTS)
def test_colour_adds_nothing_but_colour(case: str) -> None:
    coloured = as_text(REPORTS[case], Terminal(marks=MARKS, colour=True))
    assert re.sub(r"\033\[\d+m", "", coloured) == as_text(REPORTS[case], PLAIN)


def test_the_command_to_hand_over_is_one_for_a_shell() -> None:
    said = as_text(REPORTS["conflict"], PLAIN).replace("\\\n", " ")
    for command in (HAND_OVER, HAND_OVER_POLICY):
        assert command in re.sub(" +", " ", said)


def test_what_an_object_waits_for_is_told_once_for_each_cause() -> None:
    found = [
        waits(GATEWAY, key, cause, "not judged yet")
        for key, cause in ((ISSUER, "cert-manager"), (CA, "cert-manager"), (BUNDLE, "trust-manager"))
    ]
    said = as_text(report(of_set(GATEWAY, Status.FALSE, "WaitingForRequirements", *found)), PLAIN)
    assert [line.strip() for line in said.splitlines() if "waits for" in line] == [
        "to be applied; waits for cert-manager for 3m: not judged yet",
        "to be applied; waits for cert-manager for 3m",
        "to be applied; waits for trust-manager for 3m: not judged yet",
    ]


NASTY = "a\x1b[31mred\x07 \x00<b>\ud800\r\nforged"


@pytest.mark.parametrize("form", FORMS)
def test_no_text_from_outside_breaks_out(form: str) -> None:
    found = stands(QUEUES, ROOT, Standing.CONFLICT, detail=NASTY, waits_for=NASTY)
    broken = report(of_set(QUEUES, Status.FALSE, NASTY, found, left_out=(NASTY,)))
    printed = re.sub(r"\033\[\d+m", "", FORMS[form](broken)) if form == "colour.txt" else FORMS[form](broken)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed)
    assert "\nforged" not in printed
    printed.encode("utf-8")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0.9, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (18600, "5h10m"),
        (86400, "1d"),
        (183600, "2d3h"),
    ],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize("since", ["yesterday", "2026-12-01T03:57:00"], ids=["no-moment", "no-zone"])
def test_a_moment_that_nobody_can_read_is_left_out(since: str) -> None:
    found = report(of_set(QUEUES, Status.FALSE, "WaitingForObject", waits(QUEUES, QUEUE, ROOT, since=since)))
    assert "    to be applied; waits for Queue modelplane-root\n" in as_text(found, PLAIN)
