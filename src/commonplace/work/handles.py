"""What is done to one task, to a work as a whole, and about approvals: small handles that a work hands out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..access.commands import deny
from ..access.rights import OWNER, check_actor
from ..errors import BadInput, Conflict, NotFound
from ..files.safe import new_file
from ..ledger.checks import check_call, check_flag, check_path, check_text
from ..ledger.erase import EraseRequest
from ..verbs import verb
from .capability import EVERY
from .checks import (
    checked,
    checked_metadata,
    checked_policy,
    checked_priority,
    checked_role,
    checked_text,
    id_of,
    names,
    required_text,
    texts,
)
from .graph import DEPENDENTS
from .info import WorkInfo, checked_limits, checked_settings
from .kinds import DECIDED
from .outlook import WorkOutlook, outlook_of
from .records import RECORDS, Approval, Decision, record_id
from .tasks import Task

if TYPE_CHECKING:
    from ..ledger.ledger import At, Progress
    from .radar import Overlap
    from .verbs import Work

log = logging.getLogger("commonplace")

AT_ONCE = 500
EDITABLE: dict[str, Callable[[str, Any], Any]] = {
    "title": required_text,
    "description": checked_text,
    "priority": lambda _field, given: checked_priority(given),
    "needs_review": check_flag,
    "on_failure": lambda _field, given: checked_policy(given),
    "for_role": lambda _field, given: checked_role(given),
    "metadata": lambda _field, given: checked_metadata(given),
}
"""The fields of a task that can be changed, and how they are checked."""


class TaskHandle:
    """One task of a work, for those who lead: `work.task(id)`."""

    def __init__(self, work: Work, task: str | Task) -> None:
        self._work, self.id, self._session = work, id_of(task), work._session

    def _do(self, command: str, by: str | None, **fields: Any) -> Task:
        task: Task = self._work._do(command, by, task=self.id, **fields)
        return task

    @verb
    def info(self, at: At = None) -> Task:
        """The task as of `at`. Raises NotFound."""
        with self._work._reading(at) as (reading, _):
            return reading.task(self.id)

    @verb
    def add_dependencies(self, *, on: Sequence[str | Task], by: str | None = None) -> Task:
        """Let a task wait for others, too. What would make tasks wait for each other is refused, with the cycle.

        `on` are the ids of the tasks to wait for."""
        return self._do("link", by, on=names("on", on))

    @verb
    def remove_dependencies(self, *, on: Sequence[str | Task], by: str | None = None) -> Task:
        """Let a task no longer wait for others.

        `on` are the ids of the tasks to wait for no longer."""
        return self._do("unlink", by, on=names("on", on))

    @verb
    def assign(self, agent: str, *, by: str | None = None) -> Task:
        """Give a task to one agent, whatever its role, which then claims it; nobody else does, also when the agent
        has died or failed, until it is assigned to another one or unassigned."""
        return self._do("assign", by, agent=check_actor(agent))

    @verb
    def unassign(self, *, by: str | None = None) -> Task:
        """Let those claim a task again that was assigned whom it was for before: its role, or anybody."""
        return self._do("unassign", by)

    @verb
    def edit(self, *, by: str | None = None, **fields: Any) -> Task:
        """Change a task's title, description, priority, needs_review, on_failure, for_role or metadata."""
        stray = sorted(fields.keys() - set(EDITABLE))
        if stray:
            raise BadInput(f"{stray[0]!r} of a task is not changed like this: {', '.join(EDITABLE)} can be")
        new = {name: EDITABLE[name](name, value) for name, value in fields.items()}
        return self._do("edit", by, fields=new)

    @verb
    def block(self, reason: str, *, by: str | None = None) -> Task:
        """Say that a task cannot go on. Its holder, if it has one, loses it."""
        return self._do("block", by, reason=required_text("reason", reason))

    @verb
    def unblock(self, *, by: str | None = None) -> Task:
        """Let a task go on that was blocked, once all is done that it waits for. What was cancelled it no longer waits
        for."""
        return self._do("unblock", by)

    @verb
    def retry(self, *, by: str | None = None) -> Task:
        """Let a failed task be done once more, by those it is for. Its failures are counted anew, and its open
        escalations are resolved."""
        return self._do("retry", by)

    @verb
    def cancel(self, *, reason: str, dependents: str = "block", by: str | None = None) -> Task:
        """Cancel a task. What depends on it is blocked until somebody decides, is cancelled as well (`"cancel"`), or
        goes on without it (`"free"`).

        `dependents` is what becomes of tasks that wait for it: block, cancel or free."""
        checked("way with dependents", dependents, DEPENDENTS)
        return self._do("cancel", by, reason=required_text("reason", reason), dependents=dependents)

    @verb
    def assign_review(self, reviewer: str, *, by: str | None = None) -> Task:
        """Let one agent review a task, whatever its role.

        `reviewer` is the one who is to review it."""
        return self._do("assign_review", by, reviewer=check_actor(reviewer))

    @verb
    def radar(self, *, at: At = None) -> list[Overlap]:
        """What may make a task needless: another one that says the same, or something that was found or done, as of
        `at`."""
        from .radar import overlaps

        return overlaps(self._work, self.id, at=at)

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id!r}>"


