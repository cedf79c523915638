"""Searching: what an actor may look through, and what a search answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from ..access.rights import TIERS
from .lines import DigestLine, candidate
from .search import SERVES, Answer, LeftOut

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .verification import Checks

IGNORED = "memory is left out of this turn, as asked"


def search(
    session: Session,
    query: str = "",
    *,
    mode: str = "hybrid",
    tiers: Sequence[str] | None = None,
    date_range: Mapping[str, date | str] | tuple[date | str, date | str] | None = None,
    agent_filter: Sequence[str] | None = None,
    cores: Sequence[str] | None = None,
    limit: int = 10,
    max_results: int | None = None,
    at: At = None,
    explain: bool = False,
    ignore_memory: bool = False,
) -> Answer:
    """Find items and events that answer a query, among those that this actor may see, as of `at`.

    `mode` is keyword, semantic, date_range, agent_filter or hybrid (by all there is to go by: words, meaning, what
    was said around it, days and speakers that are named). "Phrases" in quotes must occur in the first, and count
    for more in the last; a `*` at a word's end stands for any ending; a typing error in a longer word that occurs
    nowhere is mended, and the answer says so. `date_range` (days, both included) and `agent_filter` narrow any
    mode; with no query, those two modes list what there is. `cores` looks in these cores alone. At most `limit`
    results come, which `max_results` is another name for. `explain` says why each is there. With `ignore_memory`,
    or in a turn that was asked to, nothing is looked for.
    """
    wanted = {
        "query": query, "mode": mode, "tiers": tiers, "date_range": date_range, "agent_filter": agent_filter,
        "max_results": limit if max_results is None else max_results, "cores": cores,
    }  # fmt: skip
    if not ignore_memory and not session.ignores_memory():
        _check_may_search(session, mode, tiers)
    answer = searched(session, wanted, at, explain=explain, ignore=ignore_memory)
    session.was_shown([one.id for one in answer.results])
    return answer


def searched(
    session: Session,
    wanted: dict[str, Any],
    at: At,
    *,
    explain: bool = False,
    ignore: bool = False,
    checks: Checks | None = None,
) -> Answer:
    """What a search finds. What is said of files is as it was found last; with `checks`, it is checked anew."""
    from .finding import find

    if ignore or session.ignores_memory():
        return Answer((), 0, (LeftOut("memory", IGNORED),), session.ledger.head)
    _note_denied_tiers(session, wanted["tiers"])
    return find(session, wanted, at, explain=explain, checks=checks)


def remembered_about(
    session: Session, query: str, cores: Sequence[str] | None, most: int, at: At, checks: Checks
) -> list[DigestLine]:
    """What is remembered about something, as lines for a prompt; what they say of files is checked anew."""
    wanted = {
        "query": query, "mode": "hybrid", "tiers": ["long_term", "semantic"], "date_range": None,
        "agent_filter": None, "max_results": most, "cores": cores,
    }  # fmt: skip
    answer = searched(session, wanted, at, checks=checks)
    with session.items(at) as judge:
        read = [(hit, judge.item(hit.id)) for hit in answer.results]
        items = [(hit, judge.shown(item)) for hit, item in read if item is not None]
    return [candidate(item, "search", hit.content, hit.score, stale=hit.stale) for hit, item in items]


def _check_may_search(session: Session, mode: str, tiers: object) -> None:
    """A search of which every tier is closed to this agent is refused; one of which something is left says what it left
    out."""
    if session.run is None:
        return
    session.check_enabled("memory.search")
    if not session.rules.search:
        session.deny(
            "memory.search",
            "search_enabled",
            f"{session.actor!r} may not use memory.search: search_enabled is false in its agent file or the workflow's",
        )
    named = tiers if isinstance(tiers, list | tuple | set) else SERVES.get(str(mode), ())
    wanted = [tier for tier in TIERS if tier in named]
    if wanted and not any(map(session.reads, wanted)):
        enabled = [tier for tier in wanted if tier in session.tiers]
        if not enabled:
            session.check_enabled("memory.search", wanted[0])
        session.check_reads(enabled[0])


def _note_denied_tiers(session: Session, tiers: object) -> None:
    """Asking for a tier that one may not read leaves a trace, as reading it does."""
    asked = [tier for tier in TIERS if isinstance(tiers, list | tuple | set) and tier in tiers]
    if not asked:
        return
    rights = session.rights()
    for tier in [tier for tier in asked if rights.tier(tier) == "none"]:
        session.record_denial("memory.search", tier)
