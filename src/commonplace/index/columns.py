"""What is known of every document, in arrays that stay in memory and grow with the file."""

from __future__ import annotations

import apsw
import msgspec
import numpy as np
from numpy.typing import NDArray

from .score import Floats, Ints
from .store import VECTORS, WORD_VECTORS, File, Head, Who
from .vectors import Vectors

ENDLESS = 2**63 - 1
FEW = 1 << 15
"""Up to so many vectors are held as they are multiplied, which takes four times the memory (32 MB)."""
DOCS = "SELECT num, id, since, coalesce(until, ?), class - 1, length, time_us, session, flags FROM docs WHERE num >= ?"
ENDS = "SELECT num, until FROM docs WHERE until > ?"
CLASSES = "SELECT who, tier FROM classes WHERE num > ? ORDER BY num"

Numbers = Vectors | NDArray[np.float32]

_read_who = msgspec.json.Decoder(Who).decode


class Columns:
    """The documents by their numbers. A number whose document was erased holds one that ended before it
    began. Good for one file, as long as nothing is erased from it."""

    def __init__(self) -> None:
        self.size = 0
        self.ids: list[str] = []
        self.latest: dict[str, int] = {}
        """The number of the last version of each document."""
        self.classes: list[tuple[Who, str]] = []
        """Who may see them, and their tier: what each `kind` stands for."""
        self._position = 0
        self._fields = np.zeros((7, 1024), np.int64)
        self._merged = 0
        self._buffer: dict[int, list[int]] = {}
        self._vectors = _Rows()
        self._word_vectors = _Rows()
        self._word_nums: list[int] = []
        self._word_places = np.zeros(0, np.int64)
        self._in_order = (-1, np.zeros(0, np.int64))

    def follow(self, file: File, head: Head) -> None:
        """Read what has come to the file since the last time, whoever wrote it."""
        if head.position == self._position:
            return
        self.classes += [(_read_who(who), tier) for who, tier in file.rows(CLASSES, (len(self.classes),))]
        for num, until in file.rows(ENDS, (self._position,)):
            if num < self.size:
                self._fields[1, num] = until
        while self._fields.shape[1] < head.next:
            self._fields = np.concatenate([self._fields, np.zeros_like(self._fields)], axis=1)
        self.ids += [""] * (head.next - self.size)
        rows = file.rows(DOCS, (ENDLESS, self.size))
        if rows:
            nums, ids, *fields = zip(*rows, strict=True)
            self._fields[:, np.array(nums)] = np.array(fields, np.int64)
            for num, id in zip(nums, ids, strict=True):
                self.ids[num] = id
                self.latest[id] = max(num, self.latest.get(id, 0))
        if head.merged > self._merged:
            self._buffer = {}
        for num, words in file.recent(max(head.merged, self.size)):
            for word, count in words:
                self._buffer.setdefault(word, []).append(num << 8 | count)
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

    def conversations(self) -> Ints:
        """The documents that are part of one, conversation by conversation, each in the order of the ledger."""
        if self._in_order[0] != self.size:
            parts = np.flatnonzero(self.session)
            self._in_order = self.size, parts[np.argsort(self.session[parts], kind="stable")]
        return self._in_order[1]

    def vectors(self, file: File, width: int) -> Numbers:
        """The vector of every document, so wide; zeros where it has none."""
        known = self._vectors
        for num, vector in file.connection.execute(VECTORS, (known.size,)):
            known.put(num, vector)
        known.size = self.size
        return known.upto(self.size, width)

    def words(self, file: File, width: int) -> tuple[Ints, list[int], Numbers]:
        """Of every number of a word, where its vector stands (−1: it has none); the numbers of those that have one; and
        their vectors, so wide."""
        nums, before = self._word_nums, len(self._word_nums)
        for num, vector in file.connection.execute(WORD_VECTORS, (nums[-1] if nums else 0,)):
            self._word_vectors.put(len(nums), vector)
            nums.append(num)
        if len(nums) > before:
            if nums[-1] >= len(self._word_places):
                more = np.full(2 * nums[-1] + 1 - len(self._word_places), -1)
                self._word_places = np.concatenate([self._word_places, more])
            self._word_places[nums[before:]] = np.arange(before, len(nums))
        return self._word_places, nums, self._word_vectors.upto(len(nums), width)

    def having(self, file: File, words: list[int]) -> tuple[Ints, Floats, Ints]:
        """The documents that have one of these words, word for word and in order; how often they have it; and
        how many there are for each word."""
        parts: list[Ints] = []
        sizes = []
        for word in words:
            found = file.entries(word)
            if word in self._buffer:
                found.append(np.array(self._buffer[word]))
            sizes.append(sum(map(len, found)))
            parts += found
        every = np.concatenate([np.zeros(0, np.int64), *parts])
        docs = every >> 8
        if len(docs) and docs.max() >= self.size:
            raise apsw.CorruptError("a list of entries names a document that there is not")
        every &= 255
        return docs, every.astype(np.float64), np.array(sizes, np.int64)


class _Rows:
    """Vectors by their numbers, in an array that grows."""

    def __init__(self) -> None:
        self.size = 0
        self._rows: Vectors = np.zeros((0, 0), np.int8)
        self._ready = np.zeros((0, 0), np.float32)

    def put(self, num: int, vector: bytes) -> None:
        self._widen(len(vector))
        if num >= len(self._rows):
            self._lengthen(max(1024, 2 * num))
        self._rows[num] = np.frombuffer(vector, np.int8)
        self._ready = self._ready[:num]

    def upto(self, size: int, width: int) -> Numbers:
        """The first so many; a few of them ready to be multiplied, of many only as they are stored."""
        self._widen(width)
        if size > len(self._rows):
            self._lengthen(size)
        if size > FEW:
            return self._rows[:size]
        if len(self._ready) != size:
            self._ready = self._rows[:size].astype(np.float32)
        return self._ready

    def _widen(self, width: int) -> None:
        if self._rows.shape[1] not in (0, width):
            raise apsw.CorruptError("vectors are of different lengths")
        if not self._rows.shape[1]:
            self._rows = np.zeros((0, width), np.int8)
            self._ready = np.zeros((0, width), np.float32)

    def _lengthen(self, size: int) -> None:
        more = np.zeros((size - len(self._rows), self._rows.shape[1]), np.int8)
        self._rows = np.concatenate([self._rows, more])
