"""Adding tasks, and what waits for what: dependencies, alternatives, and what a task leaves behind when it is
cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..access.rights import check_actor
from ..errors import BadInput, Conflict, Cycle, Erased, TooLarge, id_taken, shown
from ..ledger.checks import check_flag, check_name
from ..ledger.encoding import decode, encode_payload
from ..ledger.events import new_id
from .checks import (
    checked_metadata,
    checked_policy,
    checked_priority,
    checked_role,
    checked_text,
    id_of,
    names,
)
from .kinds import (
    ADDED,
    ANSWERED,
    ASKED,
    ASSIGNED,
    BLOCKED,
    CANCELLED,
    DECIDED,
    EDITED,
    ESCALATED,
    LINKED,
    RESOLVED,
    UNBLOCKED,
)
from .tasks import Task, check_is, placed, waiting_less
from .transaction import WorkTransaction, command, given_back, moved

DEPENDENTS = ("block", "cancel", "free")

FIELDS = (
    "title", "description", "depends_on", "blocks", "priority", "needs_review", "on_failure", "for_role",
    "assigned_to", "risk", "metadata", "id", "parent",
)  # fmt: skip


class NewTask(msgspec.Struct, frozen=True):
    """A task to be added, checked as far as that needs no look at the book."""

    id: str
    title: str
    given_id: bool
    description: str = ""
    depends_on: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    priority: int = 0
    needs_review: bool = False
    on_failure: Any = None
    for_role: str | None = None
    assigned_to: str | None = None
    risk: str = ""
    metadata: dict[str, Any] = {}
    parent: str | None = None


def _plain(task: NewTask) -> dict[str, Any]:
    """The fields as an event holds them."""
    fields: dict[str, Any] = encode_payload(msgspec.to_builtins(task))[1]
    return fields


_USUAL = _plain(NewTask("", "", False))


def new_task(fields: Mapping[str, Any]) -> NewTask:
    """Raises BadInput that names the field."""
    if not isinstance(fields, Mapping):
        raise BadInput(f"a task is a mapping of fields, not {shown(fields)}: give {{'title': …}}")
    stray = sorted(set(map(str, fields)) - set(FIELDS))
    if stray:
        raise BadInput(f"a task has no {stray[0]!r}: its fields are {', '.join(FIELDS)}")
    title = checked_text("title", fields.get("title"))
    if not title.strip():
        raise BadInput("a task needs a title that says what is to be done")
    id, agent, parent = fields.get("id"), fields.get("assigned_to"), fields.get("parent")
    usual = {"description": "", "priority": 0, "needs_review": False, "risk": "", "metadata": {}}
    fields = {**fields, **{name: value for name, value in usual.items() if fields.get(name) is None}}
    return NewTask(
        new_id() if id is None else check_name("id", id),
        title,
        id is not None,
        checked_text("description", fields["description"]),
        names("depends_on", fields.get("depends_on")),
        names("blocks", fields.get("blocks")),
        checked_priority(fields["priority"]),
        check_flag("needs_review", fields["needs_review"]),
        checked_policy(fields.get("on_failure")),
        checked_role(fields.get("for_role")),
        None if agent is None else check_actor(agent),
        checked_text("risk", fields["risk"]),
        checked_metadata(fields["metadata"]),
        None if parent is None else id_of(parent),
    )


# adding


@command("orchestrate", open=False, archived=True)
def decide_add(tx: WorkTransaction, tasks: tuple[NewTask, ...]) -> list[Task]:
    """Add tasks, all or none. Each may depend on others of the batch, also on later ones. Those that are there already
    are answered whatever became of the work; new ones need an open one."""
    return add(tx, tasks)


def add(tx: WorkTransaction, tasks: Sequence[NewTask]) -> list[Task]:
    before = [tx.find(task.id) if task.given_id else None for task in tasks]
    if all(before):
        return [_same(tx, new, old) for new, old in zip(tasks, before, strict=True) if old]
    tx.need_open()
    total, most = tx.counts.get("tasks", 0), tx.info.limits.max_tasks
    if total + len(tasks) > most:
        raise TooLarge(
            f"this work has {total:,} tasks, and its limit is {most:,}: begin another work, or raise max_tasks"
        )
    for new, old in zip(tasks, before, strict=True):
        if old is not None:
            raise Conflict(f"there is a task {new.id!r} already: choose another id, or none")
        if tx.overlay.get("work.ids", new.id) is not None:  # in another work, which need not be known here
            raise id_taken(new.id)
    numbers = {task.id: total + place for place, task in enumerate(tasks)}
    if len(numbers) < len(tasks):
        raise BadInput("two tasks of the batch have the same id: give each its own, or none")
    _check_batch(tasks, numbers)
    for task in tasks:
        if task.parent is not None and task.parent not in numbers:
            tx.task(task.parent)
    _check_room(tx, tasks)
    within = {id for task in tasks for id in task.depends_on}
    for task in tasks:
        _added(tx, task, numbers, task.id in within)
    for task in tasks:  # now that all of them are known, a cycle by way of them is seen
        for id in task.blocks:
            link(tx, tx.task(id), [task.id])
    return [tx.numbered(number) for number in numbers.values()]


def _check_room(tx: WorkTransaction, tasks: Sequence[NewTask]) -> None:
    """No task may be waited for by more than its limit."""
    more = Counter(id for task in tasks for id in task.depends_on)
    for id, count in more.items():
        task = tx.find(id)
        check_room(tx, id, count + (0 if task is None else len(tx.dependents(task))))


def check_room(tx: WorkTransaction, id: str, count: int) -> None:
    most = tx.info.limits.max_dependents
    if count > most:
        raise TooLarge(
            f"{count:,} tasks would depend on {id!r}, and the limit is {most:,}: add one in between"
        )


def _same(tx: WorkTransaction, new: NewTask, old: Task) -> Task:
    """A call that is repeated with its ids answers the task as it is now. What was changed since it was added does not
    count; other content is a Conflict."""
    recorded = _added_with(tx, new.id)
    asked = _plain(new)
    other = [name for name in FIELDS if recorded.get(name, _USUAL[name]) != asked[name]]
    if other:
        raise Conflict(
            f"there is a task {new.id!r} already, which was added with another {' and '.join(other)}: choose another "
            "id, or none"
        )
    return old


def _added_with(tx: WorkTransaction, id: str) -> dict[str, Any]:
    """What a task was added with, as far as it was anything but usual. Raises Erased if nobody can tell any more."""
    *_, event = tx.overlay.get("work.ids", id)
    added = tx.overlay.event(event)
    if added is None or added.erased:
        raise _erased(id)
    recorded = {
        "id": id,
        **added.payload["tasks"][0]["set"],
        **added.payload["said"],
        "blocks": added.payload.get("blocks", []),
    }
    if "approval" in recorded:
        asked_for = tx.overlay.get("work.records", tx.work, recorded["approval"])["said"]
        if not asked_for:
            raise _erased(id)
        recorded["risk"] = asked_for["risk"]
    return recorded


def _erased(id: str) -> Erased:
    return Erased(f"what was said of task {id!r} was erased: choose another id, or none")


def _added(tx: WorkTransaction, new: NewTask, numbers: Mapping[str, int], is_needed: bool) -> None:
    needs = {id: None if id in numbers else tx.task(id) for id in new.depends_on}
    _check_possible([task for task in needs.values() if task is not None])
    if new.assigned_to is not None:
        tx.need_member(new.assigned_to)
    waiting = [id for id, task in needs.items() if task is None or not task.satisfied]
    open = [task for task in needs.values() if task is not None and not task.satisfied]
    approval = new_id() if new.risk else None
    waits_for: list[int | str] = [numbers[id] if id in numbers else tx.task(id).number for id in waiting]
    waits_for += [] if approval is None else [approval]
    task = placed(
        Task(
            new.id, tx.work, numbers[new.id], new.title, new.description,
            status="pending" if new.assigned_to is None else "assigned", priority=new.priority,
            depends_on=new.depends_on, waits=len(waits_for), needs_review=new.needs_review,
            for_role=new.for_role, for_agent=new.assigned_to, assigned_to=new.assigned_to,
            on_failure=new.on_failure, metadata=new.metadata, by=tx.act.by, approval=approval, parent=new.parent,
            needed=is_needed,
        )
    )  # fmt: skip
    joins = {} if new.assigned_to is None else tx.joined(new.assigned_to)
    blocks: dict[str, Any] = {"blocks": list(new.blocks)} if new.blocks else {}
    added = tx.tell(ADDED, (None, task), *needed(open), waits_for=waits_for, **blocks, **joins)
    if approval is not None:
        said = {"action": new.title, "risk": new.risk}
        tx.note(
            ASKED,
            said,
            affects=[task],
            pending="approval",
            id=approval,
            task=task.id,
            status="pending",
            gates=True,
            parents=[added.id],
        )


def _number(task: Task) -> int:
    return task.number


def _check_possible(tasks: Sequence[Task]) -> None:
    """What was cancelled is never done: who waited for it would wait for ever."""
    for task in tasks:
        if task.status == "cancelled" and not task.satisfied:
            raise Conflict(
                f"task {task.id!r} was cancelled and will never be done: leave it out, or depend on what took its place"
            )


def _check_batch(tasks: Sequence[NewTask], numbers: Mapping[str, int]) -> None:
    """No task of a batch may wait for itself by way of others of the batch."""
    ahead = {task.id: [id for id in task.depends_on if id in numbers] for task in tasks}
    state: dict[str, int] = {}
    for first in ahead:
        path, stack = [first], [iter(ahead[first])]
        if state.get(first):
            continue
        state[first] = 1
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                state[path.pop()] = 2
            elif state.get(following) == 1:
                raise Cycle([*path[path.index(following) :], following])
            elif not state.get(following):
                state[following] = 1
                path.append(following)
                stack.append(iter(ahead[following]))


# what waits for what


@command("orchestrate")
def decide_link(tx: WorkTransaction, task: str, on: tuple[str, ...]) -> Task:
    return link(tx, tx.task(task), on)


def link(tx: WorkTransaction, task: Task, on: Sequence[str]) -> Task:
    """Let a task wait for others, too."""
    if task.final:
        raise Conflict(f"task {task.id!r} is {task.status}: it waits for nothing any more")
    if task.status in ("in_progress", "review"):
        raise Conflict(
            f"task {task.id!r} is {task.status}: let its holder block it on what it has found, with claim.block(…)"
        )
    waits_for = newly_needed(tx, task, on)
    if not waits_for:
        return task
    waits = task.waits + len(waits_for)
    after = placed(replace(task, waits=waits, depends_on=tuple(dict.fromkeys((*task.depends_on, *on)))))
    tx.tell(LINKED, (task, after), *needed(waits_for), waits_for=numbers_of(waits_for))
    return after


def newly_needed(tx: WorkTransaction, task: Task, on: Sequence[str]) -> list[Task]:
    """The tasks among these that a task does not wait for yet, and has to. Raises Cycle."""
    new = [tx.task(id) for id in dict.fromkeys(on) if id not in task.depends_on]
    _check_possible(new)
    for other in new:
        path = _path_up(tx, other, task)
        if path is not None:
            raise Cycle([task.id, *path])
    open = [task for task in new if not task.satisfied]
    for other in open:
        check_room(tx, other.id, len(tx.dependents(other)) + 1)
    return open


def numbers_of(tasks: Sequence[Task]) -> list[int]:
    return [task.number for task in tasks]


def needed(tasks: Sequence[Task]) -> list[tuple[Task, Task]]:
    """Those of these tasks that nothing waited for so far, and what they are now that something does."""
    return [(task, replace(task, needed=True)) for task in sorted(tasks, key=_number) if not task.needed]


def _path_up(tx: WorkTransaction, start: Task, wanted: Task) -> list[str] | None:
    """How one task depends on another, if it does."""
    came: dict[int, int | None] = {start.number: None}
    ahead, ids = [start], {start.number: start.id}
    if start.number != wanted.number and not tx.dependents(wanted):
        return None
    while ahead:
        task = ahead.pop()
        if task.number == wanted.number:
            path, at = list[str](), task.number
            while at is not None:
                path.append(ids[at])
                at = came[at]  # type: ignore[assignment]
            return path[::-1]
        for id in task.depends_on:
            above = tx.task(id)
            if above.number not in came and not above.final:
                came[above.number], ids[above.number] = task.number, above.id
                ahead.append(above)
    return None


@command("orchestrate")
def decide_unlink(tx: WorkTransaction, task: str, on: tuple[str, ...]) -> Task:
    """Let a task wait no longer for others."""
    before = tx.task(task)
    if before.final:
        raise Conflict(f"task {task!r} is {before.status}: it waits for nothing any more")
    gone = [tx.task(id) for id in on if id in before.depends_on]
    if not gone:
        return before
    open = [task for task in gone if not task.satisfied]
    kept = tuple(id for id in before.depends_on if id not in on)
    after = waiting_less(replace(before, depends_on=kept), before.waits - len(open))
    tx.tell(LINKED, (before, after), free_of=numbers_of(open))
    return tx.task(task)


# changing


@command("orchestrate")
def decide_assign(tx: WorkTransaction, task: str, agent: str) -> Task:
    """Give a task to an agent: nobody else claims it then."""
    before = tx.task(task)
    path = ("pending", "assigned") if before.status == "assigned" else ("assigned",)
    if before.status == "assigned" and before.assigned_to == agent:
        return before
    tx.need_member(agent)
    avoid = tuple(name for name in before.avoid if name != agent)
    after = moved(before, *path, for_agent=agent, assigned_to=agent, avoid=avoid)
    tx.tell(ASSIGNED, (before, after), **tx.joined(agent))
    return tx.task(task)


@command("orchestrate")
def decide_unassign(tx: WorkTransaction, task: str) -> Task:
    before = tx.task(task)
    check_is(before, "assigned", "pending", "only what is assigned and not begun is taken back like this")
    tx.tell(ASSIGNED, (before, moved(before, "pending", for_agent=None, assigned_to=None)))
    return tx.task(task)


@command("orchestrate")
def decide_edit(tx: WorkTransaction, task: str, fields: dict[str, Any]) -> Task:
    """Change what a task says of itself."""
    before = tx.task(task)
    if before.final:
        raise Conflict(f"task {task!r} is {before.status}: it can be changed no more")
    after = placed(replace(before, **fields))
    if after != before:
        tx.tell(EDITED, (before, after))
    return tx.task(task)


@command("orchestrate")
def decide_block(tx: WorkTransaction, task: str, reason: str) -> Task:
    before = tx.task(task)
    if before.status == "in_progress":
        tx.let_go(before)
    path = ("pending", "blocked") if before.status == "assigned" else ("blocked",)
    tx.tell(BLOCKED, (before, moved(before, *path, reason=reason)))
    return tx.task(task)


@command("orchestrate")
def decide_unblock(tx: WorkTransaction, task: str) -> Task:
    """What was blocked goes on, once it waits for nothing else. For what was cancelled it waits no longer."""
    before = tx.task(task)
    check_is(before, "blocked", "pending", "only what is blocked is unblocked")
    above = [tx.task(id) for id in before.depends_on]
    gone = [task for task in above if task.status == "cancelled" and not task.satisfied]
    kept = tuple(task.id for task in above if task not in gone)
    after = given_back(before, reason="", depends_on=kept, waits=before.waits - len(gone))
    tx.tell(UNBLOCKED, (before, after), free_of=numbers_of(gone))
    return tx.task(task)


@command("orchestrate")
def decide_cancel(tx: WorkTransaction, task: str, reason: str, dependents: str) -> Task:
    before = tx.task(task)
    cancel(tx, before, reason, dependents)
    return tx.task(task)


def cancel(
    tx: WorkTransaction, task: Task, reason: str, dependents: str, parents: Sequence[str] = ()
) -> None:
    """Cancel a task. What depends on it goes on without it (free), is cancelled as well, or is blocked until somebody
    has decided."""
    ahead = _cancelled(tx, task, reason, dependents, parents)[::-1]
    while ahead:
        number, above = ahead.pop()
        below, why = tx.numbered(number), f"it depends on {above}, which was cancelled"
        if dependents == "cancel" and not below.final:
            ahead += _cancelled(tx, below, why, dependents)[::-1]
        elif below.status in ("pending", "assigned"):
            path = ("pending", "blocked") if below.status == "assigned" else ("blocked",)
            tx.tell(BLOCKED, (below, moved(below, *path, reason=why, assigned_to=None)))
        elif below.status == "blocked" and not below.reason:
            tx.tell(BLOCKED, (below, replace(below, reason=why)))


def _cancelled(
    tx: WorkTransaction, task: Task, reason: str, dependents: str, parents: Sequence[str] = ()
) -> list[tuple[int, str]]:
    """Cancel one task. Answers the numbers of those that depend on it and are not freed by this, with its id."""
    after = moved(task, "cancelled", reason=reason, waived=dependents == "free", later=False)
    if task.status == "in_progress":
        tx.let_go(task)
    frees = tx.freeing(task) if dependents == "free" else []
    cancelled = tx.tell(CANCELLED, (task, after), *frees, parents=parents)
    settle(tx, task, f"the task was cancelled: {reason}", (ASKED, ESCALATED), cancelled.id)
    return [] if dependents == "free" else [(number, task.id) for number in tx.dependents(task)]


def settle(tx: WorkTransaction, task: Task, why: str, kinds: Sequence[str], parent: str) -> None:
    """Nobody has to answer any more what was asked about a task: approvals are cancelled, escalations resolved."""
    about = [(tx.work, str(id)) for _, id in tx.views.scan("work.about", tx.work, task.number)]
    for (_, id), row in zip(about, tx.views.get_all(decode, "work.records", about), strict=True):
        if row is None or row["kind"] not in kinds or row.get("task") != task.id:
            continue
        if row["kind"] == ASKED and row["status"] == "pending":
            answer_record(tx, row, id, "cancelled", {"why": why}, [parent])
        elif row["kind"] == ESCALATED and row["status"] == "open":
            answer_record(tx, row, id, "resolved", {"answer": why}, [parent])


def answer_record(
    tx: WorkTransaction,
    row: Mapping[str, Any],
    id: str,
    status: str,
    said: Mapping[str, str],
    parents: Sequence[str] = (),
    also: Sequence[str] = (),
) -> None:
    """Record the answer to an approval, a decision or an escalation, which is the answer to others `also`."""
    answer, escalation = new_id(), row["kind"] == ESCALATED
    fields = {"status": status, "resolved_by" if escalation else "answered_by": tx.act.by, "answer": answer}
    waits = "escalation" if escalation else "approval"
    tx.note(
        RESOLVED if escalation else ANSWERED, said, updates=[(record, fields) for record in (id, *also)],
        settles=[] if row["kind"] == DECIDED else [(waits, id, row["position"])], about=id, verdict=status, id=answer,
        parents=parents,
    )  # fmt: skip
