"""Hybrid search: several signals of how well a document answers, weighed and added up.

    bm       its words, rare ones weighing more          soft     how near its words are to those of the query
    bm_pc    the same with what was said before it       softx    the same, of words that the query does not have
    bm_s     the same of the whole conversation          cos      what it is about; prev, next, around: its neighbours,
                                                         talk     and what of the conversation is nearest
    pq_bm    it follows a question that has the words    date     it is from about the days that the query names
    when     the query asks for a time, and it tells one spk      it is said by the only speaker that is named
    isq      it is a question itself                     len      how much it says
    phrase   it has what the query puts in quotes

All documents are weighed by what needs no vectors, the best of these and the nearest by vector again by all. Signals
are computed in single steps on 64 bits, and what each gives is rounded to whole numbers before anything is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Context
from functools import cache
from typing import NamedTuple

import numpy as np

from .columns import Columns
from .hints import ASKS, TELLS_TIME, asks_when, dates, nearness
from .score import K1, UNIT, B, Floats, Ints, Mask, rarity, scores
from .vectors import SCALE
from .words import folded, lowered

FIRST = {
    "bm": 2.097, "bm_pc": 4.109, "bm_s": 7.449, "softx": 9.706, "date": 4.945, "spk": 1.404, "when": 2.096,
    "isq": -0.555, "len": 0.812, "pq_bm": 1.764, "phrase": 4.0,
}  # fmt: skip
"""What each signal weighs where there are no vectors, and when candidates are chosen."""
SECOND = {
    "cos": 2.273, "prev": 1.493, "next": 1.645, "around": 1.823, "talk": 4.889, "bm_pc": 2.193, "bm_s": 7.474,
    "softx": 3.399, "soft": 3.400, "date": 4.273, "spk": 1.209, "when": 2.353, "isq": -0.513, "len": 0.872,
    "pq_bm": 1.803, "phrase": 4.0,
}  # fmt: skip
"""What each weighs among the candidates."""
LEAST_ABOUT = 0.25
"""How alike a document must be that has none of the words, unless it is part of a conversation: of a hundred pairs of
notes on different things one is."""
BY_WORDS, BY_VECTOR = 100, 50
"""How many candidates there are."""
LEAST = 0.5
"""How alike two words must be for one to stand for the other."""
NEAR_WORDS = 40
"""How many other words a word of the query may stand for."""
FULL = 20.0
"""The sum that is shown as a score of 1."""
K1_SESSION, B_SESSION = 1.2, 0.75
LONGEST_LENGTH = 1_000

_exact = Context(prec=24)


class Word(NamedTuple):
    """A word of the query: where it is found and how often, what it tells in units, and its stem."""

    docs: Ints
    counts: Floats
    rarity: int
    stem: str
    text: str


class Signals:
    """The signals of one query over the documents that its reader may see."""

    def __init__(self, columns: Columns, visible: Mask, words: list[Word], query: str) -> None:
        self._columns, self._visible, self._words, self._query = columns, visible, words, query
        self._most = sum(one.rarity for one in words) or 1
        order = columns.conversations()
        self._order = order[visible[order]]
        self._before, self._after = self._neighbours()
        self._length = columns.length.astype(np.float64)
        self._average = _mean(self._length[visible])
        self._counts = np.zeros(columns.size)

    def _neighbours(self) -> tuple[Ints, Ints]:
        """What comes before and after each document in its conversation, as far as the reader may see; −1: nothing."""
        before, after = np.full(self._columns.size, -1), np.full(self._columns.size, -1)
        order, session = self._order, self._columns.session[self._order]
        same = session[1:] == session[:-1]
        before[order[1:][same]] = order[:-1][same]
        after[order[:-1][same]] = order[1:][same]
        return before, after

    def first(self) -> dict[str, Floats]:
        """The signals that need no vectors of documents, for all of them; without `softx`."""
        size = self._columns.size
        own, joined, session = np.zeros(size), np.zeros(size), np.zeros(size)
        long = self._length + np.where(self._before >= 0, self._length[self._before], 0.0)
        usual = _mean(long[self._visible])
        talks = self._talks()
        for word in self._words:
            docs = word.docs[self._visible[word.docs]]
            self._counts[word.docs] = word.counts
            own[docs] += _gain(word.rarity, self._counts[docs], self._length[docs], self._average, K1, B)
            if talks is not None:
                reached = np.union1d(docs, self._after[docs])
                reached = reached[reached >= 0]
                before = self._before[reached]
                both = self._counts[reached] + np.where(before >= 0, self._counts[before], 0.0)
                joined[reached] += _gain(word.rarity, both, long[reached], usual, K1, B)
                session += self._of_session(docs, self._counts[docs], talks)
            self._counts[word.docs] = 0
        alone = self._columns.session == 0  # then it is its own conversation
        joined, session = (np.where(alone, own, one) for one in (joined, session))
        flags, asked = self._columns.flags, asks_when(self._query)
        asks = (flags & ASKS > 0).astype(np.float64)
        follows = np.where(self._before >= 0, asks[self._before] * own[self._before], 0.0)
        return {
            "bm": own / self._most,
            "bm_pc": joined / self._most,
            "bm_s": session / self._most,
            "pq_bm": follows / self._most,
            "date": nearness(dates(self._query), self._columns.time_us),
            "when": (flags & (TELLS_TIME if asked else 0) > 0).astype(np.float64),
            "isq": asks,
            "len": _logarithms()[np.minimum(self._columns.length, LONGEST_LENGTH)],
            "spk": self._speaker(),
        }

    def _talks(self) -> tuple[Ints, Floats, float, int] | None:
        """Each document's conversation, how long those are, how long usually, and how many there are."""
        parts = self._columns.session * self._visible
        if not parts.any():
            return None
        length = np.bincount(parts, self._length).astype(np.float64)
        length[0] = 0
        there = int(np.count_nonzero(np.bincount(parts)[1:]))
        return parts, length, float(length.sum()) / there, there

    def _of_session(self, docs: Ints, counts: Floats, talks: tuple[Ints, Floats, float, int]) -> Floats:
        parts, length, usual, there = talks
        often = np.bincount(parts[docs], counts, len(length)).astype(np.float64)
        often[0] = 0
        rare = rarity(there, int(np.count_nonzero(often)))
        gained = np.zeros(len(length))
        has = np.flatnonzero(often)
        gained[has] = _gain(rare, often[has], length[has], usual, K1_SESSION, B_SESSION)
        return gained[parts]

    def _speaker(self) -> Floats:
        """Who is named, if it is one of those who speak, and only one."""
        columns, words = self._columns, names(self._query)
        named = [one for one in speakers(columns, self._visible) if names(one) and names(one) <= words]
        if len(named) != 1:
            return np.zeros(columns.size)
        theirs = np.array([*(who.author == named[0] for who, _ in columns.classes), False])[columns.kind]
        return np.where(columns.session > 0, np.where(theirs, 1.0, -1.0), 0.0)

    def softly(self, near: Callable[[Word], Iterable[tuple[Ints, float]]]) -> Floats:
        """What words that are near to those of the query give, where these themselves are missing."""
        total = np.zeros(self._columns.size)
        for word in self._words:
            best = np.zeros(self._columns.size)
            for docs, alike in near(word):
                best[docs] = np.maximum(best[docs], alike)
            best[word.docs] = 0
            total += np.rint(best * word.rarity)
        shorter = np.sqrt(0.25 + 0.75 * self._length / (self._average or 1.0))
        return np.where(self._visible, total / self._most / shorter, 0.0)

    def soft(self, nearest: Floats) -> Floats:
        """How near the words of documents are to each word of the query, as one number a document."""
        weight = np.array([[one.rarity] for one in self._words], np.float64)
        gained: Floats = np.rint(weight * nearest).sum(axis=0) if self._words else np.zeros(nearest.shape[1])
        return gained / self._most

    def about(self, likeness: Ints, docs: Ints) -> dict[str, Floats]:
        """What documents are about, and their neighbours in the conversation beside what is usual."""
        middle = int(likeness[self._visible].sum()) // max(1, int(np.count_nonzero(self._visible)))

        def beside(neighbour: Ints) -> Floats:
            there = neighbour >= 0
            return np.where(there, (likeness[neighbour] - middle) / SCALE**2, 0.0)

        before, after = self._before[docs], self._after[docs]
        return {
            "cos": likeness[docs] / SCALE**2,
            "prev": beside(before),
            "next": beside(after),
            "around": beside(self._step(self._before, before)) + beside(self._step(self._after, after)),
            "talk": self._nearest_in_talk(likeness)[docs] / SCALE**2,
        }

    @staticmethod
    def _step(which: Ints, docs: Ints) -> Ints:
        return np.where(docs >= 0, which[docs], -1)

    def _nearest_in_talk(self, likeness: Ints) -> Ints:
        """For each document, what of its conversation is nearest; of one that is part of none, itself."""
        best, order = likeness.copy(), self._order
        if len(order):
            starts = np.flatnonzero(np.diff(self._columns.session[order], prepend=-1))
            sizes = np.diff([*starts.tolist(), len(order)])
            best[order] = np.repeat(np.maximum.reduceat(likeness[order], starts), sizes)
        return best


