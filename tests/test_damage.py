"""Damaged rows and pages: told as damage, by every read that meets them; never taken for "nothing was said"."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

import commonplace
from commonplace import Book, Corrupt
from commonplace.engines.contract import Row, WriteSet
from commonplace.ledger.views import write_row
from tests.shells import Cli


def change_row(book: Book, view: str, key: bytes, change: object) -> None:
    """Write a row beside all rules: as it is after damage that its checksum does not show, or with `change` as its
    bytes."""
    ledger = book.ledger
    space = ledger.meta.space(ledger.registry.view(view))
    with ledger.store.begin() as tx:
        row = tx.get(space, [key])[key]
        new = Row(space, key, row.position, change) if isinstance(change, bytes) else None
        tx.apply(WriteSet(rows=[new or write_row(space, key, row.position, change)]))


def key_of(*parts: str) -> bytes:
    from commonplace.ledger.keys import pack

    return pack(parts)


@pytest.fixture
def guarded(book: Book) -> Book:
    book.record("world.noted", actor="ben", id="secret", payload={}, labels={"sensitivity": "sensitive"})
    book.access.grant("ada", ceiling="sensitive", sees=["*"])
    book.access.grant("ada", ceiling="public", tiers={"long_term": "none"})
    return book


@pytest.mark.spec("L5", "3.9")
def test_a_rule_whose_bytes_have_changed_is_corrupt_and_a_rebuild_mends_it(guarded: Book) -> None:
    ada = guarded.as_actor("ada")
    before = ada.access.rights()
    change_row(guarded, "rights", key_of("actor:ada"), b"\0\0\0\0" + b'{"ceiling":"sensitive","sees":["*"]}')
    for read in (ada.access.rights, lambda: list(ada.events()), lambda: ada.remember("tea is at four")):
        with pytest.raises(
            Corrupt, match=r"'actor:ada' of the view 'rights' is damaged: run `commonplace book rebuild`"
        ):
            read()
    verified = guarded.verify()
    assert (verified.ok, verified.first_bad) == (False, None)
    assert "actor:ada" in str(verified.problem)
    assert "actor:ada" in str(guarded.admin.status().damage)
    if guarded.admin.facts.views == "stored":
        guarded.rebuild()
        assert ada.access.rights() == before
        assert guarded.admin.status().damage is None


@pytest.mark.spec("L5", "3.9")
@pytest.mark.parametrize("rule", [{"ceiling": "qublic"}, {"tiers": {"long_term": "nome"}}, {"sees": "*"}, []])
def test_a_rule_with_a_value_that_does_not_exist_is_no_rule_that_allows_more(
    guarded: Book, rule: object
) -> None:
    """Its checksum holds: a bug or another library wrote it."""
    change_row(guarded, "rights", key_of("actor:ada"), rule)
    ada = guarded.as_actor("ada")
    with pytest.raises(Corrupt, match="actor:ada"):
        ada.access.rights()
    with pytest.raises(Corrupt, match="actor:ada"):
        ada.event("secret")


@pytest.mark.spec("L5", "3.9")
def test_memory_settings_that_cannot_be_read_are_no_defaults(book: Book) -> None:
    book.memory.configure(secrets="reject")
    change_row(book, "memory.settings", key_of(""), {"secrets": "rejext"})
    with pytest.raises(Corrupt, match=r"memory\.settings"):
        book.memory.settings()
    with pytest.raises(Corrupt, match=r"memory\.settings"):
        book.remember("the password is hunter2-hunter2")


@pytest.mark.spec("L5", "1.3")
def test_a_column_of_another_type_is_corrupt(tmp_path: Path) -> None:
    """A flipped bit in a record's header makes a number of what was bytes."""
    path = tmp_path / "book.db"
    with commonplace.open(path) as book:
        book.access.grant("ada", ceiling="public")
    with closing(apsw.Connection(str(path))) as file:
        file.execute("PRAGMA ignore_check_constraints = 1")
        file.execute("PRAGMA writable_schema = 1")
        file.execute("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT, ', '') WHERE name = 'rows'")
    with closing(apsw.Connection(str(path))) as file:
        file.execute("UPDATE rows SET value = 7 WHERE space LIKE 'rights/%'")
    with commonplace.open(path) as book, pytest.raises(Corrupt, match="actor:ada"):
        book.as_actor("ada").access.rights()


@pytest.mark.spec("L5", "1.3", "3.9")
def test_a_flipped_key_does_not_make_a_rule_unfindable(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "book.db"
    with commonplace.open(path) as book:
        book.access.grant("ada", ceiling="public", tiers={"long_term": "none"})
        book.record("agent.spoke", actor="ben", payload={"text": "hello"})
    content = path.read_bytes()
    at = content.rindex(b"actor:ada")
    path.write_bytes(content[:at] + b"actor:adb" + content[at + 9 :])
    with commonplace.open(path) as book:
        with pytest.raises(Corrupt, match="does not match its checksum"):
            book.as_actor("ada").access.rights()
        assert "damaged" in str(book.verify().problem)
    assert "commonplace book copy" in cli("book", "verify", "--book", path).out.replace("\n", " ")
    assert cli("doctor", "--book", path).code == 1
    cli("book", "copy", path, tmp_path / "copy.db")
    with commonplace.open(tmp_path / "copy.db") as book:
        assert book.as_actor("ada").access.rights().ceiling == "public"
        assert book.verify().ok


@pytest.mark.spec("L5", "1.3")
def test_backups_and_purged_books_have_checksums_too(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        book.record("agent.spoke", id="one", payload={"text": "hello"})
        book.erase("one")
        book.purge()
        book.admin.backup(tmp_path / "backup.db")
    for path in (tmp_path / "book.db", tmp_path / "backup.db"):
        content = path.read_bytes()
        size = int.from_bytes(content[16:18])
        assert content[20] == 8
        with closing(apsw.Connection(":memory:")) as connection:
            pages = [content[at : at + size] for at in range(0, len(content), size)]
            assert all(connection.execute("SELECT verify_checksum(?)", (page,)).get for page in pages)


@pytest.mark.spec("1.4", "L10")
def test_a_book_larger_than_a_cache_is_backed_up_purged_and_read_whole(tmp_path: Path) -> None:
    """SQLite writes pages before it is done once they do not fit into its cache: each of them has its checksum."""
    with commonplace.open(tmp_path / "team.db") as book:
        for _ in range(20):
            batch = [
                {"kind": "agent.spoke", "actor": "ada", "payload": {"text": "x" * 2_000}} for _ in range(200)
            ]
            last = book.record_all(batch)[-1]
        assert book.admin.backup(tmp_path / "copy.db") == 4_000
        book.erase(last.id, reason="a customer's")
        assert book.purge().purged
    for name in ("team.db", "copy.db"):
        with commonplace.open(tmp_path / name, create=False) as book:
            assert book.verify().ok
            assert book.head >= 4_000
        with closing(apsw.Connection(str(tmp_path / name))) as file:
            assert file.execute("PRAGMA integrity_check").get == "ok"
