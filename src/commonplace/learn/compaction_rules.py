"""What must not be lost of a text: blockers, decisions and constraints that stand in lines of their own.

A line counts if it begins with one of a few labels, perhaps after a bullet or an emoji, or in bold:

    BLOCKER: Blocked by:         a blocker, until a later line says that it is resolved
    RESOLVED: Unblocked:         ends the blocker that it names
    DECISION:                    a decision. One of a person is approved; one of an agent when a person approves it
    APPROVED:                    approves the decision that it names, if a person says it
    REVERSED: REJECTED:          ends the decision that it names
    CONSTRAINT: SAFETY:          a constraint

A label alone on its line, or as a heading, is about the bullets below it. A line that ends something names it by the
number of its message (`#12`) or by its words: all of them, their beginning, or all of them and more after a mark such
as a comma. If it fits several, it ends none: a line that is kept in vain costs little, and one that is lost may not.

Without a label, sentences of instructions and of users count that forbid something ("Don't touch the lock file") or
always demand it, and those of users that hold something up ("Hold the release until Friday").
"""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

BLOCKER, DECISION, CONSTRAINT = "blocker", "decision", "constraint"
RESOLVED, PROPOSED, REVERSED = "resolved", "proposed", "reversed"
RULE, CONSENT = "rule", "consent"
"""A sentence that forbids or demands something; and a user's yes to what the agent said last."""

LABELS = {
    "blocker": BLOCKER, "blockers": BLOCKER, "blocked": BLOCKER, "resolved": RESOLVED, "unblocked": RESOLVED,
    "decision": PROPOSED, "decisions": PROPOSED, "approved": DECISION, "reversed": REVERSED, "rejected": REVERSED,
    "constraint": CONSTRAINT, "constraints": CONSTRAINT, "safety": CONSTRAINT,
}  # fmt: skip
IN_CAPITALS = frozenset({"blocked", "safety"})
"""Labels that begin with a capital, because programs print them without one: `blocked: 3`."""
NOTHING = frozenset({"", "none", "nothing", "no", "n/a", "-", "yes", "true", "false", "tbd"})
"""What stands after a label and says nothing."""

_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[ \]\s+)?(.*)")
_DONE = re.compile(r"\[[xX]\]\s")
_EMOJI = r"(?:[\u2190-\u2bff\u200d\u20e3\ufe0f\U0001f000-\U0001faff]{1,8}\s{0,4})?"
_WORDS = "|".join(LABELS)
_LABEL = re.compile(
    rf"{_EMOJI}[*_`]{{0,3}}{_EMOJI}(?:(?i:open|active|current)\s)?((?i:{_WORDS}))(?: by(?: [^:()]{{1,40}}?)?)?\s{{0,4}}"
    r"(?:\(([^()]{1,60})\))?[*_`]{0,3}\s{0,4}([:：]|(?<=\s)[-–—](?=\s))[*_`]{0,3}(.*)"
)
_HEADING = re.compile(
    rf"(?:#{{1,6}} {_EMOJI}[*_]{{0,3}}|[*_]{{2,3}})(?:open )?({_WORDS})[*_]{{0,3}}[:：]?[*_]{{0,3}}",
    re.IGNORECASE,
)
_APPROVED = re.compile(r"\(approved(?: by [^()]{1,60})?\)[.*_`]*$", re.IGNORECASE)
_NUMBER = re.compile(r"#(\d{1,15})\b[\s:,.-]*")
_ENDS = re.compile(r"[,;:.(]|\s[-–—]")
"""Where the name of something can end, and what is said about it begin."""
MOST_ENDS = 20
"""How many of these places are tried."""

# sentences without a label

