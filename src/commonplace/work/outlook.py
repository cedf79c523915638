"""Whether a work goes on, and when to look again: what its workers ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from ..ledger.printing import Readable
from .people import lead_lease, next_step
from .reading import Reading
from .tasks import FINAL, Task

if TYPE_CHECKING:
    from .verbs import Work

AFTER_LEASE = 0.05
"""How many seconds after the end of a lease a waiting worker looks."""


class WorkOutlook(Readable, msgspec.Struct, frozen=True):
    """Whether a work is open, whether nothing in it can go on unless somebody decides (it has ended, or each of its
    tasks is final, has failed, or waits for one that has), its counts, whether somebody leads it, whether something has
    happened that no leader has dealt with, and after how many seconds a lease ends that somebody holds, or a task is to
    be tried again (None: nothing ends by itself). All as of one moment, because a leader may let a task be tried again
    between two looks."""

    open: bool
    over: bool
    counts: dict[str, int]
    led: bool
    unhandled: bool
    changes_in: float | None

    def __str__(self) -> str:
        return "nothing in it can go on by itself" if self.over else "it goes on"


def outlook_of(work: Work) -> WorkOutlook:
    with work._reading(None) as (reading, _):
        counts, info, unhandled = reading.counts, reading.info, next_step(reading) is not None
        over = not info.open or _is_over(reading, counts)
        held = [] if info.status == "paused" else list(reading.listed("in_progress", "later"))
        leases = reading.leases(held)
    led = False
    if info.led is not None:
        with work._ledger.reads() as reads:
            led = bool(reads.leases([lead_lease(work.id, info.led)]))
    if len(leases) < len(held):
        changes_in: float | None = AFTER_LEASE
    else:
        changes_in = min((lease.seconds + AFTER_LEASE for lease in leases.values()), default=None)
    return WorkOutlook(info.open, over, counts, led, unhandled, changes_in)


def _is_over(reading: Reading, counts: dict[str, int]) -> bool:
    if sum(counts.get(status, 0) for status in FINAL) >= counts.get("tasks", 0):
        return True
    if not counts.get("failed") or counts.get("in_progress") or counts.get("review"):
        return False
    if reading.first(("later", *reading.ready_for_somebody()), 1):
        return False
    return all_hang(list(reading.listed("failed", "blocked", "waiting", "assigned")))


def all_hang(tasks: Sequence[Task]) -> bool:
    """Whether each of these tasks has failed, or waits for one that has, by way of others or not."""
    below = dict[str, list[str]]()
    for task in tasks:
        for id in task.depends_on:
            below.setdefault(id, []).append(task.id)
    ahead = [task.id for task in tasks if task.status == "failed"]
    hanging = set(ahead)
    while ahead:
        fresh = [id for id in below.get(ahead.pop(), ()) if id not in hanging]
        hanging.update(fresh)
        ahead += fresh
    return len(hanging) == len(tasks)
