"""Who sees which field: every strategy, rule, flag and viewer, on every path a field could leak through."""

from __future__ import annotations

import itertools
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import commonplace
from commonplace import Book
from commonplace.state.policy import AgentPolicy, Policy, SharingRule
from commonplace.state.requests import Open

AGENTS = ("ada", "ben", "cem")
FIELDS = ("plain", "listed", "ruled", "taken", "never", "unshareable", "secret")

RULES = {
    "none": (),
    "ada to ben": (SharingRule("ada", ("ben",), ("ruled", "never", "unshareable")),),
    "ada to all dependents": (SharingRule("ada", (), ("ruled",)),),
    "two rules": (SharingRule("ada", ("ben",), ("ruled",)), SharingRule("ada", ("ben", "cem"), ("plain",))),
}
TAKES: dict[str, dict[str, tuple[str, ...]]] = {
    "nothing": {},
    "a field": {"ada": ("taken", "never")},
    "a key": {"": ("topic",)},
    "all of ada": {"ada": ("*",)},
}


@dataclass(frozen=True)
class Case:
    strategy: Any
    rules: str
    takes: str
    listed: bool
    flagged: bool
    finished: bool

    @property
    def policy(self) -> Policy:
        def agent(name: str) -> AgentPolicy:
            depends = AGENTS[: AGENTS.index(name)] if name != "cem" else ("ben",)
            return AgentPolicy(
                share_output=("listed", "never", "unshareable") if self.listed else (),
                takes=TAKES[self.takes] if name != "ada" else {},
                depends_on=depends,
                not_shareable=("unshareable",) if self.flagged else (),
                sensitive=("secret",) if self.flagged else (),
            )

        return Policy(
            strategy=self.strategy,
            rules=RULES[self.rules],
            never_share=("never",),
            agents={name: agent(name) for name in AGENTS},
        )


CASES = [
    Case(*parts)
    for parts in itertools.product(
        ("full", "selective", "isolated"), RULES, TAKES, (True, False), (True, False), (True, False)
    )
]
assert len(CASES) * len(AGENTS) >= 200


def token(agent: str, field: str) -> str:
    return f"value-of-{agent}-{field}"


def allowed(case: Case, viewer: str) -> set[str]:
    """The rules once more, as plainly as they can be said."""
    seen = {token(viewer, field) for field in FIELDS}
    takes = TAKES[case.takes] if viewer != "ada" else {}
    if case.strategy != "isolated" or "topic" in takes.get("", ()):
        seen.add(token("run", "topic"))
    for agent in AGENTS:
        if agent == viewer or not case.finished:
            continue
        shared = set()
        for field in FIELDS:
            if field == "never" or (field == "unshareable" and case.flagged):
                continue
            if case.strategy == "full":
                shared.add(field)
            elif case.strategy == "isolated":
                if "*" in takes.get(agent, ()) or field in takes.get(agent, ()):
                    shared.add(field)
            else:
                ruled: set[str] | None = None
                if agent == "ada":
                    if case.rules == "ada to ben" and viewer == "ben":
                        ruled = {"ruled", "unshareable"}
                    elif case.rules == "ada to all dependents" and viewer == "ben":
                        ruled = {"ruled"}
                    elif case.rules == "two rules" and viewer == "ben":
                        ruled = {"ruled", "plain"}
                    elif case.rules == "two rules" and viewer == "cem":
                        ruled = {"plain"}
                if ruled is None:
                    ruled = {"listed", "unshareable"} if case.listed else set()
                if field in ruled:
                    shared.add(field)
        seen |= {token(agent, field) for field in shared}
    return seen


ALL = {token(agent, field) for agent in AGENTS for field in FIELDS} | {token("run", "topic")}


def found_in(text: str) -> set[str]:
    return {one for one in ALL if one in text}


def told(book: Book, case: Case) -> None:
    opening = Open("r", "owner", case.policy, initial={"topic": token("run", "topic"), "never": "x"})
    book.ledger.submit("state.open", opening)
    run = book.run(run_id="r")
    for agent in AGENTS:
        output: dict[str, Any] = {field: token(agent, field) for field in FIELDS}
        output["plain"] = {"text": token(agent, "plain"), "never": [token(agent, "never")]}  # nested, too
        run.agent(agent).write(output)
        if case.finished:
            run.agent(agent).finish()


@pytest.mark.spec("2.6", "2.7")
@pytest.mark.parametrize("strategy", ["full", "selective", "isolated"])
def test_no_path_shows_a_field_to_somebody_who_may_not_see_it(strategy: str) -> None:
    for case in (case for case in CASES if case.strategy == strategy):
        with commonplace.open("memory:") as book, tempfile.TemporaryDirectory() as folder:
            told(book, case)
            for viewer in AGENTS:
                may = allowed(case, viewer)
                actor, run = book.as_actor(viewer), book.as_actor(viewer).run(run_id="r")
                turn = run.agent(viewer)
                assert found_in(json.dumps(turn.state)) == may, (case, viewer)
                assert found_in(json.dumps(run.state())) == may
                assert found_in(json.dumps(run.state(at=book.head))) == may
                assert found_in(turn.prompt("go on")) == may
                for shown in paths(book, actor, run, Path(folder)):
                    leaked = found_in(shown) - may
                    assert not leaked, (case, viewer, leaked)


def paths(book: Book, actor: commonplace.Actor, run: commonplace.Run, folder: Path) -> list[str]:
    """Everything else a viewer can make the book say."""
    actor.export(folder / "export.jsonl")
    fork = run.fork()
    return [
        json.dumps([event.as_dict() for event in actor.events()]),
        json.dumps([event.as_dict() for event in actor.watch(after=0, timeout=0)]),
        (folder / "export.jsonl").read_text(),
        json.dumps([msgspec.to_builtins(one) for one in actor.runs.diff("r", "r@1")]),
        json.dumps([msgspec.to_builtins(one) for one in actor.runs.diff("r", fork.id)]),
        json.dumps(fork.state()),
        json.dumps(run.steps()),
        errors(actor, run),
    ]


def errors(actor: commonplace.Actor, run: commonplace.Run) -> str:
    """What refusals say."""
    said = []
    for other in AGENTS:
        for attempt in (
            lambda other=other: run.agent(other).write({"_meta": 1}),
            lambda other=other: run.agent(other).write({"plain": 1}, if_position=0),
            lambda: actor.event("nobody"),
            lambda: run.merge(),
            lambda: run.close("nonsense"),
        ):
            try:
                attempt()
            except commonplace.CommonplaceError as error:
                if not isinstance(error, commonplace.Conflict) or other != run.viewer:
                    said.append(json.dumps(error.as_dict()))
    return "\n".join(said)


@pytest.mark.spec("2.6")
def test_a_fork_and_its_actor_keep_to_the_same_rules() -> None:
    case = Case("selective", "ada to ben", "nothing", True, True, True)
    with commonplace.open("memory:") as book:
        told(book, case)
        fork = book.fork("r")
        for viewer in AGENTS:
            seen = book.as_actor(viewer).run(run_id=fork.id).state()
            assert found_in(json.dumps(seen)) == allowed(case, viewer)
