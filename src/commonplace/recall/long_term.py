"""The long-term block of a prompt: what is pinned, then what was found for the task, then the team's newest items.

Only as many items are read as the block can hold, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush, merge
from itertools import islice
from typing import NamedTuple

from ..access.rights import OWNER
from ..ledger.keys import Key
from ..memory.items import Item
from ..memory.reading import of_memory
from ..memory.viewer import Viewer
from .gathering import Bar, DigestRequest, Gathered
from .lines import DigestLine, candidate, text_of
from .packing import LEAST
from .verification import Checks

BLOCK_SHARE = 500
"""How many characters of one item the long-term block shows at the most."""


class LongTerm(NamedTuple):
    """The lines that may stand in the block, in their order; the items that may not, with the reason; those that are
    cut to their share, with the reason; and whether there are items that were not read."""

    lines: Sequence[DigestLine]
    barred: Sequence[tuple[str, str]]
    cut: Mapping[str, str]
    more: bool


def long_term(
    viewer: Viewer,
    actor: str,
    request: DigestRequest,
    found: Sequence[Gathered],
    checks: Checks,
    max_chars: int,
) -> LongTerm:
    """What a block of so many characters is packed from. Items that have expired or grown stale are left out; the
    digest marks what is stale."""
    by_id = {gathered.item.id: gathered for gathered in found}
    bar = Bar(request, viewer.settings, {})
    enough = max_chars // LEAST + 1  # no line is shorter, so no more can be shown
    lines, barred, cut = list[DigestLine](), list[tuple[str, str]](), dict[str, str]()
    items = in_order(viewer, actor, found)
    while len(lines) < enough and (page := list(islice(items, enough))):
        known = checks.of(viewer.views, page)
        for item in page:
            stale = known[item.id].check.stale if item.id in known else ""
            if why := bar.why(item) or (f"stale: {stale}" if stale else ""):
                barred.append((item.id, why))
                continue
            line, shortened = _line(item, by_id.get(item.id))
            lines.append(line)
            if shortened:
                cut[item.id] = shortened
    return LongTerm(lines, barred, cut, next(items, None) is not None)


def in_order(viewer: Viewer, actor: str, found: Sequence[Gathered]) -> Iterator[Item]:
    """The items of long-term memory that a reader may see, as it is shown them: pinned ones first (its own, then the
    owner's, then those of others), then those that were found for the task, then the newest."""
    pinned = list(_pinned(viewer, actor))
    relevant = [gathered.item for gathered in found if of_memory(gathered.item)]
    shown = set[str]()
    for item in (*pinned, *relevant):
        if item.id not in shown:
            shown.add(item.id)
            yield item
    for item in _newest(viewer):
        if item.id not in shown:
            yield viewer.shown(item)


def _pinned(viewer: Viewer, actor: str) -> list[Item]:
    items = (viewer.item(str(id)) for (_, id), _ in viewer.rows("memory.pinned"))
    pinned = [viewer.shown(item) for item in items if item is not None and item.current]
    authors = {OWNER: 1, actor: 0}
    return sorted(pinned, key=lambda item: (authors.get(item.agent, 2), -item.recorded_us, item.id))


def _newest(viewer: Viewer) -> Iterator[Item]:
    """The team's items, the newest first. One that was shared later than it was recorded is met too early, so each
    waits until no item that was recorded after it can follow."""
    waiting, known = list[tuple[int, str, Item]](), set[str]()
    for (_, _, id), shared_us in _shared(viewer):
        while waiting and -waiting[0][0] > shared_us:
            yield heappop(waiting)[2]
        item = None if id in known else viewer.item(str(id))
        if item is not None and item.current and of_memory(item):
            known.add(item.id)
            heappush(waiting, (-item.recorded_us, item.id, item))
    while waiting:
        yield heappop(waiting)[2]


def _shared(viewer: Viewer) -> Iterator[tuple[Key, int]]:
    """What was shared, the last first."""
    each = [viewer.views.each("memory.team", where, reverse=True) for where in viewer.partitions]
    return merge(*each, key=lambda row: int(row[0][1]), reverse=True)


def _line(item: Item, found: Gathered | None) -> tuple[DigestLine, str]:
    """An item as a line of the block, and why it is cut, if it is. What was found for the task shows what the digest
    would show, unless it is pinned and short enough to stand there whole."""
    text = text_of(item)
    shown = text if found is None or (item.pinned and len(text) <= BLOCK_SHARE) else found.words
    if item.pinned or found is None:
        line = candidate(item, "pinned" if item.pinned else "newest", shown)
    else:
        line = candidate(item, found.via, shown, found.score, found.signals)
    if len(line.text) <= BLOCK_SHARE:
        return line, ""
    why = f"cut to {BLOCK_SHARE} of {len(line.text)} characters: one item has no more in the block"
    return line.cut_to(BLOCK_SHARE - 1), why
