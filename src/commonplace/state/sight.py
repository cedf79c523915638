"""What one actor may see of the ledger.

Whatever an actor reads passes `Sight`: it shows what the actor was allowed to see then and is allowed to see
now, and takes out what nobody should read. What it may not see is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from msgspec.structs import replace

from ..access.redact import Redactor
from ..access.rights import Rights, may_see, rights_of
from ..commit import Snapshot
from ..events import Event
from .redaction import moved, redacted, redactor_of

PAGE = 200


class Sight:
    """What one actor may see of the ledger as of one moment."""

    def __init__(self, actor: str, open: Callable[[int | None], AbstractContextManager[Snapshot]]) -> None:
        self.actor = actor
        self._open = open
        self._redactors: dict[str, tuple[tuple[int, ...], Redactor]] = {}

    def events(
        self, events: Iterable[Event], at: int | None, parent: Callable[[str], Event | None]
    ) -> Iterator[Event]:
        """Those of the events that the actor may see, without secrets and without the ids of what it may not
        see. `parent` finds an event by its id. A page is judged at a time, each under the rights in force then."""
        source = iter(events)
        while page := list(islice(source, PAGE)):
            yield from self._page(page, at, parent)

    def _page(self, page: list[Event], at: int | None, parent: Callable[[str], Event | None]) -> list[Event]:
        with self._open(None) as now, nullcontext(now) if at is None else self._open(at) as then:
            lenses = [now] if at is None else [then, now]
            judges = [(lens, rights_of(lens, self.actor)) for lens in lenses]

            def sees(event: Event) -> bool:
                return all(self._allowed(event, rights, lens) for lens, rights in judges)

            shown = []
            for event in filter(sees, page):
                known = [(id, parent(id)) for id in event.parents]
                kept = tuple(id for id, one in known if one is not None and sees(one))
                shown.append((event, kept))
        return [replace(self._without_secrets(event), parents=kept) for event, kept in shown]

    def _allowed(self, event: Event, rights: Rights, lens: Snapshot) -> bool:
        return may_see(rights, event, {**event.labels, **(lens.get("labels", event.id) or {})})

    def _without_secrets(self, event: Event) -> Event:
        """As a log may show it. In what the actor has said itself no secret of others is looked for: else it
        could guess, and see by what is taken out whether it guessed right."""
        if event.run_id is None or event.actor != self.actor or event.erased:
            return self.redacted(event)
        with self._open(None) as snapshot:
            return redacted(event, redactor_of(snapshot, event.run_id, said_by=self.actor))

    def redacted(self, event: Event) -> Event:
        """The event as a log or a page may show it."""
        if event.run_id is None or event.erased:
            return event
        return redacted(event, self._redactor(event.run_id))

    def _redactor(self, run: str) -> Redactor:
        with self._open(None) as snapshot:
            now = moved(snapshot, run)
            known = self._redactors.get(run)
            if known is None or known[0] != now:
                known = self._redactors[run] = (now, redactor_of(snapshot, run))
        return known[1]
