"""A file lock that lets in one writer of a host at a time.

It is a file of its own, never the database: closing any other descriptor of a database file would drop SQLite's own
locks on it. SQLite's busy handler alone lets some processes starve.

The file also holds the last position that was committed. Waiters watch the file, so publishing a position wakes them.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakSet

from ..errors import BookClosed, Busy
from ..files.safe import access_of, open_private
from .interrupts import OwnedLock

NAP, PATIENCE = 0.001, 0.01
"""How long a process sleeps between two tries for the lock, in seconds, and after how long a wait it tries twice as
often. The longer a process has waited, the more often it tries, so that none starves."""
RECENT = 0.1
"""For how long a process that had to wait lets others go first, in seconds."""


class FileLock:
    """Lets one thread of one process in at a time.

    `only`: there is no other lock, so after entering it checks that the file is still the one that others would lock.
    """

    def __init__(self, path: Path, only: bool = False, book: Path | None = None) -> None:
        self.path = path
        self._book = book
        """The file or folder whose mode the lock file follows; None: it is private."""
        self._only = only
        self._threads = OwnedLock()
        self._closing = threading.Lock()
        """Held while the file is closed, and by a thread that uses it without being inside."""
        self._file = -1
        self._waited = 0.0
        """When this process last had to wait."""
        self._closed = False
        self._open()
        _locks.add(self)

    def _open(self) -> None:
        self._file = open_private(self.path, os.O_RDWR, access_of(self._book).writers)

    def enter(self, owner: object, timeout: float) -> None:
        """Take the lock for this owner, or raise Busy after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        try:
            if not self._threads.acquire(owner, timeout):
                raise _busy(timeout)
            if self._closed:
                raise BookClosed("this book is closed; open it again")
            if self._file < 0:  # the last owner was interrupted while it replaced the file
                self._open()
            self._lock(deadline, timeout)
            while self._only and not self._is_there():  # somebody removed the file: lock the new one
                self._shut()
                self._open()
                self._lock(deadline, timeout)
        except BaseException:
            self.leave(owner)
            raise

    def leave(self, owner: object) -> None:
        """Release the lock. Does nothing if this owner does not have it, so it may be called twice."""
        if self.holds(owner):
            try:
                self._unlock()
            finally:
                self._threads.release(owner)

    def holds(self, owner: object) -> bool:
        """Whether the lock is this owner's."""
        return self._threads.owned_by(owner)

    def inside(self, timeout: float) -> Inside:
        """A stay inside, from `with` to its end."""
        return Inside(self, timeout)

    def _lock(self, deadline: float, timeout: float) -> None:
        began = time.monotonic()
        if began - self._waited < RECENT:
            time.sleep(NAP / 4)  # others write, too: let one of them in first
        while not self._try():
            now = self._waited = time.monotonic()
            if now >= deadline:
                raise _busy(timeout)
            time.sleep(min(NAP / (1 + (now - began) / PATIENCE), deadline - now))

    def _try(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(self) -> None:
        if self._file >= 0:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _is_there(self) -> bool:
        """Whether the file that is locked is the one at its path."""
        try:
            here, there = os.fstat(self._file), self.path.stat()
        except FileNotFoundError:
            return False
        return (here.st_ino, here.st_dev) == (there.st_ino, there.st_dev)

    def publish(self, position: int) -> None:
        """Write down that this position is committed, which wakes every watcher of the file."""
        os.pwrite(self._file, b"%020d" % position, 0)

    def published(self) -> int:
        """The last position that was published; 0 if there is none."""
        position = os.pread(self._file, 20, 0)
        return int(position) if len(position) == 20 and position.isdigit() else 0

    def wake(self) -> None:
        """Wake every watcher of the file without news."""
        with self._closing:
            if self._file >= 0:
                os.pwrite(self._file, b"\n", 20)  # behind the position, which another process may be writing

    def close(self, last: Callable[[], None] = lambda: None) -> None:
        """Close the file when no thread of this process is inside; `last` is called before."""
        closing = object()
        try:
            while not self._threads.acquire(closing, 60.0):
                pass
            last()
            self._closed = True
            self._shut()
        finally:
            self._threads.release(closing)

    def drop(self) -> None:
        """Close it in a child process, where it is of no use."""
        file, self._file, self._closed = self._file, -1, True
        if file >= 0:
            os.close(file)

    def _shut(self) -> None:
        if self._file >= 0:
            self._unlock()  # closing does not unlock it while a forked child has it open
            with self._closing:
                file, self._file = self._file, -1
                os.close(file)


class Inside:
    """A context manager that holds the lock. It may be exited twice."""

    def __init__(self, lock: FileLock, timeout: float) -> None:
        self._lock, self._timeout = lock, timeout

    def __enter__(self) -> None:
        self._lock.enter(self, self._timeout)

    def __exit__(self, *_: object) -> None:
        self._lock.leave(self)


_locks: WeakSet[FileLock] = WeakSet()


def _in_child() -> None:
    """A child process must not hold the parent's lock after the parent's death."""
    for lock in list(_locks):
        lock.drop()


os.register_at_fork(after_in_child=_in_child)


def _busy(timeout: float) -> Busy:
    return Busy(
        f"the book's lock was not free within {timeout:g} s: another process is writing. "
        "Try again, or look with `commonplace doctor` for one that hangs"
    )
