"""Working memory against a plain model: whatever is asked in whatever order, it is done or refused as the model says,
and tasks, lists, counts and everything that was said are right.

The model is in `work_model`, what is asked in `work_rules`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from commonplace.work.capability import WORK
from commonplace.work.sets import VIEW, Sets, fold, keys
from tests.work_rules import COMMANDS, RULES, Story, StoryOnSqlite, told_evenly


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
    assert {f"work.{name}" for name in COMMANDS} == set(WORK.commands)
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
    assert set(WORK.commands) <= done.keys()


@pytest.mark.spec("5.2", "5.3", "5.4", "5.6", "5.8", "5.9", "L1", "L7")
def test_the_same_holds_in_a_file() -> None:
    tell_evenly(StoryOnSqlite, 6, 40)


# the sets that tasks are in


class Rows:
    """Where sets lie, as rows by their keys."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}

    def get(self, view: str, *key: Any) -> Any:
        assert view == VIEW
        return self.rows.get(key)

    def get_all(self, _read: object, view: str, keys: list[tuple[Any, ...]]) -> list[Any]:
        return [self.get(view, *key) for key in keys]

    def keep(self, work: str, sets: Sets) -> None:
        self.fold({"work": work, **sets.changes()})

    def fold(self, payload: dict[str, Any]) -> None:
        event: Any = SimpleNamespace(payload=payload)
        for key in keys(event):
            after = fold(key, self.rows.pop(key, None), event)
            if after is not None:
                self.rows[key] = after


numbers = st.integers(0, 2**20) | st.sampled_from([0, 1, 255, 256, 257, 65_535, 65_536, 65_537, 2**20])
changes = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["ready:", "ready:dev", "blocked"]),
        st.sampled_from([-5, 0, 3]),
        numbers,
    ),
    max_size=60,
)


@pytest.mark.spec("5.2")
@settings(max_examples=150, deadline=None)
@given(st.lists(changes, max_size=4), st.lists(numbers, max_size=4), st.booleans())
def test_sets_hold_what_was_put_into_them(batches: list[Any], starts: list[int], empty: bool) -> None:
    lens, plain = Rows(), dict[str, set[tuple[int, int]]]()
    if empty:  # take everything out again
        every = [(False, name, rank, number) for batch in batches for _, name, rank, number in batch]
        batches = [*batches, every]
    for batch in batches:
        sets = Sets(lens, "w")  # type: ignore[arg-type]
        for put, name, rank, number in batch:
            (sets.put if put else sets.take)(name, rank, number)
            known = plain.setdefault(name, set())
            (known.add if put else known.discard)((rank, number))
        within = {name: list(sets.walk(name)) for name in plain}
        lens.keep("w", sets)
        again = Sets(lens, "w")  # type: ignore[arg-type]
        for name, members in plain.items():
            assert within[name] == list(again.walk(name)) == sorted(members)
            assert again.has(name) == bool(members)
            for start in starts:
                assert list(again.walk(name, start)) == sorted(one for one in members if one[1] >= start)
            assert bool(members) == (("w", 0, name) in lens.rows)
    if empty:
        assert lens.rows == {}


@pytest.mark.spec("5.2", "1.1")
def test_sets_that_the_first_works_told_are_read_as_well() -> None:
    """They told leaves one set at a time, then a branch above each leaf that had become full or empty, and a top."""
    lens = Rows()
    told = [
        [["ready:", 0, -5, 1, "5"], ["ready:", 1, -5, 0, "2"], ["ready:", 2, 0, 0, {"-5": "1"}]],
        [["ready:", 0, -5, 1, "4"], ["in_progress", 0, -5, 1, "1"], ["in_progress", 1, -5, 0, "2"],
         ["in_progress", 2, 0, 0, {"-5": "1"}]],
        [["ready:", 0, -5, 1, "0"], ["ready:", 1, -5, 0, "0"], ["ready:", 2, 0, 0, {}]],
    ]  # fmt: skip
    found = []
    for one in told:
        lens.fold({"work": "w", "sets": one})
        sets = Sets(lens, "w")  # type: ignore[arg-type]
        found.append((list(sets.walk("ready:")), list(sets.walk("in_progress"))))
    assert found == [
        ([(-5, 256), (-5, 258)], []), ([(-5, 258)], [(-5, 256)]), ([], [(-5, 256)])
    ]  # fmt: skip
