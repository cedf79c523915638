"""Packing: what is remembered, in the order of its worth, into budgets of items, characters and tokens.

It is a pure function of the candidates and the budgets: what was packed once can be packed again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..events import iso
from ..memory.items import SHAPES, Item, value_text
from ..memory.portions import PerKind, Portion, Portions
from .data import HEADING, as_data, as_name, block, mark_of

CountTokens = Callable[[str], int]
Frame = Callable[[Sequence[str]], str]
"""How lines become a text."""

LEAST = 40
"""The fewest characters that a text is cut to: less of it says nothing."""
CUT = "…"
SPARE = 6
"""How many candidates a trace keeps beyond those that there was room for."""


def estimated(text: str) -> int:
    """About how many tokens a text has: one for every four characters, rounded up."""
    return -(-len(text) // 4)


class Candidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that may go into a digest: its line in three parts, of which the middle one may be cut."""

    id: str
    kind: str
    version: int
    """The position where the item changed last."""
    via: str
    """How it was found: pinned, tagged, keyword or semantic."""
    before: str = ""
    text: str = ""
    after: str = ""
    score: float = 0.0
    signals: tuple[tuple[str, float], ...] = ()
    barred: str = ""
    """Why it does not go in, however much room there is."""
    twin: str = ""
    """The candidate that says the same, if that is why."""

    @property
    def line(self) -> str:
        return self.before + self.text + self.after


class Packed(msgspec.Struct, frozen=True):
    """What was packed: the text, what each of its lines is made of, and what is left out or cut, and why."""

    text: str
    taken: tuple[Candidate, ...]
    omitted: tuple[tuple[str, str], ...]
    unread: frozenset[str] = frozenset()
    """Those left out because there were enough items, whatever they say."""
    over: str = ""
    """Which budget what was there already exceeds, if it does."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(one.id for one in self.taken)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(one.line for one in self.taken)


def pack(
    candidates: Sequence[Candidate],
    budgets: Portions,
    count: CountTokens = estimated,
    *,
    nothing: str = "",
    kept: Sequence[Candidate] = (),
    mark: str = "",
    frame: Frame | None = None,
    rest: bool = False,
) -> Packed:
    """Take the candidates in their order as long as they fit. What does not fit is cut, if enough of it is left, or
    skipped. `kept` are there already and stay as they are, under their `mark`. With nothing to show the text says
    `nothing`, if even that fits. Lines become a block of a digest, unless there is another `frame`. If the total is
    the `rest` of a prompt's budget, reasons name that budget, because nobody has asked for the figures of the rest."""
    pile = _Pile(budgets, count, frame or (lambda lines: block(lines, mark or mark_of(lines))), rest)
    for one in kept:
        pile.add(one)
    over = pile.over()
    omitted, unread = list[tuple[str, str]](), set[str]()
    for one in candidates:
        why = one.barred
        if not why and (why := pile.full(one.kind)):
            unread.add(one.id)
        if not why:
            why = pile.lacks(one)
            shown = pile.cut(one) if why else one
            if shown is not None:
                why = f"cut to {len(shown.text)} of {len(one.text)} characters: {why}" if why else ""
                pile.add(shown)
        if why:
            omitted.append((one.id, why))
    text = pile.text() if pile.taken else f"{HEADING} {nothing}" if nothing else ""
    if not pile.taken and pile.over_all(text):
        text = ""
    return Packed(text, tuple(pile.taken), tuple(omitted), frozenset(unread), over)


LONG_TERM = "## Long-term Memory"


def long_term_block(candidates: Sequence[Candidate], most: int, rest: bool = False) -> Packed:
    """What every prompt shows of long-term memory, in so many characters with its heading."""
    every = Portion()
    budgets = Portions(Portion(max_chars=most), PerKind(every, every, every, every))
    return pack(candidates, budgets, frame=lambda lines: "\n".join((LONG_TERM, *lines)), rest=rest)


