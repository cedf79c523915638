"""What must not be shown of a run outside the run, and how its events look without it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..access.redact import Redactor
from ..access.rights import OWNER, RUNTIME
from ..commit import Lens
from ..events import Event, blobs_of
from .cells import about, lineage
from .policy import Policy
from .sharing import hidden_fields, shares

CONTENT = {
    "state.changed": ("payload", "values"),
    "state.stepped": ("reason", "result"),
    "state.closed": ("reason",),
    "state.opened": (),
    "state.merged": (),
    "state.violated": (),
}
"""Which parts of the runtime's own events hold content; their other parts are names that it gave."""


def redactor_of(lens: Lens, run: str | None, said_by: str = OWNER) -> Redactor:
    """The secret fields of a run, its patterns, and the texts that its secret fields have ever held, wherever they turn
    up in what somebody says. A run within another one, or forked from one, keeps that one's secrets, too.

    Texts that `said_by` could not know are left alone: an agent that guesses would see by what is taken out of its
    words that it has guessed right. The owner and the runtime know everything.
    """
    if run is None or lens.get("state.runs", run) is None:
        return Redactor()
    known = about(lens, run)
    hide = Redactor(known.policy.secret_fields, known.policy.patterns)
    for one, id in lineage(lens, run, known.fork):
        policy, parent = about(one, id).policy, about(one, id).parent
        for (_, holder), row in one.scan("state.secrets", id):
            held = [
                text
                for field, name, text in row["texts"]
                if _knows(policy, said_by, str(holder), field, name)
            ]
            hide |= Redactor(row["fields"], secrets=held)
        if parent is not None:
            hide |= redactor_of(lens, parent, said_by)
    return hide


def _knows(policy: Policy, actor: str, holder: str, field: str, name: str) -> bool:
    """Whether an actor could read a secret that stands under `name` in a field of a holder's entry."""
    if actor in (OWNER, RUNTIME, holder):
        return True
    return name not in hidden_fields(policy, holder) and shares(policy, holder, actor, field, finished=True)


def moved(lens: Lens, run: str) -> tuple[int, ...]:
    """Changes whenever what must not be shown of a run may have changed."""
    row = lens.get("state.sums", run)
    if row is None:
        return ()
    fork = about(lens, run).fork
    parents = (about(one, id).parent for one, id in lineage(lens, run, fork))
    above = (position for parent in parents if parent is not None for position in moved(lens, parent))
    return (row["updated_us"], *above)


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
