"""Curation without a model: what recurs in the daily logs is taken into long-term memory, with its lines cited."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ..index.words import jaccard, tokens
from ..ledger.checks import from_us
from .documents import Documents
from .items import marks
from .remembering import remember
from .similar import FLAGGED

if TYPE_CHECKING:
    from ..session import Session

_BULLET = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+(?:\*\*[^*]+\*\*: )?")
FEWEST_WORDS = 3
ENOUGH = 2
"""In how many different runs or on how many different days something must have been said."""


class LoggedLine(NamedTuple):
    text: str
    event: str
    cited: str
    origin: str


class Recurrence(NamedTuple):
    """Something that recurs, and where it was said."""

    text: str
    lines: tuple[LoggedLine, ...]


def candidates(lines: list[LoggedLine]) -> list[Recurrence]:
    """What was said, in nearly the same words, in different runs or on different days."""
    groups: list[list[LoggedLine]] = []
    words: list[frozenset[str]] = []
    under: dict[str, list[int]] = {}
    for line in lines:
        mine = tokens(line.text)
        if len(mine) < FEWEST_WORDS:
            continue
        near = {n for mark in marks(mine) for n in under.get(mark.word, ())}
        found = next((n for n in sorted(near) if jaccard(mine, words[n]) >= FLAGGED), None)
        if found is None:
            found = len(groups)
            groups.append([])
            words.append(mine)
            for mark in marks(mine):
                under.setdefault(mark.word, []).append(found)
        groups[found].append(line)
    return [
        Recurrence(group[0].text, tuple(group))
        for group in groups
        if len({line.origin for line in group}) >= ENOUGH
    ]


def curated(session: Session, days: int, dry_run: bool) -> dict[str, Any]:
    """Look through the last days, and keep what recurs. Answers what became of each, and why."""
    first = f"{datetime.now(UTC) - timedelta(days=days - 1):%Y-%m-%d}"
    lines = []
    for day in Documents(session).days():
        if day < first:
            continue
        for entry in Documents(session).day(day):
            for number, text in enumerate(entry.text.splitlines(), 1):
                said = _BULLET.sub("", text).strip()
                run = f", run {entry.run}" if entry.run else ""
                where = (
                    f"memory/{day}.md ({from_us(entry.time_us):%H:%M:%S} {entry.agent}{run}, line {number})"
                )
                lines.append(LoggedLine(said, entry.id, where, entry.run or day))
    found = []
    for one in candidates(lines):
        cited = list(dict.fromkeys(line.cited for line in one.lines))
        told: dict[str, Any] = {"text": one.text, "citations": cited, "outcome": "proposed"}
        if not dry_run:
            parents = list(dict.fromkeys(line.event for line in one.lines))
            kept = remember(
                session, one.text, shared=True, citations=cited, reason="it recurs in the daily logs", parents=parents,
                provenance={"source_kind": "system", "channel": "curate"},
            )  # fmt: skip
            told |= {"outcome": kept.outcome, "reason": kept.reason, "id": kept.item_id}
        found.append(told)
    return {"days": days, "lines": len(lines), "found": found}
