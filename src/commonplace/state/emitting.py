"""How the state's events are written: with their lineage, their labels, and the names of what is secret."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ..access.redact import Redactor
from ..errors import BadInput
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from .policy import Policy


def emit(
    overlay: Overlay,
    kind: str,
    run: str,
    actor: str,
    payload: dict[str, Any],
    labels: dict[str, str] | None = None,
    sources: Iterable[int] = (),
    blobs: Mapping[str, bytes] | None = None,
) -> Event:
    """Record an event of a run. Its parents are the events at `sources`, so that it is erased with them and
    carries their labels."""
    parents = [event.id for event in sources_at(overlay, sources)]
    one = draft(kind, actor=actor, run_id=run, payload=payload, labels=labels, parents=parents)
    return overlay.emit(replace(one, blobs=dict(blobs)) if blobs else one)


def sources_at(overlay: Overlay, positions: Iterable[int]) -> list[Event]:
    found = dict.fromkeys(positions)
    if not all(type(one) is int and 0 < one <= overlay.position for one in found):
        raise BadInput("sources are the positions of events of this book")
    return [overlay.event_at(position) for position in found]


def secret_in(overlay: Overlay, positions: Iterable[int]) -> set[str]:
    """The names of secret fields that the events at these positions know of: whoever carries their content on
    carries these on, too."""
    return {name for event in sources_at(overlay, positions) for name in event.payload.get("secret", ())}


def secret_names(policy: Policy, content: Any, more: Iterable[str] = ()) -> list[str]:
    """The names of secret fields, if this content holds any of them at any depth."""
    fields = policy.secret_fields.union(more)
    if not fields:  # most runs have none
        return []
    return sorted(fields) if Redactor(fields)(content) != content else []


def labels_for(secret: list[str]) -> dict[str, str] | None:
    """What holds a secret field is sensitive."""
    return {"sensitivity": "sensitive"} if secret else None
