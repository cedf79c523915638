"""The verbs of a work, for whoever acts on it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from ..access.rights import OWNER, Rights, check_actor, may_see_of, rights_of
from ..access.secrets import masked
from ..engines.contract import Lease
from ..erase import EraseRequest
from ..errors import BadInput, Conflict, Denied, Fenced, NotFound, TooLarge, UnsafePath, shown
from ..events import (
    MAX_BLOB,
    MAX_NAME,
    Blob,
    Event,
    check_call,
    check_name,
    check_path,
    check_text,
    check_whole,
    encode_payload,
)
from ..folders import Folder
from ..memory.visibility import without_hidden
from ..private import new_file
from ..reader import Snapshot
from .capability import BETWEEN, EVERY
from .claims import COMPLETED, MOST_AT_ONCE, PRODUCED, REVIEWED, Made, run_out
from .desk import (
    WORK_MOVES,
    Act,
    Charter,
    Limits,
    Reading,
    charter_of,
    lease_name,
    may_know,
    no_work,
)
from .graph import DECIDED, DEPENDENTS, id_of, names, new_task
from .lifecycle import Plan, check_same
from .people import (
    ALL,
    DELIVERIES,
    DISCOVERED,
    ESCALATIONS,
    ORCHESTRATOR,
    PRIORITIES,
    checked,
    may_see_nudge,
    waiting,
)
from .tasks import (
    ARTIFACT_TYPES,
    STATUSES,
    OnFailure,
    Result,
    Task,
    checked_flag,
    checked_metadata,
    checked_policy,
    checked_priority,
    checked_role,
    checked_text,
)
from .things import (
    KINDS,
    Approval,
    Artifact,
    Branch,
    Contribution,
    Decision,
    Discovery,
    Escalation,
    Nudge,
    Thing,
    nudge_for,
    thing,
)

if TYPE_CHECKING:
    import threading

    from ..ledger import At, Ledger, Progress
    from ..session import Session
    from .board import Board
    from .candidates import Candidate
    from .contexts import Context
    from .leading import Lead, Step
    from .radar import Overlap
    from .worker import Handler, Worked

T = TypeVar("T", bound=Thing)

LEASE = 60.0
SMALL = 1 << 20
"""The most bytes of a file that are stored in the book unless somebody asks for it."""
EDITABLE = ("title", "description", "priority", "needs_review", "on_failure", "for_role", "metadata")
SETTINGS = ("checkpoint_interval", "auto_archive_hours", "backend", "path", "save_interval", "save_on_change")
"""What a work can be told besides. The ledger saves every change at once whatever they say; the intervals are for
whoever exports snapshots."""
ALSO = {
    "saveInterval": "save_interval",
    "saveOnChange": "save_on_change",
    "checkpointInterval": "checkpoint_interval",
}
AT_ONCE = 500


class Work:
    """One working memory: a graph of tasks that agents and people share, with what they decide and find.

    `book.work(name=…, goal=…)` begins one, `book.work(id=…)` opens it again. What an actor does goes through its
    rights; the book's owner may speak for others with `by=`.
    """

    def __init__(self, session: Session, id: str, lead: int | None = None) -> None:
        self._session, self.id, self._lead = session, id, lead
        self._run, self._looks = session.run, bool(session.refusal)

    @property
    def _ledger(self) -> Ledger:
        return self._session.ledger

    @property
    def _actor(self) -> str:
        return self._session.actor

    def _do(self, command: str, by: str | None = None, **given: Any) -> Any:
        if self._looks:
            self._session.check_may_act(f"work.{command}")
        name = self._actor if by is None else check_name("by", by)
        if name != self._actor and self._actor != OWNER:
            raise Denied(f"{self._actor!r} acts as itself: only the owner speaks for others with by=")
        act = Act(self.id, self._actor, name, given, self._run, self._lead)
        return self._session.write(f"work.{command}", act)

    def _agent(self, agent: str | None) -> str:
        """Who claims or takes something: the actor itself, or whom the owner names."""
        if agent is None:
            if self._actor == OWNER:
                raise BadInput("say for which agent: the owner itself does no tasks")
            return self._actor
        if self._actor not in (OWNER, agent):
            raise Denied(f"{self._actor!r} acts as itself and not as {agent!r}")
        if agent in (ALL, ORCHESTRATOR):
            raise BadInput(
                f"{agent!r} is whom nudges are sent to, and no name of an agent: choose another one"
            )
        return check_actor(agent)

    # the work itself

    def about(self, at: At = None) -> Charter:
        """What it is for and how it stands, as of `at`."""
        with self._reading(at) as (reading, _):
            found = charter_of(reading.lens, self.id)
            assert found is not None
            return found

    def status(self, *, at: At = None) -> str:
        """How it stands, as of `at`: active, paused, completed, cancelled or archived."""
        return self.about(at).status

    def counts(self, *, at: At = None) -> dict[str, int]:
        """How many tasks have each status, and how many tasks there are, as of `at`."""
        with self._reading(at) as (reading, _):
            return reading.counts

    def pause(self, reason: str = "", *, by: str | None = None) -> Charter:
        """Nothing is claimed until it is resumed. What is held may be finished."""
        return self._change("paused", by, reason=reason)

    def resume(self, *, by: str | None = None) -> Charter:
        return self._change("active", by, reason="")

    def complete(self, summary: str = "", *, by: str | None = None) -> Charter:
        """All is done: refused as long as a task is neither completed nor cancelled."""
        return self._change("completed", by, summary=summary)

    def abandon(self, reason: str, *, by: str | None = None) -> Charter:
        """Give the work up: it is cancelled, and nothing in it is claimed or finished any more."""
        return self._change("cancelled", by, reason=reason)

    def archive(self, *, by: str | None = None) -> Charter:
        """Put the work away for good, once nothing is left to be done. It can still be read."""
        return self._change("archived", by)

    def discard(self, *, confirm: str, reason: str = "", progress: Progress | None = None) -> int:
        """Erase what was said in a work that is over, for good: titles, results, decisions, stored artifacts. What
        stays is how many tasks there were and how they ended. Only the owner may, with confirm="DISCARD". Answers how
        many events were erased."""
        check_call("progress", progress)
        if confirm != "DISCARD":
            raise BadInput('discarding a work cannot be undone: say confirm="DISCARD"')
        if self._actor != OWNER:
            raise Denied(
                f"{self._actor!r} may not discard a work: only the owner erases what others have said"
            )
        charter = self.about()
        if charter.open:
            raise Conflict(f"the work {charter.name!r} is {charter.status}: complete or abandon it first")
        own = (one for one in self._ledger.events(kinds=EVERY) if not one.erased)
        ids = [one.id for one in own if one.payload["work"] == self.id]
        for start in range(0, len(ids), AT_ONCE):
            part = tuple(ids[start : start + AT_ONCE])
            erasure = self._session.write(
                "memory.erase", EraseRequest(part, OWNER, check_text("reason", reason), False)
            )
            self._session.services.outside.erased(erasure.erased)
            if progress:
                progress(start + len(part), len(ids))
        return len(ids)

    def export(self, to: str | Path, *, at: At = None) -> int:
        """Write the work as one JSON document, as far as whoever asks may see it: its charter, tasks, decisions,
        discoveries, artifacts, nudges, approvals, escalations and contributions. Answers how many tasks there are."""
        tasks = self.tasks(at=at)
        told = {"work": self.about(at), "tasks": tasks} | {
            name: getattr(self, name)(at=at)
            for name in (
                "decisions",
                "discoveries",
                "artifacts",
                "nudges",
                "approvals",
                "escalations",
                "branches",
            )
        }
        told["contributions"] = self.contributions(at=at)
        plain = msgspec.json.encode(msgspec.to_builtins(told), order="sorted")
        file = check_path("to", to)
        try:
            with new_file(file, self._session.services.beside) as out:
                out.write(msgspec.json.format(plain, indent=2) + b"\n")
        except OSError as error:
            raise BadInput(f"{file} cannot be written ({error.strerror}): name another file") from error
        return len(tasks)

    def _change(self, status: str | None, by: str | None, **said: str) -> Charter:
        words = {name: checked_text(name, text) for name, text in said.items()}
        charter: Charter = self._do("change", by, status=status, said=words, fields={})
        return charter

    def change(
        self,
        *,
        goal: str | None = None,
        constraints: Sequence[str] | None = None,
        limits: Mapping[str, int] | None = None,
        on_failure: object = None,
        by: str | None = None,
        **settings: Any,
    ) -> Charter:
        """Change the goal, the constraints, the limits, what happens to tasks that fail, or settings. Limits and
        settings that are not named stay as they are."""
        said: dict[str, Any] = {} if goal is None else {"goal": checked_text("goal", goal)}
        if constraints is not None:
            said["constraints"] = texts("constraints", constraints)
        fields: dict[str, Any] = {}
        if limits is not None:
            checked_limits(limits)
            fields["limits"] = dict(limits)
        if on_failure is not None:
            fields["on_failure"] = msgspec.to_builtins(checked_policy(on_failure))
        if settings:
            fields["settings"] = checked_settings(settings)
        charter: Charter = self._do("change", by, status=None, said=said, fields=fields)
        return charter

    # tasks

    def add_task(
        self,
        title: str,
        *,
        description: str = "",
        depends_on: Sequence[str | Task] = (),
        blocks: Sequence[str | Task] = (),
        priority: int = 0,
        needs_review: bool = False,
        on_failure: object = None,
        for_role: str | None = None,
        assigned_to: str | None = None,
        risk: str = "",
        parent: str | Task | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        by: str | None = None,
    ) -> Task:
        """Add a task. It is ready when all that it depends on is done; `blocks` are tasks that wait for it.

        Of what is ready, the highest `priority` comes first and then the oldest. With a `risk`, a person has to approve
        it first. It can be for the agents of one role (`for_role`), or for one agent (`assigned_to`), whatever its
        role: nobody else claims it, and that stays so when its holder dies or gives it back. `on_failure` is
        retry, reassign, escalate, skip or abort, or a mapping with policy, retries, backoff and then. With an `id` of
        your own the call can be repeated safely.
        """
        fields = {
            "title": title, "description": description, "depends_on": depends_on, "blocks": blocks,
            "priority": priority, "needs_review": needs_review, "on_failure": on_failure,
            "for_role": for_role, "assigned_to": assigned_to, "risk": risk, "metadata": metadata, "id": id,
            "parent": parent,
        }  # fmt: skip
        return self.add_tasks([fields], by=by)[0]

    def add_tasks(self, tasks: Sequence[Mapping[str, Any]], *, by: str | None = None) -> list[Task]:
        """Add many at once, all or none. Each is a mapping with the fields of `add_task`; they may depend on each other
        by the ids they give themselves, in any order."""
        if isinstance(tasks, str | Mapping) or not isinstance(tasks, Sequence):
            raise BadInput(
                f"tasks {shown(tasks)} is not a list of tasks: give mappings, such as {{'title': …}}"
            )
        new = tuple(new_task(one) for one in tasks)
        added: list[Task] = self._do("add", by, tasks=new) if new else []
        return added

    def task(self, id: str | Task, at: At = None) -> Task:
        """One task as of `at`. Raises NotFound."""
        with self._reading(at) as (reading, _):
            return reading.task(id_of(id))

    def tasks(self, status: str | None = None, *, at: At = None) -> list[Task]:
        """All tasks in the order in which they were added; those of one status, if it is named."""
        if status is not None:
            checked("status", status, STATUSES)
        with self._reading(at) as (reading, _):
            if status in ("assigned", "in_progress", "blocked", "review", "failed"):
                return sorted(reading.listed(status), key=lambda one: one.number)
            rows = reading.lens.scan("work.tasks", self.id)
            found = [msgspec.convert(row, Task) for _, row in rows]
            return [one for one in found if status is None or one.status == status]

    def ready(self, agent: str | None = None, *, limit: int | None = None, at: At = None) -> list[Task]:
        """The tasks that can be claimed now by anybody, or by this agent, in the order in which they would be. Of a
        work that is paused, those that can be when it is resumed."""
        if agent is not None:
            agent = check_actor(agent)
        if limit is not None and (type(limit) is not int or limit < 0):
            raise BadInput(f"limit {shown(limit)} is not one: give a whole number from 0, or None")
        self._look_after(at)
        with self._reading(at) as (reading, _):
            queues = reading.ready_for_somebody() if agent is None else reading.ready_for(agent)
            found = (one for one in reading.listed(*queues) if agent not in one.avoid)
            return (
                [one for one, _ in zip(found, range(limit), strict=False)]
                if limit is not None
                else list(found)
            )

    def board(self, *, limit: int = 12, at: At = None) -> Board:
        """The work at a glance: how far it is, the first tasks of each kind and who has them, what waits for people,
        the latest decisions."""
        from .board import board_of

        return board_of(self, check_whole("limit", limit), at)

    def blocked(self, *, at: At = None) -> list[Task]:
        """The tasks that wait: for others, for somebody's word, or for what was said to block them."""
        with self._reading(at) as (reading, _):
            every = reading.listed("blocked", "waiting", "assigned", "later")
            return [one for one in every if one.status != "assigned" or one.waits or one.later]

    def in_progress(self, *, at: At = None) -> list[Task]:
        """The tasks that somebody holds."""
        self._look_after(at)
        with self._reading(at) as (reading, _):
            return list(reading.listed("in_progress"))

    def needs_review(self, reviewer: str | None = None, *, at: At = None) -> list[Task]:
        """The tasks that are done and wait for a review; those of one reviewer and of none, if one is named."""
        if reviewer is not None:
            reviewer = check_name("reviewer", reviewer)
        with self._reading(at) as (reading, _):
            found = reading.listed("review")
            return [one for one in found if reviewer is None or one.reviewer in (None, reviewer)]

    def failed(self, *, at: At = None) -> list[Task]:
        """The tasks that have failed and that nobody has decided about."""
        with self._reading(at) as (reading, _):
            return list(reading.listed("failed"))

    def critical_path(self, *, at: At = None) -> list[Task]:
        """The longest chain of tasks that still have to be done one after the other."""
        from .drawing import longest_chain

        return longest_chain(self.tasks(at=at))

    def graph(self, format: str = "mermaid", *, at: At = None) -> str:
        """The tasks and what they wait for, as text that Mermaid or Graphviz ("dot") draws."""
        from .drawing import drawn

        return drawn(self.about(at), self.tasks(at=at), format)

    def link(self, task: str | Task, *, on: Sequence[str | Task], by: str | None = None) -> Task:
        """Let a task wait for others, too. What would make tasks wait for each other is refused, with the cycle."""
        found: Task = self._do("link", by, task=id_of(task), on=names("on", on))
        return found

    def unlink(self, task: str | Task, *, on: Sequence[str | Task], by: str | None = None) -> Task:
        """Let a task no longer wait for others."""
        found: Task = self._do("unlink", by, task=id_of(task), on=names("on", on))
        return found

    def assign(self, task: str | Task, agent: str, *, by: str | None = None) -> Task:
        """Give a task to one agent, whatever its role, which then claims it; nobody else does, also when the agent
        has died or failed, until it is assigned to another one or unassigned."""
        found: Task = self._do("assign", by, task=id_of(task), agent=check_actor(agent))
        return found

    def unassign(self, task: str | Task, *, by: str | None = None) -> Task:
        """Let those claim a task again that was assigned whom it was for before: its role, or anybody."""
        found: Task = self._do("unassign", by, task=id_of(task))
        return found

    def edit(self, task: str | Task, *, by: str | None = None, **fields: Any) -> Task:
        """Change a task's title, description, priority, needs_review, on_failure, for_role or metadata."""
        stray = sorted(fields.keys() - set(EDITABLE))
        if stray:
            raise BadInput(f"{stray[0]!r} of a task is not changed like this: {', '.join(EDITABLE)} can be")
        new = dict(fields)
        if "title" in new:
            new["title"] = _said("title", new["title"])
        if "description" in new:
            new["description"] = checked_text("description", new["description"])
        if "needs_review" in new:
            new["needs_review"] = checked_flag("needs_review", new["needs_review"])
        if "metadata" in new:
            new["metadata"] = checked_metadata(new["metadata"])
        if "priority" in new:
            checked_priority(new["priority"])
        if "for_role" in new:
            new["for_role"] = checked_role(new["for_role"])
        if "on_failure" in new:
            new["on_failure"] = checked_policy(new["on_failure"])
        found: Task = self._do("edit", by, task=id_of(task), fields=new)
        return found

    def block(self, task: str | Task, reason: str, *, by: str | None = None) -> Task:
        """Say that a task cannot go on. Its holder, if it has one, loses it."""
        found: Task = self._do("block", by, task=id_of(task), reason=_said("reason", reason))
        return found

    def unblock(self, task: str | Task, *, by: str | None = None) -> Task:
        """Let a task go on that was blocked, once all is done that it waits for. What was cancelled it no longer waits
        for."""
        found: Task = self._do("unblock", by, task=id_of(task))
        return found

    def retry(self, task: str | Task, *, by: str | None = None) -> Task:
        """Let a failed task be done once more, by those it is for. Its failures are counted anew, and its open
        escalations are resolved."""
        found: Task = self._do("retry", by, task=id_of(task))
        return found

    def cancel(
        self, task: str | Task, *, reason: str, dependents: str = "block", by: str | None = None
    ) -> Task:
        """Cancel a task. What depends on it is blocked until somebody decides, is cancelled as well (`"cancel"`), or
        goes on without it (`"free"`)."""
        what = checked("way with dependents", dependents, DEPENDENTS)
        found: Task = self._do(
            "cancel", by, task=id_of(task), reason=_said("reason", reason), dependents=what
        )
        return found

    def branch(
        self, question: str, options: Mapping[str, Sequence[str | Task]], *, by: str | None = None
    ) -> Branch:
        """Make alternatives of pending tasks: they wait until one of the options is chosen. The names of the
        options are kept for good, without secrets: what is to be erased one day belongs into the question."""
        if not isinstance(options, Mapping) or len(options) < 2:
            raise BadInput("alternatives are two or more options by their names, each with its tasks")
        each = {
            masked(check_name("an option", name)): names(f"the tasks of {name!r}", ids)
            for name, ids in options.items()
        }
        if len(each) < len(options):
            raise BadInput("two options are the same without the secrets in their names: name them otherwise")
        for name, ids in each.items():
            if not ids:
                raise BadInput(f"the option {name!r} has no tasks: give each option its own")
        id: str = self._do("branch", by, question=_said("question", question), options=each)
        return self._one(Branch, id)

    def choose(self, branch: str | Branch, option: str, *, rationale: str, by: str | None = None) -> Decision:
        """Choose one of the alternatives. The tasks of the others are cancelled, with the reason, and what depends on
        them goes on without."""
        chosen, why = masked(check_name("option", option)), _said("rationale", rationale)
        id: str = self._do("choose", by, branch=_id(branch), option=chosen, rationale=why)
        return self._one(Decision, id)

    def branches(self, *, at: At = None) -> list[Branch]:
        return self._all(Branch, at)

    # claims

    def claim(
        self,
        agent: str | None = None,
        *,
        lease: float = LEASE,
        task: str | Task | None = None,
        _event: str | None = None,
    ) -> Claim | None:
        """The best task that this agent can do now, or None. It is the agent's alone for `lease` seconds, and longer
        with `heartbeat()`; if the agent is not heard of, it goes back to the others. With `task`, that one: raises
        Conflict if it cannot be claimed."""
        found = self._claimed(agent, lease, 1, task, _event)
        return found[0] if found else None

    def claim_many(self, count: int, agent: str | None = None, *, lease: float = LEASE) -> list[Claim]:
        """As `claim`, up to so many at once."""
        if type(count) is not int or not 1 <= count <= MOST_AT_ONCE:
            raise BadInput(f"count {shown(count)} is not one: give a whole number from 1 to {MOST_AT_ONCE:,}")
        return self._claimed(agent, lease, count)

    def _claimed(
        self,
        agent: str | None,
        lease: float,
        count: int,
        task: str | Task | None = None,
        event: str | None = None,
    ) -> list[Claim]:
        who = self._agent(agent)
        by, which = who if self._actor == OWNER else None, None if task is None else id_of(task)
        found = self._do(
            "claim", by, agent=who, lease=seconds("lease", lease), count=count, task=which, event=event
        )
        return [Claim(self, who, one) for one in found]

    def held(self, task: str | Task, token: int) -> Claim:
        """The claim with this token again, in another process than the one that made it. Raises Fenced if it is no
        longer in force."""
        claim = self._with_token(task, token)
        if claim.task.status != "in_progress":
            raise Fenced(_not_in_force(claim.task, token))
        return claim

    def _with_token(self, task: str | Task, token: int) -> Claim:
        """The last claim of a task, also after its end: the call that ended it can be repeated."""
        found = self.task(task)
        if found.token != token or found.assigned_to is None:
            raise Fenced(_not_in_force(found, token))
        return Claim(self, self._agent(found.assigned_to), found)

    def complete_many(self, claims: Sequence[Claim], summary: str = "") -> list[Task]:
        """Complete many claims of one agent at once, all or none: for small tasks that were done together. Raises
        Fenced, and completes none, if one of them is no longer in force."""
        claims = listed("claims", claims)
        stray = [one for one in claims if not isinstance(one, Claim)]
        if stray:
            raise BadInput(f"{shown(stray[0])} is not a claim: give what work.claim_many(…) has answered")
        agents = {one.agent for one in claims}
        if len(claims) > MOST_AT_ONCE or len(agents) > 1 or any(one.work.id != self.id for one in claims):
            raise BadInput(f"give up to {MOST_AT_ONCE:,} claims of one agent, all of this work")
        if not claims:
            return []
        done: list[Task] = self._do(
            "complete_many", agents.pop() if self._actor == OWNER else None,
            claims=tuple((one.task.number, one.token) for one in claims),
            result=Result(checked_text("summary", summary)),
        )  # fmt: skip
        for one, task in zip(claims, done, strict=True):
            one.task, one._done = task, True
        return done

    def _look_after(self, at: At) -> None:
        """Give back what nobody holds any more, before somebody looks at it."""
        if at is not None or self._looks:
            return
        with self._reading(None) as (reading, _):
            held = list(reading.listed("in_progress", "later"))
            known = _leases(reading, held)
        if len(known) < len(held):
            self._do("reclaim")

    def worker(
        self, agent: str, handler: Handler, *, stop: threading.Event | None = None, **how: Any
    ) -> Worked:
        """Claim tasks one after the other and let `handler(claim)` do them: see `worker.work_off`."""
        from .worker import work_off

        return work_off(self, self._agent(agent), handler, stop=stop, **how)

    # what was decided and found

    def decide(
        self,
        *,
        question: str,
        choice: str,
        alternatives: Sequence[str] = (),
        rationale: str = "",
        affects: Sequence[str | Task] = (),
        task: str | Task | None = None,
        reversible: bool = True,
        reverses: str | Decision | None = None,
        confidence: float | None = None,
        sensitivity: str = "private",
        by: str | None = None,
        _token: int | None = None,
    ) -> Decision:
        """Record a choice with its reasons. `reverses` is an earlier decision whose place it takes."""
        said: dict[str, Any] = {
            "question": _said("question", question), "choice": _said("choice", choice),
            "alternatives": list(texts("alternatives", alternatives)),
            "rationale": checked_text("rationale", rationale),
        }  # fmt: skip
        if confidence is not None:
            if (
                isinstance(confidence, bool)
                or not isinstance(confidence, int | float)
                or not 0 <= confidence <= 1
            ):
                raise BadInput(f"confidence {shown(confidence)} is not a number from 0 to 1")
            said["confidence"] = confidence
        id: str = self._do(
            "decide", by, said=said, affects=names("affects", affects), task=None if task is None else id_of(task),
            reversible=checked_flag("reversible", reversible), reverses=None if reverses is None else _id(reverses),
            sensitivity=_level(sensitivity), token=_token,
        )  # fmt: skip
        return self._one(Decision, id)

    def decisions(self, *, task: str | Task | None = None, at: At = None) -> list[Decision]:
        """What was decided, in order; with `task`, what affects it."""
        return self._about(Decision, task, at)

    def discover(
        self,
        text: str,
        *,
        type: str = "insight",
        affects: Sequence[str | Task] = (),
        task: str | Task | None = None,
        promote_to_core: str | None = None,
        sensitivity: str = "private",
        by: str | None = None,
        _token: int | None = None,
    ) -> Discovery:
        """Record something that was learned: a constraint, opportunity, risk or insight."""
        kind = checked("type of discovery", type, ("constraint", "opportunity", "risk", "insight"))
        core = None if promote_to_core is None else check_name("promote_to_core", promote_to_core)
        said = _said("text", text)
        id: str = self._do(
            "discover", by, text=said, type=kind,
            affects=names("affects", affects), core=core,
            task=None if task is None else id_of(task), sensitivity=_level(sensitivity), token=_token,
        )  # fmt: skip
        return self._one(Discovery, id)

    def discoveries(self, *, task: str | Task | None = None, at: At = None) -> list[Discovery]:
        return self._about(Discovery, task, at)

    def artifact(
        self,
        path: str | Path,
        *,
        type: str = "file",
        description: str = "",
        task: str | Task | None = None,
        content: bytes | str | None = None,
        store: bool | None = None,
        commit: str | None = None,
        branch: str | None = None,
        by: str | None = None,
        _token: int | None = None,
    ) -> Artifact:
        """Record something that was made, by reference: its path, and the checksum of the file there. What is small is
        stored, too (`store`), so that it can be read where the file is not; `content` is stored in place of a file, and
        refused if it is not small and nobody has said whether to `store` it. The same path again is its next
        version."""
        made = _made(path, type, description, content, store, commit, branch)
        id: str = self._do(
            "produce",
            by,
            made=made,
            task=None if task is None else id_of(task),
            token=_token,
        )
        return self._one(Artifact, id)

    def artifacts(self, *, task: str | Task | None = None, at: At = None) -> list[Artifact]:
        """What was made, every version in order; with `task`, for it."""
        return self._about(Artifact, task, at)

    def content(self, artifact: str | Artifact, *, at: At = None) -> bytes:
        """The content of an artifact that is stored. Raises NotFound if it is only a reference, or was not there as of
        `at`."""
        found = self._one(Artifact, _id(artifact), at=at)
        data = None if found.blob is None else self._ledger.blob(found.blob)
        if data is None:
            raise NotFound(f"{found.path!r} is kept by reference only: look for the file itself")
        return data

    def contributions(self, *, at: At = None) -> list[Contribution]:
        """What each agent has done, as far as whoever asks may see it."""
        with self._reading(at) as (reading, rights):
            found = dict[str, dict[str, list[str]]]()
            spans = dict[str, list[int]]()
            rows = reading.lens.scan("work.by", self.id)
            for type in (Decision, Discovery, Artifact):
                made = [id for (_, _, kind, _), id in rows if kind == KINDS[type]]
                seen = {one.id for one in self._seen(type, reading, rights, made, erased=True)}
                rows = [row for row in rows if row[0][2] != KINDS[type] or row[1] in seen]
            for (_, agent, kind, position), id in rows:
                found.setdefault(str(agent), {}).setdefault(str(kind), []).append(id)
                spans.setdefault(str(agent), []).append(int(position))
            roles = {agent: rights_of(reading.lens, agent).role for agent in found}
            times = self._times({position for each in spans.values() for position in (min(each), max(each))})
        kinds = {"tasks": COMPLETED, "reviews": REVIEWED, "decisions": DECIDED, "discoveries": DISCOVERED}
        kinds["artifacts"] = PRODUCED
        return [
            Contribution(
                agent=agent,
                role=roles[agent],
                first_us=times[min(spans[agent])],
                last_us=times[max(spans[agent])],
                log_ref=f"commonplace log --actor {agent} --after {min(spans[agent]) - 1}",
                **{name: tuple(dict.fromkeys(did.get(kind, ()))) for name, kind in kinds.items()},
            )
            for agent, did in sorted(found.items())
        ]

    def _times(self, positions: Collection[int]) -> dict[int, int]:
        with self._ledger.reads() as reads:
            return {one: reads.records(one - 1, one, 1)[0].created_at for one in positions}

    # people

    def nudge(
        self,
        text: str,
        *,
        target: str = ALL,
        priority: str = "normal",
        delivery: str = "next_turn",
        task: str | Task | None = None,
        by: str | None = None,
    ) -> Nudge:
        """Say something to an agent, to whoever leads ("orchestrator") or to all: each is told once, with its next
        turn, at once with its next heartbeat ("immediate") or when it has nothing to do ("when_idle")."""
        if target not in (ALL, ORCHESTRATOR):
            target = check_actor(target)
        id: str = self._do(
            "nudge", by, text=_said("text", text), target=target, priority=checked("priority", priority, PRIORITIES),
            delivery=checked("delivery", delivery, DELIVERIES), task=None if task is None else id_of(task),
        )  # fmt: skip
        return self._one(Nudge, id)

    def take_nudges(self, agent: str | None = None) -> list[Nudge]:
        """What an agent is to be told in this turn, the most urgent first. Each nudge is told once: it is marked as
        delivered. What has changed that the agent had relied on comes as a nudge, too."""
        who = self._agent(agent)
        self._session.services.premises.look()
        with self._reading(None) as (reading, _):
            mine = [one.id for one in reading.listed("in_progress") if one.assigned_to == who]
        return self._told(who, tuple(mine), "turn" if mine else "idle", None)

    def _told(
        self, agent: str, tasks: tuple[str, ...], when: str, only: tuple[str, ...] | None
    ) -> list[Nudge]:
        """Mark nudges as told to an agent: all that wait, or only these."""
        by = agent if self._actor == OWNER else None
        rows = self._do("take", by, agent=agent, tasks=tasks, when=when, only=only)
        with self._reading(None) as (reading, _):
            return [nudge_for(reading, agent, row) for row in rows]

    def acknowledge(self, nudge: str | Nudge, agent: str | None = None) -> None:
        """Say that a nudge was heard: whoever holds the task next is not told it again."""
        who = self._agent(agent)
        self._do("acknowledge", who if self._actor == OWNER else None, nudge=_id(nudge), agent=who)

    def nudges(self, agent: str | None = None, *, at: At = None) -> list[Nudge]:
        """The nudges of this work that whoever asks may see; of one agent, those that wait for it."""
        if agent is not None:
            who = self._agent(agent)
            with self._reading(at) as (reading, _):
                charter = charter_of(reading.lens, self.id)
                leading = charter is not None and charter.leader == who
                return [nudge_for(reading, who, row) for row in waiting(reading, who, leading, "idle")]
        return self._all(Nudge, at)

    def request_approval(
        self,
        action: str,
        *,
        risk: str = "",
        task: str | Task | None = None,
        decision: str | Decision | None = None,
        by: str | None = None,
    ) -> Approval:
        """Ask a person to allow something. A task that it is about is not claimed before the answer; one that is held
        or in review goes on."""
        id: str = self._do(
            "ask", by, action=_said("action", action), risk=checked_text("risk", risk),
            task=None if task is None else id_of(task), decision=None if decision is None else _id(decision),
        )  # fmt: skip
        return self._one(Approval, id)

    def approve(
        self, what: str | Approval | Decision | Task, *, why: str = "", by: str | None = None
    ) -> Approval | Decision:
        """Allow what was asked for, or confirm a decision. Of a task, it is the approval that it waits for. It takes a
        person."""
        return self._answer(what, True, why, by)

    def disapprove(
        self, what: str | Approval | Decision | Task, *, why: str = "", by: str | None = None
    ) -> Approval | Decision:
        """Do not allow it: a task that waits for it is cancelled, and what depends on that is blocked."""
        return self._answer(what, False, why, by)

    def _answer(
        self, what: str | Approval | Decision | Task, yes: bool, why: str, by: str | None
    ) -> Approval | Decision:
        id = self._asked(what)
        self._do("answer", by, id=id, approved=yes, why=checked_text("why", why))
        with self._reading(None) as (reading, _):
            kind = reading.thing(id)["kind"]
        return self._one(Decision, id, True) if kind == DECIDED else self._one(Approval, id, True)

    def _asked(self, what: str | Approval | Decision | Task) -> str:
        """The id of what is to be answered; of a task, that of its approval."""
        id = what.id if isinstance(what, Task) else _id(what)
        with self._reading(None) as (reading, _):
            task = reading.find(id)
        if task is None:
            return id
        if task.approval is None:
            raise NotFound(f"nobody was asked to approve task {id!r}: work.approvals() lists what waits")
        return task.approval

    def approvals(self, *, at: At = None) -> list[Approval]:
        return self._all(Approval, at)

    def review(self, task: str | Task, verdict: str, *, comments: str = "", by: str | None = None) -> Task:
        """Review a task that is done: approved, needs_rework (its holder goes on) or rejected (it has failed). Nobody
        reviews what it did itself."""
        what = checked("verdict", verdict, ("approved", "needs_rework", "rejected"))
        found: Task = self._do(
            "review", by, task=id_of(task), verdict=what, comments=checked_text("comments", comments)
        )
        return found

    def assign_review(self, task: str | Task, reviewer: str, *, by: str | None = None) -> Task:
        """Let one agent review a task, whatever its role."""
        found: Task = self._do("assign_review", by, task=id_of(task), reviewer=check_actor(reviewer))
        return found

    def escalate(
        self, text: str, *, type: str = "stuck", task: str | Task | None = None, by: str | None = None
    ) -> Escalation:
        """Ask somebody for help: stuck, confused, needs_decision or error."""
        id: str = self._do(
            "escalate", by, text=_said("text", text), type=checked("type of escalation", type, ESCALATIONS),
            task=None if task is None else id_of(task),
        )  # fmt: skip
        return self._one(Escalation, id)

    def resolve(self, escalation: str | Escalation, answer: str, *, by: str | None = None) -> Escalation:
        """Settle an escalation with an answer."""
        self._do("resolve", by, id=_id(escalation), answer=_said("answer", answer))
        return self._one(Escalation, _id(escalation), True)

    def escalations(self, *, at: At = None) -> list[Escalation]:
        return self._all(Escalation, at)

    def inbox(self, *, at: At = None) -> Inbox:
        """Everything that waits for a person: approvals, choices, reviews, escalations, failed tasks, candidates."""
        return Inbox(
            tuple(one for one in self._pending(Approval, "approval", at)),
            tuple(one for one in self._pending(Branch, "branch", at)),
            tuple(self.needs_review(at=at)),
            tuple(one for one in self._pending(Escalation, "escalation", at)),
            tuple(self.failed(at=at)),
            tuple(self.candidates(at=at)),
        )

    def _pending(self, type: type[T], name: str, at: At) -> list[T]:
        with self._reading(at) as (reading, rights):
            return self._waiting(type, name, reading, rights)

    def _waiting(self, type: type[T], name: str, reading: Reading, rights: Rights) -> list[T]:
        rows = reading.lens.scan("work.pending", self.id, name)
        return self._seen(type, reading, rights, [str(key[3]) for key, _ in rows], erased=True)

    def watch(self, after: int | None = None, timeout: float | None = None) -> Iterator[Event]:
        """What happens in this work, as it happens: the events that whoever asks may see."""
        self.about()
        for event in self._session.follow(after, timeout):
            yield from self._shown(event)

    def _shown(self, event: Event) -> list[Event]:
        """The event, if it is about this work and whoever asks may see it now. Who may know of a work may see what
        happens in it, up to how sensitive that is; a nudge is between who sent it and whom it is for."""
        if event.erased or event.kind not in EVERY or event.payload["work"] != self.id:
            return []
        with self._reading(None) as (reading, rights):
            labels = {**event.labels, **(reading.lens.get("labels", event.id) or {})}
            if event.kind in BETWEEN:
                whom = event.payload.get("target") or event.payload.get("to")
                if not may_see_nudge(reading, rights, {"by": event.actor, "target": whom}):
                    return []
            seen = may_see_of(rights, event.actor, event.kind, {**labels, "audience": "team"})
            return [without_hidden(reading.lens, rights, event)] if seen else []

    # leading

    def lead(self, agent: str | None = None, *, lease: float = 30.0) -> Lead:
        """Take the lead of this work, if nobody has it. Whoever leads is told of what happens, step by step; if it
        dies, the next one goes on where it was."""
        from .leading import Lead

        who = self._agent(agent)
        length = seconds("lease", lease)
        fence: int = self._do("lead", who if self._actor == OWNER else None, agent=who, lease=length)
        return Lead(self, who, fence, length)

    # what somebody needs to know

    def context_for(
        self, task: str | Task, *, max_chars: int | None = 6_000, max_tokens: int | None = None, at: At = None
    ) -> Context:
        """What somebody needs to know to do a task, in one budget: goal, constraints, what others found and decided
        that affects it, what was made, nudges, and what is remembered. It says what it left out."""
        from .contexts import context_of

        return context_of(self, id_of(task), max_chars, max_tokens, at)

    def radar(self, task: str | Task, *, at: At = None) -> list[Overlap]:
        """What may make a task needless: another one that says the same, or something that was found or done, as of
        `at`."""
        from .radar import overlaps

        return overlaps(self, id_of(task), at=at)

    def candidates(self, *, judged: bool = False, at: At = None) -> list[Candidate]:
        """What may be worth learning from this work, as of `at`, each with a reason and a core that it may belong to.
        What was promoted or rejected by then is left out, unless `judged`."""
        from .candidates import candidates_of

        return candidates_of(self, judged, at)

    def orchestrate(
        self,
        agent: str,
        handler: Callable[[Lead, Step], Any],
        *,
        stop: threading.Event | None = None,
        **how: Any,
    ) -> int:
        """Lead the work, and let `handler(lead, step)` deal with what happens: see `leading.orchestrate`."""
        from .leading import orchestrate

        if not callable(handler):
            raise BadInput(f"handler {shown(handler)} is not a function: give one of a lead and a step")
        return orchestrate(self, self._agent(agent), handler, stop=stop, **how)

    def promote(
        self,
        candidate: str | Candidate,
        *,
        core: str | None = None,
        shared: bool = False,
        by: str | None = None,
    ) -> Any:
        """Put a candidate into a core, for good. It takes a librarian or person. Whoever may read the core may read the
        entry: out of a work with members it goes into a private core, or with `shared=True` into any."""
        from .candidates import promote

        return promote(self, candidate, core, checked_flag("shared", shared), by)

    def reject(self, candidate: str | Candidate, *, reason: str = "", by: str | None = None) -> None:
        """Put a candidate aside."""
        from .candidates import reject

        reject(self, candidate, reason, by)

    # reading

    @contextmanager
    def _reading(self, at: At) -> Iterator[tuple[Reading, Rights]]:
        """The work as of then, for whoever may know of it then and now."""
        with self._ledger.snapshot() as now:
            rights = rights_of(now, self._actor)
            known = charter_of(now, self.id)
            if known is None or not may_know(rights, known):
                raise NotFound(no_work(self.id))
            if at is None:
                yield Reading(now, self.id), rights
                return
            with self._ledger.snapshot(at) as then:
                known = charter_of(then, self.id)
                if known is None or not may_know(rights_of(then, self._actor), known):
                    raise NotFound(f"{no_work(self.id)} (as of then)")
                yield Reading(then, self.id, now), rights

    def _one(self, type: type[T], id: str, erased: bool = False, at: At = None) -> T:
        with self._reading(at) as (reading, rights):
            found = self._seen(type, reading, rights, [check_name("id", id)], erased)
        if not found:
            raise NotFound(f"there is no {type.__name__.lower()} {id!r} in this work")
        return found[0]

    def _all(self, type: type[T], at: At) -> list[T]:
        with self._reading(at) as (reading, rights):
            rows = reading.lens.scan("work.log", self.id, KINDS[type])
            return self._seen(type, reading, rights, [id for _, id in rows])

    def _latest(self, type: type[T], count: int, reading: Reading, rights: Rights) -> list[T]:
        """The last few of a type that the reader may see, the newest first."""
        rows = reading.lens.each("work.log", self.id, KINDS[type], reverse=True)
        visible = reading.visible(rights.actor, ((KINDS[type], id) for _, id in rows))
        return self._seen(type, reading, rights, [id for _, id in islice(visible, count)])

    def _about(self, type: type[T], task: str | Task | None, at: At) -> list[T]:
        if task is None:
            return self._all(type, at)
        with self._reading(at) as (reading, rights):
            number = reading.task(id_of(task)).number
            rows = reading.lens.scan("work.about", self.id, number)
            return self._seen(type, reading, rights, [id for _, id in rows])

    def _seen(
        self, type: type[T], reading: Reading, rights: Rights, ids: Sequence[str], erased: bool = False
    ) -> list[T]:
        """Those of these ids that are of a type and that the reader may see, by the labels of then and of now; what was
        erased is left out, or stands there without its words."""
        rows = reading.seen(rights.actor, ids)
        wanted = {
            id: row for id, row in rows.items() if row["kind"] == KINDS[type] and (row["said"] or erased)
        }
        if type is not Nudge:
            return [
                thing(type, id, row, self._words_of_others(reading, rights, row))
                for id, row in wanted.items()
            ]
        nudges = [{**row, "id": id} for id, row in wanted.items() if may_see_nudge(reading, rights, row)]
        return cast(list[T], [nudge_for(reading, rights.actor, row) for row in nudges])

    def _words_of_others(self, reading: Reading, rights: Rights, row: Mapping[str, Any]) -> dict[str, str]:
        """What an answer to it says, and which decision reversed it; what the reader may not see of that is "" ."""
        named = [row[name] for name in ("answer", "reversed_by") if row.get(name)]
        seen, words = reading.seen(rights.actor, named) if named else {}, {}
        if "answer" in row:
            said = seen.get(row["answer"], {}).get("said", {})
            words = {"why": said.get("why", ""), "answer": said.get("answer", "")}
        if row.get("reversed_by"):
            words["reversed_by"] = row["reversed_by"] if row["reversed_by"] in seen else ""
        return words

    def __repr__(self) -> str:
        return f"<Work {self.id!r}>"


