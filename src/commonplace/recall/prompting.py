"""A prompt out of parts, each of which can be switched off, and the words by which a person leaves memory out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..events import Event
from ..memory.items import Item
from ..memory.markdown import ordered
from ..memory.portions import Portion
from .data import as_data
from .packing import Count, all_of

if TYPE_CHECKING:
    from .digests import Digest

PARTS = ("task", "inputs", "long_term", "digest", "recent", "changed")
"""The parts of a prompt, in their order."""
LONG_TERM = "## Long-term Memory"
RECENT = "## Recent Memory"
PREMISES = "## Changed Since You Were Told"
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


class Room:
    """One budget for all parts of a prompt."""

    def __init__(self, max_chars: int | None, max_tokens: int | None, count: Count) -> None:
        self._chars, self._tokens, self._count = max_chars, max_tokens, count

    def chars_left(self, made: Mapping[str, str], most: int) -> int:
        """How many characters another part may have, of as many as it might."""
        used = Prompt.of(made, None, ()) if made else ""
        if self._chars is not None:
            most = min(most, self._chars - len(used) - 2)
        if self._tokens is not None:
            most = min(most, (self._tokens - self._count(used) - 1) * 2)
        return max(0, most)

    def left(self, made: Mapping[str, str], total: Portion) -> Portion:
        """What is left of the budget for the last part, within what that may have anyway."""
        used = Prompt.of(made, None, ()) if made else ""
        chars, tokens = total.max_chars, total.max_tokens
        if self._chars is not None:
            free = max(0, self._chars - len(used) - 2)
            chars = free if chars is None else min(chars, free)
        if self._tokens is not None:
            free = max(0, self._tokens - self._count(used) - 1)
            tokens = free if tokens is None else min(tokens, free)
        return replace(total, max_chars=chars, max_tokens=tokens)

    def over(self, text: str) -> str:
        """Which budget a text exceeds, if it does."""
        if self._chars is not None and len(text) > self._chars:
            return f"it has {len(text):,} characters, and the budget is {self._chars:,}"
        if self._tokens is not None and self._count(text) > self._tokens:
            return f"it has {self._count(text):,} tokens, and the budget is {self._tokens:,}"
        return ""


_ABOUT_COMPUTERS = (
    "leak|usage|use|limit|error|warning|pressure|address|map|allocation|bound|safety|model|bank|card|footprint|"
    "consumption|issue|bug|pool"
)


@cache
def _words() -> re.Pattern[str]:
    memory = rf"(?:(?:all|any|the|your|our|my) )*(?:memory|memories)\b(?!\s+(?:{_ABOUT_COMPUTERS}))"
    return re.compile(
        rf"(?i)\bignore {memory}|\b(?:don['’]?t|do not|without) us(?:e|ing) {memory}|\bfresh context\b"
    )


def asks_to_ignore(text: str) -> str:
    """The words of a text that ask for memory to be left out, if there are some."""
    found = _words().search(text)
    return found[0] if found else ""


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


def changed_block(premises: Sequence[Event], now: Mapping[str, str]) -> str:
    """The lines that an agent has relied on and that no longer hold; `now` is what stands in their place."""
    lines = [_changed_line(one, now.get(one.id, "")) for one in premises if not one.erased]
    return "\n".join((PREMISES, *lines)) if lines else ""


def _changed_line(premise: Event, now: str) -> str:
    told = premise.payload
    where = f"line {told['line']} of digest {told['receipt']}" if told["line"] else "the long-term block"
    by = f" by {told['by']}" if told["by"] else ""
    said = f": {as_data(told['text'])}" if told["text"] else ""
    return f"- {told['item']} was {told['why']}{by}, {where}{said}{f' → now: {as_data(now)}' if now else ''}"
