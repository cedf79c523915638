"""Things that go wrong while a book is in use: other processes, deleted files, Ctrl-C, closing in the middle."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.ledger.checks import to_us
from commonplace.ledger.encoding import canonical
from commonplace.ledger.events import Header
from commonplace.testing import Server, valkey_server


@pytest.fixture(params=["sqlite", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A book on this disk."""
    return str(tmp_path / "b.db") if request.param == "sqlite" else f"file:{tmp_path / 'b'}"


@pytest.fixture
def writing(url: str) -> Iterator[Book]:
    """The book, while somebody else writes to it all the time."""
    stop = threading.Event()
    with commonplace.open(url) as theirs, commonplace.open(url) as book:

        def write() -> None:
            while not stop.is_set():
                theirs.record("agent.spoke", payload={"text": "busy"})

        writer = threading.Thread(target=write)
        writer.start()
        yield book
        stop.set()
        writer.join(30)


@pytest.mark.spec("1.3")
def test_verify_is_not_misled_by_those_who_write_or_erase_meanwhile(writing: Book, url: str) -> None:
    writing.record_all([{"kind": "agent.spoke", "id": f"mine {i}"} for i in range(600)])
    for turn in range(5):
        told: list[int] = []

        def erase(done: int, _total: int, turn: int = turn, told: list[int] = told) -> None:
            if not told:
                told.append(done)
                writing.erase(f"mine {500 + turn}")

        found = writing.verify(progress=erase)
        assert found.ok, found.problem
        assert told
        with commonplace.open(url) as another:
            status = another.admin.status()
            assert status.acknowledged <= status.head


