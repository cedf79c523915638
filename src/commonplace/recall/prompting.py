"""A prompt out of parts, each of which can be switched off, and the words by which a person leaves memory out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from ..events import Event
from ..memory.items import Item
from ..memory.markdown import ordered
from ..memory.portions import Portion
from .data import as_name
from .packing import CountTokens, all_of

if TYPE_CHECKING:
    from .digests import Digest

PARTS = ("task", "inputs", "work", "nudges", "long_term", "digest", "recent", "changed")
"""The parts of a prompt, in their order."""
LONG_TERM = "## Long-term Memory"
RECENT = "## Recent Memory"
PREMISES = "## Changed Since You Were Told"
WORK = "## Work Focus"
NUDGES = "## Nudges"
MORE = "…"


class Prompt(str):
    """A text for a model, which knows its parts, the digest in it and what was left out."""

    parts: Mapping[str, str]
    digest: Digest | None
    left_out: Sequence[tuple[str, str]]

    @classmethod
    def of(
        cls, parts: Mapping[str, str], digest: Digest | None, left_out: Sequence[tuple[str, str]]
    ) -> Prompt:
        made = cls("\n\n".join(parts[name] for name in PARTS if parts.get(name)) + "\n")
        made.parts, made.digest, made.left_out = parts, digest, left_out
        return made

    @property
    def receipt_id(self) -> str | None:
        return None if self.digest is None else self.digest.receipt_id


class Focus(Protocol):
    """What a work has for a prompt: how things stand, and words that wait for whoever is prompted. Lines are data."""

    def lines(self) -> Sequence[tuple[str, str]]:
        """What matters most first: the id of what a line is about, and the line."""
        ...

    def waiting(self, changes: bool) -> Sequence[tuple[str, str]]:
        """The nudges that wait, the most urgent first; with `changes`, also of what was told and has changed since."""
        ...

    def deliver(self, ids: Sequence[str]) -> Sequence[str]:
        """Tell these: answers those that nobody was quicker to tell."""
        ...


class Room:
    """One budget for all parts of a prompt."""

    def __init__(self, max_chars: int | None, max_tokens: int | None, count: CountTokens) -> None:
        self._chars, self._tokens, self._count = max_chars, max_tokens, count

    def over(self, made: Mapping[str, str]) -> str:
        """Which budget the parts exceed, if they do."""
        text = Prompt.of(made, None, ())
        if self._chars is not None and len(text) > self._chars:
            return f"it has {len(text):,} characters, and the budget is {self._chars:,}"
        if self._tokens is not None and self._count(text) > self._tokens:
            return f"it has {self._count(text):,} tokens, and the budget is {self._tokens:,}"
        return ""

    def fitted(self, made: Mapping[str, str], name: str, build: Callable[[int], str], most: int) -> int:
        """The most that a part may be built with, up to `most`, so that everything fits; 0 if nothing does."""
        if not self.over({**made, name: build(most)}):
            return most
        least = 0
        while least < most:
            middle = (least + most + 1) // 2
            if self.over({**made, name: build(middle)}):
                most = middle - 1
            else:
                least = middle
        return least

    def left(self, made: Mapping[str, str], total: Portion, less: int = 0) -> Portion:
        """What is left for the last part, within what that may have anyway, and less so many tokens."""
        used = Prompt.of({**made, "digest": "x"}, None, ())
        chars, tokens = total.max_chars, total.max_tokens
        if self._chars is not None:
            chars = _least(chars, self._chars - len(used) + 1)
        if self._tokens is not None:
            tokens = _least(tokens, self._tokens - self._count(used) - less)
        return replace(total, max_chars=chars, max_tokens=tokens)


def _least(most: int | None, left: int) -> int:
    return max(0, left if most is None else min(most, left))


LONGEST_INSTRUCTION = 200
"""How many characters a sentence may have that leaves memory out: more says something else, too."""


@cache
def _quoted() -> re.Pattern[str]:
    """What a text only mentions: code, quotes, and lines that are marked as quoted."""
    return re.compile(r"(?s:```.*?(?:```|\Z))|`[^`\n]*`|\"[^\"\n]*\"|“[^“”\n]*”|«[^«»\n]*»|(?m:^[ \t]*>.*$)")


_SENTENCE_END = re.compile(r"\n|(?<=[.!?…])[\s)\]*_]+")
_BULLET = re.compile(r"^[-*+•]\s+")


@cache
def _instruction() -> re.Pattern[str]:
    """A whole sentence, in lower case and without commas, that says to leave memory out and nothing else."""
    memory = r"(?:(?:all|any|the|your|our|my|of|shared|long-term|past|previous|earlier|stored) )*+(?:memory|memories)"
    turn = "turn|time|task|one|question|request|answer|reply|response|message|prompt|step|call"
    around = (
        "please|kindly|just|also|and|but|so|then|ok|okay|thanks|thank you|now|here|today|once|at all|completely|entirely|"
        rf"this (?:time|turn)|for now|(?:for|in|on|during) (?:this|that|the current|the next|one) (?:{turn})|for this"
    )
    return re.compile(
        rf"(?:(?:{around}) )*+(?:"
        rf"(?:ignore|disregard) {memory}|"
        rf"(?:do not|don'?t) (?:use|consult|look at|rely on|read) {memory}|"
        rf"without (?:(?:using|consulting) )?{memory}|"
        r"(?:(?:use|take|with|in|start (?:with|from|in)|begin with) )?(?:a )?fresh context"
        rf")(?: (?:{around}))*+"
    )


def asks_to_ignore(text: str) -> str:
    """The sentence or line of a text that asks for memory to be left out and says nothing else, if there is one. A
    question, a heading and what is quoted ask for nothing."""
    for part in _SENTENCE_END.split(_quoted().sub(" ¶ ", text)):
        if len(part) > LONGEST_INSTRUCTION:
            continue
        sentence = _BULLET.sub("", part.strip()).strip("*_()[] ").rstrip(".!…,;: ")
        plain = " ".join(sentence.casefold().replace("’", "'").replace(",", " ").split())
        if _instruction().fullmatch(plain):
            return sentence
    return ""


def long_term_block(items: Sequence[Item], most: int) -> tuple[str, tuple[tuple[str, int], ...], str]:
    """What MEMORY.md holds, cut to so many characters: the block, the items that it shows whole, and what is to be
    said of the rest."""
    text, shown, lines = (
        "",
        list[tuple[str, int]](),
        [(one, f"- {all_of(one)}") for one in ordered(items)],
    )
    for item, line in lines:
        longer = f"{text}\n{line}" if text else line
        if len(longer) > most:
            room = most - len(text) - len(MORE) - 1
            text = (
                f"{text}\n{line[:room]}{MORE}" if text and room > len(MORE) else text or line[: max(0, most)]
            )
            break
        text = longer
        shown.append((item.id, item.position))
    left = len(lines) - len(shown)
    told = f"{left} of {len(lines)} do not fit into {most:,} characters" if left else ""
    return (f"{LONG_TERM}\n{text}" if text else ""), tuple(shown), told


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
