"""What the host counts; the rest of `functions.host` does the counting, `/metrics` renders it.

Counts are plain numbers that become metrics when somebody scrapes. An increment costs a tenth of what that of a
`prometheus_client.Counter` does, and a process that starts for an event does not wait for that package's import.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from events.types import KNOWN
from functions import counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
"""Upper bounds in seconds; the last is a handler's time limit."""


class Counts:
    """The counts of this process, and a collector of them for Prometheus.

    Attributes:
        in_flight: Requests with an event that have no answer yet.
        published: Events that K_SINK accepted, by function.
        bugs: Exceptions that no one expected, by function.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self.published: Counter[str] = Counter()
        self.bugs: Counter[str] = Counter()
        self._events: Counter[tuple[str, str, str]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))

    def event(self, function: str, type_: str, outcome: str) -> None:
        """Count what came for a function; types that the project does not know are one, so that labels stay few."""
        self._events[function, type_ if type_ in KNOWN else "other", outcome] += 1

    def duration(self, function: str, seconds: float) -> None:
        """Count the time from a decoded event to its answer."""
        self._buckets[function][bisect_left(BUCKETS, seconds)] += 1
        self._seconds[function] += seconds

    def collect(self) -> Iterator[Metric]:
        """The metrics, as `prometheus_client` asks a collector for them."""
        from prometheus_client import core  # noqa: PLC0415 - see above

        events = core.CounterMetricFamily(
            "serving_stack_events", "Events answered, by what became of them.", labels=("function", "type", "outcome")
        )
        for labels, count in self._events.items():
            events.add_metric(labels, count)
        yield events
        durations = core.HistogramMetricFamily(
            "serving_stack_event_duration_seconds",
            "Time from a decoded event to its answer, publishing included.",
            labels=("function",),
        )
        bounds = [*map(str, BUCKETS), "+Inf"]
        for function, filled in self._buckets.items():
            buckets = list(zip(bounds, accumulate(filled), strict=True))
            durations.add_metric((function,), buckets, self._seconds[function])
        yield durations
        for name, text, by_function in (
            ("serving_stack_events_published", "Events that K_SINK accepted.", self.published),
            ("serving_stack_bugs", "Exceptions that no one expected.", self.bugs),
        ):
            family = core.CounterMetricFamily(name, text, labels=("function",))
            for function, count in by_function.items():
                family.add_metric((function,), count)
            yield family
        for name, text in counts.HELP.items():
            yield core.CounterMetricFamily(name, text, value=counts.COUNTS[name])
        yield core.GaugeMetricFamily(
            "serving_stack_events_in_flight", "Requests with an event that have no answer yet.", value=self.in_flight
        )


COUNTS: Final = Counts()
_registered = False


def exposition(accept: str) -> tuple[bytes, str]:
    """All metrics of the process in the format that an Accept header asks for, and its content type."""
    from prometheus_client import REGISTRY  # noqa: PLC0415 - see above
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415

    global _registered  # noqa: PLW0603 - the registry, too, is the process's
    if not _registered:
        REGISTRY.register(COUNTS)  # beside the process's memory and CPU, and what other modules register there
        _registered = True
    encode, content_type = choose_encoder(accept)
    return encode(REGISTRY), content_type
