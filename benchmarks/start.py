"""What importing the library costs, in CPU-seconds of a fresh process."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator

from .measure import Figure


def cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def importing(_: float) -> Iterator[Figure]:
    rounds = [(cpu_seconds("pass"), cpu_seconds("import commonplace")) for _ in range(7)]
    bare, ours = (statistics.median(times) for times in zip(*rounds, strict=True))
    cost = ours - bare
    yield Figure(
        "import commonplace", bare * 1000, ours * 1000, "CPU-ms", cost, "<= 0.15 CPU-s more", cost <= 0.15
    )
