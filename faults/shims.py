"""Disks that remember and disks that fail: one under SQLite (a VFS), one under the files engine.

Both write down every write, truncate, sync and rename on a tape, in between what the book acknowledged. A
**World** plays a tape up to a moment and answers with what a disk may hold when the power fails just then: what
was synced is there, anything else may be there, or not, or in part, or in another order. A new name in a folder
is durable only when that folder was synced. A sync that failed leaves what it was about lost for good: a later
sync, though it succeeds, does not bring it back.

Each can also make its k-th call fail, once, with EIO or ENOSPC.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from commonplace import Book
from commonplace.book import BUILT_IN, owner_session
from commonplace.engines.files import FilesEngine
from commonplace.engines.local import Disk
from commonplace.engines.sqlite import SqliteEngine
from commonplace.files.checksums import page_checksums
from commonplace.ledger.ledger import Ledger
from commonplace.ledger.views import Registry

SECTOR = 512
Op = tuple[Any, ...]


class Tape:
    """What happened, in order. `fail_at`: which call fails (from 1), with which error number."""

    def __init__(self, fail_at: int = 0, number: int = errno.EIO) -> None:
        self.ops: list[Op] = []
        self.calls = 0
        self.fail_at = fail_at
        self.number = number
        self.failed = ""

    def trips(self, call: str) -> bool:
        self.calls += 1
        if self.calls != self.fail_at:
            return False
        self.failed = call
        return True


class World:
    """The disk, as a tape tells it: contents by node, names by path, and for each what is not yet durable."""

    def __init__(self) -> None:
        self.contents: dict[int, bytearray] = {}
        self.waiting: dict[int, list[Op]] = {}
        self.names: dict[str, int | None] = {}
        self.unnamed: dict[str, list[Op]] = {}
        self.log: list[tuple[str, Any]] = []

    def play(self, op: Op) -> None:
        what, about = op[0], op[1]
        if what == "log":
            self.log.append(about)
        elif what in ("write", "truncate"):
            self.waiting.setdefault(about, []).append(op)
        elif what == "sync":
            for pending in self.waiting.pop(about, ()):
                change(self.contents.setdefault(about, bytearray()), pending)
        elif what == "sync-failed":
            self.waiting.pop(about, None)
        elif what == "sync-folder":
            for pending in self.unnamed.pop(about, ()):
                rename(self.names, pending)
        else:
            self.unnamed.setdefault(str(Path(about).parent), []).append(op)

    def image(self, rng: random.Random | None) -> dict[str, bytes]:
        """Files by path after a power cut now; without chance, only what is certain."""
        names = dict(self.names)
        for pending in self.unnamed.values():
            for op in pending:
                if rng and rng.random() < 0.5:
                    rename(names, op)
        files: dict[str, bytes] = {}
        for path, node in names.items():
            folders = [str(folder) for folder in Path(path).parents if str(folder) != "."]
            if node is not None and all(folder in names for folder in folders):
                files[path] = self._content(node, rng)
        return files

    def _content(self, node: int, rng: random.Random | None) -> bytes:
        content = bytearray(self.contents.get(node, b""))
        pending = list(self.waiting.get(node, ()))
        if rng is None or not pending:
            return bytes(content)
        most = rng.choice((0.0, 0.5, 0.9, 1.0))
        if rng.random() < 0.5:
            rng.shuffle(pending)
        for op in pending:
            if rng.random() < most:
                change(content, op)
            elif op[0] == "write":
                change(content, ("write", node, op[2], op[3][: rng.randrange(len(op[3]) + 1)]))
                for start in range(0, len(op[3]) if rng.random() < 0.3 else 0, SECTOR):
                    if rng.random() < 0.5:
                        change(content, ("write", node, op[2] + start, op[3][start : start + SECTOR]))
        return bytes(content)


def change(content: bytearray, op: Op) -> None:
    if op[0] == "truncate":
        del content[op[2] :]
        content.extend(bytes(op[2] - len(content)))
    else:
        _, _, offset, data = op
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


def rename(names: dict[str, int | None], op: Op) -> None:
    if op[0] == "link":
        names[op[1]] = op[2]
    else:
        names.pop(op[1], None)


def write_image(files: dict[str, bytes], folder: Path) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


# under SQLite


class TapeVFS(apsw.VFS):
    """Records what SQLite does to the files of one folder at a time.

    The extension that checks pages sits on whatever VFS is the default when it is loaded, for good, and nothing can
    sit on it. So this one is registered once and stays. Where the extension is not loaded yet, it is loaded on top of
    this; where it is, books that go through this have pages without checksums.
    """

    def __init__(self) -> None:
        self.base = next(name for name in apsw.vfs_names() if name != "cksmvfs")
        super().__init__("faults", self.base, makedefault=True)
        self.record(Tape(), None)
        page_checksums()
        self.way = apsw.vfs_names()[0]
        """What books are opened with to go through this: the extension above it, or itself."""

    def record(self, tape: Tape, folder: Path | None) -> None:
        """From now on, to this tape, what happens in this folder; None: nothing is recorded."""
        self.tape = tape
        self.folder = str(folder)
        self.nodes: dict[str, int] = {}
        self.fresh: set[int] = set()
        self.count = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is None or not path.startswith(self.folder):
            return apsw.VFSFile(self.base, name, flags)
        known = os.path.relpath(path, self.folder)
        if known not in self.nodes:
            self.count += 1
            self.nodes[known] = self.count
            self.fresh.add(self.count)
            self.tape.ops.append(("link", known, self.count))
        return TapeFile(self, name, flags, self.nodes[known])

    def xDelete(self, path: str, sync: bool) -> None:
        super().xDelete(path, sync)
        known = os.path.relpath(path, self.folder)
        if self.nodes.pop(known, None) is not None:
            self.tape.ops.append(("unlink", known))

    def excepthook(self, *_: object) -> bool:
        """What SQLite chose to ignore is no news."""
        return True


class TapeFile(apsw.VFSFile):
    def __init__(
        self, vfs: TapeVFS, name: str | apsw.URIFilename | None, flags: list[int], node: int
    ) -> None:
        super().__init__(vfs.base, name, flags)
        self.vfs = vfs
        self.tape = vfs.tape
        self.node = node

    def fail(self, call: int) -> None:
        full = self.tape.number == errno.ENOSPC and call == apsw.SQLITE_IOERR_WRITE
        error: Any = apsw.FullError("disk full") if full else apsw.IOError("disk error")
        error.extendedresult = apsw.SQLITE_FULL if full else call
        raise error

    def xWrite(self, data: bytes, offset: int) -> None:
        if self.tape.trips("write"):
            self.fail(apsw.SQLITE_IOERR_WRITE)
        super().xWrite(data, offset)
        self.tape.ops.append(("write", self.node, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        if self.tape.trips("truncate"):
            self.fail(apsw.SQLITE_IOERR_TRUNCATE)
        super().xTruncate(size)
        self.tape.ops.append(("truncate", self.node, size))

    def xSync(self, flags: int) -> None:
        if self.tape.trips("sync"):
            self.tape.ops.append(("sync-failed", self.node))
            self.fail(apsw.SQLITE_IOERR_FSYNC)
        super().xSync(flags)
        self.tape.ops.append(("sync", self.node))
        if self.node in self.vfs.fresh:  # SQLite syncs the folder with the first sync of a new log or journal
            self.vfs.fresh.discard(self.node)
            self.tape.ops.append(("sync-folder", "."))

    def excepthook(self, *_: object) -> bool:
        """What SQLite chose to ignore is no news."""
        return True


# under the files engine


class TapeDisk(Disk):
    """Nodes are inodes, each kept open so that its number is not used again. What the engine does past this
    disk (mkdir, unlink) is found by looking at the folder before each call."""

    def __init__(self, tape: Tape, folder: Path) -> None:
        self.tape = tape
        self.folder = folder
        self.kept: dict[int, int] = {}
        self.names: dict[str, int | None] = {}

    def close(self) -> None:
        while self.kept:
            os.close(self.kept.popitem()[1])

    def look(self) -> None:
        found: dict[str, int | None] = {}
        for path in sorted(self.folder.rglob("*")):
            inode = path.stat().st_ino
            if path.is_dir() or inode in self.kept:
                found[str(path.relative_to(self.folder))] = None if path.is_dir() else inode
        for name, node in found.items():
            if name not in self.names or self.names[name] != node:
                self.tape.ops.append(("link", name, node))
        self.tape.ops += [("unlink", name) for name in self.names if name not in found]
        self.names = found

    def node(self, fd: int) -> int:
        node = os.fstat(fd).st_ino
        if node not in self.kept:
            self.kept[node] = os.dup(fd)
        self.look()
        return node

    def fail(self) -> None:
        raise OSError(self.tape.number, os.strerror(self.tape.number))

    def write(self, fd: int, data: bytes) -> None:
        node, whole = self.node(fd), data
        trips = self.tape.trips("write")
        if trips and self.tape.number == errno.ENOSPC:
            data = data[: len(data) // 2]
        elif trips:
            data = b""
        appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
        offset = os.fstat(fd).st_size if appends else os.lseek(fd, 0, os.SEEK_CUR)
        super().write(fd, data)
        self.tape.ops.append(("write", node, offset, data))
        if len(data) < len(whole):
            self.fail()

    def sync(self, fd: int) -> None:
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        trips = self.tape.trips("sync")
        if folder:
            self.look()
            where = next(
                path
                for path in (self.folder, *self.folder.rglob("*"))
                if path.is_dir() and path.stat().st_ino == os.fstat(fd).st_ino
            )
            if not trips:
                self.tape.ops.append(("sync-folder", str(where.relative_to(self.folder))))
        else:
            self.tape.ops.append(("sync-failed" if trips else "sync", self.node(fd)))
        if trips:
            self.fail()

    def truncate(self, fd: int, size: int) -> None:
        node = self.node(fd)
        if self.tape.trips("truncate"):
            self.fail()
        super().truncate(fd, size)
        self.tape.ops.append(("truncate", node, size))

    def replace(self, source: Path, target: Path) -> None:
        self.look()
        if self.tape.trips("rename"):
            self.fail()
        super().replace(source, target)


@cache
def _vfs() -> TapeVFS:
    return TapeVFS()


@contextmanager
def taped(kind: str, folder: Path, tape: Tape) -> Iterator[Any]:
    """A callable that opens the book in this folder with everything going through the tape."""
    if kind == "sqlite":
        vfs, usual = _vfs(), "cksmvfs" if page_checksums() else _vfs().base
        vfs.record(tape, folder)
        apsw.set_default_vfs(vfs.way)
        try:
            yield lambda: assemble(SqliteEngine(folder / "book.db"))
        finally:
            apsw.set_default_vfs(usual)
            vfs.record(Tape(), None)
    else:
        disk = TapeDisk(tape, folder)
        try:
            yield lambda: assemble(FilesEngine(folder, disk))
        finally:
            disk.close()


def assemble(engine: SqliteEngine | FilesEngine) -> Book:
    store = engine.open("book", create=True)
    try:
        return Book(engine, owner_session(engine, Ledger(store, Registry(BUILT_IN), "book")))
    except BaseException:
        store.close()
        raise
