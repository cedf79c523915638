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
from ..ledger.scopes import lies_in, path_of, scope_of
from .events import CHANGED, CONTENT, OPENED, STEPPED
from .policy import Policy
from .rows import find_run, lineage, opened_run
from .sharing import hidden_fields, shares


def redactor_of(views: ViewReader, run: str | None, said_by: str = OWNER) -> Redactor:
    """The secret fields of a run, its patterns, and the texts that its secret fields have ever held, to be taken out of
    what `said_by` says. A run within another one, or forked from one, keeps that one's secrets, too.

    Texts that `said_by` could not know are left alone: an agent that guesses would see by what is taken out of its
    words that it has guessed right. The owner and the runtime know everything.
    """
    opened = None if run is None else find_run(views, run)
    if run is None or opened is None:
        return Redactor()
    hide = Redactor(opened.policy.secret_fields, opened.policy.patterns)
    for reader, id in lineage(views, run, opened.fork):
        branch = opened_run(reader, id)
        for (_, holder), row in reader.scan("state.secrets", id):
            texts = [
                text
                for field, name, text in row["texts"]
                if _knows(branch.policy, said_by, str(holder), field, name)
            ]
            hide |= Redactor(row["fields"], secrets=texts)
        if branch.parent is not None:
            hide |= redactor_of(views, branch.parent, said_by)
    return hide


def _knows(policy: Policy, actor: str, holder: str, field: str, name: str) -> bool:
    """Whether an actor could read a secret that stands under `name` in a field of a holder's entry."""
    if actor in (OWNER, RUNTIME, holder):
        return True
    return name not in hidden_fields(policy, holder) and shares(policy, holder, actor, field, finished=True)


def _is_of_run(views: ViewReader, event: Event, run: str) -> bool:
    """Whether an event belongs to the run that it names: to the scope of the run, or if it was recorded after the run
    began, to one below that. Who names a run of another scope would see by what is taken out that a guess was right."""
    opened, scope = opened_run(views, run), scope_of(event)
    if scope == opened.scope:
        return True
    path, above = path_of(views, scope), path_of(views, opened.scope)
    inside = path is not None and above is not None and lies_in(path, above)
    return inside and event.created_us >= opened.started_us


class Redactors:
    """Redacts events as a log may show them. Keeps the redactors of runs and speakers for as long as the book stays at
    one position."""

    def __init__(self) -> None:
        self._redactors: dict[tuple[str, str], Redactor] = {}
        self._position = -1

    def redacted(self, views: ViewReader, event: Event) -> Event:
        """The event as a log may show it now. `views` shows the present."""
        if event.run_id is None or event.erased:
            return event
        if views.position != self._position:  # more may be secret by now
            self._redactors.clear()
            self._position = views.position
        # The owner knows every secret, so where there is none for the owner there is none at all.
        if not self._of(views, event.run_id, OWNER) or not _is_of_run(views, event, event.run_id):
            return event
        return redacted(event, self._of(views, event.run_id, event.actor))

    def _of(self, views: ViewReader, run: str, said_by: str) -> Redactor:
        key = (run, said_by)
        if key not in self._redactors:
            self._redactors[key] = redactor_of(views, *key)
        return self._redactors[key]


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
            erased = filter(None, (find(entry.id) for entry in erased_by(event)))
            changed |= {gone.run_id or "" for gone in erased if gone.kind in (OPENED, CHANGED, STEPPED)}
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
    affected, size = set(runs), 0
    while size < len(affected):
        size = len(affected)
        affected |= {run for run, sources in above.items() if not affected.isdisjoint(sources)}
    return affected


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
