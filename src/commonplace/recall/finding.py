"""How a search is answered: from the index, or where there is no query, from what there is in a time or by an agent."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.rights import rights_of
from ..index import Found, Who
from ..memory.reading import judging
from ..memory.requests import CREATED
from .checking import checked
from .feed import RESULT
from .search import Answer, LeftOut, Result, asked, result, visible

if TYPE_CHECKING:
    from ..book import At
    from ..index import How, Index
    from ..ledger import Ledger
    from .indexing import Indexing


HOW: dict[str, How] = {"semantic": "semantic", "hybrid": "hybrid"}


def find(
    ledger: Ledger,
    actor: str,
    run: str | None,
    wanted: dict[str, Any],
    enabled: Collection[str],
    at: At,
    explain: bool,
) -> Answer:
    """Answer one search by one actor. Raises BadInput."""
    search = asked(**wanted, enabled=enabled)
    indexing: Indexing = ledger.indexing
    with ledger.snapshot() as now, ledger.snapshot(at) as then:
        rights = [rights_of(lens, actor, run) for lens in ((now,) if at is None else (then, now))]
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

    def look(index: Index) -> Found:
        return index.search(
            search.query,
            allowed=visible(rights),
            at=position,
            since_us=search.since_us,
            until_us=search.until_us,
            authors=search.agents,
            chosen=chosen,
            limit=search.max_results,
            listing=not search.query.strip() and search.mode in ("date_range", "agent_filter"),
            how=HOW.get(search.mode, "keyword"),
            vectors="semantic" in tiers,
        )

    found, trouble = looked_up(ledger, look)
    left_out += trouble
    hits = found.hits
    if found.total > len(hits):
        left_out.append(
            LeftOut(f"{found.total - len(hits)} more", f"only {search.max_results} were asked for")
        )
    if found.cut:
        left_out.append(LeftOut("the end of the query", "it is longer than a query may be"))
    if indexing.without_vectors and "semantic" in tiers:
        left_out.append(LeftOut("semantic", indexing.without_vectors))
    results = [result(hit, search.mode, explain) for hit in hits]
    results, dropped = _verified(ledger, actor, run, results, position)
    left_out += dropped
    return Answer(tuple(results), found.total, tuple(left_out), found.as_of, found.corrected)


def _verified(
    ledger: Ledger, actor: str, run: str | None, results: list[Result], at: int | None
) -> tuple[list[Result], list[LeftOut]]:
    """The results, with what does not hold any more marked, or left out if the book says so."""
    if ledger.repository is None:
        return results, []
    with judging(ledger, actor, at, run) as judge:
        policy = judge.settings.stale
        items = [judge.item(one.id) for one in results if one.kind == CREATED]
    known = checked(ledger, actor, run, [one for one in items if one is not None], at)
    stale = {id: one.check.stale for id, one in known.items() if one.check.stale}
    if policy == "leave_out" and stale:
        told = "; ".join(dict.fromkeys(stale.values()))
        return [one for one in results if one.id not in stale], [LeftOut(f"{len(stale)} stale", told)]
    return [replace(one, stale=stale.get(one.id, "")) for one in results], []


def looked_up(ledger: Ledger, look: Callable[[Index], Found]) -> tuple[Found, list[LeftOut]]:
    """What the index answers once it has caught up, and what there is to say of it."""
    indexing: Indexing = ledger.indexing
    found = indexing.asked(look)
    return found, [LeftOut("the index file", indexing.trouble)] if indexing.trouble else []
