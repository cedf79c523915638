"""Names: two that look the same are the same name, and what cannot be seen is in none."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput

HIDDEN = {
    "a zero-width space": "bob\u200b",
    "a joiner": "bo\u200db",
    "a soft hyphen": "bo\u00adb",
    "a byte order mark": "\ufeffbob",
    "an override of direction": "bob\u202e",
    "an isolate": "\u2066bob\u2069",
    "a tag character": "bob\U000e0041",
    "a variation selector": "bob\ufe0f",
    "a Hangul filler": "bob\u3164",
    "a blank of Braille": "bob\u2800",
    "a control character": "bo\x07b",
    "an escape": "\x1b[31mbob",
    "a line": "bob\n",
    "a line separator": "bo\u2028b",
    "a no-break space": "bob\u00a0smith",
    "a space at the end": "bob ",
    "a space at the beginning": " bob",
    "a private character": "bob\ue000",
    "no character": "bob\u0378",
    "an emoji of several parts": "👩\u200d🔬",
}

WAYS: dict[str, Callable[[Book, str], Any]] = {
    "the actor of an event": lambda book, name: book.record("agent.spoke", actor=name),
    "an event's id": lambda book, name: book.record("agent.spoke", id=name),
    "a run": lambda book, name: book.record("agent.spoke", run_id=name),
    "a session": lambda book, name: book.record("agent.spoke", session_id=name),
    "a parent": lambda book, name: book.record("agent.spoke", parents=[name]),
    "a label": lambda book, name: book.record("agent.spoke", labels={"note": name}),
    "a batch": lambda book, name: book.record_all([{"kind": "agent.spoke", "actor": name}]),
    "an actor": lambda book, name: book.as_actor(name),
    "whom a rule is about": lambda book, name: book.access.grant(name, role="developer"),
    "an actor in a rule": lambda book, name: book.access.grant(f"actor:{name}", role="developer"),
    "a run to open": lambda book, name: book.run(run_id=name),
    "a field to start with": lambda book, name: book.run(run_id="r", initial={name: 1}),
    "an agent in a run": lambda book, name: book.run(run_id="r").agent(name),
    "a field of a run": lambda book, name: book.run(run_id="r").agent("ada").write({name: 1}),
    "a tag": lambda book, name: book.remember("Tea is served at four.", tags=[name]),
    "a key": lambda book, name: book.remember(key=name, value=1),
    "an item's id": lambda book, name: book.remember("Tea is served at four.", id=name),
    "the run of an item": lambda book, name: book.remember("Tea is served at four.", run_id=name),
    "a relation": lambda book, name: book.memory.link(
        book.memory.list()[0].id, name, book.memory.list()[0].id
    ),
    "a core": lambda book, name: book.memory.set_core(name, type="pattern"),
    "a channel": lambda book, name: book.remember("Tea is served.", provenance={"channel": name}),
    "a work": lambda book, name: book.work(name="it", id=name),
    "a task": lambda book, name: book.work(name="it", id="w").add_task("do it", id=name),
    "an agent of a task": lambda book, name: book.work(name="it", id="w").add_task("do it", assigned_to=name),
    "who claims": lambda book, name: book.work(name="it", id="w").claim(name),
    "a member": lambda book, name: book.work(name="it", id="w", members=[name]),
    "a node": lambda book, name: book.run(run_id="r").step(name, "started"),
}


@pytest.fixture
def one() -> Any:
    with commonplace.open("memory:") as book:
        book.remember(key="a", value="b")
        yield book


@pytest.mark.spec("1.1", "3.11")
@pytest.mark.parametrize("way", WAYS)
def test_no_name_holds_what_cannot_be_seen(one: Book, way: str) -> None:
    for what, name in HIDDEN.items():
        if way == "a tag" and name.strip(" ") == "bob":
            continue  # the spaces around a tag are left out
        before = one.head
        with pytest.raises(BadInput) as refused:
            WAYS[way](one, name)
        assert one.head <= before + 2, what  # the run, work or core around it
        assert str(refused.value).isprintable(), what


@pytest.mark.spec("1.1")
def test_the_refusal_shows_the_name_and_says_what_to_do(one: Book) -> None:
    with pytest.raises(BadInput, match=r"actor 'bob\\u200b' is not a name: U\+200B .* Leave it out"):
        one.as_actor("bob\u200b")
    with pytest.raises(BadInput, match="space at its beginning or end"):
        one.as_actor("bob ")


@pytest.mark.spec("1.1", "3.11")
def test_two_forms_of_one_name_are_one_name(one: Book) -> None:
    composed, apart = (unicodedata.normalize(form, "josé") for form in ("NFC", "NFD"))
    event = one.record("agent.spoke", actor=apart, run_id=apart, id=apart)
    assert (event.actor, event.run_id, event.id) == (composed,) * 3
    for name in (composed, apart):
        assert [found.id for found in one.events(actor=name)] == [composed]
        assert [found.id for found in one.events(run_id=name)] == [composed]
        assert one.event(name) == event
    one.access.grant(apart, role="librarian")
    assert (
        one.as_actor(composed).access.rights().role == one.as_actor(apart).access.rights().role == "librarian"
    )
    kept = one.as_actor(apart).remember("Tea is served at four.", tags=[apart])
    assert [item.id for item in one.as_actor(composed).memory.list(tags=[apart], agent=apart)] == [
        kept.item_id
    ]
    assert one.as_actor(composed).name == one.as_actor(apart).name == composed
    work = one.work(name="it", id=apart)
    work.add_task("do it", id=apart, assigned_to=apart)
    assert one.work(composed).ready(apart)[0].assigned_to == composed
    turn = one.run(run_id=apart).agent(apart)
    turn.write({apart: 1})
    assert one.run(run_id=composed).agent(composed).agent == composed
    with pytest.raises(BadInput, match="the same name"):
        turn.write({apart: 1, composed: 2})


@pytest.mark.spec("1.1")
def test_names_that_can_be_told_apart_stay_apart(one: Book) -> None:
    names = ["bob", "Bob", "ｂｏｂ", "bоb", "b b", "b  b", "ßob", "🦉", "日本"]
    for name in names:
        one.record("agent.spoke", actor=name, id=name)
    assert [[event.id for event in one.events(actor=name)] for name in names] == [[name] for name in names]


@pytest.mark.spec("1.4")
def test_a_copy_keeps_what_is_there_and_a_file_brings_no_hidden_name(tmp_path: Path, one: Book) -> None:
    one.record("agent.spoke", actor="bob", id="mine")
    there = tmp_path / "book.jsonl"
    one.admin.export(there)
    there.write_text(there.read_text().replace('"bob"', '"bob\\u200b"'))
    with commonplace.open("memory:other") as other, pytest.raises(BadInput, match="200B"):
        other.admin.import_(there)
