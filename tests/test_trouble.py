"""Things that go wrong while a book is in use: other processes, deleted files, Ctrl-C, closing in the middle."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.engines import local
from commonplace.engines.local import Gate, _Proxy
from commonplace.events import Header, canonical, to_us
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
            status = another.status()
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

        with book.snapshot() as before:
            thread = threading.Thread(target=write)
            thread.start()
            for i in range(20):
                book.record("agent.spoke", run_id=f"mine {i}")
            assert done.wait(30)
            assert [key for key, _ in before.scan("runs")] == [("first",)]
        thread.join()
        assert len(book.runs()) == 41


def test_ctrl_c_while_waiting_for_the_gate_leaves_it_usable(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with commonplace.open(url) as one, commonplace.open(url) as two:
        wait = _Proxy.enter

        def interrupted(self: _Proxy, timeout: float) -> bool:
            wait(self, 0.01)
            raise KeyboardInterrupt

        with one._ledger.store.begin():
            monkeypatch.setattr(_Proxy, "enter", interrupted)
            with pytest.raises(KeyboardInterrupt):
                two.record("agent.spoke")
            monkeypatch.setattr(_Proxy, "enter", wait)
        assert one.record("agent.spoke").position == 1
        assert two.record("agent.spoke").position == 2
        assert one.record("agent.spoke").position == 3


@pytest.fixture
def gates(tmp_path: Path) -> Iterator[list[Gate]]:
    """One gate, as three processes have it."""
    each = [Gate(tmp_path / "gate") for _ in range(3)]
    yield each
    for one in each:
        one.close()


def in_the_background(gate: Gate, name: str, order: list[str]) -> threading.Thread:
    """Somebody who waits for the gate, tells its name inside, and leaves. Answers when it waits: at the door if it is
    the first, and else in the queue."""
    waits, at_the_door, in_the_queue = threading.Event(), gate._wait_at_the_door, gate._queue.wait

    def first(deadline: float) -> None:
        waits.set()
        at_the_door(deadline)

    def later(timeout: float) -> bool:
        waits.set()
        return in_the_queue(timeout)

    gate._wait_at_the_door, gate._queue.wait = first, later  # type: ignore[method-assign]

    def pass_through() -> None:
        gate.enter(30)
        order.append(name)
        gate.leave()

    thread = threading.Thread(target=pass_through)
    thread.start()
    assert waits.wait(30)
    return thread


def test_whoever_waits_for_the_gate_gets_in_in_order(
    gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "PATIENCE", 60.0)
    one, two, three = gates
    order: list[str] = []
    one.enter(5)
    second = in_the_background(two, "two", order)
    third = in_the_background(three, "three", order)
    one.leave()
    second.join(30)
    third.join(30)
    assert order == ["two", "three"]


def test_whose_turn_it_is_comes_back_while_others_wait(
    gates: list[Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not woken for each commit, and does not keep the gate when it has nothing more to write."""
    monkeypatch.setattr(local, "TURN", 60.0)
    monkeypatch.setattr(local, "NAP", 1.0)
    one, two, _ = gates
    order: list[str] = []
    one.enter(5)
    thread = in_the_background(two, "two", order)
    for position in range(20):
        one.poke(position)
        one.leave()
        one.enter(5)
        order.append("one")
    one.leave()
    thread.join(30)
    assert order == ["one"] * 20 + ["two"]


def test_a_turn_ends_however_much_there_is_to_write(gates: list[Gate]) -> None:
    one, two, _ = gates
    order: list[str] = []
    one.enter(5)
    thread = in_the_background(two, "two", order)
    position = 0
    while thread.is_alive():
        position += 1
        one.poke(position)
        one.leave()
        one.enter(30)
    one.leave()
    assert order == ["two"]


