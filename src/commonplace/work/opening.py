"""Beginning, opening and putting away works."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..access.rights import rights_of
from ..errors import BadInput, Conflict, NotFound, shown
from ..ledger.checks import check_name
from ..ledger.encoding import convert
from ..ledger.events import new_id
from ..verbs import TaskId, verb
from .capability import EVERY
from .checks import checked
from .graph import new_task
from .info import WORK_MOVES, WorkInfo, info_from, info_of, may_know, shown_info
from .lifecycle import Plan, check_same
from .patterns import tasks_of
from .verbs import Work

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

log = logging.getLogger("commonplace")


def work(
    session: Session,
    /,
    id: str | None = None,
    *,
    name: str | None = None,
    goal: str = "",
    constraints: Sequence[str] = (),
    cores: Sequence[str] = (),
    pattern: str | None = None,
    members: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
    on_failure: object = None,
    by: str | None = None,
    scope: str | None = None,
    **settings: Any,
) -> Work:
    """Begin a work, or open the one with this `id`.

    `cores` give it its context; `pattern` is an entry of one of them whose tasks it begins with. `members` are those
    who may know of it; nobody is named: everybody. `on_failure` is what happens to tasks that fail, unless they say so
    themselves. With an `id` of your own and a name, the call can be repeated safely: a work that was begun with other
    content is a Conflict.

    `name` is what to call it. `limits` is how much there may be of it: max_tasks, max_agents.
    """
    fields = {
        "name": name, "goal": goal, "constraints": constraints, "cores": cores, "pattern": pattern,
        "members": members, "limits": limits, "on_failure": on_failure, "settings": settings,
    }  # fmt: skip
    session = session.in_scope(scope)
    if name is None:
        if id is None:
            raise BadInput("say which work: an id opens one, and a name begins one")
        return opened(session, check_name("id", id), fields)
    fields["tasks"] = () if pattern is None else tasks_of(session, pattern)
    session.check_may_act("work.create")
    return begin(session, new_id() if id is None else check_name("id", id), fields, by)


class Works:
    """All works of a book: `book.works`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def list(self, status: str | None = None, *, scope: str | None = None, at: At = None) -> WorkInfos:
        """The works that this actor may know of, those of one status if it is named.

        `status` is active, paused, completed, cancelled or archived."""
        return works_of(self._session.narrowed(scope), status, at)

    @verb
    def containing(self, id: TaskId) -> Work:
        """The work that a task belongs to, or something else that was recorded about a work: a decision, a nudge, an
        escalation. Raises NotFound, also if this actor may not know of that work."""
        return work(self._session, home_of(self._session, check_name("id", id)))

    @verb
    def archive_finished(
        self, *, older_than: timedelta | None = None, now: datetime | None = None, dry_run: bool = False
    ) -> Archived:
        """Put away the works that have been finished for long enough: longer than `older_than`, or than they say
        themselves (`auto_archive_hours`). Answers which, and why."""
        if older_than is not None and not isinstance(older_than, timedelta):
            raise BadInput(f"older_than {shown(older_than)} is not a timedelta, such as timedelta(days=30)")
        if now is not None and (not isinstance(now, datetime) or now.tzinfo is None):
            raise BadInput(f"now {shown(now)} is not a datetime with a time zone: datetime.now(UTC) is one")
        archived = []
        for info, why in stale(self.list(), now or datetime.now(UTC), older_than):
            if not dry_run:
                each = work(self._session, info.id)
                if each._looks and not self._session.refusal:
                    continue  # it lies in a scope that can only be read
                try:
                    each.manage.archive()
                except Conflict:
                    continue  # somebody else has done it meanwhile, or opened it again
            archived.append((info.id, why))
        return archived


WorkInfos = list[WorkInfo]
Archived = list[tuple[str, str]]


def begin(session: Session, id: str, fields: Mapping[str, Any], by: str | None) -> Work:
    """Begin a work."""
    work = Work(session, id)
    tasks = tuple(new_task(task) for task in fields["tasks"])
    info: WorkInfo = work._do("create", by, plan=Plan(info_from(id, fields), tasks))
    if info.advice:
        log.warning("the work %s: %s", info.name, info.advice)
    return work


def opened(session: Session, id: str, fields: Mapping[str, Any]) -> Work:
    """The work with an id. If it is said what it was begun with, that must be so."""
    work = Work(session, id)
    named = [name for name, value in fields.items() if value]
    with work._reading(None) as (reading, _):
        row = reading.views.get("work.works", id)
    work = Work(session.within(row.get("scope", "")), id)
    if named:
        began = session.ledger.event(row["event"])
        check_same(began, info_from(id, {**fields, "name": "any"}), named)
    return work


def home_of(session: Session, id: str) -> str:
    """The id of the work that a task or an event belongs to, if the reader may know of it."""
    with session.snapshot() as now:
        where = now.get("work.ids", id)
        event = session.ledger.event(id) if where is None else None
        if event is not None and event.kind in EVERY:
            where = [event.payload["work"]]
        info = None if where is None else info_of(now, where[0])
        if info is None or not may_know(rights_of(now, session.actor), info):
            raise NotFound(
                f"there is no task {id!r} in this book, and nothing else of a work: look for its id"
            )
        return info.id


def works_of(session: Session, status: str | None, at: At) -> list[WorkInfo]:
    if status is not None:
        checked("status", status, tuple(WORK_MOVES))
    with session.snapshot() as now, session.snapshot(at) as then:
        rights = [rights_of(views, session.actor) for views in (then, now)]
        infos = [convert(row, WorkInfo) for _, row in then.scan("work.works")]
        visible = [info for info in infos if all(may_know(right, info) for right in rights)]
        return [shown_info(now, info) for info in visible if status in (None, info.status)]


def stale(
    infos: Sequence[WorkInfo], now: datetime, older_than: timedelta | None
) -> list[tuple[WorkInfo, str]]:
    """The works that can be put away, and why."""
    finished = []
    for info in infos:
        quiet = now - info.changed_at
        hours = info.settings.get("auto_archive_hours")
        limit = older_than if older_than is not None else None if hours is None else timedelta(hours=hours)
        if limit is not None and info.status in ("completed", "cancelled") and quiet >= limit:
            finished.append((info, f"{info.status} {quiet.days} days and {quiet.seconds // 3600} hours ago"))
    return finished
