"""Gathering: the items that may go into a digest, in a fixed order, and what keeps an item out of one.

Facts under configured keys come first, then tagged items, then what is found by the words and the meaning of the
query; of those that fit equally well, the newer first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..access.rights import Rights
from ..ledger.printing import LeftOut
from ..memory.claims import key_form
from ..memory.filters import ItemFilter, check_filter, chosen_ids
from ..memory.items import Item
from ..memory.portions import DigestRules
from ..memory.requests import CREATED
from ..memory.settings import Settings
from ..memory.viewer import Viewer
from .lines import DigestLine, candidate, text_of
from .packing import CountTokens
from .receipts import Around
from .search import MOST, excerpt, first_holding, matched_words, scopes_of, superseded, visible
from .verification import RecordedCheck, recorded

if TYPE_CHECKING:
    from ..index import Hit, How, Index, IndexHits, Who
    from ..session import Session

NO_MATCH = "nothing that is remembered matches."
NOTHING = "nothing is remembered yet."
CLOSED = "what is remembered may not be read here."
ALL_LEFT_OUT = "what matches is left out, or shown elsewhere."
SHOWN = "the prompt shows it already"
DRAWN_FROM = ("long_term", "episodic")
"""The tiers that the items of a digest stand in."""


class DigestRequest(msgspec.Struct, frozen=True):
    """What is asked for, as of `at` (None: now), which is the time `now_us`, by an actor with these rights (of then and
    of now)."""

    query: str
    rules: DigestRules
    now_us: int
    rights: Sequence[Rights]
    at: int | None = None
    ignored: str = ""
    """Why memory is left out, if it is."""
    stable: str = ""
    """The name under which digests continue each other."""
    count: CountTokens | None = None
    receipt: bool = True
    """Whether a receipt is written; without one nothing is."""
    in_prompt: bool = False
    beside: tuple[tuple[str, int], ...] = ()
    """The items that the prompt shows whole in its long-term block, with their versions."""
    also: tuple[tuple[str, int], ...] = ()
    """The items that other parts of the prompt name, with their versions."""
    told: tuple[str, ...] = ()
    """The changed facts that the prompt tells."""
    rest: bool = False
    """Whether its budget is what the prompt has left, if that is less than its own."""
    only: ItemFilter = ItemFilter()
    """The items that may be in it; if it says nothing, all."""
    around: Around | None = None
    """The prompt that the digest is a part of."""


class Gathered(msgspec.Struct, frozen=True):
    """An item that was found, how, and what its line says of it."""

    item: Item
    via: str
    words: str
    score: float = 0.0
    signals: tuple[tuple[str, float], ...] = ()


class Gathering(NamedTuple):
    """What was found for a task, the best first; what was not looked at; the fingerprint of the index that was asked;
    and what to say if there is nothing to show."""

    items: Sequence[Gathered]
    left_out: Sequence[LeftOut]
    fingerprint: str
    nothing: str


def gather(session: Session, request: DigestRequest) -> Gathering:
    """What is remembered about a task."""
    rules, index = request.rules, session.services.index
    closed = [tier for tier in DRAWN_FROM if any(right.tier(tier) == "none" for right in request.rights)]
    left_out = [LeftOut(tier, "you may not read it") for tier in closed]
    by_query: Sequence[Gathered] = ()
    if request.query.strip():
        how, limit = how_of(rules)
        if limit:
            by_query, more = _by_query(session, request, how, limit)
            left_out += more
        if rules.semantic.enabled and index.missing:
            left_out.append(LeftOut("semantic", index.missing))
    with session.viewer(request.at) as viewer:
        by_rules = [
            gathered
            for gathered in _by_rules(viewer, rules, request.now_us)
            if request.only.accepts_item(gathered.item)
        ]
        every = [*by_rules, *by_query]
        if request.only:
            left_out += check_filter(viewer, request.only, not every)
        nothing = NO_MATCH
        if every:  # a caller is told what is left out; to a model that says nothing
            nothing = "" if request.in_prompt else ALL_LEFT_OUT
        elif next(viewer.items(), None) is None:
            nothing = CLOSED if "long_term" in closed else NOTHING
    once = {gathered.item.id: gathered for gathered in reversed(every)}
    ordered = [once.pop(gathered.item.id) for gathered in every if gathered.item.id in once]
    return Gathering(ordered, left_out, index.fingerprint, nothing)


def how_of(rules: DigestRules) -> tuple[How, int]:
    """How candidates are looked for, and how many: 0 where nothing is looked for."""
    words, meaning = (part.limit if part.enabled else 0 for part in (rules.keyword, rules.semantic))
    if words and meaning:
        return "hybrid", max(words, meaning)
    return ("keyword", words) if words else ("semantic", meaning)


def _by_query(
    session: Session, request: DigestRequest, how: How, limit: int
) -> tuple[list[Gathered], list[LeftOut]]:
    """What is found by the query: so many that may be shown, and those beside them that may not."""

    with session.viewer(request.at) as viewer:
        ids = chosen_ids(viewer, request.only) if request.only else None

    def look(number: int, index: Index, ended: bool = False) -> IndexHits:
        return index.search(
            request.query,
            allowed=visible(request.rights),
            scopes=scopes_of(request.rights),
            at=request.at,
            chosen=_is_item,
            ids=ids,
            limit=number,
            how="keyword" if ended else how,
            ended=ended,
        )

    def sift(hits: list[Hit]) -> tuple[list[Gathered], list[Gathered]]:
        with session.viewer(request.at) as viewer:
            items = {item.id: item for item in _current(viewer, [hit.id for hit in hits])}
            read = [
                Gathered(
                    items[hit.id], how, part_of(items[hit.id], matched_words(hit)), hit.score, _signals(hit)
                )
                for hit in hits
                if hit.id in items
            ]
            known = recorded(viewer.views, [gathered.item for gathered in read])
            bar = Bar(request, viewer.settings, known)
        hidden = {gathered.item.id for gathered in read if bar.why(gathered.item)}
        return (
            [gathered for gathered in read if gathered.item.id not in hidden],
            [gathered for gathered in read if gathered.item.id in hidden],
        )

    found, shown, hidden, left_out = first_holding(session.services.index, look, limit, sift)
    more = found.total - len(found.hits) + max(0, len(shown) - limit)
    if more:
        left_out.append(LeftOut(f"{more} more by {how} search", f"only {limit} are considered"))
    left_out += superseded(session, request.at, partial(look, MOST, ended=True))
    return sorted((*shown[:limit], *hidden), key=_best_first), left_out


def _is_item(who: Who) -> bool:
    return who.kind == CREATED


def _signals(hit: Hit) -> tuple[tuple[str, float], ...]:
    return tuple((word, weight) for word, _, weight in hit.matched) or hit.signals


def _best_first(gathered: Gathered) -> tuple[float, int, str]:
    return -gathered.score, -gathered.item.recorded_us, gathered.item.id


def _by_rules(viewer: Viewer, rules: DigestRules, now_us: int) -> Iterator[Gathered]:
    """Under each configured key the newest fact that holds now, else the newest, which is left out with the reason;
    and the items with each configured tag."""
    for key in rules.structured.fact_keys:
        form = key_form(key)
        items = _current(viewer, [id for _, id in viewer.rows("memory.keys", form)])
        facts = [item for item in items if item.kind == "fact" and key_form(item.key or "") == form]
        if facts:
            newest = max(facts, key=lambda item: (item.valid(now_us), item.recorded_us, item.id))
            yield Gathered(newest, "key", part_of(newest))
    for tag in rules.structured.tags:
        items = _current(viewer, [id for _, id in viewer.rows("memory.tags", tag)])
        tagged = [item for item in items if tag in item.tags]
        for item in sorted(tagged, key=lambda item: (-item.recorded_us, item.id)):
            yield Gathered(item, "tagged", part_of(item))


def _current(viewer: Viewer, ids: Sequence[str]) -> list[Item]:
    return [viewer.shown(item) for item in viewer.items_of(ids) if item.current]


def part_of(item: Item, words: Collection[str] = ()) -> str:
    """What a line says of an item: all of a short text, of a longer one what stands around these words."""
    text = text_of(item)
    part = excerpt(text, words)
    return f"{'' if text.startswith(part) else '…'}{part}{'' if text.endswith(part) else '…'}"


class Bar:
    """What keeps an item out of a digest, however much room there is."""

    def __init__(
        self, request: DigestRequest, settings: Settings, checks: Mapping[str, RecordedCheck]
    ) -> None:
        self._request, self._settings, self._checks = request, settings, checks
        self._beside = {id for id, _ in request.beside}
        self._first_with: dict[str, str] = {}
        """The first item that has a text, by kind and text."""

    def candidate(self, gathered: Gathered) -> DigestLine:
        item = gathered.item
        barred, twin = self.why(item), ""
        if not barred:
            first = self._first_with.setdefault(f"{item.kind} {item.text}", item.id)
            twin = "" if first == item.id else first
            barred = f"it says the same as {twin}" if twin else ""
        if barred and not twin:
            return DigestLine(
                item.id,
                item.kind,
                barred=barred,
                version=item.position,
                via=gathered.via,
                score=gathered.score,
            )
        stale = self.stale(item)
        return candidate(
            item, gathered.via, gathered.words, gathered.score, gathered.signals, stale, barred, twin
        )

    def stale(self, item: Item) -> str:
        return self._checks[item.id].check.stale if item.id in self._checks else ""

    def why(self, item: Item) -> str:
        """Why an item is left out, if it is."""
        if item.sensitivity not in self._request.rules.allow_sensitivities:
            return f"it is {item.sensitivity}, which is not allowed here"
        if item.id in self._beside:
            return SHOWN
        if self._request.only and not self._request.only.accepts_item(item):
            return "it is not among the items that were asked for"
        if not item.valid(self._request.now_us):
            return "it does not hold at this time"
        stale = self.stale(item)
        return f"stale: {stale}" if stale and self._settings.stale == "leave_out" else ""
