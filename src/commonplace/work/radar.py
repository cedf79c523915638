"""Duplicate work: what another task, or something found before, covers already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from .desk import Reading
from .people import DISCOVERED
from .tasks import Task
from .things import Discovery
from .words import words_of

if TYPE_CHECKING:
    from .verbs import Work

RECENT = 64
"""How many of the things that share a word are looked at, the most recent ones."""
ALIKE = 0.5
"""From which likeness on something may cover a task."""


class Overlap(msgspec.Struct, frozen=True):
    """Something that may make a task needless: what it is, and how alike the two are, from 0 to 1."""

    kind: Literal["task", "discovery"]
    id: str
    text: str
    status: str
    score: float


def overlaps(work: Work, id: str) -> list[Overlap]:
    """The most alike first."""
    with work._reading(None) as (reading, rights):
        task = reading.task(id)
        words = frozenset(words_of(task.title))
        found = list[Overlap]()
        for kind, other in _sharing(reading, words):
            if kind == "task.added" and other != task.id:
                found += _of_task(reading.task(other), words)
            elif kind == DISCOVERED:
                for one in work._seen(Discovery, reading, rights, [other]):
                    found += _if_alike("discovery", one.id, one.text, one.type, words)
    return sorted(found, key=lambda one: (-one.score, one.id))


def _sharing(reading: Reading, words: frozenset[str]) -> dict[tuple[str, str], None]:
    found = dict[tuple[str, str], None]()
    for word in sorted(words):
        for _, (kind, id) in reading.lens.scan("work.words", reading.work, word, limit=RECENT, reverse=True):
            found[kind, id] = None
    return found


def _of_task(other: Task, words: frozenset[str]) -> list[Overlap]:
    return (
        [] if other.status == "cancelled" else _if_alike("task", other.id, other.title, other.status, words)
    )


def _if_alike(
    kind: Literal["task", "discovery"], id: str, text: str, status: str, words: frozenset[str]
) -> list[Overlap]:
    theirs = frozenset(words_of(text))
    score = len(words & theirs) / max(1, min(len(words), len(theirs)))
    return [Overlap(kind, id, text, status, round(score, 3))] if score >= ALIKE else []
