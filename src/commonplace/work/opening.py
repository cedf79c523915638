"""Beginning, opening and putting away works, for whoever acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..errors import BadInput, Conflict, shown
from ..events import check_name, new_id
from ..recall.verbs import Recalling

if TYPE_CHECKING:
    from ..book import At
    from ..events import Event
    from ..ledger import Ledger
    from ..recall.prompting import Focus
    from .transaction import WorkInfo
    from .verbs import Work


class Working(Recalling):
    """What everybody can do about works, each under its own rights."""

    def _watch_all(self, after: int | None, timeout: float | None) -> Iterator[Event]:
        """Everything as it happens, for a work to pick from what is its own; whoever uses these verbs says how."""
        return iter(())

    def work(
        self,
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

        `cores` give it its context; `pattern` is an entry of one of them whose tasks it begins with. `members` are
        those who may know of it; nobody is named: everybody. `on_failure` is what happens to tasks that fail, unless
        they say so themselves. With an `id` of your own and a name, the call can be repeated safely: a work that was
        begun with other content is a Conflict.
        """
        from .patterns import tasks_of
        from .verbs import begin, opened

        fields = {
            "name": name, "goal": goal, "constraints": constraints, "cores": cores, "pattern": pattern,
            "members": members, "limits": limits, "on_failure": on_failure, "settings": settings,
        }  # fmt: skip
        if name is None:
            if id is None:
                raise BadInput("say which work: an id opens one, and a name begins one")
            return opened(self, check_name("id", id), fields)
        fields["tasks"] = () if pattern is None else tasks_of(self, pattern)
        if self._only_looks_at_memory:
            self._memory_acts("work.create")
        return begin(self, new_id() if id is None else check_name("id", id), fields, by, self._memory_run)

    def work_of(self, id: str) -> Work:
        """The work that a task belongs to, or something else that was recorded about a work: a decision, a nudge, an
        escalation. Raises NotFound, also if whoever asks may not know of that work."""
        from .verbs import home_of

        return self.work(home_of(self, check_name("id", id)))

    def works(self, status: str | None = None, *, at: At = None) -> list[WorkInfo]:
        """The works that whoever asks may know of, those of one status if it is named."""
        from .verbs import works_of

        return works_of(self, status, at)

    def archive_works(
        self, *, older_than: timedelta | None = None, now: datetime | None = None, dry_run: bool = False
    ) -> list[tuple[str, str]]:
        """Put away the works that have been finished for long enough: longer than `older_than`, or than they say
        themselves (`auto_archive_hours`). Answers which, and why."""
        from .verbs import stale

        if older_than is not None and not isinstance(older_than, timedelta):
            raise BadInput(f"older_than {shown(older_than)} is not a timedelta, such as timedelta(days=30)")
        if now is not None and (not isinstance(now, datetime) or now.tzinfo is None):
            raise BadInput(f"now {shown(now)} is not a datetime with a time zone: datetime.now(UTC) is one")
        found = stale(self.works(), now or datetime.now(UTC), older_than)
        told = []
        for one, why in found:
            if not dry_run:
                try:
                    self.work(one.id).manage.archive()
                except Conflict:
                    continue  # somebody else has done it meanwhile, or opened it again
            told.append((one.id, why))
        return told


class Prompting:
    """The works of an opened book, for the prompts of whoever acts."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def focus(self, asker: Recalling, work: object) -> Focus:
        """A work for whoever asks. Raises NotFound if it may not know of it."""
        from .prompting import WorkFocus
        from .verbs import Work

        if not isinstance(work, str | Work):
            raise BadInput(f"work {shown(work)} is none: give a work, or its id")
        id = work.id if isinstance(work, Work) else check_name("work", work)
        own = Work(asker, id, asker._memory_run, looks=asker._only_looks_at_memory)
        own.info()
        return WorkFocus(own)

    def told(self, actor: str, premise: str) -> bool:
        """Whether an actor has been told of a change by a nudge."""
        from .kinds import NUDGED
        from .people import premise_nudge

        nudge = premise_nudge(premise)
        event = self._ledger.event(nudge)
        if event is None or event.kind != NUDGED or event.erased:
            return False
        with self._ledger.snapshot() as now:
            return now.get("work.told", event.payload["work"], actor, nudge) is not None
