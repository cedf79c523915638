"""Acting as somebody: the book's verbs under one actor's rights.

Whatever an actor reads passes `Sight`: it shows what the actor was allowed to see then and is allowed to see
now, and takes out what nobody should read. What it may not see is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .access.commands import Denial, Grant, Look, Relabel
from .access.redact import Redactor
from .access.rights import Rights, check_actor, may_see, rights_of, subject_of
from .commit import Snapshot
from .errors import BadInput, Denied, NotFound, shown
from .events import Event, check_name, check_text
from .recall.verbs import Recalling
from .state.diff import Difference
from .state.redaction import moved, redacted, redactor_of

if TYPE_CHECKING:
    from .book import At, Book, RunInfo
    from .ledger import Ledger, Progress
    from .state.run import Run
    from .workflow.model import Workflow


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


class Actor(Recalling):
    """One actor of a book. `book.as_actor(name)` makes one.

    Everything it does is recorded under its name and checked against its rights; everything it reads is
    limited to what it may see. A refusal is `Denied`, and an event that the owner can read.
    """

    def __init__(self, book: Book, name: str, looking: str | None = None) -> None:
        self._book = book
        self.name = name
        self._looking = looking

    @property
    def _ledger(self) -> Ledger:  # type: ignore[override]
        return self._book._ledger

    @property
    def _memory_actor(self) -> str:
        return self.name

    def _memory_acts(self, act: str) -> None:
        self._acts(act)

    @property
    def _only_looks_at_memory(self) -> bool:
        return self._looking is not None

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
        request = Relabel(self.name, id, labels, check_text("reason", reason))
        event: Event = self._book.submit("access.relabel", request)
        return event

    def view_of(self, other: str) -> Actor:
        """What another actor sees, to look and not to touch. It is a right of its own, and it is recorded."""
        self._acts("view_of")
        self._book.submit("access.look", Look(self.name, check_actor(other)))
        return Actor(self._book, other, looking=self.name)

    # writing

    def record(self, kind: str, **fields: Any) -> Event:
        """As `Book.record`, by this actor."""
        self._acts(kind)
        return self._book.record(kind, **self._mine(fields))

    def record_all(self, events: Iterable[Mapping[str, Any]]) -> list[Event]:
        """As `Book.record_all`, by this actor."""
        self._acts("record_all")
        if not isinstance(events, Iterable):
            raise BadInput(f"events {shown(events)} is not a list: give one, such as [...]")
        return self._book.record_all([self._mine(fields) for fields in events])

    def _mine(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if not isinstance(fields, Mapping):
            raise BadInput(
                f"an event of a batch is a mapping of fields, not {type(fields).__name__}: give a dict"
            )
        if fields.get("actor", self.name) != self.name:
            self._deny("record as", str(fields["actor"]), "only the owner records in the name of others")
        return {**fields, "actor": self.name}

    def _acts(self, what: str) -> None:
        if self._looking is not None:
            self._deny("act as", what, self._only_looks, self._looking)

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
        found = self._book.events(after, run_id, kinds, actor, at)
        return self._sight.events(found, upto, self._book._ledger.event)

    def event(self, id: str, at: At = None) -> Event:
        """One event by its id. One that it may not see is NotFound like one that is not there."""
        upto = None if at is None else self._book.position(at)
        found = self._book._ledger.event(check_name("id", id))
        if found is not None and (upto is None or found.position <= upto):
            for event in self._sight.events([found], upto, self._book._ledger.event):
                return event
        self._book.submit("access.deny", Denial(self._looking or self.name, "event", id))
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
            yield from self._shown(event)

    def _shown(self, event: Event) -> list[Event]:
        """The event as this actor may see it now, or nothing."""
        return list(self._sight.events([event], None, self._book._ledger.event))

    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """As `Book.export`, limited to what this actor may see and without secrets."""
        from .transfer import excerpt_file

        if not isinstance(to, str | Path):
            raise BadInput(f"{shown(to)} is not a path: name the file to write")
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
        create: bool = True,
    ) -> Run:
        """As `Book.run`, as this actor: its state is what the actor may see of it."""
        if self._looking is None:
            return self._book._run(self.name, workflow, run_id, initial, create)
        if run_id is None or workflow is not None or initial is not None:
            self._acts("run")
        run = self._book._known_run(self.name, str(run_id))
        run.refuse_writes(self._only_looks)
        return run

    def runs(self, at: At = None) -> list[RunInfo]:
        """The runs that it knows of: of which it may see an event."""
        seen = {event.run_id for event in self.events(at=at)}
        return [run for run in self._book.runs(at) if run.id in seen]

    @property
    def _only_looks(self) -> str:
        return f"{self._looking!r} is looking through the eyes of {self.name!r} and may not act as it"

    def diff(self, a: str, b: str, *, redacted: bool = False) -> list[Difference]:
        """As `Book.diff`, between what this actor may see of each."""
        return self._book._diff(self.name, a, b, redacted)

    def __repr__(self) -> str:
        return f"<Actor {self.name!r}>"
