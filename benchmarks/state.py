"""Run state beside LangGraph's checkpointer: writing, reading, growth, and forks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import commonplace

from .measure import PAYLOAD, Action, Figure, by_turns, folder, median, memory_disk, microseconds


def checkpointer(path: Path) -> tuple[Action, Action, Callable[[], None]]:
    """Put, get and close of a SqliteSaver as it comes, with one small checkpoint a step."""
    from langgraph.checkpoint.base import empty_checkpoint  # type: ignore[import-not-found,unused-ignore]
    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found,unused-ignore]

    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    thread: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    last = [thread]

    def put(i: int) -> None:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = f"{i:032d}"
        checkpoint["channel_values"] = {"ada": {**PAYLOAD, "i": i}}
        last[0] = saver.put(last[0], checkpoint, {"source": "loop", "step": i, "parents": {}}, {})

    return put, lambda _: saver.get_tuple(thread), connection.close


def beside_langgraph(scale: float) -> Iterator[Figure]:
    if find_spec("langgraph") is None:
        print("langgraph is not installed, so it is left out: pip install 'commonplace-memory[bench]'")
        return
    places: dict[str, str | None] = {"disk": None}
    if memory_disk():
        places["tmpfs"] = memory_disk()
    for name, place in places.items():
        with folder(place) as where, commonplace.open(where / "ours.db") as book:
            put, get, close = checkpointer(where / "theirs.db")
            run = book.run(run_id="r")
            me = run.agent("ada")
            actions: dict[str, Action] = {
                "put": put,
                "write": lambda i: me.write({"entry": {**PAYLOAD, "i": i}}),  # noqa: B023  used in this turn only
                "get": get,
                "read": lambda _: run.state(),  # noqa: B023
            }
            times = {
                name: median(one) for name, one in by_turns(actions, count=max(20, int(300 * scale))).items()
            }
            close()
        for what, theirs, ours, goal in (("write", "put", "write", 1.5), ("read", "get", "read", None)):
            ratio = times[theirs] / times[ours]
            yield Figure(
                f"state {what}, beside SqliteSaver.{theirs}, {name}",
                times[theirs],
                times[ours],
                "µs",
                ratio,
                "" if goal is None or name == "tmpfs" else f">= {goal} × its speed",
                None if goal is None or name == "tmpfs" else ratio >= goal,
            )


def growth(scale: float) -> Iterator[Figure]:
    """The same write and read in a run of 1,000 and of 100,000 events, and forks of a small and a large state."""
    most = max(2_000, int(100_000 * scale))
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:
        run = book.run(run_id="r")
        me = run.agent("ada")

        def write(i: int) -> None:
            me.write({f"field-{i % 20}": {**PAYLOAD, "i": i}})

        def read(_: int) -> None:
            run.state()

        def back(i: int) -> None:
            run.state(at=book.head - 500 + i)

        def cost() -> list[float]:
            return [median(microseconds(action, 0, 300)) for action in (write, read, back)]

        for i in range(1_000):
            write(i)
        small = cost()
        for i in range(1_000, most):
            write(i)
        large = cost()
    for what, before, after in zip(("write", "read", "read as of before"), small, large, strict=True):
        name = f"state {what}, 1k → {most // 1000}k events"
        yield Figure(name, before, after, "µs", after / before, "<= 1.5", after / before <= 1.5)
    yield from forks(scale)


def forks(scale: float) -> Iterator[Figure]:
    taken = {}
    with folder(memory_disk()) as where, commonplace.open(where / "ours.db", durability="process") as book:
        for fields in (10, 900):
            run = book.run(run_id=f"r{fields}")
            for n in range(fields):
                run.agent(f"agent-{n}").write({"entry": PAYLOAD})
            taken[fields] = median(microseconds(lambda _, run=run: run.fork(), 0, max(20, int(200 * scale))))  # type: ignore[misc]
    ratio = taken[900] / taken[10]
    yield Figure("fork, 10 → 900 agents' entries", taken[10], taken[900], "µs", ratio, "<= 1.5", ratio <= 1.5)
