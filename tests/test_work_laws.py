"""Working memory against a plain model: whatever is asked in whatever order, tasks, lists and counts are right.

The model keeps what each task waits for as a set of names, where the book counts; it knows which statuses may follow
which from a table of its own; and it knows nothing of events, leases or rows.
"""

# ruff: noqa: E731  (what is asked is said first, and then done or refused)

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import commonplace
from commonplace import BadMove, Claim, Conflict, Cycle, Denied, Fenced
from commonplace.work.capability import EVERY
from commonplace.work.leading import Lead
from commonplace.work.sets import VIEW, Sets, fold, keys

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
        self.who: str | None = None
        self.token: int | None = None
        self.rework = self.later = self.lost = self.alternative = False
        self.avoid: set[str] = set()
        self.failures = 0


class Model:
    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.work = "active"
        self.agents: set[str] = set()
        self.branches: dict[str, dict[str, list[str]]] = {}
        self.asked: dict[str, tuple[str | None, bool]] = {}
        self.escalations = 0
        self.leader: tuple[str, int] | None = None

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
            return ""
        return (
            task.who if task.status == "assigned" or (task.status == "in_progress" and task.rework) else None
        )

    def ordered(self, wanted: Callable[[Task], bool]) -> list[str]:
        found = [one for one in self.tasks.values() if wanted(one)]
        return [one.id for one in sorted(found, key=lambda one: (-one.priority, one.number))]

    def ready(self, agent: str | None) -> list[str]:
        if agent is None:
            return self.ordered(lambda one: self.queue(one) is not None)
        return self.ordered(lambda one: self.queue(one) in ("", agent) and agent not in one.avoid)

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
        told = {"tasks": len(self.tasks), "agents": len(self.agents)}
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

    # what happens

    def step(self, task: Task, *path: str) -> None:
        for status in path:
            assert status in TABLE[task.status], (task.id, task.status, status)
            task.status = status
        if task.status != "in_progress":
            task.rework = task.lost = False

    def settle(self) -> None:
        """What was blocked only by waiting goes on when it waits for nothing more."""
        for one in self.tasks.values():
            if one.status == "blocked" and not one.why and not self.waits(one):
                self.step(one, "pending")

    def cancel(self, task: Task, way: str) -> None:
        self.step(task, "cancelled")
        task.later, task.waived = False, way == "free"
        self.asked = {id: about for id, about in self.asked.items() if about[0] != task.id}
        for one in self.below(task.id) if way != "free" else ():
            if way == "cancel" and one.status not in FINAL:
                self.cancel(one, way)
            elif one.status in ("pending", "assigned"):
                self.step(one, *(("pending", "blocked") if one.status == "assigned" else ("blocked",)))
                one.why, one.who = True, None
            elif one.status == "blocked":
                one.why = True

    def fail(self, task: Task) -> None:
        self.step(task, "failed")
        task.failures += 1
        policy: dict[str, Any] = task.policy or {"policy": "escalate"}
        what = policy["policy"]
        if what in ("retry", "reassign"):
            if task.failures <= policy["retries"]:
                if what == "reassign" and task.who:
                    task.avoid.add(task.who)
                self.step(task, "pending")
                task.who = task.token = None
                task.later = policy["backoff"] > 0
                return
            what = policy.get("then", "escalate")
        if what == "skip":
            self.cancel(task, "free")
        elif what == "abort":
            self.work = "cancelled"
        else:
            self.escalations += 1

    def reclaim(self) -> None:
        for one in self.tasks.values():
            if one.lost and one.later and one.status in ("pending", "assigned"):
                one.lost = one.later = False
                one.token = None
            elif one.lost and one.status == "in_progress":
                self.step(one, "pending")
                one.who = one.token = None


def rows(book: Any) -> dict[str, list[tuple[bytes, int, bytes | None]]]:
    """The rows of working memory, byte for byte."""
    with book.snapshot() as snapshot:
        names = [name for name in snapshot.registry.views if name.startswith("work.")]
        found = {}
        for name in names:
            space = snapshot.meta.space(snapshot.registry.view(name))
            found[name] = [
                (row.key, row.position, row.value)
                for row in snapshot.reads.scan(space, b"", None, None, None)
            ]
        return found


