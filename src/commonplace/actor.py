"""Acting as somebody: the book's verbs under one actor's rights."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .access.commands import Denial, Grant, Look, Relabel
from .access.rights import Rights, check_actor, rights_of, subject_of
from .errors import BadInput, Denied, NotFound, shown
from .events import Event, blobs_of, check_call, check_name, check_path, check_text
from .recall.receipts import TRACED
from .state.diff import Difference
from .state.sight import Sight
from .work.opening import Working

if TYPE_CHECKING:
    from .book import At, Book, RunInfo
    from .ledger import Ledger, Progress
    from .state.run import Run
    from .workflow.model import Workflow


class Actor(Working):
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
        batch = list(events)
        ids = [fields.get("id") for fields in batch if isinstance(fields, Mapping)]
        return self._book.record_all([self._mine(fields, ids) for fields in batch])

    def _mine(self, fields: Mapping[str, Any], batch: Collection[object] = ()) -> dict[str, Any]:
        """The fields of an event by this actor: it derives from what the actor may see, or from others of the batch."""
        if not isinstance(fields, Mapping):
            raise BadInput(
                f"an event of a batch is a mapping of fields, not {type(fields).__name__}: give a dict"
            )
        if fields.get("actor", self.name) != self.name:
            self._deny("record as", str(fields["actor"]), "only the owner records in the name of others")
        labels, parents = fields.get("labels"), fields.get("parents")
        if isinstance(labels, Mapping) and labels.get("trust") == "high" and not self.rights().may("relabel"):
            self._deny(
                "label",
                "trust high",
                "high trust is for a person to give: leave it out, or let one relabel it",
            )
        for parent in parents if isinstance(parents, list | tuple) else ():
            if isinstance(parent, str) and parent not in batch and not self._sees(parent):
                raise NotFound(f"there is no event {shown(parent)} to derive from: leave it out of parents")
        payload = fields.get("payload")
        sources = self._holding(blobs_of(payload)) if isinstance(payload, dict) else []
        if sources and (parents is None or isinstance(parents, list | tuple)):
            fields = {**fields, "parents": list(dict.fromkeys((*(parents or ()), *sources)))}
        return {**fields, "actor": self.name}

    def _holding(self, digests: Iterable[str]) -> list[str]:
        """An event that this actor may see for each blob that is referred to and not given: what refers to a blob is
        derived from what holds it, so it is erased with it. Raises NotFound."""
        sources = []
        for digest in digests:
            with self._book.snapshot() as now:
                positions = [int(key[1]) for key, _ in now.scan("blobs", digest)]
            holding = (next(self._book.events(at - 1, at=at), None) for at in positions)
            seen = (event for event in holding if event is not None and self._shown(event))
            source = next((event for event in seen if not event.erased and event.kind != TRACED), None)
            if source is None:
                raise NotFound(f"there is no blob {shown(digest)} to refer to: give its bytes, as Blob(data)")
            sources.append(source.id)
        return sources

    def _sees(self, id: str) -> bool:
        event = self._book._ledger.event(id)
        return event is not None and bool(self._shown(event))

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
        return self._sight.events(found, upto, self._book._ledger.events_by_id)

    def event(self, id: str, at: At = None) -> Event:
        """One event by its id. One that it may not see is NotFound like one that is not there."""
        upto = None if at is None else self._book.position(at)
        found = self._book._ledger.event(check_name("id", id))
        if found is not None and (upto is None or found.position <= upto):
            for event in self._sight.events([found], upto, self._book._ledger.events_by_id):
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

    def _watch_all(self, after: int | None, timeout: float | None) -> Iterator[Event]:
        return self._book.watch(after, timeout=timeout)

    def _shown(self, event: Event) -> list[Event]:
        """The event as this actor may see it now, or nothing."""
        return list(self._sight.events([event], None, self._book._ledger.events_by_id))

    def export(self, to: str | Path, *, at: At = None, progress: Progress | None = None) -> int:
        """As `Book.export`, limited to what this actor may see and without secrets."""
        from .transfer import excerpt_file

        path, upto = check_path("to", to), self._book.position(at)
        check_call("progress", progress)
        return excerpt_file(self._book._ledger, self.events(at=at), path, upto, progress)

    def _events_of(self, run: str, after: int, upto: int) -> Iterable[Event]:
        return self.events(after, run_id=run, at=upto)

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
        upto = None if at is None else self._book.position(at)
        with self._sight.judging(upto) as judge:
            runs = self._book.runs(upto)
            visible = judge.visible_runs({run.id: run.first for run in runs})
        return [run for run in runs if run.id in visible]

    @property
    def _only_looks(self) -> str:
        return f"{self._looking!r} is looking through the eyes of {self.name!r} and may not act as it"

    def diff(self, a: str, b: str, *, redacted: bool = False) -> list[Difference]:
        """As `Book.diff`, between what this actor may see of each."""
        return self._book._diff(self.name, a, b, redacted)

    def __repr__(self) -> str:
        return f"<Actor {self.name!r}>"
