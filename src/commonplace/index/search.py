"""The index as its users see it: changes go in, answers come out."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from ..errors import NotEnabled, StorageFailed
from .columns import Columns, SeenDocs, among
from .documents import Change, Who
from .fusion import (
    BY_PARTS,
    BY_VECTOR,
    BY_WORDS,
    FIRST,
    FULL,
    FULL_BY_PARTS,
    SECOND,
    Alike,
    Matching,
    Signals,
    Word,
    shown_scores,
    unnamed,
    weighed,
    weights_of,
)
from .query import MAX_QUERY, ParsedQuery, Term, flat, parse
from .score import MILLION, Floats, Ints, Mask, best, damping, gains, rarity, scores, summed
from .store import Damaged, File
from .tables import VERSIONS
from .vectors import SCALE, Embedder, TokenEmbedder, Tokens, Vectors, likeness
from .view import IndexView
from .words import folded, names, snippet, stem

LATEST = "SELECT max(num) FROM docs WHERE id IN (SELECT value FROM json_each(?)) GROUP BY id"

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


class IndexHits(msgspec.Struct, frozen=True):
    """The best hits and how many there are in `total`; in a semantic search among very many, about how many.
    `corrected` says which words were taken for typing errors, and for which; `cut` that the query was longer than a
    query may be; `as_of` the position that the answer holds for: when it is lower than expected, the index has to be
    caught up."""

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
    visible: bool
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
    def open(
        cls,
        path: Path | None,
        embedder: Embedder | None = None,
        words: Embedder | None = None,
        book: str = "",
    ) -> Index:
        """Open the index at a path, or make an empty one; None keeps it in memory. Without an embedder it finds by
        words alone. Single words have vectors of `words`, or else of the embedder, too. What cannot be used (damaged,
        made by another version, or of another book than the one with this id) is thrown away, which `rebuilt` and a
        warning say. What is not this user's own file, and a database of something else, raise NotABook and are left
        alone."""
        return cls(File(path, embedder, words or embedder, book))

    def empty(self) -> Index:
        """An empty index in memory that makes words and vectors in the same way."""
        return Index(File(None, self._file.embedder, self._file.words, ""))

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
        return self.seen[0]

    @property
    def seen(self) -> tuple[int, bytes]:
        """The last position that it knows, and the hash of the event there."""
        head = self._reading(self._file.head)
        return head.position, head.hash

    @property
    def opened(self) -> int:
        """Goes up whenever the file is another one than before: what was answered meanwhile may be of an empty one."""
        return self._file.opened

    def discard(self, why: str) -> None:
        """Begin anew with an empty index, because the one there is does not fit the ledger."""
        with self._file.lock:
            self._file.discard(why)

    def says(self, ids: Collection[str]) -> dict[str, set[str]]:
        """The texts that the versions of each of these documents have; ids of none are left out."""

        def look() -> dict[str, set[str]]:
            versions = {num: id for id in ids for num, *_ in self._file.rows(VERSIONS, (id,))}
            texts: dict[str, set[str]] = {}
            for num, (text, _, _) in self._file.texts(versions).items():
                texts.setdefault(versions[num], set()).add(text)
            return texts

        return self._reading(look)

    def apply(self, after: int, upto: int, changes: Iterable[tuple[int, Change]], hash: bytes = b"") -> bool:
        """Take in all changes after one position up to another, in the order of the ledger, or none of them. `hash`
        is that of the event at `upto`.

        False, and nothing happened: the index does not stand at `after`, because another process was quicker
        or the file was thrown away. Look at `position` and go on from there. An error among the changes
        undoes all of it.
        """
        try:
            with self._file.using():
                return self._file.apply(after, upto, changes, hash)
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
        talk: str | None = None,
        scopes: frozenset[str] | None = None,
        ids: Collection[str] | None = None,
        listing: bool = False,
        how: How = "keyword",
        vectors: bool = True,
        limit: int = 10,
        ended: bool = False,
    ) -> IndexHits:
        """What answers a query best, among the documents that the reader may see as of `at` (None: now), and in
        their last version still may.

        `allowed` is asked once for each different Who; of the scopes, only those in `scopes` are read. Tiers, authors,
        `chosen`, `ids`, times (`since_us` included, `until_us` not) and `talk`, the name that the wanted conversations
        begin with, choose among the hits and leave their scores as they are. Any query is good; an empty one finds
        nothing, or with `listing` all there is, the newest first. `how` is by its words, by what it is about
        (semantic), or by all there is to go by (hybrid), which can do without `vectors`. With `ended`, only versions
        that have ended by then are found, of documents that have others since, too.
        """
        parsed = parse(query)

        def look() -> IndexHits:
            columns, position = self._follow()
            as_of = position if at is None else min(at, position)
            sees = {who: bool(allowed(who)) for who in dict.fromkeys(who for who, _ in columns.classes)}
            may = SeenDocs(tuple(sees[who] for who, _ in columns.classes), scopes)
            wanted = [
                (tiers is None or tier in tiers) and (chosen is None or chosen(who))
                for who, tier in columns.classes
            ]
            view = columns.view(self._file, as_of, may)
            kept = columns.ended(as_of, may) if ended else view.visible
            if not all(wanted):
                kept = kept & among(wanted, columns.kind)
            if authors is not None:
                by_author = among((who.author in authors for who, _ in columns.classes), columns.kind)
                kept = kept & (by_author | columns.spoken_by(authors))
            if ids is not None:
                kept = kept & np.fromiter((id in ids for id in columns.ids), np.bool_, columns.size)
            if talk is not None:
                kept = kept & np.isin(columns.session, self._file.sessions(talk))
            if since_us is not None:
                kept = kept & (columns.time_us >= since_us)
            if until_us is not None:
                kept = kept & (columns.time_us < until_us)
            if not kept.any():
                return IndexHits([], 0, {}, as_of, parsed.cut)
            search = _Search(self._file, view, self._file.embedder if vectors else None)
            if listing:
                return search.listed(kept, limit, as_of)
            if how == "semantic":
                return search.semantic(query, kept, limit, as_of)
            return (search.hybrid if how == "hybrid" else search.keyword)(parsed, kept, limit, as_of)

        return self._reading(look)

    def ranked(self, query: str, ids: Collection[str]) -> list[str]:
        """Those of the documents that have something of what a query is about, the nearest first. Whoever asks may
        see them."""

        def look() -> list[str]:
            columns, _ = self._follow()
            embedder = self._file.embedder
            if embedder is None:
                raise NotEnabled("this index has no vectors: install the package of an embedder")
            docs = np.array([num for (num,) in self._file.rows(LATEST, (json.dumps(list(ids)),))], np.int64)
            wanted = embedder.embed([query[:MAX_QUERY]], asking=True)
            alike = likeness(columns.vectors(self._file, wanted.shape[1]).at(docs), wanted)[0]
            near = alike > 0
            return [columns.ids[doc] for doc, _ in best(docs[near], alike[near], columns.ids, len(docs))]

        return self._reading(look)

    def purge(self) -> bool:
        """Rewrite the file so that nothing of what was erased is left in it or in its log. False: somebody
        still reads an earlier state, so the log is still there; purge again later."""
        try:
            with self._file.using():
                return self._file.purge()
        except Damaged:
            return True

    def memory(self) -> int:
        """How many bytes are held in memory, about: see `columns` for what they are and how many they can become."""
        with self._file.lock:
            return self._columns.memory

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

    def __init__(self, file: File, view: IndexView, embedder: Embedder | None) -> None:
        self._file = file
        self._embedder = embedder
        self._view = view
        self._columns = view.columns

    def keyword(self, parsed: ParsedQuery, kept: Mask, limit: int, as_of: int) -> IndexHits:
        """What has the words of the query, the phrases in it whole."""
        corrected: dict[str, str] = {}
        matches = [self._matches(term, corrected) for term in parsed.terms]
        gained = np.zeros(self._columns.size)
        for match in matches:
            gained[match.having] += match.gained
        most = sum(match.rarity for match in matches)
        docs = np.flatnonzero(kept & (gained > 0))
        for has in self._phrases(parsed, matches, docs):
            gained[docs[~has]] = 0
        docs = docs[gained[docs] > 0]
        ranked = best(docs, scores(gained[docs], most), self._columns.ids, limit) if most else []
        return IndexHits(self._hits(ranked, matches, most), len(docs), corrected, as_of, parsed.cut)

    def semantic(self, query: str, kept: Mask, limit: int, as_of: int) -> IndexHits:
        """What is about the same as the query, the nearest first. Of very many documents, `total` is an estimate."""
        alike = self._alike(self._wanted(self._unnamed(query[:MAX_QUERY]))[0])
        if alike is None:
            return IndexHits([], 0, {}, as_of, len(query) > MAX_QUERY)
        docs = alike.nearest(kept, limit)
        near = alike.of(docs)
        docs, near = docs[near > 0], near[near > 0]
        ranked = best(docs, near * MILLION // SCALE**2, self._columns.ids, limit)
        hits = self._hits([(doc, min(score, MILLION)) for doc, score in ranked], [], 1)
        return IndexHits(hits, max(len(docs), alike.count(kept)), {}, as_of, len(query) > MAX_QUERY)

    def hybrid(self, parsed: ParsedQuery, kept: Mask, limit: int, as_of: int) -> IndexHits:
        """What answers by all signals together: see `fusion`."""
        corrected: dict[str, str] = {}
        matches = [self._matches(term, corrected) for term in parsed.terms]
        signals = Signals(self._view, self._words(matches), parsed.text)
        fits = np.flatnonzero(kept & signals.fits())
        if parsed.phrases:
            signals.quoted(fits, self._phrases(parsed, matches, fits))
        about = self._unnamed(parsed.text)
        wanted, tokens = self._wanted(about)
        alike = self._alike(wanted)
        picked = self._candidates(signals, fits, alike, kept, limit)
        values, weights = self._signals(signals, picked, alike, tokens, about)
        full = FULL_BY_PARTS if weights is BY_PARTS else FULL
        turns = None if weights is FIRST else self._columns.session[picked] > 0
        sums = weighed(values, weights, len(picked), turns, full)
        docs = [doc for doc, _ in best(picked, sums, self._columns.ids, limit)]
        places = np.searchsorted(picked, docs)
        shown_weights = {name: weight for name, weight in weights.items() if name != "nearest"}
        shown = weighed(values, shown_weights, len(picked), turns, full)[places]
        ranked = list(zip(docs, shown_scores(shown, full), strict=True))
        hits = self._hits(ranked, matches, sum(match.rarity for match in matches) or 1)
        nothing = np.zeros(len(picked))
        gains = {name: values.get(name, nothing) * weight for name, weight in weights.items()}
        gave = [tuple((name, round(float(gain[at]), 3)) for name, gain in gains.items()) for at in places]
        hits = [replace(hit, signals=those) for hit, those in zip(hits, gave, strict=True)]
        total = len(fits) + int(np.count_nonzero(~np.isin(picked, fits, assume_unique=True)))
        return IndexHits(hits, total, corrected, as_of, parsed.cut)

    def _signals(
        self, signals: Signals, docs: Ints, alike: Alike | None, tokens: Tokens | None, about: str
    ) -> tuple[dict[str, Floats], dict[str, float]]:
        """The signals of candidates, and what each weighs: more of them where there are vectors, and vectors of
        parts."""
        values, weights = signals.first(docs), FIRST
        if alike is not None:
            values |= signals.about(alike, docs)
            values |= signals.soft(lambda docs: self._nearest(docs, signals.words), docs)
            weights = SECOND
        if tokens is not None:
            matching = Matching(self._file, tokens, weights_of(tokens, about, signals.words))
            values, weights = values | signals.parts(matching, docs), BY_PARTS
        return values, weights

    def _candidates(self, signals: Signals, fits: Ints, alike: Alike | None, kept: Mask, limit: int) -> Ints:
        """The documents that are weighed by everything, in order: the best without vectors, and the nearest; notes that
        are near are among them however many turns are nearer."""
        ids = self._columns.ids
        sums = weighed(signals.first(fits), FIRST, len(fits))
        chosen = [doc for doc, _ in best(fits, sums, ids, max(limit, BY_WORDS))]
        if alike is not None:
            notes = kept & (self._columns.session == 0)
            for some in (kept,) if self._view.talks is None else (kept, notes):
                docs = alike.nearest(some, BY_VECTOR)
                near = alike.of(docs)
                chosen += [doc for doc, _ in best(docs[near > 0], near[near > 0], ids, BY_VECTOR)]
        return np.unique(np.array(chosen, np.int64))

    def _words(self, matches: list[_Matches]) -> list[Word]:
        speakers = self._view.names
        words = [self._word(match, match.term.word in speakers) for match in matches]
        return [word for word in words if len(word.docs) or word.text not in speakers]

    def _unnamed(self, query: str) -> str:
        """What a query is about, without the names of those who speak. A name that also stands in a note is a topic,
        and stays: an agent may be called `postgres`."""
        named = names(query) & self._view.names
        return unnamed(query, {name for name in named if not self._in_notes(name)})

    def _in_notes(self, word: str) -> bool:
        nums = [num for num, _ in self._file.words_of_stem(stem(word))]
        notes = self._view.visible & (self._columns.session == 0)
        return any(notes[docs].any() for docs, _ in self._columns.having(self._file, nums))

    def _word(self, match: _Matches, is_a_name: bool) -> Word:
        """A word of the query. Names of those who speak in a conversation are no words in it: they are in all of it."""
        docs, counts = match.having, match.counts
        if is_a_name:
            elsewhere = self._columns.session[docs] == 0
            docs, counts = docs[elsewhere], counts[elsewhere]
        return Word(docs, counts, match.rarity, folded(match.term.word))

    def _nearest(self, docs: Ints, wanted: list[Word]) -> Floats:
        """For each word of the query and each document, how near the nearest word of that is."""
        nearest = np.zeros((len(wanted), len(docs)))
        words, sizes = self._file.words_in(docs.tolist())
        if wanted and len(words) and self._file.words is not None:
            vocabulary = self._columns.vocabulary
            vocabulary.follow(self._file)
            alike, there = vocabulary.near(words, [word.text for word in wanted], self._file.words)
            some, starts = np.unique(np.repeat(np.arange(len(docs)), sizes)[there], return_index=True)
            if len(some):
                nearest[:, some] = np.maximum.reduceat(alike, starts, axis=1)
        return nearest

    def _wanted(self, query: str) -> tuple[Vectors | None, Tokens | None]:
        """The vector of a query, and those of its parts, as far as there are any."""
        if not any(map(str.isalnum, query)):
            return None, None
        if isinstance(self._embedder, TokenEmbedder):
            vectors, (tokens,) = self._embedder.embed_tokens([query])
            return vectors, tokens
        return None if self._embedder is None else self._embedder.embed([query], asking=True), None

    def _alike(self, wanted: Vectors | None) -> Alike | None:
        return None if wanted is None else Alike(self._columns.vectors(self._file, wanted.shape[1]), wanted)

    def listed(self, kept: Mask, limit: int, as_of: int) -> IndexHits:
        """All documents that are kept, the newest first."""
        docs = np.flatnonzero(kept).tolist()
        newest = sorted(docs, key=lambda doc: (-int(self._columns.time_us[doc]), self._columns.ids[doc]))
        return IndexHits(self._hits([(doc, 0) for doc in newest[:limit]], [], 1), len(docs), {}, as_of, False)

    def _matches(self, term: Term, corrected: dict[str, str]) -> _Matches:
        if term.prefix:
            words = [(num, word, 1.0) for num, word in self._file.words_from(term.prefix)]
        else:
            words = self._forms(term.stems)
        matches = self._look_for(term, words)
        if not matches.visible and term.correctable:
            meant = self._meant(folded(term.word))
            if meant:
                corrected[term.word] = meant
                return self._look_for(term, self._forms(((stem(meant), 1.0),)))
        return matches

    def _forms(self, stems: tuple[tuple[str, float], ...]) -> list[tuple[int, str, float]]:
        return [(num, word, weight) for stem, weight in stems for num, word in self._file.words_of_stem(stem)]

    def _look_for(self, term: Term, words: list[tuple[int, str, float]]) -> _Matches:
        lists = self._columns.having(self._file, [num for num, _, _ in words])
        sizes = np.array([len(docs) for docs, _ in lists], np.int64)
        docs = np.concatenate([_NO_DOCS, *(docs for docs, _ in lists)])
        having, weighed = docs, np.concatenate([_NO_COUNTS, *(counts for _, counts in lists)])
        if len(words) > 1:
            weighed *= np.repeat([weight for _, _, weight in words], sizes)
            having, weighed = summed(docs, weighed, self._columns.size)
        visible = int(np.count_nonzero(self._view.visible[having]))
        rare = rarity(self._view.documents, visible)
        held_back = damping(self._columns.length[having], self._view.documents, self._view.length)
        gained = gains(rare, weighed, held_back)
        forms = [word for _, word, _ in words]
        return _Matches(term, forms, docs, sizes, having, gained, weighed, rare, visible > 0)

    def _meant(self, typed: str) -> str | None:
        """The word one typing error away that most documents have; of several the first in the alphabet."""
        alike = self._file.words_near(typed)
        lists = self._columns.having(self._file, [num for num, _ in alike])
        near = []
        for (_, word), (docs, _) in zip(alike, lists, strict=True):
            having = int(np.count_nonzero(self._view.visible[docs]))
            if having:
                near.append((-having, word))
        return min(near)[1] if near else None

    def _phrases(self, parsed: ParsedQuery, matches: list[_Matches], docs: Ints) -> Iterator[Mask]:
        """Which of the documents have each phrase. Only texts with all its words are looked at."""
        for phrase, pattern in enumerate(parsed.phrases):
            has = np.ones(len(docs), np.bool_)
            for match in matches:
                if phrase in match.term.phrases:
                    has &= np.isin(docs, match.having)
            for at in np.flatnonzero(has).tolist():
                doc = int(docs[at])
                has[at] = pattern.search(flat(self._file.texts([doc])[doc][0])) is not None
            yield has

    def _hits(self, ranked: list[tuple[int, int]], matches: list[_Matches], most: int) -> list[Hit]:
        picked = np.zeros(self._columns.size, np.bool_)
        picked[[doc for doc, _ in ranked]] = True
        matched: dict[int, list[tuple[str, str, float]]] = {doc: [] for doc, _ in ranked}
        for match in matches:
            forms: dict[int, set[str]] = {}
            places = np.flatnonzero(picked[match.docs])
            words = np.searchsorted(np.cumsum(match.sizes), places, side="right")
            for doc, word in zip(match.docs[places].tolist(), words.tolist(), strict=True):
                forms.setdefault(doc, set()).add(match.words[word])
            gave = scores(match.gained[np.searchsorted(match.having, list(forms))], most).tolist()
            for (doc, those), points in zip(forms.items(), gave, strict=True):
                matched[doc].append((match.term.word, " ".join(sorted(those)), points / MILLION))
        texts = self._file.texts(matched)
        hits = []
        for doc, score in ranked:
            text, source, run = texts[doc]
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
                    author=self._columns.speakers.get(int(self._columns.speaker[doc])) or who.author,
                    kind=who.kind,
                    run=run,
                    position=int(self._columns.since[doc]),
                    matched=tuple(matched[doc]),
                    snippet=snippet(text, shown),
                )
            )
        return hits


_NO_DOCS: Ints = np.zeros(0, np.int64)
_NO_COUNTS: Floats = np.zeros(0)
