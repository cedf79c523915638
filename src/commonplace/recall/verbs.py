"""The verbs of recall, for whoever asks: search, what a prompt is given, receipts, and what has just happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.commands import Denial
from ..access.rights import OWNER, TIERS, rights_of
from ..access.secrets import beginning
from ..errors import BadInput, CommonplaceError, Erased, NotEnabled, NotFound, shown
from ..events import Event, check_call, check_name, check_text, check_whole
from ..memory.items import MAX_TEXT, Item
from ..memory.portions import Portion, rules_with
from ..memory.reading import settings_of
from ..memory.requests import Kept
from ..memory.verbs import Remembering, event_text
from ..memory.visibility import without_hidden
from .bisecting import Bisected, bisected
from .episodes import Recollection, by_rank, recent, salient
from .observing import recalling
from .packing import CountTokens, all_of, estimated
from .prompting import (
    NUDGES,
    PARTS,
    PREMISES,
    WORK,
    Focus,
    Prompt,
    Room,
    asks_to_ignore,
    changed_lines,
    long_term_block,
)
from .receipts import WRITTEN, Counted, Receipt
from .receipts import read as read_receipt

if TYPE_CHECKING:
    from ..book import At
    from .digests import Digest, Wanted
    from .search import Answer

LONG_TERM_MOST = 2_000
"""How many characters of MEMORY.md a prompt begins with, unless an agent's file says so."""
LATELY = 2_000
"""How many events are looked through for the most recent ones of a run, before more are."""
TRIES = 6
"""How often a digest is tried so that a prompt does not exceed its budget of tokens."""
IGNORED = "memory is left out of this turn, as asked"

log = logging.getLogger("commonplace")


