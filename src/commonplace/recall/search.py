"""Search: modes, tiers and filters, and the answer that says what it left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from ..access.rights import TIERS, Rights, may_see_of
from ..errors import BadInput, shown
from ..index.words import snippet
from ..ledger.events import check_name, check_text, iso, to_us
from ..memory.daily import check_day
from .escaping import RESULT

if TYPE_CHECKING:
    from ..index import Hit, Who

SERVES = {
    "keyword": ("long_term", "working"),
    "semantic": ("semantic",),
    "date_range": ("working",),
    "agent_filter": ("episodic",),
    "hybrid": TIERS,
}
"""The tiers that each mode looks at."""

MOST = 200
LONGEST_WORD = 40


class SearchRequest(msgspec.Struct, frozen=True):
    """A search, checked."""

    query: str
    mode: str
    tiers: tuple[str, ...]
    since_us: int | None
    until_us: int | None
    agents: tuple[str, ...] | None
    max_results: int
    cores: tuple[str, ...] | None = None
    left_out: tuple[LeftOut, ...] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """Something that an answer does not show, and why."""

    what: str
    why: str


class SearchResult(msgspec.Struct, frozen=True):
    """Something that was found: an item or an event by its id, the tier and file or run it stands in, the words
    around the match, a score from 0 to 1, and why it is there."""

    id: str
    tier: str
    source: str
    content: str
    score: float
    timestamp: str
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


class Answer(msgspec.Struct, frozen=True):
    """What a search found, the best first; how many there are in all; what it left out; and as of which position
    it speaks."""

    results: tuple[SearchResult, ...]
    total: int
    left_out: tuple[LeftOut, ...]
    as_of: int
    corrected: dict[str, str] = {}

    def __iter__(self) -> Iterator[SearchResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, place: int) -> SearchResult:
        return self.results[place]

    def __str__(self) -> str:
        """The results as a person would read them, and what was left out."""
        left_out = [f"left out: {one.what} ({one.why})" for one in self.left_out]
        return "\n".join([*map(str, self.results), *left_out]) or "nothing was found"


def asked(
    query: object,
    mode: str,
    tiers: Collection[str] | None,
    date_range: object,
    agent_filter: Collection[str] | None,
    max_results: object,
    cores: Collection[str] | None,
    enabled: Collection[str],
) -> SearchRequest:
    """Check a search. Raises BadInput that says what is allowed."""
    if not isinstance(mode, str) or mode not in SERVES:
        raise BadInput(f"there is no mode {shown(mode)}: the modes are {', '.join(SERVES)}")
    if type(max_results) is not int or not 1 <= max_results <= MOST:
        raise BadInput(f"limit (or max_results) {shown(max_results)} is not a whole number from 1 to {MOST}")
    if any(
        one is not None and not isinstance(one, list | tuple | set) for one in (tiers, agent_filter, cores)
    ):
        raise BadInput("tiers, agent_filter and cores are lists, such as ['working']")
    for tier in tiers or ():
        if tier not in TIERS:
            raise BadInput(f"there is no tier {shown(tier)}: the tiers are {', '.join(TIERS)}")
    agents = None if agent_filter is None else tuple(check_name("an agent", one) for one in agent_filter)
    if mode == "date_range" and date_range is None:
        raise BadInput(
            "the mode date_range needs a date_range, such as {'start': '2026-03-01', 'end': '2026-03-23'}"
        )
    if mode == "agent_filter" and not agents:
        raise BadInput("the mode agent_filter needs an agent_filter, such as ['research_analyst']")
    only = None if cores is None else tuple(check_name("a core", one) for one in cores)
    since, until = days(date_range)
    wanted = tuple(tier for tier in TIERS if tier in (SERVES[mode] if tiers is None else tiers))
    left_out = [
        LeftOut(tier, f"the mode {mode} does not serve it") for tier in wanted if tier not in SERVES[mode]
    ]
    left_out += [
        LeftOut(tier, "it is not enabled") for tier in wanted if tier in SERVES[mode] and tier not in enabled
    ]
    kept = tuple(tier for tier in wanted if tier in SERVES[mode] and tier in enabled)
    return SearchRequest(
        check_text("query", query), mode, kept, since, until, agents, max_results, only, tuple(left_out)
    )


def days(given: object) -> tuple[int | None, int | None]:
    """The times between which something lies that a range of days, both included, names."""
    if given is None:
        return None, None
    if isinstance(given, list | tuple) and len(given) == 2:
        given = {"start": given[0], "end": given[1]}
    if not isinstance(given, Mapping) or not given.keys() <= {"start", "end"}:
        raise BadInput(
            "date_range is a start and an end, such as {'start': '2026-03-01', 'end': '2026-03-23'}"
        )
    ends = {
        name: None if given.get(name) is None else check_day(name, given[name]) for name in ("start", "end")
    }
    start, end = ends["start"], ends["end"]
    if start is not None and end is not None and start > end:
        raise BadInput(f"the range of days begins after its end: {start} to {end}")
    since = None if start is None else _midnight(start)
    return since, None if end is None else _midnight(end) + int(timedelta(days=1).total_seconds()) * 1_000_000


def _midnight(day: str) -> int:
    found = date.fromisoformat(day)
    return to_us("a day", datetime(found.year, found.month, found.day, tzinfo=UTC))


def visible(rights: Collection[Rights]) -> Callable[[Who], bool]:
    """Which documents a reader may find, by what decides it."""

    def allowed(who: Who) -> bool:
        labels = {"sensitivity": who.sensitivity, "audience": "team" if who.shared else "self"}
        return all(
            one.tier(who.tier) != "none" and may_see_of(one, who.author, who.kind, labels) for one in rights
        )

    return allowed


def result(hit: Hit, mode: str, explain: bool) -> SearchResult:
    tier = "episodic" if mode == "agent_filter" and hit.kind == RESULT else hit.tier
    tier = "semantic" if mode == "semantic" else tier
    why = ""
    if explain:
        told = [f"{word!r} matched {found!r} ({weight:.3f})" for word, found, weight in hit.matched]
        told += [f"{name} gave {given:+.3f}" for name, given in hit.signals if given]
        why = "; ".join(told) or f"its meaning is near ({hit.score:.3f})"
    when = iso(hit.time_us)
    return SearchResult(
        hit.id, tier, hit.source, hit.snippet, hit.score, when, hit.author, hit.kind, why, hit.text
    )


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
    return next((place for place, one in enumerate(text[:LONGEST_WORD]) if one.isspace()), 0)


def envelope(answer: Answer) -> dict[str, Any]:
    """The answer as the tool gives it."""
    shown = [
        {name: getattr(one, name) for name in ("id", "tier", "source", "content", "score", "timestamp")}
        | {name: told for name in ("why", "stale") if (told := getattr(one, name))}
        | ({"disputed": list(one.disputed)} if one.disputed else {})
        for one in answer.results
    ]
    return {
        "results": shown,
        "total": answer.total,
        "left_out": [{"what": one.what, "why": one.why} for one in answer.left_out],
        "as_of": answer.as_of,
        "corrected": answer.corrected,
    }
