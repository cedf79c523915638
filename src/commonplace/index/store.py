"""The file that the index is kept in: documents, words and postings in SQLite, with nothing that is not
derived.

Every document version has a number; numbers grow with the ledger. For every word there is a list of the
numbers of the documents that have it, in blocks of `BLOCK` numbers, four bytes an entry. New documents wait
in a buffer until there are `BUFFER` entries, so that adding one touches a few pages, however many there are.

Any number of processes share the file. Anybody may delete it: whoever has it open sees that it is no longer
the one at its path, and opens the new one.

The file says which book it is of, the last position that it knows and the hash of the event there, so that it can
be told from one of another book or of another past. Every page carries a checksum, which is compared whenever the
page is read: a bit that has changed is found before it is believed, and nothing is read only to be checked.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import stat
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import apsw
import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, BookClosed, Busy, CommonplaceError, EngineUnavailable, NotABook, StorageFailed
from ..files.checksums import CHECKSUM_BYTES, page_checksums
from ..files.safe import (
    FileAccess,
    access_of,
    create_private,
    make_folder,
    may_have_made,
    open_private,
    settle,
)
from . import tables
from .documents import Change, Doc, Put, Reword
from .names import ENDINGS
from .tables import cut_entries, read_entries
from .vectors import Embedder, TokenEmbedder, Vectors
from .words import STOPWORDS, near, version
from .writing import Writing

log = logging.getLogger("commonplace")

APPLICATION_ID = 0x636F6D69  # "comi"
PAGE_SIZE = 4096
OTHER_DATABASE = "is some other database: choose another path for the index, or move it away"

FINGERPRINT = f"{version()}, BM25 0.9 0.4, fusion 7, layout {tables.LAYOUT}"
"""All that an answer depends on besides the ledger, the question and the embedder. Files with another one are built
again, so processes that run different versions should not share a file: put it into the file's name."""

Ints = NDArray[np.int64]
Words = list[tuple[Any, ...]]
"""Words after their numbers, or numbers of words before how often they occur, or pairs of numbers."""


class IndexHead(NamedTuple):
    fingerprint: str
    book: str
    """The id of the book that it is of."""
    position: int
    """The index knows all changes up to this position."""
    hash: bytes
    """The hash of the event there; empty where there is none."""
    next: int
    """The number that the next document gets."""
    merged: int
    """Documents from this number on are in the buffer."""
    waiting: int
    """How many entries the buffer has."""
    erasures: int
    """How often something was taken out; whoever remembers what was there before must forget it."""


