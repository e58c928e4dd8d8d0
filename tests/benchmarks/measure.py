"""What every benchmark reports: figures beside their limits, and how they are taken from samples and processes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median, quantiles
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CPU_CLOCK_OF_PROCESS: Final = 2
_KIB_PER_MIB: Final = 1024


@dataclass(frozen=True, slots=True)
class Goal:
    """What is asked of a figure.

    Attributes:
        text: For people.
        met: Whether a value reaches it; the second argument is the limit, NaN where there is none.
    """

    text: str
    met: Callable[[float, float], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report.

    Attributes:
        name: What was measured.
        value: The result in `unit`.
        samples: How many measurements it is taken from.
        limit: What nobody, or nobody else, does better, in the same unit and from the same run; None where there is no
            such thing.
        goal: What is asked of it; None for a peer, or what is only told.
        date: When it was measured.
    """

    name: str
    value: float
    unit: str
    samples: int
    limit: float | None = None
    goal: Goal | None = None
    date: datetime

    @property
    def ratio(self) -> float | None:
        """The value to the limit."""
        return self.value / self.limit if self.limit else None

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        if self.goal is None:
            return None
        return self.goal.met(self.value, float("nan") if self.limit is None else self.limit)


def figure(
    name: str, value: float, unit: str, samples: int, *, limit: float | None = None, goal: Goal | None = None
) -> Figure:
    """A figure of now."""
    return Figure(name=name, value=value, unit=unit, samples=samples, limit=limit, goal=goal, date=datetime.now(UTC))


def at_most(most: float, unit: str) -> Goal:
    """The value itself is bounded."""
    return Goal(f"<= {most:g} {unit}", lambda value, _: value <= most)


def within(slack: float, unit: str) -> Goal:
    """The value is not more than `slack` above the limit."""
    return Goal(f"<= limit + {slack:g} {unit}", lambda value, limit: value <= limit + slack)


def ratio_at_most(most: float) -> Goal:
    """The value is not more than so many times the limit."""
    return Goal(f"<= {most:g} x limit", lambda value, limit: value <= most * limit)


def ratio_at_least(least: float) -> Goal:
    """The value is not less than so many times the limit."""
    return Goal(f">= {least:g} x limit", lambda value, limit: value >= least * limit)


@dataclass(slots=True)
class Stopwatch:
    """Times one piece of work again and again, each time in a `with`.

    Attributes:
        wall: Milliseconds that passed, each time.
        cpu: Milliseconds of CPU of this process, each time.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    @property
    def mean_cpu(self) -> float:
        """Mean, in which also the garbage collector has its share."""
        return mean(self.cpu)

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._began
        self.cpu.append((time.process_time() - cpu) * 1000)
        self.wall.append((time.perf_counter() - wall) * 1000)


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return median(samples)


def p95(samples: Sequence[float]) -> float:
    """The 95th percentile, interpolated between samples and never beyond the largest."""
    return quantiles(samples, n=20, method="inclusive")[-1] if len(samples) > 1 else samples[0]


def milliseconds(seconds: Sequence[float]) -> list[float]:
    """The same in milliseconds."""
    return [each * 1000 for each in seconds]


def cpu_seconds(pid: int) -> float:
    """The CPU time that a running process has taken, user and system, all threads, to the nanosecond."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK_OF_PROCESS)  # what clock_getcpuclockid(3) gives on Linux


def resident_mib(pid: int) -> float:
    """The resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / _KIB_PER_MIB
    raise ProcessLookupError(f"process {pid} has ended")
