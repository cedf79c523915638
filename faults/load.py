"""A server with 200 clients who write, do tasks and recall at once: no error, nothing lost, nothing done twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.load import Processes, behind, lost_or_doubled, prepare, serving

from . import Result, fault
from .places import place, url_of

ENGINES = ("sqlite", "postgres")
CLIENTS = 200
PROCESSES = 2
TASKS_A_SECOND = 400
"""More than any server gives away."""


@fault(8, "load", 60, 3)
def fault_08_load(count: int, seed: int, tmp: Path) -> Result:
    """`count` seconds of 200 clients on `commonplace serve`, each with a connection and a token of its own."""
    result = Result()
    for kind in ENGINES:
        home, beside = place(kind, tmp), tmp / f"server-{kind}"
        beside.mkdir()
        names = [f"client-{n}" for n in range(CLIENTS)]
        with home.open() as book:
            prepare(book, TASKS_A_SECOND * count, 200)
        with serving(url_of(home), beside) as server:
            with home.open() as book:
                clients = behind(book, server.url, "http", names, PROCESSES)
            with Processes(clients) as processes:
                outcome = processes.run(count, seed)
        with home.open() as book:
            result.problem(kind, *outcome.errors, *lost_or_doubled(book, outcome))
        result.cases += outcome.calls
        result.outcomes += Counter({f"{kind} {call}": len(times) for call, times in outcome.seconds.items()})
        result.outcomes[f"{kind} asked to wait"] += outcome.busy
        result.figures[f"{kind} longest ms"] = round(max(map(max, outcome.seconds.values())) * 1e3)
        home.drop()
    return result