class Inbox(msgspec.Struct, frozen=True):
    """What waits for a person."""

    approvals: tuple[Approval, ...]
    branches: tuple[Branch, ...]
    reviews: tuple[Task, ...]
    escalations: tuple[Escalation, ...]
    failed: tuple[Task, ...]
    candidates: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)


class Claim:
    """A task that is an agent's own for as long as its lease lasts.

    With `with`, an exception fails the task, and a task that was neither completed nor failed is released, also when
    somebody interrupts it (Ctrl-C).
    """

    def __init__(self, work: Work, agent: str, task: Task) -> None:
        self.work, self.agent, self.task = work, agent, task
        assert task.token is not None
        self.token: int = task.token
        self.lease = task.lease
        self.urgent: list[Nudge] = []
        """What heartbeats have brought that a worker made for the agent, until it looks at its nudges."""
        self._done = False

    def _ask(self, command: str, **given: Any) -> Any:
        return self.work._do(command, self._by, task=self.task.number, token=self.token, **given)

    def _do(self, command: str, **given: Any) -> Task:
        return self._becomes(self._ask(command, **given))

    def _becomes(self, task: Task) -> Task:
        self.task, self._done = task, task.status != "in_progress"
        return task

    def heartbeat(self, lease: float | None = None) -> list[Nudge]:
        """Say that the agent is still there: the task is its own for another lease. Answers the nudges that are to be
        told at once, each once. Raises Fenced if its lease has run out or the task went on without it, Conflict if the
        work was given up."""
        length = self.lease if lease is None else seconds("lease", lease)
        store = self.work._ledger.store
        with self.work._reading(None) as (reading, _):
            task, charter = reading.task(self.task.id), charter_of(reading.lens, self.work.id)
            urgent = waiting(reading, self.agent, False, "beat")
            in_force = _leases(reading, [task])
        if charter is not None and not charter.open:
            raise Conflict(f"the work {charter.name!r} is {charter.status}: there is no use in going on")
        if task.token != self.token or task.status != "in_progress":
            raise Fenced(
                f"{self.agent!r} lost task {self.task.id!r}, which is {task.status} now: its claim {self.token} is no "
                "longer in force"
            )
        if not in_force:
            raise Fenced(run_out(task))
        # A lease that ends between that look and this line is renewed as if it had not. If somebody has the task by
        # then, it is under another fence: what is renewed is nothing but what is lost anyway.
        held = store.lease(lease_name(task), self.agent, length, self.token)
        if held.fence != self.token or held.holder != self.agent:
            raise Fenced(f"{self.agent!r} lost task {self.task.id!r} to {held.holder!r}")
        ids = tuple(row["id"] for row in urgent)
        return self.work._told(self.agent, (self.task.id,), "beat", ids) if ids else []

    def complete(
        self,
        summary: str = "",
        *,
        next_steps: Sequence[str] = (),
        learnings: Sequence[str] = (),
        artifacts: Sequence[str | Path | Artifact] = (),
    ) -> Task:
        """The task is done: it is completed, or waits for a review if it needs one. Paths among the `artifacts` are
        recorded as `artifact` does it. The same call again answers as the first time."""
        self._complete(None, summary, next_steps, learnings, artifacts)
        return self.task

    def next(
        self,
        summary: str = "",
        *,
        next_steps: Sequence[str] = (),
        learnings: Sequence[str] = (),
        artifacts: Sequence[str | Path | Artifact] = (),
        _event: str | None = None,
    ) -> Claim | None:
        """Complete the task and claim the next one, in one commit: half the waiting where tasks are small. Answers None
        when nothing is ready or the work is paused, and when the same call is made again; the task is completed all the
        same."""
        found = self._complete(self.lease, summary, next_steps, learnings, artifacts, _event)
        return None if found is None else Claim(self.work, self.agent, found)

    def _complete(
        self,
        then: float | None,
        summary: str,
        next_steps: Sequence[str],
        learnings: Sequence[str],
        artifacts: Sequence[str | Path | Artifact],
        event: str | None = None,
    ) -> Task | None:
        each = listed("artifacts", artifacts)
        known = [one.id for one in each if isinstance(one, Artifact)]
        made = tuple(_made(one) for one in each if not isinstance(one, Artifact))
        result = Result(
            checked_text("summary", summary), texts("next_steps", next_steps), texts("learnings", learnings),
            tuple(known),
        )  # fmt: skip
        following: Task | None
        done, following = self._ask("complete", result=result, made=made, then=then, event=event)
        self._becomes(done)
        return following

    def fail(self, reason: str) -> Task:
        """The task has failed; its policy says what happens next."""
        return self._do("fail", reason=_said("reason", reason))

    def release(self, reason: str = "") -> Task:
        """Give the task back, for those it was for."""
        return self._do("release", reason=checked_text("reason", reason))

    def block(self, reason: str = "", *, on: Sequence[str | Task] = ()) -> Task:
        """The task cannot go on: until somebody clears the reason, or until other tasks are done."""
        why = checked_text("reason", reason)
        return self._do("hold_up", reason=why, on=names("on", on), subtasks=())

    def split(self, subtasks: Sequence[str | Mapping[str, Any]]) -> Task:
        """Split the task: it waits until these are done, and can then be claimed again to bring them together. They are
        for the same role as the task, unless they name one (`for_role`). Who may not orchestrate gives them no agent,
        no other role, no tasks that they block, no failure that aborts the work and no higher priority than the task's
        own."""
        fields = [{"title": one} if isinstance(one, str) else one for one in listed("subtasks", subtasks)]
        return self._do("hold_up", reason="", on=(), subtasks=tuple(new_task(one) for one in fields))

    def nudges(self) -> list[Nudge]:
        """What the agent is to be told in this turn, with what came in by heartbeats that a worker made for it."""
        urgent, self.urgent = self.urgent, []
        return [*urgent, *self.work.take_nudges(self.agent)]

    def context(
        self, *, max_chars: int | None = 6_000, max_tokens: int | None = None, receipt: bool = True
    ) -> Context:
        """What it needs to know, with the nudges that it is told by this, and a receipt. With `receipt=False` nothing
        is written: then the nudges wait on."""
        from .contexts import context_of

        return context_of(self.work, self.task.id, max_chars, max_tokens, None, self.agent, receipt)

    def radar(self) -> list[Overlap]:
        """What may make the task needless."""
        from .radar import overlaps

        return overlaps(self.work, self.task.id, self.agent)

    def decide(self, **fields: Any) -> Decision:
        """As `Work.decide`, about this task, as long as it is held."""
        return self.work.decide(**{**self._held, **fields})

    def discover(self, text: str, **fields: Any) -> Discovery:
        """As `Work.discover`, about this task, as long as it is held."""
        return self.work.discover(text, **{**self._held, **fields})

    def artifact(self, path: str | Path, **fields: Any) -> Artifact:
        """As `Work.artifact`, for this task, as long as it is held."""
        return self.work.artifact(path, **{**self._held, **fields})

    @property
    def _held(self) -> dict[str, Any]:
        """Who says something, and of which task, for as long as the claim is in force."""
        return {"task": self.task, "by": self._by, "_token": self.token}

    @property
    def _by(self) -> str | None:
        return self.agent if self.work._actor == OWNER else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if self._done:
            return
        try:
            if error is None:
                self.release()
            elif isinstance(error, Exception):
                self.fail(f"{type(error).__name__}: {error}")
            else:  # its holder was interrupted
                self.release(type(error).__name__)
        except (Fenced, Conflict):
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Claim {self.token} of {self.task.title!r} by {self.agent!r}>"


