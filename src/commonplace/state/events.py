"""The events of a run's state: their kinds, how they are recorded, and what an erasure leaves of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..access.redact import Redactor
from ..errors import BadInput
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from ..ledger.views import Kind
from .policy import Policy

OPENED, CHANGED, STEPPED = "state.opened", "state.changed", "state.stepped"
CLOSED, MERGED, VIOLATED = "state.closed", "state.merged", "state.violated"

CONTENT = {
    CHANGED: ("payload", "values"),
    STEPPED: ("reason", "result"),
    CLOSED: ("reason",),
    OPENED: (),
    MERGED: (),
    VIOLATED: (),
}
"""The parts of each payload that hold content; the other parts are names that the runtime gave."""


class Secrecy(NamedTuple):
    """What decides whether an event holds a secret: the run's policy, the event's content, and names of secret fields
    besides those of the policy."""

    policy: Policy
    content: Any
    more: Iterable[str] = ()


def emit(
    overlay: Overlay,
    kind: str,
    run: str,
    actor: str,
    payload: dict[str, Any],
    sources: Iterable[int] = (),
    secrecy: Secrecy | None = None,
    blobs: Mapping[str, bytes] | None = None,
) -> Event:
    """Record an event of a run. Its parents are the events at `sources`: it is erased with them and carries their
    labels. If its content has a secret field, by the policy or by what the sources say, the event is sensitive and
    lists the names of all secret fields."""
    parents = events_at(overlay, sources)
    secret = [] if secrecy is None else _secret_names(secrecy, parents)
    event = draft(
        kind,
        actor=actor,
        run_id=run,
        payload={**payload, "secret": secret} if secret else payload,
        labels={"sensitivity": "sensitive"} if secret else None,
        parents=[parent.id for parent in parents],
    )
    return overlay.emit(replace(event, blobs=dict(blobs)) if blobs else event)


def events_at(overlay: Overlay, positions: Iterable[int]) -> list[Event]:
    """The events at these positions, each once. Raises BadInput."""
    unique = dict.fromkeys(positions)
    if not all(type(position) is int and 0 < position <= overlay.position for position in unique):
        raise BadInput("sources are the positions of events of this book")
    return [overlay.event_at(position) for position in unique]


def _secret_names(secrecy: Secrecy, parents: list[Event]) -> list[str]:
    """The names of secret fields, if the content has any of them at any depth."""
    inherited = (name for parent in parents for name in parent.payload.get("secret", ()))
    fields = secrecy.policy.secret_fields.union(secrecy.more, inherited)
    if not fields:  # most runs have none
        return []
    return sorted(fields) if Redactor(fields)(secrecy.content) != secrecy.content else []


def _change_without_values(payload: dict[str, Any]) -> dict[str, Any]:
    names = ("agent", "type", "size", "fields")
    return {**{name: payload[name] for name in names}, "payload": {}, "erased": True}


# What is left of an event that is erased: names, statuses and sizes, so that what was built on it stays valid.
KINDS = (
    Kind(OPENED, residue=lambda payload: {**payload, "initial": [], "secret": [], "erased": True}),
    Kind(CHANGED, residue=_change_without_values),
    Kind(STEPPED, residue=lambda payload: {**payload, "reason": "", "result": {}, "secret": []}),
    Kind(CLOSED, residue=lambda payload: {**payload, "reason": ""}),
    Kind(MERGED, residue=lambda payload: {**payload, "fields": []}),
    Kind(VIOLATED),
)
