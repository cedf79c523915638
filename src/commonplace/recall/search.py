"""Search: what an actor may look through, how a search is answered, and the answer that says what it left out.

The index finds documents. Items among them are then read as the reader may see them, so that an answer never shows
what has expired, was superseded or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from ..access.commands import deny, record_denial
from ..access.rights import AUTHOR, TIERS, Rights, may_see_of
from ..documents.document import check_day
from ..errors import BadInput, shown
from ..index.names import SIGNALS
from ..index.words import snippet
from ..ledger.checks import check_name, check_text, from_us, iso, to_us
from ..ledger.printing import LeftOut, Listing, Readable
from ..memory.filters import ItemFilter, check_filter, chosen_ids, item_filter, time_range
from ..memory.items import Item
from ..memory.requests import CREATED
from .escaping import RESULT
from .lines import DigestLine, candidate
from .verification import Checks, recorded

if TYPE_CHECKING:
    from ..index import Hit, How, Index, IndexHits, Who
    from ..ledger.ledger import At
    from ..memory.viewer import Viewer
    from ..session import Session
    from .book_index import BookIndex

SERVES = {
    "keyword": ("long_term", "working"),
    "semantic": ("semantic",),
    "date_range": ("working",),
    "agent_filter": ("episodic",),
    "hybrid": TIERS,
}
"""The tiers that each mode looks at."""
HOW: dict[str, How] = {"semantic": "semantic", "hybrid": "hybrid"}
IGNORED = "memory is left out of this turn, as asked"
MOST = 200
"""How many results a search may ask for."""
MOST_READ = 8 * MOST
"""How many hits are read for those that still hold."""
LONGEST_WORD = 40

Read = TypeVar("Read")
Dropped = TypeVar("Dropped")


# what a search answers


class SearchResult(Readable, msgspec.Struct, frozen=True):
    """Something that was found: an item or an event by its id, the tier and file or run it stands in, the words
    around the match, a score from 0 to 1, and why it is there."""

    id: str
    tier: str
    source: str
    content: str
    score: float
    timestamp: datetime
    author: str
    kind: str
    why: str = ""
    text: str = ""
    """All of it."""
    stale: str = ""
    """What of it does not hold any more, as far as it was looked up."""
    disputed: tuple[str, ...] = ()
    """Items that say otherwise, until somebody settles it."""

    @property
    def marks(self) -> str:
        """What a reader has to know before taking it for a fact."""
        return ", ".join(
            (["disputed"] if self.disputed else []) + ([f"stale: {self.stale}"] if self.stale else [])
        )

    def __str__(self) -> str:
        return f"{self.score:.2f}  {self.content}" + (f"  [{self.marks}]" if self.marks else "")


class Answer(Listing[SearchResult], msgspec.Struct, frozen=True):
    """What a search found, the best first; how many there are in all; what it left out; and as of which position
    it speaks."""

    ENTRIES = "results"

    results: tuple[SearchResult, ...]
    total: int
    left_out: tuple[LeftOut, ...]
    as_of: int
    corrected: dict[str, str] = {}

    def __str__(self) -> str:
        """The results as a person would read them, and what was left out."""
        left_out = [f"left out: {part.what} ({part.why})" for part in self.left_out]
        return "\n".join([*map(str, self.results), *left_out]) or "nothing was found"


def envelope(answer: Answer) -> dict[str, Any]:
    """The answer as the tool gives it."""
    fields = ("id", "tier", "source", "content", "score")
    results = [
        {name: getattr(result, name) for name in fields}
        | {"timestamp": iso(to_us("timestamp", result.timestamp))}
        | {name: value for name in ("why", "stale") if (value := getattr(result, name))}
        | ({"disputed": list(result.disputed)} if result.disputed else {})
        for result in answer
    ]
    return {
        "results": results,
        "total": answer.total,
        "left_out": [{"what": part.what, "why": part.why} for part in answer.left_out],
        "as_of": answer.as_of,
        "corrected": answer.corrected,
    }


# the verb


def search(
    session: Session,
    query: str = "",
    *,
    mode: str = "hybrid",
    kind: str | None = None,
    tags: Sequence[str] | None = None,
    agent: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    metadata: Mapping[str, Any] | None = None,
    tiers: Sequence[str] | None = None,
    date_range: Mapping[str, date | str] | tuple[date | str, date | str] | None = None,
    agent_filter: Sequence[str] | None = None,
    cores: Sequence[str] | None = None,
    limit: int = 10,
    max_results: int | None = None,
    at: At = None,
    explain: bool = False,
    ignore_memory: bool = False,
    scope: str | None = None,
) -> Answer:
    """Find items and events that answer a query, among those that this actor may see, as of `at`.

    `mode` is keyword, semantic, date_range, agent_filter or hybrid (by all there is to go by: words, meaning, what was
    said around it, days and speakers that are named). "Phrases" in quotes must occur in the first, and count for more
    in the last; a `*` at a word's end stands for any ending; a typing error in a longer word that occurs nowhere is
    mended, and the answer says so. Filters (kind, tags, metadata) choose items as those of `memory.list` do, before
    anything is ranked; since and until look at the times of results. `date_range` (days, both included) and
    `agent_filter` narrow any mode; with no query, those two modes list what there is. `cores` looks in these cores
    alone. At most `limit` results come, which `max_results` is another name for. `explain` says why each is there. With
    `ignore_memory`, or in a turn that was asked to, nothing is looked for.

    `kind` is fact, note, procedure or episode. `until` is the time before which a result is. `tiers` are the tiers of
    memory to look in. `agent_filter` are the agents whose words to look in. `max_results` is another name of limit.
    """
    session = session.narrowed(scope)
    if ignore_memory or session.ignores_memory():
        return Answer((), 0, (LeftOut("memory", IGNORED),), session.ledger.head)
    _check_may_search(session, mode, tiers)
    _note_denied_tiers(session, tiers)
    most = limit if max_results is None else max_results
    only = item_filter(kind=kind, tags=tags, metadata=metadata)
    narrowed = Narrowed(date_range, agent_filter, agent, *time_range(since, until))
    request = _request(query, mode, tiers, narrowed, most, cores, session.tiers, only)
    answer = _answer(session, request, at, explain=explain)
    session.was_shown([result.id for result in answer])
    return answer


def remembered_about(
    session: Session, query: str, cores: Sequence[str] | None, limit: int, at: At, checks: Checks
) -> list[DigestLine]:
    """What is remembered about something, as lines for a prompt; what they say of files is checked anew."""
    if session.ignores_memory():
        return []
    tiers = ["long_term", "semantic"]
    _note_denied_tiers(session, tiers)
    request = _request(query, "hybrid", tiers, Narrowed(), limit, cores, session.tiers)
    answer = _answer(session, request, at, checks=checks)
    with session.viewer(at) as viewer:
        read = [(result, viewer.item(result.id)) for result in answer]
        return [
            candidate(viewer.shown(item), "search", result.content, result.score, stale=result.stale)
            for result, item in read
            if item is not None
        ]


def _check_may_search(session: Session, mode: str, tiers: object) -> None:
    """Raises Denied or NotEnabled, and records it, if every tier of a search is closed to this agent. A search of which
    something is left says what it left out."""
    if session.run is None:
        return
    session.check_enabled("memory.search")
    if not session.rules.search:
        deny(
            session,
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
    """Record that an actor asked for a tier that it may not read, as a refused read is recorded."""
    named = [tier for tier in TIERS if isinstance(tiers, list | tuple | set) and tier in tiers]
    if named:
        rights = session.rights()
        for tier in named:
            if rights.tier(tier) == "none":
                record_denial(session, "memory.search", tier)


# what is asked for


class Narrowed(NamedTuple):
    """Whose words and which times a caller asks for: as the seed's modes name them, and as every verb does."""

    date_range: object = None
    agent_filter: object = None
    agent: object = None
    since_us: int | None = None
    until_us: int | None = None

    def times(self) -> tuple[int | None, int | None]:
        """The times that lie in both ranges."""
        first, last = days(self.date_range)
        begins = [us for us in (first, self.since_us) if us is not None]
        ends = [us for us in (last, self.until_us) if us is not None]
        return max(begins, default=None), min(ends, default=None)

    def agents(self) -> tuple[str, ...] | None:
        """The agents that both name."""
        names = self.agent_filter
        if names is not None and not isinstance(names, list | tuple | set):
            raise BadInput("agent_filter is a list, such as ['research_analyst']")
        agents = None if names is None else tuple(check_name("an agent", name) for name in names)
        if self.agent is None:
            return agents
        agent = check_name("agent", self.agent)
        return (agent,) if agents is None or agent in agents else ()


