"""What has just happened in a run: its most recent events, and the most salient ones.

    salience = w_rel · relevance + w_rec · exp(−decay · turns ago) + w_imp · importance of the kind

Both are functions over the events that an actor may see: its own, and those of public kinds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..access.masking import beginning
from ..errors import BadInput, CommonplaceError
from ..index.words import jaccard, spaced
from ..ledger.checks import check_name, check_text, check_whole
from ..ledger.events import Event
from ..ledger.printing import Listing
from ..memory.items import MAX_TEXT, event_text
from ..memory.portions import IMPORTANCE, Salience, rules_with
from ..memory.settings import settings_of
from ..state.redaction import as_logged
from ..telemetry import recalling
from ..verbs import RunId
from .escaping import as_data

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

NO_MEMORY = "(no prior memory)"
NONE_SALIENT = "(no salient memories)"
REPEATED = 0.8
"""From which likeness on a line says what is already shown."""
FIRST_LOOK = 2_000
"""How many of the last events are looked through for those of a run, before more are."""

log = logging.getLogger("commonplace")


class Recollection(Listing[Event], msgspec.Struct, frozen=True):
    """What an actor remembers of a run: the events in order, the lines for a prompt, and if they were ranked, their
    scores."""

    ENTRIES = "events"

    events: tuple[Event, ...]
    text: str
    scores: dict[str, float] = {}
    semantic: bool = False
    fallback: str = ""
    """Why relevance was judged by words, if the index was asked for and could not answer."""

    def __str__(self) -> str:
        return self.text


def window(
    session: Session, run_id: RunId | None = None, *, k: int = 8, shown: str = "", at: At = None
) -> Recollection:
    """The most recent events of a run that this actor may see, as of `at`, with lines for a prompt. What `shown`
    has already is not said again.

    `k` is how many events. `shown` is a text that shows some of them already."""
    check_text("shown", shown)
    with recalling(session.actor, "episodic") as attributes:
        events = visible_events(session, run_id, at, check_whole("k", k))
        recollection = most_recent(events, _texts(events[-k:] if k else ()), k, shown)
        attributes |= {"memory.visible_count": len(recollection), "text": recollection.text}
    return recollection


def salient(
    session: Session,
    query: str = "",
    run_id: RunId | None = None,
    *,
    turn: int | None = None,
    top_k: int = 8,
    semantic: bool = False,
    rules: Mapping[str, Any] | None = None,
    shown: str = "",
    at: At = None,
) -> Recollection:
    """The events of a run that matter most at a turn (None: its last one), in order. Relevance is judged by
    words, or with `semantic` by the index; if that cannot answer, by words, and the answer says so.

    `top_k` is how many events. `semantic` is whether to go by meaning as well as by words. `rules` are fields of
    memory.v1 that hold for this call. `shown` is a text that shows some of them already."""
    check_text("query", query)
    check_text("shown", shown)
    with recalling(session.actor, "salience", **{"memory.top_k": check_whole("top_k", top_k)}) as attributes:
        events = visible_events(session, run_id, at)
        last_turn = max((event.turn for event in events), default=0)
        turn = last_turn if turn is None else check_whole("turn", turn, 2**53)
        with session.snapshot() as now:
            weights = rules_with(settings_of(now).salience, {} if rules is None else rules)
        relevance, fallback = None, ""
        if semantic and query.strip() and events:
            relevance, fallback = _relevance_by_index(session, query, events)
        recollection = most_salient(
            events,
            _texts(events),
            top_k,
            turn=turn,
            query=query,
            relevance=relevance,
            rules=weights,
            shown=shown,
        )
        attributes |= {
            "memory.visible_count": len(recollection),
            "memory.semantic": recollection.semantic,
            "text": recollection.text,
        }
    return replace(recollection, fallback=fallback)


def salience(
    event: Event,
    *,
    turn: int,
    query: str = "",
    relevance: float | None = None,
    rules: Salience = Salience(),
) -> float:
    """How much an event deserves a place in a prompt. Without a relevance, it is judged by the words it shares with
    the query."""
    if relevance is None:
        relevance = keyword_relevance(event, query)
    recency = math.exp(-rules.decay * max(0, turn - event.turn))
    importance = rules.importance.get(event.kind, IMPORTANCE.get(event.kind, 0.5))
    return rules.w_rel * relevance + rules.w_rec * recency + rules.w_imp * importance


def keyword_relevance(event: Event, query: str) -> float:
    """The share of words that an event's text and a query have in common."""
    text = event.payload.get("text")
    words = spaced(text) if isinstance(text, str) else frozenset()
    return jaccard(words, spaced(query)) if words else 0.0


