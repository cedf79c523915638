"""Appends on SQLite: one writer, many threads, batches, many processes, and growth."""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import apsw

import commonplace
from commonplace import Book, Capability, View
from commonplace.engines.contract import WriteSet
from commonplace.testing.transactions import Apply, each_apply

from .measure import (
    PAYLOAD,
    Action,
    Figure,
    bare_fsync,
    by_turns,
    folder,
    median,
    memory_disk,
    microseconds,
    percentile,
)

BODY = json.dumps(PAYLOAD).encode()

COUNTS = Capability(
    "counts",
    views=[
        View(
            "counts",
            1,
            keys=lambda event: [(event.actor,)],
            fold=lambda _key, before, _event: (before or 0) + 1,
        )
    ],
)
"""A view that writes one row with every event; the ledger's own views write none for an ordinary one."""


def raw_sqlite(path: Path, busy: int = 0) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(busy)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS e (position INTEGER PRIMARY KEY, body BLOB)")
    return connection


def raw_append(connection: apsw.Connection) -> Action:
    def append(_: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO e (body) VALUES (?)", (BODY,))
        connection.execute("COMMIT")

    return append


def single(scale: float) -> Iterator[Figure]:
    places: dict[str, tuple[str | None, str, float]] = {"disk": (None, ">= 0.9", 0.9)}
    if memory_disk():
        places["tmpfs"] = (memory_disk(), "<= 3", 3.0)
    for name, (place, goal, bound) in places.items():
        with folder(place) as where, commonplace.open(where / "ours.db", capabilities=[COUNTS]) as book:
            raw = raw_sqlite(where / "raw.db")
            times = by_turns(
                {
                    "raw": raw_append(raw),
                    "ours": lambda _: book.record("agent.spoke", actor="ada", payload=PAYLOAD, run_id="r1"),
                },
                count=int(400 * scale),
            )
            raw.close()
        peer, ours = median(times["raw"]), median(times["ours"])
        if name == "disk":  # how fast, as a share of raw
            ratio = peer / ours
            yield Figure(
                f"append and one view row, 1 writer, {name}",
                peer,
                ours,
                "µs",
                ratio,
                f"{goal} × raw speed",
                ratio >= bound,
            )
        else:  # the library's own cost, as a multiple of raw
            ratio = ours / peer
            yield Figure(
                f"append and one view row, 1 writer, {name}",
                peer,
                ours,
                "µs",
                ratio,
                f"{goal} × raw cost",
                ratio <= bound,
            )


@contextmanager
def counted(book: Book) -> Iterator[list[int]]:
    """The sizes of the commits made meanwhile; each commit is one fsync."""
    sizes: list[int] = []

    def counting(apply: Apply, write: WriteSet) -> None:
        apply(write)
        sizes.append(len(write.records))

    with each_apply(book.ledger.store, counting):
        yield sizes


def in_threads(count: int, each: int, action: Action) -> list[float]:
    times: list[list[float]] = [[] for _ in range(count)]
    start = threading.Barrier(count)

    def run(n: int) -> None:
        start.wait()
        times[n] = microseconds(action, n * each, each)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for part in times for one in part]


def threads(scale: float) -> Iterator[Figure]:
    each = max(5, int(40 * scale))
    with folder() as where, commonplace.open(where / "ours.db") as book:
        raw, lock = raw_sqlite(where / "raw.db"), threading.Lock()
        append = raw_append(raw)

        def locked(i: int) -> None:
            with lock:
                append(i)

        peers, ours, commits = [], [], 0
        for _ in range(3):
            peers += in_threads(64, each, locked)
            with counted(book) as sizes:
                ours += in_threads(
                    64, each, lambda _: book.record("agent.spoke", payload=PAYLOAD, run_id="r1")
                )
            commits += len(sizes)
        raw.close()
    share = commits / len(ours)
    yield Figure("append, 64 threads: fsyncs an event", 1.0, share, "", share, "<= 0.1", share <= 0.1)
    peer, own = percentile(peers, 0.99), percentile(ours, 0.99)
    yield Figure(
        "append, 64 threads: p99", peer, own, "µs", own / peer, "<= 0.5 × lock per append", own / peer <= 0.5
    )


def batches(scale: float) -> Iterator[Figure]:
    rounds = max(5, int(40 * scale))
    for rows, goal in ((0, 0.3), (1, 0.2)):
        brought = [COUNTS] if rows else []
        with (
            folder(memory_disk()) as where,
            commonplace.open(where / "ours.db", capabilities=brought) as book,
        ):
            raw = raw_sqlite(where / "raw.db")

            def raw_batch(_: int, raw: apsw.Connection = raw) -> None:
                raw.execute("BEGIN IMMEDIATE")
                raw.executemany("INSERT INTO e (body) VALUES (?)", [(BODY,)] * 100)
                raw.execute("COMMIT")

            def our_batch(_: int, book: Book = book) -> None:
                book.record_all([{"kind": "agent.spoke", "payload": PAYLOAD}] * 100)

            times = by_turns({"raw": raw_batch, "ours": our_batch}, count=rounds, rounds=3)
            raw.close()
        peer, ours = median(times["raw"]) / 100, median(times["ours"]) / 100
        ratio = peer / ours
        yield Figure(
            f"batch of 100, {rows} view rows",
            peer,
            ours,
            "µs/event",
            ratio,
            f">= {goal} × raw speed",
            ratio >= goal,
        )