class SearchRequest(msgspec.Struct, frozen=True):
    """A search, checked."""

    query: str
    mode: str
    tiers: tuple[str, ...]
    since_us: int | None
    until_us: int | None
    agents: tuple[str, ...] | None
    limit: int
    cores: tuple[str, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()
    only: ItemFilter = ItemFilter()
    """The items to look for; if it says nothing, whatever there is."""

    def chooses(self, who: Who, tiers: Collection[str]) -> bool:
        """Whether a document is in one of the tiers, or an agent's own result when its history is looked at; and in one
        of the cores."""
        own_result = self.mode == "agent_filter" and "episodic" in tiers and who.kind == RESULT
        in_tier = self.mode == "semantic" or who.tier in tiers or own_result
        return in_tier and (self.cores is None or who.core in self.cores)


def _request(
    query: object,
    mode: str,
    tiers: Collection[str] | None,
    narrowed: Narrowed,
    limit: object,
    cores: Collection[str] | None,
    enabled: Collection[str],
    only: ItemFilter = ItemFilter(),
) -> SearchRequest:
    """Check a search. Raises BadInput that says what is allowed."""
    if not isinstance(mode, str) or mode not in SERVES:
        raise BadInput(f"there is no mode {shown(mode)}: the modes are {', '.join(SERVES)}")
    if type(limit) is not int or not 1 <= limit <= MOST:
        raise BadInput(f"limit (or max_results) {shown(limit)} is not a whole number from 1 to {MOST}")
    if any(names is not None and not isinstance(names, list | tuple | set) for names in (tiers, cores)):
        raise BadInput("tiers and cores are lists, such as ['working']")
    for tier in tiers or ():
        if tier not in TIERS:
            raise BadInput(f"there is no tier {shown(tier)}: the tiers are {', '.join(TIERS)}")
    agents, (since, until) = narrowed.agents(), narrowed.times()
    if mode == "date_range" and since is None and until is None:
        raise BadInput(
            "the mode date_range needs a date_range, such as {'start': '2026-03-01', 'end': '2026-03-23'}"
        )
    if mode == "agent_filter" and not agents and narrowed.agent is None:
        raise BadInput("the mode agent_filter needs an agent_filter, such as ['research_analyst']")
    within = None if cores is None else tuple(check_name("a core", name) for name in cores)
    wanted = [tier for tier in TIERS if tier in (SERVES[mode] if tiers is None else tiers)]
    served = [tier for tier in wanted if tier in SERVES[mode]]
    left_out = [LeftOut(tier, f"the mode {mode} does not serve it") for tier in wanted if tier not in served]
    left_out += [LeftOut(tier, "it is not enabled") for tier in served if tier not in enabled]
    looked_at = tuple(tier for tier in served if tier in enabled)
    query = check_text("query", query)
    return SearchRequest(query, mode, looked_at, since, until, agents, limit, within, tuple(left_out), only)


def days(date_range: object) -> tuple[int | None, int | None]:
    """The times between which something lies that a range of days, both included, names."""
    if date_range is None:
        return None, None
    if isinstance(date_range, list | tuple) and len(date_range) == 2:
        date_range = {"start": date_range[0], "end": date_range[1]}
    if not isinstance(date_range, Mapping) or not date_range.keys() <= {"start", "end"}:
        raise BadInput(
            "date_range is a start and an end, such as {'start': '2026-03-01', 'end': '2026-03-23'}"
        )
    start, end = (
        None if date_range.get(name) is None else check_day(name, date_range[name])
        for name in ("start", "end")
    )
    if start is not None and end is not None and start > end:
        raise BadInput(f"the range of days begins after its end: {start} to {end}")
    until = None if end is None else _midnight(end) + int(timedelta(days=1).total_seconds()) * 1_000_000
    return None if start is None else _midnight(start), until


def _midnight(day: str) -> int:
    return to_us("a day", datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC))


