"""What is decided about compaction under the book's lock: results and notes go to the day's log once, and a summary is
recorded once, as derived from what it quotes."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ..access.commands import check_emits
from ..documents.writing import DOCUMENTS, Log, decide_log
from ..errors import Denied
from ..ledger.encoding import decode
from ..ledger.events import Draft, Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..ledger.views import Capability, Kind, View
from ..recall.escaping import MARK
from ..threads.capability import TEAM

FLUSHED, COMPACTED = "thread.flushed", "thread.compacted"
HEADING = "Compacted context:"

_OPENED = re.compile(rf"{HEADING}\n<memory ([0-9a-f]{{{MARK}}})>")
_CLOSED = re.compile(rf"\n</memory ([0-9a-f]{{{MARK}}})>")


class FlushContext(msgspec.Struct, frozen=True):
    """Log the results of a turn and the notes, if they are new, and note up to which message that was done."""

    thread: str
    upto: int
    results: Log | None
    notes: Log | None


class RecordCompaction(msgspec.Struct, frozen=True):
    """Keep a summary of a thread, unless its author has this very one already."""

    by: str
    run: str | None
    thread: str
    text: str
    upto: int
    """The number of the last message that it is about."""
    sources: tuple[str, ...]


def flushed_of(views: ViewReader, thread: str) -> dict[str, Any]:
    """Up to which message of a thread the results were logged, and which entry holds the last notes."""
    row: dict[str, Any] | None = views.get("compaction.flushed", thread)
    return row or {"upto": 0, "notes": None}


def summaries_in(views: ViewReader, actor: str, text: str) -> list[str]:
    """The ids of the summaries in a text that an actor was given, as far as their marks tell."""
    marks = dict.fromkeys(_CLOSED.findall(text))
    keys: list[Key] = [(views.scope, actor, mark) for mark in marks]
    rows: list[str | None] = views.get_all(decode, "compaction.summaries", keys) if keys else []
    return [id for id in rows if id is not None]


def decide_flush(overlay: Overlay, request: FlushContext) -> list[str] | Denied:
    """Answers the ids of the entries that were added to the log."""
    by = request.results or request.notes
    if by is None:
        return []

    def mark(payload: dict[str, Any]) -> Draft:
        return draft(
            FLUSHED, actor=by.by, payload=payload, run_id=by.run, session_id=request.thread, labels=TEAM
        )

    refused = check_emits(overlay, [mark({})])
    if refused:
        return refused
    before, ids = flushed_of(overlay, request.thread), list[str]()
    last = None if before["notes"] is None else overlay.event(before["notes"])
    wrote = last is not None and request.notes is not None and last.payload.get("text") == request.notes.text
    results = request.results if request.upto > before["upto"] else None
    noted = None
    for entry in (results, None if wrote else request.notes):
        if entry is None:
            continue
        logged = overlay.run(DOCUMENTS.name, decide_log, entry)
        if isinstance(logged, Denied):
            return logged
        ids.append(logged.id)
        noted = logged if entry is request.notes else noted
    if ids:
        payload = {"upto": max(request.upto, before["upto"])} | ({} if noted is None else {"notes": noted.id})
        overlay.emit(mark(payload))
    return ids


def decide_compaction(overlay: Overlay, request: RecordCompaction) -> str | Denied:
    """Answers the id of the summary. It is its author's own: it was made with the author's eyes."""
    before = summaries_in(overlay, request.by, request.text)
    if before:
        return before[0]
    summary = draft(
        COMPACTED, actor=request.by, payload={"text": request.text, "upto": request.upto},
        run_id=request.run, session_id=request.thread, labels={"sensitivity": "private"}, parents=request.sources,
    )  # fmt: skip
    refused = check_emits(overlay, [summary])
    return refused or overlay.emit(summary).id


def _flushed(event: Event) -> list[Key]:
    return [(event.session_id or "",)]


def _fold_flushed(_key: Key, before: Any, event: Event) -> Any:
    return {"notes": None, **(before or {}), **event.payload}


def _summary(event: Event) -> list[Key]:
    mark = _OPENED.match(event.payload["text"])
    return [] if mark is None else [(scope_of(event), event.actor, mark[1])]


COMPACTION = Capability(
    "compaction",
    kinds=(Kind(FLUSHED, residue=lambda payload: payload), Kind(COMPACTED)),
    commands={"compaction.flush": decide_flush, "compaction.record": decide_compaction},
    views=(
        View("compaction.flushed", 1, _flushed, _fold_flushed, kinds=frozenset({FLUSHED})),
        View(
            "compaction.summaries", 1, _summary, lambda _key, _before, event: event.id,
            kinds=frozenset({COMPACTED}), overwrites=True,
        ),
    ),
)  # fmt: skip
