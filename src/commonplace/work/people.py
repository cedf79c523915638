"""People and the leader: nudges, approvals, escalations, leadership, and what waits for somebody's word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..access.rights import Rights
from ..errors import BadInput, Conflict, Fenced
from ..recall.escaping import as_data, as_name
from .info import check_leads, info_of
from .kinds import (
    ACKNOWLEDGED,
    COMPLETED,
    DELIVERED,
    ESCALATED,
    FAILED,
    HANDLED,
    JUDGED,
    LED,
    NUDGED,
)
from .reading import Reading
from .records import ALL, DELIVERIES, ORCHESTRATOR, PRIORITIES, Nudge
from .tasks import Task
from .transaction import WorkTransaction, command

STEPS = {NUDGED: 0, COMPLETED: 1, FAILED: 2, ESCALATED: 3}
"""In which order the leader is told of what has happened; then come ready tasks, and stuck ones."""


# nudges


@command(open=False, archived=True)
def decide_take(
    tx: WorkTransaction, agent: str, tasks: tuple[str, ...], when: str, only: tuple[str, ...] | None = None
) -> list[dict[str, Any]]:
    """What an agent is to be told now, each thing once: nudges to it, to all, to the leader if it leads, what it
    relied on and what has changed, and what the holder before it was told of a task and has not acknowledged. Of all
    that, `only` these; what has changed becomes a nudge first, unless some are named."""
    if not only:
        _premises(tx, agent)
    fresh = [
        nudge
        for nudge in waiting(tx, agent, tx.info.leader == agent, when)
        if only is None or nudge["id"] in only
    ]
    nudges = in_order([*fresh, *carried(tx, tasks, agent, fresh, only)])
    if nudges:
        numbers = [[task.number, task.id] for task in (tx.task(id) for id in tasks)]
        settles = [
            (f"nudge:{nudge['target']}", nudge["id"], nudge["position"])
            for nudge in fresh
            if nudge["target"] != ALL
        ]
        tx.note(
            DELIVERED, {}, settles=settles, nudges=[nudge["id"] for nudge in nudges], to=agent, tasks=numbers,
            labels={"sensitivity": "private"}, **tx.joined(agent),
        )  # fmt: skip
        steps = [
            [STEPS[NUDGED], nudge["position"], nudge["id"]]
            for nudge in fresh
            if nudge["target"] == ORCHESTRATOR
        ]
        if steps:
            tx.note(HANDLED, {}, handled=steps)
    return nudges


def waiting(reading: Reading, agent: str, leading: bool, when: str) -> list[dict[str, Any]]:
    """The nudges that an agent has not been told. `when` is what it is doing: taking a turn, being idle (then also
    those that wait for that), or just giving a sign of life (then only what is immediate)."""
    deliveries = {"turn": DELIVERIES[:2], "idle": DELIVERIES, "beat": DELIVERIES[1:2]}[when]
    nudges = []
    for target in (agent, ALL, *((ORCHESTRATOR,) if leading else ())):
        for (_, _, _, id), _ in reading.views.scan("work.pending", reading.work, f"nudge:{target}"):
            row = reading.views.get("work.records", reading.work, id)
            if row is None or not row["said"] or row["delivery"] not in deliveries:
                continue
            its_own = row["by"] == agent and target == ALL
            past = (
                "premise" in row
                and reading.views.get("recall.news", agent, reading.views.scope, row["premise"]) is None
            )
            if not its_own and not past and reading.views.get("work.told", reading.work, agent, id) is None:
                nudges.append({**row, "id": id})
    return in_order(nudges)


def may_see_nudge(reading: Reading, rights: Rights, row: Mapping[str, Any]) -> bool:
    """A nudge is visible to its author and its target."""
    if rights.owner or row["by"] == rights.actor or row["target"] in (rights.actor, ALL):
        return True
    info = info_of(reading.now, reading.work) if row["target"] == ORCHESTRATOR else None
    return info is not None and info.leader == rights.actor


def in_order(nudges: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The most urgent first, then the oldest."""
    return sorted(nudges, key=lambda nudge: (-PRIORITIES.index(nudge["priority"]), nudge["position"]))


def carried(
    reading: Reading,
    tasks: Sequence[str],
    agent: str,
    fresh: Sequence[dict[str, Any]],
    only: Sequence[str] | None,
) -> list[dict[str, Any]]:
    """What another holder of these tasks was told and did not acknowledge, beside what is fresh."""
    fresh_ids = {nudge["id"] for nudge in fresh}
    every = {nudge["id"]: nudge for id in tasks for nudge in _carried(reading, reading.task(id), agent)}
    return [nudge for id, nudge in every.items() if id not in fresh_ids and (only is None or id in only)]


def _carried(reading: Reading, task: Task, agent: str) -> list[dict[str, Any]]:
    nudges = []
    for (_, _, id), to in reading.views.scan("work.carried", reading.work, task.number):
        row = reading.views.get("work.records", reading.work, id)
        if (
            row is not None
            and row["said"]
            and agent not in (to, row["by"])
            and not reading.views.get("work.told", reading.work, agent, id)
        ):
            nudges.append({**row, "id": id})
    return nudges