# how it is answered


def _answer(
    session: Session, request: SearchRequest, at: At, *, explain: bool = False, checks: Checks | None = None
) -> Answer:
    """Answer one search by one actor. What is said of files is as it was found last; with `checks`, it is checked
    anew."""
    index = session.services.index
    with session.viewer(at) as viewer:
        rights = [rights for _, rights in viewer.pairs]
        position, as_of = None if at is None else viewer.views.position, viewer.views.position
        ids = chosen_ids(viewer, request.only) if request.only else None
    barred = [tier for tier in request.tiers if any(right.tier(tier) == "none" for right in rights)]
    left_out = [*request.left_out, *(LeftOut(tier, "you may not read it") for tier in barred)]
    tiers = {tier for tier in request.tiers if tier not in barred}
    if request.mode == "semantic" and not tiers:
        return Answer((), 0, tuple(left_out), as_of)

    def look(limit: int, index: Index, ended: bool = False) -> IndexHits:
        return index.search(
            request.query,
            allowed=visible(rights),
            scopes=scopes_of(rights),
            at=position,
            since_us=request.since_us,
            until_us=request.until_us,
            authors=request.agents,
            chosen=partial(request.chooses, tiers=tiers),
            ids=ids,
            limit=limit,
            listing=not request.query.strip() and request.mode in ("date_range", "agent_filter"),
            how="keyword" if ended else HOW.get(request.mode, "keyword"),
            vectors="semantic" in tiers,
            ended=ended,
        )

    now_us = session.ledger.moment(at)
    found, hits, dropped, trouble = first_holding(
        index, look, request.limit, partial(_holding, session, position, now_us, checks)
    )
    left_out += trouble
    total = found.total - len(found.hits) + len(hits)
    hits = hits[: request.limit]
    if total > len(hits):
        left_out.append(LeftOut(f"{total - len(hits)} more", f"only {request.limit} were asked for"))
    if found.cut:
        left_out.append(LeftOut("the end of the query", "it is longer than a query may be"))
    if index.missing and "semantic" in tiers:
        left_out.append(LeftOut("semantic", index.missing))
    left_out += [*dropped, *superseded(session, position, partial(look, MOST, ended=True))]
    if request.only:
        with session.viewer(at) as viewer:
            left_out += check_filter(viewer, request.only, not hits)
    results = tuple(_result(hit, request.mode, explain) for hit in hits)
    return Answer(results, total, tuple(left_out), found.as_of, found.corrected)


