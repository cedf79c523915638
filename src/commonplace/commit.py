"""How a write happens.

A command is data: a name and a request. Whoever holds the book's lock commits for everyone who is waiting:
it begins one transaction, runs each command's decider against an **Overlay** (the book as it is, plus what
the commands before it in this batch have written), and applies the one WriteSet that comes out of it.

    one writer      leads at once; no other thread is involved
    many threads    the first leads, the others queue; the next leader takes all that queued meanwhile
    a decider fails its part of the overlay is dropped; the others of the batch go on
    many processes  whoever is inside does what the others ask for while they wait for the lock, if it can
    trouble before  the leader gets the error, the others go again under a new leader
    trouble at the  everyone gets OutcomeUnknown with the ids of their own events
      commit
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from .engines.contract import (
    ROOM,
    Asked,
    Lease,
    Moved,
    Place,
    Reads,
    Record,
    Row,
    Served,
    Store,
    Tx,
    WriteSet,
    nothing,
)
from .errands import Errands, Told
from .errors import (
    BadInput,
    BeforeHorizon,
    Busy,
    CommonplaceError,
    Conflict,
    Erased,
    OutcomeUnknown,
    OwnedKind,
)
from .events import (
    ERASED,
    Draft,
    Event,
    decode,
    erased_by,
    event_of,
    read_header,
    recorded_at,
    same_content,
    seal,
    unseal,
)
from .keys import Key, below, pack, unpack
from .labels import Labels, flow
from .views import Decider, Meta, Registry, View, checked, damaged, read_row, write_row

if TYPE_CHECKING:
    from .engines.contract import Head

T = TypeVar("T")

MAX_BATCH = 256
MAX_BATCH_BYTES = 16 * 1024 * 1024
MAX_BATCH_SECONDS = 0.05
PAGE, FEW = 500, 32

RowName = tuple[str, Key]
"""A row by its view and key."""

CHECKPOINTS = "checkpoints/"
"""The space in which trailing views remember how far they have come."""


class Lens(ABC):
    """Views by name and key, as of one position. Snapshots and transactions look alike through it."""

    registry: Registry
    meta: Meta
    position: int
    past = False
    """Whether it shows an earlier position than the last one."""

    @abstractmethod
    def _row(self, space: str, key: bytes) -> Row | None: ...

    @abstractmethod
    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]: ...

    @abstractmethod
    def at(self, position: int) -> Lens:
        """The same as of an earlier position. Raises BeforeHorizon."""

    def _space(self, name: str) -> str:
        view = self.registry.view(name)
        if self.past and view.present:
            raise BadInput(f"the view {name!r} keeps no past: read it as of now")
        return self.meta.space(view)

    def get(self, view: str, *key: str | int) -> Any:
        """The value of one row, or None."""
        row = self._row(self._space(view), pack(key))
        return None if row is None or row.value is None else self._read_as(decode, row)

    def get_as(self, read: Callable[[bytes], T], view: str, *key: str | int) -> T | None:
        """The value of one row, read from its bytes by a function that may remember them."""
        row = self._row(self._space(view), pack(key))
        return None if row is None or row.value is None else self._read_as(read, row)

    def get_all(self, read: Callable[[bytes], T], view: str, keys: Sequence[Key]) -> list[T | None]:
        """The values of many rows of one view, each read from its bytes, in one trip to the engine."""
        packed = [pack(key) for key in keys]
        rows = self._some(self._space(view), packed)
        return [None if row is None or row.value is None else self._read_as(read, row) for row in rows]

    def _read_as(self, read: Callable[[bytes], T], row: Row) -> T:
        try:
            return read(self._bytes(row))
        except msgspec.MsgspecError as error:
            raise damaged(row) from error

    def _bytes(self, row: Row) -> bytes:
        return checked(row)

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        return [self._row(space, key) for key in keys]

    def scan(
        self, view: str, *prefix: str | int, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[Key, Any]]:
        """The rows whose key begins with these parts, in key order."""
        return self._scanned(view, *below(prefix), limit, reverse)

    def each(self, view: str, *prefix: str | int, reverse: bool = False) -> Iterator[tuple[Key, Any]]:
        """The same rows one by one, read page by page: for whoever stops when it has seen enough."""
        return self._paged(view, *below(prefix), reverse)

    def each_between(
        self, view: str, prefix: Key, first: str | int, last: str | int, reverse: bool = False
    ) -> Iterator[tuple[Key, Any]]:
        """The same for rows whose next part lies between two values, both included."""
        return self._paged(view, below((*prefix, first))[0], below((*prefix, last))[1], reverse)

    def _paged(self, view: str, start: bytes, end: bytes | None, reverse: bool) -> Iterator[tuple[Key, Any]]:
        size = FEW
        while True:
            page = self._scanned(view, start, end, size, reverse)
            yield from page
            if len(page) < size:
                return
            last = pack(page[-1][0])
            start, end = (start, last) if reverse else (last + b"\0", end)
            size = min(size * 4, PAGE)

    def between(
        self,
        view: str,
        prefix: Key,
        first: str | int,
        last: str | int,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[Key, Any]]:
        """The rows whose next part lies between two values, both included, all at once or the first few."""
        return self._scanned(view, below((*prefix, first))[0], below((*prefix, last))[1], limit, reverse)

    def _scanned(
        self, view: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[tuple[Key, Any]]:
        rows = self._rows(self._space(view), start, end, limit, reverse)
        values = [read_row(row) for row in rows]  # first: a damaged key could not be unpacked
        return [(unpack(row.key), value) for row, value in zip(rows, values, strict=True)]


class Snapshot(Lens):
    """The book as of a position."""

    def __init__(self, reads: Reads, registry: Registry, meta: Meta, at: int | None = None) -> None:
        self.reads = reads
        self.registry = registry
        self.meta = meta
        self.past = at is not None and at < reads.head.position
        self._at = at if self.past else None
        self.position = reads.head.position if at is None else at

    def at(self, position: int) -> Snapshot:
        check_horizon(self.meta, position)
        return Snapshot(self.reads, self.registry, self.meta, min(position, self.position))

    def _row(self, space: str, key: bytes) -> Row | None:
        return self.reads.get(space, (key,), self._at).get(key)

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        found = self.reads.get(space, keys, self._at)
        return [found.get(key) for key in keys]

    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]:
        return self.reads.scan(space, start, end, self._at, limit, reverse)


class Overlay(Lens):
    """The book inside one transaction: what the engine holds, with this batch's own writes on top.

    Deciders read through it and `emit` events into it. Nothing leaves it before the whole batch is applied.
    """

    def __init__(self, tx: Tx, registry: Registry, meta: Meta, residues: Residues, known: RowCache) -> None:
        self.tx = tx
        self.residues = residues
        self._known = known
        self.registry = registry
        self.meta = meta
        self.write = WriteSet()
        self.acting = ""
        self.now = tx.now
        self.position, self.hash, self.created_at, _ = tx.head
        self._latest: dict[Place, Row | None] = {}
        self._touched: dict[str, set[bytes]] = {}
        """The keys of each space that this batch has written to, be it undone again."""
        self._undo: list[tuple[Place, Row | None]] = []
        self._records: dict[str, Record] = {}
        self._blanked: set[int] = set()

    # reading

    def record_of(self, id: str) -> Record | None:
        """The stored form of an event, recorded earlier or in this very batch."""
        record = self._records.get(id) or self.tx.by_id((id,)).get(id)
        return None if record is None else self._as_is(record)

    def _as_is(self, record: Record) -> Record:
        return record._replace(body=None) if record.position in self._blanked else record

    def knows(self, id: str) -> bool:
        """Whether this very batch records an event with this id."""
        return id in self._records

    def event(self, id: str) -> Event | None:
        record = self.record_of(id)
        return None if record is None else self.registry.current(unseal(record))

    def records(self, after: int, limit: int) -> list[Record]:
        """The next records, this batch's included."""
        stored = self.tx.records(after, self.tx.head.position, limit)
        own = self.write.records[max(0, after + len(stored) - self.tx.head.position) :]
        return [self._as_is(record) for record in stored + own[: limit - len(stored)]]

    def event_at(self, position: int) -> Event:
        return self.registry.current(unseal(self.records(position - 1, 1)[0]))

    def folded(self, view: View) -> int:
        """The position up to which a view's rows are complete."""
        if not view.trailing:
            return self.position
        row = self._row(CHECKPOINTS, pack((self.meta.space(view),)))
        return 0 if row is None else int(read_row(row))

    @property
    def memo(self) -> dict[str, int]:
        """What this process remembers from one transaction to another, be it undone. Nothing but speed may depend on
        it."""
        return self._known.memo

    @property
    def kept(self) -> dict[Any, Kept]:
        """What deciders have made of rows and would make again, for as long as nobody else writes and no command
        fails."""
        return self._known.kept

    def lease(self, name: str) -> Lease | None:
        """The lease in force under this name, by the engine's clock."""
        return self.tx.leases((name,)).get(name)

    def at(self, position: int) -> Lens:
        check_horizon(self.meta, position)
        if position <= self.tx.head.position and not self.write.drops:
            return Snapshot(self.tx, self.registry, self.meta, position)
        return _Past(self, position)

    def _row(self, space: str, key: bytes) -> Row | None:
        place = (space, key)
        try:
            row = self._latest[place]
        except KeyError:
            known = self._known
            row = known.rows[place] if place in known.sound else self._read(place)
            self._latest[place] = row
        return None if row is None or row.value is None else row

    def _read(self, place: Place) -> Row | None:
        """A row as the engine has it, checked once: what a process has seen sound is sound as long as it is kept."""
        known, (space, key) = self._known, place
        if space not in known.spaces:
            row = self.tx.get(space, (key,)).get(key)
        else:
            if place not in known.rows:
                self._fetch([place])
            row = known.rows[place]
        if row is not None and row.value is not None:
            checked(row)
        if space in known.spaces:
            known.sound.add(place)
        return row

    def bring(self, now: Sequence[RowName], later: Callable[[], Iterable[RowName]] = tuple) -> None:
        """Read rows of inline views in one trip to the engine: if some of those that are wanted now are not known
        yet, with those that will be wanted later."""
        missing = self._unknown(now)
        if missing:
            ahead = self._unknown(later())
            if ahead:
                self._known.ahead = dict.fromkeys(ahead)
            self._fetch([*missing, *ahead])

    def at_hand(self, view: str, *key: str | int) -> bool:
        """Whether a row of an inline view can be read without a trip."""
        place = (self._space(view), pack(key))
        return not self.tx.far or place in self._latest or place in self._known.rows

    def _unknown(self, rows: Iterable[RowName]) -> list[Place]:
        places = ((self._space(view), pack(key)) for view, key in rows)
        return [one for one in places if one not in self._latest and one not in self._known.rows]

    def _bytes(self, row: Row) -> bytes:
        assert row.value is not None
        return row.value[4:]  # checked when it came

    def _space(self, name: str) -> str:
        known = self._known.names.get(name) if self.meta is self._known.meta else None
        return super()._space(name) if known is None else known

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        if len(keys) > 1 and space in self._known.spaces:
            latest, known = self._latest, self._known.rows
            self._fetch([one for key in keys if (one := (space, key)) not in latest and one not in known])
        return [self._row(space, key) for key in keys]

    def _fetch(self, places: Sequence[Place]) -> None:
        """Read rows of inline views. Where that is a trip to a server, those that the last transactions have read
        come along, if they have to be read anew: the next ones mostly look at the same."""
        if not places:
            return
        known = self._known.rows
        if self.tx.far:
            often = (one for one in self._known.often() if one not in known)
            places = list(dict.fromkeys((*places, *often)))
        found = self.tx.get_all(places)
        for one in places:
            known[one] = found.get(one)

    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]:
        own = {
            key: self._latest[space, key]
            for key in self._touched.get(space, ())
            if key >= start and (end is None or key < end)
        }
        stored = self.tx.scan(space, start, end, None, None if limit is None else limit + len(own), reverse)
        merged = {row.key: row for row in stored} | own
        rows = [row for row in merged.values() if row is not None and row.value is not None]
        rows.sort(key=lambda row: row.key, reverse=reverse)
        return rows[:limit]

    def versions(self, space: str, key: bytes) -> list[Row]:
        """Every version of one row, this batch's included, oldest first."""
        kept = {row.position: row for row in self.tx.versions(space, key, key + b"\0")}
        kept |= {row.position: row for row in self.write.rows if (row.space, row.key) == (space, key)}
        for where, which, position in self.write.drops:
            if (where, which) == (space, key):
                kept.pop(position, None)
        return [kept[position] for position in sorted(kept)]

    # writing

    def emit(self, draft: Draft) -> Event:
        """Record an event. The same id with the same content answers with the event it became the first
        time; with other content it is a Conflict; if that one was erased, Erased."""
        owner = self.registry.owner(draft.kind)
        if owner is not None and owner != self.acting:
            raise OwnedKind(
                f"{draft.kind!r} can only be recorded by the commands of {owner!r}; choose a kind of your own"
            )
        if draft.given_id:
            known = self.record_of(draft.id)
            if known is not None:
                return self._again(draft, known)
        if draft.parents:
            draft = self._with_labels_of_parents(draft)
        created_at, clock = recorded_at(self.created_at, self.now)
        record = seal(draft, self.position + 1, self.hash, created_at, clock)
        event = event_of(draft, record, clock)
        if draft.blobs:
            self.write.blobs.update(draft.blobs)
        self.append(record, event if owner is None else self.registry.current(event))
        return event

    def _again(self, draft: Draft, known: Record) -> Event:
        # That the event of somebody else was erased is none of this actor's business: its id is taken.
        if known.body is None and read_header(known).actor == draft.actor:
            raise Erased(
                f"event {draft.id!r} was erased; recording it again restores nothing. Use another id"
            )
        flowed = self._with_labels_of_parents(draft)
        if known.body is None or not (same_content(draft, known) or same_content(flowed, known)):
            raise Conflict(
                f"event {draft.id!r} is already recorded with other content: "
                "use another id, or send exactly what was sent the first time"
            )
        return self.registry.current(unseal(known))

    def _with_labels_of_parents(self, draft: Draft) -> Draft:
        """What is derived is as sensitive as the most sensitive of its parents, as trusted as the least."""
        parents = (self.labels_of(parent) for parent in draft.parents)
        labels = flow(draft.labels, parents)
        return draft if labels == draft.labels else msgspec.structs.replace(draft, labels=labels)

    def labels_of(self, id: str) -> Labels:
        """The labels of an event as they stand: as recorded, or as somebody has decided since."""
        record = self.record_of(id)
        return {} if record is None else {**read_header(record).labels, **(self.get("labels", id) or {})}

    def append(self, record: Record, event: Event) -> None:
        """Put a sealed record at the end of the ledger, fold it into the inline views, and let its kind's
        effect happen."""
        self.write.records.append(record)
        self._records[record.id] = record
        self.position, self.hash, self.created_at = record.position, record.hash, record.created_at
        self.fold(event, self.registry.folding(event.kind, False), self.meta)
        if self.registry.owner(event.kind) is not None:
            effect = self.registry.effect(event.kind)
            if effect is not None:
                effect(self, event)

    def fold(self, event: Event, views: Iterable[View], meta: Meta) -> None:
        """Fold one event into views, in the generations that `meta` names. Views that need the payload of
        an erased event fold what its kind left behind, or nothing."""
        residue: Event | None = None
        if event.erased:
            residue = self.residues.stand_in(self, event)
        for view in views:
            seen = event if view.header_only or not event.erased else residue
            if seen is None:
                continue
            keys = view.keys(seen)
            where = meta.space(view) if keys else ""
            for key in keys:
                packed = pack(key)
                if view.fresh and event is seen:
                    self._latest.setdefault((where, packed), None)
                row = self._row(where, packed)
                before = None if row is None or view.told else decode(self._bytes(row))
                after = view.fold(key, before, seen)
                if not view.header_only or after != before:
                    position = 0 if view.present else event.position
                    self._put(write_row(where, packed, position, after))

    def put(self, row: Row) -> None:
        """Write a version of a row, or replace the one with the same position."""
        self._row(row.space, row.key)
        self._put(row)

    def _put(self, row: Row) -> None:
        """The same for a row that has just been read."""
        place = (row.space, row.key)
        latest = self._latest[place]
        if latest is None or latest.position <= row.position:
            self._undo.append((place, latest))
            self._latest[place] = row
            touched = self._touched.get(row.space)
            if touched is None:
                touched = self._touched[row.space] = set()
            touched.add(row.key)
        self.write.rows.append(row)

    def drop(self, space: str, key: bytes, position: int) -> None:
        """Remove one version of a row, as if the event at that position had not touched it."""
        self._row(space, key)
        self.write.drops.append((space, key, position))
        remaining = self.versions(space, key)
        if remaining and remaining[-1].value is not None:
            checked(remaining[-1])
        self._undo.append(((space, key), self._latest[space, key]))
        self._touched.setdefault(space, set()).add(key)
        self._latest[space, key] = remaining[-1] if remaining else None

    def blank(self, record: Record) -> None:
        """Take the body away from a record, recorded earlier or in this very batch."""
        self.write.erase.append(record.position)
        self._blanked.add(record.position)

    def take_lease(self, name: str, holder: str, seconds: float, fence: int) -> None:
        """Take (or with 0 seconds release) a lease together with the events of this batch."""
        self.write.leases.append(Lease(name, holder, fence, seconds))

    # one command at a time

    def run(self, capability: str, decide: Decider, request: Any) -> Any:
        """Run a decider. If it fails, the overlay is as it was before. A decider may run another one, of
        another capability, as a part of itself."""
        write, undo, blobs = self.write, len(self._undo), dict(self.write.blobs)
        lists = (write.records, write.rows, write.drops, write.erase, write.leases, write.blob_drops)
        lengths = [len(one) for one in lists]
        end = (self.position, self.hash, self.created_at, self.meta, write.meta)
        outer, self.acting = self.acting, capability
        try:
            return decide(self, request)
        except BaseException:
            self.kept.clear()
            for record in write.records[lengths[0] :]:
                del self._records[record.id]
            self._blanked.difference_update(write.erase[lengths[3] :])
            for one, length in zip(lists, lengths, strict=True):
                del one[length:]  # type: ignore[attr-defined]
            self.position, self.hash, self.created_at, self.meta, write.meta = end
            write.blobs = blobs
            while len(self._undo) > undo:
                place, row = self._undo.pop()
                self._latest[place] = row
            raise
        finally:
            self.acting = outer

    @property
    def dirty(self) -> bool:
        write = self.write
        return bool(
            write.records or write.rows or write.drops or write.erase or write.leases or write.blob_drops
        ) or (write.meta is not None)


