"""Changed facts: an actor that relied on an item is told when the item changes, with the line that changed.

Every process that changes an item or leaves a receipt looks, after its commit, at what has changed since the last look.
One `premise.changed` is recorded for each actor whose digest held the item. So nothing is lost if a process is killed
between a change and its look, and reading alone writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from ..access.rights import rights_of
from ..documents.document import REPORTED, WRITTEN, report_of
from ..errors import Busy, EngineUnavailable, OutcomeUnknown
from ..ledger.events import Event, draft, read_header, unseal
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import path_of, scope_of
from ..memory.capability import CHANGING, ENDING, touched
from ..memory.curation import CurateDecision
from ..memory.reading import item_at, may_name, may_read
from ..memory.requests import CREATED, RememberResult
from ..memory.visibility import without_hidden
from .receipts import trace_of
from .verification import Checks, as_item

if TYPE_CHECKING:
    from ..ledger.ledger import At, Ledger
    from ..session import Session

log = logging.getLogger("commonplace")

CHANGED = "premise.changed"
CHANGING_ITEMS = frozenset({
    "memory.remember", "memory.remember_many", "memory.resolve", "memory.prove", "memory.patch", "memory.mark",
    "memory.forget", "memory.summarize", "memory.erase", "memory.curate",
})  # fmt: skip
"""The commands that can change what an item says, or end it."""

CONTENT = frozenset({"key", "value", "title", "body", "summary"})


class ChangedFact(msgspec.Struct, frozen=True):
    """An item that an actor relied on and that has changed: why, by which other item, and the line it stood on (0:
    in the long-term block) with what it said there."""

    actor: str
    scope: str
    run: str
    item: str
    receipt: str
    line: int
    text: str
    why: str
    by: str
    position: int
    """Where it changed."""

    @property
    def id(self) -> str:
        named = "\0".join((self.actor, self.scope, self.run, self.item, str(self.position)))
        return f"premise-{sha256(named.encode()).hexdigest()[:32]}"


def decide_changed(overlay: Overlay, facts: tuple[ChangedFact, ...]) -> int:
    """Record the changed facts that are not recorded yet; returns how many these are."""
    number = 0
    for fact in facts:
        row = overlay.get("recall.relied", fact.item, fact.actor, fact.scope, fact.run)
        if row is None or row["receipt"] != fact.receipt or overlay.record_of(fact.id) is not None:
            continue
        if path_of(overlay, fact.scope) is None:  # its name was erased: nobody acts there who could be told
            continue
        record = overlay.record_of(fact.item)
        gone = record is None or record.body is None
        payload = {
            "item": fact.item, "receipt": fact.receipt, "line": fact.line, "text": "" if gone else fact.text,
            "why": fact.why, "by": _visible_cause(overlay, fact), "position": fact.position,
        }  # fmt: skip
        parents = [] if gone else [fact.item]
        changed = draft(
            CHANGED, actor=fact.actor, payload=payload, run_id=fact.run or None, id=fact.id, parents=parents,
            labels={"sensitivity": "private"},
        )  # fmt: skip
        overlay.emit(changed, scope=fact.scope)
        number += 1
    return number


def _visible_cause(overlay: Overlay, fact: ChangedFact) -> str:
    """The item that changed it, if the actor that relied on it may see that."""
    other = item_at(overlay, fact.by) if fact.by else None
    return fact.by if other is not None and may_read(rights_of(overlay, fact.actor), other) else ""


def after_write(session: Session, command: str, answer: object) -> None:
    """Follow up a command that changed items or documents: tell the actors that relied on them, and check what is said
    anew of files and commands, so that it is known when that changes."""
    if isinstance(answer, Event):
        check_entries(session, [answer])
    if command not in CHANGING_ITEMS or (isinstance(answer, CurateDecision) and answer.dry_run):
        return
    session.services.fact_watch.look_after_write()
    if isinstance(answer, CurateDecision):
        answers: Sequence[object] = answer.results
    else:
        answers = answer if isinstance(answer, list) else [answer]
    ids = [kept.id for kept in answers if isinstance(kept, RememberResult) and kept.outcome == "stored"]
    if ids and session.services.repository:
        checks = Checks(session)
        with session.viewer() as viewer:
            items = (viewer.item(id) for id in ids if id is not None)
            checks.of(viewer.views, [item for item in items if item is not None])
        checks.record()


def check_entries(session: Session, events: Sequence[Event]) -> None:
    """Check what new entries of documents say of files, and record it."""
    said = [(event, _text_of(event)) for event in events if event.kind in (WRITTEN, REPORTED)]
    items = [as_item(event.id, event.actor, text) for event, text in said if text]
    if items and session.services.repository:
        checks = Checks(session)
        with session.viewer() as viewer:
            checks.of(viewer.views, items)
        checks.record()


def _text_of(event: Event) -> str:
    return report_of(event.payload).text if event.kind == REPORTED else str(event.payload["text"])


class FactWatch:
    """Looks through what is new in one opened book. Each receipt says how far somebody had looked, so the next process
    begins there."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reached = 0
        self._lock = Lock()

    def look(self) -> int:
        """Record what has changed up to now, for each actor that relied on it. Returns how many it recorded."""
        ledger = self._ledger
        with self._lock:
            with ledger.snapshot() as now:
                head = now.position
                facts = tuple(self._changed(now, self._start(now), head))
            number = int(ledger.submit("recall.changed", facts)) if facts else 0
            self.reached = head
            return number

    def look_after_write(self) -> None:
        """The same after a write, which stands even if this fails. What could not be recorded now, the next look
        records."""
        try:
            self.look()
        except (Busy, EngineUnavailable, OutcomeUnknown) as error:
            log.warning("who relied on what was changed could not be told yet: %s", error)

    def _start(self, views: ViewReader) -> int:
        """Where to continue: where this process has been, or if there is a receipt that it did not know of, where the
        maker of that was. It may have read an item before it changed and written the receipt after that."""
        last = views.get("recall.swept", "")
        if last is None:  # nobody has been told anything
            return views.position
        known = self.reached >= last["receipt"]
        return self.reached if known else min(self.reached or last["reached"], last["reached"])

    def _changed(self, views: ViewReader, after: int, head: int) -> Iterator[ChangedFact]:
        for record in self._ledger.records(after, head):
            if record.body is None or read_header(record).kind not in CHANGING:
                continue
            event = views.registry.current(unseal(record))
            for key in touched(event):
                id = str(key[0])
                why, by = _what_happened(event, id)
                if why:
                    yield from self._relying(views, event, id, why, by)

    def _relying(
        self, views: ViewReader, event: Event, item: str, why: str, by: str
    ) -> Iterator[ChangedFact]:
        for (_, actor, scope, run), row in views.scan("recall.relied", item):
            itself = (actor, scope, run) == (event.actor, scope_of(event), event.run_id or "")
            ended = run and (views.get("state.totals", run) or {}).get("status", "running") != "running"
            visible = self._may_see(views, str(actor), item)
            if row["as_of"] < event.position and not itself and not ended and visible:
                text = self._line(row["receipt"], item)
                yield ChangedFact(
                    str(actor), str(scope), str(run), item, row["receipt"], row["line"], text, why, by, event.position
                )  # fmt: skip

    @staticmethod
    def _may_see(views: ViewReader, actor: str, item: str) -> bool:
        """Whether an actor that relied on an item may still know of it; that it was erased may be known."""
        current = item_at(views, item)
        return current is None or may_name(rights_of(views, actor), current)

    def _line(self, receipt: str, item: str) -> str:
        """What the receipt's text said of the item, if that is still there."""
        written = self._ledger.event(receipt)
        trace = None if written is None else trace_of(self._ledger, written)
        return "" if trace is None else dict(trace.lines()).get(item, "")


