"""What must not be shown of a run outside the run, and how its events look without it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..access.redact import Redactor
from ..commit import Lens
from ..events import Event, blobs_of
from .cells import about, lineage

CONTENT = {
    "state.changed": ("payload", "values"),
    "state.stepped": ("reason", "result"),
    "state.closed": ("reason",),
    "state.opened": (),
    "state.merged": (),
    "state.violated": (),
}
"""Which parts of the runtime's own events hold content; their other parts are names that it gave."""


def redactor_of(lens: Lens, run: str | None) -> Redactor:
    """The secret fields of a run, its patterns, and every text that its secret fields have ever held, wherever
    it turns up. A run within another one, or forked from one, keeps that one's secrets, too."""
    if run is None or lens.get("state.runs", run) is None:
        return Redactor()
    known = about(lens, run)
    hide = Redactor(known.policy.secret_fields, known.policy.patterns)
    for one, id in lineage(lens, run, known.fork):
        row = one.get("state.secrets", id)
        if row is not None:
            hide |= Redactor(row["fields"], secrets=row["texts"])
    return hide | redactor_of(lens, known.parent) if known.parent else hide


def moved(lens: Lens, run: str) -> tuple[int, ...]:
    """Changes whenever what must not be shown of a run may have changed."""
    times: list[int] = []
    at: str | None = run
    while at is not None and lens.get("state.runs", at) is not None:
        times.append((lens.get("state.sums", at) or {"updated_us": 0})["updated_us"])
        at = about(lens, at).parent
    return tuple(times)


def redacted(event: Event, hide: Redactor) -> Event:
    """An event as a log or a page may show it."""
    if not hide or event.erased:
        return event
    payload: Any = hide(event.payload)
    if event.kind in CONTENT:
        payload = dict(event.payload)
        for name in CONTENT[event.kind]:
            if name in payload:
                payload[name] = hide(payload[name])
        if "initial" in payload:
            payload["initial"] = [
                [agent, field, hide.under(field, value)] for agent, field, value in payload["initial"]
            ]
    return replace(event, payload=payload, blobs=blobs_of(payload))
