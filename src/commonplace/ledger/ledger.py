"""One opened ledger: its store, its registry, and the rules that hold for every book.

What the ledger itself brings is a capability like any other: the command `record` and a few
small views. A plain event touches no row but the first of its run; events with parents or blobs touch more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from ..access.commands import LIMITED, check_emits, scope_of_run
from ..engines.contract import Head, Reads, Record, Store
from ..errors import BadInput, BookClosed, CommonplaceError, Corrupt, Denied, OwnedKind
from .checks import check_position, to_us
from .clocks import CLOCKS, now_us, position_at
from .committer import Committer
from .erase import erase_payloads
from .events import ERASED, Draft, Event, erased_by, new_id, unseal
from .keys import pack
from .overlay import CHECKPOINTS, Overlay
from .reader import PAGE, Snapshot, check_horizon
from .scopes import SCOPES, Bound, Guarded, InScope, decide_in_scope
from .upkeep import rebuild
from .views import (
    Capability,
    Kind,
    Meta,
    Registry,
    View,
    read_meta,
    read_row,
    write_row,
)

At = int | datetime | None
"""As of when: a position, a time with a timezone, or None for now."""

Progress = Callable[[int, int], None]
"""Told (done, total) while something long goes on."""

IMPORTED = "event.imported"
FIRST_PAGE = 16


# the ledger's own capability


def decide_record(overlay: Overlay, drafts: list[Draft]) -> list[Event] | Denied:
    for draft in drafts:
        owner = overlay.registry.owner(draft.kind)
        if owner is not None:
            raise OwnedKind(
                f"{draft.kind!r} belongs to {owner!r} and can only come from its commands: "
                "record a kind of your own, such as 'agent.spoke'"
            )
    runs = [(run,) for run in {draft.run_id for draft in drafts} if run is not None]
    overlay.prefetch([("rights", LIMITED), *((view, run) for run in runs for view in ("runs", "state.runs"))])
    places = dict.fromkeys((draft.actor, draft.run_id) for draft in drafts)
    scopes = {place: scope_of_run(overlay, *place) for place in places}
    refused = check_emits(overlay, drafts)
    return refused or [overlay.emit(draft, scopes[draft.actor, draft.run_id]) for draft in drafts]


RUNS = View(
    "runs",
    1,
    keys=lambda event: () if event.run_id is None else ((event.run_id,),),
    fold=lambda _key, before, event: before or event.position,
    header_only=True,
)
CHILDREN = View(
    "children",
    1,
    keys=lambda event: [(parent, event.position) for parent in set(event.parents)] if event.parents else (),
    fold=lambda _key, _before, event: event.id,
    header_only=True,
    insert_only=True,
)
BLOBS = View(
    "blobs",
    1,
    keys=lambda event: [(digest, event.position) for digest in event.blobs] if event.blobs else (),
    fold=lambda _key, _before, _event: True,
    insert_only=True,
)

ERASURES = View(
    "erasures",
    1,
    keys=lambda event: [(gone.position,) for gone in erased_by(event)],
    fold=lambda _key, _before, event: event.id,
    kinds=frozenset({ERASED}),
)
"""Which event erased the one at a position."""

LEDGER = Capability(
    "ledger",
    kinds=(Kind(ERASED, effect=erase_payloads), Kind(IMPORTED)),
    commands={"record": decide_record},
    views=(RUNS, CHILDREN, BLOBS, CLOCKS, ERASURES),
)


class Ledger:
    """Reads, writes and upkeep of one book. `Book` gives it the verbs that people use."""

    def __init__(
        self, store: Store, registry: Registry, name: str, embedder: Callable[[], str] = lambda: "static"
    ) -> None:
        """`embedder` says what is noted in a book that is made now."""
        self.store = store
        self.registry = registry
        self.closed = False
        self.created = False
        """Whether this very opening made the book, which holds nothing that somebody else has written."""
        self.after_erasure: Callable[[Sequence[str]], None] = lambda _ids: None
        """Called with the ids of erased events once that is durable: what was made from them outside of the ledger
        (index, markdown, state files) has to go, too."""
        self._known = (b"", Meta(book="", name=name, created_at=0))
        self._committer = Committer(store, registry, self.meta_of)
        self._left_by = lru_cache(maxsize=16)(self._residues)
        self._open(name, embedder)

    def _open(self, name: str, embedder: Callable[[], str]) -> None:
        with self.store.read() as reads:
            raw, empty = reads.head.meta, reads.head.position == 0
        if not raw:
            self.created = self.run(_create, (name, embedder())) and empty
            return
        outdated = self.meta_of(Head(meta=raw)).outdated(self.registry)
        if outdated:
            rebuild(self, [view.name for view in outdated])

    def meta_of(self, head: Head) -> Meta:
        """The book's own record as of this head, checked whenever it has changed."""
        raw, meta = self._known
        if head.meta != raw:
            meta = read_meta(head.meta)
            meta.outdated(self.registry)
            self._known = (head.meta, meta)
        return meta

    @property
    def meta(self) -> Meta:
        with self.store.read() as reads:
            return self.meta_of(reads.head)

    # writing

    def submit(
        self,
        command: str,
        request: Any,
        size: int = 1,
        bound: Bound | None = None,
        guard: tuple[str, str, str | None] | None = None,
    ) -> Any:
        """Run a command, for a session that may be bound to a scope. A decider that answers with an error has recorded
        that it refused; it is raised. `guard` names the command that first decides whether an actor may write at all,
        the actor, and its run."""
        capability, decide = self.registry.command(command)
        if guard is not None:
            name, actor, run = guard
            request = Guarded(actor, run, capability, decide, request)
            capability, decide = self.registry.command(name)
        if bound is not None:
            request = InScope(bound, capability, decide, request)
            capability, decide = SCOPES.name, decide_in_scope
        answer, erased = self._committer.run(capability, decide, request, size)
        if erased:
            self.after_erasure(erased)
        if isinstance(answer, CommonplaceError):
            raise answer
        return answer

    def run(self, decide: Callable[[Overlay, Any], Any], request: Any) -> Any:
        """Run one of the ledger's own deciders that has no public name."""
        answer, _ = self._committer.run(LEDGER.name, decide, request)
        return answer

    # reading

    @contextmanager
    def reads(self) -> Iterator[Reads]:
        """A snapshot whose rows are complete."""
        while True:
            with self.store.read() as reads:
                if reads.folded >= reads.head.position:
                    yield reads
                    return
            self.run(_nothing, None)  # a transaction folds what is missing before it begins

    @contextmanager
    def snapshot(self, at: int | datetime | None = None, bound: Bound | None = None) -> Iterator[Snapshot]:
        """The views as of `at`: a position or a time; None is now. For a reader that may be bound to a scope."""
        with self.reads() as reads:
            meta = self.meta_of(reads.head)
            position = None if at is None else position_at(reads, meta, at)
            if position is not None:
                check_horizon(meta, position)
            yield Snapshot(reads, self.registry, meta, position, bound)

    @property
    def head(self) -> int:
        """The last position; 0 when nothing has been recorded."""
        with self.store.read() as reads:
            return reads.head.position

    def position(self, at: At) -> int:
        """The position that `at` means: a position of this book, a time, or None for the last one."""
        if at is None:
            return self.head
        with self.reads() as reads:
            return position_at(reads, self.meta_of(reads.head), at)

    def ids_at(self, positions: Iterable[int]) -> list[str]:
        """The ids of the events at these positions."""
        return [event.id for position in positions for event in self.events(position - 1, position)]

    def moment(self, at: int | datetime | None = None) -> int:
        """The time that `at` means, in microseconds: now, a time, or when the event at a position was recorded."""
        if at is None:
            return now_us()
        if isinstance(at, datetime):
            return to_us("at", at)
        at = self.position(at)
        event = next(self.events(at - 1, at), None) if at else None
        return 0 if event is None else event.created_us

    def events(
        self,
        after: int = 0,
        upto: int | None = None,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
    ) -> Iterator[Event]:
        """Events in order, checked: a damaged or missing one raises Corrupt, it is never skipped."""
        for record in self.records(after, upto, run_id):
            event = self.registry.current(unseal(record))
            if (kinds is None or event.kind in kinds) and (actor is None or event.actor == actor):
                yield event

    def tail(
        self,
        after: int | None,
        timeout: float | None,
        run_id: str | None = None,
        kinds: Collection[str] | None = None,
        actor: str | None = None,
    ) -> Iterator[Event]:
        """Events as any process commits them, from the one after the position `after` on; None: only new ones. Ends
        when the book is closed, or when `timeout` seconds have brought nothing."""
        reached = self.head if after is None else check_position("after", after)
        quiet_since = time.monotonic()
        with suppress(BookClosed):
            while not self.closed:
                left = 3600.0 if timeout is None else quiet_since + timeout - time.monotonic()
                head = self.store.wait(reached, max(left, 0))
                if self.closed or (head <= reached and left <= 0):
                    return
                for event in self.events(reached, head, run_id, kinds, actor):
                    yield event
                    quiet_since = time.monotonic()
                reached = max(reached, head)
                if timeout is not None and time.monotonic() - quiet_since > timeout:
                    return

    def records(
        self, after: int = 0, upto: int | None = None, run_id: str | None = None
    ) -> Generator[Record, None, None]:
        """Records page by page, each page from a snapshot of its own, so that a slow reader holds nothing up.
        The end is fixed when reading begins. Pages grow: who wants one event does not pay for many."""
        size = FIRST_PAGE
        while True:
            with self.store.read() as reads:
                upto = reads.head.position if upto is None else min(upto, reads.head.position)
                page = reads.records(after, upto, size, run_id)
            for record in page:
                if run_id is None and record.position != after + 1:
                    raise _missing(after + 1)
                after = record.position
                yield record
            if len(page) < size:
                if run_id is None and after < upto:
                    raise _missing(after + 1)
                return
            size = min(PAGE, size * 4)

    def event(self, id: str) -> Event | None:
        with self.store.read() as reads:
            record = reads.by_id((id,)).get(id)
        return None if record is None else self.registry.current(unseal(record))

    def events_by_id(self, ids: Collection[str]) -> list[Event]:
        """Those of these events that there are, in one trip to the engine."""
        with self.store.read() as reads:
            records = reads.by_id(ids) if ids else {}
        return [self.registry.current(unseal(record)) for record in records.values()]

    def residue(self, event: Event) -> Event | None:
        """An erased event with what its kind kept of the payload; None when nothing was kept."""
        with self.snapshot() as now:
            erasure = now.get("erasures", event.position)
        kept = None if erasure is None else self._left_by(erasure).get(event.position)
        return None if kept is None else msgspec.structs.replace(event, payload=kept)

    def _residues(self, erasure: str) -> dict[int, dict[str, Any] | None]:
        """What the events that an erasure erased have left behind, by their positions."""
        event = self.event(erasure)
        return {} if event is None else {gone.position: gone.residue for gone in erased_by(event)}

    def blob(self, digest: str) -> bytes | None:
        """A blob's content, checked against its name."""
        with self.store.read() as reads:
            data = reads.blob(digest)
        if data is not None and (type(data) is not bytes or sha256(data).hexdigest() != digest):
            raise Corrupt(f"the blob {digest} is damaged: restore the book from a backup or a copy")
        return data

    # upkeep

    def raise_horizon(self, position: int) -> int:
        """Declare that nobody will ask for views before `position`, and drop the versions that only such
        questions could see. Answers how many. Events are never dropped."""
        self.run(_raise_horizon, position)
        meta = self.meta
        return sum(self.store.trim(meta.space(view), meta.horizon) for view in self.registry.views.values())

    def follow(self, name: str) -> int:
        """Let a trailing view catch up; answer the position as of which it now speaks."""
        view = self.registry.view(name)
        if not view.trailing:
            raise BadInput(f"the view {name!r} is inline: it never lags, so there is nothing to follow")
        while True:
            reached, end = self.run(_follow_page, view)
            if reached >= end:
                return int(reached)

    def speaks_as_of(self, name: str) -> int:
        """The position as of which a view speaks: the head, unless it is trailing."""
        view = self.registry.view(name)
        with self.reads() as reads:
            if not view.trailing:
                return reads.head.position
            key = pack((self.meta_of(reads.head).space(view),))
            row = reads.get(CHECKPOINTS, (key,)).get(key)
            return 0 if row is None else int(read_row(row))


