"""The memory digest: what is remembered about a task, packed into a budget, with a receipt.

Candidates come in a fixed order: facts under configured keys, tagged items, what is found by the words and the meaning
of the query; of those that fit equally well, the newer first. A prompt has a block of long-term memory beside it: what
is pinned, what was found for the task, and the newest.
The same request at the same moment gives the same bytes, in every process and on every engine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from hashlib import sha256
from random import random
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access.rights import Rights, rights_of
from ..access.secrets import masked
from ..ledger.labels import strictness
from ..memory.claims import key_form
from ..memory.items import Item
from ..memory.portions import DigestRules, Portions
from ..memory.reading import Settings, VisibleItems, settings_of
from ..memory.requests import CREATED
from .escaping import as_name, mark_of
from .finding import holding_ones, superseded
from .lines import DigestLine, candidate, text_of
from .packing import SPARE, CountTokens, Packed, estimated, pack_digest
from .receipts import Around, Counted, DigestTrace, Write, trace_of
from .search import MOST, LeftOut, excerpt, visible
from .verification import Checks, RecordedCheck, recorded

if TYPE_CHECKING:
    from ..index import Found, Hit, How, Index, Who
    from ..session import Session

NOT_CONSULTED = "memory was left out of this turn, as asked."
NO_MATCH = "nothing that is remembered matches."
NOTHING = "nothing is remembered yet."
CLOSED = "what is remembered may not be read here."
ALL_LEFT_OUT = "what matches is left out, or shown elsewhere."
CORRECTED = "correction"
SHOWN = "the prompt shows it already"
DRAWN_FROM = ("long_term", "episodic")
"""The tiers that the items of a digest stand in."""


class Digest(msgspec.Struct, frozen=True):
    """What a prompt is given of memory: the text, which items are in it, what was left out or cut and why, and the
    receipt that tells how it came about. `kept` is how many characters it shares with the digest before it, and
    `rebased` why it begins anew, if it was asked to be stable."""

    text: str
    item_ids: tuple[str, ...] = ()
    omitted: tuple[tuple[str, str], ...] = ()
    receipt_id: str | None = None
    as_of: int = 0
    left_out: tuple[LeftOut, ...] = ()
    sensitivity: str = "public"
    trust: str = "high"
    kept: int = 0
    rebased: str = ""
    why: dict[str, str] = {}

    def __str__(self) -> str:
        return self.text


class Wanted(msgspec.Struct, frozen=True):
    """What is asked for, as of `at` (None: now), which is the time `now_us`. `beside` is what the prompt shows already,
    `also` what else it says of items, `told` the premises it tells of, and `around` the prompt itself, of whose budget
    the digest has the `rest`, if that is less than its own. Without a `receipt` nothing is left behind."""

    query: str
    rules: DigestRules
    now_us: int
    at: int | None = None
    ignored: str = ""
    stable: str = ""
    beside: tuple[tuple[str, int], ...] = ()
    also: tuple[tuple[str, int], ...] = ()
    told: tuple[str, ...] = ()
    count: CountTokens | None = None
    in_prompt: bool = False
    rest: bool = False
    around: Around | None = None
    receipt: bool = True


class Gathered(msgspec.Struct, frozen=True):
    """An item that was found, how, and what its line says of it."""

    item: Item
    via: str
    words: str
    score: float = 0.0
    signals: tuple[tuple[str, float], ...] = ()


class Gathering(NamedTuple):
    """What was found for a task, the best first; what was not looked at; the index that was asked; and what to say if
    there is nothing to show."""

    found: Sequence[Gathered]
    left_out: Sequence[LeftOut]
    fingerprint: str
    nothing: str


class Maker:
    """Makes a digest for one actor, or a prompt around one. What it finds of files goes into their receipt."""

    def __init__(self, session: Session, checks: Checks | None = None) -> None:
        self._session, self._ledger = session, session.ledger
        self.checks = checks or Checks(session)

    def make(self, wanted: Wanted, gathering: Gathering | None = None, delivered: bool = True) -> Digest:
        """A digest with its receipt; one that is not `delivered` to anybody is only tried. What was gathered for the
        same request before is not looked for again."""
        around = wanted.around
        left_out: Sequence[LeftOut] = ()
        if not wanted.rules.enabled and not wanted.ignored:
            left_out = [LeftOut("the memory digest", "memory.v1.enabled is false")]
        off = bool(left_out) or (around is not None and not around.digest)
        if off and around is None and not wanted.told:
            return Digest("", left_out=tuple(left_out))
        with self._session.snapshot() as now:
            settings = settings_of(now)
            then = now.position if wanted.at is None else wanted.at
        gathered: Sequence[Gathered] = ()
        index, nothing = "", "" if off else NOT_CONSULTED
        before, lines, rebased = None, list[_DigestLine](), ""
        if not off and not wanted.ignored:
            gathered, left_out, index, nothing = gathering or self.gather(wanted)
            before, rebased = self._before(wanted) if wanted.stable else (None, "")
            lines = self._lines(wanted, before)
        items = [one.item for one in gathered] + [one.item for one in lines if one.item is not None]
        known = self.checks.of(items, wanted.at)
        bar = Bar(wanted, settings, known)
        candidates = [bar.candidate(one) for one in gathered]
        counted = None if wanted.count is None else Counted(wanted.count)
        asked = _Asked(wanted.rules.budgets, counted or estimated, nothing, candidates, wanted.rest)
        trace, packed = asked.packed(rebased) if before is None else asked.gone_on(bar, before, lines)
        trace = replace(trace, counts=counted.answers if counted else {})
        said = (
            () if around is None else dict(around.omitted)
        )  # of these the block has told what there is to tell
        told = (one for one in packed.omitted if one[1] != SHOWN and one[0] not in said)
        packed = replace(packed, omitted=tuple(told))
        digest = Digest(
            packed.text,
            tuple(dict.fromkeys(packed.ids)),
            packed.omitted,
            as_of=then,
            left_out=tuple(left_out),
            kept=_shared(before.text, packed.text) if before is not None and trace.kept else 0,
            rebased=trace.rebased,
            why={one.id: _why(one) for one in packed.taken},
            **_labels([one for one in items if one.id in packed.ids]),
        )
        if not delivered:
            return digest
        outside = [(id, one.position) for id, one in sorted(known.items())]
        return replace(digest, receipt_id=self._write(wanted, settings, trace, packed, then, index, outside))

    # looking

    def gather(self, wanted: Wanted) -> Gathering:
        """What is remembered about a task."""
        rules, closed = wanted.rules, self._closed(wanted)
        told = [LeftOut(tier, "you may not read it") for tier in closed]
        by_query: Sequence[Gathered] = ()
        if wanted.query.strip():
            how, limit = _looking(rules)
            if limit:
                by_query, left_out = self._search(wanted, how, limit)
                told += left_out
            if rules.semantic.enabled and self._session.services.index.missing:
                told.append(LeftOut("semantic", self._session.services.index.missing))
        with self._session.items(wanted.at) as judge:
            found_items = [*self._structured(judge, rules), *by_query]
            nothing = NO_MATCH
            if found_items:  # a caller is told what is left out; to a model that says nothing
                nothing = "" if wanted.in_prompt else ALL_LEFT_OUT
            if not found_items and not any(
                judge.item(str(key[0])) for key, _ in judge.then.each("memory.items")
            ):
                nothing = CLOSED if "long_term" in closed else NOTHING
        once = {one.item.id: one for one in reversed(found_items)}
        ordered = [once.pop(one.item.id) for one in found_items if one.item.id in once]
        return Gathering(ordered, told, self._session.services.index.fingerprint, nothing)

    def _rights(self, wanted: Wanted) -> list[Rights]:
        with self._session.snapshot() as now, self._session.snapshot(wanted.at) as past:
            readers = (now,) if wanted.at is None else (past, now)
            return [rights_of(views, self._session.actor, self._session.run) for views in readers]

    def _closed(self, wanted: Wanted) -> list[str]:
        """The tiers that digests are made of and that this actor may not read."""
        rights = self._rights(wanted)
        return [tier for tier in DRAWN_FROM if any(one.tier(tier) == "none" for one in rights)]

    def _search(self, wanted: Wanted, how: How, limit: int) -> tuple[list[Gathered], list[LeftOut]]:
        """What is found by the query: so many that may be shown, and those beside them that may not."""
        rights = self._rights(wanted)

        def look(number: int, index: Index, ended: bool = False) -> Found:
            return index.search(
                wanted.query,
                allowed=visible(rights),
                at=wanted.at,
                chosen=_is_item,
                limit=number,
                how="keyword" if ended else how,
                ended=ended,
            )

        def sift(hits: list[Hit]) -> tuple[list[Gathered], list[Gathered]]:
            with self._session.items(wanted.at) as judge:
                settings, read = judge.settings, list(_of_hits(judge, how, hits))
            known = recorded(self._ledger, [one.item for one in read], wanted.at)
            bar = Bar(wanted, settings, known)
            hidden = {one.item.id for one in read if bar.why(one.item)}
            return (
                [one for one in read if one.item.id not in hidden],
                [one for one in read if one.item.id in hidden],
            )

        found, shown, hidden, told = holding_ones(self._session.services.index, look, limit, sift)
        more = found.total - len(found.hits) + max(0, len(shown) - limit)
        if more:
            told.append(LeftOut(f"{more} more by {how} search", f"only {limit} are considered"))
        told += superseded(self._session, wanted.at, partial(look, MOST, ended=True))
        return sorted((*shown[:limit], *hidden), key=_best_first), told

    def _structured(self, judge: VisibleItems, rules: DigestRules) -> Iterator[Gathered]:
        for key in rules.structured.fact_keys:
            form = key_form(key)
            ids = [id for _, id in judge.then.scan("memory.keys", form)]
            found = [
                one for one in _current(judge, ids) if one.kind == "fact" and key_form(one.key or "") == form
            ]
            if found:
                newest = max(found, key=lambda one: (one.recorded_us, one.id))
                yield Gathered(newest, "pinned", _part(newest))
        for tag in rules.structured.tags:
            ids = [id for _, id in judge.then.scan("memory.tags", tag, reverse=True)]
            found = [one for one in _current(judge, ids) if tag in one.tags]
            for one in sorted(found, key=lambda one: (-one.recorded_us, one.id)):
                yield Gathered(one, "tagged", _part(one))

    # going on

    def _before(self, wanted: Wanted) -> tuple[DigestTrace | None, str]:
        """The trace of the last digest under the same name, or why it is not there any more."""
        with self._session.snapshot() as now:
            id = now.get("recall.stable", self._session.actor, wanted.stable)
        event = None if id is None else self._ledger.event(id)
        if event is None:
            return None, ""
        trace = trace_of(self._ledger, event)
        if trace is None:
            return None, "something in it was erased"
        return (trace, "") if trace.packed().taken else (None, "")

    def _lines(self, wanted: Wanted, before: DigestTrace | None) -> list[_DigestLine]:
        """The lines of the digest before, each with its item as it is now."""
        taken = () if before is None else before.packed().taken
        with self._session.items(wanted.at) as judge:
            found = [(one, judge.item(one.id)) for one in taken]
            return [_DigestLine(one, None if item is None else judge.shown(item)) for one, item in found]

    # writing

    def _write(
        self,
        wanted: Wanted,
        settings: Settings,
        trace: DigestTrace,
        packed: Packed[DigestLine],
        then: int,
        index: str,
        outside: list[tuple[str, int]],
    ) -> str | None:
        around = wanted.around
        taken = [one.id for one in packed.taken if one.text]
        beside = [id for id, _ in wanted.beside]
        shown = tuple(dict.fromkeys((*taken, *beside, *(() if around is None else around.shown))))
        if not self._leaves_receipt(wanted, settings):
            self._session.was_shown(shown)
            if wanted.receipt:
                self.checks.record()
            return None
        included = [[one.id, one.version, n] for n, one in enumerate(packed.taken, 1)]
        work, sources, omitted = (
            (None, (), ()) if around is None else (around.work, around.sources, around.omitted)
        )
        if around is not None:
            trace = replace(trace, whole=around.whole)
        payload = {
            "request": {"query": masked(wanted.query), "rules": msgspec.to_builtins(wanted.rules)},
            "as_of": then,
            "now": wanted.now_us,
            "index": index,
            "outside": outside,
            "included": included,
            "block": [list(one) for one in (*wanted.beside, *wanted.also)],
            "omitted": _numbered(list(dict.fromkeys((*packed.omitted, *omitted)))),
            "hash": sha256(trace.again("" if around is None else around.work_text).encode()).hexdigest(),
            "work": None if work is None else list(work),
            "ignored": wanted.ignored,
            "told": list(wanted.told),
            "stable": "" if wanted.ignored else wanted.stable,
            "past": wanted.at is not None,
            "reached": self._session.services.fact_watch.reached,
        }
        block = () if around is None else around.whole.block
        words = [one.id for one in (*block, *trace.candidates, *trace.kept) if one.before or one.text]
        named = tuple(dict.fromkeys((*words, *sources, *self.checks.found)))
        checks = tuple(self.checks.found.values())
        request = Write(self._session.actor, self._session.run, payload, trace, checks, named, shown)
        id: str = self._session.write("recall.receipt", request)
        return id

    @staticmethod
    def _leaves_receipt(wanted: Wanted, settings: Settings) -> bool:
        """Of how many digests there is a receipt, the book's settings say; but what is told for good, or gone on with,
        is in one."""
        must = wanted.ignored or wanted.told or wanted.stable
        return wanted.receipt and (bool(must) or random() < settings.receipts)  # noqa: S311  a sample, not a secret


class _DigestLine(NamedTuple):
    """A line that is there already, and its item, if its reader may still see it."""

    shown: DigestLine
    item: Item | None


class _Asked(NamedTuple):
    """What is to be packed."""

    budgets: Portions
    count: CountTokens
    nothing: str
    candidates: list[DigestLine]
    rest: bool

    def packed(self, rebased: str = "") -> tuple[DigestTrace, Packed[DigestLine]]:
        packed = pack_digest(self.candidates, self.budgets, self.count, nothing=self.nothing, rest=self.rest)
        kept = _considered(self.candidates, packed)
        return DigestTrace(kept, self.budgets, packed.text, self.nothing, rebased=rebased), packed

    def gone_on(
        self, bar: Bar, before: DigestTrace, lines: list[_DigestLine]
    ) -> tuple[DigestTrace, Packed[DigestLine]]:
        """Keep the lines that are there, and add what is new; or begin anew, and say why."""
        rebased = next((why for why in map(bar.breaks, lines) if why), "")
        if rebased:
            return self.packed(rebased)
        kept = [one.shown for one in lines]
        versions = {one.id: one.version for one in kept}
        changed = {
            one.item.id: one.item
            for one in lines
            if one.item is not None and one.item.position != versions[one.item.id]
        }
        fixes = [_correction(one) for one in changed.values()]
        there = versions | {one.id: one.version for one in fixes}
        more = [*fixes, *(one for one in self.candidates if there.get(one.id) != one.version)]
        mark = before.mark or mark_of([one.line for one in kept])
        packed = pack_digest(
            more, self.budgets, self.count, nothing=self.nothing, kept=kept, mark=mark, rest=self.rest
        )
        missing = {*pack_digest(self.candidates, self.budgets, self.count).ids} - {*packed.ids}
        if packed.over or missing or any(one.id in dict(packed.omitted) for one in fixes):
            return self.packed("the budget was full")
        considered = _considered(more, packed)
        return DigestTrace(considered, self.budgets, packed.text, self.nothing, tuple(kept), mark), packed


class Bar:
    """What keeps an item out of a digest, however much room there is."""

    def __init__(self, wanted: Wanted, settings: Settings, known: dict[str, RecordedCheck]) -> None:
        self._wanted, self._settings, self._known = wanted, settings, known
        self._beside = {id for id, _ in wanted.beside}
        self._said: dict[str, str] = {}

    def candidate(self, one: Gathered) -> DigestLine:
        item = one.item
        barred, twin = self.why(item), ""
        if not barred:
            twin = self._said.setdefault(f"{item.kind} {item.text}", item.id)
            twin = "" if twin == item.id else twin
            barred = f"it says the same as {twin}" if twin else ""
        if barred and not twin:
            return DigestLine(
                item.id, item.kind, barred=barred, version=item.position, via=one.via, score=one.score
            )
        return candidate(item, one.via, one.words, one.score, one.signals, self._stale(item), barred, twin)

    def breaks(self, line: _DigestLine) -> str:
        """Why a line cannot stay, so that a digest has to begin anew."""
        item = line.item
        if item is None or item.status == "forgotten":
            return "something in it was forgotten, or may not be shown any more"
        why = self.why(item)
        if why:
            return f"something in it is left out by now: {why}"
        return (
            "something in it has grown stale"
            if self._stale(item) and "stale=" not in line.shown.after
            else ""
        )

    def _stale(self, item: Item) -> str:
        return self._known[item.id].check.stale if item.id in self._known else ""

    def why(self, item: Item) -> str:
        """Why an item is left out, if it is."""
        if not _allowed(self._wanted, item):
            return f"it is {item.sensitivity}, which is not allowed here"
        if item.id in self._beside:
            return SHOWN
        if not item.valid(self._wanted.now_us):
            return "it does not hold at this time"
        stale = self._stale(item)
        return f"stale: {stale}" if stale and self._settings.stale == "leave_out" else ""


def _looking(rules: DigestRules) -> tuple[How, int]:
    """How candidates are looked for, and how many: 0 where nothing is looked for."""
    words, meaning = (one.limit if one.enabled else 0 for one in (rules.keyword, rules.semantic))
    if words and meaning:
        return "hybrid", max(words, meaning)
    return ("keyword", words) if words else ("semantic", meaning)


def _allowed(wanted: Wanted, item: Item) -> bool:
    return item.sensitivity in wanted.rules.allow_sensitivities


def _is_item(who: Who) -> bool:
    return who.kind == CREATED


def _of_hits(judge: VisibleItems, via: str, hits: list[Hit]) -> Iterator[Gathered]:
    for hit in hits:
        for item in _current(judge, [hit.id]):
            words = {word for _, those, _ in hit.matched for word in those.split(" ")}
            yield Gathered(item, via, _part(item, words), hit.score, _gave(hit))


def _best_first(one: Gathered) -> tuple[float, int, str]:
    return -one.score, -one.item.recorded_us, one.item.id


def _part(item: Item, words: Collection[str] = ()) -> str:
    """What a line says of an item: all of a short text, of a longer one what stands around these words."""
    text = text_of(item)
    part = excerpt(text, words)
    return f"{'' if text.startswith(part) else '…'}{part}{'' if text.endswith(part) else '…'}"


def _gave(hit: Hit) -> tuple[tuple[str, float], ...]:
    return tuple((word, weight) for word, _, weight in hit.matched) or hit.signals


def _current(judge: VisibleItems, ids: Sequence[str]) -> list[Item]:
    found = (judge.item(id) for id in dict.fromkeys(ids))
    return [judge.shown(one) for one in found if one is not None and one.current]


def _considered(candidates: Sequence[DigestLine], packed: Packed[DigestLine]) -> tuple[DigestLine, ...]:
    """The candidates as a trace keeps them: of those that nobody has looked at, nothing but their ids, apart from the
    first few, which would have come next."""
    why = dict(packed.omitted)
    unread = [one.id for one in candidates if one.id in packed.unread][SPARE:]
    return tuple(
        replace(one, before="", text="", after="", barred=why[one.id]) if one.id in unread else one
        for one in candidates
    )


def _correction(item: Item) -> DigestLine:
    """A line that says that an earlier one no longer holds, and of what was only changed, how it is now."""
    start = f"- [correction] {as_name(item.id)} "
    if item.status == "live":
        now = candidate(item, CORRECTED, _part(item))
        return replace(now, before=f"{start}was changed: {now.before}")
    by = f" by {as_name(item.superseded_by)}" if item.superseded_by else ""
    told = f"was superseded{by}" if item.status == "superseded" else f"is {item.status} now"
    return DigestLine(item.id, item.kind, f"{start}{told}", version=item.position, via=CORRECTED)


def _shared(before: str, now: str) -> int:
    """How many characters two texts begin with alike."""
    return next(
        (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
    )


def _why(one: DigestLine) -> str:
    signals = ", ".join(f"{name} gave {given:.3f}" for name, given in one.signals)
    return f"{one.via}{f' ({one.score:.3f})' if one.score else ''}{f': {signals}' if signals else ''}"


def _labels(items: Sequence[Item]) -> dict[str, str]:
    """The strictest labels of what is in a digest."""
    if not items:
        return {}
    return {
        "sensitivity": max(
            (one.sensitivity for one in items), key=lambda one: strictness("sensitivity", one)
        ),
        "trust": max((one.trust for one in items), key=lambda one: strictness("trust", one)),
    }


def _numbered(omitted: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How much was left out for which reason; nothing of what an item says."""
    found: dict[str, int] = {}
    for _, why in omitted:
        reason = (
            why.partition(":")[0].split(" to ")[0] if why.startswith(("cut", "stale", "it says")) else why
        )
        reason = "it says the same as another one" if reason.startswith("it says") else reason
        found[reason] = found.get(reason, 0) + 1
    return found
