"""How the benchmarks judge and report; what they measure is measured by `make bench`."""

from __future__ import annotations

import io
import json
import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.load import request
from tests.benchmarks.measure import (
    Goal,
    at_most,
    cpu_seconds,
    figure,
    p50,
    p95,
    ratio_at_least,
    ratio_at_most,
    resident_mib,
    within,
)
from tests.benchmarks.report import print_table, write_json

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("value", "limit", "goal", "met"),
    [
        pytest.param(10, None, at_most(10, "ms"), True, id="at-most-met"),
        pytest.param(10.1, None, at_most(10, "ms"), False, id="at-most-missed"),
        pytest.param(65, 50, within(15, "ms"), True, id="within-met"),
        pytest.param(66, 50, within(15, "ms"), False, id="within-missed"),
        pytest.param(160, 100, ratio_at_most(1.6), True, id="ratio-at-most-met"),
        pytest.param(161, 100, ratio_at_most(1.6), False, id="ratio-at-most-missed"),
        pytest.param(60, 100, ratio_at_least(0.6), True, id="ratio-at-least-met"),
        pytest.param(59, 100, ratio_at_least(0.6), False, id="ratio-at-least-missed"),
        pytest.param(1, None, within(15, "ms"), False, id="nothing-is-within-a-limit-that-is-not-there"),
        pytest.param(1, 1, None, None, id="no-goal"),
    ],
)
def test_a_goal_is_judged_by_value_and_limit(
    value: float, limit: float | None, goal: Goal | None, *, met: bool | None
) -> None:
    assert figure("x", value, "ms", 1, limit=limit, goal=goal).met is met


def test_percentiles_lie_between_the_samples() -> None:
    assert p50([4, 1, 3, 2]) == 2.5
    assert p95([float(each) for each in range(101)]) == 95
    assert p95([7]) == 7


def test_the_clock_of_a_process_tells_its_cpu_time() -> None:
    before, ours = cpu_seconds(os.getpid()), time.process_time()
    while time.process_time() - ours < 0.02:
        pass
    assert cpu_seconds(os.getpid()) - before == pytest.approx(time.process_time() - ours, abs=0.005)
    assert 1 < resident_mib(os.getpid()) < 10_000


def test_the_table_is_narrow_and_tells_what_was_missed() -> None:
    stream = io.StringIO()
    long = "a name that is so long that it has to be folded, because one line of a terminal does not hold it all"
    missed = figure(long, 123456, "ms", 30, limit=0.5, goal=within(15, "ms"))
    print_table([missed, figure("fine", 1, "ms", 3, goal=at_most(2, "ms")), figure("peer", 9, "", 3)], stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 120
    assert "123,456 ms" in text
    assert "NO" in text
    assert "1 of 2 goals met" in text


def test_the_json_has_an_object_for_each_figure(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    measured = figure("x", 3.0, "ms", 30, limit=2.0, goal=within(15, "ms"))
    write_json([measured, figure("y", 1.0, "MiB", 1)], file)
    first, second = json.loads(file.read_text())
    date = measured.date.isoformat(timespec="seconds")
    assert first == {
        "name": "x",
        "value": 3.0,
        "unit": "ms",
        "limit": 2.0,
        "ratio": 1.5,
        "goal": "<= limit + 15 ms",
        "met": True,
        "samples": 30,
        "date": date,
    }
    assert [second[name] for name in ("limit", "ratio", "goal", "met")] == [None] * 4


def test_the_load_is_a_whole_http_request() -> None:
    head, _, body = request("/cluster").partition(b"\r\n\r\n")
    assert head.startswith(b"POST /cluster HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body)["kind"] == "Deployment"
