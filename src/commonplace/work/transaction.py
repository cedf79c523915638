"""A work as readers and deciders see it, and the one way in which events about it are recorded.

Every event about tasks says the same things: which fields of which tasks become what (`set`), how a task stood before
if that has changed (`was`), what the first task waits for from then on (`waits_for`) and what no longer (`free_of`),
and under `said` the words, which an erasure takes away while everything else stays. The first task is the one that the
event is about. The others follow by their numbers: those that no longer wait for a task that was completed or
cancelled, and those that another task has begun to wait for (`needed`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from ..access.commands import Denial, need, refuse
from ..access.rights import OWNER, rights_of
from ..engines.contract import Lease
from ..errors import BadInput, Conflict, Denied, NotFound, TooLarge
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from .info import check_leads, info_of, may_know, no_work, read_info
from .kinds import CHANGED, LED
from .reading import Reading, lease_name, may_see_record, no_record
from .tasks import PLACE, Task, check_moves, placed, returned, waiting_less

WORDS = frozenset({"title", "description", "reason", "comments", "result", "metadata"})
"""The fields of a task that hold words, which an erasure takes away."""

_USUAL = Task("", "", 0)
NOT_TOLD = frozenset({"id", "work", "number", "waits", "claims", "failures", "failed_token"})
"""The fields of a task that no event sets: its names, which never change, and what is counted by folding events."""


class Act(msgspec.Struct, frozen=True):
    """Something that is asked of a work: by whom, under whose name it is recorded (its own, unless the owner speaks
    for others), and what."""

    work: str
    actor: str
    by: str
    given: dict[str, Any]
    run: str | None = None
    lead: int | None = None
    """The fence under which the actor leads the work."""


_known_info = lru_cache(64)(read_info)
"""For those who do not hand it on: it is read with every act, and seldom changes."""


class WorkTransaction(Reading):
    """A work under the lock, for the actor that changes it."""

    def __init__(self, overlay: Overlay, act: Act) -> None:
        super().__init__(overlay, act.work)
        self.overlay, self.act = overlay, act
        info = overlay.get_as(_known_info, "work.works", act.work)
        unlimited = act.actor == OWNER and overlay.bound is None
        rights = None if unlimited else rights_of(overlay, act.actor)
        if info is None or (rights is not None and not may_know(rights, info)):
            raise NotFound(no_work(act.work))
        self.info, self._rights = info, rights

    def record(self, id: str, *kinds: str) -> dict[str, Any]:
        """What the actor may not see is NotFound like what is not there."""
        row = super().record(id, *kinds)
        if self._rights is not None and not may_see_record(self._rights, row, self.views.get("labels", id)):
            raise NotFound(no_record(id, kinds))
        return row

    # who may

    def refused(self, right: str) -> Denied | None:
        """The refusal, already recorded, if the actor lacks a right."""
        if not right or self.act.actor == OWNER:
            return None
        return need(self.overlay, self.act.actor, right, self.work)

    def refuse(self, act: str, subject: str, why: str) -> Denied:
        return refuse(self.overlay, Denial(self.act.actor, act, subject, self.act.run), why)

    def may(self, right: str) -> bool:
        """Whether the actor has a right."""
        return self.act.actor == OWNER or rights_of(self.overlay, self.act.actor).may(right)

    def need_member(self, agent: str) -> None:
        """Nothing is given to somebody who may not even know of the work."""
        if not may_know(rights_of(self.overlay, agent), self.info):
            members = ", ".join(self.info.members)
            raise BadInput(
                f"{agent!r} may not know of the work {self.info.name!r}: "
                + (f"name one of its members, {members}" if members else "its ceiling is below private")
            )

    def need_open(self) -> None:
        if not self.info.open:
            raise Conflict(
                f"the work {self.info.name!r} is {self.info.status}"
                + (f" ({self.info.reason})" if self.info.reason else "")
                + ("" if self.info.status == "archived" else ": resume it first")
            )

    def need_lead(self) -> None:
        """Raises Fenced if the actor acts as the leader and is not, or no longer."""
        fence = self.act.lead
        if fence is None:
            return
        if fence != self.info.led:
            check_leads(self.info, self._leader_under(fence), fence)
        if self.act.actor != OWNER:  # who acts for any leader
            check_leads(self.info, self.act.actor, fence)

    def _leader_under(self, fence: int) -> str:
        """Who took the lead of this work under a fence, which may not be who acts: it may act by the owner's hand."""
        if 0 < fence <= self.overlay.tx.head.position:
            (record,) = self.overlay.tx.records(fence - 1, fence, 1)
            taken = self.overlay.event(record.id)
            ours = taken is not None and taken.kind == LED and taken.payload.get("work") == self.work
            if taken is not None and ours:
                return str(taken.payload["set"]["leader"])
        return self.act.by

    def joined(self, agent: str) -> dict[str, Any]:
        """What an event tells when an agent takes part for the first time."""
        if self.overlay.get("work.agents", self.work, agent) is not None:
            return {}
        most = self.info.limits.max_agents
        if (self.overlay.get("work.counts", self.work) or {}).get("agents", 0) >= most:
            raise TooLarge(f"{most:,} agents take part in this work already, which is its limit")
        return {"joins": agent}

    # telling

    def tell(
        self,
        kind: str,
        *changes: tuple[Task | None, Task],
        said: Mapping[str, Any] | None = None,
        waits_for: Sequence[int | str] = (),
        free_of: Sequence[int | str] = (),
        parents: Collection[str] = (),
        id: str | None = None,
        **more: Any,
    ) -> Event:
        """Record what happens to tasks; the first of them is what the event is about. `waits_for` is what it waits for
        from now on, and `free_of` what no longer: tasks by their numbers, approvals and choices by their ids."""
        tasks, words = list[dict[str, Any]](), dict(said or {})
        for before, after in changes:
            fields = self._differences(before, after)
            if after is changes[0][1]:
                words |= {name: fields.pop(name) for name in WORDS & fields.keys()}
            entry = {"number": after.number, "set": fields}
            if before is not None and not fields.keys().isdisjoint(PLACE):
                entry["was"] = {name: getattr(before, name) for name in PLACE}
            tasks.append(entry)
        if waits_for:
            more["waits_for"] = waits_for
        if free_of:
            more["free_of"] = free_of
        payload = {"work": self.work, "task_id": changes[0][1].id, "tasks": tasks, **more, "said": words}
        return self.emit(kind, payload, parents=parents, id=id)

    def _differences(self, before: Task | None, after: Task) -> dict[str, Any]:
        """The fields that are new, as plain data, without those that the fold counts. The token of a claim is the
        position of its event."""
        pairs = zip(Task.__struct_fields__, astuple(after), astuple(before or _USUAL), strict=True)
        new = {
            name: value
            for name, value, old in pairs
            if value is not old and value != old and name not in NOT_TOLD
        }
        if new.get("token") == self.next_fence():
            del new["token"]
        fields: dict[str, Any] = msgspec.to_builtins(new)
        return fields

    def note(
        self,
        kind: str,
        said: Mapping[str, Any],
        *,
        affects: Iterable[Task] = (),
        pending: str = "",
        settles: Iterable[tuple[str, str, int]] = (),
        updates: Iterable[tuple[str, Mapping[str, Any]]] = (),
        id: str | None = None,
        parents: Collection[str] = (),
        labels: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Event:
        """Record something about the work that is no change of a task: `pending` names the list in which it waits,
        `settles` what waits no more, `updates` what becomes of other such things."""
        about = [[task.number, task.id] for task in affects]
        ended, changed = [list(entry) for entry in settles], [[id, dict(fields)] for id, fields in updates]
        parts = {"affects": about, "pending": pending, "settles": ended, "updates": changed}
        payload = {"work": self.work, **{name: value for name, value in parts.items() if value}, **more}
        return self.emit(kind, {**payload, "said": dict(said)}, parents=parents, id=id, labels=labels)

    def change(
        self, said: Mapping[str, Any] | None = None, parents: Collection[str] = (), **fields: Any
    ) -> Event:
        """Change the info."""
        payload = {"work": self.work, "set": fields, "said": dict(said or {})}
        event = self.emit(CHANGED, payload, parents=parents)
        self.info = info_of(self.overlay, self.work) or self.info
        return event

    def emit(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        parents: Collection[str] = (),
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Event:
        """Record an event. An `id` is one that was made for it, so nobody looks whether there is such an event."""
        made = draft(
            kind, actor=self.act.by, payload=payload, run_id=self.act.run, id=id, parents=list(parents),
            labels=self.labels() if labels is None else labels,
        )  # fmt: skip
        made = replace(made, given_id=False) if made.given_id else made
        return self.overlay.emit(made, scope=self.info.scope)

    def labels(self, sensitivity: str = "private") -> dict[str, str]:
        """What everybody who takes part may see, up to how sensitive it is."""
        labels = {"sensitivity": sensitivity}
        return labels if self.info.members else {**labels, "audience": "team"}

    # what follows

    def freeing(self, task: Task) -> list[tuple[Task, Task]]:
        """What waits for a task, with one thing less to wait for."""
        waiting = self.all_numbered(self.dependents(task))
        return [
            (task, waiting_less(task, task.waits - 1)) for task in waiting if not task.final and task.waits
        ]

    def next_fence(self) -> int:
        """The position that the next event will have: the fence of a claim."""
        return self.overlay.position + 1

    def lease(self, name: str) -> Lease | None:
        """The lease in force under this name, also one that this very batch takes."""
        taken = [lease for lease in self.overlay.write.leases if lease.name == name]
        if taken:
            return taken[-1] if taken[-1].seconds > 0 else None
        return self.overlay.lease(name)

    def hold(self, task: Task, holder: str) -> None:
        assert task.token is not None
        self.overlay.take_lease(lease_name(task), holder, task.lease, task.token)

    def let_go(self, task: Task) -> None:
        if task.token is not None:
            self.overlay.take_lease(lease_name(task), task.assigned_to or "", 0, task.token)


Decide = Callable[..., Any]


def command(
    needs: str = "", *, open: bool = True, archived: bool = False
) -> Callable[[Decide], Callable[[Overlay, Act], Any]]:
    """A decider of a work: rights and the work's status are checked first, then it is given the transaction. What needs
    no open work still changes nothing in one that is archived, unless it says so."""

    def wrap(decide: Decide) -> Callable[[Overlay, Act], Any]:
        def run(overlay: Overlay, act: Act) -> Any:
            tx = WorkTransaction(overlay, act)
            refused = tx.refused(needs)
            if refused:
                return refused
            if open or (tx.info.status == "archived" and not archived):
                tx.need_open()
            tx.need_lead()
            return decide(tx, **act.given)

        run.__name__, run.__doc__ = decide.__name__, decide.__doc__
        return run

    return wrap


def moved(task: Task, *path: str, **fields: Any) -> Task:
    """The task after these steps, each of them checked, ready for those who may claim it then."""
    check_moves(task, *path)
    status = path[-1] if path else task.status
    if status != "in_progress":
        fields["rework"] = False
    return placed(replace(task, status=status, **fields))


def given_back(task: Task, **fields: Any) -> Task:
    """The task without its holder, ready again for those it was for before the claim."""
    return returned(moved(task, "pending", **fields))