class _Past(Lens):
    """What an overlay held as of a position that its own batch has written or changed."""

    past = True

    def __init__(self, overlay: Overlay, position: int) -> None:
        self._overlay = overlay
        self.registry = overlay.registry
        self.meta = overlay.meta
        self.position = position

    def at(self, position: int) -> Lens:
        return self._overlay.at(min(position, self.position))

    def _row(self, space: str, key: bytes) -> Row | None:
        kept = [row for row in self._overlay.versions(space, key) if row.position <= self.position]
        return kept[-1] if kept and kept[-1].value is not None else None

    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]:
        write = self._overlay.write
        keys = {row.key for row in self._overlay.tx.scan(space, start, end, self.position, None, False)}
        keys |= {row.key for row in write.rows if row.space == space}
        keys |= {key for where, key, _ in write.drops if where == space}
        inside = sorted((key for key in keys if key >= start and (end is None or key < end)), reverse=reverse)
        rows = (self._row(space, key) for key in inside)
        return [row for row in rows if row is not None][:limit]


def check_horizon(meta: Meta, position: int) -> None:
    if position < meta.horizon:
        raise BeforeHorizon(
            f"position {position} lies below the horizon {meta.horizon}: the versions of views before it "
            "are no longer kept. Ask for a later position; the events themselves are all there"
        )


