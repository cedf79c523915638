"""The work capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.scopes import SCOPE
from ..ledger.views import Capability, Kind, View
from . import claims, graph, lifecycle, people, records
from .kinds import (
    ACKNOWLEDGED,
    ADDED,
    ANSWERED,
    ASSIGNED,
    BLOCKED,
    BRANCHED,
    CANCELLED,
    CHANGED,
    CLAIMED,
    COMPLETED,
    CREATED,
    DECIDED,
    DELIVERED,
    DISCOVERED,
    DUE,
    EDITED,
    FAILED,
    HANDLED,
    JUDGED,
    LED,
    LINKED,
    LOST,
    NUDGED,
    PRODUCED,
    RELEASED,
    RESOLVED,
    RETRIED,
    REVIEWED,
    SUBMITTED,
    UNBLOCKED,
)
from .tasks import BY_HAND, lane_kind, lists_of
from .transaction import WORDS
from .words import words_of

TASK_KINDS = frozenset(
    {
        ADDED, LINKED, ASSIGNED, BLOCKED, UNBLOCKED, CANCELLED, EDITED,
        CLAIMED, RELEASED, LOST, DUE, SUBMITTED, COMPLETED, FAILED,
        RETRIED, REVIEWED,
    }
)  # fmt: skip
"""Events that change tasks."""
RECORDED = frozenset({*records.EVENTS.values(), ANSWERED, RESOLVED})
"""Events that are something by themselves: they can be looked up by their ids, and listed."""
NOTES = RECORDED | {DELIVERED, ACKNOWLEDGED, LED, HANDLED, JUDGED}
BETWEEN = frozenset({NUDGED, DELIVERED, ACKNOWLEDGED})
"""Events that are between two."""
EVERY = TASK_KINDS | NOTES | {CREATED, CHANGED}

STAMPS = {
    ADDED: "added_us",
    ASSIGNED: "assigned_us",
    CLAIMED: "started_us",
    COMPLETED: "completed_us",
}
DONE_BY = frozenset({COMPLETED, REVIEWED, DECIDED, DISCOVERED, PRODUCED})
FOUND_BY = {
    ADDED: ("title",),
    EDITED: ("title",),
    DECIDED: ("question", "choice", "rationale"),
    DISCOVERED: ("text",),
    PRODUCED: ("path", "description"),
}
"""The texts by whose words something is found."""


def _works(event: Event) -> list[Key]:
    return [(event.payload["work"],)]


def _fold_work(key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    row = {**(before or {"id": key[0]}), **payload.get("set", {}), **payload["said"]}
    if before is None:
        row |= {"by": event.actor, "created_us": event.created_us, "event": event.id}
        row |= {SCOPE: event.labels[SCOPE]} if SCOPE in event.labels else {}
    return {**row, "changed_us": event.created_us, "position": event.position}


def _tasks(event: Event) -> list[Key]:
    return [(event.payload["work"], entry["number"]) for entry in event.payload["tasks"]]


def _entry(event: Event, number: int | str) -> Mapping[str, Any]:
    """What an event says of one of its tasks. All but the first follow by their numbers, and there may be thousands."""
    tasks: list[Mapping[str, Any]] = event.payload["tasks"]
    if tasks[0]["number"] == number:
        return tasks[0]
    return tasks[bisect_left(tasks, number, lo=1, key=lambda entry: entry["number"])]


def _fold_task(key: Key, before: Any, event: Event) -> Any:
    payload, (work, number) = event.payload, key
    entry = _entry(event, number)
    before = before or {"id": payload["task_id"], "work": work, "number": number}
    row = {**before, **entry["set"], "position": event.position}
    if entry is payload["tasks"][0]:
        words = payload["said"]
        row |= {name: words[name] for name in WORDS & words.keys()}
        if "comment" in words:
            row["comments"] = [*row.get("comments", ()), words["comment"]]
        if event.kind in STAMPS:
            row[STAMPS[event.kind]] = event.created_us
        _count(row, event)
    elif event.kind in (COMPLETED, CANCELLED):  # which it has waited for
        row["waits"] -= 1
    return row


def _count(row: dict[str, Any], event: Event) -> None:
    """Count what follows from the events of a task: how many things it waits for, how often it was claimed and has
    failed. Set the fence of its claim, or of the pause before the next try."""
    payload, kind = event.payload, event.kind
    if "waits_for" in payload or "free_of" in payload:
        more, less = payload.get("waits_for", ()), payload.get("free_of", ())
        row["waits"] = row.get("waits", 0) + len(more) - len(less)
    if kind == CLAIMED:
        row["claims"] = row.get("claims", 0) + 1
    if kind == FAILED:
        row |= {"failures": row.get("failures", 0) + 1, "failed_token": row.get("token")}
    if kind == CLAIMED or (kind == RETRIED and row.get("later")):
        row["token"] = event.position
    if kind == RETRIED and payload["policy"] == BY_HAND:
        row["failures"] = 0


def _has_moved(event: Event, entry: Mapping[str, Any]) -> bool:
    """Whether a task is in other lists after an event, or was just added."""
    return "was" in entry or (event.kind == ADDED and entry is event.payload["tasks"][0])


def _places(fields: Mapping[str, Any]) -> set[tuple[str, int]]:
    """The lists that a task is in, and its place by priority."""
    names = lists_of(fields.get("status", "pending"), fields.get("ready_for"), fields.get("later", False))
    return {(name, -fields.get("priority", 0)) for name in names}


def _places_after(entry: Mapping[str, Any]) -> set[tuple[str, int]]:
    return _places({**entry.get("was", {}), **entry["set"]})


def _lists(event: Event) -> list[Key]:
    """The rows of the lists that tasks leave or come to."""
    keys = list[Key]()
    for entry in event.payload["tasks"]:
        if _has_moved(event, entry):
            before = _places(entry["was"]) if "was" in entry else set()
            changed = sorted(before ^ _places_after(entry))
            keys += [(event.payload["work"], *place, entry["number"]) for place in changed]
    return keys


def _fold_list(key: Key, _before: Any, event: Event) -> Any:
    return True if key[1:3] in _places_after(_entry(event, key[3])) else None


def _counted(event: Event) -> list[Key]:
    counts = event.payload.get("joins") or (
        event.kind in TASK_KINDS and any(_has_moved(event, entry) for entry in event.payload["tasks"])
    )
    return [(event.payload["work"],)] if counts else []


def _fold_counts(_key: Key, before: Any, event: Event) -> Any:
    """How many agents take part, how many tasks there are, how many have each status and are ready in each kind of
    lane."""
    counts = dict(before or {})
    changes: list[tuple[str | None, int]] = [("agents", 1)] if event.payload.get("joins") else []
    for entry in event.payload["tasks"] if event.kind in TASK_KINDS else ():
        if _has_moved(event, entry):
            was = entry.get("was", {})
            after = {"status": "pending", **was, **entry["set"]}
            changes += [(was["status"], -1), (lane_kind(was["ready_for"]), -1)] if was else [("tasks", 1)]
            changes += [(after["status"], 1), (lane_kind(after.get("ready_for")), 1)]
    for name, number in changes:
        if name is not None:
            counts[name] = counts.get(name, 0) + number
    return {name: count for name, count in counts.items() if count}


def _edges(event: Event) -> list[Key]:
    """What the first task of an event waits for: other tasks, by their numbers; approvals and choices have ids."""
    payload = event.payload
    numbers = (*payload.get("waits_for", ()), *payload.get("free_of", ()))
    after = payload["tasks"][0]["number"]
    return [(payload["work"], number, after) for number in numbers if isinstance(number, int)]


def _fold_edge(key: Key, _before: Any, event: Event) -> Any:
    return True if key[1] in event.payload.get("waits_for", ()) else None


def _agents(event: Event) -> list[Key]:
    return [(event.payload["work"], event.payload["joins"])] if event.payload.get("joins") else []


def _records(event: Event) -> list[Key]:
    payload, work = event.payload, event.payload["work"]
    if event.kind == ACKNOWLEDGED:
        return [(work, payload["nudge"])]
    own = [(work, event.id)] if event.kind in RECORDED else []
    return [*own, *((work, id) for id, _ in payload.get("updates", ()))]


NOT_A_FIELD = frozenset({"work", "pending", "settles", "updates", "joins", "step", "said"})


def _fold_record(key: Key, before: Any, event: Event) -> Any:
    if event.kind in RECORDED and key[1] == event.id:
        payload = event.payload
        row = {name: value for name, value in payload.items() if name not in NOT_A_FIELD}
        row |= {"kind": event.kind, "by": event.actor, "position": event.position, "at_us": event.created_us}
        level = event.labels.get("sensitivity", "private")
        row |= {SCOPE: event.labels[SCOPE]} if SCOPE in event.labels else {}
        return {**row, "sensitivity": level, "said": payload["said"]}
    if before is None:
        return None
    if event.kind == ACKNOWLEDGED:
        return {**before, "acknowledged": [*before.get("acknowledged", ()), event.actor]}
    return {**before, **next(fields for id, fields in event.payload["updates"] if id == key[1])}


def _affected(event: Event) -> list[Key]:
    work = event.payload["work"]
    return [(work, number, event.position) for number, _ in event.payload.get("affects", ())]


def _words(event: Event) -> list[Key]:
    work, said = event.payload["work"], event.payload["said"]
    words = words_of(*(said[name] for name in FOUND_BY[event.kind] if name in said))
    return [(work, word, event.position) for word in words]


def _fold_words(_key: Key, _before: Any, event: Event) -> Any:
    kind = ADDED if event.kind == EDITED else event.kind  # a task, by its new words
    return [kind, event.payload.get("task_id", event.id)]


def _pending(event: Event) -> list[Key]:
    payload = event.payload
    work, list_ = payload["work"], payload.get("pending")
    new: list[Key] = [(work, list_, event.position, event.id)] if list_ else []
    return new + [(work, name, position, id) for name, id, position in payload.get("settles", ())]


def _fold_pending(key: Key, _before: Any, event: Event) -> Any:
    return True if key[3] == event.id else None


def _told(event: Event) -> list[Key]:
    return [(event.payload["work"], event.payload["to"], nudge) for nudge in event.payload["nudges"]]


def _carried(event: Event) -> list[Key]:
    payload = event.payload
    if event.kind == ACKNOWLEDGED:
        return [(payload["work"], number, nudge) for number, nudge in payload.get("drops", ())]
    return [(payload["work"], number, nudge) for number, _ in payload["tasks"] for nudge in payload["nudges"]]


def _steps(event: Event) -> list[Key]:
    payload = event.payload
    if event.kind == HANDLED:
        return [(payload["work"], *step) for step in payload["handled"]]
    order = people.STEPS[event.kind]
    return [(payload["work"], order, event.position, event.id)] if payload.get("step") else []


def _by(event: Event) -> list[Key]:
    if event.payload.get("assigned"):  # a reviewer was named, and nothing reviewed yet
        return []
    agent = event.payload.get("doer") or event.actor
    return [(event.payload["work"], agent, event.kind, event.position)]


# what survives an erasure: which task waits for which, who has it, how it stands; no words


def _without_words(payload: dict[str, Any]) -> dict[str, Any]:
    return {**payload, "said": {}}


def _branch_without_words(payload: dict[str, Any]) -> dict[str, Any]:
    """Its tasks still wait for a choice, so the options stay, by numbers in place of their names."""
    options = {f"option {number}": ids for number, ids in enumerate(payload["options"].values(), 1)}
    return {**payload, "options": options, "said": {}}


def _decision_without_words(payload: dict[str, Any]) -> dict[str, Any]:
    """A decision between the options of a branch sets its status to the name of one."""
    updates = [
        [id, {**fields, "status": "chosen"} if "status" in fields else fields]
        for id, fields in payload.get("updates", ())
    ]
    return {**payload, **({"updates": updates} if updates else {}), "said": {}}


def _artifact_without_words(payload: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in payload.items() if name not in ("commit", "branch", "checksum")}
    return {**kept, "said": {}}


RESIDUES = {
    BRANCHED: _branch_without_words,
    DECIDED: _decision_without_words,
    PRODUCED: _artifact_without_words,
}


def _said(*names: str) -> Callable[[dict[str, Any]], str]:
    return lambda payload: " ".join(str(payload["said"].get(name) or "") for name in names).strip()


def _result(payload: dict[str, Any]) -> str:
    result = payload["said"].get("result") or {}
    return " ".join([result.get("summary", ""), *result.get("learnings", ())]).strip()


SAYS = {
    DECIDED: _said("question", "choice", "rationale"),
    DISCOVERED: _said("text"),
    PRODUCED: _said("path", "description"),
    SUBMITTED: _result,
    COMPLETED: _result,
}
"""What can be searched for: what was decided, found, made and brought about."""

WORK = Capability(
    "work",
    kinds=tuple(
        Kind(name, residue=RESIDUES.get(name, _without_words), says=SAYS.get(name)) for name in sorted(EVERY)
    ),
    commands={
        "work.create": lifecycle.decide_create,
        "work.change": lifecycle.decide_change,
        "work.add": graph.decide_add,
        "work.link": graph.decide_link,
        "work.unlink": graph.decide_unlink,
        "work.assign": graph.decide_assign,
        "work.unassign": graph.decide_unassign,
        "work.edit": graph.decide_edit,
        "work.block": graph.decide_block,
        "work.unblock": graph.decide_unblock,
        "work.cancel": graph.decide_cancel,
        "work.claim": claims.decide_claim,
        "work.reclaim": claims.decide_reclaim,
        "work.complete": claims.decide_complete,
        "work.complete_many": claims.decide_complete_many,
        "work.fail": claims.decide_fail,
        "work.release": claims.decide_release,
        "work.block_or_split": claims.decide_block_or_split,
        "work.retry": claims.decide_retry,
        "work.review": claims.decide_review,
        "work.assign_review": claims.decide_assign_review,
        "work.record": records.decide_record,
        "work.answer": records.decide_answer,
        "work.take": people.decide_take,
        "work.acknowledge": people.decide_acknowledge,
        "work.lead": people.decide_lead,
        "work.stay": people.decide_stay,
        "work.handled": people.decide_handled,
        "work.judge": people.decide_judge,
    },
    views=(
        View("work.works", 2, _works, _fold_work, kinds=frozenset({CREATED, CHANGED, LED})),
        View("work.tasks", 1, _tasks, _fold_task, kinds=TASK_KINDS),
        View(
            "work.ids", 2, lambda event: [(event.payload["task_id"],)],
            lambda _key, _before, event: [event.payload["work"], event.payload["tasks"][0]["number"], event.id],
            kinds=frozenset({ADDED}),
        ),
        View("work.lists", 1, _lists, _fold_list, kinds=TASK_KINDS, overwrites=True, present=True),
        View("work.counts", 2, _counted, _fold_counts, kinds=TASK_KINDS | NOTES, present=True),
        View("work.edges", 1, _edges, _fold_edge, kinds=TASK_KINDS, overwrites=True),
        View(
            "work.agents", 1, _agents, lambda _key, before, event: before or event.position, kinds=TASK_KINDS | NOTES
        ),
        View("work.records", 1, _records, _fold_record, kinds=NOTES),
        View(
            "work.log", 1, lambda event: [(event.payload["work"], event.kind, event.position)],
            lambda _key, _before, event: event.id, kinds=RECORDED, insert_only=True,
        ),
        View(
            "work.about", 1, _affected, lambda _key, _before, event: event.id, kinds=RECORDED, insert_only=True
        ),
        View("work.words", 1, _words, _fold_words, kinds=frozenset(FOUND_BY), insert_only=True),
        View("work.pending", 1, _pending, _fold_pending, kinds=NOTES),
        View(
            "work.told", 1, _told,
            lambda _key, _before, event: {"us": event.created_us, "tasks": event.payload["tasks"]},
            kinds=frozenset({DELIVERED}),
        ),
        View(
            "work.carried", 1, _carried,
            lambda _key, _before, event: event.payload["to"] if event.kind == DELIVERED else None,
            kinds=frozenset({DELIVERED, ACKNOWLEDGED}),
        ),
        View(
            "work.paths", 1, lambda event: [(event.payload["work"], event.payload["path_key"])],
            lambda _key, _before, event: {"id": event.id, "version": event.payload["version"]},
            kinds=frozenset({PRODUCED}),
        ),
        View(
            "work.steps", 1, _steps, lambda _key, _before, event: None if event.kind == HANDLED else True,
            kinds=frozenset({*people.STEPS, HANDLED}), overwrites=True, present=True,
        ),
        View(
            "work.by", 1, _by, lambda _key, _before, event: event.payload.get("task_id", event.id), kinds=DONE_BY,
            insert_only=True,
        ),
        View(
            "work.judged", 1, lambda event: [(event.payload["work"], event.payload["candidate"])],
            lambda _key, _before, event: {
                "verdict": event.payload["verdict"], "by": event.actor, "item": event.payload["item"],
            },
            kinds=frozenset({JUDGED}),
        ),
    ),
)  # fmt: skip