# beginning and listing


def begin(session: Session, id: str, fields: Mapping[str, Any], by: str | None) -> Work:
    """Begin a work."""
    work = Work(session, id)
    tasks = tuple(new_task(one) for one in fields["tasks"])
    work._do("create", by, plan=Plan(charter_from(id, fields), tasks))
    return work


def opened(session: Session, id: str, fields: Mapping[str, Any]) -> Work:
    """The work with an id. If it is said what it was begun with, that must be so."""
    work = Work(session, id)
    given = [name for name, value in fields.items() if value]
    with work._reading(None) as (reading, _):
        row = reading.lens.get("work.works", id)
    if given:
        began = session.ledger.event(row["event"])
        check_same(began, charter_from(id, {**fields, "name": "any"}), given)
    return work


def charter_from(id: str, fields: Mapping[str, Any]) -> Charter:
    """What a work is begun with. Raises BadInput that names the field."""
    pattern = fields["pattern"]
    return Charter(
        id,
        _said("name", fields["name"]),
        checked_text("goal", fields["goal"]),
        texts("constraints", fields["constraints"]),
        tuple(check_name("a core", one) for one in listed("cores", fields["cores"])),
        None if pattern is None else check_name("pattern", pattern),
        tuple(check_actor(one) for one in listed("members", fields["members"])),
        limits=checked_limits({} if fields["limits"] is None else fields["limits"]),
        on_failure=checked_policy(fields["on_failure"]) or OnFailure(),
        settings=checked_settings(fields["settings"]),
    )