def by_rank(ranked: Sequence[str]) -> dict[str, float]:
    """Relevance from the order in which an index ranks events; those it did not rank have none."""
    return {id: (len(ranked) - place) / len(ranked) for place, id in enumerate(ranked)}


def most_recent(
    events: Sequence[Event], texts: Mapping[str, str], window: int, shown: str = ""
) -> Recollection:
    """The last events of a window."""
    last = tuple(events[-window:]) if window else ()
    return Recollection(last, _lines(last, texts, {}, shown) or NO_MEMORY)


def most_salient(
    events: Sequence[Event],
    texts: Mapping[str, str],
    top_k: int,
    *,
    turn: int,
    query: str,
    relevance: Mapping[str, float] | None,
    rules: Salience,
    shown: str = "",
) -> Recollection:
    """The events that matter most, in the order in which they happened. Ties keep the order of the ledger."""

    def score(event: Event) -> float:
        relevant = None if relevance is None else relevance.get(event.id, 0.0)
        return salience(event, turn=turn, query=query, relevance=relevant, rules=rules)

    scores = {event.id: score(event) for event in events}
    top = sorted(events, key=lambda event: -scores[event.id])[:top_k]
    in_order = tuple(sorted(top, key=lambda event: (event.turn, event.position)))
    shown_scores = {event.id: scores[event.id] for event in in_order}
    text = _lines(in_order, texts, shown_scores, shown) or NONE_SALIENT
    return Recollection(in_order, text, shown_scores, relevance is not None)


def _lines(events: Sequence[Event], texts: Mapping[str, str], scores: Mapping[str, float], shown: str) -> str:
    """A line for each event that says something which is not shown already."""
    lines, before = [], [spaced(as_data(line)) for line in shown.splitlines() if line.strip()]
    for event in events:
        text = as_data(texts.get(event.id, ""))
        words = spaced(text)
        if text and not any(jaccard(words, other) >= REPEATED for other in before):
            score = f"[sal={scores[event.id]:.2f}]" if scores else ""
            lines.append(f"[turn {event.turn:03d}][{event.kind}]{score} {text}")
    return "\n".join(lines)


def _relevance_by_index(
    session: Session, query: str, events: Sequence[Event]
) -> tuple[dict[str, float] | None, str]:
    try:
        ids = [event.id for event in events]
        return by_rank(session.services.index.asked(lambda index: index.ranked(query, ids))), ""
    except CommonplaceError as error:
        log.warning("memory.index.fallback: the index failed, so relevance is judged by words: %s", error)
        return None, f"the index could not be asked, so relevance is judged by words: {error}"


def visible_events(session: Session, run_id: str | None, at: At, last: int | None = None) -> list[Event]:
    """The events of a run that this actor may recall, its own and those of public kinds: all, or at least the last
    so many. Kinds that a capability owns are left out: they are the book's own records."""
    run = session.run if run_id is None else check_name("run_id", run_id)
    if run is None:
        raise BadInput("say which run: its events are what can be recalled")
    if session.ignores_memory():
        return []
    session.check_reads("episodic")
    with session.snapshot(at) as then:
        head = then.position
    span = head if last is None else FIRST_LOOK
    while True:
        visible = _logged(session, run, max(0, head - span), head)
        events = [event for event in visible if session.ledger.registry.owner(event.kind) is None]
        if span >= head or len(events) >= (last or 0):
            return events
        span *= 8


def _texts(events: Iterable[Event]) -> dict[str, str]:
    return {event.id: beginning(event_text(event.payload), MAX_TEXT) for event in events}


def _logged(session: Session, run: str, after: int, upto: int) -> Iterator[Event]:
    """The events of a run after a position and up to another, as this actor may see them, without secrets."""
    events = session.ledger.events(after, upto, run_id=run)
    if session.is_unbound_owner:
        return map(as_logged(session.ledger.snapshot), events)
    return session.visible(events, upto)