class Story(RuleBasedStateMachine):
    """Everything that can be asked of a work, in any order."""

    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory() if self.url != "memory:" else None
        where = self.url if self.folder is None else f"{self.url}{Path(self.folder.name) / 'book.db'}"
        self.book = commonplace.open(where)
        self.work = self.book.work(name="it", id="w")
        self.model = Model()
        self.claims: list[Claim] = []
        self.leads: list[Lead] = []
        self.handled: set[str] = set()
        self.past: list[tuple[int, Any]] = []
        self.steps = 0

    # asking

    @contextmanager
    def refused(self, *expected: type[Exception], allowed: str | None = None) -> Iterator[None]:
        """What is asked is refused with one of these errors, and nothing is written."""
        head = self.book.head
        with pytest.raises(expected) as error:
            yield
        assert isinstance(error.value, commonplace.CommonplaceError)
        if allowed is not None:
            assert isinstance(error.value, BadMove)
            assert set(error.value.allowed) == TABLE[allowed]
            assert len(error.value.allowed) == len(TABLE[allowed])
        if not isinstance(error.value, Denied):  # a denial is recorded
            assert self.book.head == head

    def closed(self, act: Callable[[], Any]) -> bool:
        """Whether the work is over, so that this was refused."""
        if not self.model.open:
            with self.refused(Conflict):
                act()
        return not self.model.open

    def pick(self, data: Any, what: str = "task") -> Task:
        return self.model.tasks[data.draw(st.sampled_from(sorted(self.model.tasks)), label=what)]

    def some(self, data: Any, most: int = 3) -> list[str]:
        return (
            data.draw(st.lists(st.sampled_from(sorted(self.model.tasks)), max_size=most, unique=True))
            if (self.model.tasks)
            else []
        )

    def has_tasks(self) -> bool:
        return bool(self.model.tasks)

    def may_grow(self) -> bool:
        return len(self.model.tasks) < MOST

    def moves(self, task: Task, path: tuple[str, ...], act: Callable[[], Any]) -> bool:
        """Ask for steps of a task. Answers whether they were taken, in the model, too."""
        if self.closed(act):
            return False
        status = task.status
        for wanted in path:
            if wanted not in TABLE[status]:
                with self.refused(BadMove, allowed=status):
                    act()
                return False
            status = wanted
        act()
        self.model.step(task, *path)
        return True

    # the graph

    @initialize()
    def begin(self) -> None:
        self.added("t0", self.work.add_task("it", id="t0"), 0, [], False, None)

    def added(self, id: str, task: Any, priority: int, deps: list[str], review: bool, policy: Any) -> Task:
        assert task.number == len(self.model.tasks)
        one = self.model.tasks[id] = Task(id, task.number, priority, deps, review, policy)
        return one

    @precondition(may_grow)
    @rule(
        data=st.data(), priority=st.integers(-1, 2), review=st.booleans(), policy=st.sampled_from(POLICIES),
        agent=st.sampled_from([None, None, None, *AGENTS]), risk=st.sampled_from(["", "", "", "data is lost"]),
    )  # fmt: skip
    def add(self, data: Any, priority: int, review: bool, policy: Any, agent: str | None, risk: str) -> None:
        id, deps = f"t{len(self.model.tasks)}", self.some(data)
        act: Callable[[], Any] = lambda: self.work.add_task(
            "it", id=id, priority=priority, needs_review=review, on_failure=policy, depends_on=deps, assigned_to=agent,
            risk=risk,
        )  # fmt: skip
        if self.closed(act):
            return
        if self.model.never(deps):
            with self.refused(Conflict):
                act()
            return
        task = act()
        one = self.added(id, task, priority, deps, review, policy)
        if agent is not None:
            self.model.step(one, "assigned")
            one.who = agent
            self.model.agents.add(agent)
        if risk:
            one.gates.add(task.approval)
            self.model.asked[task.approval] = (id, True)
        assert act() == task  # the same call again

    @precondition(may_grow)
    @rule(data=st.data(), count=st.integers(2, 3), backwards=st.booleans(), circle=st.booleans())
    def add_many(self, data: Any, count: int, backwards: bool, circle: bool) -> None:
        first = len(self.model.tasks)
        ids = [f"t{first + n}" for n in range(count)]
        deps = {id: self.some(data, 2) for id in ids}
        for n in range(1, count):
            inner = (ids[n - 1], ids[n]) if backwards else (ids[n], ids[n - 1])
            deps[inner[0]] = [*deps[inner[0]], inner[1]]
        blocks = self.some(data, 1)
        fields = [{"title": "it", "id": id, "depends_on": deps[id]} for id in ids]
        fields[-1]["blocks"] = blocks
        act: Callable[[], Any] = lambda: self.work.add_tasks(fields)
        if self.closed(act):
            return
        if circle:
            ends = (ids[-1], ids[0]) if backwards else (ids[0], ids[-1])
            self.fields_of(fields, ends[0])["depends_on"] = [*deps[ends[0]], ends[1]]
            with self.refused(Cycle):
                act()
            return
        if self.model.never([id for each in deps.values() for id in each if id not in ids]):
            with self.refused(Conflict):
                act()
            return
        trial = {id: Task(id, first + n, 0, deps[id], False, None) for n, id in enumerate(ids)}
        self.model.tasks |= trial
        wrong: type[Exception] | None = None
        for id in blocks:
            if self.model.tasks[id].status in (*FINAL, "in_progress", "review"):
                wrong = Conflict
            elif self.model.upwards(ids[-1], id):
                wrong = Cycle
        if wrong is not None:
            for id in ids:
                del self.model.tasks[id]
            with self.refused(wrong):
                act()
            return
        act()
        for id in blocks:
            self.model.tasks[id].deps = [*self.model.tasks[id].deps, ids[-1]]

    @staticmethod
    def fields_of(fields: list[dict[str, Any]], id: str) -> dict[str, Any]:
        return next(one for one in fields if one["id"] == id)

    @rule(data=st.data())
    def add_one_that_is_there(self, data: Any) -> None:
        task = self.pick(data)
        with self.refused(Conflict):
            self.work.add_task("another title", id=task.id)

    @rule(data=st.data())
    def link(self, data: Any) -> None:
        task, on = self.pick(data), self.some(data)
        act: Callable[[], Any] = lambda: self.work.link(task.id, on=on)
        if self.closed(act):
            return
        new = [id for id in on if id not in task.deps]
        if task.status in (*FINAL, "in_progress", "review") or self.model.never(new):
            with self.refused(Conflict):
                act()
        elif any(self.model.upwards(id, task.id) for id in new):
            with self.refused(Cycle) as _:
                act()
        else:
            act()
            if not all(self.model.done(id) for id in new):
                task.deps = [*task.deps, *new]

    @rule(data=st.data())
    def unlink(self, data: Any) -> None:
        task = self.pick(data)
        on = data.draw(st.lists(st.sampled_from(task.deps), unique=True)) if task.deps else self.some(data)
        act: Callable[[], Any] = lambda: self.work.unlink(task.id, on=on)
        if self.closed(act):
            return
        if task.status in FINAL:
            with self.refused(Conflict):
                act()
            return
        act()
        task.deps = [id for id in task.deps if id not in on]
        self.model.settle()

    @rule(data=st.data(), agent=st.sampled_from(AGENTS))
    def assign(self, data: Any, agent: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.assign(task.id, agent)
        if self.moves(task, ("pending", "assigned") if task.status == "assigned" else ("assigned",), act):
            task.who = agent
            task.avoid.discard(agent)
            self.model.agents.add(agent)

    @rule(data=st.data(), verb=st.sampled_from(["unassign", "unblock", "retry"]))
    def let_go_on(self, data: Any, verb: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: getattr(self.work, verb)(task.id)
        own = {"unassign": "assigned", "unblock": "blocked", "retry": "failed"}[verb]
        if self.model.open and task.status != own and "pending" in TABLE[task.status]:
            with self.refused(Conflict):
                act()
        elif self.moves(task, ("pending",), act):
            task.who, task.why = None, False
            if verb == "unblock":
                task.deps = [id for id in task.deps if not self.model.never([id])]
            if verb == "retry":
                task.token, task.failures = None, 0
                task.avoid = set()

    @rule(data=st.data(), priority=st.integers(-1, 2), review=st.booleans())
    def edit(self, data: Any, priority: int, review: bool) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.edit(task.id, priority=priority, needs_review=review)
        if self.closed(act):
            return
        if task.status in FINAL:
            with self.refused(Conflict):
                act()
            return
        act()
        task.priority, task.review = priority, review

    @rule(data=st.data())
    def block(self, data: Any) -> None:
        task = self.pick(data)
        path = ("pending", "blocked") if task.status == "assigned" else ("blocked",)
        if self.moves(task, path, lambda: self.work.block(task.id, "the vendor")):
            task.why = True

    @rule(data=st.data(), way=st.sampled_from(["block", "cancel", "free"]))
    def cancel(self, data: Any, way: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.cancel(task.id, reason="no need", dependents=way)
        if self.closed(act):
            return
        if "cancelled" not in TABLE[task.status]:
            with self.refused(BadMove, allowed=task.status):
                act()
            return
        act()
        self.model.cancel(task, way)
        self.model.settle()

    # alternatives and approvals

    @rule(data=st.data())
    def branch(self, data: Any) -> None:
        ids = self.some(data, 4)
        cut = data.draw(st.integers(0, len(ids)))
        options = {"left": ids[:cut], "right": ids[cut:]}
        act: Callable[[], Any] = lambda: self.work.branch("which?", options)
        if not all(options.values()):
            with self.refused(commonplace.BadInput):
                act()
            return
        if self.closed(act):
            return
        tasks = [self.model.tasks[id] for id in ids]
        if any(one.status != "pending" or one.alternative for one in tasks):
            with self.refused(Conflict):
                act()
            return
        made = act()
        self.model.branches[made.id] = options
        for one in tasks:
            one.alternative = True
            one.gates.add(made.id)

    @precondition(lambda self: self.model.branches)
    @rule(data=st.data(), option=st.sampled_from(["left", "right"]))
    def choose(self, data: Any, option: str) -> None:
        id = data.draw(st.sampled_from(list(self.model.branches)))
        act: Callable[[], Any] = lambda: self.work.choose(id, option, rationale="it is shorter")
        if self.closed(act):
            return
        with self.refused(commonplace.BadInput):
            self.work.choose(id, "neither", rationale="why not")
        act()
        options = self.model.branches.pop(id)
        for each in (one for ids in options.values() for one in ids):
            self.model.tasks[each].gates.discard(id)
        for each in options["right" if option == "left" else "left"]:
            if self.model.tasks[each].status not in FINAL:
                self.model.cancel(self.model.tasks[each], "free")
        self.model.settle()
        with self.refused(Conflict):
            act()

    @rule(data=st.data(), about_task=st.booleans())
    def ask(self, data: Any, about_task: bool) -> None:
        task = self.pick(data) if about_task else None
        act: Callable[[], Any] = lambda: self.work.request_approval(
            "may I?", task=None if task is None else task.id
        )
        if self.closed(act):
            return
        id = act().id
        gates = task is not None and task.status in ("pending", "assigned", "blocked", "failed")
        self.model.asked[id] = (None if task is None else task.id, gates)
        if task is not None and gates:
            task.gates.add(id)

    @precondition(lambda self: self.model.asked)
    @rule(data=st.data(), yes=st.booleans())
    def answer(self, data: Any, yes: bool) -> None:
        id = data.draw(st.sampled_from(list(self.model.asked)))
        verb, other = (self.work.approve, self.work.disapprove)[:: 1 if yes else -1]
        if self.model.work == "archived":
            with self.refused(Conflict):
                verb(id, by="ann")
            return
        verb(id, by="ann")
        about, gates = self.model.asked.pop(id)
        task = None if about is None else self.model.tasks[about]
        if task is not None and gates and task.status not in FINAL:
            if yes:
                task.gates.discard(id)
                self.model.settle()
            else:
                self.model.cancel(task, "block")
        head = self.book.head
        verb(id, by="ann")  # the same again
        assert self.book.head == head
        with self.refused(Conflict):
            other(id, by="ann")

    # claims

    def held(self) -> int:
        return sum(one.status == "in_progress" for one in self.model.tasks.values())

    def looks_at_all(self) -> bool:
        return self.held() <= 6 and sum(one.later for one in self.model.tasks.values()) <= 8

    def taken(self, claim: Claim, agent: str, id: str) -> None:
        task = self.model.tasks[id]
        assert claim.task.id == id
        assert claim.token not in {one.token for one in self.claims}
        path = {"pending": ("assigned", "in_progress"), "assigned": ("in_progress",)}.get(task.status, ())
        self.model.step(task, *path)
        task.who, task.token, task.rework, task.lost = agent, claim.token, False, False
        self.model.agents.add(agent)
        self.claims.append(claim)

    @precondition(looks_at_all)
    @rule(agent=st.sampled_from(AGENTS), count=st.sampled_from([1, 1, 1, 2]))
    def claim(self, agent: str, count: int) -> None:
        act: Callable[[], Any] = lambda: self.work.claim_many(count, agent, lease=3600)
        if self.closed(act):
            return
        found = act()
        if self.model.work == "paused":
            assert found == []
            return
        self.model.reclaim()
        expected = self.model.ready(agent)[:count]
        assert [one.task.id for one in found] == expected
        for claim, id in zip(found, expected, strict=True):
            self.taken(claim, agent, id)

    @precondition(looks_at_all)
    @rule(data=st.data(), agent=st.sampled_from(AGENTS))
    def claim_this(self, data: Any, agent: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.claim(agent, lease=3600, task=task.id)
        if self.closed(act):
            return
        if self.model.work == "paused":
            with self.refused(Conflict):
                act()
            return
        queue = self.model.queue(task)
        if task.lost:
            gone = task.later and not self.model.waits(task) and task.status in ("pending", "assigned")
            queue = (
                (task.who if task.status == "assigned" else "")
                if gone or task.status == "in_progress"
                else queue
            )
        if queue not in ("", agent) or agent in task.avoid:
            with self.refused(Conflict):
                act()
            return
        claim = act()
        assert claim is not None
        self.model.reclaim()
        self.taken(claim, agent, task.id)

    def in_force(self, claim: Claim) -> bool:
        task = self.model.tasks[claim.task.id]
        return task.status == "in_progress" and task.token == claim.token

    def claimed(self, data: Any) -> tuple[Claim, Task]:
        claim = data.draw(st.sampled_from(self.claims), label="claim")
        return claim, self.model.tasks[claim.task.id]

    def acts(self, claim: Claim, act: Callable[[], Any]) -> bool:
        if self.closed(act):
            return False
        if not self.in_force(claim):
            with self.refused(Fenced):
                act()
            return False
        act()
        return True

    def has_claims(self) -> bool:
        return bool(self.claims)

    @precondition(has_claims)
    @rule(data=st.data())
    def complete(self, data: Any) -> None:
        claim, task = self.claimed(data)
        act: Callable[[], Any] = lambda: claim.complete("done")
        if self.model.open and task.token == claim.token and task.status in ("review", "completed"):
            head = self.book.head
            act()  # the same call again
            assert self.book.head == head
            return
        open = [id for id in task.deps if not self.model.done(id)]
        if self.acts(claim, act):
            assert not open
            self.model.step(task, "review" if task.review else "completed")
            self.model.settle()

    @precondition(has_claims)
    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        claim, task = self.claimed(data)
        if self.acts(claim, lambda: claim.fail("it broke")):
            self.model.fail(task)
            self.model.settle()

    @precondition(has_claims)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        claim, task = self.claimed(data)
        if self.acts(claim, claim.release):
            self.model.step(task, "pending")
            task.who = task.token = None

    @precondition(has_claims)
    @rule(data=st.data(), reason=st.sampled_from(["", "the vendor"]))
    def hold_up(self, data: Any, reason: str) -> None:
        claim, task = self.claimed(data)
        on = self.some(data, 2)
        act: Callable[[], Any] = lambda: claim.block(reason, on=on)
        new = [id for id in on if id not in task.deps]
        if self.model.open and self.in_force(claim):
            if self.model.never(new):
                with self.refused(Conflict):
                    act()
                return
            if any(self.model.upwards(id, task.id) for id in new):
                with self.refused(Cycle):
                    act()
                return
            if not reason and all(self.model.done(id) for id in new):
                with self.refused(commonplace.BadInput):
                    act()
                return
        if self.acts(claim, act):
            self.model.step(task, "blocked")
            task.deps, task.why = [*task.deps, *new], bool(reason)
            task.who = task.token = None

    @precondition(lambda self: self.claims and self.may_grow())
    @rule(data=st.data(), priorities=st.lists(st.integers(-1, 2), min_size=1, max_size=2))
    def split(self, data: Any, priorities: list[int]) -> None:
        claim, task = self.claimed(data)
        first = len(self.model.tasks)
        ids = [f"t{first + n}" for n in range(len(priorities))]
        parts = [{"title": "part", "id": id, "priority": p} for id, p in zip(ids, priorities, strict=True)]
        if self.acts(claim, lambda: claim.split(parts)):
            for n, (id, priority) in enumerate(zip(ids, priorities, strict=True)):
                self.model.tasks[id] = Task(id, first + n, priority, [], False, None)
            self.model.step(task, "blocked")
            task.deps, task.why = [*task.deps, *ids], False
            task.who = task.token = None

    @precondition(has_claims)
    @rule(data=st.data())
    def heartbeat(self, data: Any) -> None:
        claim, task = self.claimed(data)
        if self.closed(claim.heartbeat):
            return
        if not self.in_force(claim):
            with self.refused(Fenced):
                claim.heartbeat()
            return
        assert claim.heartbeat() == []
        task.lost = False

    @rule(data=st.data())
    def die(self, data: Any) -> None:
        """The lease of a holder, or of a back-off, runs out."""
        gone = [one.id for one in self.model.tasks.values() if one.status == "in_progress" or one.later]
        if not gone:
            return
        task = self.model.tasks[data.draw(st.sampled_from(gone))]
        known = self.work.task(task.id, at=self.book.head)
        holder = "back-off" if task.later else str(task.who)
        name = f"task/{self.work.id}/{task.number}/{known.token}"
        self.book._ledger.store.lease(name, holder, 0, known.token or 0)
        task.lost = True

    @rule()
    def look(self) -> None:
        """Whoever looks finds what the dead have left."""
        seen = [one.id for one in self.work.ready()]
        if self.model.open:
            self.model.reclaim()
        assert seen == self.model.ready(None)

    # reviews

    @rule(
        data=st.data(),
        verdict=st.sampled_from(["approved", "needs_rework", "rejected"]),
        who=st.sampled_from(["qa", *AGENTS]),
    )
    def review(self, data: Any, verdict: str, who: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.review(task.id, verdict, by=who)
        wanted = {"approved": "completed", "needs_rework": "in_progress", "rejected": "failed"}[verdict]
        if self.closed(act):
            return
        if wanted not in TABLE[task.status]:
            with self.refused(BadMove, allowed=task.status):
                act()
        elif task.status != "review":
            with self.refused(Conflict):
                act()
        elif task.who == who:
            with self.refused(Denied):
                act()
        else:
            act()
            if verdict == "rejected":
                self.model.fail(task)
            else:
                self.model.step(task, wanted)
                task.rework = verdict == "needs_rework"
            self.model.settle()

    @rule(data=st.data(), who=st.sampled_from(["qa", *AGENTS]))
    def assign_review(self, data: Any, who: str) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.assign_review(task.id, who)
        if self.closed(act):
            return
        if task.status != "review" or task.who == who:
            with self.refused(Conflict, commonplace.BadInput):
                act()
            return
        assert act().reviewer == who
        self.model.agents.add(who)

    # the work itself

    @rule(
        verb=st.sampled_from(["pause", "resume", "resume", "complete", "abandon", "archive"]),
        sure=st.integers(0, 3),
    )
    def change(self, verb: str, sure: int) -> None:
        act: Callable[[], Any] = lambda: getattr(self.work, verb)(
            *(["a reason"] if verb == "abandon" else [])
        )
        wanted = {"pause": "paused", "resume": "active", "complete": "completed", "abandon": "cancelled"}
        want, now = wanted.get(verb, "archived"), self.model.work
        if sure and want in ("archived", "cancelled"):
            return
        done = all(one.status in FINAL for one in self.model.tasks.values())
        may = {
            "active": {"paused", "cancelled"} | ({"completed", "archived"} if done else set()),
            "paused": {"active", "cancelled"} | ({"completed", "archived"} if done else set()),
            "completed": {"active", "archived"},
            "cancelled": {"active", "archived"},
            "archived": set[str](),
        }[now]
        if want not in may and (want != now or now == "archived"):
            with self.refused(Conflict):
                act()
            return
        assert act().status == want
        self.model.work = want

    @rule(agent=st.sampled_from(["chief", "deputy"]))
    def lead(self, agent: str) -> None:
        act: Callable[[], Any] = lambda: self.work.lead(agent, lease=3600)
        if self.closed(act):
            return
        if self.model.leader is not None and self.model.leader[0] != agent:
            with self.refused(Conflict):
                act()
            return
        lead = act()
        self.leads.append(lead)
        self.model.leader = (agent, lead.fence)
        self.model.agents.add(agent)

    @precondition(lambda self: self.model.leader)
    @rule()
    def leader_dies(self) -> None:
        agent, fence = self.model.leader or ("", 0)
        self.book._ledger.store.lease(f"lead/{self.work.id}/{fence}", agent, 0, fence)
        self.model.leader = None

    @precondition(lambda self: self.leads)
    @rule(data=st.data())
    def act_as_leader(self, data: Any) -> None:
        """Only the last one who took the lead may act under it."""
        lead, task = data.draw(st.sampled_from(self.leads)), self.pick(data)
        act: Callable[[], Any] = lambda: lead.edit(task.id, priority=task.priority + 1)
        if self.closed(act):
            return
        if lead is not self.leads[-1]:
            with self.refused(Fenced):
                act()
            with self.refused(Fenced):
                lead.heartbeat()
        elif task.status in FINAL:
            with self.refused(Conflict):
                act()
        else:
            act()
            task.priority += 1

    @precondition(lambda self: self.leads)
    @rule()
    def deal_with_what_happened(self) -> None:
        """What was dealt with comes to nobody again, whoever leads."""
        lead = self.leads[-1]
        while (step := lead.next()) is not None and step.place is not None:
            assert step.id not in self.handled
            again = lead.next()
            assert again is not None
            assert again.id == step.id
            lead.handled(step)
            self.handled.add(step.id)
        if self.model.open:
            self.model.reclaim()  # it has looked at what is ready

    # what must hold

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        if not self.model.tasks:
            return
        model, work, head = self.model, self.work, self.book.head
        tasks = {one.id: one for one in work.tasks(at=head)}
        assert {id: one.status for id, one in tasks.items()} == {
            id: one.status for id, one in model.tasks.items()
        }
        for id, one in model.tasks.items():
            told = tasks[id]
            assert one.status in FINAL or told.waits == len(model.waits(one)), id
            assert (told.queue, told.priority, told.later, told.waived) == (
                model.queue(one), one.priority, one.later, one.waived,
            ), id  # fmt: skip
            assert set(told.depends_on) == set(one.deps)
            if one.status in ("assigned", "in_progress", "review"):
                assert told.assigned_to == one.who
            if one.status == "in_progress":
                assert told.token == one.token
            if one.status == "completed":
                assert all(model.done(above) for above in told.depends_on)
        held = [one.token for one in tasks.values() if one.status == "in_progress"]
        assert len(held) == len(set(held))
        assert [one.id for one in work.ready(at=head)] == model.ready(None)
        for agent in AGENTS:
            assert [one.id for one in work.ready(agent, at=head)] == model.ready(agent)
        assert [one.id for one in work.blocked(at=head)] == model.blocked()
        lists = {"in_progress": work.in_progress, "review": work.needs_review, "failed": work.failed}
        for status, read in lists.items():
            assert [one.id for one in read(at=head)] == model.having(status)
            assert {one.id for one in work.tasks(status)} == {one.id for one in read(at=head)}
        assert {name: count for name, count in work.counts.items() if count} == model.counts()
        assert work.status == model.work
        assert {one.id for one in work.inbox(at=head).approvals} == set(model.asked)
        assert {one.id for one in work.inbox(at=head).branches} == set(model.branches)
        assert len(work.escalations(at=head)) == model.escalations
        self.steps += 1
        if self.steps % 7 == 0:
            self.past.append((head, self.seen(head)))

    def seen(self, at: int) -> Any:
        work = self.work
        return (
            work.about(at), work.tasks(at=at), work.ready(at=at), work.blocked(at=at), work.in_progress(at=at),
            work.inbox(at=at), work.critical_path(at=at),
        )  # fmt: skip

    def teardown(self) -> None:
        try:
            for at, seen in self.past:
                assert self.seen(at) == seen
            before = rows(self.book)
            self.book.rebuild()
            assert rows(self.book) == before
            for at, seen in self.past:
                assert self.seen(at) == seen
            with commonplace.open("memory:") as copy:
                self.book.copy(copy)
                assert rows(copy) == before
            self.without_words(before)
        finally:
            self.book.close()
            if self.folder is not None:
                self.folder.cleanup()

    def without_words(self, before: dict[str, Any]) -> None:
        """When what was said is erased, tasks stand where they stood, here and in a copy."""
        said = [event.id for event in self.book.events() if event.kind in EVERY]
        self.book.erase(said[::2])
        after = rows(self.book)
        for view in ("work.sets", "work.counts"):
            assert after[view] == before[view]
        self.book.rebuild()
        assert rows(self.book) == after
        with commonplace.open("memory:") as copy:
            self.book.copy(copy)
            assert rows(copy) == after


class StoryOnSqlite(Story):
    url = "sqlite:"


def told(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )


@pytest.mark.spec("5.2", "5.3", "L1", "L7")
def test_whatever_is_asked_in_whatever_order_tasks_and_lists_are_right() -> None:
    run_state_machine_as_test(Story, settings=told(40, 45))


@pytest.mark.spec("5.2", "5.3", "5.8", "L1", "L7")
def test_the_same_holds_in_a_file() -> None:
    run_state_machine_as_test(StoryOnSqlite, settings=told(5, 35))


# the sets that tasks are in


class Rows:
    """Where sets lie, as rows by their keys."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Any, ...], Any] = {}

    def get(self, view: str, *key: Any) -> Any:
        assert view == VIEW
        return self.rows.get(key)

    def get_all(self, _read: object, view: str, keys: list[tuple[Any, ...]]) -> list[Any]:
        return [self.get(view, *key) for key in keys]

    def keep(self, work: str, sets: Sets) -> None:
        self.fold({"work": work, **sets.changes()})

    def fold(self, payload: dict[str, Any]) -> None:
        event: Any = SimpleNamespace(payload=payload)
        for key in keys(event):
            after = fold(key, self.rows.pop(key, None), event)
            if after is not None:
                self.rows[key] = after


numbers = st.integers(0, 2**20) | st.sampled_from([0, 1, 255, 256, 257, 65_535, 65_536, 65_537, 2**20])
changes = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["ready:", "ready:dev", "blocked"]),
        st.sampled_from([-5, 0, 3]),
        numbers,
    ),
    max_size=60,
)


@pytest.mark.spec("5.2")
@settings(max_examples=150, deadline=None)
@given(st.lists(changes, max_size=4), st.lists(numbers, max_size=4), st.booleans())
def test_sets_hold_what_was_put_into_them(batches: list[Any], starts: list[int], empty: bool) -> None:
    lens, plain = Rows(), dict[str, set[tuple[int, int]]]()
    if empty:  # take everything out again
        every = [(False, name, rank, number) for batch in batches for _, name, rank, number in batch]
        batches = [*batches, every]
    for batch in batches:
        sets = Sets(lens, "w")  # type: ignore[arg-type]
        for put, name, rank, number in batch:
            (sets.put if put else sets.take)(name, rank, number)
            known = plain.setdefault(name, set())
            (known.add if put else known.discard)((rank, number))
        within = {name: list(sets.walk(name)) for name in plain}
        lens.keep("w", sets)
        again = Sets(lens, "w")  # type: ignore[arg-type]
        for name, members in plain.items():
            assert within[name] == list(again.walk(name)) == sorted(members)
            assert again.has(name) == bool(members)
            for start in starts:
                assert list(again.walk(name, start)) == sorted(one for one in members if one[1] >= start)
            assert bool(members) == (("w", 0, name) in lens.rows)
    if empty:
        assert lens.rows == {}


@pytest.mark.spec("5.2", "1.1")
def test_sets_that_the_first_works_told_are_read_as_well() -> None:
    """They told leaves one set at a time, then a branch above each leaf that had become full or empty, and a top."""
    lens = Rows()
    told = [
        [["ready:", 0, -5, 1, "5"], ["ready:", 1, -5, 0, "2"], ["ready:", 2, 0, 0, {"-5": "1"}]],
        [["ready:", 0, -5, 1, "4"], ["in_progress", 0, -5, 1, "1"], ["in_progress", 1, -5, 0, "2"],
         ["in_progress", 2, 0, 0, {"-5": "1"}]],
        [["ready:", 0, -5, 1, "0"], ["ready:", 1, -5, 0, "0"], ["ready:", 2, 0, 0, {}]],
    ]  # fmt: skip
    found = []
    for one in told:
        lens.fold({"work": "w", "sets": one})
        sets = Sets(lens, "w")  # type: ignore[arg-type]
        found.append((list(sets.walk("ready:")), list(sets.walk("in_progress"))))
    assert found == [
        ([(-5, 256), (-5, 258)], []), ([(-5, 258)], [(-5, 256)]), ([], [(-5, 256)])
    ]  # fmt: skip
