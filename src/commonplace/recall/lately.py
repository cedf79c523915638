"""What has just happened in a run: its most recent events, and those that matter most."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.secrets import beginning
from ..errors import BadInput, CommonplaceError
from ..ledger.events import Event, check_name, check_text, check_whole
from ..memory.items import MAX_TEXT, event_text
from ..memory.portions import rules_with
from ..memory.reading import settings_of
from .episodes import Recollection, by_rank, recent
from .episodes import salient as most_salient
from .telemetry import recalling

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

LATELY = 2_000
"""How many events are looked through for the most recent ones of a run, before more are."""

log = logging.getLogger("commonplace")


def window(
    session: Session, run_id: str | None = None, *, k: int = 8, shown: str = "", at: At = None
) -> Recollection:
    """The most recent events of a run that this actor may see, as of `at`, with lines for a prompt. What `shown`
    has already is not said again."""
    check_text("shown", shown)
    with recalling(session.actor, "episodic") as told:
        events = _seen_in(session, run_id, at, check_whole("k", k))
        found = recent(events, _texts(events[-k:] if k else ()), k, shown)
        told |= {"memory.visible_count": len(found.events), "text": found.text}
    return found


def salient(
    session: Session,
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
    with recalling(session.actor, "salience", **{"memory.top_k": check_whole("top_k", top_k)}) as told:
        events = _seen_in(session, run_id, at)
        turn = (
            max((one.turn for one in events), default=0) if turn is None else check_whole("turn", turn, 2**53)
        )
        with session.snapshot() as now:
            settled = rules_with(settings_of(now).salience, {} if rules is None else rules)
        relevance, fallback = None, ""
        if semantic and query.strip() and events:
            relevance, fallback = _ranked(session, query, events)
        found = most_salient(
            events, _texts(events), top_k, turn=turn, query=query, relevance=relevance, rules=settled,
            shown=shown,
        )  # fmt: skip
        told |= {
            "memory.visible_count": len(found.events),
            "memory.semantic": found.semantic,
            "text": found.text,
        }
    return replace(found, fallback=fallback)


def _ranked(session: Session, query: str, events: Sequence[Event]) -> tuple[dict[str, float] | None, str]:
    try:
        ids = [one.id for one in events]
        return by_rank(session.services.index.asked(lambda index: index.ranked(query, ids))), ""
    except CommonplaceError as error:
        log.warning("memory.index.fallback: the index failed, so relevance is judged by words: %s", error)
        return None, f"the index could not be asked, so relevance is judged by words: {error}"


def _seen_in(session: Session, run_id: str | None, at: At, last: int | None = None) -> list[Event]:
    """The events of a run that this actor may recall, its own and those of public kinds: all, or at least the last
    so many. Those by which the book keeps account of itself are none."""
    run = session.run if run_id is None else check_name("run_id", run_id)
    if run is None:
        raise BadInput("say which run: its events are what can be recalled")
    if session.ignores_memory():
        return []
    session.check_reads("episodic")
    with session.snapshot(at) as then:
        head = then.position
    span = head if last is None else LATELY
    while True:
        events = session.logged(run, max(0, head - span), head)
        found = [one for one in events if session.ledger.registry.owner(one.kind) is None]
        if span >= head or len(found) >= (last or 0):
            return found
        span *= 8


def _texts(events: Iterable[Event]) -> dict[str, str]:
    return {one.id: beginning(event_text(one.payload), MAX_TEXT) for one in events}
