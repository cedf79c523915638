"""The verbs of a work, for the actor that uses it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ..access.commands import deny
from ..access.masking import masked
from ..access.rights import OWNER, Rights, check_actor, rights_of
from ..errors import BadInput, Fenced, NotFound, shown
from ..ledger.checks import check_flag, check_name, check_whole
from ..ledger.events import Event
from ..verbs import namespace, verb
from .artifacts import made
from .checks import checked, checked_text, id_of, listed, names, required_text, seconds
from .claims import MOST_AT_ONCE
from .graph import new_task
from .handles import Approvals, TaskHandle, WorkManagement
from .holding import Claim
from .info import WorkInfo, info_of, may_know, no_work, shown_info
from .kinds import CLAIMED
from .listing import contributions_of, pending, visible_event, visible_records
from .people import waiting
from .reading import Reading
from .records import (
    ALL,
    EVENTS,
    ORCHESTRATOR,
    RECORDS,
    Approval,
    Artifact,
    Branch,
    Contribution,
    Decision,
    Discovery,
    Escalation,
    Inbox,
    Nudge,
    WorkRecord,
    nudge_for,
    record_id,
)
from .tasks import STATUSES, Task, TaskResult
from .transaction import Act

if TYPE_CHECKING:
    import threading

    from ..ledger.ledger import At
    from ..ledger.reader import ViewReader
    from ..memory.requests import RememberResult
    from ..session import Session
    from .board import Board
    from .candidates import Candidate
    from .contexts import Context
    from .leading import Lead, LeadStep
    from .worker import Handler, Worked

T = TypeVar("T", bound=WorkRecord)

LEASE = 60.0


class Work:
    """One working memory: a graph of tasks that agents and people share, with what they decide and find.

    `book.work(name=…, goal=…)` begins one, `book.work(id=…)` opens it again. What an actor does goes through its
    rights; the book's owner may speak for others with `by=`.
    """

    def __init__(self, session: Session, id: str, lead: int | None = None) -> None:
        self.id = id
        self._session, self._ledger, self._actor = session, session.ledger, session.actor
        self._lead, self._looks = lead, bool(session.refusal)

    def _do(self, command: str, by: str | None = None, **fields: Any) -> Any:
        """Run a command, recorded under the name of `by`: the actor itself, or whom the owner speaks for."""
        if self._looks:
            self._session.check_may_act(f"work.{command}")
        name = self._actor if by is None else check_name("by", by)
        if name != self._actor and self._actor != OWNER:
            why = f"{self._actor!r} acts as itself: only the owner speaks for others with by="
            deny(self._session, "act as", name, why)
        act = Act(self.id, self._actor, name, fields, self._session.run, self._lead)
        return self._session.write(f"work.{command}", act)

    def _agent(self, agent: str | None) -> str:
        """The agent that claims or takes something: the actor itself, or the one that the owner names."""
        if agent is None:
            if self._actor == OWNER:
                raise BadInput("say for which agent: the owner itself does no tasks")
            return self._actor
        if self._actor not in (OWNER, agent):
            why = f"{self._actor!r} acts as itself and not as {agent!r}"
            deny(self._session, "act as", check_actor(agent), why)
        if agent in (ALL, ORCHESTRATOR):
            raise BadInput(
                f"{agent!r} is whom nudges are sent to, and no name of an agent: choose another one"
            )
        return check_actor(agent)

    # the work itself

    @verb
    def info(self, at: At = None) -> WorkInfo:
        """What it is for and how it stands, as of `at`."""
        with self._reading(at) as (reading, _):
            return shown_info(reading.now, reading.info)

    manage = namespace(WorkManagement, WorkManagement)
    """What is done to the work as a whole: pause, resume, complete, abandon, archive, discard, export, change."""
    approvals = namespace(Approvals, Approvals)
    """Ask people to allow something, and answer: request, grant, refuse."""

    @verb
    def counts(self, *, at: At = None) -> dict[str, int]:
        """How many tasks have each status, and how many tasks there are, as of `at`."""
        with self._reading(at) as (reading, _):
            return reading.counts

    # tasks

    @verb(own_id=True)
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

        `title` is what is to be done. `description` is more about it. `depends_on` are the ids of tasks that have to
        be done before. `needs_review` is whether it is completed only when somebody has approved it. `parent` is the
        id of the task that it is a part of. `priority` is a whole number, of
        which the highest comes first. `for_role` is the role of the agents that may claim it. `assigned_to` is the
        agent that is to do it. `risk` is what may go wrong, so that a person has to approve it first.
        """
        fields = {
            "title": title, "description": description, "depends_on": depends_on, "blocks": blocks,
            "priority": priority, "needs_review": needs_review, "on_failure": on_failure,
            "for_role": for_role, "assigned_to": assigned_to, "risk": risk, "metadata": metadata, "id": id,
            "parent": parent,
        }  # fmt: skip
        return self.add_tasks([fields], by=by)[0]

    @verb
    def add_tasks(self, tasks: Sequence[Mapping[str, Any]], *, by: str | None = None) -> list[Task]:
        """Add many at once, all or none. Each is a mapping with the fields of `add_task`; they may depend on each other
        by the ids they give themselves, in any order.

        `tasks` are mappings with the fields of add_task."""
        if isinstance(tasks, str | Mapping) or not isinstance(tasks, Sequence):
            raise BadInput(
                f"tasks {shown(tasks)} is not a list of tasks: give mappings, such as {{'title': …}}"
            )
        new = tuple(map(new_task, tasks))
        added: list[Task] = self._do("add", by, tasks=new) if new else []
        return added

    def task(self, id: str | Task) -> TaskHandle:
        """One task: what it is (`info`), and what is done to it."""
        return TaskHandle(self, id)

    @verb
    def tasks(self, status: str | None = None, *, reviewer: str | None = None, at: At = None) -> list[Task]:
        """All tasks in the order in which they were added; those of one status, if it is named. "waiting" are those
        that wait for others, for somebody's word or for their next try, and those that are blocked. With a `reviewer`,
        those that it or nobody is to review.

        `status` is pending, assigned, in_progress, blocked, review, completed, failed, cancelled or waiting.
        `reviewer` is the one who is to review them."""
        if status is not None:
            checked("status", status, (*STATUSES, "waiting"))
        if reviewer is not None:
            reviewer = check_name("reviewer", reviewer)
        with self._reading(at) as (reading, _):
            if status == "waiting":
                listed = reading.listed("blocked", "waiting", "assigned", "later")
                tasks = [task for task in listed if task.status != "assigned" or task.waits or task.later]
            elif status in ("assigned", "in_progress", "blocked", "review", "failed"):
                tasks = list(reading.listed(status))
            else:
                tasks = [task for task in reading.all if status in (None, task.status)]
        if reviewer is not None:
            tasks = [task for task in tasks if task.reviewer in (None, reviewer)]
        return sorted(tasks, key=lambda task: task.number)

    @verb
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
            return list(islice((task for task in reading.listed(*queues) if agent not in task.avoid), limit))

    @verb
    def board(self, *, limit: int = 12, at: At = None) -> Board:
        """The work at a glance: how far it is, the first tasks of each kind and who has them, what waits for people,
        the latest decisions."""
        from .board import board_of

        return board_of(self, check_whole("limit", limit), at)

    @verb
    def critical_path(self, *, at: At = None) -> list[Task]:
        """The longest chain of tasks that still have to be done one after the other."""
        from .drawing import longest_chain

        return longest_chain(self.tasks(at=at))

    @verb
    def graph(self, format: str = "mermaid", *, at: At = None) -> str:
        """The tasks and what they wait for, as text that Mermaid or Graphviz ("dot") draws.

        `format` is mermaid, or dot for Graphviz."""
        from .drawing import drawn

        return drawn(self.info(at), self.tasks(at=at), format)

    @verb
    def branch(
        self, question: str, options: Mapping[str, Sequence[str | Task]], *, by: str | None = None
    ) -> Branch:
        """Make alternatives of pending tasks: they wait until one of the options is chosen. Names of options hold
        no secrets; after an erasure, the options are called by numbers.

        `question` is what is to be decided. `options` are the alternatives by their names, each with the ids of its
        tasks."""
        return self._record(Branch, {"question": question, "options": options}, by)

    @verb
    def choose(self, branch: str | Branch, option: str, *, rationale: str, by: str | None = None) -> Decision:
        """Choose one of the alternatives. The tasks of the others are cancelled, with the reason, and what depends on
        them goes on without.

        `option` is the name of the alternative."""
        said = {"rationale": required_text("rationale", rationale)}
        return self._one(
            Decision, self._answer("branch", branch, masked(check_name("option", option)), said, by)
        )

    # claims

    @verb(repeatable=True)
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
        claims = self._claimed(agent, lease, 1, task, _event)
        return claims[0] if claims else None

    @verb
    def claim_many(self, count: int, agent: str | None = None, *, lease: float = LEASE) -> list[Claim]:
        """As `claim`, up to so many at once.

        `count` is how many at most."""
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
        holder, wanted = self._agent(agent), None if task is None else id_of(task)
        length = seconds("lease", lease)
        tasks = self._do("claim", holder, agent=holder, lease=length, count=count, task=wanted, event=event)
        return [Claim(self, holder, task) for task in tasks]

    @verb
    def reopen_claim(self, task: str | Task, token: int) -> Claim:
        """The claim with this token again, in another process than the one that made it. Raises Fenced if it is no
        longer in force.

        `token` is the number that claiming it has answered."""
        last = self.task(task).info()
        if last.token != token or last.assigned_to is None or last.status != "in_progress":
            raise Fenced(_not_in_force(last, token))
        return Claim(self, self._agent(last.assigned_to), last)

    def _with_token(self, task: str | Task, token: int) -> Claim:
        """A claim of a task, also after its end: the call that ended it can be repeated."""
        last = self.task(task).info()
        holder = last.assigned_to if last.token == token else self._claimed_by(last.id, token)
        if holder is None:
            raise Fenced(_not_in_force(last, token))
        return Claim(self, self._agent(holder), msgspec.structs.replace(last, token=token))

    def _claimed_by(self, task: str, token: object) -> str | None:
        """Who claimed a task under a token, which is the position of that event; None if nobody did."""
        if type(token) is not int or not 0 < token <= self._ledger.head:
            return None
        for event in self._ledger.events(token - 1, token):
            if event.kind == CLAIMED and event.payload.get("task_id") == task:
                return event.actor
        return None

    @verb
    def complete_many(self, claims: Sequence[Claim], summary: str = "") -> list[Task]:
        """Complete many claims of one agent at once, all or none: for small tasks that were done together. Raises
        Fenced, and completes none, if one of them is no longer in force.

        `claims` is what claim_many answered, each by its task and its token."""
        claims = listed("claims", claims)
        stray = [claim for claim in claims if not isinstance(claim, Claim)]
        if stray:
            raise BadInput(f"{shown(stray[0])} is not a claim: give what work.claim_many(…) has answered")
        agents = {claim.agent for claim in claims}
        if len(claims) > MOST_AT_ONCE or len(agents) > 1 or any(claim.work.id != self.id for claim in claims):
            raise BadInput(f"give up to {MOST_AT_ONCE:,} claims of one agent, all of this work")
        if not claims:
            return []
        held = tuple((claim.task.number, claim.token) for claim in claims)
        result = TaskResult(checked_text("summary", summary))
        done: list[Task] = self._do(
            "complete_many", agents.pop() if self._actor == OWNER else None, claims=held, result=result
        )
        for claim, task in zip(claims, done, strict=True):
            claim.task, claim._done = task, True
        return done

    def _look_after(self, at: At) -> None:
        """Give back what nobody holds any more, before somebody looks at it."""
        if at is not None or self._looks:
            return
        with self._reading(None) as (reading, _):
            held = list(reading.listed("in_progress", "later"))
            leases = reading.leases(held)
        if len(leases) < len(held):
            self._do("reclaim")

    def worker(
        self, agent: str, handler: Handler, *, stop: threading.Event | None = None, **how: Any
    ) -> Worked:
        """Claim tasks one after the other and let `handler(claim)` do them: see `worker.work_off`."""
        from .worker import work_off

        return work_off(self, self._agent(agent), handler, stop=stop, **how)

    # what was decided and found

    def _record(
        self,
        type: type[T],
        values: Mapping[str, Any],
        by: str | None,
        *,
        task: str | Task | None = None,
        affects: Sequence[str | Task] = (),
        sensitivity: str = "private",
        token: int | None = None,
    ) -> T:
        """Record something about the work, checked as its kind says. What is None is left out."""
        name, kind = next((name, kind) for name, kind in RECORDS.items() if kind.type is type)
        said, fields = (
            {
                field: value
                for field, check in part.items()
                if (value := check(field, values.get(field))) is not None
            }
            for part in (kind.said, kind.fields)
        )
        id: str = self._do(
            "record", by, kind=name, said=said, fields=fields, affects=names("affects", affects),
            task=None if task is None else id_of(task), token=token,
            sensitivity=checked("sensitivity", sensitivity, ("public", "private", "sensitive")),
        )  # fmt: skip
        return self._one(type, id)

    def _answer(
        self, kind: str, record: str | WorkRecord, verdict: str, said: dict[str, str], by: str | None
    ) -> Any:
        return self._do("answer", by, kind=kind, id=record_id(record), verdict=verdict, said=said)

    @verb
    def records(self, kind: str, *, task: str | Task | None = None, at: At = None) -> list[Any]:
        """What was recorded, in order: each "decision", "discovery", "artifact" (every version), "nudge", "approval",
        "escalation" or "branch" that the reader may see; with `task`, those that affect it.

        `kind` is decision, discovery, artifact, nudge, approval, escalation or branch."""
        checked("kind of record", kind, tuple(RECORDS))
        type = RECORDS[kind].type
        with self._reading(at) as (reading, rights):
            if task is None:
                rows = reading.views.scan("work.log", self.id, EVENTS[type])
            else:
                rows = reading.views.scan("work.about", self.id, reading.task(id_of(task)).number)
            return visible_records(type, reading, rights, [id for _, id in rows])

    @verb
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
        """Record a choice with its reasons. `reverses` is an earlier decision whose place it takes.

        `question` is what was to be decided. `choice` is what was chosen. `alternatives` is what could have been
        chosen. `reversible` is whether it can be reversed."""
        values = {
            "question": question, "choice": choice, "alternatives": alternatives, "rationale": rationale,
            "confidence": confidence, "reversible": reversible, "reverses": reverses,
        }  # fmt: skip
        return self._record(
            Decision, values, by, task=task, affects=affects, sensitivity=sensitivity, token=_token
        )

    @verb
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
        """Record something that was learned: a constraint, opportunity, risk or insight.

        `text` is what was learned. `type` is constraint, opportunity, risk or insight. `promote_to_core` is a core
        that it may belong to."""
        values = {"text": text, "type": type, "promote_to_core": promote_to_core}
        return self._record(
            Discovery, values, by, task=task, affects=affects, sensitivity=sensitivity, token=_token
        )

    @verb
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
        _read: bool = True,
    ) -> Artifact:
        """Record something that was made, by reference: its path, and the checksum of the file there. What is small is
        stored, too (`store`), so that it can be read where the file is not; `content` is stored in place of a file, and
        refused if it is not small and nobody has said whether to `store` it. The same path again is its next
        version.

        `path` is where it lies. `type` is file, code, document, config, test, migration or schema. `description` is
        more about it. `store` is whether its content is stored. `commit` is the commit that it is in. `branch` is the
        branch that it is on."""
        new = made(path, type, description, content, store, commit, branch, read=_read)
        return self._record(Artifact, {**new.said, **new.more}, by, task=task, token=_token)

    @verb
    def content(self, artifact: str | Artifact, *, at: At = None) -> bytes:
        """The content of an artifact that is stored. Raises NotFound if it is only a reference, or was not there as of
        `at`."""
        record = self._one(Artifact, record_id(artifact), at=at)
        data = None if record.blob is None else self._ledger.blob(record.blob)
        if data is None:
            raise NotFound(f"{record.path!r} is kept by reference only: look for the file itself")
        return data

    @verb
    def contributions(self, *, at: At = None) -> list[Contribution]:
        """What each agent has done, as far as the reader may see it."""
        return contributions_of(self, at)

    # people

    @verb
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
        """Say something to an agent, to the leader ("orchestrator") or to all: each is told once, with its next
        turn, at once with its next heartbeat ("immediate") or when it has nothing to do ("when_idle").

        `text` is what to say. `target` is an agent, orchestrator, or all. `priority` is low, normal, high or
        critical. `delivery` is next_turn, immediate or when_idle."""
        values = {"text": text, "target": target, "priority": priority, "delivery": delivery}
        return self._record(Nudge, values, by, task=task)

    @verb(reads=False)
    def read_messages(self, agent: str | None = None, *, peek: bool = False, at: At = None) -> list[Nudge]:
        """What an agent is to be told in this turn, the most urgent first. Each nudge is told once: it is marked as
        delivered. What has changed that the agent had relied on comes as a nudge, too. With `peek`, or as of `at`, all
        that waits for the agent, and nothing is marked.

        `peek` is whether to look only, so that nothing counts as told."""
        reader = self._agent(agent)
        if peek or at is not None:
            with self._reading(at) as (reading, _):
                rows = waiting(reading, reader, reading.info.leader == reader, "idle")
                return [nudge_for(reading, reader, row) for row in rows]
        self._session.services.fact_watch.look()
        with self._reading(None) as (reading, _):
            mine = [task.id for task in reading.listed("in_progress") if task.assigned_to == reader]
        return self._told(reader, tuple(mine), "turn" if mine else "idle", None)

    def _told(
        self, agent: str, tasks: tuple[str, ...], when: str, only: tuple[str, ...] | None
    ) -> list[Nudge]:
        """Mark nudges as told to an agent: all that wait, or only these."""
        rows = self._do("take", agent, agent=agent, tasks=tasks, when=when, only=only)
        with self._reading(None) as (reading, _):
            return [nudge_for(reading, agent, row) for row in rows]

    @verb
    def acknowledge(self, nudge: str | Nudge, agent: str | None = None) -> None:
        """Say that a nudge was heard: the next holder of the task is not told it again."""
        reader = self._agent(agent)
        self._do("acknowledge", reader, nudge=record_id(nudge), agent=reader)

    @verb
    def review(self, task: str | Task, verdict: str, *, comments: str = "", by: str | None = None) -> Task:
        """Review a task that is done: approved, needs_rework (its holder goes on) or rejected (it has failed). Nobody
        reviews what it did itself.

        `verdict` is approved, needs_rework or rejected. `comments` is what to say about it."""
        checked("verdict", verdict, ("approved", "needs_rework", "rejected"))
        words = checked_text("comments", comments)
        reviewed: Task = self._do("review", by, task=id_of(task), verdict=verdict, comments=words)
        return reviewed

    @verb
    def escalate(
        self, text: str, *, type: str = "stuck", task: str | Task | None = None, by: str | None = None
    ) -> Escalation:
        """Ask somebody for help: stuck, confused, needs_decision or error.

        `text` is what help is needed. `type` is stuck, confused, needs_decision or error."""
        return self._record(Escalation, {"text": text, "type": type}, by, task=task)

    @verb
    def answer(self, escalation: str | Escalation, answer: str, *, by: str | None = None) -> Escalation:
        """Settle an escalation with an answer.

        `answer` is what to answer."""
        self._answer("escalation", escalation, "resolved", {"answer": required_text("answer", answer)}, by)
        return self._one(Escalation, record_id(escalation), True)

    @verb
    def inbox(self, *, at: At = None) -> Inbox:
        """Everything that waits for a person: approvals, choices, reviews, escalations, failed tasks, candidates."""
        with self._reading(at) as (reading, rights):
            approvals, branches = pending(Approval, reading, rights), pending(Branch, reading, rights)
            escalations = pending(Escalation, reading, rights)
            reviews, failed = tuple(reading.listed("review")), tuple(reading.listed("failed"))
        return Inbox(approvals, branches, reviews, escalations, failed, tuple(self.candidates(at=at)))

    @verb
    def watch(self, after: int | None = None, timeout: float | None = None) -> Iterator[Event]:
        """What happens in this work, as it happens: the events that the reader may see.

        `after` is the position after which to begin."""
        self.info()
        for event in self._session.ledger.tail(after, timeout):
            visible = visible_event(self, event)
            if visible is not None:
                yield visible

    # leading

    @verb(repeatable=True)
    def lead(self, agent: str | None = None, *, lease: float = 30.0) -> Lead:
        """Take the lead of this work, if nobody has it. The leader is told of what happens, step by step; if it
        dies, the next one goes on where it was."""
        from .leading import Lead

        leader, length = self._agent(agent), seconds("lease", lease)
        fence: int = self._do("lead", leader, agent=leader, lease=length)
        return Lead(self, leader, fence, length)

    # what somebody needs to know

    @verb
    def context_for(
        self, task: str | Task, *, max_chars: int | None = 6_000, max_tokens: int | None = None, at: At = None
    ) -> Context:
        """What somebody needs to know to do a task, in one budget: goal, constraints, what others found and decided
        that affects it, what was made, nudges, and what is remembered. It says what it left out."""
        from .contexts import context_of

        return context_of(self, id_of(task), max_chars, max_tokens, at)

    @verb
    def candidates(self, *, judged: bool = False, at: At = None) -> list[Candidate]:
        """What may be worth learning from this work, as of `at`, each with a reason and a core that it may belong to.
        What was promoted or rejected by then is left out, unless `judged`.

        `judged` is whether to list those, too, that were promoted or rejected."""
        from .candidates import candidates_of

        return candidates_of(self, judged, at)

    def orchestrate(
        self,
        agent: str,
        handler: Callable[[Lead, LeadStep], Any],
        *,
        stop: threading.Event | None = None,
        **how: Any,
    ) -> int:
        """Lead the work, and let `handler(lead, step)` deal with what happens: see `leading.orchestrate`."""
        from .leading import orchestrate

        if not callable(handler):
            raise BadInput(f"handler {shown(handler)} is not a function: give one of a lead and a step")
        return orchestrate(self, self._agent(agent), handler, stop=stop, **how)

    @verb
    def promote(
        self,
        candidate: str | Candidate,
        *,
        core: str | None = None,
        shared: bool = False,
        override: str = "",
        by: str | None = None,
    ) -> RememberResult:
        """Put a candidate into a core, for good. It takes a librarian or person. Whoever may read the core may read the
        entry: out of a work with members it goes into a private core, or with `shared=True` into any. An entry with
        which recorded digests would be worse is held in the inbox, unless `override` says why it goes in.

        `candidate` is what `candidates` answers, or its id. `core` is the core to put it into: the suggested one, if
        not said. `shared` lets it go into a core that people who are not members may read. `override` is why it goes
        in although recorded digests would be worse with it."""
        from .candidates import promote

        return promote(self, candidate, core, check_flag("shared", shared), by, override)

    @verb
    def reject(self, candidate: str | Candidate, *, reason: str = "", by: str | None = None) -> None:
        """Put a candidate aside.

        `candidate` is what `candidates` answers, or its id."""
        from .candidates import reject

        reject(self, candidate, reason, by)

    # reading

    @contextmanager
    def _reading(self, at: At) -> Iterator[tuple[Reading, Rights]]:
        """The work as of then, if the actor may know of it then and now."""
        with self._session.snapshot() as now:
            rights = self._may_know(now)
            if at is None:
                yield Reading(now, self.id), rights
                return
            with self._session.snapshot(at) as then:
                self._may_know(then, " (as of then)")
                yield Reading(then, self.id, now), rights

    def _may_know(self, views: ViewReader, when: str = "") -> Rights:
        """The rights of the actor. Raises NotFound if it may not know of the work."""
        rights, info = rights_of(views, self._actor), info_of(views, self.id)
        if info is None or not may_know(rights, info):
            raise NotFound(f"{no_work(self.id)}{when}")
        return rights

    def _one(self, type: type[T], id: str, erased: bool = False, at: At = None) -> T:
        with self._reading(at) as (reading, rights):
            records = visible_records(type, reading, rights, [check_name("id", id)], erased)
        if not records:
            raise NotFound(f"there is no {type.__name__.lower()} {id!r} in this work")
        return records[0]

    def __repr__(self) -> str:
        return f"<Work {self.id!r}>"


def _not_in_force(task: Task, token: object) -> str:
    return f"{shown(token)} is no claim of task {task.id!r} in force: it is {task.status} now"
