"""How things are timed: ours and the raw engine by turns, so that both meet the same noise."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PAYLOAD = {
    "text": "the quick brown fox jumps over the lazy dog " * 6,
    "turn": 3,
    "score": 0.5,
    "tags": ["a", "b"],
}
"""About 300 bytes, the size of an ordinary message."""

Action = Callable[[int], object]


@dataclass
class Figure:
    """One line of the table. `ratio` says how ours compares with the peer; `goal` what it should reach."""

    work: str
    peer: float
    ours: float
    unit: str
    ratio: float
    goal: str = ""
    met: bool | None = None
    note: str = ""
    more: dict[str, float] = field(default_factory=dict)


def microseconds(action: Action, start: int, count: int) -> list[float]:
    taken = []
    for i in range(start, start + count):
        began = time.perf_counter()
        action(i)
        taken.append((time.perf_counter() - began) * 1e6)
    return taken


def by_turns(actions: dict[str, Action], count: int, rounds: int = 5) -> dict[str, list[float]]:
    """Time each action `count` times a round, the actions taking turns; all single times."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for name, action in actions.items():
        microseconds(action, 0, min(50, count))  # warm caches and prepared statements
        del name
    for turn in range(rounds):
        for name, action in actions.items():
            times[name] += microseconds(action, 1_000 + turn * count, count)
    return times


def median(times: list[float]) -> float:
    return statistics.median(times)


def percentile(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def folder(place: str | None = None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="commonplace-bench-", dir=place) as made:
        yield Path(made)


def memory_disk() -> str | None:
    """A tmpfs to measure the library's own cost on, without a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def bare_fsync(path: Path, count: int = 300) -> float:
    """The median of writing 400 bytes and syncing them, in microseconds: what durability costs at least."""
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)

    def one(_: int) -> None:
        os.write(fd, b"x" * 400)
        os.fdatasync(fd)

    try:
        return median(microseconds(one, 0, count))
    finally:
        os.close(fd)
