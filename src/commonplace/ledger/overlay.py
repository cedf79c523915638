"""The book inside one transaction: what the engine holds, and what the commands of this batch have written on top.

Deciders read through an Overlay and emit events into it. What they wrote becomes one WriteSet. A decider that fails is
undone, and the rest of the batch is unharmed. Rows that were read stay in memory until the transaction ends, no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ..engines.contract import Lease, Place, Record, Row, Tx, WriteSet
from ..errors import Conflict, Erased, NotFound, OwnedKind, shown
from .encoding import decode
from .events import (
    ERASED,
    Draft,
    Event,
    erased_by,
    read_header,
    recorded_at,
    same_content,
    seal,
    unseal,
)
from .keys import Key, pack
from .labels import Labels, flow
from .reader import PAGE, Snapshot, ViewReader, check_horizon
from .scopes import SCOPE
from .views import Decider, Meta, Registry, View, checked, read_row, write_meta, write_row

CHECKPOINTS = "checkpoints/"
"""The space in which trailing views remember how far they have come."""


class Overlay(ViewReader):
    """The book inside one transaction: what the engine holds, with this batch's own writes on top.

    Deciders read through it and `emit` events into it. Nothing leaves it before the whole batch is applied.
    """

    def __init__(self, tx: Tx, registry: Registry, meta: Meta, residues: Residues) -> None:
        self.tx = tx
        self.residues = residues
        self.registry = registry
        self.meta = meta
        self.write = WriteSet()
        self.acting = ""
        self.scope = ""
        """The key of the scope that the events of the running command belong to."""
        self.now = tx.now
        self.position, self.hash, self.created_at, _ = tx.head
        self._latest: dict[Place, Row | None] = {}
        """The newest version of each row that was read or written."""
        self._touched: dict[str, set[bytes]] = {}
        """The keys of each space that this batch has written to; some of it may have been undone."""
        self._undo: list[tuple[Place, Row | None]] = []
        self._records: dict[str, Record] = {}
        """What this batch has recorded."""
        self._stored: dict[str, Record | None] = {}
        """The records that were read."""
        self._blanked: dict[int, str] = {}
        """The ids of the events whose content this batch erases, by their positions."""

    # reading

    def record_of(self, id: str) -> Record | None:
        """The stored form of an event, recorded earlier or in this very batch."""
        if id not in self._records:
            self.prefetch_records([id])
        record = self._records.get(id) or self._stored[id]
        return None if record is None else self._as_is(record)

    def prefetch_records(self, ids: Iterable[str]) -> None:
        """Read records in one trip to the engine. A decider calls it with the ids of those that it will need."""
        missing = [id for id in dict.fromkeys(ids) if id not in self._stored and id not in self._records]
        stored = self.tx.by_id(missing) if missing else {}
        self._stored |= {id: stored.get(id) for id in missing}

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

    def lease(self, name: str) -> Lease | None:
        """The lease in force under this name, by the engine's clock."""
        return self.tx.leases((name,)).get(name)

    def at(self, position: int) -> ViewReader:
        check_horizon(self.meta, position)
        if position <= self.tx.head.position and not self.write.drops:
            return Snapshot(self.tx, self.registry, self.meta, position, self.bound)
        return _Past(self, position)

    def _row(self, space: str, key: bytes) -> Row | None:
        place = (space, key)
        if place not in self._latest:
            self._fetch([place])
        row = self._latest[place]
        return None if row is None or row.value is None else row

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        self._fetch([(space, key) for key in keys])
        return [self._row(space, key) for key in keys]

    def prefetch(self, rows: Iterable[tuple[str, Key]]) -> None:
        """Read rows of several views in one trip to the engine. A decider calls it with the rows that it will need."""
        self._fetch([(self._space(view), pack(key)) for view, key in rows])

    def _fetch(self, places: Iterable[Place]) -> None:
        """Read those of these rows that were not read yet, in one trip to the engine, and check them."""
        missing = [place for place in dict.fromkeys(places) if place not in self._latest]
        rows = self.tx.get_all(missing) if missing else {}
        for row in rows.values():
            checked(row)
        for place in missing:
            self._latest[place] = rows.get(place)

    def _bytes(self, row: Row) -> bytes:
        assert row.value is not None
        return row.value[4:]  # checked when it was read

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

    def emit(self, draft: Draft, scope: str | None = None) -> Event:
        """Record an event. The same id with the same content answers with the event it became the first
        time; with other content it is a Conflict; if that one was erased, Erased. It belongs to the scope of the
        session that acts, unless another one is named by its key."""
        owner = self.registry.owner(draft.kind)
        if owner is not None and owner != self.acting:
            raise OwnedKind(
                f"{draft.kind!r} can only be recorded by the commands of {owner!r}; choose a kind of your own"
            )
        key = self.scope if scope is None else scope
        if key and SCOPE not in draft.labels:
            draft = msgspec.structs.replace(draft, labels={**draft.labels, SCOPE: key})
        if draft.given_id:
            record_before = self.record_of(draft.id)
            if record_before is not None:
                return self._again(draft, record_before)
        if draft.parents:
            draft = self._with_labels_of_parents(draft)
        created_at, clock = recorded_at(self.created_at, self.now)
        record, event = seal(draft, self.position + 1, self.hash, created_at, clock)
        if draft.blobs:
            self.write.blobs.update(draft.blobs)
        for digest in event.blobs:
            if digest not in draft.blobs:
                self._check_reference(digest, event)
        self.append(record, event if owner is None else self.registry.current(event))
        return event

    def _check_reference(self, digest: str, event: Event) -> None:
        """Raises NotFound if an event refers to a blob of another scope without deriving from what holds it. Else the
        blob would stay when that is erased."""
        positions = [int(key[1]) for key, _ in self.scan("blobs", digest)]
        if not positions and self.bound is None:
            return  # nobody keeps it: it is a word of the payload
        holders = (record for at in positions for record in self.records(at - 1, 1))
        for holder in map(read_header, holders):
            if holder.id in event.parents or holder.labels.get(SCOPE, "") == event.labels.get(SCOPE, ""):
                return
        raise NotFound(f"there is no blob {shown(digest)} to refer to: give its bytes, as Blob(data)")

    def _again(self, draft: Draft, record: Record) -> Event:
        # That an event of somebody else, or of another scope, was erased is none of this actor's business: its id is
        # taken.
        header = read_header(record)
        own = (header.actor, header.labels.get(SCOPE)) == (draft.actor, draft.labels.get(SCOPE))
        if record.body is None and own:
            raise Erased(
                f"event {draft.id!r} was erased; recording it again restores nothing. Use another id"
            )
        flowed = self._with_labels_of_parents(draft)
        if record.body is None or not (same_content(draft, record) or same_content(flowed, record)):
            raise Conflict(
                f"event {draft.id!r} is already recorded with other content: "
                "use another id, or send exactly what was sent the first time"
            )
        return self.registry.current(unseal(record))

    def _with_labels_of_parents(self, draft: Draft) -> Draft:
        """What is derived is as sensitive as the most sensitive of its parents, as trusted as the least."""
        self.prefetch_records(draft.parents)
        self.prefetch(("labels", (parent,)) for parent in draft.parents)
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
        residue = self.residues.stand_in(self, event) if event.erased else None
        folds = list[tuple[View, Event, Key, Place]]()
        for view in views:
            shown = event if view.header_only or not event.erased else residue
            if shown is None:
                continue
            for key in view.keys(shown):
                place = (meta.space(view), pack(key))
                if view.insert_only and event is shown:
                    self._latest.setdefault(place, None)
                folds.append((view, shown, key, place))
        if not folds:
            return
        self._fetch([place for _, _, _, place in folds])
        for view, shown, key, place in folds:
            row = self._row(*place)
            before = None if row is None or view.overwrites else decode(self._bytes(row))
            after = view.fold(key, before, shown)
            if not view.header_only or after != before:
                self._put(write_row(*place, 0 if view.present else event.position, after))

    def fold_record(self, record: Record, views: Iterable[View], meta: Meta) -> None:
        """The same for a stored event, and those of the views that fold its kind."""
        event = self.registry.current(unseal(record))
        self.fold(event, [view for view in views if view.kinds is None or event.kind in view.kinds], meta)

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
        self._blanked[record.position] = record.id

    def erased_since(self, count: int) -> list[str]:
        """The ids of the events that were erased after the first so many."""
        return [*map(self._blanked.__getitem__, self.write.erase[count:])]

    def set_meta(self, meta: Meta) -> None:
        """Write the book's own record."""
        self.meta = meta
        self.write.meta = write_meta(meta)

    def take_lease(self, name: str, holder: str, seconds: float, fence: int) -> None:
        """Take (or with 0 seconds release) a lease together with the events of this batch."""
        self.write.leases.append(Lease(name, holder, fence, seconds))

    # one command at a time

    def run(self, capability: str, decide: Decider, request: Any) -> Any:
        """Run a decider. If it fails, the overlay is as it was before. A decider may run another one, of
        another capability, as a part of itself."""
        write, undo, blobs = self.write, len(self._undo), dict(self.write.blobs)
        lists: tuple[list[Any], ...] = (
            write.records, write.rows, write.drops, write.erase, write.leases, write.blob_drops,
        )  # fmt: skip
        lengths = [*map(len, lists)]
        end = (self.position, self.hash, self.created_at, self.meta, write.meta)
        outer, self.acting = self.acting, capability
        try:
            return decide(self, request)
        except BaseException:
            for record in write.records[lengths[0] :]:
                self._records.pop(record.id, None)  # an interrupt can come before it is there
            for position in write.erase[lengths[3] :]:
                self._blanked.pop(position, None)
            for written, length in zip(lists, lengths, strict=True):
                del written[length:]
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


class _Past(ViewReader):
    """What an overlay held as of a position that its own batch has written or changed."""

    past = True

    def __init__(self, overlay: Overlay, position: int) -> None:
        self._overlay = overlay
        self.registry = overlay.registry
        self.meta = overlay.meta
        self.bound, self.scope = overlay.bound, overlay.scope
        self.position = position

    def at(self, position: int) -> ViewReader:
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


class Residues:
    """What erased events left behind, as the erasure events in the ledger tell.

    An erasure stands after the event it erased, so folding the ledger from the start has to look ahead. That happens
    once, when the first erased event is met, and is remembered. Importing another ledger brings its erasures first.
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
