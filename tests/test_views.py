"""Commands and views, shown with a toy capability on every engine."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

import commonplace
from commonplace import Book, Capability
from commonplace.engines.contract import Row
from commonplace.ledger import transfer
from commonplace.ledger.events import draft
from commonplace.ledger.keys import pack
from commonplace.ledger.overlay import Overlay
from commonplace.ledger.views import write_meta
from tests.toy import CHANGED, DIARY, JARS, PURSE, TOTALS, TOY, Put


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    with commonplace.open(book_url, capabilities=[TOY]) as opened:
        yield opened


def put(book: Book, jar: str, coins: int, **more: Any) -> int:
    held: int = book.ledger.submit("put", Put(jar, coins, **more))
    return held


def row(book: Book, view: str, *key: str | int, at: int | None = None) -> Any:
    with book.ledger.snapshot(at) as snapshot:
        return snapshot.get(view, *key)


def stored_rows(book: Book) -> dict[str, list[Row]]:
    """Every version of every view as the engine holds it, without the generation in its name."""
    ledger = book.ledger
    with ledger.reads() as reads:
        meta = ledger.meta_of(reads.head)
        return {
            view.name: [found._replace(space="") for found in reads.versions(meta.space(view))]
            for view in ledger.registry.views.values()
        }


@pytest.mark.spec("L1", "L4", "1.5")
def test_a_command_decides_on_what_the_book_holds_and_its_view_follows_at_once(book: Book) -> None:
    assert put(book, "tea", 3) == 3
    assert put(book, "tea", -1) == 2
    with pytest.raises(commonplace.Conflict, match="holds 2"):
        put(book, "tea", -5)
    with pytest.raises(commonplace.OwnedKind, match="jars"):
        book.record("jar.changed", payload={"jar": "tea", "coins": 100})
    assert row(book, "jars", "tea")["coins"] == 2
    assert book.head == 2


@pytest.mark.spec("L7")
def test_a_row_can_be_read_as_of_any_position(book: Book) -> None:
    for coins in (3, -3, 5):
        put(book, "tea", coins)
    assert [
        row(book, "jars", "tea", at=at) and row(book, "jars", "tea", at=at)["coins"] for at in range(4)
    ] == [
        None,
        3,
        None,
        5,
    ]
    with book.ledger.snapshot(1) as then:
        assert then.scan("jars") == [(("tea",), {"coins": 3, "notes": []})]


def test_scans_keep_to_their_prefix_and_order(book: Book) -> None:
    for actor in ("a", "ab", "a b", "b"):
        for i in range(3):
            book.record("agent.spoke", actor=actor, payload={"text": f"{actor}{i}"})
    with book.ledger.snapshot() as snapshot:
        assert [value for _, value in snapshot.scan("diary", "a")] == ["a0", "a1", "a2"]
        assert [value for _, value in snapshot.scan("diary", "a", limit=1, reverse=True)] == ["a2"]
        assert [key[0] for key, _ in snapshot.scan("diary")] == ["a"] * 3 + ["a b"] * 3 + ["ab"] * 3 + [
            "b"
        ] * 3


@pytest.mark.spec("2.1")
def test_a_trailing_view_says_as_of_where_it_speaks(book: Book) -> None:
    put(book, "tea", 3)
    assert row(book, "totals", "ada") is None
    assert book.ledger.speaks_as_of("totals") == 0
    assert book.ledger.speaks_as_of("jars") == 1
    assert book.ledger.follow("totals") == 1
    assert row(book, "totals", "ada") == 3
    put(book, "tea", 4)
    assert row(book, "totals", "ada") == 3
    book.ledger.follow("totals")
    assert (row(book, "totals", "ada"), book.ledger.speaks_as_of("totals")) == (7, 2)
    with pytest.raises(commonplace.BadInput, match="inline"):
        book.ledger.follow("jars")


def test_a_lease_is_taken_with_its_event_or_not_at_all(book: Book) -> None:
    assert book.ledger.submit("hold", ("tea", "ada")) is True
    assert book.ledger.submit("hold", ("tea", "bob")) is False
    assert book.head == 1
    lease = book.ledger.store.lease("jar/tea", "ada", 0, fence=1)
    assert lease.seconds == 0
    assert book.ledger.submit("hold", ("tea", "bob")) is True


@pytest.mark.spec("L4")
def test_a_decider_that_fails_leaves_nothing_behind_and_hurts_nobody(book: Book) -> None:
    with pytest.raises(ZeroDivisionError):
        book.ledger.submit("crash", "tea")
    assert (book.head, row(book, "jars", "tea")) == (0, None)
    assert put(book, "tea", 1) == 1


@pytest.mark.spec("1.1")
def test_old_events_are_read_in_the_current_schema_and_future_ones_are_kept(book: Book) -> None:
    def in_the_past(overlay: Overlay, version: int) -> commonplace.Event:
        fields = {1: {"name": "tea", "amount": 2}, 9: {"jar": "tea", "coins": 7, "later": "field"}}
        overlay.acting = "jars"
        return overlay.emit(
            draft("jar.changed", actor="ada", payload=fields[version], schema_version=version)
        )

    book.ledger.run(in_the_past, 1)
    book.ledger.run(in_the_past, 9)
    old, future = book.events()
    assert (old.schema_version, old.payload) == (1, {"jar": "tea", "coins": 2, "note": ""})
    assert (future.schema_version, future.payload["later"]) == (9, "field")
    assert row(book, "jars", "tea")["coins"] == 9


@pytest.mark.spec("L1", "L6")
def test_deleting_every_view_and_rebuilding_gives_the_same_bytes(book: Book) -> None:
    for i in range(40):
        put(book, f"jar {i % 4}", i + 1, note=f"note {i}", by=f"actor {i % 3}")
        book.record("agent.spoke", actor="eve", payload={"text": f"line {i}"}, run_id=f"run {i % 2}")
    book.erase([event.id for event in book.events() if event.position % 9 == 0])
    book.ledger.follow("totals")
    before = stored_rows(book)
    assert all(before[name] for name in ("jars", "totals", "diary", "runs"))
    book.ledger.store.drop_spaces("")
    book.rebuild()
    assert stored_rows(book) == before
    book.rebuild()
    assert stored_rows(book) == before


@pytest.mark.spec("L10")
def test_erasing_derives_each_row_again_and_keeps_what_the_kind_keeps(book: Book) -> None:
    put(book, "tea", 3, note="from mum", id="first")
    put(book, "tea", 2, note="from dad")
    book.record("agent.spoke", actor="ada", payload={"text": "secret"}, id="spoken")
    book.ledger.follow("totals")
    book.erase(["first", "spoken"])

    assert row(book, "jars", "tea") == {"coins": 5, "notes": ["from dad"]}
    assert row(book, "jars", "tea", at=1) == {"coins": 3, "notes": []}
    assert (row(book, "totals", "ada"), row(book, "diary", "ada", 3)) == (5, None)
    assert row(book, "diary", "ada", 3, at=3) is None
    assert book.event("first").payload == {}
    after = stored_rows(book)
    assert "from mum" not in str(after)
    assert "secret" not in str(list(after.values()))
    book.rebuild()
    assert stored_rows(book) == after


@pytest.mark.spec("L1", "L7", "L10")
def test_a_present_view_has_one_row_for_all_that_happened_to_it(book: Book, tmp_path: Path) -> None:
    for i in range(1, 9):
        put(book, f"jar {i % 3}", i, note=f"note {i}", id=f"e{i}")
    assert row(book, "purse", "all") == {"coins": 36, "last": "jar 2"}
    assert [(one.position, one.key) for one in stored_rows(book)["purse"]] == [(0, pack(("all",)))]
    assert row(book, "purse", "all", at=8) == {"coins": 36, "last": "jar 2"}, "now has a position, too"
    with pytest.raises(commonplace.BadInput, match="keeps no past"):
        row(book, "purse", "all", at=7)

    book.erase(["e8", "e2"])
    after = stored_rows(book)["purse"]
    assert row(book, "purse", "all") == {"coins": 36, "last": "jar 2"}
    with commonplace.open(tmp_path / "copy", capabilities=[TOY]) as copy:
        assert book.admin.copy(copy).exact
        assert stored_rows(copy)["purse"] == after
        put(book, "jar 0", 2, id="e10")
        put(copy, "jar 0", 2, id="e10")
    book.rebuild()
    assert row(book, "purse", "all") == {"coins": 38, "last": "jar 0"}
    put(book, "jar 0", -11)
    put(book, "jar 1", -12)
    put(book, "jar 2", -15)
    assert row(book, "purse", "all") is None
    assert stored_rows(book)["purse"] == [], "what holds no more leaves no row behind"
    book.rebuild()
    assert stored_rows(book)["purse"] == []
    put(book, "jar 2", 1)
    assert row(book, "purse", "all") == {"coins": 1, "last": "jar 2"}


@pytest.mark.spec("L4", "L7")
def test_a_copy_that_broke_off_before_a_tombstone_is_whole_once_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("commonplace.ledger.transfer.BATCH", 2)
    source = commonplace.open("memory:", capabilities=[TOY])
    for i in range(1, 7):
        put(source, "tea", i, id=f"e{i}")
    source.erase("e2")
    for name in ("file:" + str(tmp_path / "files"), str(tmp_path / "sqlite.db")):
        with (
            commonplace.open(name, capabilities=[TOY]) as copy,
            pytest.raises(KeyboardInterrupt),
        ):
            source.admin.copy(copy, progress=stop)
        with commonplace.open(name, capabilities=[TOY]) as copy:
            copy.rebuild()
            assert source.admin.copy(copy).exact
            assert copy.verify().ok
            assert row(copy, "purse", "all") == row(source, "purse", "all") == {"coins": 21, "last": "tea"}


@pytest.mark.spec("L4", "L7")
def test_what_is_erased_while_a_copy_checks_its_source_arrives_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = (commonplace.open("memory:", capabilities=[TOY]) for _ in range(2))
    for i in range(1, 7):
        put(source, "tea", i, id=f"e{i}")
    look = transfer.of_ledger

    def late(ledger: Any) -> transfer.Source:
        found = look(ledger)
        if source.event("e2").payload:
            source.erase("e2")
        return found

    monkeypatch.setattr(transfer, "of_ledger", late)
    done = source.admin.copy(target)
    assert (done.exact, done.events, done.already) == (True, 7, 0)
    assert [one.hash for one in target.events()] == [one.hash for one in source.events()]


@pytest.mark.spec("L8")
def test_a_damaged_row_is_told_every_time(tmp_path: Path) -> None:
    path = tmp_path / "book.db"
    with commonplace.open(path, capabilities=[TOY]) as book:
        put(book, "tea", 3)
    with closing(
        apsw.Connection(str(path))
    ) as file:  # with its checksums of pages, so that the row itself is looked at
        value: Any = file.execute("SELECT value FROM rows WHERE space LIKE 'jars/%'").get
        damaged = value.replace(b":3", b":7")
        file.execute("UPDATE rows SET value = ? WHERE value = ?", (damaged, value))
    with commonplace.open(path, capabilities=[TOY]) as book:
        for _ in range(2):
            with pytest.raises(commonplace.Corrupt, match="'tea' of the view 'jars' is damaged.*rebuild"):
                put(book, "tea", 1)


@pytest.mark.spec("L7", "L10")
def test_below_the_horizon_views_are_refused_not_guessed(book: Book) -> None:
    for i in range(1, 9):
        put(book, "tea", i, note=f"n{i}", id=f"e{i}")
    put(book, "jam", 1)
    put(book, "jam", -1)
    kept = [row(book, "jars", "tea", at=at) for at in range(6, 11)]
    assert book.ledger.raise_horizon(6) > 0
    with pytest.raises(commonplace.BeforeHorizon, match="horizon 6"):
        row(book, "jars", "tea", at=5)
    assert [row(book, "jars", "tea", at=at) for at in range(6, 11)] == kept
    assert len(list(book.events(at=3))) == 3

    book.erase(["e2", "e6"])
    assert row(book, "jars", "tea", at=6)["notes"] == ["n1", "n3", "n4", "n5"]
    assert row(book, "jars", "tea")["coins"] == 36
    after = stored_rows(book)
    assert "n2" not in str(after["jars"])
    book.rebuild()
    assert stored_rows(book)["jars"] == after["jars"]
    with pytest.raises(commonplace.BeforeHorizon):
        row(book, "jars", "tea", at=5)
    with pytest.raises(commonplace.BadInput):
        book.ledger.raise_horizon(99)


def with_views(*views: commonplace.View) -> Capability:
    return Capability(TOY.name, TOY.kinds, TOY.commands, views)


@pytest.mark.spec("L1", "4.13")
def test_a_new_fold_is_built_beside_the_old_and_switched_and_an_older_library_is_refused(
    book_url: str,
) -> None:
    if book_url == "memory:":
        pytest.skip("a memory book cannot be opened again")
    newer = dataclasses.replace(
        JARS, version=2, fold=lambda _key, before, event: {"twice": 2 * event.payload["coins"]}
    )
    with commonplace.open(book_url, capabilities=[with_views(JARS, DIARY)]) as book:
        put(book, "tea", 3)
    with commonplace.open(book_url, capabilities=[with_views(newer, DIARY, TOTALS)]) as book:
        assert row(book, "jars", "tea") == {"twice": 6}
        assert row(book, "jars", "tea", at=1) == {"twice": 6}
        assert book.ledger.speaks_as_of("totals") == 1
    with pytest.raises(commonplace.BookTooNew, match="jars"):
        commonplace.open(book_url, capabilities=[with_views(JARS, DIARY, TOTALS)])
    with pytest.raises(commonplace.BookTooNew, match="capability"):
        commonplace.open(book_url)


@pytest.mark.spec("L1")
def test_a_writer_notices_that_the_book_became_too_new_while_it_was_open(book_url: str) -> None:
    if book_url == "memory:":
        pytest.skip("a memory book cannot be opened twice")
    newer = dataclasses.replace(JARS, version=2)
    with commonplace.open(book_url, capabilities=[TOY]) as old:
        put(old, "tea", 1)
        with commonplace.open(book_url, capabilities=[with_views(newer, DIARY, TOTALS, PURSE)]):
            pass
        with pytest.raises(commonplace.BookTooNew):
            put(old, "tea", 1)
        with pytest.raises(commonplace.BookTooNew):
            old.record("agent.spoke")


def test_a_book_with_a_newer_layout_is_refused_with_what_to_do(book_url: str) -> None:
    if book_url == "memory:":
        pytest.skip("a memory book cannot be opened again")
    with commonplace.open(book_url) as book:
        meta = msgspec.structs.replace(book.ledger.meta, layout=99)

        def make_newer(overlay: Overlay, _: None) -> None:
            overlay.write.meta = write_meta(meta)

        book.ledger.run(make_newer, None)
    with pytest.raises(commonplace.BookTooNew, match="upgrade"):
        commonplace.open(book_url)


def test_two_processes_see_each_others_switch(book_url: str) -> None:
    if book_url == "memory:":
        pytest.skip("a memory book cannot be opened twice")
    with (
        commonplace.open(book_url, capabilities=[TOY]) as one,
        commonplace.open(book_url, capabilities=[TOY]) as two,
    ):
        put(one, "tea", 3)
        assert row(two, "jars", "tea")["coins"] == 3
        one.rebuild()
        assert put(two, "tea", 1) == 4
        assert row(one, "jars", "tea")["coins"] == 4
        two.erase(next(iter(one.events())).id)
        assert row(one, "jars", "tea")["notes"] == []


def test_capabilities_that_bring_the_same_name_are_refused() -> None:
    with pytest.raises(commonplace.Conflict, match="jar.changed"):
        commonplace.open("memory:", capabilities=[TOY, Capability("other", kinds=(CHANGED,))])


MEETING = """
import sys, threading, msgspec
from commonplace.ledger.encoding import convert

sys.setswitchinterval(1e-6)
for n in range(200):
    inner = msgspec.defstruct(f"Inner{n}", [("a", int), ("b", list[str] | None, None)])
    outer = msgspec.defstruct(f"Outer{n}", [(f"f{i}", inner | None, None) for i in range(12)])
    data, start = {f"f{i}": {"a": i, "b": ["x"]} for i in range(12)}, threading.Barrier(6)

    def meet(type):
        start.wait()
        convert(data if type is outer else data["f0"], type)

    threads = [threading.Thread(target=meet, args=(type,)) for type in [outer, inner] * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


@pytest.mark.spec("L5", "7.4")
def test_threads_that_meet_a_type_for_the_first_time_do_not_end_the_process() -> None:
    """As the first requests of a server do."""
    done = subprocess.run([sys.executable, "-c", MEETING], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
