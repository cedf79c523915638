"""Every obligation of the engines' contract, as tests; the package's docstring shows how to run them.

The order follows the contract: the edges of each call first, then the numbered obligations. A test's name
is the sentence it checks.
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import select
import signal
import statistics
import sys
import threading
import time
import unicodedata
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from ..engines.contract import (
    GENESIS,
    Engine,
    Head,
    Lease,
    Reads,
    Record,
    Row,
    Store,
    WriteConflict,
    WriteSet,
)
from ..errors import BookClosed, BookNotFound, Busy, CommonplaceError
from . import workers
from .workers import WHEN, MakeEngine, append, commit, record

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds after which something that should happen at once counts as never happening."""

SPAWN = multiprocessing.get_context("spawn")

EVERY_BYTE = bytes(range(256))

BOTH_FORMS = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
"""One letter that looks the same in two spellings, which nobody may take for one."""

HOSTILE_KEYS = sorted(
    {
        b"",
        *(bytes([byte]) for byte in range(256)),
        b"a\x00",
        b"a\x00\x00",
        b"a\x00b",
        b"a\xff",
        b"a\xff\xff",
        b"ab",
        b"aB",
        b"a%",
        b"a_",
        b"a\\",
        b"\x00\x00",
        b"\xff\xff",
        b"\xff\x00",
        b"\xc3\x28",
        *(form.encode() for form in BOTH_FORMS),
        EVERY_BYTE,
        b"k" * 300,
    }
)

NAME_PAIRS = [
    pytest.param("@a_b", "@axb", id="underscore"),
    pytest.param("@a%", "@abc", id="percent"),
    pytest.param("@a*", "@ab", id="star"),
    pytest.param("@a?", "@ab", id="question-mark"),
    pytest.param("@[ab]", "@a", id="brackets"),
    pytest.param("@a", "@a.1", id="prefix-dot"),
    pytest.param("@a", "@a:1", id="prefix-colon"),
    pytest.param("@a", "@a/b", id="prefix-slash"),
    pytest.param("@a", "@aa", id="prefix"),
    pytest.param("@Case", "@case", id="case"),
    pytest.param("@ı", "@i", id="dotless-i"),
    pytest.param("@" + BOTH_FORMS[0], "@" + BOTH_FORMS[1], id="normal-forms"),
    pytest.param("@a", "@a ", id="trailing-space"),
    pytest.param("@a", " @a", id="leading-space"),
    pytest.param("@a b", "@a  b", id="inner-spaces"),
    pytest.param("@a\tb", "@a\nb", id="tab-newline"),
    pytest.param("@a/b", "@a\\b", id="slashes"),
    pytest.param("../@", "@", id="parent-folder"),
    pytest.param("@/..", "@/.", id="dots"),
    pytest.param("/@", "@", id="absolute"),
    pytest.param("@'; DROP TABLE books; --", "@'", id="quote"),
    pytest.param('@"', "@`", id="double-quote"),
    pytest.param("{@}a", "{@}b", id="braces"),
    pytest.param("@{a}", "@}a{", id="braces-inside"),
    pytest.param("@{}", "@", id="empty-braces"),
    pytest.param("@🦉", "@🦊", id="emoji"),
    pytest.param("@?book=x", "@&book=x", id="url"),
    pytest.param("@%2e", "@.", id="percent-encoded"),
    pytest.param("@" + "n" * 159 + "a", "@" + "n" * 159 + "b", id="long"),
    pytest.param("@" + "🦉" * 159 + "a", "@" + "🦉" * 159 + "b", id="long-emoji"),
]
"""Two names each that a careless engine takes for one; @ stands for something unique."""


class Shelf:
    """Opens handles on one place, each with an engine of its own, and closes whatever is still open."""

    def __init__(self, make_engine: MakeEngine, book: str) -> None:
        self.make_engine = make_engine
        self.book = book
        self.names = {book}
        self._engines: list[Engine] = []
        self._stores: list[Store] = []

    def engine(self) -> Engine:
        engine = self.make_engine()
        self._engines.append(engine)
        return engine

    def open(self, book: str | None = None, create: bool = True) -> Store:
        """One more handle, as independent of the others as one in another process."""
        name = self.book if book is None else book
        self.names.add(name)
        store = self.engine().open(name, create)
        self._stores.append(store)
        return store

    def close(self) -> None:
        """Close every handle; what is opened later starts from what the place has kept."""
        for store in self._stores:
            store.close()
        for engine in self._engines:
            engine.close()
        self._stores.clear()
        self._engines.clear()

    def clear(self) -> None:
        """Close everything and remove every book that was opened here."""
        self.close()
        engine = self.make_engine()
        for name in self.names:
            engine.drop(name)
        engine.close()


