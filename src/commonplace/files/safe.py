"""Files that are safe from others: paths that stay below one folder, and modes that let nobody else in.

**Paths.** A path that was read from a file, a record or the ledger may have been written by anybody. So a `Folder`
takes relative paths only, and walks from the folder to the file one part at a time with directory descriptors. It
follows no symbolic link, also none that is put there between two steps, and it opens nothing but plain files and
folders. Files that it makes have modes that the caller names; they never have the modes of what was there, apart from
the rw bits.

**Modes.** A new book is for its owner alone: 0600, and 0700 for folders, whatever the umask says. Every other file that
belongs to a book (its log, lock, index, list of mirrors, backups, exports) has the book's own mode and group
(`FileAccess`), so that a person who lets a group use a book (`chmod 660`) has nothing else to do, and nobody reads
beside a book what they may not read in it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ..errors import BadInput, CommonplaceError, EngineUnavailable, StorageFailed, UnsafePath, shown

PRIVATE = 0o600
"""The mode of files that are only for the user who made them."""
SHARED = 0o666
"""The mode of files for people and other programs; the umask takes its part away. No other bit is ever kept."""
LONGEST = 4_096
"""Bytes of a whole path. With descriptors longer ones can be made, which other programs cannot open or remove."""
TEMPORARY = "tmp-"
"""How the name of a file begins that is not whole yet."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe would wait until a process writes to it.
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(path: str) -> list[str]:
    """The names that a relative path is made of. Raises UnsafePath for a path that is absolute, has empty parts, `.`
    or `..`, or cannot be a path."""
    parts = path.split("/")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        parts = []
    if not parts or "\0" in path or {"", ".", ".."} & {*parts}:
        raise UnsafePath(f"{shown(path)} is not a path inside the folder: give one such as 'notes/today.md'")
    return parts


class Folder:
    """One folder and the files below it.

    The folder itself must not be a symbolic link; what lies above it is the caller's word. Every call raises UnsafePath
    where it meets a link, a pipe or a device, and otherwise the OSError of the system call.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    # reading

    def read(self, path: str) -> bytes | None:
        """The content of a plain file; None if it is not there."""
        fd = self.open(path)
        if fd is None:
            return None
        with open(fd, "rb") as file:
            return file.read()

    def open(self, path: str) -> int | None:
        """A descriptor to read a plain file with; None if it is not there."""
        try:
            with self._above(path) as (folder, name):
                _check_plain(os.stat(name, dir_fd=folder, follow_symlinks=False), path)
                fd = _open(name, os.O_RDONLY | _PLAIN, path, folder)
        except FileNotFoundError:
            return None
        try:
            _check_plain(os.fstat(fd), path)
        except UnsafePath:
            os.close(fd)
            raise
        return fd

    def stat(self, path: str) -> os.stat_result | None:
        """The status of what is at a path, which may be a link; None if nothing is."""
        try:
            with self._above(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self, path: str = "") -> list[str]:
        """The names in the folder or in one below it, sorted; none if it is not there."""
        try:
            with self._above(f"{path}/x" if path else "x") as (folder, _):
                return sorted(os.listdir(folder))  # noqa: PTH208  by its descriptor
        except FileNotFoundError:
            return []

    # writing

    def write(self, path: str, raw: bytes, mode: int = PRIVATE, like: os.stat_result | None = None) -> None:
        """Put a whole file in place: after a crash there is the old one or the new one. It gets `mode` less the umask,
        or the rw bits of what it is `like`."""
        with self.writing(path, mode, like) as file:
            file.write(raw)

    @contextmanager
    def writing(
        self, path: str, mode: int = PRIVATE, like: os.stat_result | None = None
    ) -> Iterator[BinaryIO]:
        """The same, for content that comes piece by piece: the file is there once the block ends without an error."""
        with self._above(path, make=True, mode=0o700 if mode == PRIVATE else 0o777) as (folder, name):
            beside = f"{TEMPORARY}{os.urandom(8).hex()}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _PLAIN
            with open(os.open(beside, flags, mode & SHARED, dir_fd=folder), "wb") as file:
                if like is not None:
                    os.fchmod(file.fileno(), like.st_mode & SHARED)
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
                except Exception:
                    with suppress(FileNotFoundError):
                        os.unlink(beside, dir_fd=folder)
                    raise

    def replace(self, path: str, to: str) -> None:
        """Give a file another name; what had that name is gone."""
        with self._above(path) as (folder, name), self._above(to, make=True) as (other, new):
            os.replace(name, new, src_dir_fd=folder, dst_dir_fd=other)

    def link(self, path: str, to: str) -> None:
        """Give a file a second name. Raises FileExistsError if something has it."""
        with self._above(path) as (folder, name), self._above(to, make=True) as (other, new):
            os.link(name, new, src_dir_fd=folder, dst_dir_fd=other, follow_symlinks=False)

    def exchange(self, path: str, other: str) -> bool:
        """Swap two files in one step, or, where the system cannot, in steps that overwrite nothing. False: there is a
        new file at `other`, which was left there."""
        with self._above(path) as (folder, name), self._above(other) as (folder2, name2):
            if _renameat2(folder, name, folder2, name2):
                return True
        out = f"{path}o"
        self.replace(other, out)
        try:
            self.link(path, other)
        except FileExistsError:
            return False
        self.replace(out, path)
        return True

    def unlink(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError), self._above(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a folder below this one, unless it is there."""
        with self._above(path, make=True) as (folder, name):
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=folder)
            os.close(_directory(name, path, folder))

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        with self._above(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    @contextmanager
    def locked(self, path: str) -> Iterator[None]:
        """Hold the lock of a file, which is made if it is not there."""
        fd = self._lock(path)
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self, path: str) -> int:
        while True:
            with self._above(path, make=True) as (folder, name):
                fd = _open(name, os.O_RDWR | os.O_CREAT | _PLAIN, path, folder, PRIVATE)
            try:
                _check_plain(os.fstat(fd), path)
                fcntl.flock(fd, fcntl.LOCK_EX)
                if os.fstat(fd).st_nlink:
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)  # somebody has deleted it: lock the one that others would

    # the way to a file

    @contextmanager
    def _above(self, path: str, make: bool = False, mode: int = 0o777) -> Iterator[tuple[int, str]]:
        """The folder that a file lies in, as a descriptor, and the file's name there."""
        *parts, name = parts_of(path)
        if len(os.fsencode(self.path)) + len(os.fsencode(path)) >= LONGEST:
            raise UnsafePath(f"{shown(path)} is too long for a path: choose a shorter one")
        folder = _directory(str(self.path), str(self.path))
        try:
            for part in parts:
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(part, mode, dir_fd=folder)
                below = _directory(part, path, folder)
                os.close(folder)
                folder = below
            yield folder, name
        finally:
            os.close(folder)


