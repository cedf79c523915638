"""Prompts: the task, and all that an actor should know for it, from every part of the book, in one budget; and the
receipts that tell how each came about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .access.rights import OWNER, rights_of
from .access.secrets import masked
from .errors import BadInput, Erased, NotFound, shown
from .ledger.events import Event, check_call, check_name, check_whole
from .memory.items import Item
from .memory.portions import Portion
from .memory.reading import item_at
from .memory.requests import RECEIPT
from .memory.visibility import may_be_told
from .recall.bisection import Bisected, bisected
from .recall.changed_facts import changed_facts
from .recall.digesting import check_stable, made_digest, maker, wanted_digest
from .recall.episodes import NO_MEMORY, NONE_SALIENT
from .recall.escaping import as_data
from .recall.lately import salient, window
from .recall.lines import all_of
from .recall.long_term import long_term
from .recall.packing import SPARE, CountTokens, estimated, long_term_block
from .recall.prompting import (
    NUDGES,
    PARTS,
    PREMISES,
    RECENT,
    Building,
    Focused,
    Prompt,
    Room,
    changed_lines,
    work_part,
)
from .recall.receipts import Counted, Receipt, around
from .recall.receipts import read as read_receipt
from .recall.verification import Checks
from .state.prompt import MOST, inputs
from .state.reading import seen_state
from .state.redaction import redactor_of
from .verbs import method, verb
from .work.prompting import WorkFocus, focus_of, was_nudged_of

if TYPE_CHECKING:
    from .ledger.ledger import At
    from .recall.digests import Gathering, Maker, Wanted
    from .session import Session

ReceiptList = list[Receipt]
Events = list[Event]

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
) -> Prompt:
    """The task and all that this actor should know for it, as text for a model: what is pinned and what the team
    keeps in MEMORY.md, a digest of what is remembered about the task, what has just happened in the run, and what
    has changed since it was told. With a `work` (or its id), also how that stands and what this actor has to do in
    it, and the nudges that wait for it, which are told by this. `parts` chooses among them; what is given goes into
    one budget. As of `at`, it says what could have been known then, and tells nothing for good. Its receipt gives
    all of it again. `receipt` is whether a receipt is written; without one nothing is written, so that it cannot be
    stable and tells nothing for good."""
    wanted_parts = _parts_of(parts)
    for name, one in (("max_chars", max_chars), ("max_tokens", max_tokens)):
        if one is not None:
            check_whole(name, one)
    count = count_tokens or session.services.count_tokens
    room = Room(max_chars, max_tokens, estimated if count is None else Counted(count))
    wanted = wanted_digest(session, task, None, None, None, None, count_tokens, ignore_memory, at)
    wanted = replace(wanted, stable=check_stable(stable, at, receipt), receipt=receipt, in_prompt=True)
    making, tells = maker(session), receipt and at is None
    if tells and not session.refusal:
        session.services.fact_watch.look()
    building = Building(room, wanted.at)
    _fixed_parts(session, building, task, wanted_parts)
    if over := building.over:
        building.left_out.insert(0, ("the budget", f"the task alone is too much: {over}"))
    if "changed" in wanted_parts and not wanted.ignored:
        wanted = _changed_part(session, building, wanted, making.checks, tells)
    if work is not None:
        focus = focus_of(session, work, tells)
        if "nudges" in wanted_parts:
            _nudges_part(building, focus, "changed" not in wanted_parts)
        if "work" in wanted_parts:
            _work_part(building, focus)
    gathering = None
    if not wanted.ignored and {"long_term", "digest"} & wanted_parts:
        gathering = making.gather(wanted)
        if "long_term" in wanted_parts and session.reads("long_term", at):
            wanted = _long_term_part(session, building, wanted, making, gathering)
    if "recent" in wanted_parts and not wanted.ignored:
        recent_part, events = _recent_part(session, task, building)
        if room.over({**building.parts, "recent": recent_part}):
            if recent_part:
                building.leave_out("recent events", "the budget has no room for them")
        else:
            building.add("recent", recent_part, events)
    has_digest = "digest" in wanted_parts
    if has_digest:
        wanted = _within(wanted, building, making, gathering)
    wanted = replace(wanted, around=around(building, has_digest))
    digest = made_digest(session, making, wanted, gathering)
    building.add("digest", digest.text)
    omitted = [*digest.omitted, *building.omitted]
    told = [*building.left_out, *omitted, *((one.what, one.why) for one in digest.left_out)]
    shown = {name: text for name, text in building.parts.items() if name != "digest" or has_digest}
    return Prompt.of(
        shown, digest if has_digest else None, omitted, list(dict.fromkeys(told)), digest.receipt_id
    )


def _nudges_part(building: Building, focus: WorkFocus, changes: bool) -> None:
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
    building.shown += shown
    building.add("nudges", "\n".join((NUDGES, *(line for _, line in lines))) if lines else "", shown)


def _work_part(building: Building, focus: WorkFocus) -> None:
    """Add how a work stands, as far as there is room for it."""
    lines, position = focus.lines(building.at)

    def build(number: int) -> str:
        return work_part(lines, number)

    number = building.fitted("work", build, len(lines))
    if number < len(lines):
        building.leave_out(f"{len(lines) - number} lines about the work", "the budget has no room for them")
    building.shown += [id for id, _ in lines[:number]]
    building.add("work", build(number))
    building.work = Focused(focus.id, position, number)


def _changed_part(
    session: Session, building: Building, wanted: Wanted, checks: Checks, tells: bool
) -> Wanted:
    """Add what has changed since this actor was told, as much as there is room for; the rest comes next time."""
    run, at = session.run, building.at
    if not session.rules.enabled:
        return wanted
    every = [one for one in changed_facts(session, at) if not one.erased and one.run_id in (None, run)]
    nudged = [one.id for one in every if was_nudged_of(session.ledger, session.actor, one.id)]
    news = [one for one in every if one.id not in nudged]
    now = _what_holds_now(session, news, wanted)
    lines = changed_lines(news, _as_lines(now, checks, at))

    def build(number: int) -> str:
        return "\n".join((PREMISES, *lines[:number])) if number else ""

    number = building.fitted("changed", build, len(lines))
    if number < len(lines):
        building.leave_out(
            f"{len(lines) - number} changes", "the budget has no room: the next prompt tells them"
        )
    shown = [one for one in news[:number] if one.id in now]
    building.shown += [now[one.id].id for one in shown]
    also = tuple((now[one.id].id, now[one.id].position) for one in shown)
    named = [one.id for one in news[:number]]
    quoted = [one.payload["item"] for one in news[:number] if one.payload["text"]]
    building.add("changed", build(number), [*named, *quoted, *(id for id, _ in also)])
    return replace(wanted, told=(*nudged, *named) if tells else (), also=also)


def _as_lines(items: Mapping[str, Item], checks: Checks, at: int | None) -> dict[str, str]:
    """What each of these says, and what has to be known of it."""
    known = checks.of(list(items.values()), at)
    stale = {id: one.check.stale for id, one in known.items() if one.check.stale}
    marks = {
        name: (["disputed"] if one.disputed else [])
        + ([f"stale: {stale[one.id]}"] if one.id in stale else [])
        for name, one in items.items()
    }
    return {
        name: all_of(one) + (f" ({as_data(', '.join(marks[name]))})" if marks[name] else "")
        for name, one in items.items()
    }


def _long_term_part(
    session: Session, building: Building, wanted: Wanted, making: Maker, gathering: Gathering
) -> Wanted:
    """Add the block of long-term memory, and with it what the digest need not say."""
    own = session.rules
    most = own.max_chars if own.enabled and own.inject else 0
    if not most:
        return wanted
    with session.items(wanted.at) as judge:
        candidates, barred, shortened, more = long_term(
            judge, session.actor, wanted, gathering.found, making.checks, most
        )
    fits = building.fitted("long_term", lambda size: long_term_block(candidates, size).text, most)
    packed = long_term_block(candidates, fits, rest=fits < most)
    cut = {id: why for id, why in (*shortened.items(), *packed.omitted) if id in packed.ids}
    building.omitted += [*barred, *cut.items()]
    left = len(candidates) - len(packed.taken)
    if left or more:
        number = f"{'more than ' if more else ''}{left}"
        room = "the budget" if fits < most else f"{most:,} characters"
        building.leave_out("long-term memory", f"{number} do not fit into {room}")
    building.add("long_term", packed.text)
    building.shown += packed.ids
    whole = tuple((one.id, one.version) for one in packed.taken if one.id not in cut)
    after = [one for one in candidates if one.id not in packed.ids][:SPARE]
    building.block = [one for one in candidates if one.id in packed.ids or one in after]
    building.block_chars = fits
    return replace(wanted, beside=whole)


def _within(wanted: Wanted, building: Building, making: Maker, gathering: Gathering | None) -> Wanted:
    """The digest that is asked for, within what is left of a prompt's budget. Tokens of parts need not add up to
    those of the whole, so it is tried first."""
    budgets, less, room, made = wanted.rules.budgets, 0, building.room, building.parts
    for _ in range(TRIES):
        total = room.left(made, budgets.total, less)
        fitting = _with_total(wanted, total)
        if total.max_tokens in (None, 0):
            return fitting
        tried = making.make(fitting, gathering, delivered=False)
        if not room.over({**made, "digest": tried.text}):
            return fitting
        less = less * 2 + 8
    return _with_total(wanted, Portion(budgets.total.max_items, 0, 0))


def _what_holds_now(session: Session, premises: Sequence[Event], wanted: Wanted) -> dict[str, Item]:
    """What stands in the place of each, where somebody has said so: not what is only claimed."""
    found: dict[str, Item] = {}
    with session.items(wanted.at) as judge:
        for one in premises:
            item = (
                judge.item(one.payload["item"]) if one.payload["why"] in ("superseded", "revised") else None
            )
            while item is not None and item.status == "superseded" and item.superseded_by:
                item = judge.item(item.superseded_by)
            holds = item is not None and item.current and item.valid(wanted.now_us)
            if item is not None and holds and item.sensitivity in wanted.rules.allow_sensitivities:
                found[one.id] = judge.shown(item)
    return found


def _fixed_parts(session: Session, building: Building, task: str, parts: Collection[str]) -> None:
    """Add what a prompt begins with: the task, and in a run what the agent may see of the state. A receipt keeps
    nothing of the run's secrets."""
    if "task" in parts:
        building.add("task", f"## Task\n{task}")
    if session.run is None or "inputs" not in parts:
        return
    state = seen_state(session.ledger, session.run, session.actor, building.at)
    most = building.fitted("inputs", lambda size: inputs(session.actor, state, size), MOST)
    text = inputs(session.actor, state, most)
    if building.room.over({**building.parts, "inputs": text}) and text:
        building.leave_out("inputs", "the budget has no room for them: read the run's state")
        return
    with session.snapshot() as now:
        hide = redactor_of(now, session.run)
    sources = session.ledger.ids_at(state.sources(*state))
    building.add("inputs", text, sources, inputs(session.actor, hide(dict(state)), most))


