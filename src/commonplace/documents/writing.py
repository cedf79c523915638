"""Writing documents: the requests, what is decided about them under the book's lock, and the events they become."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from ..access.commands import need, need_tier
from ..errors import BadInput, Conflict, Denied, NotFound, Stale, shown
from ..ledger.checks import check_text, iso
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from ..ledger.views import Capability, Kind, View
from .document import (
    ARCHIVED,
    GATED,
    LOGGED,
    NOTES,
    REPORTED,
    WRITTEN,
    archive_touched,
    archived_us,
    entries,
    fold,
    fold_archive,
    touched,
    verified_items,
)
from .notes import check_notes
from .verified import ItemReport

GATES = ("PLAN", "PREFLECT", "PHASE_REVIEW", "HIGH_RISK_APPROVAL", "COMPLETION")
DECISIONS = ("GO", "REPLAN", "ABSTAIN", "BLOCKED")
OF_A_GATE = ("gate", "phase", "trace_id")
"""Fields of a gate that stand beside the payload of its event."""

LONGEST = 200
"""Characters of a value that a log shows; the run's state has all of it."""

LEFT_OUT = ("confidence", "error")


class WriteDocument(msgspec.Struct, frozen=True):
    """Add an entry to a document (`append`), replace the whole of it (`set`), or clear it (`clear`)."""

    by: str
    path: str
    act: str
    text: str = ""
    section: str = ""
    run: str | None = None
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()
    id: str | None = None
    if_position: int | None = None
    about: str = ""
    """The phase of the task that it is about, if it is about one."""
    parents: tuple[str, ...] = ()
    """The entries whose words it repeats."""


class WriteDocuments(msgspec.Struct, frozen=True):
    """Several writes that land together or not at all."""

    writes: tuple[WriteDocument, ...]


class Log(msgspec.Struct, frozen=True):
    """Add to the day's log. `about` stands in the heading of what was logged for an agent."""

    by: str
    text: str
    run: str | None = None
    about: str = ""
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    id: str | None = None
    checked: bool = True
    """False: the runtime logs, whatever the agent may do in this tier."""


class RecordGate(msgspec.Struct, frozen=True):
    by: str
    path: str
    event: Mapping[str, Any]
    run: str | None = None


class ReportItem(msgspec.Struct, frozen=True):
    """Report on a verified item of a task."""

    by: str
    path: str
    report: ItemReport
    run: str | None = None


class ArchiveDocuments(msgspec.Struct, frozen=True):
    """Put days or tasks into the archive, or bring them back."""

    by: str
    what: str
    names: tuple[str, ...]
    why: str = ""
    back: bool = False
    run: str | None = None


def decide_write(overlay: Overlay, request: WriteDocument) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run)
    if refused:
        return refused
    if request.path == NOTES and request.act == "set":
        wrong = check_notes(request.text)
        if wrong:
            raise BadInput(f"{NOTES} holds the active objective only: " + "; ".join(map(str, wrong)))
    there = entries(overlay, request.path)
    if request.act == "set" and any(entry.report is not None for entry in there):
        raise Conflict(
            f"{request.path} holds reports on verified items, which are kept: add to it without replacing it"
        )
    last = max((entry.position for entry in there), default=0)
    if request.if_position is not None and last > request.if_position:
        raise Stale(
            f"{request.path} was written at {last}, after you had read it at {request.if_position}: read it again"
        )
    payload: dict[str, Any] = {"path": request.path, "act": request.act, "text": request.text}
    payload |= {"section": request.section} if request.section else {}
    payload |= {"about": request.about} if request.about else {}
    return _emit(overlay, WRITTEN, request, payload)


def decide_write_many(overlay: Overlay, request: WriteDocuments) -> list[Event] | Denied:
    events = list[Event]()
    for write in request.writes:
        event = decide_write(overlay, write)
        if isinstance(event, Denied):
            return event  # the first already: all of them are of one author
        events.append(event)
    return events


def decide_log(overlay: Overlay, request: Log) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run) if request.checked else None
    if refused:
        return refused
    payload = {"text": request.text} | ({"about": request.about} if request.about else {})
    return _emit(overlay, LOGGED, request, payload)


def _emit(overlay: Overlay, kind: str, request: WriteDocument | Log, payload: dict[str, Any]) -> Event:
    """Record an entry, for the whole team."""
    if request.secrets:
        payload = {**payload, "secrets": list(request.secrets)}
    labels = {"sensitivity": request.sensitivity, "audience": "team"}
    entry = draft(
        kind, actor=request.by, payload=payload, run_id=request.run, labels=labels, parents=request.parents,
        id=request.id,
    )  # fmt: skip
    return overlay.emit(entry)


def decide_gate(overlay: Overlay, request: RecordGate) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run)
    if refused:
        return refused
    now = iso(overlay.now)[:-4] + "Z"  # milliseconds
    event = {"trace_id": request.event["trace_id"], "ts": now, **request.event}
    labels = {"sensitivity": "private", "audience": "team"}
    payload = {"path": request.path, "event": event}
    return overlay.emit(draft(GATED, actor=request.by, payload=payload, run_id=request.run, labels=labels))


