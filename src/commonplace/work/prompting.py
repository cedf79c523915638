"""What a work adds to a prompt: its status, the tasks of the prompted actor, and the nudges that wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ..access.rights import OWNER, Rights
from ..errors import BadInput, shown
from ..ledger.checks import check_name
from ..recall.escaping import as_data, as_name
from .info import WorkInfo
from .kinds import NUDGED
from .listing import latest, visible_records
from .people import carried, in_order, nudge_line, premise_nudge, waiting
from .reading import Reading
from .records import Approval, Decision, Nudge, nudge_for
from .tasks import Task
from .verbs import Work

if TYPE_CHECKING:
    from ..ledger.ledger import At, Ledger
    from ..session import Session

MOST = 3
"""How many tasks, blockers and decisions a prompt names."""
LOOKED_AT = 12
"""Among how many of the latest decisions those are that are shown."""
DONE = ("completed", "cancelled")


class WorkFocus:
    """One work as the prompts of one actor show it: the reader, or an agent that the owner speaks for."""

    def __init__(self, work: Work, agent: str | None = None, tells: bool = True) -> None:
        """Unless it `tells` for good, nothing is written."""
        self._work, self._actor = work, agent or work._actor
        self._tells = tells and not work._looks

    @property
    def id(self) -> str:
        return self._work.id

    def lines(self, at: At = None) -> tuple[list[tuple[str, str]], int]:
        with self._work._reading(at) as (reading, rights):
            mine = self._mine(reading)
            lines = [
                *_standing(reading.info, reading.counts),
                *_tasks(mine),
                *self._blockers(reading, rights, mine),
                *self._decided(reading, rights, mine),
            ]
            return lines, reading.views.position

    def _mine(self, reading: Reading) -> list[Task]:
        """What this actor holds, or else what is assigned to it."""
        for status in ("in_progress", "assigned"):
            tasks = [task for task in reading.listed(status) if task.assigned_to == self._actor]
            if tasks:
                return tasks
        return []

    def _blockers(self, reading: Reading, rights: Rights, mine: Sequence[Task]) -> Iterator[tuple[str, str]]:
        """What holds up this actor's own tasks first, then those that somebody has to clear the way for."""
        waits = reading.find_all([id for task in mine for id in task.depends_on])
        open_ = [task for task in waits if task is not None and not task.satisfied]
        stuck = (task for task in reading.listed("blocked") if task.reason)
        for other in {task.id: task for task in islice((*open_, *islice(stuck, MOST)), MOST)}.values():
            why = f": {as_data(other.reason)}" if other.reason else ""
            yield other.id, f"- Blocker: {as_data(other.title)} ({other.status}){why}"
        rows = reading.views.each("work.pending", reading.work, "approval")
        asked_for = reading.visible(rights.actor, (("", str(key[3])) for key, _ in rows))
        for asked in visible_records(Approval, reading, rights, [id for _, id in islice(asked_for, MOST)]):
            yield asked.id, f"- Blocker: {as_data(asked.action)} waits for an approval"

    def _decided(self, reading: Reading, rights: Rights, mine: Sequence[Task]) -> Iterator[tuple[str, str]]:
        """The latest decisions that hold, those about its own tasks first."""
        decisions = latest(Decision, LOOKED_AT, reading, rights)
        own = {task.id for task in mine}
        hold = [
            decision
            for decision in decisions
            if decision.reversed_by is None and decision.status != "rejected"
        ]
        for decision in sorted(hold, key=lambda decision: not own & set(decision.affects))[:MOST]:
            why = f", because {as_data(decision.rationale)}" if decision.rationale else ""
            text = f"{as_data(decision.question)} {as_data(decision.choice)}{why} ({as_name(decision.by)})"
            yield decision.id, f"- Decided: {text}"

    # nudges

    def waiting(self, changes: bool, at: At = None) -> list[tuple[str, str]]:
        return [(nudge.id, f"- {nudge_line(nudge)}") for nudge in self.nudges(changes, at)]

    def nudges(self, changes: bool, at: At = None) -> list[Nudge]:
        """What this actor is to be told now, or was to be told then; it waits on until it is delivered."""
        if self._actor == OWNER:
            return []  # the owner itself does no tasks
        if changes and at is None and self._tells:
            self._work._session.services.fact_watch.look()
            with self._work._reading(None) as (reading, _):
                news = reading.views.scan("recall.news", self._actor, reading.views.scope, limit=1)
            if news:
                self._take(())
        with self._work._reading(at) as (reading, _):
            tasks, leads = self._held(reading), reading.info.leader == self._actor
            fresh = waiting(reading, self._actor, leads, "turn" if tasks else "idle")
            rows = in_order([*fresh, *carried(reading, tasks, self._actor, fresh, None)])
            return [nudge_for(reading, self._actor, row) for row in rows if changes or "premise" not in row]

    def deliver(self, ids: Sequence[str]) -> list[str]:
        """Mark nudges as told. An actor that only looks is shown them, and nothing is marked."""
        return [nudge.id for nudge in self._take(tuple(ids))] if self._tells else list(ids)

    def _take(self, ids: tuple[str, ...]) -> list[Nudge]:
        with self._work._reading(None) as (reading, _):
            tasks = self._held(reading)
        return self._work._told(self._actor, tuple(tasks), "turn" if tasks else "idle", ids)

    def _held(self, reading: Reading) -> list[str]:
        return [task.id for task in reading.listed("in_progress") if task.assigned_to == self._actor]


def focus_of(session: Session, work: object, tells: bool = True) -> WorkFocus:
    """A work as the prompts of this session's actor show it. Raises NotFound if it may not know of that work."""
    if not isinstance(work, str | Work):
        raise BadInput(f"work {shown(work)} is none: give a work, or its id")
    own = Work(session, work.id if isinstance(work, Work) else check_name("work", work))
    own.info()
    return WorkFocus(own, tells=tells)


def was_nudged_of(ledger: Ledger, actor: str, premise: str) -> bool:
    """Whether an actor has been told of a change by a nudge."""
    nudge = premise_nudge(premise)
    event = ledger.event(nudge)
    if event is None or event.kind != NUDGED or event.erased:
        return False
    with ledger.snapshot() as now:
        return now.get("work.told", event.payload["work"], actor, nudge) is not None


def _standing(info: WorkInfo, counts: dict[str, int]) -> Iterator[tuple[str, str]]:
    yield info.id, f"- Goal: {as_data(info.goal or info.name)}"
    done = sum(counts.get(status, 0) for status in DONE)
    doing = f", {counts['in_progress']:,} in progress" if counts.get("in_progress") else ""
    failed = f", {counts['failed']:,} failed" if counts.get("failed") else ""
    why = f" ({as_data(info.reason)})" if info.reason else ""
    status = f"{info.status}{why}, {done:,} of {counts.get('tasks', 0):,} tasks done{doing}{failed}"
    yield info.id, f"- Status: {status}"


def _tasks(mine: Sequence[Task]) -> Iterator[tuple[str, str]]:
    for task in mine[:MOST]:
        about = f": {as_data(task.description)}" if task.description else ""
        yield task.id, f"- My task: {as_data(task.title)} ({task.status}, priority {task.priority}){about}"
        for comment in task.comments[-1:]:
            yield task.id, f"- Reviewer: {as_data(comment)}"