def _recent_part(session: Session, task: str, building: Building) -> tuple[str, Sequence[str]]:
    """What has just happened in the run, as a part of a prompt, and the ids of the events."""
    own, shown = session.rules, "\n".join(building.parts.values())
    most = own.salience_top_k if own.use_salience else own.window
    if session.run is None or not most or not session.reads("episodic", building.at):
        return "", ()
    if own.use_salience:
        events = salient(session, task, top_k=most, shown=shown, at=building.at)
    else:
        events = window(session, k=most, shown=shown, at=building.at)
    if events.text in (NO_MEMORY, NONE_SALIENT):
        return "", ()
    return f"{RECENT}\n{events.text}", [event.id for event in events.events]


class Receipts:
    """What digests and prompts were made of, and what has happened in a run since: `book.receipts`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @verb
    def get(self, id: str, at: At = None) -> Receipt:
        """The receipt of a digest or prompt: what was asked, what went in and what did not. Its reader and the owner
        can see it; `.replay()` gives the text again."""
        event = self._session.ledger.event(check_name("a receipt", id))
        actor, upto = self._session.actor, None if at is None else self._session.ledger.position(at)
        known = event is not None and event.kind == RECEIPT and (upto is None or event.position <= upto)
        if event is None or not known or actor not in (OWNER, event.actor):
            raise NotFound(f"there is no receipt {id!r} for {actor!r}: see the digest's receipt_id")
        self._session.check_memory_is_on()
        reader = self._session.speaking_for(event.actor)
        with self._session.items(at) as judge, self._session.snapshot() as now:
            rights = rights_of(now, actor, self._session.run)

            def may_see(id: str) -> bool:
                """Of a run's state, its sharing rules have decided when the prompt was made, and they do not change."""
                if item_at(now, id) is not None:
                    return judge.item(id) is not None
                source = self._session.ledger.event(id)
                return source is not None and (
                    source.kind.startswith("state.") or may_be_told(now, rights, source)
                )

            return read_receipt(event, self._session.ledger, may_see, partial(_said_of_work, reader))

    @verb
    def list(self, run_id: str | None = None, at: At = None) -> ReceiptList:
        """The receipts that this actor may see, oldest first, as of `at`; those of one run, if it is named."""
        actor, run = (
            self._session.actor,
            self._session.run if run_id is None else check_name("run_id", run_id),
        )
        upto = None if at is None else self._session.ledger.position(at)
        found = self._session.ledger.events(
            0, upto, run_id=run, kinds=(RECEIPT,), actor=None if actor == OWNER else actor
        )
        receipts = []
        for event in found:
            with suppress(Erased):  # it was erased itself, and not only something in it
                receipts.append(self.get(event.id, at))
        return receipts

    @verb
    def bisect(
        self,
        run_id: str | None = None,
        without: str | None = None,
        matters: Callable[[str], bool] | None = None,
    ) -> Bisected:
        """What a past run's digests would have been without one memory, or without each of those that it was
        shown, the one that changes most first. `matters` narrows it to those without which its answer to a digest's
        text would have been another one. No model is asked."""
        run = self._session.run if run_id is None else check_name("run_id", run_id)
        if run is None:
            raise BadInput("say which run: run_id")
        left = None if without is None else check_name("an item", without)
        check_call("matters", matters)
        found = self.list(run)
        with self._session.snapshot() as now:
            if not found and now.get("runs", run) is None:
                raise NotFound(f"there is no run {run!r} in this book")
        return bisected(run, found, self._derived, left, matters)

    def _derived(self, id: str) -> Iterator[str]:
        """The items that were derived from one, and so on down, as far as this actor may see them."""
        ahead, seen = [id], {id}
        with self._session.items() as judge:
            while ahead:
                below = [str(child) for _, child in judge.then.scan("children", ahead.pop())]
                fresh = [one for one in below if one not in seen and judge.item(one) is not None]
                seen.update(fresh)
                ahead += fresh
                yield from fresh

    # what has just happened

    @verb
    def changed_facts(self, at: At = None) -> Events:
        """What this actor was told in digests and what has changed since, as far as no prompt has said so yet, as of
        `at`."""
        return changed_facts(self._session, at)

    window = method(window)
    salient = method(salient)


def _said_of_work(session: Session, told: Focused) -> str:
    """What a prompt of this actor said of a work, as far as it may still know of that."""
    try:
        lines, _ = focus_of(session, told.id).lines(told.position)
    except NotFound:
        return ""
    return masked(work_part(lines, told.lines))


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
