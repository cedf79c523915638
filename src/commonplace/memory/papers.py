"""Papers: the small documents of three lifetimes, in the places where people and agents look for them.

    memories/session/<task>-notes.md          a session's notes, in five sections, cleared at its end
    plans/artifacts/<task>/<paper>.md         what one task leaves: decisions, revisions, reports …
    plans/artifacts/<task>/observability/…    its gates, one JSON object a line
    NOTES.md                                  the active objective, and nothing else

A paper is a list of entries, each an event. Writing one anew ends the entries before it; clearing ends them all.
"""

from __future__ import annotations

import json
import re
import unicodedata
import uuid
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from ..access.commands import need_tier
from ..errors import BadInput, Denied, Stale, shown
from ..ledger.checks import check_text, iso
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .notes import check_notes

NOTED, GATED = "memory.noted", "memory.gated"

NOTES = "NOTES.md"
SESSIONS, TASKS = "memories/session/", "plans/artifacts/"
SECTIONS = ("Current State", "Files and Functions", "Errors & Corrections", "Key Results", "Worklog")
GATES = ("PLAN", "PREFLECT", "PHASE_REVIEW", "HIGH_RISK_APPROVAL", "COMPLETION")
DECISIONS = ("GO", "REPLAN", "ABSTAIN", "BLOCKED")
OF_A_GATE = ("gate", "phase", "trace_id")
"""What is said of a gate and stands beside the payload of its event."""
MAX_TEXT = 100_000
MAX_TITLE = 80
_PAPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


class Note(msgspec.Struct, frozen=True):
    """Write to a paper: add an entry (`add`), write the whole of it (`set`), or clear it (`clear`)."""

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


class RecordGate(msgspec.Struct, frozen=True):
    by: str
    path: str
    event: Mapping[str, Any]
    run: str | None = None


class DocumentLine(msgspec.Struct, frozen=True):
    """One entry of a paper."""

    id: str
    by: str
    text: str
    section: str = ""
    position: int = 0
    written_us: int = 0
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()


def slug(title: str) -> str:
    """A task's title as the name of its folder, in kebab case. Titles that differ only in case, in spaces, hyphens and
    underscores between words, or in a full stop, comma or other mark after one share a folder. A title with any other
    sign ends in a digest, and so does a long one. Raises BadInput for a title without letters and digits."""
    words = [word.rstrip(".,:;!?") for word in check_text("a task", title).casefold().split()]
    plain = unicodedata.normalize("NFC", " ".join(words))
    if not any(sign.isalnum() for sign in plain):
        raise BadInput(
            f"task {shown(title)} has no letters or digits to name a folder by: give it a title that has"
        )
    ascii = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    kebab = "-".join(re.findall("[a-z0-9]+", ascii))[:MAX_TITLE].strip("-")
    if len(plain) <= MAX_TITLE and re.fullmatch("[a-z0-9 _-]+", plain):
        return kebab
    return f"{kebab}-{sha256(plain.encode()).hexdigest()[:8]}".strip("-")


def file_name(name: str) -> str:
    """A file's name that no other name has: the name itself where it can be one."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return plain if plain == name else f"{plain}-{sha256(name.encode()).hexdigest()[:8]}".strip("-")


def session_path(task: str) -> str:
    return f"memories/session/{slug(task)}-notes.md"


def task_path(task: str, paper: str) -> str:
    name = paper if check_text("a paper", paper).endswith(".md") else f"{paper}.md"
    if not _PAPER.fullmatch(name) or ".." in name:
        raise BadInput(
            f"{shown(paper)} is not the name of a paper: use letters, digits, . _ -, such as decisions"
        )
    return f"{TASKS}{slug(task)}/{name}"


def gates_path(task: str, id: str | None) -> str:
    named = slug(id or task)
    return f"{TASKS}{slug(task)}/observability/{named}.ndjson"


# deciding


def decide_note(overlay: Overlay, request: Note) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run)
    if refused:
        return refused
    if request.path == NOTES and request.act == "set":
        wrong = check_notes(request.text)
        if wrong:
            raise BadInput(f"{NOTES} holds the active objective only: " + "; ".join(map(str, wrong)))
    last = max((one.position for one in lines(overlay, request.path)), default=0)
    if request.if_position is not None and last > request.if_position:
        raise Stale(
            f"{request.path} was written at {last}, after you had read it at {request.if_position}: read it again"
        )
    payload: dict[str, Any] = {"path": request.path, "act": request.act, "text": request.text}
    more = {"section": request.section, "secrets": list(request.secrets)}
    payload |= {name: one for name, one in more.items() if one}
    labels = {"sensitivity": request.sensitivity, "audience": "team"}
    return overlay.emit(
        draft(
            NOTED,
            actor=request.by,
            payload=payload,
            run_id=request.run,
            labels=labels,
            id=request.id,
        )
    )


def decide_gate(overlay: Overlay, request: RecordGate) -> Event | Denied:
    refused = need_tier(overlay, request.by, "working", True, request.run)
    if refused:
        return refused
    now = iso(overlay.now)[:-4] + "Z"  # milliseconds
    payload = {
        "path": request.path,
        "event": {"trace_id": request.event["trace_id"], "ts": now, **request.event},
    }
    labels = {"sensitivity": "private", "audience": "team"}
    return overlay.emit(draft(GATED, actor=request.by, payload=payload, run_id=request.run, labels=labels))


def checked_gate(agent: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A gate's event from what a caller gave. Raises BadInput that lists what is allowed."""

    def allowed(name: str, among: tuple[str, ...]) -> str:
        if given.get(name) not in among:
            raise BadInput(f"{name} {shown(given.get(name))} is not one of {', '.join(among)}")
        return str(given[name])

    def number(name: str, least: float, most: float, whole: bool) -> Any:
        value = given.get(name)
        fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if value is not None and not (fits and least <= value <= most):
            raise BadInput(
                f"{name} {shown(value)} is not a {'whole ' if whole else ''}number from {least:g} to {most:g}"
            )
        return value

    trace = given.get("trace_id")
    try:
        trace = str(uuid.uuid4() if trace is None else uuid.UUID(str(trace)))
    except ValueError:
        raise BadInput(f"trace_id {shown(trace)} is not a UUID: leave it out to have one made") from None
    index, most = given.get("iteration_index"), given.get("max_iterations")
    if isinstance(index, int) and isinstance(most, int) and index > most:
        raise BadInput(f"iteration_index {index} is beyond max_iterations {most}")
    payload = {
        "decision": allowed("decision", DECISIONS),
        "confidence": number("confidence", 0, 1, False),
        "iteration_index": number("iteration_index", 0, 5, True),
        "max_iterations": number("max_iterations", 1, 5, True),
        "reason": check_text("reason", given.get("reason") or ""),
        "next_action": check_text("next_action", given.get("next_action") or ""),
    }
    further = {name: one for name, one in given.items() if name not in {*payload, *OF_A_GATE}}
    return {
        "trace_id": trace,
        "agent": agent,
        "phase": number("phase", 0, 10**6, True),
        "event_type": allowed("gate", GATES),
        "payload": {name: one for name, one in payload.items() if one not in (None, "")} | further,
    }


