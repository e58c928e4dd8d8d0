"""What the host counts, in the process-wide Prometheus registry; incremented by the host, rendered for `/metrics`."""

from __future__ import annotations

from functools import cache
from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from events.types import MODELS

EVENTS: Final = Counter(
    "serving_stack_events", "Events answered, by what became of them.", ("function", "type", "outcome")
)
DURATION: Final = Histogram(
    "serving_stack_event_duration_seconds",
    "Time from a decoded event to its answer, publishing included.",
    ("function",),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20),
)
IN_FLIGHT: Final = Gauge("serving_stack_events_in_flight", "Requests with an event that have no answer yet.")
PUBLISHED: Final = Counter("serving_stack_events_published", "Events that K_SINK accepted.", ("function",))
BUGS: Final = Counter("serving_stack_bugs", "Exceptions that no one expected.", ("function",))


@cache
def _events(function: str, type_: str, outcome: str) -> Counter:
    return EVENTS.labels(function, type_, outcome)


@cache
def duration_of(function: str) -> Histogram:
    """The histogram of one function, in seconds."""
    return DURATION.labels(function)


def count(function: str, type_: str, outcome: str) -> None:
    """Count one event; a type that the project does not know is counted as `other`, so that labels stay few."""
    _events(function, type_ if type_ in MODELS else "other", outcome).inc()


def exposition(accept: str) -> tuple[bytes, str]:
    """All metrics of the process in the format that an Accept header asks for, and its content type."""
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type