def _premises(tx: WorkTransaction, agent: str) -> None:
    """What an agent relied on and what has changed since becomes a nudge."""
    for (_, _, id), _ in tx.views.scan("recall.news", agent, tx.views.scope):
        nudge = premise_nudge(str(id))
        event = tx.overlay.event(str(id))
        if event is None or event.erased or tx.overlay.record_of(nudge) is not None:
            continue
        change = event.payload
        text = f"something you were told has changed ({change['why']}): {change['item']}"
        tx.note(
            NUDGED, {"text": text, "quote": change["text"]}, pending=f"nudge:{agent}", target=agent, priority="high",
            delivery="next_turn", premise=str(id), item=change["item"], cause=change["by"], id=nudge, parents=[str(id)],
            labels={"sensitivity": "private"},
        )  # fmt: skip


def premise_nudge(premise: str) -> str:
    """The id of the nudge that tells of a change."""
    return f"nudge-{premise}"[:200]


@command(open=False, archived=True)
def decide_acknowledge(tx: WorkTransaction, nudge: str, agent: str) -> None:
    row = tx.record(nudge, NUDGED)
    if tx.views.get("work.told", tx.work, agent, nudge) is None:
        raise Conflict(f"{agent!r} has not been told {nudge!r} yet: it is told with its next turn")
    carried = [
        [int(number), nudge]
        for number, _ in (tx.views.get("work.told", tx.work, agent, nudge) or {}).get("tasks", ())
    ]
    if agent in row.get("acknowledged", ()):
        return
    tx.note(ACKNOWLEDGED, {}, nudge=nudge, drops=carried)


# leadership


@command("orchestrate")
def decide_lead(tx: WorkTransaction, agent: str, lease: float) -> int:
    """Take the lead of a work, if nobody has it. Answers the fence."""
    current = tx.lease(lead_lease(tx.work, tx.info.led or 0))
    if current is not None and current.holder != agent:
        raise Conflict(
            f"{current.holder!r} leads {tx.info.name!r} and was there {current.seconds:.1f} s before its lease ends: "
            "wait, or let it resign"
        )
    if current is not None:
        tx.overlay.take_lease(current.name, current.holder, 0, current.fence)
    fence = tx.next_fence()
    tx.note(LED, {}, set={"leader": agent, "led": fence}, **tx.joined(agent))
    tx.overlay.take_lease(lead_lease(tx.work, fence), agent, lease, fence)
    return fence


@command(open=False, archived=True)
def decide_stay(tx: WorkTransaction, agent: str, lease: float) -> None:
    """The leader leads for so many seconds more; with 0, somebody else may lead at once. One whose right was taken away
    may end its lead."""
    fence = tx.act.lead
    if fence is None:
        raise BadInput("only the leader of a work stays in the lead: take it with work.lead(…)")
    check_leads(tx.info, agent, fence)
    if lease and not tx.may("orchestrate"):
        raise Fenced(f"{agent!r} leads {tx.info.name!r} no longer: it has lost the right to")
    tx.overlay.take_lease(lead_lease(tx.work, fence), agent, lease, fence)


def lead_lease(work: str, fence: int) -> str:
    """Each lead has a lease of its own, as each claim has."""
    return f"lead/{work}/{fence}"


@command("orchestrate", open=False, archived=True)
def decide_handled(tx: WorkTransaction, step: tuple[int, int, str]) -> None:
    """The leader has dealt with something that had happened: nobody after it has to."""
    if tx.act.lead is None:
        raise BadInput("only the leader of a work deals with its steps: take the lead with work.lead(…)")
    order, position, id = step
    if tx.views.get("work.steps", tx.work, order, position, id) is None:
        return
    tx.note(HANDLED, {}, handled=[[order, position, id]])
    if order == STEPS[NUDGED] and tx.info.leader is not None:  # it has been told to the leader
        settles = [(f"nudge:{ORCHESTRATOR}", id, position)]
        tx.note(
            DELIVERED, {}, settles=settles, nudges=[id], to=tx.info.leader, tasks=[],
            labels={"sensitivity": "private"},
        )  # fmt: skip


def next_step(reading: Reading) -> tuple[int, int, str] | None:
    """What has happened and is to be dealt with next: its order, its position and its id."""
    rows = reading.views.scan("work.steps", reading.work, limit=1)
    return (int(rows[0][0][1]), int(rows[0][0][2]), str(rows[0][0][3])) if rows else None


# candidates


@command("keep_memory", open=False, archived=True)
def decide_judge(tx: WorkTransaction, candidate: str, verdict: str, why: str, item: str | None) -> None:
    judged = tx.views.get("work.judged", tx.work, candidate)
    if judged is not None and judged["verdict"] != verdict:
        raise Conflict(f"candidate {candidate!r} was {judged['verdict']} by {judged['by']!r} already")
    if judged is None and verdict:
        tx.note(JUDGED, {"why": why}, candidate=candidate, verdict=verdict, item=item)


def nudge_line(nudge: Nudge) -> str:
    """A nudge as its addressee reads it. Nobody sends the news that a fact has changed: it has no sender."""
    sender = "" if nudge.by == nudge.target else f" (from {as_name(nudge.by)})"
    return f"[{nudge.priority}] {as_data(nudge.text)}{sender}"
