"""Leading a work: by lease, and so that the next one goes on where the last one was.

What has happened waits in the ledger until the leader has dealt with it: nudges first, then tasks that were
completed, those that failed, what was escalated. After that come the tasks that can be dispatched, and those that are
stuck. The leader acts under a fence: once somebody else has taken over, nothing that it does is accepted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from ..errors import BadInput, CommonplaceError, Conflict, Fenced, shown
from ..verbs import verb
from .info import WorkInfo, check_leads
from .people import next_step
from .reading import READY_FOR_MANY
from .records import Escalation, Nudge, nudge_for, record_of
from .tasks import Task
from .verbs import Work

if TYPE_CHECKING:
    from .reading import Reading

log = logging.getLogger("commonplace")

NAMES: tuple[str, ...] = ("nudge", "completed", "failed", "escalation")


class LeadStep(msgspec.Struct, frozen=True):
    """Something for the leader: what it is, the task or the words that it is about, and an id that stays the same
    if the next one has to deal with it again."""

    kind: Literal["nudge", "completed", "failed", "escalation", "ready", "stuck"]
    id: str
    task: Task | None = None
    nudge: Nudge | None = None
    escalation: Escalation | None = None
    place: tuple[int, int, str] | None = None


class Lead:
    """The lead of a work. Its verbs are those of the work, under the fence: `lead.add_task(…)`,
    `lead.task(id).assign(…)`."""

    def __init__(self, work: Work, agent: str, fence: int, lease: float) -> None:
        self.agent, self.fence, self.lease = agent, fence, lease
        self.work, self._session = Work(work._session, work.id, fence), work._session
        self._offered: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.work, name)

    @verb(repeatable=True)
    def heartbeat(self) -> None:
        """Stay in the lead for another lease. Raises Fenced if somebody else has it."""
        self.work._do("stay", self.agent, agent=self.agent, lease=self.lease)

    def _check(self, info: WorkInfo) -> None:
        """Raises Fenced unless the agent leads."""
        check_leads(info, self.agent, self.fence)

    @verb(repeatable=True)
    def resign(self) -> None:
        """Let somebody else lead at once."""
        if self.work.info().led == self.fence:  # otherwise somebody else leads already
            self.work._do("stay", self.agent, agent=self.agent, lease=0)

    def next(self) -> LeadStep | None:
        """What to deal with next, or None if there is nothing. Say `handled(step)` afterwards: until then, it comes
        again. Tasks that are ready, and that nobody was given yet, come once to each who leads; so do stuck ones.
        Raises Fenced if somebody else has taken the lead."""
        step = self.look(sorted(self._offered))
        if step is not None and step.place is None:
            self._offered.add(step.id)
        return step

    @verb
    def look(self, offered: Sequence[str] = ()) -> LeadStep | None:
        """What to deal with next, or None if there is nothing. What has happened comes until it was dealt with. Raises
        Fenced if somebody else has taken the lead.

        `offered` are the ids of ready and stuck tasks' steps that are known already."""
        known = frozenset(offered)
        while True:
            with self.work._reading(None) as (reading, _):
                self._check(reading.info)
                place = next_step(reading)
                step = None if place is None else self._step(reading, place)
            if step is not None:
                return step
            if place is None:
                break
            self._handled(place)  # there is nothing left to deal with
        self.work._look_after(None)
        with self.work._reading(None) as (reading, _):
            self._check(reading.info)
            ready = (reading.numbered(number) for number in reading.members(READY_FOR_MANY))
            return _first(known, "ready", ready) or _first(known, "stuck", self._stuck(reading))

    def _step(self, reading: Reading, place: tuple[int, int, str]) -> LeadStep | None:
        order, _, id = place
        if order in (1, 2):
            event = self.work._ledger.event(id)
            task = None if event is None else reading.find(event.payload.get("task_id", ""))
            return None if task is None else LeadStep(NAMES[order], id, task, place=place)  # type: ignore[arg-type]
        row = reading.views.get("work.records", self.work.id, id)
        if row is None or not row["said"]:
            return None
        if order == 0:
            nudge = nudge_for(reading, self.work._actor, {**row, "id": id})
            return LeadStep("nudge", id, nudge=nudge, place=place)
        task = reading.find(row["task"]) if row.get("task") else None
        if row.get("status") != "open":
            return None
        return LeadStep("escalation", id, task, escalation=record_of(Escalation, id, row), place=place)

    @staticmethod
    def _stuck(reading: Reading) -> list[Task]:
        """Tasks that nobody does anything about: blocked for a reason, or failed for good."""
        blocked = [task for task in reading.listed("blocked") if task.reason]
        return [*blocked, *reading.listed("failed")]

    def handled(self, step: LeadStep) -> None:
        """Say that a step was dealt with: nobody after this one has to. Raises Fenced if somebody else has taken the
        lead."""
        if step.place is None:  # whether a task is still ready or stuck says the task itself
            self._check(self.work.info())
        else:
            self.finish_step(step.place)

    @verb(repeatable=True)
    def finish_step(self, place: Sequence[Any]) -> None:
        """Say that what has happened at this place was dealt with. Raises Fenced if somebody else has taken the lead.

        `place` is that of the step."""
        match list(place):
            case [int(order), int(position), str(id)]:
                self._handled((order, position, id))
            case _:
                raise BadInput(
                    f"place {shown(place)} is not that of a step: give the one that look has answered"
                )

    def _handled(self, place: tuple[int, int, str]) -> None:
        self.work._do("handled", self.agent, step=place)

    @contextmanager
    def step(self) -> Iterator[LeadStep | None]:
        """The next step; it counts as handled when the block ends without an exception."""
        step = self.next()
        yield step
        if step is not None:
            self.handled(step)

    def wait(self, timeout: float = 1.0) -> None:
        """Sleep until something happens in the book, or for so many seconds, and stay in the lead."""
        until, head = monotonic() + timeout, self.work._session.ledger.head
        while (left := until - monotonic()) > 0:
            if self.work._ledger.store.wait(head, min(left, self.lease / 3)) > head:
                break
            self.heartbeat()
        self.heartbeat()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.resign()
        except CommonplaceError as error:
            log.warning("%s could not resign: %s", self.agent, error)

    def __repr__(self) -> str:
        return f"<Lead {self.fence} of {self.work.id!r} by {self.agent!r}>"


