"""The story of a work: rules that ask for everything that can be asked, and what must hold after each.

Each rule knows from the model whether what it asks for is done or refused, and with which error. Hypothesis tells such
stories in its own way, or `told_evenly` does.
"""

# ruff: noqa: E731  (what is asked is said first, and then done or refused)

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RULE_MARKER, RuleBasedStateMachine, initialize, invariant, precondition, rule

import commonplace
from commonplace import BadInput, BadMove, Claim, Conflict, Cycle, Denied, Fenced, NotFound
from commonplace.work.capability import EVERY
from commonplace.work.leading import Lead, LeadStep
from commonplace.work.records import RECORDS
from tests.work_model import (
    AGENTS,
    FINAL,
    LEADERS,
    PEOPLE,
    POLICIES,
    PRIORITIES,
    ROLES,
    TABLE,
    Approval,
    Decision,
    Discovery,
    Model,
    Nudge,
    Result,
    Task,
)

MOST = 18
"""Tasks of one story, and so few that every claim looks after all holders."""
PATHS = ("out/plan.md", "out/schema.sql")
"""Where there are no files."""
LEARNINGS = ("run the linter first", "ask the vendor early")
CORE = "lore"
ANY_ROLE = st.sampled_from([None, None, None, "developer", "qa"])
OFTEN = st.sampled_from([True, True, True, False])
SAID = (
    b"vendor",
    b"linter",
    b"schema.sql",
    b"drawer",
    b"dark",
    b"hurry",
    b"help",
    b"may I",
    b"do it so",
    b"it broke",
)
"""Words that only the story says."""

COMMANDS = {
    "create": "begin_again", "change": "change", "add": "add", "link": "link", "unlink": "unlink", "assign": "assign",
    "unassign": "let_go_on", "edit": "edit", "block": "block", "unblock": "let_go_on", "cancel": "cancel",
    "claim": "claim", "reclaim": "look", "complete": "complete", "complete_many": "complete_many", "fail": "fail",
    "release": "release", "block_or_split": "block_or_split", "retry": "let_go_on", "review": "review",
    "assign_review": "assign_review", "take": "listen", "acknowledge": "acknowledge", "lead": "lead",
    "stay": "stay_or_resign",
    "handled": "deal_with_what_happened", "judge": "judge", "record decision": "decide", "record discovery": "discover",
    "record artifact": "make", "record nudge": "nudge", "record approval": "ask", "record escalation": "escalate",
    "record branch": "branch", "answer approval": "answer", "answer escalation": "resolve", "answer branch": "choose",
}  # fmt: skip
"""Which rule of the story asks for what."""