class WorkManagement:
    """What is done to a work as a whole: `work.manage`."""

    def __init__(self, work: Work) -> None:
        self._work, self._session = work, work._session

    @verb(reads=True)
    def outlook(self) -> WorkOutlook:
        """Whether the work goes on by itself, and when a worker should look again."""
        return outlook_of(self._work)

    @verb
    def pause(self, reason: str = "", *, by: str | None = None) -> WorkInfo:
        """Nothing is claimed until it is resumed. What is held may be finished."""
        return self._change("paused", by, reason=reason)

    @verb
    def resume(self, *, by: str | None = None) -> WorkInfo:
        """Let the work go on."""
        return self._change("active", by, reason="")

    @verb
    def complete(self, summary: str = "", *, by: str | None = None) -> WorkInfo:
        """All is done: refused as long as a task is neither completed nor cancelled."""
        return self._change("completed", by, summary=summary)

    @verb
    def abandon(self, reason: str, *, by: str | None = None) -> WorkInfo:
        """Give the work up: it is cancelled, and nothing in it is claimed or finished any more."""
        return self._change("cancelled", by, reason=reason)

    @verb
    def archive(self, *, by: str | None = None) -> WorkInfo:
        """Put the work away for good, once nothing is left to be done. It can still be read."""
        return self._change("archived", by)

    @verb
    def discard(self, *, confirm: str, reason: str = "", progress: Progress | None = None) -> int:
        """Erase what was said in a work that is over, for good: titles, results, decisions, stored artifacts. What
        stays is how many tasks there were and how they ended. Only the owner may, with confirm="DISCARD". Answers how
        many events were erased.

        `confirm` is the word DISCARD."""
        check_call("progress", progress)
        if confirm != "DISCARD":
            raise BadInput('discarding a work cannot be undone: say confirm="DISCARD"')
        if self._work._actor != OWNER:
            why = f"{self._work._actor!r} may not discard a work: only the owner erases what others have said"
            deny(self._work._session, "discard", self._work.id, why)
        info = self._work.info()
        if info.open:
            raise Conflict(f"the work {info.name!r} is {info.status}: complete or abandon it first")
        events = (event for event in self._work._ledger.events(kinds=EVERY) if not event.erased)
        ids = [event.id for event in events if event.payload["work"] == self._work.id]
        for start in range(0, len(ids), AT_ONCE):
            part = tuple(ids[start : start + AT_ONCE])
            request = EraseRequest(part, OWNER, check_text("reason", reason), False)
            self._work._session.write("memory.erase", request)
            if progress:
                progress(start + len(part), len(ids))
        return len(ids)

    @verb(reads=True, writes_file="to")
    def export(self, to: str | Path, *, at: At = None) -> int:
        """Write the work as one JSON document, as far as the reader may see it: its info, tasks, decisions,
        discoveries, artifacts, nudges, approvals, escalations and contributions. Answers how many tasks there are.

        `to` is the file to write."""
        tasks = self._work.tasks(at=at)
        parts: dict[str, Any] = {"work": self._work.info(at), "tasks": tasks}
        parts |= {kind.listed_as: self._work.records(name, at=at) for name, kind in RECORDS.items()}
        parts["contributions"] = self._work.contributions(at=at)
        plain = msgspec.json.encode(parts, order="sorted")
        file = check_path("to", to)
        with new_file(file, self._work._session.services.beside) as out:
            out.write(msgspec.json.format(plain, indent=2) + b"\n")
        return len(tasks)

    @verb
    def change(
        self,
        *,
        goal: str | None = None,
        constraints: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        on_failure: object = None,
        by: str | None = None,
        **settings: Any,
    ) -> WorkInfo:
        """Change the goal, the constraints, the limits, what happens to tasks that fail, or settings. Limits and
        settings that are not named stay as they are.

        `limits` is how much there may be of it: max_tasks, max_agents. `on_failure` is retry, reassign, escalate,
        skip or abort, or a mapping with policy, retries, backoff and then."""
        words: dict[str, Any] = {} if goal is None else {"goal": checked_text("goal", goal)}
        if constraints is not None:
            words["constraints"] = texts("constraints", constraints)
        fields: dict[str, Any] = {}
        if limits is not None:
            checked_limits(limits)
            fields["limits"] = dict(limits)
        if on_failure is not None:
            fields["on_failure"] = msgspec.to_builtins(checked_policy(on_failure))
        if settings:
            fields["settings"] = checked_settings(settings)
        info: WorkInfo = self._work._do("change", by, status=None, said=words, fields=fields)
        if settings and info.advice:
            log.warning("the work %s: %s", info.name, info.advice)
        return info

    def _change(self, status: str, by: str | None, **texts: str) -> WorkInfo:
        words = {name: checked_text(name, text) for name, text in texts.items()}
        info: WorkInfo = self._work._do("change", by, status=status, said=words, fields={})
        return info


