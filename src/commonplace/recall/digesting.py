"""Asking for a digest: what is wanted is settled here, and made in `digests`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import BadInput
from ..ledger.events import check_name, check_text, check_whole
from ..memory.portions import rules_with
from ..memory.reading import settings_of
from .lines import DigestLine
from .packing import CountTokens
from .prompting import asks_to_ignore
from .telemetry import recalling

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .digests import Digest, Gathering, Maker, Wanted
    from .verification import Checks


def digest(
    session: Session,
    query: str = "",
    *,
    max_items: int | None = None,
    max_chars: int | None = None,
    max_tokens: int | None = None,
    rules: Mapping[str, Any] | None = None,
    stable: str = "",
    ignore_memory: bool = False,
    count_tokens: CountTokens | None = None,
    receipt: bool = True,
    at: At = None,
) -> Digest:
    """What is remembered about a task, packed into a budget (12 items and 2,400 characters, unless the book or
    the call says otherwise), with a receipt that tells how it came about.

    `rules` are fields of `memory.v1` that hold for this call. Digests that are asked for under the same `stable`
    name go on with each other: what was there stays byte for byte, and what is new is added. `ignore_memory`, or
    words such as "ignore memory" in the query, leave memory out. `count_tokens` counts the tokens of a text; one
    for every four characters, unless somebody says so. `receipt` is whether a receipt is
    written; without one nothing is written, and it cannot be
    stable, and nobody hears later that something in it has changed.
    """
    wanted = wanted_digest(
        session, query, rules, max_items, max_chars, max_tokens, count_tokens, ignore_memory, at
    )
    wanted = replace(wanted, stable=check_stable(stable, at, receipt), receipt=receipt)
    return made_digest(session, maker(session), wanted)


def check_stable(stable: str, at: At, receipt: bool) -> str:
    """The name under which digests or prompts go on with each other, checked."""
    if stable and at is not None:
        raise BadInput("what is stable goes on with the last one, so it is of now: leave at out")
    if stable and not receipt:
        raise BadInput("what is stable goes on with the receipt of the last one: leave receipt=False out")
    return check_name("stable", stable) if stable else ""


def wanted_digest(
    session: Session,
    query: str,
    rules: Mapping[str, Any] | None,
    max_items: int | None,
    max_chars: int | None,
    max_tokens: int | None,
    count: CountTokens | None,
    ignore: bool,
    at: At,
) -> Wanted:
    from .digests import Wanted

    query, own = check_text("query", query), session.rules
    with session.snapshot(at) as then:
        settled = rules_with(settings_of(then).v1, own.v1 if own.enabled else {"enabled": False})
        position = None if at is None else then.position
    given = {"max_items": max_items, "max_chars": max_chars, "max_tokens": max_tokens}
    total = {name: check_whole(name, one) for name, one in given.items() if one is not None}
    settled = rules_with(settled, {} if rules is None else rules)
    settled = rules_with(settled, {"budgets": {"total": total}} if total else {})
    ignored = "asked to" if ignore else asks_to_ignore(query) or session.ignores_memory()
    now_us = session.ledger.moment(at)
    return Wanted(query, settled, now_us, position, ignored, count=count or session.services.count_tokens)


def made_digest(session: Session, maker: Maker, wanted: Wanted, gathering: Gathering | None = None) -> Digest:
    with recalling(session.actor, "digest") as told:
        digest = maker.make(wanted, gathering, delivered=not session.refusal)
        told |= {"memory.visible_count": len(digest.item_ids), "text": digest.text}
    if digest.receipt_id is not None:  # something in it may have changed since it was read
        session.services.fact_watch.look_after_write()
    return digest


def maker(session: Session, checks: Checks | None = None) -> Maker:
    """Makes digests for this actor. Loaded when the first is wanted: it brings the index with it."""
    from .digests import Maker

    return Maker(session, checks)


def receipt_of(session: Session, items: Collection[DigestLine], checks: Checks) -> str | None:
    """Leave a receipt of what this actor was told elsewhere than in a digest, so that it hears of it when these items
    change. Answers its id."""
    if session.is_owner or session.refusal:
        return None
    wanted = wanted_digest(session, "", {"enabled": True}, 0, 0, None, None, False, None)
    beside = tuple((item.id, item.version) for item in items)
    return made_digest(session, maker(session, checks), replace(wanted, ignored="", beside=beside)).receipt_id
