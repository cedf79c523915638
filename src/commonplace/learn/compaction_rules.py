"""What must not be lost of a text: blockers, decisions and constraints that stand in lines of their own.

A line counts if it begins with one of a few labels, perhaps after a bullet, in capitals or with a capital:

    BLOCKER: Blocked:            a blocker, until a later line says that it is resolved
    RESOLVED: Unblocked:         ends the blocker that it names
    DECISION: … (approved)       a decision that was approved; so are DECISION (approved): and Approved:
    DECISION:                    a proposal, until a later APPROVED: names it
    REVERSED: REJECTED:          ends the decision that it names
    CONSTRAINT: SAFETY:          a constraint; in instructions, so is every line with "never" or "must not"

A label alone on its line, or as a heading, is about the bullets below it. A line that ends something names it by the
number of its message (`#12`) or by its words: all of them, their beginning, or all of them and more after a mark such
as a comma. If it fits several, it ends none: a line that is kept in vain costs little, and one that is lost may not.
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

BLOCKER, DECISION, CONSTRAINT = "blocker", "decision", "constraint"
RESOLVED, PROPOSED, REVERSED = "resolved", "proposed", "reversed"

LABELS = {
    "blocker": BLOCKER, "blockers": BLOCKER, "blocked": BLOCKER, "resolved": RESOLVED, "unblocked": RESOLVED,
    "decision": PROPOSED, "decisions": PROPOSED, "approved": DECISION, "reversed": REVERSED, "rejected": REVERSED,
    "constraint": CONSTRAINT, "constraints": CONSTRAINT, "safety": CONSTRAINT,
}  # fmt: skip
NOTHING = frozenset({"", "none", "nothing", "no", "n/a", "-", "yes", "true", "false", "tbd"})
"""What stands after a label and says nothing."""

_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[ \]\s+)?(.*)")
_WORDS = "|".join(f"{name.upper()}|{name.capitalize()}" for name in LABELS)
_LABEL = re.compile(
    rf"[*_`]{{0,3}}({_WORDS})(?: by [^:()]{{1,40}}?)?\s{{0,4}}(?:\(([^()]{{1,60}})\))?[*_`]{{0,3}}\s{{0,4}}"
    r"[:：][*_`]{0,3}(.*)"
)
_HEADING = re.compile(rf"(?:#{{1,6}} [*_]{{0,3}}|[*_]{{2,3}})({_WORDS})[*_]{{0,3}}[:：]?[*_]{{0,3}}")
_APPROVED = re.compile(r"\(approved(?: by [^()]{1,60})?\)[.*_`]*$", re.IGNORECASE)
_FORBIDS = re.compile(r"\b(?:never|must\s+not|mustn['’]t)\b", re.IGNORECASE)
_NUMBER = re.compile(r"#(\d{1,15})\b[\s:,.-]*")
_ENDS = re.compile(r"[,;:.(]|\s[-–—]")
"""Where the name of something can end, and what is said about it begin."""


MOST_ENDS = 20
"""How many of these places are tried."""


class Statement(NamedTuple):
    """A line that counts: what it is, its words, and where it stands."""

    what: str
    text: str
    source: str
    """The id of the event that says it."""
    number: int = 0
    """The number of its message in the thread; 0: it is no message."""
    by: str = ""
    shown: bool = True
    """Whether its words may be shown where others read them."""


def statements(text: str, instructs: bool = False) -> Iterator[tuple[str, str]]:
    """The lines of a text that count: what each is, and its words."""
    above = ""
    for line in text.splitlines():
        bullet = _BULLET.fullmatch(line)
        words = (bullet[1] if bullet else line).strip()
        label, heading = _LABEL.match(words), None if bullet else _HEADING.fullmatch(words)
        if heading is not None:
            above = LABELS[heading[1].casefold()]
        elif label is not None:
            what, words = LABELS[label[1].casefold()], label[3].strip()
            above = "" if words else what
            yield from _said(what, words, (label[2] or "").casefold().startswith("approved"))
        elif bullet and above:
            yield from _said(above, words)
        else:
            above = above if bullet or not words else ""
            if instructs and _FORBIDS.search(words):
                yield CONSTRAINT, words


def _said(what: str, words: str, approved: bool = False) -> Iterator[tuple[str, str]]:
    if what == PROPOSED and (approved or _APPROVED.search(words)):
        what, words = DECISION, _APPROVED.sub("", words).strip()
    if words.casefold().rstrip(".") not in NOTHING:
        yield what, words


class Standing:
    """What holds after all that was said: the statements of each kind that nothing later has ended, and what was."""

    def __init__(self, said: Iterable[Statement]) -> None:
        self.ended: list[tuple[Statement, Statement]] = []
        """What was ended, and what has ended it."""
        self._open = {what: _Open() for what in (BLOCKER, DECISION, PROPOSED, CONSTRAINT)}
        for statement in said:
            self._take(statement)

    def of(self, what: str) -> list[Statement]:
        return list(self._open[what].statements.values())

    def _take(self, new: Statement) -> None:
        if new.what in (RESOLVED, REVERSED):
            for what in (BLOCKER,) if new.what == RESOLVED else (DECISION, PROPOSED):
                named = self._open[what].named(new.text)
                if named:
                    self.ended.append((self._open[what].remove(named), new))
                    return
            return
        if new.what == DECISION:
            proposals = self._open[PROPOSED]
            named = proposals.named(new.text, more=False)
            if named:  # what was proposed is what was approved
                new = proposals.remove(named)._replace(what=DECISION)
        self._open[new.what].add(new)


class _Open:
    """Statements by their words, and in the order of their words, so that a beginning finds them."""

    def __init__(self) -> None:
        self.statements: dict[str, Statement] = {}
        self._sorted: list[str] = []
        self._of_message: dict[int, list[str]] = {}

    def add(self, statement: Statement) -> None:
        key = same_words(statement.text)
        if key not in self.statements:  # the same once more changes nothing
            self.statements[key] = statement
            insort(self._sorted, key)
            self._of_message.setdefault(statement.number, []).append(key)

    def remove(self, key: str) -> Statement:
        statement = self.statements.pop(key)
        del self._sorted[bisect_left(self._sorted, key)]
        self._of_message[statement.number].remove(key)
        return statement

    def named(self, text: str, more: bool = True) -> str:
        """The words of the one statement that a text names, or "". With `more`, the text may go on after them."""
        number = _NUMBER.match(text)
        if number is not None:
            keys, rest = self._of_message.get(int(number[1]), []), same_words(text[number.end() :])
            fitting = [key for key in keys if rest and key.startswith(rest)] or keys
            return fitting[0] if len(fitting) == 1 else ""
        words = same_words(text)
        if words in self.statements:
            return words
        fitting = self._beginning_with(words) if " " in words else []
        if more and not fitting:
            heads = (same_words(text[: end.start()]) for end in islice(_ENDS.finditer(text), MOST_ENDS))
            fitting = [head for head in dict.fromkeys(heads) if head in self.statements]
        return fitting[0] if len(fitting) == 1 else ""

    def _beginning_with(self, words: str) -> list[str]:
        """The first two of those that go on after these words: more than one is too many."""
        place = bisect_left(self._sorted, f"{words} ")
        return [key for key in self._sorted[place : place + 2] if key.startswith(f"{words} ")]


def same_words(text: str) -> str:
    """A text as it is compared with others."""
    return " ".join(text.casefold().split()).strip(" .,;:!*_`")
