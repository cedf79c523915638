"""What is known of every document, in arrays that stay in memory and grow with the file.

A document takes 56 bytes and its id about 80; with vectors of 256 parts 256 bytes, and 32 more where there are many.
A word that has a vector takes about 350 bytes. What is remembered of answers beside that has fixed bounds: `LISTS`
bytes of lists of documents, the vectors of some thousand words of queries (`near`), and `VIEWS` views of readers, each
of a byte a document and 16 more where there are conversations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import apsw
import msgspec
import numpy as np
from numpy.typing import NDArray

from ..ledger.reader import pages
from .documents import Who
from .near import Vocabulary
from .rows import IndexRows
from .score import Ints
from .store import File, IndexHead
from .tables import VECTORS
from .view import IndexView

ENDLESS = 2**63 - 1
FEW = 1 << 16
"""Up to so many documents, all vectors are compared each time; of more, those whose signs are alike."""
LISTS = 64 << 20
VIEWS = 4
AT_ONCE = 1 << 14
ID = 80
"""About what the name of a document takes in memory."""
SCOPES = "SELECT num, name FROM scopes WHERE num >= ? ORDER BY num"
DOCS = """
SELECT num, id, since, coalesce(until, ?), class - 1, length, time_us, session, flags, scope, speaker FROM docs
WHERE num >= ?
"""
SPEAKERS = "SELECT num, name FROM speakers WHERE num > ? ORDER BY num"
ENDS = "SELECT num, until FROM docs WHERE until > ?"
CLASSES = "SELECT who, tier FROM classes WHERE num > ? ORDER BY num"

_read_who = msgspec.json.Decoder(Who).decode

Entries = tuple[NDArray[np.int32], NDArray[np.uint8]]
"""The documents that have a word, in order, and how often they have it."""


class SeenDocs(NamedTuple):
    """What somebody may see: which kinds of documents, and of which scopes; None: of all."""

    kinds: tuple[bool, ...]
    scopes: frozenset[str] | None


class Columns:
    """The documents by their numbers. A number whose document was erased holds one that ended before it
    began. Good for one file, as long as nothing is erased from it."""

    def __init__(self) -> None:
        self.size = 0
        self.ids: list[str] = []
        self.classes: list[tuple[Who, str]] = []
        """Who may see them, and their tier: what each `kind` stands for."""
        self.scopes: dict[str, int] = {"": 0}
        """The number that each scope has among the documents."""
        self.speakers: dict[int, str] = {}
        """The names of those who speak in conversations, if they are not the authors, by their numbers."""
        self.vocabulary = Vocabulary()
        self._position = 0
        self._fields = np.zeros((9, 1024), np.int64)
        self._merged = 0
        self._buffer: dict[int, list[int]] = {}
        self._lists: dict[int, Entries] = {}
        self._lists_take = 0
        self._vectors = IndexRows(FEW)
        self._views: dict[tuple[int, SeenDocs], IndexView] = {}
        self._in_order = (-1, np.zeros(0, np.int64))

    def follow(self, file: File, head: IndexHead) -> None:
        """Read what has come to the file since the last time, whoever wrote it."""
        if head.position == self._position:
            return
        self._views = {}
        self.classes += [(_read_who(who), tier) for who, tier in file.rows(CLASSES, (len(self.classes),))]
        self.scopes |= {name: num for num, name in file.rows(SCOPES, (len(self.scopes),))}
        self.speakers |= dict(file.rows(SPEAKERS, (max(self.speakers, default=0),)))
        for num, until in file.rows(ENDS, (self._position,)):
            if num < self.size:
                self._fields[1, num] = until
        while self._fields.shape[1] < head.next:
            self._fields = np.concatenate([self._fields, np.zeros_like(self._fields)], axis=1)
        self.ids += [""] * (head.next - self.size)
        for page in pages(file.connection.execute(DOCS, (ENDLESS, self.size)), AT_ONCE):
            nums, ids, *fields = zip(*page, strict=True)
            if (
                min(nums) < 0
                or max(nums) >= head.next
                or not 0 <= min(fields[2]) <= max(fields[2]) < len(self.classes)
            ):
                raise apsw.CorruptError("a document has a number or a kind that there is not")
            self._fields[:, np.array(nums)] = np.array(fields, np.int64)
            for num, id in zip(nums, ids, strict=True):
                self.ids[num] = id
        if head.merged > self._merged:
            self._buffer, self._lists, self._lists_take = {}, {}, 0
        for num, words in file.recent(max(head.merged, self.size)):
            for word, count in words:
                self._buffer.setdefault(word, []).append(num << 8 | count)
                self._forget(word)
        self.size, self._position, self._merged = head.next, head.position, head.merged

    @property
    def since(self) -> Ints:
        return self._fields[0, : self.size]

    @property
    def until(self) -> Ints:
        return self._fields[1, : self.size]

    @property
    def kind(self) -> Ints:
        return self._fields[2, : self.size]

    @property
    def length(self) -> Ints:
        return self._fields[3, : self.size]

    @property
    def time_us(self) -> Ints:
        return self._fields[4, : self.size]

    @property
    def session(self) -> Ints:
        return self._fields[5, : self.size]

    @property
    def flags(self) -> Ints:
        return self._fields[6, : self.size]

    @property
    def scope(self) -> Ints:
        return self._fields[7, : self.size]

    @property
    def speaker(self) -> Ints:
        return self._fields[8, : self.size]

    def spoken_by(self, names: Collection[str], docs: Ints | None = None) -> NDArray[np.bool_]:
        """Which of all documents, or of these, somebody with one of these names says."""
        kind, speaker = (self.kind, self.speaker) if docs is None else (self.kind[docs], self.speaker[docs])
        nums = [num for num, name in self.speakers.items() if name in names]
        authors = among((who.author in names for who, _ in self.classes), kind)
        return np.where(speaker > 0, np.isin(speaker, nums), authors)

    @property
    def memory(self) -> int:
        """How many bytes all this takes, about."""
        views = sum(view.memory for view in self._views.values())
        held = self._fields.nbytes + len(self.ids) * ID + self._in_order[1].nbytes + self._lists_take + views
        return held + self._vectors.memory + self.vocabulary.memory

    def view(self, file: File, as_of: int, may: SeenDocs) -> IndexView:
        """What somebody may see as of then; the last few are remembered."""
        key = (as_of, may)
        found = self._views.pop(key, None) or IndexView(self, self._visible(file, as_of, may))
        self._views[key] = found
        while len(self._views) > VIEWS:
            del self._views[next(iter(self._views))]
        return found

    def ended(self, as_of: int, may: SeenDocs) -> NDArray[np.bool_]:
        """The versions that have ended by then, of what somebody may see."""
        mask = self._of(may)
        mask &= self.since < self.until  # none that was erased
        mask &= self.until <= as_of
        return mask

    def _of(self, may: SeenDocs) -> NDArray[np.bool_]:
        """The documents of the kinds and scopes that somebody may see."""
        visible = among(may.kinds, self.kind)
        if may.scopes is not None:
            inside = np.zeros(max(self.scopes.values()) + 1, np.bool_)
            inside[[self.scopes[scope] for scope in may.scopes if scope in self.scopes]] = True
            visible &= inside[self.scope]
        return visible

    def _visible(self, file: File, as_of: int, may: SeenDocs) -> NDArray[np.bool_]:
        visible = self._of(may)
        visible &= self.since <= as_of
        visible &= self.until > as_of
        if as_of < self._position:
            for num, last in file.last_versions(as_of, self._position):
                visible[num] &= may.kinds[self.kind[last]]
        return visible

    def conversations(self) -> Ints:
        """The documents that are part of one, conversation by conversation, each in the order of the ledger."""
        if self._in_order[0] != self.size:
            parts = np.flatnonzero(self.session)
            self._in_order = self.size, parts[np.argsort(self.session[parts], kind="stable")]
        return self._in_order[1]

    def vectors(self, file: File, width: int) -> IndexRows:
        """The vector of every document, so wide; zeros where it has none."""
        known = self._vectors
        if known.size < self.size or not self.size:
            known.extend(file.connection.execute(VECTORS, (known.size,)), self.size, width)
        return known

    def having(self, file: File, words: Iterable[int]) -> list[Entries]:
        """The documents that have each of these words. What was asked for last is remembered."""
        wanted = list(words)
        missing = [word for word in wanted if word not in self._lists]
        new = {word: self._decoded(word, parts) for word, parts in file.entries(missing).items()}
        found = []
        for word in wanted:
            entries = new.get(word) or self._lists.pop(word)
            self._lists[word] = entries  # behind the others
            found.append(entries)
        self._lists_take += sum(map(_takes, new.values()))
        while self._lists and self._lists_take > LISTS:
            self._forget(next(iter(self._lists)))
        return found

    def _decoded(self, word: int, parts: list[Ints]) -> Entries:
        if word in self._buffer:
            parts = [*parts, np.array(self._buffer[word])]
        every = np.concatenate([np.zeros(0, np.int64), *parts])
        docs = every >> 8
        if len(docs) and docs.max() >= self.size:
            raise apsw.CorruptError("a list of entries names a document that there is not")
        return docs.astype(np.int32), (every & 255).astype(np.uint8)

    def _forget(self, word: int) -> None:
        entries = self._lists.pop(word, None)
        if entries is not None:
            self._lists_take -= _takes(entries)


def among(which: Iterable[bool], kinds: Ints) -> NDArray[np.bool_]:
    """The documents whose kind is one of the chosen ones."""
    mask: NDArray[np.bool_] = np.array([*which, False])[kinds]
    return mask


def _takes(entries: Entries) -> int:
    return sum(part.nbytes for part in entries) + 400  # with what holds them
