"""Claims: who holds a task, for how long, and what becomes of it.

A claim is an event; its position is the fence that every later act of its holder carries. A lease on the engine's
clock, outside the ledger, says whether the holder is still there. When the lease has run out, the claim is over, and
what its holder does then is refused. The next claim, or the next look at the work, gives the task back to those it is
for; a late holder gets the same answer before and after that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice
from typing import Any

from msgspec.structs import replace

from ..errors import BadInput, Conflict, Corrupt, Denied, Fenced
from ..ledger.events import Event
from .artifacts import Made, next_version, path_key
from .graph import NewTask, add, cancel, needed, newly_needed, numbers_of, settle
from .kinds import (
    BLOCKED,
    CLAIMED,
    COMPLETED,
    DUE,
    ESCALATED,
    FAILED,
    LOST,
    PRODUCED,
    RELEASED,
    RETRIED,
    REVIEWED,
    SUBMITTED,
)
from .reading import lease_name
from .tasks import BY_HAND, OnFailure, Task, TaskResult, check_is, placed, role_lane
from .transaction import WorkTransaction, command, given_back, moved

log = logging.getLogger("commonplace")

LEASES_PER_CHECK = 32
"""How many tasks a claim that looks for ended leases looks at."""
CHECK_EVERY_US = 1_000_000
"""The first event of each so many microseconds, by the ledger's times, looks for ended leases if it is a claim."""
CHECK_ONE_CLAIM_IN = 256
"""About one of so many other claims looks, too, because the first event of each second may never be a claim."""
MOST_AT_ONCE = 1_000
BACK_OFF = "back-off"
"""Who holds a task that is to be tried again later."""


def _mixed(position: int) -> int:
    """A number that looks random, so that claims at every second position still check all leases in time."""
    return position * 2_654_435_761 >> 7


def _due(tx: WorkTransaction) -> bool:
    """Whether a claim is to look after holders that are gone."""
    overlay = tx.overlay
    return (
        overlay.now // CHECK_EVERY_US != overlay.created_at // CHECK_EVERY_US
        or _mixed(overlay.position) % CHECK_ONE_CLAIM_IN == 0
    )


@command()
def decide_claim(
    tx: WorkTransaction, agent: str, lease: float, count: int, task: str | None, event: str | None
) -> list[Task]:
    """The best tasks that this agent may do now, each its own from here on. Of a work that is paused, none."""
    if tx.info.status == "paused":
        if task is not None:
            raise Conflict(
                f"the work {tx.info.name!r} is paused: resume it before somebody claims task {task!r}"
            )
        return []
    return claim(tx, agent, lease, count, task, event)


def claim(
    tx: WorkTransaction, agent: str, lease: float, count: int, task: str | None, event: str | None
) -> list[Task]:
    if _due(tx):
        reclaim(tx, LEASES_PER_CHECK)
    tasks = []
    for before in _best(tx, agent, count) if task is None else [_that(tx, agent, task)]:
        path = {"pending": ("assigned", "in_progress"), "assigned": ("in_progress",)}.get(before.status, ())
        claimed = moved(
            before, *path, assigned_to=agent, token=tx.next_fence(), lease=lease, rework=False, claims=before.claims + 1
        )  # fmt: skip
        if before.rework:
            tx.let_go(before)
        tx.tell(CLAIMED, (before, claimed), id=event, **tx.joined(agent))
        tx.hold(claimed, agent)
        tasks.append(claimed)
    if not tasks and task is None and reclaim(tx, None):
        return claim(tx, agent, lease, count, task, event)
    return tasks


def _best(tx: WorkTransaction, agent: str, count: int) -> list[Task]:
    lists = tx.ready_for(agent)
    tasks = tx.all_numbered(tx.first(lists, count))
    if not any(agent in task.avoid for task in tasks):
        return tasks
    return list(islice((task for task in tx.listed(*lists) if agent not in task.avoid), count))


def _that(tx: WorkTransaction, agent: str, id: str) -> Task:
    task = tx.task(id)
    if {"in_progress", "later"} & {*task.lists} and _lost(tx, [task]):
        task = _give_back(tx, task)
    if task.ready_for is None or f"ready:{task.ready_for}" not in tx.ready_for(agent):
        why = f"it is {task.status}" + (f", with {task.assigned_to!r}" if task.assigned_to else "")
        why += f", and waits for {task.waits} more" if task.waits else ""
        if task.ready_for == role_lane(task.for_role) != "":
            why = f"it is for the role {task.for_role!r}, which {agent!r} does not have"
        raise Conflict(f"{agent!r} cannot claim task {id!r}: {why}")
    if agent in task.avoid:
        raise Conflict(f"{agent!r} has failed at task {id!r}, which is for somebody else now")
    return task