def home_of(session: Session, id: str) -> str:
    """The id of the work that a task or an event belongs to, if whoever asks may know of it."""
    with session.ledger.snapshot() as now:
        where = now.get("work.ids", id)
        event = session.ledger.event(id) if where is None else None
        if event is not None and event.kind in EVERY:
            where = [event.payload["work"]]
        charter = None if where is None else charter_of(now, where[0])
        if charter is None or not may_know(rights_of(now, session.actor), charter):
            raise NotFound(
                f"there is no task {id!r} in this book, and nothing else of a work: look for its id"
            )
        return charter.id


def works_of(session: Session, status: str | None, at: At) -> list[Charter]:
    if status is not None:
        checked("status", status, tuple(WORK_MOVES))
    with session.ledger.snapshot() as now, session.ledger.snapshot(at) as then:
        rights = [rights_of(lens, session.actor) for lens in (then, now)]
        charters = [msgspec.convert(row, Charter) for _, row in then.scan("work.works")]
    known = [charter for charter in charters if all(may_know(right, charter) for right in rights)]
    return [charter for charter in known if status in (None, charter.status)]


def stale(
    charters: Sequence[Charter], now: datetime, older_than: timedelta | None
) -> list[tuple[Charter, str]]:
    """The works that can be put away, and why."""
    found = []
    for one in charters:
        quiet = now - datetime.fromtimestamp(one.changed_us / 1e6, UTC)
        hours = one.settings.get("auto_archive_hours")
        limit = older_than if older_than is not None else None if hours is None else timedelta(hours=hours)
        if limit is not None and one.status in ("completed", "cancelled") and quiet >= limit:
            found.append((one, f"{one.status} {quiet.days} days and {quiet.seconds // 3600} hours ago"))
    return found


