"""What the engines on local disks share: waiting for news of commits, and the calls that durability rests on."""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import BookClosed, CommonplaceError, EngineUnavailable, ReadOnly
from ..files.safe import access_of, open_private
from .contract import Store, Tx
from .forks import Lifetime
from .lock_file import FileLock
from .watch import Watch

SLOW_CHECK = 0.5
"""How long a waiter trusts silence before it looks for itself, in seconds."""


class Disk:
    """The few calls that durability rests on, in one place, so that tests can make each of them fail."""

    book: Path | None = None
    """The file whose mode and group new files follow; None: they are for nobody else."""

    def write(self, fd: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)
        self.sync_folder(target.parent)

    def sync_folder(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY)
        try:
            self.sync(fd)
        finally:
            os.close(fd)

    def write_file(self, path: Path, data: bytes) -> None:
        """Put a whole file in place: after a crash there is the old one or the new one."""
        self.replace(self.write_beside(path, data), path)

    def write_beside(self, path: Path, data: bytes) -> Path:
        """Write the file that is to take this one's place, and see it on disk."""
        fresh = path.with_name(f"{path.name}.new")
        fresh.unlink(missing_ok=True)  # left by a crash, or a link that leads elsewhere
        fd = open_private(fresh, os.O_WRONLY, access_of(self.book))
        try:
            self.write(fd, data)
            self.sync(fd)
        finally:
            os.close(fd)
        return fresh


def file_identity(path: Path) -> tuple[int, int, int, int]:
    """Inode, device, size and time of change: another value means that the file was written to or replaced."""
    status = path.stat()
    return (status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns)


def filesystem(path: Path) -> str:
    """The type of the file system a path lies on, or "" where the platform does not say."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        return ""
    place, depth, kind = path.resolve(), -1, ""
    for line in mounts.read_text().splitlines():
        left, _, right = line.partition(" - ")
        mount = Path(left.split()[4].replace("\\040", " "))
        if place.is_relative_to(mount) and len(mount.parts) > depth:
            depth, kind = len(mount.parts), right.split()[0]
    return kind


def disk_notes(path: Path) -> tuple[str, ...]:
    """What the file system under a book means for its promises."""
    kind, notes = filesystem(path), tuple[str, ...]()
    if path.exists() and path.stat().st_mode & 0o002:
        notes = ("everybody on this host can put files into its folder: move it to one of its own",)
    if kind in ("tmpfs", "ramfs"):
        return (f"it lies on {kind}, so it ends with the machine's power", *notes)
    if kind.startswith(("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs")):
        return (
            f"it lies on {kind}: locks there are not reliable. Use a local disk, or PostgreSQL for many hosts",
            *notes,
        )
    return notes


def remove_beside(book: Path) -> None:
    """Remove what was derived from a book and lies beside it: its index, and the list of its mirrors. A folder under
    such a name is somebody else's, and stays."""
    for ending in (".index", ".index-wal", ".index-shm", ".index-journal", ".index-lock", ".mirrors"):
        beside = book.with_name(book.name + ending)
        if beside.is_symlink() or not beside.is_dir():
            beside.unlink(missing_ok=True)


class LockedTx(Tx):
    """A transaction that holds the lock file from `with` to its end."""

    def __init__(self, lock_file: FileLock, timeout: float) -> None:
        self._lock_file, self._timeout = lock_file, timeout

    def __enter__(self) -> Self:
        try:
            self._lock_file.enter(self, self._timeout)
            self._begin()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._lock_file.holds(self):
            try:
                self._end(error)
            except Exception:
                self._lock_file.leave(self)
                raise
            self._lock_file.leave(self)  # not after an interrupt: ending it again needs the lock

    @abstractmethod
    def _begin(self) -> None:
        """Read the head, now that the lock is held."""

    @abstractmethod
    def _end(self, error: BaseException | None) -> None:
        """Give up what was not applied. May be called twice."""


class LocalStore(Store):
    """What every store with a lock file does: waiting, waking, closing."""

    def __init__(self, lock_path: Path, book: Path, only: bool = False) -> None:
        self._lock_path, self._book_file, self._only = lock_path, book, only
        self._lock_mutex = threading.Lock()
        self._opened_lock: FileLock | None = None
        self._lifetime = Lifetime()
        self._watches: list[Watch] = []

    @property
    def _lock_file(self) -> FileLock:
        """Made when it is first needed, so that a file that turns out to be no sound book has nothing beside it."""
        with self._lock_mutex:
            if self._opened_lock is None:
                self._opened_lock = self._open_lock()
            return self._opened_lock

    def _open_lock(self) -> FileLock:
        book = self._book_file
        if self.facts.read_only:
            raise ReadOnly(f"this user may read {book} and not write it: ask its owner for the right to")
        try:
            return FileLock(self._lock_path, self._only, book)
        except PermissionError as error:
            raise EngineUnavailable(
                f"{error.filename} is not for the group that {book} is for: let its owner open the book once, or do "
                f"`chgrp --reference={book} {error.filename}` and the same with chmod"
            ) from error
        except OSError as error:
            if isinstance(error, CommonplaceError):
                raise
            raise EngineUnavailable(f"cannot lock {book} ({error}): check its folder") from error

    def wait(self, after: int, timeout: float) -> int:
        self._lifetime.check()
        deadline = time.monotonic() + timeout
        watch = self._watches.pop() if self._watches else Watch(self._watched())
        position = 0
        try:
            while not self._lifetime.ended:
                with self.read() as reads:
                    position = reads.head.position
                left = deadline - time.monotonic()
                if position > after or left <= 0:
                    break
                watch.wait(min(left, SLOW_CHECK))
        except BookClosed:
            pass  # between two looks: this wait ends like any other
        finally:
            if self._lifetime.ended:
                watch.close()
            else:
                self._watches.append(watch)
        return position

    def _watched(self) -> Path:
        """The file that writers write to after each commit. Where it cannot be watched, the head is read instead."""
        return self._lock_path if self.facts.read_only else self._lock_file.path

    def wake(self) -> None:
        self._lifetime.check_process()
        self._lifetime.ended = True
        if self._opened_lock is not None:
            self._opened_lock.wake()

    def acknowledged(self) -> int:
        self._lifetime.check()
        return 0 if self.facts.read_only or not self._lock_path.exists() else self._lock_file.published()

    def close(self) -> None:
        if self._lifetime.in_child:
            return
        if not self._lifetime.ended:
            self.wake()
        while self._watches:
            self._watches.pop().close()
        if self._opened_lock is None:
            self._let_go()
        else:
            self._opened_lock.close(self._let_go)

    def _let_go(self) -> None:
        """Release what only writers use; none is inside."""
