"""What a query asks for. There is no syntax that could be wrong: what is no phrase and no prefix is words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .words import (
    LONGEST,
    STOPWORDS,
    UNSPACED,
    chunks,
    correctable,
    folded,
    lowered,
    marks,
    normal,
    spelled,
    stem,
    unspaced,
)

MAX_QUERY = 1_024
MAX_TERMS = 12

AS_WRITTEN = 0.25
"""How much more a word counts that has the very accents that the query has."""

_QUOTED = re.compile('"([^"]*)"|“([^“”]*)”')


class Term(NamedTuple):
    """One thing to look for: words with one of these stems, each with its weight, or words with this
    prefix."""

    word: str
    stems: tuple[tuple[str, float], ...] = ()
    prefix: str = ""
    correctable: bool = False
    phrases: frozenset[int] = frozenset()
    """The phrases of the query that no document without such a word can have."""

    @property
    def stopword(self) -> bool:
        return not self.prefix and self.word in STOPWORDS


class ParsedQuery(NamedTuple):
    terms: tuple[Term, ...]
    phrases: tuple[re.Pattern[str], ...]
    """To be searched for in `flat` texts."""
    cut: bool
    text: str = ""
    """The query as far as it was read."""


def parse(query: str) -> ParsedQuery:
    """Read a query. Stopwords are left out, unless it (or a phrase of it) has nothing else. `cut` says that
    it was longer than a query may be: 1,024 characters, 12 words of 64 characters each."""
    text = normal(query[:MAX_QUERY].encode("utf-8", "replace").decode())
    phrases: list[re.Pattern[str]] = []
    quoted: list[list[Term]] = []
    plain: list[list[Term]] = []
    ended = 0
    for found in _QUOTED.finditer(text):
        inside = found[1] or found[2] or ""
        pattern = _pattern(inside)
        plain += _terms(text[ended : found.start()])
        ended = found.end()
        if pattern is not None:
            quoted += _scoring(list(_quoted(inside, len(phrases))))
            phrases.append(pattern)
    plain += _terms(text[ended:])
    terms: dict[str, Term] = {}
    taken = 0
    cut = len(query) > MAX_QUERY or any(len(one[1]) > LONGEST for one in chunks(text))
    for words in quoted + (_scoring(plain, other=quoted)):
        new = [term for term in words if _key(term) not in terms]
        if new and taken == MAX_TERMS:
            cut = True
            continue
        taken += bool(new)
        for term in words:
            known = terms.get(_key(term), term)
            terms[_key(term)] = known._replace(
                phrases=known.phrases | term.phrases, correctable=known.correctable and term.correctable
            )
    return ParsedQuery(tuple(terms.values()), tuple(phrases), cut, text)


def flat(text: str) -> str:
    """A text as the patterns of phrases expect it: without case and accents."""
    return folded(lowered(normal(text)))


def _key(term: Term) -> str:
    return f"{term.prefix}*" if term.prefix else term.stems[0][0]


def _scoring(groups: list[list[Term]], other: list[list[Term]] | None = None) -> list[list[Term]]:
    """The terms of each chunk without the stopwords, unless nothing is left and there is nothing else."""
    kept = [[term for term in group if not term.stopword] for group in groups]
    return kept if other or any(kept) else groups


def _terms(text: str) -> Iterator[list[Term]]:
    """What to look for, chunk by chunk."""
    for found in chunks(text):
        chunk = found[1][:LONGEST]
        leaves, beside = spelled(chunk)
        if text[found.end(1) : found.end(1) + 1] == "*" and leaves and not unspaced(leaves[-1]):
            prefix = folded(lowered(chunk))
            yield [Term(f"{prefix}*", prefix=prefix)]
        else:
            yield [*_leaves(leaves), *(_term(word, correctable(word)) for word in beside)]


def _quoted(text: str, phrase: int) -> Iterator[list[Term]]:
    for found in chunks(text):
        needed = frozenset([phrase])
        yield [
            term._replace(phrases=needed, correctable=False)
            for term in _leaves(spelled(found[1][:LONGEST])[0], whole=len(found[1]) <= LONGEST)
        ]


def _leaves(leaves: tuple[str, ...], whole: bool = True) -> Iterator[Term]:
    for at, leaf in enumerate(leaves if whole else leaves[:-1]):
        if not unspaced(leaf):
            yield _term(leaf, correctable(leaf))
        elif len(leaf) == 2:
            yield Term(leaf, ((leaf, 1.0),))
        elif not at or not unspaced(leaves[at - 1]):  # else it is the end of the pair before it
            yield Term(leaf, prefix=leaf)


def _term(word: str, may_correct: bool) -> Term:
    plain = folded(word)
    stems = {stem(word): AS_WRITTEN} | {stem(plain): 1.0}
    return Term(word, tuple(sorted(stems.items(), key=lambda one: -one[1])), correctable=may_correct)


def _pattern(phrase: str) -> re.Pattern[str] | None:
    """These words one after the other, with nothing but punctuation and spaces between them."""
    mark = "" if phrase.isascii() else marks()
    parts = [part for one in re.findall(rf"[\w{mark}]+", flat(phrase)) for part in one.split("_") if part]
    if not parts:
        return None
    letter = rf"[^\W_{UNSPACED}]"
    first, *others = map(re.escape, parts)
    # Looking back only after the first word is there lets `re` search for that word as such, which is faster.
    start = "" if unspaced(parts[0][0]) else f"(?<!{letter}{first})"
    end = "" if unspaced(parts[-1][-1]) else f"(?!{letter}{mark and f'|[{mark}]'})"
    between = rf"(?:{mark and f'(?![{mark}])'}[\W_])+"
    return re.compile(between.join([first + start, *others]) + end)
