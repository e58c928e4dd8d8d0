"""What the process that runs everything does before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from events import types
from events.event import JSON, Event, json_data
from functions.function import source_of
from functions.watch.dev import Reporter

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    import pytest

PROGRAM = """
import resource
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
from functions.watch import connections
resource.setrlimit(resource.RLIMIT_NOFILE, (100, most))
connections.allow_many()
print(resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most))
"""


def test_it_may_have_as_many_connections_as_the_system_lets_it(
    start_python: Callable[[str], subprocess.Popen[str]],
) -> None:
    output, _ = start_python(PROGRAM).communicate(timeout=60)
    assert output == "True\n"


def test_it_says_how_a_set_turns_and_each_turn_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    reporter = Reporter()
    for id_, status in (("1", "False"), ("1", "False"), ("2", "True")):
        data = types.CompositionJudged.model_validate(
            {"status": status, "reason": "Applied", "message": "so it is", "generation": 1}
        )
        reporter.report(
            Event(
                id=id_,
                source=source_of("compose/gateway"),
                type=types.COMPOSITION_APPLIED,
                subject="gpu-1",
                extensions={"cluster": "gpu-1"},
                datacontenttype=JSON,
                data=json_data(data),
            )
        )
    said = [(each.message, each.__dict__["cluster"], each.__dict__["detail"]) for each in caplog.records]
    assert said == [(f"GatewayComposed: {status}, Applied", "gpu-1", "so it is") for status in ("False", "True")]