def _leases(reading: Reading, tasks: Sequence[Task]) -> Mapping[str, Lease]:
    """The leases of these tasks that are in force now."""
    assert isinstance(reading.lens, Snapshot)
    return reading.lens.reads.leases([lease_name(one) for one in tasks]) if tasks else {}


def _not_in_force(task: Task, token: object) -> str:
    return f"{shown(token)} is no claim of task {task.id!r} in force: it is {task.status} now"


# checking what is given


def seconds(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0.05 <= given <= 30 * 86_400:
        raise BadInput(f"{name} {shown(given)} is not a number of seconds from 0.05 to {30 * 86_400:,}")
    return float(given)


def texts(field: str, given: object) -> tuple[str, ...]:
    return tuple(checked_text(f"one of {field}", one) for one in listed(field, given))


def listed(field: str, given: object) -> Sequence[Any]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput(f"{field} {shown(given)} is not a list: give one, such as [...]")
    return given


def checked_limits(given: Mapping[str, int]) -> Limits:
    if not isinstance(given, Mapping):
        raise BadInput(f"limits {shown(given)} are not a mapping: give one, such as {{'max_tasks': 1000}}")
    try:
        limits = msgspec.convert(dict(given), Limits)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"limits are max_tasks, max_agents and max_dependents as whole numbers: {error}"
        ) from None
    if min(limits.max_tasks, limits.max_agents, limits.max_dependents) < 1:
        raise BadInput("a limit is at least 1")
    return limits