def visible(rights: Collection[Rights]) -> Callable[[Who], bool]:
    """Which documents a reader may find, by what decides it apart from their scopes."""
    anywhere = [replace(right, scopes=None) for right in rights]

    def allowed(who: Who) -> bool:
        audience = AUTHOR if who.own else "team" if who.shared else "self"
        labels = {"sensitivity": who.sensitivity, "audience": audience}
        return all(
            right.tier(who.tier) != "none" and may_see_of(right, who.author, who.kind, labels)
            for right in anywhere
        )

    return allowed


def scopes_of(rights: Collection[Rights]) -> frozenset[str] | None:
    """The scopes that a reader may look in; None: all of them."""
    limits = [right.scopes for right in rights if right.scopes is not None]
    return limits[0].intersection(*limits[1:]) if limits else None


class HoldingHit(NamedTuple):
    """A hit that still holds, its item, if it is one, and what of that is stale."""

    hit: Hit
    item: Item | None = None
    stale: str = ""


def _holding(
    session: Session, at: int | None, now_us: int, checks: Checks | None, hits: list[Hit]
) -> tuple[list[HoldingHit], list[LeftOut]]:
    """The hits that hold, and how many do not, and why. Those that their reader may not see any more are neither."""
    with session.viewer(at) as viewer:
        policy = viewer.settings.stale
        read = viewer.items_of(hit.id for hit in hits if hit.kind == CREATED)
        items = {item.id: viewer.shown(item) for item in read}
        stale = _stale(session, viewer, list(items.values()), checks)
    holding, reasons = list[HoldingHit](), dict[tuple[str, str], int]()
    for hit in hits:
        item = items.get(hit.id)
        if item is None:
            holding += [HoldingHit(hit)] if hit.kind != CREATED else []
            continue
        reason = _why_not(item, now_us)
        if not reason and policy == "leave_out" and hit.id in stale:
            reason = "stale", stale[hit.id]
        if reason:
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            holding.append(HoldingHit(hit, item, stale.get(hit.id, "")))
    return holding, [LeftOut(f"{number} {what}", why) for (what, why), number in reasons.items()]


