"""Regular expressions that users write: only those whose time is linear in the length of the text are taken.

`re` tries every way to match at every place of a text. With `(a+)+b` the ways double with each character, and `\\S+@`
reads a long run of characters again from each of its places. Whoever writes the text could stop everybody who reads it.

A pattern is read as `re` parses it, and the steps are counted that it takes at most for each character of a text:

- The steps of an element with a limit, such as `\\w{1,40}`, multiply with those of what follows it, unless that
  begins with a character that the element cannot match.
- A repetition without a limit is taken at the end of a pattern, where nothing after it can fail. Elsewhere it needs a
  *stop* before it: a character that must be there and that it cannot repeat (`=` before `\\w+`), `\\b` before word
  characters, or `^`. Then no run of characters is read from many places.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

MOST_STEPS = 1_000
"""How many steps a pattern may take for each character of a text."""
LONGEST = 2_000
"""How many characters a pattern may have."""
MOST_ONCE = 1_000_000
"""How many steps a pattern may take that is tried only at the beginning of a text and repeats nothing without limit."""

_VERY_MANY = 10 * MOST_ONCE
"""Where counting ends."""
_HOW = "write a limit such as {1,100} in place of +, * or {n,}"
_OTHERS = "\u00e9\u0416\u6f22\u0663\u00a0\u2028\u2014\u20ac"
"""Letters, digits, spaces and signs beyond Latin 1, for the classes of characters that have them."""

Chars = frozenset[str]
Stops = tuple[tuple[Chars, int], ...]
"""The stops before a place, and how many characters there can be between each of them and the place: a run that begins
at the place can be read from so many places more."""


class TooSlow(Exception):
    """Why a pattern is not taken."""


class _Work(NamedTuple):
    """What matching part of a pattern takes at one place, and in how many ways it can match there."""

    steps: int
    ways: int
    unlimited: bool = False


def bad_pattern(pattern: object) -> str | None:
    """Why this is no regular expression, or one that could take too long; None if it is a good one."""
    if not isinstance(pattern, str):
        return "it is not text"
    try:
        steps_of(pattern)
    except TooSlow as error:
        return str(error)
    except (re.error, OverflowError, RecursionError) as error:
        return f"it is no regular expression ({error})"
    return None


@lru_cache(256)
def steps_of(pattern: str) -> int:
    """How many steps a pattern takes for each character of a text at most. Raises what `re.compile` raises, and
    TooSlow."""
    if len(pattern) > LONGEST:
        raise TooSlow(
            f"it has {len(pattern):,} characters, and {LONGEST:,} is the most: write several patterns"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        re.compile(pattern)
        # `re` offers no public way to its parser; it is the same from Python 3.11 on.
        tree = re._parser.parse(pattern)  # type: ignore[attr-defined]
    items = list(tree)
    reader = Reader(tree)
    work, _ = reader.sequence(items, (), tail=True, flags=tree.state.flags)
    once = bool(items) and reader.stop(items[0], tree.state.flags) == frozenset() and not work.unlimited
    if work.steps > (MOST_ONCE if once else MOST_STEPS):
        raise TooSlow(
            f"it may take {work.steps:,} steps for each character of a text, and {MOST_STEPS:,} is the most: use "
            "lower limits, and between two repetitions a character that neither of them repeats"
        )
    return 1 if once else max(work.steps, 1)


class Reader:
    """Reads a parsed pattern. Sets of characters are compared by those characters that make a difference in it."""

    def __init__(self, tree: Any) -> None:
        self._state = tree.state
        named = {chr(code) for code in _numbers(tree) if 0 <= code < 0x110000}
        cases = {case for char in named for case in (*char.lower(), *char.upper())}
        self.all: Chars = frozenset({*map(chr, range(256)), *_OTHERS, *named, *cases})

    def sequence(self, items: Sequence[Any], before: Stops, tail: bool, flags: int) -> tuple[_Work, Stops]:
        """The work of items one after the other, and the stops after them. `before` are the stops before them; `tail`
        says that nothing after them can fail."""
        steps, ways, unlimited = 0, 1, False
        for at, item in enumerate(items):
            rest = items[at + 1 :]
            last = tail and all(self.can_be_empty(one) for one in rest)
            following = self.first(rest, flags)
            work, before = self.item(item, before, last, flags, following)
            steps = min(steps + ways * work.steps, _VERY_MANY)
            ways = min(ways * work.ways, _VERY_MANY)
            unlimited = unlimited or work.unlimited
        return _Work(steps, ways, unlimited), before

    def item(
        self, item: Any, before: Stops, last: bool, flags: int, following: Chars | None
    ) -> tuple[_Work, Stops]:
        op, given = str(item[0]), item[1]
        stop = self.stop(item, flags)
        if stop is not None:
            return _Work(1, 1), (*_farther(before, self.width([item])), (stop, 0))
        if op == "AT":
            return _Work(1, 1), before
        if op == "SUBPATTERN":
            _, add, drop, inner = given
            return self.sequence(list(inner), before, last, (flags | add) & ~drop)
        if op == "ATOMIC_GROUP":
            work, before = self.sequence(list(given), before, last, flags)
            return work._replace(ways=1), before
        if op in ("ASSERT", "ASSERT_NOT"):
            work, _ = self.sequence(list(given[1]), before if given[0] > 0 else (), False, flags)
            return work._replace(ways=1), before
        if op == "BRANCH":
            return self.branches([list(one) for one in given[1]], before, last, flags)
        if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, body = given
            work, before = self.repeated(least, most, list(body), before, last, flags, following)
            return (work._replace(ways=1) if op == "POSSESSIVE_REPEAT" else work), before
        raise TooSlow(
            "it refers back to what a group matched, which can take very long: write it without that"
        )

    def branches(
        self, branches: list[list[Any]], before: Stops, last: bool, flags: int
    ) -> tuple[_Work, Stops]:
        works = [self.sequence(one, before, last, flags)[0] for one in branches]
        firsts = [self.first(one, flags) for one in branches]
        known = [one for one in firsts if one is not None]
        apart = len(known) == len(firsts) and sum(map(len, known)) == len(frozenset().union(*known))
        ways = max(work.ways for work in works) if apart else sum(work.ways for work in works)
        unlimited = any(work.unlimited for work in works)
        stops = () if unlimited else _farther(before, max(map(self.width, branches)))
        return _Work(sum(work.steps for work in works) + 1, ways, unlimited), stops

    def repeated(
        self,
        least: int,
        most: int,
        body: list[Any],
        before: Stops,
        last: bool,
        flags: int,
        following: Chars | None,
    ) -> tuple[_Work, Stops]:
        char = self.chars(body[0], flags) if len(body) == 1 else None
        unlimited = most >= re._constants.MAXREPEAT  # type: ignore[attr-defined]
        if most == 1 and char is None:
            work, after = self.sequence(body, before, last, flags)
            after = after if least else _farther(before, self.width(body))
            return work._replace(ways=work.ways + 1 - least), () if work.unlimited else after
        one = _Work(1, 1) if char is not None else self.sequence(body, (), False, flags)[0]
        if unlimited:
            if one.unlimited or one.ways > 1 or all(self.can_be_empty(inner) for inner in body):
                raise TooSlow(
                    f"it repeats something that itself repeats or has several ways to match: {_HOW} inside"
                )
            chars = char if char is not None else frozenset().union(*self.every(body, flags))
            places = [far + 1 if stop else 1 for stop, far in before if chars.isdisjoint(stop)]
            if not last and not places:
                raise TooSlow(
                    f"it repeats without a limit what it could read again from each place of a long text: {_HOW}, "
                    r"or put \b or a character before it that it does not repeat"
                )
            return _Work(one.steps * (1 if last else min(places)), 1, True), ()
        if char is not None:
            if (
                last
            ):  # once there are enough of them, the pattern has matched, and all that was read is behind it
                return _Work(least + 1, 1), before
            apart = following is not None and char.isdisjoint(following)
            stops = _farther(before, most)
            if least:
                stops = (*stops, (char, most - 1))
            return _Work(most, 1 if apart else most - least + 1), stops
        steps, ways, tried = 0, 0, 1
        for count in range(min(most, MOST_STEPS * 10) + 1):
            steps = min(steps + tried * one.steps, _VERY_MANY)
            ways = min(ways + (tried if count >= least else 0), _VERY_MANY)
            tried = min(tried * one.ways, _VERY_MANY)
        stops = () if one.unlimited else _farther(before, most * self.width(body))
        return _Work(steps, ways, one.unlimited), stops

    def stop(self, item: Any, flags: int) -> Chars | None:
        """What must stand before the places after an item: one of these characters. None: anything may."""
        op, given = str(item[0]), item[1]
        if op == "AT":
            at = str(given)
            if at == "AT_BEGINNING_STRING" or (at == "AT_BEGINNING" and not flags & re.M):
                return frozenset()
            if at == "AT_BEGINNING":
                return frozenset("\n")
            return self.all - _word(self.all) if at == "AT_BOUNDARY" else None
        if op in ("ASSERT", "ASSERT_NOT") and given[0] < 0 and len(given[1]) == 1:
            chars = self.chars(given[1][0], flags)
            return chars if chars is None or op == "ASSERT" else self.all - chars
        return self.chars(item, flags)

    def chars(self, item: Any, flags: int) -> Chars | None:
        """The characters one of which an item matches, or None if it does not match just one character."""
        op, given = str(item[0]), item[1]
        if op == "SUBPATTERN":
            return self.chars(given[3][0], (flags | given[1]) & ~given[2]) if len(given[3]) == 1 else None
        if op == "ANY":
            return self.all if flags & re.S else self.all - {"\n"}
        if op == "LITERAL":
            return self._cased(frozenset(chr(given)), flags)
        if op == "NOT_LITERAL":
            return self.all - self._cased(frozenset(chr(given)), flags)
        if op != "IN":
            return None
        found: set[str] = set()
        for kind, what in given:
            if str(kind) == "LITERAL":
                found.add(chr(what))
            elif str(kind) == "RANGE":
                found.update(char for char in self.all if what[0] <= ord(char) <= what[1])
            elif str(kind) == "CATEGORY":
                found |= _category(str(what), self.all)
        chars = self._cased(frozenset(found), flags)
        return self.all - chars if str(given[0][0]) == "NEGATE" else chars

    def first(self, items: Sequence[Any], flags: int) -> Chars | None:
        """The characters one of which items begin with, or None if that takes a closer look."""
        if items and "REPEAT" in str(items[0][0]) and items[0][1][0] > 0:
            return self.first(list(items[0][1][2]), flags)
        return self.chars(items[0], flags) if items else None

    def _cased(self, chars: Chars, flags: int) -> Chars:
        if not flags & re.I:
            return chars
        folded = {char.casefold() for char in chars}
        return frozenset(char for char in self.all if char.casefold() in folded)

    def every(self, items: Sequence[Any], flags: int) -> Iterator[Chars]:
        """The characters of all that is inside items."""
        for item in items:
            chars = self.chars(item, flags)
            if chars is not None:
                yield chars
            elif str(item[0]) not in ("AT", "ASSERT", "ASSERT_NOT"):
                yield self.all  # not worth a closer look: no stop fits, and the pattern is taken only at its end
                return

    def width(self, items: Sequence[Any]) -> int:
        """How many characters items match at most."""
        return int(re._parser.SubPattern(self._state, list(items)).getwidth()[1])  # type: ignore[attr-defined]

    def can_be_empty(self, item: Any) -> bool:
        """Whether an item can always match, at least nothing at all."""
        op, given = str(item[0]), item[1]
        if op in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return bool(given[0] == 0)
        if op == "SUBPATTERN":
            return all(self.can_be_empty(one) for one in given[3])
        return op == "BRANCH" and any(all(self.can_be_empty(one) for one in branch) for branch in given[1])


def _numbers(tree: Any) -> Iterator[int]:
    for part in tree:
        if isinstance(part, int):
            yield int(part)
        elif part is not None:
            yield from _numbers(part)


def _farther(stops: Stops, by: int) -> Stops:
    return tuple((chars, min(far + by, MOST_ONCE)) for chars, far in stops)


def _word(chars: Chars) -> Chars:
    return frozenset(char for char in chars if char.isalnum() or char == "_")


def _category(name: str, chars: Chars) -> Chars:
    if name.endswith("WORD"):
        found = _word(chars)
    else:
        found = frozenset(
            char for char in chars if (char.isspace() if name.endswith("SPACE") else char.isdecimal())
        )
    return chars - found if "_NOT_" in name else found
