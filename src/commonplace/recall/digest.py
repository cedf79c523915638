"""The memory digest: what is remembered about a task, packed into a budget, with a receipt.

The same request at the same moment gives the same bytes, in every process and on every engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from random import random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..access.masking import masked
from ..errors import BadInput
from ..index.names import SIGNALS
from ..ledger.checks import check_name, check_text, check_whole
from ..ledger.labels import strictness
from ..ledger.printing import LeftOut, Readable
from ..memory.filters import ItemFilter, item_filter
from ..memory.items import Item
from ..memory.portions import rules_with
from ..memory.settings import Settings, settings_of
from ..telemetry import recalling
from .conversation import TURN
from .gathering import SHOWN, Bar, DigestRequest, Gathering, gather
from .ignoring import asks_to_ignore
from .lines import DigestLine
from .packing import CountTokens, Packed, estimated
from .receipts import Counted, DigestTrace, Write
from .stable import Packing, digest_before, shared_length, shown_lines
from .verification import Checks

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

NOT_CONSULTED = "memory was left out of this turn, as asked."


class Digest(Readable, msgspec.Struct, frozen=True):
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


def digest(
    session: Session,
    query: str = "",
    *,
    kind: str | None = None,
    tags: Sequence[str] | None = None,
    agent: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    metadata: Mapping[str, Any] | None = None,
    max_items: int | None = None,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    rules: Mapping[str, Any] | None = None,
    stable: str = "",
    ignore_memory: bool = False,
    count_tokens: CountTokens | None = None,
    receipt: bool = True,
    at: At = None,
    scope: str | None = None,
) -> Digest:
    """What is remembered about a task, packed into a budget (12 items and 2,400 characters, unless the book or
    the call says otherwise), with a receipt that tells how it came about.

    `rules` are fields of `memory.v1` that hold for this call. Digests that are asked for under the same `stable`
    name continue each other: what was there stays byte for byte, and what is new is added. `ignore_memory`, or
    words such as "ignore memory" in the query, leave memory out. `count_tokens` counts the tokens of a text; by
    default, every four characters count as one. `receipt` is whether a receipt is written; without one nothing is
    written, the digest cannot be stable, and nobody hears later that something in it has changed.

    Filters (kind, tags, agent, since, until, metadata) choose the items that may be in it, as those of `memory.list`
    do.

    `kind` is fact, note, procedure or episode. `until` is the time before which they were recorded. `max_items` is how
    many items at most.
    """
    session = session.narrowed(scope)
    budget = {"max_items": max_items, "max_chars": max_chars, "max_tokens": max_tokens}
    request = digest_request(
        session,
        query,
        at,
        rules=rules,
        budget=budget,
        ignore=ignore_memory,
        count=count_tokens,
        stable=stable,
        receipt=receipt,
        only=item_filter(kind=kind, tags=tags, agent=agent, since=since, until=until, metadata=metadata),
    )
    return make_digest(session, request, Checks(session, request.at))


def digest_request(
    session: Session,
    query: str,
    at: At = None,
    *,
    rules: Mapping[str, Any] | None = None,
    budget: Mapping[str, int | None] | None = None,
    ignore: bool = False,
    count: CountTokens | None = None,
    stable: str = "",
    receipt: bool = True,
    only: ItemFilter = ItemFilter(),
) -> DigestRequest:
    """What is asked for, under the book's rules, those of the agent's file and the call's own, in this order. Raises
    BadInput."""
    query, own = check_text("query", query), session.rules
    with session.viewer(at) as viewer:
        merged = rules_with(settings_of(viewer.views).v1, own.v1 if own.enabled else {"enabled": False})
        position = None if at is None else viewer.views.position
        rights = tuple(rights for _, rights in viewer.pairs)
    total = {name: check_whole(name, most) for name, most in (budget or {}).items() if most is not None}
    merged = rules_with(merged, {} if rules is None else rules)
    merged = rules_with(merged, {"budgets": {"total": total}} if total else {})
    if stable and at is not None:
        raise BadInput("what is stable continues the last one, so it is of now: leave at out")
    if stable and not receipt:
        raise BadInput("what is stable continues the receipt of the last one: leave receipt=False out")
    return DigestRequest(
        query,
        merged,
        session.ledger.moment(at),
        rights,
        position,
        ignored="asked to" if ignore else asks_to_ignore(query) or session.ignores_memory(),
        stable=check_name("stable", stable) if stable else "",
        count=count or session.services.count_tokens,
        receipt=receipt,
        only=only,
    )


def receipt_of(session: Session, lines: Collection[DigestLine], checks: Checks) -> str | None:
    """Leave a receipt of what this actor was told elsewhere than in a digest, so that it hears of it when these items
    change. Returns its id."""
    if session.is_owner or session.refusal:
        return None
    budget = {"max_items": 0, "max_chars": 0}
    request = digest_request(session, "", rules={"enabled": True}, budget=budget)
    beside = tuple((line.id, line.version) for line in lines)
    return make_digest(session, replace(request, ignored="", beside=beside), checks).receipt_id


def make_digest(
    session: Session, request: DigestRequest, checks: Checks, gathering: Gathering | None = None
) -> Digest:
    """A digest with its receipt, and what goes with that. What was gathered for the same request before is not looked
    for again; what is found of files goes into the receipt."""
    with recalling(session.actor, "digest") as attributes:
        if (off := _switched_off(request)) and request.around is None and not request.told:
            return Digest("", left_out=tuple(off))
        made = try_digest(session, request, checks, gathering)
        digest = made.digest
        if not session.refusal:
            digest = replace(digest, receipt_id=write_receipt(session, request, checks, made))
        attributes |= {"memory.visible_count": len(digest.item_ids), "text": digest.text}
    if digest.receipt_id is not None:  # something in it may have changed since it was read
        session.services.fact_watch.look_after_write()
    return digest


class MadeDigest(NamedTuple):
    """A digest without a receipt, and what a receipt says of it."""

    digest: Digest
    settings: Settings
    fingerprint: str
    trace: DigestTrace
    packed: Packed[DigestLine]
    outside: Sequence[tuple[str, int]]


def _switched_off(request: DigestRequest) -> list[LeftOut]:
    off = not request.rules.enabled and not request.ignored
    return [LeftOut("the memory digest", "memory.v1.enabled is false")] if off else []


def try_digest(
    session: Session, request: DigestRequest, checks: Checks, gathering: Gathering | None = None
) -> MadeDigest:
    """A digest that is shown to nobody yet: nothing is written."""
    around = request.around
    if (off := _switched_off(request)) or (around is not None and not around.digest):
        gathering = Gathering((), off, "", "")
    elif request.ignored:
        gathering = Gathering((), (), "", NOT_CONSULTED)
    else:
        gathering = gathering or gather(session, request)
    continues = request.stable and gathering.fingerprint  # memory was asked
    with session.viewer(request.at) as viewer:
        settings, as_of = settings_of(viewer.now), viewer.views.position
        before, rebased = digest_before(session, viewer, request.stable) if continues else (None, "")
        shown = shown_lines(viewer, before)
        items = [gathered.item for gathered in gathering.items]
        items += [item for _, item in shown if item is not None]
        known = checks.of(viewer.views, items)
    bar = Bar(request, settings, known)
    counted = None if request.count is None else Counted(request.count)
    packing = Packing(
        [bar.candidate(gathered) for gathered in gathering.items],
        request.rules.budgets,
        counted or estimated,
        gathering.nothing,
        request.rest,
    )
    trace, packed = packing.anew(rebased) if before is None else packing.continued(bar, before, shown)
    trace = replace(trace, counts=counted.answers if counted else {})
    in_block = {} if around is None else dict(around.omitted)  # the prompt tells of these by itself
    omitted = tuple((id, why) for id, why in packed.omitted if why != SHOWN and id not in in_block)
    packed = replace(packed, omitted=omitted)
    made = Digest(
        packed.text,
        tuple(dict.fromkeys(packed.ids)),
        omitted,
        as_of=as_of,
        left_out=tuple(gathering.left_out),
        kept=shared_length(before.text, packed.text) if before is not None and trace.kept else 0,
        rebased=trace.rebased,
        why={line.id: _why(line) for line in packed.taken},
        **_strictest_labels([item for item in items if item.id in packed.ids]),
    )
    outside = [(id, record.position) for id, record in sorted(known.items())]
    return MadeDigest(made, settings, gathering.fingerprint, trace, packed, outside)


def _why(line: DigestLine) -> str:
    signals = ", ".join(f"{SIGNALS.get(name, name)} gave {gain:.3f}" for name, gain in line.signals)
    return f"{line.via}{f' ({line.score:.3f})' if line.score else ''}{f': {signals}' if signals else ''}"


def _strictest_labels(items: Sequence[Item]) -> dict[str, str]:
    return {
        name: max((getattr(item, name) for item in items), key=lambda label: strictness(name, label))
        for name in ("sensitivity", "trust")
        if items
    }


# the receipt


def write_receipt(session: Session, request: DigestRequest, checks: Checks, made: MadeDigest) -> str | None:
    """Write the receipt, and note what the actor was shown. Returns the receipt's id, if there is one. Turns of a
    conversation are not noted: they are what was said, and whoever keeps them repeats nothing that was remembered."""
    around, trace, packed = request.around, made.trace, made.packed
    taken = [line.id for line in packed.taken if line.text and line.kind != TURN]
    beside = [id for id, _ in request.beside]
    shown = tuple(dict.fromkeys((*taken, *beside, *(() if around is None else around.shown))))
    if not _leaves_receipt(request, made.settings):
        session.was_shown(shown)
        if request.receipt:
            checks.record()
        return None
    if around is not None:
        trace = replace(trace, whole=around.whole)
    payload = _payload(session, request, made, trace)
    block = () if around is None else around.whole.block
    sources = () if around is None else around.sources
    words = [line.id for line in (*block, *trace.candidates, *trace.kept) if line.before or line.text]
    named = tuple(dict.fromkeys((*words, *sources, *checks.new)))
    write = Write(session.actor, session.run, payload, trace, tuple(checks.new.values()), named, shown)
    id: str = session.write("recall.receipt", write)
    return id


def _payload(
    session: Session, request: DigestRequest, made: MadeDigest, trace: DigestTrace
) -> dict[str, Any]:
    around, packed = request.around, made.packed
    work, work_text, in_block = (
        (None, "", ()) if around is None else (around.work, around.work_text, around.omitted)
    )
    return {
        "request": {
            "query": masked(request.query),
            "rules": msgspec.to_builtins(request.rules),
            **({"only": masked(msgspec.to_builtins(request.only))} if request.only else {}),
        },
        "as_of": made.digest.as_of,
        "now": request.now_us,
        "index": made.fingerprint,
        "outside": made.outside,
        "included": [[line.id, line.version, number] for number, line in enumerate(packed.taken, 1)],
        "block": [list(pair) for pair in (*request.beside, *request.also)],
        "omitted": _counted_reasons(list(dict.fromkeys((*packed.omitted, *in_block)))),
        "hash": sha256(trace.again(work_text).encode()).hexdigest(),
        "work": None if work is None else list(work),
        "ignored": request.ignored,
        "told": list(request.told),
        "stable": "" if request.ignored else request.stable,
        "past": request.at is not None,
        "reached": session.services.fact_watch.reached,
    }


def _leaves_receipt(request: DigestRequest, settings: Settings) -> bool:
    """The book's settings say what share of digests leaves a receipt. One that tells changed facts, ignores memory or
    is stable always does."""
    must = request.ignored or request.told or request.stable
    return request.receipt and (bool(must) or random() < settings.receipts)  # noqa: S311  a sample, not a secret


def _counted_reasons(omitted: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How much was left out for which reason; nothing of what an item says."""
    counts: dict[str, int] = {}
    for _, why in omitted:
        reason = why
        if why.startswith("it says"):
            reason = "it says the same as another one"
        elif why.startswith(("cut", "stale")):
            reason = why.partition(":")[0].split(" to ")[0]
        counts[reason] = counts.get(reason, 0) + 1
    return counts
