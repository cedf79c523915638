"""Who else on this host may use the files of a book.

A new book is for its owner alone: 0600, and 0700 for folders, whatever the umask says. Every other file that belongs to
a book (its log, lock, index, list of mirrors, backups, exports) has the book's own mode and group, so that a person who
lets a group use a book (`chmod 660`) has nothing else to do, and nobody reads beside a book what they may not read in
it. This module is the one place that decides it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import EngineUnavailable
from .folders import Folder, check_plain

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FileAccess(NamedTuple):
    """What a book's own file says about who may use it."""

    mode: int = 0o600
    uid: int = -1
    gid: int = -1

    @property
    def folder(self) -> int:
        """For folders: whoever may read may also enter."""
        return self.mode | (self.mode & 0o444) >> 2

    @property
    def writers(self) -> FileAccess:
        """For what only writers need, such as locks: whoever may open a lock's file, be it to read, can hold it."""
        kept = sum(bits for bits in (0o600, 0o060, 0o006) if self.mode & bits & 0o222)
        return self._replace(mode=kept | 0o600)


def access_of(book: Path | None) -> FileAccess:
    """What holds for the files of the book whose own file, or folder, this is; for its owner alone where there is no
    book yet, or it is kept by a server."""
    found = None
    if book is not None:
        with suppress(FileNotFoundError, NotADirectoryError):
            found = book.stat()
            if stat.S_ISDIR(found.st_mode):
                found = (book / "book.json").stat()
    if found is None or stat.S_ISDIR(found.st_mode):
        return FileAccess()
    return FileAccess(found.st_mode & 0o666 | 0o600, found.st_uid, found.st_gid)


def open_private(path: Path | str, flags: int, access: FileAccess, dir_fd: int | None = None) -> int:
    """Open a file of a book, and make it if it is not there. No link is followed. Raises EngineUnavailable if somebody
    else has put it there."""
    while True:
        try:
            fd = os.open(path, flags | _NEW, 0o600, dir_fd=dir_fd)
        except FileExistsError:
            try:
                fd = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=dir_fd)
            except FileNotFoundError:
                continue  # removed in between
        try:
            _settle(fd, str(path), access, access.mode)
        except BaseException:
            os.close(fd)
            raise
        return fd


def make_folder(path: Path, access: FileAccess) -> None:
    """Make a folder, and those above it that are missing. One that is there must be ours or the book's owner's."""
    if not path.parent.exists():
        make_folder(path.parent, access)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        fd = open_folder(path, access)
        os.close(fd)


def open_folder(path: Path, access: FileAccess) -> int:
    """A descriptor of a folder that nobody else could have prepared."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _settle(fd, str(path), access, access.folder)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _settle(file: int | Path, name: str, access: FileAccess, mode: int) -> None:
    """See that a file or folder is ours or the book's owner's, and give it the mode and group that it should have."""
    found = os.stat(file)  # noqa: PTH116  a descriptor, or a path
    _check(found, name, access)
    if not hasattr(os, "getuid") or found.st_uid != os.getuid():
        return  # the owner of the book has made it as it should be
    if access.gid not in (-1, found.st_gid) or (found.st_uid == 0 and access.uid > 0):
        try:  # root acts for the book's owner
            os.chown(file, access.uid if found.st_uid == 0 else -1, access.gid)
        except PermissionError:
            mode &= 0o707  # a group of our own is not the one that the book is for
    if stat.S_IMODE(found.st_mode) != mode:
        os.chmod(file, mode)  # noqa: PTH101


def check_private(path: Path, access: FileAccess) -> None:
    """See that what lies there, if anything, was made by us or by the book's owner, without opening it."""
    with suppress(FileNotFoundError):
        _check(path.lstat(), str(path), access)


def _check(found: os.stat_result, name: str, access: FileAccess) -> None:
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise EngineUnavailable(f"{name} is a link, or no ordinary file: remove it")
    if not may_have_made(found, access):
        raise EngineUnavailable(
            f"{name} belongs to another user of this host (number {found.st_uid}), who could hold up or deceive "
            "whoever uses it: remove it, or keep the book in a folder that others cannot write to"
        )


def may_have_made(found: os.stat_result, access: FileAccess) -> bool:
    """Whether a file was made by us, by the book's owner, by root, or by somebody who may write the book anyway."""
    if not hasattr(os, "getuid") or found.st_uid in (os.getuid(), access.uid, 0):
        return True
    return bool(access.mode & 0o002 or (access.mode & 0o020 and found.st_gid == access.gid))


def create_private(path: Path, access: FileAccess) -> None:
    """Make an empty file, unless there is one. Nobody can open it before it has its mode, and no descriptor of it is
    closed here once others can see it: that would drop the locks that SQLite holds on it in this process."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.new")
    os.close(open_private(beside, os.O_WRONLY, access))
    try:
        os.link(beside, path)
    except FileExistsError:
        check_private(path, access)
    except OSError:  # a file system without links
        os.close(open_private(path, os.O_WRONLY, access))
    finally:
        beside.unlink()


def create_logs(database: Path, access: FileAccess) -> None:
    """Make the files that SQLite keeps beside a database while it is open, unless they are there. SQLite would give
    them the mode of the database, and not its group."""
    if access.mode & 0o060:
        for ending in ("-wal", "-shm"):
            path = database.with_name(database.name + ending)
            if not path.exists():
                create_private(path, access)


def settle(path: Path, access: FileAccess) -> None:
    """Give a file that another program has made for us, if it is there, the mode and group of the book."""
    with suppress(FileNotFoundError):
        _settle(path, str(path), access, access.mode)


def may_write(path: Path) -> bool:
    """Whether this user may change a file and make others beside it."""
    return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK)


@contextmanager
def new_file(path: Path, book: Path | None) -> Iterator[BinaryIO]:
    """Write a file that a user has named and that belongs to a book, whole or not at all, with the book's own mode. A
    file that is there is replaced in one step; a link, a pipe or a device is not written through: UnsafePath. The
    folders above it are the user's word."""
    folder = Folder(path.parent.resolve())
    there = folder.stat(path.name)
    if there is not None:
        check_plain(there, str(path))
    access = access_of(book)
    with folder.writing(path.name) as file:
        _settle(file.fileno(), str(path), access, access.mode)
        yield file
