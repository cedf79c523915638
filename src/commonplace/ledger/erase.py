"""Erasure: content goes, the chain stays, and what was derived is derived again without it.

An erasure is an event. Its payload names the erased events by id and position, says why, and keeps what
their kinds must keep (`residue`: ids and statuses, never content). The rest is that event's effect, so it
happens alike when the erasure is decided here and when it arrives with a copy of the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ..engines.contract import Record
from ..errors import BadInput, NotFound
from .events import ERASED, Event, draft, erased_by, unseal
from .keys import Key, pack
from .matching import Spellings
from .overlay import Overlay
from .printing import Readable, number, told
from .reader import PAGE, ViewReader
from .views import View, read_row, write_row

MAX_NAMED = 2_000
"""How many events one tombstone names; more take several tombstones in the same commit."""


class Erasure(Readable, msgspec.Struct, frozen=True):
    """What an erase did, or with `dry_run` would do. `erased` lists the events asked for and all that was
    derived from them (events that name them as parents, and so on down); `already` were gone before. `counts` says how
    many of them were items, tasks, decisions and so on."""

    erased: tuple[str, ...]
    already: tuple[str, ...]
    position: int | None
    counts: dict[str, int] = {}

    @property
    def gone(self) -> bool:
        """No read, index, mirror or export of this book can return the content any more."""
        return self.position is not None or not self.erased

    def __str__(self) -> str:
        done = "erased" if self.gone else "would be erased"
        things = f" ({told(self.counts)})" if self.counts.keys() - {"event"} else ""
        before = f", {len(self.already):,} erased before" if self.already else ""
        return f"{number(len(self.erased), 'event')} {done}{things}{before}"


class EraseRequest(msgspec.Struct, frozen=True):
    """`texts` is what the events were found by, if they were: no name that holds one of them is kept."""

    ids: tuple[str, ...]
    actor: str
    reason: str
    dry_run: bool
    texts: tuple[str, ...] = ()


def decide_erase(overlay: Overlay, request: EraseRequest) -> Erasure:
    wanted = _with_derived(overlay, request.ids)
    already = tuple(record.id for record in wanted if record.body is None)
    live = [overlay.registry.current(unseal(record)) for record in wanted if record.body is not None]
    ids = tuple(event.id for event in live)
    if request.dry_run or not live:
        return Erasure(ids, already, None)
    spellings = Spellings(request.texts) if request.texts else None
    named = []
    for event in live:
        residue = overlay.registry.residue(event, spellings)
        entry: dict[str, object] = {"id": event.id, "position": event.position}
        named.append(entry if residue is None else {**entry, "residue": residue})
    for start in range(0, len(named), MAX_NAMED):
        part = {"events": named[start : start + MAX_NAMED], "reason": request.reason}
        tombstone = overlay.emit(draft(ERASED, actor=request.actor, payload=part))
    return Erasure(ids, already, tombstone.position)


def with_derived(views: ViewReader, ids: Iterable[str]) -> set[str]:
    """These ids, and those of everything that was derived from them, in whatever scope."""
    every, ahead = set[str](), list(ids)
    while ahead:
        id = ahead.pop()
        if id not in every:
            every.add(id)
            ahead += [child for _, child in views.scan("children", id)]
    return every


def _with_derived(overlay: Overlay, ids: tuple[str, ...]) -> list[Record]:
    """The events with these ids and everything derived from them, in order of position."""
    records = list[Record]()
    for id in with_derived(overlay, ids):
        record = overlay.record_of(id)
        if record is None:
            raise NotFound(f"there is no event {id!r} to erase; nothing was erased")
        records.append(record)
    records.sort(key=lambda record: record.position)
    for record in records:
        if unseal(record).kind == ERASED:
            raise BadInput(f"event {record.id!r} is an erasure and holds no content; it cannot be erased")
    return records


def erase_payloads(overlay: Overlay, erasure: Event) -> None:
    """The effect of an erasure: bodies and unshared blobs go, and every row that saw them is derived again.

    With a copy of a ledger, events arrive blank and their tombstone later: then the rows are derived for the
    first time, from what the tombstone kept.
    """
    overlay.residues.remember(erasure)
    gone: set[int] = set()
    rows: dict[tuple[str, bytes], tuple[View, Key, set[int]]] = {}
    blobs: set[str] = set()
    for entry in erased_by(erasure):
        record = overlay.records(entry.position - 1, 1)[0]
        event: Event | None = overlay.registry.current(unseal(record))
        assert event is not None
        if event.erased:
            event = overlay.residues.stand_in(overlay, event)
        else:
            overlay.blank(record)
        if event is None:
            continue
        gone.add(event.position)
        blobs.update(event.blobs)
        residue = None if entry.residue is None else replace(event, payload=entry.residue)
        for trailing in (False, True):
            for view in overlay.registry.folding(event.kind, trailing):
                if not view.header_only and not view.present:
                    # what was kept may stand under a masked name, in another row
                    for key in {*view.keys(event), *(() if residue is None else view.keys(residue))}:
                        place = (overlay.meta.space(view), pack(key))
                        rows.setdefault(place, (view, key, set()))[2].add(event.position)
    for (where, packed), (view, key, positions) in rows.items():
        _derive_again(overlay, view, key, where, packed, positions)
    overlay.write.blob_drops += sorted(blob for blob in blobs if not overlay.scan("blobs", blob, limit=1))


def _derive_again(overlay: Overlay, view: View, key: Key, where: str, packed: bytes, gone: set[int]) -> None:
    """Fold one row's own history once more, from the first of the erased events that touched it on."""
    gone = {position for position in gone if position <= overlay.folded(view)}
    if not gone:
        return  # a trailing view that has not come so far yet
    kept = {row.position: row for row in overlay.versions(where, packed)}
    horizon = overlay.meta.horizon
    touched = {*kept, *gone}
    if min(gone) <= horizon:  # versions below the horizon were dropped: find the row's events in the ledger
        touched |= _touching(overlay, view, key, max(touched))
    history = [
        (position, _as_seen(overlay, view, key, overlay.event_at(position))) for position in sorted(touched)
    ]
    base = max((position for position, event in history if event and position <= horizon), default=None)
    value = None
    for position, event in history:
        if event is None:
            if position in kept:
                overlay.drop(where, packed, position)
        elif position < min(gone) and position in kept:
            value = read_row(kept[position])
        else:
            value = view.fold(key, value, event)
            if position > horizon or position == base:
                overlay.put(write_row(where, packed, position, value))


def _as_seen(overlay: Overlay, view: View, key: Key, event: Event) -> Event | None:
    """What a row's fold sees of an event: itself, or what its kind kept of it if that still touches the row."""
    seen = overlay.residues.stand_in(overlay, event) if event.erased else event
    return seen if seen is not None and key in view.keys(seen) else None


def _touching(overlay: Overlay, view: View, key: Key, upto: int) -> set[int]:
    positions: set[int] = set()
    after = 0
    while after < upto:
        page = overlay.records(after, PAGE)
        for record in page:
            event = overlay.registry.current(unseal(record))
            if view.kinds is not None and event.kind not in view.kinds:
                continue
            if record.position <= upto and _as_seen(overlay, view, key, event) is not None:
                positions.add(record.position)
        after = page[-1].position
    return positions
