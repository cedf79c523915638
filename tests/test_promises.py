"""Small promises that nothing else holds the code to."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import BadInput, Book, Denied, EngineUnavailable, NotFound
from commonplace.ledger.events import new_id


@pytest.mark.spec("3.8", "3.9")
def test_bringing_back_from_the_archive_takes_the_right_to(book: Book) -> None:
    book.documents.log("the port is open")
    (day,) = book.documents.days()
    soon = datetime.now(UTC) + timedelta(days=400)
    book.memory.tidy(now=soon)
    assert book.documents.days(archived=True) == [day]
    with pytest.raises(Denied):
        book.as_actor("ada").documents.restore(days=[day])
    assert book.documents.days(archived=True) == [day]
    assert [event.payload["act"] for event in book.events(kinds=["access.denied"])] == ["keep_memory"]
    book.as_actor("lib", role="librarian").documents.restore(days=[day])
    assert book.documents.days() == [day]


@pytest.mark.spec("3.6", "L10")
@pytest.mark.parametrize("how", ["forget", "erase"])
def test_an_erased_item_leaves_a_tombstone_without_content(book: Book, how: str) -> None:
    ada = book.as_actor("ada")
    id = ada.remember("the port is quartzfjord").item_id or ""
    if how == "forget":
        ada.forget(id, erase=True, confirm="FORGET", reason="a customer's")
    else:
        book.erase(id, reason="a customer's")
    (stone,) = ada.memory.tombstones()
    assert (stone.id, stone.agent, stone.erased, stone.reason) == (id, "ada", True, "a customer's")
    assert "quartzfjord" not in str(stone)
    assert book.as_actor("bob").memory.tombstones() == []


@pytest.mark.spec("3.6", "3.9", "L5")
@pytest.mark.parametrize("act", ["restore", "forget", "erase"])
def test_a_keeper_below_the_ceiling_learns_nothing_of_a_forgotten_item(book: Book, act: str) -> None:
    """For a librarian who may not see what is sensitive, an item that was there is like one that never was."""
    ada, lib = book.as_actor("ada"), book.as_actor("lib", role="librarian")
    id = ada.remember("the port is quartzfjord", shared=True, sensitivity="sensitive").item_id or ""
    ada.forget(id, confirm="FORGET")
    told = []
    for one in (id, "never-there"):
        tries: dict[str, Callable[[], object]] = {
            "restore": partial(lib.memory.restore, one),
            "forget": partial(lib.forget, one, confirm="FORGET"),
            "erase": partial(lib.forget, one, confirm="FORGET", erase=True),
        }
        with pytest.raises(NotFound) as error:
            tries[act]()
        told.append(str(error.value).replace(one, "X"))
    assert told[0] == told[1]
    assert ada.memory.get(id).status == "forgotten"


@pytest.mark.spec("L8")
def test_a_label_has_only_the_values_that_are_known(book: Book) -> None:
    event = book.record("agent.spoke", payload={"text": "hello"}, actor="ada")
    for labels in ({"sensitivity": "secret"}, {"trust": "blind"}, {"sensitivity": ""}):
        with pytest.raises(BadInput, match="one of"):
            book.access.relabel(event.id, reason="so", **labels)
    assert list(book.events(kinds=["access.relabelled"])) == []


@pytest.mark.spec("L7", "4.5")
def test_a_digest_as_of_a_position_is_of_the_time_of_its_event(book: Book) -> None:
    """What was valid until just before the event at a position has ended there, and holds at the one before."""
    until = datetime.now(UTC) + timedelta(milliseconds=60)
    book.remember("the open port is 5433", valid_until=until)
    event = book.record("agent.spoke", payload={"text": "so"}, actor="ada")
    while event.created_at < until:
        event = book.record("agent.spoke", payload={"text": "so"}, actor="ada")
    before, after = (book.digest("which port is open", at=event.position - step) for step in (1, 0))
    assert "5433" in before.text
    assert "5433" not in after.text


@pytest.mark.spec("L2")
def test_a_database_that_ignores_a_setting_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability and erasure rest on settings of SQLite: one that does not take is an error, not a hope."""
    commonplace.open(tmp_path / "team.db").close()
    real = apsw.Connection

    class Deaf(real):  # type: ignore[misc, valid-type]
        ignored = ""

        def pragma(self, name: str, value: Any = None, **more: Any) -> Any:
            if value is None:
                return super().pragma(name)
            return super().pragma(name, 0 if name == self.ignored else value, **more)

    for name in ("secure_delete", "synchronous"):
        Deaf.ignored = name
        monkeypatch.setattr(apsw, "Connection", Deaf)
        with pytest.raises(EngineUnavailable, match=name):
            commonplace.open(tmp_path / "team.db")
        monkeypatch.setattr(apsw, "Connection", real)
    commonplace.open(tmp_path / "team.db").close()


def _say_ids(pipe: Any) -> None:
    pipe.send([new_id()[19:] for _ in range(3)])
    pipe.close()


@pytest.mark.spec("1.1", "L4")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_process_makes_ids_of_its_own() -> None:
    """Random bytes that were fetched before the fork are used by neither child."""
    new_id()
    heard: list[list[str]] = []
    context = multiprocessing.get_context("fork")
    for _ in range(2):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_say_ids, args=(theirs,))
        child.start()
        heard.append(ours.recv())
        child.join()
    heard.append([new_id()[19:] for _ in range(3)])
    assert len({id for ids in heard for id in ids}) == 9