def rows(book: Any, of: str = "work.") -> dict[str, list[tuple[bytes, int, bytes | None]]]:
    """The rows of working memory, byte for byte."""
    with book.ledger.snapshot() as snapshot:
        names = [name for name in snapshot.registry.views if name.startswith(of)]
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
        for agent, role in ROLES.items():
            self.book.as_actor(agent, role=role)
        self.work = self.book.work(name="it", id="w")
        self.model = Model()
        self.claims: list[Claim] = []
        self.leads: list[Lead] = []
        self.handled: set[str] = set()
        self.book.memory.set_core(CORE, name="Lore")
        self.done: Counter[str] = Counter()
        """Which commands were done, and not refused."""
        submit = self.book.ledger.submit

        def counted(command: str, *how: Any, **more: Any) -> Any:
            answer = submit(command, *how, **more)
            self.done[command] += 1
            if command in ("work.record", "work.answer"):
                self.done[f"{command} {how[0].given['kind']}"] += 1
            return answer

        self.book.ledger.submit = counted  # type: ignore[method-assign]
        self.past: list[tuple[int, Any]] = []
        self.steps = self.said = 0

    # asking

    @contextmanager
    def refused(
        self, *expected: type[Exception], allowed: str | None = None, naming: Iterable[str] = ()
    ) -> Iterator[None]:
        """What is asked is refused with one of these errors, and nothing is written. It names what can be given."""
        head = self.book.head
        with pytest.raises(expected) as error:
            yield
        for name in naming:
            assert name in str(error.value)
        assert isinstance(error.value, commonplace.CommonplaceError)
        if allowed is not None:
            assert isinstance(error.value, BadMove)
            assert set(error.value.allowed) == TABLE[allowed]
            assert len(error.value.allowed) == len(TABLE[allowed])
        if not isinstance(error.value, Denied):  # a denial is recorded
            assert self.book.head == head

    def archived(self, act: Callable[[], Any]) -> bool:
        """Whether the work is put away for good, so that this was refused."""
        if self.model.work == "archived":
            with self.refused(Conflict):
                act()
        return self.model.work == "archived"

    def nothing_new(self, act: Callable[[], Any]) -> Any:
        """What was done already is answered, and nothing is written."""
        head = self.book.head
        answer = act()
        assert self.book.head == head
        return answer

    def closed(self, act: Callable[[], Any]) -> bool:
        """Whether the work is over, so that this was refused."""
        if not self.model.open:
            with self.refused(Conflict):
                act()
        return not self.model.open

    def pick(self, data: Any, *fitting: str) -> Task:
        """Some task, mostly one of a status that fits what is asked for."""
        fit = sorted(id for id, one in self.model.tasks.items() if one.status in fitting)
        every = fit if fit and data.draw(OFTEN, label="one that fits") else sorted(self.model.tasks)
        return self.model.tasks[data.draw(st.sampled_from(every), label="task")]

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

    @initialize(data=st.data(), tasks=st.integers(0, 4), claims=st.lists(st.sampled_from(AGENTS), max_size=4))
    def begin(self, data: Any, tasks: int, claims: list[str]) -> None:
        """Some tasks, of which some are held."""
        self.added("t0", self.work.add_task("it", id="t0"), 0, [], False, None)
        for _ in range(tasks):
            review, policy = data.draw(st.booleans()), data.draw(st.sampled_from(POLICIES))
            role = data.draw(ANY_ROLE)
            self.add_one(self.some(data), 0, review, policy, None, "", role)
        for agent in claims:
            self.claim_some(agent, 1)

    def added(self, id: str, task: Any, priority: int, deps: list[str], review: bool, policy: Any) -> Task:
        assert task.number == len(self.model.tasks)
        one = self.model.tasks[id] = Task(id, task.number, priority, deps, review, policy)
        return one

    @precondition(may_grow)
    @rule(
        data=st.data(), priority=st.integers(-1, 2), review=st.booleans(), policy=st.sampled_from(POLICIES),
        agent=st.sampled_from([None, None, None, *AGENTS]), risk=st.sampled_from(["", "", "", "data is lost"]),
        role=ANY_ROLE,
    )  # fmt: skip
    def add(
        self,
        data: Any,
        priority: int,
        review: bool,
        policy: Any,
        agent: str | None,
        risk: str,
        role: str | None,
    ) -> None:
        self.add_one(self.some(data), priority, review, policy, agent, risk, role)

    def add_one(
        self, deps: list[str], priority: int, review: bool, policy: Any, agent: str | None, risk: str,
        role: str | None = None,
    ) -> None:  # fmt: skip
        id = f"t{len(self.model.tasks)}"
        act: Callable[[], Any] = lambda: self.work.add_task(
            "it", id=id, priority=priority, needs_review=review, on_failure=policy, depends_on=deps, assigned_to=agent,
            risk=risk, for_role=role,
        )  # fmt: skip
        if self.closed(act):
            return
        if self.model.never(deps):
            with self.refused(Conflict):
                act()
            return
        task = act()
        one = self.added(id, task, priority, deps, review, policy)
        one.role = role
        if agent is not None:
            self.model.step(one, "assigned")
            one.who = one.given = agent
            self.model.agents.add(agent)
        if risk:
            one.gates.add(task.approval)
            self.model.approvals[task.approval] = Approval(id, True)
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
    def link(self, data: Any) -> None:
        task, on = self.pick(data), self.some(data)
        act: Callable[[], Any] = lambda: self.work.task(task.id).add_dependencies(on=on)
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
        act: Callable[[], Any] = lambda: self.work.task(task.id).remove_dependencies(on=on)
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
        task = self.pick(data, "pending", "assigned")
        act: Callable[[], Any] = lambda: self.work.task(task.id).assign(agent)
        if self.moves(task, ("pending", "assigned") if task.status == "assigned" else ("assigned",), act):
            task.who = task.given = agent
            task.avoid.discard(agent)
            self.model.agents.add(agent)

    @rule(data=st.data(), verb=st.sampled_from(["unassign", "unblock", "retry"]))
    def let_go_on(self, data: Any, verb: str) -> None:
        own = {"unassign": "assigned", "unblock": "blocked", "retry": "failed"}[verb]
        task = self.pick(data, own)
        act: Callable[[], Any] = lambda: getattr(self.work.task(task.id), verb)()
        if self.model.open and task.status != own and "pending" in TABLE[task.status]:
            with self.refused(Conflict):
                act()
        elif self.moves(task, ("pending",), act):
            task.who, task.why = None, False
            if verb == "unassign":
                task.given = None
            if verb == "unblock":
                task.deps = [id for id in task.deps if not self.model.never([id])]
            if verb == "retry":
                task.token, task.failures = None, 0
                task.avoid = set()
                self.model.no_help_needed(task)
            if task.given is not None:
                self.model.step(task, "assigned")
                task.who = task.given

    @rule(data=st.data(), priority=st.integers(-1, 2), review=st.booleans(), role=ANY_ROLE)
    def edit(self, data: Any, priority: int, review: bool, role: str | None) -> None:
        task = self.pick(data)
        act: Callable[[], Any] = lambda: self.work.task(task.id).edit(
            priority=priority, needs_review=review, for_role=role
        )
        if self.closed(act):
            return
        if task.status in FINAL:
            with self.refused(Conflict):
                act()
            return
        act()
        task.priority, task.review, task.role = priority, review, role

    @rule(data=st.data())
    def block(self, data: Any) -> None:
        task = self.pick(data, "pending", "assigned", "in_progress")
        path = ("pending", "blocked") if task.status == "assigned" else ("blocked",)
        if self.moves(task, path, lambda: self.work.task(task.id).block("the vendor")):
            task.why = True

    @rule(data=st.data(), way=st.sampled_from(["block", "cancel", "free"]))
    def cancel(self, data: Any, way: str) -> None:
        task = self.pick(data, "pending", "failed", "blocked")
        act: Callable[[], Any] = lambda: self.work.task(task.id).cancel(reason="no need", dependents=way)
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

    def counted(self) -> int:
        """A number that was not said yet."""
        self.said += 1
        return self.said

    @rule(data=st.data())
    def branch(self, data: Any) -> None:
        free = [id for id, one in self.model.tasks.items() if one.status == "pending" and not one.alternative]
        ids = free[:4] if data.draw(OFTEN) else self.some(data, 4)
        cut = data.draw(st.integers(0, len(ids)))
        options = {"left": ids[:cut], "right": ids[cut:]}
        question = f"which of {self.counted()}?"
        act: Callable[[], Any] = lambda: self.work.branch(question, options)
        if not all(options.values()):
            with self.refused(BadInput):
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
        assert made.question == question
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
        with self.refused(BadInput, naming=("left", "right")):
            self.work.choose(id, "neither", rationale="why not")
        made = act()
        options = self.model.branches.pop(id)
        text = f"{made.question} {option}, because it is shorter"
        affects = {one for ids in options.values() for one in ids}
        self.model.decisions.append(Decision(made.id, "owner", text, affects, False))
        for each in (one for ids in options.values() for one in ids):
            self.model.tasks[each].gates.discard(id)
        for each in options["right" if option == "left" else "left"]:
            if self.model.tasks[each].status not in FINAL:
                self.model.cancel(self.model.tasks[each], "free")
        self.model.settle()
        with self.refused(Conflict):
            act()

    @rule(data=st.data(), about_task=st.booleans(), about_decision=st.booleans())
    def ask(self, data: Any, about_task: bool, about_decision: bool) -> None:
        task = self.pick(data) if about_task else None
        decision = (
            data.draw(st.sampled_from(self.model.decisions))
            if about_decision and self.model.decisions
            else None
        )
        act: Callable[[], Any] = lambda: self.work.approvals.request(
            "may I?",
            task=None if task is None else task.id,
            decision=None if decision is None else decision.id,
        )
        if self.closed(act):
            return
        id = act().id
        gates = task is not None and task.status in ("pending", "assigned", "blocked", "failed")
        self.model.approvals[id] = Approval(
            None if task is None else task.id, gates, None if decision is None else decision.id
        )
        if task is not None and gates:
            task.gates.add(id)

    @precondition(lambda self: self.model.approvals)
    @rule(data=st.data(), yes=st.booleans())
    def answer(self, data: Any, yes: bool) -> None:
        id = data.draw(st.sampled_from(list(self.model.approvals)))
        self.answered(id, self.model.approvals[id].status, yes, lambda: self.model.answer(id, yes))

    @precondition(lambda self: self.model.decisions)
    @rule(data=st.data(), yes=st.booleans())
    def answer_to_a_decision(self, data: Any, yes: bool) -> None:
        one = data.draw(st.sampled_from(self.model.decisions))
        known = "pending" if one.status == "made" else one.status
        self.answered(one.id, known, yes, lambda: self.model.answer_about(one.id, yes))

    def answered(self, id: str, known: str, yes: bool, in_the_model: Callable[[], None]) -> None:
        """An answer is given once; the same again changes nothing, and another one is refused."""
        verdict = "approved" if yes else "rejected"
        verb, other = (self.work.approvals.grant, self.work.approvals.refuse)[:: 1 if yes else -1]
        if self.archived(lambda: verb(id, by="ann")):
            return
        if known not in ("pending", verdict):
            with self.refused(Conflict, naming=(known,)):
                verb(id, by="ann")
            return
        if known == "pending":
            assert verb(id, by="ann").status == verdict
            in_the_model()
        self.nothing_new(lambda: verb(id, by="ann"))
        with self.refused(Conflict, naming=(verdict,)):
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
        self.claim_some(agent, count)

    def claim_some(self, agent: str, count: int) -> None:
        act: Callable[[], Any] = lambda: self.work.claim_many(count, agent, lease=3600)
        if self.closed(act):
            return
        self.are_taken(act(), agent, count)

    def are_taken(self, found: list[Claim], agent: str, count: int) -> None:
        if self.model.work == "paused":
            assert found == []
            return
        ready = self.model.ready(agent)[:count]
        if not self.given_back([one.task.id for one in found if one.task.id in ready]):
            assert ready or not self.model.left()  # nobody goes without while the dead have left something
        expected = self.model.ready(agent)[:count]
        assert [one.task.id for one in found] == expected
        for claim, id in zip(found, expected, strict=True):
            self.taken(claim, agent, id)

    def given_back(self, ready: list[str]) -> bool:
        """Whether a claim has given back what the dead have left, by the way: all of it, or nothing. What was ready
        anyway does not tell."""
        left = [one for one in self.model.left() if one.id not in ready]
        known = {one.id: one for one in self.work.tasks(at=self.book.head)}
        back = [
            one for one in left
            if (not known[one.id].later if one.later else known[one.id].token != one.token)
        ]  # fmt: skip
        assert back in ([], left)
        for one in back:
            self.model.give_back(one)
        return bool(back)

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
            if gone or task.status == "in_progress":
                whose = task.who if task.status == "assigned" else task.given
                queue = whose or (f"role:{task.role}" if task.role else "")
        if not self.model.may_claim(agent, task, queue):
            with self.refused(Conflict):
                act()
            return
        claim = act()
        assert claim is not None
        if task in self.model.left():
            self.model.give_back(task)
        self.given_back([])
        self.taken(claim, agent, task.id)

    def in_force(self, claim: Claim) -> bool:
        """Whether a claim has its fence, and its lease has not run out."""
        task = self.model.tasks[claim.task.id]
        return task.status == "in_progress" and task.token == claim.token and not task.lost

    def claimed(self, data: Any) -> tuple[Claim, Task]:
        held = [one for one in self.claims if self.in_force(one)]
        every = held if held and data.draw(OFTEN, label="one in force") else self.claims
        claim = data.draw(st.sampled_from(every), label="claim")
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

    def done_so_already(self, claim: Claim, result: Result) -> bool:
        task = self.model.tasks[claim.task.id]
        same = task.token == claim.token and task.result == result
        return same and task.status in ("review", "completed")

    @precondition(has_claims)
    @rule(
        data=st.data(),
        learnings=st.lists(st.sampled_from(LEARNINGS), max_size=2, unique=True),
        paths=st.lists(st.sampled_from(PATHS), max_size=2, unique=True),
    )
    def complete(self, data: Any, learnings: list[str], paths: list[str]) -> None:
        self.completes(self.claimed(data)[0], learnings, paths)

    def completes(self, claim: Claim, learnings: list[str], paths: list[str]) -> None:
        task, result = self.model.tasks[claim.task.id], Result("done", tuple(learnings), tuple(paths))
        act: Callable[[], Any] = lambda: claim.complete("done", learnings=learnings, artifacts=paths)
        if self.model.open and self.done_so_already(claim, result):
            self.nothing_new(act)
            return
        open = [id for id in task.deps if not self.model.done(id)]
        if self.acts(claim, act):
            assert not open
            self.model.complete(task, result)
            self.model.settle()

    @precondition(lambda self: self.claims and self.looks_at_all())
    @rule(data=st.data())
    def complete_and_go_on(self, data: Any) -> None:
        """The task is completed, whether there is a next one or not."""
        claim, task = self.claimed(data)
        if self.closed(lambda: claim.next("done")):
            return
        result = Result("done")
        already = self.done_so_already(claim, result)
        if not already and not self.in_force(claim):
            with self.refused(Fenced):
                claim.next("done")
            return
        if already:
            assert self.nothing_new(lambda: claim.next("done")) is None
            return
        following = claim.next("done")
        self.model.complete(task, result)
        self.model.settle()
        self.are_taken([] if following is None else [following], claim.agent, 1)

    @precondition(has_claims)
    @rule(data=st.data(), agent=st.sampled_from(AGENTS))
    def complete_many(self, data: Any, agent: str) -> None:
        """All or none, and each once."""
        own = [one for one in self.claims if one.agent == agent]
        others = [one for one in self.claims if one.agent != agent]
        if own and others:
            with self.refused(BadInput, naming=("of one agent",)):
                self.work.complete_many([own[-1], others[-1]], "done")
        held = [one for one in own if self.in_force(one)]
        claims = data.draw(st.lists(st.sampled_from(held or own), max_size=3)) if own else []
        if own and not data.draw(st.integers(0, 3)):
            claims.append(data.draw(st.sampled_from(own)))
        if not claims:
            assert self.nothing_new(lambda: self.work.complete_many(claims)) == []
            return
        act: Callable[[], Any] = lambda: self.work.complete_many(claims, "done")
        if self.closed(act):
            return
        result = Result("done")
        if not all(self.in_force(one) or self.done_so_already(one, result) for one in claims):
            with self.refused(Fenced):
                act()
            return
        assert [one.id for one in act()] == [one.task.id for one in claims]
        for one in claims:
            if self.in_force(one):
                self.model.complete(self.model.tasks[one.task.id], result)
        self.model.settle()
        self.nothing_new(act)

    @precondition(has_claims)
    @rule(data=st.data())
    def fail(self, data: Any) -> None:
        self.fails(self.claimed(data)[0])

    def fails(self, claim: Claim) -> None:
        task = self.model.tasks[claim.task.id]
        if self.model.work != "archived" and task.failed_token == claim.token:
            self.nothing_new(lambda: claim.fail("it broke"))
        elif self.acts(claim, lambda: claim.fail("it broke")):
            self.model.fail(task)
            self.model.settle()

    @precondition(has_claims)
    @rule(data=st.data())
    def release(self, data: Any) -> None:
        claim, task = self.claimed(data)
        if self.acts(claim, claim.release):
            self.model.back(task)
            task.token = None

    @precondition(has_claims)
    @rule(data=st.data(), reason=st.sampled_from(["", "the vendor"]))
    def block_or_split(self, data: Any, reason: str) -> None:
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
                with self.refused(BadInput):
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
                self.model.tasks[id].title, self.model.tasks[id].role = "part", task.role
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
        urgent = self.model.waiting(claim.agent, "beat")
        if (
            self.model.led_by == claim.agent
        ):  # what is for whoever leads comes with its steps, or its next turn
            urgent = [id for id in urgent if self.model.nudge(id).target != "orchestrator"]
        assert [one.id for one in claim.heartbeat()] == urgent
        self.model.tell(claim.agent, urgent, [task.id])
        if urgent:
            self.model.agents.add(claim.agent)
        assert self.nothing_new(claim.heartbeat) == []

    @rule(data=st.data())
    def die(self, data: Any) -> None:
        """The lease of a holder, or of a back-off, runs out."""
        gone = [one.id for one in self.model.tasks.values() if one.status == "in_progress" or one.later]
        if not gone:
            return
        self.dies(self.model.tasks[data.draw(st.sampled_from(gone))])

    def dies(self, task: Task) -> None:
        known = self.work.task(task.id).info(at=self.book.head)
        holder = "back-off" if task.later else str(task.who)
        name = f"task/{self.work.id}/{task.number}/{known.token}"
        self.book.ledger.store.lease(name, holder, 0, known.token or 0)
        task.lost = True

    @rule()
    def look(self) -> None:
        """Whoever looks finds what the dead have left."""
        seen = [one.id for one in self.work.ready()]
        if self.model.open:
            self.model.reclaim()
        assert seen == self.model.ready(None)

    @precondition(looks_at_all)
    @rule(
        agent=st.sampled_from(AGENTS), review=st.booleans(),
        end=st.sampled_from(["complete", "complete", "complete", "fail", "hold", "die"]),
        learnings=st.lists(st.sampled_from(LEARNINGS), max_size=1), paths=st.lists(st.sampled_from(PATHS), max_size=1),
        verdict=st.sampled_from(["", "approved", "needs_rework", "rejected"]),
    )  # fmt: skip
    def do_a_task(
        self, agent: str, review: bool, end: str, learnings: list[str], paths: list[str], verdict: str
    ) -> None:
        """What agents do all day: one claims a task, looks at what it is told, does it, and somebody reviews it."""
        if not self.model.ready(agent) and self.may_grow():
            self.add_one([], 0, review, None, None, "")
        before = len(self.claims)
        self.claim_some(agent, 1)
        if len(self.claims) == before:
            return
        claim = self.claims[-1]
        self.listens(agent, True)
        if end == "complete":
            self.completes(claim, learnings, paths)
            if verdict:
                self.reviews(self.model.tasks[claim.task.id], verdict, "qa")
        elif end == "fail":
            self.fails(claim)
        elif end == "die":
            self.dies(self.model.tasks[claim.task.id])
            if verdict:
                self.look()

    @precondition(lambda self: self.model.work == "active" and not self.model.left() and self.looks_at_all())
    @rule(
        agents=st.permutations(AGENTS), by=st.sampled_from(["eve", *AGENTS]), to_all=st.booleans(),
        count=st.integers(1, 2), heard=st.booleans(), leads=st.booleans(),
    )  # fmt: skip
    def hand_over(
        self, agents: list[str], by: str, to_all: bool, count: int, heard: bool, leads: bool
    ) -> None:
        """One is told something and gives its tasks back, and another takes them. Whoever leads is told something."""
        first, second, _ = agents
        nudge = self.work.nudge("hurry", target="all" if to_all else first, by=by)
        self.model.nudges.append(Nudge(nudge.id, by, nudge.target, "normal", "next_turn"))
        for agent in (first, second):
            before = len(self.claims)
            self.claim_some(agent, count)
            told = self.listens(agent, False)
            if heard and nudge.id in told:
                self.acknowledges(nudge.id, agent)
            for claim in self.claims[before:]:
                claim.release()
                self.model.back(self.model.tasks[claim.task.id])
                self.model.tasks[claim.task.id].token = None
        if leads and self.leads:
            nudge = self.work.nudge("hurry", target="orchestrator", by="eve")
            self.model.nudges.append(Nudge(nudge.id, "eve", "orchestrator", "normal", "next_turn"))
            self.model.happened.append(("nudge", nudge.id))
            self.deals_with(len(self.model.steps()))

    # reviews

    @rule(
        data=st.data(),
        verdict=st.sampled_from(["approved", "needs_rework", "rejected"]),
        who=st.sampled_from(["qa", *AGENTS]),
    )
    def review(self, data: Any, verdict: str, who: str) -> None:
        self.reviews(self.pick(data, "review"), verdict, who)

    def reviews(self, task: Task, verdict: str, who: str) -> None:
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
            self.model.reviewed_by.setdefault(who, []).append(task.id)
            if verdict == "rejected":
                self.model.fail(task)
            elif verdict == "approved":
                self.model.finish(task)
            else:
                self.model.step(task, wanted)
                task.rework = True
            self.model.settle()

    @rule(data=st.data(), who=st.sampled_from(["qa", *AGENTS]))
    def assign_review(self, data: Any, who: str) -> None:
        task = self.pick(data, "review")
        act: Callable[[], Any] = lambda: self.work.task(task.id).assign_review(who)
        if self.closed(act):
            return
        if task.status != "review" or task.who == who:
            with self.refused(Conflict, BadInput):
                act()
            return
        assert act().reviewer == who
        self.model.agents.add(who)

    # nudges

    @rule(
        data=st.data(), by=st.sampled_from(PEOPLE), whom=st.sampled_from(["all", "orchestrator", *AGENTS]),
        priority=st.sampled_from(PRIORITIES), delivery=st.sampled_from(["next_turn", "immediate", "when_idle"]),
        about_task=st.booleans(),
    )  # fmt: skip
    def nudge(self, data: Any, by: str, whom: str, priority: str, delivery: str, about_task: bool) -> None:
        task = self.pick(data).id if about_task else None
        act: Callable[[], Any] = lambda: self.work.nudge(
            "hurry", target=whom, priority=priority, delivery=delivery, task=task, by=by
        )
        if self.archived(act):
            return
        with self.refused(BadInput, naming=PRIORITIES):
            self.work.nudge("hurry", priority="extreme")
        with self.refused(BadInput, naming=("next_turn", "immediate", "when_idle")):
            self.work.nudge("hurry", delivery="never")
        made = act()
        self.model.nudges.append(Nudge(made.id, by, whom, priority, delivery))
        if whom == "orchestrator":
            self.model.happened.append(("nudge", made.id))

    @rule(data=st.data(), agent=st.sampled_from([*AGENTS, "chief"]), with_context=st.booleans())
    def listen(self, data: Any, agent: str, with_context: bool) -> None:
        told = self.listens(agent, with_context)
        for id in data.draw(st.lists(st.sampled_from(told), unique=True)) if told else ():
            self.acknowledges(id, agent)

    def listens(self, agent: str, with_context: bool) -> list[str]:
        """Somebody takes a turn: what it is told then, it is not told again."""
        expected, mine = self.model.turn(agent), self.model.in_hand(agent)
        held = [one for one in self.claims if one.agent == agent and self.in_force(one)]
        if with_context and held:
            assert [one.id for one in held[-1].context(max_chars=None).nudges] == expected
        else:
            assert [one.id for one in self.work.read_messages(agent)] == expected
        self.model.tell(agent, expected, mine)
        if expected:
            self.model.agents.add(agent)
        assert self.nothing_new(lambda: self.work.read_messages(agent)) == []
        return expected

    @precondition(lambda self: self.model.nudges)
    @rule(data=st.data(), agent=st.sampled_from([*AGENTS, "chief"]))
    def acknowledge(self, data: Any, agent: str) -> None:
        told = [one for one in self.model.nudges if agent in one.told]
        self.acknowledges(data.draw(st.sampled_from(told or self.model.nudges)).id, agent)

    def acknowledges(self, id: str, agent: str) -> None:
        one = self.model.nudge(id)
        act: Callable[[], Any] = lambda: self.work.acknowledge(id, agent)
        if agent not in one.told:
            with self.refused(Conflict, naming=("next turn",)):
                act()
            return
        act()
        self.model.acknowledge(one, agent)
        self.nothing_new(act)

    # what was decided, found and made

    def about(self, data: Any) -> tuple[list[str], str | None]:
        """Tasks that something affects, and the one that it came up in."""
        return self.some(data, 2), self.pick(data).id if data.draw(st.booleans()) else None

    @rule(
        data=st.data(), by=st.sampled_from(PEOPLE), reversible=st.booleans(), reverses=st.booleans(),
        reasons=st.booleans(),
    )  # fmt: skip
    def decide(self, data: Any, by: str, reversible: bool, reverses: bool, reasons: bool) -> None:
        affects, task = self.about(data)
        old = data.draw(st.sampled_from(self.model.decisions)) if reverses and self.model.decisions else None
        question = f"what of {self.counted()}?"
        why: dict[str, Any] = {"alternatives": ["yellow"], "rationale": "it is dark"} if reasons else {}
        act: Callable[[], Any] = lambda: self.work.decide(
            question=question, choice="blue", affects=affects, task=task, reversible=reversible,
            reverses=None if old is None else old.id, by=by, **why,
        )  # fmt: skip
        if self.closed(act):
            return
        if old is not None and (old.reversed_by or not old.reversible):
            with self.refused(Conflict, naming=(old.reversed_by or "for good",)):
                act()
            return
        made = act()
        text = f"{question} blue, because it is dark" if reasons else ""
        self.model.decisions.append(
            Decision(
                made.id, by, text, {*affects, *([task] if task else [])}, reversible, None if old is None else old.id
            )
        )  # fmt: skip
        self.model.agents.add(by)
        if old is not None:
            old.reversed_by = made.id

    @rule(
        data=st.data(), by=st.sampled_from(PEOPLE),
        type=st.sampled_from(["constraint", "opportunity", "risk", "insight"]),
        core=st.sampled_from([None, CORE]),
    )  # fmt: skip
    def discover(self, data: Any, by: str, type: str, core: str | None) -> None:
        affects, task = self.about(data)
        text = f"drawer {self.counted()} was found empty"
        act: Callable[[], Any] = lambda: self.work.discover(
            text, type=type, affects=affects, task=task, promote_to_core=core, by=by
        )
        with self.refused(BadInput, naming=("constraint", "opportunity", "risk", "insight")):
            self.work.discover(text, type="gossip")
        if self.closed(act):
            return
        made = act()
        self.model.discoveries.append(
            Discovery(made.id, by, text, type, {*affects, *([task] if task else [])}, core)
        )
        self.model.agents.add(by)

    @rule(data=st.data(), by=st.sampled_from(PEOPLE), path=st.sampled_from(PATHS), held=st.booleans())
    def make(self, data: Any, by: str, path: str, held: bool) -> None:
        with self.refused(
            BadInput, naming=("file", "code", "document", "config", "test", "migration", "schema")
        ):
            self.work.artifact(path, type="poem")
        content = f"version {self.counted()}"
        if held and self.claims:
            claim, task = self.claimed(data)
            if self.acts(claim, lambda: claim.artifact(path, content=content)):
                self.model.produce(path, claim.agent, task.id)
        else:
            about = self.pick(data).id if data.draw(st.booleans()) else None
            act: Callable[[], Any] = lambda: self.work.artifact(path, task=about, by=by)
            if self.closed(act):
                return
            made = act()
            with self.refused(NotFound):
                self.work.content(made)
            self.model.produce(path, by, about)
            self.model.agents.add(by)
            return
        if self.model.open and self.in_force(claim):
            assert self.work.content(self.work.records("artifact")[-1]) == content.encode()

    # escalations

    @rule(
        data=st.data(), by=st.sampled_from(PEOPLE),
        type=st.sampled_from(["stuck", "confused", "needs_decision", "error"]), about_task=st.booleans(),
    )  # fmt: skip
    def escalate(self, data: Any, by: str, type: str, about_task: bool) -> None:
        task = self.pick(data).id if about_task else None
        act: Callable[[], Any] = lambda: self.work.escalate("help", type=type, task=task, by=by)
        with self.refused(BadInput, naming=("stuck", "confused", "needs_decision", "error")):
            self.work.escalate("help", type="bored")
        if self.closed(act):
            return
        act()
        self.model.escalate(task, type, by)

    @precondition(lambda self: self.model.escalations)
    @rule(data=st.data())
    def resolve(self, data: Any) -> None:
        place = data.draw(st.integers(0, len(self.model.escalations) - 1))
        one, id = self.model.escalations[place], self.work.records("escalation")[place].id
        act: Callable[[], Any] = lambda: self.work.answer(id, "do it so", by="ann")
        if self.archived(act):
            return
        if one.status == "resolved":
            with self.refused(Conflict):
                act()
            return
        found = act()
        assert (found.status, found.resolved_by, found.answer) == ("resolved", "ann", "do it so")
        one.status = "resolved"

    # candidates

    @rule(data=st.data(), promoted=st.booleans())
    def judge(self, data: Any, promoted: bool) -> None:
        """What is promoted or rejected is offered no more, and what was said of it stays."""
        every = self.work.candidates(judged=True)
        if not every:
            with self.refused(NotFound):
                self.work.reject("a rumour", by="ann")
            return
        one = data.draw(st.sampled_from(every))
        known, want = self.model.judged.get(one.text, ""), "promoted" if promoted else "rejected"
        act: Callable[[], Any] = lambda: (
            self.work.promote(one, core=CORE, by="ann") if promoted else self.work.reject(one, by="ann")
        )
        if known == want == "rejected":
            self.nothing_new(act)
            return
        if known:
            with self.refused(Conflict, naming=(known,)):
                act()
            return
        if one.suggested_core is None:
            with self.refused(BadInput, naming=("core=",)):
                self.work.promote(one, by="ann")
        kept = act()
        if promoted:
            assert kept.outcome in ("stored", "merged")
        self.model.judged[one.text] = want

    # the work itself

    @rule(
        data=st.data(),
        goal=st.sampled_from(["", "all is well"]),
        name=st.sampled_from(["it", "it", "another"]),
    )
    def begin_again(self, data: Any, goal: str, name: str) -> None:
        """The same call again answers the work that there is. Nor is there a second task of one id, and what goes on is
        not discarded."""
        with self.refused(Conflict):
            self.work.add_task("another title", id=self.pick(data).id)
        with self.refused(BadInput, naming=("DISCARD",)):
            self.work.manage.discard(confirm="yes")
        if self.model.open:
            with self.refused(Conflict, naming=("complete", "abandon")):
                self.work.manage.discard(confirm="DISCARD")
        act: Callable[[], Any] = lambda: self.book.work(name=name, goal=goal, id="w")
        if (name, goal) == ("it", ""):  # as it was begun, whatever its goal is now
            assert self.nothing_new(act).id == "w"
        else:
            with self.refused(Conflict):
                act()

    @rule(goal=st.sampled_from(["", "all is well"]))
    def change_the_goal(self, goal: str) -> None:
        act: Callable[[], Any] = lambda: self.work.manage.change(goal=goal)
        if not self.archived(act):
            assert act().goal == goal
            self.model.goal = goal

    @rule(
        verb=st.sampled_from(["pause", "resume", "resume", "complete", "abandon", "archive"]),
        sure=st.integers(0, 3),
    )
    def change(self, verb: str, sure: int) -> None:
        act: Callable[[], Any] = lambda: getattr(self.work.manage, verb)(
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

    @rule(agent=st.sampled_from(LEADERS), most=st.integers(0, 3))
    def lead(self, agent: str, most: int) -> None:
        act: Callable[[], Any] = lambda: self.work.lead(agent, lease=3600)
        if self.closed(act):
            return
        if self.model.leader is not None and self.model.leader[0] != agent:
            with self.refused(Conflict):
                act()
            return
        lead = act()
        self.leads.append(lead)
        self.model.leader, self.model.led_by = (agent, lead.fence), agent
        self.model.agents.add(agent)
        self.deals_with(most)

    @precondition(lambda self: self.model.leader)
    @rule()
    def leader_dies(self) -> None:
        agent, fence = self.model.leader or ("", 0)
        self.book.ledger.store.lease(f"lead/{self.work.id}/{fence}", agent, 0, fence)
        self.model.leader = None

    @precondition(lambda self: self.leads)
    @rule(data=st.data(), stays=st.booleans())
    def stay_or_resign(self, data: Any, stays: bool) -> None:
        """Only the last one who took the lead may stay in it; one who was replaced has nothing to give up."""
        lead = data.draw(st.sampled_from(self.leads))
        if not stays:
            lead.resign()
        elif lead is self.leads[-1]:
            lead.heartbeat()
        else:
            with self.refused(Fenced):
                lead.heartbeat()
        if lead is self.leads[-1]:
            self.model.leader = (lead.agent, lead.fence) if stays else None

    @precondition(lambda self: self.leads)
    @rule(data=st.data())
    def act_as_leader(self, data: Any) -> None:
        """Only the last one who took the lead may act under it."""
        lead, task = data.draw(st.sampled_from(self.leads)), self.pick(data)
        act: Callable[[], Any] = lambda: lead.task(task.id).edit(priority=task.priority + 1)
        if self.closed(act):
            return
        if lead is not self.leads[-1]:
            with self.refused(Fenced):
                act()
            for refused in (lead.heartbeat, lead.next):
                with self.refused(Fenced):
                    refused()
            for step in (LeadStep("ready", "ready-t0-1"), LeadStep("nudge", "n", place=(0, 1, "n"))):
                with self.refused(Fenced):
                    lead.handled(step)
        elif task.status in FINAL:
            with self.refused(Conflict):
                act()
        else:
            act()
            task.priority += 1

    @precondition(lambda self: self.leads)
    @rule(most=st.integers(0, 12))
    def deal_with_what_happened(self, most: int) -> None:
        self.deals_with(most)

    def deals_with(self, most: int) -> None:
        """What was dealt with comes to nobody again, whoever leads."""
        lead, expected = self.leads[-1], self.model.steps()
        ids = dict(
            zip(
                map(id, self.model.escalations),
                (one.id for one in self.work.records("escalation")),
                strict=True,
            )
        )
        for kind, what in expected[:most]:
            step = lead.next()
            assert step is not None
            assert step.kind == kind
            assert step.id not in self.handled
            again = lead.next()
            assert again is not None
            assert again.id == step.id
            if kind in ("completed", "failed"):
                assert step.task is not None
                assert step.task.id == what
            else:
                assert step.id == (what if kind == "nudge" else ids[id(what)])
            lead.handled(step)
            self.handled.add(step.id)
            self.model.happened.remove((kind, what))
            if kind == "nudge":
                self.model.tell(str(self.model.led_by), [what], [])
        if len(expected) <= most:
            left = lead.next()
            assert left is None or left.kind in ("ready", "stuck")
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
            assert (told.ready_for, told.priority, told.later, told.waived) == (
                model.queue(one), one.priority, one.later, one.waived,
            ), id  # fmt: skip
            assert set(told.depends_on) == set(one.deps)
            assert (told.for_role, told.for_agent) == (one.role, one.given), id
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
        assert {one.id for one in work.tasks("waiting", at=head)} == set(model.blocked())
        for status in ("in_progress", "review", "failed"):
            assert {one.id for one in work.tasks(status, at=head)} == set(model.having(status))
            assert work.tasks(status) == work.tasks(status, at=head)
        assert {name: count for name, count in work.counts().items() if count} == model.counts()
        assert work.info().status == model.work
        assert work.info().goal == model.goal
        self.what_waits_for_people_is_right(head)
        self.what_was_said_is_right(head)
        self.steps += 1
        if self.steps % 7 == 0:
            self.past.append((head, self.seen(head)))

    def what_waits_for_people_is_right(self, head: int) -> None:
        model, work = self.model, self.work
        assert {one.id: one.status for one in work.records("approval", at=head)} == {
            id: one.status for id, one in model.approvals.items()
        }
        escalations = work.records("escalation", at=head)
        assert [(one.task, one.type, one.status) for one in escalations] == [
            (one.task, one.type, one.status) for one in model.escalations
        ]
        inbox = work.inbox()
        assert [one.id for one in inbox.approvals] == [
            id for id, one in model.approvals.items() if one.status == "pending"
        ]
        assert {one.id for one in inbox.branches} == set(model.branches)
        assert [one.id for one in inbox.reviews] == model.having("review")
        assert inbox.escalations == tuple(one for one in escalations if one.status == "open")
        assert [one.id for one in inbox.failed] == model.having("failed")
        every = work.candidates(judged=True)
        assert [(one.kind, one.text) for one in every] == model.candidates()
        assert [one.verdict for one in every] == [model.judged.get(one.text, "") for one in every]
        assert inbox.candidates == tuple(one for one in every if not one.verdict)

    def what_was_said_is_right(self, head: int) -> None:
        model, work = self.model, self.work
        for agent in (*AGENTS, "chief"):
            assert [one.id for one in work.read_messages(agent, at=head, peek=True)] == model.waiting(agent)
        assert [
            (one.id, one.by, one.target, set(one.acknowledged)) for one in work.records("nudge", at=head)
        ] == [(one.id, one.by, one.target, one.heard) for one in model.nudges]
        assert [
            (one.id, one.by, set(one.affects), one.reversible, one.reverses, one.reversed_by, one.status)
            for one in work.records("decision", at=head)
        ] == [
            (one.id, one.by, one.affects, one.reversible, one.reverses, one.reversed_by, one.status)
            for one in model.decisions
        ]
        assert [
            (one.id, one.by, one.text, one.type, set(one.affects), one.promote_to_core)
            for one in work.records("discovery", at=head)
        ] == [(one.id, one.by, one.text, one.type, one.affects, one.core) for one in model.discoveries]
        latest = dict[str, str]()
        for told, one in zip(work.records("artifact", at=head), model.artifacts, strict=True):
            assert (told.path, told.by, told.task, told.version) == (one.path, one.by, one.task, one.version)
            assert told.previous == latest.get(told.path)
            latest[told.path] = told.id
        task = f"t{self.steps % len(model.tasks)}"
        for kind, known in (("decision", model.decisions), ("discovery", model.discoveries)):
            assert [one.id for one in work.records(kind, task=task, at=head)] == [
                one.id for one in known if task in one.affects
            ]
        made = [one.version for one in model.artifacts if one.task == task]
        assert [one.version for one in work.records("artifact", task=task, at=head)] == made
        assert {
            one.agent: (
                list(one.tasks), list(one.reviews), len(one.decisions), len(one.discoveries), len(one.artifacts)
            )
            for one in work.contributions(at=head)
        } == model.contributions()  # fmt: skip

    def seen(self, at: int) -> Any:
        work = self.work
        return (
            work.info(at),
            work.tasks(at=at),
            work.ready(at=at),
            work.tasks("waiting", at=at),
            work.tasks("in_progress", at=at),
            work.inbox(at=at),
            work.critical_path(at=at),
            work.records("decision", at=at),
            work.records("discovery", at=at),
            work.records("artifact", at=at),
            work.records("escalation", at=at),
            work.records("approval", at=at),
            work.contributions(at=at),
            work.records("nudge", at=at),
            [work.read_messages(agent, at=at) for agent in AGENTS],
            work.info(at=at).status,
            work.counts(at=at),
            work.candidates(judged=True, at=at),
            work.task("t0").radar(at=at),
        )

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
                self.book.admin.copy(copy)
                assert rows(copy) == before
            self.without_words(before)
            self.discarded()
        finally:
            self.close()

    def close(self) -> None:
        self.book.close()
        if self.folder is not None:
            self.folder.cleanup()

    def without_words(self, before: dict[str, Any]) -> None:
        """When what was said is erased, tasks stand where they stood, here and in a copy."""
        said = [event.id for event in self.book.events() if event.kind in EVERY]
        self.book.erase(said[::2])
        after = rows(self.book)
        for view in ("work.lists", "work.counts"):
            assert after[view] == before[view]
        self.book.rebuild()
        assert rows(self.book) == after
        with commonplace.open("memory:") as copy:
            self.book.admin.copy(copy)
            assert rows(copy) == after

    def discarded(self) -> None:
        """A work that is over is discarded: what was said is gone wherever it went, and tasks stand as they stood."""
        if self.model.open:
            self.work.manage.abandon("the story ends")
        before, tasks = rows(self.book), self.work.tasks()
        left = [one for one in self.book.events() if one.kind in EVERY and not one.erased]
        assert self.work.manage.discard(confirm="DISCARD", reason="nobody needs it") == len(left)
        assert not [one for one in self.book.events() if one.kind in EVERY and not one.erased]
        after = rows(self.book)
        assert {name: after[name] for name in ("work.lists", "work.counts")} == {
            name: before[name] for name in ("work.lists", "work.counts")
        }
        bare = [(one.id, one.status, one.depends_on, one.waits, one.ready_for) for one in self.work.tasks()]
        assert bare == [(one.id, one.status, one.depends_on, one.waits, one.ready_for) for one in tasks]
        assert [self.work.records(kind) for kind in RECORDS] == [[] for _ in RECORDS]
        assert self.work.candidates() == []
        every = rows(self.book, "")
        for word in SAID:
            assert not [name for name, each in every.items() for _, _, row in each if word in (row or b"")], (
                word
            )
        self.book.rebuild()
        assert rows(self.book) == after
        assert self.work.manage.discard(confirm="DISCARD") == 0


class StoryOnSqlite(Story):
    url = "sqlite:"


RULES = {name: getattr(each, RULE_MARKER) for name, each in vars(Story).items() if hasattr(each, RULE_MARKER)}


def told_evenly(kind: type[Story], data: Any, steps: int, *, mostly: Collection[str] = ()) -> Counter[str]:
    """A story in which every rule has its turn, and none is left out for long: so it comes to what takes several. Rules
    that are `mostly` to be told come up more often. Answers how often each command was done."""
    story = kind()
    try:
        story.begin(
            data, data.draw(st.integers(0, 4)), data.draw(st.lists(st.sampled_from(AGENTS), max_size=4))
        )
        for _ in range(steps):
            can = [name for name, one in RULES.items() if all(may(story) for may in one.preconditions)]
            usual = ["do_a_task"] * 4 if "do_a_task" in can else []
            more = [name for name in can if name in mostly] * 10
            one = RULES[data.draw(st.sampled_from([*can, *usual, *more]), label="rule")]
            given = {
                name: data if name == "data" else data.draw(each, name)
                for name, each in one.arguments.items()
            }
            one.function(story, **given)
            story.all_is_as_the_model_says()
    except BaseException:
        story.close()
        raise
    story.teardown()
    return story.done
