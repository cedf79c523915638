"""Working memory: claims beside raw tables and job queues, claims after a million tasks, and opening a large work.

`python -m benchmarks.claims [--quick] [PART …]` prints a table. The parts are sqlite, postgres, growth (`--tasks N`,
`--minutes M`) and opening. What is measured is the same for all: a claim that is durable when it is answered; a claim
with its completion, two durable steps; task after task, as a worker does them, where each is completed before the next
one is there, in one durable step if a contender has that; and ten tasks claimed and completed in as few steps as it has
for it: two here and by hand, twenty where there is no way to take many. There is one worker, or there are eight:
threads of one process, or processes. Each holds one connection to each contender (threads share one Book, as they
would), and contenders take turns, so that all meet the same noise.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any

import apsw
import psycopg
from rich.console import Console

import commonplace
from commonplace import Book
from commonplace.engines.contract import Tx
from commonplace.testing import postgres_server, valkey_server
from commonplace.testing.transactions import each_transaction
from commonplace.work.verbs import Work

from .__main__ import show
from .measure import Figure, folder, median, memory_disk, microseconds

MODES = ("claim", "claim and complete", "task after task", "ten at a time")
CLAIM, COMPLETE, AFTER, MANY = MODES
TEN = 10
LEASE = 3_600.0
TITLE = "look at the page, and say what is wrong with it"
ROUNDS = 5

Claim = Callable[[str], Any]
Complete = Callable[[Any], object]


class Contender:
    """One connection: `claim` takes the next task of a queue, `complete` finishes what a claim answered, `next` does
    that and takes another one, `ten` claims and completes ten tasks at once."""

    def __init__(
        self,
        claim: Claim,
        complete: Complete,
        close: Callable[[], object],
        ten: Callable[[str], object] | None = None,
        next: Callable[[Any, str], Any] | None = None,
    ) -> None:
        self.claim, self.complete, self.close = claim, complete, close
        self.ten, self.next = ten or self._one_by_one, next or self._another

    def _one_by_one(self, queue: str) -> None:
        for _ in range(TEN):
            self.complete(self.claim(queue))

    def _another(self, claimed: Any, queue: str) -> Any:
        self.complete(claimed)
        return self.claim(queue)


# ours


def fill_ours(url: str, queues: tuple[str, ...], count: int) -> None:
    with commonplace.open(url, name="bench") as book:
        for queue in queues:
            work = book.work(name=queue, id=queue)
            for begin in range(0, count, 500):
                work.add_tasks([{"title": f"{TITLE} {n}"} for n in range(begin, min(begin + 500, count))])


def open_ours(url: str) -> Contender:
    book = commonplace.open(url, name="bench")
    works = {queue: book.work(id=queue) for queue in MODES}
    agent = f"agent-{os.getpid()}"

    def claim(queue: str) -> Any:
        return works[queue].claim(agent, lease=LEASE)

    def ten(queue: str) -> None:
        done = works[queue].complete_many(works[queue].claim_many(TEN, agent, lease=LEASE), "done")
        assert len(done) == TEN

    return Contender(
        claim, lambda claim: claim.complete("done"), book.close, ten, lambda claim, _: claim.next("done")
    )


# SQLite by hand


RAW_TABLE = """
CREATE TABLE task (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, title TEXT NOT NULL, priority INTEGER NOT NULL,
    status TEXT NOT NULL, holder TEXT, until REAL, result TEXT);