def _stale(session: Session, viewer: Viewer, items: list[Item], checks: Checks | None) -> dict[str, str]:
    if session.services.repository is None:
        return {}
    known = recorded(viewer.views, items) if checks is None else checks.of(viewer.views, items)
    return {id: record.check.stale for id, record in known.items() if record.check.stale}


def _why_not(item: Item, now_us: int) -> tuple[str, str] | None:
    """What an item is that does not hold, and why."""
    if not item.current:
        return item.status, f"it is {item.status} by now"
    if item.expired(now_us):
        return "expired", "expired: the time for which it holds is over"
    if not item.valid(now_us):
        return "not yet valid", "the time for which it holds has not begun"
    return None


def first_holding(
    index: BookIndex,
    look: Callable[[int, Index], IndexHits],
    most: int,
    sift: Callable[[list[Hit]], tuple[list[Read], list[Dropped]]],
) -> tuple[IndexHits, list[Read], list[Dropped], list[LeftOut]]:
    """Look for so many hits, and for more until as many of them hold, so that what does not hold takes no place: what
    the index found, the hits that hold and those that do not, as `sift` tells them apart, and what there is to say of
    the index."""
    limit = most
    while True:
        found = index.asked(partial(look, limit))
        holding, dropped = sift(found.hits)
        if len(holding) >= most or len(found.hits) < limit or limit >= MOST_READ:
            trouble = [LeftOut("the index file", index.trouble)] if index.trouble else []
            return found, holding, dropped, trouble
        limit *= 2


def superseded(session: Session, at: int | None, look: Callable[[Index], IndexHits]) -> list[LeftOut]:
    """How many items would have matched that another one has superseded, of those that their reader may see."""
    ids = dict.fromkeys(hit.id for hit in session.services.index.asked(look).hits if hit.kind == CREATED)
    if not ids:
        return []
    with session.viewer(at) as viewer:
        items = [item for id in ids if (item := viewer.item(id)) is not None and item.status == "superseded"]
    return [LeftOut(f"{len(items)} superseded", "another item has taken the place")] if items else []


def _result(holding: HoldingHit, mode: str, explain: bool) -> SearchResult:
    """A hit as its reader sees it: of an item only what it says, not the tags by which it is found, too."""
    hit, item, stale = holding
    tier = "episodic" if mode == "agent_filter" and hit.kind == RESULT else hit.tier
    result = SearchResult(
        id=hit.id,
        tier="semantic" if mode == "semantic" else tier,
        source=hit.source,
        content=hit.snippet,
        score=hit.score,
        timestamp=from_us(hit.time_us),
        author=hit.author,
        kind=hit.kind,
        why=_why(hit) if explain else "",
        text=hit.text,
    )
    if item is None:
        return result
    content = excerpt(item.text, matched_words(hit))
    return replace(result, content=content, text=item.text, stale=stale, disputed=item.disputed)


def _why(hit: Hit) -> str:
    """Why a hit is there: the words that matched, and what each signal gave."""
    parts = [f"{word!r} matched {forms!r} ({weight:.3f})" for word, forms, weight in hit.matched]
    parts += [f"{SIGNALS[name]} gave {gain:+.3f}" for name, gain in hit.signals if gain]
    return "; ".join(parts) or f"its meaning is near ({hit.score:.3f})"


def matched_words(hit: Hit) -> set[str]:
    """The words of a document that match a query."""
    return {word for _, forms, _ in hit.matched for word in forms.split(" ")}


def excerpt(text: str, words: Collection[str]) -> str:
    """What stands in a text around these words, from the beginning of a word to the end of one; a short text whole."""
    part = snippet(text, words)
    start = text.find(part)
    if start > 0 and not text[start - 1].isspace():
        part = part[_first_space(part) :].lstrip()
    end = text.find(part) + len(part)
    if end < len(text) and not text[end].isspace():
        part = part[: len(part) - _first_space(part[::-1])].rstrip()
    return part


def _first_space(text: str) -> int:
    """Where the first white space stands, unless what stands before it is too long for a word."""
    return next((place for place, letter in enumerate(text[:LONGEST_WORD]) if letter.isspace()), 0)
