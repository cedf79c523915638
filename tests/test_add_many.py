"""Remembering many entries in one call."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, Book, CommonplaceError, Denied


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as book:
        yield book


@pytest.mark.spec("3.11")
def test_many_entries_are_remembered_in_one_call(book: Book) -> None:
    ada = book.as_actor("ada")
    told: list[tuple[int, int]] = []
    entries: list[Any] = [
        "The bakery opens at six.",
        {"key": "rye.price", "value": 4, "tags": ["prices"], "metadata": {"currency": "EUR"}},
        {"text": "The oven was cleaned.", "kind": "episode", "occurred_at": datetime(2026, 3, 1, tzinfo=UTC)},
        {"text": "Spelt is out of season.", "valid_until": "2026-09-01T00:00:00+00:00"},
    ]
    kept = ada.memory.add_many(entries, progress=lambda done, total: told.append((done, total)))
    assert [result.outcome for result in kept] == ["stored"] * 4
    assert told == [(4, 4)]
    items = [ada.memory.get(result) for result in kept]
    assert [item.kind for item in items] == ["note", "fact", "episode", "note"]
    assert (items[1].tags, items[1].metadata) == (("prices",), {"currency": "EUR"})
    assert items[3].valid_until == datetime(2026, 9, 1, tzinfo=UTC)
    assert [item.id for item in ada.memory.list()] == [result.id for result in kept]
    assert ada.search("when does the bakery open")[0].id == kept[0].id


@pytest.mark.spec("3.11", "3.5")
def test_entries_are_judged_as_if_each_were_remembered_by_itself(book: Book) -> None:
    ben = book.as_actor("ben")
    ben.remember("The harbour ferry leaves from pier seven at noon on weekdays", shared=True)
    ben.remember(key="pier", value=7, shared=True)
    rng = random.Random(3)
    words = [
        "ferry",
        "harbour",
        "noon",
        "pier",
        "seven",
        "weekdays",
        "ticket",
        "sailor",
        "rope",
        "tide",
        "buoy",
    ]
    entries: list[Any] = [
        "The tide tables hang in the hall.",
        "The tide tables hang in the hall.",
        "The harbour ferry leaves from pier seven at noon on all weekdays",
        "The harbour ferry leaves from pier seven at noon on weekdays",
        {"key": "pier", "value": 8},
        {"key": "hall", "value": "north"},
        {"key": "hall", "value": "south"},
        {"key": "hall", "value": "south", "supersedes": True},
        {"text": "The key is AKIAIOSFODNN7EXAMPLE for the safe."},
        *(" ".join(rng.choices(words, k=5)) for _ in range(40)),
    ]

    def shape(results: list[Any]) -> list[Any]:
        reasons = [re.sub(r"[0-9a-f]{8}-[-0-9a-f]{27}", "ID", result.reason) for result in results]
        rest = [(result.outcome, result.redacted, result.held and result.held.why) for result in results]
        return list(zip(reasons, rest, strict=True))

    ada, eva = book.as_actor("ada"), book.as_actor("eva")
    together = ada.memory.add_many(entries)
    singly = [eva.remember(**({"text": entry} if isinstance(entry, str) else entry)) for entry in entries]
    assert shape(together) == shape(singly)
    assert {result.outcome for result in together} == {"stored", "merged", "flagged", "rejected"}


@pytest.mark.spec("3.11", "L4")
def test_an_entry_that_is_wrong_is_named_before_anything_is_written(book: Book) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"text": "x", "tag": "y"}, "entry 151: remember has no tag: it takes text, kind"),
        ({"kind": "rumour", "text": "x"}, "entry 151: there is no kind of item 'rumour'"),
        (7, "entry 151: 7 is neither a text nor a mapping"),
        ("", "entry 151: text is empty"),
        ({"text": "x", "valid_until": "soon"}, "entry 151: valid_until 'soon' is not a time"),
        ({"text": "x", "metadata": {"a": {"b": 1}}}, "entry 151: metadata field 'a'"),
        ({"text": "x", "pinned": "no"}, "entry 151: pinned"),
    ]
    for entry, message in wrong:
        entries = [*(f"Shelf number {n} holds box {n * 7}." for n in range(150)), entry]
        with pytest.raises(BadInput, match="nothing was kept") as refused:
            book.memory.add_many(entries)
        assert str(refused.value).startswith(message)
    with pytest.raises(BadInput, match="is not a list"):
        book.memory.add_many("one text")
    assert len(book.memory.list(status=None)) == 0
    assert book.memory.add_many([]) == []


@pytest.mark.spec("3.11", "L4")
def test_an_interruption_keeps_whole_hundreds_and_says_so(book: Book) -> None:
    entries: list[Any] = [
        {"text": f"Shelf {n} holds box {n * 7}.", "id": f"shelf-{n}", "override": "a list"}
        for n in range(250)
    ]
    entries[220] = {**entries[220], "links": [("related", "nowhere")]}
    with pytest.raises(CommonplaceError, match="entry 221: there is no item 'nowhere'") as refused:
        book.memory.add_many(entries)
    assert "200 of 250 entries are kept" in str(refused.value)
    assert len(book.memory.list(status=None)) == 200
    commits = {event.created_at for event in book.events()}
    assert len(commits) < 10  # one for each hundred, and the book's own

    def interrupt(done: int, _total: int) -> None:
        if done == 100:
            raise KeyboardInterrupt

    entries[220].pop("links")
    with pytest.raises(KeyboardInterrupt) as interrupted:
        book.memory.add_many(entries, progress=interrupt)
    assert "100 of 250" in str(getattr(interrupted.value, "__notes__", ""))
    again = book.memory.add_many(entries)
    assert [result.id for result in again] == [f"shelf-{n}" for n in range(250)]
    assert [item.id for item in book.memory.list(status=None)] == [result.id for result in again]


@pytest.mark.spec("3.9", "3.11")
def test_who_may_not_write_is_refused_once(book: Book) -> None:
    book.access.grant("guest", tiers={"long_term": "read"})
    guest = book.as_actor("guest")
    with pytest.raises(Denied):
        guest.memory.add_many(["The bakery opens at six.", "It closes at two."])
    assert len(book.memory.list(status=None)) == 0
    assert len([entry for entry in book.access.audit() if "guest" in str(entry)]) >= 1