def test_who_was_stopped_while_it_waited_holds_nobody_up(gates: list[Gate], tmp_path: Path) -> None:
    """As by a debugger: it stands first in the queue and does not go in. Each of the others waits once until it looks
    for itself, and what it asked for in vain is not asked for again each time."""
    one, two, _ = gates
    patient = list[float]()
    for gate in (one, two):
        wait = gate._queue.wait
        gate._queue.wait = lambda timeout, wait=wait: patient.append(timeout) or wait(timeout)  # type: ignore
    files = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    with (tmp_path / "queue").open() as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        for n in range(200):
            gate = gates[n % 2]
            gate.enter(30)
            gate._turn_ends = 0.0  # the next time is another turn
            gate.leave()
        assert patient.count(local.PATIENCE) == 2
        assert patient.count(local.NAP) == 198
        one.enter(5)
        with pytest.raises(commonplace.Busy):
            two.enter(0.01)
        one.leave()
        two.enter(0.01)
        two.leave()
        waiting = [thread.name for thread in threading.enumerate()].count("commonplace-gate")
        assert waiting <= 4
        assert files == 0 or len(list(Path("/proc/self/fd").iterdir())) <= files + 5
    one.enter(5)
    one.leave()


@pytest.mark.parametrize("where", ["door", "queue"])
def test_ctrl_c_at_the_gate_lets_go_of_all_that_it_held(
    gates: list[Gate], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after a lock was had, before anybody could say so."""
    one, two, _ = gates
    lock = one._door if where == "door" else one._queue
    take = lock.take

    def interrupted() -> bool:
        assert take()
        raise KeyboardInterrupt

    with monkeypatch.context() as at_once:
        at_once.setattr(lock, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.enter(5)
    for gate in (two, one, two):
        gate.enter(0.1)
        gate.leave()
    two.enter(5)
    enter = _Proxy.enter

    def late(self: _Proxy, timeout: float) -> bool:
        two.leave()
        assert enter(self, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as while_waiting:
        while_waiting.setattr(_Proxy, "enter", late)
        with pytest.raises(KeyboardInterrupt):
            one.enter(5)
    for gate in (two, one, two):
        gate.enter(0.2)
        gate.leave()


def test_files_that_are_removed_while_somebody_waits_are_made_anew(
    gates: list[Gate], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = gates
    order: list[str] = []
    one.enter(5)
    second = in_the_background(two, "two", order)
    (tmp_path / "queue").unlink()
    third = in_the_background(three, "three", order)
    (tmp_path / "gate").unlink()
    one.leave()
    second.join(30)
    third.join(30)
    assert sorted(order) == ["three", "two"]


def test_a_lock_that_was_given_up_is_free_though_a_child_was_forked(gates: list[Gate]) -> None:
    one, two, _ = gates
    one.enter(5)
    with pytest.raises(commonplace.Busy):
        two.enter(0.05)  # its thread still waits for the lock
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        one.leave()
        two.close()
        one._turn_ends = 0.0
        one.enter(10)
        one.leave()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_gate_that_was_deleted_is_noticed_by_those_who_rest_on_it(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    one, two = Gate(path, only=True), Gate(path, only=True)
    path.unlink()
    one.enter(5)
    with pytest.raises(commonplace.Busy):
        two.enter(0.05)
    one.leave()
    two.enter(5)
    two.leave()
    one.close()
    two.close()

    url = f"file:{tmp_path / 'book'}"
    with commonplace.open(url) as book, commonplace.open(url) as other:
        for i in range(10):
            (book if i % 2 else other).record("agent.spoke")
            (tmp_path / "book" / "gate").unlink()
        assert [event.position for event in book.events()] == list(range(1, 11))
        assert other.verify().ok


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
                    return event.position
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
        source.copy(target)
        assert target.event("secret").payload == {"text": "hunter2"}
        source.erase("secret")
        source.copy(target)
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
        book.export(tmp_path / "x.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    for changed, accepted in (({}, True), (field, False)):
        lines[2].update(changed)
        (tmp_path / "y.jsonl").write_text("\n".join(json.dumps(line) for line in forged(lines)) + "\n")
        content = (tmp_path / "y.jsonl").read_text().replace('{"position": ', '{"position":')
        (tmp_path / "y.jsonl").write_text(content)
        with commonplace.open("memory:") as book:
            if accepted:
                assert book.import_(tmp_path / "y.jsonl").exact
            else:
                with pytest.raises(commonplace.BadInput):
                    book.import_(tmp_path / "y.jsonl")
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
