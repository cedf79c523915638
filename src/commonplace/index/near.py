"""The words that documents have, and which of them are near to a word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .rows import Rows
from .score import Floats, Ints
from .store import WORD_VECTORS, File
from .vectors import SCALE, Embedder, Vectors, likeness, shares

LEAST = 0.5
"""How alike two words must be for one to stand for the other."""
NEAR_WORDS = 40
"""How many other words a word of the query may stand for."""
FEW_WORDS = 1 << 13
"""Up to so many words, all are compared; of more, those whose signs are alike."""
REMEMBERED = 4_096
"""Words whose near ones are remembered, as long as no word comes to the file. They take up to 2 kB each."""


class Near(NamedTuple):
    """The words near to one, by their numbers, the farthest first, and how near they are: above 0, up to 1."""

    words: list[int]
    alike: Floats
    vector: Vectors


class Vocabulary:
    """All words that have a vector, in the order of their numbers."""

    def __init__(self) -> None:
        self._nums: list[int] = []
        self._places = np.zeros(0, np.int64)
        self._vectors = Rows(FEW_WORDS)
        self._near: dict[str, Near] = {}

    @property
    def memory(self) -> int:
        return self._vectors.memory + self._places.nbytes + 40 * len(self._nums) + 2_000 * len(self._near)

    def follow(self, file: File) -> None:
        """Read the words that have come to the file since the last time."""
        before = len(self._nums)
        new = file.rows(WORD_VECTORS, (self._nums[-1] if before else 0,))
        if not new and before:
            return
        self._near = {}
        nums, vectors = [num for num, _ in new], [vector for _, vector in new]
        width = len(vectors[0]) if vectors else 0
        self._vectors.extend(enumerate(vectors, before), before + len(new), width)
        if nums and nums[-1] >= len(self._places):
            more = np.full(2 * nums[-1] + 1 - len(self._places), -1)
            self._places = np.concatenate([self._places, more])
        self._places[nums] = np.arange(before, before + len(new))
        self._nums += nums

    def near(self, texts: Sequence[str], embedder: Embedder) -> list[Near]:
        """What is near to each of these words."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._near]
        if missing:
            made = embedder.embed(missing)
            known = dict(zip(missing, self._look(made), strict=True))
            found = [known.get(text) or self._near[text] for text in texts]
            self._near |= known
        else:
            found = [self._near[text] for text in texts]
        while len(self._near) > REMEMBERED:
            del self._near[next(iter(self._near))]
        return found

    def _look(self, wanted: Vectors) -> list[Near]:
        if self._vectors.few:
            every = self._vectors.likeness(wanted)
            return [
                _near(self._nums, np.arange(len(self._nums)), *one) for one in zip(every, wanted, strict=True)
            ]
        return [self._by_signs(one) for one in wanted]

    def _by_signs(self, wanted: Vectors) -> Near:
        differ = self._vectors.apart(wanted[None])
        # Of words just alike enough a third of the signs differ, give or take three deviations; of others half.
        places = np.flatnonzero(differ <= self._vectors.width / 3 + math.sqrt(2 * self._vectors.width))
        return _near(self._nums, places, likeness(self._vectors.at(places), wanted[None])[0], wanted)

    def best(self, words: Ints, wanted: Sequence[Near]) -> tuple[Floats, Ints]:
        """How near each of these words is to each of the wanted ones, and which of them have a vector at all."""
        places = np.full(len(words), -1)
        known = words < len(self._places)
        places[known] = self._places[words[known]]
        there = np.flatnonzero(places >= 0)
        once, back = np.unique(places[there], return_inverse=True)
        alike = shares(likeness(self._vectors.at(once), np.stack([one.vector for one in wanted])))
        return alike[:, back], there


def _near(nums: list[int], places: Ints, alike: Ints, wanted: Vectors) -> Near:
    some = np.flatnonzero(alike > LEAST * SCALE**2)
    some = some[np.lexsort((some, -alike[some]))][:NEAR_WORDS][::-1]
    words = [nums[place] for place in places[some].tolist()]
    return Near(words, (shares(alike[some]) - LEAST) / (1 - LEAST), wanted)
