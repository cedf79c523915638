"""Reading a run's state: what its viewer may see of it, as of any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..access.rights import OWNER
from .cells import About, Cells, State, about, assembled, cells, finished, runtime_keys
from .opening import takes_part
from .sharing import sees_others, visible

if TYPE_CHECKING:
    from ..ledger.ledger import At, Ledger
    from ..ledger.reader import ViewReader

PROJECTION = "state.projection"


def seen_state(ledger: Ledger, run: str, viewer: str, at: At = None) -> State:
    """The state of a run as of `at`, as far as the viewer may see it. Under the cqrs model the present comes from a
    projection that may lag; `.as_of` says how far it is."""
    with ledger.snapshot(at) as views:
        known = about(views, run)
        if at is not None or known.policy.model != "cqrs" or not takes_part(known, viewer):
            return seen_in(views, run, viewer)
        as_of = ledger.speaks_as_of(PROJECTION)
        projected = cells(views, run, known.fork, view=PROJECTION) if as_of else {}
        return _seen(views, run, known, viewer, projected, as_of)


def seen_in(views: ViewReader, run: str, viewer: str) -> State:
    """The state of a run as of a snapshot, as far as the viewer may see it."""
    known = about(views, run)
    if not takes_part(known, viewer):
        return State({}, views.position, {})
    return _seen(views, run, known, viewer, cells(views, run, known.fork), views.position)


def _seen(views: ViewReader, run: str, known: About, viewer: str, held: Cells, as_of: int) -> State:
    around = runtime_keys(views, run, known)
    if viewer != OWNER:
        held = visible(known.policy, viewer, held, finished(held))
        around = around if sees_others(known.policy) else {}
    return State({**around, **assembled(held)}, as_of, held)
