"""One opened ledger: its store, its registry, and the rules that hold for every book.

What the ledger itself brings is a capability like any other: the command `record` and a few
small views. A plain event touches no row but the first of its run; events with parents or blobs touch more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Any

import msgspec

from ..access.commands import check_emits
from ..engines.contract import Head, Reads, Record, Store
from ..errors import BadInput, BookClosed, Busy, CommonplaceError, Corrupt, Denied, OwnedKind, shown
from .checks import check_position, iso, to_us
from .committer import Committer
from .erase import erase_payloads
from .events import A_DAY, ERASED, Draft, Event, erased_by, new_id, read_header, unseal
from .keys import pack
from .overlay import CHECKPOINTS, Overlay
from .reader import PAGE, Snapshot, check_horizon
from .views import (
    Capability,
    Kind,
    Meta,
    Registry,
    View,
    read_meta,
    read_row,
    space,
    write_meta,
    write_row,
)

At = int | datetime | None
"""As of when: a position, a time with a timezone, or None for now."""

Progress = Callable[[int, int], None]
"""Told (done, total) while something long goes on."""

IMPORTED = "event.imported"
FIRST_PAGE = 16
A_SECOND, A_MINUTE = 1_000_000, 60_000_000
"""In microseconds: how long ago `at=` may lie and still mean now, where the ledger is ahead of this clock."""


# the ledger's own capability


def decide_record(overlay: Overlay, drafts: list[Draft]) -> list[Event] | Denied:
    for draft in drafts:
        owner = overlay.registry.owner(draft.kind)
        if owner is not None:
            raise OwnedKind(
                f"{draft.kind!r} belongs to {owner!r} and can only come from its commands: "
                "record a kind of your own, such as 'agent.spoke'"
            )
    return check_emits(overlay, drafts) or [overlay.emit(draft) for draft in drafts]


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
    fresh=True,
)
BLOBS = View(
    "blobs",
    1,
    keys=lambda event: [(digest, event.position) for digest in event.blobs] if event.blobs else (),
    fold=lambda _key, _before, _event: True,
    fresh=True,
)

CLOCKS = View(
    "clocks",
    1,
    keys=lambda event: () if event.clock_us is None else ((event.clock_us, event.position),),
    fold=lambda _key, _before, event: event.position,
    header_only=True,
    fresh=True,
)
"""The events whose recorders had a clock that did not fit the ledger, by what it said."""

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


class Verification(msgspec.Struct, frozen=True):
    """Whether the chain holds. `first_bad` is the first position at which it does not, and `problem` why. A
    problem without a position means: the chain holds, but an index or a view beside it is damaged."""

    ok: bool
    first_bad: int | None
    problem: str | None
    events: int
    erased: int
    head: int
    hash: str


class Rebuilt(msgspec.Struct, frozen=True):
    """The views that were built anew, and how many events they were folded from."""

    views: tuple[str, ...]
    events: int


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
            self.rebuild([view.name for view in outdated])

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

    def submit(self, command: str, request: Any, size: int = 1) -> Any:
        """Run a command. A decider that answers with an error has recorded that it refused; it is raised."""
        answer = self._committer.run(*self.registry.command(command), request, size)
        if isinstance(answer, CommonplaceError):
            raise answer
        return answer

    def run(self, decide: Callable[[Overlay, Any], Any], request: Any) -> Any:
        """Run one of the ledger's own deciders that has no public name."""
        return self._committer.run(LEDGER.name, decide, request)

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
    def snapshot(self, at: int | datetime | None = None) -> Iterator[Snapshot]:
        """The views as of `at`: a position or a time; None is now."""
        with self.reads() as reads:
            meta = self.meta_of(reads.head)
            position = None if at is None else self._position(reads, meta, at)
            if position is not None:
                check_horizon(meta, position)
            yield Snapshot(reads, self.registry, meta, position)

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
            return self._position(reads, self.meta_of(reads.head), at)

    def ids_at(self, positions: Iterable[int]) -> list[str]:
        """The ids of the events at these positions."""
        return [event.id for position in positions for event in self.events(position - 1, position)]

    def moment(self, at: int | datetime | None = None) -> int:
        """The time that `at` means, in microseconds: now, a time, or when the event at a position was recorded."""
        if at is None:
            return _now()
        if isinstance(at, datetime):
            return to_us("at", at)
        event = next(self.events(at - 1, at), None) if at else None
        return 0 if event is None else event.created_us

    def _position(self, reads: Reads, meta: Meta, at: int | datetime) -> int:
        return resolve(reads, at, meta.space(CLOCKS), _now())

    def clock_trouble(self) -> tuple[str | None, str | None]:
        """What is wrong if the ledger is ahead of this clock by more than a day, and from which event on; and which
        event was recorded by a clock that was behind, if there is one."""
        now = _now()
        with self.reads() as reads:
            head, ahead, behind = reads.head, None, None
            if head.created_at - now > A_DAY:
                event = unseal(reads.records(*_one(_last_before(reads, now + A_DAY) + 1))[0])
                ahead = (
                    f"event {event.position}, recorded by {event.actor!r}, has the time {iso(event.created_us)}, "
                    f"{_days(event.created_us - now)} ahead of this clock, and so have all events since: set the clock "
                    "of its host right, or this one's. Until then `at=` goes by the clocks of those who record"
                )
            else:
                rows = reads.scan(self.meta_of(head).space(CLOCKS), limit=1, reverse=True)
                if rows:
                    event = unseal(reads.records(*_one(int(read_row(rows[0]))))[0])
                    told = event.created_us - (event.clock_us or 0)
                    behind = (
                        f"event {event.position}, recorded by {event.actor!r}, came from a clock that was "
                        f"{_days(told)} behind the ledger"
                    )
            return ahead, behind

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

    def verify(self, progress: Progress | None = None) -> Verification:
        """Walk the whole chain: positions, links, header hashes, payload digests, times, erasures."""
        reached = self.store.acknowledged()  # before the head: others may write meanwhile
        with self.store.read() as reads:
            head = reads.head
        position, previous, created_at = 0, bytes(32).hex(), 0
        blank: dict[int, str] = {}
        erasures: set[int] = set()
        problem: str | None = None
        try:
            for record in self.records(0, head.position):
                header, event = read_header(record), unseal(record)
                if header.previous != previous:
                    problem = "it does not follow from the event before it"
                elif header.created_at < created_at:
                    problem = "it was recorded before the event below it"
                if problem:
                    break
                if event.erased:
                    blank[event.position] = event.id
                elif event.kind == ERASED:
                    erasures |= {gone.position for gone in erased_by(event)}
                position, previous, created_at = header.position, event.hash, header.created_at
                if progress and position % PAGE == 0:
                    progress(position, head.position)
        except Corrupt as damage:
            problem = str(damage)
        if set(blank) - erasures:  # erased while we walked: the tombstone stands beyond where we began
            for tombstone in self.events(head.position, kinds=(ERASED,)):
                erasures |= {gone.position for gone in erased_by(tombstone)}
        unexplained = sorted(set(blank) - erasures)
        bad = position + 1 if problem else None
        if problem is None and previous != head.hash.hex():
            problem, bad = "the head does not match the last event", position
        if problem is None and reached > head.position:
            problem, bad = f"events up to {reached} had been acknowledged and are gone", head.position + 1
        if unexplained and (bad is None or unexplained[0] < bad):
            problem, bad = "its payload is missing and no erasure says why", unexplained[0]
        problem = problem or self.store.check() or self.damaged_row()
        return Verification(problem is None, bad, problem, position, len(blank), head.position, previous)

    def damaged_row(self, names: Collection[str] | None = None) -> str | None:
        """The first row of a view (all views unless some are named) that is not as it was written, if any."""
        with self.reads() as reads:
            meta = self.meta_of(reads.head)
            try:
                for view in map(self.registry.view, self.registry.views if names is None else names):
                    for row in reads.versions(meta.space(view)):
                        read_row(row)
            except Corrupt as damage:
                return str(damage)
        return None

    def rebuild(self, names: Collection[str] | None = None, progress: Progress | None = None) -> Rebuilt:
        """Fold views from the first event again, beside the ones in use, and switch at once."""
        views = [self.registry.view(name) for name in (self.registry.views if names is None else names)]
        holder = new_id()
        lease = self.store.lease("commonplace.rebuild", holder, 60)
        if lease.holder != holder:
            raise Busy(f"another process is rebuilding this book; wait for it (up to {lease.seconds:.0f} s)")
        try:
            with self.store.read() as reads:
                old = self.meta_of(reads.head)
            build = _Build(tuple(views), old, old.with_generations(views))
            for view in views:
                self.store.drop_spaces(space(view.name, build.after.views[view.name][1]))
            done, total = 0, 1
            while done >= 0:
                done, total = self.run(build.page, done)
                if self.store.lease("commonplace.rebuild", holder, 60).holder != holder:
                    raise Busy(
                        "another process took this rebuild over while this one stood still: let it end"
                    )
                if progress:
                    progress(total if done < 0 else done, total)
            for view in views:
                if view.name in old.views:
                    self.store.drop_spaces(old.space(view))
            if old.horizon:
                self.raise_horizon(old.horizon)
        finally:
            self.store.lease("commonplace.rebuild", holder, 0)
        return Rebuilt(tuple(view.name for view in views), total)

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


