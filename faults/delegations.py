"""A delegation that is killed anywhere, and delegations that go on side by side."""

from __future__ import annotations

import os
import random
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book
from commonplace.learn.delegations import delegation_of, digests, posts
from commonplace.state.policy import Persistence, Policy
from commonplace.workflow.briefing import ManagerTurn, WorkerTask
from commonplace.workflow.model import Delegation, DelegationBudget, Workflow
from commonplace.workflow.runner import Outcome, run_workflow

from . import Result, fault
from .places import DURABLE, Place, Worker, place
from .runs import killed_at

RUN = "d"


def manage(turn: ManagerTurn) -> dict[str, Any]:
    """Three rounds of workers, one of them by way of a sub-manager, with a redundant dispatch and a failure."""
    _called(f"{turn.agent}@{turn.own_run.id}#{turn.iteration}")
    if turn.agent == "lead":
        if turn.iteration < 3:
            return {"workers": [_to("digger", f"dig {turn.iteration}"), _to("sifter", "sift")]}
        return {"result": {"summary": "dug", "confidence": 0.9}}
    match turn.iteration:
        case 1:
            return {
                "workers": [
                    _to("scout", "look north"),
                    _to("scribe", "write"),
                    _to("lead", "dig", submanager=True),
                ]
            }
        case 2:
            return {"workers": [_to("scout", "look NORTH"), _to("loser", "fail"), _to("scout", "look south")]}
        case 3:
            return {"workers": [_to("scribe", "write it all")]}
    return {"result": {"answer": sorted(turn.state), "confidence": 0.8}}


def work(task: WorkerTask) -> dict[str, Any]:
    """It posts what it did, and says it."""
    _called(task.assignment.name + "@" + task.own_run.id)
    task.learn.board.post("doing", {"what": task.instructions})
    if task.agent == "loser":
        raise ValueError("lost the way")
    if task.agent == "scout":
        task.learn.register_tool("gate.open", {"how": task.instructions})
    return {"summary": f"{task.agent}: {task.instructions}", "confidence": 0.9}


def _to(worker: str, instructions: str, **more: Any) -> dict[str, Any]:
    return {"worker_id": worker, "instructions": instructions, **more}


def _called(name: str) -> None:
    if calls := os.environ.get("COMMONPLACE_FAULT_CALLS"):
        with Path(calls).open("a") as file:
            file.write(f"{name.replace(' ', '_')}\n")


WORKFLOW = Workflow(
    awp="1.0.0",
    name="digging",
    description="find the gate",
    delegation=Delegation(budget=DelegationBudget(max_total_workers=20)),
    policy=Policy(),
    persistence=Persistence(enabled=False, interval="manual"),
)


def run_all(book: Book, run_id: str = RUN) -> Outcome:
    """The whole delegation, from wherever it is to its end."""
    agents: dict[str, Any] = {"manager": manage, "*": work, "lead": manage}
    return run_workflow(book._session, WORKFLOW, agents=agents, run_id=run_id)


def run_and_die(say: Connection, home: Place, calls: str, kill_at: int | None) -> None:
    """Run it, and die in a transaction."""
    os.environ["COMMONPLACE_FAULT_CALLS"] = calls
    with home.open() as book, killed_at(book.ledger.store, kill_at):
        say.send("open")
        run_all(book)
        say.send("done")


def final(book: Book, run_id: str = RUN) -> dict[str, Any]:
    """What the delegation came to: state, boards, context digests and what was kept of it, without times."""
    run = book.run(run_id=run_id)
    state = run.state()
    kept = {key: value for key, value in state.items() if not key.startswith("_")}
    with book.ledger.snapshot() as now:
        made = sorted(digest.address for _, _, digest in digests(now, delegation_of(now, run_id)))
        runs = sorted(info.id for info in book.runs.list() if info.id.startswith(run_id))
        posted = {each: [id for _, id, _ in posts(now, each)] for each in runs}
    boards = {
        each: sorted(str(event.payload["payload"]) for event in book.ledger.events_by_id(ids))
        for each, ids in posted.items()
    }
    errors = sorted({(error["agent"], error["message"]) for error in state["_errors"]})
    learned = sorted(item.text for item in book.memory.list(tags=["curator"]))
    steps = {name: step["status"] for name, step in run.steps().items()}
    return {
        **kept, "digests": made, "boards": boards, "errors": errors, "learned": learned, "steps": steps,
        "status": state["_meta"]["status"],
    }  # fmt: skip


def go_on(home: Place, calls: Path, undisturbed: dict[str, Any]) -> list[str]:
    """Resume after the kill; what is wrong with how it ends."""
    with home.open() as book:
        runs = [info for info in book.runs.list() if info.status]
        done = {
            f"{name}@{info.id}".replace(" ", "_")
            for info in runs
            for name, step in book.run(run_id=info.id).steps().items()
            if step["status"] == "finished"
        }
        calls.write_text("")
        if not any(info.id == RUN and info.status == "completed" for info in runs):
            run_all(book)
        again = sorted(done.intersection(calls.read_text().split()))
        wrong = [f"ran again after they had finished: {', '.join(again)}"] if again else []
        ended = final(book)
        if ended != undisturbed:
            wrong += [
                f"{name} is {ended[name]}" for name in undisturbed if ended.get(name) != undisturbed[name]
            ]
        if not book.verify().ok:
            wrong.append("the chain does not hold")
    return wrong


@fault(37, "delegations", 200, 8)
def fault_delegations(count: int, seed: int, tmp: Path) -> Result:
    """`count` kills of a delegation on SQLite and a tenth on the others, at commits and at any moment."""
    result = Result()
    calls = tmp / "calls"
    os.environ.pop("COMMONPLACE_FAULT_CALLS", None)
    with commonplace.open("memory:") as calm:
        run_all(calm)
        undisturbed = final(calm)
    os.environ["COMMONPLACE_FAULT_CALLS"] = str(calls)
    for kind in DURABLE:
        for case in range(count if kind == "sqlite" else max(1, count // 10)):
            rng = random.Random(seed + case)
            home = place(kind, tmp)
            kill_at = rng.randrange(120) if rng.random() < 0.8 else None
            worker = Worker(run_and_die, home, str(calls), kill_at)
            if kill_at is None and worker.listen(60.0) == "open":
                time.sleep(rng.uniform(0, 0.25))
                worker.process.kill()
            said = worker.rest()
            result.outcomes[f"{kind} {'ended first' if 'done' in said else 'killed'}"] += 1
            told = [one for one in said if str(one).startswith("failed")]
            result.problem(f"{kind} (seed {seed + case})", *told, *go_on(home, calls, undisturbed))
            result.cases += 1
            home.drop()
    return result