CREATE INDEX task_ready ON task (queue, priority DESC, id) WHERE status = 'ready';
"""
RAW_CLAIM = """
UPDATE task SET status = 'held', holder = ?, until = ?
WHERE id = (SELECT id FROM task WHERE queue = ? AND status = 'ready' ORDER BY priority DESC, id LIMIT 1)
RETURNING id, title
"""
RAW_COMPLETE = "UPDATE task SET status = 'done', result = 'done' WHERE id = ? AND holder = ? RETURNING id"
RAW_CLAIM_TEN = RAW_CLAIM.replace("id = (", "id IN (").replace("LIMIT 1", f"LIMIT {TEN}")
RAW_COMPLETE_TEN = RAW_COMPLETE.replace("id = ?", f"id IN ({', '.join('?' * TEN)})")


def fill_raw(url: str, queues: tuple[str, ...], count: int) -> None:
    connection = apsw.Connection(url)
    connection.pragma("journal_mode", "wal")
    connection.execute(RAW_TABLE)
    tasks = [(queue, f"{TITLE} {n}") for queue in queues for n in range(count)]
    with connection:
        connection.executemany(
            "INSERT INTO task (queue, title, priority, status) VALUES (?, ?, 0, 'ready')", tasks
        )
    connection.close()


def open_raw(url: str) -> Contender:
    connection = apsw.Connection(url)
    connection.set_busy_timeout(60_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    holder = f"agent-{os.getpid()}"

    def claim(queue: str) -> Any:
        return connection.execute(RAW_CLAIM, (holder, time.time() + LEASE, queue)).fetchall()[0][0]

    def complete(id: Any) -> None:
        assert connection.execute(RAW_COMPLETE, (id, holder)).fetchall()

    def ten(queue: str) -> None:
        taken = connection.execute(RAW_CLAIM_TEN, (holder, time.time() + LEASE, queue)).fetchall()
        ids = [id for id, _ in taken]
        assert len(connection.execute(RAW_COMPLETE_TEN, (*ids, holder)).fetchall()) == TEN

    return Contender(claim, complete, connection.close, ten)


# huey: whoever takes a task from its queue removes it, and stores what came of it


def _huey(url: str, queue: str) -> Any:
    from huey import SqliteHuey

    huey = SqliteHuey(queue, filename=url, fsync=True, timeout=60)

    def look(_title: str) -> str:
        return "done"

    look.__module__ = __package__  # tasks are known by it, and a worker's main module has another name
    return huey, huey.task()(look)


def fill_huey(url: str, queues: tuple[str, ...], count: int) -> None:
    for queue in queues:
        huey, look = _huey(url, queue)
        connection = huey.storage.conn
        connection.execute("pragma synchronous=0")  # only while it is filled
        for n in range(count):
            look(f"{TITLE} {n}")
        huey.storage.close()


def open_huey(url: str) -> Contender:
    opened = {queue: _huey(url, queue)[0] for queue in MODES}

    def claim(queue: str) -> Any:
        task = opened[queue].dequeue()
        assert task is not None
        return queue, task

    def complete(claimed: Any) -> None:
        queue, task = claimed
        assert opened[queue].execute(task) == "done"

    def close() -> None:
        for huey in opened.values():
            huey.storage.close()

    return Contender(claim, complete, close)


# PostgreSQL by hand


PG_TABLE = """
CREATE TABLE raw_task (id bigserial PRIMARY KEY, queue text NOT NULL, title text NOT NULL,
    priority integer NOT NULL DEFAULT 0, status text NOT NULL DEFAULT 'ready', holder text, until timestamptz,
    result text);
CREATE INDEX raw_task_ready ON raw_task (queue, priority DESC, id) WHERE status = 'ready';
"""
PG_CLAIM = """
UPDATE raw_task SET status = 'held', holder = %s, until = now() + interval '1 hour'
WHERE id = (SELECT id FROM raw_task WHERE queue = %s AND status = 'ready' ORDER BY priority DESC, id LIMIT 1
    FOR UPDATE SKIP LOCKED)