class Kept(NamedTuple):
    """What a decider has made of rows: as of which position it holds, and of which rows, by view and key."""

    position: int
    made: Any
    rows: Callable[[], Iterable[RowName]]


class RowCache:
    """The newest versions of inline rows, as the last transaction of this process left them. They still hold
    if nobody has written since: if the next transaction begins at the head where that one ended."""

    MOST = 4096
    KEPT = 16
    AGAIN = 128
    HANDED, HANDED_BYTES = 96, 24 * 1024
    """How many rows are handed on at most: what eight processes need that claim and complete, and no more than is
    quicker to read here than at a server."""

    def __init__(self) -> None:
        self._read: dict[Place, int] = {}
        """What was read last, the latest at the end, and by how many transactions."""
        self.asked: Sequence[RowName] = ()
        """What the next transaction is known to read, by view and key."""
        self.ahead: dict[Place, None] = {}
        """What was read along with something else because the next ones will read it, and nobody here has yet."""
        self._moved = False
        """Whether somebody else had written when the last transaction began."""
        self._handed: Mapping[Place, Row | None] = {}
        """What the last transaction has begun with."""
        self._touched: Collection[Place] = ()
        """What it has read or written."""
        self.rows: dict[Place, Row | None] = {}
        self.sound: set[Place] = set()
        """Those that have been found to be as they were written."""
        self.memo: dict[str, int] = {}
        """What deciders of this process remember for themselves. Nothing but speed may depend on it."""
        self.kept: dict[Any, Kept] = {}
        """What they have made of rows."""
        self.meta: Meta | None = None
        self.names: dict[str, str] = {}
        """The space of each view that the book has."""
        self.spaces: frozenset[str] = frozenset()
        """Those of inline views."""
        self._at: tuple[int, bytes] | None = None

    def begin(self, head: Head, meta: Meta, registry: Registry) -> None:
        self._moved = (head.position, head.hash) != self._at
        if meta is not self.meta:
            self.forget()
            views = [view for view in registry.views.values() if view.name in meta.views]
            self.names = {view.name: meta.space(view) for view in views}
            self.spaces = frozenset(self.names[view.name] for view in views if not view.trailing)
            self.meta = meta
        elif self._moved or len(self.rows) > self.MOST:
            self.clear()
        if len(self.kept) > self.KEPT:
            self.kept.clear()
        self._at = None

    def bring(self, rows: Mapping[Place, Row | None]) -> None:
        """Rows that the transaction has begun with."""
        self._handed = rows
        self.rows.update(rows)

    def forget(self) -> None:
        """Know of no row, and of none that will be read: views have become others."""
        self.clear()
        self._read.clear()
        self.ahead, self._handed, self._touched = {}, {}, ()

    def clear(self) -> None:
        self.rows.clear()
        self.sound.clear()
        self.kept.clear()

    def end(self, overlay: Overlay) -> None:
        """After the commit: what was written is what the next transaction would read."""
        if overlay.meta is not self.meta:
            self.forget()
            return
        if overlay.tx.far:
            self._touched = tuple(overlay._latest)
            self._remember(place for place in overlay._latest if place in self.rows)
        changed = [(row.space, row.key) for row in overlay.write.rows]
        changed += [(space, key) for space, key, _ in overlay.write.drops]
        for place in changed:
            if place[0] in self.spaces:
                self.rows[place] = overlay._latest[place]
                self.sound.add(place)
        self._at = (overlay.position, overlay.hash)

    def _remember(self, places: Iterable[Place]) -> None:
        for place in places:
            self._read[place] = self._read.pop(place, 0) + 1
            self.ahead.pop(place, None)
        while len(self._read) > self.AGAIN:
            del self._read[next(iter(self._read))]

    def recent(self) -> dict[Place, Row | None]:
        """What was looked ahead for, and what was read or written last, here or by those who have handed it on."""
        made_of = [(self.names[view], pack(key)) for one in self.kept.values() for view, key in one.rows()]
        last = dict.fromkeys((*self.ahead, *self._touched, *made_of, *self._handed))
        found, room = dict[Place, Row | None](), self.HANDED_BYTES
        for place in islice((place for place in last if place in self.rows), self.HANDED):
            row = self.rows[place]
            size = len(place[1]) + (len(row.value) if row is not None and row.value is not None else 0)
            if size <= room:
                found[place] = row
                room -= size
        return found

    def often(self) -> list[Place]:
        """What more than one of the last transactions have read."""
        return [place for place, times in self._read.items() if times > 1]

    def likely(self) -> list[Place]:
        """What the next one will have to read: what it says itself, and if somebody else goes on writing, what many
        read and what an earlier one has looked ahead for."""
        places = dict.fromkeys((*self.often(), *self.ahead) if self._moved else ())
        for view, key in self.asked:
            if view in self.names:
                place = (self.names[view], pack(key))
                if self._moved or place not in self.rows:
                    places[place] = None
        return list(places)


