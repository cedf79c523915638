"""The file that the index is kept in: documents, words and postings in SQLite, with nothing that is not
derived.

Every document version has a number; numbers grow with the ledger. For every word there is a list of the
numbers of the documents that have it, in blocks of `BLOCK` numbers, four bytes an entry. New documents wait
in a buffer until there are `BUFFER` entries, so that adding one touches a few pages, however many there are.

Any number of processes share the file. Anybody may delete it: whoever has it open sees that it is no longer
the one at its path, and opens the new one.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, BookClosed, Busy, CommonplaceError, EngineUnavailable, NotABook, StorageFailed
from ..private import Access, access_of, check_private, create_private, make_folder, open_private
from .hints import flags, spoken
from .vectors import Embedder, TokenEmbedder, Vectors
from .words import LONGEST, STOPWORDS, VERSION, counted, near, stem

LAYOUT = 3
APPLICATION_ID = 0x636F6D69  # "comi"
BLOCK = 1 << 14
BUFFER = 1 << 16
MOST = 255
"""How often a word counts in one document at most: an entry has one byte for it."""

FINGERPRINT = f"{VERSION}, BM25 0.9 0.4, fusion 5, layout {LAYOUT}"
"""All that an answer depends on besides the ledger, the question and the embedder. Files with another one are built
again, so processes that run different versions should not share a file: put it into the file's name."""

Ints = NDArray[np.int64]
Words = list[tuple[Any, ...]]
"""Words after their numbers, or numbers of words before how often they occur, or pairs of numbers."""
_ENTRY = np.dtype("<u4")  # the number within its block, shifted by eight bits, and the count
_NUMBER = np.dtype("<u4")
_WAITING = np.dtype([("word", "<u4"), ("count", "u1")])

