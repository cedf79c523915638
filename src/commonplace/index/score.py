"""How well documents answer, in numbers that are the same on every machine.

A score is the share of what was asked for that a document has, rare words weighing more: BM25 with k1 0.9 and
b 0.4, divided by what a document could reach at most. Logarithms are taken in decimal arithmetic and all else
in single IEEE steps on 64 bits, rounded to whole numbers (below 2⁵³, so exact) before anything is summed up:
neither the processor nor the order of the summands shows.
"""

from __future__ import annotations

import heapq
from decimal import Context
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

K1 = 0.9
B = 0.4
UNIT = 1 << 32
"""What rarities and gains are counted in."""
MILLION = 1_000_000
"""What scores are counted in."""

_exact = Context(prec=24)


@lru_cache(4096)
def rarity(documents: int, having: int) -> int:
    """How much a word tells that so many of the documents have: ln(1 + (n − k + ½) / (k + ½)), in units."""
    odds = _exact.divide(_exact.create_decimal(2 * documents + 2), _exact.create_decimal(2 * having + 1))
    return int(_exact.multiply(_exact.ln(odds), UNIT))


def damping(length: Ints, documents: int, total: int) -> Floats:
    """What holds back frequent words in documents so long: more in one that is longer than so many documents with this
    length in total are."""
    share = K1 * B * documents / total if total else 0.0
    return length.astype(np.float64) * share + K1 * (1 - B)


def gains(rarity: int, counts: Floats, damping: Floats) -> Floats:
    """What having a word so often gives to documents, in whole units: always something, never more than its
    rarity. `damping` is overwritten with it: at this size, memory costs more than arithmetic."""
    damping += counts
    np.divide(counts, damping, out=damping)
    damping *= rarity
    np.rint(damping, out=damping)
    return np.maximum(damping, 1, out=damping)


def summed(docs: Ints, counts: Floats, size: int) -> tuple[Ints, Floats]:
    """Each document once, in order, with the sum of its counts."""
    if len(docs) < size // 16:  # to sort them costs less than to go through all there are
        once, place = np.unique(docs, return_inverse=True)
        return once, np.bincount(place, counts, len(once)).astype(np.float64)
    sums = np.bincount(docs, counts, size).astype(np.float64)  # of nothing it would be integers
    once = np.flatnonzero(sums)
    return once, sums[once]


def scores(gained: Floats, most: int) -> Ints:
    """Units as millionths of the most that there was to gain."""
    return np.rint(gained / most * MILLION).astype(np.int64)


def best(docs: Ints, scores: Ints, ids: list[str], limit: int) -> list[tuple[int, int]]:
    """The documents with the highest scores, and these; those with the same score in the order of their
    ids."""
    limit = min(limit, len(docs))
    if limit <= 0:
        return []
    least = np.partition(scores, len(scores) - limit)[len(scores) - limit]
    above = docs[scores > least].tolist()
    tied = heapq.nsmallest(limit - len(above), docs[scores == least].tolist(), key=ids.__getitem__)
    score = dict(zip(above, scores[scores > least].tolist(), strict=True))
    ranked = sorted(above, key=lambda doc: (-score[doc], ids[doc]))
    return [*((doc, score[doc]) for doc in ranked), *((doc, int(least)) for doc in tied)]
