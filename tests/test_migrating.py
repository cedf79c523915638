"""Migration is replay: another index beside the one in use, compared on what was asked before, then switched to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import commonplace
from commonplace import Book, NotEnabled
from commonplace.errors import BadInput


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url) as opened:
        ada = opened.as_actor("ada")
        ada.remember("Cats like to sleep on warm keyboards")
        ada.remember("The harbour freezes in January", shared=True)
        opened.as_actor("ben").remember("The ferry does not run in winter")
        ada.digest("where do kittens nap")
        opened.as_actor("ben").digest("ice in the port")
        yield opened


@pytest.mark.spec("4.13")
def test_an_index_is_built_beside_compared_and_thrown_away_or_switched_to(book: Book, book_url: str) -> None:
    before = book._session.services.index.fingerprint
    tried = book.admin.migrate_index("minilm")
    assert (tried.before, tried.switched) == (before, False)
    assert "MiniLM" in tried.after
    assert {(one.actor, one.query) for one in tried.compared} == {
        ("ada", "where do kittens nap"),
        ("ben", "ice in the port"),
    }
    theirs = {one.actor: one for one in tried.compared}
    cats = book.memory.list()[0].id
    assert theirs["ada"].after[0] == cats
    assert cats not in (*theirs["ben"].before, *theirs["ben"].after), "each under the rights of whoever asked"
    assert book.memory.settings().embedder == "static"
    assert book._session.services.index.fingerprint == before
    place = book._session.services.index.place
    assert place is None or not [one for one in place.parent.iterdir() if ".next" in one.name]
    if book_url == "memory:":
        assert book.admin.migrate_index("minilm", queries=["kittens"], switch=True).switched
        book.search("kittens nap")
        assert book._session.services.index.fingerprint == tried.after
        return
    with commonplace.open(book_url) as other:
        assert other.search("kittens nap").results
        done = book.admin.migrate_index("minilm", queries=["kittens nap"], switch=True)
        assert [one.query for one in done.compared] == ["kittens nap"]
        other.search("kittens nap")
        assert other._session.services.index.fingerprint == tried.after, "every process has switched"
        assert other._session.services.index.open().rebuilt == "", "to the one that was built"
        assert place is not None
        assert not [one for one in place.parent.iterdir() if ".next" in one.name]
    assert book.memory.settings().embedder == "minilm"
    assert book.search("kittens nap").results[0].id == cats


@pytest.mark.spec("4.13")
def test_what_cannot_be_had_changes_nothing(book: Book) -> None:
    before = book.head
    with pytest.raises(NotEnabled, match="stays as it is"):
        book.admin.migrate_index("openai:nothing@http://127.0.0.1:1/v1", switch=True)
    with pytest.raises(BadInput, match="no embedder"):
        book.admin.migrate_index("magic")
    assert book.memory.settings().embedder == "static"
    assert book.head == before
    assert book.search("harbour").results