def speakers(columns: Columns, visible: Mask) -> list[str]:
    """Who says something in conversations."""
    speaking = np.unique(columns.kind[visible & (columns.session > 0)]).tolist()
    return sorted({columns.classes[kind][0].author for kind in speaking})


def names(text: str) -> set[str]:
    """The words of a text as names are compared."""
    return {
        word.removesuffix("'s") for word in folded(lowered(text)).replace("’", "'").translate(_PLAIN).split()
    }


def weighed(signals: Mapping[str, Floats], weights: Mapping[str, float], size: int) -> Ints:
    """All signals added up, in units."""
    total = np.zeros(size, np.int64)
    for name, weight in weights.items():
        if name in signals:
            total += np.rint(signals[name] * weight * (UNIT >> 8)).astype(np.int64)
    return total


def as_scores(sums: Ints) -> Ints:
    """Sums as millionths, from 0 to 1."""
    return np.clip(scores(sums.astype(np.float64), int(FULL * (UNIT >> 8))), 1, 1_000_000)


def _gain(rarity: int, counts: Floats, length: Floats, usual: float, k1: float, b: float) -> Floats:
    share = length / (usual or 1.0)
    return np.rint(rarity * ((k1 + 1) * counts / (counts + k1 * (1 - b + b * share))))


def _mean(values: Floats) -> float:
    return float(values.sum()) / len(values) if len(values) else 0.0


@cache
def _logarithms() -> Floats:
    """ln(1 + n) for every length that counts, the same on every machine."""
    return np.array([float(_exact.ln(_exact.create_decimal(n + 1))) for n in range(LONGEST_LENGTH + 1)])


_PLAIN = {ord(mark): " " for mark in '?!.,;:()[]"'}
