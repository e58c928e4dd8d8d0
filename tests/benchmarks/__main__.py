"""`make bench`: measures, prints a table, and writes `latest.json` beside this file.

Run as `python -m tests.benchmarks [--only NAME]...`. A goal that is missed is said in the table and is no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from functions.local.processes import say
from tests.benchmarks.report import print_table, write_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.benchmarks.measure import Figure

# Each topic with the seconds that it may take at most.
TOPICS: Final = {
    "reaction": 330,
    "throughput": 60,
    "sweep": 45,
    "compose": 150,
    "fleet": 90,
    "check": 75,
    "start": 75,
    "watches": 420,
}


def main(arguments: Sequence[str]) -> None:
    """Runs the topics that were asked for, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=TOPICS, metavar="NAME", help=f"one of {', '.join(TOPICS)}")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("latest.json"), help="the JSON file")
    options = parser.parse_args(arguments)
    # All before the first: what is measured is the code as it is now.
    topics = {topic: import_module(f"tests.benchmarks.{topic}").run for topic in options.only or TOPICS}
    figures: list[Figure] = []
    try:
        for topic, run in topics.items():
            begun = time.monotonic()
            say(f"{topic} ...")
            figures += uvloop.run(_bounded(run, TOPICS[topic]))
            say(f"{topic}: {time.monotonic() - begun:.0f} s")
    finally:  # what was measured before a failure is worth showing
        print_table(figures, sys.stdout)
        write_json(figures, options.output)


async def _bounded(run: Callable[[], Awaitable[list[Figure]]], seconds: float) -> list[Figure]:
    async with asyncio.timeout(seconds):
        return await run()


if __name__ == "__main__":
    main(sys.argv[1:])