def _first(known: Collection[str], kind: Literal["ready", "stuck"], tasks: Iterable[Task]) -> LeadStep | None:
    """The first of these tasks that is not known as it is now."""
    steps = (LeadStep(kind, f"{kind}-{task.id}-{task.position}", task) for task in tasks)
    return next((step for step in steps if step.id not in known), None)


def orchestrate(
    work: Work,
    agent: str,
    handler: Callable[[Lead, LeadStep], Any],
    *,
    lease: float = 30.0,
    until: str = "done",
    stop: threading.Event | None = None,
) -> int:
    """Lead a work as soon as nobody else does, and let `handler(lead, step)` deal with each step, until the work is
    over ("done") or `stop` is set. Answers how many steps were dealt with. A step that was not finished when its leader
    died comes again to the next one, under the same id. While the handler works, heartbeats go out by themselves."""
    stopped, done = stop or threading.Event(), 0
    while not stopped.is_set() and not (until == "done" and _finished(work)):
        try:
            lead = work.lead(agent, lease=lease)
        except Conflict:
            if not work.info().open:
                break
            stopped.wait(min(1.0, lease / 4))
            continue
        with lead:
            try:
                done += _led(lead, handler, until, stopped)
            except Fenced as lost:
                log.warning("%s", lost)
    return done


def _finished(work: Work) -> bool:
    """Whether nothing is left for the leader: all tasks are final, and all that came of them was dealt with."""
    outlook = work.manage.outlook()
    return outlook.over and not (outlook.unhandled and outlook.open)


def _led(lead: Lead, handler: Callable[[Lead, LeadStep], Any], until: str, stopped: threading.Event) -> int:
    from .worker import beating, over

    done = 0
    with beating(lead):
        while not stopped.is_set():
            step = lead.next()
            if step is not None:
                handler(lead, step)
                lead.handled(step)
                done += 1
            elif until == "done" and over(lead.work):
                break
            else:
                lead.wait(min(1.0, lead.lease / 3))
    return done