class Recalling(Remembering):
    """What everybody can look for, each under its own rights."""

    def _memory_tiers(self) -> Collection[str]:
        """The tiers that are switched on for whoever acts."""
        return TIERS

    def search(
        self,
        query: str = "",
        *,
        mode: str = "hybrid",
        tiers: Sequence[str] | None = None,
        date_range: Mapping[str, date | str] | tuple[date | str, date | str] | None = None,
        agent_filter: Sequence[str] | None = None,
        cores: Sequence[str] | None = None,
        max_results: int = 10,
        at: At = None,
        explain: bool = False,
        ignore_memory: bool = False,
    ) -> Answer:
        """Find items and events that answer a query, among those that this actor may see, as of `at`.

        `mode` is keyword, semantic, date_range, agent_filter or hybrid (by all there is to go by: words, meaning, what
        was said around it, days and speakers that are named). "Phrases" in quotes must occur in the first, and count
        for more in the last; a `*` at a word's end stands for any ending; a typing error in a longer word that occurs
        nowhere is mended, and the answer says so. `date_range` (days, both included) and `agent_filter` narrow any
        mode; with no query, those two modes list what there is. `cores` looks in these cores alone. `explain` says why
        each result is there. With `ignore_memory`, or in a turn that was asked to, nothing is looked for.
        """
        from .finding import find
        from .search import Answer, LeftOut

        wanted = {
            "query": query, "mode": mode, "tiers": tiers, "date_range": date_range, "agent_filter": agent_filter,
            "max_results": max_results, "cores": cores,
        }  # fmt: skip
        if ignore_memory or self._ignoring():
            return Answer((), 0, (LeftOut("memory", IGNORED),), self._position())
        self._may_search(mode, tiers)
        self._note_denied_tiers(tiers)
        actor, run = self._memory_actor, self._memory_run
        answer = find(self._ledger, actor, run, wanted, self._memory_tiers(), at, explain)
        self._was_shown([one.id for one in answer.results])
        return answer

    # what a prompt is given

    def digest(
        self,
        query: str = "",
        *,
        max_items: int | None = None,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        rules: Mapping[str, Any] | None = None,
        stable: str = "",
        ignore_memory: bool = False,
        count_tokens: CountTokens | None = None,
        at: At = None,
    ) -> Digest:
        """What is remembered about a task, packed into a budget (12 items and 2,400 characters, unless the book or
        the call says otherwise), with a receipt that tells how it came about.

        `rules` are fields of `memory.v1` that hold for this call. Digests that are asked for under the same `stable`
        name go on with each other: what was there stays byte for byte, and what is new is added. `ignore_memory`, or
        words such as "ignore memory" in the query, leave memory out. `count_tokens` counts the tokens of a text; one
        for every four characters, unless somebody says so.
        """
        wanted = self._wanted(query, rules, max_items, max_chars, max_tokens, count_tokens, ignore_memory, at)
        if stable and at is not None:
            raise BadInput("a stable digest goes on with the last one, so it is of now: leave at out")
        return self._made(replace(wanted, stable=check_name("stable", stable) if stable else ""))

    def prompt(
        self,
        task: str,
        *,
        parts: Collection[str] = PARTS,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        stable: str = "",
        ignore_memory: bool = False,
        count_tokens: CountTokens | None = None,
        work: object = None,
    ) -> Prompt:
        """The task and all that this actor should know for it, as text for a model: what the team keeps in
        MEMORY.md, a digest of what is remembered about the task, what has just happened in the run, and what has
        changed since it was told. With a `work` (or its id), also how that stands and what this actor has to do in it,
        and the nudges that wait for it, which are told by this. `parts` chooses among them; what is given goes into one
        budget."""
        wanted_parts = _parts_of(parts)
        for name, one in (("max_chars", max_chars), ("max_tokens", max_tokens)):
            if one is not None:
                check_whole(name, one)
        count = count_tokens or self._ledger.count_tokens
        room = Room(max_chars, max_tokens, estimated if count is None else Counted(count))
        wanted = self._wanted(task, None, None, None, None, count_tokens, ignore_memory, None)
        left_out = list[tuple[str, str]]()
        made = self._fixed_parts(task, wanted_parts, room, left_out)
        if over := room.over(made):
            left_out.insert(0, ("the budget", f"the task alone is too much: {over}"))
        if "changed" in wanted_parts and not wanted.ignored:
            made["changed"], wanted = self._told_of_changes(made, room, wanted, left_out)
        if work is not None:
            focus = self._focus(work)
            if "nudges" in wanted_parts:
                made["nudges"] = self._nudged(focus, made, room, "changed" not in wanted_parts, left_out)
            if "work" in wanted_parts:
                made["work"] = self._focused(focus, made, room, left_out)
        if "long_term" in wanted_parts and not wanted.ignored and self._reads_tier("long_term"):
            made["long_term"], wanted = self._long_term_part(made, room, wanted, left_out)
        if "recent" in wanted_parts and not wanted.ignored:
            recent_part = self._recent(task, made)
            if room.over({**made, "recent": recent_part}):
                left_out += [("recent events", "the budget has no room for them")] if recent_part else []
            else:
                made["recent"] = recent_part
        wanted = replace(wanted, stable=check_name("stable", stable) if stable else "")
        if "digest" not in wanted_parts:
            if wanted.told or wanted.ignored:
                off = replace(wanted.rules, enabled=False)
                self._made(replace(wanted, query="", rules=off, stable=""))
            return Prompt.of(made, None, left_out)
        digest = self._made(self._within(wanted, made, room))
        made["digest"] = digest.text
        left_out += [*digest.omitted, *((one.what, one.why) for one in digest.left_out)]
        return Prompt.of(made, digest, left_out)

    def _focus(self, work: object) -> Focus:
        """A work as this actor's prompts show it."""
        found: Focus = self._ledger.working.focus(self, work)
        return found

    def _nudged(
        self,
        focus: Focus,
        made: Mapping[str, str],
        room: Room,
        changes: bool,
        left_out: list[tuple[str, str]],
    ) -> str:
        """The nudges that wait for this actor, as many as there is room for; the rest waits on."""
        waiting = focus.waiting(changes)

        def build(number: int) -> str:
            return "\n".join((NUDGES, *(line for _, line in waiting[:number]))) if number else ""

        number = room.fitted(made, "nudges", build, len(waiting))
        if number < len(waiting):
            left_out.append(
                (f"{len(waiting) - number} nudges", "the budget has no room: the next prompt tells them")
            )
        told = set(focus.deliver([id for id, _ in waiting[:number]])) if number else set()
        lines = [(id, line) for id, line in waiting[:number] if id in told]
        self._was_shown([id for id, _ in lines])
        return "\n".join((NUDGES, *(line for _, line in lines))) if lines else ""

    def _focused(
        self, focus: Focus, made: Mapping[str, str], room: Room, left_out: list[tuple[str, str]]
    ) -> str:
        """How a work stands, as far as there is room for it."""
        lines = focus.lines()

        def build(number: int) -> str:
            return "\n".join((WORK, *(line for _, line in lines[:number]))) if number else ""

        number = room.fitted(made, "work", build, len(lines))
        if number < len(lines):
            left_out.append(
                (f"{len(lines) - number} lines about the work", "the budget has no room for them")
            )
        self._was_shown([id for id, _ in lines[:number]])
        return build(number)

    def _told_of_changes(
        self, made: Mapping[str, str], room: Room, wanted: Wanted, left_out: list[tuple[str, str]]
    ) -> tuple[str, Wanted]:
        """What has changed since this actor was told, as much as there is room for; the rest comes next time."""
        run = self._memory_run
        every = [one for one in self.premises() if not one.erased and one.run_id in (None, run)]
        nudged = [one.id for one in every if self._ledger.working.told(self._memory_actor, one.id)]
        news = [one for one in every if one.id not in nudged]
        now = self._what_holds_now(news, wanted)
        lines = changed_lines(news, {id: all_of(one) for id, one in now.items()})

        def build(number: int) -> str:
            return "\n".join((PREMISES, *lines[:number])) if number else ""

        number = room.fitted(made, "changed", build, len(lines))
        if number < len(lines):
            left_out.append(
                (f"{len(lines) - number} changes", "the budget has no room: the next prompt tells them")
            )
        shown = [one for one in news[:number] if one.id in now]
        self._was_shown([now[one.id].id for one in shown])
        also = tuple((now[one.id].id, now[one.id].position) for one in shown)
        return build(number), replace(wanted, told=(*nudged, *(one.id for one in news[:number])), also=also)

    def _long_term_part(
        self, made: Mapping[str, str], room: Room, wanted: Wanted, left_out: list[tuple[str, str]]
    ) -> tuple[str, Wanted]:
        most = self._long_term_most()
        allowed = wanted.rules.allow_sensitivities
        items = [one for one in (self.long_term() if most else ()) if one.sensitivity in allowed]
        fits = room.fitted(made, "long_term", lambda size: long_term_block(items, size)[0], most)
        text, beside, cut = long_term_block(items, fits)
        left_out += [("long-term memory", cut)] if cut else []
        shown = {id for id, _ in beside}
        self._was_shown([one.id for one in items if one.id in shown])
        return text, replace(wanted, beside=beside)

    def _within(self, wanted: Wanted, made: Mapping[str, str], room: Room) -> Wanted:
        """The digest that is asked for, within what is left of a prompt's budget. Tokens of parts need not add up to
        those of the whole, so it is tried first."""
        budgets, less = wanted.rules.budgets, 0
        for _ in range(TRIES):
            total = room.left(made, budgets.total, less)
            fitting = replace(wanted, rules=replace(wanted.rules, budgets=replace(budgets, total=total)))
            if total.max_tokens in (None, 0) or not room.over({**made, "digest": self._tried(fitting).text}):
                return fitting
            less = less * 2 + 8
        return replace(wanted, rules=replace(wanted.rules, budgets=replace(budgets, total=Portion(0, 0, 0))))

    def _wanted(
        self,
        query: str,
        rules: Mapping[str, Any] | None,
        max_items: int | None,
        max_chars: int | None,
        max_tokens: int | None,
        count: CountTokens | None,
        ignore: bool,
        at: At,
    ) -> Wanted:
        query = check_text("query", query)
        with self._ledger.snapshot(at) as then:
            settled = rules_with(settings_of(then).v1, self._digest_rules())
            position = None if at is None else then.position
        given = {"max_items": max_items, "max_chars": max_chars, "max_tokens": max_tokens}
        total = {name: check_whole(name, one) for name, one in given.items() if one is not None}
        settled = rules_with(settled, {} if rules is None else rules)
        settled = rules_with(settled, {"budgets": {"total": total}} if total else {})
        ignored = "asked to" if ignore else asks_to_ignore(query) or self._ignoring()
        from .digests import Wanted

        return Wanted(query, settled, position, ignored, count=count or self._ledger.count_tokens)

    def _tried(self, wanted: Wanted) -> Digest:
        from .digests import Maker

        return Maker(self._ledger, self._memory_actor, self._memory_run).make(wanted, delivered=False)

    def _made(self, wanted: Wanted) -> Digest:
        from .digests import Maker

        self._ledger.premises.look()
        maker = Maker(self._ledger, self._memory_actor, self._memory_run)
        with recalling(self._memory_actor, "digest") as told:
            digest = maker.make(wanted, delivered=not self._only_looks_at_memory)
            told |= {"memory.visible_count": len(digest.item_ids), "text": digest.text}
        return digest

    def premises(self) -> list[Event]:
        """What this actor was told in digests and what has changed since, as far as no prompt has said so yet."""
        self._ledger.premises.look()
        run = self._memory_run
        with self._ledger.snapshot() as now:
            rows = now.scan("recall.news", self._memory_actor)
            rights = rights_of(now, self._memory_actor, run)
            found = [self._ledger.event(str(key[1])) for key, _ in sorted(rows, key=lambda row: int(row[1]))]
            mine = [
                event for event in found if event is not None and (run is None or event.run_id in (None, run))
            ]
            return [without_hidden(now, rights, event) for event in mine]

    def _what_holds_now(self, premises: Sequence[Event], wanted: Wanted) -> dict[str, Item]:
        """What stands in the place of each, where somebody has said so: not what is only claimed."""
        found: dict[str, Item] = {}
        with self._judging(None) as judge:
            for one in premises:
                item = (
                    judge.item(one.payload["item"])
                    if one.payload["why"] in ("superseded", "revised")
                    else None
                )
                while item is not None and item.status == "superseded" and item.superseded_by:
                    item = judge.item(item.superseded_by)
                if item is not None and item.current and item.sensitivity in wanted.rules.allow_sensitivities:
                    found[one.id] = judge.shown(item)
        return found

    def _fixed_parts(
        self, task: str, parts: Collection[str], room: Room, left_out: list[tuple[str, str]]
    ) -> dict[str, str]:
        """What a prompt begins with; what there is no room for is added to what is left out."""
        return {"task": f"## Task\n{task}"} if "task" in parts else {}

    def _digest_rules(self) -> Mapping[str, Any]:
        """What whoever acts has in place of the book's rules for digests."""
        return {}

    def _long_term_most(self) -> int:
        """How many characters of MEMORY.md a prompt begins with."""
        return LONG_TERM_MOST

    def _reads_tier(self, tier: str) -> bool:
        with self._ledger.snapshot() as now:
            return rights_of(now, self._memory_actor, self._memory_run).tier(tier) != "none"

    def _ignoring(self) -> str:
        """Why memory is left out of the turn that is being taken, if it is."""
        return ""

    # receipts

    def receipt(self, id: str) -> Receipt:
        """The receipt of a digest: what was asked, what went in and what did not. Its reader and the owner can see
        it; `.replay()` gives the text again."""
        event = self._ledger.event(check_name("a receipt", id))
        actor = self._memory_actor
        if event is None or event.kind != WRITTEN or actor not in (OWNER, event.actor):
            raise NotFound(f"there is no receipt {id!r} for {actor!r}: see the digest's receipt_id")
        if event.erased:
            raise Erased(f"receipt {id!r} was erased")
        self._consults()
        with self._judging(None) as judge:
            return read_receipt(event, self._ledger, lambda one: judge.item(one) is not None)

    def receipts(self, run_id: str | None = None) -> list[Receipt]:
        """The receipts that this actor may see, oldest first; those of one run, if it is named."""
        actor, run = self._memory_actor, self._memory_run if run_id is None else check_name("run_id", run_id)
        found = self._ledger.events(run_id=run, kinds=(WRITTEN,), actor=None if actor == OWNER else actor)
        return [self.receipt(one.id) for one in found if not one.erased]

    def bisect(
        self,
        run_id: str | None = None,
        without: str | None = None,
        matters: Callable[[str], bool] | None = None,
    ) -> Bisected:
        """What a past run's digests would have been without one memory, or without each of those that it was
        shown, the one that changes most first. `matters` narrows it to those without which its answer to a digest's
        text would have been another one. No model is asked."""
        run = self._memory_run if run_id is None else check_name("run_id", run_id)
        if run is None:
            raise BadInput("say which run: bisect(run_id)")
        left = None if without is None else check_name("an item", without)
        check_call("matters", matters)
        found = self.receipts(run)
        with self._ledger.snapshot() as now:
            if not found and now.get("runs", run) is None:
                raise NotFound(f"there is no run {run!r} in this book")
        return bisected(run, found, self._derived, left, matters)

    def _derived(self, id: str) -> Iterator[str]:
        """The items that were derived from one, and so on down, as far as this actor may see them."""
        ahead, seen = [id], {id}
        with self._judging(None) as judge:
            while ahead:
                below = [str(child) for _, child in judge.then.scan("children", ahead.pop())]
                fresh = [one for one in below if one not in seen and judge.item(one) is not None]
                seen.update(fresh)
                ahead += fresh
                yield from fresh

    # what has just happened

    def window(
        self, run_id: str | None = None, *, k: int = 8, shown: str = "", at: At = None
    ) -> Recollection:
        """The most recent events of a run that this actor may see, as of `at`, with lines for a prompt. What `shown`
        has already is not said again."""
        check_text("shown", shown)
        with recalling(self._memory_actor, "episodic") as told:
            events = self._seen_in(run_id, at, check_whole("k", k))
            found = recent(events, self._texts(events[-k:] if k else ()), k, shown)
            told |= {"memory.visible_count": len(found.events), "text": found.text}
        return found

    def salient(
        self,
        query: str = "",
        run_id: str | None = None,
        *,
        turn: int | None = None,
        top_k: int = 8,
        semantic: bool = False,
        rules: Mapping[str, Any] | None = None,
        shown: str = "",
        at: At = None,
    ) -> Recollection:
        """The events of a run that matter most at a turn (None: its last one), in order. Relevance is judged by
        words, or with `semantic` by the index; if that cannot answer, by words, and the answer says so."""
        check_text("query", query)
        check_text("shown", shown)
        with recalling(
            self._memory_actor, "salience", **{"memory.top_k": check_whole("top_k", top_k)}
        ) as told:
            events = self._seen_in(run_id, at)
            turn = (
                max((one.turn for one in events), default=0)
                if turn is None
                else check_whole("turn", turn, 2**53)
            )
            with self._ledger.snapshot() as now:
                settled = rules_with(settings_of(now).salience, {} if rules is None else rules)
            relevance, fallback = None, ""
            if semantic and query.strip() and events:
                relevance, fallback = self._ranked(query, events)
            found = salient(
                events, self._texts(events), top_k, turn=turn, query=query, relevance=relevance, rules=settled,
                shown=shown,
            )  # fmt: skip
            told |= {
                "memory.visible_count": len(found.events),
                "memory.semantic": found.semantic,
                "text": found.text,
            }
        return replace(found, fallback=fallback)

    def _ranked(self, query: str, events: Sequence[Event]) -> tuple[dict[str, float] | None, str]:
        try:
            ids = [one.id for one in events]
            return by_rank(self._ledger.indexing.asked(lambda index: index.ranked(query, ids))), ""
        except CommonplaceError as error:
            log.warning("memory.index.fallback: the index failed, so relevance is judged by words: %s", error)
            return None, f"the index could not be asked, so relevance is judged by words: {error}"

    def _seen_in(self, run_id: str | None, at: At, last: int | None = None) -> list[Event]:
        """The events of a run that this actor may recall, its own and those of public kinds: all, or at least the last
        so many. Those by which the book keeps account of itself are none."""
        run = self._memory_run if run_id is None else check_name("run_id", run_id)
        if run is None:
            raise BadInput("say which run: its events are what can be recalled")
        if self._ignoring():
            return []
        self._may_read_tier("episodic")
        with self._ledger.snapshot(at) as then:
            head = then.position
        span = head if last is None else LATELY
        while True:
            events = self._events_of(run, max(0, head - span), head)
            found = [one for one in events if self._ledger.registry.owner(one.kind) is None]
            if span >= head or len(found) >= (last or 0):
                return found
            span *= 8

    def _events_of(self, run: str, after: int, upto: int) -> Iterable[Event]:
        """The events of a run after a position and up to another, as far as whoever acts may see them, without
        secrets; whoever uses these verbs says how."""
        return ()

    @staticmethod
    def _texts(events: Iterable[Event]) -> dict[str, str]:
        return {one.id: beginning(event_text(one.payload), MAX_TEXT) for one in events}

    def _recent(self, task: str, made: Mapping[str, str]) -> str:
        return ""

    def _may_search(self, mode: object, tiers: object) -> None:
        """Refuse a search that is switched off for whoever acts."""

    def _note_denied_tiers(self, tiers: object) -> None:
        """Asking for a tier that one may not read leaves a trace, as reading it does."""
        asked = [tier for tier in TIERS if isinstance(tiers, list | tuple | set) and tier in tiers]
        if not asked:
            return
        with self._ledger.snapshot() as now:
            rights = rights_of(now, self._memory_actor, self._memory_run)
        for tier in [tier for tier in asked if rights.tier(tier) == "none"]:
            self._ledger.submit(
                "access.deny", Denial(self._memory_actor, "memory.search", tier, self._memory_run)
            )

    def _speaking_for(self, agent: str) -> Recalling:
        """Whoever the owner speaks for; everybody else acts as itself."""
        return self

    def _relies_on(self, ids: Collection[str]) -> None:
        """Keep in mind that this actor was told these items elsewhere than in a digest, so that it hears of it when
        they change."""
        if self._memory_actor == OWNER or self._only_looks_at_memory:
            return
        with self._judging(None) as judge:
            items = [one for one in map(judge.item, ids) if one is not None]
        if items:
            wanted = self._wanted("", {"enabled": True}, 0, 0, None, None, False, None)
            beside = tuple((one.id, one.position) for one in items)
            self._made(replace(wanted, ignored="", beside=beside))

    def _was_shown(self, ids: Sequence[str]) -> None:
        """Keep in mind what an agent was shown, so that it does not come back as new evidence. The next write notes
        it."""
        if ids and self._memory_actor != OWNER and not self._only_looks_at_memory:
            self._ledger.showing.add(self._memory_actor, self._memory_run, ids)

    @property
    def _only_looks_at_memory(self) -> bool:
        return False

    def _consults(self) -> None:
        """Refuse to look into memory in a turn that was asked not to."""
        if self._ignoring():
            raise NotEnabled(IGNORED)

    def _may_read_tier(self, tier: str) -> None:
        self._consults()
        super()._may_read_tier(tier)

    def item(self, id: str, at: At = None) -> Item:
        """One item as of `at`. One that this actor may not see is NotFound like one that is not there."""
        self._consults()
        return super().item(id, at)

    def _position(self) -> int:
        with self._ledger.reads() as reads:
            return reads.head.position

    def _was_kept(self, kept: Kept) -> None:
        """What it says of files and commands is checked at once, so that it is known when it changes."""
        if kept.outcome == "stored" and kept.item_id is not None and self._ledger.repository is not None:
            from .checking import checked

            with self._judging(None) as judge:
                item = judge.item(kept.item_id)
            if item is not None:
                checked(self._ledger, self._memory_actor, self._memory_run, [item])

    def index_size(self) -> tuple[int, int]:
        """How many bytes the index's files take, and how many a search holds in memory; zeros before the first."""
        takes: tuple[int, int] = self._ledger.indexing.takes()
        return takes

    def reindex(self, progress: Any = None) -> int:
        """Let the index catch up with the ledger; answers as of where it speaks."""
        return int(self._ledger.indexing.catch_up(check_call("progress", progress)).position)


def _parts_of(parts: object) -> set[str]:
    if isinstance(parts, str) or not isinstance(parts, Collection):
        raise BadInput(f"parts {shown(parts)} is not a list: the parts are {', '.join(PARTS)}")
    stray = [part for part in parts if part not in PARTS]
    if stray:
        raise BadInput(f"a prompt has no part {shown(stray[0])}: its parts are {', '.join(PARTS)}")
    return set(parts)