def decide_report(overlay: Overlay, request: ReportItem) -> str | Denied:
    """The id of the report. One that repeats the last report on its item in the same iteration is that report."""
    refused = need_tier(overlay, request.by, "working", True, request.run)
    if refused:
        return refused
    report, reports = request.report, entries(overlay, request.path)
    items = {item.id for item in verified_items(reports)}
    if not report.holds and report.item not in items:
        raise NotFound(
            f"item {shown(report.item)} was never verified in this task, so it cannot have regressed"
        )
    about = [entry for entry in reports if entry.report is not None and entry.report.item == report.item]
    if report.iteration is not None and about and about[-1].report == report:
        return about[-1].id
    payload = {"path": request.path, **msgspec.to_builtins(report)}
    labels = {"sensitivity": "private", "audience": "team"}
    return overlay.emit(
        draft(REPORTED, actor=request.by, payload=payload, run_id=request.run, labels=labels)
    ).id


def decide_archive(overlay: Overlay, request: ArchiveDocuments) -> int | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run)
    refused = refused or need(overlay, request.by, "keep_memory", f"archive {request.what}s")
    if refused:
        return refused
    names = [
        name
        for name in request.names
        if (archived_us(overlay, request.what, name) is not None) == request.back
    ]
    if not names:
        return overlay.position
    payload = {"what": request.what, "names": names, "why": request.why, "back": request.back}
    labels = {"sensitivity": "private", "audience": "team"}
    return overlay.emit(draft(ARCHIVED, actor=request.by, payload=payload, labels=labels)).position


def checked_gate(agent: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The event of a gate from a caller's fields. Raises BadInput that lists what is allowed."""

    def allowed(name: str, among: tuple[str, ...]) -> str:
        if fields.get(name) not in among:
            raise BadInput(f"{name} {shown(fields.get(name))} is not one of {', '.join(among)}")
        return str(fields[name])

    def number(name: str, least: float, most: float, whole: bool) -> Any:
        value = fields.get(name)
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if value is not None and not (fits and least <= value <= most):
            raise BadInput(
                f"{name} {shown(value)} is not a {'whole ' if whole else ''}number from {least:g} to {most:g}"
            )
        return value

    trace = fields.get("trace_id")
    try:
        trace = str(uuid.uuid4() if trace is None else uuid.UUID(str(trace)))
    except ValueError:
        raise BadInput(f"trace_id {shown(trace)} is not a UUID: leave it out to have one made") from None
    index, most = fields.get("iteration_index"), fields.get("max_iterations")
    if isinstance(index, int) and isinstance(most, int) and index > most:
        raise BadInput(f"iteration_index {index} is beyond max_iterations {most}")
    payload = {
        "decision": allowed("decision", DECISIONS),
        "confidence": number("confidence", 0, 1, False),
        "iteration_index": number("iteration_index", 0, 5, True),
        "max_iterations": number("max_iterations", 1, 5, True),
        "reason": check_text("reason", fields.get("reason") or ""),
        "next_action": check_text("next_action", fields.get("next_action") or ""),
    }
    further = {name: value for name, value in fields.items() if name not in {*payload, *OF_A_GATE}}
    return {
        "trace_id": trace,
        "agent": agent,
        "phase": number("phase", 0, 10**6, True),
        "event_type": allowed("gate", GATES),
        "payload": {name: value for name, value in payload.items() if value not in (None, "")} | further,
    }


def result_lines(output: Mapping[str, Any]) -> str:
    """What an agent brought about, a line for each field."""
    lines = []
    for name, value in output.items():
        if name in LEFT_OUT:
            continue
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        text = " ".join(text.split())
        lines.append(f"- **{name}**: {text[:LONGEST] + '...' if len(text) > LONGEST else text}")
    return "\n".join(lines)


def _without_content(payload: dict[str, Any]) -> dict[str, Any]:
    """That a document was replaced or cleared still holds after an erasure; what an entry said does not."""
    act = "clear" if payload["act"] in ("set", "clear") else "gone"
    return {**payload, "act": act, "text": "", "section": ""}


def _without_findings(payload: dict[str, Any]) -> dict[str, Any]:
    """Whether an item holds is known after an erasure, too; what was found is not."""
    return {name: payload[name] for name in ("path", "item", "holds", "iteration") if name in payload}


DOCUMENTS = Capability(
    "documents",
    kinds=(
        Kind(LOGGED),
        Kind(WRITTEN, residue=_without_content, names=("path",)),
        Kind(GATED),
        Kind(REPORTED, residue=_without_findings, names=("path", "item")),
        Kind(ARCHIVED, residue=lambda payload: {**payload, "why": ""}, names=("names",)),
    ),
    commands={
        "documents.log": decide_log,
        "documents.write": decide_write,
        "documents.write_many": decide_write_many,
        "documents.gate": decide_gate,
        "documents.report": decide_report,
        "documents.archive": decide_archive,
    },
    views=(
        View(
            "documents.entries",
            2,
            touched,
            fold,
            kinds=frozenset({LOGGED, WRITTEN, GATED, REPORTED}),
            overwrites=True,
        ),
        View(
            "documents.archive",
            1,
            archive_touched,
            fold_archive,
            kinds=frozenset({ARCHIVED}),
            overwrites=True,
        ),
    ),
)
