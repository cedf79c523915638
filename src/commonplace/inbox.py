"""All that waits for a person: `book.inbox()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from .ledger.printing import Readable
from .memory.items import Item
from .memory.verbs import Memory
from .verbs import WorkId
from .work.opening import Works, work
from .work.records import Inbox

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .session import Session


class WorkWaiting(Readable, msgspec.Struct, frozen=True):
    """What waits for a person in one work."""

    work: str
    name: str
    inbox: Inbox

    def __str__(self) -> str:
        return f"{self.name}: {self.inbox}"


def lacking(item: Item) -> str:
    """What a lesson that waits for evidence lacks, as an addition to what it says."""
    return f" ({item.held.because})" if item.held is not None and item.held.why == "evidence" else ""


class Waiting(Readable, msgspec.Struct, frozen=True):
    """What waits for a person: near-duplicates and lessons without evidence that are held, disputes, what was proposed
    for a core, and in works approvals, choices, reviews, escalations, failed tasks and candidates."""

    held: tuple[Item, ...]
    disputes: tuple[Item, ...]
    proposals: tuple[Item, ...]
    works: tuple[WorkWaiting, ...]

    def __str__(self) -> str:
        if not len(self):
            return "nothing waits for a person"
        held = [("held", self.held), ("disputed", self.disputes), ("proposed", self.proposals)]
        items = [f"{why}: {item}{lacking(item)}" for why, items in held for item in items]
        return "\n".join([*items, *map(str, self.works)])

    def __len__(self) -> int:
        inner = (getattr(each.inbox, name) for each in self.works for name in each.inbox.__struct_fields__)
        return len(self.held) + len(self.disputes) + len(self.proposals) + sum(map(len, inner))


def inbox(session: Session, work_id: WorkId | None = None, *, at: At = None) -> Waiting:
    """All that waits for a person, as of `at`: held items, disputes and proposals, and what waits in each open work.
    `work_id` is the work to look at alone."""
    if work_id is None:
        held = Memory(session).held(at=at) if session.reads("long_term", at) else []
        works = [info for info in Works(session).list(at=at) if info.open]
    else:
        held, works = [], [work(session, work_id).info(at)]
    by_reason = {
        why: tuple(item for item in held if item.held is not None and item.held.why == why)
        for why in ("dispute", "proposal")
    }
    settled = {item.id for items in by_reason.values() for item in items}
    waiting = [WorkWaiting(info.id, info.name, work(session, info.id).inbox(at=at)) for info in works]
    return Waiting(
        tuple(item for item in held if item.id not in settled),
        by_reason["dispute"],
        by_reason["proposal"],
        tuple(
            one for one in waiting if any(getattr(one.inbox, name) for name in one.inbox.__struct_fields__)
        ),
    )
