"""Acting as somebody: the book's verbs under one actor's rights.

Whatever an actor reads passes `Sight`: it shows what the actor was allowed to see then and is allowed to see
now, and takes out what nobody should read. What it may not see is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from .access.commands import Denial, Grant, Look, Relabel
from .access.redact import Redactor
from .access.rights import Rights, may_see, rights_of, subject_of
from .commit import Snapshot
from .errors import Denied, NotFound
from .events import Event
from .state.commands import redactor_of
from .state.diff import Difference

if TYPE_CHECKING:
    from .book import At, Book
    from .ledger import Progress
    from .state.run import Run
    from .workflow.model import Workflow


class Sight:
    """What one actor may see of the ledger as of one moment."""

    def __init__(self, actor: str, open: Callable[[int | None], AbstractContextManager[Snapshot]]) -> None:
        self.actor = actor
        self._open = open
        self._redactors: dict[str, tuple[int, Redactor]] = {}

    def events(self, events: Iterable[Event], at: int | None = None) -> Iterator[Event]:
        """Those of the events that the actor may see, without secrets."""
        now, then = self._rights(None), self._rights(at)
        for event in events:
            if self._allowed(event, then, at) and (at is None or self._allowed(event, now, None)):
                yield self.redacted(event)

    def _rights(self, at: int | None) -> Rights:
        with self._open(at) as snapshot:
            return rights_of(snapshot, self.actor)

    def _allowed(self, event: Event, rights: Rights, at: int | None) -> bool:
        if not may_see(rights, event, {}):  # the labels can only take away
            return False
        with self._open(at) as snapshot:
            return may_see(rights, event, {**event.labels, **(snapshot.get("labels", event.id) or {})})

    def redacted(self, event: Event) -> Event:
        """The event as a log or a page may show it."""
        if event.run_id is None or event.erased:
            return event
        hide = self._redactor(event.run_id)
        if not hide:
            return event
        return msgspec.structs.replace(event, payload=hide(event.payload))

    def _redactor(self, run: str) -> Redactor:
        with self._open(None) as snapshot:
            row = snapshot.get("state.sums", run)
            moved = 0 if row is None else row["updated_us"]
            known = self._redactors.get(run)
            if known is None or known[0] != moved:
                known = self._redactors[run] = (moved, redactor_of(snapshot, run))
        return known[1]


class Actor:
    """One actor of a book. `book.as_actor(name)` makes one.

    Everything it does is recorded under its name and checked against its rights; everything it reads is
    limited to what it may see. A refusal is `Denied`, and an event that the owner can read.
    """

    def __init__(self, book: Book, name: str, looking: str | None = None) -> None:
        self._book = book
        self.name = name
        self._looking = looking

    # what it may

    def rights(self, at: At = None) -> Rights:
        """What this actor may do and see, as of `at`."""
        with self._book.snapshot(at) as snapshot:
            return rights_of(snapshot, self.name)

    def grant(self, actor: str, **rule: Any) -> None:
        """Change somebody's rights, which needs the right to: see `Book.grant`."""
        self._acts("grant")
        self._book.submit("access.grant", Grant(self.name, subject_of(actor), rule))

    def relabel(
        self, id: str, *, reason: str, sensitivity: str | None = None, trust: str | None = None
    ) -> Event:
        """Change how sensitive or trusted an event that it can see counts. Only a person may make it less
        strict."""
        self._acts("relabel")
        self.event(id)
        given = {"sensitivity": sensitivity, "trust": trust}
        labels = {name: value for name, value in given.items() if value is not None}
        event: Event = self._book.submit("access.relabel", Relabel(self.name, id, labels, reason))
        return event

    def view_of(self, other: str) -> Actor:
        """What another actor sees, to look and not to touch. It is a right of its own, and it is recorded."""
        self._book.submit("access.look", Look(self.name, other))
        return Actor(self._book, other, looking=self.name)

    # writing

    def record(self, kind: str, **fields: Any) -> Event:
        """As `Book.record`, by this actor."""
        self._acts(kind)
        return self._book.record(kind, **self._mine(fields))

    def record_all(self, events: Iterable[Mapping[str, Any]]) -> list[Event]:
        """As `Book.record_all`, by this actor."""
        self._acts("record_all")
        return self._book.record_all([self._mine(dict(fields)) for fields in events])

    def _mine(self, fields: dict[str, Any]) -> dict[str, Any]:
        if fields.get("actor", self.name) != self.name:
            self._deny("record as", str(fields["actor"]), "only the owner records in the name of others")
        return {**fields, "actor": self.name}

    def _acts(self, what: str) -> None:
        if self._looking is not None:
            told = f"{self._looking!r} is looking through the eyes of {self.name!r} and may not act as it"
            self._deny("act as", what, told, self._looking)

    def _deny(self, act: str, what: str, told: str, actor: str | None = None) -> None:
        self._book.submit("access.deny", Denial(actor or self.name, act, what))
        raise Denied(told)

    # reading

    def events(
        self,
        after: int = 0,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
        at: At = None,
    ) -> Iterator[Event]:
        """As `Book.events`, limited to what this actor may see."""
        upto = None if at is None else self._book.position(at)
        return self._sight.events(self._book.events(after, run_id, kinds, actor, at), upto)

    def event(self, id: str, at: At = None) -> Event:
        """One event by its id. One that it may not see is NotFound like one that is not there."""
        upto = None if at is None else self._book.position(at)
        found = self._book.event(id, at)
        for event in self._sight.events([found], upto):
            return event
        self._book.submit("access.deny", Denial(self.name, "event", id))
        raise NotFound(f"there is no event {id!r} in this book" + ("" if at is None else " as of then"))

    def watch(
        self,
        after: int | None = None,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
        timeout: float | None = None,
    ) -> Iterator[Event]:
        """As `Book.watch`, limited to what this actor may see, under the rights in force as each event comes."""
        for event in self._book.watch(after, run_id, kinds, actor, timeout):
            yield from self._sight.events([event])

    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """As `Book.export`, limited to what this actor may see and without secrets."""
        from .transfer import excerpt_file

        upto = self._book.position(at)
        return excerpt_file(self._book._ledger, self.events(at=at), Path(to), upto, progress)

    @property
    def _sight(self) -> Sight:
        return Sight(self.name, self._book.snapshot)

    # runs

    def run(
        self,
        workflow: str | Path | Workflow | None = None,
        run_id: str | None = None,
        initial: Mapping[str, Any] | None = None,
    ) -> Run:
        """As `Book.run`, as this actor: its state is what the actor may see of it."""
        if self._looking is not None and run_id is None:
            self._acts("run")
        return self._book._run(self.name, workflow, run_id, initial)

    def diff(self, a: str, b: str) -> list[Difference]:
        """As `Book.diff`, between what this actor may see of each."""
        return self._book._diff(self.name, a, b)

    def __repr__(self) -> str:
        return f"<Actor {self.name!r}>"
