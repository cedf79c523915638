"""A plain model of working memory: what a person would say the rules are.

It keeps what each task waits for as a set of names, where the book counts; it knows which statuses may follow which
from a table of its own; and it knows nothing of events, leases or rows. What was said about a work is kept in lists, in
the order in which it was said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

TABLE = {
    "pending": {"assigned", "blocked", "cancelled"},
    "assigned": {"in_progress", "pending", "cancelled"},
    "in_progress": {"review", "completed", "failed", "blocked", "pending", "cancelled"},
    "blocked": {"pending", "cancelled"},
    "review": {"completed", "in_progress", "failed"},
    "failed": {"pending", "cancelled"},
    "completed": set[str](),
    "cancelled": set[str](),
}
FINAL = {"completed", "cancelled"}
AGENTS = ("dev-1", "dev-2", "dev-3")
ROLES = {"dev-1": "developer", "dev-2": "developer", "dev-3": "qa"}
LEADERS = ("chief", "dev-1")
PEOPLE = ("eve", *AGENTS, "chief")
"""Whoever says something."""
PRIORITIES = ("low", "normal", "high", "critical")
HEARD = {
    "beat": ("immediate",), "turn": ("immediate", "next_turn"), "idle": ("immediate", "next_turn", "when_idle"),
}  # fmt: skip
"""Which nudges somebody is told who gives a sign of life, takes a turn, or has nothing to do."""
POLICIES: list[Any] = [
    None,
    "escalate",
    "skip",
    "abort",
    {"policy": "retry", "retries": 1, "backoff": 0, "then": "skip"},
    {"policy": "retry", "retries": 2, "backoff": 3600},
    {"policy": "reassign", "retries": 2, "backoff": 0},
    {"policy": "reassign", "retries": 1, "backoff": 3600, "then": "abort"},
]
MOST = 14
"""Tasks of one story, and so few that every claim looks after all holders."""


class Task:
    """A task as the model knows it."""

    def __init__(
        self, id: str, number: int, priority: int, deps: list[str], review: bool, policy: Any
    ) -> None:
        self.id, self.number, self.priority, self.deps, self.review = id, number, priority, deps, review
        self.policy = {"policy": policy} if isinstance(policy, str) else policy
        self.status, self.waived, self.why = "pending", False, False
        self.gates: set[str] = set()
        self.role: str | None = None
        self.given: str | None = None
        """Whom whoever plans has given it to."""
        self.who: str | None = None
        self.token: int | None = None
        self.rework = self.later = self.lost = self.alternative = False
        self.avoid: set[str] = set()
        self.failures = 0
        self.failed_token: int | None = None
        self.title, self.result = "it", Result()


class Result(NamedTuple):
    """What somebody says when it completes a task."""

    summary: str = ""
    learnings: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()


@dataclass
class Nudge:
    id: str
    by: str
    target: str
    priority: str
    delivery: str
    told: dict[str, list[str]] = field(default_factory=dict)
    """To whom, and which tasks it had in hand then."""
    heard: set[str] = field(default_factory=set)
    """Who has acknowledged it."""


@dataclass
class Decision:
    id: str
    by: str
    text: str
    """As a candidate says it, if it has reasons and alternatives."""
    affects: set[str]
    reversible: bool = True
    reverses: str | None = None
    reversed_by: str | None = None
    status: str = "made"


@dataclass
class Discovery:
    id: str
    by: str
    text: str
    type: str
    affects: set[str]
    core: str | None


@dataclass
class Artifact:
    path: str
    by: str
    task: str | None
    version: int


@dataclass
class Approval:
    task: str | None
    gates: bool
    decision: str | None = None
    status: str = "pending"


@dataclass
class Escalation:
    task: str | None
    type: str
    by: str | None
    """None: a failure has made it."""
    status: str = "open"


class Model:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.work = "active"
        self.agents: set[str] = set()
        self.branches: dict[str, dict[str, list[str]]] = {}
        self.goal = ""
        self.approvals: dict[str, Approval] = {}
        self.escalations: list[Escalation] = []
        self.leader: tuple[str, int] | None = None
        """Who leads now; nobody, once its lease has run out."""
        self.led_by: str | None = None
        """Who has led last."""
        self.happened: list[tuple[str, Any]] = []
        """What whoever leads has not dealt with."""
        self.nudges: list[Nudge] = []
        self.carried: set[tuple[str, str]] = set()
        """Tasks with the nudges that go with them to their next holders."""
        self.decisions: list[Decision] = []
        self.discoveries: list[Discovery] = []
        self.artifacts: list[Artifact] = []
        self.done_by: dict[str, list[str]] = {}
        self.reviewed_by: dict[str, list[str]] = {}
        self.judged: dict[str, str] = {}
        """What became of candidates, by what they say."""

    @property
    def open(self) -> bool:
        return self.work in ("active", "paused")

    def done(self, id: str) -> bool:
        return self.tasks[id].status == "completed" or self.tasks[id].waived

    def never(self, ids: list[str]) -> bool:
        """Whether one of these will never be done."""
        return any(self.tasks[id].status == "cancelled" and not self.tasks[id].waived for id in ids)

    def waits(self, task: Task) -> set[str]:
        return {id for id in task.deps if not self.done(id)} | task.gates

    def queue(self, task: Task) -> str | None:
        if self.waits(task) or task.later:
            return None
        if task.status == "pending":
            return f"role:{task.role}" if task.role else ""
        return (
            task.who if task.status == "assigned" or (task.status == "in_progress" and task.rework) else None
        )

    @staticmethod
    def may_claim(agent: str, task: Task, queue: str | None) -> bool:
        return queue in ("", agent, f"role:{ROLES[agent]}") and agent not in task.avoid

    def ordered(self, wanted: Callable[[Task], bool]) -> list[str]:
        found = [one for one in self.tasks.values() if wanted(one)]
        return [one.id for one in sorted(found, key=lambda one: (-one.priority, one.number))]

    def ready(self, agent: str | None) -> list[str]:
        if agent is None:
            return self.ordered(lambda one: self.queue(one) is not None)
        return self.ordered(lambda one: self.may_claim(agent, one, self.queue(one)))

    def blocked(self) -> list[str]:
        waiting = ("pending", "assigned")
        return self.ordered(
            lambda one: one.status == "blocked" or (one.status in waiting and self.queue(one) is None)
        )

    def having(self, status: str) -> list[str]:
        return self.ordered(lambda one: one.status == status)

    def counts(self) -> dict[str, int]:
        found = dict[str, int]()
        for one in self.tasks.values():
            found[one.status] = found.get(one.status, 0) + 1
        told = {"tasks": len(self.tasks)}
        return found | {name: count for name, count in told.items() if count}

    def below(self, id: str) -> list[Task]:
        return [one for one in self.tasks.values() if id in one.deps]

    def upwards(self, start: str, wanted: str) -> bool:
        """Whether a task depends on another by way of what is not over."""
        seen, ahead = {start}, [start]
        while ahead:
            id = ahead.pop()
            if id == wanted:
                return True
            for above in self.tasks[id].deps:
                if above not in seen and self.tasks[above].status not in FINAL:
                    seen.add(above)
                    ahead.append(above)
        return False

    # what people and agents are told

    def nudge(self, id: str) -> Nudge:
        return next(one for one in self.nudges if one.id == id)

    def for_whom(self, nudge: Nudge, agent: str) -> bool:
        """Whether a nudge is for an agent that has not been told. Nobody is told what it has said to all itself, and
        who leads after another is not told what that one was told."""
        if agent in nudge.told:
            return False
        if nudge.target == "all":
            return nudge.by != agent
        if nudge.target == "orchestrator":
            return agent == self.led_by and not nudge.told
        return nudge.target == agent

    def in_hand(self, agent: str) -> list[str]:
        return [one.id for one in self.tasks.values() if one.status == "in_progress" and one.who == agent]

    def waiting(self, agent: str, when: str = "idle") -> list[str]:
        """The nudges for an agent, the most urgent first and then the oldest."""
        return self.by_urgency(
            one for one in self.nudges if one.delivery in HEARD[when] and self.for_whom(one, agent)
        )

    @staticmethod
    def by_urgency(nudges: Iterable[Nudge]) -> list[str]:
        """`sorted` leaves those that are as urgent in their order."""
        return [one.id for one in sorted(nudges, key=lambda one: -PRIORITIES.index(one.priority))]

    def turn(self, agent: str) -> list[str]:
        """What an agent is told with a turn: what waits for it, and what came with the tasks that it has in hand."""
        mine = self.in_hand(agent)
        fresh = self.waiting(agent, "turn" if mine else "idle")
        return self.by_urgency(
            one for one in self.nudges
            if one.id in fresh
            or (agent != one.by and agent not in one.told and any((id, one.id) in self.carried for id in mine))
        )  # fmt: skip

    def tell(self, agent: str, nudges: Iterable[str], tasks: list[str]) -> None:
        for id in nudges:
            self.nudge(id).told[agent] = tasks
            self.carried |= {(task, id) for task in tasks}
            self.happened = [one for one in self.happened if one != ("nudge", id)]

    def acknowledge(self, nudge: Nudge, agent: str) -> None:
        nudge.heard.add(agent)
        self.carried -= {(task, nudge.id) for task in nudge.told[agent]}

    def steps(self) -> list[tuple[str, Any]]:
        """What whoever leads is to deal with, in order."""
        order = ("nudge", "completed", "failed", "escalation")
        left = [(kind, what) for kind, what in self.happened if kind != "escalation" or what.status == "open"]
        return sorted(left, key=lambda one: order.index(one[0]))

    # what was said

    def decision(self, id: str) -> Decision:
        return next(one for one in self.decisions if one.id == id)

    def escalate(self, task: str | None, type: str, by: str | None) -> None:
        self.escalations.append(Escalation(task, type, by))
        self.happened.append(("escalation", self.escalations[-1]))

    def produce(self, path: str, by: str, task: str | None) -> None:
        version = 1 + sum(one.path == path for one in self.artifacts)
        self.artifacts.append(Artifact(path, by, task, version))

    def candidates(self) -> list[tuple[str, str]]:
        """What may be worth learning, judged or not: by its kind and what it says."""
        found = [
            ("decision", one.text)
            for one in self.decisions
            if one.text and one.reversed_by is None and one.status != "rejected"
        ]
        found += [("insight", one.text) for one in self.discoveries if one.type == "insight" or one.core]
        texts = [
            text
            for one in self.tasks.values()
            if one.status == "completed"
            for text in (one.title, *one.result.learnings)
        ]
        return found + [("pattern", text) for text in dict.fromkeys(texts) if texts.count(text) >= 3]

    def contributions(self) -> dict[str, tuple[list[str], list[str], int, int, int]]:
        """What each has done: tasks, reviews, and how many decisions, discoveries and artifacts."""
        said = [
            Counter(one.by for one in each) for each in (self.decisions, self.discoveries, self.artifacts)
        ]
        agents = {*self.done_by, *self.reviewed_by, *said[0], *said[1], *said[2]}
        return {
            agent: (
                self.done_by.get(agent, []), list(dict.fromkeys(self.reviewed_by.get(agent, []))), said[0][agent],
                said[1][agent], said[2][agent],
            )
            for agent in agents
        }  # fmt: skip

    # what happens

    def complete(self, task: Task, result: Result) -> None:
        for path in result.paths:
            self.produce(path, str(task.who), task.id)
        task.result = result
        if task.review:
            self.step(task, "review")
        else:
            self.finish(task)

    def finish(self, task: Task) -> None:
        self.step(task, "completed")
        self.done_by.setdefault(str(task.who), []).append(task.id)
        if self.led_by is not None:
            self.happened.append(("completed", task.id))

    def step(self, task: Task, *path: str) -> None:
        for status in path:
            assert status in TABLE[task.status], (task.id, task.status, status)
            task.status = status
        if task.status != "in_progress":
            task.rework, task.lost = False, task.lost and task.later

    def back(self, task: Task) -> None:
        """A task goes back to whom it was for before somebody claimed it."""
        self.step(task, "pending")
        task.who = task.given
        if task.given is not None:
            self.step(task, "assigned")

    def settle(self) -> None:
        """What was blocked only by waiting goes on when it waits for nothing more."""
        for one in self.tasks.values():
            if one.status == "blocked" and not one.why and not self.waits(one):
                self.back(one)

    def cancel(self, task: Task, way: str) -> None:
        self.step(task, "cancelled")
        task.later, task.waived = False, way == "free"
        for asked in self.approvals.values():
            if asked.task == task.id and asked.status == "pending":
                asked.status = "cancelled"
        self.no_help_needed(task)
        for one in self.below(task.id) if way != "free" else ():
            if way == "cancel" and one.status not in FINAL:
                self.cancel(one, way)
            elif one.status in ("pending", "assigned"):
                self.step(one, *(("pending", "blocked") if one.status == "assigned" else ("blocked",)))
                one.why, one.who = True, None
            elif one.status == "blocked":
                one.why = True

    def no_help_needed(self, task: Task) -> None:
        for one in self.escalations:
            if one.task == task.id:
                one.status = "resolved"

    def answer(self, id: str, yes: bool) -> None:
        asked = self.approvals[id]
        asked.status = "approved" if yes else "rejected"
        answers = asked.decision is not None and self.decision(asked.decision).status == "made"
        if asked.decision is not None and answers:
            self.decision(asked.decision).status = asked.status
        task = None if asked.task is None else self.tasks[asked.task]
        if task is not None and asked.gates and task.status not in FINAL:
            if yes:
                task.gates.discard(id)
                self.settle()
            else:
                self.cancel(task, "block")
        if asked.decision is not None and answers:
            self.answer_about(asked.decision, yes)

    def answer_about(self, decision: str, yes: bool) -> None:
        """Whoever decides about a decision has answered all that was asked about it."""
        self.decision(decision).status = "approved" if yes else "rejected"
        for id, asked in self.approvals.items():
            if asked.decision == decision and asked.status == "pending":
                self.answer(id, yes)

    def fail(self, task: Task) -> None:
        self.step(task, "failed")
        self.happened.append(("failed", task.id))
        task.failures += 1
        task.failed_token = task.token
        policy: dict[str, Any] = task.policy or {"policy": "escalate"}
        what = policy["policy"]
        if what in ("retry", "reassign"):
            if task.failures <= policy["retries"]:
                if what == "reassign" and task.who:
                    task.avoid.add(task.who)
                    task.given = None
                self.back(task)
                task.token = None
                task.later = policy["backoff"] > 0
                return
            what = policy.get("then", "escalate")
        if what == "skip":
            self.cancel(task, "free")
        elif what == "abort":
            self.work = "cancelled"
        else:
            self.escalate(task.id, "error", None)

    def left(self) -> list[Task]:
        """What the dead have left, and what is to be tried again now."""
        return [
            one for one in self.tasks.values()
            if one.lost and (one.status == "in_progress" or (one.later and one.status in ("pending", "assigned")))
        ]  # fmt: skip

    def give_back(self, task: Task) -> None:
        if task.later:
            task.lost = task.later = False
        else:
            self.back(task)
        task.token = None

    def reclaim(self) -> None:
        for one in self.left():
            self.give_back(one)
