"""Which facts are promoted to the repository at the boundary of a phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..ledger.printing import Listing, Readable
from ..memory.verbs import Memory

if TYPE_CHECKING:
    from ..session import Session


class PromotionRecord(Readable, msgspec.Struct, frozen=True):
    """What became of one fact."""

    subject: str
    promote: str
    reason: str = ""
    item_id: str | None = None

    def __str__(self) -> str:
        return f"{self.subject}: {self.promote}" + (f", {self.reason}" if self.reason else "")


class PromotionReport(Listing[PromotionRecord], msgspec.Struct, frozen=True):
    """What became of each fact."""

    ENTRIES = "records"

    records: tuple[PromotionRecord, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self.records))


def review_candidates(
    session: Session,
    facts: Sequence[Mapping[str, Any]],
    *,
    task: str,  # noqa: ARG001
    write: bool,
) -> PromotionReport:
    """Promote facts that hold beyond one plan."""
    records = []
    for fact in facts if write else ():
        kept = Memory(session).repository_fact(**fact)
        promote = {"stored": "yes", "merged": "yes", "flagged": "defer", "rejected": "no"}[kept.outcome]
        records.append(PromotionRecord(fact["subject"], promote, kept.reason, kept.item_id))
    return PromotionReport(tuple(records))
