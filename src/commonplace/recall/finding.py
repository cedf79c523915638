"""How a search is answered: from the index, or where there is no query, from what there is in a time or by an agent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from msgspec.structs import replace

from ..access.rights import rights_of
from ..memory.items import Item
from ..memory.requests import CREATED
from .escaping import RESULT
from .search import MOST, Answer, LeftOut, SearchResult, asked, excerpt, result, visible
from .verification import Checks, RecordedCheck, recorded

if TYPE_CHECKING:
    from ..index import Found, Hit, How, Index, Who
    from ..ledger.ledger import At
    from ..session import Session
    from .book_index import BookIndex


HOW: dict[str, How] = {"semantic": "semantic", "hybrid": "hybrid"}
MOST_LOOKED_AT = 8 * MOST
"""How many hits are looked at for those that still hold."""
Holding = TypeVar("Holding")
Dropped = TypeVar("Dropped")


def find(
    session: Session, wanted: dict[str, Any], at: At, *, explain: bool = False, checks: Checks | None = None
) -> Answer:
    """Answer one search by one actor. What is said of files is as it was found last; with `checks`, it is checked anew.
    Raises BadInput."""
    search = asked(**wanted, enabled=session.tiers)
    indexing = session.services.index
    with session.snapshot() as now, session.snapshot(at) as then:
        rights = [
            rights_of(views, session.actor, session.run) for views in ((now,) if at is None else (then, now))
        ]
        position, now_at = None if at is None else then.position, now.position
    left_out = list(search.left_out)
    barred = [tier for tier in search.tiers if any(one.tier(tier) == "none" for one in rights)]
    left_out += [LeftOut(tier, "you may not read it") for tier in barred]
    tiers = {tier for tier in search.tiers if tier not in barred}
    results_too = search.mode == "agent_filter" and "episodic" in tiers

    def chosen(who: Who) -> bool:
        """In a tier that is looked at, or an agent's own result when its history is; and of the cores asked for."""
        right = search.mode == "semantic" or who.tier in tiers or (results_too and who.kind == RESULT)
        return right and (search.cores is None or who.core in search.cores)

    if search.mode == "semantic" and not tiers:
        return Answer((), 0, tuple(left_out), now_at if position is None else position)

    def look(limit: int, index: Index, ended: bool = False) -> Found:
        return index.search(
            search.query,
            allowed=visible(rights),
            at=position,
            since_us=search.since_us,
            until_us=search.until_us,
            authors=search.agents,
            chosen=chosen,
            limit=limit,
            listing=not search.query.strip() and search.mode in ("date_range", "agent_filter"),
            how="keyword" if ended else HOW.get(search.mode, "keyword"),
            vectors="semantic" in tiers,
            ended=ended,
        )

    holding = _Holding(session, position, session.ledger.moment(at), checks)
    found, hits, dropped, trouble = holding_ones(indexing, look, search.max_results, holding.of)
    left_out += trouble
    total, hits = found.total - len(found.hits) + len(hits), hits[: search.max_results]
    if total > len(hits):
        left_out.append(LeftOut(f"{total - len(hits)} more", f"only {search.max_results} were asked for"))
    if found.cut:
        left_out.append(LeftOut("the end of the query", "it is longer than a query may be"))
    if indexing.missing and "semantic" in tiers:
        left_out.append(LeftOut("semantic", indexing.missing))
    left_out += dropped
    left_out += superseded(session, position, partial(look, MOST, ended=True))
    results = [_shown(one, search.mode, explain) for one in hits]
    return Answer(tuple(results), total, tuple(left_out), found.as_of, found.corrected)


class Holds(NamedTuple):
    """A hit that still holds, its item, if it is one, and what of that is stale."""

    hit: Hit
    item: Item | None = None
    stale: str = ""