SCHEMA = """
CREATE TABLE head (
    fingerprint TEXT NOT NULL, position INTEGER NOT NULL, next INTEGER NOT NULL, merged INTEGER NOT NULL,
    waiting INTEGER NOT NULL, erasures INTEGER NOT NULL
) STRICT;
CREATE TABLE classes (
    num INTEGER PRIMARY KEY, who TEXT NOT NULL, tier TEXT NOT NULL, UNIQUE (who, tier)
) STRICT;
CREATE TABLE docs (
    num INTEGER PRIMARY KEY, id TEXT NOT NULL, since INTEGER NOT NULL, until INTEGER,
    class INTEGER NOT NULL, length INTEGER NOT NULL, time_us INTEGER NOT NULL, session INTEGER NOT NULL,
    flags INTEGER NOT NULL
) STRICT;
CREATE TABLE sessions (num INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE vectors (num INTEGER PRIMARY KEY, vector BLOB NOT NULL) STRICT;
CREATE TABLE tokens (num INTEGER PRIMARY KEY, vectors BLOB NOT NULL) STRICT;
CREATE TABLE word_vectors (num INTEGER PRIMARY KEY, vector BLOB NOT NULL) STRICT;
CREATE INDEX docs_by_id ON docs (id, until);
CREATE INDEX docs_by_end ON docs (until) WHERE until IS NOT NULL;
CREATE TABLE texts (
    num INTEGER PRIMARY KEY, text TEXT NOT NULL, source TEXT NOT NULL, run TEXT NOT NULL, words BLOB NOT NULL
) STRICT;
CREATE TABLE words (num INTEGER PRIMARY KEY, word TEXT NOT NULL, stem TEXT NOT NULL, back TEXT) STRICT;
CREATE UNIQUE INDEX words_by_word ON words (word);
CREATE INDEX words_by_stem ON words (stem);
CREATE INDEX words_by_end ON words (back) WHERE back IS NOT NULL;
CREATE TABLE postings (
    word INTEGER NOT NULL, block INTEGER NOT NULL, entries BLOB NOT NULL, PRIMARY KEY (word, block)
) STRICT, WITHOUT ROWID;
CREATE TABLE recent (num INTEGER PRIMARY KEY, entries BLOB NOT NULL) STRICT;
"""
HEAD = "SELECT fingerprint, position, next, merged, waiting, erasures FROM head"
SET_HEAD = "UPDATE head SET position = ?, next = ?, merged = ?, waiting = ?, erasures = ?"
CLASS = "SELECT num FROM classes WHERE who = ? AND tier = ?"
ADD_CLASS = "INSERT INTO classes (who, tier) VALUES (?, ?) RETURNING num"
END = "UPDATE docs SET until = ? WHERE id = ? AND until IS NULL"
ADD_DOC = "INSERT INTO docs VALUES (?, ?, ?, NULL, ?, ?, ?, ?, ?)"
SESSION = "SELECT num FROM sessions WHERE name = ?"
ADD_SESSION = "INSERT INTO sessions (name) VALUES (?) RETURNING num"
ADD_VECTOR = "INSERT INTO vectors VALUES (?, ?)"
ADD_TOKENS = "INSERT INTO tokens VALUES (?, ?)"
ADD_WORD_VECTOR = "INSERT INTO word_vectors VALUES (?, ?)"
DROP_WORD_VECTOR = (
    "DELETE FROM word_vectors WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM words WHERE num = ?1)"
)
VECTORS = "SELECT num, vector FROM vectors WHERE num >= ? ORDER BY num"
TOKENS = "SELECT num, vectors FROM tokens WHERE num IN (SELECT value FROM json_each(?))"
WORD_VECTORS = "SELECT num, vector FROM word_vectors WHERE num > ? ORDER BY num"
ADD_TEXT = "INSERT INTO texts VALUES (?, ?, ?, ?, ?)"
ADD_RECENT = "INSERT INTO recent VALUES (?, ?)"
WORDS = "SELECT word, num FROM words WHERE word IN (SELECT value FROM json_each(?))"
ADD_WORD = "INSERT INTO words (word, stem, back) VALUES (?, ?, ?) RETURNING num"
RECENT = "SELECT num, entries FROM recent WHERE num >= ? ORDER BY num"
# SQLite takes the two blobs joined for a text, byte for byte.
ADD_ENTRIES = """
INSERT INTO postings VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET entries = CAST(entries || excluded.entries AS BLOB)
"""
ENTRIES = """
SELECT word, block, entries FROM postings WHERE word IN (SELECT value FROM json_each(?)) ORDER BY word, block
"""
ENTRIES_OF_BLOCK = "SELECT entries FROM postings WHERE word = ? AND block = ?"
SET_ENTRIES = "UPDATE postings SET entries = ? WHERE word = ? AND block = ?"
DROP_ENTRIES = "DELETE FROM postings WHERE word = ? AND block = ?"
# A word that no document has any more.
DROP_WORD = "DELETE FROM words WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM postings WHERE word = ?1)"
VERSIONS = "SELECT num, text FROM docs JOIN texts USING (num) WHERE id = ? ORDER BY num"
LAST_VERSIONS = """
SELECT num, (SELECT max(other.num) FROM docs other WHERE other.id = docs.id) FROM docs
WHERE until > ?1 AND until <= ?2 AND since <= ?1
"""
WORDS_IN = "SELECT num, words FROM texts WHERE num IN (SELECT value FROM json_each(?))"
WORDS_OF_STEM = "SELECT num, word FROM words WHERE stem = ?"
WORDS_FROM = "SELECT num, word FROM words WHERE word >= ? AND word < ?"
# Words that share the first half with a given one, or the second half, and are about as long; or are the one
# with the two letters in the middle swapped.
WORDS_ALIKE = """
SELECT num, word FROM words
WHERE word >= ?1 AND word < ?1 || ?5 AND length(word) BETWEEN ?4 - 1 AND ?4 + 1
UNION SELECT num, word FROM words
WHERE back >= ?2 AND back < ?2 || ?5 AND length(word) BETWEEN ?4 - 1 AND ?4 + 1
UNION SELECT num, word FROM words WHERE word = ?3
"""
LAST_LETTER = "\U0010ffff"


class Who(msgspec.Struct, frozen=True):
    """What decides who may see a document. There are few different ones."""

    author: str
    kind: str
    shared: bool
    sensitivity: str
    tier: str
    core: str = ""


class Doc(msgspec.Struct, frozen=True):
    """Something that can be found: `text` is what is searched, the rest is what it is found by or shown
    with."""

    id: str
    text: str
    who: Who
    tier: str
    source: str
    time_us: int
    run: str = ""
    session: str = ""
    """The conversation that it is a part of, if it is: then what was said before and after it counts, too."""


class Put(msgspec.Struct, frozen=True):
    """From here on this is the document with its id; an earlier version of it ends here."""

    doc: Doc


class Gone(msgspec.Struct, frozen=True):
    """From here on there is no document with this id. Earlier on there still is."""

    id: str


class Erase(msgspec.Struct, frozen=True):
    """No document with one of these ids ever was: every version goes, at every `at`."""

    ids: tuple[str, ...]


