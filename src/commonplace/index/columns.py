"""What is known of every document, in arrays that stay in memory and grow with the file."""

from __future__ import annotations

import apsw
import msgspec
import numpy as np

from .score import Floats, Ints
from .store import File, Head, Who

ENDLESS = 2**63 - 1
DOCS = "SELECT num, id, since, coalesce(until, ?), class - 1, length, time_us FROM docs WHERE num >= ?"
ENDS = "SELECT num, until FROM docs WHERE until > ?"
CLASSES = "SELECT who, tier FROM classes WHERE num > ? ORDER BY num"

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
        self._fields = np.zeros((5, 1024), np.int64)
        self._merged = 0
        self._buffer: dict[int, list[int]] = {}

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
