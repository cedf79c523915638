"""Prompts: the task, and all that an actor should know for it, from every part of the book, in one budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .errors import BadInput, shown
from .ledger.checks import check_whole
from .ledger.events import Event
from .memory.items import Item
from .memory.portions import Portion
from .recall.changed_facts import changed_facts
from .recall.digest import digest_request, make_digest, try_digest
from .recall.escaping import as_data
from .recall.gathering import DigestRequest, Gathering, gather
from .recall.lines import all_of
from .recall.long_term import long_term
from .recall.packing import SPARE, CountTokens, estimated, long_term_block
from .recall.prompt import (
    CHANGED,
    NUDGES,
    PARTS,
    RECENT,
    WORK,
    Focused,
    Prompt,
    PromptDraft,
    changed_lines,
    headed,
)
from .recall.receipts import Counted, around
from .recall.recent import NO_MEMORY, NONE_SALIENT, salient, window
from .recall.verification import Checks
from .state.prompt import MOST, inputs
from .state.redaction import redactor_of
from .state.sharing import visible_state
from .work.prompting import WorkFocus, focus_of, was_nudged_of

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .session import Session

TRIES = 6
"""How often a digest is tried so that a prompt does not exceed its budget of tokens."""


def prompt(
    session: Session,
    task: str,
    *,
    parts: Collection[str] = PARTS,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    stable: str = "",
    ignore_memory: bool = False,
    count_tokens: CountTokens | None = None,
    work: object = None,
    receipt: bool = True,
    at: At = None,
    scope: str | None = None,
) -> Prompt:
    """The task and all that this actor should know for it, as text for a model: what is pinned and what the team
    keeps in MEMORY.md, a digest of what is remembered about the task, what has just happened in the run, and what
    has changed since it was told. With a `work` (or its id), also how that stands and what this actor has to do in
    it, and the nudges that wait for it, which are told by this. `parts` chooses among them; what is given goes into
    one budget. As of `at`, it says what could have been known then, and tells nothing for good. Its receipt gives
    all of it again. `receipt` is whether a receipt is written; without one nothing is written, so that it cannot be
    stable and tells nothing for good.

    `task` is what the agent is to do, in words. `work` is the id of a work whose state goes in."""
    session = session.narrowed(scope)
    chosen = _check_parts(parts)
    for name, most in (("max_chars", max_chars), ("max_tokens", max_tokens)):
        if most is not None:
            check_whole(name, most)
    request = digest_request(
        session, task, at, ignore=ignore_memory, count=count_tokens, stable=stable, receipt=receipt
    )
    count = estimated if request.count is None else Counted(request.count)
    draft = PromptDraft(Portion(None, max_chars, max_tokens), count, request.at)
    tells = receipt and at is None
    if tells and not session.refusal:
        session.services.fact_watch.look()
    return _PromptMaker(session, task, chosen, replace(request, in_prompt=True), draft, tells).make(work)


class _PromptMaker:
    """Makes one prompt: every method adds a part to the draft, in the order in which they get room."""

    def __init__(
        self,
        session: Session,
        task: str,
        parts: Collection[str],
        request: DigestRequest,
        draft: PromptDraft,
        tells: bool,
    ) -> None:
        self._session, self._task, self._parts = session, task, parts
        self._request, self._draft, self._tells = request, draft, tells
        self._checks = Checks(session, request.at)

    def make(self, work: object) -> Prompt:
        parts, consults = self._parts, not self._request.ignored
        self._fixed_parts()
        if "changed" in parts and consults:
            self._changed_part()
        if work is not None:
            focus = focus_of(self._session, work, self._tells)
            if "nudges" in parts:
                self._nudges_part(focus)
            if "work" in parts:
                self._work_part(focus)
        gathering = None
        if consults and {"long_term", "digest"} & {*parts}:
            gathering = gather(self._session, self._request)
            if "long_term" in parts and self._session.reads("long_term", self._request.at):
                self._long_term_part(gathering)
        if "recent" in parts and consults:
            self._recent_part()
        return self._with_digest(gathering)

    def _fixed_parts(self) -> None:
        """Add what a prompt begins with: the task, and in a run what the agent may see of the state. A receipt keeps
        nothing of the run's secrets."""
        session, draft = self._session, self._draft
        if "task" in self._parts:
            draft.add("task", f"## Task\n{self._task}")
        if session.run is not None and "inputs" in self._parts:
            state = visible_state(session, session.run, session.actor, draft.at)
            most = draft.most_that_fits("inputs", lambda size: inputs(session.actor, state, size), MOST)
            text = inputs(session.actor, state, most)
            if draft.over(inputs=text) and text:
                draft.leave_out("inputs", "the budget has no room for them: read the run's state")
            else:
                with session.snapshot() as now:
                    hide = redactor_of(now, session.run)
                sources = session.ledger.ids_at(state.sources(*state))
                draft.add("inputs", text, sources, inputs(session.actor, hide(dict(state)), most))
        if over := draft.over():
            draft.left_out.insert(0, ("the budget", f"the task alone is too much: {over}"))

    def _changed_part(self) -> None:
        """Add what has changed since this actor was told, as much as there is room for; the rest comes next time."""
        session, draft = self._session, self._draft
        if not session.rules.enabled:
            return
        every = [
            fact
            for fact in changed_facts(session, draft.at)
            if not fact.erased and fact.run_id in (None, session.run)
        ]
        nudged = [fact.id for fact in every if was_nudged_of(session.ledger, session.actor, fact.id)]
        facts = [fact for fact in every if fact.id not in nudged]
        now, texts = self._what_holds_now(facts)
        lines = changed_lines(facts, texts)
        number = draft.add_lines("changed", CHANGED, lines)
        if number < len(lines):
            draft.leave_out(
                f"{len(lines) - number} changes", "the budget has no room: the next prompt tells them"
            )
        facts = facts[:number]
        items = [now[fact.id] for fact in facts if fact.id in now]
        draft.shown += [item.id for item in items]
        if facts:
            quoted = [fact.payload["item"] for fact in facts if fact.payload["text"]]
            draft.sources += [*(fact.id for fact in facts), *quoted, *(item.id for item in items)]
        told = (*nudged, *(fact.id for fact in facts)) if self._tells else ()
        also = tuple((item.id, item.position) for item in items)
        self._request = replace(self._request, told=told, also=also)

    def _what_holds_now(self, facts: Sequence[Event]) -> tuple[dict[str, Item], dict[str, str]]:
        """The items that stand in the place of changed facts, and their texts: by superseding or revising, not what is
        only claimed."""
        request, items = self._request, dict[str, Item]()
        with self._session.viewer(request.at) as viewer:
            for fact in facts:
                replaced = fact.payload["why"] in ("superseded", "revised")
                item = viewer.item(fact.payload["item"]) if replaced else None
                while item is not None and item.status == "superseded" and item.superseded_by:
                    item = viewer.item(item.superseded_by)
                holds = item is not None and item.current and item.valid(request.now_us)
                if item is not None and holds and item.sensitivity in request.rules.allow_sensitivities:
                    items[fact.id] = viewer.shown(item)
            known = self._checks.of(viewer.views, list(items.values()))
        stale = {id: record.check.stale for id, record in known.items() if record.check.stale}
        return items, {id: _with_marks(item, stale.get(item.id, "")) for id, item in items.items()}

    def _nudges_part(self, focus: WorkFocus) -> None:
        """Add the nudges that wait for this actor, as many as there is room for; the rest waits on."""
        draft = self._draft
        waiting = focus.waiting("changed" not in self._parts, draft.at)
        lines = dict(waiting)

        def build(ids: Sequence[str]) -> str:
            return headed(NUDGES, [lines[id] for id in ids])

        ids = list(lines)
        number = draft.most_that_fits("nudges", lambda size: build(ids[:size]), len(ids))
        if number < len(ids):
            draft.leave_out(
                f"{len(ids) - number} nudges", "the budget has no room: the next prompt tells them"
            )
        fitting = ids[:number]
        delivered = {*(focus.deliver(fitting) if fitting and draft.at is None else fitting)}
        told = [id for id in fitting if id in delivered]
        draft.shown += told
        draft.add("nudges", build(told), told)

    def _work_part(self, focus: WorkFocus) -> None:
        """Add how a work stands, as far as there is room for it."""
        draft = self._draft
        lines, position = focus.lines(draft.at)
        number = draft.add_lines("work", WORK, [line for _, line in lines])
        if number < len(lines):
            draft.leave_out(f"{len(lines) - number} lines about the work", "the budget has no room for them")
        draft.shown += [id for id, _ in lines[:number]]
        draft.work = Focused(focus.id, position, number)

    def _long_term_part(self, gathering: Gathering) -> None:
        """Add the block of long-term memory, and with it what the digest need not say."""
        session, draft, own = self._session, self._draft, self._session.rules
        most = own.max_chars if own.enabled and own.inject else 0
        if not most:
            return
        with session.viewer(draft.at) as viewer:
            found = long_term(viewer, session.actor, self._request, gathering.items, self._checks, most)
        fits = draft.most_that_fits("long_term", lambda size: long_term_block(found.lines, size).text, most)
        packed = long_term_block(found.lines, fits, rest=fits < most)
        cut = {id: why for id, why in (*found.cut.items(), *packed.omitted) if id in packed.ids}
        draft.omitted += [*found.barred, *cut.items()]
        left = len(found.lines) - len(packed.taken)
        if left or found.more:
            number = f"{'more than ' if found.more else ''}{left}"
            room = "the budget" if fits < most else f"{most:,} characters"
            draft.leave_out("long-term memory", f"{number} do not fit into {room}")
        draft.add("long_term", packed.text)
        draft.shown += packed.ids
        after = [line for line in found.lines if line.id not in packed.ids][:SPARE]
        draft.block = [line for line in found.lines if line.id in packed.ids or line in after]
        draft.block_chars = fits
        whole = tuple((line.id, line.version) for line in packed.taken if line.id not in cut)
        self._request = replace(self._request, beside=whole)

    def _recent_part(self) -> None:
        """Add what has just happened in the run, if there is room for all of it."""
        session, draft, own = self._session, self._draft, self._session.rules
        most = own.salience_top_k if own.use_salience else own.window
        if session.run is None or not most or not session.reads("episodic", draft.at):
            return
        before = "\n".join(draft.parts.values())
        if own.use_salience:
            events = salient(session, self._task, top_k=most, shown=before, at=draft.at)
        else:
            events = window(session, k=most, shown=before, at=draft.at)
        if events.text in (NO_MEMORY, NONE_SALIENT):
            return
        text = f"{RECENT}\n{events}"
        if draft.over(recent=text):
            draft.leave_out("recent events", "the budget has no room for them")
        else:
            draft.add("recent", text, [event.id for event in events])

    def _with_digest(self, gathering: Gathering | None) -> Prompt:
        """The prompt with its last part, the digest, and with its receipt."""
        draft, has_digest = self._draft, "digest" in self._parts
        request = self._within_budget(gathering) if has_digest else self._request
        request = replace(request, around=around(draft, has_digest))
        digest = make_digest(self._session, request, self._checks, gathering)
        if has_digest:
            draft.add("digest", digest.text)
        omitted = [*digest.omitted, *draft.omitted]
        left_out = [*draft.left_out, *omitted, *((part.what, part.why) for part in digest.left_out)]
        return Prompt.of(
            draft.parts,
            digest if has_digest else None,
            omitted,
            list(dict.fromkeys(left_out)),
            digest.receipt_id,
        )

    def _within_budget(self, gathering: Gathering | None) -> DigestRequest:
        """The digest that is asked for, within what is left of a prompt's budget. Tokens of parts need not add up to
        those of the whole, so it is tried first."""
        total, less = self._request.rules.budgets.total, 0
        for _ in range(TRIES):
            room = self._draft.room_for_digest(total, less)
            request = _with_total(self._request, room)
            if room.max_tokens in (None, 0):
                return request
            tried = try_digest(self._session, request, self._checks, gathering).digest
            if not self._draft.over(digest=tried.text):
                return request
            less = less * 2 + 8
        return _with_total(self._request, Portion(total.max_items, 0, 0))


def _with_total(request: DigestRequest, total: Portion) -> DigestRequest:
    """A digest within what is left of a prompt's budget."""
    budgets = request.rules.budgets
    rules = replace(request.rules, budgets=replace(budgets, total=total))
    return replace(request, rules=rules, rest=total != budgets.total)


def _with_marks(item: Item, stale: str) -> str:
    """All that an item says, and what has to be known of it."""
    marks = [*(["disputed"] if item.disputed else []), *([f"stale: {stale}"] if stale else [])]
    return all_of(item) + (f" ({as_data(', '.join(marks))})" if marks else "")


def _check_parts(parts: object) -> set[str]:
    if isinstance(parts, str) or not isinstance(parts, Collection):
        raise BadInput(f"parts {shown(parts)} is not a list: the parts are {', '.join(PARTS)}")
    stray = [part for part in parts if part not in PARTS]
    if stray:
        raise BadInput(f"a prompt has no part {shown(stray[0])}: its parts are {', '.join(PARTS)}")
    return set(parts)
