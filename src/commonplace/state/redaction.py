"""What must not be shown of a run outside the run, and how its events look without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from ..access.redact import Redactor
from ..access.rights import OWNER, RUNTIME
from ..ledger.encoding import blobs_of
from ..ledger.events import ERASED, Event, erased_by
from ..ledger.reader import ViewReader
from .cells import about, lineage
from .policy import Policy
from .requests import CHANGED, OPENED, STEPPED
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


def redactor_of(views: ViewReader, run: str | None, said_by: str = OWNER) -> Redactor:
    """The secret fields of a run, its patterns, and the texts that its secret fields have ever held, wherever they turn
    up in what somebody says. A run within another one, or forked from one, keeps that one's secrets, too.

    Texts that `said_by` could not know are left alone: an agent that guesses would see by what is taken out of its
    words that it has guessed right. The owner and the runtime know everything.
    """
    if run is None or views.get("state.runs", run) is None:
        return Redactor()
    known = about(views, run)
    hide = Redactor(known.policy.secret_fields, known.policy.patterns)
    for one, id in lineage(views, run, known.fork):
        policy, parent = about(one, id).policy, about(one, id).parent
        for (_, holder), row in one.scan("state.secrets", id):
            held = [
                text
                for field, name, text in row["texts"]
                if _knows(policy, said_by, str(holder), field, name)
            ]
            hide |= Redactor(row["fields"], secrets=held)
        if parent is not None:
            hide |= redactor_of(views, parent, said_by)
    return hide


def _knows(policy: Policy, actor: str, holder: str, field: str, name: str) -> bool:
    """Whether an actor could read a secret that stands under `name` in a field of a holder's entry."""
    if actor in (OWNER, RUNTIME, holder):
        return True
    return name not in hidden_fields(policy, holder) and shares(policy, holder, actor, field, finished=True)


class Redactors:
    """How a log may show events, by what is known of their runs and of those who said them when each is asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Redactor] = {}
        self._position = -1

    def redacted(self, views: ViewReader, event: Event) -> Event:
        """The event as a log may show it now; the views shows the present."""
        if event.run_id is None or event.erased:
            return event
        if views.position != self._position:  # more may be secret by now
            self._known.clear()
            self._position = views.position
        hide = self._of(views, event.run_id, OWNER)
        # The owner knows every secret, so where there is none for the owner there is none at all.
        return redacted(event, self._of(views, event.run_id, event.actor)) if hide else event

    def _of(self, views: ViewReader, run: str, said_by: str) -> Redactor:
        key = (run, said_by)
        if key not in self._known:
            self._known[key] = redactor_of(views, *key)
        return self._known[key]


def as_logged(open: Callable[[int | None], AbstractContextManager[ViewReader]]) -> Callable[[Event], Event]:
    """The same for events that come one by one."""
    redactors = Redactors()

    def hide(event: Event) -> Event:
        if event.run_id is None or event.erased:
            return event
        with open(None) as views:
            return redactors.redacted(views, event)

    return hide


def runs_affected(
    views: ViewReader, events: Iterable[Event], find: Callable[[str], Event | None]
) -> set[str]:
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
    return opened | with_those_below(views, changed)


def with_those_below(views: ViewReader, runs: set[str]) -> set[str]:
    """These runs, and every run within them or forked from them."""
    if not runs:
        return runs
    above = {
        str(key[0]): (row["parent"], (row["fork"] or {}).get("run")) for key, row in views.scan("state.runs")
    }
    found, size = set(runs), 0
    while size < len(found):
        size = len(found)
        found |= {run for run, those in above.items() if not found.isdisjoint(those)}
    return found


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