Change = Put | Gone | Erase


class Head(NamedTuple):
    fingerprint: str
    position: int
    """The index knows all changes up to this position."""
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
        self, path: Path | None, embedder: Embedder | None = None, words: Embedder | None = None
    ) -> None:
        self.path = path
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
        self._open()
        _files.add(self)

    # Opening, and opening again.

    def _open(self) -> None:
        self.opened += 1
        if self.path is None:
            self.connection = apsw.Connection(":memory:")
            self._make_tables()
            return
        try:
            make_folder(self.path.parent, Access())
            with _alone(self.path):
                try:
                    why = self._look()
                except (apsw.CorruptError, apsw.NotADBError) as error:
                    why = f"it was damaged ({error})"
                if why:
                    self._throw_away(why)
        except apsw.Error as error:
            raise _translated(error, self.path) from error
        except OSError as error:
            if isinstance(error, CommonplaceError):
                raise
            raise EngineUnavailable(
                f"cannot open an index at {self.path} ({error}): check its folder"
            ) from error

    def _look(self) -> str:
        """Open what is there, or make it; answer why it cannot be used, if so."""
        assert self.path is not None
        create_private(self.path, _access(self.path))
        for suffix in ("-wal", "-shm", "-journal"):
            check_private(self.path.with_name(self.path.name + suffix), _access(self.path))
        self.connection = apsw.Connection(str(self.path))
        self.connection.set_busy_timeout(10_000)
        empty = self.connection.execute("SELECT count(*) FROM sqlite_schema").get == 0
        if not empty and self.connection.pragma("application_id") != APPLICATION_ID:
            self.connection.close(True)
            raise NotABook(f"{self.path} is some other database: choose another path for the index")
        self._prepare()
        if empty:
            self._make_tables()
        elif self.connection.pragma("user_version") != LAYOUT or self.head().fingerprint != self.fingerprint:
            return "it was made by another version"
        found = self.path.stat()
        self._inode = found.st_dev, found.st_ino
        return ""

    def _throw_away(self, why: str) -> None:
        assert self.path is not None
        self.connection.close(True)
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.rebuilt = why
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
        self.connection.execute(SCHEMA)
        self.connection.execute("INSERT INTO head VALUES (?, 0, 0, 0, 0, 0)", (self.fingerprint,))
        self.connection.pragma("application_id", APPLICATION_ID)
        self.connection.pragma("user_version", LAYOUT)
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
            except (apsw.CorruptError, apsw.NotADBError) as error:
                self._damaged(error)
                raise Damaged from error
            except apsw.Error as error:
                raise _translated(error, self.path) from error

    def _same_file(self) -> bool:
        assert self.path is not None
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def _damaged(self, error: apsw.Error) -> None:
        if self.path is None:
            raise _translated(error, None) from error
        with _alone(self.path):
            if self._same_file():
                self._throw_away(f"it was damaged ({error})")
                self.opened += 1
                return
        self._open()

    def close(self) -> None:
        with self.lock:
            if not self.closed:
                self.closed = True
                self.connection.close(True)

    # Reading. All of these expect to be within `using`.

    def head(self) -> Head:
        return Head(*self.rows(HEAD)[0])

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(statement, values).fetchall()

    def words_of_stem(self, stem: str) -> Words:
        return self.rows(WORDS_OF_STEM, (stem,))

    def words_from(self, prefix: str) -> Words:
        return self.rows(WORDS_FROM, (prefix, prefix + LAST_LETTER))

    def words_near(self, word: str) -> Words:
        """The words that somebody may have meant who typed this one, stopwords left out."""
        half = len(word) // 2
        swapped = word[: half - 1] + word[half] + word[half - 1] + word[half + 1 :]
        found = self.rows(WORDS_ALIKE, (word[:half], word[half:][::-1], swapped, len(word), LAST_LETTER))
        return [(num, other) for num, other in found if near(word, other) and other not in STOPWORDS]

    def entries(self, words: list[int]) -> dict[int, list[Ints]]:
        """The documents that have each of these words, in order, in parts: the number shifted by eight bits, and
        how often. Without the buffer."""
        found: dict[int, list[Ints]] = {word: [] for word in words}
        if words:
            for word, block, entries in self.connection.execute(ENTRIES, (json.dumps(words),)):
                found[word].append(_read(entries, _ENTRY) + np.int64(block * BLOCK << 8))
        return found

    def last_versions(self, as_of: int, position: int) -> Words:
        """The versions that held then and ended up to a position, each with the last one of its document."""
        return self.rows(LAST_VERSIONS, (as_of, position))

    def words_in(self, docs: list[int]) -> tuple[Ints, list[int]]:
        """The numbers of the words of documents, one document after the other, and how many each has."""
        found = dict(self.connection.execute(WORDS_IN, (json.dumps(docs),)))
        blobs = [found.get(doc, b"") for doc in docs]
        return _read(b"".join(blobs), _NUMBER).astype(np.int64), [
            len(one) // _NUMBER.itemsize for one in blobs
        ]

    def tokens(self, docs: list[int], width: int) -> tuple[Vectors, list[int]]:
        """The vectors of the parts of documents, so wide, one document after the other, and how many each has."""
        found = dict(self.connection.execute(TOKENS, (json.dumps(docs),)))
        blobs = [found.get(doc, b"") for doc in docs]
        joined = _read(b"".join(blobs), np.dtype((np.void, width)))
        return joined.view(np.int8).reshape(-1, width), [len(one) // width for one in blobs]

    def recent(self, start: int) -> Iterator[tuple[int, Words]]:
        """The documents in the buffer from this number on, each with its words and how often it has them."""
        for num, found in self.connection.execute(RECENT, (start,)):
            yield num, _read(found, _WAITING).tolist()

    # Writing.

    def apply(self, after: int, upto: int, changes: Iterable[tuple[int, Change]]) -> bool:
        if upto < after:
            raise BadInput(f"there is nothing after {after} up to {upto}: upto must not be below after")
        if self.head().position != after:
            return False
        changes = list(changes)
        # A model takes its time, and nobody else can write meanwhile if it runs within the transaction.
        made = self._made([change.doc for _, change in changes if isinstance(change, Put)])
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
            writing.finish(upto)
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise
        return True

    def _made(self, docs: list[Doc]) -> Iterator[tuple[bytes, bytes]]:
        """For each document its vector, and those of its parts; empty where the embedder makes none."""
        texts = [spoken(doc.text, doc.who.author, doc.time_us) if doc.session else doc.text for doc in docs]
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


class Writing:
    """One transaction's changes on their way into the file."""

    def __init__(self, file: File, head: Head, made: Iterator[tuple[bytes, bytes]]) -> None:
        self._file = file
        self._made = made
        self._do = file.connection.execute
        self._known: dict[str, int] = {}
        self._pending: list[tuple[int, NDArray[Any]]] = []
        self._unembedded_words: dict[int, str] = {}
        self._next, self._merged = head.next, head.merged
        self._waiting, self._erasures = head.waiting, head.erasures

    def change(self, position: int, change: Change) -> None:
        match change:
            case Put(doc):
                self._do(END, (position, doc.id))
                self._add(position, doc)
            case Gone(id):
                self._do(END, (position, id))
            case Erase(ids):
                versions = [found for id in dict.fromkeys(ids) for found in self._file.rows(VERSIONS, (id,))]
                if versions:
                    self._merge()
                for num, text in versions:
                    self._erase(num, text)

    def finish(self, position: int) -> None:
        self._embed_words()
        self._file.connection.executemany(
            ADD_RECENT, [(num, entries.tobytes()) for num, entries in self._pending]
        )
        self._do(SET_HEAD, (position, self._next, self._merged, self._waiting, self._erasures))

    def _add(self, position: int, doc: Doc) -> None:
        num, self._next = self._next, self._next + 1
        counts, length = counted(doc.text)
        entries = np.empty(len(counts), _WAITING)
        entries["word"] = self._numbers(counts)
        entries["count"] = [min(count, MOST) for count in counts.values()]
        self._do(
            ADD_DOC,
            (
                num,
                doc.id,
                position,
                self._class(doc),
                length,
                doc.time_us,
                self._session(doc),
                flags(doc.text),
            ),
        )
        for statement, made in zip((ADD_VECTOR, ADD_TOKENS), next(self._made), strict=True):
            if made:
                self._do(statement, (num, made))
        self._do(ADD_TEXT, (num, doc.text, doc.source, doc.run, entries["word"].tobytes()))
        if len(entries):
            self._pending.append((num, entries))
            self._waiting += len(entries)
        if self._waiting >= BUFFER:
            self._merge()

    def _embed_words(self) -> None:
        """Give all words that are new their vectors."""
        embedder, new = self._file.words, self._unembedded_words
        if embedder is not None and new:
            rows = zip(new, (vector.tobytes() for vector in embedder.embed(list(new.values()))), strict=True)
            self._file.connection.executemany(ADD_WORD_VECTOR, rows)
        new.clear()

    def _session(self, doc: Doc) -> int:
        if not doc.session:
            return 0
        found = self._do(SESSION, (doc.session,)).get
        return int(self._do(ADD_SESSION, (doc.session,)).get if found is None else found)

    def _class(self, doc: Doc) -> int:
        key = (msgspec.json.encode(doc.who).decode(), doc.tier)
        found = self._do(CLASS, key).get
        return int(self._do(ADD_CLASS, key).get if found is None else found)

    def _numbers(self, words: Iterable[str]) -> list[int]:
        known = self._known
        missing = [word for word in words if word not in known]
        if missing:
            known.update(self._file.rows(WORDS, (json.dumps(missing),)))
            for word in missing:
                if word not in known:
                    back = word[::-1] if 4 <= len(word) < LONGEST else None
                    known[word] = self._do(ADD_WORD, (word, stem(word), back)).get
                    if word.isalpha() and len(word) >= 3 and word not in STOPWORDS:
                        self._unembedded_words[known[word]] = word
        return [known[word] for word in words]

    def _merge(self) -> None:
        """Put all that waits in the buffer where it belongs."""
        waiting = [(num, _read(found, _WAITING)) for num, found in self._do(RECENT, (0,))]
        waiting += self._pending
        self._pending = []
        self._do("DELETE FROM recent")
        self._waiting, self._merged = 0, self._next
        if not waiting:
            return
        every = np.concatenate([entries for _, entries in waiting])
        docs = np.repeat([num for num, _ in waiting], [len(entries) for _, entries in waiting])
        order = np.argsort(every["word"], kind="stable")
        words, docs, counts = every["word"][order].astype(np.int64), docs[order], every["count"][order]
        blocks = docs // BLOCK
        packed = ((docs % BLOCK) << 8 | counts).astype(_ENTRY)
        starts = np.flatnonzero((np.diff(words, prepend=-1) != 0) | (np.diff(blocks, prepend=-1) != 0))
        lists = [part.tobytes() for part in np.split(packed, starts[1:])]
        self._file.connection.executemany(
            ADD_ENTRIES, zip(words[starts].tolist(), blocks[starts].tolist(), lists, strict=True)
        )

    def _erase(self, num: int, text: str) -> None:
        """Take out a document, and the words that no other has. Nothing waits in the buffer."""
        self._embed_words()
        block, within = divmod(num, BLOCK)
        for word in self._numbers(counted(text)[0]):
            entries = _read(self._do(ENTRIES_OF_BLOCK, (word, block)).get or b"", _ENTRY)
            entries = entries[entries >> 8 != within]
            if len(entries):
                self._do(SET_ENTRIES, (entries.tobytes(), word, block))
            else:
                self._do(DROP_ENTRIES, (word, block))
                self._do(DROP_WORD, (word,))
                self._do(DROP_WORD_VECTOR, (word,))
        for table in ("vectors", "tokens", "texts", "docs"):
            self._do(f"DELETE FROM {table} WHERE num = ?", (num,))  # noqa: S608 - one of these four
        self._known.clear()
        self._erasures += 1


class Damaged(Exception):
    """The file was damaged and is a new, empty one now. It never leaves the index."""


def _access(index: Path) -> Access:
    """An index is named after the book that it lies beside; one in a cache is for nobody else."""
    return access_of(index.with_suffix(""))


@contextmanager
def _alone(index: Path) -> Iterator[None]:
    """Nobody else opens an index or throws one away meanwhile. Not the database's own file: closing any other
    descriptor of that would drop SQLite's locks on it."""
    lock = index.with_name(f"{index.name}-lock")
    descriptor = open_private(lock, os.O_RDWR, _access(index).writers)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(found: bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    if len(found) % kind.itemsize:
        raise apsw.CorruptError("a list of entries is torn")
    return np.frombuffer(found, kind)


def _translated(error: apsw.Error, path: Path | None) -> CommonplaceError:
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(f"another process kept the index {path} for too long ({error}): try again")
    if isinstance(error, apsw.FullError | apsw.IOError):
        return StorageFailed(f"the index {path} could not be written or read ({error}): check the disk")
    return EngineUnavailable(f"the index {path} cannot be used ({error}): check the file, or delete it")
