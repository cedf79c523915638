"""The index as its users see it: changes go in, answers come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from ..errors import NotEnabled, StorageFailed
from .columns import Columns
from .fusion import (
    BY_VECTOR,
    BY_WORDS,
    FIRST,
    LEAST,
    LEAST_ABOUT,
    NEAR_WORDS,
    SECOND,
    Signals,
    Word,
    as_scores,
    names,
    speakers,
    weighed,
)
from .query import MAX_QUERY, Asked, Term, flat, parse
from .score import MILLION, Floats, Ints, Mask, best, damping, gains, rarity, scores, summed
from .store import Change, Damaged, File, Who
from .vectors import SCALE, Embedder, likeness
from .words import folded, snippet, stem

TEXT = "SELECT text FROM texts WHERE num = ?"
SHOWN = "SELECT text, source, run FROM texts WHERE num = ?"

How = Literal["keyword", "semantic", "hybrid"]
T = TypeVar("T")


class Hit(msgspec.Struct, frozen=True):
    """A document that answers. `score` says which share of the query it has, from 0 to 1; `matched` names for
    each word of the query that it has the forms found in it and what this gave to the score. `position` is
    where this version of it began."""

    id: str
    score: float
    text: str
    tier: str
    source: str
    time_us: int
    author: str
    kind: str
    run: str
    position: int
    matched: tuple[tuple[str, str, float], ...]
    snippet: str
    signals: tuple[tuple[str, float], ...] = ()
    """What each signal of a hybrid search gave."""


class Found(msgspec.Struct, frozen=True):
    """The best hits and how many there are in `total`. `corrected` says which words were taken for typing
    errors, and for which; `cut` that the query was longer than a query may be; `as_of` the position that the
    answer holds for: when it is lower than expected, the index has to be caught up."""

    hits: list[Hit]
    total: int
    corrected: dict[str, str]
    as_of: int
    cut: bool


class _Matches(NamedTuple):
    """Where a term occurs, in documents that the reader may not see, too; only its own are counted."""

    term: Term
    words: list[str]
    docs: Ints
    """The documents of one word after the other."""
    sizes: Ints
    """How many they are for each word."""
    having: Ints
    """The documents, each once and in order; below, what each of them gains, and what there was to gain."""
    gained: Floats
    counts: Floats
    rarity: int
    seen: bool
    """Whether there are any that the reader may see."""


class Index:
    """Full text search over what the ledger says, kept in one file that can be deleted at any time.

    Threads may share it, and any number of processes the file. In a child process it opens the file anew.
    """

    def __init__(self, file: File) -> None:
        self._file = file
        self._columns = Columns()
        self._columns_of = (0, 0)

    @classmethod
    def open(cls, path: Path | None, embedder: Embedder | None = None) -> Index:
        """Open the index at a path, or make an empty one; None keeps it in memory. Without an embedder it finds by
        words alone. What cannot be used
        (damaged, or made by another version) is thrown away, which `rebuilt` says. A database of something
        else raises NotABook and is left alone."""
        return cls(File(path, embedder))

    @property
    def rebuilt(self) -> str:
        """Why what was there has been thrown away, since this was opened; empty if it was not."""
        return self._file.rebuilt

    @property
    def fingerprint(self) -> str:
        """All that an answer depends on besides what was put in: how words are made, the embedder, the weights."""
        return self._file.fingerprint

    @property
    def position(self) -> int:
        """All changes up to here are in the file, whoever applied them."""
        return self._reading(lambda: self._file.head().position)

    def apply(self, after: int, upto: int, changes: Iterable[tuple[int, Change]]) -> bool:
        """Take in all changes after one position up to another, in the order of the ledger, or none of them.

        False, and nothing happened: the index does not stand at `after`, because another process was quicker
        or the file was thrown away. Look at `position` and go on from there. An error among the changes
        undoes all of it.
        """
        try:
            with self._file.using():
                return self._file.apply(after, upto, changes)
        except Damaged:
            return False

    def search(
        self,
        query: str,
        *,
        allowed: Callable[[Who], bool],
        at: int | None = None,
        tiers: Collection[str] | None = None,
        since_us: int | None = None,
        until_us: int | None = None,
        authors: Collection[str] | None = None,
        chosen: Callable[[Who], bool] | None = None,
        listing: bool = False,
        how: How = "keyword",
        vectors: bool = True,
        limit: int = 10,
    ) -> Found:
        """What answers a query best, among the documents that the reader may see as of `at` (None: now), and in
        their last version still may.

        `allowed` is asked once for each different Who. Tiers, authors, `chosen` and times (`since_us` included,
        `until_us` not) choose among the hits and leave their scores as they are. Any query is good; an empty
        one finds nothing, or with `listing` all there is, the newest first. `how` is by its words, by what it
        is about (semantic), or by all there is to go by (hybrid), which can do without `vectors`.
        """
        asked = parse(query)

        def look() -> Found:
            columns, position = self._follow()
            as_of = position if at is None else min(at, position)
            sees = {who: bool(allowed(who)) for who in dict.fromkeys(who for who, _ in columns.classes)}
            wanted = [
                (tiers is None or tier in tiers)
                and (authors is None or who.author in authors)
                and (chosen is None or chosen(who))
                for who, tier in columns.classes
            ]
            may = [sees[who] for who, _ in columns.classes]
            visible = _among(may, columns.kind)
            visible &= (columns.since <= as_of) & (columns.until > as_of)
            for num in np.flatnonzero(visible & (columns.until <= position)).tolist():
                visible[num] = may[columns.kind[columns.latest[columns.ids[num]]]]
            kept = visible & _among(wanted, columns.kind)
            if since_us is not None:
                kept &= columns.time_us >= since_us
            if until_us is not None:
                kept &= columns.time_us < until_us
            search = _Search(self._file, columns, visible, self._file.embedder if vectors else None)
            if listing:
                return search.listed(kept, limit, as_of)
            if how == "semantic":
                return search.semantic(query, kept, limit, as_of)
            return (search.hybrid if how == "hybrid" else search.answer)(asked, kept, limit, as_of)

        return self._reading(look)

    def ranked(self, query: str, ids: Collection[str]) -> list[str]:
        """Those of the documents that have something of what a query is about, the nearest first. Whoever asks may
        see them."""

        def look() -> list[str]:
            columns, _ = self._follow()
            known = [columns.latest[id] for id in ids if id in columns.latest]
            embedder = self._file.embedder
            if embedder is None:
                raise NotEnabled("this index has no vectors: install the package of an embedder")
            wanted = embedder.embed([query[:MAX_QUERY]])
            docs = np.array(known, np.int64)
            alike = likeness(columns.vectors(self._file, embedder.dimensions)[docs], wanted)[0].astype(
                np.int64
            )
            near = docs[alike > 0]
            return [columns.ids[doc] for doc, _ in best(near, alike[alike > 0], columns.ids, len(near))]

        return self._reading(look)

    def purge(self) -> bool:
        """Rewrite the file so that nothing of what was erased is left in it or in its log. False: somebody
        still reads an earlier state, so the log is still there; purge again later."""
        try:
            with self._file.using():
                return self._file.purge()
        except Damaged:
            return True

    def close(self) -> None:
        self._file.close()

    def _follow(self) -> tuple[Columns, int]:
        """What is known of the documents, and the position that it holds for."""
        head = self._file.head()
        which = (self._file.opened, head.erasures)
        if which != self._columns_of:
            self._columns = Columns()
        self._columns_of = (0, 0)  # what an interruption leaves half read is not to be used
        self._columns.follow(self._file, head)
        self._columns_of = which
        return self._columns, head.position

    def _reading(self, read: Callable[[], T]) -> T:
        """Read one state of the file. If it turns out to be damaged, that of the empty one in its place."""
        for _ in range(2):
            try:
                with self._file.using(), self._file.connection:
                    return read()
            except Damaged:
                continue
        raise StorageFailed(f"the index {self._file.path} is damaged again and again: check the disk")


class _Search:
    """One search in one state of the file."""

    def __init__(self, file: File, columns: Columns, visible: Mask, embedder: Embedder | None) -> None:
        self._file = file
        self._embedder = embedder
        self._columns = columns
        self._visible = visible
        self._documents = int(np.count_nonzero(visible))
        self._damping = damping(columns.length, visible)

    def answer(self, asked: Asked, kept: Mask, limit: int, as_of: int) -> Found:
        corrected: dict[str, str] = {}
        found = [self._matches(term, corrected) for term in asked.terms]
        gained = np.zeros(self._columns.size)
        for one in found:
            gained[one.having] += one.gained
        most = sum(one.rarity for one in found)
        for phrase, pattern in enumerate(asked.phrases):
            needed = [one.having for one in found if phrase in one.term.phrases]
            gained[self._lacking(needed, pattern, kept & (gained > 0))] = 0
        docs = np.flatnonzero(kept & (gained > 0))
        ranked = best(docs, scores(gained[docs], most), self._columns.ids, limit) if most else []
        hits = self._hits(ranked, found, most)
        return Found(hits, len(docs), corrected, as_of, asked.cut)

    def semantic(self, query: str, kept: Mask, limit: int, as_of: int) -> Found:
        """What is about the same as the query, the nearest first."""
        alike = self._likeness(query)
        docs = np.flatnonzero(kept & (alike > 0))
        ranked = best(docs, alike[docs] * MILLION // SCALE**2, self._columns.ids, limit)
        cut = len(query) > MAX_QUERY
        return Found(
            self._hits([(doc, min(one, MILLION)) for doc, one in ranked], [], 1), len(docs), {}, as_of, cut
        )

    def hybrid(self, asked: Asked, kept: Mask, limit: int, as_of: int) -> Found:
        """What answers by all signals together: see `fusion`."""
        corrected: dict[str, str] = {}
        found = [self._matches(term, corrected) for term in asked.terms]
        columns, size = self._columns, self._columns.size
        said_by = {name for one in speakers(columns, self._visible) for name in names(one)}
        every = [self._word(one, one.term.word in said_by) for one in found]
        words = [one for one in every if len(one.docs) or one.text not in said_by]
        signals = Signals(columns, self._visible, words, asked.text)
        all_of_them = signals.first()
        near = _NearWords(self._file, columns, words, self._embedder)
        all_of_them["softx"] = signals.softly(near.documents)
        fits = kept & np.logical_or.reduce(
            [all_of_them[name] > 0 for name in ("bm", "bm_pc", "bm_s", "softx")]
        )
        all_of_them["phrase"] = np.zeros(size)
        for phrase, pattern in enumerate(asked.phrases):
            needed = [one.having for one in found if phrase in one.term.phrases]
            has = fits.copy()
            has[self._lacking(needed, pattern, fits)] = False
            all_of_them["phrase"] += has / len(asked.phrases)
        sums = weighed(all_of_them, FIRST, size)
        docs = np.flatnonzero(fits)
        chosen = [doc for doc, _ in best(docs, sums[docs], columns.ids, max(limit, BY_WORDS))]
        alike = self._likeness(asked.text)
        enough = np.where(columns.session > 0, 1, int(LEAST_ABOUT * SCALE**2))
        about = np.flatnonzero(kept & (alike >= enough))
        chosen += [doc for doc, _ in best(about, alike[about], columns.ids, BY_VECTOR)]
        total = len(np.union1d(docs, chosen)) if chosen else 0
        picked = np.unique(np.array(chosen, np.int64))
        there = {name: one[picked] for name, one in all_of_them.items()}
        weights = FIRST
        if self._embedder is not None:
            there |= signals.about(alike, picked)
            there["soft"] = signals.soft(near.best(picked))
            weights = SECOND
        final = as_scores(weighed(there, weights, len(picked)))
        ranked = best(picked, final, columns.ids, limit)
        most = sum(one.rarity for one in found) or 1
        hits = self._hits(ranked, found, most)
        at = {doc: place for place, doc in enumerate(picked.tolist())}
        told = [
            tuple((name, round(float(there[name][at[doc]] * weight), 3)) for name, weight in weights.items())
            for doc, _ in ranked
        ]
        hits = [replace(hit, signals=gave) for hit, gave in zip(hits, told, strict=True)]
        return Found(hits, total, corrected, as_of, asked.cut)

    def _word(self, found: _Matches, is_a_name: bool) -> Word:
        """A word of the query. Of a conversation, those who speak in it are no words: they are in all of it."""
        docs, counts = found.having, found.counts
        if is_a_name:
            elsewhere = self._columns.session[docs] == 0
            docs, counts = docs[elsewhere], counts[elsewhere]
        return Word(docs, counts, found.rarity, stem(folded(found.term.word)), folded(found.term.word))

    def _likeness(self, query: str) -> Ints:
        if self._embedder is None:
            return np.zeros(self._columns.size, np.int64)
        wanted = self._embedder.embed([query[:MAX_QUERY]])
        alike: Ints = likeness(self._columns.vectors(self._file, self._embedder.dimensions), wanted)[
            0
        ].astype(np.int64)
        return alike

    def listed(self, kept: Mask, limit: int, as_of: int) -> Found:
        """All documents that are kept, the newest first."""
        docs = np.flatnonzero(kept).tolist()
        newest = sorted(docs, key=lambda doc: (-int(self._columns.time_us[doc]), self._columns.ids[doc]))
        return Found(self._hits([(doc, 0) for doc in newest[:limit]], [], 1), len(docs), {}, as_of, False)

    def _matches(self, term: Term, corrected: dict[str, str]) -> _Matches:
        if term.prefix:
            words = [(num, word, 1.0) for num, word in self._file.words_from(term.prefix)]
        else:
            words = self._forms(term.stems)
        matches = self._look_for(term, words)
        if not matches.seen and term.correctable:
            meant = self._meant(folded(term.word))
            if meant:
                corrected[term.word] = meant
                return self._look_for(term, self._forms(((stem(meant), 1.0),)))
        return matches

    def _forms(self, stems: tuple[tuple[str, float], ...]) -> list[tuple[int, str, float]]:
        return [(num, word, weight) for stem, weight in stems for num, word in self._file.words_of_stem(stem)]

    def _look_for(self, term: Term, words: list[tuple[int, str, float]]) -> _Matches:
        docs, weighed, sizes = self._columns.having(self._file, [num for num, _, _ in words])
        having = docs
        if len(words) > 1:
            weighed *= np.repeat([weight for _, _, weight in words], sizes)
            having, weighed = summed(docs, weighed, self._columns.size)
        seen = int(np.count_nonzero(self._visible[having]))
        rare = rarity(self._documents, seen)
        gained = gains(rare, weighed, self._damping[having])
        found = [word for _, word, _ in words]
        return _Matches(term, found, docs, sizes, having, gained, weighed, rare, seen > 0)

    def _meant(self, typed: str) -> str | None:
        """The word one typing error away that most documents have; of several the first in the alphabet."""
        near = []
        for num, word in self._file.words_near(typed):
            docs, _, _ = self._columns.having(self._file, [num])
            having = int(np.count_nonzero(self._visible[docs]))
            if having:
                near.append((-having, word))
        return min(near)[1] if near else None

    def _lacking(self, needed: list[Ints], pattern: re.Pattern[str], among: Mask) -> Ints:
        """Those documents that do not have a phrase. Only texts with all its words are looked at."""
        may_have = among
        for having in needed:
            has = np.zeros_like(among)
            has[having] = True
            may_have = may_have & has
        lacking = among & ~may_have
        for doc in np.flatnonzero(may_have).tolist():
            lacking[doc] = not pattern.search(flat(self._file.connection.execute(TEXT, (doc,)).get))
        return np.flatnonzero(lacking)

    def _hits(self, ranked: list[tuple[int, int]], found: list[_Matches], most: int) -> list[Hit]:
        picked = np.zeros(self._columns.size, np.bool_)
        picked[[doc for doc, _ in ranked]] = True
        matched: dict[int, list[tuple[str, str, float]]] = {doc: [] for doc, _ in ranked}
        for one in found:
            forms: dict[int, set[str]] = {}
            places = np.flatnonzero(picked[one.docs])
            words = np.searchsorted(np.cumsum(one.sizes), places, side="right")
            for doc, word in zip(one.docs[places].tolist(), words.tolist(), strict=True):
                forms.setdefault(doc, set()).add(one.words[word])
            gave = scores(one.gained[np.searchsorted(one.having, list(forms))], most).tolist()
            for (doc, those), points in zip(forms.items(), gave, strict=True):
                matched[doc].append((one.term.word, " ".join(sorted(those)), points / MILLION))
        hits = []
        for doc, score in ranked:
            text, source, run = self._file.rows(SHOWN, (doc,))[0]
            who, tier = self._columns.classes[self._columns.kind[doc]]
            shown = {word for _, those, _ in matched[doc] for word in those.split(" ")}
            hits.append(
                Hit(
                    id=self._columns.ids[doc],
                    score=score / MILLION,
                    text=text,
                    tier=tier,
                    source=source,
                    time_us=int(self._columns.time_us[doc]),
                    author=who.author,
                    kind=who.kind,
                    run=run,
                    position=int(self._columns.since[doc]),
                    matched=tuple(matched[doc]),
                    snippet=snippet(text, shown),
                )
            )
        return hits


class _NearWords:
    """The words of the file that are near to those of a query."""

    def __init__(self, file: File, columns: Columns, words: list[Word], embedder: Embedder | None) -> None:
        self._file, self._columns, self._wanted = file, columns, words
        self._places, self._nums = np.zeros(0, np.int64), list[int]()
        self._near: Floats = np.zeros((len(words), 0))
        if embedder is not None and words:
            self._places, self._nums, vectors = columns.words(file, embedder.dimensions)
            wanted = embedder.embed([one.text for one in words])
            self._near = (likeness(vectors, wanted) / SCALE**2).astype(np.float64)
        self._own = {one.stem: at for at, one in enumerate(words)}

    def documents(self, word: Word) -> Iterator[tuple[Ints, float]]:
        """The documents that have words near to one, and how near."""
        near = self._near[self._own[word.stem]]
        found = np.flatnonzero(near > LEAST)
        found = found[np.lexsort((found, -near[found]))][:NEAR_WORDS]
        for place in found.tolist():
            docs, _, _ = self._columns.having(self._file, [self._nums[place]])
            yield docs, float((near[place] - LEAST) / (1 - LEAST))

    def best(self, docs: Ints) -> Floats:
        """For each word of the query and each document, how near the nearest word of that is."""
        nearest = np.zeros((len(self._wanted), len(docs)))
        words, sizes = self._file.words_in(docs.tolist())
        of_doc = np.repeat(np.arange(len(docs)), sizes)
        known = words < len(self._places)
        places, of_doc = self._places[words[known]], of_doc[known]
        places, of_doc = places[places >= 0], of_doc[places >= 0]
        if len(places):
            some, starts = np.unique(of_doc, return_index=True)
            nearest[:, some] = np.maximum.reduceat(self._near[:, places], starts, axis=1)
        return nearest


def _among(which: list[bool], kinds: Ints) -> Mask:
    """The documents whose kind is one of the chosen ones."""
    mask: Mask = np.array([*which, False])[kinds]
    return mask
