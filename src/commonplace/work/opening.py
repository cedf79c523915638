"""Beginning, opening and putting away works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, Conflict, shown
from ..ledger.checks import check_name
from ..ledger.events import new_id
from ..verbs import TaskId, verb
from .patterns import tasks_of
from .verbs import Work, begin, home_of, opened, stale, works_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .transaction import WorkInfo

    WorkInfos = list[WorkInfo]


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
    def list(self, status: str | None = None, *, at: At = None) -> WorkInfos:
        """The works that this actor may know of, those of one status if it is named.

        `status` is active, paused, completed, cancelled or archived."""
        return works_of(self._session, status, at)

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
                try:
                    work(self._session, info.id).manage.archive()
                except Conflict:
                    continue  # somebody else has done it meanwhile, or opened it again
            archived.append((info.id, why))
        return archived


Archived = list[tuple[str, str]]
