"""People and whoever leads: nudges, approvals, escalations, leadership, and what waits for somebody's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..access.rights import Rights
from ..errors import BadInput, Conflict, shown
from ..events import new_id
from .claims import Made, escalate, held, produce
from .graph import cancel
from .kinds import (
    ACKNOWLEDGED,
    ANSWERED,
    ASKED,
    COMPLETED,
    DECIDED,
    DELIVERED,
    DISCOVERED,
    ESCALATED,
    FAILED,
    HANDLED,
    JUDGED,
    LED,
    LINKED,
    NUDGED,
    RESOLVED,
)
from .tasks import Task, placed, waiting_less
from .transaction import Reading, WorkTransaction, command, info_of

PRIORITIES = ("low", "normal", "high", "critical")
DELIVERIES = ("next_turn", "immediate", "when_idle")
ESCALATIONS = ("stuck", "confused", "needs_decision", "error")
ORCHESTRATOR, ALL = "orchestrator", "all"

STEPS = {NUDGED: 0, COMPLETED: 1, FAILED: 2, ESCALATED: 3}
"""In which order whoever leads is told of what has happened; then come ready tasks, and stuck ones."""


# nudges


@command("nudge", open=False)
def decide_nudge(
    tx: WorkTransaction, text: str, target: str, priority: str, delivery: str, task: str | None
) -> str:
    affects = [] if task is None else [tx.task(task)]
    event = tx.note(
        NUDGED, {"text": text}, affects=affects, pending=f"nudge:{target}", target=target, priority=priority,
        delivery=delivery,
        step=target == ORCHESTRATOR, labels={"sensitivity": "private"},
    )  # fmt: skip
    return event.id


@command(open=False, archived=True)
def decide_take(
    tx: WorkTransaction, agent: str, tasks: tuple[str, ...], when: str, only: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """What an agent is to be told now, each thing once: nudges to it, to all, to whoever leads if it does, what it
    relied on and what has changed, and what the holder before it was told of a task and has not acknowledged. Of all
    that, `only` these; what has changed becomes a nudge first, unless some are named."""
    if not only:
        _premises(tx, agent)
    fresh = [
        one for one in waiting(tx, agent, tx.info.leader == agent, when) if only is None or one["id"] in only
    ]
    told = in_order([*fresh, *carried(tx, tasks, agent, fresh, only)])
    if told:
        numbers = [[one.number, one.id] for one in (tx.task(id) for id in tasks)]
        settles = [
            (f"nudge:{one['target']}", one["id"], one["position"]) for one in fresh if one["target"] != ALL
        ]
        tx.note(
            DELIVERED, {}, settles=settles, nudges=[one["id"] for one in told], to=agent, tasks=numbers,
            labels={"sensitivity": "private"}, **tx.joined(agent),
        )  # fmt: skip
        steps = [
            [STEPS[NUDGED], one["position"], one["id"]] for one in fresh if one["target"] == ORCHESTRATOR
        ]
        if steps:
            tx.note(HANDLED, {}, handled=steps, set={})
    return told


def waiting(reading: Any, agent: str, leading: bool, when: str) -> list[dict[str, Any]]:
    """The nudges that an agent has not been told. `when` is what it is doing: taking a turn, being idle (then also
    those that wait for that), or just giving a sign of life (then only what is immediate)."""
    deliveries = {"turn": DELIVERIES[:2], "idle": DELIVERIES, "beat": DELIVERIES[1:2]}[when]
    found = []
    for target in (agent, ALL, *((ORCHESTRATOR,) if leading else ())):
        for (_, _, _, id), _ in reading.lens.scan("work.pending", reading.work, f"nudge:{target}"):
            row = reading.lens.get("work.records", reading.work, id)
            if row is None or not row["said"] or row["delivery"] not in deliveries:
                continue
            its_own = row["by"] == agent and target == ALL
            past = "premise" in row and reading.lens.get("recall.news", agent, row["premise"]) is None
            if not its_own and not past and reading.lens.get("work.told", reading.work, agent, id) is None:
                found.append({**row, "id": id})
    return in_order(found)


def may_see_nudge(reading: Reading, rights: Rights, row: Mapping[str, Any]) -> bool:
    """A nudge is between whoever says it and whom it is for."""
    if rights.owner or row["by"] == rights.actor or row["target"] in (rights.actor, ALL):
        return True
    info = info_of(reading.now, reading.work) if row["target"] == ORCHESTRATOR else None
    return info is not None and info.leader == rights.actor


def in_order(nudges: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The most urgent first, then the oldest."""
    return sorted(nudges, key=lambda one: (-PRIORITIES.index(one["priority"]), one["position"]))