class Residues:
    """What erased events left behind, as the erasure events in the ledger tell.

    An erasure stands after the event it erased, so whoever folds the ledger from the start has to look
    ahead. It does so once, when the first erased event is met, and remembers. Who takes in another ledger brings
    that one's erasures first.
    """

    def __init__(self) -> None:
        self._kept: dict[int, dict[str, Any] | None] = {}
        self._read = 0
        self._ahead: Sequence[Event] | None = None

    def stand_in(self, overlay: Overlay, event: Event) -> Event | None:
        """The event with what its kind kept of the payload; None when nothing was kept."""
        while self._read < overlay.tx.head.position:
            page = overlay.tx.records(self._read, overlay.tx.head.position, PAGE)
            for record in page:
                if read_header(record).kind == ERASED:
                    self.remember(unseal(record))
            self._read = page[-1].position
        kept = self._kept.get(event.position)
        return None if kept is None else msgspec.structs.replace(event, payload=kept)

    def remember(self, erasure: Event) -> None:
        for gone in erased_by(erasure):
            self._kept[gone.position] = gone.residue

    def ahead(self, erasures: Sequence[Event]) -> None:
        """Remember erasures that are about to be recorded."""
        if erasures is not self._ahead:
            self._ahead = erasures
            for erasure in erasures:
                self.remember(erasure)

    def knows(self, position: int) -> bool:
        return position in self._kept