def _directory(name: str, path: str, within: int | None = None) -> int:
    return _open(name, _DIRECTORY, path, within)


def _open(name: str, flags: int, path: str, within: int | None, mode: int = 0) -> int:
    try:
        return os.open(name, flags, mode, dir_fd=within)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=within, follow_symlinks=False).st_mode)
            raise _unsafe(path, is_link) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, or a device without a driver
            raise _unsafe(path, False) from error
        raise


def _check_plain(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, stat.S_ISLNK(status.st_mode))


def _unsafe(path: str, is_link: bool) -> UnsafePath:
    if is_link:
        return UnsafePath(
            f"{path} is a symbolic link or lies behind one, and what that points to is not ours: put a plain file there"
        )
    return UnsafePath(f"{path} is no plain file, or lies behind one: move it away")


def _renameat2(folder: int, name: str, other: int, new: str) -> bool:
    """Swap two names by the system's own call; False if it has none for this place."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    exchange = 2  # RENAME_EXCHANGE
    if call(folder, os.fsencode(name), other, os.fsencode(new), exchange) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), new)


# the files of a book: who else on this host may use them


class FileAccess(NamedTuple):
    """What a book's own file says about who may use it."""

    mode: int = 0o600
    uid: int = -1
    gid: int = -1

    @property
    def folder(self) -> int:
        """The mode of folders: users who may read may also enter."""
        return self.mode | (self.mode & 0o444) >> 2

    @property
    def writers(self) -> FileAccess:
        """For files that only writers need, such as locks: a user who may open a lock's file, even to read, can hold
        the lock."""
        kept = sum(bits for bits in (0o600, 0o060, 0o006) if self.mode & bits & 0o222)
        return self._replace(mode=kept | 0o600)


def access_of(book: Path | None) -> FileAccess:
    """What holds for the files of the book whose own file, or folder, this is; for its owner alone where there is no
    book yet, or it is kept by a server."""
    status = None
    if book is not None:
        with suppress(FileNotFoundError, NotADirectoryError):
            status = book.stat()
            if stat.S_ISDIR(status.st_mode):
                status = (book / "book.json").stat()
    if status is None or stat.S_ISDIR(status.st_mode):
        return FileAccess()
    return FileAccess(status.st_mode & 0o666 | 0o600, status.st_uid, status.st_gid)


