"""Patterns of successful completion, over all works: how sure each is, and which are proposed as skills."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..access.rights import role_of
from ..errors import NotFound
from ..ledger.checks import check_name
from ..ledger.events import MAX_PARENTS
from ..ledger.printing import Listing, Readable, number
from ..ledger.reader import ViewReader
from ..memory.items import Held
from ..memory.judging import DECLINED
from ..memory.remember import remember_or_hold
from ..memory.requests import RememberResult
from ..verbs import WorkId
from ..work.candidates import OFTEN, Candidate, completion_events, shared_steps
from ..work.opening import Works
from ..work.opening import work as work_of
from ..work.tasks import Task
from .evidence import confidence

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from ..work.verbs import Work

SKILL = 0.85
"""From which confidence on a pattern is proposed as a skill."""


class Pattern(Readable, msgspec.Struct, frozen=True):
    """A step that three or more tasks share that were completed, in any of the works: how sure it is, and why."""

    id: str
    text: str
    confidence: float
    occurrences: int
    origins: tuple[str, ...]
    """Who completed tasks with it, in which works."""
    roles: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    """Tasks with it that have failed."""
    works: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def is_skill(self) -> bool:
        """Whether it is sure enough to be proposed as a skill."""
        return self.confidence >= SKILL

    def __str__(self) -> str:
        parts = [number(self.occurrences, "completed task"), number(len(self.origins), "origin")]
        parts += [f"{len(self.against)} failed"] if self.against else []
        return f"{self.confidence:.2f}  {self.text} ({', '.join(parts)})"


class Patterns(Listing[Pattern], msgspec.Struct, frozen=True):
    """The patterns, the surest first."""

    ENTRIES = "patterns"

    patterns: tuple[Pattern, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.patterns)) or f"no step is shared by {OFTEN} or more completed tasks"


def patterns(session: Session, work: WorkId | None = None, at: At = None) -> Patterns:
    """The steps that three or more completed tasks share, over all works that this actor may know of, the surest first.

    `work` is the work to look at alone."""
    return Patterns(tuple(pattern for pattern, _ in _patterns(session, work, at)))


def _patterns(session: Session, work: str | None, at: At) -> list[tuple[Pattern, list[Work]]]:
    work = None if work is None else check_name("work", work)
    infos = Works(session).list(at=at)
    chosen = [info for info in infos if work in (None, info.id)]
    if work is not None and not chosen:
        raise NotFound(f"there is no work {work!r}: works.list() names them")
    handles = {info.id: work_of(session, info.id) for info in chosen}
    names = {info.id: info.name for info in chosen}
    completed = [task for handle in handles.values() for task in handle.tasks("completed", at=at)]
    failed = shared_steps(task for handle in handles.values() for task in handle.tasks("failed", at=at))
    judged = set[str]()
    for handle in handles.values():
        with handle._reading(at) as (reading, _):
            judged |= {str(key[1]) for key, _ in reading.views.scan("work.judged", handle.id)}
    found: list[tuple[Pattern, list[Work]]] = []
    with session.viewer(at) as viewer:
        for id, each in shared_steps(completed).items():
            tasks = {task.id: task for task, _ in each}
            if len(tasks) >= OFTEN and id not in judged:
                against = dict.fromkeys(task.id for task, _ in failed.get(id, ()))
                pattern = _pattern(viewer.views, id, each[0][1], tasks, tuple(against), names)
                found.append((pattern, [handles[name] for name in pattern.works]))
    return sorted(found, key=lambda pair: (-pair[0].confidence, pair[0].id))


def _pattern(
    views: ViewReader,
    id: str,
    text: str,
    tasks: dict[str, Task],
    against: tuple[str, ...],
    names: dict[str, str],
) -> Pattern:
    doers = dict.fromkeys((task.assigned_to or task.by, task.work) for task in tasks.values())
    roles = (role_of(views, doer) for doer, _ in doers)
    known = tuple(dict.fromkeys(role for role in roles if role is not None))
    return Pattern(
        id, text, confidence(len(doers), len(tasks), len(known), len(against)), len(tasks),
        tuple(f"{doer} in {names[where]}" for doer, where in doers), known, against,
        tuple(dict.fromkeys(where for _, where in doers)), tuple(tasks),
    )  # fmt: skip


class ProposedSkills(Listing[Pattern], msgspec.Struct, frozen=True):
    """The patterns that are sure enough, what became of each, and which were left out because only the members of a
    work may know of them."""

    ENTRIES = "patterns"

    patterns: tuple[Pattern, ...]
    results: tuple[RememberResult, ...] = ()
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [str(pattern) for pattern in self.patterns]
        lines += [f"not proposed: {result.reason}" for result in self.results if result.outcome == "rejected"]
        lines += [f"left out: {text} (only members may know of its work)" for text in self.left_out]
        return "\n".join(lines) or f"no pattern has a confidence of {SKILL} or more"


def propose_skills(session: Session, *, dry_run: bool = False) -> ProposedSkills:
    """Propose a skill for each pattern whose confidence is 0.85 or more: a procedure that waits in the inbox until a
    librarian or person creates it. Repeating it proposes nothing twice, and what was declined is not proposed again."""
    chosen, results, left_out = list[Pattern](), list[RememberResult](), list[str]()
    for pattern, works in _patterns(session, None, None):
        if not pattern.is_skill:
            continue
        if any(handle.info().members for handle in works):
            left_out.append(pattern.text)
            continue
        chosen.append(pattern)
        if not dry_run:
            step = Candidate(pattern.id, "pattern", pattern.text, "", None, pattern.tasks)
            results.append(_proposed_skill(session, step, works))
    return ProposedSkills(tuple(chosen), tuple(results), tuple(left_out))


def _proposed_skill(session: Session, step: Candidate, works: Sequence[Work]) -> RememberResult:
    parents = [event for handle in works for event in completion_events(handle, step)]
    return remember_or_hold(
        session, Held("proposal"), DECLINED, text=step.text, kind="procedure", shared=True,
        parents=parents[-MAX_PARENTS:], reason="a pattern of successful completion",
        override="a pattern of successful completion",
    )  # fmt: skip