# folding: a row for each entry, and one that says from where on they count

WHOLE = 0


def touched(event: Event) -> list[Key]:
    payload = event.payload
    if event.kind == GATED:
        return [(payload["path"], event.position)]
    match payload["act"]:
        case "clear":
            return [(payload["path"], WHOLE)]
        case "set":
            return [(payload["path"], WHOLE), (payload["path"], event.position)]
        case "gone":
            return []
        case _:
            return [(payload["path"], event.position)]


def fold(key: Key, _before: Any, event: Event) -> Any:
    payload = event.payload
    if event.kind == GATED:
        return {"id": event.id, "by": event.actor, "text": json.dumps(payload["event"], ensure_ascii=False)}
    if key[1] == WHOLE:
        return {"since": event.position + (payload["act"] == "clear")}
    row = {"id": event.id, "by": event.actor, "section": payload.get("section", ""), "text": payload["text"]}
    row |= {"written_us": event.created_us, "changed": event.position, "secrets": payload.get("secrets", [])}
    row["sensitivity"] = event.labels.get("sensitivity", "private")
    return row


def lines(views: ViewReader, path: str) -> list[DocumentLine]:
    """The entries of a paper that count, in order."""
    rows = views.scan("memory.papers", path)
    since = next((row["since"] for key, row in rows if key[1] == WHOLE), 0)
    kept = [(key, row) for key, row in rows if key[1] != WHOLE and int(key[1]) >= since]
    return [_line(views, key, row) for key, row in kept]


def _line(views: ViewReader, key: Key, row: dict[str, Any]) -> DocumentLine:
    """An entry with the sensitivity that holds for it by now."""
    changed = views.get("labels", row["id"]) or {}
    level = changed.get("sensitivity", row.get("sensitivity", "private"))
    plain = {"position": row.get("changed", key[1]), **row, "sensitivity": level}
    return msgspec.convert(plain, DocumentLine, strict=False)


def papers(views: ViewReader, below: str = "") -> list[str]:
    """The paths of all papers that hold something."""
    named = dict.fromkeys(str(key[0]) for key, _ in views.scan("memory.papers"))
    return [path for path in named if path.startswith(below) and lines(views, path)]


# rendering


def rendered(path: str, found: list[DocumentLine]) -> str:
    """A paper as its file holds it."""
    if path.endswith(".ndjson"):
        return "".join(f"{one.text}\n" for one in found)
    if path == NOTES:
        return "".join(f"{one.text.rstrip()}\n" for one in found)
    if path.startswith("memories/session/"):
        parts = [f"# {title_of(path)}"]
        for section in SECTIONS:
            parts.append(f"## {section}")
            parts += [_bullet(one) for one in found if (one.section or SECTIONS[-1]) == section]
        return "\n\n".join(parts) + "\n"
    return "\n\n".join([f"# {title_of(path)}", *(one.text.strip() for one in found)]) + "\n"


def _bullet(line: DocumentLine) -> str:
    first, *rest = line.text.strip().splitlines() or [""]
    return "\n".join([f"- {first}", *(f"  {one}" for one in rest)])


def title_of(path: str) -> str:
    name = path.rpartition("/")[2].removesuffix(".md").replace("-", " ").replace("_", " ")
    return name[:1].upper() + name[1:]


def template() -> str:
    """The empty form of session notes."""
    return "\n\n".join(["# Session notes", *(f"## {section}" for section in SECTIONS)]) + "\n"
