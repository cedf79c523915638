"""Export, import, copy and backup between all engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import commonplace
from commonplace import Blob, Book
from commonplace.ledger import transfer
from tests.toy import TOY, Put


def fill(book: Book) -> None:
    for i in range(12):
        book.record(
            "agent.spoke",
            actor=f"actor {i % 3}",
            payload={"text": f"line {i} \x00 ü", "x": [i, i / 3, None], "b": Blob(b"blob %d" % (i % 2))},
            run_id=f"run {i % 2}" if i % 3 else None,
            id=f"id {i}",
            parents=[f"id {i - 1}"] if i == 7 else [],
            labels={"sensitivity": "private"},
        )
    book.erase("id 6", reason="private")


def everything(book: Book) -> list[dict[str, object]]:
    return [event.as_dict() for event in book.events()]


@pytest.fixture
def source(tmp_path: Path) -> Book:
    book = commonplace.open(tmp_path / "source.db")
    fill(book)
    return book


@pytest.mark.spec("1.4", "L6")
def test_a_copy_from_engine_to_engine_is_the_same_ledger(
    source: Book, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """SQLite → PostgreSQL → Redis → files → SQLite: the same events, times, positions and hashes."""
    servers = [request.getfixturevalue(name).url for name in ("postgres", "valkey")]
    urls = [
        *(
            f"{url}{'&' if '?' in url else '?'}book=copy-{tmp_path.name}-{tmp_path.parent.name}"
            for url in servers
        ),
        f"file:{tmp_path / 'folder'}",
        str(tmp_path / "back.db"),
    ]
    book = source
    for url in urls:
        following = commonplace.open(url)
        report = book.admin.copy(following)
        assert (report.exact, report.events, report.left_out) == (True, book.head, ())
        book.close()
        book = following
    with book, commonplace.open(tmp_path / "source.db") as first:
        assert everything(book) == everything(first)
        assert book.verify() == first.verify()
        assert book.runs.list() == first.runs.list()
        for event in first.events():
            if "b" in event.payload:
                digest = event.payload["b"]["$blob"]
                assert book.blob(digest) == first.blob(digest)
        first.record("agent.spoke", payload={"text": "later"})
        assert first.admin.copy(book).events == 1
        assert book.verify().hash == first.verify().hash


@pytest.mark.spec("1.4")
def test_an_export_can_be_read_by_any_tool_and_taken_in_again(book_url: str, tmp_path: Path) -> None:
    with commonplace.open(book_url) as book:
        fill(book)
        file = tmp_path / "out.jsonl"
        assert book.admin.export(file) == 13
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert lines[0]["head"] == lines[-1]["end"] == 13
        events = [line for line in lines if "position" in line]
        assert events[0]["payload"]["text"] == "line 0 \x00 ü"
        assert events[6]["payload"] is None
        assert {"blob", "data"} == set(lines[1])
        with commonplace.open("memory:") as other:
            report = other.admin.import_(file)
            assert (report.exact, report.events) == (True, 13)
            assert everything(other) == everything(book)
            assert other.verify().hash == book.verify().hash
            assert other.admin.import_(file).already == 13
            book.record("agent.spoke")
            book.admin.export(file)
            assert other.admin.import_(file).events == 1
        with commonplace.open("memory:") as part:
            book.admin.export(file, at=5)
            assert part.admin.import_(file).head == 5


@pytest.mark.spec("1.4", "1.5", "L5")
def test_what_cannot_be_continued_is_recorded_anew_with_its_origin(source: Book, tmp_path: Path) -> None:
    with commonplace.open("memory:") as other:
        other.record("agent.spoke", payload={"text": "mine"})
        report = source.admin.copy(other)
        assert (report.exact, report.events, report.already) == (False, 11, 0)
        assert report.left_out == (("id 6", "erased"), ("id 7", "erased"))
        taken = other.event("id 2")
        original = source.event("id 2")
        assert taken.payload == original.payload
        assert taken.labels == {"sensitivity": "private", "origin": f"{source.id}@3"}
        assert taken.occurred_at == original.created_at
        assert taken.position != original.position
        erasure = next(event for event in other.events(kinds="event.imported"))
        assert erasure.payload["kind"] == "event.erased"
        assert not other.event("id 5").erased
        assert other.verify().ok
        assert source.admin.copy(other).already == 11
        assert other.head == 12
    with commonplace.open("memory:") as clashing:
        clashing.record("agent.spoke", id="id 3", payload={"text": "other"})
        with pytest.raises(commonplace.Conflict, match="id 3"):
            source.admin.copy(clashing)


@pytest.mark.spec("1.5")
def test_owned_kinds_cannot_be_forged_by_an_import(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "a.db", capabilities=[TOY]) as source:
        source.ledger.submit("put", Put("tea", 50))
        with commonplace.open("memory:", capabilities=[TOY]) as target:
            target.record("agent.spoke")
            source.admin.copy(target)
            with target.ledger.snapshot() as snapshot:
                assert snapshot.get("jars", "tea") is None
            assert [event.kind for event in target.events()] == ["agent.spoke", "event.imported"]
        with commonplace.open("memory:", capabilities=[TOY]) as replica:
            source.admin.copy(replica)
            with replica.ledger.snapshot() as snapshot:
                assert snapshot.get("jars", "tea")["coins"] == 50


@pytest.mark.spec("1.4", "L10")
def test_an_erasure_travels_with_the_copy_and_an_old_export_restores_nothing(
    source: Book, tmp_path: Path
) -> None:
    early = tmp_path / "early.jsonl"
    with commonplace.open("memory:") as copy:
        source.admin.copy(copy)
        source.admin.export(early)
        source.erase("id 1")
        assert not copy.event("id 1").erased
        source.admin.copy(copy)
        assert copy.event("id 1").erased
        copy.admin.import_(early)
        assert copy.event("id 1").erased
        assert copy.verify().ok


@pytest.mark.spec("1.4", "L10", "5.2")
def test_who_reads_while_a_copy_arrives_sees_it_whole_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was erased comes long before its tombstone, and another process may fold what is there meanwhile."""
    monkeypatch.setattr(transfer, "BATCH", 3)
    place = f"file:{tmp_path / 'copy'}"
    with (
        commonplace.open("memory:") as source,
        commonplace.open(place) as target,
        commonplace.open(place) as other,
    ):
        work = source.work(name="w", id="w")
        added = [work.add_task(f"task {n}") for n in range(8)]
        source.erase(next(event.id for event in source.events(kinds="task.added")))
        seen = list[int]()

        def look(_done: int, _total: int) -> None:
            with other.ledger.snapshot() as there:
                seen.append(there.position)

        source.admin.copy(target, progress=look)
        for book in (target, other):
            assert (book.work(id="w").counts()["tasks"], len(book.work(id="w").tasks())) == (8, 8)
        assert len(set(seen)) > 2
        assert len(added) == 8


