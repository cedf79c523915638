"""The one packer: lines in the order of their worth, into budgets of items, characters and tokens.

Digests, the long-term block, the parts of a prompt and the context of a task are packed by one rule. A line is taken if
the whole text with it fits. One that does not fit is cut, if enough of it is left, or left out. What is cut or left out
is named, with the budget that it exceeds. Packing is a pure function of the lines and the budgets: what was packed once
can be packed again, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Self, TypeVar

import msgspec
from msgspec.structs import replace

from ..memory.portions import PerKind, Portion, Portions
from .escaping import HEADING, block, mark_of

CountTokens = Callable[[str], int]

LEAST = 40
"""The fewest characters that a text is cut to: less of it says nothing."""
CUT = "…"
WAITS = ": it waits"
"""What is said of a line that goes in whole or not at all, and not now."""
SPARE = 6
"""How many candidates a trace keeps beyond those that there was room for."""


class PackLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line in three parts, of which the middle one may be cut."""

    id: str
    kind: str
    before: str = ""
    text: str = ""
    after: str = ""
    barred: str = ""
    """Why it does not go in, however much room there is."""

    @property
    def line(self) -> str:
        return self.before + self.text + self.after

    def cut_to(self, length: int) -> Self:
        return replace(self, text=self.text[:length].rstrip() + CUT)


L = TypeVar("L", bound=PackLine)
Frame = Callable[[Sequence[L]], str]
"""How lines become a text."""