class _Holding:
    """Tells hits that still hold from those that do not, for one reader as of one moment."""

    def __init__(self, session: Session, at: int | None, now_us: int, checks: Checks | None) -> None:
        self._session, self._at, self._now_us, self._checking = session, at, now_us, checks

    def of(self, hits: list[Hit]) -> tuple[list[Holds], list[LeftOut]]:
        """The hits that hold, and how many do not, and why. What its reader may not see any more is neither."""
        with self._session.items(self._at) as judge:
            policy = judge.settings.stale
            read = ((hit.id, judge.item(hit.id)) for hit in hits if hit.kind == CREATED)
            items = {id: judge.shown(item) for id, item in read if item is not None}
        known = self._checks(list(items.values()))
        stale = {id: one.check.stale for id, one in known.items() if one.check.stale}
        kept, reasons = list[Holds](), dict[tuple[str, str], int]()
        for hit in hits:
            item = items.get(hit.id)
            if item is None:
                kept += [Holds(hit)] if hit.kind != CREATED else []
                continue
            why = self._why_not(item)
            if not why and policy == "leave_out" and hit.id in stale:
                why = "stale", stale[hit.id]
            if why:
                reasons[why] = reasons.get(why, 0) + 1
            else:
                kept.append(Holds(hit, item, stale.get(hit.id, "")))
        return kept, [LeftOut(f"{number} {what}", why) for (what, why), number in reasons.items()]

    def _checks(self, items: list[Item]) -> dict[str, RecordedCheck]:
        if self._session.services.repository is None:
            return {}
        if self._checking is not None:
            return self._checking.of(items, self._at)
        return recorded(self._session.ledger, items, self._at)

    def _why_not(self, item: Item) -> tuple[str, str] | None:
        """What an item is that does not hold, and why."""
        if not item.current:
            return item.status, f"it is {item.status} by now"
        if item.expired(self._now_us):
            return "expired", "expired: the time for which it holds is over"
        if not item.valid(self._now_us):
            return "not yet valid", "the time for which it holds has not begun"
        return None


def _shown(found: Holds, mode: str, explain: bool) -> SearchResult:
    """A hit as its reader sees it: of an item only what it says, not the tags by which it is found, too."""
    hit, item, stale = found
    plain = result(hit, mode, explain)
    if item is None:
        return plain
    words = {word for _, those, _ in hit.matched for word in those.split(" ")}
    content = excerpt(item.text, words)
    return replace(plain, content=content, text=item.text, stale=stale, disputed=item.disputed)


def superseded(session: Session, at: int | None, look: Callable[[Index], Found]) -> list[LeftOut]:
    """How many items would have matched whose place another one has taken, of those that their reader may see."""
    ids = dict.fromkeys(hit.id for hit in session.services.index.asked(look).hits if hit.kind == CREATED)
    with session.items(at) as judge:
        items = [item for id in ids if (item := judge.item(id)) is not None and item.status == "superseded"]
    return [LeftOut(f"{len(items)} superseded", "another item has taken the place")] if items else []


def holding_ones(
    indexing: BookIndex,
    look: Callable[[int, Index], Found],
    most: int,
    sift: Callable[[list[Hit]], tuple[list[Holding], list[Dropped]]],
) -> tuple[Found, list[Holding], list[Dropped], list[LeftOut]]:
    """Look for so many hits until as many of them hold, because what does not hold takes nobody's place: what the index
    found, those that hold and what is dropped, as `sift` tells them apart, and what there is to say of the index."""
    limit = most
    while True:
        found, trouble = _looked_up(indexing, partial(look, limit))
        hold, dropped = sift(found.hits)
        if len(hold) >= most or len(found.hits) < limit or limit >= MOST_LOOKED_AT:
            return found, hold, dropped, trouble
        limit *= 2


def _looked_up(indexing: BookIndex, look: Callable[[Index], Found]) -> tuple[Found, list[LeftOut]]:
    """What the index answers once it has caught up, and what there is to say of it."""
    found = indexing.asked(look)
    return found, [LeftOut("the index file", indexing.trouble)] if indexing.trouble else []
