"""The index as its users see it: changes go in, answers come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from ..errors import StorageFailed
from .columns import Columns
from .query import Asked, Term, flat, parse
from .score import MILLION, Floats, Ints, Mask, best, damping, gains, rarity, scores, summed
from .store import Change, Damaged, File, Who
from .words import folded, snippet, stem

TEXT = "SELECT text FROM texts WHERE num = ?"
SHOWN = "SELECT text, source, run FROM texts WHERE num = ?"

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
    def open(cls, path: Path | None) -> Index:
        """Open the index at a path, or make an empty one; None keeps it in memory. What cannot be used
        (damaged, or made by another version) is thrown away, which `rebuilt` says. A database of something
        else raises NotABook and is left alone."""
        return cls(File(path))

    @property
    def rebuilt(self) -> str:
        """Why what was there has been thrown away, since this was opened; empty if it was not."""
        return self._file.rebuilt

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
        limit: int = 10,
    ) -> Found:
        """What answers a query best, among the documents that the reader may see as of `at` (None: now), and in
        their last version still may.

        `allowed` is asked once for each different Who. Tiers, authors, `chosen` and times (`since_us` included,
        `until_us` not) choose among the hits and leave their scores as they are. Any query is good; an empty
        one finds nothing, or with `listing` all there is, the newest first.
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
            search = _Search(self._file, columns, visible)
            return search.listed(kept, limit, as_of) if listing else search.answer(asked, kept, limit, as_of)

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

    def __init__(self, file: File, columns: Columns, visible: Mask) -> None:
        self._file = file
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
        return _Matches(term, [word for _, word, _ in words], docs, sizes, having, gained, rare, seen > 0)

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


def _among(which: list[bool], kinds: Ints) -> Mask:
    """The documents whose kind is one of the chosen ones."""
    mask: Mask = np.array([*which, False])[kinds]
    return mask
