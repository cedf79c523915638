"""The verbs of a work, for the actor that uses it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from ..access.rights import OWNER, Rights, check_actor, may_see_of, rights_of
from ..access.secrets import masked
from ..engines.contract import Lease
from ..errors import BadInput, Conflict, Denied, Fenced, NotFound, TooLarge, UnsafePath, shown
from ..files.folders import Folder
from ..ledger.events import (
    MAX_BLOB,
    MAX_NAME,
    Blob,
    Event,
    check_name,
    check_path,
    check_text,
    check_whole,
)
from ..ledger.reader import Snapshot
from ..memory.visibility import without_hidden
from .capability import BETWEEN, EVERY
from .claims import MOST_AT_ONCE, Made, run_out
from .graph import id_of, names, new_task
from .handles import Approvals, TaskHandle, WorkManagement
from .kinds import COMPLETED, DECIDED, DISCOVERED, PRODUCED, REVIEWED
from .lifecycle import Plan, check_same
from .people import may_see_nudge, waiting
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
    Nudge,
    WorkRecord,
    checked,
    nudge_for,
    record_id,
    record_of,
)
from .tasks import (
    ARTIFACT_TYPES,
    STATUSES,
    OnFailure,
    Task,
    TaskResult,
    checked_flag,
    checked_policy,
    checked_text,
    listed,
    required_text,
    texts,
)
from .transaction import (
    WORK_MOVES,
    Act,
    Reading,
    WorkInfo,
    checked_limits,
    checked_settings,
    info_of,
    lease_name,
    may_know,
    no_work,
)

if TYPE_CHECKING:
    import threading

    from ..ledger.ledger import At, Ledger
    from ..session import Session
    from .board import Board
    from .candidates import Candidate
    from .contexts import Context
    from .leading import Lead, LeadStep
    from .radar import Overlap
    from .worker import Handler, Worked

T = TypeVar("T", bound=WorkRecord)

LEASE = 60.0
SMALL = 1 << 20
"""The most bytes of a file that are stored in the book unless somebody asks for it."""


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

    def info(self, at: At = None) -> WorkInfo:
        """What it is for and how it stands, as of `at`."""
        with self._reading(at) as (reading, _):
            found = info_of(reading.views, self.id)
            assert found is not None
            return found

    @cached_property
    def manage(self) -> WorkManagement:
        """What is done to the work as a whole: pause, resume, complete, abandon, archive, discard, export, change."""
        return WorkManagement(self)

    @cached_property
    def approvals(self) -> Approvals:
        """Ask people to allow something, and answer: request, grant, refuse."""
        return Approvals(self)

    def counts(self, *, at: At = None) -> dict[str, int]:
        """How many tasks have each status, and how many tasks there are, as of `at`."""
        with self._reading(at) as (reading, _):
            return reading.counts

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

    def task(self, id: str | Task) -> TaskHandle:
        """One task: what it is (`info`), and what is done to it."""
        return TaskHandle(self, id)

    def tasks(self, status: str | None = None, *, reviewer: str | None = None, at: At = None) -> list[Task]:
        """All tasks in the order in which they were added; those of one status, if it is named. "waiting" are those
        that wait for others, for somebody's word or for their next try, and those that are blocked. With a `reviewer`,
        those that it or nobody is to review."""
        if status is not None:
            checked("status", status, (*STATUSES, "waiting"))
        if reviewer is not None:
            reviewer = check_name("reviewer", reviewer)
        with self._reading(at) as (reading, _):
            if status == "waiting":
                found = list(reading.listed("blocked", "waiting", "assigned", "later"))
                found = [one for one in found if one.status != "assigned" or one.waits or one.later]
            elif status in ("assigned", "in_progress", "blocked", "review", "failed"):
                found = list(reading.listed(status))
            else:
                found = [one for one in reading.all if status in (None, one.status)]
        if reviewer is not None:
            found = [one for one in found if one.reviewer in (None, reviewer)]
        return sorted(found, key=lambda one: one.number)

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

    def critical_path(self, *, at: At = None) -> list[Task]:
        """The longest chain of tasks that still have to be done one after the other."""
        from .drawing import longest_chain

        return longest_chain(self.tasks(at=at))

    def graph(self, format: str = "mermaid", *, at: At = None) -> str:
        """The tasks and what they wait for, as text that Mermaid or Graphviz ("dot") draws."""
        from .drawing import drawn

        return drawn(self.info(at), self.tasks(at=at), format)

    def branch(
        self, question: str, options: Mapping[str, Sequence[str | Task]], *, by: str | None = None
    ) -> Branch:
        """Make alternatives of pending tasks: they wait until one of the options is chosen. The names of the
        options are kept for good, without secrets: what is to be erased one day belongs into the question."""
        return self._record(Branch, {"question": question, "options": options}, by)

    def choose(self, branch: str | Branch, option: str, *, rationale: str, by: str | None = None) -> Decision:
        """Choose one of the alternatives. The tasks of the others are cancelled, with the reason, and what depends on
        them goes on without."""
        said = {"rationale": required_text("rationale", rationale)}
        return self._one(
            Decision, self._answer("branch", branch, masked(check_name("option", option)), said, by)
        )

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

    def reopen_claim(self, task: str | Task, token: int) -> Claim:
        """The claim with this token again, in another process than the one that made it. Raises Fenced if it is no
        longer in force."""
        claim = self._with_token(task, token)
        if claim.task.status != "in_progress":
            raise Fenced(_not_in_force(claim.task, token))
        return claim

    def _with_token(self, task: str | Task, token: int) -> Claim:
        """The last claim of a task, also after its end: the call that ended it can be repeated."""
        found = self.task(task).info()
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
            result=TaskResult(checked_text("summary", summary)),
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

    def _record(
        self,
        type: type[T],
        given: Mapping[str, Any],
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
            {one: value for one, check in part.items() if (value := check(one, given.get(one))) is not None}
            for part in (kind.said, kind.fields)
        )
        id: str = self._do(
            "record", by, kind=name, said=said, fields=fields, affects=names("affects", affects),
            task=None if task is None else id_of(task), sensitivity=_level(sensitivity), token=token,
        )  # fmt: skip
        return self._one(type, id)

    def _answer(
        self, kind: str, record: str | WorkRecord, verdict: str, said: dict[str, str], by: str | None
    ) -> Any:
        return self._do("answer", by, kind=kind, id=record_id(record), verdict=verdict, said=said)

    def records(self, kind: str, *, task: str | Task | None = None, at: At = None) -> list[Any]:
        """What was recorded, in order: each "decision", "discovery", "artifact" (every version), "nudge", "approval",
        "escalation" or "branch" that the reader may see; with `task`, those that affect it."""
        checked("kind of record", kind, tuple(RECORDS))
        type = RECORDS[kind].type
        with self._reading(at) as (reading, rights):
            if task is None:
                rows = reading.views.scan("work.log", self.id, EVENTS[type])
            else:
                rows = reading.views.scan("work.about", self.id, reading.task(id_of(task)).number)
            return self._seen(type, reading, rights, [id for _, id in rows])

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
        given = {
            "question": question, "choice": choice, "alternatives": alternatives, "rationale": rationale,
            "confidence": confidence, "reversible": reversible, "reverses": reverses,
        }  # fmt: skip
        return self._record(
            Decision, given, by, task=task, affects=affects, sensitivity=sensitivity, token=_token
        )

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
        given = {"text": text, "type": type, "promote_to_core": promote_to_core}
        return self._record(
            Discovery, given, by, task=task, affects=affects, sensitivity=sensitivity, token=_token
        )

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
        return self._record(Artifact, {**made.said, **made.more}, by, task=task, token=_token)

    def content(self, artifact: str | Artifact, *, at: At = None) -> bytes:
        """The content of an artifact that is stored. Raises NotFound if it is only a reference, or was not there as of
        `at`."""
        found = self._one(Artifact, record_id(artifact), at=at)
        data = None if found.blob is None else self._ledger.blob(found.blob)
        if data is None:
            raise NotFound(f"{found.path!r} is kept by reference only: look for the file itself")
        return data

    def contributions(self, *, at: At = None) -> list[Contribution]:
        """What each agent has done, as far as the reader may see it."""
        with self._reading(at) as (reading, rights):
            found = dict[str, dict[str, list[str]]]()
            spans = dict[str, list[int]]()
            rows = reading.views.scan("work.by", self.id)
            for type in (Decision, Discovery, Artifact):
                made = [id for (_, _, kind, _), id in rows if kind == EVENTS[type]]
                seen = {one.id for one in self._seen(type, reading, rights, made, erased=True)}
                rows = [row for row in rows if row[0][2] != EVENTS[type] or row[1] in seen]
            for (_, agent, kind, position), id in rows:
                found.setdefault(str(agent), {}).setdefault(str(kind), []).append(id)
                spans.setdefault(str(agent), []).append(int(position))
            roles = {agent: rights_of(reading.views, agent).role for agent in found}
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
        """Say something to an agent, to the leader ("orchestrator") or to all: each is told once, with its next
        turn, at once with its next heartbeat ("immediate") or when it has nothing to do ("when_idle")."""
        given = {"text": text, "target": target, "priority": priority, "delivery": delivery}
        return self._record(Nudge, given, by, task=task)

    def read_messages(self, agent: str | None = None, *, peek: bool = False, at: At = None) -> list[Nudge]:
        """What an agent is to be told in this turn, the most urgent first. Each nudge is told once: it is marked as
        delivered. What has changed that the agent had relied on comes as a nudge, too. With `peek`, or as of `at`, all
        that waits for the agent, and nothing is marked."""
        who = self._agent(agent)
        if peek or at is not None:
            with self._reading(at) as (reading, _):
                info = info_of(reading.views, self.id)
                leading = info is not None and info.leader == who
                return [nudge_for(reading, who, row) for row in waiting(reading, who, leading, "idle")]
        self._session.services.fact_watch.look()
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
        self._do("acknowledge", who if self._actor == OWNER else None, nudge=record_id(nudge), agent=who)

    def review(self, task: str | Task, verdict: str, *, comments: str = "", by: str | None = None) -> Task:
        """Review a task that is done: approved, needs_rework (its holder goes on) or rejected (it has failed). Nobody
        reviews what it did itself."""
        what = checked("verdict", verdict, ("approved", "needs_rework", "rejected"))
        found: Task = self._do(
            "review", by, task=id_of(task), verdict=what, comments=checked_text("comments", comments)
        )
        return found

    def escalate(
        self, text: str, *, type: str = "stuck", task: str | Task | None = None, by: str | None = None
    ) -> Escalation:
        """Ask somebody for help: stuck, confused, needs_decision or error."""
        return self._record(Escalation, {"text": text, "type": type}, by, task=task)

    def answer(self, escalation: str | Escalation, answer: str, *, by: str | None = None) -> Escalation:
        """Settle an escalation with an answer."""
        self._answer("escalation", escalation, "resolved", {"answer": required_text("answer", answer)}, by)
        return self._one(Escalation, record_id(escalation), True)

    def inbox(self, *, at: At = None) -> Inbox:
        """Everything that waits for a person: approvals, choices, reviews, escalations, failed tasks, candidates."""
        return Inbox(
            tuple(one for one in self._pending(Approval, "approval", at)),
            tuple(one for one in self._pending(Branch, "branch", at)),
            self._listed("review", at),
            tuple(one for one in self._pending(Escalation, "escalation", at)),
            self._listed("failed", at),
            tuple(self.candidates(at=at)),
        )

    def _listed(self, status: str, at: At) -> tuple[Task, ...]:
        """The tasks of a status, the highest priority first."""
        with self._reading(at) as (reading, _):
            return tuple(reading.listed(status))

    def _pending(self, type: type[T], name: str, at: At) -> list[T]:
        with self._reading(at) as (reading, rights):
            return self._waiting(type, name, reading, rights)

    def _waiting(self, type: type[T], name: str, reading: Reading, rights: Rights) -> list[T]:
        rows = reading.views.scan("work.pending", self.id, name)
        return self._seen(type, reading, rights, [str(key[3]) for key, _ in rows], erased=True)

    def watch(self, after: int | None = None, timeout: float | None = None) -> Iterator[Event]:
        """What happens in this work, as it happens: the events that the reader may see."""
        self.info()
        for event in self._session.follow(after, timeout):
            yield from self._shown(event)

    def _shown(self, event: Event) -> list[Event]:
        """The event, if it is about this work and the reader may see it now. Who may know of a work may see what
        happens in it, up to how sensitive that is; a nudge is between who sent it and whom it is for."""
        if event.erased or event.kind not in EVERY or event.payload["work"] != self.id:
            return []
        with self._reading(None) as (reading, rights):
            labels = {**event.labels, **(reading.views.get("labels", event.id) or {})}
            if event.kind in BETWEEN:
                whom = event.payload.get("target") or event.payload.get("to")
                if not may_see_nudge(reading, rights, {"by": event.actor, "target": whom}):
                    return []
            seen = may_see_of(rights, event.actor, event.kind, {**labels, "audience": "team"})
            return [without_hidden(reading.views, rights, event)] if seen else []

    # leading

    def lead(self, agent: str | None = None, *, lease: float = 30.0) -> Lead:
        """Take the lead of this work, if nobody has it. The leader is told of what happens, step by step; if it
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

    def candidates(self, *, judged: bool = False, at: At = None) -> list[Candidate]:
        """What may be worth learning from this work, as of `at`, each with a reason and a core that it may belong to.
        What was promoted or rejected by then is left out, unless `judged`."""
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
            known = info_of(now, self.id)
            if known is None or not may_know(rights, known):
                raise NotFound(no_work(self.id))
            if at is None:
                yield Reading(now, self.id), rights
                return
            with self._ledger.snapshot(at) as then:
                known = info_of(then, self.id)
                if known is None or not may_know(rights_of(then, self._actor), known):
                    raise NotFound(f"{no_work(self.id)} (as of then)")
                yield Reading(then, self.id, now), rights

    def _one(self, type: type[T], id: str, erased: bool = False, at: At = None) -> T:
        with self._reading(at) as (reading, rights):
            found = self._seen(type, reading, rights, [check_name("id", id)], erased)
        if not found:
            raise NotFound(f"there is no {type.__name__.lower()} {id!r} in this work")
        return found[0]

    def _latest(self, type: type[T], count: int, reading: Reading, rights: Rights) -> list[T]:
        """The last few of a type that the reader may see, the newest first."""
        rows = reading.views.each("work.log", self.id, EVENTS[type], reverse=True)
        visible = reading.visible(rights.actor, ((EVENTS[type], id) for _, id in rows))
        return self._seen(type, reading, rights, [id for _, id in islice(visible, count)])

    def _seen(
        self, type: type[T], reading: Reading, rights: Rights, ids: Sequence[str], erased: bool = False
    ) -> list[T]:
        """Those of these ids that are of a type and that the reader may see, by the labels of then and of now; what was
        erased is left out, or stands there without its words."""
        rows = reading.seen(rights.actor, ids)
        wanted = {
            id: row for id, row in rows.items() if row["kind"] == EVENTS[type] and (row["said"] or erased)
        }
        if type is not Nudge:
            return [
                record_of(type, id, row, self._words_of_others(reading, rights, row))
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
            task, info = reading.task(self.task.id), info_of(reading.views, self.work.id)
            urgent = waiting(reading, self.agent, False, "beat")
            in_force = _leases(reading, [task])
        if info is not None and not info.open:
            raise Conflict(f"the work {info.name!r} is {info.status}: there is no use in going on")
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
        result = TaskResult(
            checked_text("summary", summary), texts("next_steps", next_steps), texts("learnings", learnings),
            tuple(known),
        )  # fmt: skip
        following: Task | None
        done, following = self._ask("complete", result=result, made=made, then=then, event=event)
        self._becomes(done)
        return following

    def fail(self, reason: str) -> Task:
        """The task has failed; its policy says what happens next."""
        return self._do("fail", reason=required_text("reason", reason))

    def release(self, reason: str = "") -> Task:
        """Give the task back, for those it was for."""
        return self._do("release", reason=checked_text("reason", reason))

    def block(self, reason: str = "", *, on: Sequence[str | Task] = ()) -> Task:
        """The task cannot go on: until somebody clears the reason, or until other tasks are done."""
        why = checked_text("reason", reason)
        return self._do("block_or_split", reason=why, on=names("on", on), subtasks=())

    def split(self, subtasks: Sequence[str | Mapping[str, Any]]) -> Task:
        """Split the task: it waits until these are done, and can then be claimed again to bring them together. They are
        for the same role as the task, unless they name one (`for_role`). Who may not orchestrate gives them no agent,
        no other role, no tasks that they block, no failure that aborts the work and no higher priority than the task's
        own."""
        fields = [{"title": one} if isinstance(one, str) else one for one in listed("subtasks", subtasks)]
        return self._do("block_or_split", reason="", on=(), subtasks=tuple(new_task(one) for one in fields))

    def nudges(self) -> list[Nudge]:
        """What the agent is to be told in this turn, with what came in by heartbeats that a worker made for it."""
        urgent, self.urgent = self.urgent, []
        return [*urgent, *self.work.read_messages(self.agent)]

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
    work._do("create", by, plan=Plan(info_from(id, fields), tasks))
    return work


def opened(session: Session, id: str, fields: Mapping[str, Any]) -> Work:
    """The work with an id. If it is said what it was begun with, that must be so."""
    work = Work(session, id)
    given = [name for name, value in fields.items() if value]
    with work._reading(None) as (reading, _):
        row = reading.views.get("work.works", id)
    if given:
        began = session.ledger.event(row["event"])
        check_same(began, info_from(id, {**fields, "name": "any"}), given)
    return work


def info_from(id: str, fields: Mapping[str, Any]) -> WorkInfo:
    """What a work is begun with. Raises BadInput that names the field."""
    pattern = fields["pattern"]
    return WorkInfo(
        id,
        required_text("name", fields["name"]),
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
    """The id of the work that a task or an event belongs to, if the reader may know of it."""
    with session.ledger.snapshot() as now:
        where = now.get("work.ids", id)
        event = session.ledger.event(id) if where is None else None
        if event is not None and event.kind in EVERY:
            where = [event.payload["work"]]
        info = None if where is None else info_of(now, where[0])
        if info is None or not may_know(rights_of(now, session.actor), info):
            raise NotFound(
                f"there is no task {id!r} in this book, and nothing else of a work: look for its id"
            )
        return info.id


def works_of(session: Session, status: str | None, at: At) -> list[WorkInfo]:
    if status is not None:
        checked("status", status, tuple(WORK_MOVES))
    with session.ledger.snapshot() as now, session.ledger.snapshot(at) as then:
        rights = [rights_of(views, session.actor) for views in (then, now)]
        infos = [msgspec.convert(row, WorkInfo) for _, row in then.scan("work.works")]
    known = [info for info in infos if all(may_know(right, info) for right in rights)]
    return [info for info in known if status in (None, info.status)]


def stale(
    infos: Sequence[WorkInfo], now: datetime, older_than: timedelta | None
) -> list[tuple[WorkInfo, str]]:
    """The works that can be put away, and why."""
    found = []
    for one in infos:
        quiet = now - datetime.fromtimestamp(one.changed_us / 1e6, UTC)
        hours = one.settings.get("auto_archive_hours")
        limit = older_than if older_than is not None else None if hours is None else timedelta(hours=hours)
        if limit is not None and one.status in ("completed", "cancelled") and quiet >= limit:
            found.append((one, f"{one.status} {quiet.days} days and {quiet.seconds // 3600} hours ago"))
    return found


def _leases(reading: Reading, tasks: Sequence[Task]) -> Mapping[str, Lease]:
    """The leases of these tasks that are in force now."""
    assert isinstance(reading.views, Snapshot)
    return reading.views.reads.leases([lease_name(one) for one in tasks]) if tasks else {}


def _not_in_force(task: Task, token: object) -> str:
    return f"{shown(token)} is no claim of task {task.id!r} in force: it is {task.status} now"


# checking what is given


def seconds(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0.05 <= given <= 30 * 86_400:
        raise BadInput(f"{name} {shown(given)} is not a number of seconds from 0.05 to {30 * 86_400:,}")
    return float(given)


def _level(given: str) -> str:
    return checked("sensitivity", given, ("public", "private", "sensitive"))


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
