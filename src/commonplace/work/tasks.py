"""Tasks: what they are made of, which status may follow which, and what happens when one fails."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from ..errors import BadMove, Conflict
from ..ledger.checks import from_us
from ..ledger.matching import ERASED_NAME
from ..ledger.printing import Readable

Status = Literal[
    "pending", "assigned", "in_progress", "blocked", "review", "completed", "failed", "cancelled"
]

MOVES: dict[str, tuple[str, ...]] = {
    "pending": ("assigned", "blocked", "cancelled"),
    "assigned": ("in_progress", "pending", "cancelled"),
    "in_progress": ("review", "completed", "failed", "blocked", "pending", "cancelled"),
    "blocked": ("pending", "cancelled"),
    "review": ("completed", "in_progress", "failed"),
    "failed": ("pending", "cancelled"),
    "completed": (),
    "cancelled": (),
}
"""Which status may follow which. Completed and cancelled are final. A claim of a pending task passes through
assigned."""

STATUSES = tuple(MOVES)
FINAL = frozenset({"completed", "cancelled"})

ARTIFACT_TYPES = ("file", "code", "document", "config", "test", "migration", "schema")


BY_HAND = "by hand"
"""In place of a policy: somebody lets a failed task be tried again."""


class OnFailure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happens when a task has failed. retry: it is done again, at most `retries` times, each time after twice the
    back-off; reassign: the same by somebody else; escalate: it stays failed and somebody is asked; skip: it is
    cancelled, and what waits for it goes on without; abort: the whole work is cancelled. `then` is what happens when
    there are no retries left."""

    policy: Literal["retry", "reassign", "escalate", "skip", "abort"] = "escalate"
    retries: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 3
    backoff: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 1.0
    then: Literal["escalate", "skip", "abort"] = "escalate"

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        return float(min(self.backoff * 2 ** min(failures - 1, 30), 86_400))


class TaskResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of a task."""

    summary: str = ""
    next_steps: tuple[str, ...] = ()
    learnings: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()


class Task(Readable, msgspec.Struct, frozen=True, omit_defaults=True):
    """A task as of some moment."""

    id: str
    work: str
    number: int
    title: str = ""
    description: str = ""
    status: Status = "pending"
    priority: int = 0
    depends_on: tuple[str, ...] = ()
    waits: int = 0
    """How many things it still waits for: tasks that it depends on, an approval, a choice among alternatives."""
    needed: bool = False
    """Whether other tasks were made to wait for it."""
    needs_review: bool = False
    for_role: str | None = None
    """Agents of which role may claim it, unless it is for one agent; None: of any."""
    for_agent: str | None = None
    """The agent that it is for: nobody else claims it. It stays so, whatever becomes of a claim."""
    assigned_to: str | None = None
    """Who has it now, or has done it: the agent that it is for, or that has claimed it."""
    token: int | None = None
    """The fence of the claim that holds it: the position of the claim."""
    lease: float = 0.0
    ready_for: str | None = None
    """Who may claim it now: anybody (""), a role ("role:qa"), one agent, nobody (None)."""
    rework: bool = False
    """A reviewer has sent it back: its holder may claim it again while its lease lasts."""
    later: bool = False
    """It has failed and is tried again when its lease has run out."""
    avoid: tuple[str, ...] = ()
    """Who has failed at it and is not asked again."""
    failures: int = 0
    failed_token: int | None = None
    """The fence of the last claim under which it has failed."""
    claims: int = 0
    on_failure: OnFailure | None = None
    reason: str = ""
    """Why it is blocked, failed or cancelled."""
    waived: bool = False
    """Cancelled so that what depends on it goes on without."""
    reviewer: str | None = None
    reviewed_by: str | None = None
    review_status: Literal["approved", "needs_rework", "rejected"] | None = None
    comments: tuple[str, ...] = ()
    result: TaskResult | None = None
    branch: str | None = None
    approval: str | None = None
    """The last approval that it waits for, or has waited for."""
    parent: str | None = None
    metadata: dict[str, Any] = {}
    by: str = ""
    added_us: int = 0
    assigned_us: int | None = None
    started_us: int | None = None
    completed_us: int | None = None
    position: int = 0

    def __str__(self) -> str:
        holder = f" by {self.assigned_to}" if self.assigned_to else ""
        return f"{self.heading} ({self.status.replace('_', ' ')}{holder})"

    @property
    def heading(self) -> str:
        """Its title, or that it was erased: every task is added with one."""
        return self.title or ERASED_NAME

    @property
    def added_at(self) -> datetime:
        return from_us(self.added_us)

    @property
    def assigned_at(self) -> datetime | None:
        return None if self.assigned_us is None else from_us(self.assigned_us)

    @property
    def started_at(self) -> datetime | None:
        """When it was claimed last."""
        return None if self.started_us is None else from_us(self.started_us)

    @property
    def completed_at(self) -> datetime | None:
        return None if self.completed_us is None else from_us(self.completed_us)

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def satisfied(self) -> bool:
        """Whether what depends on it need not wait for it any more."""
        return self.status == "completed" or self.waived

    @property
    def lists(self) -> tuple[str, ...]:
        """The lists of the work that it is in."""
        return lists_of(self.status, self.ready_for, self.later)


PLACE = ("status", "priority", "ready_for", "later")
"""The fields that decide in which lists a task is, and where in them."""


def lists_of(status: str, ready_for: str | None, later: bool) -> tuple[str, ...]:
    """What waits for rework is held, and can be claimed again."""
    ready = () if ready_for is None else (f"ready:{ready_for}",)
    if status == "pending":
        return ready or ("later" if later else "waiting",)
    if status == "assigned" and later:
        return ("assigned", "later")
    return ready if status in FINAL else (*ready, status)


def placed(task: Task) -> Task:
    """The task, ready for those who may claim it now that something about it has changed."""
    ready_for = None
    if not task.waits and not task.later:
        if task.status == "pending":
            ready_for = role_lane(task.for_role)
        elif task.status == "assigned" or task.rework:
            ready_for = task.assigned_to
    return task if ready_for == task.ready_for else msgspec.structs.replace(task, ready_for=ready_for)


def role_lane(role: str | None) -> str:
    """The agents of a role, or anybody, as `ready_for` names them. No agent has such a name."""
    return "" if role is None else f"role:{role}"


LANES = ("ready for anybody", "ready for a role", "ready for one agent")


def lane_kind(ready_for: str | None) -> str | None:
    """Which of the kinds of lanes it is that a task is ready in."""
    if ready_for is None:
        return None
    return LANES[0] if not ready_for else LANES[1] if ready_for.startswith("role:") else LANES[2]


def returned(task: Task) -> Task:
    """A pending task as it waits for the next claim: assigned, if it is for one agent."""
    if task.for_agent is None:
        return placed(msgspec.structs.replace(task, assigned_to=None))
    return placed(msgspec.structs.replace(task, status="assigned", assigned_to=task.for_agent))


def waiting_less(task: Task, waits: int) -> Task:
    """The task with fewer things to wait for. What was blocked only by waiting goes on."""
    task = msgspec.structs.replace(task, waits=waits)
    if waits or task.status != "blocked" or task.reason:
        return placed(task)
    return returned(msgspec.structs.replace(task, status="pending"))


def check_moves(task: Task, *path: str) -> None:
    """Raises BadMove for the first step that is not allowed."""
    status: str = task.status
    for wanted in path:
        if wanted not in MOVES[status]:
            raise BadMove(task.id, status, wanted, MOVES[status])
        status = wanted


def check_is(task: Task, status: str, wanted: str, instead: str) -> None:
    """Raises BadMove if a task cannot become what is wanted, and Conflict if it could, by another verb."""
    check_moves(task, wanted)
    if task.status != status:
        raise Conflict(f"task {task.id!r} is {task.status}, not {status}: {instead}")
