"""The life of a work: it is begun, paused, resumed, completed or cancelled, and archived."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from ..access.commands import need
from ..access.rights import OWNER, rights_of
from ..errors import Conflict, Erased, NotFound, id_taken
from ..ledger.encoding import convert, encode_payload
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from ..memory.cores import Core, no_core
from ..memory.cores import may_know as may_know_core
from .graph import NewTask, add
from .info import WORK_MOVES, WorkInfo, info_of, may_know
from .kinds import CREATED
from .tasks import FINAL, STATUSES
from .transaction import Act, WorkTransaction, command


class Plan(msgspec.Struct, frozen=True):
    """A work to be begun, with the tasks that it begins with."""

    info: WorkInfo
    tasks: tuple[NewTask, ...] = ()


def decide_create(overlay: Overlay, act: Act) -> Any:
    if act.actor != OWNER:
        refused = need(overlay, act.actor, "orchestrate", act.work)
        if refused:
            return refused
    plan: Plan = act.given["plan"]
    info = info_of(overlay, act.work)
    if info is not None:
        if not may_know(rights_of(overlay, act.actor), info):
            raise id_taken(act.work)
        check_same(overlay.event(overlay.get("work.works", act.work)["event"]), plan.info)
        return info
    for core in plan.info.cores:
        row = overlay.get("memory.cores", overlay.scope, core)
        if row is None or not may_know_core(rights_of(overlay, act.actor), convert(row, Core)):
            raise NotFound(no_core(core))
    fields = msgspec.to_builtins(plan.info)
    said = {name: fields.pop(name) for name in ("name", "goal", "constraints") if name in fields}
    payload = {"work": act.work, "set": fields, "said": said}
    labels = {"sensitivity": "private"} | ({} if plan.info.members else {"audience": "team"})
    overlay.emit(draft(CREATED, actor=act.by, payload=payload, run_id=act.run, labels=labels))
    if plan.tasks:
        add(WorkTransaction(overlay, act), plan.tasks)
    return info_of(overlay, act.work)


def check_same(began: Event | None, info: WorkInfo, fields: Collection[str] | None = None) -> None:
    """Raises Conflict if a work was begun with anything else, and Erased if nobody can tell any more. With `fields`,
    only these are compared. What was changed since does not count: the same call answers as the first time."""
    if began is None or began.erased:
        raise Erased(f"what was said in the work {info.id!r} was erased: choose another id, or none")
    asked = encode_payload(msgspec.to_builtins(info))[1]
    recorded = {**began.payload["set"], **began.payload["said"]}
    names = info.__struct_fields__ if fields is None else fields
    other = [name for name in names if asked.get(name) != recorded.get(name)]
    if other:
        raise Conflict(
            f"there is a work {info.id!r} already, which was begun with another {' and '.join(other)}: choose "
            "another id, open it by its id alone, or change it with its manage.change(…)"
        )


@command("orchestrate", open=False, archived=True)
def decide_change(
    tx: WorkTransaction, status: str | None, said: dict[str, Any], fields: dict[str, Any]
) -> WorkInfo:
    """Change what a work is for, its limits, or how it stands. It is completed or archived only when nothing is left
    to be done."""
    info = tx.info
    if status is not None and status != info.status:
        if status == "archived" and info.open:
            _check_done(tx, "archive")
            tx.change(status="completed")
            info = tx.info
        if status not in WORK_MOVES[info.status]:
            allowed = ", ".join(WORK_MOVES[info.status]) or "nothing else any more"
            raise Conflict(
                f"the work {info.name!r} is {info.status} and cannot become {status}: it can become {allowed}"
            )
        if status == "completed":
            _check_done(tx, "complete")
        fields = {**fields, "status": status}
    if info.status == "archived" and "status" not in fields:
        raise Conflict(f"the work {info.name!r} is archived: it is changed no more")
    for name, before in (("limits", msgspec.to_builtins(info.limits)), ("settings", info.settings)):
        if name in fields:
            fields = {**fields, name: {**before, **fields[name]}}
    if fields or said:
        tx.change(said, **fields)
    return info_of(tx.overlay, tx.work) or tx.info


def _check_done(tx: WorkTransaction, verb: str) -> None:
    left = {name: count for name, count in tx.counts.items() if count and name in _OPEN}
    if left:
        tasks = ", ".join(f"{count:,} {name}" for name, count in left.items())
        raise Conflict(
            f"the work {tx.info.name!r} cannot be {verb}d yet: it has tasks that are {tasks}. Finish or cancel them"
        )


_OPEN = frozenset(STATUSES) - FINAL
