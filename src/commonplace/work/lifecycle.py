"""The life of a work: it is begun, paused, resumed, completed or cancelled, and archived."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ..access.commands import need
from ..access.rights import OWNER, rights_of
from ..errors import Conflict, Erased, NotFound
from ..events import Event, draft, encode_payload
from ..memory.cores import Core, no_core
from ..memory.cores import may_know as may_know_core
from ..overlay import Overlay
from .desk import CREATED, WORK_MOVES, Act, Charter, Desk, charter_of, command, may_know
from .graph import NewTask, add
from .tasks import FINAL, STATUSES


class Plan(msgspec.Struct, frozen=True):
    """A work to be begun, with the tasks that it begins with."""

    charter: Charter
    tasks: tuple[NewTask, ...] = ()


def decide_create(overlay: Overlay, act: Act) -> Any:
    if act.actor != OWNER:
        refused = need(overlay, act.actor, "orchestrate", act.work)
        if refused:
            return refused
    plan: Plan = act.given["plan"]
    known = charter_of(overlay, act.work)
    if known is not None:
        if act.actor != OWNER and not may_know(rights_of(overlay, act.actor), known):
            raise Conflict(f"the id {act.work!r} cannot be used here: choose another one, or none")
        check_same(overlay.event(overlay.get("work.works", act.work)["event"]), plan.charter)
        return known
    for core in plan.charter.cores:
        row = overlay.get("memory.cores", core)
        if row is None or not may_know_core(rights_of(overlay, act.actor), msgspec.convert(row, Core)):
            raise NotFound(no_core(core))
    fields = msgspec.to_builtins(plan.charter)
    said = {name: fields.pop(name) for name in ("name", "goal", "constraints") if name in fields}
    payload = {"work": act.work, "set": fields, "said": said}
    labels = {"sensitivity": "private"} | ({} if plan.charter.members else {"audience": "team"})
    overlay.emit(draft(CREATED, actor=act.by, payload=payload, run_id=act.run, labels=labels))
    if plan.tasks:
        add(Desk(overlay, act), plan.tasks)
    return charter_of(overlay, act.work)


def check_same(began: Event | None, charter: Charter, fields: Collection[str] | None = None) -> None:
    """Raises Conflict if a work was begun with anything else, and Erased if nobody can tell any more. With `fields`,
    only these are compared. What was changed since does not count: the same call answers as the first time."""
    if began is None or began.erased:
        raise Erased(f"what was said in the work {charter.id!r} was erased: choose another id, or none")
    asked = encode_payload(msgspec.to_builtins(charter))[1]
    recorded = {**began.payload["set"], **began.payload["said"]}
    names = charter.__struct_fields__ if fields is None else fields
    other = [name for name in names if asked.get(name) != recorded.get(name)]
    if other:
        raise Conflict(
            f"there is a work {charter.id!r} already, which was begun with another {' and '.join(other)}: choose "
            "another id, open it by its id alone, or change it with its change(…)"
        )


@command("orchestrate", open=False, archived=True)
def decide_change(desk: Desk, status: str | None, said: dict[str, Any], fields: dict[str, Any]) -> Charter:
    """Change what a work is for, its limits, or how it stands. It is completed or archived only when nothing is left
    to be done."""
    charter = desk.charter
    if status is not None and status != charter.status:
        if status == "archived" and charter.open:
            _check_done(desk, "archive")
            desk.change(status="completed")
            charter = desk.charter
        if status not in WORK_MOVES[charter.status]:
            allowed = ", ".join(WORK_MOVES[charter.status]) or "nothing else any more"
            raise Conflict(
                f"the work {charter.name!r} is {charter.status} and cannot become {status}: it can become {allowed}"
            )
        if status == "completed":
            _check_done(desk, "complete")
        fields = {**fields, "status": status}
    if charter.status == "archived" and "status" not in fields:
        raise Conflict(f"the work {charter.name!r} is archived: it is changed no more")
    for name, known in (("limits", msgspec.to_builtins(charter.limits)), ("settings", charter.settings)):
        if name in fields:
            fields = {**fields, name: {**known, **fields[name]}}
    if fields or said:
        desk.change(said, **fields)
    return charter_of(desk.overlay, desk.work) or desk.charter


def _check_done(desk: Desk, what: str) -> None:
    left = {name: count for name, count in desk.counts.items() if count and name in _OPEN}
    if left:
        told = ", ".join(f"{count:,} {name}" for name, count in left.items())
        raise Conflict(
            f"the work {desk.charter.name!r} cannot be {what}d yet: it has tasks that are {told}. Finish or cancel them"
        )


_OPEN = frozenset(STATUSES) - FINAL
