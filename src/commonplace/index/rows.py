"""Vectors held in memory: exact where there are few, and found by their signs first where there are many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import apsw
import numpy as np
from numpy.typing import NDArray

from ..ledger.reader import pages
from .score import Ints, Mask
from .vectors import Bits, Vectors, apart, likeness, signs

AT_ONCE = 1 << 15
"""How many vectors are read, or compared by their signs, at once."""

Differ = NDArray[np.uint16]
T = TypeVar("T", np.int8, np.uint64)


class IndexRows:
    """Vectors by their numbers; zeros where a number has none. One byte for each of their parts, and a bit beside it
    once there are more than `few`. What is added is put behind the last; when the room for it is used up, there is half
    as much again."""

    def __init__(self, few: int = 0) -> None:
        self.size = self.width = 0
        self._few = few
        self._vectors: Vectors = np.zeros((0, 0), np.int8)
        self._signs: Bits = np.zeros((0, 0), np.uint64)
        self._signed = 0

    @property
    def few(self) -> bool:
        """Whether all are compared each time."""
        return self.size <= self._few

    @property
    def memory(self) -> int:
        return self.size * self.width + self._signed * 8 * len(self._signs)

    def extend(self, found: Iterable[tuple[int, bytes]], size: int, width: int) -> None:
        """Put vectors at their numbers, which are not below the size that there was."""
        if self.width not in (0, width):
            raise apsw.CorruptError("vectors are of different lengths")
        self.width = width
        if size > len(self._vectors) or not self._vectors.shape[1]:
            self._vectors = _grown(self._vectors, (size + size // 2, width))
        for page in pages(found, AT_ONCE):
            nums, joined = [num for num, _ in page], b"".join([vector for _, vector in page])
            if len(joined) != len(page) * width or max(nums) >= size:
                raise apsw.CorruptError("vectors are of different lengths, or of what there is not")
            self._vectors[nums] = np.frombuffer(joined, np.int8).reshape(-1, width)
        self.size = size

    def at(self, nums: Ints) -> Vectors:
        """The vectors at these numbers."""
        return self._vectors[nums]

    def likeness(self, wanted: Vectors) -> Ints:
        """How alike all are to each of the wanted ones."""
        return likeness(self._vectors[: self.size], wanted)

    def apart(self, wanted: Vectors) -> Differ:
        """In how many signs each differs from the wanted one."""
        self._sign()
        bits, differ = signs(wanted), np.empty(self.size, np.uint16)
        for at in range(0, self.size, AT_ONCE):
            differ[at : at + AT_ONCE] = apart(self._signs[:, at : min(at + AT_ONCE, self.size)], bits)
        return differ

    def _sign(self) -> None:
        """Note the signs of what has come since the last time."""
        room = (-(-self.width // 64), len(self._vectors))
        if self._signs.shape != room:
            self._signs = _grown(self._signs, room)
        for at in range(self._signed, self.size, AT_ONCE):
            end = min(at + AT_ONCE, self.size)
            self._signs[:, at:end] = signs(self._vectors[at:end])
            self._signed = end


def _grown(rows: NDArray[T], shape: tuple[int, int]) -> NDArray[T]:
    more = np.zeros(shape, rows.dtype)
    more[: rows.shape[0], : rows.shape[1]] = rows
    return more


def nearest(differ: Differ, count: int, among: Mask) -> Ints:
    """At least so many of those that differ least, in the order of their numbers."""
    farthest = int(differ.max(initial=0)) + 1
    there = np.where(among, differ, np.uint16(farthest))
    upto = np.cumsum(np.bincount(there, minlength=farthest)[:farthest])
    return np.flatnonzero(there <= min(int(np.searchsorted(upto, count)), farthest - 1))