def resolve(reads: Reads, at: int | datetime, clocks: str, now: int) -> int:
    """The position that `at` means. A time means the last event recorded at or before it.

    Where the ledger is ahead of this clock, now means all there is. Where it is ahead by more than a day, somebody has
    recorded with a wrong clock, and what came later cannot have an earlier time: there, a time means the last event
    whose recorder's own clock had not passed it.
    """
    if isinstance(at, datetime):
        moment = to_us("at", at)
        ahead = reads.head.created_at - now
        if ahead > 0 and moment > now - (A_MINUTE if ahead > A_DAY else A_SECOND):
            return reads.head.position
        position = _last_before(reads, moment)
        if ahead <= A_DAY:
            return position
        rows = reads.scan(clocks, b"", pack((moment + 1,)), limit=1, reverse=True)
        said = [record for row in rows for record in reads.records(*_one(int(read_row(row))))]
        return max([position, *(one.position for one in said if one.created_at - now > A_DAY)])
    if type(at) is not int or not 0 <= at <= reads.head.position:
        raise BadInput(
            f"at={shown(at)} is not in this book: give a position from 0 to {reads.head.position}, or a time"
        )
    return at


def _last_before(reads: Reads, moment: int) -> int:
    """The last event with this time or an earlier one; 0 if there is none."""
    low, high = 0, reads.head.position
    while low < high:  # created_at never decreases, so the ledger is its own index of time
        middle = (low + high + 1) // 2
        if reads.records(*_one(middle))[0].created_at <= moment:
            low = middle
        else:
            high = middle - 1
    return low