RETURNING id, title
"""
PG_COMPLETE = (
    "UPDATE raw_task SET status = 'done', result = 'done' WHERE id = %s AND holder = %s RETURNING id"
)


PG_CLAIM_TEN = PG_CLAIM.replace("id = (", "id IN (").replace("LIMIT 1", f"LIMIT {TEN}")
PG_COMPLETE_TEN = PG_COMPLETE.replace("id = %s", "id = ANY(%s)")


def fill_pg(url: str, queues: tuple[str, ...], count: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(PG_TABLE)
        with connection.cursor().copy("COPY raw_task (queue, title) FROM STDIN") as copy:
            for queue in queues:
                for n in range(count):
                    copy.write_row((queue, f"{TITLE} {n}"))


def open_pg(url: str) -> Contender:
    connection = psycopg.connect(url, autocommit=True)
    holder = f"agent-{os.getpid()}"

    def claim(queue: str) -> Any:
        found = connection.execute(PG_CLAIM, (holder, queue)).fetchone()
        assert found is not None
        return found[0]

    def complete(id: Any) -> None:
        assert connection.execute(PG_COMPLETE, (id, holder)).fetchone()

    def ten(queue: str) -> None:
        taken = connection.execute(PG_CLAIM_TEN, (holder, queue)).fetchall()
        ids = [id for id, _ in taken]
        assert len(connection.execute(PG_COMPLETE_TEN, (ids, holder)).fetchall()) == TEN

    return Contender(claim, complete, connection.close, ten)


# procrastinate: its own manager, as its worker calls it


def _procrastinate(url: str) -> Any:
    import procrastinate

    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=1))


def fill_procrastinate(url: str, queues: tuple[str, ...], count: int) -> None:
    app = _procrastinate(url)

    async def fill() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            for queue in queues:
                task = app.configure_task("look", queue=queue, allow_unknown=True)
                for begin in range(0, count, 500):
                    some = range(begin, min(begin + 500, count))
                    await task.batch_defer_async(*({"title": f"{TITLE} {n}"} for n in some))

    asyncio.run(fill())


def open_procrastinate(url: str) -> Contender:
    from procrastinate.jobs import Status

    app, loop = _procrastinate(url), asyncio.new_event_loop()
    loop.run_until_complete(app.open_async())
    manager = app.job_manager
    worker = loop.run_until_complete(manager.register_worker())

    def claim(queue: str) -> Any:
        job = loop.run_until_complete(manager.fetch_job(queues=[queue], worker_id=worker))
        assert job is not None
        return job.id

    def complete(id: Any) -> None:
        finished = manager.finish_job_by_id_async(job_id=id, status=Status.SUCCEEDED, delete_job=False)
        loop.run_until_complete(finished)

    def close() -> None:
        loop.run_until_complete(app.close_async())
        loop.close()

    return Contender(claim, complete, close)


FILL = {
    "ours": fill_ours,
    "raw": fill_raw,
    "huey": fill_huey,
    "raw table": fill_pg,
    "procrastinate": fill_procrastinate,
}
OPEN = {
    "ours": open_ours,
    "raw": open_raw,
    "huey": open_huey,
    "raw table": open_pg,
    "procrastinate": open_procrastinate,
}


# turns


def _worker(places: dict[str, str], pipe: Connection, threads: int) -> None:
    """Do as the parent says: (who, mode, count for each thread), and say when it is done. None ends it."""
    opened = {
        name: [OPEN[name](url)] * threads if name == "ours" else [OPEN[name](url) for _ in range(threads)]
        for name, url in places.items()
    }

    def work(one: Contender, mode: str, count: int) -> None:
        if mode == MANY:
            for _ in range(count // TEN):
                one.ten(mode)
        elif mode == AFTER:
            claimed = one.claim(mode)
            for _ in range(count - 1):
                claimed = one.next(claimed, mode)
            one.complete(claimed)
        else:
            for _ in range(count):
                claimed = one.claim(mode)
                if mode == COMPLETE:
                    one.complete(claimed)

    with ThreadPoolExecutor(threads) as pool:
        pipe.send("ready")
        while (asked := pipe.recv()) is not None:
            name, mode, count = asked
            for done in [pool.submit(work, one, mode, count) for one in opened[name]]:
                done.result()
            pipe.send("done")
    for each in opened.values():
        for one in dict.fromkeys(each):
            one.close()


@contextmanager
def pool(places: dict[str, str], processes: int, threads: int) -> Iterator[list[Connection]]:
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe() for _ in range(processes)]
    workers = [spawn.Process(target=_worker, args=(places, there, threads)) for _, there in pipes]
    for worker in workers:
        worker.start()
    for _, there in pipes:
        there.close()  # so that a worker that dies is noticed
    ours = [here for here, _ in pipes]
    for pipe in ours:
        assert pipe.recv() == "ready"
    try:
        yield ours
    finally:
        for pipe in ours:
            pipe.send(None)
        for worker in workers:
            worker.join()


def turn(pipes: list[Connection], name: str, mode: str, count: int) -> float:
    """How many seconds all of them took together."""
    began = time.perf_counter()
    for pipe in pipes:
        pipe.send((name, mode, count))
    for pipe in pipes:
        assert pipe.recv() == "done"
    return time.perf_counter() - began


def by_turns(places: dict[str, str], processes: int, threads: int, each: int) -> dict[tuple[str, str], float]:
    """The median rate of each contender in each mode, in tasks a second."""
    rates: dict[tuple[str, str], list[float]] = {(name, mode): [] for name in places for mode in MODES}
    with pool(places, processes, threads) as pipes:
        for name, mode in rates:
            turn(pipes, name, mode, max(TEN, each // 10))  # warm caches and prepared statements
        for _ in range(ROUNDS):
            for name, mode in rates:
                rates[name, mode].append(processes * threads * each / turn(pipes, name, mode, each))
    return {which: median(found) for which, found in rates.items()}


def needed(workers: int, each: int) -> int:
    return workers * (ROUNDS * each + max(TEN, each // 10))


def compared(places: dict[str, str], engine: str, scale: float) -> Iterator[Figure]:
    """All contenders with one worker and with eight."""
    one, eight = max(20, int(300 * scale)), max(10, int(60 * scale))
    plan = {"1 worker": (1, 1, one), "8 threads": (1, 8, eight), "8 processes": (8, 1, eight)}
    for name, url in places.items():
        FILL[name](url, MODES, sum(needed(many * threads, each) for many, threads, each in plan.values()))
    for many, (processes, threads, each) in plan.items():
        rates = by_turns(places, processes, threads, each)
        for mode in MODES:
            ours = rates["ours", mode]
            for name in places:
                if name == "ours":
                    continue
                theirs, least = rates[name, mode], 0.4 if name.startswith("raw") else 1.0
                yield Figure(
                    f"{mode}, {many}, {engine}, beside {name}", theirs, ours, "tasks/s", ours / theirs,
                    f">= {least:g} × its speed", ours / theirs >= least,
                )  # fmt: skip


def _present(peer: str) -> bool:
    if find_spec(peer) is None:
        print(f"{peer} is not installed, so it is left out: pip install 'commonplace-memory[bench]'")
        return False
    return True


def on_sqlite(scale: float) -> Iterator[Figure]:
    with folder() as where:
        names = ["ours", "raw", *(["huey"] if _present("huey") else [])]
        yield from compared({name: str(where / f"{name}.db") for name in names}, "SQLite, disk", scale)


def on_postgres(scale: float) -> Iterator[Figure]:
    with postgres_server() as server:
        names = ["ours", "raw table", *(["procrastinate"] if _present("procrastinate") else [])]
        yield from compared(dict.fromkeys(names, server.url), "PostgreSQL", scale)


# growth


def finish(work: Work, upto: int, until: float = float("inf")) -> int:
    """Add, claim and complete tasks until so many of a work are completed, or until then. Answers how many are."""
    done, began = work.counts().get("completed", 0), time.perf_counter()
    while done < upto and time.perf_counter() < until:
        some = min(1_000, upto - done)
        work.add_tasks([{"title": f"{TITLE} {n}"} for n in range(done, done + some)])
        work.complete_many(work.claim_many(some, "ada", lease=LEASE), "done")
        done += some
        if done % 50_000 == 0:
            print(f"{done:,} finished after {time.perf_counter() - began:,.0f} s", flush=True)
    return done


def growth(scale: float, most: int = 1_000_000, minutes: float = 60) -> Iterator[Figure]:
    """A claim, and a claim with its completion, in a work in which 1,000 tasks were finished and in one in which many
    were, each in a book of its own, by turns. Growing ends after so many minutes, wherever it is."""
    goal = max(2_000, int(most * scale))
    with (
        folder(memory_disk()) as where,
        commonplace.open(where / "small.db", durability="process") as few,
        commonplace.open(where / "large.db", durability="process") as many,
    ):
        limits = {"max_tasks": 2 * goal}
        works = {"small": few.work(name="small"), "large": many.work(name="large", limits=limits)}
        finish(works["small"], 1_000)
        done = finish(works["large"], goal, time.perf_counter() + minutes * 60)
        times: dict[tuple[str, str], list[float]] = {(name, mode): [] for name in works for mode in MODES[:2]}
        for turn in range(11):
            for name, work in works.items():
                work.add_tasks([{"title": f"{TITLE} {n}"} for n in range(100)])
                for _ in range(100):
                    start = time.perf_counter()
                    claim = work.claim("ada")
                    middle = time.perf_counter()
                    assert claim is not None
                    claim.complete("done")
                    if turn:  # the first is for the caches
                        times[name, MODES[0]].append((middle - start) * 1e6)
                        times[name, MODES[1]].append((time.perf_counter() - start) * 1e6)
        size = sum(one.stat().st_size for one in where.glob("large.db*")) / done
    for mode in MODES[:2]:
        before, after = median(times["small", mode]), median(times["large", mode])
        yield Figure(
            f"{mode}, 1,000 → {done:,} finished tasks", before, after, "µs", after / before, "<= 1.5",
            after / before <= 1.5, note=f"{size:,.0f} bytes a task, all events and views",
        )  # fmt: skip


# opening


FRESH = """
import sys, time
began = time.perf_counter()
import commonplace
imported = time.perf_counter()
with commonplace.open(sys.argv[1], name="bench") as book:
    work = book.work(id="large")
    ready, counts = work.ready(limit=10), work.counts()
    opened = time.perf_counter()
    assert len(ready) == 10 and counts["tasks"] == int(sys.argv[2]), counts
