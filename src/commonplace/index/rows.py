"""Vectors held in memory: exact where there are few, and found by their signs first where there are many."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import apsw
import numpy as np
from numpy.typing import NDArray

from .score import Ints, Mask
from .vectors import Bits, Vectors, apart, likeness, signs

BLOCK = 1 << 15
"""How many vectors are kept together: what is added is put behind the last, and nothing is moved for it."""

Differ = NDArray[np.uint16]


class Rows:
    """Vectors by their numbers; zeros where a number has none. One byte for each of their parts, and a bit beside it
    once there are more than `few`."""

    def __init__(self, few: int) -> None:
        self.size = 0
        self._few = few
        self.width = 0
        self._blocks: list[Vectors] = []
        self._signs: list[Bits] = []
        self._signed = 0

    @property
    def few(self) -> bool:
        """Whether all are compared each time."""
        return self.size <= self._few

    @property
    def memory(self) -> int:
        return self.size * self.width + self._signed * -(-self.width // 8)

    def extend(self, found: Iterable[tuple[int, bytes]], size: int, width: int) -> None:
        """Put vectors at their numbers, which grow and are not below the size that there was."""
        if self.width not in (0, width):
            raise apsw.CorruptError("vectors are of different lengths")
        self.width = width
        while len(self._blocks) * BLOCK < size:
            self._blocks.append(np.zeros((BLOCK, width), np.int8))
        rows = iter(found)
        while page := list(islice(rows, BLOCK)):
            nums = np.array([num for num, _ in page], np.int64)
            joined = b"".join([vector for _, vector in page])
            if len(joined) != len(page) * width or nums[-1] >= size:
                raise apsw.CorruptError(
                    "vectors are of different lengths, or of documents that there are not"
                )
            vectors = np.frombuffer(joined, np.int8).reshape(-1, width)
            for block in np.unique(nums // BLOCK).tolist():
                here = nums // BLOCK == block
                self._blocks[block][nums[here] % BLOCK] = vectors[here]
        self.size = size

    def at(self, nums: Ints) -> Vectors:
        """The vectors at these numbers."""
        if self.size <= BLOCK:
            return self._blocks[0][nums] if self.size else np.zeros((0, self.width), np.int8)
        found = np.empty((len(nums), self.width), np.int8)
        blocks = nums // BLOCK
        for block in np.unique(blocks).tolist():
            here = blocks == block
            found[here] = self._blocks[block][nums[here] % BLOCK]
        return found

    def likeness(self, wanted: Vectors) -> Ints:
        """How alike all are to each of the wanted ones."""
        parts = [
            likeness(block[: self.size - at * BLOCK], wanted)
            for at, block in enumerate(self._blocks)
            if at * BLOCK < self.size
        ]
        return np.concatenate([np.zeros((len(wanted), 0), np.int64), *parts], axis=1)

    def apart(self, wanted: Vectors) -> Differ:
        """In how many signs each differs from the wanted one."""
        self._sign()
        bits = signs(wanted)
        parts = [apart(block[:, : self.size - at * BLOCK], bits) for at, block in enumerate(self._signs)]
        return np.concatenate(parts)

    def _sign(self) -> None:
        """Note the signs of what has come since the last time."""
        while self._signed < self.size:
            at, within = divmod(self._signed, BLOCK)
            upto = min(BLOCK, self.size - at * BLOCK)
            if at == len(self._signs):
                self._signs.append(np.zeros((-(-self.width // 64), BLOCK), np.uint64))
            self._signs[at][:, within:upto] = signs(self._blocks[at][within:upto])
            self._signed = at * BLOCK + upto


def nearest(differ: Differ, count: int, among: Mask) -> Ints:
    """At least so many of those that differ least, in the order of their numbers."""
    farthest = int(differ.max(initial=0)) + 1
    there = np.where(among, differ, np.uint16(farthest))
    upto = np.cumsum(np.bincount(there, minlength=farthest)[:farthest])
    return np.flatnonzero(there <= min(int(np.searchsorted(upto, count)), farthest - 1))