# who is not there any more


@command(open=False, archived=True)
def decide_reclaim(tx: WorkTransaction) -> list[Task]:
    """Give back every task whose lease has run out."""
    return reclaim(tx, None) if tx.info.open else []


def reclaim(tx: WorkTransaction, some: int | None) -> list[Task]:
    """The same for some of them, others each time, or for all."""
    numbers = list(tx.members(("in_progress", "later")))
    if some is not None and some < len(numbers):
        start = _mixed(tx.overlay.position) % len(numbers)
        numbers = (numbers[start:] + numbers[:start])[:some]
    return [_give_back(tx, task) for task in _lost(tx, tx.all_numbered(numbers))]


def _lost(tx: WorkTransaction, tasks: Sequence[Task]) -> list[Task]:
    if not tasks:
        return []
    held = tx.overlay.tx.leases([lease_name(task) for task in tasks])
    lost = [task for task in tasks if lease_name(task) not in held]
    fresh = {lease.name for lease in tx.overlay.write.leases if lease.seconds > 0} if lost else set()
    return [task for task in lost if lease_name(task) not in fresh]


def _give_back(tx: WorkTransaction, task: Task) -> Task:
    if task.later:
        after = placed(replace(task, later=False, token=None))
        tx.tell(DUE, (task, after))
    else:
        after = given_back(task, token=None)
        tx.tell(LOST, (task, after), holder=task.assigned_to)
    return after


# what a holder does


def held(tx: WorkTransaction, task: Task, token: int) -> Task:
    """The task, if this claim of it is still in force, and the actor has made it. Raises Fenced."""
    return all_held(tx, [(task, token)])[0]


def all_held(tx: WorkTransaction, claims: Sequence[tuple[Task, int]]) -> list[Task]:
    """The same for many, whose leases are read at once."""
    tasks = [_fenced(tx, task, token) for task, token in claims]
    for task in _lost(tx, tasks):
        raise Fenced(run_out(task))
    return tasks


def run_out(task: Task) -> str:
    return (
        f"the lease of the claim {task.token} of task {task.id!r} has run out, so it is no longer in force. Nothing "
        "was written: claim again, for longer, or send heartbeats in time"
    )


def _fenced(tx: WorkTransaction, task: Task, token: int) -> Task:
    if task.token != token or task.status != "in_progress":
        by = f"; it is {task.status}" + (f" with {task.assigned_to!r} now" if task.assigned_to else " now")
        raise Fenced(
            f"the claim {token} of task {task.id!r} is no longer in force{by}. Nothing was written: claim again"
        )
    if task.assigned_to != tx.act.by:
        raise Fenced(
            f"the claim {token} of task {task.id!r} is held by {task.assigned_to!r}, not by {tx.act.by!r}"
        )
    return task


@command()
def decide_complete(
    tx: WorkTransaction,
    task: int,
    token: int,
    result: TaskResult,
    made: tuple[Made, ...],
    then: float | None,
    event: str | None,
) -> tuple[Task, Task | None]:
    """The task is done, or done and waiting for a review. `then` its holder claims the next one for so many seconds;
    an error there does not undo what is done: the next call of claim raises it. A call that repeats the last one
    claims nothing more."""
    before = tx.overlay.position
    done = complete(tx, task, token, result, made)
    if then is None or tx.info.status == "paused" or tx.overlay.position == before:
        return done, None
    try:
        following = tx.overlay.run(
            tx.overlay.acting, lambda *_: claim(tx, tx.act.by, then, 1, None, event), None
        )
    except Corrupt as error:
        log.warning("%s completed task %s, and the next one cannot be claimed: %s", tx.act.by, done.id, error)
        return done, None
    return done, following[0] if following else None


@command()
def decide_complete_many(
    tx: WorkTransaction, claims: tuple[tuple[int, int], ...], result: TaskResult
) -> list[Task]:
    """The same for many tasks with the same result, all or none."""
    numbers = [number for number, _ in claims]
    each = zip(tx.all_numbered(numbers), (token for _, token in claims), strict=True)
    left = [(task, token) for task, token in each if not _told_already(tx, task, token, result, ())]
    for number in dict.fromkeys(task.number for task in all_held(tx, left)):
        _complete(tx, tx.numbered(number), result, ())
    return tx.all_numbered(numbers)


def complete(
    tx: WorkTransaction, task: int, token: int, result: TaskResult, made: Sequence[Made] = ()
) -> Task:
    before = tx.numbered(task)
    if _told_already(tx, before, token, result, made):
        return before
    return _complete(tx, held(tx, before, token), result, made)