def _missing(position: int) -> Corrupt:
    return Corrupt(
        f"event {position} is missing from the ledger. Run `commonplace book verify`, and restore from a backup "
        "or a copy",
        position,
    )


# deciders without a public name


def _nothing(_overlay: Overlay, _request: None) -> None:
    return None


def _create(overlay: Overlay, made_as: tuple[str, str]) -> bool:
    """Make the book's own record. False: another process was quicker."""
    if overlay.tx.head.meta:
        return False
    name, embedder = made_as
    meta = Meta(book=new_id(), name=name, created_at=overlay.now, embedder=embedder)
    overlay.set_meta(meta.with_generations(overlay.registry.views.values()))
    return True


def _raise_horizon(overlay: Overlay, position: int) -> None:
    if not 0 <= position <= overlay.position:
        raise BadInput(f"{position} is not in this book: give a position from 0 to {overlay.position}")
    if position > overlay.meta.horizon:
        overlay.set_meta(msgspec.structs.replace(overlay.meta, horizon=position))


def _follow_page(overlay: Overlay, view: View) -> tuple[int, int]:
    reached, key = overlay.folded(view), pack((overlay.meta.space(view),))
    page = overlay.records(reached, PAGE)
    for record in page:
        overlay.fold_record(record, (view,), overlay.meta)
    if page:
        reached = page[-1].position
        overlay.put(write_row(CHECKPOINTS, key, reached, reached))
    return reached, overlay.position
