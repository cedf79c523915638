"""Where the time goes while 8 processes take turns at one lock: each stage of an append, alone and in company."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import commonplace
from commonplace.engines.lock_file import FileLock
from commonplace.engines.sqlite import SqliteTx

from .measure import PAYLOAD, Figure, bare_fsync, folder, median

STAGES = {
    "lock handed over": ("let go", "got"),  # from the last holder's letting go, in whichever process
    "BEGIN, head": ("got", "begun"),
    "decide, seal, fold": ("begun", "decided"),
    "INSERT, COMMIT, fsync": ("decided", "applied"),
    "word of the commit": ("applied", "let go"),
}

Stamps = dict[str, float]


def stamped(stamps: Stamps, owner: Any, method: str, before: str, after: str) -> None:
    """Note the time before and after each call of a method."""
    plain: Callable[..., Any] = getattr(owner, method)

    def call(*args: Any) -> Any:
        if before:
            stamps[before] = time.perf_counter()
        answer = plain(*args)
        if after:
            stamps[after] = time.perf_counter()
        return answer

    setattr(owner, method, call)


def write(path: Path, count: int, pipe: Connection, barrier: Any) -> None:
    stamps: Stamps = {}
    stamped(stamps, FileLock, "enter", "", "got")
    stamped(stamps, SqliteTx, "__enter__", "", "begun")
    stamped(stamps, SqliteTx, "apply", "decided", "applied")
    stamped(stamps, FileLock, "leave", "let go", "")
    found = []
    with commonplace.open(path) as book:
        run = f"run-{multiprocessing.current_process().pid}"
        book.record("agent.spoke", payload=PAYLOAD, run_id=run)
        barrier.wait()
        for _ in range(count):
            book.record("agent.spoke", payload=PAYLOAD, run_id=run)
            found.append(dict(stamps))
    pipe.send(found)


def stages(processes: int, count: int) -> dict[str, float]:
    """The median of each stage in µs, and of a bare fsync beside it."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes)
    pipes = [context.Pipe(duplex=False) for _ in range(processes)]
    with folder() as where:
        commonplace.open(where / "book.db").close()
        workers = [
            context.Process(target=write, args=(where / "book.db", count, say, barrier)) for _, say in pipes
        ]
        for worker in workers:
            worker.start()
        turns = sorted((turn for back, _ in pipes for turn in back.recv()), key=lambda turn: turn["got"])
        for worker in workers:
            worker.join()
        found = {"a bare fsync": bare_fsync(where / "fsync")}
    for name, (start, end) in STAGES.items():
        if name == "lock handed over":
            gaps = [later["got"] - turn["let go"] for turn, later in itertools.pairwise(turns)]
        else:
            gaps = [turn[end] - turn[start] for turn in turns]
        found[name] = median(gaps) * 1e6
    found["whole turn"] = sum(found[name] for name in STAGES)
    return found


def holders(scale: float) -> Iterator[Figure]:
    count = max(50, int(1_000 * scale))
    alone, together = stages(1, count), stages(8, count)
    for name, ours in together.items():
        yield Figure(f"1 → 8 processes: {name}", alone[name], ours, "µs", ours / alone[name])
