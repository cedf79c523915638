"""Every public verb of every handle, called with arguments of wrong types: whatever comes back is typed.

The values that a verb needs are given as they should be, but for one.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import commonplace
from commonplace import Book, CommonplaceError
from commonplace.surfaces.tools import Tools, schema
from commonplace.surfaces.tools import tools as known_tools

from . import Result


def deep(depth: int) -> Any:
    inner: Any = []
    for _ in range(depth):
        inner = [inner]
    return inner


WRONG: dict[str, Any] = {
    "a list": [1, [2]],
    "a list of lists": [[[]]],
    "a list of objects": [{}],
    "a list of nothing": [None],
    "a list with a surrogate": ["\ud800"],
    "a deep list": deep(10_000),
    "an object": {"a": 1},
    "an empty object": {},
    "an object of numbers": {1: 2},
    "a deep object": {"a": deep(10_000)},
    "something in an object": {"a": object()},
    "bytes": b"\xff",
    "something": object(),
    "a set": {1},
    "not a number": float("nan"),
    "no end": float("inf"),
    "a huge number": 10**400,
    "a number below 0": -1,
    "a fraction": 1.5,
    "true": True,
    "nothing": None,
    "a surrogate": "\ud800",
    "a NUL": "a\0b",
    "a name": "zzz",
}
FITTING: dict[str, Any] = {
    "id": "item", "ids": ["item"], "text": "some text", "kind": "agent.spoke", "run_id": "r", "name": "ada",
    "agent": "ada", "actor": "ada", "other": "ben", "task": "t2", "tasks": ["t2"], "work": "w", "title": "a title",
    "query": "tide", "reason": "why", "why": "why", "rationale": "why", "choice": "skip", "relation": "related",
    "to": "item", "start": "item", "day": "2026-01-01", "path": "p", "node": "n", "status": "started",
    "question": "why?", "options": {"a": []}, "option": "a", "output": {"a": 1}, "payload": {"a": 1},
    "events": [{"kind": "agent.spoke"}], "type": "thing", "error": "bad", "kept": "item", "key": "k",
    "digest": "0" * 64, "subject": "ada", "fact": "f", "section": "decisions", "session": "s", "content": "c",
    "reviewer": "ben", "target": "ada", "phase": "PLAN", "decision": "GO", "source": "x", "value": 1,
    "items": ["item"], "view": "runs", "topic": "t", "spec": {"a": 1}, "sha": "0" * 64, "report": "done",
    "facts": [{"subject": "s", "fact": "f"}], "item": "i", "workflow": "flow",
}  # fmt: skip
FIELDS = """
    key value title text tags links provenance citations confidence category valid_from occurred_at person places
    embedder secrets budget v1 salience retention_days max_size_kb config visibility type name role tiers acts may_emit
    sees ceiling goal constraints members cores limits reason error result attempt iteration sources of status priority
    depends_on metadata assigned_to description blocks on_failure risk parent id needs_review code_refs
"""
"""What may be given to verbs that take any fields."""

NOT_CALLED = ("close", "submit", "snapshot")
ARGUMENTS = ("unexpected keyword", "multiple values", "given by name and position", "missing")
"""What Python itself says of a call with too many or too few arguments."""

Call = tuple[str, Callable[[], Any]]


def handles(book: Book) -> dict[str, Any]:
    book.remember("The tide is high at noon.", id="item")
    book.remember(key="k", value=1)
    book.as_actor("ben").remember(key="k", value=2, shared=True)
    book.record("agent.spoke", id="event", payload={"text": "x"}, run_id="r")
    run, actor = book.run(run_id="r"), book.as_actor("ada", role="person")
    work = book.work(name="it", id="w")
    for id in ("t", "t2", "t3"):
        work.add_task("do it", id=id)
    turn, claim = run.agent("ada"), work.claim("ada")
    of_work = {"task": work.task("t2"), "manage": work.manage, "approvals": work.approvals}
    learn = {"learn": turn.learn, "board": turn.learn.board, "digests": turn.learn.digests}
    return {
        "book": book,
        "actor": actor,
        "run": run,
        "turn": turn,
        "work": work,
        **of_work,
        "claim": claim,
        **learn,
    }


def calls(book: Book) -> Iterator[Call]:
    for handle, on in handles(book).items():
        for verb, _ in inspect.getmembers(type(on), callable):
            if not verb.startswith("_") and verb not in NOT_CALLED:
                yield from _calls_of(f"{handle}.{verb}", getattr(on, verb))
    tools = Tools(book)
    needed = {"target": "daily", "content": "x", "topic": "t", "payload": {"a": 1}, "sha": "0" * 64}
    for tool, about in known_tools().items():
        arguments = schema(about)
        for argument in arguments["properties"]:
            given = {name: needed[name] for name in arguments.get("required", ())}
            for what, wrong in WRONG.items():
                all = {**given, argument: wrong}
                yield f"{tool} with {what} as {argument}", partial(_tool, tools, tool, all)
    for what, wrong in WRONG.items():
        yield f"{what} as a tool", partial(_tool, tools, wrong, {})
        yield f"a tool with {what}", partial(_tool, tools, "memory.search", wrong)
        yield f"a tool by {what}", partial(_tool, tools, "memory.search", {}, actor=wrong)
        yield f"a tool in {what}", partial(_tool, tools, "memory.search", {}, run_id=wrong)


def _tool(tools: Tools, name: Any, given: Any, **more: Any) -> None:
    answer = tools.call(name, given, **more)
    if answer["status"] == 500:
        raise RuntimeError(answer["error"]["message"])


def _calls_of(named: str, verb: Callable[..., Any]) -> Iterator[Call]:
    parameters = inspect.signature(verb).parameters.values()
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    needed = {one.name: FITTING.get(one.name, "x") for one in plain if one.default is one.empty}
    ends = {"timeout": 0.0} if any(one.name == "timeout" for one in plain) else {}  # or it waits for ever
    wanted = [one.name for one in plain if one.name != "timeout"]
    if len(plain) < len(parameters):
        wanted += [name for name in FIELDS.split() if name not in wanted]
    for name in wanted:
        for what, wrong in WRONG.items():
            yield f"{named} with {what} as {name}", partial(verb, **{**needed, **ends, name: wrong})


def fuzz_verbs(result: Result, count: int, seed: int, tmp: Path) -> None:
    """So many of these calls, chosen by the seed, on a book in memory. Files are written in a folder of their own."""
    folder = tmp / f"verbs-{seed}"
    folder.mkdir()
    with contextlib.chdir(folder), commonplace.open("memory:") as book:
        every = list(calls(book))
        for told, call in random.Random(seed).sample(every, min(count, len(every))):
            result.cases += 1
            try:
                answer = call()
                if isinstance(answer, Iterator):
                    list(islice(answer, 3))
                result.outcomes["verb: answered"] += 1
            except CommonplaceError as error:
                result.outcomes[f"verb: {type(error).__name__}"] += 1
            except Exception as error:  # noqa: BLE001  an error of no known type is a finding
                if not (isinstance(error, TypeError) and any(one in str(error).lower() for one in ARGUMENTS)):
                    result.problem(f"{told} (seed {seed}): {error}", f"{told} raises {type(error).__name__}")
        if not book.verify().ok or book.memory.list(status=None) is None:
            result.problem(f"seed {seed}", "the book does not verify after wrong calls")
