"""What one actor may see of the ledger.

Whatever an actor reads passes `Sight`: it shows what the actor was allowed to see then and is allowed to see
now, and takes out what nobody should read. What it may not see is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from msgspec.structs import replace

from ..access.rights import rights_of
from ..events import Event
from ..memory.visibility import may_see, without_hidden
from ..reader import Snapshot
from .redaction import as_logged

PAGE = 200


class Sight:
    """What one actor may see of the ledger as of one moment; in a run, under its rules."""

    def __init__(
        self,
        actor: str,
        open: Callable[[int | None], AbstractContextManager[Snapshot]],
        run: str | None = None,
    ) -> None:
        self.actor = actor
        self._run = run
        self._open = open
        self.redacted = as_logged(open)
        """An event as a log or a page may show it."""

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
            judges = [(lens, rights_of(lens, self.actor, self._run)) for lens in lenses]

            def sees(event: Event) -> bool:
                return all(may_see(lens, rights, event) for lens, rights in judges)

            shown = []
            for event in filter(sees, page):
                known = [(id, parent(id)) for id in event.parents]
                kept = tuple(id for id, one in known if one is not None and sees(one))
                for lens, rights in judges:
                    event = without_hidden(lens, rights, event)
                shown.append((event, kept))
        return [replace(self.redacted(event), parents=kept) for event, kept in shown]
