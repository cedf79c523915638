"""What has just happened in a run, as a prompt shows it: the most recent events, or the most salient ones.

    salience = w_rel · relevance + w_rec · exp(−decay · turns ago) + w_imp · importance of the kind

Both are functions over the events that an actor may see: its own, and those of public kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from ..index.words import jaccard, spaced
from ..ledger.events import Event
from ..memory.portions import IMPORTANCE, Salience
from .escaping import as_data

NO_MEMORY = "(no prior memory)"
NONE_SALIENT = "(no salient memories)"
REPEATED = 0.8
"""From which likeness on a line says what is already shown."""


class Recollection(msgspec.Struct, frozen=True):
    """What an actor remembers of a run: the events in order, their scores if they were ranked, the lines for a
    prompt, and what there is to say of how they were found."""

    events: tuple[Event, ...]
    text: str
    scores: dict[str, float] = {}
    semantic: bool = False
    fallback: str = ""
    """Why relevance was judged by words, if the index was asked for and could not answer."""


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


def recent(events: Sequence[Event], texts: Mapping[str, str], window: int, shown: str = "") -> Recollection:
    """The last events of a window."""
    kept = tuple(events[-window:]) if window else ()
    return Recollection(kept, _lines(kept, texts, {}, shown) or NO_MEMORY)


def salient(
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
    scores = {
        one.id: salience(
            one,
            turn=turn,
            query=query,
            relevance=None if relevance is None else relevance.get(one.id, 0.0),
            rules=rules,
        )
        for one in events
    }
    top = sorted(events, key=lambda one: -scores[one.id])[:top_k]
    kept = tuple(sorted(top, key=lambda one: (one.turn, one.position)))
    chosen = {one.id: scores[one.id] for one in kept}
    text = _lines(kept, texts, chosen, shown) or NONE_SALIENT
    return Recollection(kept, text, chosen, relevance is not None)


def _lines(events: Sequence[Event], texts: Mapping[str, str], scores: Mapping[str, float], shown: str) -> str:
    """A line for each event that says something which is not shown already."""
    lines, before = [], [spaced(as_data(line)) for line in shown.splitlines() if line.strip()]
    for one in events:
        text = as_data(texts.get(one.id, ""))
        words = spaced(text)
        if text and not any(jaccard(words, other) >= REPEATED for other in before):
            score = f"[sal={scores[one.id]:.2f}]" if scores else ""
            lines.append(f"[turn {one.turn:03d}][{one.kind}]{score} {text}")
    return "\n".join(lines)
