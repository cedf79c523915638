"""The verbs of recall, for whoever asks: search, what a prompt is given, receipts, and what has just happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.commands import Denial
from ..access.rights import OWNER, TIERS, rights_of
from ..access.secrets import beginning, masked
from ..errors import BadInput, CommonplaceError, Erased, NotEnabled, NotFound, shown
from ..events import Event, check_call, check_name, check_text, check_whole
from ..memory.items import MAX_TEXT, Item
from ..memory.portions import Portion, rules_with
from ..memory.reading import item_at, settings_of
from ..memory.requests import Kept
from ..memory.verbs import Remembering, event_text
from ..memory.visibility import may_be_told, without_hidden
from .bisecting import Bisected, bisected
from .checking import checked
from .data import as_data
from .episodes import Recollection, by_rank, recent, salient
from .observing import recalling
from .packing import SPARE, Candidate, CountTokens, all_of, candidate, estimated, long_term_block
from .prompting import (
    NUDGES,
    PARTS,
    PREMISES,
    Building,
    Focus,
    Focused,
    Prompt,
    Room,
    asks_to_ignore,
    changed_lines,
    work_part,
)
from .receipts import WRITTEN, Counted, Receipt, around
from .receipts import read as read_receipt

if TYPE_CHECKING:
    from ..book import At
    from .digests import Digest, Gathering, Maker, Wanted
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
        """The tiers that are switched on for this actor."""
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
        if not ignore_memory and not self._ignoring():
            self._may_search(mode, tiers)
        return self._found(wanted, at, explain=explain, ignore=ignore_memory)

    def _found(
        self,
        wanted: dict[str, Any],
        at: At,
        *,
        explain: bool = False,
        ignore: bool = False,
        anew: bool = False,
    ) -> Answer:
        """What a search finds. What is said of files is as it was found last, or is checked `anew`."""
        from .finding import find
        from .search import Answer, LeftOut

        if ignore or self._ignoring():
            return Answer((), 0, (LeftOut("memory", IGNORED),), self._position())
        self._note_denied_tiers(wanted["tiers"])
        actor, run = self._memory_actor, self._memory_run
        answer = find(self._ledger, actor, run, wanted, self._memory_tiers(), at, explain, anew)
        self._was_shown([one.id for one in answer.results])
        return answer

    def _remembered_about(
        self, query: str, cores: Sequence[str] | None, most: int, at: At
    ) -> list[Candidate]:
        """What is remembered about something, as lines for a prompt; what they say of files is checked anew."""
        wanted = {
            "query": query, "mode": "hybrid", "tiers": ["long_term", "semantic"], "date_range": None,
            "agent_filter": None, "max_results": most, "cores": cores,
        }  # fmt: skip
        answer = self._found(wanted, at, anew=True)
        with self._judging(at) as judge:
            read = [(hit, judge.item(hit.id)) for hit in answer.results]
            items = [(hit, judge.shown(item)) for hit, item in read if item is not None]
        return [candidate(item, "search", hit.content, hit.score, stale=hit.stale) for hit, item in items]

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
        at: At = None,
    ) -> Prompt:
        """The task and all that this actor should know for it, as text for a model: what is pinned and what the team
        keeps in MEMORY.md, a digest of what is remembered about the task, what has just happened in the run, and what
        has changed since it was told. With a `work` (or its id), also how that stands and what this actor has to do in
        it, and the nudges that wait for it, which are told by this. `parts` chooses among them; what is given goes into
        one budget. As of `at`, it says what could have been known then, and tells nothing for good. Its receipt gives
        all of it again."""
        wanted_parts = _parts_of(parts)
        for name, one in (("max_chars", max_chars), ("max_tokens", max_tokens)):
            if one is not None:
                check_whole(name, one)
        if stable and at is not None:
            raise BadInput("a stable prompt goes on with the last one, so it is of now: leave at out")
        count = count_tokens or self._ledger.count_tokens
        room = Room(max_chars, max_tokens, estimated if count is None else Counted(count))
        wanted = self._wanted(task, None, None, None, None, count_tokens, ignore_memory, at)
        wanted = replace(wanted, stable=check_name("stable", stable) if stable else "", in_prompt=True)
        building = Building(room, wanted.at)
        self._fixed_parts(building, task, wanted_parts)
        if over := building.over:
            building.left_out.insert(0, ("the budget", f"the task alone is too much: {over}"))
        if "changed" in wanted_parts and not wanted.ignored:
            wanted = self._told_of_changes(building, wanted)
        if work is not None:
            focus = self._focus(work)
            if "nudges" in wanted_parts:
                self._nudged(building, focus, "changed" not in wanted_parts)
            if "work" in wanted_parts:
                self._focused(building, focus)
        gathering = None
        if not wanted.ignored and {"long_term", "digest"} & wanted_parts:
            gathering = self._maker().gather(wanted)
            if "long_term" in wanted_parts and self._reads_tier("long_term", at):
                wanted = self._long_term_part(building, wanted, gathering)
        if "recent" in wanted_parts and not wanted.ignored:
            recent_part, events = self._recent(task, building)
            if room.over({**building.parts, "recent": recent_part}):
                if recent_part:
                    building.leave_out("recent events", "the budget has no room for them")
            else:
                building.add("recent", recent_part, events)
        has_digest = "digest" in wanted_parts
        if has_digest:
            wanted = self._within(wanted, building, gathering)
        digest = self._made(replace(wanted, around=around(building, has_digest)), gathering)
        building.add("digest", digest.text)
        omitted = [*digest.omitted, *building.omitted]
        told = [*building.left_out, *omitted, *((one.what, one.why) for one in digest.left_out)]
        shown = {name: text for name, text in building.parts.items() if name != "digest" or has_digest}
        return Prompt.of(
            shown, digest if has_digest else None, omitted, list(dict.fromkeys(told)), digest.receipt_id
        )

    def _focus(self, work: object) -> Focus:
        """A work as this actor's prompts show it."""
        found: Focus = self._ledger.working.focus(self, work)
        return found

    def _nudged(self, building: Building, focus: Focus, changes: bool) -> None:
        """Add the nudges that wait for this actor, as many as there is room for; the rest waits on."""
        waiting = focus.waiting(changes, building.at)

        def build(number: int) -> str:
            return "\n".join((NUDGES, *(line for _, line in waiting[:number]))) if number else ""

        number = building.fitted("nudges", build, len(waiting))
        if number < len(waiting):
            building.leave_out(
                f"{len(waiting) - number} nudges", "the budget has no room: the next prompt tells them"
            )
        ids = [id for id, _ in waiting[:number]]
        told = set(focus.deliver(ids) if number and building.at is None else ids)
        lines = [(id, line) for id, line in waiting[:number] if id in told]
        shown = [id for id, _ in lines]
        self._was_shown(shown)
        building.add("nudges", "\n".join((NUDGES, *(line for _, line in lines))) if lines else "", shown)

    def _focused(self, building: Building, focus: Focus) -> None:
        """Add how a work stands, as far as there is room for it."""
        lines, position = focus.lines(building.at)

        def build(number: int) -> str:
            return work_part(lines, number)

        number = building.fitted("work", build, len(lines))
        if number < len(lines):
            building.leave_out(
                f"{len(lines) - number} lines about the work", "the budget has no room for them"
            )
        self._was_shown([id for id, _ in lines[:number]])
        building.add("work", build(number))
        building.work = Focused(focus.id, position, number)

    def _told_of_changes(self, building: Building, wanted: Wanted) -> Wanted:
        """Add what has changed since this actor was told, as much as there is room for; the rest comes next time."""
        run, at = self._memory_run, building.at
        every = [one for one in self.premises(at) if not one.erased and one.run_id in (None, run)]
        nudged = [one.id for one in every if self._ledger.working.told(self._memory_actor, one.id)]
        news = [one for one in every if one.id not in nudged]
        now = self._what_holds_now(news, wanted)
        lines = changed_lines(news, self._as_lines(now, at))

        def build(number: int) -> str:
            return "\n".join((PREMISES, *lines[:number])) if number else ""

        number = building.fitted("changed", build, len(lines))
        if number < len(lines):
            building.leave_out(
                f"{len(lines) - number} changes", "the budget has no room: the next prompt tells them"
            )
        shown = [one for one in news[:number] if one.id in now]
        self._was_shown([now[one.id].id for one in shown])
        also = tuple((now[one.id].id, now[one.id].position) for one in shown)
        named = [one.id for one in news[:number]]
        quoted = [one.payload["item"] for one in news[:number] if one.payload["text"]]
        building.add("changed", build(number), [*named, *quoted, *(id for id, _ in also)])
        return replace(wanted, told=(*nudged, *named) if at is None else (), also=also)

    def _as_lines(self, items: Mapping[str, Item], at: int | None) -> dict[str, str]:
        """What each of these says, and what has to be known of it."""
        checks = checked(self._ledger, self._memory_actor, self._memory_run, list(items.values()), at)
        stale = {id: known.check.stale for id, known in checks.items() if known.check.stale}
        marks = {
            name: (["disputed"] if one.disputed else [])
            + ([f"stale: {stale[one.id]}"] if one.id in stale else [])
            for name, one in items.items()
        }
        return {
            name: all_of(one) + (f" ({as_data(', '.join(marks[name]))})" if marks[name] else "")
            for name, one in items.items()
        }

    def _long_term_part(self, building: Building, wanted: Wanted, gathering: Gathering) -> Wanted:
        """Add the block of long-term memory, and with it what the digest need not say."""
        most = self._long_term_most()
        if not most:
            return wanted
        candidates, barred, shortened, total = self._maker().long_term(wanted, gathering, most)
        fits = building.fitted("long_term", lambda size: long_term_block(candidates, size).text, most)
        packed = long_term_block(candidates, fits, rest=fits < most)
        cut = {id: why for id, why in (*shortened.items(), *packed.omitted) if id in packed.ids}
        building.omitted += [*barred, *cut.items()]
        if len(packed.taken) < total:
            left = total - len(packed.taken)
            room = "the budget" if fits < most else f"{most:,} characters"
            building.leave_out("long-term memory", f"{left} of {total} do not fit into {room}")
        building.add("long_term", packed.text)
        self._was_shown(packed.ids)
        whole = tuple((one.id, one.version) for one in packed.taken if one.id not in cut)
        after = [one for one in candidates if one.id not in packed.ids][:SPARE]
        building.block = [one for one in candidates if one.id in packed.ids or one in after]
        building.block_chars = fits
        return replace(wanted, beside=whole)

    def _within(self, wanted: Wanted, building: Building, gathering: Gathering | None) -> Wanted:
        """The digest that is asked for, within what is left of a prompt's budget. Tokens of parts need not add up to
        those of the whole, so it is tried first."""
        budgets, less, room, made = wanted.rules.budgets, 0, building.room, building.parts
        for _ in range(TRIES):
            total = room.left(made, budgets.total, less)
            fitting = _with_total(wanted, total)
            if total.max_tokens in (None, 0):
                return fitting
            tried = self._maker().make(fitting, gathering, delivered=False)
            if not room.over({**made, "digest": tried.text}):
                return fitting
            less = less * 2 + 8
        return _with_total(wanted, Portion(budgets.total.max_items, 0, 0))

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

        now_us = self._ledger.moment(at)
        return Wanted(query, settled, now_us, position, ignored, count=count or self._ledger.count_tokens)

    def _maker(self) -> Maker:
        from .digests import Maker

        return Maker(self._ledger, self._memory_actor, self._memory_run)

    def _made(self, wanted: Wanted, gathering: Gathering | None = None) -> Digest:
        self._ledger.premises.look()
        with recalling(self._memory_actor, "digest") as told:
            digest = self._maker().make(wanted, gathering, delivered=not self._only_looks_at_memory)
            told |= {"memory.visible_count": len(digest.item_ids), "text": digest.text}
        return digest

    def premises(self, at: At = None) -> list[Event]:
        """What this actor was told in digests and what has changed since, as far as no prompt has said so yet, as of
        `at`."""
        if at is None:
            self._ledger.premises.look()
        run = self._memory_run
        with self._ledger.snapshot() as now, self._ledger.snapshot(at) as then:
            rows = then.scan("recall.news", self._memory_actor)
            rights = rights_of(now, self._memory_actor, run)
            found = [self._ledger.event(str(key[1])) for key, _ in sorted(rows, key=lambda row: int(row[1]))]
            mine = [
                event for event in found if event is not None and (run is None or event.run_id in (None, run))
            ]
            return [without_hidden(now, rights, event) for event in mine]

    def _what_holds_now(self, premises: Sequence[Event], wanted: Wanted) -> dict[str, Item]:
        """What stands in the place of each, where somebody has said so: not what is only claimed."""
        found: dict[str, Item] = {}
        with self._judging(wanted.at) as judge:
            for one in premises:
                item = (
                    judge.item(one.payload["item"])
                    if one.payload["why"] in ("superseded", "revised")
                    else None
                )
                while item is not None and item.status == "superseded" and item.superseded_by:
                    item = judge.item(item.superseded_by)
                holds = item is not None and item.current and item.valid(wanted.now_us)
                if item is not None and holds and item.sensitivity in wanted.rules.allow_sensitivities:
                    found[one.id] = judge.shown(item)
        return found

    def _fixed_parts(self, building: Building, task: str, parts: Collection[str]) -> None:
        """Add what a prompt begins with."""
        if "task" in parts:
            building.add("task", f"## Task\n{task}")

    def _digest_rules(self) -> Mapping[str, Any]:
        """What whoever acts has in place of the book's rules for digests."""
        return {}

    def _long_term_most(self) -> int:
        """How many characters of MEMORY.md a prompt begins with."""
        return LONG_TERM_MOST

    def _reads_tier(self, tier: str, at: At = None) -> bool:
        actor, run = self._memory_actor, self._memory_run
        with self._ledger.snapshot() as now, self._ledger.snapshot(at) as then:
            rights = [rights_of(lens, actor, run) for lens in (now, then)]
        return tier in self._memory_tiers() and all(one.tier(tier) != "none" for one in rights)

    def _ignoring(self) -> str:
        """Why memory is left out of the turn that is being taken, if it is."""
        return ""

    # receipts

    def receipt(self, id: str, at: At = None) -> Receipt:
        """The receipt of a digest or prompt: what was asked, what went in and what did not. Its reader and the owner
        can see it; `.replay()` gives the text again."""
        event = self._ledger.event(check_name("a receipt", id))
        actor, upto = self._memory_actor, None if at is None else self._ledger.position(at)
        known = event is not None and event.kind == WRITTEN and (upto is None or event.position <= upto)
        if event is None or not known or actor not in (OWNER, event.actor):
            raise NotFound(f"there is no receipt {id!r} for {actor!r}: see the digest's receipt_id")
        if event.erased:
            raise Erased(f"receipt {id!r} was erased")
        self._consults()
        asker = self._speaking_for(event.actor)
        with self._judging(at) as judge, self._ledger.snapshot() as now:
            rights = rights_of(now, actor, self._memory_run)

            def may_see(id: str) -> bool:
                """Of a run's state, its sharing rules have decided when the prompt was made, and they do not change."""
                if item_at(now, id) is not None:
                    return judge.item(id) is not None
                source = self._ledger.event(id)
                return source is not None and (
                    source.kind.startswith("state.") or may_be_told(now, rights, source)
                )

            return read_receipt(event, self._ledger, may_see, asker._said_of_work)

    def _said_of_work(self, told: Focused) -> str:
        """What a prompt of this actor said of a work, as far as it may still know of that."""
        try:
            lines, _ = self._focus(told.id).lines(told.position)
        except NotFound:
            return ""
        return masked(work_part(lines, told.lines))

    def receipts(self, run_id: str | None = None, at: At = None) -> list[Receipt]:
        """The receipts that this actor may see, oldest first, as of `at`; those of one run, if it is named."""
        actor, run = self._memory_actor, self._memory_run if run_id is None else check_name("run_id", run_id)
        upto = None if at is None else self._ledger.position(at)
        found = self._ledger.events(
            0, upto, run_id=run, kinds=(WRITTEN,), actor=None if actor == OWNER else actor
        )
        return [self.receipt(one.id, at) for one in found if not one.erased]

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

    def _recent(self, task: str, building: Building) -> tuple[str, Sequence[str]]:
        """What has just happened, as a part of a prompt, and the ids of the events."""
        return "", ()

    def _may_search(self, mode: object, tiers: object) -> None:
        """Refuse a search that is switched off for this actor."""

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


def _with_total(wanted: Wanted, total: Portion) -> Wanted:
    """A digest within what is left of a prompt's budget."""
    budgets = wanted.rules.budgets
    rules = replace(wanted.rules, budgets=replace(budgets, total=total))
    return replace(wanted, rules=rules, rest=total != budgets.total)


def _parts_of(parts: object) -> set[str]:
    if isinstance(parts, str) or not isinstance(parts, Collection):
        raise BadInput(f"parts {shown(parts)} is not a list: the parts are {', '.join(PARTS)}")
    stray = [part for part in parts if part not in PARTS]
    if stray:
        raise BadInput(f"a prompt has no part {shown(stray[0])}: its parts are {', '.join(PARTS)}")
    return set(parts)
