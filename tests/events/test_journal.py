"""The journal on disk: one line each, put aside by size, broken lines named, nothing secret in it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import orjson
import pytest

from events import types
from events.event import JSON, Event
from events.journal import Entry, Journal, read_journal

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 12, 1, 4, 0, tzinfo=UTC)


def changed(number: int, data: object = None, type_: str = types.OBJECT_ADDED) -> Event:
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "a", "namespace": "modelplane-system"}
    return Event(
        id=str(number),
        source="https://target",
        type=type_,
        subject="/apis/v1/namespaces/modelplane-system/secrets/a",
        time=NOW,
        datacontenttype=JSON,
        extensions={"kind": "Secret", "name": "a", "namespace": ""},
        data=orjson.dumps(reference if data is None else data),
    )


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "events.jsonl")


def read_back(journal: Journal) -> list[Entry]:
    return list(read_journal(journal.path))


def test_an_event_comes_back_as_it_went_in(journal: Journal) -> None:
    written = [changed(1), changed(2), Event(id="3", source="/x", type=types.PING, time=NOW)]
    for each in written:
        journal.append(each, NOW)
    assert [each.event for each in read_back(journal)] == written
    lines = journal.path.read_text().splitlines()
    assert [orjson.loads(each)["recorded"] for each in lines] == ["2026-12-01T04:00:00Z"] * 3


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        pytest.param(
            "dev.knative.apiserver.resource.add",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "a", "annotations": {"last-applied": "hunter2"}},
                "data": {"kubeconfig": "hunter2"},
            },
            id="a whole Secret",
        ),
        pytest.param(types.PROVISIONED, {"cluster": "gpu-1", "kubeconfig": "hunter2"}, id="an unknown field"),
        pytest.param("com.example.other", {"password": "hunter2"}, id="an unknown type"),
        pytest.param(types.PROVISIONED, {"password": "hunter2"}, id="data that does not fit"),
    ],
)
def test_no_secret_is_written(journal: Journal, type_: str, data: object) -> None:
    journal.append(changed(1, data, type_), NOW)
    assert b"hunter2" not in journal.path.read_bytes()
    (entry,) = read_back(journal)
    assert entry.event is not None
    assert entry.event.type == type_


def test_what_names_the_object_is_kept_of_a_whole_one(journal: Journal) -> None:
    whole = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "b"}, "data": {"x": "y"}}
    journal.append(changed(1, whole, "dev.knative.apiserver.resource.update"), NOW)
    (entry,) = read_back(journal)
    assert entry.event is not None
    assert orjson.loads(entry.event.data or b"") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "a", "namespace": "b"},
    }


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"{\n", id="no JSON"),
        pytest.param(b"[]\n", id="no object"),
        pytest.param(b'{"recorded": "x"}\n', id="without an event"),
        pytest.param(b'{"event": {"specversion": "1.0"}}\n', id="no CloudEvent"),
        pytest.param(b'{"event": 7}\n', id="a number"),
        pytest.param(b"\xff\xfe\n", id="no text"),
        pytest.param(b'{"event": {"specversion": "1.0", "id": "1", "sou', id="cut off"),
    ],
)
def test_a_broken_line_is_named_by_number_and_the_others_are_read(journal: Journal, broken: bytes) -> None:
    journal.append(changed(1), NOW)
    with journal.path.open("ab") as file:
        file.write(b"\n" + broken)
    if broken.endswith(b"\n"):
        journal.append(changed(2), NOW)
    first, second, *rest = read_back(journal)
    assert (first.number, first.trouble) == (1, "")
    assert (second.number, second.event) == (3, None)
    assert second.trouble
    assert [each.event for each in rest] == [changed(2)] * broken.endswith(b"\n")


def test_a_file_that_has_grown_is_put_aside_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "events.jsonl", max_bytes=1, kept=2)
    for number in range(5):
        journal.append(changed(number), NOW)
    names = ["events.jsonl.2", "events.jsonl.1", "events.jsonl"]
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(names)
    found = [entry.event.id for name in names for entry in read_journal(tmp_path / name) if entry.event is not None]
    assert found == ["2", "3", "4"]


def test_a_directory_that_is_not_there_is_an_error_of_the_operating_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "nowhere" / "events.jsonl").append(changed(1), NOW)
