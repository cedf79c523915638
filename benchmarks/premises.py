"""How soon somebody hears that a premise changed, and what that costs the write: `python -m benchmarks.premises`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import commonplace
from commonplace import Book

TOLD, WRITTEN = 50, 200

WATCHER = """
import sys, time, commonplace
with commonplace.open(sys.argv[1]) as book:
    ada = book.as_actor("ada")
    for n in range(int(sys.argv[2])):
        ada.digest("", rules={"structured": {"fact_keys": [f"told.{n}"]}})
    head = book.head
    print("ready", flush=True)
    for _ in ada.watch(head, kinds=["premise.changed"], timeout=30):
        print(time.time(), flush=True)
"""


def heard(book: Book, url: str) -> list[float]:
    """Milliseconds from the beginning of the write that supersedes a fact until another process has the event."""
    ids = [str(book.remember(key=f"told.{n}", value=1).item_id) for n in range(TOLD)]
    command = [sys.executable, "-c", WATCHER, url, str(TOLD)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        watcher.stdout.readline()
        took = []
        for n, id in enumerate(ids):
            began = time.time()
            book.remember(key=f"told.{n}", value=2, supersedes=id)
            took.append((float(watcher.stdout.readline()) - began) * 1000)
        watcher.kill()
    return took


def written(book: Book) -> dict[bool, float]:
    """Milliseconds of a write that supersedes a fact which somebody relies on, and of one that nobody does, by turns;
    before each there was a digest."""
    took: dict[bool, list[float]] = {True: [], False: []}
    for n in range(WRITTEN):
        for relied in (True, False):
            key = f"written.{relied}.{n}"
            old = str(book.remember(key=key, value=1).item_id)
            shown = key if relied else "told.1"
            book.as_actor("ada").digest("", rules={"structured": {"fact_keys": [shown]}})
            began = time.perf_counter()
            book.remember(key=key, value=2, supersedes=old)
            took[relied].append((time.perf_counter() - began) * 1000)
    return {relied: median(one) for relied, one in took.items()}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "team.db")
        with commonplace.open(url) as book:
            soon = heard(book, url)
            print(
                f"told in another process after {median(soon):.1f} ms (longest of {TOLD}: {max(soon):.1f} ms)"
            )
            cost = written(book)
            times = f"{cost[True]:.2f} ms, elsewhere {cost[False]:.2f} ms, {cost[True] / cost[False]:.2f} x"
            print(f"the write where somebody relies on it: {times}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