class _Ticket:
    """One command on its way."""

    __slots__ = (
        "answer",
        "capability",
        "command",
        "deadline",
        "decide",
        "done",
        "error",
        "gone",
        "ids",
        "leads",
        "reads",
        "request",
        "size",
        "wake",
    )

    def __init__(
        self,
        capability: str,
        decide: Decider,
        request: Any,
        size: int,
        reads: Sequence[RowName],
        command: str,
        deadline: float,
    ) -> None:
        self.deadline = deadline
        """When its caller has waited long enough, be it behind others."""
        self.capability = capability
        self.command = command
        self.reads = reads
        self.decide = decide
        self.request = request
        self.size = size
        self.done = False
        self.leads = False
        self.gone = False
        self.answer: Any = None
        self.error: BaseException | None = None
        self.ids: list[str] = []
        self.wake: threading.Lock | None = None


def _ids_of(request: Any) -> list[str]:
    """The ids under which a request can be looked up, if it names any."""
    return [one.id for one in request if isinstance(one, Draft)] if isinstance(request, list) else []


def _tried(overlay: Overlay, capability: str, decide: Decider, request: Any) -> tuple[Any, Exception | None]:
    """A decider's answer, or its error: that belongs to this command alone, and is raised where it was submitted."""
    try:
        return overlay.run(capability, decide, request), None
    except Exception as error:  # noqa: BLE001
        return None, error