def _told_already(
    tx: WorkTransaction, task: Task, token: int, result: TaskResult, made: Sequence[Made]
) -> bool:
    """Whether this claim has completed the task with the same result: then it is the same call again."""
    if task.token != token or task.status not in ("completed", "review") or task.result is None:
        return False
    later = task.result.artifacts[len(result.artifacts) :]
    paths = [(tx.views.get("work.records", tx.work, id) or {}).get("path_key") for id in later]
    alike = replace(result, artifacts=(*result.artifacts, *later)) == task.result
    return alike and paths == [path_key(tx.work, artifact.said["path"]) for artifact in made]


def _complete(tx: WorkTransaction, before: Task, result: TaskResult, made: Sequence[Made]) -> Task:
    tx.let_go(before)
    if made:
        ids = tuple(_produce(tx, before, artifact) for artifact in made)
        result = replace(result, artifacts=(*result.artifacts, *ids))
    if before.needs_review:
        tx.tell(SUBMITTED, (before, moved(before, "review", result=result)))
    else:
        finish(tx, before, result=result)
    return tx.numbered(before.number)


def finish(tx: WorkTransaction, task: Task, **fields: Any) -> None:
    done = moved(task, "completed", **fields)
    led = tx.info.led is not None
    tx.tell(COMPLETED, (task, done), *tx.freeing(task), step=led, doer=task.assigned_to)


@command(open=False)
def decide_fail(tx: WorkTransaction, task: int, token: int, reason: str) -> Task:
    """A claim fails once. The same call again answers the task as it is by now, also if its failure has ended the
    work."""
    before = tx.numbered(task)
    if before.failed_token == token:
        return before
    tx.need_open()
    held(tx, before, token)
    tx.let_go(before)
    fail(tx, before, reason)
    return tx.numbered(task)


def fail(tx: WorkTransaction, task: Task, reason: str, parents: Sequence[str] = ()) -> None:
    """The task has failed, and its policy says what happens next."""
    failed = moved(task, "failed", reason=reason, failures=task.failures + 1)
    event = tx.tell(FAILED, (task, failed), step=True, parents=parents)
    policy = task.on_failure or tx.info.on_failure
    again = policy.policy in ("retry", "reassign") and failed.failures <= policy.retries
    if again:
        _again(tx, failed, policy)
    elif policy.policy in ("retry", "reassign"):
        _give_up(tx, failed, policy.then, event)
    else:
        _give_up(tx, failed, policy.policy, event)


def _again(tx: WorkTransaction, task: Task, policy: OnFailure) -> None:
    delay, avoid, agent = policy.delay(task.failures), task.avoid, task.for_agent
    if policy.policy == "reassign":
        agent = None
        if task.assigned_to and task.assigned_to not in avoid:
            avoid = (*avoid, task.assigned_to)
    token, lease = (tx.next_fence(), delay) if delay else (None, task.lease)
    after = given_back(task, avoid=avoid, for_agent=agent, later=delay > 0, token=token, lease=lease)
    tx.tell(RETRIED, (task, after), policy=policy.policy)
    if delay:
        tx.hold(after, BACK_OFF)


def _give_up(tx: WorkTransaction, task: Task, policy: str, failure: Event) -> None:
    if policy == "skip":
        cancel(tx, task, "skipped after it had failed", "free")
    elif policy == "abort":
        tx.change(
            {"reason": f"task {task.id} failed: {task.reason}"}, status="cancelled", parents=[failure.id]
        )
    else:
        escalate(tx, "error", f"it failed: {task.reason}", task, [failure.id])


def escalate(
    tx: WorkTransaction, type: str, text: str, task: Task | None, parents: Sequence[str] = ()
) -> str:
    affects = [] if task is None else [task]
    return tx.note(
        ESCALATED, {"text": text}, affects=affects, pending="escalation", step=True, type=type, status="open",
        task=None if task is None else task.id, parents=parents,
    ).id  # fmt: skip


@command()
def decide_release(tx: WorkTransaction, task: int, token: int, reason: str) -> Task:
    """Give a task back, for those it was for."""
    before = held(tx, tx.numbered(task), token)
    tx.let_go(before)
    tx.tell(RELEASED, (before, given_back(before, token=None)), said={"why": reason})
    return tx.numbered(task)


