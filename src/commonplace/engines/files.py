"""A folder of plain files, for a book that people read, diff and keep in git.

    ledger.jsonl   one event a line, in order; the only truth
    book.json      the book's own record
    blobs/         content by its sha256
    leases.json    who holds what until when; not truth
    redo.json      what else a commit in progress must change; read again after a crash
    ledger.torn    what was cut off the ledger because a crash left it unfinished, never acknowledged
    lock           the lock between processes, and news of commits

A commit appends its lines and fsyncs; the last line of a batch says that it is the last, so that a batch cut
short by a crash is dropped whole. An erasure writes the ledger anew without the content and swaps it in. Rows
live in memory, so that each process folds the ledger for itself. A ledger that two branches of a repository
have continued apart cannot be merged: the hash chain refuses it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from ..errors import (
    BookNotFound,
    BookTooNew,
    CommonplaceError,
    Corrupt,
    EngineUnavailable,
    NotABook,
    OutcomeUnknown,
    StorageFailed,
)
from ..files.safe import FileAccess, access_of, make_folder, open_private
from .clock import boot_clock
from .contract import (
    Engine,
    Facts,
    Lease,
    PurgeReport,
    Reads,
    Record,
    Store,
    WriteConflict,
    WriteSet,
)
from .interrupts import run_inside
from .local import Disk, LocalStore, LockedTx, disk_notes, file_identity, remove_beside
from .lock_file import FileLock
from .memory import LeaseBook, MemoryReads, VersionedRows, _Data

log = logging.getLogger("commonplace")

LAYOUT = 1
SALT = 16
NAMES = ("ledger.jsonl", "book.json", "leases.json", "redo.json", "ledger.torn")
DIGEST = re.compile(r"[0-9a-f]{64}")


class _LedgerLine(msgspec.Struct, omit_defaults=True):
    """One record. Header and payload stand as the JSON they are; anything else is kept as base64."""

    position: int
    id: str
    created_at: int
    hash: str
    check: int
    """A checksum of the rest, because a power cut can leave holes in a line."""
    more: int = 0
    """How many lines of the same batch follow."""
    run: str | None = None
    header: msgspec.Raw = msgspec.Raw(b"")
    header64: str = ""
    salt: str = ""
    payload: msgspec.Raw = msgspec.Raw(b"")
    body64: str = ""
    erased: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_LedgerLine).decode


def to_line(record: Record, more: int) -> bytes:
    line = _LedgerLine(
        record.position, record.id, record.created_at, record.hash.hex(), _check(record), more, record.run
    )
    if _is_json(record.header):
        line.header = msgspec.Raw(record.header)
    else:
        line.header64 = b64encode(record.header).decode()
    body = record.body
    if body is None:
        line.erased = True
    elif _is_json(body[SALT:]):
        line.salt, line.payload = body[:SALT].hex(), msgspec.Raw(body[SALT:])
    else:
        line.body64 = b64encode(body).decode()
    return _encode(line) + b"\n"


def from_line(raw: bytes) -> tuple[Record, int]:
    line = _decode(raw)
    header = bytes(line.header) if line.header else b64decode(line.header64)
    body: bytes | None = None
    if not line.erased:
        body = bytes.fromhex(line.salt) + bytes(line.payload) if line.payload else b64decode(line.body64)
    hash = bytes.fromhex(line.hash)
    record = Record(line.position, line.id, line.run, line.created_at, header, hash, body)
    if _check(record) != line.check:
        raise ValueError("the line does not match its checksum")
    return record, line.more


def _check(record: Record) -> int:
    return crc32(record.body or b"", crc32(record.header, crc32(record.hash, record.position)))


def _is_json(raw: bytes) -> bool:
    if b"\n" in raw or not raw:
        return False
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except (msgspec.MsgspecError, RecursionError):
        return False
    return raw == raw.strip()


class _FilesData(_Data):
    """What one reading of the ledger file has brought into memory.

    It only grows. Where the ledger is replaced or the rows are dropped, the store replaces it by a new one, and open
    snapshots keep the one that they began with."""

    folded = 0
    """The position up to which its rows are complete."""


class FilesReads(MemoryReads):
    _data: _FilesData

    def __init__(self, store: FilesStore) -> None:
        super().__init__(store._data)
        self._store = store

    @property
    def folded(self) -> int:
        return self._data.folded

    def blob(self, digest: str) -> bytes | None:
        path = self._store.blob_path(digest)
        if path is None or not os.path.lexists(path):
            return None
        _check_own(path, stat.S_IFREG)
        return path.read_bytes()

    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        held, now = self._store.read_leases()
        return held.all_in_force(names, now)


class FilesTx(FilesReads, LockedTx):
    """Holds the lock file, and then the lock of the data in memory."""

    def __init__(self, store: FilesStore, timeout: float) -> None:
        LockedTx.__init__(self, store._lock_file, timeout)
        self._store = store

    def _begin(self) -> None:
        self._store.take_in()
        FilesReads.__init__(self, self._store)
        self.now = time.time_ns() // 1000

    def _end(self, error: BaseException | None) -> None:
        self._store.let_go()

    def forget(self) -> None:
        self._store.forget_rows()
        self._data = self._store._data

    def apply(self, write: WriteSet) -> None:
        try:
            self._store.commit(write)
        except (WriteConflict, CommonplaceError):
            raise
        except BaseException:  # an interrupt can leave memory behind the files
            self._store.forget_files()
            raise


class FilesStore(LocalStore):
    def __init__(self, folder: Path, disk: Disk) -> None:
        super().__init__(folder / "lock", folder, only=True)
        self.folder = folder
        self._disk = disk
        self._ledger = folder / "ledger.jsonl"
        self._book = folder / "book.json"
        self._leases = folder / "leases.json"
        self._redo = folder / "redo.json"
        self._torn = folder / "ledger.torn"
        self._data = _FilesData()
        self._size = -1
        self._tail = b""
        self._seen = self._seen_book = (0, 0, 0, 0)
        self.facts = Facts(
            engine="files",
            durable="proven",
            durable_why="every commit is appended to the ledger and fsynced before it is answered",
            hosts="one",
            views="memory",
            purge="immediate",
            purge_why="an erasure writes the ledger file anew without the content",
            notes=("all events are held in memory while the book is open", *disk_notes(folder)),
        )

    # the contract

    @contextmanager
    def read(self, at_least: int = 0, timeout: float | None = None) -> Iterator[Reads]:
        self._lifetime.check()
        self.reach(at_least, self.within(timeout))
        if self._changed():
            run_inside(self.begin(timeout), lambda _: None)
        with self._data.lock:
            reads = FilesReads(self)
            reads.hold()
        try:
            yield reads
        finally:
            reads.let_go()

    def begin(self, timeout: float | None = None) -> FilesTx:
        self._lifetime.check()
        return FilesTx(self, self.within(timeout))

    def take_in(self) -> None:
        """With the lock file held: lock the data in memory, and take in what others have written."""
        self._data.lock.acquire()
        self._lifetime.check()
        try:
            if self._changed():
                self._load()
        except BaseException:  # an interrupt can leave a part of it taken in
            self.forget_files()
            raise

    def let_go(self) -> None:
        """Unlock the data in memory, if this thread has locked it."""
        try:
            self._data.lock.release()
        except RuntimeError:
            pass

    def drop_spaces(self, prefix: str) -> None:
        run_inside(self.begin(), lambda _: self._data.rows.drop_spaces(prefix))

    def trim(self, space: str, horizon: int) -> int:
        return run_inside(self.begin(), lambda _: self._data.rows.trim(space, horizon))

    def files(self) -> list[Path]:
        return [self.folder]

    def purge(self) -> PurgeReport:
        done = run_inside(self.begin(), lambda _: self._remove_torn())
        here = self.folder.resolve()
        if any((folder / ".git").exists() for folder in (here, *here.parents)):
            kept = (
                "the folder lies in a git repository, whose history keeps what was ever committed: rewrite it"
            )
            return PurgeReport(tuple(done), (kept,))
        return PurgeReport(tuple(done), ())

    def _remove_torn(self) -> list[str]:
        done = ["erased content left the ledger file when it was erased"]
        if self._torn.exists():
            self._torn.unlink()
            done.append("removed what a crash had left unfinished (ledger.torn)")
        return done

    # loading

    def _changed(self) -> bool:
        """Whether another process, or a person, has touched the files since we looked."""
        return (
            self._size < 0
            or self._redo.exists()
            or file_identity(self._ledger) != self._seen
            or file_identity(self._book) != self._seen_book
        )

    def _load(self) -> None:
        """Take in what is new, under the lock. A ledger that was replaced is read from its start."""
        try:
            if self._size < 0:  # something failed: what is seen from here on has to be on disk first
                self._disk.sync_folder(self.folder)
            if self._size < 0 or not self._continues():
                self._start_over()
            self._read_lines()
            self._seen = file_identity(self._ledger)
            self._finish_redo()
            self._read_book()
        except OSError as error:
            raise EngineUnavailable(
                f"cannot read the book in {self.folder} ({error}): check its rights"
            ) from error

    def _continues(self) -> bool:
        """Whether the ledger still begins with what we have read: inodes and sizes can be the same by chance
        after a checkout, so the last bytes are compared as well."""
        if file_identity(self._ledger)[:2] != self._seen[:2]:
            return False
        with self._ledger.open("rb") as ledger:
            ledger.seek(self._size - len(self._tail))
            return ledger.read(len(self._tail)) == self._tail

    def _start_over(self) -> None:
        fresh = _FilesData()
        fresh.lock, fresh.meta = self._data.lock, self._data.meta
        self._data, self._size, self._tail = fresh, 0, b""

    def _read_lines(self) -> None:
        """Take in whole batches. What is left at the end is either a batch that a crash cut short, or damage."""
        with self._ledger.open("rb") as ledger:
            ledger.seek(self._size)
            fresh = ledger.read()
        pending: list[_Read] = []
        whole = start = 0
        while (end := fresh.find(b"\n", start)) >= 0:
            pending.append(_read(fresh[start:end], len(self._data.records) + len(pending) + 1))
            start = end + 1
            if pending[-1].more == 0 and all(line.sound for line in pending):
                self._data.add([line.record for line in pending])
                pending, whole = [], start
        if pending and not self._is_torn(pending):
            self._data.add([line.record for line in pending])
            whole = start
        if whole < len(fresh):
            self._cut(self._size + whole, fresh[whole:])
        self._grow(fresh[:whole])

    def _grow(self, content: bytes) -> None:
        self._size += len(content)
        self._tail = (self._tail + content)[-256:]

    def _is_torn(self, pending: list[_Read]) -> bool:
        """Whether these last lines are one batch that was never acknowledged. A power cut may leave any part
        of it; a batch that is whole again behind a damaged line, or word of its commit, shows real damage."""
        if all(line.sound for line in pending):
            return True
        ended = any(line.sound and line.more == 0 for line in pending[:-1])
        return not ended and pending[0].record.position > self._lock_file.published()

    def _cut(self, size: int, torn: bytes) -> None:
        """Drop a batch that a crash cut short. It was never acknowledged; it is kept aside all the same."""
        log.warning(
            "%s: a write of %d bytes was cut short by a crash and had not been acknowledged; moved to %s",
            self._ledger,
            len(torn),
            self._torn.name,
        )
        with os.fdopen(
            open_private(self._torn, os.O_WRONLY | os.O_APPEND, access_of(self.folder)), "ab"
        ) as aside:
            aside.write(torn)
            aside.flush()
            self._disk.sync(aside.fileno())
        fd = os.open(self._ledger, os.O_WRONLY)
        try:
            self._disk.truncate(fd, size)
            self._disk.sync(fd)
        finally:
            os.close(fd)

    def forget_files(self) -> None:
        """Read them again before anything else is done."""
        self._size = -1

    def forget_rows(self) -> None:
        self._data = copy(self._data)
        self._data.rows, self._data.folded = VersionedRows(), 0

    def _read_book(self) -> None:
        identity = file_identity(self._book)
        if identity == self._seen_book:
            return
        meta = b64decode(read_book(self._book)["meta"])
        if self._data.meta and meta != self._data.meta:
            self.forget_rows()  # another process has switched generations: fold what is here into those it names
        self._data.meta, self._seen_book = meta, identity

    # committing

    def commit(self, write: WriteSet) -> None:
        held, now = self.read_leases()
        leases = held.decide(write.leases, now)
        redo = self._plan(write)
        with self._failures_told():
            if leases:  # first: a lease without its event runs out by itself, not the other way round
                held.write(leases, now)
                self._write_leases(held)
            self._write_blobs(write.blobs)
            if redo and (write.records or write.erase):
                self._disk.write_file(self._redo, _encode(redo))
        if write.erase:
            self._rewrite(write)
        elif write.records:
            self._append(write)
        with self._outcome_open(write):
            self._follow_up(redo)
        self._apply_in_memory(write)
        if write.records:
            self._lock_file.publish(write.records[-1].position)

    @contextmanager
    def _failures_told(self) -> Iterator[None]:
        """Before the commit: a failure means that nothing happened."""
        try:
            yield
        except OSError as error:
            self._size = -1  # look at the files again before anything else
            raise StorageFailed(
                f"writing to {self.folder} failed ({error}); nothing was recorded. Free space or mend the disk"
            ) from error

    @contextmanager
    def _outcome_open(self, write: WriteSet) -> Iterator[None]:
        """At the commit: what a failure left on disk nobody knows."""
        try:
            yield
        except OSError as error:
            self._size = -1
            raise OutcomeUnknown([record.id for record in write.records], str(error)) from error

    def _plan(self, write: WriteSet) -> dict[str, Any]:
        """What the commit changes besides the ledger, so that a crash in between can be finished."""
        plan: dict[str, Any] = {}
        if write.meta is not None:
            plan["meta"] = b64encode(write.meta).decode()
        if write.blob_drops:
            plan["blob_drops"] = write.blob_drops
        if plan and write.records:
            last = write.records[-1]
            plan |= {"position": last.position, "hash": last.hash.hex()}
        return plan

    def _finish_redo(self) -> None:
        """A crash fell between the ledger and the rest: if the ledger has the commit, do the rest."""
        if not self._redo.exists():
            return
        redo = _read_json(self._redo, {"position": int, "hash": str})
        reached = self._data.records[redo["position"] - 1 : redo["position"]]
        if reached and reached[0].hash.hex() == redo["hash"]:
            self._follow_up(redo)
        else:
            self._redo.unlink()

    def _follow_up(self, redo: dict[str, Any]) -> None:
        if "meta" in redo:
            self._disk.write_file(self._book, book_bytes(redo["meta"]))
            self._data.meta, self._seen_book = b64decode(redo["meta"]), file_identity(self._book)
        for digest in redo.get("blob_drops", ()):
            path = self.blob_path(digest)
            if path is not None:
                path.unlink(missing_ok=True)
        if redo:
            self._redo.unlink(missing_ok=True)
            self._disk.sync_folder(self.folder)  # or a power cut brings it back, to be done again

    def _append(self, write: WriteSet) -> None:
        count, before = len(write.records), self._size
        fresh = b"".join(to_line(record, count - i) for i, record in enumerate(write.records, 1))
        with self._failures_told():
            fd = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with self._failures_told():
                try:
                    self._disk.write(fd, fresh)
                except OSError:
                    self._disk.truncate(fd, before)
                    raise
            with self._outcome_open(write):
                try:
                    self._disk.sync(fd)
                except OSError:
                    self._disk.truncate(fd, before)  # take it back as far as possible
                    raise
        finally:
            os.close(fd)
        self._grow(fresh)
        self._seen = file_identity(self._ledger)

    def _rewrite(self, write: WriteSet) -> None:
        """Where something is erased the file is written anew, without the content, and swapped in."""
        erased = set(write.erase)
        content = b"".join(
            to_line(record._replace(body=None) if record.position in erased else record, 0)
            for record in [*self._data.records, *write.records]
        )
        with self._failures_told():
            fresh = self._disk.write_beside(self._ledger, content)
        with self._outcome_open(write):
            self._disk.replace(fresh, self._ledger)
        self._size, self._tail = 0, b""
        self._grow(content)
        self._seen = file_identity(self._ledger)

    def _apply_in_memory(self, write: WriteSet) -> None:
        caught_up = self._data.folded == len(self._data.records)
        self._data.add(write.records)
        self._data.change_rows(write)
        self._data.blank(write.erase)
        if write.folded or caught_up:
            self._data.folded = write.folded or len(self._data.records)

    def _write_blobs(self, blobs: dict[str, bytes]) -> None:
        for digest, data in blobs.items():
            path = self.blob_path(digest)
            if path is None:
                raise Corrupt(f"{digest!r} is not a digest")
            if not path.parent.exists():
                make_folder(path.parent, access_of(self.folder))
                self._disk.sync_folder(path.parent.parent)
                self._disk.sync_folder(self.folder)
            self._disk.write_file(path, data)  # also when it is there: an earlier try may not have synced it

    def blob_path(self, digest: str) -> Path | None:
        """Where a blob lies; None for anything that is not a digest, so that no name leaves the folder."""
        return self.folder / "blobs" / digest[:2] / digest if DIGEST.fullmatch(digest) else None

    # leases

    def read_leases(self) -> tuple[LeaseBook, float]:
        boot, now = boot_clock()
        held = LeaseBook()
        if self._leases.exists():
            stored = _read_json(self._leases, {"boot": str, "held": dict})
            if stored["boot"] == boot:
                held.held = {name: tuple(entry) for name, entry in stored["held"].items()}
        return held, now

    def _write_leases(self, held: LeaseBook) -> None:
        boot, now = boot_clock()
        live = {name: entry for name, entry in held.held.items() if entry[2] > now}
        self._disk.write_file(self._leases, _encode({"boot": boot, "held": live}))


class _Read(NamedTuple):
    """A line of the ledger as it was found."""

    record: Record
    more: int
    sound: bool


def _read(raw: bytes, expected: int) -> _Read:
    """A line that cannot be read still has its place: reading that position reports the damage."""
    try:
        record, more = from_line(raw)
        if record.position == expected:
            return _Read(record, more, True)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    return _Read(Record(expected, "", None, 0, raw, b"", None), 0, False)


def _check_own(path: Path, kind: int) -> None:
    """Raises NotABook for a link, which would lead out of the book's folder, and for a pipe or the like, which would
    hold us up."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise NotABook(f"{path} is a link, and a book keeps to its own folder: remove it")
    if stat.S_IFMT(status.st_mode) != kind:
        raise NotABook(f"{path} is not what a book keeps there, a plain file or folder: remove it")


