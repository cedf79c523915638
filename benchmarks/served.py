"""A book behind `commonplace serve` with 200 clients who write, do tasks and recall, beside eight processes that open
the same kind of book themselves, on SQLite and on PostgreSQL.

The eight processes run for half of their time before the clients of the server and for half of it after them, so that
both meet the same noise. Three kinds of clients use the server one after the other: 200 connections that send plain
HTTP, 40 threads with our own Python client, and eight connections, whose waiting can be compared with that of the eight
processes. When all is done every acknowledged write is looked for in the ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import commonplace
from commonplace.testing import postgres_server

from .load import (
    CALLS,
    Outcome,
    Processes,
    behind,
    beside,
    busy_seconds,
    cpu_of,
    lost_or_doubled,
    megabytes,
    prepare,
    serving,
)
from .measure import Figure, folder, percentile

SECONDS = 60.0
MOST_TASKS_A_SECOND = 400
ITEMS = 1_000
OPENERS, LOAD_PROCESSES = 8, 2
KINDS = {
    "200 clients over HTTP": ("http", 200, 1.0),
    "40 Python clients": ("python", 40, 0.5),
    "8 clients over HTTP": ("http", 8, 0.5),
}
"""Clients of the server: how they speak to it, how many they are, and for which share of the time."""


class Part(NamedTuple):
    """What some clients reached, and what was used meanwhile, in CPU seconds."""

    outcome: Outcome
    server: float = 0.0
    database: float = 0.0
    machine: float = 0.0
    memory: float = 0.0

    def plus(self, other: Part) -> Part:
        """Both together, one after the other."""
        self.outcome.add(other.outcome)
        return Part(
            self.outcome, self.server + other.server, self.database + other.database,
            self.machine + other.machine, max(self.memory, other.memory),
        )  # fmt: skip

    @property
    def calls(self) -> float:
        """A second."""
        return self.outcome.calls / self.outcome.lasted

    @property
    def writes(self) -> float:
        """A second."""
        return self.outcome.writes / self.outcome.lasted

    @property
    def cost(self) -> float:
        """The CPU milliseconds of a call where the book is open."""
        return (self.server or self.outcome.cpu) / self.outcome.calls * 1e3

    def waited(self, call: str, share: float) -> float:
        """In milliseconds."""
        return percentile(self.outcome.seconds[call], share) * 1e3

    def shown(self) -> str:
        """How the processors were used, in processors."""
        known = self.outcome.cpu + self.server + self.database
        parts = {"server": self.server, "clients": self.outcome.cpu, "PostgreSQL": self.database}
        used = [f"{name} {cpu / self.outcome.lasted:.2f}" for name, cpu in parts.items() if cpu]
        others = max(0.0, self.machine - known) / self.outcome.lasted
        return f"processors: {', '.join(used)}, others {others:.2f} of {os.cpu_count()}"


def sqlite(scale: float) -> Iterator[Figure]:
    with folder() as where:
        yield from on("SQLite", lambda name: str(where / f"{name}.db"), where, list, SECONDS * scale)


def postgres(scale: float) -> Iterator[Figure]:
    with folder() as where, postgres_server() as server:
        mark = "&" if "?" in server.url else "?"

        def processes() -> list[int]:
            assert server.data_dir is not None
            postmaster = int((server.data_dir / "postmaster.pid").read_text().split("\n", 1)[0])
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
            return [postmaster, *map(int, children)]

        yield from on(
            "PostgreSQL", lambda name: f"{server.url}{mark}book={name}", where, processes, SECONDS * scale
        )


def both(scale: float) -> Iterator[Figure]:
    yield from sqlite(scale)
    yield from postgres(scale)


def on(
    engine: str,
    url: Callable[[str], str],
    where: Path,
    database: Callable[[], Sequence[int]],
    seconds: float,
) -> Iterator[Figure]:
    tasks = max(500, int(MOST_TASKS_A_SECOND * seconds))
    for name in ("opened", "served"):
        with commonplace.open(url(name)) as book:
            prepare(book, 2 * tasks, ITEMS)
    openers = [f"opener-{n}" for n in range(OPENERS)]
    with Processes(beside(url("opened"), openers)) as direct:
        before = part(direct, seconds / 2, 1, [], database)
    served: dict[str, Part] = {}
    with serving(url("served"), where) as server:
        for kind, (way, count, share) in KINDS.items():
            names = [f"{way}-{count}-{n}" for n in range(count)]
            with commonplace.open(url("served")) as book:
                clients = behind(book, server.url, way, names, LOAD_PROCESSES)
            with Processes(clients) as processes:
                served[kind] = part(processes, seconds * share, 2, [server.pid], database)
    with Processes(beside(url("opened"), openers)) as direct:
        opened = before.plus(part(direct, seconds / 2, 3, [], database))
    check(url("opened"), opened.outcome)
    whole = Outcome()
    for each in served.values():
        whole.add(each.outcome)
    check(url("served"), whole)
    yield from figures(engine, opened, served)


def part(
    processes: Processes,
    seconds: float,
    seed: int,
    server: Sequence[int],
    database: Callable[[], Sequence[int]],
) -> Part:
    used = cpu_of(server), cpu_of(database(), ended=True), busy_seconds()
    outcome = processes.run(seconds, seed)
    after = cpu_of(server), cpu_of(database(), ended=True), busy_seconds()
    memory = sum(megabytes(pid, "VmRSS") for pid in (server or processes.pids))
    on_server, on_database, on_machine = (later - earlier for earlier, later in zip(used, after, strict=True))
    return Part(outcome, on_server, on_database, on_machine, memory)


def check(url: str, outcome: Outcome) -> None:
    with commonplace.open(url) as book:
        wrong = outcome.errors + lost_or_doubled(book, outcome)
    assert wrong == [], "\n".join(wrong[:20])


def figures(engine: str, opened: Part, served: dict[str, Part]) -> Iterator[Figure]:
    for kind, ours in served.items():
        where = f"{kind}, {engine}"
        yield Figure(f"calls a second, {where}", opened.calls, ours.calls, "", ours.calls / opened.calls)
        yield Figure(
            f"durable writes a second, {where}", opened.writes, ours.writes, "", ours.writes / opened.writes
        )
        count, busy = ours.outcome.calls, ours.outcome.busy
        yield Figure(
            f"errors, {where}", 0, 0, "", 0, "0", True,
            note=f"of {count:,} calls, asked to wait {busy:,} times; every write is in the ledger once",
        )  # fmt: skip
        yield Figure(
            f"CPU a call, {where}", opened.cost, ours.cost, "ms", ours.cost / opened.cost, note=ours.shown()
        )
        yield Figure(
            f"memory, {where}", opened.memory, ours.memory, "MB", ours.memory / opened.memory,
            note=f"eight processes beside one server; the eight's {opened.shown()}",
        )  # fmt: skip
        for call in CALLS:
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                peer, own = opened.waited(call, share), ours.waited(call, share)
                yield Figure(f"{call}, {name}, {where}", peer, own, "ms", own / peer)
