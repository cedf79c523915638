"""The lock file: one writer of a host at a time, nobody starved, nothing left locked by the dead or the interrupted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace.engines.interrupts import OwnedLock, run_inside
from commonplace.engines.lock_file import FileLock


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[list[FileLock]]:
    """Locks on one file, as different processes have them."""
    locks = [FileLock(tmp_path / "lock") for _ in range(2)]
    yield locks
    for lock_file in locks:
        lock_file.close()


def test_one_at_a_time_and_leaving_twice_does_no_harm(locks: list[FileLock]) -> None:
    one, two = locks
    first, second = object(), object()
    one.enter(first, 5)
    for lock_file in locks:
        with pytest.raises(commonplace.Busy, match="was not free within 0.02 s"):
            lock_file.enter(second, 0.02)
    one.leave(second)
    assert one.holds(first)
    one.leave(first)
    two.enter(second, 5)
    one.leave(first)
    with pytest.raises(commonplace.Busy):
        one.enter(first, 0.02)
    two.leave(second)
    one.enter(first, 5)
    one.leave(first)


def test_a_lock_is_released_by_its_owner_alone() -> None:
    lock, owner, other = OwnedLock(), object(), object()
    assert lock.acquire(owner, 0)
    assert not lock.acquire(other, 0.01)
    lock.release(other)
    assert lock.owned_by(owner)
    waiting = threading.Thread(target=lambda: lock.acquire(other, 30))
    waiting.start()
    lock.release(owner)
    waiting.join(30)
    assert lock.owned_by(other)


def test_what_an_interrupt_has_cut_short_is_done_again() -> None:
    class Cut:
        exits = 0

        def __enter__(self) -> str:
            return "entered"

        def __exit__(self, *_: object) -> None:
            self.exits += 1
            if self.exits == 1:
                raise KeyboardInterrupt

    cut, seen = Cut(), list[str]()
    with pytest.raises(KeyboardInterrupt):
        run_inside(cut, seen.append)
    assert (seen, cut.exits) == (["entered"], 2)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is a POSIX call")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_lock_that_was_given_up_is_free_though_a_child_was_forked(locks: list[FileLock]) -> None:
    one, two = locks
    holder, reads, writes = object(), *os.pipe()
    one.enter(holder, 5)
    child = os.fork()
    if child == 0:
        os.close(writes)
        os.read(reads, 1)  # until the parent is done
        os._exit(0)
    try:
        one.leave(holder)
        two.enter(holder, 5)
        two.leave(holder)
    finally:
        os.close(writes)
        os.close(reads)
        os.waitpid(child, 0)


def test_a_child_process_does_not_keep_what_its_parent_has_locked(tmp_path: Path) -> None:
    """The parent is killed inside, and the child lives on."""
    forks = """
import os, sys, signal, time
from pathlib import Path
from commonplace.engines.lock_file import FileLock
lock_file = FileLock(Path(sys.argv[1]))
lock_file.enter("the parent", 5)
ready, told = os.pipe()
if os.fork() == 0:
    os.write(told, b"!")
    time.sleep(60)
    os._exit(0)
os.read(ready, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen(
        [sys.executable, "-c", forks, str(tmp_path / "lock")], start_new_session=True
    ) as parent:
        assert parent.wait(30) == -signal.SIGKILL
        lock_file = FileLock(tmp_path / "lock")
        lock_file.enter("somebody", 5)
        lock_file.leave("somebody")
        lock_file.close()
        os.killpg(parent.pid, signal.SIGKILL)


def test_a_gate_that_was_deleted_is_noticed_where_there_is_no_other_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    one, two = FileLock(path, only=True), FileLock(path, only=True)
    path.unlink()
    one.enter(1, 5)
    with pytest.raises(commonplace.Busy):
        two.enter(2, 0.05)
    one.leave(1)
    two.enter(2, 5)
    two.leave(2)
    one.close()
    two.close()

    url = f"file:{tmp_path / 'book'}"
    with commonplace.open(url) as book, commonplace.open(url) as other:
        for i in range(10):
            (book if i % 2 else other).record("agent.spoke")
            (tmp_path / "book" / "lock").unlink()
        assert [event.position for event in book.events()] == list(range(1, 11))
        assert other.verify().ok


def test_a_gate_is_closed_when_the_thread_inside_has_left(tmp_path: Path) -> None:
    lock_file, closed = FileLock(tmp_path / "lock"), list[str]()
    lock_file.enter(1, 5)
    closing = threading.Thread(target=lambda: lock_file.close(lambda: closed.append("closed")))
    closing.start()
    assert lock_file.holds(1)
    assert not closed
    lock_file.leave(1)
    closing.join(30)
    assert closed == ["closed"]
    with pytest.raises(commonplace.BookClosed):
        lock_file.enter(2, 5)


# books


def _append(path: str, count: int, barrier: Any) -> None:
    with commonplace.open(path) as book:
        barrier.wait()
        for n in range(count):
            book.record("agent.spoke", actor=f"p{os.getpid()}", payload={"n": n})


@pytest.mark.spec("L2", "L3", "L4")
@pytest.mark.parametrize("form", ["{}/b.db", "file:{}/b"])
def test_processes_that_write_at_once_lose_nothing_and_none_is_starved(tmp_path: Path, form: str) -> None:
    url, count = form.format(tmp_path), 25
    commonplace.open(url).close()
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(4)
    writers = [spawn.Process(target=_append, args=(url, count, barrier)) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    with commonplace.open(url) as book:
        events = list(book.events())
        assert [event.position for event in events] == list(range(1, 4 * count + 1))
        for actor in {event.actor for event in events}:
            assert [event.payload["n"] for event in events if event.actor == actor] == list(range(count))
        assert book.verify().ok


@pytest.mark.spec("L2")
def test_a_book_says_what_its_own_commits_survive_whoever_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One handle promises that every commit is on disk, another only that it survives the process. They write at the
    same time, and every commit of the first is synced by the first."""
    import apsw

    path, synced = tmp_path / "b.db", list[str]()

    class Syncs(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("syncs", "")

        def xOpen(self, name: Any, flags: list[int]) -> Any:
            return SyncedFile("", name, flags)

    class SyncedFile(apsw.VFSFile):
        def __init__(self, vfs: str, name: Any, flags: list[int]) -> None:
            self.is_log = bool(flags[0] & apsw.SQLITE_OPEN_WAL)
            super().__init__(vfs, name, flags)

        def xSync(self, flags: int) -> None:
            if self.is_log:
                synced.append(threading.current_thread().name)
            super().xSync(flags)

    vfs = Syncs()
    with (
        commonplace.open(path, durability="full") as full,
        commonplace.open(path, durability="process") as process,
    ):
        for book in (full, process):
            store: Any = book.ledger.store
            store.poison()  # the next writer connects anew
            monkeypatch.setattr(store, "_connect", _through(store, "syncs"))
        threads = [
            threading.Thread(target=_records, args=(book, 30), name=name)
            for book, name in ((full, "full"), (process, "process"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert full.head == 60
        assert synced.count("full") >= 30
    vfs.unregister()


def _records(book: commonplace.Book, count: int) -> None:
    for n in range(count):
        book.record("agent.spoke", payload={"n": n})


def _through(store: Any, vfs: str) -> Callable[[], Any]:
    """How a store connects, by way of a VFS that counts what is synced."""
    import apsw

    from commonplace.engines.sqlite import prepare

    def connect() -> apsw.Connection:
        connection = apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READWRITE, vfs=vfs)
        prepare(connection, store._synchronous)
        return connection

    return connect
