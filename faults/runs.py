"""Runs and their state: increments by many processes at once, and a runner that is killed anywhere."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book, Conflict
from commonplace.engines.contract import Store, Tx, WriteSet
from commonplace.state.policy import AgentPolicy, Persistence, Policy
from commonplace.testing.transactions import each_transaction
from commonplace.workflow.agents import AgentFailed, AgentTask
from commonplace.workflow.model import Agent, Dependency, Execution, FanOut, Loop, Node, Retry, Workflow
from commonplace.workflow.runner import Outcome, Runner

from . import Result, fault
from .places import DURABLE, SERVED, Place, Worker, place

PROCESSES = 8


def increment(say: Connection, home: Place, me: int, count: int) -> None:
    """Count one shared field up by compare-and-set, and one of our own beside it without any."""
    retries = 0
    with home.open() as book:
        shared, own = book.run(run_id="r").agent("shared"), book.run(run_id="r").agent(f"own-{me}")
        for n in range(count):
            own.write({"n": n + 1})
            while True:
                seen = book.run(run_id="r").state()
                try:
                    shared.write({"n": seen.get("shared", {}).get("n", 0) + 1}, if_position=seen.as_of)
                    break
                except Conflict:
                    retries += 1
    say.send(retries)


@fault(11, "increments", 1000, 20)
def fault_11(count: int, _seed: int, tmp: Path) -> Result:
    """8 processes, `count` increments each by compare-and-set on SQLite, a fifth of it on the servers."""
    result = Result()
    for kind in SERVED:
        home, each = place(kind, tmp), count if kind == "sqlite" else max(1, count // 5)
        with home.open() as book:
            run = book.run(run_id="r")
            workers = [Worker(increment, home, me, each) for me in range(PROCESSES)]
            said = [worker.rest()[-1:] for worker in workers]
            wrong = [f"a writer said {one}" for one in said if not one or not isinstance(one[0], int)]
            state = run.state()
            if state["shared"]["n"] != PROCESSES * each:
                wrong.append(f"{PROCESSES * each} increments came to {state['shared']['n']}")
            if any(state[f"own-{me}"]["n"] != each for me in range(PROCESSES)):
                wrong.append("a field that only one process wrote is not what it wrote")
            if not book.verify().ok:
                wrong.append("the chain does not hold")
            result.outcomes[f"{kind} increments"] = state["shared"]["n"]
            result.outcomes[f"{kind} conflicts"] = sum(
                one[0] for one in said if one and isinstance(one[0], int)
            )
        result.problem(kind, *wrong)
        result.cases += PROCESSES * each
        home.drop()
    return result


# a runner that is killed


def _agent(task: AgentTask) -> dict[str, Any]:
    """Every agent of the long workflow. It leaves word of each call in a file, to be counted afterwards."""
    called = f"{task.agent}[{task.inputs['index']}]" if task.inputs else task.agent
    with Path(os.environ["COMMONPLACE_FAULT_CALLS"]).open("a") as calls:
        calls.write(f"{called}\n")
    state = task.state
    if task.agent == "fan":
        return {"n": task.item * 2}
    if task.agent == "loop":
        return {"n": state.get("loop", {}).get("n", 0) + 1}
    if task.agent == "flaky" and task.attempt == 1:
        raise AgentFailed("busy", "rate_limit")
    if task.agent == "bad":
        raise ValueError("never works")
    before = [one.id for node in NODES if node.id == task.agent for one in node.depends_on]
    return {"saw": {id: state.get(id) for id in ("topic", *before)}, "items": [1, 2, 3]}


def _node(id: str, *after: str, **more: Any) -> Node:
    return Node(id, agent=id, depends_on=tuple(map(Dependency, after)), **more)


NODES = (
    _node("first"),
    _node("fan", "first", fan_out=FanOut("state.first.items")),
    _node("loop", "first", loop=Loop(max_iterations=4, condition="state.loop.n < 3")),
    _node("flaky", "first", retry=Retry(max_attempts=2)),
    _node("bad", "flaky", on_failure="continue"),
    _node("after_bad", "bad"),
    _node("last", "fan", "loop", "flaky"),
)


def run_all(book: Book, mode: Any) -> Outcome:
    """A workflow with everything in it, from wherever it is to its end."""
    workflow = Workflow(
        awp="1.0.0",
        name="long",
        nodes=NODES,
        agents={node.id: Agent(node.id) for node in NODES},
        policy=Policy(agents={node.id: AgentPolicy() for node in NODES}),
        execution=Execution(mode=mode),
        persistence=Persistence(enabled=False, interval="manual"),
    )
    run = book.run(workflow, "r", {"topic": "tea"})
    agents = {node.id: _agent for node in NODES}
    return Runner(book._session, workflow, run, agents, pause=lambda _seconds: None).execute()


@contextmanager
def killed_at(store: Store, moment: int | None) -> Iterator[None]:
    """Kill this process in the n-th transaction, n being half of `moment`: before it, or (odd) right after its commit.
    None: never."""
    count = [0]

    def begun(tx: Tx) -> None:
        count[0] += 1
        if moment is None or count[0] != moment // 2 + 1:
            return
        if moment % 2 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        apply = tx.apply

        def apply_and_die(write: WriteSet) -> None:
            apply(write)
            os.kill(os.getpid(), signal.SIGKILL)

        tx.apply = apply_and_die  # type: ignore[method-assign]

    with each_transaction(store, begun):
        yield


def run_and_die(say: Connection, home: Place, calls: str, mode: str, kill_at: int | None) -> None:
    """Run it, and die in a transaction."""
    os.environ["COMMONPLACE_FAULT_CALLS"] = calls
    with home.open() as book, killed_at(book.ledger.store, kill_at):
        say.send("open")
        run_all(book, mode)
        say.send("done")


def final(book: Book) -> dict[str, Any]:
    """What the run came to, without times; an error that a kill made happen twice counts once."""
    state = book.run(run_id="r").state()
    errors = sorted({(error["agent"], error["message"]) for error in state["_errors"]})
    steps = {name: step["status"] for name, step in book.run(run_id="r").steps().items()}
    kept = {key: value for key, value in state.items() if not key.startswith("_")}
    return {**kept, "errors": errors, "steps": steps, "status": state["_meta"]["status"]}


def go_on(home: Place, calls: Path, mode: str, undisturbed: dict[str, Any]) -> list[str]:
    """Resume after the kill; what is wrong with how it ends."""
    with home.open() as book:
        known = (
            book.run(run_id="r").steps()
            if any(info.id == "r" and info.status for info in book.runs.list())
            else {}
        )
        done = {name for name, step in known.items() if step["status"] == "finished"}
        calls.write_text("")
        if not known or book.run(run_id="r").status == "running":
            run_all(book, mode)
        again = sorted(done.intersection(calls.read_text().split()))
        wrong = [f"ran again after they had finished: {', '.join(again)}"] if again else []
        if final(book) != undisturbed:
            wrong.append(f"ended as {final(book)}")
        if not book.verify().ok:
            wrong.append("the chain does not hold")
    return wrong


@fault(34, "runner", 500, 12)
def fault_26(count: int, seed: int, tmp: Path) -> Result:
    """`count` kills of a runner on SQLite and a tenth on the others, at commits and at any moment."""
    result = Result()
    calls = tmp / "calls"
    os.environ["COMMONPLACE_FAULT_CALLS"] = str(calls)
    with commonplace.open("memory:") as calm:
        run_all(calm, "sequential")
        undisturbed = final(calm)
    for kind in DURABLE:
        for case in range(count if kind == "sqlite" else max(1, count // 10)):
            rng = random.Random(seed + case)
            home, mode = place(kind, tmp), rng.choice(("sequential", "parallel"))
            kill_at = rng.randrange(60) if rng.random() < 0.6 else None
            worker = Worker(run_and_die, home, str(calls), mode, kill_at)
            if kill_at is None and worker.listen(60.0) == "open":
                time.sleep(rng.uniform(0, 0.12))
                worker.process.kill()
            said = worker.rest()
            ended = "ended first" if "done" in said else "killed"
            told = [one for one in said if str(one).startswith("failed")]
            result.outcomes[f"{kind} {ended}"] += 1
            result.problem(f"{kind} (seed {seed + case})", *told, *go_on(home, calls, mode, undisturbed))
            result.cases += 1
            home.drop()
    return result