Damage = Callable[[list[str]], list[str]]


def edit(number: int, **fields: object) -> Damage:
    def damage(lines: list[str]) -> list[str]:
        line = json.loads(lines[number])
        line.update(fields)
        return [*lines[:number], json.dumps(line, separators=(",", ":")), *lines[number + 1 :]]

    return damage


@pytest.mark.spec("1.4", "L4")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda lines: lines[:-1], id="the end is missing"),
        pytest.param(lambda lines: lines[:3] + lines[4:], id="an event is missing"),
        pytest.param(lambda lines: [*lines[:4], lines[3], *lines[4:]], id="an event stands twice"),
        pytest.param(
            lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], id="two have changed places"
        ),
        pytest.param(edit(2, actor="mallory"), id="another actor"),
        pytest.param(edit(2, payload={"text": "forged"}), id="another payload"),
        pytest.param(edit(2, unknown=1), id="an unknown field"),
        pytest.param(edit(2, position="one"), id="a position that is no number"),
        pytest.param(edit(1, data="bm90IGl0"), id="another blob"),
        pytest.param(edit(1, data="%%%"), id="a blob that is no base64"),
        pytest.param(lambda lines: [lines[0], "[" * 100_000, *lines[1:]], id="deep nesting"),
        pytest.param(lambda lines: [lines[0], "{'python': True}", *lines[1:]], id="no JSON"),
        pytest.param(lambda lines: lines[1:], id="no first line"),
        pytest.param(lambda lines: [], id="empty"),
        pytest.param(edit(0, format=99), id="a newer format"),
    ],
)
def test_a_damaged_export_is_refused_before_anything_is_written(
    source: Book, tmp_path: Path, damage: Damage
) -> None:
    file = tmp_path / "out.jsonl"
    source.admin.export(file)
    file.write_text("\n".join(damage(file.read_text().splitlines())) + "\n")
    for existing in (0, 1):
        with commonplace.open("memory:") as book:
            for _ in range(existing):
                book.record("agent.spoke")
            with pytest.raises(commonplace.BadInput):
                book.admin.import_(file)
            assert book.head == existing


def test_an_import_of_something_else_says_what_it_wants(tmp_path: Path) -> None:
    with commonplace.open("memory:") as book:
        with pytest.raises(commonplace.BadInput, match="not a file"):
            book.admin.import_(tmp_path)
        (tmp_path / "x").write_bytes(b"\x80\x04\x95pickle")
        with pytest.raises(commonplace.BadInput, match="line 1"):
            book.admin.import_(tmp_path / "x")


@pytest.mark.spec("1.4")
def test_a_backup_is_a_book(book_url: str, tmp_path: Path) -> None:
    with commonplace.open(book_url) as book:
        fill(book)
        assert book.admin.backup(tmp_path / "backup.db") == 13
        with commonplace.open(tmp_path / "backup.db", create=False) as restored:
            assert everything(restored) == everything(book)
            assert restored.runs.list() == book.runs.list()
            assert restored.verify().ok
            assert restored.record("agent.spoke").position == 14
        with pytest.raises(commonplace.BadInput, match="exists"):
            book.admin.backup(tmp_path / "backup.db")


def test_long_work_tells_how_far_it_is(source: Book, tmp_path: Path) -> None:
    source.record_all([{"kind": "x.y"} for _ in range(1200)])
    told: list[tuple[int, int]] = []
    for work in (
        lambda report: source.verify(progress=report),
        lambda report: source.rebuild(progress=report),
        lambda report: source.admin.export(tmp_path / "o", progress=report),
        lambda report: source.admin.copy(commonplace.open("memory:"), progress=report),
    ):
        told.clear()
        work(lambda done, total: told.append((done, total)))
        assert told
        assert all(0 < done <= total for done, total in told)
        assert told == sorted(told)
