"""The context of a conversation as a text: what is known, then what was said, from the oldest turn to the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..memory.portions import Portions
from .lines import DigestLine
from .packing import CountTokens, Packed, estimated, pack_digest

TURN = "turn"
"""The kind of a line that is a turn of the conversation; every other line is an item."""
CONVERSATION = "Conversation so far:"
KNOWN = "Known:"
SAID = "Said:"


def pack_conversation(
    candidates: Sequence[DigestLine],
    budgets: Portions,
    count: CountTokens = estimated,
    *,
    nothing: str = "",
    kept: Sequence[DigestLine] = (),
    mark: str = "",
) -> Packed[DigestLine]:
    """Pack turns and items in the order of their worth; a turn goes in whole. In the text they stand in the order in
    which they were said."""
    return pack_digest(
        candidates, budgets, count, nothing=nothing, kept=kept, mark=mark, heading=CONVERSATION, uncut=TURN,
        ordered=_ordered,
    )  # fmt: skip


def _ordered(lines: Sequence[DigestLine]) -> list[str]:
    items = [line.line for line in lines if line.kind != TURN]
    turns = sorted((line for line in lines if line.kind == TURN), key=lambda line: line.place)
    return [*([KNOWN, *items] if items else ()), *([SAID, *_by_day(turns)] if turns else ())]


def _by_day(turns: Sequence[DigestLine]) -> Iterator[str]:
    """Turns under the days on which they were said."""
    day = ""
    for turn in turns:
        if turn.day != day:
            day = turn.day
            yield f"{day}:"
        yield turn.line