print(imported - began, opened - imported, time.process_time())
"""


@contextmanager
def weeks_ago(book: Book, weeks: float, steps: int) -> Iterator[None]:
    """Meanwhile the engine's clock begins so long ago, and comes back to now with so many transactions."""
    left = [steps]

    def earlier(tx: Tx) -> None:
        back = timedelta(weeks=weeks) * max(0, left[0]) / steps
        left[0] -= 1
        tx.now -= int(back.total_seconds() * 1e6)

    with each_transaction(book.ledger.store, earlier):
        yield


def build_large(book: Book, tasks: int) -> list[str]:
    """A work of so many tasks, a tenth of them finished, with three weeks of decisions, discoveries and artifacts.
    Answers the ids of some tasks that are ready and that much was found about."""
    work = book.work(
        name="large", id="large", goal="Bring the whole site up to date.", constraints=["Keep the tone."]
    )
    about = list[str]()
    with weeks_ago(book, 3, tasks // 500 + tasks // 2_500 + 3 * (tasks // 200)):
        for begin in range(0, tasks, 500):
            added = work.add_tasks([{"title": f"{TITLE} {n}"} for n in range(begin, begin + 500)], by="lead")
            about.append(added[-1].id)
            if begin % 5_000 == 0:
                work.complete_many(work.claim_many(500, "ada", lease=LEASE), "done")
        for n in range(tasks // 200):
            task = about[n % len(about)]
            work.decide(
                question=f"which shape for part {n}", choice=f"the shape {n % 7}", rationale="it is plain",
                affects=[task], by="lead",
            )  # fmt: skip
            work.discover(f"part {n} is rendered twice on a slow line", affects=[task], by="ada")
            work.artifact(f"out/part-{n}.html", description=f"part {n}", task=task, content=f"{n}", by="ada")
    return about


def opened(url: str, tasks: int, engine: str) -> Iterator[Figure]:
    with commonplace.open(url, name="bench") as book:
        began = time.perf_counter()
        about = build_large(book, tasks)
        built, events = time.perf_counter() - began, book.head
        work = book.work(id="large")
        asked = [about[-1 - n % (len(about) // 2)] for n in range(200)]
        contexts = microseconds(lambda n: work.context_for(asked[n]), 0, len(asked))
    times = []
    for _ in range(5):
        command = [sys.executable, "-c", FRESH, url, str(tasks)]
        times.append(
            [float(one) for one in subprocess.run(command, check=True, capture_output=True).stdout.split()]
        )
    imported, ours, busy = (median([one[n] for one in times]) for n in range(3))
    note = (
        f"{events:,} events, built in {built:,.0f} s; import commonplace {imported * 1e3:,.0f} ms before it; "
    )
    note += f"the whole process {busy * 1e3:,.0f} ms of CPU"
    yield Figure(
        f"open a work of {tasks:,} tasks, {engine}", 0, ours * 1e3, "ms", 0, "<= 1 s", ours <= 1, note=note
    )
    p50 = median(contexts) / 1e3
    yield Figure(f"context_for in it, p50, {engine}", 0, p50, "ms", 0, "<= 50 ms", p50 <= 50)


@contextmanager
def _file() -> Iterator[str]:
    with folder() as where:
        yield str(where / "large.db")


@contextmanager
def _server(kind: Callable[[], AbstractContextManager[Any]]) -> Iterator[str]:
    with kind() as server:
        yield server.url


def opening(scale: float, only: str | None = None) -> Iterator[Figure]:
    tasks = max(5_000, int(100_000 * scale))
    places: dict[str, Callable[[], AbstractContextManager[str]]] = {
        "SQLite": _file,
        "PostgreSQL": lambda: _server(postgres_server),
        "Valkey": lambda: _server(valkey_server),
    }
    for engine, place in places.items():
        if only not in (None, engine):
            continue
        with place() as url:
            yield from opened(url, tasks, engine)


def main() -> int:
    parts: dict[str, Callable[..., Iterator[Figure]]] = {
        "sqlite": on_sqlite,
        "postgres": on_postgres,
        "growth": growth,
        "opening": opening,
    }
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which to run; all by default")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, for a first look")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="how far growth goes")
    parser.add_argument("--minutes", type=float, default=60, help="how long it may take to get there")
    parser.add_argument("--engine", help="open on this one only: SQLite, PostgreSQL or Valkey")
    asked = parser.parse_args()
    more = {"growth": {"most": asked.tasks, "minutes": asked.minutes}, "opening": {"only": asked.engine}}
    figures, scale = list[Figure](), 0.1 if asked.quick else 1.0
    for name in asked.parts or parts:
        before = os.getloadavg()[0]
        figures += parts[name](scale, **more.get(name, {}))
        Console(stderr=True).print(
            f"{name}: the machine's load was {before:.1f} before, {os.getloadavg()[0]:.1f} after"
        )
    show(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