class Packed(msgspec.Struct, Generic[L], frozen=True):
    """What was packed: the text, what each of its lines is made of, and what is left out or cut, and why."""

    text: str
    taken: tuple[L, ...]
    omitted: tuple[tuple[str, str], ...]
    unread: frozenset[str] = frozenset()
    """Those left out because there were enough items, whatever they say."""
    over: str = ""
    """Which budget what was there already exceeds, if it does."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(line.id for line in self.taken)


def estimated(text: str) -> int:
    """About how many tokens a text has: one for every four characters, rounded up."""
    return -(-len(text) // 4)


def over(budget: Portion, text: str, count: CountTokens, what: str = "") -> str:
    """Which budget of characters or tokens a text exceeds, if it does one."""
    if budget.max_chars is not None and len(text) > budget.max_chars:
        return f"over the budget of {budget.max_chars} characters{what}"
    if budget.max_tokens is not None and count(text) > budget.max_tokens:
        return f"over the budget of {budget.max_tokens} tokens{what}"
    return ""


def most_that_fits(fits: Callable[[int], bool], least: int, most: int) -> int | None:
    """The largest number from `least` to `most` that fits, where whatever is below one that fits does, too; None if
    even the least does not."""
    if most < least or not fits(least):
        return None
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    return least


def whole(max_chars: int | None, max_tokens: int | None = None) -> Portions:
    """A budget of the whole text, and none of any kind of line."""
    every = Portion()
    return Portions(Portion(None, max_chars, max_tokens), PerKind(every, every, every, every))


def pack(
    lines: Sequence[L],
    budgets: Portions,
    count: CountTokens,
    frame: Frame[L],
    *,
    kept: Sequence[L] = (),
    uncut: str = "",
    rest: bool = False,
) -> Packed[L]:
    """Take the lines in their order as long as they fit. `kept` are there already and stay as they are. Lines of the
    kind `uncut` wait until there is room for them whole. If the total is the `rest` of a prompt's budget, reasons name
    that budget, because nobody has asked for the figures of the rest."""
    pile = _Pile(budgets, count, frame, rest)
    for line in kept:
        pile.add(line)
    too_much = pile.over()
    omitted, unread = list[tuple[str, str]](), set[str]()
    for line in lines:
        why = line.barred
        if not why and (why := pile.full(line.kind)):
            unread.add(line.id)
        if not why:
            why = pile.lacks(line)
            waits = bool(why) and line.kind == uncut
            shown = None if waits else pile.cut(line) if why else line
            if waits:
                why = f"{why}{WAITS}"
            elif shown is not None:
                why = f"cut to {len(shown.text)} of {len(line.text)} characters: {why}" if why else ""
                pile.add(shown)
        if why:
            omitted.append((line.id, why))
    return Packed(pile.text(), tuple(pile.taken), tuple(omitted), frozenset(unread), too_much)


def pack_digest(
    candidates: Sequence[L],
    budgets: Portions,
    count: CountTokens = estimated,
    *,
    nothing: str = "",
    kept: Sequence[L] = (),
    mark: str = "",
    rest: bool = False,
    heading: str = HEADING,
    uncut: str = "",
    ordered: Callable[[Sequence[L]], list[str]] | None = None,
) -> Packed[L]:
    """A memory digest: a block under its `mark`. With nothing to show the text says `nothing`, if even that fits.
    `ordered` is how the lines stand in it, if not in the order in which they were taken."""

    def frame(lines: Sequence[L]) -> str:
        texts = [line.line for line in lines] if ordered is None else ordered(lines)
        return block(texts, mark or mark_of(texts), heading)

    packed = pack(candidates, budgets, count, frame, kept=kept, rest=rest, uncut=uncut)
    if packed.taken:
        return packed
    text = f"{heading} {nothing}" if nothing else ""
    return replace(packed, text="" if over(budgets.total, text, count) else text)


LONG_TERM = "## Long-term Memory"


def long_term_block(candidates: Sequence[L], most: int, rest: bool = False) -> Packed[L]:
    """What every prompt shows of long-term memory, in so many characters with its heading."""

    def frame(lines: Sequence[L]) -> str:
        return "\n".join((LONG_TERM, *(line.line for line in lines)))

    return pack(candidates, whole(most), estimated, frame, rest=rest)


class _Pile(Generic[L]):
    """What is packed so far."""

    def __init__(self, budgets: Portions, count: CountTokens, frame: Frame[L], rest: bool) -> None:
        self._budgets, self._count, self._frame, self._rest = budgets, count, frame, rest
        self.taken: list[L] = []
        self._of_kind: dict[str, list[str]] = {}

    def add(self, line: L) -> None:
        self.taken.append(line)
        self._of_kind.setdefault(line.kind, []).append(line.line)

    def text(self, *more: L) -> str:
        return self._frame([*self.taken, *more]) if self.taken or more else ""

    def full(self, kind: str) -> str:
        """Which number of items is reached, if one is: then nothing more of it has to be looked at."""
        total, own = self._budgets.total.max_items, self._portion(kind).max_items
        if total is not None and len(self.taken) >= total:
            return f"over the budget of {total} items"
        if own is not None and len(self._of_kind.get(kind, ())) >= own:
            return f"over the budget of {own} {kind}s"
        return ""

    def lacks(self, line: L) -> str:
        """Which budget a further line would exceed, if any."""
        return self._over_kind(line.kind, line.line) or self._over_all(self.text(line))

    def over(self) -> str:
        """Which budget is exceeded by now, if any."""
        for kind, lines in self._of_kind.items():
            most = self._portion(kind).max_items
            if most is not None and len(lines) > most:
                return f"over the budget of {most} {kind}s"
            if why := self._over_kind(kind):
                return why
        most = self._budgets.total.max_items
        if most is not None and len(self.taken) > most:
            return f"over the budget of {most} items"
        return self._over_all(self.text())

    def cut(self, line: L) -> L | None:
        """The longest beginning of a line that fits, or nothing."""
        length = most_that_fits(lambda length: not self.lacks(line.cut_to(length)), LEAST, len(line.text) - 1)
        return None if length is None else line.cut_to(length)

    def _over_kind(self, kind: str, *more: str) -> str:
        lines = "\n".join((*self._of_kind.get(kind, ()), *more))
        return over(self._portion(kind), lines, self._count, f" of {kind}s")

    def _over_all(self, text: str) -> str:
        why = over(self._budgets.total, text, self._count)
        return "over the budget of the prompt" if why and self._rest else why

    def _portion(self, kind: str) -> Portion:
        portion: Portion = getattr(self._budgets.per_kind, kind, Portion())
        return portion