def checked_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    named = {ALSO.get(name, name): value for name, value in given.items()}
    stray = sorted(named.keys() - set(SETTINGS))
    if stray:
        raise BadInput(f"a work has no setting {stray[0]!r}: its settings are {', '.join(SETTINGS)}")
    hours = named.get("auto_archive_hours")
    if hours is not None and (
        isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours <= 1e6
    ):
        raise BadInput(f"auto_archive_hours {shown(hours)} is not a number of hours from 0 to 1,000,000")
    return masked(encode_payload(named)[1])


def _said(field: str, given: object) -> str:
    text = checked_text(field, given)
    if not text.strip():
        raise BadInput(f"{field} is empty: say something")
    return text


def _level(given: str) -> str:
    return checked("sensitivity", given, ("public", "private", "sensitive"))


def _id(given: str | Thing) -> str:
    return given.id if isinstance(given, Thing) else check_name("an id", given)


def _made(
    path: str | Path,
    type: str = "file",
    description: str = "",
    content: bytes | str | None = None,
    store: bool | None = None,
    commit: str | None = None,
    branch: str | None = None,
) -> Made:
    """Something that was made, as it is recorded."""
    if not isinstance(path, str | Path) or not 1 <= len(str(path)) <= MAX_NAME:
        raise BadInput(f"path {shown(path)} is not a path: give where it lies, in 1 to {MAX_NAME} characters")
    where = checked_text("path", str(check_path("path", path)))
    if content is not None and not isinstance(content, bytes | str):
        raise BadInput(f"content {shown(content)} is neither bytes nor text")
    if store is not None:
        checked_flag("store", store)
    data = check_text("content", content).encode() if isinstance(content, str) else content
    checksum: str | None = None
    size = 0 if data is None else len(data)
    if data is None:
        data, checksum, size = _file(Path(path), store)
    elif store is not False:
        _check_size(where, size, store)
    if store and data is None:
        raise BadInput(f"there is no file {where} to store: give its content")
    about = checked_text("description", description)
    said: dict[str, Any] = {"path": where, "description": about}
    more: dict[str, Any] = {
        "type": checked("type of artifact", type, ARTIFACT_TYPES),
        "commit": None if commit is None else masked(check_name("commit", commit)),
        "branch": None if branch is None else masked(check_name("branch", branch)),
    }
    if data is not None:
        checksum = sha256(data).hexdigest()
    if checksum is not None:
        more |= {"checksum": f"sha256:{checksum}", "size": size}
    if data is not None and store is not False:
        said["content"] = Blob(data)
    return Made(said, {name: value for name, value in more.items() if value is not None})