class Approvals:
    """What people are asked to allow: `work.approvals`. `work.records("approval")` lists it."""

    def __init__(self, work: Work) -> None:
        self._work, self._session = work, work._session

    @verb
    def request(
        self,
        action: str,
        *,
        risk: str = "",
        task: str | Task | None = None,
        decision: str | Decision | None = None,
        by: str | None = None,
    ) -> Approval:
        """Ask a person to allow something. A task that it is about is not claimed before the answer; one that is held
        or in review goes on.

        `action` is what is to be allowed. `risk` is what may go wrong. `decision` is the id of a decision that it is
        about."""
        values = {"action": action, "risk": risk, "decision": decision}
        return self._work._record(Approval, values, by, task=task)

    @verb
    def grant(
        self, what: str | Approval | Decision | Task, *, why: str = "", by: str | None = None
    ) -> Approval | Decision:
        """Allow what was asked for, or confirm a decision. Of a task, it is the approval that it waits for. It takes a
        person.

        `what` is the id of what was asked for, of a decision, or of a task. `why` is the reason that is recorded."""
        return self._judge(what, "approved", why, by)

    @verb
    def refuse(
        self, what: str | Approval | Decision | Task, *, why: str = "", by: str | None = None
    ) -> Approval | Decision:
        """Do not allow it: a task that waits for it is cancelled, and what depends on that is blocked.

        `what` is the id of what was asked for, of a decision, or of a task. `why` is the reason that is recorded."""
        return self._judge(what, "rejected", why, by)

    def _judge(
        self, what: str | Approval | Decision | Task, verdict: str, why: str, by: str | None
    ) -> Approval | Decision:
        id = self._asked(what)
        self._work._answer("approval", id, verdict, {"why": checked_text("why", why)}, by)
        with self._work._reading(None) as (reading, _):
            kind = reading.record(id)["kind"]
        return self._work._one(Decision, id, True) if kind == DECIDED else self._work._one(Approval, id, True)

    def _asked(self, what: str | Approval | Decision | Task) -> str:
        """The id of what is to be answered; of a task, that of its approval."""
        id = what.id if isinstance(what, Task) else record_id(what)
        with self._work._reading(None) as (reading, _):
            task = reading.find(id)
        if task is None:
            return id
        if task.approval is None:
            raise NotFound(f"nobody was asked to approve task {id!r}: work.inbox() lists what waits")
        return task.approval
