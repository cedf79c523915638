"""What importing the library costs, in CPU-seconds of a fresh process."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from .measure import Figure

OPEN = "import commonplace; commonplace.open('memory:').close()"


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def importing(_: float) -> Iterator[Figure]:
    codes = ("pass", "import commonplace", "from commonplace import Book", OPEN)
    rounds = [[cpu_seconds(code) for code in codes] for _ in range(9)]
    bare, light, core, first = (statistics.median(times) for times in zip(*rounds, strict=True))
    for name, ours, goal in (
        ("import commonplace", light, 0.15),
        ("import commonplace and its core", core, None),
        ("import commonplace and open a book", first, None),
    ):
        cost = ours - bare
        told = "" if goal is None else f"<= {goal} CPU-s more"
        yield Figure(
            name, bare * 1000, ours * 1000, "CPU-ms", cost, told, None if goal is None else cost <= goal
        )
