"""What must not be shown of a run outside the run, and how its events look without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from ..access.redact import Redactor
from ..commit import Lens
from ..events import ERASED, Event, blobs_of, erased_by
from .cells import about, lineage
from .requests import CHANGED, OPENED, STEPPED

CONTENT = {
    "state.changed": ("payload", "values"),
    "state.stepped": ("reason", "result"),
    "state.closed": ("reason",),
    "state.opened": (),
    "state.merged": (),
    "state.violated": (),
}
"""Which parts of the runtime's own events hold content; their other parts are names that it gave."""


def redactor_of(lens: Lens, run: str | None, said_by: str | None = None) -> Redactor:
    """The secret fields of a run, its patterns, and every text that its secret fields have ever held, wherever
    it turns up; with `said_by`, only texts that this agent has said itself. A run within another one, or forked
    from one, keeps that one's secrets, too."""
    if run is None or lens.get("state.runs", run) is None:
        return Redactor()
    known = about(lens, run)
    hide = Redactor(known.policy.secret_fields, known.policy.patterns)
    for one, id in lineage(lens, run, known.fork):
        for key, row in one.scan("state.secrets", id):
            known_to_it = said_by is None or key[1] == said_by
            hide |= Redactor(row["fields"], secrets=row["texts"] if known_to_it else ())
        parent = about(one, id).parent
        if parent is not None:
            hide |= redactor_of(lens, parent, said_by)
    return hide


def moved(lens: Lens, run: str) -> tuple[int, ...]:
    """Changes whenever what must not be shown of a run may have changed."""
    row = lens.get("state.sums", run)
    if row is None:
        return ()
    fork = about(lens, run).fork
    parents = (about(one, id).parent for one, id in lineage(lens, run, fork))
    above = (position for parent in parents if parent is not None for position in moved(lens, parent))
    return (row["updated_us"], *above)


def as_logged(open: Callable[[int | None], AbstractContextManager[Lens]]) -> Callable[[Event], Event]:
    """How a log may show events, by what is known of their runs when each of these is first asked for."""
    redactors: dict[str, Redactor] = {}

    def hide(event: Event) -> Event:
        if event.run_id is None or event.erased:
            return event
        if event.run_id not in redactors:
            with open(None) as lens:
                redactors[event.run_id] = redactor_of(lens, event.run_id)
        return redacted(event, redactors[event.run_id])

    return hide


def runs_affected(lens: Lens, events: Iterable[Event], find: Callable[[str], Event | None]) -> set[str]:
    """The runs of which something else must not be shown because of these events: a run that was opened, or one whose
    secrets are more, or fewer since some were erased, with every run within it or forked from it."""
    opened, changed = set[str](), set[str]()
    for event in events:
        if event.kind == ERASED:
            gone = [find(entry.id) for entry in erased_by(event)]
            changed |= {
                one.run_id or "" for one in gone if one is not None and one.kind in (OPENED, CHANGED, STEPPED)
            }
        elif event.kind == OPENED:
            opened.add(event.run_id or "")
        elif event.kind in (CHANGED, STEPPED) and event.payload.get("secret"):
            changed.add(event.run_id or "")
    if changed:
        above = {
            str(key[0]): (row["parent"], (row["fork"] or {}).get("run"))
            for key, row in lens.scan("state.runs")
        }
        size = 0
        while size < len(changed):
            size = len(changed)
            changed |= {run for run, those in above.items() if not changed.isdisjoint(those)}
    return opened | changed


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
