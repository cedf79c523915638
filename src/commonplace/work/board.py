"""A work at a glance, for people who look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..ledger.printing import Readable
from .info import WorkInfo
from .listing import latest, pending
from .reading import Reading, lease_name
from .records import Approval, Branch, Decision, Escalation
from .tasks import FINAL, Task

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from .verbs import Work

LATEST = 5
"""How many decisions and completed tasks are shown, the latest ones."""
LOOKED_AT = 64
"""How many decisions are looked at for that."""
ALL_READ = 2_000
"""Up to how many tasks a work may have for those to be looked for that were completed last."""
NEEDS = 50
"""How many of the tasks that one depends on are looked at."""


class Board(Readable, msgspec.Struct, frozen=True):
    """A work as of some moment. `tasks` are the first ones of each kind: in_progress, review, failed, ready, blocked
    (whatever they wait for), and those completed last; `totals` says how many there are of each."""

    work: WorkInfo
    counts: dict[str, int]
    progress: float
    """Which part of the tasks is completed or cancelled, from 0 to 1."""
    tasks: dict[str, tuple[Task, ...]]
    totals: dict[str, int]
    waits_for: dict[str, tuple[str, ...]]
    """What each blocked task waits for, in words."""
    leases: dict[str, float]
    """For how many seconds each task is still its holder's. One whose holder is not heard of any more has none."""
    approvals: tuple[Approval, ...]
    branches: tuple[Branch, ...]
    escalations: tuple[Escalation, ...]
    decisions: tuple[Decision, ...]
    as_of: int

    def __str__(self) -> str:
        parts = [f"{count:,} {name.replace('_', ' ')}" for name, count in self.totals.items() if count]
        return f"{self.work.name} is {self.work.status}, {self.progress:.0%} done: {', '.join(parts) or 'no tasks'}"


def board_of(work: Work, limit: int, at: At) -> Board:
    with work._reading(at) as (reading, rights):
        info, counts = reading.info, reading.counts
        groups = {
            "in_progress": list(reading.members(["in_progress"])),
            "review": list(reading.members(["review"])),
            "failed": list(reading.members(["failed"])),
            "ready": list(reading.members(reading.ready_for_somebody())),
            "blocked": list(reading.members(["blocked", "waiting", "later", "assigned"])),
        }
        placed = set[int]()
        for name, numbers in groups.items():
            groups[name] = [number for number in numbers if number not in placed]
            placed |= set(numbers)
        tasks = {
            name: tuple(map(reading.numbered, numbers[:limit])) for name, numbers in groups.items() if numbers
        }
        waits_for = {task.id: _waits_for(reading, task) for task in tasks.get("blocked", ())}
        done = _completed(reading) if 0 < counts.get("tasks", 0) <= ALL_READ else ()
        decisions = latest(Decision, LOOKED_AT, reading, rights)
        approvals = pending(Approval, reading, rights)
        branches = pending(Branch, reading, rights)
        escalations = pending(Escalation, reading, rights)
        position = reading.views.position
    total = counts.get("tasks", 0)
    return Board(
        info,
        counts,
        sum(counts.get(status, 0) for status in FINAL) / total if total else 0.0,
        {**tasks, **({"completed": done} if done else {})},
        {**{name: len(numbers) for name, numbers in groups.items()}, "completed": counts.get("completed", 0)},
        waits_for,
        _leases(work, tasks.get("in_progress", ())) if at is None else {},
        approvals,
        branches,
        escalations,
        tuple([decision for decision in decisions if decision.reversed_by is None][:LATEST]),
        position,
    )


def _waits_for(reading: Reading, task: Task) -> tuple[str, ...]:
    needs = [other for other in reading.find_all(task.depends_on[:NEEDS]) if other and not other.satisfied]
    reasons = [task.reason] if task.reason else []
    reasons += [task.title for task in needs]
    if len(task.depends_on) <= NEEDS and task.waits > len(needs):
        reasons.append("somebody's word")
    return (*reasons, *(("its next try",) if task.later else ()))


def _completed(reading: Reading) -> tuple[Task, ...]:
    done = sorted(
        (task for task in reading.all if task.status == "completed"), key=lambda task: task.position
    )
    return tuple(done[-LATEST:][::-1])


def _leases(work: Work, tasks: tuple[Task, ...]) -> dict[str, float]:
    names = {lease_name(task): task.id for task in tasks}
    with work._ledger.reads() as reads:
        return {names[name]: round(lease.seconds, 1) for name, lease in reads.leases(list(names)).items()}
