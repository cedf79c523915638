"""A work that many share: tasks done by many at once, workers and leaders that die, holders that come back too late,
and clocks that are wrong."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from commonplace import Book, Claim, CommonplaceError, Conflict, Event, Fenced, Work
from commonplace.work.leading import Lead, LeadStep
from commonplace.work.tasks import Task
from commonplace.work.worker import beating, over

from . import Result, fault
from .places import SERVED, Place, Worker, place

PROCESSES = 8
PATIENCE = 120.0
"""Seconds after which what is still not done counts as stuck."""
WORK, GATE = "the-work", "gate"
SPOIL: Callable[[], None] | None = None
"""Done first in every process: how the tests break the library."""


def started(run: Callable[..., None], *args: object) -> Worker:
    return Worker(_run, SPOIL, run, *args)


def _run(say: Connection, spoil: Callable[[], None] | None, run: Callable[..., None], *args: object) -> None:
    logging.getLogger("commonplace").addHandler(
        logging.NullHandler()
    )  # that somebody was too late is no news here
    if spoil is not None:
        spoil()
    run(say, *args)


def mark(path: Path, *words: object) -> None:
    """Leave a line in a file that many write. It is the effect that a task has on the world."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


def marks(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def dag(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Tasks of which each waits for none to three earlier ones, of various priorities, in any order."""
    tasks = []
    for n in range(count):
        near = range(max(0, n - rng.choice((5, 50, 5000))), n)
        needs = rng.sample(near, min(len(near), rng.choice((0, 1, 1, 2, 3))))
        tasks.append({"id": f"t{n}", "title": f"task {n}", "depends_on": [f"t{one}" for one in needs],
                      "priority": rng.randrange(3)})  # fmt: skip
    return tasks


def batches(rng: random.Random, tasks: list[dict[str, Any]], size: int) -> Iterable[list[dict[str, Any]]]:
    for start in range(0, len(tasks), size):
        batch = tasks[start : start + size]
        rng.shuffle(batch)
        yield batch


@contextmanager
def kept_open(work: Work) -> Any:
    """The work is not over before the block ends: a task of it is held here."""
    work.add_task("the end", id=GATE, assigned_to="planner")
    claim = work.claim("planner", task=GATE, lease=86_400)
    assert claim is not None
    yield
    claim.complete()


def waited(work: Work, workers: Collection[Worker], ready: Callable[[], bool]) -> list[str]:
    """Wait until it is so; what is wrong if it never is."""
    until = time.monotonic() + PATIENCE
    while not ready():
        if time.monotonic() > until:
            return [f"after {PATIENCE:g} s the tasks are still {work.counts()}"]
        if workers and not any(worker.process.is_alive() for worker in workers):
            return [f"everybody has gone, and the tasks are {work.counts()}"]
        time.sleep(0.05)
    return []


def all_but_the_gate(work: Work) -> bool:
    counts = work.counts()
    return counts.get("completed", 0) >= counts.get("tasks", 0) - 1


class Course:
    """What the ledger tells of each task, in order."""

    def __init__(self, book: Book) -> None:
        self.of: dict[str, list[tuple[str, int]]] = {}
        self.times: list[int] = []
        self.steps: dict[str, str] = {}
        self.handled: Counter[str] = Counter()
        self.leads = 0
        self.whose: dict[str, dict[str, str | None]] = {}
        """The agent and the role that each task is for."""
        self.strayed: list[str] = []
        """Tasks that came to others than those they were for, or for which that changed by a crash."""
        for event in book.events():
            self.times.append(event.created_us)
            if event.kind.startswith("task."):
                self._follow(event)
                self.of.setdefault(event.payload["task_id"], []).append((event.kind, event.position))
            if event.kind == "task.completed":
                self.steps[event.payload["task_id"]] = event.id
            self.handled.update(id for _, _, id in event.payload.get("handled", ()))
            self.leads += event.kind == "work.led"

    def _follow(self, event: Event) -> None:
        """Only whoever plans says whom a task is for. An agent's task is claimed by that agent, a role's by its own."""
        id, fields = event.payload["task_id"], event.payload["tasks"][0]["set"]
        known = self.whose.setdefault(id, {"for_agent": None, "for_role": None})
        said = {name: fields[name] for name in known if name in fields}
        if said and event.kind not in ("task.added", "task.assigned", "task.edited"):
            self.strayed.append(f"task {id}: {event.kind} at {event.position} has changed whom it is for")
        known |= said
        if event.kind == "task.claimed":
            agent, role = known["for_agent"], known["for_role"]
            if event.actor != agent if agent else role not in (None, ROLES.get(event.actor)):
                self.strayed.append(f"task {id} is for {agent or role}, and {event.actor} has claimed it")

    def positions(self, task: str, kind: str) -> list[int]:
        return [position for told, position in self.of.get(task, ()) if told == kind]

    def wrong(self, work: Work, expected: Collection[str]) -> list[str]:
        """What must not be, of the tasks that had to be done."""
        known = {one.id: one for one in work.tasks()}
        wrong = [f"task {id} is missing" for id in expected if id not in known]
        wrong += [f"task {id} was never asked for" for id in known.keys() - set(expected) - {GATE}]
        for id, task in known.items():
            done = self.positions(id, "task.completed")
            if task.status != "completed" or len(done) != 1:
                wrong.append(f"task {id} is {task.status}, and was completed {len(done)} times")
            if len(self.positions(id, "task.added")) != 1:
                wrong.append(f"task {id} was added more than once")
            wrong += self._out_of_turn(id)
            for claimed in self.positions(id, "task.claimed"):
                for need in task.depends_on:
                    before = self.positions(need, "task.completed")
                    if not before or before[0] > claimed:
                        wrong.append(f"task {id} was claimed at {claimed}, before {need} was completed")
        if self.times != sorted(self.times):
            wrong.append("the events' times go back")
        return wrong + self.strayed

    def _out_of_turn(self, id: str) -> list[str]:
        """A task is claimed only while nobody has it, given to somebody only once, be it lost or not, and nothing
        happens to it once it is done."""
        wrong, held, given, done = list[str](), False, False, False
        for kind, position in self.of[id]:
            if done:
                wrong.append(f"task {id}: {kind} at {position}, after it was completed")
            if kind == "task.claimed" and held:
                wrong.append(f"task {id} was claimed at {position} while somebody had it")
            if kind == "task.assigned" and (given or held):
                wrong.append(f"task {id} was dispatched at {position} a second time")
            held = kind == "task.claimed" or (held and kind not in ("task.lost", "task.completed"))
            given = given or kind == "task.assigned"
            done = done or kind == "task.completed"
        return wrong

    def lost(self) -> list[str]:
        return [id for id, told in self.of.items() for kind, _ in told if kind == "task.lost"]


BATCH = 250
"""How many tasks are added at once while others write."""


# many workers


def do_tasks(say: Connection, home: Place, agent: str, effects: Path) -> None:
    with home.open() as book:
        work = book.work(id=WORK)
        say.send("open")
        told = work.worker(agent, lambda claim: mark(effects, claim.task.id), lease=60.0)
    say.send(told.completed)


@fault(12, "tasks", 10_000, 60)
def fault_12(count: int, seed: int, tmp: Path) -> Result:
    """8 processes do `count` tasks of a random graph, half of which are added meanwhile: each once, in its turn."""
    result = Result()
    for kind in SERVED:
        rng, home, effects = random.Random(seed), place(kind, tmp), tmp / f"effects-{kind}"
        tasks = dag(rng, count)
        with home.open() as book:
            work = book.work(id=WORK, name="many")
            begin = time.monotonic()
            with kept_open(work):
                work.add_tasks(tasks[: count // 2])
                workers = [started(do_tasks, home, f"dev-{n}", effects) for n in range(PROCESSES)]
                for batch in batches(rng, tasks[count // 2 :], BATCH):
                    work.add_tasks(batch)
            said = [worker.rest()[-1:] for worker in workers]
            seconds = time.monotonic() - begin
            wrong = [f"a worker said {one}" for one in said if not one or not isinstance(one[0], int)]
            course = Course(book)
            wrong += course.wrong(work, [one["id"] for one in tasks])
            done = Counter(words[0] for words in marks(effects))
            wrong += [f"task {id} was done {times} times" for id, times in done.items() if times != 1]
            if len(done) != count:
                wrong.append(f"{len(done)} of {count} tasks had an effect")
            wrong += [f"task {id} was lost, though nobody died" for id in course.lost()]
            if not book.verify().ok:
                wrong.append("the chain does not hold")
            each = [one[0] for one in said if one and isinstance(one[0], int)]
            result.figures[f"{kind} tasks/s"] = round(count / seconds)
            result.figures[f"{kind} fewest by one worker"] = min(each, default=0)
        result.problem(f"{kind} (seed {seed})", *wrong)
        result.outcomes[f"{kind} done"] = sum(done.values())
        result.cases += count
        home.drop()
    return result


# workers and leaders that die


LEASE = 1.0
DEVELOPERS = tuple(f"dev-{n}" for n in range(5))
ROLES = {name: "developer" if n < 3 else "qa" for n, name in enumerate(DEVELOPERS)}
CHIEFS = ("chief-0", "chief-1")


def labour(say: Connection, home: Place, agent: str, effects: Path) -> None:
    """Do tasks. What a task makes is recorded with its completion, or not at all."""

    def handle(claim: Claim) -> dict[str, Any]:
        mark(effects, claim.task.id)
        time.sleep(random.random() * 0.1)
        return {"summary": "made", "artifacts": [f"out/{claim.task.id}"]}

    with home.open() as book:
        work = book.work(id=WORK)
        say.send(True)
        say.send(work.worker(agent, handle, lease=LEASE).completed)


def follow_ups(step: str, many: int) -> list[dict[str, Any]]:
    """What is to be done after a task: the ids are made of the step, so that nothing is added twice."""
    return [
        {"id": f"{step}.{n}", "title": f"follow up {n}", "metadata": {"follow": many - 1}}
        for n in range(many)
    ]


def preside(say: Connection, home: Place, agent: str) -> None:
    """Lead: give out what is ready, unless it is for a role, and add what follows from what is done."""

    def give(lead: Lead, task: Task) -> None:
        try:
            lead.task(task).assign(DEVELOPERS[task.number % len(DEVELOPERS)])
        except Fenced:
            raise
        except Conflict:
            pass  # somebody has claimed it meanwhile

    def handle(lead: Lead, step: LeadStep) -> None:
        if step.kind == "completed" and step.task is not None and step.task.metadata.get("follow"):
            for one in lead.add_tasks(follow_ups(step.id, step.task.metadata["follow"])):
                give(lead, one)
        elif step.kind == "ready" and step.task is not None and step.task.for_role is None:
            give(lead, step.task)

    with home.open() as book:
        work = book.work(id=WORK)
        say.send(True)
        say.send(work.orchestrate(agent, handle, lease=LEASE))


class Crew:
    """Processes by name. Who is killed comes back under its name."""

    def __init__(self, home: Place, effects: Path) -> None:
        self.home, self.effects = home, effects
        self.said: list[str] = []
        self.there = {name: self.start(name) for name in (*CHIEFS, *DEVELOPERS)}

    def start(self, name: str) -> Worker:
        if name in CHIEFS:
            return started(preside, self.home, name)
        return started(labour, self.home, name, self.effects)

    def at_work(self, names: Collection[str], rng: random.Random) -> str:
        """One of these that has opened the book."""
        ends = {self.there[name].heard: name for name in rng.sample(sorted(names), len(names))}
        heard = wait(list(ends), PATIENCE)
        return ends[next(end for end in ends if end in heard)] if heard else next(iter(names))

    def kill(self, name: str) -> bool:
        """Whether it was alive when it was killed."""
        worker = self.there[name]
        worker.kill()
        self.hear(name, worker)
        self.there[name] = self.start(name)
        return worker.process.exitcode == -signal.SIGKILL

    def hear(self, name: str, worker: Worker) -> None:
        self.said += [f"{name} said {one}" for one in worker.rest() if isinstance(one, str)]

    def rest(self) -> list[str]:
        for name, worker in self.there.items():
            self.hear(name, worker)
        return self.said

    def stop(self) -> None:
        for worker in self.there.values():
            worker.kill()


@fault(12, "workers", 500, 10)
def fault_12_workers(count: int, seed: int, tmp: Path) -> Result:
    """`count` kills of workers on each engine, and a tenth as many of whoever leads."""
    result = Result()
    for kind in SERVED:
        kills, rng = count, random.Random(seed)
        home, effects = place(kind, tmp), tmp / f"effects-{kind}"
        with home.open() as book:
            work = book.work(id=WORK, name="deadly")
            for name, role in ROLES.items():
                book.as_actor(name, role=role)
            work.lead("planner").resign()  # from here on, whoever leads is told what is completed
            roots = 0
            begin = time.monotonic()
            crew = Crew(home, effects)
            try:
                with kept_open(work):
                    workers = chiefs = 0
                    while workers < kills or chiefs < max(1, kills // 10):
                        while sum(work.counts().get(one, 0) for one in ("pending", "assigned")) < 20:
                            follow = [rng.choice((0, 0, 1, 2)) for _ in range(20)]
                            work.add_tasks(
                                [
                                    {
                                        "id": f"r{roots + n}",
                                        "title": "root",
                                        "metadata": {"follow": many},
                                        **for_whom(rng),
                                    }
                                    for n, many in enumerate(follow)
                                ]
                            )
                            roots += len(follow)
                        victim = crew.at_work(DEVELOPERS, rng)
                        time.sleep(rng.uniform(0, 0.15))
                        if workers < kills:
                            workers += crew.kill(victim)
                        if chiefs * 10 < workers:
                            leader = work.info().leader
                            there = (leader,) if leader in CHIEFS else CHIEFS
                            chiefs += crew.kill(crew.at_work(there, rng))
                    killed = time.monotonic() - begin
                    wrong = waited(work, crew.there.values(), partial(nothing_left, book, work))
                wrong += [] if wrong else crew.rest()
            finally:
                crew.stop()
            wrong += judged(book, work, roots, result, kind)
            result.figures[f"{kind} seconds of killing"] = round(killed, 1)
            result.outcomes[f"{kind} effects"] = len(marks(effects))
        result.outcomes[f"{kind} workers killed"] = workers
        result.outcomes[f"{kind} leaders killed"] = chiefs
        result.problem(f"{kind} (seed {seed})", *wrong)
        result.cases += workers + chiefs
        home.drop()
    return result


def for_whom(rng: random.Random) -> dict[str, str]:
    """Whom a task is for: anybody, a role or an agent."""
    role, agent = rng.choice(sorted(set(ROLES.values()))), rng.choice(DEVELOPERS)
    return rng.choice(({}, {"for_role": role}, {"assigned_to": agent}))


def nothing_left(book: Book, work: Work) -> bool:
    """Whether all tasks are done, and whoever leads has dealt with everything that was completed."""
    if not all_but_the_gate(work):
        return False
    with book.ledger.snapshot() as now:
        return not any(True for _ in now.scan("work.steps", WORK))


def judged(book: Book, work: Work, roots: int, result: Result, kind: str) -> list[str]:
    """All that was asked for is done, all that follows from it is, each thing once."""
    course = Course(book)
    tasks = {one.id: one for one in work.tasks()}
    expected = {f"r{n}" for n in range(roots)}
    ahead = list(expected)
    while ahead:
        id = ahead.pop()
        if id in tasks and id in course.steps:
            many = tasks[id].metadata.get("follow", 0)
            following = [one["id"] for one in follow_ups(course.steps[id], many)]
            expected.update(following)
            ahead += following
    wrong = course.wrong(work, expected)
    steps = [step for id, step in course.steps.items() if id != GATE]
    wrong += [
        f"the step {one} was dealt with {course.handled[one]} times"
        for one in steps
        if course.handled[one] != 1
    ]
    made = Counter(event.payload["said"]["path"] for event in book.events(kinds=["work.produced"]))
    wrong += [f"out/{id} was made {made[f'out/{id}']} times" for id in expected if made[f"out/{id}"] != 1]
    if not book.verify().ok:
        wrong.append("the chain does not hold")
    dispatched = sum(kind == "task.assigned" for told in course.of.values() for kind, _ in told)
    result.outcomes[f"{kind} tasks"] += len(expected)
    result.outcomes[f"{kind} follow-ups"] += len(expected) - roots
    result.outcomes[f"{kind} dispatched"] += dispatched
    result.outcomes[f"{kind} taken back from the dead"] += len(course.lost())
    lost = [course.whose[id] for id in course.lost()]
    for name, what in (("for_agent", "for one agent"), ("for_role", "for a role")):
        result.outcomes[f"{kind} taken back, {what}"] += sum(one[name] is not None for one in lost)
    result.outcomes[f"{kind} took the lead"] += course.leads - 1
    return wrong


# holders that come back too late


HELD = 25
"""How many tasks a process holds when it is stopped."""

LATE: dict[str, Callable[[Claim], object]] = {
    "complete": lambda claim: claim.complete("late"),
    "complete with a file": lambda claim: claim.complete("late", artifacts=["late.txt"]),
    "fail": lambda claim: claim.fail("late"),
    "release": lambda claim: claim.release("late"),
    "heartbeat": lambda claim: claim.heartbeat(),
    "artifact": lambda claim: claim.artifact("late.txt", content="late"),
    "block": lambda claim: claim.block("late"),
    "split": lambda claim: claim.split(["late"]),
}


def hold_too_long(say: Connection, home: Place, agent: str, many: int, seed: int) -> None:
    """Claim tasks, be stopped for longer than the lease, and then go on as if nothing had happened."""
    rng, answers = random.Random(seed), Counter[tuple[str, str]]()
    with home.open() as book:
        claims = book.work(id=WORK).claim_many(many, agent, lease=0.3)
        say.send([(one.task.id, one.token) for one in claims])
        os.kill(os.getpid(), signal.SIGSTOP)
        for claim in claims:
            for name in rng.sample(list(LATE), len(LATE)):
                try:
                    LATE[name](claim)
                    answers[name, "accepted"] += 1
                except CommonplaceError as error:
                    answers[name, type(error).__name__] += 1
    say.send(answers)


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


ENDS: dict[str, Callable[[Work, Claim], object]] = {
    "holds it": lambda _work, _claim: None,
    "has completed it": lambda _work, claim: claim.complete("done"),
    "has failed at it": lambda _work, claim: claim.fail("broke"),
    "has released it": lambda _work, claim: claim.release(),
    "has blocked it": lambda _work, claim: claim.block("stuck"),
    "has cancelled it": lambda work, claim: work.task(claim.task).cancel(reason="not needed"),
}
"""What the next holder has done when the first one comes back."""


@fault(12, "holders", 1000, HELD)
def fault_12_holders(count: int, seed: int, tmp: Path) -> Result:
    """`count` holders on each engine, stopped until their tasks went on without them: all that they then do is refused,
    and leaves nothing behind."""
    result = Result()
    for kind in SERVED:
        home = place(kind, tmp)
        with home.open() as book:
            work = book.work(id=WORK, name="late", limits={"max_agents": 1_000_000})
            for start in range(0, count, HELD):
                many = min(HELD, count - start)
                work.add_tasks([{"title": f"task {start + n}"} for n in range(many)])
                wrong = late(book, work, home, f"first-{start}", many, seed + start, result)
                result.problem(f"{kind} (seed {seed + start})", *wrong)
                result.cases += many
                for one in work.tasks():
                    if not one.final and one.status != "in_progress":
                        work.task(one).cancel(reason="the next ones")
            if not book.verify().ok:
                result.problem(kind, "the chain does not hold")
        home.drop()
    return result


def late(book: Book, work: Work, home: Place, agent: str, many: int, seed: int, result: Result) -> list[str]:
    rng, stale = random.Random(seed), started(hold_too_long, home, agent, many, seed)
    try:
        first = dict(stale.listen(60.0))
        until = time.monotonic() + PATIENCE
        while not is_stopped(stale.process.pid or 0) and time.monotonic() < until:
            time.sleep(0.01)
        seconds = list[Claim]()
        while len(seconds) < len(first) and time.monotonic() < until:
            seconds += work.claim_many(many, "second", lease=600)
            time.sleep(0.05)
        wrong = [] if len(first) == many else [f"{len(first)} of {many} tasks were claimed"]
        if {one.task.id for one in seconds} != first.keys():
            wrong.append(f"{len(seconds)} of {len(first)} tasks went on without their holder")
        wrong += [
            f"the fence of {one.task.id} did not grow" for one in seconds if one.token <= first[one.task.id]
        ]
        ends = [(one, rng.choice(list(ENDS))) for one in seconds]
        for one, end in ends:
            ENDS[end](work, one)
            result.outcomes[f"the next {end}"] += 1
        head, before = book.head, work.tasks()
    finally:
        os.kill(stale.process.pid or 0, signal.SIGCONT)
    answers = stale.rest()[-1]
    if not isinstance(answers, Counter):
        return [*wrong, f"the late holder said {answers}"]
    wrong += [f"a late {name} was {answer}" for name, answer in answers if answer != "Fenced"]
    result.outcomes["refused"] += sum(times for (_, answer), times in answers.items() if answer == "Fenced")
    if sum(answers.values()) != many * len(LATE):
        wrong.append(f"{sum(answers.values())} of {many * len(LATE)} late acts were tried")
    if book.head != head:
        wrong.append(f"late acts left {[event.kind for event in book.events(after=head)][:5]}")
    if work.tasks() != before:
        wrong.append("late acts changed a task")
    for one, end in ends:
        if end == "holds it":
            try:
                one.heartbeat()
                one.complete("on time")
            except CommonplaceError as error:
                wrong.append(f"whoever has the task could not complete it: {error}")
    return wrong


# wrong clocks


HOUR = 3600.0
CLOCKS = ("right", "ahead", "behind", "jumping")
LONG_LEASE = 3.0


def set_clock(how: str) -> None:
    """From here on, the wall clock of this process is an hour off, or jumps by two hours at every tenth of a second.
    The clocks that only run forward stay as they are."""
    now, now_ns, get = time.time, time.time_ns, time.clock_gettime

    def off() -> float:
        if how == "jumping":
            return HOUR if int(time.monotonic() * 10) % 2 else -HOUR
        return {"right": 0.0, "ahead": HOUR, "behind": -HOUR}[how]

    time.time = lambda: now() + off()
    time.time_ns = lambda: now_ns() + int(off()) * 1_000_000_000
    time.clock_gettime = lambda clock: get(clock) + (off() if clock == time.CLOCK_REALTIME else 0.0)


def do_by_clock(say: Connection, home: Place, agent: str, how: str, effects: Path) -> None:
    """Do tasks with a wrong clock; die in those in which somebody has to."""
    set_clock(how)
    with home.open() as book:
        work = book.work(id=WORK)
        while not over(work):
            before = time.monotonic()
            claim = work.claim(agent, lease=LONG_LEASE)
            if claim is None:
                time.sleep(0.02)
                continue
            mark(effects, claim.task.id, claim.token, before, time.monotonic())
            if claim.task.metadata.get("dies") and claim.task.claims == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            with beating(claim), suppress(Fenced):  # the ledger tells that it was taken back
                time.sleep(claim.task.metadata.get("takes", 0.0))
                claim.complete()
    say.send("done")


def replaced(workers: list[Worker], rng: random.Random, home: Place, effects: Path) -> bool:
    """Start somebody for each who has died."""
    for worker in [one for one in workers if one.process.exitcode == -signal.SIGKILL]:
        workers.remove(worker)
        agent = f"dev-{worker.process.pid}"
        workers.append(started(do_by_clock, home, agent, rng.choice(CLOCKS), effects))
    return True


@fault(12, "clocks", 1000, 24)
def fault_12_clocks(count: int, seed: int, tmp: Path) -> Result:
    """`count` tasks by processes whose clocks are right, an hour ahead, an hour behind, or jumping, on each engine: a
    task is taken back when its holder has died and its lease has run out, and never else."""
    result = Result()
    for kind in SERVED:
        rng, home, effects = random.Random(seed), place(kind, tmp), tmp / f"effects-{kind}"
        tasks = dag(rng, count)
        free = [one for one in tasks if not one["depends_on"]]
        chosen = rng.sample(free, min(len(free), max(4, count // 50)))
        for one in chosen[::2]:
            one["metadata"] = {"dies": True}
        for one in chosen[1::2]:
            one["metadata"] = {"takes": LONG_LEASE * 1.4}
        with home.open() as book:
            work = book.work(id=WORK, name="clocks")
            work.add_tasks(tasks)
            workers = [
                started(do_by_clock, home, f"dev-{n}", CLOCKS[n % len(CLOCKS)], effects)
                for n in range(PROCESSES)
            ]
            more = partial(replaced, workers, rng, home, effects)
            try:
                wrong = waited(work, (), lambda work=work, more=more: more() and over(work))  # type: ignore[misc]
                if not wrong:
                    said = {one for worker in workers for one in worker.rest()}
                    wrong += [f"a worker said {one}" for one in said - {"done"}]
            finally:
                for worker in workers:
                    worker.kill()
            course = Course(book)
            wrong += course.wrong(work, [one["id"] for one in tasks])
            wrong += _in_time(course, marks(effects), {one["id"] for one in chosen[::2]})
        result.problem(f"{kind} (seed {seed})", *wrong)
        result.outcomes[f"{kind} taken back from the dead"] += len(course.lost())
        result.cases += count
        home.drop()
    return result


def _in_time(course: Course, claims: list[list[str]], deadly: set[str]) -> list[str]:
    """Whether what was lost had lost its holder, a lease ago."""
    wrong = [f"task {id} was taken back though its holder lived" for id in course.lost() if id not in deadly]
    wrong += [
        f"task {id} was taken back {course.lost().count(id)} times, and its holder died once"
        for id in deadly
        if course.lost().count(id) != 1
    ]
    for id in deadly:
        told = sorted(
            (float(token), float(before), float(after)) for one, token, before, after in claims if one == id
        )
        for (_, asked, _), (_, _, got) in pairwise(told):
            if got - asked < LONG_LEASE:
                wrong.append(f"task {id} was taken back after {got - asked:.2f} s of {LONG_LEASE:g}")
    return wrong