def changed_facts(session: Session, at: At = None) -> list[Event]:
    """What this actor was told in digests and what has changed since, as far as no prompt has said so yet, as of
    `at`."""
    session.check_enabled("memory.read")
    run = session.run
    with session.snapshot() as now, session.snapshot(at) as then:
        rows = then.scan("recall.news", session.actor, then.scope)
        rights = rights_of(now, session.actor, run)
        events = [session.ledger.event(str(key[2])) for key, _ in sorted(rows, key=lambda row: int(row[1]))]
        mine = [
            event for event in events if event is not None and (run is None or event.run_id in (None, run))
        ]
        return [without_hidden(now, rights, event) for event in mine]


def _what_happened(event: Event, item: str) -> tuple[str, str]:
    """What an event means for those who rely on an item, and the other item that it comes from; nothing, if the item
    says what it said."""
    payload = event.payload
    if event.kind in ENDING:
        return "forgotten", ""
    if event.kind == CREATED:
        if item == event.id:
            return "", ""
        return ("superseded" if item in payload.get("supersedes", ()) else "disputed"), event.id
    fields = payload["changes"][item]
    if fields.get("status") == "superseded":
        return "superseded", str(fields.get("superseded_by") or "")
    if fields.get("status") in ("forgotten", "archived", "dropped"):
        return str(fields["status"]), ""
    return ("revised" if CONTENT & fields.keys() else ""), ""