class _Pile:
    """What is packed so far."""

    def __init__(self, budgets: Portions, count: CountTokens, frame: Frame, rest: bool) -> None:
        self._budgets, self._count, self._frame, self._rest = budgets, count, frame, rest
        self.taken: list[Candidate] = []
        self._of_kind: dict[str, list[str]] = {}

    def add(self, one: Candidate) -> None:
        self.taken.append(one)
        self._of_kind.setdefault(one.kind, []).append(one.line)

    def text(self, *more: Candidate) -> str:
        return self._frame([one.line for one in (*self.taken, *more)])

    def full(self, kind: str) -> str:
        """Which number of items is reached, if one is: then nothing more of it has to be looked at."""
        total, own = self._budgets.total.max_items, self._portion(kind).max_items
        if total is not None and len(self.taken) >= total:
            return f"over the budget of {total} items"
        if own is not None and len(self._of_kind.get(kind, ())) >= own:
            return f"over the budget of {own} {kind}s"
        return ""

    def lacks(self, one: Candidate) -> str:
        """Which budget a further line would exceed, if any."""
        of_kind = "\n".join([*self._of_kind.get(one.kind, ()), one.line])
        return self._over(self._portion(one.kind), of_kind, f" of {one.kind}s") or self.over_all(
            self.text(one)
        )

    def over(self) -> str:
        """Which budget is exceeded by now, if any."""
        if not self.taken:
            return ""
        for kind, lines in self._of_kind.items():
            most = self._portion(kind).max_items
            if most is not None and len(lines) > most:
                return f"over the budget of {most} {kind}s"
            if told := self._over(self._portion(kind), "\n".join(lines), f" of {kind}s"):
                return told
        most = self._budgets.total.max_items
        if most is not None and len(self.taken) > most:
            return f"over the budget of {most} items"
        return self.over_all(self.text())

    def over_all(self, text: str) -> str:
        why = self._over(self._budgets.total, text, "")
        return "over the budget of the prompt" if why and self._rest else why

    def _over(self, portion: Portion, text: str, what: str) -> str:
        if portion.max_chars is not None and len(text) > portion.max_chars:
            return f"over the budget of {portion.max_chars} characters{what}"
        if portion.max_tokens is not None and self._count(text) > portion.max_tokens:
            return f"over the budget of {portion.max_tokens} tokens{what}"
        return ""

    def cut(self, one: Candidate) -> Candidate | None:
        """The longest beginning of a line that fits, or nothing."""
        shortest, longest = LEAST, len(one.text) - 1

        def cut_to(length: int) -> Candidate:
            return replace(one, text=one.text[:length].rstrip() + CUT)

        if longest < shortest or self.lacks(cut_to(shortest)):
            return None
        while shortest < longest:
            middle = (shortest + longest + 1) // 2
            if self.lacks(cut_to(middle)):
                longest = middle - 1
            else:
                shortest = middle
        return cut_to(shortest)

    def _portion(self, kind: str) -> Portion:
        found: Portion = getattr(self._budgets.per_kind, kind, Portion())
        return found


def candidate(
    item: Item,
    via: str,
    snippet: str,
    score: float = 0.0,
    signals: tuple[tuple[str, float], ...] = (),
    stale: str = "",
    barred: str = "",
    twin: str = "",
) -> Candidate:
    """An item as a line: `- [kind] id (sensitivity) header — snippet (prov=… channel=… thread=… refs=N)`."""
    start = f"- [{item.kind}] {as_name(item.id)} ({item.sensitivity}) "
    end = f" ({_provenance(item, stale)})"
    if item.kind == "fact":
        start += f"key={as_data(item.key or '')} value="
        said = as_data(value_text(_each_as_data(item.value)))
        end = ("" if item.confidence is None else f" conf={item.confidence:.2f}") + end
    else:
        said = as_data(snippet)
        start += _header(item) + "— "
    return Candidate(item.id, item.kind, item.position, via, start, said, end, score, signals, barred, twin)


def _each_as_data(value: Any) -> Any:
    """A value of any shape with every text in it as data: written as JSON, an order could hide behind its escapes."""
    if isinstance(value, str):
        return as_data(value)
    if isinstance(value, dict):
        return {as_data(name): _each_as_data(one) for name, one in value.items()}
    return [_each_as_data(one) for one in value] if isinstance(value, list) else value


def all_of(item: Item) -> str:
    """All that an item says, as one line of data."""
    if item.kind != "fact":
        return as_data(item.text)
    return f"{as_data(item.key or '')}: {as_data(value_text(_each_as_data(item.value)))}"


def text_of(item: Item) -> str:
    """What an item says besides its title."""
    return str(getattr(item, SHAPES[item.kind].text) or "")


def _header(item: Item) -> str:
    parts = []
    if item.kind == "episode" and item.occurred_us is not None:
        parts.append(f"occurred_at={iso(item.occurred_us)}")
    if item.title:
        parts.append(f"title={as_data(item.title)}")
    if item.confidence is not None:
        parts.append(f"conf={item.confidence:.2f}")
    return "".join(f"{one} " for one in parts)


def _provenance(item: Item, stale: str) -> str:
    told, given = [], item.provenance
    told.append(f"prov={as_name(str(given.get('source_kind') or item.agent))}")
    told += [f"{name}={as_name(str(given[name]))}" for name in ("channel", "thread") if given.get(name)]
    refs = given.get("refs")
    number = len(item.citations) + (len(refs) if isinstance(refs, list | tuple) else 1 if refs else 0)
    told += [f"refs={number}"] if number else []
    told += ["trust=low"] if item.trust == "low" else []
    told += [f"disputed={len(item.disputed)}"] if item.disputed else []
    told += [f"stale={as_data(stale)}"] if stale else []
    return " ".join(told)
