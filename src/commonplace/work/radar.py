"""Duplicate work: what another task, or something found before, covers already."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import log
from typing import TYPE_CHECKING, Literal

import msgspec

from ..access.rights import Rights, rights_of
from .alike import Verdict, Words, answered, compared
from .kinds import ADDED, DISCOVERED
from .reading import Reading
from .records import Discovery
from .tasks import Task
from .words import words_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from .verbs import Work

RECENT = 64
"""How many of the things that share a word are looked at, the most recent ones."""
CLOSEST = 32
"""How many of all these are compared: those that share the most, and the rarest words."""
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
        return overlaps_of(work, reading, rights, reading.task(id), Sharing(reading, rights.actor))


def overlaps_of(work: Work, reading: Reading, rights: Rights, task: Task, sharing: Sharing) -> list[Overlap]:
    words, rare, closest = Words(task.title, task.description), sharing.rarity, _closest(task, sharing)
    found = list[Overlap]()
    for other in reading.find_all([id for kind, id in closest if kind == ADDED]):
        if other is not None and other.status not in COVERS_NOTHING and not _linked(task, other):
            verdict = compared(words, Words(other.title, other.description), rare)
            found += _told("task", other.id, other.title, other.status, verdict)
    discoveries = [id for kind, id in closest if kind == DISCOVERED]
    for one in work._seen(Discovery, reading, rights, discoveries):
        found += _told("discovery", one.id, one.text, one.type, answered(words, Words(one.text), rare))
    return sorted(found, key=lambda one: (-one.score, one.id))


def _told(
    kind: Literal["task", "discovery"], id: str, text: str, status: str, verdict: Verdict
) -> Iterator[Overlap]:
    if verdict.score:
        yield Overlap(kind, id, text, status, round(verdict.score, 3), verdict.why)


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
    return sorted(shared, key=lambda one: (-shared[one], one))[:CLOSEST]


def _linked(task: Task, other: Task) -> bool:
    """Whether somebody has said how the two belong together: then neither covers the other."""
    ours, theirs = {*task.depends_on, task.parent}, {*other.depends_on, other.parent}
    return other.id in ours or task.id in theirs or (task.branch is not None and task.branch == other.branch)