def _one(position: int) -> tuple[int, int, int]:
    return position - 1, position, 1


def _now() -> int:
    return time.time_ns() // 1000


def _days(microseconds: int) -> str:
    days = microseconds // A_DAY
    return f"{days:,} days" if days < 730 else f"{days / 365.25:.1f} years"


def _missing(position: int) -> Corrupt:
    return Corrupt(
        f"event {position} is missing from the ledger. Run `commonplace book verify`, and restore from a backup "
        "or a copy",
        position,
    )


# deciders without a public name


def _nothing(_overlay: Overlay, _request: None) -> None:
    return None


def _set_meta(overlay: Overlay, meta: Meta) -> None:
    overlay.meta = meta
    overlay.write.meta = write_meta(meta)


def _create(overlay: Overlay, made_as: tuple[str, str]) -> bool:
    """Make the book's own record. False: another process was quicker."""
    if overlay.tx.head.meta:
        return False
    name, embedder = made_as
    meta = Meta(book=new_id(), name=name, created_at=overlay.now, embedder=embedder)
    _set_meta(overlay, meta.with_generations(overlay.registry.views.values()))
    return True


def _raise_horizon(overlay: Overlay, position: int) -> None:
    if not 0 <= position <= overlay.position:
        raise BadInput(f"{position} is not in this book: give a position from 0 to {overlay.position}")
    if position > overlay.meta.horizon:
        _set_meta(overlay, msgspec.structs.replace(overlay.meta, horizon=position))


def _follow_page(overlay: Overlay, view: View) -> tuple[int, int]:
    reached, key = overlay.folded(view), pack((overlay.meta.space(view),))
    page = overlay.records(reached, PAGE)
    for record in page:
        _fold_record(overlay, record, (view,), overlay.meta)
    if page:
        reached = page[-1].position
        overlay.put(write_row(CHECKPOINTS, key, reached, reached))
    return reached, overlay.position


def _fold_record(overlay: Overlay, record: Record, views: Collection[View], meta: Meta) -> None:
    event = overlay.registry.current(unseal(record))
    overlay.fold(event, [view for view in views if view.kinds is None or event.kind in view.kinds], meta)


class _Build(msgspec.Struct, frozen=True):
    """Views being built in their next generation."""

    views: tuple[View, ...]
    before: Meta
    after: Meta

    def page(self, overlay: Overlay, done: int) -> tuple[int, int]:
        """Fold the next page. When nothing is left, switch, and answer -1 for done."""
        if overlay.meta.views != self.before.views:
            raise Busy("another process changed this book's views meanwhile; rebuild again")
        page = overlay.records(done, PAGE)
        for record in page:
            _fold_record(overlay, record, self.views, self.after)
        if len(page) == PAGE:
            return page[-1].position, overlay.position
        for view in self.views:
            if view.trailing:
                key = pack((self.after.space(view),))
                overlay.put(write_row(CHECKPOINTS, key, overlay.position, overlay.position))
        _set_meta(overlay, msgspec.structs.replace(overlay.meta, views=self.after.views))
        return -1, overlay.position