_SENTENCES = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)\s+")
_QUOTED = re.compile(r"\s*(?:>|```|~~~)")
_NO = r"(?:do\s+not|don['’]?t)"
_BEGINS = r"(?:^|[,;:(–—]\s*|\s-\s|\b(?:please|just|should|must)\s+)"
_CLAUSE = rf"(?:{_BEGINS}|\b(?:and|but|or|so|then|also)\s+)"
_IDLE = r"(?!(?:mind|worry|bother|know|think|care|hesitate|believe|understand|remember|recall|see|get|have|you|we|i)\b)"
_FORBIDS = (
    rf"{_BEGINS}never\s+{_IDLE}\w|{_CLAUSE}(?:{_NO}|under\s+no\s+circumstances)\s+{_IDLE}\w"
    r"|\bmust(?:\s+not|n['’]t)\b(?!\s+have\b)|\bmust\s+(?:never|always|stay|remain)\b"
)
_BY_USER = re.compile(rf"{_FORBIDS}|^(?:please\s+)?always\s+\w", re.IGNORECASE)
_BY_SYSTEM = re.compile(
    rf"{_FORBIDS}|(?:{_CLAUSE}|\byou\s+)(?:never|always)\s+{_IDLE}\w|\b(?:is|are)\s+(?:never|not)\s+to\b"
    rf"|(?<!\byou )(?<!\bwe )(?<!\bi )(?<!\bthey )(?<!s )\b{_NO}\s+{_IDLE}\w|\bmust\b(?!\s+(?:not\s+)?have\b)"
    r"|\bunder\s+no\s+circumstances\b|\b(?:you|agents?|assistants?|nobody|no\s+one)\s+may\s+not\s+(?!be\b|have\b|know\b)",
    re.IGNORECASE,
)  # fmt: skip
_HOLDS = re.compile(
    r"(?:(?:please|ok(?:ay)?|and|but|also|so|then),?\s+){0,3}(?:hold|pause|wait|stop)\b.*\b(?:until|till)\b",
    re.IGNORECASE,
)
_CONSENTS = re.compile(
    r"\W{0,3}(?:(?:yes|yep|yeah|ok(?:ay)?|sure|great|good|perfect|fine|thanks)\b[\s,.!]*)*"
    r"(?:approved?|i\s+approve|go\s+ahead|lgtm|agreed|confirmed|sounds\s+good|do\s+(?:it|that))\b([^\n]{0,200})",
    re.IGNORECASE,
)
_CONDITION = re.compile(
    r"\b(?:but|except|only|if|unless|once|after|when|until|not|without|instead|later)\b|[:?]"
)


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


def statements(text: str, role: str = "") -> Iterator[tuple[str, str]]:
    """The lines of a text that count: what each is, and its words. Without a `role`, it is a document."""
    above, quoted = "", False
    consents = _CONSENTS.match(text) if role == "user" else None
    if consents is not None and not _CONDITION.search(_SENTENCES.split(consents[1])[0].casefold()):
        yield CONSENT, ""
    for line in text.splitlines():
        bullet = _BULLET.fullmatch(line)
        words = (bullet[1] if bullet else line).strip()
        label, heading = _label(words), None if bullet else _HEADING.fullmatch(words)
        quoted ^= line.lstrip().startswith(("```", "~~~"))
        if heading is not None:
            above = LABELS[heading[1].casefold()]
        elif label is not None:
            what, words = LABELS[label[1].casefold()], label[4].strip()
            above = "" if words else what
            yield from _said(what, words, role, (label[2] or "").casefold())
        elif bullet and above:
            yield from () if _DONE.match(words) else _said(above, words, role)
        else:
            above = above if bullet or not words else ""
            if role in ("user", "system") and not quoted and not _QUOTED.match(line):
                yield from _unlabelled(words, role)


def _label(words: str) -> re.Match[str] | None:
    label = _LABEL.match(words)
    if label is None or (label[1].islower() and label[1] in IN_CAPITALS and "blocked by:" not in words):
        return None
    return label if label[3] in ":：" or label[1].isupper() else None


def _said(what: str, words: str, role: str, mark: str = "") -> Iterator[tuple[str, str]]:
    if what in (PROPOSED, DECISION):
        by_person = role in ("user", "system") and mark != "not approved"
        approved = what == DECISION or mark.startswith("approved") or _APPROVED.search(words) or by_person
        # an agent cannot approve: only a person, or what is on file as approved
        what = DECISION if approved and role != "assistant" and "(not approved)" not in words else PROPOSED
        words = _APPROVED.sub("", words).strip()
    if words.casefold().rstrip(".") not in NOTHING:
        yield what, words


def _unlabelled(line: str, role: str) -> Iterator[tuple[str, str]]:
    for sentence in _SENTENCES.split(line):
        if sentence.endswith("?"):
            continue
        if role == "user" and _HOLDS.match(sentence):
            yield BLOCKER, sentence
        elif (_BY_USER if role == "user" else _BY_SYSTEM).search(sentence):
            yield RULE, sentence


class Standing:
    """What holds after all that was said: the statements of each kind that nothing later has ended, and what was."""

    def __init__(self, said: Iterable[Statement]) -> None:
        self.ended: list[tuple[Statement, Statement]] = []
        """What was ended, and what has ended it."""
        self.fits_nothing: list[Statement] = []
        """What ends nothing, because it names nothing that is open, or more than one."""
        self._open = {what: _Open() for what in (BLOCKER, DECISION, PROPOSED, CONSTRAINT, RULE)}
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
            self.fits_nothing.append(new)
            return
        if new.what == CONSENT:
            for key in self._open[PROPOSED].of_message(new.number):
                self._open[DECISION].add(self._open[PROPOSED].remove(key)._replace(what=DECISION))
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

    def of_message(self, number: int) -> list[str]:
        return list(self._of_message.get(number, ()))

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
