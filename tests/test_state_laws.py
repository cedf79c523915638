"""Run state held against a plain model: random writes, forks and merges, any past position, erasure, rebuild."""

from __future__ import annotations

import copy
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import commonplace
from commonplace import Book
from tests.test_views import stored_rows

AGENTS, FIELDS = ("ada", "ben"), ("a", "b", "list")

writes = st.tuples(
    st.just("write"),
    st.sampled_from(["set", "append", "increment", "remove", "noted"]),
    st.integers(0, 5),
    st.sampled_from(AGENTS),
    st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True),
)
forks = st.tuples(st.just("fork"), st.integers(0, 5), st.integers(0, 100))
merges = st.tuples(st.just("merge"), st.integers(0, 5), st.sampled_from([None, "fork", "target"]))
stories = st.lists(writes | writes | forks | merges, min_size=1, max_size=25)


class Model:
    """The same runs as nested dicts that are copied whenever anything happens."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, dict[str, Any]]] = {"r0": {}}
        self.base: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {}
        self.past: dict[int, dict[str, dict[str, dict[str, Any]]]] = {}

    def write(self, run: str, agent: str, type: str, payload: dict[str, Any]) -> bool:
        """Whether it is allowed; if so, it is done."""
        entry = dict(self.runs[run].get(agent, {}))
        for field, value in payload.items():
            known = entry.get(field)
            if type == "remove":
                entry.pop(field, None)
            elif type == "append":
                if known is not None and not isinstance(known, list):
                    return False
                entry[field] = [*(known or []), value]
            elif type == "increment":
                if not isinstance(value, int) or not isinstance(known or 0, int):
                    return False
                entry[field] = (known or 0) + value
            else:
                entry[field] = value
        self.runs[run] = {**self.runs[run], agent: entry}
        if not entry:
            del self.runs[run][agent]
        return True

    def merge(self, fork: str, prefer: str | None) -> bool:
        """Whether there was no conflict, or it was settled; then it is done."""
        into, base = self.base[fork]
        ours, theirs = copy.deepcopy(self.runs[into]), self.runs[fork]
        written = sorted(self.written.get(fork, set()))
        changed = [place for place in written if _at(theirs, place) != _at(ours, place)]
        clash = [place for place in changed if _at(ours, place) != _at(base, place)]
        if clash and prefer is None:
            return False
        for agent, field in changed:
            if prefer == "target" and (agent, field) in clash:
                continue
            value = _at(theirs, (agent, field))
            if value is None:
                ours.get(agent, {}).pop(field, None)
            else:
                ours.setdefault(agent, {})[field] = value
            self.written.setdefault(into, set()).add((agent, field))
        self.runs[into] = {agent: entry for agent, entry in ours.items() if entry}
        self.base[fork] = (into, copy.deepcopy(self.runs[into]))
        self.written[fork] = set()
        return True

    written: dict[str, set[tuple[str, str]]]


def _at(state: dict[str, dict[str, Any]], place: tuple[str, str]) -> Any:
    return state.get(place[0], {}).get(place[1])


def known(book: Book, run: str, at: int | None = None) -> dict[str, Any]:
    state = book.run(run_id=run).state(at)
    return {key: value for key, value in state.items() if not key.startswith("_")}


def tell(book: Book, story: list[Any]) -> Model:
    model = Model()
    model.written = {}
    book.run(run_id="r0")
    for step, one in enumerate(story):
        if one[0] == "write":
            _, type, run, agent, fields = one
            run_id = f"r{run % len(model.runs)}"
            payload = {field: step if type == "increment" else f"token-{step}-{field}" for field in fields}
            turn = book.run(run_id=run_id).agent(agent)
            if model.write(run_id, agent, type, payload):
                turn.emit(type, payload)
                model.written.setdefault(run_id, set()).update((agent, field) for field in fields)
            else:
                with pytest.raises(commonplace.BadInput):
                    turn.emit(type, payload)
        elif one[0] == "fork":
            _, run, back = one
            source = f"r{run % len(model.runs)}"
            at = max((position for position in model.past if position <= book.head - back), default=None)
            if at is None or source not in model.past[at]:
                continue
            fork = f"r{len(model.runs)}"
            book.fork(source, at=at, new_id=fork)
            model.runs[fork] = copy.deepcopy(model.past[at][source])
            model.base[fork] = (source, copy.deepcopy(model.past[at][source]))
        else:
            _, run, prefer = one
            fork = f"r{run % len(model.runs)}"
            if fork not in model.base:
                with pytest.raises(commonplace.BadInput):
                    book.runs.merge(fork, prefer)
            elif model.merge(fork, prefer):
                book.runs.merge(fork, prefer)
            else:
                with pytest.raises(commonplace.Conflict):
                    book.runs.merge(fork, prefer)
        model.past[book.head] = copy.deepcopy(model.runs)
    return model


@pytest.mark.spec("2.1", "2.4", "2.10", "L1", "L7")
@given(story=stories, on_disk=st.booleans())
@settings(max_examples=120, deadline=None)
def test_state_is_what_a_plain_model_says_at_every_position(story: list[Any], on_disk: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with commonplace.open(
            Path(folder) / "b.db" if on_disk else "memory:", durability="process" if on_disk else "full"
        ) as book:
            model = tell(book, story)
            for at, runs in model.past.items():
                for run, state in runs.items():
                    assert known(book, run, at) == state
            before = stored_rows(book)
            book.ledger.follow("state.projection")
            book.rebuild()
            after = stored_rows(book)
            assert {name: rows for name, rows in after.items() if name != "state.projection"} == {
                name: rows for name, rows in before.items() if name != "state.projection"
            }
            assert book.verify().ok


@pytest.mark.spec("L10", "L1")
@given(story=stories, data=st.data())
@settings(max_examples=120, deadline=None)
def test_what_is_erased_is_nowhere_and_the_rest_is_as_rebuilt(story: list[Any], data: st.DataObject) -> None:
    with commonplace.open("memory:") as book:
        tell(book, story)
        written = book.events(kinds=["state.changed"])  # first hand: a copy's source may rightly stay
        changes = [event for event in written if event.payload.get("payload") and not event.parents]
        if not changes:
            return
        chosen = data.draw(
            st.lists(st.sampled_from(changes), min_size=1, max_size=3, unique_by=lambda one: one.id)
        )
        tokens = [
            value for event in chosen for value in event.payload["payload"].values() if isinstance(value, str)
        ]
        book.erase([event.id for event in chosen])
        runs = [run.id for run in book.runs.list()]
        shown = json.dumps([event.as_dict() for event in book.events()])
        shown += json.dumps([book.run(run_id=run).state() for run in runs])
        shown += str(stored_rows(book))
        assert [token for token in tokens if token in shown] == []
        before, states = stored_rows(book), [known(book, run) for run in runs]
        book.rebuild()
        assert stored_rows(book) | {"state.projection": []} == before | {"state.projection": []}
        assert [known(book, run) for run in runs] == states
        assert book.verify().ok