def open_private(path: Path | str, flags: int, access: FileAccess, dir_fd: int | None = None) -> int:
    """Open a file of a book, and make it if it is not there. No link is followed. Raises EngineUnavailable if somebody
    else has put it there."""
    while True:
        try:
            fd = os.open(path, flags | _NEW, 0o600, dir_fd=dir_fd)
        except FileExistsError:
            try:
                fd = os.open(path, flags | _PLAIN, dir_fd=dir_fd)
            except FileNotFoundError:
                continue  # removed in between
        try:
            _settle(fd, str(path), access, access.mode)
        except BaseException:
            os.close(fd)
            raise
        return fd


def make_folder(path: Path, access: FileAccess) -> None:
    """Make a folder for the files of a book, and those above it that are missing. One that is there stays as it is."""
    if not path.parent.exists():
        make_folder(path.parent, access)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        fd = os.open(path, _DIRECTORY)
        try:
            _settle(fd, str(path), access, access.folder)
        finally:
            os.close(fd)


def _settle(file: int | Path, name: str, access: FileAccess, mode: int) -> None:
    """See that a file or folder is ours or the book's owner's, and give it the mode and group that it should have."""
    status = os.stat(file)  # noqa: PTH116  a descriptor, or a path
    _check(status, name, access)
    if not hasattr(os, "getuid") or status.st_uid != os.getuid():
        return  # the owner of the book has made it as it should be
    if access.gid not in (-1, status.st_gid) or (status.st_uid == 0 and access.uid > 0):
        try:  # root acts for the book's owner
            os.chown(file, access.uid if status.st_uid == 0 else -1, access.gid)
        except PermissionError:
            mode &= 0o707  # a group of our own is not the one that the book is for
    if stat.S_IMODE(status.st_mode) != mode:
        os.chmod(file, mode)  # noqa: PTH101


def check_private(path: Path, access: FileAccess) -> None:
    """See that what lies there, if anything, was made by us or by the book's owner, without opening it."""
    with suppress(FileNotFoundError):
        _check(path.lstat(), str(path), access)


def _check(status: os.stat_result, name: str, access: FileAccess) -> None:
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise EngineUnavailable(f"{name} is a link, or no ordinary file: remove it")
    if not may_have_made(status, access):
        raise EngineUnavailable(
            f"{name} belongs to another user of this host (number {status.st_uid}), who could block or deceive "
            "those who use it: remove it, or keep the book in a folder that others cannot write to"
        )


def may_have_made(status: os.stat_result, access: FileAccess) -> bool:
    """Whether a file was made by us, by the book's owner, by root, or by somebody who may write the book anyway."""
    if not hasattr(os, "getuid") or status.st_uid in (os.getuid(), access.uid, 0):
        return True
    return bool(access.mode & 0o002 or (access.mode & 0o020 and status.st_gid == access.gid))


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
    file that is there is replaced in one step. Raises UnsafePath for a link, a pipe or a device, BadInput for what can
    be no file, and StorageFailed where it cannot be written. The folders above it are trusted."""
    folder = _folder_of(path)
    try:
        there = folder.stat(path.name)
        if there is not None:
            _check_plain(there, str(path))
        access = access_of(book)
        with folder.writing(path.name) as file:
            _settle(file.fileno(), str(path), access, access.mode)
            yield file
    except OSError as error:
        if isinstance(error, CommonplaceError):
            raise
        why = f"{path} cannot be written ({error.strerror or error}): name another file"
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            raise BadInput(why) from error
        raise StorageFailed(why) from error


def _folder_of(path: Path) -> Folder:
    """The folder of a file that is to be written. Raises BadInput for what names no file."""
    try:
        os.fsencode(path)
        if path.name and "\0" not in str(path) and not path.is_dir():
            return Folder(path.parent.resolve())
        why = "it is a folder, or no name of a file"
    except (UnicodeEncodeError, OSError, RuntimeError) as error:  # the last: links that lead to themselves
        why = str(error)
    raise BadInput(f"{shown(str(path))} cannot be written ({why}): name the file to write")


class _Unwritten(Exception):
    """Ends the writing of a file before it is put in place."""


def check_new_file(path: Path, book: Path | None) -> None:
    """Raises what `new_file` would raise, and leaves nothing behind."""
    with suppress(_Unwritten), new_file(path, book):
        raise _Unwritten