Writer = Callable[[str, int, threading.Barrier, Connection], None]
"""What a process does: open the place, wait at the barrier, append so many times, and send the single times."""


def raw_writer(path: str, count: int, barrier: threading.Barrier, out: Connection) -> None:
    connection = raw_sqlite(Path(path), busy=60_000)
    barrier.wait()
    out.send(microseconds(raw_append(connection), 0, count))
    connection.close()


def our_writer(url: str, count: int, barrier: threading.Barrier, out: Connection) -> None:
    with commonplace.open(url) as book:
        book.record("agent.spoke")  # opens the connections
        barrier.wait()
        out.send(microseconds(lambda _: book.record("agent.spoke", payload=PAYLOAD, run_id="r1"), 0, count))


def in_processes(
    writer: Writer, place: Path | str, count: int, processes: int = 8
) -> tuple[list[float], float]:
    """All single times, and the events a second."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(processes + 1)
    pipes = [spawn.Pipe(False) for _ in range(processes)]
    workers = [spawn.Process(target=writer, args=(str(place), count, barrier, out)) for _, out in pipes]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    times = [one for back, _ in pipes for one in back.recv()]
    seconds = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return times, processes * count / seconds


def processes(scale: float) -> Iterator[Figure]:
    count = max(20, int(250 * scale))
    with folder() as where:
        commonplace.open(where / "ours.db").close()
        raw_sqlite(where / "raw.db").close()
        fsync = bare_fsync(where / "fsync")
        peers, peer_rate = in_processes(raw_writer, where / "raw.db", count)
        ours, rate = in_processes(our_writer, where / "ours.db", count)
        fsync = (fsync + bare_fsync(where / "fsync")) / 2
        with commonplace.open(where / "ours.db") as book:
            assert book.verify().ok
            assert book.head == 8 * (count + 1)
    worst = percentile(ours, 0.99)
    yield Figure(
        "append, 8 processes: events a second",
        peer_rate,
        rate,
        "",
        rate / peer_rate,
        ">= 0.9 × raw with its busy handler",
        rate >= 0.9 * peer_rate,
    )
    yield Figure(
        "append, 8 processes: p99",
        fsync,
        worst,
        "µs",
        worst / fsync,
        "<= 40 × a bare fsync's p50",
        worst <= 40 * fsync,
        note=f"raw busy handler's p99: {percentile(peers, 0.99):,.0f} µs",
        more={"p50": median(ours)},
    )


def growth(scale: float) -> Iterator[Figure]:
    goal = max(2_000, int(1_000_000 * scale))
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:

        def append(_: int) -> None:
            book.record("agent.spoke", payload=PAYLOAD, run_id="r1")

        def read(i: int) -> None:
            next(book.events(after=(i * 7919) % (book.head - 1)))

        def cost() -> tuple[float, float]:
            return median(microseconds(append, 0, 800)), median(microseconds(read, 0, 300))

        def grow(to: int) -> None:
            while book.head < to:
                some = min(1000, to - book.head)
                book.record_all(
                    [{"kind": "agent.spoke", "payload": PAYLOAD, "run_id": f"r{book.head % 997}"}] * some
                )

        grow(1_000)
        cost()
        small, small_read = cost()
        grow(goal)
        large, large_read = cost()
    name = f"1k → {goal // 1000}k events"
    yield Figure(f"append, {name}", small, large, "µs", large / small, "<= 1.5", large / small <= 1.5)
    ratio = large_read / small_read
    yield Figure(f"read at a position, {name}", small_read, large_read, "µs", ratio, "<= 1.5", ratio <= 1.5)


def tailing(scale: float) -> Iterator[Figure]:
    count = max(2_000, int(20_000 * scale))
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db") as book:
        raw = sqlite3.connect(where / "raw.db", isolation_level=None)
        raw.execute("CREATE TABLE e (position INTEGER PRIMARY KEY, body BLOB)")
        raw.executemany("INSERT INTO e (body) VALUES (?)", [(BODY,)] * count)
        for _ in range(count // 1000):
            book.record_all([{"kind": "agent.spoke", "payload": PAYLOAD}] * 1000)
        began = time.perf_counter()
        assert sum(1 for _ in raw.execute("SELECT body FROM e ORDER BY position")) == count
        peer = (time.perf_counter() - began) / count * 1e6
        began = time.perf_counter()
        assert sum(1 for _ in book.events()) == count
        ours = (time.perf_counter() - began) / count * 1e6
        raw.close()

        arrived: list[float] = []
        ready, got = threading.Event(), threading.Event()

        def follow() -> None:
            ready.set()
            for _ in book.watch(after=count):
                arrived.append(time.perf_counter())
                got.set()

        follower = threading.Thread(target=follow)
        follower.start()
        ready.wait()
        delays = []
        for _ in range(100):
            got.clear()
            book.record("agent.spoke")
            sent = time.perf_counter()
            got.wait(5)
            delays.append((arrived[-1] - sent) * 1e6)
    follower.join()
    yield Figure(
        "read the ledger, checked",
        peer,
        ours,
        "µs/event",
        ours / peer,
        note="raw reads bytes and checks nothing",
    )
    yield Figure(
        "a watcher wakes after", 0, median(delays), "µs", 0, note=f"p99 {percentile(delays, 0.99):,.0f} µs"
    )