class Background(threading.Thread):
    """A call in another thread; `result` waits for it, and raises what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:  # noqa: BLE001  raised again where the result is asked for
            self._error = error

    def result(self, patience: float = PATIENCE) -> Any:
        self.join(patience)
        assert not self.is_alive(), f"still not done after {patience:g} s"
        if self._error is not None:
            raise self._error
        return self._value


def everything(reads: Reads, spaces: tuple[str, ...] = ("s", "t")) -> tuple[object, ...]:
    """All that a snapshot shows, to compare two of them."""
    head = reads.head
    return (
        head,
        reads.records(0, head.position, 10_000),
        *(list(reads.versions(space)) for space in spaces),
        *(reads.scan(space) for space in spaces),
    )


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class EngineConformance:
    """Subclass this, override `make_engine`, and pytest does the rest."""

    many_books: ClassVar[bool] = True
    many_processes: ClassVar[bool] = True

    @pytest.fixture
    def make_engine(self) -> MakeEngine:
        """A picklable callable that opens an engine on the same place each time; a fresh place per test, or
        one that holds many books."""
        pytest.fail("override the fixture make_engine in your subclass")

    @pytest.fixture
    def data_dir(self) -> Path | None:
        """The folder where the place keeps its files, so that raw bytes can be looked for; None: nowhere."""
        return None

    @pytest.fixture
    def token(self) -> str:
        return uuid.uuid4().hex[:12]

    @pytest.fixture
    def book(self, token: str) -> str:
        """The book's name; override it where the place decides (`many_books = False`)."""
        return f"book-{token}"

    @pytest.fixture
    def shelf(self, make_engine: MakeEngine, book: str) -> Iterator[Shelf]:
        shelf = Shelf(make_engine, book)
        yield shelf
        shelf.clear()

    @pytest.fixture
    def store(self, shelf: Shelf) -> Store:
        return shelf.open()

    # Opening, listing, dropping and closing

    def test_a_new_book_has_an_empty_head(self, store: Store) -> None:
        with store.read() as reads:
            assert reads.head == Head(0, GENESIS, 0, b"")
            assert reads.folded == 0
            assert reads.records(0, 100, 100) == []
        with store.begin() as tx:
            assert tx.head == Head(0, GENESIS, 0, b"")

    def test_opening_a_book_that_does_not_exist_needs_create(self, shelf: Shelf) -> None:
        engine = shelf.engine()
        for _ in range(2):
            with pytest.raises(BookNotFound):
                engine.open(shelf.book, create=False)
        assert shelf.book not in engine.books()

    def test_opening_a_book_again_finds_what_was_written(self, shelf: Shelf) -> None:
        written = append(shelf.open(), ["one", "two"])
        commit(shelf.open(), lambda head: WriteSet(meta=b"meta", blobs={digest(b"blob"): b"blob"}))
        shelf.close()
        for create in (False, True):
            with shelf.open(create=create).read() as reads:
                assert reads.records(0, 10, 10) == written
                assert reads.head == Head(2, written[1].hash, written[1].created_at, b"meta")
                assert reads.blob(digest(b"blob")) == b"blob"
            shelf.close()

    def test_rows_survive_reopening_or_the_store_says_that_they_must_be_folded_again(
        self, shelf: Shelf
    ) -> None:
        rows = [Row("s", b"k", 1, b"old"), Row("s", b"k", 2, b"new"), Row("s", b"gone", 2, None)]
        store = shelf.open()
        commit(store, lambda head: WriteSet(records=[record(1), record(2)], rows=list(rows)))
        with store.read() as reads:
            assert reads.folded == 2
        shelf.close()
        store = shelf.open(create=False)
        with store.read() as reads:
            folded, stored = reads.folded, list(reads.versions("s"))
        if store.facts.views == "stored":
            assert folded == 2
            assert stored == [rows[2], rows[0], rows[1]]
        else:
            assert stored == [row for row in (rows[2], rows[0], rows[1]) if row.position <= folded]
            missing = [row for row in rows if row.position > folded]
            commit(store, lambda head: WriteSet(rows=missing, folded=head.position))
            with store.read() as reads:
                assert reads.folded == 2
                assert list(reads.versions("s")) == [rows[2], rows[0], rows[1]]

    def test_books_lists_the_books_in_order(self, shelf: Shelf, token: str) -> None:
        names = [f"{token}-{n}" for n in ("b", "a", "c")] if self.many_books else [shelf.book]
        for name in names:
            append(shelf.open(name), ["one"])
        listed = shelf.engine().books()
        assert listed == sorted(listed)
        if self.many_books:
            assert [name for name in listed if token in name] == sorted(names)
        else:
            assert listed == names

    def test_a_dropped_book_is_gone_and_a_new_one_of_that_name_knows_nothing_of_it(
        self, shelf: Shelf
    ) -> None:
        store = shelf.open()
        commit(
            store,
            lambda head: WriteSet(
                records=[record(1, run="r")],
                rows=[Row("s", b"k", 1, b"v")],
                blobs={digest(b"blob"): b"blob"},
                leases=[Lease("lease", "me", 1, 3600.0)],
                meta=b"meta",
            ),
        )
        shelf.close()
        engine = shelf.engine()
        engine.drop(shelf.book)
        assert shelf.book not in engine.books()
        with pytest.raises(BookNotFound):
            engine.open(shelf.book, create=False)
        with shelf.open().read() as reads:
            assert reads.head == Head()
            assert reads.records(0, 10, 10) == []
            assert reads.records(0, 10, 10, run="r") == []
            assert reads.by_id(["id-1"]) == {}
            assert reads.scan("s") == []
            assert list(reads.versions("s")) == []
            assert reads.get("s", [b"k"]) == {}
            assert reads.blob(digest(b"blob")) is None
            assert reads.leases(["lease"]) == {}

    def test_dropping_a_book_that_does_not_exist_changes_nothing(self, shelf: Shelf, token: str) -> None:
        engine = shelf.engine()
        engine.drop(shelf.book)
        assert shelf.book not in engine.books()
        append(shelf.open(), ["one"])
        shelf.close()
        engine = shelf.engine()
        for unknown in (f"{token}-unknown", shelf.book[:-1], shelf.book + "x", shelf.book.upper()):
            engine.drop(unknown)
        assert shelf.book in engine.books()
        with shelf.open(create=False).read() as reads:
            assert reads.head.position == 1

    def test_a_closed_store_refuses_everything_but_another_close(self, shelf: Shelf) -> None:
        store = shelf.open()
        append(store, ["one"])
        store.close()
        store.close()
        for name, call in calls(store).items():
            assert attempt(call) == "BookClosed", name

    def test_closing_one_handle_leaves_the_others_open(self, shelf: Shelf) -> None:
        first, second = shelf.open(), shelf.open()
        append(first, ["one"])
        first.close()
        assert [each.position for each in append(second, ["two"])] == [2]

    def test_the_facts_say_what_the_engine_promises(self, store: Store) -> None:
        facts = store.facts
        assert facts.engine
        assert facts.durable in ("proven", "configured", "no")
        assert facts.durable_why or facts.durable == "proven"
        assert facts.hosts in ("one", "many")
        assert facts.views in ("stored", "memory")
        assert facts.purge in ("immediate", "deferred", "operator")
        assert facts.purge_why or facts.purge == "immediate"

    # Records

    def test_a_record_comes_back_byte_for_byte(self, shelf: Shelf) -> None:
        hashed = hashlib.sha256(b"x").digest()
        written = [
            Record(1, "plain", None, 0, b"", GENESIS, b""),
            Record(2, "every byte", "run", WHEN, EVERY_BYTE, hashed, EVERY_BYTE),
            Record(3, "'quoted\" \\ {} % _ * \n\t\u2028", "'; --", WHEN, b"\x00", b"\x00" * 32, b"\x00\x00"),
            Record(4, "é🦉" * 100, "é🦉" * 100, WHEN, b"\r\n", b"\xff" * 32, b"\xff\r\n\x1a"),
            Record(5, "erased from the start", "run", WHEN, b"h", hashed, None),
        ]
        commit(shelf.open(), lambda head: WriteSet(records=list(written)))
        shelf.close()
        with shelf.open().read() as reads:
            assert reads.records(0, 5, 10) == written
            assert reads.by_id([each.id for each in written]) == {each.id: each for each in written}
            assert reads.records(0, 5, 10, run="'; --") == [written[2]]
            assert reads.records(0, 5, 10, run="é🦉" * 100) == [written[3]]
            assert reads.head == Head(5, hashed, WHEN, b"")

    @pytest.mark.parametrize("run", [None, "r"])
    def test_records_are_those_after_one_position_and_up_to_another(
        self, store: Store, run: str | None
    ) -> None:
        append(store, [f"e{n}" for n in range(1, 8)], run="r")
        with store.read() as reads:
            for after in range(-1, 10):
                for upto in range(-1, 10):
                    for limit in (0, 1, 3, 100):
                        expected = [p for p in range(1, 8) if after < p <= upto][:limit]
                        found = reads.records(after, upto, limit, run=run)
                        assert [each.position for each in found] == expected, (after, upto, limit)

    def test_records_of_one_run_leave_out_the_others(self, store: Store) -> None:
        runs = [None, "a", "b", "a", "", "a.b", None, "A", "a%", "a_", "a"]
        written = [record(p, run=run) for p, run in enumerate(runs, start=1)]
        commit(store, lambda head: WriteSet(records=written[:6]))
        commit(store, lambda head: WriteSet(records=written[6:]))
        with store.read() as reads:
            for run in ("a", "b", "", "a.b", "A", "a%", "a_"):
                assert reads.records(0, 100, 100, run=run) == [each for each in written if each.run == run]
            assert [each.position for each in reads.records(2, 10, 100, run="a")] == [4]
            assert [each.position for each in reads.records(0, 100, 2, run="a")] == [2, 4]
            assert reads.records(0, 100, 100, run="unknown") == []
            assert reads.records(0, 100, 100) == written

    def test_unknown_ids_are_left_out(self, store: Store) -> None:
        one, two = append(store, ["one", "two"])
        with store.read() as reads:
            assert reads.by_id([]) == {}
            assert reads.by_id(["unknown", "ONE", "on", "one "]) == {}
            assert reads.by_id(["two", "unknown", "one", "two"]) == {"one": one, "two": two}

    def test_any_number_of_ids_and_keys_may_be_asked_for_at_once(self, store: Store) -> None:
        commit(store, lambda head: WriteSet(records=[record(1)], rows=[Row("s", b"7", 1, b"v")]))
        with store.read() as reads:
            assert reads.by_id([*(f"unknown-{n}" for n in range(33_000)), "id-1"]) == {"id-1": record(1)}
            assert reads.get("s", [str(n).encode() for n in range(33_000)]) == {b"7": Row("s", b"7", 1, b"v")}

    def test_an_empty_write_set_changes_nothing(self, store: Store) -> None:
        append(store, ["one"])
        with store.read() as reads:
            before = everything(reads)
        commit(store, lambda head: WriteSet())
        with store.read() as reads:
            assert everything(reads) == before

    def test_a_body_of_eight_megabytes_comes_back(self, store: Store) -> None:
        body = (EVERY_BYTE * 4 + b"odd")[:1021] * (8 * 2**20 // 1021 + 1)
        append(store, ["large"], body=body)
        with store.read() as reads:
            [found] = reads.records(0, 1, 1)
        assert found.body == body

    def test_a_thousand_records_land_in_one_write_set(self, store: Store) -> None:
        written = [record(p, run=f"run-{p % 3}") for p in range(1, 1001)]
        rows = [Row("s", f"{p:04}".encode(), p, str(p).encode()) for p in range(1, 1001)]
        commit(store, lambda head: WriteSet(records=list(written), rows=list(rows)))
        with store.read() as reads:
            assert reads.head == Head(1000, written[-1].hash, written[-1].created_at, b"")
            assert reads.records(0, 1000, 10_000) == written
            assert reads.records(990, 1000, 5) == written[990:995]
            assert reads.scan("s") == rows
            assert len(reads.records(0, 1000, 10_000, run="run-1")) == 334

    def test_the_transaction_tells_the_engine_s_time_in_microseconds(self, store: Store) -> None:
        with store.begin() as tx:
            first = tx.now
        with store.begin() as tx:
            second = tx.now
        day = 86_400 * 1_000_000
        assert abs(first - time.time_ns() // 1000) < day
        assert 0 <= second - first < day

    # Meta and blobs

    def test_meta_stays_until_it_is_replaced(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        for given, expected in [
            (None, b""),
            (EVERY_BYTE, EVERY_BYTE),
            (None, EVERY_BYTE),
            (b"x" * 100_000, b"x" * 100_000),
            (b"", b""),
        ]:
            commit(store, lambda head, meta=given: WriteSet(meta=meta))  # type: ignore[misc]
            for handle in (store, other):
                with handle.read() as reads:
                    assert reads.head == Head(meta=expected)
        append(store, ["one"])
        commit(store, lambda head: WriteSet(meta=b"after"))
        with other.begin() as tx:
            assert (tx.head.position, tx.head.meta) == (1, b"after")

    def test_a_blob_is_kept_until_it_is_dropped(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        contents = [b"", EVERY_BYTE, b"x" * 3_000_000]
        kept = {digest(content): content for content in contents}
        commit(store, lambda head: WriteSet(blobs=dict(kept)))
        for _ in range(2):
            for handle in (store, other):
                with handle.read() as reads:
                    assert {key: reads.blob(key) for key in kept} == kept
                    assert reads.blob(digest(b"unknown")) is None
            commit(store, lambda head: WriteSet(blobs=dict(kept)))  # the same content again is no error
        commit(store, lambda head: WriteSet(blob_drops=[digest(EVERY_BYTE), digest(b"unknown")]))
        with other.read() as reads:
            assert reads.blob(digest(EVERY_BYTE)) is None
            assert reads.blob(digest(b"")) == b""
        commit(store, lambda head: WriteSet(blobs={digest(EVERY_BYTE): EVERY_BYTE}))
        with other.begin() as tx:
            assert tx.blob(digest(EVERY_BYTE)) == EVERY_BYTE

    # 5. Versions

    def test_get_and_scan_answer_with_the_last_version_at_or_below_at(self, store: Store) -> None:
        histories: dict[bytes, dict[int, bytes | None]] = {
            b"a": {2: b"a2", 4: b"a4", 6: b"a6"},
            b"b": {1: b"b1", 3: None, 5: b"b5"},
            b"c": {3: b"", 7: None},
            b"d": {7: b"d7"},
            b"e": {4: None},
        }
        for position in range(1, 8):
            rows = [
                Row("s", key, position, each[position]) for key, each in histories.items() if position in each
            ]
            commit(store, lambda head, rows=rows: WriteSet(records=[record(head.position + 1)], rows=rows))  # type: ignore[misc]
        with store.read() as reads:
            for at in (*range(10), None):
                expected = []
                for key, history in histories.items():
                    seen = [position for position in history if at is None or position <= at]
                    if seen and (value := history[max(seen)]) is not None:
                        expected.append(Row("s", key, max(seen), value))
                asked = [*histories, b"unknown"]
                assert reads.get("s", asked, at=at) == {row.key: row for row in expected}, at
                assert reads.scan("s", at=at) == expected, at
                assert reads.scan("s", at=at, reverse=True) == expected[::-1], at
            everything_written = [
                Row("s", key, position, value)
                for key, history in histories.items()
                for position, value in history.items()
            ]
            assert list(reads.versions("s")) == everything_written
            assert list(reads.versions("s", b"b", b"d")) == [
                row for row in everything_written if b"b" <= row.key < b"d"
            ]
            assert reads.get("s", []) == {}

    def test_spaces_do_not_meet(self, store: Store) -> None:
        spaces = ["s", "S", "s.1", "s:1", "s%", "s_", "s{}", "", "s\n", *BOTH_FORMS]
        rows = [Row(space, b"k", 1, space.encode()) for space in spaces]
        commit(store, lambda head: WriteSet(records=[record(1)], rows=list(rows)))
        with store.read() as reads:
            for row in rows:
                assert reads.scan(row.space) == [row]
                assert reads.get(row.space, [b"k"]) == {b"k": row}
                assert list(reads.versions(row.space)) == [row]
            assert reads.scan("unknown") == []
            assert reads.get("unknown", [b"k"]) == {}
            assert list(reads.versions("unknown")) == []

    def test_rows_of_several_spaces_are_read_at_once(self, store: Store) -> None:
        spaces = ["s", "S", "s\n", *BOTH_FORMS]
        for n in (1, 2):
            rows = [Row(space, key, n, b"%d" % n) for space in spaces for key in (b"a", b"\0")]
            commit(store, lambda head, n=n, rows=rows: WriteSet(records=[record(n)], rows=rows))  # type: ignore[misc]
        commit(store, lambda head: WriteSet(records=[record(3)], rows=[Row("S", b"a", 3, None)]))
        newest = {(row.space, row.key): row for row in rows if (row.space, row.key) != ("S", b"a")}
        with store.read() as reads:
            assert reads.get_all([("S", b"a"), ("unknown", b"a"), ("s", b"b"), *newest]) == newest
            assert reads.get_all([]) == {}
            assert reads.get_all([("s", b"a"), ("s", b"b")], at=0) == {}

    def test_keys_order_by_bytes(self, store: Store) -> None:
        rows = [Row("s", key, 1, b"value of " + key) for key in HOSTILE_KEYS]
        commit(store, lambda head: WriteSet(records=[record(1)], rows=rows[::-1]))
        with store.read() as reads:
            assert reads.scan("s") == rows
            assert reads.scan("s", reverse=True) == rows[::-1]
            assert list(reads.versions("s")) == rows
            assert reads.get("s", HOSTILE_KEYS) == {row.key: row for row in rows}
            for start in (b"", b"\x00", b"a", b"a\x00", b"a\xff", b"\xfe\xff", b"\xff", b"\xff\xff\xff"):
                for end in (None, b"", b"\x00", b"a\x00", b"a\x00\x00", b"b", b"\xff", b"\xff\xff"):
                    inside = [row for row in rows if row.key >= start and (end is None or row.key < end)]
                    assert reads.scan("s", start, end) == inside, (start, end)
                    assert reads.scan("s", start, end, at=1, reverse=True) == inside[::-1], (start, end)
                    assert reads.scan("s", start, end, limit=2) == inside[:2], (start, end)
                    assert reads.scan("s", start, end, limit=2, reverse=True) == inside[::-1][:2], (
                        start,
                        end,
                    )
                    assert list(reads.versions("s", start, end)) == inside, (start, end)

    def test_a_scan_s_limit_counts_the_rows_that_are_there(self, store: Store) -> None:
        keys = [f"k{n:02}".encode() for n in range(40)]
        commit(
            store,
            lambda head: WriteSet(
                records=[record(1), record(2), record(3)],
                rows=[
                    *(Row("s", key, 1, b"one") for key in keys),
                    *(Row("s", key, 2, None) for key in keys[:18]),
                    *(Row("s", key, 3, b"three") for key in keys[16:20]),
                ],
            ),
        )
        with store.read() as reads:
            for at, alive in ((1, keys), (2, keys[18:]), (3, keys[16:]), (None, keys[16:])):
                for limit in (0, 1, 2, 5, 21, 100, None):
                    cut = len(alive) if limit is None else limit
                    found = reads.scan("s", at=at, limit=limit)
                    assert [row.key for row in found] == alive[:cut], (at, limit)
                    found = reads.scan("s", at=at, limit=limit, reverse=True)
                    assert [row.key for row in found] == alive[::-1][:cut], (at, limit)
                for limit in range(len(alive) + 1):
                    found = reads.scan("s", b"k", b"l", at=at, limit=limit)
                    assert found == reads.scan("s", b"k", b"l", at=at)[:limit], (at, limit)
                    found = reads.scan("s", b"k", b"l", at=at, limit=limit, reverse=True)
                    assert found == reads.scan("s", b"k", b"l", at=at)[::-1][:limit], (at, limit)
            assert [row.key for row in reads.scan("s", b"k02", b"k20", limit=2)] == [b"k16", b"k17"]
            assert [row.key for row in reads.scan("s", b"k02", b"k18", limit=1, reverse=True)] == [b"k17"]

    def test_a_row_replaces_the_version_with_its_position(self, store: Store) -> None:
        rows = [Row("s", b"k", p, f"first {p}".encode()) for p in (1, 2, 3)]
        commit(store, lambda head: WriteSet(records=[record(p) for p in (1, 2, 3)], rows=list(rows)))
        commit(
            store, lambda head: WriteSet(rows=[Row("s", b"k", 2, b"again"), Row("t", b"k", 2, b"elsewhere")])
        )
        with store.read() as reads:
            assert reads.head.position == 3
            assert list(reads.versions("s")) == [rows[0], Row("s", b"k", 2, b"again"), rows[2]]
            assert reads.get("s", [b"k"], at=2) == {b"k": Row("s", b"k", 2, b"again")}
            assert reads.get("t", [b"k"]) == {b"k": Row("t", b"k", 2, b"elsewhere")}
        commit(store, lambda head: WriteSet(rows=[Row("s", b"k", 3, None), Row("s", b"k", 2, b"")]))
        with store.read() as reads:
            assert reads.scan("s") == []
            assert reads.scan("s", at=2) == [Row("s", b"k", 2, b"")]

    def test_where_a_version_stands_twice_the_later_entry_holds_and_a_drop_beats_both(
        self, store: Store
    ) -> None:
        rows = [
            Row("s", b"twice", 1, b"first"),
            Row("s", b"dropped", 1, b"first"),
            Row("s", b"twice", 1, b"second"),
            Row("s", b"gone", 1, b"first"),
            Row("s", b"gone", 1, None),
        ]
        commit(store, lambda head: WriteSet(records=[record(1)], rows=rows, drops=[("s", b"dropped", 1)]))
        with store.read() as reads:
            assert list(reads.versions("s")) == [Row("s", b"gone", 1, None), Row("s", b"twice", 1, b"second")]
            assert reads.scan("s") == [Row("s", b"twice", 1, b"second")]

    def test_a_row_at_position_0_without_a_value_is_removed(self, store: Store) -> None:
        keys = [b"a", b"b", b"c", b"d"]
        commit(
            store, lambda head: WriteSet(records=[record(1)], rows=[Row("s", key, 0, b"v") for key in keys])
        )
        changes = [
            Row("s", b"a", 0, None),
            Row("s", b"b", 0, None),
            Row("s", b"b", 0, b"back in the same write"),
            Row("s", b"c", 0, b"again"),
            Row("s", b"c", 0, None),
            Row("s", b"unknown", 0, None),
            Row("s", b"new", 0, b"new"),
            Row("t", b"d", 0, None),
        ]
        left = [
            Row("s", b"b", 0, b"back in the same write"),
            Row("s", b"d", 0, b"v"),
            Row("s", b"new", 0, b"new"),
        ]
        for position in (None, 2):  # with an event, and rows alone
            records = [] if position is None else [record(position)]
            commit(store, lambda head, records=records: WriteSet(records=records, rows=list(changes)))  # type: ignore[misc]
            with store.read() as reads:
                assert reads.get("s", [*keys, b"new"]) == {row.key: row for row in left}
                assert reads.scan("s") == reads.scan("s", at=0) == list(reads.versions("s")) == left
                assert [row.key for row in reads.scan("s", limit=1)] == [b"b"]
                assert list(reads.versions("t")) == []
        commit(
            store,
            lambda head: WriteSet(
                rows=[Row("s", b"a", 0, b"back"), *(row._replace(value=None) for row in left)]
            ),
        )
        with store.read() as reads:
            assert list(reads.versions("s")) == [Row("s", b"a", 0, b"back")]

    def test_a_row_may_be_added_below_the_ones_that_are_there(self, store: Store) -> None:
        append(store, ["one", "two", "three", "four"])
        for position in (4, 1, 3):
            commit(store, lambda head, p=position: WriteSet(rows=[Row("s", b"k", p, b"v%d" % p)]))  # type: ignore[misc]
        with store.read() as reads:
            assert [row.position for row in reads.versions("s")] == [1, 3, 4]
            assert [reads.scan("s", at=at)[0].value for at in (1, 2, 3, 4)] == [b"v1", b"v1", b"v3", b"v4"]

    def test_a_drop_removes_one_version_and_lets_the_one_before_it_be_seen(self, store: Store) -> None:
        keys = (b"k", b"k\x00", b"other")
        rows = [Row("s", key, p, b"v%d" % p) for key in keys for p in (1, 2, 3)]
        commit(store, lambda head: WriteSet(records=[record(p) for p in (1, 2, 3)], rows=list(rows)))
        unknown = [("s", b"k", 9), ("s", b"unknown", 1), ("unknown", b"k", 1)]
        commit(store, lambda head: WriteSet(drops=[("s", b"k", 3), ("s", b"other", 2), *unknown]))
        left = [row for row in rows if row[1:3] not in ((b"k", 3), (b"other", 2))]
        with store.read() as reads:
            assert list(reads.versions("s")) == left
            assert reads.get("s", [b"k"])[b"k"].value == b"v2"
            assert [reads.get("s", [b"other"], at=at)[b"other"].value for at in (1, 2, 3)] == [
                b"v1",
                b"v1",
                b"v3",
            ]
        commit(store, lambda head: WriteSet(drops=[("s", b"k", 1), ("s", b"k", 2)]))
        with store.read() as reads:
            assert reads.get("s", [b"k"]) == {}
            assert [row.key for row in reads.scan("s", at=2)] == [b"k\x00", b"other"]
            assert list(reads.versions("s", b"k", b"k\x00")) == []
        commit(store, lambda head: WriteSet(rows=[Row("s", b"k", 2, b"back")]))
        with store.read() as reads:
            assert [row.value for row in reads.scan("s", b"k", b"k\x00")] == [b"back"]

    def test_a_row_of_a_megabyte_comes_back(self, store: Store) -> None:
        row = Row("s", b"k", 1, EVERY_BYTE * 4096)
        commit(store, lambda head: WriteSet(records=[record(1)], rows=[row]))
        with store.read() as reads:
            assert reads.scan("s") == [row]

    def test_a_transaction_reads_like_a_snapshot(self, store: Store) -> None:
        rows = [Row("s", b"a", 1, b"1"), Row("s", b"b", 1, b"1"), Row("s", b"b", 2, None)]
        commit(
            store,
            lambda head: WriteSet(
                records=[record(1, run="r"), record(2)],
                rows=list(rows),
                blobs={digest(b"blob"): b"blob"},
                leases=[Lease("lease", "me", 7, 3600.0)],
                meta=b"meta",
            ),
        )
        with store.read() as reads:
            expected = everything(reads)
        with store.begin() as tx:
            assert everything(tx) == expected
            assert tx.by_id(["id-2"]) == {"id-2": record(2)}
            assert tx.records(0, 9, 9, run="r") == [record(1, run="r")]
            assert tx.get("s", [b"a", b"b"], at=1) == {b"a": rows[0], b"b": rows[1]}
            assert tx.scan("s", at=1, reverse=True, limit=1) == [rows[1]]
            assert tx.blob(digest(b"blob")) == b"blob"
            assert tx.leases(["lease"])["lease"].fence == 7

    def test_drop_spaces_takes_its_prefix_literally(self, store: Store) -> None:
        spaces = ["a", "a.1", "a.1.x", "a%", "a%b", "a_", "a_b", "axb", "A", "b", "a\\", "a*", "é"]
        for prefix in ("a.1", "a%", "a_", "a\\", "a*", "A", "é", "unknown", "a", ""):
            rows = [Row(space, key, 0, b"v") for space in spaces for key in (b"k", b"\xff")]
            commit(store, lambda head, rows=rows: WriteSet(rows=rows))  # type: ignore[misc]
            store.drop_spaces(prefix)
            with store.read() as reads:
                left = {space: len(list(reads.versions(space))) for space in spaces}
                assert left == {space: 0 if space.startswith(prefix) else 2 for space in spaces}, prefix
                assert [space for space in spaces if reads.scan(space)] == [
                    space for space in spaces if not space.startswith(prefix)
                ], prefix

    def test_trim_drops_what_no_read_at_or_above_the_horizon_can_see(self, store: Store) -> None:
        histories: dict[bytes, list[tuple[int, bytes | None]]] = {
            b"kept": [(1, b"1"), (3, b"3"), (5, b"5")],
            b"late": [(5, b"5")],
            b"gone": [(1, b"1"), (2, None)],
            b"gone and back": [(1, b"1"), (3, None), (4, b"4")],
            b"deleted later": [(2, b"2"), (5, None)],
            b"at the horizon": [(2, b"2"), (3, b"3")],
        }
        rows = [Row("s", key, p, value) for key, history in histories.items() for p, value in history]
        commit(
            store,
            lambda head: WriteSet(
                records=[record(p) for p in range(1, 7)],
                rows=[*rows, *(row._replace(space="s.other") for row in rows)],
            ),
        )
        for horizon, dropped in ((0, 0), (1, 0), (3, 6), (3, 0), (100, 3)):
            with store.read() as reads:
                visible = {at: reads.scan("s", at=at) for at in (*range(horizon, 8), None)}
            assert store.trim("s", horizon) == dropped, horizon
            with store.read() as reads:
                assert {at: reads.scan("s", at=at) for at in (*range(horizon, 8), None)} == visible
        with store.read() as reads:
            assert sorted((row.key, row.position) for row in reads.versions("s")) == [
                (b"at the horizon", 3),
                (b"gone and back", 4),
                (b"kept", 5),
                (b"late", 5),
            ]
            assert len(list(reads.versions("s.other"))) == len(rows)
        assert store.trim("unknown", 100) == 0

    # 1. All or nothing, and 2. durable on return

    def test_leaving_a_transaction_without_apply_changes_nothing(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        append(store, ["one"])
        with store.read() as reads:
            before = everything(reads)
        with store.begin() as tx:
            assert tx.head.position == 1

        with pytest.raises(ZeroDivisionError):
            fail_in_transaction(store, None)
        for handle in (store, other):
            with handle.read() as reads:
                assert everything(reads) == before
        # The lock, if there is one, is free again, also for others than the one who held it.
        assert Background(lambda: append(other, ["two"])).result()[0].position == 2

    def test_what_apply_returned_from_stays_even_if_the_transaction_ends_in_an_error(
        self, shelf: Shelf
    ) -> None:
        store, other = shelf.open(), shelf.open()
        write = WriteSet(records=[record(1)], rows=[Row("s", b"k", 1, b"v")], meta=b"meta")
        with pytest.raises(ZeroDivisionError):
            fail_in_transaction(store, write)
        with store.read() as reads:
            assert reads.scan("s") == [Row("s", b"k", 1, b"v")]
        with other.read() as reads:
            assert reads.records(0, 9, 9) == [record(1)]
            assert reads.head.meta == b"meta"

    def test_a_store_goes_on_after_a_refusal_whenever_it_comes(self, shelf: Shelf) -> None:
        """Drivers prepare what they have sent a few times, and must not believe that they did if it was refused."""
        shelf.open().lease("taken", "somebody", 3600.0)

        def refused(store: Store) -> None:
            with store.begin() as tx:
                late = record(tx.head.position + 1, "late")
                tx.apply(WriteSet(records=[late], leases=[Lease("taken", "me", 1, 60.0)]))

        for before in range(10):
            store = shelf.open()
            with store.read():
                pass
            for _ in range(before):
                append(store, [str(uuid.uuid4())])
            with pytest.raises(WriteConflict):
                refused(store)
            for _ in range(3):
                append(store, [str(uuid.uuid4())])
            store.close()

    def test_a_refused_lease_undoes_the_whole_write_set(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        written = append(store, ["one", "two"])
        commit(
            store,
            lambda head: WriteSet(
                rows=[Row("s", b"k", 1, b"old"), Row("s", b"k", 2, b"new")],
                blobs={digest(b"kept"): b"kept"},
                leases=[Lease("taken", "somebody", 1, 3600.0), Lease("mine", "me", 1, 100.0)],
                meta=b"before",
            ),
        )
        with store.read() as reads:
            before = everything(reads)
        with pytest.raises(WriteConflict), store.begin() as tx:
            tx.apply(
                WriteSet(
                    records=[record(3, "three", run="r")],
                    rows=[
                        Row("s", b"k", 3, b"newer"),
                        Row("s", b"k", 1, b"rewritten"),
                        Row("t", b"k", 3, b"x"),
                    ],
                    drops=[("s", b"k", 2)],
                    erase=[1],
                    blobs={digest(b"added"): b"added"},
                    blob_drops=[digest(b"kept")],
                    leases=[
                        Lease("free", "me", 1, 3600.0),
                        Lease("mine", "me", 1, 3600.0),
                        Lease("taken", "me", 1, 3600.0),
                    ],
                    meta=b"after",
                )
            )
        with store.read() as reads:
            assert everything(reads) == before
        for handle in (store, other):
            with handle.read() as reads:
                assert reads.records(0, 9, 9) == written
                assert reads.records(0, 9, 9, run="r") == []
                assert reads.by_id(["one", "three"]) == {"one": written[0]}
                assert reads.head.meta == b"before"
                assert reads.blob(digest(b"added")) is None
                assert reads.blob(digest(b"kept")) == b"kept"
                leases = reads.leases(["free", "mine", "taken"])
                assert sorted(leases) == ["mine", "taken"]
                assert leases["mine"].seconds < 100.01
                assert leases["taken"].holder == "somebody"
        assert append(other, ["three"])[0].position == 3

    def test_what_was_acknowledged_is_remembered_exactly_or_not_at_all(self, shelf: Shelf) -> None:
        store = shelf.open()
        remembers = False
        for n in range(1, 4):
            append(store, [f"event {n}"])
            remembers |= store.acknowledged() > 0
            assert store.acknowledged() == (n if remembers else 0)
        shelf.close()
        assert shelf.open().acknowledged() in ((3,) if remembers else (0,))

    def test_kill_9_after_apply_undoes_nothing_and_before_it_leaves_nothing(
        self, shelf: Shelf, make_engine: MakeEngine
    ) -> None:
        self.needs_processes()
        store = shelf.open()
        for target, position in ((workers.die_before_apply, 0), (workers.die_after_apply, 3)):
            with process(target, make_engine, shelf.book) as child:
                child.join(PATIENCE * 3)
                assert child.exitcode == -signal.SIGKILL
            with store.read() as reads:
                assert reads.head.position == position
                assert reads.head.meta == (b"1" if position else b"")
        assert append(store, ["next"])[0].position == 4  # whoever died has not kept the lock
        shelf.close()
        with shelf.open().read() as reads:
            assert [each.position for each in reads.records(0, 9, 9)] == [1, 2, 3, 4]

    def test_kill_9_in_the_middle_leaves_whole_write_sets_only(
        self, shelf: Shelf, make_engine: MakeEngine
    ) -> None:
        self.needs_processes()
        store = shelf.open()
        seen = 0
        with process(workers.write_until_killed, make_engine, shelf.book) as child:
            while seen < 60:
                news = store.wait(seen, PATIENCE * 3)
                assert news > seen, "the writer wrote nothing"
                for _ in range(8):  # snapshots at moments that the writer's rhythm does not choose
                    with store.read(at_least=news) as reads:
                        seen = reads.head.position
                        last = [each.position for each in reads.records(seen - 3, seen, 9)]
                        assert reads.head.meta == str(seen // 3).encode(), "a snapshot shows half a write set"
                        assert reads.blob(digest(reads.head.meta)) == reads.head.meta
                    assert last == [seen - 2, seen - 1, seen]
                    assert seen % 3 == 0
            child.kill()
            child.join(PATIENCE)
            assert child.exitcode == -signal.SIGKILL
        shelf.close()
        store = shelf.open(create=False)
        commit(store, workers.whole)  # the lock is free, and what follows fits what was kept
        with store.read() as reads:
            sets, rest = divmod(reads.head.position, 3)
            assert rest == 0
            assert sets >= 21
            assert reads.head.meta == str(sets).encode()
            assert reads.records(0, sets * 3, 10_000) == [record(p) for p in range(1, sets * 3 + 1)]
            for n in range(1, sets + 1):
                assert reads.blob(digest(str(n).encode())) == str(n).encode()
            assert reads.blob(digest(str(sets + 1).encode())) is None
            if store.facts.views == "stored":
                assert [row.position // 3 for row in reads.versions("torn")] == sorted(
                    range(1, sets + 1), key=lambda n: (str(n % 5), n)
                )

    # 3. Positions are commit order, and following `wait` misses nothing

    def test_wait_answers_at_once_when_the_head_is_already_beyond(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        append(store, ["one", "two", "three"])
        began = time.monotonic()
        assert [store.wait(after, PATIENCE) for after in (0, 1, 2)] == [3, 3, 3]
        append(other, ["four", "five"])
        assert [store.wait(after, PATIENCE) for after in (0, 3, 4)] == [5, 5, 5], "the head, not what it was"
        assert time.monotonic() - began < PATIENCE / 2

    def test_wait_blocks_for_its_timeout_when_there_is_no_news(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        append(store, ["one"])
        assert store.wait(1, 0.0) == 1
        began = time.monotonic()
        waiting = Background(lambda: store.wait(1, 0.4))
        # News of another kind than records: the head stays where it is.
        commit(other, lambda head: WriteSet(rows=[Row("s", b"k", 1, b"v")], meta=b"meta"))
        other.lease("name", "me", 10.0)
        assert waiting.result() == 1
        assert time.monotonic() - began >= 0.35

    def test_wait_does_not_poll_busily(self, store: Store) -> None:
        append(store, ["one"])
        store.wait(1, 0.0)
        before = time.process_time()
        assert store.wait(1, 0.6) == 1
        assert time.process_time() - before < 0.2

    def test_wait_wakes_when_another_handle_commits(self, shelf: Shelf) -> None:
        ping, pong = shelf.open(), shelf.open()

        def play(store: Store, serves: bool) -> list[float]:
            waits = []
            for turn in range(0 if serves else 1, 24, 2):
                began = time.monotonic()
                if turn:
                    assert store.wait(turn - 1, PATIENCE) == turn
                waits.append(time.monotonic() - began)
                append(store, [f"turn {turn}"])
            return waits

        players = [Background(lambda: play(ping, True)), Background(lambda: play(pong, False))]
        waits = players[0].result(PATIENCE * 3) + players[1].result(PATIENCE * 3)
        assert max(waits) < PATIENCE / 2
        assert statistics.median(waits) < 0.4, "not woken, but found out by looking now and then"

    def test_a_commit_wakes_everyone_who_waits(self, shelf: Shelf) -> None:
        one, two = shelf.open(), shelf.open()
        ready = threading.Barrier(5)

        def wait(store: Store) -> int:
            ready.wait(PATIENCE)
            return store.wait(0, PATIENCE * 3)

        waiting = [Background(lambda store=store: wait(store)) for store in (one, one, two, two)]  # type: ignore[misc]
        ready.wait(PATIENCE)
        assert two.wait(0, 0.15) == 0  # by now the others are waiting too
        append(two, ["news"])
        assert [each.result() for each in waiting] == [1, 1, 1, 1]

    @pytest.mark.parametrize("ending", ["wake", "close"])
    def test_wake_and_close_end_a_wait(self, shelf: Shelf, ending: str) -> None:
        store = shelf.open()
        entered = threading.Event()

        def wait() -> int:
            entered.set()
            with suppress(BookClosed):
                return store.wait(0, PATIENCE * 10)
            return 0

        waiting = [Background(wait) for _ in range(3)]
        assert entered.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while any(each.is_alive() for each in waiting) and time.monotonic() < deadline:
            getattr(store, ending)()
            for each in waiting:
                each.join(0.02)  # whoever had not begun to wait by then is woken in the next round
        assert [each.result(0.1) for each in waiting] == [0, 0, 0]

    def test_a_snapshot_shows_at_least_the_position_that_was_asked_for(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        append(store, ["one", "two"])
        for handle in (store, other):
            for at_least in (0, 1, 2):
                with handle.read(at_least) as reads:
                    assert reads.head.position == 2
                    assert len(reads.records(0, 2, 2)) == 2

    def test_a_snapshot_that_cannot_show_what_was_asked_for_is_busy(self, shelf: Shelf) -> None:
        store = shelf.open()
        append(store, ["one", "two"])
        with pytest.raises(Busy), store.read(at_least=3, timeout=0.05):
            pytest.fail("a snapshot below the position that was asked for")
        with pytest.raises(Busy), store.read(at_least=3, timeout=0.0):
            pytest.fail("a snapshot below the position that was asked for")

    def test_a_snapshot_of_what_is_not_yet_there_waits_for_it(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        append(store, ["one"])

        def read() -> list[Record]:
            with store.read(at_least=3, timeout=PATIENCE * 2) as reads:
                assert reads.head.position >= 3
                return reads.records(0, 3, 9)

        reading = Background(read)
        append(other, ["two"])
        append(other, ["three"])
        assert [each.id for each in reading.result()] == ["one", "two", "three"]

    def test_a_reader_who_tails_while_threads_write_misses_nothing(self, shelf: Shelf) -> None:
        reader = shelf.open()
        handles = [shelf.open() for _ in range(4)]
        writers = [
            Background(
                lambda store=store, w=w: [  # type: ignore[misc]
                    append(store, [f"{w}/{n}/{part}" for part in range(1 + n % 3)]) for n in range(15)
                ]
            )
            for w, store in enumerate(handles)
        ]
        seen = tail(reader, 4 * 30)
        written = [each for writer in writers for batch in writer.result() for each in batch]
        assert seen == sorted(written)

    def test_a_reader_who_tails_while_processes_write_misses_nothing(
        self, shelf: Shelf, make_engine: MakeEngine
    ) -> None:
        self.needs_processes()
        reader = shelf.open()
        together = SPAWN.Barrier(8)
        ears = []
        with ExitStack() as running:
            for w in range(8):
                hear, say = SPAWN.Pipe(duplex=False)
                burst = process(workers.burst, make_engine, shelf.book, f"writer {w}", 9, together, say)
                running.enter_context(burst)
                running.enter_context(hear)
                ears.append(hear)
                say.close()
            seen = tail(reader, 8 * 18)
            written = []
            for hear in ears:
                assert hear.poll(PATIENCE * 3)
                told = hear.recv()
                assert not isinstance(told, str), told
                written += told
        assert [(each.position, each.id) for each in seen] == sorted(written)

    # 4. Isolation

    def test_one_store_serves_many_threads(self, store: Store) -> None:
        def work(w: int) -> None:
            for n in range(8):
                mine = append(store, [f"{w}/{n}"], run=f"run {w}")
                with store.read(at_least=mine[0].position) as reads:
                    assert reads.by_id([f"{w}/{n}"]) == {f"{w}/{n}": mine[0]}
                    assert len(reads.records(0, reads.head.position, 100, run=f"run {w}")) == n + 1
                lease = store.lease(f"lease {w}", f"{w}", 60.0, fence=n + 1) if n == 0 else None
                assert lease is None or lease.holder == f"{w}"

        for each in [Background(lambda w=w: work(w)) for w in range(8)]:  # type: ignore[misc]
            each.result(PATIENCE * 3)
        with store.read() as reads:
            found = reads.records(0, 64, 100)
        assert [each.position for each in found] == list(range(1, 65))
        assert sorted(each.id for each in found) == sorted(f"{w}/{n}" for w in range(8) for n in range(8))

    def test_a_snapshot_does_not_see_what_is_written_while_it_is_open(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        commit(
            store,
            lambda head: WriteSet(records=[record(1), record(2)], rows=[Row("s", b"a", 1, b"1")], meta=b"m"),
        )
        landed = threading.Event()

        def write() -> None:
            for n in range(3, 6):
                commit(
                    store if store.facts.views == "memory" else other,
                    lambda head, n=n: WriteSet(  # type: ignore[misc]
                        records=[record(n)],
                        rows=[Row("s", b"a", n, b"new"), Row("s", b"b", n, b"b")],
                        blobs={digest(b"new"): b"new"},
                        meta=b"new",
                    ),
                )
            landed.set()

        with store.read() as reads:
            assert reads.head.position == 2
            writing = Background(write)
            landed.wait(0.5)  # engines that let nobody write meanwhile will not set it
            assert reads.head == Head(2, record(2).hash, record(2).created_at, b"m")
            assert [each.position for each in reads.records(0, 100, 100)] == [1, 2]
            assert reads.by_id(["id-3"]) == {}
            assert reads.scan("s") == [Row("s", b"a", 1, b"1")]
            assert reads.get("s", [b"a", b"b"]) == {b"a": Row("s", b"a", 1, b"1")}
            assert list(reads.versions("s")) == [Row("s", b"a", 1, b"1")]
        writing.result()
        with store.read() as reads:
            assert reads.head.position == 5
            assert [row.value for row in reads.scan("s")] == [b"new", b"b"]
            assert reads.scan("s", at=1) == [Row("s", b"a", 1, b"1")]
            assert reads.blob(digest(b"new")) == b"new"

    def test_a_snapshot_does_not_see_that_a_version_is_written_again(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        old = [Row("s", b"a", 0, b"one"), Row("s", b"b", 0, None), Row("s", b"c", 0, b"stays")]
        commit(store, lambda head: WriteSet(records=[record(1)], rows=list(old)))
        landed = threading.Event()

        def write() -> None:
            for n in range(2, 5):
                commit(
                    store if store.facts.views == "memory" else other,
                    lambda head, n=n: WriteSet(  # type: ignore[misc]
                        records=[record(n)],
                        rows=[
                            Row("s", b"a", 0, b"%d" % n),
                            Row("s", b"a", 0, b"%d again" % n),
                            Row("s", b"b", 0, b"b"),
                            Row("s", b"c", 0, None),
                            Row("s", b"d", 0, b"d"),
                        ],
                    ),
                )
            landed.set()

        with store.read() as reads:
            writing = Background(write)
            landed.wait(0.5)  # engines that let nobody write meanwhile will not set it
            keys = [b"a", b"b", b"c", b"d"]
            assert reads.get("s", keys) == {b"a": old[0], b"c": old[2]}
            assert reads.scan("s") == reads.scan("s", at=0) == [old[0], old[2]]
            assert list(reads.versions("s")) == [old[0], old[2]]
        writing.result()
        with store.read() as reads:
            assert [row.value for row in reads.scan("s")] == [b"4 again", b"b", b"d"]
        with store.read() as before:
            commit(store, lambda head: WriteSet(records=[record(5)], rows=[Row("s", b"a", 0, b"five")]))
            with store.read() as after:
                commit(store, lambda head: WriteSet(records=[record(6)], rows=[Row("s", b"a", 0, b"six")]))
                assert [one.scan("s", b"a", b"b")[0].value for one in (before, after)] == [
                    b"4 again",
                    b"five",
                ]
            assert before.scan("s", b"a", b"b")[0].value == b"4 again"
        with store.read() as reads:
            assert reads.scan("s", b"a", b"b")[0].value == b"six"

    def test_leases_of_one_name_are_each_asked_for_against_what_was_held_before(self, shelf: Shelf) -> None:
        store = shelf.open()

        def apply(*asked: Lease) -> bool:
            try:
                with store.begin() as tx:
                    tx.apply(WriteSet(leases=list(asked)))
            except WriteConflict:
                return False
            return True

        def holder(name: str) -> str | None:
            with store.read() as reads:
                return next((one.holder for one in reads.leases([name]).values()), None)

        assert apply(Lease("a", "one", 1, 30.0), Lease("a", "two", 2, 30.0))
        assert holder("a") == "two"
        assert not apply(Lease("a", "two", 2, 0.0), Lease("a", "one", 1, 30.0))
        assert holder("a") == "two"
        assert not apply(Lease("b", "one", 1, 30.0), Lease("a", "one", 1, 0.0))
        assert (holder("a"), holder("b")) == ("two", None)
        assert apply(Lease("a", "two", 2, 30.0), Lease("a", "two", 2, 0.0))
        assert holder("a") is None
        assert apply(Lease("c", "one", 1, 30.0), Lease("c", "two", 2, 0.0))
        assert holder("c") is None

    def test_a_slow_writer_has_its_turn_among_quick_ones(self, shelf: Shelf) -> None:
        slow, quick = shelf.open(), [shelf.open() for _ in range(4)]
        stop, tries = threading.Event(), list[int]()

        def hurry(store: Store, name: int) -> None:
            for count in itertools.count():
                if stop.is_set():
                    return
                append(store, [f"quick-{name}-{count}"])

        def plan(head: Head) -> WriteSet:
            tries.append(head.position)
            time.sleep(0.6)
            return WriteSet(records=[record(head.position + 1, "slow")])

        hurrying = [
            Background(lambda store=store, name=name: hurry(store, name))  # type: ignore[misc]
            for name, store in enumerate(quick)
        ]
        try:
            Background(lambda: commit(slow, plan)).result(PATIENCE * 3)
        finally:
            stop.set()
        for each in hurrying:
            each.result(PATIENCE * 3)
        assert len(tries) <= 4
        with slow.read() as reads:
            assert reads.head.position > tries[-1] + 1, "the quick ones went on"

    @pytest.mark.parametrize("intrusion", ["records", "rows", "drops", "erase", "meta"])
    def test_nobody_writes_between_a_transaction_s_head_and_its_apply(
        self, shelf: Shelf, intrusion: str
    ) -> None:
        store, other = shelf.open(), shelf.open()
        kept = [Row("s", b"k", 1, b"kept"), Row("s", b"k", 2, b"kept")]
        commit(store, lambda head: WriteSet(records=[record(1), record(2)], rows=list(kept)))
        theirs = {
            "records": WriteSet(records=[record(3, "theirs")]),
            "rows": WriteSet(rows=[Row("s", b"k", 2, b"theirs")]),
            "drops": WriteSet(drops=[("s", b"k", 2)]),
            "erase": WriteSet(erase=[1]),
            "meta": WriteSet(meta=b"theirs"),
        }[intrusion]

        def intrude() -> None:
            with other.begin(timeout=0.1) as tx:
                tx.apply(theirs)

        mine = WriteSet(records=[record(3, "mine")], rows=[Row("s", b"k", 3, b"mine")], meta=b"mine")
        if store.facts.optimistic:
            with store.begin() as tx:
                assert tx.head.position == 2
                Background(intrude).result()
                with pytest.raises(WriteConflict):
                    tx.apply(mine)
            with store.read() as reads:
                assert reads.by_id(["mine"]) == {}
                assert reads.head.meta != b"mine"
                assert reads.scan("s", at=3) == reads.scan("s", at=2)
            append(store, ["again"])
        else:
            with store.begin() as tx:
                assert tx.head.position == 2
                began = time.monotonic()
                with pytest.raises(Busy):
                    Background(intrude).result()
                assert 0.1 <= time.monotonic() - began < 2.0, "not the timeout that was asked for"
                tx.apply(mine)
            with store.read() as reads:
                assert reads.records(0, 9, 9) == [record(1), record(2), record(3, "mine")]
                assert list(reads.versions("s")) == [*kept, Row("s", b"k", 3, b"mine")]
                assert reads.head.meta == b"mine"
            Background(intrude if intrusion != "records" else lambda: append(other, ["later"])).result()

    def test_of_two_transactions_on_one_handle_only_one_builds_on_a_head(self, store: Store) -> None:
        def increment() -> None:
            def plan(head: Head) -> WriteSet:
                return WriteSet(
                    records=[record(head.position + 1)], meta=str(int(head.meta or b"0") + 1).encode()
                )

            for _ in range(10):
                commit(store, plan)

        for each in [Background(increment) for _ in range(4)]:
            each.result(PATIENCE * 3)
        with store.read() as reads:
            assert (reads.head.position, reads.head.meta) == (40, b"40")

    def test_a_lock_that_is_not_free_in_time_is_busy_also_between_processes(
        self, shelf: Shelf, make_engine: MakeEngine
    ) -> None:
        self.needs_processes()
        store = shelf.open()
        here, there = SPAWN.Pipe()
        with here, process(workers.hold, make_engine, shelf.book, there) as child:
            there.close()
            assert here.poll(PATIENCE * 3)
            assert here.recv() == "holding"
            if store.facts.optimistic:
                append(store, ["meanwhile"])
            else:
                with pytest.raises(Busy), store.begin(timeout=0.1):
                    pytest.fail("a second transaction in spite of the lock")
            here.send("go on")
            child.join(PATIENCE)
            assert child.exitcode == 0
        assert append(store, ["next"])[0].position == (2 if store.facts.optimistic else 1)

    # 6. Erasure

    def test_no_read_returns_an_erased_body(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        written = append(store, ["one", "two", "three"], run="r", body=b"secret")
        commit(store, lambda head: WriteSet(erase=[2]))
        commit(store, lambda head: WriteSet(erase=[2]))  # what is gone can be erased again
        expected = [written[0], written[1]._replace(body=None), written[2]]

        def check(reads: Reads) -> None:
            assert reads.records(0, 9, 9) == expected
            assert reads.records(0, 9, 9, run="r") == expected
            assert reads.records(1, 2, 1) == [expected[1]]
            assert reads.by_id(["one", "two"]) == {"one": expected[0], "two": expected[1]}
            assert reads.head == Head(3, written[2].hash, written[2].created_at, b"")

        for handle in (store, other):
            with handle.read() as reads:
                check(reads)
            with handle.begin() as tx:
                check(tx)
        commit(store, lambda head: WriteSet(erase=[3, 1]))
        expected = [each._replace(body=None) for each in written]
        shelf.close()
        with shelf.open().read() as reads:
            check(reads)

    def test_a_snapshot_stays_whole_when_another_handle_erases(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        written = append(store, ["one", "two", "three"], run="r")
        rows = [Row("s", b"a", 1, b"1"), Row("s", b"b", 3, b"3")]
        commit(store, lambda head: WriteSet(rows=rows, folded=head.position))
        with store.read() as reads:
            commit(other, lambda head: WriteSet(erase=[2]))
            with store.read() as later:
                assert later.by_id(["two"])["two"].body is None
            expected = [each._replace(body=None) for each in written]
            assert [each._replace(body=None) for each in reads.records(0, 9, 9)] == expected
            assert [each._replace(body=None) for each in reads.records(0, 9, 9, run="r")] == expected
            assert reads.by_id(["one", "three"]) == {"one": written[0], "three": written[2]}
            assert reads.folded == reads.head.position == 3
            assert reads.scan("s") == rows

    def test_a_write_set_may_erase_what_it_writes_itself(self, store: Store) -> None:
        commit(store, lambda head: WriteSet(records=[record(1), record(2)], erase=[2]))
        with store.read() as reads:
            assert reads.records(0, 9, 9) == [record(1), record(2, body=None)]
            assert reads.by_id(["id-2"]) == {"id-2": record(2, body=None)}

    # 8. Books do not meet

    @pytest.mark.parametrize(("one", "two"), NAME_PAIRS)
    def test_books_do_not_meet_whatever_their_names_contain(
        self, shelf: Shelf, token: str, one: str, two: str
    ) -> None:
        self.needs_books()
        first, second = one.replace("@", token), two.replace("@", token)
        shelf.names.update((first, second))
        engine = shelf.engine()
        store = engine.open(first, create=True)
        commit(
            store,
            lambda head: WriteSet(
                records=[record(1, "shared id", run="r"), record(2)],
                rows=[Row("s", b"k", 1, b"first")],
                blobs={digest(b"blob"): b"blob"},
                leases=[Lease("lease", "first", 1, 3600.0)],
                meta=b"first",
            ),
        )
        with pytest.raises(BookNotFound):
            engine.open(second, create=False)
        other = engine.open(second, create=True)
        with other.read() as reads:
            assert reads.head == Head()
            assert reads.records(0, 9, 9) == []
            assert reads.records(0, 9, 9, run="r") == []
            assert reads.by_id(["shared id"]) == {}
            assert reads.scan("s") == []
            assert reads.get("s", [b"k"]) == {}
            assert list(reads.versions("s")) == []
            assert reads.blob(digest(b"blob")) is None
            assert reads.leases(["lease"]) == {}
        assert other.wait(0, 0.0) == 0
        assert {first, second} <= set(engine.books())
        # Everything that removes or replaces, through the other book.
        assert other.lease("lease", "second", 60.0, fence=2).holder == "second"
        commit(
            other,
            lambda head: WriteSet(
                records=[record(1, "shared id", run="r", body=b"second")],
                rows=[Row("s", b"k", 1, b"second")],
                blob_drops=[digest(b"blob")],
                meta=b"second",
            ),
        )
        commit(other, lambda head: WriteSet(erase=[1], drops=[("s", b"k", 1)]))
        other.trim("s", 100)
        other.drop_spaces("")

        def unharmed(reads: Reads) -> None:
            assert reads.head == Head(2, record(2).hash, record(2).created_at, b"first")
            assert reads.records(0, 9, 9) == [record(1, "shared id", run="r"), record(2)]
            assert reads.by_id(["shared id"]) == {"shared id": record(1, "shared id", run="r")}
            assert reads.scan("s") == [Row("s", b"k", 1, b"first")]
            assert reads.blob(digest(b"blob")) == b"blob"
            assert reads.leases(["lease"])["lease"].holder == "first"

        with store.read() as reads:
            unharmed(reads)
        other.close()
        engine.drop(second)
        assert second not in engine.books()
        assert first in engine.books()
        with store.read() as reads:
            unharmed(reads)
        store.close()

    def test_news_of_one_book_wakes_nobody_in_another(self, shelf: Shelf, token: str) -> None:
        self.needs_books()
        store, other = shelf.open(f"{token}a"), shelf.open(f"{token}a.1")
        began = time.monotonic()
        waiting = Background(lambda: store.wait(0, 0.4))
        append(other, ["one", "two"])
        assert waiting.result() == 0
        assert time.monotonic() - began >= 0.35

    def test_a_transaction_in_one_book_does_not_keep_another_waiting(self, shelf: Shelf, token: str) -> None:
        self.needs_books()
        store, other = shelf.open(f"{token}a"), shelf.open(f"{token}b")
        with store.begin() as tx:
            written = Background(lambda: append(other, ["meanwhile"])).result(PATIENCE)
            assert written[0].position == 1
            tx.apply(WriteSet(records=[record(1, "mine")]))
        with store.read() as reads:
            assert reads.head.position == 1

    # 9. No use across fork

    def test_a_forked_child_cannot_use_the_store_and_cannot_hurt_it(self, shelf: Shelf) -> None:
        if not hasattr(os, "fork"):
            pytest.skip("this system cannot fork")
        store = shelf.open()
        append(store, ["one"])
        with store.read() as reads:
            assert reads.head.position == 1
        told = in_forked_child(
            lambda: "\n".join(f"{name}: {attempt(call)}" for name, call in calls(store).items())
        )
        assert told == "\n".join(f"{name}: ForkedBook" for name in calls(store))
        # A child may let go of what it inherited, or refuse even that; the parent's handle must survive it.
        assert in_forked_child(lambda: attempt(store.close)) in ("nothing", "ForkedBook")
        assert append(store, ["two"])[0].position == 2
        assert store.wait(1, 0.0) == 2
        with store.read() as reads:
            assert [each.id for each in reads.records(0, 9, 9)] == ["one", "two"]

    # 10. Leases

    def test_a_free_lease_is_granted_and_everyone_sees_it(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        granted = store.lease("name", "me", 60.0, fence=7)
        assert granted[:3] == ("name", "me", 7)
        assert 0 < granted.seconds < 60.01
        for handle in (store, other):
            with handle.read() as reads:
                [(name, seen)] = reads.leases(["name", "unknown", "nam", "name2", "NAME"]).items()
                assert reads.leases([]) == {}
            assert name == "name"
            assert seen[:3] == ("name", "me", 7)
            assert 0 < seen.seconds < 60.01

    def test_leases_of_any_name_and_holder_are_told_apart(self, store: Store) -> None:
        names = ["a", "A", "a ", "a.b", "a:b", "a%", "a_", "a/b", "{a}", "'", '"', "é🦉", "", "a\nb"]
        for n, name in enumerate(names):
            assert store.lease(name, f"holder of {name}", 60.0, fence=n).holder == f"holder of {name}"
        with store.read() as reads:
            found = reads.leases(names)
        assert [(found[name].holder, found[name].fence) for name in names] == [
            (f"holder of {name}", n) for n, name in enumerate(names)
        ]

    @pytest.mark.parametrize(("holder", "fence"), [("you", 7), ("me", 8), ("you", 8), ("me", 0), ("ME", 7)])
    def test_a_held_lease_is_refused_to_any_other_holder_or_fence(
        self, shelf: Shelf, holder: str, fence: int
    ) -> None:
        store, other = shelf.open(), shelf.open()
        store.lease("name", "me", 60.0, fence=7)
        for seconds in (3600.0, 0.0):
            answer = other.lease("name", holder, seconds, fence=fence)
            assert answer[:3] == ("name", "me", 7)
            assert 0 < answer.seconds < 60.01
            with pytest.raises(WriteConflict), other.begin() as tx:
                tx.apply(WriteSet(leases=[Lease("name", holder, fence, seconds)]))
        with store.read() as reads:
            assert reads.leases(["name"])["name"][:3] == ("name", "me", 7)
            assert reads.leases(["name"])["name"].seconds < 60.01

    def test_the_holder_may_renew_for_longer_or_shorter(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        for seconds, least in ((60.0, 50.0), (3600.0, 3000.0), (30.0, 20.0)):
            renewed = store.lease("name", "me", seconds, fence=7)
            assert renewed[:3] == ("name", "me", 7)
            assert least < renewed.seconds < seconds + 0.01
            with other.read() as reads:
                assert least < reads.leases(["name"])["name"].seconds < seconds + 0.01
        commit(other, lambda head: WriteSet(leases=[Lease("name", "me", 7, 600.0)]))
        with store.read() as reads:
            assert 500.0 < reads.leases(["name"])["name"].seconds < 600.01

    def test_a_released_lease_is_free(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        store.lease("name", "me", 60.0, fence=7)
        assert store.lease("name", "me", 0.0, fence=7).seconds == 0
        with other.read() as reads:
            assert reads.leases(["name"]) == {}
        assert store.lease("name", "me", 0.0, fence=7).seconds == 0
        assert store.lease("never held", "me", 0.0).seconds == 0
        assert other.lease("name", "you", 60.0, fence=8).holder == "you"
        commit(store, lambda head: WriteSet(leases=[Lease("name", "you", 8, 0.0)]))
        with store.read() as reads:
            assert reads.leases(["name"]) == {}
        commit(store, lambda head: WriteSet(leases=[Lease("name", "you", 8, 0.0)]))
        assert store.lease("name", "me", 60.0).holder == "me"

    def test_an_expired_lease_is_free(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        for name in ("taken", "renewed", "by write set"):
            assert store.lease(name, "me", 0.05, fence=7).holder == "me"
        store.lease("long", "me", 60.0, fence=7)
        assert store.wait(0, 0.2) == 0  # nothing happens, but time passes
        with other.read() as reads:
            assert list(reads.leases(["taken", "renewed", "by write set", "long"])) == ["long"]
        assert other.lease("taken", "you", 60.0, fence=8)[:3] == ("taken", "you", 8)
        assert store.lease("taken", "me", 60.0, fence=7)[:3] == ("taken", "you", 8)
        assert store.lease("renewed", "me", 60.0, fence=7)[:3] == ("renewed", "me", 7)
        commit(other, lambda head: WriteSet(leases=[Lease("by write set", "you", 8, 60.0)]))
        with store.read() as reads:
            assert reads.leases(["by write set"])["by write set"].holder == "you"

    def test_a_lease_that_ends_while_another_asks_for_it_is_granted_or_refused(self, shelf: Shelf) -> None:
        """Never anything else, at whatever moment it ends."""
        store = shelf.open()
        for n in range(300):
            store.lease("brief", "one", 0.0002 + n % 30 * 0.0001)
            answer = store.lease("brief", "two", 0.0001)
            assert answer.holder in ("one", "two")
            store.lease("brief", answer.holder, 0.0)

    def test_a_lease_s_seconds_run_down(self, store: Store) -> None:
        store.lease("name", "me", 60.0)
        assert store.wait(0, 0.1) == 0
        with store.read() as reads:
            assert 30 < reads.leases(["name"])["name"].seconds <= 59.95

    def test_a_write_set_grants_all_of_its_leases_or_none(self, shelf: Shelf) -> None:
        store, other = shelf.open(), shelf.open()
        commit(store, lambda head: WriteSet(leases=[Lease("a", "me", 1, 60.0), Lease("b", "me", 2, 60.0)]))
        with other.read() as reads:
            assert {name: lease.fence for name, lease in reads.leases(["a", "b"]).items()} == {"a": 1, "b": 2}
        for order in (1, -1):
            asked = [Lease("free", "you", 1, 60.0), Lease("a", "you", 1, 60.0)][::order]
            with pytest.raises(WriteConflict), other.begin() as tx:
                tx.apply(WriteSet(records=[record(1)], leases=asked))
            with store.read() as reads:
                assert reads.leases(["free"]) == {}
                assert reads.head.position == 0

    def test_only_one_of_many_gets_a_lease(self, shelf: Shelf) -> None:
        handles = [shelf.open() for _ in range(4)]
        together = threading.Barrier(8)

        def take(store: Store, me: str) -> str:
            together.wait(PATIENCE)
            return store.lease("name", me, 60.0, fence=1).holder

        racing = [Background(lambda n=n: take(handles[n % 4], f"racer {n}")) for n in range(8)]  # type: ignore[misc]
        winners = {each.result() for each in racing}
        assert len(winners) == 1
        with handles[0].read() as reads:
            assert {reads.leases(["name"])["name"].holder} == winners

    def test_a_lease_outlives_the_handle_that_took_it(self, shelf: Shelf) -> None:
        shelf.open().lease("name", "me", 60.0, fence=7)
        shelf.close()
        store = shelf.open()
        assert store.lease("name", "you", 60.0, fence=8)[:3] == ("name", "me", 7)
        with store.read() as reads:
            assert reads.leases(["name"])["name"].seconds < 60.01

    @pytest.mark.parametrize("days", [-2, 2])
    def test_leases_do_not_run_on_the_caller_s_wall_clock(
        self, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, days: int
    ) -> None:
        store = shelf.open()
        store.lease("long", "me", 60.0, fence=7)
        store.lease("short", "me", 0.05, fence=7)
        skew_wall_clock(monkeypatch, days * 86_400)
        other = shelf.open()
        assert other.wait(0, 0.2) == 0
        for handle in (store, other):
            with handle.read() as reads:
                assert list(reads.leases(["long", "short"])) == ["long"]
                assert 0 < reads.leases(["long"])["long"].seconds < 60.01
        assert other.lease("long", "you", 60.0, fence=8).holder == "me"
        assert other.lease("short", "you", 60.0, fence=8).holder == "you"

    # Purging and backing up

    def test_purge_says_what_it_did_and_what_remains(
        self, shelf: Shelf, data_dir: Path | None, token: str
    ) -> None:
        store = shelf.open()
        secret = f"secret-{token}-".encode() + hashlib.sha256(token.encode()).hexdigest().encode()
        append(store, ["kept"], body=b"kept")
        commit(
            store,
            lambda head: WriteSet(
                records=[record(2, "secret", body=secret)],
                rows=[Row("s", b"k", 2, secret)],
                blobs={digest(secret): secret},
            ),
        )
        if data_dir is not None and store.facts.durable != "no":
            assert files_with(data_dir, secret), "the suite cannot find in the files what is surely there"
        commit(
            store,
            lambda head: WriteSet(erase=[2], drops=[("s", b"k", 2)], blob_drops=[digest(secret)]),
        )
        report = store.purge()
        assert report.purged == (not report.remaining)
        assert all(report.done)
        assert all(report.remaining)
        if report.purged and data_dir is not None:
            assert files_with(data_dir, secret) == []
        with store.read() as reads:
            assert [each.body for each in reads.records(0, 9, 9)] == [b"kept", None]
            assert reads.blob(digest(secret)) is None
            assert reads.scan("s") == []
        assert append(store, ["after"])[0].position == 3

    def test_a_backup_by_the_engine_s_own_means_is_a_file_and_names_its_head(
        self, store: Store, tmp_path: Path
    ) -> None:
        written = append(store, ["one", "two"])
        copy = tmp_path / "copy"
        head = store.backup(copy)
        if head is None:
            assert not copy.exists()
        else:
            assert head == Head(2, written[1].hash, written[1].created_at, b"")
            assert copy.stat().st_size > 0

    # What cannot apply everywhere

    def needs_books(self) -> None:
        if not self.many_books:
            pytest.skip("this engine's places hold one book")

    def needs_processes(self) -> None:
        if not self.many_processes:
            pytest.skip("this engine's places cannot be reached from another process")


@contextmanager
def process(target: Callable[..., None], *args: object) -> Iterator[SpawnProcess]:
    """A process of its own, spawned, that ends with the block whatever happens in it."""
    child = SPAWN.Process(target=target, args=args, daemon=True)
    child.start()
    try:
        yield child
    finally:
        child.join(0 if sys.exc_info()[0] else PATIENCE)
        child.kill()
        child.join()
        child.close()


def calls(store: Store) -> dict[str, Callable[[], object]]:
    """Every call that a closed or forked store has to refuse."""

    def read() -> None:
        with store.read():
            pass

    def begin() -> None:
        with store.begin():
            pass

    return {
        "read": read,
        "begin": begin,
        "wait": lambda: store.wait(0, 0.0),
        "lease": lambda: store.lease("name", "me", 1.0),
        "drop_spaces": lambda: store.drop_spaces("none such"),
        "trim": lambda: store.trim("none such", 0),
        "purge": store.purge,
    }


def fail_in_transaction(store: Store, write: WriteSet | None) -> None:
    """Begin, read, apply `write` if there is one, and leave the transaction by an error."""
    with store.begin() as tx:
        tx.records(0, 1, 1)
        if write is not None:
            tx.apply(write)
        raise ZeroDivisionError


def tail(reader: Store, expected: int) -> list[Record]:
    """Follow the ledger by `wait` until so many records were seen, each exactly once and in order."""
    seen: list[Record] = []
    while len(seen) < expected:
        began = time.monotonic()
        news = reader.wait(len(seen), PATIENCE * 3)
        assert news > len(seen), "no news although somebody is writing"
        assert time.monotonic() - began < PATIENCE * 2, "news came by timeout only"
        with reader.read(at_least=news) as reads:
            head = reads.head
            assert head.position >= news
            batch = reads.records(len(seen), head.position, 10_000)
        assert [each.position for each in batch] == list(range(len(seen) + 1, head.position + 1))
        assert head.hash == batch[-1].hash
        seen += batch
    return seen


def attempt(call: Callable[[], object]) -> str:
    """What came of a call: "nothing", or the name of the error it raised."""
    try:
        call()
    except CommonplaceError as error:
        return type(error).__name__
    return "nothing"


def in_forked_child(call: Callable[[], str]) -> str:
    """What `call` answers in a child process made by fork."""
    ear, mouth = os.pipe()
    with warnings.catch_warnings():
        # Forking a process with threads is just what the contract has to survive.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(PATIENCE))  # a child that hangs must not outlive the test
            answer = call()
        except BaseException as error:  # noqa: BLE001  nothing may escape into the copy of the test run
            answer = repr(error)
        os.write(mouth, answer.encode())
        os._exit(0)
    os.close(mouth)
    heard = b""
    try:
        while select.select([ear], [], [], PATIENCE * 2)[0] and (part := os.read(ear, 65536)):
            heard += part
    finally:
        os.close(ear)
        os.waitpid(child, 0)
    return heard.decode()


def skew_wall_clock(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    """Let this process believe that it is another day; clocks that only run forward are left alone."""
    wall, wall_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: wall() + seconds)
    monkeypatch.setattr(time, "time_ns", lambda: wall_ns() + seconds * 10**9)


def files_with(folder: Path, secret: bytes) -> list[str]:
    """The files below `folder` that hold `secret`, plain or in an encoding that a text format would use.

    Looked for in another process: closing a file that SQLite has open in this one would drop its locks.
    """
    hear, say = SPAWN.Pipe(duplex=False)
    with hear, process(workers.look_for, folder, secret, say):
        say.close()
        assert hear.poll(PATIENCE * 3)
        found: list[str] = hear.recv()
        return found
