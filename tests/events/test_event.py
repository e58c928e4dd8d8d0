"""The event itself: attributes as text, deterministic ids, and data that is equal bytes when it is equal."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from events.event import Event, event_id, json_data
from events.types import MODELS, Data, ObjectReference

EVENT = Event(
    id="1",
    source="/here",
    type="a.b",
    time=datetime(2026, 12, 1, 9, 30, tzinfo=timezone(timedelta(hours=5, minutes=30))),
    extensions={"cluster": "gpu-1", "namespace": ""},
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("id", "1"),
        ("type", "a.b"),
        ("subject", None),
        ("specversion", "1.0"),
        ("time", "2026-12-01T04:00:00Z"),
        ("cluster", "gpu-1"),
        ("namespace", ""),
        ("absent", None),
        ("data", None),
    ],
)
def test_attributes_are_text(name: str, value: str | None) -> None:
    assert EVENT.attribute(name) == value


def test_ids_are_the_same_for_the_same_observation_and_no_other() -> None:
    ids = [event_id("ab", "c"), event_id("a", "bc"), event_id("abc")]
    assert event_id("ab", "c") == ids[0]
    assert len(set(ids)) == 3
    assert all(len(written) == 32 and int(written, 16) >= 0 for written in ids)


def test_data_is_sorted_and_without_what_is_not_set() -> None:
    data = json_data(ObjectReference(kind="Node", name="n", api_version="v1"))
    assert data == b'{"apiVersion":"v1","kind":"Node","name":"n"}'


@pytest.mark.parametrize("model", [pytest.param(model, id=name) for name, model in MODELS.items()])
def test_every_model_is_immutable_and_takes_fields_of_later_versions(model: type[Data]) -> None:
    assert (model.model_config["frozen"], model.model_config["extra"]) == (True, "ignore")
