"""Steady load for a long time: memory and open descriptors must not grow."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from . import Result
from .places import place

WARM_UP = 0.2
"""The share of the time after which growth counts."""


def resident() -> int:
    """This process's memory in kB, as the kernel counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def soak(seconds: float, seed: int, tmp: Path) -> Result:
    """Append, read, watch and erase on SQLite until the time is over."""
    result, rng = Result(), random.Random(seed)
    samples: list[tuple[int, int]] = []
    home = place("sqlite", tmp)
    seen = 0
    with home.open() as book:

        def follow() -> None:
            nonlocal seen
            for _ in book.watch(after=0):
                seen += 1

        watcher = threading.Thread(target=follow)
        watcher.start()
        start = last = time.monotonic()
        while (now := time.monotonic()) < start + seconds:
            n = result.cases = result.cases + 1
            book.record(
                "agent.spoke", id=f"e-{n}", run_id=f"run-{n % 50}", payload={"text": rng.randbytes(200).hex()}
            )
            if n % 7 == 0:
                book.event(f"e-{rng.randint(1, n)}")
            if n % 101 == 0:
                list(book.events(after=max(0, book.head - 50)))
            if n % 997 == 0:
                book.erase(f"e-{rng.randint(1, n)}")
            if now - last >= max(seconds / 200, 0.05):
                last = now
                if now - start > seconds * WARM_UP:
                    samples.append((resident(), descriptors()))
        if not book.verify().ok:
            result.problem("soak", "the chain does not verify")
        waits_until = time.monotonic() + 30
        while seen < result.cases and time.monotonic() < waits_until:
            time.sleep(0.01)
        book.close()
        watcher.join()
    third = max(1, len(samples) // 3)
    early = sorted(sample[0] for sample in samples[:third])[third // 2]
    late = sorted(sample[0] for sample in samples[-third:])[third // 2]
    result.figures = {
        "memory MB": round(late / 1024, 1),
        "growth %": round(100 * (late - early) / early, 2),
        "descriptors": samples[-1][1],
        "seen by the watcher": seen,
    }
    if late > early * 1.05:
        result.problem("soak", f"memory grew from {early} to {late} kB")
    if samples[-1][1] > samples[0][1] + 2:
        result.problem("soak", f"open descriptors grew from {samples[0][1]} to {samples[-1][1]}")
    return result