@pytest.mark.spec("L3", "L4")
def test_close_in_the_middle_of_writes_is_clean(book_url: str) -> None:
    def write(book: Book, started: threading.Barrier, outcomes: list[BaseException]) -> None:
        started.wait()
        try:
            while True:
                book.record("agent.spoke")
        except BaseException as error:
            outcomes.append(error)

    for _ in range(5):
        book = commonplace.open(book_url)
        outcomes: list[BaseException] = []
        started = threading.Barrier(4)
        threads = [threading.Thread(target=write, args=(book, started, outcomes)) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        book.record("agent.spoke")
        book.close()
        for thread in threads:
            thread.join(60)
        assert len(outcomes) == 3
        for error in outcomes:
            assert isinstance(error, commonplace.BookClosed | commonplace.OutcomeUnknown), repr(error)


def test_writing_inside_a_snapshot_is_no_deadlock(book_url: str) -> None:
    with commonplace.open(book_url) as book:
        book.record("agent.spoke", run_id="first")
        done = threading.Event()

        def write() -> None:
            for i in range(20):
                book.record("agent.spoke", run_id=f"other {i}")
            done.set()

        with book.ledger.snapshot() as before:
            thread = threading.Thread(target=write)
            thread.start()
            for i in range(20):
                book.record("agent.spoke", run_id=f"mine {i}")
            assert done.wait(30)
            assert [key for key, _ in before.scan("runs")] == [("first",)]
        thread.join()
        assert len(book.runs.list()) == 41


def test_a_ledger_that_was_replaced_under_the_same_inode_is_read_again(tmp_path: Path) -> None:
    """As a checkout of another branch does it: same file, other content."""
    ledger = tmp_path / "book" / "ledger.jsonl"
    with commonplace.open(f"file:{tmp_path / 'book'}") as book:
        book.record("agent.spoke", payload={"text": "common"})
        common = ledger.read_bytes()
        book.record("agent.spoke", id="on one branch", payload={"text": "one"})
        one = ledger.read_bytes()
        ledger.write_bytes(common)
    with commonplace.open(f"file:{tmp_path / 'book'}") as book:
        book.record("agent.spoke", id="on another branch", payload={"text": "another, and longer"})
        inode = ledger.stat().st_ino
        with ledger.open("r+b") as same:
            same.truncate(0)
            same.write(one)
        assert ledger.stat().st_ino == inode
        assert [event.payload["text"] for event in book.events()] == ["common", "one"]
        book.record("agent.spoke", payload={"text": "goes on"})
        assert book.verify().ok
        assert not (tmp_path / "book" / "ledger.torn").exists()


def test_an_async_watcher_is_told_when_the_engine_fails_and_can_start_again() -> None:
    with valkey_server() as server, commonplace.open(server.url, name="b") as book:

        async def story(server: Server) -> None:
            async def first() -> int:
                async for event in book.aio.watch(after=0):
                    return int(event.position)
                return 0

            async def fail() -> None:
                async for _ in book.aio.watch(after=1):
                    pass

            await book.aio.record("agent.spoke")
            assert await asyncio.wait_for(first(), 30) == 1
            watching = asyncio.create_task(fail())
            await asyncio.sleep(0)
            await asyncio.to_thread(server.kill)
            with pytest.raises(commonplace.EngineUnavailable):
                await asyncio.wait_for(watching, 30)
            await asyncio.to_thread(server.start)
            assert await asyncio.wait_for(first(), 30) == 1

        asyncio.run(story(server))


@pytest.mark.spec("L10")
def test_an_erasure_reaches_what_was_recorded_anew_elsewhere(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "a.db") as source, commonplace.open("memory:") as target:
        target.record("agent.spoke")
        source.record("agent.spoke", id="secret", payload={"text": "hunter2"})
        source.admin.copy(target)
        assert target.event("secret").payload == {"text": "hunter2"}
        source.erase("secret")
        source.admin.copy(target)
        assert target.event("secret").erased
        assert target.verify().ok


@pytest.mark.spec("L10")
def test_an_event_with_very_many_descendants_can_be_erased() -> None:
    with commonplace.open("memory:") as book:
        book.record("agent.spoke", id="root", payload={"text": "secret"})
        children = [{"kind": "agent.spoke", "parents": ["root"], "payload": {"text": "secret"}}] * 5_000
        book.record_all(children)
        assert len(book.erase("root").erased) == 5_001
        assert all(event.erased or event.kind == "event.erased" for event in book.events())
        assert book.verify().ok


def forged(lines: list[dict[str, object]]) -> list[dict[str, object]]:
    """The lines of an export with their hashes made to fit again."""
    previous = "0" * 64
    for line in lines:
        if "position" in line:
            line["previous"] = previous
            fields = [
                line[name] for name in ("position", "id", "kind", "actor", "run_id", "session_id", "turn")
            ]
            created = to_us("t", datetime.fromisoformat(str(line["created_at"])))
            rest = [line[name] for name in ("schema_version", "parents", "labels", "digest", "previous")]
            header = canonical(Header(1, *fields, None, created, *rest))  # type: ignore[arg-type,call-arg]
            line["hash"] = previous = sha256(header).hexdigest()
        elif "end" in line:
            line["hash"] = previous
    return lines


@pytest.mark.spec("1.4")
@pytest.mark.parametrize(
    "field",
    [
        {"created_at": "1999-01-01T00:00:00Z"},
        {"id": "e0"},
        {"turn": -1},
        {"schema_version": 0},
        {"parents": [""]},
    ],
)
def test_a_forged_export_with_hashes_that_fit_is_still_refused(
    tmp_path: Path, field: dict[str, object]
) -> None:
    with commonplace.open("memory:") as book:
        for i in range(3):
            book.record("agent.spoke", id=f"e{i}")
        book.admin.export(tmp_path / "x.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    for changed, accepted in (({}, True), (field, False)):
        lines[2].update(changed)
        (tmp_path / "y.jsonl").write_text("\n".join(json.dumps(line) for line in forged(lines)) + "\n")
        content = (tmp_path / "y.jsonl").read_text().replace('{"position": ', '{"position":')
        (tmp_path / "y.jsonl").write_text(content)
        with commonplace.open("memory:") as book:
            if accepted:
                assert book.admin.import_(tmp_path / "y.jsonl").exact
            else:
                with pytest.raises(commonplace.BadInput):
                    book.admin.import_(tmp_path / "y.jsonl")
                assert book.head == 0


def test_a_book_says_so_when_it_is_not_the_one_that_was_named(tmp_path: Path) -> None:
    commonplace.open(tmp_path / "b.db", name="alpha").close()
    with pytest.raises(commonplace.Conflict, match="alpha"):
        commonplace.open(tmp_path / "b.db", name="beta")
    for nonsense in (None, 123, b"b.db"):
        with pytest.raises(commonplace.UnknownEngine):
            commonplace.open(nonsense)  # type: ignore[arg-type]
    assert not Path("None").exists()
    with pytest.raises(commonplace.EngineUnavailable):
        commonplace.open(str(tmp_path / ("x" * 300)))


def test_a_purge_in_a_git_repository_says_what_its_history_keeps(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    with commonplace.open(f"file:{tmp_path / 'book'}") as book:
        assert "git" in book.purge().remaining[0]
