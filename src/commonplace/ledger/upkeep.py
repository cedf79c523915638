"""Upkeep of a whole ledger: verify its chain, and fold its views anew."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec

from ..engines.contract import GENESIS
from ..errors import Busy, Corrupt
from .events import ERASED, erased_by, new_id, read_header, unseal
from .keys import pack
from .overlay import CHECKPOINTS, Overlay
from .reader import PAGE
from .views import Meta, View, read_row, space, write_row

if TYPE_CHECKING:
    from .ledger import Ledger, Progress


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


def verify(ledger: Ledger, progress: Progress | None = None) -> Verification:
    """Walk the whole chain: positions, links, header hashes, payload digests, times, erasures."""
    reached = ledger.store.acknowledged()  # before the head: others may write meanwhile
    with ledger.store.read() as reads:
        head = reads.head
    position, previous, created_at = 0, GENESIS.hex(), 0
    blank, explained = set[int](), set[int]()
    bad, problem = None, None
    try:
        for record in ledger.records(0, head.position):
            header, event = read_header(record), unseal(record)
            if header.previous != previous:
                problem = "it does not follow from the event before it"
            elif header.created_at < created_at:
                problem = "it was recorded before the event below it"
            if problem:
                break
            if event.erased:
                blank.add(event.position)
            elif event.kind == ERASED:
                explained |= {gone.position for gone in erased_by(event)}
            position, previous, created_at = header.position, event.hash, header.created_at
            if progress and position % PAGE == 0:
                progress(position, head.position)
    except Corrupt as damage:
        problem = str(damage)
    if blank - explained:  # erased while we walked: the tombstone stands beyond where we began
        for tombstone in ledger.events(head.position, kinds=(ERASED,)):
            explained |= {gone.position for gone in erased_by(tombstone)}
    if problem:
        bad = position + 1
    elif previous != head.hash.hex():
        bad, problem = position, "the head does not match the last event"
    elif reached > head.position:
        bad, problem = head.position + 1, f"events up to {reached} had been acknowledged and are gone"
    unexplained = min(blank - explained, default=None)
    if unexplained is not None and (bad is None or unexplained < bad):
        bad, problem = unexplained, "its payload is missing and no erasure says why"
    problem = problem or ledger.store.check() or damaged_row(ledger)
    return Verification(problem is None, bad, problem, position, len(blank), head.position, previous)


def damaged_row(ledger: Ledger, names: Collection[str] | None = None) -> str | None:
    """The first row of a view (all views unless some are named) that is not as it was written, if any."""
    with ledger.reads() as reads:
        meta = ledger.meta_of(reads.head)
        try:
            for view in map(ledger.registry.view, ledger.registry.views if names is None else names):
                for row in reads.versions(meta.space(view)):
                    read_row(row)
        except Corrupt as damage:
            return str(damage)
    return None


def rebuild(
    ledger: Ledger, names: Collection[str] | None = None, progress: Progress | None = None
) -> Rebuilt:
    """Fold views from the first event again, beside the ones in use, and switch at once."""
    views = [ledger.registry.view(name) for name in (ledger.registry.views if names is None else names)]
    holder = new_id()
    lease = ledger.store.lease("commonplace.rebuild", holder, 60)
    if lease.holder != holder:
        raise Busy(f"another process is rebuilding this book; wait for it (up to {lease.seconds:.0f} s)")
    try:
        with ledger.store.read() as reads:
            old = ledger.meta_of(reads.head)
        build = _Build(tuple(views), old, old.with_generations(views))
        for view in views:
            ledger.store.drop_spaces(space(view.name, build.after.views[view.name][1]))
        done, total = 0, 1
        while done >= 0:
            done, total = ledger.run(build.page, done)
            if ledger.store.lease("commonplace.rebuild", holder, 60).holder != holder:
                raise Busy("another process took this rebuild over while this one stood still: let it end")
            if progress:
                progress(total if done < 0 else done, total)
        for view in views:
            if view.name in old.views:
                ledger.store.drop_spaces(old.space(view))
        if old.horizon:
            ledger.raise_horizon(old.horizon)
    finally:
        ledger.store.lease("commonplace.rebuild", holder, 0)
    return Rebuilt(tuple(view.name for view in views), total)


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
            overlay.fold_record(record, self.views, self.after)
        if len(page) == PAGE:
            return page[-1].position, overlay.position
        for view in self.views:
            if view.trailing:
                key = pack((self.after.space(view),))
                overlay.put(write_row(CHECKPOINTS, key, overlay.position, overlay.position))
        overlay.set_meta(msgspec.structs.replace(overlay.meta, views=self.after.views))
        return -1, overlay.position