class Committer:
    """Group commit for one store, whatever the engine."""

    def __init__(
        self, store: Store, registry: Registry, meta: Callable[[Head], Meta], timeout: float | None = None
    ) -> None:
        self._store = store
        self._registry = registry
        self._meta = meta
        self._timeout = store.timeout if timeout is None else timeout
        self._mutex = threading.Lock()
        self._queue: deque[_Ticket] = deque()
        self._leading = False
        self._residues = Residues()
        self._known = RowCache()
        self._errands = Errands(registry)
        store.likely = self._known.likely

    def submit(self, command: str, request: Any, size: int, reads: Sequence[RowName]) -> Any:
        """Run one command and answer when it is durable. Safe from any thread."""
        return self.run(*self._registry.command(command), request, size, reads, command)

    def run(
        self,
        capability: str,
        decide: Decider,
        request: Any,
        size: int = 1,
        reads: Sequence[RowName] = (),
        command: str = "",
    ) -> Any:
        """The same for a decider without a public name."""
        deadline = time.monotonic() + self._timeout
        ticket = _Ticket(capability, decide, request, size, reads, command, deadline)
        with self._mutex:
            if self._leading:
                ticket.wake = threading.Lock()
                ticket.wake.acquire()
                self._queue.append(ticket)
            else:
                self._leading = True
        if ticket.wake is not None:
            self._follow(ticket)
        if not ticket.done:
            self._lead(ticket)
        if ticket.error is not None:
            raise ticket.error
        return ticket.answer

    def _follow(self, ticket: _Ticket) -> None:
        """Wait until a leader has done our command, or has handed the lead to us. Whoever still queues when its time is
        up leaves; whoever is part of a commit waits for its end, which the leader's own deadline bounds."""
        assert ticket.wake is not None
        try:
            if not ticket.wake.acquire(timeout=max(0.0, ticket.deadline - time.monotonic())):
                with self._mutex:
                    if ticket in self._queue:
                        self._queue.remove(ticket)
                        ticket.done, ticket.error = True, self._too_busy()
                        return
                ticket.wake.acquire()
        except BaseException:  # Ctrl-C: leave the queue, and never take the lead into the grave
            with self._mutex:
                ticket.gone = True
                if ticket.leads and not ticket.done:
                    self._hand_over()
                elif ticket in self._queue:
                    self._queue.remove(ticket)
            raise

    def _lead(self, own: _Ticket) -> None:
        batch = [own]
        try:
            if self._queue:
                self._take(batch)
            self._commit(own, batch)
        finally:
            with self._mutex:
                if len(batch) > 1:
                    self._queue.extendleft(
                        ticket for ticket in reversed(batch) if not (ticket.done or ticket.gone)
                    )
                self._hand_over()
            for ticket in batch:
                if ticket.done and ticket is not own and ticket.wake is not None:
                    ticket.wake.release()

    def _hand_over(self) -> None:
        if self._queue:
            following = self._queue.popleft()
            following.leads = True
            assert following.wake is not None
            following.wake.release()
        else:
            self._leading = False

    def _take(self, batch: list[_Ticket]) -> None:
        size = sum(ticket.size for ticket in batch)
        with self._mutex:
            while self._queue and len(batch) < MAX_BATCH and size < MAX_BATCH_BYTES:
                batch.append(self._queue.popleft())
                size += batch[-1].size

    def _commit(self, own: _Ticket, batch: list[_Ticket]) -> None:
        """Decide and apply, again for as long as it ends in Moved. Afterwards each ticket is done, or goes
        back to the queue."""
        attempt, applying = 0, False
        asked: Asked = partial(self._ask, batch)
        self._known.asked = [row for ticket in batch for row in ticket.reads]
        try:
            while not own.done:
                left = own.deadline - time.monotonic()
                if left <= 0:
                    raise self._too_busy()
                if not attempt and left > self._timeout * 0.9:
                    left = self._timeout  # as good as at once; what is usual has nothing to set up
                attempt += 1
                begin = self._store.attempt if attempt == 1 else self._store.begin
                try:
                    with begin(left, asked) as tx:
                        if tx.promised:
                            kept, asked = self._was_kept(tx, batch), nothing
                            tx.forget_promise()
                            if kept:
                                continue
                        overlay = self._overlay(tx)
                        if tx.folded < tx.head.position:
                            self._catch_up(overlay)
                            continue
                        if tx.far:
                            overlay.bring(self._known.asked)
                        until = time.monotonic() + MAX_BATCH_SECONDS
                        decided = self._decide(overlay, batch, until)
                        self._serve(overlay, until)
                        if overlay.dirty:
                            applying = True
                            overlay.write.folded = overlay.position
                            tx.apply(overlay.write)
                        else:
                            tx.confirm()
                        self._known.end(overlay)
                        if overlay.dirty:
                            tx.hand_on(self._known.recent)
                    for ticket in decided:
                        ticket.done = True
                except Moved:
                    applying = False
                    for ticket in batch:
                        ticket.ids = ticket.ids if ticket.done else []  # those came to nothing
                    time.sleep(random.uniform(0, min(0.05, 0.0002 * 2 ** min(attempt, 8))))  # noqa: S311  jitter
                except Served as served:
                    self._answer(batch, served.answer)
                    asked = nothing  # what was not done has to be done here
                    if served.error is not None:
                        raise served.error from None
        except OutcomeUnknown as unknown:
            for ticket in batch:
                if not ticket.done:
                    ids = ticket.ids or _ids_of(ticket.request)
                    ticket.done, ticket.error = True, OutcomeUnknown(ids, unknown.cause)
        except CommonplaceError as trouble:
            own.done, own.error = True, trouble
        except BaseException:
            for ticket in batch:
                if not ticket.done and (ticket is own or applying):
                    cause = "the writing thread was interrupted"
                    ticket.done, ticket.error = True, OutcomeUnknown(ticket.ids, cause)
            raise

    def _too_busy(self) -> Busy:
        return Busy(f"the book was too busy to write to for {self._timeout:g} s; try again")

    def _decide(self, overlay: Overlay, batch: list[_Ticket], until: float) -> list[_Ticket]:
        """Run the deciders, and say which of them: time is bounded, too."""
        records, decided = overlay.write.records, list[_Ticket]()
        for count, ticket in enumerate(batch, 1):
            if not ticket.done:
                before = len(records)
                ticket.answer, ticket.error = _tried(
                    overlay, ticket.capability, ticket.decide, ticket.request
                )
                ticket.ids = [record.id for record in records[before:]]
                decided.append(ticket)
            if count < len(batch) or self._queue:
                if time.monotonic() > until:
                    break
                if count == len(batch):  # who has come meanwhile comes along
                    self._take(batch)
                    if overlay.tx.far:
                        overlay.bring([row for late in batch[count:] for row in late.reads])
        return decided

    # for other processes, and by them

    def _serve(self, overlay: Overlay, until: float) -> None:
        """Do what others ask for who wait for the lock. What is not done in time they ask for again."""
        tx, errands = overlay.tx, self._errands
        while others := [(number, errands.asked(said)) for number, said in tx.others()]:
            if tx.far:
                overlay.bring([row for _, each in others for _, _, reads in each for row in reads])
            for number, each in others:
                if time.monotonic() > until:
                    return
                room, done = ROOM - 2 * MAX_BATCH, list[msgspec.Raw | None]()
                for name, request, _ in each:
                    done.append(self._done(overlay, name, request, room))
                    room -= len(done[-1] or b"")
                tx.answer(number, errands.answer(done))

    def _done(self, overlay: Overlay, name: str, request: Any, room: int) -> msgspec.Raw | None:
        """What is told to whoever asked; None if it has to do it itself, because it is refused or fails here: then it
        meets that again, and is told."""
        before = len(overlay.write.records)

        def decide(overlay: Overlay, request: Any) -> msgspec.Raw:
            return self._errands.done(decider(overlay, request), overlay.write.records[before:], room)

        capability, decider = self._registry.command(name)
        found: msgspec.Raw | None = _tried(overlay, capability, decide, request)[0]
        return found

    def _ask(self, batch: Sequence[_Ticket]) -> bytes | None:
        """What others could do for us, unless they have done a part of it already."""
        if any(ticket.done for ticket in batch):
            return None
        return self._errands.ask([(ticket.command, ticket.request, ticket.reads) for ticket in batch])

    def _answer(self, batch: Sequence[_Ticket], said: bytes) -> None:
        """Take what somebody else has done."""
        for ticket, one in zip(batch, self._told(batch, said), strict=False):
            if one is not None:
                ticket.answer, ticket.ids, _ = one
                ticket.error, ticket.done = None, True

    def _told(self, batch: Sequence[_Ticket], said: bytes) -> list[Told | None]:
        """What a batch was answered, one by one, if it was."""
        return self._errands.answered(said, [ticket.command for ticket in batch]) if said else []

    def _was_kept(self, tx: Tx, batch: Sequence[_Ticket]) -> bool:
        """Whether what somebody else had promised before it was gone was committed: all of it, if the first event of it
        is there. What recorded no event has changed nothing, or nothing that cannot be done again."""
        told = [one for one in self._told(batch, tx.promised) if one is not None and one[1]]
        if not told:
            return False
        (first, *_), proof = told[0][1:]
        record = tx.by_id((first,)).get(first)
        if record is None or record.hash != proof:
            return False
        self._answer(batch, tx.promised)
        return True

    def _catch_up(self, overlay: Overlay) -> None:
        """Fold a page of what the engine's rows lack, for engines that keep them in memory. If something was folded
        that had come erased and without its tombstone, as another process took it in, begin anew."""
        tx = overlay.tx
        for record in tx.records(tx.folded, tx.head.position, PAGE):
            event = self._registry.current(unseal(record))
            if event.kind == ERASED and not event.erased:
                unknown = [gone for gone in erased_by(event) if not self._residues.knows(gone.position)]
                self._residues.remember(event)
                if any(gone.position <= tx.folded for gone in unknown):
                    tx.forget()
                    return
            overlay.fold(event, self._registry.folding(event.kind, False), overlay.meta)
            overlay.write.folded = record.position
        tx.apply(overlay.write)

    def _overlay(self, tx: Tx) -> Overlay:
        meta = self._meta(tx.head)
        if tx.folded < tx.head.position:
            self._known.clear()  # the engine has lost its rows, so what they were says nothing
        self._known.begin(tx.head, meta, self._registry)
        self._known.bring(tx.brought)
        return Overlay(tx, self._registry, meta, self._residues, self._known)
