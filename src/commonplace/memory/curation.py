"""Curation: what is decided under the book's lock, what it leaves in the ledger, and its answer.

Every curation leaves `memory.curated`: which lines of the daily logs were taken into which items. So the same lines are
not taken in twice, and what was made of them and forgotten or erased since does not come back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..access.commands import need_tier
from ..access.rights import rights_of
from ..documents.document import day_of
from ..errors import Denied
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.printing import LeftOut, Listing, Readable, number
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..ledger.views import View
from .items import Item
from .judging import decide_remember
from .reading import item_at
from .requests import Remember, RememberResult
from .viewer import Viewer

CURATED = "memory.curated"

LogLine = tuple[str, int]
"""A line of a daily log: the id of its entry, and its number there."""


class CuratedFact(Readable, msgspec.Struct, frozen=True):
    """Something that a curation found: the lines that say it, and what became of it."""

    text: str
    citations: tuple[str, ...]
    outcome: str
    """stored, merged, flagged (it waits in the inbox) or rejected; of a dry run, what it would be."""
    reason: str = ""
    id: str | None = None

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return "\n".join(
            [f"{self.outcome}{reason}", f"  {self.text}", *(f"    {cited}" for cited in self.citations)]
        )


class Curated(Listing[CuratedFact], msgspec.Struct, frozen=True):
    """What `curate` did, or with `dry_run` would do: MEMORY.md before and after as a diff, each fact with the lines
    that it cites, and what was left out."""

    ENTRIES = "found"

    days: int
    lines: int
    """How many lines were looked at."""
    found: tuple[CuratedFact, ...] = ()
    diff: str = ""
    """What changes in MEMORY.md; empty if nothing does."""
    left_out: tuple[LeftOut, ...] = ()
    by_model: bool = False
    fallback: str = ""
    """Why the model's answer was not used, if it was not."""
    dry_run: bool = False

    def __str__(self) -> str:
        parts = [
            self.diff or f"MEMORY.md {'would stay' if self.dry_run else 'is'} as it was",
            *map(str, self.found),
        ]
        parts += [f"the model's answer was not used: {self.fallback}"] if self.fallback else []
        parts += [f"left out: {part.what} ({part.why})" for part in self.left_out]
        looked = f"{number(self.lines, 'line')} of the last {number(self.days, 'day')} looked at"
        return "\n".join([*parts, f"{looked}, {number(len(self.found), 'fact')} found"])


class Curate(msgspec.Struct, frozen=True):
    """Take in what was found in the logs. `lines` are those that each request cites."""

    by: str
    days: int
    requests: tuple[Remember, ...]
    lines: tuple[tuple[LogLine, ...], ...]
    run: str | None = None
    dry_run: bool = False


class CurateDecision(msgspec.Struct, frozen=True):
    """What became of each request, and the items that were made or changed by it, as their author is shown them."""

    results: tuple[RememberResult, ...]
    items: tuple[Item, ...]
    dry_run: bool = False


class _Tried(Exception):
    """Carries what a dry run would answer out of the part of the transaction that is undone by it."""

    def __init__(self, decision: CurateDecision) -> None:
        self.decision = decision


def decide_curate(overlay: Overlay, request: Curate) -> CurateDecision | Denied:
    """A dry run is decided in the same way and then undone, so that it says exactly what would happen."""
    try:
        decision: CurateDecision | Denied = overlay.run(overlay.acting, _decide, request)
    except _Tried as tried:
        return tried.decision
    return decision


def _decide(overlay: Overlay, request: Curate) -> CurateDecision | Denied:
    refused = need_tier(overlay, request.by, "long_term", True, request.run)
    if refused:
        return refused
    viewer = Viewer(((overlay, rights_of(overlay, request.by, request.run)),))
    results, taken, touched = list[RememberResult](), list[dict[str, Any]](), dict[str, Item]()
    for each, lines in zip(request.requests, request.lines, strict=True):
        known = _taken_before(overlay, viewer, lines)
        result = known or decide_remember(overlay, each)
        if isinstance(result, Denied):
            return result
        if known is None and result.item_id is not None and result.outcome != "rejected":
            taken.append({"id": result.item_id, "lines": [list(line) for line in lines]})
        results.append(result)
        for id in (result.item_id, *(result.held.items if result.held else ())):
            item = None if id is None else viewer.item(id)
            if item is not None:
                touched[item.id] = viewer.shown(item)
    decision = CurateDecision(tuple(results), tuple(touched.values()), request.dry_run)
    if request.dry_run:
        raise _Tried(decision)
    if taken or last_curated_day(overlay) != day_of(overlay.now):
        # For its author and the owner: it names items and log entries that others may not know of.
        payload = {"days": request.days, "items": taken}
        mark = draft(
            CURATED, actor=request.by, payload=payload, run_id=request.run, labels={"sensitivity": "private"}
        )
        overlay.emit(mark)
    return decision


def _taken_before(overlay: Overlay, viewer: Viewer, lines: Sequence[LogLine]) -> RememberResult | None:
    """The answer for lines that were taken in before. New lines beside them are new evidence, unless what the others
    became has been forgotten since."""
    taken = [overlay.get("memory.curated_lines", *line) or [] for line in lines]
    items = {id: viewer.item(id) for ids in taken for id in ids}
    if any(items[id] is None and item_at(overlay, id) is not None for id in items):
        # Why it was not taken in again must not tell what became of an item that this actor may not see.
        return RememberResult(None, "rejected", "these lines were curated before")
    gone = {id for id, item in items.items() if item is None or item.status in ("forgotten", "dropped")}
    if any(ids and gone.issuperset(ids) for ids in taken):
        reason = (
            "these lines were curated before, and what was made of them has been forgotten or dropped since"
        )
        return RememberResult(None, "rejected", reason)
    of_all = [id for id in taken[0] if id not in gone and all(id in ids for ids in taken)]
    return RememberResult(of_all[-1], "merged", "these lines were curated before") if of_all else None


def last_curated_day(views: ViewReader) -> str:
    """The day, in UTC, of the last curation in the scope of a reader; "" if there was none."""
    curated_us = views.get("memory.curated", views.scope)
    return "" if curated_us is None else day_of(curated_us)


def _curated_lines(event: Event) -> list[Key]:
    return [(entry, line) for item in event.payload["items"] for entry, line in item["lines"]]


def _fold_line(key: Key, before: Any, event: Event) -> list[str]:
    """The items that a line was taken into."""
    new = [item["id"] for item in event.payload["items"] if [*key] in item["lines"]]
    return list(dict.fromkeys([*(before or ()), *new]))


CURATION_VIEWS = (
    View(
        "memory.curated", 1, lambda event: [(scope_of(event),)], lambda _key, _before, event: event.created_us,
        kinds=frozenset({CURATED}), header_only=True, overwrites=True,
    ),
    View("memory.curated_lines", 1, _curated_lines, _fold_line, kinds=frozenset({CURATED})),
)  # fmt: skip