def book_bytes(meta: str) -> bytes:
    return _encode({"commonplace": "files", "layout": LAYOUT, "meta": meta})


def _read_json(path: Path, needs: dict[str, type]) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(path.read_bytes())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        content = None
    if not isinstance(content, dict) or not all(
        isinstance(content.get(k), kind) for k, kind in needs.items()
    ):
        raise Corrupt(f"{path} is damaged: restore it from git or a backup")
    return content


def read_book(path: Path) -> dict[str, Any]:
    book = _read_json(path, {})
    if book.get("commonplace") != "files":
        raise NotABook(f"{path.parent} holds some other program's book.json: choose another folder")
    try:
        layout = int(book["layout"])
        b64decode(book["meta"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise Corrupt(f"{path} is damaged: restore it from git or a backup") from None
    if layout > LAYOUT:
        raise BookTooNew(
            f"{path.parent} has file layout {layout} and this library knows up to {LAYOUT}: "
            "upgrade commonplace to open it"
        )
    return book


class FilesEngine(Engine):
    """One folder that holds one book."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = self.beside = folder
        self._disk = disk or Disk()
        self._disk.book = folder

    def open(self, book: str, create: bool) -> Store:
        try:
            return self._open(create)
        except OSError as error:
            if isinstance(error, CommonplaceError):
                raise
            raise EngineUnavailable(
                f"cannot open a book in {self.folder} ({error}): check its rights"
            ) from error

    def _open(self, create: bool) -> Store:
        if self.folder.exists() and not self.folder.is_dir():
            raise NotABook(f"{self.folder} is a file: for a SQLite book, open the path without 'file:'")
        for name in (*NAMES, "lock", "blobs"):
            _check_own(self.folder / name, stat.S_IFDIR if name == "blobs" else stat.S_IFREG)
        if (self.folder / "blobs").exists():
            for folder in (self.folder / "blobs").iterdir():
                _check_own(folder, stat.S_IFDIR)
        exists = (self.folder / "book.json").exists()
        if not exists and not create:
            raise BookNotFound(f"there is no book in {self.folder}; create it with `commonplace init`")
        if not exists:
            self._lay_out()
        read_book(self.folder / "book.json")
        if not (self.folder / "ledger.jsonl").exists():
            raise NotABook(f"{self.folder / 'ledger.jsonl'} is missing: restore it from git or a backup")
        return FilesStore(self.folder, self._disk)

    def _lay_out(self) -> None:
        make_folder(self.folder, FileAccess())
        self._check_for_remains()  # before anything is made beside them
        lock = FileLock(self.folder / "lock", only=True)
        try:
            run_inside(lock.inside(self.timeout), lambda _: self._make_files())
        finally:
            lock.close()

    def _make_files(self) -> None:
        ledger, book = self.folder / "ledger.jsonl", self.folder / "book.json"
        if not book.exists():
            self._check_for_remains()
            self._disk.write_file(ledger, b"")
            self._disk.write_file(book, book_bytes(""))

    def _check_for_remains(self) -> None:
        ledger = self.folder / "ledger.jsonl"
        if not (self.folder / "book.json").exists() and ledger.exists() and ledger.stat().st_size:
            raise NotABook(f"{ledger} is there without its book.json: restore it, or choose another folder")

    def books(self) -> list[str]:
        return [self.folder.name] if (self.folder / "book.json").exists() else []

    def drop(self, book: str) -> None:
        if book not in self.books():
            return
        for name in (*NAMES, "lock"):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "blobs", ignore_errors=True)
        remove_beside(self.folder)
