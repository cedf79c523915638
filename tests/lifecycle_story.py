"""A task of ten phases that is interrupted everywhere: what an agent does that knows nothing but what `resume` says."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import commonplace
from commonplace.engines.contract import Tx, WriteSet
from commonplace.participant import Participant
from commonplace.testing.transactions import each_transaction

TASK = "Move the shop to the new checkout"
LAST = 10
STEPS = ("start", "decide", "verify", "end")
FACT = {
    "subject": "Where checkout settings live",
    "fact": "Settings of the checkout are read from `config/checkout.toml`.",
    "citations": ["config/checkout.toml:1"],
    "reason": "every change of the checkout touches them",
    "category": "project",
}
LATER_FACT = {
    "subject": "How prices are rounded",
    "fact": "Prices are rounded half to even, after tax.",
    "citations": ["src/prices.py:12"],
    "reason": "another rule fails the audit",
    "category": "project",
}

At = Callable[[int, str], None]
"""Is told the phase and the step that comes next."""


def decision(phase: int) -> str:
    return f"Decision {phase}: the old cart keeps number {phase}."


def item(phase: int) -> str:
    return f"page-{phase}"


def steps(phase: int, seen: str) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """What is done in a phase: each step, with the verbs to call and their arguments. `seen` is all that is known of
    what was done already."""
    facts = {3: [FACT], 7: [FACT, LATER_FACT]}.get(phase, [])
    yield "start", [("phase_start", {"phase": phase, "note": f"page {phase} is next", "facts": facts})]
    if decision(phase) not in seen:
        yield "decide", [("add_to_task", {"document": "decisions", "text": decision(phase)})]
    else:
        yield "decide", []
    made = {"item": item(phase), "description": f"page {phase} loads", "iteration": phase}
    reports: list[tuple[str, dict[str, Any]]] = [("verify_item", made)]
    if phase == 5 and not re.search(r"page-2 VERIFIED.*last [^()]*\(iteration 5\)", seen):
        reports.append(("verify_item", {"item": item(2), "holds": False, "iteration": 5, "evidence": "404"}))
        reports.append(("verify_item", {"item": item(2), "iteration": 5, "evidence": "route restored"}))
    yield "verify", reports
    following = phase + 1 if phase < LAST else None
    yield "end", [("phase_end", {"phase": phase, "report": f"Page {phase} moved.", "next_phase": following})]


def carry_on(me: Participant, at: At = lambda _phase, _step: None) -> None:
    """Take the task from wherever it is to its end."""
    known = me.learn.resume(TASK)
    seen = str(known)
    assert known.left_out == () or not known.completed, known.left_out
    for phase in range(1, LAST + 1):
        if str(phase) in known.completed:
            continue
        for step, calls in steps(phase, seen):
            at(phase, step)
            for verb, arguments in calls:
                getattr(me.documents if verb == "add_to_task" else me.learn, verb)(TASK, **arguments)
    at(LAST + 1, "complete")
    me.learn.task_complete(TASK, facts=[LATER_FACT], report="All pages are moved.")
    at(LAST + 1, "leave")
    me.learn.conversation_end(TASK)


def result(book: commonplace.Book) -> dict[str, Any]:
    """What is left in the end, without times and ids."""
    documents = {
        path: [(entry.text, entry.about, entry.section) for entry in book.documents.get(path)]
        for path in book.documents.list()
    }
    verified = [
        (each.id, each.description, each.status, [(one.holds, one.iteration) for one in each.history])
        for each in book.learn.verified(TASK)
    ]
    facts = sorted(
        (fact.key, fact.text, fact.status) for fact in book.memory.list(repository=True, status=None)
    )
    return {"documents": documents, "verified": verified, "facts": facts}


@contextmanager
def killed_at(book: commonplace.Book, phase: int, step: str, when: str) -> Iterator[At]:
    """Kill this process in one step of one phase: before its first transaction, or after the commit of its first
    write, if that is not only a note of what was shown."""
    now = [0, ""]

    def due() -> bool:
        return now == [phase, step]

    def begun(tx: Tx) -> None:
        apply = tx.apply

        def apply_and_die(write: WriteSet) -> None:
            apply(write)
            if due() and any(b"memory.recalled" not in record.header for record in write.records):
                os.kill(os.getpid(), signal.SIGKILL)

        if due() and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        tx.apply = apply_and_die  # type: ignore[method-assign]

    def at(next_phase: int, next_step: str) -> None:
        now[:] = [next_phase, next_step]

    with each_transaction(book.ledger.store, begun):
        yield at


def carry_on_and_die(say: Connection, url: str, phase: int, step: str, when: str) -> None:
    """A process that knows nothing, goes on, and is killed. It says what it has come to if it is not."""
    with commonplace.open(url) as book, killed_at(book, phase, step, when) as at:
        say.send("open")
        carry_on(book.as_actor("ada"), at)
        say.send("done")


def command_that_dies(when: str) -> None:
    """The `commonplace` command, killed before or after its first write."""
    from commonplace.session import Session
    from commonplace.surfaces.cli import main

    submit = Session.submit

    def submit_and_die(self: Session, command: str, request: Any, act: str) -> Any:
        if when == "after":
            submit(self, command, request, act)
        os.kill(os.getpid(), signal.SIGKILL)

    Session.submit = submit_and_die  # type: ignore[method-assign]
    main()