class File:
    """One open index file. Damage found on the way is answered by throwing the file away."""

    def __init__(
        self,
        path: Path | None,
        embedder: Embedder | None = None,
        words: Embedder | None = None,
        book: str = "",
    ) -> None:
        self.path = path
        self.book = book
        self.embedder = embedder
        self.words = words
        names = dict.fromkeys(one.name for one in (embedder, words) if one is not None)
        self.fingerprint = ", ".join([FINGERPRINT, *(names or ["no vectors"])])
        self.rebuilt = ""
        self.lock = threading.RLock()
        self.closed = False
        self.opened = 0
        """Goes up when the file is another one; whoever remembers what was in the old one must forget it."""
        self.forked = False
        self.connection = apsw.Connection(":memory:")  # until the file is open
        self._open()
        _files.add(self)

    # Opening, and opening again.

    def _open(self) -> None:
        self.opened += 1
        if self.path is None:
            self.connection = apsw.Connection(":memory:")
            self._make_tables()
            return
        self._inode = (0, 0)
        with self._alone():
            try:
                why = self._look()
            except apsw.Error as error:
                why = _damage(error)
                if not why:
                    raise
            if why:
                self._throw_away(why)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else opens this index or throws it away meanwhile. What fails raises an error of this package."""
        assert self.path is not None
        try:
            make_folder(self.path.parent, FileAccess())
            with _locked(self.path):
                yield
        except apsw.Error as error:
            raise _translated(error, self.path) from error
        except OSError as error:
            if isinstance(error, CommonplaceError):
                raise
            raise EngineUnavailable(
                f"cannot open an index at {self.path} ({error}): check its folder"
            ) from error

    def _look(self) -> str:
        """Open what is there, or make it; answer why it cannot be used, if so. Raises NotABook for what is not this
        user's own file, or is the database of something else: that is left alone."""
        assert self.path is not None
        access = _access(self.path)
        there = os.path.lexists(self.path)
        for ending in ENDINGS:
            why = not_ours(self.path.with_name(self.path.name + ending))
            if why:
                raise NotABook(f"{self.path}{ending} {why}")
        if there and not os.access(self.path, os.R_OK | os.W_OK):
            return "it could not be read and written"
        create_private(self.path, access)
        # SQLite refuses a link anywhere in the path, so the folder, which may be behind one, is named without.
        where = self.path.parent.resolve() / self.path.name
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        if not page_checksums():
            raise EngineUnavailable("this SQLite has no checksums: install apsw's own wheel")
        self.connection = apsw.Connection(str(where), flags)
        self.connection.set_busy_timeout(10_000)
        empty = self.connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
        if not empty and self.connection.pragma("application_id") != APPLICATION_ID:
            self.connection.close(True)
            raise NotABook(f"{self.path} {OTHER_DATABASE}")
        if empty and there:
            return "it was empty"
        if self.path.stat().st_size % PAGE_SIZE:
            return "it was damaged (its last page is cut off)"  # SQLite would read zeros for the rest
        if empty:
            self.connection.reserve_bytes(reserve=CHECKSUM_BYTES)
            self.connection.pragma("page_size", PAGE_SIZE)
            # Before there is a log, so that they stand in the file itself from the beginning: see `other_database`.
            self.connection.pragma("application_id", APPLICATION_ID)
            self.connection.pragma("user_version", tables.LAYOUT)
        elif (
            self.connection.pragma("user_version") != tables.LAYOUT
            or self.connection.reserve_bytes() != CHECKSUM_BYTES
        ):
            return "it was made by another version"
        self._prepare()
        if empty:
            self._make_tables()
        for ending in ENDINGS:
            settle(self.path.with_name(self.path.name + ending), access)
        head = self.head()
        if head.fingerprint != self.fingerprint:
            return "it was made by another version"
        if head.book != self.book:
            return "it was the index of another book"
        found = self.path.lstat()
        self._inode = found.st_dev, found.st_ino
        return ""

    def _throw_away(self, why: str) -> None:
        """Remove the file, and begin an empty one."""
        assert self.path is not None
        self.connection.close(True)
        for ending in ENDINGS:
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        self.rebuilt = why
        log.warning("memory.index.rebuilt: the index at %s is built again: %s", self.path, why)
        self._look()

    def _prepare(self) -> None:
        """Set what erasure and sharing rest on, each by itself, and read it back."""
        for name, wanted, read in (
            ("secure_delete", 1, 1),
            ("journal_mode", "wal", "wal"),
            ("synchronous", "NORMAL", 1),
        ):
            self.connection.pragma(name, wanted)
            if self.connection.pragma(name) != read:
                raise EngineUnavailable(
                    f"this SQLite does not honour {name}={wanted}; install apsw's own wheel"
                )

    def _make_tables(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(tables.SCHEMA)
        self.connection.execute(
            "INSERT INTO head VALUES (?, ?, 0, ?, 0, 0, 0, 0)", (self.fingerprint, self.book, b"")
        )
        self.connection.execute("COMMIT")

    @contextmanager
    def using(self) -> Iterator[None]:
        """Have the file to oneself among the threads of this process, opened again where that is needed.
        Raises Damaged when it turns out to be, and has been thrown away."""
        with self.lock:
            if self.closed:
                raise BookClosed("this index is closed; open it again")
            if self.path is not None and (self.forked or not self._same_file()):
                if not self.forked:
                    self.connection.close(True)
                    self.rebuilt = "somebody had deleted it"
                self._open()
                self.forked = False
            try:
                yield
            except apsw.Error as error:
                why = _damage(error)
                if not why or self.path is None:
                    raise _translated(error, self.path) from error
                self.discard(why)
                raise Damaged from error

    def _same_file(self) -> bool:
        assert self.path is not None
        try:
            found = self.path.lstat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def discard(self, why: str) -> None:
        """Begin an empty index, because what there is must not be believed; unless another process has done so."""
        if self.path is None:
            self.connection.close(True)
            self._open()
            return
        with self._alone():
            if self._same_file():
                self._throw_away(why)
                self.opened += 1
                return
        self.connection.close(True)
        self._open()

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                self.connection.close(True)

    # Reading. All of these expect to be within `using`.

    def head(self) -> IndexHead:
        for row in self.rows(tables.HEAD):
            return IndexHead(*row)
        raise apsw.CorruptError("the index has no head")

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, values).fetchall()

    def words_of_stem(self, stem: str) -> Words:
        return self.rows(tables.WORDS_OF_STEM, (stem,))

    def sessions(self, prefix: str) -> list[int]:
        """The numbers of the conversations whose names begin like this."""
        return [num for (num,) in self.rows(tables.SESSIONS, (prefix, prefix + tables.LAST_LETTER))]

    def words_from(self, prefix: str) -> Words:
        return self.rows(tables.WORDS_FROM, (prefix, prefix + tables.LAST_LETTER))

    def words_near(self, word: str) -> Words:
        """The words that somebody may have meant who typed this one, stopwords left out."""
        half = len(word) // 2
        swapped = word[: half - 1] + word[half] + word[half - 1] + word[half + 1 :]
        found = self.rows(
            tables.WORDS_ALIKE, (word[:half], word[half:][::-1], swapped, len(word), tables.LAST_LETTER)
        )
        return [(num, other) for num, other in found if near(word, other) and other not in STOPWORDS]

    def entries(self, words: list[int]) -> dict[int, list[Ints]]:
        """The documents that have each of these words, in order, in parts: the number shifted by eight bits, and
        how often. Without the buffer."""
        found: dict[int, list[Ints]] = {word: [] for word in words}
        if words:
            for word, block, entries in self.connection.execute(tables.ENTRIES, (json.dumps(words),)):
                found[word].append(read_entries(entries, tables.ENTRY) + np.int64(block * tables.BLOCK << 8))
        return found

    def last_versions(self, as_of: int, position: int) -> Words:
        """The versions that held then and ended up to a position, each with the last one of its document."""
        return self.rows(tables.LAST_VERSIONS, (as_of, position))

    def texts(self, docs: Collection[int]) -> dict[int, tuple[str, str, str]]:
        """The text of each of these documents, its source and its run, in the order of their numbers."""
        texts = {}
        for num, text, source, run, checksum in self.rows(tables.TEXTS, (json.dumps(list(docs)),)):
            if crc32(text.encode()) != checksum:
                raise apsw.CorruptError("a text does not fit its checksum")
            texts[num] = (text, source, run)
        if texts.keys() != set(docs):
            raise apsw.CorruptError("a document has no text")
        return texts

    def words_in(self, docs: list[int]) -> tuple[Ints, list[int]]:
        """The numbers of the words of documents, one document after the other, and how many each has."""
        found = dict(self.connection.execute(tables.WORDS_IN, (json.dumps(docs),)))
        blobs = [found.get(doc, b"") for doc in docs]
        return read_entries(b"".join(blobs), tables.NUMBER).astype(np.int64), [
            len(one) // tables.NUMBER.itemsize for one in blobs
        ]

    def tokens(self, docs: list[int], width: int) -> tuple[Vectors, list[int]]:
        """The vectors of the parts of documents, so wide, one document after the other, and how many each has."""
        found = dict(self.connection.execute(tables.TOKENS, (json.dumps(docs),)))
        blobs = [found.get(doc, b"") for doc in docs]
        vectors = cut_entries(b"".join(blobs), np.dtype((np.void, width))).view(np.int8).reshape(-1, width)
        if not vectors.any(axis=1).all():
            raise apsw.CorruptError("a part of a document has no vector")
        return vectors, [len(one) // width for one in blobs]

    def recent(self, start: int) -> Iterator[tuple[int, Words]]:
        """The documents in the buffer from this number on, each with its words and how often it has them."""
        for num, found in self.connection.execute(tables.RECENT, (start,)):
            yield num, read_entries(found, tables.WAITING).tolist()

    # Writing.

    def apply(self, after: int, upto: int, changes: Iterable[tuple[int, Change]], hash: bytes) -> bool:
        if upto < after:
            raise BadInput(f"there is nothing after {after} up to {upto}: upto must not be below after")
        if self.head().position != after:
            return False
        changes = list(changes)
        # A model takes its time, and nobody else can write meanwhile if it runs within the transaction.
        made = self._made([change.doc for _, change in changes if isinstance(change, Put | Reword)])
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            head = self.head()
            if head.position != after:
                self.connection.execute("ROLLBACK")
                return False
            writing = Writing(self, head, made)
            last = after
            for position, change in changes:
                if not max(last, after + 1) <= position <= upto:
                    raise BadInput(
                        f"a change at position {position} does not lie after {last} and up to {upto}: "
                        "give the changes in the order of the ledger"
                    )
                last = position
                writing.change(position, change)
            writing.finish(upto, hash)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        return True

    def _made(self, docs: list[Doc]) -> Iterator[tuple[bytes, bytes]]:
        """For each document its vector, and those of its parts; empty where the embedder makes none."""
        texts = [doc.text for doc in docs]
        if not texts or self.embedder is None:
            return iter([(b"", b"")] * len(texts))
        if isinstance(self.embedder, TokenEmbedder):
            vectors, parts = self.embedder.embed_tokens(texts)
            tokens = [part.vectors.tobytes() for part in parts]
        else:
            vectors, tokens = self.embedder.embed(texts), [b""] * len(texts)
        return zip((one.tobytes() for one in vectors), tokens, strict=True)

    def purge(self) -> bool:
        self.connection.execute("VACUUM")
        if self.path is None:
            return True
        busy, frames, moved = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
        return not busy and bool(frames == moved)


_files: weakref.WeakSet[File] = weakref.WeakSet()


_held: list[File] = []


def _before_fork() -> None:
    """A connection must not be copied in the middle of something."""
    for file in _files:
        file.lock.acquire()
        _held.append(file)


def _in_parent() -> None:
    while _held:
        _held.pop().lock.release()


def _in_child() -> None:
    """SQLite in this process believes in locks that only the parent has, until every copy is closed. The
    parent keeps its own, and what is closed here leaves the files as they are."""
    while _held:
        file = _held.pop()
        file.lock, file.forked = threading.RLock(), True
        if file.path is not None:
            file.connection.close(True)


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


class Damaged(Exception):
    """The file was damaged and is a new, empty one now. It never leaves the index."""


def _access(index: Path) -> FileAccess:
    """An index is named after the book that it lies beside; one in a cache is for nobody else."""
    return access_of(index.with_suffix(""))


@contextmanager
def _locked(index: Path) -> Iterator[None]:
    """Nobody else opens this index or throws it away meanwhile. The lock is not the database's own file: closing any
    other descriptor of that would drop SQLite's locks on it."""
    lock = index.with_name(f"{index.name}-lock")
    descriptor = open_private(lock, os.O_RDWR, _access(index).writers)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def not_ours(path: Path) -> str:
    """Why what lies at a path is not a file that an index may be kept in, if it is not: somebody else could have put it
    there, or could write into it. It is left alone."""
    try:
        there = path.lstat()
    except FileNotFoundError:
        return ""
    if stat.S_ISLNK(there.st_mode):
        return "is a link, and an index is not kept behind one: remove the link"
    if not stat.S_ISREG(there.st_mode):
        return "is not a file: move it away, so that the index can lie there"
    if not may_have_made(there, _access(path)):
        return "belongs to another user, so it is not trusted: remove it"
    return ""


def other_database(path: Path) -> str:
    """Why a file is not to be removed, if it is the database of something else. Only for a file that nobody uses:
    closing it drops the locks that SQLite has on it in this process."""
    with suppress(OSError), path.open("rb") as file:
        header = file.read(72)
        if header.startswith(b"SQLite format 3\0") and int.from_bytes(header[68:]) != APPLICATION_ID:
            return OTHER_DATABASE
    return ""


def _damage(error: apsw.Error) -> str:
    """Why the file must not be believed, if that is what an error of SQLite says."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return f"it was damaged ({error})"
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return "it was damaged (a page does not fit its checksum)"
    return ""


def _translated(error: apsw.Error, path: Path | None) -> CommonplaceError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(f"another process kept the index {path} for too long ({error}): try again")
    if isinstance(error, apsw.FullError | apsw.IOError):
        return StorageFailed(f"the index {path} could not be written or read ({error}): check the disk")
    return EngineUnavailable(f"the index {path} cannot be used ({error}): check the file, or delete it")