def _check_size(where: str, size: int, store: bool | None) -> None:
    """Raises TooLarge for content that would not be stored whole."""
    if size > MAX_BLOB:
        raise TooLarge(
            f"the content of {where} has {size:,} bytes, and at most {MAX_BLOB:,} are stored: keep it in a file, and "
            "name its path without content"
        )
    if size > SMALL and not store:
        raise TooLarge(
            f"the content of {where} has {size:,} bytes, and more than {SMALL:,} are stored only if you say so: say "
            "store=True, or store=False for its checksum alone"
        )


def _file(file: Path, store: bool | None) -> tuple[bytes | None, str | None, int]:
    """The content of a file that is small, or is to be stored, and the checksum and size of a larger one. What is not
    a file has neither, nor has a link: what it leads to may be anything on this host."""
    try:
        fd = _plain_file(file)
        if fd is None:
            return None, None, 0
        with open(fd, "rb") as opened:
            size = os.fstat(fd).st_size
            if size <= (MAX_BLOB if store else SMALL):
                data = opened.read()
                return data, None, len(data)
            if store:
                raise TooLarge(
                    f"{file} has {size:,} bytes, and at most {MAX_BLOB:,} are stored: leave store out"
                )
            return None, file_digest(opened, "sha256").hexdigest(), size
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read ({error.strerror}): give its content, or another path"
        ) from error


def _plain_file(file: Path) -> int | None:
    """A descriptor of the file at a path; None if there is none. Below the folder that we are in no part of the path
    may be a link; elsewhere the folders are the caller's word."""
    try:
        inside = not file.is_absolute() and ".." not in file.parts
        root, name = (Path.cwd(), file.as_posix()) if inside else (file.parent.resolve(), file.name)
        return Folder(root).open(name)
    except UnsafePath:
        return None
