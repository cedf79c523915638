"""Whether a text says what a fact says: enough of its words, and no other number, name, identifier or "not".

    agreement("Retries", "The client retries 5 times.", "The client retries five times").agrees
    agreement("Retries", "The client retries 5 times.", "The client retries 3 times").denies

One sentence of the text has to say it, or as many in a row as the fact has. It has to have at least 60 % of the
content words of the fact and its subject, by their stems. Then it must name the numbers, names and identifiers of the
fact (those after "such as" are examples, and may be missing), and deny the same words. A sentence that only replaces
one or two words of the fact says something else. It is better to leave a rewording out than to count a correction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from ..index.words import STOPWORDS, stem
from .claims import Sentence, critical, negates, sentences

SHARE = 0.6
"""Which part of the fact's content words a sentence must have to say anything of it."""
FEWEST = 2
"""And how many of them at least, if the fact has so many."""
MOST_REPLACED = 2
IGNORED = STOPWORDS | {"every", "always"}
"""Words that say nothing by themselves."""
TRUTH = frozenset({"true", "right", "correct", "so", "valid", "case"})
"""What a negation of the whole sentence stands before."""

_EXAMPLE = re.compile(r"\b(?:such as|for example|for instance|e\.g\.),?\s++\S++", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d[\d.,:/-]*[a-z%°]{0,3}")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNSEEN = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters without a shape."""
_PART = re.compile(r"[^\W_]+")


class Agreement(NamedTuple):
    """What a text says of a fact."""

    agrees: bool = False
    denies: bool = False
    """It speaks of the same and says otherwise."""
    why: str = "it says too little of this"
    """Why it does not agree."""


class _Statement(NamedTuple):
    """What sentences say, without the words that every text has."""

    words: tuple[str, ...]
    denied: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]


def agreement(subject: str, fact: str, text: str) -> Agreement:
    """What a text says of a fact about a subject."""
    whole = _EXAMPLE.sub("", fact)
    parts = sentences(whole)
    mine, about = _said([*parts], critical(whole)), frozenset(_content(_flat(sentences(subject))))
    wanted, theirs, names = about | {*mine.words}, sentences(text), critical(text)
    differing, agreeing = Agreement(), list[range]()
    for size in range(len(parts), 0, -1):
        for start in range(len(theirs) - size + 1):
            if any(start in span and start + size - 1 in span for span in agreeing):
                continue  # a part of what agrees says less
            taken_back = any(map(_takes_back, theirs[start + size : start + size + 1]))
            found = _compared(mine, wanted, _said(theirs[start : start + size], names), taken_back)
            if found.denies:
                return found
            if found.agrees:
                agreeing.append(range(start, start + size))
            elif differing == Agreement():
                differing = found
    return Agreement(agrees=True, why="") if agreeing else differing


def say_the_same(first: str, second: str) -> Agreement:
    """Whether two texts say the same of each other."""
    there = agreement("", first, second)
    return agreement("", second, first) if there.agrees else there


def content_words(text: str) -> frozenset[str]:
    """The stems of the words of a text that are no stopwords, and those of the parts of its identifiers."""
    return frozenset(_content(_flat(sentences(_HUMP.sub(" ", text)))))


def says_something(text: str) -> bool:
    """Whether there is a letter or digit in a text that can be seen."""
    return any(char.isalnum() and char not in _UNSEEN for char in text)


def _compared(mine: _Statement, wanted: frozenset[str], theirs: _Statement, taken_back: bool) -> Agreement:
    words = frozenset(theirs.words)
    shared = wanted & words
    if len(shared) < max(SHARE * len(wanted), min(FEWEST, len(wanted)), 1):
        return Agreement()
    turned = (theirs.denied & {*mine.words} - mine.denied) | (mine.denied & words - theirs.denied)
    if turned or taken_back:
        return Agreement(denies=True, why="it says that this is not so")
    missing, other = mine.numbers - theirs.numbers, theirs.numbers - mine.numbers
    if missing:
        why = f"it says {min(other)}, not {min(missing)}" if other else f"it does not say {min(missing)}"
        return Agreement(denies=bool(other), why=why)
    unnamed = sorted(name for name in mine.names if not words.issuperset(_content([name])))
    replaced = _replaced(mine.words, theirs.words)
    if unnamed:
        others = sorted(name for name in theirs.names if not wanted.issuperset(_content([name])))
        why = f"it names {others[0]}, not {unnamed[0]}" if others else f"it does not name {unnamed[0]}"
        return Agreement(denies=bool(others and replaced), why=why)
    if replaced:
        return Agreement(why="it says something else in the same words")
    return Agreement(agrees=True, why="")


def _replaced(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether one or two words stand for one or two others in an otherwise equal sentence."""
    shorter = min(len(mine), len(theirs))
    begin = next((at for at in range(shorter) if mine[at] != theirs[at]), shorter)
    end = next((at for at in range(shorter - begin) if mine[-1 - at] != theirs[-1 - at]), shorter - begin)
    gone, new = mine[begin : len(mine) - end], theirs[begin : len(theirs) - end]
    few = 0 < len(gone) <= MOST_REPLACED and 0 < len(new) <= MOST_REPLACED
    same = begin + end >= max(len(gone), len(new))
    return few and same and sorted(gone) != sorted(new)


def _said(parts: Sequence[Sentence], names: frozenset[str]) -> _Statement:
    every = _flat(parts)
    numbers = frozenset(word.rstrip(".,:") for word in every if _NUMBER.fullmatch(word))
    named = frozenset(word for word in every if word in names and not negates(word)) - numbers
    denied = frozenset(word for sentence in parts for word in _denied(sentence))
    return _Statement(tuple(_content(every)), denied, numbers, named)


def _denied(sentence: Sentence) -> Iterable[str]:
    """The content word after each negation; of one that ends a sentence, or denies that it is true, the one before."""
    words = [word for word in sentence if word not in TRUTH and (negates(word) or _stems(word))]
    for place, word in enumerate(words):
        if negates(word):
            beside = words[place + 1 : place + 2] or words[place - 1 : place]
            yield from (part for other in beside for part in _stems(other)[:1])


def _takes_back(sentence: Sentence) -> bool:
    """Whether a sentence only says that the one before it is not so."""
    rest = [word for word in sentence if not negates(word)]
    return len(rest) < len(sentence) and all(word in TRUTH or not _stems(word) for word in rest)


def _content(words: Iterable[str]) -> list[str]:
    return [part for word in words if not negates(word) for part in _stems(word)]


@lru_cache(20_000)
def _stems(word: str) -> tuple[str, ...]:
    parts = _PART.findall(word)
    return tuple(stem(part) for part in parts if part not in IGNORED)


def _flat(parts: Iterable[Sentence]) -> list[str]:
    return [word for sentence in parts for word in sentence]
