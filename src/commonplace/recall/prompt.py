"""A prompt out of parts, each of which can be switched off, in one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from ..access.masking import masked
from ..ledger.events import Event
from ..memory.portions import Portion
from .escaping import as_name
from .lines import DigestLine
from .packing import CountTokens, most_that_fits, over

if TYPE_CHECKING:
    from .digest import Digest

PARTS = ("task", "inputs", "work", "nudges", "long_term", "digest", "recent", "changed")
"""The parts of a prompt, in their order."""
RECENT = "## Recent Memory"
CHANGED = "## Changed Since You Were Told"
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
        prompt = cls(prompt_text(parts))
        prompt.parts, prompt.digest, prompt.receipt_id = parts, digest, receipt_id
        prompt.omitted, prompt.left_out = omitted, left_out
        return prompt


class Focused(NamedTuple):
    """What a prompt told of a work: so many lines, as of a position."""

    id: str
    position: int
    lines: int


class PromptDraft:
    """A prompt while it is put together: its parts so far, in one budget, what was left out, and for its receipt the
    events that its words come from and the parts as they may be kept."""

    def __init__(self, budget: Portion, count: CountTokens, at: int | None) -> None:
        self._budget, self._count, self.at = budget, count, at
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

    def over(self, **more: str) -> str:
        """Which budget the parts exceed, these included, if they do."""
        return over(self._budget, prompt_text({**self.parts, **more}), self._count)

    def most_that_fits(self, name: str, build: Callable[[int], str], most: int) -> int:
        """The largest size up to `most` that a part may be built with, so that everything fits; 0 if nothing does."""

        def fits(size: int) -> bool:
            return not self.over(**{name: build(size)})

        return most if fits(most) else most_that_fits(fits, 1, most - 1) or 0

    def add_lines(self, name: str, heading: str, lines: Sequence[str], sources: Sequence[str] = ()) -> int:
        """Add a part of lines under a heading, as many as fit. Returns how many these are."""
        number = self.most_that_fits(name, lambda size: headed(heading, lines[:size]), len(lines))
        self.add(name, headed(heading, lines[:number]), sources[:number])
        return number

    def room_for_digest(self, total: Portion, less_tokens: int = 0) -> Portion:
        """What is left for the last part, within what that may have anyway, and less so many tokens."""
        used = prompt_text({**self.parts, "digest": "x"})
        chars, tokens = total.max_chars, total.max_tokens
        if self._budget.max_chars is not None:
            chars = _least(chars, self._budget.max_chars - len(used) + 1)
        if self._budget.max_tokens is not None:
            tokens = _least(tokens, self._budget.max_tokens - self._count(used) - less_tokens)
        return replace(total, max_chars=chars, max_tokens=tokens)


def _least(most: int | None, left: int) -> int:
    return max(0, left if most is None else min(most, left))


def headed(heading: str, lines: Sequence[str]) -> str:
    """Lines under a heading; nothing if there are none."""
    return "\n".join((heading, *lines)) if lines else ""


def changed_lines(facts: Sequence[Event], now: Mapping[str, str]) -> list[str]:
    """What an agent has relied on and what no longer holds, a line each; `now` is what stands in its place."""
    return [_changed_line(fact.payload, now.get(fact.id, "")) for fact in facts]


def _changed_line(fact: Mapping[str, Any], now: str) -> str:
    place = f"line {fact['line']} of" if fact["line"] else "what stood beside"
    by = f" by {as_name(fact['by'])}" if fact["by"] else ""
    open_dispute = ", which nobody has settled" if fact["why"] == "disputed" else ""
    text = f": {fact['text']}" if fact["text"] else ""
    then = f" → now: {now}" if now else ""
    receipt = as_name(fact["receipt"])
    return (
        f"- {as_name(fact['item'])} was {fact['why']}{by}{open_dispute}, {place} digest {receipt}{text}{then}"
    )
