"""Curation without a model: what recurs in the daily logs is taken into long-term memory, with its lines cited."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from ..documents.document import log_path
from ..documents.verbs import Documents
from ..index.words import jaccard, tokens
from .likeness import FLAGGED, marks
from .remember import remember

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
    by_mark: dict[str, list[int]] = {}
    for line in lines:
        mine = tokens(line.text)
        if len(mine) < FEWEST_WORDS:
            continue
        near = {number for mark in marks(mine) for number in by_mark.get(mark.word, ())}
        group = next((number for number in sorted(near) if jaccard(mine, words[number]) >= FLAGGED), None)
        if group is None:
            group = len(groups)
            groups.append([])
            words.append(mine)
            for mark in marks(mine):
                by_mark.setdefault(mark.word, []).append(group)
        groups[group].append(line)
    return [
        Recurrence(lines[0].text, tuple(lines))
        for lines in groups
        if len({line.origin for line in lines}) >= ENOUGH
    ]


def curated(session: Session, days: int, dry_run: bool) -> dict[str, Any]:
    """Look through the last days, and keep what recurs. Answers what became of each, and why."""
    first = f"{datetime.now(UTC) - timedelta(days=days - 1):%Y-%m-%d}"
    documents = Documents(session)
    lines = [line for day in documents.days() if day >= first for line in _logged(documents, day)]
    found = []
    for recurrence in candidates(lines):
        cited = list(dict.fromkeys(line.cited for line in recurrence.lines))
        outcome: dict[str, Any] = {"text": recurrence.text, "citations": cited, "outcome": "proposed"}
        if not dry_run:
            parents = list(dict.fromkeys(line.event for line in recurrence.lines))
            result = remember(
                session, recurrence.text, shared=True, citations=cited, reason="it recurs in the daily logs",
                parents=parents, provenance={"source_kind": "system", "channel": "curate"},
            )  # fmt: skip
            outcome |= {"outcome": result.outcome, "reason": result.reason, "id": result.item_id}
        found.append(outcome)
    return {"days": days, "lines": len(lines), "found": found}


def _logged(documents: Documents, day: str) -> Iterator[LoggedLine]:
    for entry in documents.day(day):
        run = f", run {entry.run}" if entry.run else ""
        for number, text in enumerate(entry.text.splitlines(), 1):
            where = f"{log_path(day)} ({entry.written_at:%H:%M:%S} {entry.by}{run}, line {number})"
            yield LoggedLine(_BULLET.sub("", text).strip(), entry.id, where, entry.run or day)
