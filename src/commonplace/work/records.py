"""What is recorded about a work besides its tasks: decisions, discoveries, artifacts, nudges, approvals, escalations
and branches.

`RECORDS` says all that tells them apart: the event, what is said and the other fields and how they are checked, who may
record one and who may answer it, what that does to tasks, and how it prints. Recording, answering, reading and listing
are the same code for every kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from ..access.masking import masked
from ..access.rights import check_actor
from ..errors import BadInput, Conflict, shown
from ..ledger.checks import check_flag, check_name, from_us
from ..ledger.encoding import convert
from ..ledger.events import new_id
from ..ledger.printing import Readable
from ..memory.items import without_secrets
from ..memory.reading import item_at
from ..memory.visibility import may_read_id
from .artifacts import next_version
from .checks import checked, checked_text, names, required_text, texts
from .claims import held
from .graph import answer_record, cancel
from .kinds import ASKED, BRANCHED, DECIDED, DISCOVERED, ESCALATED, LINKED, NUDGED, PRODUCED
from .reading import Reading
from .tasks import Task, placed, waiting_less
from .transaction import WorkTransaction, command

PRIORITIES = ("low", "normal", "high", "critical")
DELIVERIES = ("next_turn", "immediate", "when_idle")
ORCHESTRATOR, ALL = "orchestrator", "all"


class WorkRecord(Readable, msgspec.Struct, frozen=True, kw_only=True):
    """What all of these have: who said it when, and which tasks it is about."""

    id: str
    by: str
    at_us: int = 0
    position: int = 0
    task: str | None = None
    affects: tuple[str, ...] = ()
    sensitivity: str = "private"

    @property
    def at(self) -> datetime:
        """When it was recorded."""
        return from_us(self.at_us)

    def __str__(self) -> str:
        line = next(kind.line for kind in RECORDS.values() if kind.type is type(self))
        return f"{line.format_map(asdict(self)).strip()}, by {self.by}"


class Decision(WorkRecord, frozen=True, kw_only=True):
    """A choice that was made. `reversed_by` is the decision that took its place."""

    question: str = ""
    choice: str = ""
    alternatives: tuple[str, ...] = ()
    rationale: str = ""
    confidence: float | None = None
    reversible: bool = True
    reverses: str | None = None
    reversed_by: str | None = None
    status: str = "made"
    """made, or what a person has said of it: approved, rejected."""
    answered_by: str | None = None


class Discovery(WorkRecord, frozen=True, kw_only=True):
    """Something that was learned: a constraint, opportunity, risk or insight."""

    text: str = ""
    type: str = "insight"
    promote_to_core: str | None = None


class Artifact(WorkRecord, frozen=True, kw_only=True):
    """Something that was made, by reference. `blob` names its content, if it is stored."""

    path: str = ""
    type: str = "file"
    description: str = ""
    version: int = 1
    previous: str | None = None
    checksum: str | None = None
    size: int | None = None
    blob: str | None = None
    commit: str | None = None
    branch: str | None = None


class Nudge(WorkRecord, frozen=True, kw_only=True):
    """A word to an agent, to the leader, or to all."""

    text: str = ""
    target: str
    priority: str = "normal"
    delivery: str = "next_turn"
    premise: str | None = None
    """What made it, if it tells that something has changed that its addressee relied on."""
    acknowledged: tuple[str, ...] = ()


class Approval(WorkRecord, frozen=True, kw_only=True):
    """Something that a person has to allow."""

    action: str = ""
    risk: str = ""
    status: str = "pending"
    decision: str | None = None
    answered_by: str | None = None
    why: str = ""


class Escalation(WorkRecord, frozen=True, kw_only=True):
    """Something that an agent cannot settle by itself."""

    text: str = ""
    type: str
    status: str = "open"
    resolved_by: str | None = None
    answer: str = ""


class Branch(WorkRecord, frozen=True, kw_only=True):
    """Alternatives of which one is to be chosen. `status` is the one that was, or pending."""

    question: str = ""
    options: dict[str, tuple[str, ...]]
    status: str = "pending"


class Contribution(Readable, msgspec.Struct, frozen=True):
    """What one agent has done for a work."""

    agent: str
    role: str | None
    tasks: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    first_us: int | None = None
    last_us: int | None = None
    log_ref: str = ""
    """A command that shows all that the agent did."""

    @property
    def first_at(self) -> datetime | None:
        """When it did the first of this."""
        return None if self.first_us is None else from_us(self.first_us)

    @property
    def last_at(self) -> datetime | None:
        return None if self.last_us is None else from_us(self.last_us)

    def __str__(self) -> str:
        parts = ("tasks", "reviews", "decisions", "discoveries", "artifacts")
        done = [f"{len(getattr(self, part)):,} {part}" for part in parts if getattr(self, part)]
        return f"{self.agent}: {', '.join(done) or 'nothing'}"


# checking what is given

Check = Callable[[str, Any], Any]


def one_of(kind: str, *allowed: str) -> Check:
    return lambda _field, value: checked(kind, value, allowed)


def record_id(value: object) -> str:
    """The id of a record that is given as it is, or by its id."""
    return value.id if isinstance(value, WorkRecord) else check_name("an id", value)


def _optional_id(_field: str, value: object) -> str | None:
    return None if value is None else record_id(value)


def _optional_name(field: str, value: object) -> str | None:
    return None if value is None else check_name(field, value)


def _share(field: str, value: object) -> object:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"{field} {shown(value)} is not a number from 0 to 1")
    return value


def _target(_field: str, value: Any) -> str:
    return str(value) if value in (ALL, ORCHESTRATOR) else check_actor(value)


def _options(_field: str, value: object) -> dict[str, tuple[str, ...]]:
    """Alternatives by their names, which people choose by and so are without secrets."""
    if not isinstance(value, Mapping) or len(value) < 2:
        raise BadInput("alternatives are two or more options by their names, each with its tasks")
    options = {
        masked(check_name("an option", name)): names(f"the tasks of {name!r}", ids)
        for name, ids in value.items()
    }
    if len(options) < len(value):
        raise BadInput("two options are the same without the secrets in their names: name them otherwise")
    for name, ids in options.items():
        if not ids:
            raise BadInput(f"the option {name!r} has no tasks: give each option its own")
    return options


def _given(_field: str, value: object) -> object:
    return value


# what recording one does


class Recording(NamedTuple):
    """A record on its way into the book."""

    said: dict[str, Any]
    fields: dict[str, Any]
    task: Task | None
    affects: list[Task]


def _decision(tx: WorkTransaction, new: Recording) -> dict[str, Any]:
    """A decision that takes the place of another says so there."""
    reverses = new.fields.get("reverses")
    if reverses is None:
        return {}
    old = tx.record(reverses, DECIDED)
    if old.get("reversed_by"):
        visible = tx.seen(tx.act.actor, [old["reversed_by"]])
        by = f" by {old['reversed_by']!r}: reverse that one" if visible else ""
        raise Conflict(f"the decision {reverses!r} was reversed already{by}")
    if not old.get("reversible", True):
        raise Conflict(f"the decision {reverses!r} was made for good: it cannot be reversed")
    id = new_id()
    return {"id": id, "updates": [(reverses, {"reversed_by": id})]}


def _artifact(tx: WorkTransaction, new: Recording) -> dict[str, Any]:
    return next_version(tx, new.said["path"])


def _nudge(_tx: WorkTransaction, new: Recording) -> dict[str, Any]:
    target = new.fields["target"]
    return {"pending": f"nudge:{target}", "step": target == ORCHESTRATOR}


def _approval(tx: WorkTransaction, new: Recording) -> dict[str, Any]:
    if "decision" in new.fields:
        tx.record(new.fields["decision"], DECIDED)
    waits = new.task is not None and new.task.status in ("pending", "assigned", "blocked", "failed")
    return {"status": "pending", "gates": waits}


def _task_waits(tx: WorkTransaction, new: Recording, id: str, more: Mapping[str, Any]) -> None:
    """A task that nobody has begun waits for the answer."""
    if new.task is not None and more["gates"]:
        task = replace(new.task, approval=id, waits=new.task.waits + 1)
        tx.tell(LINKED, (new.task, placed(task)), waits_for=[id])


def _branch(tx: WorkTransaction, new: Recording) -> dict[str, Any]:
    every = [id for ids in new.fields["options"].values() for id in ids]
    if len(set(every)) < len(every):
        raise BadInput("a task stands in two alternatives: put it into one, or let it depend on both")
    new.affects.extend(map(tx.task, every))
    for task in new.affects:
        if task.status != "pending" or task.branch is not None:
            why = "is an alternative already" if task.branch is not None else f"is {task.status}"
            raise Conflict(f"task {task.id!r} {why}: alternatives are made of pending tasks")
    return {"status": "pending"}


def _tasks_wait(tx: WorkTransaction, new: Recording, id: str, _more: Mapping[str, Any]) -> None:
    for task in new.affects:
        tx.tell(LINKED, (task, placed(replace(task, branch=id, waits=task.waits + 1))), waits_for=[id])


# what answering one does


def _answer_approval(tx: WorkTransaction, id: str, verdict: str, said: dict[str, str]) -> None:
    _answered(tx, tx.record(id, ASKED, DECIDED), id, verdict, said)


def _answered(tx: WorkTransaction, row: dict[str, Any], id: str, verdict: str, said: dict[str, str]) -> None:
    """Approve or reject what was asked for, or a decision, and with it all that was asked about it. What waits for it
    goes on, or is cancelled."""
    status = row.get("status", "pending")
    if status == verdict:
        return
    if status != "pending":
        raise Conflict(f"{id!r} has been {status} by {row.get('answered_by')!r} already")
    decision: str | None = id if row["kind"] == DECIDED else row.get("decision")
    also = list[str]()
    if (
        decision is not None
        and decision != id
        and tx.record(decision, DECIDED).get("status", "pending") == "pending"
    ):
        also.append(decision)
    answer_record(tx, row, id, verdict, said, also=also)
    task = tx.find(row["task"]) if row.get("task") else None
    if task is not None and row.get("gates") and not task.final:
        if verdict == "approved":
            tx.tell(LINKED, (task, waiting_less(task, task.waits - 1)), free_of=[id])
        else:
            cancel(tx, task, f"rejected by {tx.act.by}", "block")
    if decision == id or also:
        for (_, _, _, other), _ in tx.views.scan("work.pending", tx.work, "approval"):
            asked = tx.views.get("work.records", tx.work, other)
            if asked is not None and asked.get("decision") == decision:
                _answered(tx, asked, str(other), verdict, said)


def _resolve(tx: WorkTransaction, id: str, _verdict: str, said: dict[str, str]) -> None:
    row = tx.record(id, ESCALATED)
    if row.get("status") == "resolved":
        raise Conflict(f"the escalation {id!r} was resolved by {row.get('resolved_by')!r} already")
    answer_record(tx, row, id, "resolved", said)


def _choose(tx: WorkTransaction, id: str, option: str, said: dict[str, str]) -> str:
    """The tasks of the chosen option go on, the others are cancelled, and what depends on them goes on without. Answers
    the id of the decision."""
    tx.need_open()
    row = tx.record(id, BRANCHED)
    if row["status"] != "pending":
        raise Conflict(f"the branch {id!r} has been decided: {row['status']}")
    options = row["options"]
    if option not in options:
        raise BadInput(
            f"the branch has no alternative {shown(option)}: it has {', '.join(map(repr, options))}"
        )
    others = [name for name in options if name != option]
    decision = tx.note(
        DECIDED,
        {"question": row["said"].get("question", ""), "choice": option, "alternatives": others, **said},
        affects=[tx.task(task) for ids in options.values() for task in ids],
        settles=[("branch", id, row["position"])],
        updates=[(id, {"status": option})],
        reversible=False,
    )
    for task in map(tx.task, options[option]):
        if not task.final:
            tx.tell(LINKED, (task, placed(replace(task, waits=task.waits - 1))), free_of=[id])
    for name in others:
        for task in map(tx.task, options[name]):
            if not task.final:
                why = f"{option!r} was chosen instead of {name!r}: {said['rationale']}"
                cancel(tx, task, why, "free", [decision.id])
    return decision.id


# the table


def _nothing_more(_tx: WorkTransaction, _new: Recording) -> dict[str, Any]:
    return {}


def _no_effect(_tx: WorkTransaction, _new: Recording, _id: str, _more: Mapping[str, Any]) -> None:
    return


class RecordKind(NamedTuple):
    """One kind of record."""

    event: str
    type: type[WorkRecord]
    listed_as: str
    """What several of them are called."""
    line: str
    """How it prints, by its fields."""
    said: Mapping[str, Check]
    """What is said, and how each part is checked. An erasure takes these away."""
    fields: Mapping[str, Check] = {}
    """The other fields, which stay."""
    right: str = ""
    """The right that recording one takes; "": any actor who may know of the work."""
    needs_open: bool = True
    takes_part: bool = False
    """Whether its author counts as one of the agents of the work from then on."""
    between: bool = False
    """Whether only its author and its target see it."""
    waits: bool = False
    """Whether it waits for an answer, in the list with its name."""
    prepare: Callable[[WorkTransaction, Recording], dict[str, Any]] = _nothing_more
    """Further fields, from the book as it is. Raises what speaks against it."""
    effect: Callable[[WorkTransaction, Recording, str, Mapping[str, Any]], None] = _no_effect
    """What it does to tasks."""
    answer_right: str = ""
    answer: Callable[[WorkTransaction, str, str, dict[str, str]], Any] | None = None
    """What an answer does."""


RECORDS: dict[str, RecordKind] = {
    "decision": RecordKind(
        DECIDED, Decision, "decisions", "{question} → {choice}",
        {
            "question": required_text, "choice": required_text, "alternatives": texts, "rationale": checked_text,
            "confidence": _share,
        },
        {"reversible": check_flag, "reverses": _optional_id},
        takes_part=True, prepare=_decision, answer_right="approve", answer=_answer_approval,
    ),
    "discovery": RecordKind(
        DISCOVERED, Discovery, "discoveries", "{text} ({type})", {"text": required_text},
        {
            "type": one_of("type of discovery", "constraint", "opportunity", "risk", "insight"),
            "promote_to_core": _optional_name,
        },
        takes_part=True,
    ),
    "artifact": RecordKind(
        PRODUCED, Artifact, "artifacts", "{path} (version {version})",
        dict.fromkeys(("path", "description", "content"), _given),
        dict.fromkeys(("type", "commit", "branch", "checksum", "size"), _given), takes_part=True, prepare=_artifact,
    ),
    "nudge": RecordKind(
        NUDGED, Nudge, "nudges", "{text} (to {target})", {"text": required_text},
        {
            "target": _target, "priority": one_of("priority", *PRIORITIES), "delivery": one_of("delivery", *DELIVERIES),
        },
        right="nudge", needs_open=False, between=True, prepare=_nudge,
    ),
    "approval": RecordKind(
        ASKED, Approval, "approvals", "{action} {risk}", {"action": required_text, "risk": checked_text},
        {"decision": _optional_id},
        waits=True, prepare=_approval, effect=_task_waits, answer_right="approve", answer=_answer_approval,
    ),
    "escalation": RecordKind(
        ESCALATED, Escalation, "escalations", "{text} ({type})", {"text": required_text},
        {"type": one_of("type of escalation", "stuck", "confused", "needs_decision", "error")},
        waits=True, prepare=lambda _tx, _new: {"status": "open", "step": True}, answer_right="orchestrate",
        answer=_resolve,
    ),
    "branch": RecordKind(
        BRANCHED, Branch, "branches", "{question}", {"question": required_text}, {"options": _options},
        right="orchestrate", waits=True, prepare=_branch, effect=_tasks_wait, answer_right="orchestrate",
        answer=_choose,
    ),
}  # fmt: skip
EVENTS: dict[type[WorkRecord], str] = {kind.type: kind.event for kind in RECORDS.values()}


# recording and answering


@command(open=False)
def decide_record(
    tx: WorkTransaction, kind: str, said: dict[str, Any], fields: dict[str, Any], affects: tuple[str, ...],
    task: str | None, sensitivity: str, token: int | None,
) -> Any:  # fmt: skip
    """Record something about a work. With the token of a claim, its author must still hold the task. Answers the id."""
    record = RECORDS[kind]
    refused = tx.refused(record.right)
    if refused:
        return refused
    if record.needs_open:
        tx.need_open()
    about = None if task is None else tx.task(task)
    if about is not None and token is not None:
        held(tx, about, token)
    each = [*map(tx.task, affects), *([] if about is None else [about])]
    new = Recording(said, fields, about, list({task.id: task for task in each}.values()))
    more = {"pending": kind if record.waits else "", **record.prepare(tx, new)}
    if task is not None:
        more["task"] = task
    joins = tx.joined(tx.act.by) if record.takes_part else {}
    labels = {"sensitivity": "private"} if record.between else tx.labels(sensitivity)
    event = tx.note(record.event, said, affects=new.affects, labels=labels, **fields, **more, **joins)
    record.effect(tx, new, event.id, more)
    return event.id


@command(open=False)
def decide_answer(tx: WorkTransaction, kind: str, id: str, verdict: str, said: dict[str, str]) -> Any:
    """Answer what waits for somebody's word."""
    record = RECORDS[kind]
    refused = tx.refused(record.answer_right)
    if refused:
        return refused
    assert record.answer is not None
    return record.answer(tx, id, verdict, said)


