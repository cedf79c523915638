"""Hybrid search: several signals of how well a document answers, weighed and added up.

Of any document:
    bm_s     its words (of a turn: those of the whole conversation), rare ones weighing more
    soft     how near its words are to those of the query
    cos      what it is about                            parts    how well its parts match those of the query
    date     it is from about the days that are named    when     the query asks for a time, and it tells one
    phrase   it has what the query puts in quotes

Of notes and facts, which stand alone:
    nearest  its place among them by what they are about, as far as it lacks the words
    kept     it was kept, not only said (where there are no vectors)

Of turns in a conversation:
    around   what its neighbours are about               talk     how much nearer the nearest of its conversation is
    bm_pc    its words with those of the turn before     soft_pc  how much nearer with the words of the two turns before
    pq_bm    it follows a question that has the words    parts_pc, parts_pq  the same of its parts
    spk      it is said by the only speaker named        isq      it is a question itself

All documents are weighed by what needs no vectors, the best of these and the nearest by vector again by all. Signals
are computed in single steps on 64 bits, and what each gives is rounded to whole numbers before anything is summed up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .hints import ASKS, TELLS_TIME, asks_when, dates, nearness
from .rows import IndexRows, nearest
from .score import K1, UNIT, B, Floats, Ints, Mask, rarity, scores
from .store import File
from .vectors import SCALE, TOKEN_SCALE, Tokens, Vectors, likeness
from .view import IndexView, Talks
from .words import folded, has_letter, lowered, names, stem

FIRST = {
    "bm_pc": 6.206, "bm_s": 7.449, "date": 4.945, "spk": 1.404, "when": 2.096, "isq": -0.93, "pq_bm": 2.31,
    "phrase": 4.0, "kept": 1.0,
}  # fmt: skip
"""What each signal weighs where there are no vectors, and when candidates are chosen."""
SECOND = {
    "cos": 6.23, "nearest": 2.85, "around": 1.2, "talk": 4.23, "bm_s": 5.71, "soft": 6.81, "soft_pc": 4.48,
    "date": 4.74, "spk": 1.48, "when": 2.4, "isq": -1.15, "pq_bm": 1.59, "phrase": 3.6,
}  # fmt: skip
"""What each weighs among the candidates."""
BY_PARTS = {
    "parts": 7.96, "parts_pc": 6.24, "parts_pq": 2.31, "cos": 4.69, "nearest": 1.92, "around": 0.86, "talk": 3.66,
    "bm_s": 4.03, "soft": 2.03, "date": 3.76, "spk": 1.15, "when": 1.85, "isq": -0.94, "phrase": 3.33,
}  # fmt: skip
"""What each weighs among them where texts have vectors of their parts."""
HALF_AT = 10.0
"""The place at which a note counts half as much for being near as at the first."""
NOD = 2
"""How many words a turn has at most that only nods: it answers nothing, whatever it replies to."""
BY_WORDS, BY_VECTOR = 100, 100
"""How many candidates there are."""
BY_SIGNS = 2_000
"""Among how many documents the nearest are sought, where signs are compared first; at least one in 256 of all."""
SAMPLE = 4_096
"""How many of very many documents stand for all."""
FULL, FULL_BY_PARTS = 19.0, 22.0
"""The sum that is shown as a score of 1; more is no higher a score, but still comes first."""
OF_OTHERS = frozenset({"around", "talk", "bm_s", "bm_pc", "soft_pc", "pq_bm", "parts_pc", "parts_pq"})
"""Signals that a turn has by what was said around it."""
MOST_OF_OTHERS = 0.53
K1_SESSION, B_SESSION = 1.2, 0.75

N = TypeVar("N", np.int64, np.float64)


class Word(NamedTuple):
    """A word of the query: where it is found how often, and what it tells in units."""

    docs: Ints
    counts: Floats
    rarity: int
    text: str


class Signals:
    """The signals of one query over the documents that its reader may see, for those of them that are asked for."""

    def __init__(self, view: IndexView, words: list[Word], query: str) -> None:
        self._view, self._columns, self.words, self._query = view, view.columns, words, query
        self._most = sum(word.rarity for word in words) or 1
        size = self._columns.size
        self._own = np.zeros(size)
        self._joined = self._of_talk = np.zeros(0)
        self._quoted = np.zeros(0)
        self._dates, self._asks_when = dates(query), asks_when(query)
        for word in words:
            docs = word.docs[view.visible[word.docs]]
            counts = word.counts[view.visible[word.docs]]
            length = self._columns.length[docs].astype(np.float64)
            self._own[docs] += _gain(word.rarity, counts, length, view.average, K1, B)
        if view.talks is not None:
            self._in_talks(view.talks)

    def _in_talks(self, talks: Talks) -> None:
        """What the words give together with what was said before, and in the conversation as a whole. What is part
        of none counts as one of its own, so that a word is as rare among conversations as it is among notes."""
        length, session = self._columns.length, self._columns.session
        self._joined, self._of_talk = np.zeros(self._columns.size), np.zeros(len(talks.lengths))
        counts, reached = np.zeros(self._columns.size), np.zeros(self._columns.size, np.bool_)
        there = talks.there + self._view.documents - len(talks.order)
        for word in self.words:
            visible = word.docs[self._view.visible[word.docs]]
            docs = visible[session[visible] > 0]
            counts[word.docs] = word.counts
            after = talks.after[docs]
            reached[docs] = reached[after[after >= 0]] = True
            turns = np.flatnonzero(reached)
            before = talks.before[turns]
            both = counts[turns] + np.where(before >= 0, counts[before], 0.0)
            long = (length[turns] + np.where(before >= 0, length[before], 0)).astype(np.float64)
            self._joined[turns] += _gain(word.rarity, both, long, self._view.usual, K1, B)
            in_talk = np.bincount(session[docs], counts[docs], len(talks.lengths)).astype(np.float64)
            has = np.flatnonzero(in_talk)
            # A word tells no more of a conversation than of a turn, however often the same one repeats it.
            rare = min(word.rarity, rarity(there, len(has) + len(visible) - len(docs)))
            self._of_talk[has] += _gain(
                rare, in_talk[has], talks.lengths[has], talks.usual, K1_SESSION, B_SESSION
            )
            counts[word.docs] = 0
            reached[turns] = False

    def quoted(self, docs: Ints, phrases: Iterable[Mask]) -> None:
        """Take in which of the documents have each phrase that the query puts in quotes."""
        each = [has.astype(np.float64) for has in phrases]
        self._quoted = np.zeros(self._columns.size)
        for has in each:
            self._quoted[docs] += has / len(each)

    def fits(self) -> Mask:
        """The documents that have a word, or are part of a conversation that has it. Those that the reader may not see
        are not all left out."""
        fits: Mask = self._own > 0
        if self._view.talks is not None:
            fits |= self._joined > 0
            order = self._view.talks.order
            fits[order] |= (self._of_talk > 0)[self._columns.session[order]]
        return fits

    def first(self, docs: Ints) -> dict[str, Floats]:
        """The signals that need no vectors of documents; those that are 0 for all of them are left out."""
        columns, most = self._columns, self._most
        flags = columns.flags[docs]
        own = self._own[docs] / most
        values = {"bm_pc": own, "bm_s": own}
        if len(self._quoted):
            values["phrase"] = self._quoted[docs]
        if self._dates:
            values["date"] = nearness(self._dates, columns.time_us[docs])
        if self._asks_when:
            values["when"] = (flags & TELLS_TIME > 0).astype(np.float64)
        return values if self._view.talks is None else values | self._around(docs, own, self._view.talks)

    def _around(self, docs: Ints, own: Floats, talks: Talks) -> dict[str, Floats]:
        """The signals that conversations have. A document that is part of none is its own."""
        session, before = self._columns.session[docs], talks.before[docs]
        alone = (session == 0) | self._nods(docs, talks)
        asked = self._columns.flags[before] & ASKS > 0
        told = {
            "kept": (session == 0).astype(np.float64),
            "bm_pc": np.where(alone, own, self._joined[docs] / self._most),
            "bm_s": np.where(alone, own, self._of_talk[session] / self._most),
            "isq": ((session > 0) & (self._columns.flags[docs] & ASKS > 0)).astype(np.float64),
            "pq_bm": np.where((before >= 0) & asked, self._own[before], 0.0) / self._most,
        }
        named = [name for name in self._view.speakers if names(name) and names(name) <= names(self._query)]
        if len(named) == 1:
            theirs = self._columns.spoken_by(named, docs)
            told["spk"] = np.where(session == 0, 0.0, np.where(theirs, 1.0, -1.0))
        return told

    def soft(self, near: Callable[[Ints], Floats], docs: Ints) -> dict[str, Floats]:
        """How near the words of documents are to those of the query: of each document alone, and how much more
        together with the two turns before it. `near` tells it for each word and document."""
        talks = self._view.talks
        if talks is None or not len(docs):
            return {"soft": self._by_rarity(near(docs))}
        before, earlier = self._said_before(docs, talks)
        every = _there(docs, before, earlier)
        found = near(every)
        own, said_before, said_earlier = (
            _columns_of(found, every, which) for which in (docs, before, earlier)
        )
        alone = self._by_rarity(own)
        joined = self._by_rarity(np.maximum(np.maximum(own, said_before), said_earlier))
        return {"soft": alone, "soft_pc": joined - alone}

    def _said_before(self, docs: Ints, talks: Talks) -> tuple[Ints, Ints]:
        """The turn before each document and the one before that; −1 where there is none, or where the document only
        nods: then it says nothing about what was said before it."""
        before = np.where(self._nods(docs, talks), -1, _step(talks.before, docs))
        return before, _step(talks.before, before)

    def _nods(self, docs: Ints, talks: Talks) -> Mask:
        """Turns such as "Noted!": a word or two in reply to what was no question."""
        before = talks.before[docs]
        answers = (before >= 0) & (self._columns.flags[before] & ASKS > 0)
        short = self._columns.length[docs] <= NOD
        return (self._columns.session[docs] > 0) & short & ~answers

    def _by_rarity(self, nearest: Floats) -> Floats:
        """One number a document of what there is for each word, rare words weighing more."""
        weight = np.array([[word.rarity] for word in self.words], np.float64)
        gained: Floats = np.rint(weight * nearest).sum(axis=0) if self.words else np.zeros(nearest.shape[1])
        return gained / self._most

    def parts(self, matching: Matching, docs: Ints) -> dict[str, Floats]:
        """How well the parts of documents match those of the query, each of these by the best that there is: in the
        document, with the two that come before it, and in the question that it follows."""
        talks = self._view.talks
        if talks is None or not len(docs):
            return {"parts": matching.weighed(matching.of(docs))}
        before, earlier = self._said_before(docs, talks)
        every = _there(docs, before, earlier)
        matches = matching.of(every)
        usual = matching.weighed(matches.sum(axis=1, keepdims=True) // len(every))
        own, said_before, said_earlier = (
            _columns_of(matches, every, which) for which in (docs, before, earlier)
        )
        alone = matching.weighed(own)
        asked = (before >= 0) & (self._columns.flags[before] & ASKS > 0)
        return {
            "parts": alone,
            "parts_pc": matching.weighed(np.maximum(np.maximum(own, said_before), said_earlier)) - alone,
            "parts_pq": np.where(asked, matching.weighed(said_before) - usual, 0.0),
        }

    def about(self, alike: Alike, docs: Ints) -> dict[str, Floats]:
        """What documents are about, and their neighbours in the conversation beside what is usual."""
        own, talks = alike.of(docs), self._view.talks
        told = {"cos": own / SCALE**2, "nearest": self._nearest_notes(docs, own)}
        if talks is None:
            return told
        middle = alike.middle(self._view)

        def beside(neighbour: Ints) -> Ints:
            return np.where(neighbour >= 0, alike.of(np.maximum(neighbour, 0)) - middle, 0)

        before, after = _step(talks.before, docs), _step(talks.after, docs)
        around = beside(before) + beside(after)
        around += beside(_step(talks.before, before)) + beside(_step(talks.after, after))
        in_talk = self._nearest_in_talk(alike, docs, own, talks) - own
        says = ~self._nods(docs, talks)
        return told | {"around": around * says / SCALE**2, "talk": in_talk * says / SCALE**2}

    def _nearest_notes(self, docs: Ints, alike: Ints) -> Floats:
        """1 for the note that is nearest to the query, less for each that is nearer than another, and less for what has
        words of the query: those tell by themselves. Notes that are as near share a place."""
        told = np.zeros(len(docs))
        notes = np.flatnonzero((self._columns.session[docs] == 0) & (alike > 0))
        order = np.sort(-alike[notes])
        place = np.searchsorted(order, -alike[notes])
        lack = 1.0 - np.minimum(self._own[docs[notes]] / self._most, 1.0)
        told[notes] = HALF_AT / (HALF_AT + place) * lack
        return told

    def _nearest_in_talk(self, alike: Alike, docs: Ints, own: Ints, talks: Talks) -> Ints:
        """For each document, what of its conversation is nearest; of one that is part of none, itself."""
        best = np.zeros(len(talks.lengths), np.int64)
        sessions = np.unique(self._columns.session[docs])
        members = alike.some(talks.members(sessions[sessions > 0]))
        if not len(members):
            return own
        of = self._columns.session[members]
        starts = np.flatnonzero(np.diff(of, prepend=-1))
        best[of[starts]] = np.maximum.reduceat(alike.of(members), starts)
        there = np.isin(self._columns.session[docs], of)
        return np.where(there, best[self._columns.session[docs]], own)


def _there(*parts: Ints) -> Ints:
    """All documents of these parts, each once and in order, without those that are −1."""
    every = np.unique(np.concatenate(parts))
    return every[every >= 0]


def _columns_of(rows: NDArray[N], every: Ints, which: Ints) -> NDArray[N]:
    """Of rows with a column for every document, the columns of some of them; zeros for those that are −1."""
    found: NDArray[N] = rows[:, np.searchsorted(every, np.maximum(which, every[0]))]
    return found * (which >= 0)


def _step(which: NDArray[np.int32], start: Ints) -> Ints:
    """What comes before documents, or after; −1 where there is nothing, or was nothing to begin with."""
    return np.where(start >= 0, which[start], -1).astype(np.int64)


class Alike:
    """How alike documents are to what is wanted: of few all are compared at once, of many those that are asked for."""

    def __init__(self, rows: IndexRows, wanted: Vectors) -> None:
        self._rows, self._wanted = rows, wanted
        self._all = rows.likeness(wanted)[0] if rows.few else np.zeros(0, np.int64)
        self._apart = None if rows.few else rows.apart(wanted)

    def of(self, docs: Ints) -> Ints:
        found: Ints = (
            self._all[docs] if self._apart is None else likeness(self._rows.at(docs), self._wanted)[0]
        )
        return found

    def middle(self, view: IndexView) -> int:
        """How alike the documents are usually that the reader may see; of many, some of them are looked at."""
        docs = np.flatnonzero(view.visible)
        if self._apart is not None:
            docs = docs[:: -(-len(docs) // SAMPLE)]
        return int(self.of(docs).sum()) // max(1, len(docs))

    def nearest(self, kept: Mask, count: int) -> Ints:
        """Those of the kept documents among which the so many nearest are; of many, very likely."""
        if self._apart is None:
            return np.flatnonzero(kept)
        return nearest(self._apart, max(BY_SIGNS, 2 * count, len(kept) >> 8), kept)

    def some(self, docs: Ints) -> Ints:
        """These documents; of very many, those that are likely to be the nearest."""
        if self._apart is None or len(docs) <= SAMPLE:
            return docs
        differ = self._apart[docs]
        few: Ints = docs[differ <= np.partition(differ, SAMPLE)[SAMPLE]]
        return few

    def count(self, kept: Mask) -> int:
        """How many of the kept documents are alike at all; of many, about how many."""
        alike = self._all > 0 if self._apart is None else self._apart < self._rows.width // 2
        return int(np.count_nonzero(kept & alike))


class Matching:
    """How well documents match each part of a query: the best that one of their own parts does."""

    def __init__(self, file: File, wanted: Tokens, weights: Ints) -> None:
        self._file, self._wanted, self._weights = file, wanted.vectors, weights
        self._most = TOKEN_SCALE**2 * (int(weights.sum()) or 1)

    def of(self, docs: Ints) -> Ints:
        """One row for each part of the query, one column for each document; zeros where it has no parts."""
        best = np.zeros((len(self._wanted), len(docs)), np.int64)
        vectors, sizes = self._file.tokens(docs.tolist(), self._wanted.shape[1])
        some = np.flatnonzero(sizes)
        if len(some):
            starts = np.cumsum([0, *sizes])[some]
            best[:, some] = np.maximum.reduceat(likeness(vectors, self._wanted), starts, axis=1)
        return best

    def weighed(self, matches: Ints) -> Floats:
        """One number a document, 1 for the very same."""
        told: Floats = (self._weights[:, None] * matches).sum(axis=0) / self._most
        return told


def weights_of(wanted: Tokens, query: str, words: Iterable[Word]) -> Ints:
    """What each part of a query weighs: as much as its word tells among what the reader may see. Words that tell
    nothing (the usual ones, and who speaks) weigh a little, marks nothing."""
    told = {stem(one.text): one.rarity for one in words}
    texts = [query[start:end] for start, end in wanted.words]
    return np.array(
        [told.get(stem(folded(lowered(one))), UNIT >> 1) if has_letter(one) else 0 for one in texts], np.int64
    )


def unnamed(query: str, speakers: Set[str]) -> str:
    """A query without the words that name speakers; the whole query where nothing else is left."""
    kept = [word for word in query.split() if not names(word) <= speakers or not names(word)]
    return " ".join(kept) if any(map(has_letter, kept)) else query


def weighed(
    signals: Mapping[str, Floats],
    weights: Mapping[str, float],
    size: int,
    turns: Mask | None = None,
    full: float = 0.0,
) -> Ints:
    """All signals added up, in units. What is said around `turns` counts up to a share of what is shown as 1: a short
    conversation would make an answer of every turn."""
    own, around = np.zeros(size), np.zeros(size)  # of whole numbers far below 2⁵³
    for name, weight in weights.items():
        if name in signals:
            gave = signals[name] * weight
            gave *= UNIT >> 8
            total = around if name in OF_OTHERS else own
            total += np.rint(gave, out=gave)
    if turns is not None:
        most = np.rint(MOST_OF_OTHERS * full * (UNIT >> 8))
        around[turns] = np.minimum(around[turns], most)
    return (own + around).astype(np.int64)


def shown_scores(sums: Ints, full: float) -> list[int]:
    """What is shown of sums in the order of their documents, in millionths. Being the nearest of all moves a note up,
    and is no part of them: something is always the nearest. So no score is above the one before it."""
    falling = np.minimum.accumulate(sums).astype(np.float64)
    found = np.clip(scores(falling, int(full * (UNIT >> 8))), 1, 1_000_000)
    return [int(one) for one in found]


def _gain(rarity: int, counts: Floats, length: Floats, usual: float, k1: float, b: float) -> Floats:
    share = length / (usual or 1.0)
    return np.rint(rarity * ((k1 + 1) * counts / (counts + k1 * (1 - b + b * share))))
