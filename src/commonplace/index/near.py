"""The words that documents have, and how near they are to others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .rows import IndexRows
from .score import Floats, Ints
from .store import File
from .tables import WORD_VECTORS
from .vectors import Embedder, Vectors, likeness, shares

REMEMBERED = 4_096
"""Words of queries whose vectors are remembered."""


class Vocabulary:
    """All words that have a vector, in the order of their numbers."""

    def __init__(self) -> None:
        self._nums: list[int] = []
        self._places = np.zeros(0, np.int64)
        self._vectors = IndexRows()
        self._made: dict[str, Vectors] = {}

    @property
    def memory(self) -> int:
        return self._vectors.memory + self._places.nbytes + 40 * len(self._nums) + 400 * len(self._made)

    def follow(self, file: File) -> None:
        """Read the words that have come to the file since the last time."""
        before = len(self._nums)
        new = file.rows(WORD_VECTORS, (self._nums[-1] if before else 0,))
        if not new and before:
            return
        nums, vectors = [num for num, _ in new], [vector for _, vector in new]
        width = len(vectors[0]) if vectors else 0
        self._vectors.extend(enumerate(vectors, before), before + len(new), width)
        if nums and nums[-1] >= len(self._places):
            more = np.full(2 * nums[-1] + 1 - len(self._places), -1)
            self._places = np.concatenate([self._places, more])
        self._places[nums] = np.arange(before, before + len(new))
        self._nums += nums

    def near(self, words: Ints, wanted: Sequence[str], embedder: Embedder) -> tuple[Floats, Ints]:
        """How near each of these words is to each of the wanted ones, and which of them have a vector at all."""
        places = np.full(len(words), -1)
        known = words < len(self._places)
        places[known] = self._places[words[known]]
        there = np.flatnonzero(places >= 0)
        once, back = np.unique(places[there], return_inverse=True)
        alike = shares(likeness(self._vectors.at(once), self._vectors_of(wanted, embedder)))
        return alike[:, back], there

    def _vectors_of(self, texts: Sequence[str], embedder: Embedder) -> Vectors:
        missing = [text for text in dict.fromkeys(texts) if text not in self._made]
        if missing:
            self._made |= zip(missing, embedder.embed(missing), strict=True)
        found = np.stack([self._made[text] for text in texts])
        while len(self._made) > REMEMBERED:
            del self._made[next(iter(self._made))]
        return found
