"""What one actor may see of the ledger.

Everything an actor reads passes `EventVisibility`: it shows what the actor was allowed to see then and is allowed to
see now, without the secrets of runs. What the actor may not see looks as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice

from msgspec.structs import replace

from ..access.rights import Rights, rights_of
from ..ledger.encoding import decode
from ..ledger.events import Event, unseal
from ..ledger.labels import Labels
from ..ledger.reader import Snapshot
from ..memory.visibility import may_see, without_hidden
from .redaction import Redactors

FIRST_PAGE = 16
PAGE = 500


class VisibleEvents:
    """What an actor may see by one snapshot of now, and one of then if it asks about the past."""

    def __init__(self, snapshots: list[tuple[Snapshot, Rights]]) -> None:
        self._snapshots = snapshots
        self.now = snapshots[0][0]
        self._upto = snapshots[-1][0].position

    def visible(self, events: Sequence[Event]) -> Sequence[Event]:
        """Those of the events that the actor sees."""
        for snapshot, rights in self._snapshots:
            relabelled = _relabelled(snapshot, events)
            events = [
                event for event in events if may_see(snapshot, rights, event, relabelled.get(event.id, {}))
            ]
        return events

    def shown(self, event: Event, visible: Collection[str]) -> Event:
        """An event that the actor sees, without what it may not see of it: its parents are among the `visible`."""
        for snapshot, rights in self._snapshots:
            event = without_hidden(snapshot, rights, event)
        if all(id in visible for id in event.parents):
            return event
        return replace(event, parents=tuple(id for id in event.parents if id in visible))

    def visible_runs(self, first: Mapping[str, int]) -> set[str]:
        """The runs of which the actor sees an event, of these with the positions of their first ones."""
        visible, rest = set[str](), iter(first.items())
        while batch := dict(islice(rest, PAGE)):
            # Most runs show their second event, `run.started`; the others are read from their first one on.
            shown, _ = self._look(batch, 1)
            after, size = {run: position - 1 for run, position in batch.items() if run not in shown}, 2
            visible |= shown
            while after:
                shown, after = self._look(after, size)
                visible |= shown
                size = min(FIRST_PAGE, size * 2)
        return visible

    def _look(self, after: Mapping[str, int], size: int) -> tuple[set[str], dict[str, int]]:
        """Read the next events of runs. Returns the runs that show one, and where to read on in the others."""
        pages = {run: self._read(position, size, run) for run, position in after.items()}
        events = self.visible([event for page in pages.values() for event in page])
        shown = {str(event.run_id) for event in events}
        return shown, {run: page[-1].position for run, page in pages.items() if page and run not in shown}

    def _read(self, after: int, limit: int, run: str) -> list[Event]:
        records = self.now.reads.records(after, self._upto, limit, run)
        return [self.now.registry.current(unseal(record)) for record in records]


def _relabelled(snapshot: Snapshot, events: Sequence[Event]) -> dict[str, Labels]:
    """What the labels of these events were changed to. In most books few were: then all of them are read at once."""
    few = snapshot.scan("labels", limit=len(events))
    if len(few) < len(events):
        return {str(key[0]): labels for key, labels in few}
    changed = snapshot.get_all(decode, "labels", [(event.id,) for event in events])
    return {event.id: labels for event, labels in zip(events, changed, strict=True) if labels is not None}


class EventVisibility:
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
        self._redactors = Redactors()

    @contextmanager
    def judging(self, at: int | None) -> Iterator[VisibleEvents]:
        """Judge events by what the actor is allowed to see now and, where `at` is a position, was allowed then."""
        with ExitStack() as stack:
            moments = [None] if at is None else [None, at]
            snapshots = [stack.enter_context(self._open(moment)) for moment in moments]
            yield VisibleEvents([(each, rights_of(each, self.actor, self._run)) for each in snapshots])

    def events(
        self, events: Iterable[Event], at: int | None, by_id: Callable[[Collection[str]], Iterable[Event]]
    ) -> Iterator[Event]:
        """Those of the events that the actor may see, without secrets and without the ids of what it may not
        see. `by_id` finds events. Each page is judged under the rights in force then. Pages grow, so that a caller
        who wants one event does not pay for many."""
        source, size = iter(events), FIRST_PAGE
        while page := list(islice(source, size)):
            yield from self._page(page, at, by_id)
            size = min(PAGE, size * 4)

    def _page(
        self, page: list[Event], at: int | None, by_id: Callable[[Collection[str]], Iterable[Event]]
    ) -> list[Event]:
        with self.judging(at) as judge:
            events = judge.visible(page)
            others = {id for event in events for id in event.parents} - {event.id for event in page}
            parents = judge.visible(list(by_id(others))) if others else ()
            visible = {event.id for event in (*events, *parents)}
            return [self._redactors.redacted(judge.now, judge.shown(event, visible)) for event in events]
