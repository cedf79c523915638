"""What happened to one item: who changed what, when and why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import Book, NotFound


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as book:
        yield book


@pytest.mark.spec("3.11")
def test_the_history_of_an_item_tells_every_change(book: Book) -> None:
    ada = book.as_actor("ada")
    kept = ada.remember("Rye costs four euros.", tags=["prices"])
    ada.memory.revise(kept, text="Rye costs five euros.", metadata={"till": 2}, why="the new list")
    before = book.head
    ada.memory.share(kept, why="the team asks")
    book.memory.verify(kept)
    book.memory.revise(kept, tags=["bread"])
    book.access.relabel(str(kept.id), sensitivity="public", reason="it hangs in the window")
    newer = ada.remember("Rye costs six euros since May.", supersedes=kept)
    changes = ada.memory.history(kept)
    assert [(change.act, change.by) for change in changes] == [
        ("created", "ada"), ("revised", "ada"), ("shared", "ada"), ("verified", "owner"), ("revised", "owner"),
        ("relabelled", "owner"), ("superseded", "ada"),
    ]  # fmt: skip
    assert [(field.field, field.before, field.after) for field in changes[1].fields] == [
        ("metadata", None, {"till": 2}),
        ("text", "Rye costs four euros.", "Rye costs five euros."),
    ]
    assert (changes[1].why, changes[2].why, changes[6].other) == ("the new list", "the team asks", newer.id)
    assert [change.position for change in changes] == sorted(change.position for change in changes)
    assert str(changes[1]).endswith(
        "ada: revised: metadata nothing → '{\"till\": 2}'; text 'Rye costs four euros.' → 'Rye costs five euros.' "
        "(because the new list)"
    )
    assert str(changes[2]).endswith("ada: shared: shared no → yes (because the team asks)")
    assert [change.act for change in ada.memory.history(kept, at=before)] == ["created", "revised"]
    ada.forget(newer.id, confirm="FORGET", reason="a slip")
    ada.memory.restore(str(newer.id))
    assert [change.act for change in ada.memory.history(str(newer.id))] == [
        "created",
        "forgotten",
        "restored",
    ]


@pytest.mark.spec("3.11", "L7")
def test_a_history_shows_nothing_that_its_reader_could_not_see(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    kept = ada.remember("The safe is behind the flour.")
    ada.memory.revise(kept, text="The safe is in the office.")
    with pytest.raises(NotFound):
        ben.memory.history(kept)
    ada.memory.share(kept)
    assert [change.act for change in ben.memory.history(kept)] == ["shared"]
    assert "flour" not in str(ben.memory.history(kept))
    secret = ada.remember("The key is AKIAIOSFODNN7EXAMPLE for the safe.", sensitivity="private")
    ada.memory.revise(secret, text="The key is AKIAIOSFODNN7EXAMPLF for the safe.")
    assert "AKIA" not in str(ada.memory.history(secret))

    limit = ada.remember(key="room.limit", value=60, shared=True)
    rival = ben.remember(key="room.limit", value=90)
    assert [change.act for change in ben.memory.history(limit)] == ["created", "disputed"]
    assert [change.act for change in ada.memory.history(limit)] == ["created"]
    assert str(rival.id) not in str(ada.memory.history(limit))


@pytest.mark.spec("3.11", "L10")
def test_of_what_was_erased_only_that_is_told(book: Book) -> None:
    ada, ben = book.as_actor("ada"), book.as_actor("ben")
    kept = ada.remember("Alice is allergic to peanuts.", shared=True, metadata={"who": "alice"})
    ada.memory.revise(kept, text="Alice is allergic to peanuts and rye.")
    ada.forget(kept.id, erase=True, confirm="FORGET", reason="she asked")
    for reader in (ada, book):
        (change,) = reader.memory.history(kept)
        assert (change.act, change.fields) == ("erased", ())
        assert "peanuts" not in str(change)
    with pytest.raises(NotFound):
        ben.memory.history(kept)


@pytest.mark.spec("3.11", "L10")
def test_a_history_goes_on_when_the_reason_of_a_change_was_erased(book: Book) -> None:
    kept = book.remember("The safe is behind the flour.")
    relabelled = book.access.relabel(str(kept.id), sensitivity="sensitive", reason="Alice asked for it")
    book.erase(relabelled.id)
    changes = book.memory.history(kept)
    assert [(change.act, change.why) for change in changes] == [("created", ""), ("relabelled", "")]
    assert "Alice" not in str(changes)
