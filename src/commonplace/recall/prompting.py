"""A prompt out of parts, each of which can be switched off, and the words by which a person leaves memory out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..access.secrets import masked
from ..ledger.events import Event
from ..memory.portions import Portion
from .escaping import as_name
from .lines import DigestLine
from .packing import CountTokens, most_that_fits, over

if TYPE_CHECKING:
    from .digests import Digest

PARTS = ("task", "inputs", "work", "nudges", "long_term", "digest", "recent", "changed")
"""The parts of a prompt, in their order."""
RECENT = "## Recent Memory"
PREMISES = "## Changed Since You Were Told"
WORK = "## Work Focus"
NUDGES = "## Nudges"


def prompt_text(parts: Mapping[str, str]) -> str:
    """The parts of a prompt, in their order, as one text."""
    return "\n\n".join(parts[name] for name in PARTS if parts.get(name)) + "\n"


class Prompt(str):
    """A text for a model, which knows its parts, the digest in it, what was left out (`omitted`: of items) and the
    receipt that gives it again."""

    parts: Mapping[str, str]
    digest: Digest | None
    omitted: Sequence[tuple[str, str]]
    left_out: Sequence[tuple[str, str]]
    receipt_id: str | None

    @classmethod
    def of(
        cls,
        parts: Mapping[str, str],
        digest: Digest | None,
        omitted: Sequence[tuple[str, str]],
        left_out: Sequence[tuple[str, str]],
        receipt_id: str | None,
    ) -> Prompt:
        made = cls(prompt_text(parts))
        made.parts, made.digest, made.receipt_id = parts, digest, receipt_id
        made.omitted, made.left_out = omitted, left_out
        return made


class Focused(NamedTuple):
    """What a prompt told of a work: so many lines, as of a position."""

    id: str
    position: int
    lines: int


class Building:
    """A prompt while it is put together: its parts so far, in one budget, what was left out, and for its receipt the
    events that its words come from and the parts as they may be kept."""

    def __init__(self, room: Room, at: int | None) -> None:
        self.room, self.at = room, at
        self.parts: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        self.sources: list[str] = []
        self.shown: list[str] = []
        """The ids of the items, nudges, tasks and decisions that its parts show."""
        self.omitted: list[tuple[str, str]] = []
        self.left_out: list[tuple[str, str]] = []
        self.work: Focused | None = None
        self.block: Sequence[DigestLine] = ()
        self.block_chars = 0

    def add(self, name: str, text: str, sources: Sequence[str] = (), kept: str | None = None) -> None:
        """Add a part. `kept` is what a receipt may keep of it, if that is not all but secrets."""
        self.parts[name] = text
        if text:
            self.kept[name] = masked(text if kept is None else kept)
            self.sources += sources

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append((what, why))

    def fitted(self, name: str, build: Callable[[int], str], most: int) -> int:
        return self.room.fitted(self.parts, name, build, most)

    @property
    def over(self) -> str:
        return self.room.over(self.parts)


class Room:
    """One budget for all parts of a prompt."""

    def __init__(self, max_chars: int | None, max_tokens: int | None, count: CountTokens) -> None:
        self._budget, self._count = Portion(None, max_chars, max_tokens), count

    def over(self, made: Mapping[str, str]) -> str:
        """Which budget the parts exceed, if they do."""
        return over(self._budget, prompt_text(made), self._count)

    def fitted(self, made: Mapping[str, str], name: str, build: Callable[[int], str], most: int) -> int:
        """The most that a part may be built with, up to `most`, so that everything fits; 0 if nothing does."""

        def fits(size: int) -> bool:
            return not self.over({**made, name: build(size)})

        return most if fits(most) else most_that_fits(fits, 1, most - 1) or 0

    def left(self, made: Mapping[str, str], total: Portion, less: int = 0) -> Portion:
        """What is left for the last part, within what that may have anyway, and less so many tokens."""
        used = prompt_text({**made, "digest": "x"})
        chars, tokens = total.max_chars, total.max_tokens
        if self._budget.max_chars is not None:
            chars = _least(chars, self._budget.max_chars - len(used) + 1)
        if self._budget.max_tokens is not None:
            tokens = _least(tokens, self._budget.max_tokens - self._count(used) - less)
        return replace(total, max_chars=chars, max_tokens=tokens)


def _least(most: int | None, left: int) -> int:
    return max(0, left if most is None else min(most, left))


LONGEST_INSTRUCTION = 200
"""How many characters a sentence may have that leaves memory out: more says something else, too."""


@cache
def _quoted() -> re.Pattern[str]:
    """What a text only mentions: code, quotes, and lines that are marked as quoted."""
    return re.compile(r"(?s:```.*?(?:```|\Z))|`[^`\n]*`|\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|(?m:^[ \t]*>.*$)")


_SENTENCE_END = re.compile(r"(?<=[.!?…])[\s)\]*_]+")
_BULLET = re.compile(r"^(?:[-*+•]|(?:\d{1,3}|[A-Za-z])[.)])\s+")
_LABEL = re.compile(
    r"(?:please |important )?(?:task|request|question|prompt|user|please|note|notes|important|reminder|"
    r"rules?|instructions?|constraints?)",
    re.I,
)
"""What stands before a colon and asks for nothing by itself."""


@cache
def _instruction() -> re.Pattern[str]:
    """A whole sentence, in lower case and without commas, that says to leave memory out and nothing else."""
    whose = "all|any|the|your|our|my|of|shared|long-term|past|previous|earlier|stored"
    memory = rf"(?:(?:{whose}) )*+(?:memory|memories)(?: you have)?"
    turn = "turn|time|task|one|question|request|answer|reply|response|message|prompt|step|call"
    around = (
        "please|kindly|just|also|and|but|so|then|ok|okay|thanks|thank you|now|here|today|once|only|at all|completely|"
        rf"this (?:time|turn)|for now|(?:for|in|on|during) (?:this|that|the current|the next|one) (?:{turn})|for this"
    )
    given = "file|files|text|document|code|attachment|message|report|transcript|data|table|page"
    instead = rf"(?: (?:the|this|that|these|my) (?:attached )?(?:{given}))?"  # "just the file": `around` has the "just"
    return re.compile(
        rf"(?:(?:{around}) )*+(?:"
        rf"(?:ignore|disregard) {memory}|"
        rf"(?:do not|don'?t) (?:use|consult|look at|rely on|read) {memory}|"
        rf"(?:(?:answer|reply|respond) (?:(?:me|it|this|(?:this|the|my) (?:{turn})) )?)?"
        rf"without (?:(?:using|consulting) )?{memory}|"
        r"(?:(?:use|take|with|in|(?:start|work|begin) (?:with|from|in)) )?(?:a )?fresh context"
        rf")(?: (?:{around}))*+{instead}"
    )


def asks_to_ignore(text: str) -> str:
    """The sentence or line of a text that asks for memory to be left out and says nothing else, if there is one. A
    question, a heading, what is quoted, and a line that the one before it asks to work on ask for nothing."""
    before = ""
    for line in filter(None, map(str.strip, _quoted().sub(" ¶ ", text).splitlines())):
        worked_on = _asks_for_more(before) and not _BULLET.match(line)
        before = line
        for part in () if worked_on else _SENTENCE_END.split(line):
            if len(part) > LONGEST_INSTRUCTION:
                continue
            sentence = _BULLET.sub("", part.strip()).strip("*_()[] ").rstrip(".!…,;: ")
            plain = " ".join(sentence.casefold().replace("’", "'").replace(",", " ").split())
            if _instruction().fullmatch(plain):
                return sentence
    return ""


def _asks_for_more(line: str) -> bool:
    """Whether what a line asks to work on comes after it: "Translate to German:". A list says by itself what it is."""
    said = line.strip("*_# ")
    return said.endswith(":") and not _LABEL.fullmatch(said.rstrip(":*_ "))


def work_part(lines: Sequence[tuple[str, str]], number: int) -> str:
    """The first lines about a work as a part of a prompt."""
    return "\n".join((WORK, *(line for _, line in lines[:number]))) if number else ""


def changed_lines(premises: Sequence[Event], now: Mapping[str, str]) -> list[str]:
    """What an agent has relied on and what no longer holds, a line each; `now` is what stands in its place."""
    return [_changed_line(one, now.get(one.id, "")) for one in premises]


def _changed_line(premise: Event, now: str) -> str:
    told = premise.payload
    place = f"line {told['line']} of" if told["line"] else "what stood beside"
    where = f"{place} digest {as_name(told['receipt'])}"
    by = f" by {as_name(told['by'])}" if told["by"] else ""
    settled = ", which nobody has settled" if told["why"] == "disputed" else ""
    said = f": {told['text']}" if told["text"] else ""
    then = f" → now: {now}" if now else ""
    return f"- {as_name(told['item'])} was {told['why']}{by}{settled}, {where}{said}{then}"
