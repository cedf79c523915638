"""Duplicate work: what another task, or a discovery, covers already."""

from __future__ import annotations

from itertools import islice
from math import log
from typing import TYPE_CHECKING, Literal

import msgspec

from ..access.rights import Rights, rights_of
from ..memory.settings import settings_of
from .kinds import ADDED, DISCOVERED
from .listing import visible_records
from .reading import Reading
from .records import Discovery
from .tasks import Task
from .words import words_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from .verbs import Work

RECENT = 64
"""How many of the things that share a word are looked at, the most recent ones."""
RECENT_TASKS = 128
"""How many tasks are compared whether they share a word or not, the most recent ones."""
CLOSEST = 32
"""How many of the things that share words are compared: those that share the most, and the rarest words."""
NEAREST = 8
UNLIKELY = 0.1
"""Of all these, the embedder of the book compares so many, the most likely ones, and none that is as unlikely as this
by static vectors: a model takes some milliseconds for each text."""
COVERS_NOTHING = ("cancelled", "failed")


class Overlap(msgspec.Struct, frozen=True):
    """Something that may make a task needless: what it is, how alike the two are, from 0 to 1, and why."""

    kind: Literal["task", "discovery"]
    id: str
    text: str
    status: str
    score: float
    why: str = ""


def overlaps(work: Work, id: str, agent: str | None = None, at: At = None) -> list[Overlap]:
    """The most alike first, for the reader or for an agent's eyes."""
    with work._reading(at) as (reading, rights):
        if agent is not None:
            rights = rights_of(reading.now, agent)
        return overlaps_of(reading, rights, reading.task(id), Sharing(reading, rights.actor))


def overlaps_of(reading: Reading, rights: Rights, task: Task, sharing: Sharing) -> list[Overlap]:
    from .alike import SAME, embedder_for, likelihood, reason, text_of

    text = text_of(task.title, task.description)
    closest = _closest(task, sharing)
    others = [
        (text_of(other.title, other.description), Overlap("task", other.id, other.title, other.status, 0.0))
        for other in _tasks(reading, [id for kind, id in closest if kind == ADDED])
        if other.id != task.id and other.status not in COVERS_NOTHING and not _linked(task, other)
    ]
    others += [
        (text_of(item.text), Overlap("discovery", item.id, item.text, item.type, 0.0))
        for item in visible_records(
            Discovery, reading, rights, [id for kind, id in closest if kind == DISCOVERED]
        )
    ]
    at_first = [(likelihood(text, other, "static"), other, overlap) for other, overlap in others]
    possible = sorted((row for row in at_first if row[0] > UNLIKELY), key=lambda row: (-row[0], row[2].id))
    embedder = embedder_for(settings_of(reading.now).embedder) if possible else "static"
    alike = [
        msgspec.structs.replace(overlap, score=round(score, 3), why=reason(text, other))
        for _, other, overlap in possible[:NEAREST]
        if (score := likelihood(text, other, embedder)) > SAME
    ]
    return sorted(alike, key=lambda overlap: (-overlap.score, overlap.id))


def _tasks(reading: Reading, ids: list[str]) -> list[Task]:
    """The tasks with these ids, and the most recent ones of the work: the same may be meant in other words."""
    total = reading.counts.get("tasks", 0)
    recent = reading.all_numbered(range(max(0, total - RECENT_TASKS), total))
    known = {task.id for task in recent}
    older = reading.find_all([id for id in ids if id not in known])
    return [*(task for task in older if task is not None), *recent]


class Sharing:
    """What has a word, and how much the word tells: the fewer tasks and discoveries of this work have it, the more.
    Only what an actor may see is looked at and counted."""

    def __init__(self, reading: Reading, actor: str) -> None:
        self._reading, self._actor, self._known = reading, actor, dict[str, list[tuple[str, str]]]()
        self._total = reading.counts.get("tasks", 0) + RECENT

    def of(self, word: str) -> list[tuple[str, str]]:
        if word not in self._known:
            rows = self._reading.views.each("work.words", self._reading.work, word, reverse=True)
            visible = self._reading.visible(self._actor, ((kind, id) for _, (kind, id) in rows))
            self._known[word] = list(dict.fromkeys(islice(visible, RECENT)))
        return self._known[word]

    def rarity(self, word: str) -> float:
        return log(1 + self._total / max(1, len(self.of(word)))) / log(1 + self._total)


def _closest(task: Task, sharing: Sharing) -> list[tuple[str, str]]:
    """What shares words with a task, the closest first."""
    shared = dict[tuple[str, str], float]()
    for word in words_of(task.title, task.description):
        for kind, id in sharing.of(word):
            if id != task.id and kind in (ADDED, DISCOVERED):
                shared[kind, id] = shared.get((kind, id), 0.0) + sharing.rarity(word)
    return sorted(shared, key=lambda pair: (-shared[pair], pair))[:CLOSEST]


def _linked(task: Task, other: Task) -> bool:
    """Whether somebody has said how the two belong together: then neither covers the other."""
    ours, theirs = {*task.depends_on, task.parent}, {*other.depends_on, other.parent}
    return other.id in ours or task.id in theirs or (task.branch is not None and task.branch == other.branch)