@command()
def decide_block_or_split(
    tx: WorkTransaction,
    task: int,
    token: int,
    reason: str,
    on: tuple[str, ...],
    subtasks: tuple[NewTask, ...],
) -> Any:
    """The holder cannot go on: for a reason that somebody has to clear, until other tasks are done, or until new
    ones are into which it has split the task. Then it is claimed again by those it is for; its parts are for the
    same role, unless they name one."""
    before = held(tx, tx.numbered(task), token)
    if subtasks and not tx.may("orchestrate"):
        refused = _too_much(tx, before, subtasks)
        if refused:
            return refused
    role = before.for_role
    added = add(tx, [replace(part, parent=before.id, for_role=part.for_role or role) for part in subtasks])
    waits_for = newly_needed(tx, before, (*on, *(task.id for task in added)))
    if not waits_for and not reason:
        raise BadInput("say why the task is blocked: a reason, or tasks that are not done yet")
    tx.let_go(before)
    every = tuple(dict.fromkeys((*before.depends_on, *on, *(task.id for task in added))))
    after = moved(
        before,
        "blocked",
        reason=reason,
        waits=before.waits + len(waits_for),
        depends_on=every,
        assigned_to=None,
        token=None,
    )
    tx.tell(BLOCKED, (before, after), *needed(waits_for), waits_for=numbers_of(waits_for))
    return tx.numbered(task)


def _too_much(tx: WorkTransaction, task: Task, subtasks: Sequence[NewTask]) -> Denied | None:
    """The refusal if somebody who does not lead would rule over more than its own task by splitting it."""
    for part in subtasks:
        policy, act = part.on_failure, ""
        if part.blocks:
            act = "let other tasks wait for it (blocks)"
        elif part.assigned_to is not None:
            act = "give it to an agent (assigned_to)"
        elif part.for_role not in (None, task.for_role):
            act = "give it to another role (for_role)"
        elif policy is not None and "abort" in (policy.policy, policy.then):
            act = "let its failure abort the work (on_failure)"
        elif part.priority > task.priority:
            act = f"give it a higher priority than the task's own, {task.priority}"
        if act:
            refusal = f"{tx.act.by!r} may split task {task.id!r}, but not {act}: that takes the right to orchestrate"
            return tx.refuse("orchestrate", task.id, f"{refusal}. It is about {part.title!r}")
    return None


def _produce(tx: WorkTransaction, task: Task, made: Made) -> str:
    """Record something that was made when its task was completed."""
    more = {**made.more, **next_version(tx, made.said["path"])}
    return tx.note(PRODUCED, made.said, affects=[task], task=task.id, **more).id


# by the leader


@command("orchestrate")
def decide_retry(tx: WorkTransaction, task: str) -> Task:
    """Let a failed task be done once more: its failures are counted anew, and nobody has to be asked about them."""
    before = tx.task(task)
    check_is(before, "failed", "pending", "only what has failed is tried again")
    after = given_back(before, reason="", token=None, avoid=(), failures=0)
    retried = tx.tell(RETRIED, (before, after), policy=BY_HAND)
    settle(tx, before, "the task is tried again", (ESCALATED,), retried.id)
    return tx.task(task)


@command()
def decide_review(tx: WorkTransaction, task: str, verdict: str, comments: str) -> Any:
    """Record a review: the task is completed, goes back to its holder, or has failed."""
    before = tx.task(task)
    becomes = {"approved": "completed", "needs_rework": "in_progress"}.get(verdict, "failed")
    check_is(before, "review", becomes, "only what its holder has handed in is reviewed")
    if before.assigned_to == tx.act.by:
        return tx.refuse("review", task, f"{tx.act.by!r} did task {task!r}: somebody else has to review it")
    if before.reviewer != tx.act.by:
        refused = tx.refused("review")
        if refused:
            return refused
    fields = {"reviewed_by": tx.act.by, "review_status": verdict}
    said = {"comment": comments} if comments else {}
    if verdict == "approved":
        tx.tell(REVIEWED, (before, replace(before, **fields)), said=said)
        finish(tx, tx.numbered(before.number))
    elif verdict == "needs_rework":
        back = moved(before, "in_progress", rework=True, **fields)
        tx.tell(REVIEWED, (before, back), said=said)
        tx.hold(back, before.assigned_to or "")
    else:
        rejected = tx.tell(REVIEWED, (before, replace(before, **fields)), said=said)
        fail(tx, tx.numbered(before.number), comments or "rejected in review", [rejected.id])
    return tx.task(task)


@command("orchestrate")
def decide_assign_review(tx: WorkTransaction, task: str, reviewer: str) -> Task:
    before = tx.task(task)
    if before.assigned_to == reviewer:
        raise BadInput(f"{reviewer!r} did task {task!r}: let somebody else review it")
    if before.status != "review":
        raise Conflict(f"task {task!r} is {before.status}: only what is in review has a reviewer")
    tx.need_member(reviewer)
    tx.tell(REVIEWED, (before, replace(before, reviewer=reviewer)), assigned=reviewer, **tx.joined(reviewer))
    return tx.task(task)
