"""Working memory against a plain model: whatever is asked in whatever order, it is done or refused as the model says,
and tasks, lists, counts and everything that was said are right.

The model is in `work_model`, what is asked in `work_rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

import commonplace
from commonplace.work.capability import WORK
from commonplace.work.records import RECORDS
from tests.work_rules import COMMANDS, RULES, Story, StoryOnSqlite, told_evenly


@pytest.fixture(autouse=True)
def every_claim_looks_after_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    """A story that is told again must go the same way, whatever the clock says."""
    monkeypatch.setattr("commonplace.work.claims.CHECK_ONE_CLAIM_IN", 1)


def told(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )


def tell_evenly(
    kind: type[Story], examples: int, steps: int, *, mostly: Collection[str] = ()
) -> Counter[str]:
    """Tell so many stories. Answers how often each command was done."""
    done = Counter[str]()

    @told(examples, 1)
    @given(st.data())
    def tell(data: Any) -> None:
        done.update(told_evenly(kind, data, steps, mostly=mostly))

    tell()
    return done


@pytest.mark.spec("5.2")
def test_no_command_of_a_work_is_forgotten() -> None:
    """Whoever adds a command adds a rule to the story that asks for it."""
    each = {f"work.record {name}" for name in RECORDS}
    each |= {f"work.answer {name}" for name, kind in RECORDS.items() if kind.waits}
    commands = set(WORK.commands) - {"work.record", "work.answer"}
    assert {f"work.{name}" for name in COMMANDS} == commands | each
    assert set(COMMANDS.values()) <= RULES.keys()


@pytest.mark.spec("5.2", "5.3", "5.4", "5.6", "5.9", "L1", "L7")
def test_whatever_is_asked_in_whatever_order_tasks_and_lists_are_right() -> None:
    run_state_machine_as_test(Story, settings=told(40, 45))


@pytest.mark.spec("5.2", "5.3", "5.4", "5.6", "5.9", "L1", "L7")
def test_every_command_has_its_turn_in_long_stories() -> None:
    done = tell_evenly(Story, 50, 50)
    for _ in range(10):  # what is left is rare: it is asked for whenever it can be
        left = {rule for name, rule in COMMANDS.items() if f"work.{name}" not in done}
        if not left:
            break
        done += tell_evenly(Story, 20, 50, mostly=left | ({"branch"} if "choose" in left else set()))
    assert {*WORK.commands, *(f"work.{name}" for name in COMMANDS)} <= done.keys()


@pytest.mark.spec("5.2", "5.3", "5.4", "5.6", "5.8", "5.9", "L1", "L7")
def test_the_same_holds_in_a_file() -> None:
    tell_evenly(StoryOnSqlite, 6, 40)


# what events hold


def names_in(payload: Any) -> set[str]:
    """The names of all fields of a payload, at any depth."""
    if isinstance(payload, dict):
        return set(payload).union(*map(names_in, payload.values()))
    return set().union(*map(names_in, payload)) if isinstance(payload, list) else set()


@pytest.mark.spec("L1", "5.2")
def test_events_of_a_work_say_what_happened_and_nothing_that_is_derived_from_it() -> None:
    with commonplace.open("memory:") as book:
        work = book.work(name="w")
        first = work.add_task("Design token schema", priority=2)
        second = work.add_task("Write the migration", depends_on=[first])
        claim = work.claim("ada")
        assert claim is not None
        claim.discover("tokens expire after an hour")
        claim.decide(question="Which format?", choice="JWT", rationale="known to all")
        claim.artifact("schema.sql", content="CREATE TABLE token ()")
        claim.complete("designed")
        work.task(second).edit(title="Write the migration of tokens", priority=7)
        events = [event for event in book.events() if event.kind.startswith(("task.", "work."))]
        derived = {"sets", "tops", "counts", "words", "stems", "waits", "failures", "claims", "token"}
        for event in events:
            assert not names_in(event.payload) & derived, event.kind
        assert [event.payload.get("waits_for") for event in events if event.kind == "task.added"] == [
            None,
            [0],
        ]
        claimed, done = (
            next(event.payload for event in events if event.kind == kind)
            for kind in ("task.claimed", "task.completed")
        )
        was = {"status": "pending", "priority": 2, "ready_for": "", "later": False}
        assert claimed["tasks"][0]["was"] == was
        assert claimed["tasks"][0]["set"]["status"] == "in_progress"
        assert done["task_id"] == first.id
        assert [(entry["number"], entry["was"]["status"]) for entry in done["tasks"]] == [
            (0, "in_progress"),
            (1, "pending"),
        ]
        assert done["tasks"][1]["set"] == {"ready_for": ""}
        assert [task.id for task in work.ready()] == [second.id]


@pytest.mark.spec("5.2", "L1")
def test_a_task_that_is_over_leaves_no_row_in_the_lists() -> None:
    with commonplace.open("memory:") as book:
        work = book.work(name="w")
        work.add_tasks([{"title": f"task {n}", "priority": n % 3} for n in range(30)])
        while claim := work.claim("ada"):
            claim.complete("done")
        with book.ledger.reads() as reads:
            space = book.ledger.meta_of(reads.head).space(book.ledger.registry.view("work.lists"))
            assert list(reads.versions(space)) == []
        assert work.counts() == {"tasks": 30, "completed": 30}
