"""How alike two items are, by the words they are made of, and where alike items meet.

Comparing a new item with every known one would take too long. So each item is found under a few of its words (its
marks), together with a sketch of all of them, and only items whose marks and sketches fit are read and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from math import ceil
from typing import Any, NamedTuple

from ..index.words import STOPWORDS, jaccard, tokens
from ..ledger.encoding import canonical
from .claims import claim_of, key_form, value_form
from .items import joined, subject_and_fact

FLAGGED = 0.85
"""From this likeness on two facts are held to be the same until somebody chooses."""

MOST_MARKS = 16
"""Marks of a long text: two texts that are alike share nearly all their words, so these few are enough."""

SKETCHED = 64
"""Words of a text by which it is compared before it is read."""

WORTH = 0.75
"""From which likeness of sketches on two texts are worth comparing: a sketch of a long one is only a sample."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """How alike two facts are: `score` from 0 to 1, the words they share and those that only one of them has."""

    score: float
    shared: tuple[str, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def flagged(self) -> bool:
        """Alike enough that somebody should choose: skip it, merge citations and reason, or create it with a
        rationale. Nothing is ever dropped by itself."""
        return self.score >= FLAGGED

    def __str__(self) -> str:
        parts = [f"{self.score:.2f} alike", f"both say: {' '.join(self.shared) or 'nothing'}"]
        parts += [f"only the first: {' '.join(self.only_first)}"] if self.only_first else []
        parts += [f"only the second: {' '.join(self.only_second)}"] if self.only_second else []
        return "; ".join(parts)


def near_duplicate(subject: str, fact: str, subject2: str, fact2: str) -> Likeness:
    """Compare two facts, each with its subject; a pipe stands between words as it does between the two."""
    first, second = (tokens(f"{a}|{b}".replace("|", " ")) for a, b in ((subject, fact), (subject2, fact2)))
    return Likeness(
        jaccard(first, second),
        tuple(sorted(first & second)),
        tuple(sorted(first - second)),
        tuple(sorted(second - first)),
    )


def words_of(content: Mapping[str, Any]) -> frozenset[str]:
    return tokens(joined(*subject_and_fact(content)).replace("|", " "))


def fingerprint(content: Mapping[str, Any]) -> str:
    """The same for items of one place that claim the same; facts, if they have the same value under the same key."""
    if content["kind"] == "fact":
        claims = [key_form(content["key"]), value_form(content.get("value")).decode()]
    else:
        subject, fact = subject_and_fact(content)
        claims = sorted(claim_of(fact, subject))
    return sha256(canonical([content["kind"], content.get("core") or "", *claims])).hexdigest()[:32]


class WordMark(NamedTuple):
    """A word under which an item is found by items that are alike, how many words the item has, and as which of
    its rarest words this one counts."""

    word: str
    size: int
    place: int


@lru_cache(256)
def marks(words: frozenset[str]) -> list[WordMark]:
    """The words under which alike items meet. Of two sets of words that are at least 0.85 alike, the first few in a
    fixed order must share one (of more than a hundred words, nearly always); the order puts words first that few
    texts have."""
    ordered = sorted(words, key=_rarity)
    few = len(words) - ceil(FLAGGED * len(words)) + 1
    chosen = ordered[: min(few, MOST_MARKS)]
    return [WordMark(word[:60], len(words), place) for place, word in enumerate(chosen, 1)]


@lru_cache(20_000)
def _rarity(word: str) -> tuple[bool, bool, int, str]:
    return (word in STOPWORDS, not any(char.isdigit() for char in word), -len(word), word)


def alike_places(mark: WordMark) -> list[tuple[int, int]]:
    """Where an alike item can have the same mark: among how many words, and as which of its rarest at the most.
    What lies behind the two places must be enough for all the words that the two must share."""
    places = []
    for size in range(ceil(FLAGGED * mark.size), int(mark.size / FLAGGED) + 1):
        shared = ceil(FLAGGED / (1 + FLAGGED) * (mark.size + size) - 1e-9)
        if mark.size - mark.place + 1 >= shared and size >= shared:
            places.append((size, min(size - shared + 1, MOST_MARKS)))
    return places


@lru_cache(256)
def sketch(words: frozenset[str]) -> str:
    """A few short hashes that stand for a set of words."""
    return "".join(sorted(_hash(word) for word in words)[:SKETCHED])


@lru_cache(20_000)
def _hash(word: str) -> str:
    return sha256(word.encode()).hexdigest()[:5]


def alike_sketches(first: str, second: str) -> float:
    """How alike two texts are, by their sketches: exactly, if neither has more words than a sketch."""
    return jaccard(_hashes(first), _hashes(second))


def _hashes(sketched: str) -> set[str]:
    return {sketched[at : at + 5] for at in range(0, len(sketched), 5)}
