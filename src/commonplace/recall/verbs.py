"""The verbs of recall, for whoever asks: search, what a prompt is given, receipts, and what has just happened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.commands import Denial
from ..access.rights import OWNER, TIERS, rights_of
from ..access.secrets import masked
from ..errors import BadInput, CommonplaceError, Erased, NotEnabled, NotFound, shown
from ..events import Event, check_name, check_text
from ..memory.items import sketch
from ..memory.portions import rules_with
from ..memory.reading import settings_of
from ..memory.requests import Kept, Shown
from ..memory.similar import tokens
from ..memory.verbs import Remembering, event_text
from .bisecting import Bisected, bisected
from .episodes import Recollection, by_rank, recent, salient
from .observing import recalling
from .packing import Count, all_of, estimated
from .prompting import PARTS, Prompt, Room, asks_to_ignore, changed_block, long_term_block
from .receipts import WRITTEN, Receipt
from .receipts import read as read_receipt

if TYPE_CHECKING:
    from ..book import At
    from .digests import Digest, Wanted
    from .search import Answer

LONG_TERM_MOST = 2_000
"""How many characters of MEMORY.md a prompt begins with, unless an agent's file says so."""
LATELY = 2_000
"""How many events are looked through for the most recent ones of a run, before more are."""
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
        self._note_denied_tiers(tiers)
        actor, run = self._memory_actor, self._memory_run
        answer = find(self._ledger, actor, run, wanted, self._memory_tiers(), at, explain)
        self._was_shown([(one.id, one.text, one.content) for one in answer.results])
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
        count_tokens: Count | None = None,
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
        stable = check_name("stable", stable) if stable else ""
        return self._made(replace(wanted, stable=stable))

    def prompt(
        self,
        task: str,
        *,
        parts: Collection[str] = PARTS,
        max_chars: int | None = None,
        max_tokens: int | None = None,
        stable: str = "",
        ignore_memory: bool = False,
        count_tokens: Count | None = None,
    ) -> Prompt:
        """The task and all that this actor should know for it, as text for a model: what the team keeps in
        MEMORY.md, a digest of what is remembered about the task, what has just happened in the run, and what has
        changed since it was told. `parts` chooses among them; what is given goes into one budget."""
        stray = sorted(set(parts) - set(PARTS))
        if stray:
            raise BadInput(f"a prompt has no part {shown(stray[0])}: its parts are {', '.join(PARTS)}")
        room = Room(max_chars, max_tokens, count_tokens or self._ledger.count_tokens or estimated)
        wanted = self._wanted(
            check_text("task", task), None, None, None, None, count_tokens, ignore_memory, None
        )
        made, left_out = self._fixed_parts(task, parts, room), list[tuple[str, str]]()
        told: list[Event] = []
        if "changed" in parts:
            told = self.premises()
            made["changed"] = changed_block(told, self._what_holds_now(told))
        beside: tuple[tuple[str, int], ...] = ()
        if "long_term" in parts and not wanted.ignored and self._reads_tier("long_term"):
            most = room.chars_left(made, self._long_term_most())
            made["long_term"], beside, cut = long_term_block(self.long_term() if most else [], most)
            left_out += [("long-term memory", cut)] if cut else []
        if "recent" in parts and not wanted.ignored:
            made["recent"] = self._recent(task, made)
            if room.over(Prompt.of(made, None, ())) and made.pop("recent"):
                left_out.append(("recent events", "the budget has no room for them"))
        total = room.left(made, wanted.rules.budgets.total)
        budgets = replace(wanted.rules.budgets, total=total)
        wanted = replace(
            wanted,
            rules=replace(wanted.rules, budgets=budgets),
            beside=beside,
            told=tuple(one.id for one in told),
            stable=stable,
        )
        digest = self._made(wanted) if "digest" in parts else None
        if digest is not None:
            made["digest"] = digest.text
            left_out += [*digest.omitted, *((one.what, one.why) for one in digest.left_out)]
        prompt = Prompt.of(made, digest, left_out)
        if over := room.over(prompt):
            left_out.append(("the budget", f"the task and its inputs alone are too much: {over}"))
        return prompt

    def _wanted(
        self,
        query: str,
        rules: Mapping[str, Any] | None,
        max_items: int | None,
        max_chars: int | None,
        max_tokens: int | None,
        count: Count | None,
        ignore: bool,
        at: At,
    ) -> Wanted:
        query = check_text("query", query)
        with self._ledger.snapshot(at) as then:
            settled = rules_with(settings_of(then).v1, self._digest_rules())
            position = None if at is None else then.position
        given = {"max_items": max_items, "max_chars": max_chars, "max_tokens": max_tokens}
        total = {name: one for name, one in given.items() if one is not None}
        settled = rules_with(settled, {**(rules or {}), **({"budgets": {"total": total}} if total else {})})
        ignored = "asked to" if ignore else asks_to_ignore(query) or self._ignoring()
        from .digests import Wanted

        return Wanted(query, settled, position, ignored, count=count or self._ledger.count_tokens)

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
        with self._ledger.snapshot() as now:
            rows = now.scan("recall.news", self._memory_actor)
        found = [self._ledger.event(str(key[1])) for key, _ in sorted(rows, key=lambda row: int(row[1]))]
        run = self._memory_run
        return [one for one in found if one is not None and (run is None or one.run_id in (None, run))]

    def _what_holds_now(self, premises: Sequence[Event]) -> dict[str, str]:
        with self._judging(None) as judge:
            found = {one.id: judge.item(one.payload.get("by") or "-") for one in premises if not one.erased}
            return {id: all_of(judge.shown(item)) for id, item in found.items() if item is not None}

    def _fixed_parts(self, task: str, parts: Collection[str], room: Room) -> dict[str, str]:
        return {"task": f"## Task\n{task}"} if "task" in parts else {}

    def _digest_rules(self) -> Mapping[str, Any]:
        """What whoever acts has in place of the book's rules for digests."""
        return {}

    def _long_term_most(self) -> int:
        """How many characters of MEMORY.md a prompt begins with."""
        return LONG_TERM_MOST

    def _reads_tier(self, tier: str) -> bool:
        with self._ledger.snapshot() as now:
            return rights_of(now, self._memory_actor).tier(tier) != "none" and tier in self._memory_tiers()

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
        return bisected(run, self.receipts(run), self._derived, left, matters)

    def _derived(self, id: str) -> Iterator[str]:
        """The items that were derived from one, and so on down."""
        ahead, seen = [id], {id}
        with self._ledger.snapshot() as now:
            while ahead:
                below = [str(child) for _, child in now.scan("children", ahead.pop())]
                fresh = [one for one in below if one not in seen and now.get("memory.items", one) is not None]
                seen.update(fresh)
                ahead += fresh
                yield from fresh

    # what has just happened

    def window(self, run_id: str | None = None, *, k: int = 8, shown: str = "") -> Recollection:
        """The most recent events of a run that this actor may see, with lines for a prompt. What `shown` has
        already is not said again."""
        with recalling(self._memory_actor, "episodic") as told:
            events = self._seen_in(run_id, _whole("k", k))
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
    ) -> Recollection:
        """The events of a run that matter most at a turn (None: after its last one), in order. Relevance is judged by
        words, or with `semantic` by the index; if that cannot answer, by words, and the answer says so."""
        with recalling(self._memory_actor, "salience", **{"memory.top_k": _whole("top_k", top_k)}) as told:
            events = self._seen_in(run_id)
            turn = max((one.turn for one in events), default=0) if turn is None else _whole("turn", turn)
            with self._ledger.snapshot() as now:
                settled = rules_with(settings_of(now).salience, rules or {})
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

    def _seen_in(self, run_id: str | None, last: int | None = None) -> list[Event]:
        """The events of a run that this actor may recall, its own and those of public kinds: all, or at least the last
        so many."""
        run = self._memory_run if run_id is None else check_name("run_id", run_id)
        if run is None:
            raise BadInput("say which run: its events are what can be recalled")
        if self._ignoring():
            return []
        head = self._position()
        span = head if last is None else LATELY
        while True:
            found = list(self._events_of(run, max(0, head - span)))
            if span >= head or len(found) >= (last or 0):
                return found
            span *= 8

    def _events_of(self, run: str, after: int) -> Iterable[Event]:
        """The events of a run after a position, as far as whoever acts may see them, without secrets; whoever uses
        these verbs says how."""
        return ()

    @staticmethod
    def _texts(events: Iterable[Event]) -> dict[str, str]:
        return {one.id: masked(event_text(one.payload)) for one in events}

    def _recent(self, task: str, made: Mapping[str, str]) -> str:
        return ""

    def _note_denied_tiers(self, tiers: object) -> None:
        """Asking for a tier that one may not read leaves a trace, as reading it does."""
        asked = [tier for tier in TIERS if isinstance(tiers, list | tuple | set) and tier in tiers]
        if not asked:
            return
        with self._ledger.snapshot() as now:
            rights = rights_of(now, self._memory_actor)
        for tier in [tier for tier in asked if rights.tier(tier) == "none"]:
            self._ledger.submit(
                "access.deny", Denial(self._memory_actor, "memory.search", tier, self._memory_run)
            )

    def _delivered(self, shown: Sequence[tuple[str, str]], always: bool = False) -> None:
        """What an agent reads in a run is kept in mind; elsewhere only what it searches for, or is compared with."""
        if always or self._memory_run is not None:
            self._was_shown(shown)

    def _was_shown(self, shown: Sequence[tuple[str, ...]]) -> None:
        """Keep in mind what an agent was shown, so that it does not come back as new evidence."""
        actor, run = self._memory_actor, self._memory_run
        if not shown or actor == OWNER or self._only_looks_at_memory:
            return
        with self._ledger.snapshot() as snapshot:
            fresh = [one for one in shown if snapshot.get("memory.shown", run or "", one[0], actor) is None]
        if fresh:
            told = tuple(
                (id, *dict.fromkeys(sketch(tokens(text.replace("|", " "))) for text in texts))
                for id, *texts in fresh
            )
            self._ledger.submit("memory.shown", Shown(actor, run, told))

    @property
    def _only_looks_at_memory(self) -> bool:
        return False

    def _may_read_tier(self, tier: str) -> None:
        if self._ignoring():
            raise NotEnabled(f"{IGNORED}: its {tier} tier is not read")
        super()._may_read_tier(tier)

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
        return int(self._ledger.indexing.catch_up(progress).position)


def _whole(name: str, given: object) -> int:
    if type(given) is not int or given < 0:
        raise BadInput(f"{name} {shown(given)} is not a whole number from 0")
    return given