# reading

T = TypeVar("T", bound=WorkRecord)


def record_of(type: type[T], id: str, row: Mapping[str, Any], words: Mapping[str, Any] | None = None) -> T:
    """A row as what it is, with further words that others have said of it."""
    fields = {**row, **row["said"], **(words or {}), "id": id}
    fields["affects"] = tuple(id for _, id in row.get("affects", ()))
    if "acknowledged" in row:
        fields["acknowledged"] = sorted(row["acknowledged"])
    if "answer" in row and "answer" not in (words or {}):
        del fields["answer"]
    content = row["said"].get("content")
    if isinstance(content, Mapping):
        fields["blob"] = content.get("$blob")
    names = type.__struct_fields__
    return convert({name: value for name, value in fields.items() if name in names}, type)


def nudge_for(reading: Reading, reader: str, row: Mapping[str, Any]) -> Nudge:
    """A nudge as a reader is told it. One about a changed fact says what the fact was and what it is now, as far as the
    reader may read these items."""
    text, quote, cause = row["said"].get("text", ""), row["said"].get("quote"), row.get("cause")

    def readable(item: str) -> bool:
        return all(may_read_id(views, reading.rights(views, reader), item) for views in reading.readers)

    if quote and readable(row["item"]):
        text += f". It was: {quote}"
    now = item_at(reading.views, cause) if cause and readable(cause) else None
    if now is not None:
        until = f", until {now.valid_until:%Y-%m-%d %H:%M}" if now.valid_until is not None else ""
        text += f". It is now: {without_secrets(now).text} ({cause}{until})"
    return record_of(Nudge, row["id"], row, {"text": text} if text else None)


class Inbox(Readable, msgspec.Struct, frozen=True):
    """What waits for a person."""

    approvals: tuple[Approval, ...]
    branches: tuple[Branch, ...]
    reviews: tuple[Task, ...]
    escalations: tuple[Escalation, ...]
    failed: tuple[Task, ...]
    candidates: tuple[Any, ...] = ()

    def __str__(self) -> str:
        parts = [
            f"{len(getattr(self, name)):,} {name}" for name in self.__struct_fields__ if getattr(self, name)
        ]
        return ", ".join(parts) or "nothing waits for a person"

    def __len__(self) -> int:
        return sum(len(getattr(self, name)) for name in self.__struct_fields__)
