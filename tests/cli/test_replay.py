"""`serving-stack replay` and `emit` against a sink that answers as a Broker does."""

from __future__ import annotations

import subprocess
import sys
from time import monotonic
from typing import TYPE_CHECKING

import orjson
import pytest

from events import types
from events.codec import read
from events.event import Event
from events.journal import Journal
from tests.sink import Sink, listening
from tests.support import EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def sink() -> Iterator[Sink]:
    with listening() as server:
        yield server


def event(number: int, cluster: str = "gpu-1", type_: str = types.OBJECT_ADDED, **extensions: str) -> Event:
    when = EPOCH.replace(minute=number)
    extensions |= {"cluster": cluster}
    return Event(id=str(number), source="https://target", type=type_, time=when, extensions=extensions)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Five events of two clusters, a broken line among them."""
    journal = Journal(tmp_path / "events.jsonl")
    for each in (event(1), event(2, "gpu-2"), event(3, type_=types.DELETING)):
        journal.append(each, EPOCH)
    with journal.path.open("a") as lines:
        lines.write('{"recorded": "x", "event": {"id": 4}}\n')
    journal.append(event(5, type_=types.REQUIREMENT_MET), EPOCH)
    journal.append(event(6, knativeerrorcode="503", knativeerrordata="d2h5", knativeerrordest="http://x/y"), EPOCH)
    return journal.path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "functions", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def ids(sink: Sink) -> list[str]:
    return [each.id for each in sink.took]


def test_everything_is_sent_again_in_order_and_a_broken_line_is_named(file: Path, sink: Sink) -> None:
    done = run("replay", str(file), "--to", sink.url)
    assert done.returncode == 1
    assert f"{file}:4: " in done.stderr
    assert "5 events sent to" in done.stderr
    assert ids(sink) == ["1", "2", "3", "5", "6"]
    assert {each.source for each in sink.took} == {"https://target"}
    assert {each.extensions["replay"] for each in sink.took} == {"true"}
    assert sink.took[0].time == event(1).time


def test_a_dead_letter_goes_as_it_was_before(file: Path, sink: Sink) -> None:
    run("replay", str(file), "--to", sink.url, "--since", "2026-12-01T04:06:00Z")
    assert [dict(each.extensions) for each in sink.took] == [{"cluster": "gpu-1", "replay": "true"}]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        (["--cluster", "gpu-2"], ["2"]),
        (["--type", types.DELETING], ["3"]),
        (["--type", "ai.modelplane."], ["3", "5"]),
        (["--since", "2026-12-01T04:05:00"], ["5", "6"]),
        (["--since", "2026-12-01T06:05:00+02:00", "--cluster", "gpu-1"], ["5", "6"]),
        (["--cluster", "gpu-9"], []),
    ],
)
def test_what_is_asked_for_is_sent(file: Path, sink: Sink, options: list[str], sent: list[str]) -> None:
    run("replay", str(file), "--to", sink.url, *options)
    assert ids(sink) == sent


def test_a_rate_is_held(file: Path, sink: Sink) -> None:
    begun = monotonic()
    run("replay", str(file), "--to", sink.url, "--rate", "10")
    assert monotonic() - begun > 0.4
    assert len(sink.took) == 5


def test_one_that_is_not_taken_is_named_and_the_others_are_sent(file: Path, sink: Sink) -> None:
    sink.refused = {"2"}
    done = run("replay", str(file), "--to", sink.url)
    assert done.returncode == 1
    assert "2: sink 127.0.0.1" in done.stderr
    assert ids(sink) == ["1", "3", "5", "6"]


def test_a_dry_run_prints_and_sends_nothing(file: Path) -> None:
    done = run("replay", str(file), "--dry-run", "--cluster", "gpu-1")
    assert done.stdout.splitlines()[:2] == [f"1 {types.OBJECT_ADDED}", f"3 {types.DELETING}"]


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ([], "--to URL"),
        (["--to", "ftp://x"], "--to"),
        (["--to", "http://x", "--since", "yesterday"], "2026-12-01T04:00:00Z"),
        (["--to", "http://x", "--rate", "0"], "--rate"),
    ],
)
def test_a_wrong_use_says_what_is_wrong(file: Path, options: list[str], wrong: str) -> None:
    done = run("replay", str(file), *options)
    assert done.returncode == 2
    assert wrong in done.stderr


def test_a_pipeline_says_that_a_cluster_was_provisioned(sink: Sink) -> None:
    done = run("emit", "provisioned", "gpu-1", "--sink", sink.url, "--secret", "gpu-1/config")
    assert done.returncode == 0, done.stderr
    (took,) = sink.took
    assert (took.type, took.subject, took.source) == (types.PROVISIONED, "gpu-1", "/serving-stack/emit")
    assert took.extensions["cluster"] == took.extensions["partitionkey"] == "gpu-1"
    reference = types.SecretReference(name="gpu-1", key="config")
    assert read(took, types.Provisioned) == types.Provisioned(cluster="gpu-1", secret_ref=reference)


def test_without_a_secret_none_is_said(sink: Sink) -> None:
    run("emit", "provisioned", "gpu-1", "--sink", sink.url)
    assert sink.took[0].data is not None
    assert orjson.loads(sink.took[0].data) == {"cluster": "gpu-1"}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["../x", "--sink", "http://127.0.0.1:1"], "no name"),
        (["gpu-1", "--sink", "nowhere"], "--sink"),
        (["gpu-1", "--sink", "http://127.0.0.1:1", "--secret", "/key"], "--secret"),
        (["gpu-1"], "--sink"),
    ],
)
def test_emit_says_what_is_wrong(arguments: list[str], wrong: str) -> None:
    done = run("emit", "provisioned", *arguments)
    assert done.returncode == 2
    assert wrong in done.stderr


def test_a_broker_that_does_not_answer_is_an_error() -> None:
    done = run("emit", "provisioned", "gpu-1", "--sink", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1" in done.stderr