def carried(
    reading: Reading,
    tasks: Sequence[str],
    agent: str,
    fresh: Sequence[dict[str, Any]],
    only: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """What another holder of these tasks was told and did not acknowledge, beside what is fresh."""
    known = {one["id"] for one in fresh}
    every = {one["id"]: one for id in tasks for one in _carried(reading, reading.task(id), agent)}
    return [one for id, one in every.items() if id not in known and (only is None or id in only)]


def _carried(reading: Reading, task: Task, agent: str) -> list[dict[str, Any]]:
    found = []
    for (_, _, id), to in reading.lens.scan("work.carried", reading.work, task.number):
        row = reading.lens.get("work.records", reading.work, id)
        if (
            row is not None
            and row["said"]
            and agent not in (to, row["by"])
            and not reading.lens.get("work.told", reading.work, agent, id)
        ):
            found.append({**row, "id": id})
    return found


def _premises(tx: WorkTransaction, agent: str) -> None:
    """What an agent relied on and what has changed since becomes a nudge."""
    for (_, id), _ in tx.lens.scan("recall.news", agent):
        nudge = premise_nudge(str(id))
        event = tx.overlay.event(str(id))
        if event is None or event.erased or tx.overlay.record_of(nudge) is not None:
            continue
        told = event.payload
        text = f"something you were told has changed ({told['why']}): {told['item']}"
        if told["by"]:
            text += f". What holds now is {told['by']}"
        quote = f"line {told['line']}: {told['text']}" if told["text"] else ""
        tx.note(
            NUDGED, {"text": text, "quote": quote}, pending=f"nudge:{agent}", target=agent, priority="high",
            delivery="next_turn", premise=str(id), item=told["item"], id=nudge, parents=[str(id)],
            labels={"sensitivity": "private"},
        )  # fmt: skip


def premise_nudge(premise: str) -> str:
    """The id of the nudge that tells of a change."""
    return f"nudge-{premise}"[:200]


@command(open=False, archived=True)
def decide_acknowledge(tx: WorkTransaction, nudge: str, agent: str) -> None:
    row = tx.record(nudge, NUDGED)
    if tx.lens.get("work.told", tx.work, agent, nudge) is None:
        raise Conflict(f"{agent!r} has not been told {nudge!r} yet: it is told with its next turn")
    carried = [
        [int(number), nudge]
        for number, _ in (tx.lens.get("work.told", tx.work, agent, nudge) or {}).get("tasks", ())
    ]
    if row.get("acknowledged", {}).get(agent):
        return
    acknowledged = {**row.get("acknowledged", {}), agent: True}
    tx.note(ACKNOWLEDGED, {}, updates=[(nudge, {"acknowledged": acknowledged})], nudge=nudge, drops=carried)


# approvals


@command()
def decide_ask(tx: WorkTransaction, action: str, risk: str, task: str | None, decision: str | None) -> str:
    """Ask somebody to approve something. A task that it is about waits for the answer, unless somebody has begun it."""
    about = None if task is None else tx.task(task)
    if decision is not None:
        tx.record(decision, DECIDED)
    said = {"action": action, "risk": risk}
    gates = about is not None and about.status in ("pending", "assigned", "blocked", "failed")
    asked = tx.note(
        ASKED, said, affects=[] if about is None else [about], pending="approval", status="pending", task=task,
        decision=decision, gates=gates,
    ).id  # fmt: skip
    if about is not None and gates:
        tx.tell(LINKED, (about, placed(replace(about, approval=asked, waits=about.waits + 1))))
    return asked


@command("approve", open=False)
def decide_answer(tx: WorkTransaction, id: str, approved: bool, why: str) -> dict[str, Any]:
    """Approve or reject what was asked for, or a decision, and with it all that was asked about it. What waits for it
    goes on, or is cancelled."""
    return _answer(tx, tx.record(id, ASKED, DECIDED), id, approved, why)


def _answer(tx: WorkTransaction, row: dict[str, Any], id: str, approved: bool, why: str) -> dict[str, Any]:
    known = row.get("status", "pending")
    verdict = "approved" if approved else "rejected"
    if known != "pending":
        if known == verdict:
            return row
        raise Conflict(f"{id!r} has been {known} by {row.get('answered_by')!r} already")
    answer = new_id()
    fields = {"status": verdict, "answered_by": tx.act.by, "answer": answer}
    settles = [("approval", id, row["position"])] if row["kind"] == ASKED else []
    updates, decision = [(id, fields)], id if row["kind"] == DECIDED else row.get("decision")
    if decision not in (None, id) and tx.record(decision, DECIDED).get("status", "pending") == "pending":
        updates.append((decision, fields))
    tx.note(ANSWERED, {"why": why}, updates=updates, settles=settles, about=id, verdict=verdict, id=answer)
    task = tx.find(row["task"]) if row.get("task") else None
    if task is not None and row.get("gates") and not task.final:
        if approved:
            tx.tell(LINKED, (task, waiting_less(task, task.waits - 1)))
        else:
            cancel(tx, task, f"rejected by {tx.act.by}", "block")
    if any(one == decision for one, _ in updates):
        for (_, _, _, other), _ in tx.lens.scan("work.pending", tx.work, "approval"):
            asked = tx.lens.get("work.records", tx.work, other)
            if asked is not None and asked.get("decision") == decision:
                _answer(tx, asked, str(other), approved, why)
    return {**row, **fields}


# escalations


@command()
def decide_escalate(tx: WorkTransaction, type: str, text: str, task: str | None) -> str:
    return escalate(tx, type, text, None if task is None else tx.task(task))


@command("orchestrate", open=False)
def decide_resolve(tx: WorkTransaction, id: str, answer: str) -> None:
    row = tx.record(id, ESCALATED)
    if row.get("status") == "resolved":
        raise Conflict(f"the escalation {id!r} was resolved by {row.get('resolved_by')!r} already")
    event = new_id()
    fields = {"status": "resolved", "resolved_by": tx.act.by, "answer": event}
    settles = [("escalation", id, row["position"])]
    tx.note(RESOLVED, {"answer": answer}, updates=[(id, fields)], settles=settles, about=id, id=event)


# what was decided and found


@command()
def decide_decide(
    tx: WorkTransaction, said: dict[str, Any], affects: tuple[str, ...], task: str | None, reversible: bool,
    reverses: str | None, sensitivity: str, token: int | None,
) -> str:  # fmt: skip
    about = _said_of(tx, task, token)
    if reverses is not None:
        old = tx.record(reverses, DECIDED)
        if old.get("reversed_by"):
            seen = tx.seen(tx.act.actor, [old["reversed_by"]])
            by = f" by {old['reversed_by']!r}: reverse that one" if seen else ""
            raise Conflict(f"the decision {reverses!r} was reversed already{by}")
        if not old.get("reversible", True):
            raise Conflict(f"the decision {reverses!r} was made for good: it cannot be reversed")
    named = _named(tx, affects, about)
    id = new_id()
    updates = [] if reverses is None else [(reverses, {"reversed_by": id})]
    return tx.note(
        DECIDED, said, affects=named, task=task, reversible=reversible, reverses=reverses, updates=updates, id=id,
        labels=tx.labels(sensitivity), **tx.joined(tx.act.by),
    ).id  # fmt: skip


@command()
def decide_discover(
    tx: WorkTransaction, text: str, type: str, affects: tuple[str, ...], task: str | None, core: str | None,
    sensitivity: str, token: int | None,
) -> str:  # fmt: skip
    named = _named(tx, affects, _said_of(tx, task, token))
    return tx.note(
        DISCOVERED, {"text": text}, affects=named, type=type, task=task, promote_to_core=core,
        labels=tx.labels(sensitivity), **tx.joined(tx.act.by),
    ).id  # fmt: skip


@command()
def decide_produce(tx: WorkTransaction, made: Made, task: str | None, token: int | None) -> str:
    return produce(tx, _said_of(tx, task, token), made, **tx.joined(tx.act.by))


def _said_of(tx: WorkTransaction, task: str | None, token: int | None) -> Task | None:
    """The task that something is said of. Who says it as its holder, with the token of a claim, must still hold it."""
    if task is None:
        return None
    return tx.task(task) if token is None else held(tx, tx.task(task), token)


def _named(tx: WorkTransaction, affects: Sequence[str], about: Task | None) -> list[Task]:
    """Each task that something affects, the one that it is said of among them."""
    found = {id: tx.task(id) for id in affects}
    return list(found.values() if about is None else {**found, about.id: about}.values())


# leadership


@command("orchestrate")
def decide_lead(tx: WorkTransaction, agent: str, lease: float) -> int:
    """Take the lead of a work, if nobody has it. Answers the fence."""
    known = tx.lease(lead_lease(tx.work, tx.info.led or 0))
    if known is not None and known.holder != agent:
        raise Conflict(
            f"{known.holder!r} leads {tx.info.name!r} and was there {known.seconds:.1f} s before its lease ends: "
            "wait, or let it resign"
        )
    if known is not None:
        tx.overlay.take_lease(known.name, known.holder, 0, known.fence)
    fence = tx.next_fence()
    tx.note(LED, {}, set={"leader": agent, "led": fence}, **tx.joined(agent))
    tx.overlay.take_lease(lead_lease(tx.work, fence), agent, lease, fence)
    return fence


def lead_lease(work: str, fence: int) -> str:
    """Each lead has a lease of its own, as each claim has."""
    return f"lead/{work}/{fence}"


@command("orchestrate", open=False, archived=True)
def decide_handled(tx: WorkTransaction, step: tuple[int, int, str]) -> None:
    """Whoever leads has dealt with something that had happened: nobody after it has to."""
    if tx.act.lead is None:
        raise BadInput("only whoever leads a work deals with its steps: work.lead(…)")
    order, position, id = step
    if tx.lens.get("work.steps", tx.work, order, position, id) is None:
        return
    front = {**tx.info.handled, str(order): position}
    first = next(iter(steps_of(tx, limit=1, orders=(order,))), None)
    tx.note(HANDLED, {}, handled=[[order, position, id]], set={"handled": front} if first == step else {})
    if order == STEPS[NUDGED] and tx.info.leader is not None:  # it has been told to whoever leads
        settles = [(f"nudge:{ORCHESTRATOR}", id, position)]
        tx.note(
            DELIVERED, {}, settles=settles, nudges=[id], to=tx.info.leader, tasks=[],
            labels={"sensitivity": "private"},
        )  # fmt: skip


def steps_of(
    reading: Any, limit: int | None = None, orders: Sequence[int] = (0, 1, 2, 3)
) -> list[tuple[int, int, str]]:
    """What has happened and was not dealt with yet, in the order in which it is to be."""
    found = list[tuple[int, int, str]]()
    info = info_of(reading.lens, reading.work)
    handled = {} if info is None else info.handled
    for order in orders:
        since = handled.get(str(order), 0)
        left = None if limit is None else limit - len(found)
        if left is None or left > 0:
            rows = reading.lens.between("work.steps", (reading.work, order), since, 2**62, left)
            found += [(int(key[1]), int(key[2]), str(key[3])) for key, _ in rows]
    return found


# candidates


@command("keep_memory", open=False, archived=True)
def decide_judge(tx: WorkTransaction, candidate: str, verdict: str, why: str, item: str | None) -> None:
    known = tx.lens.get("work.judged", tx.work, candidate)
    if known is not None and known["verdict"] != verdict:
        raise Conflict(f"candidate {candidate!r} was {known['verdict']} by {known['by']!r} already")
    if known is None and verdict:
        tx.note(JUDGED, {"why": why}, candidate=candidate, verdict=verdict, item=item)


def checked(field: str, given: object, allowed: Sequence[str]) -> str:
    if given not in allowed:
        raise BadInput(f"there is no {field} {shown(given)}: it is one of {', '.join(allowed)}")
    return str(given)
