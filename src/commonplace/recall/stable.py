"""Stable digests: a digest that continues the one before it, byte for byte, so that a model's prompt cache holds.

The lines that are there stay, and new ones are added. A line whose item has changed gets a correction. When a line may
not stay, or the budget is full, the digest begins anew and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ..memory.items import Item
from .escaping import as_name, mark_of
from .gathering import Bar, part_of
from .lines import DigestLine, candidate
from .packing import SPARE, CountTokens, Packed, pack_digest
from .receipts import DigestTrace, trace_of

if TYPE_CHECKING:
    from ..memory.portions import Portions
    from ..memory.viewer import Viewer
    from ..session import Session

CORRECTED = "correction"


class ShownLine(NamedTuple):
    """A line of the digest before, and its item as it is now, if its reader may still see it."""

    line: DigestLine
    item: Item | None


class Packing(NamedTuple):
    """What is to be packed."""

    candidates: Sequence[DigestLine]
    budgets: Portions
    count: CountTokens
    nothing: str
    rest: bool

    def anew(self, rebased: str = "") -> tuple[DigestTrace, Packed[DigestLine]]:
        packed = pack_digest(self.candidates, self.budgets, self.count, nothing=self.nothing, rest=self.rest)
        considered = _considered(self.candidates, packed)
        return DigestTrace(considered, self.budgets, packed.text, self.nothing, rebased=rebased), packed

    def continued(
        self, bar: Bar, before: DigestTrace, shown: Sequence[ShownLine]
    ) -> tuple[DigestTrace, Packed[DigestLine]]:
        """Keep the lines that are there, and add what is new; or begin anew, and say why."""
        if rebased := next((why for why in (_breaks(bar, *line) for line in shown) if why), ""):
            return self.anew(rebased)
        kept = [line for line, _ in shown]
        versions = {line.id: line.version for line in kept}
        changed = {
            item.id: item for _, item in shown if item is not None and item.position != versions[item.id]
        }
        corrections = [_correction(item) for item in changed.values()]
        versions |= {line.id: line.version for line in corrections}
        new = [line for line in self.candidates if versions.get(line.id) != line.version]
        mark = before.mark or mark_of([line.line for line in kept])
        packed = pack_digest(
            [*corrections, *new],
            self.budgets,
            self.count,
            nothing=self.nothing,
            kept=kept,
            mark=mark,
            rest=self.rest,
        )
        fits_anew = pack_digest(self.candidates, self.budgets, self.count).ids
        uncorrected = {line.id for line in corrections} & dict(packed.omitted).keys()
        if packed.over or {*fits_anew} - {*packed.ids} or uncorrected:
            return self.anew("the budget was full")
        considered = _considered([*corrections, *new], packed)
        return DigestTrace(considered, self.budgets, packed.text, self.nothing, tuple(kept), mark), packed


def digest_before(session: Session, viewer: Viewer, stable: str) -> tuple[DigestTrace | None, str]:
    """The trace of the last digest under the same name, or why it is not there any more."""
    id = viewer.views.get("recall.stable", viewer.views.scope, session.actor, stable)
    event = None if id is None else session.ledger.event(id)
    if event is None:
        return None, ""
    trace = trace_of(session.ledger, event)
    if trace is None:
        return None, "something in it was erased"
    return (trace, "") if trace.packed().taken else (None, "")


def shown_lines(viewer: Viewer, before: DigestTrace | None) -> list[ShownLine]:
    """The lines of the digest before, each with its item as it is now."""
    lines = () if before is None else before.packed().taken
    items = [(line, viewer.item(line.id)) for line in lines]
    return [ShownLine(line, None if item is None else viewer.shown(item)) for line, item in items]


def shared_length(before: str, now: str) -> int:
    """How many characters two texts begin with alike."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(before), len(now)))


def _breaks(bar: Bar, line: DigestLine, item: Item | None) -> str:
    """Why a line cannot stay, so that a digest has to begin anew."""
    if item is None or item.status == "forgotten":
        return "something in it was forgotten, or may not be shown any more"
    if why := bar.why(item):
        return f"something in it is left out by now: {why}"
    return "something in it has grown stale" if bar.stale(item) and "stale=" not in line.after else ""


def _correction(item: Item) -> DigestLine:
    """A line that says that an earlier one no longer holds, and of what was only changed, how it is now."""
    start = f"- [correction] {as_name(item.id)} "
    if item.current:
        now = candidate(item, CORRECTED, part_of(item))
        return replace(now, before=f"{start}was changed: {now.before}")
    by = f" by {as_name(item.superseded_by)}" if item.superseded_by else ""
    ending = f"was superseded{by}" if item.status == "superseded" else f"is {item.status} now"
    return DigestLine(item.id, item.kind, f"{start}{ending}", version=item.position, via=CORRECTED)


def _considered(candidates: Sequence[DigestLine], packed: Packed[DigestLine]) -> tuple[DigestLine, ...]:
    """The candidates as a trace keeps them: of those that were not looked at, nothing but their ids, apart from the
    first few, which would have come next."""
    why = dict(packed.omitted)
    unread = {line.id for line in [line for line in candidates if line.id in packed.unread][SPARE:]}
    return tuple(
        replace(line, before="", text="", after="", barred=why[line.id]) if line.id in unread else line
        for line in candidates
    )
