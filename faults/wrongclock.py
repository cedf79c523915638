"""Processes whose clocks are days or years off: times never go back, and now is now for everybody."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

from commonplace import Book

from . import Result, fault
from .places import place

LOCAL = ("memory", "sqlite", "files")
"""The engines that have no clock but the caller's; servers have one of their own."""
HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)
OFF = (HOUR, -HOUR, 2 * DAY, -2 * DAY, 10 * YEAR, -10 * YEAR)


@contextmanager
def clock_off(by: timedelta) -> Iterator[None]:
    real, nanoseconds = time.time_ns, int(by / timedelta(microseconds=1)) * 1000
    with mock.patch("time.time_ns", side_effect=lambda: real() + nanoseconds):
        yield


def seen(book: Book, at: datetime) -> int:
    return len(list(book.events(at=at)))


@fault(31, "wrongclock", 1_000, 30)
def fault_31_wrongclock(count: int, seed: int, tmp: Path) -> Result:
    """`count` books into which processes with right clocks and one with a wrong one record in random order."""
    result = Result()
    for case in range(count):
        rng = random.Random(seed + case)
        kind, off = LOCAL[(seed + case) % len(LOCAL)], rng.choice(OFF)
        told = f"{kind}, off by {off} (seed {seed + case})"
        wrong = [rng.random() < 0.3 for _ in range(rng.randint(2, 14))]
        result.cases += 1
        with place(kind, tmp).open() as book:
            for n, is_wrong in enumerate(wrong, 1):
                with clock_off(off if is_wrong else timedelta()):
                    book.record("agent.spoke", actor="wrong" if is_wrong else "right", payload={"n": n})
                for by in (timedelta(), off):
                    with clock_off(by):
                        if seen(book, datetime.now(UTC) + by) != n:
                            result.problem(told, f"now is not now for a clock that is off by {by}")
            _judge(result, told, book, wrong, off)
    return result


def _judge(result: Result, told: str, book: Book, wrong: list[bool], off: timedelta) -> None:
    times = [event.created_us for event in book.events()]
    if times != sorted(times):
        result.problem(told, "times in the ledger go back")
    if not book.verify().ok:
        result.problem(told, "the book does not verify")
    if seen(book, datetime.now(UTC) - 5 * YEAR) and off > -DAY:
        result.problem(told, "something is shown as of a time at which there was nothing")
    status = book.admin.status()
    result.outcomes[
        "told as ahead" if status.clock else "told as slow" if status.slow_clock else "nothing"
    ] += 1
    if off > DAY and any(wrong):
        first = wrong.index(True) + 1
        if f"event {first}, recorded by 'wrong'" not in str(status.clock):
            result.problem(told, f"event {first} is ahead, and what is told is {status.clock!r}")
    elif status.clock:
        result.problem(told, f"an hour, or a clock that is behind, is told as one ahead: {status.clock}")
    if off < -DAY and any(wrong[1:]) and not wrong[0] and "recorded by 'wrong'" not in str(status.slow_clock):
        result.problem(told, f"a clock that is behind is not told: {status.slow_clock!r}")
