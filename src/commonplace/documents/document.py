"""A document is a path and a list of entries, each an event. The path says which shape it has:

    NOTES.md                                  the active objective, and nothing else
    memory/<day>.md                           the log of a day, for the whole team
    memories/session/<task>-notes.md          the notes of a session, in five sections, cleared at its end
    plans/artifacts/<task>/<document>.md      what one task leaves: decisions, revisions, reports …
    plans/artifacts/<task>/verified_items.md  what was verified in it, and whether it still holds
    plans/artifacts/<task>/observability/…    its gates, one JSON object per line

Replacing a document ends the entries before it; clearing ends all of them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from hashlib import sha256
from typing import Any, Literal, NamedTuple

import msgspec

from ..errors import BadInput, shown
from ..ledger.checks import check_text, from_us
from ..ledger.encoding import convert
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.printing import Readable
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPE, scope_of
from .verified import VERIFIED_ITEMS, ItemReport, RecordedReport, VerifiedItem, as_markdown, standing

WRITTEN, GATED, LOGGED, ARCHIVED = "memory.noted", "memory.gated", "memory.logged", "memory.archived"
REPORTED = "memory.verified"
"""A report on a verified item of a task."""

NOTES = "NOTES.md"
LOGS, SESSIONS, TASKS = "memory/", "memories/session/", "plans/artifacts/"
SECTIONS = ("Current State", "Files and Functions", "Errors & Corrections", "Key Results", "Worklog")
MAX_TITLE = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_LAST = "\U0010ffff"


class DocumentEntry(Readable, msgspec.Struct, frozen=True):
    """One entry of a document, with the id of the event that wrote it."""

    id: str
    by: str
    text: str
    section: str = ""
    about: str = ""
    """Of a log: what the runtime logged it for, such as an agent's result. Of a note or report on a phase: which."""
    run: str | None = None
    position: int = 0
    written_us: int = 0
    sensitivity: str = "private"
    secrets: tuple[str, ...] = ()
    scope: str = ""
    """The scope that it belongs to, by its key."""
    report: ItemReport | None = None
    """What it says of a verified item, if it is a report on one."""

    @property
    def written_at(self) -> datetime:
        return from_us(self.written_us)

    def __str__(self) -> str:
        return self.text

    @property
    def markdown(self) -> str:
        """The entry as the log of its day shows it."""
        heading = f"### {self.written_at:%H:%M:%S}" + (f" -- {self.about}" if self.about else "")
        return f"{heading}\n{self.text}" if self.text else heading


class DocumentShape(NamedTuple):
    """How documents in one place read as markdown, and what a person may do in their files."""

    prefix: str
    titled: bool = True
    sections: tuple[str, ...] = ()
    logged: bool = False
    """Every entry stands under the time at which it was written."""
    may: Literal["edit", "append", "nothing", "raw"] = "nothing"
    derived: bool = False
    """What its file shows is made of all entries together, and not of one after the other."""

    def block(self, entry: DocumentEntry) -> str:
        if self.sections:
            first, *rest = entry.text.strip().splitlines() or [""]
            return "\n".join([f"- {first}", *(f"  {line}" for line in rest)])
        return entry.markdown if self.logged else entry.text.strip("\n")


SHAPES = (
    DocumentShape(NOTES, titled=False, may="edit"),
    DocumentShape(LOGS, logged=True, may="append"),
    DocumentShape(SESSIONS, sections=SECTIONS, derived=True),
    DocumentShape(TASKS),
)
GATES = DocumentShape(TASKS, titled=False, may="raw", derived=True)
ITEMS = DocumentShape(TASKS, derived=True)


def shape_of(path: str) -> DocumentShape:
    if path.endswith(".ndjson"):
        return GATES
    if task_of(path) and path.endswith(f"/{VERIFIED_ITEMS}"):
        return ITEMS
    return next((shape for shape in SHAPES if path.startswith(shape.prefix)), DocumentShape(""))


# names and paths


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


def session_path(task: str) -> str:
    return f"{SESSIONS}{slug(task)}-notes.md"


def task_path(task: str, document: str) -> str:
    name = document if check_text("a document", document).endswith(".md") else f"{document}.md"
    if not _NAME.fullmatch(name) or ".." in name:
        raise BadInput(
            f"{shown(document)} is not the name of a document: use letters, digits, . _ -, such as decisions"
        )
    return f"{TASKS}{slug(task)}/{name}"


def gates_path(task: str, id: str | None) -> str:
    return f"{TASKS}{slug(task)}/observability/{slug(id or task)}.ndjson"


def task_of(path: str) -> str:
    """The name of the task's folder that a document lies in, or ""."""
    return path.split("/")[2] if path.startswith(TASKS) else ""


def log_path(day: str) -> str:
    return f"{LOGS}{day}.md"


def day_of(us: int) -> str:
    return f"{from_us(us):%Y-%m-%d}"


def check_day(field: str, day: object) -> str:
    """A day as YYYY-MM-DD. Raises BadInput."""
    if isinstance(day, date):
        return day.strftime("%Y-%m-%d")
    if isinstance(day, str) and _DAY.fullmatch(day):
        try:
            return date.fromisoformat(day).isoformat()
        except ValueError:
            pass  # such as February 30th: refused below
    raise BadInput(f"{field} {shown(day)} is not a day: write it as 2026-03-23")


# folding: a row for each entry, and one that says from where on they count

WHOLE = 0


def touched(event: Event) -> list[Key]:
    payload, scope = event.payload, scope_of(event)
    if event.kind == LOGGED:
        return [(scope, log_path(day_of(event.created_us)), event.position)]
    path, act = payload["path"], payload.get("act", "append")
    entry: list[Key] = [] if act in ("clear", "gone") else [(scope, path, event.position)]
    return [(scope, path, WHOLE), *entry] if act in ("set", "clear") else entry


def fold(key: Key, _before: Any, event: Event) -> Any:
    payload = event.payload
    if key[2] == WHOLE:
        return {"since": event.position + (payload["act"] == "clear")}
    report = report_of(payload) if event.kind == REPORTED else None
    if report is not None:
        text = report.text
    else:
        text = json.dumps(payload["event"], ensure_ascii=False) if event.kind == GATED else payload["text"]
    row = {"id": event.id, "by": event.actor, "text": text, "written_us": event.created_us}
    row |= {name: payload[name] for name in ("section", "about", "secrets") if name in payload}
    row |= {} if report is None else {"report": msgspec.to_builtins(report)}
    row |= {"run": event.run_id, "sensitivity": event.labels.get("sensitivity", "private")}
    return row | ({SCOPE: event.labels[SCOPE]} if SCOPE in event.labels else {})


def report_of(payload: Mapping[str, Any]) -> ItemReport:
    """What the payload of a report on a verified item says."""
    return convert({name: value for name, value in payload.items() if name != "path"}, ItemReport)


def archive_touched(event: Event) -> list[Key]:
    return [(scope_of(event), event.payload["what"], name) for name in event.payload["names"]]


def fold_archive(_key: Key, _before: Any, event: Event) -> Any:
    return None if event.payload["back"] else {"at_us": event.created_us}


# reading


def entries(views: ViewReader, path: str, scope: str | None = None) -> list[DocumentEntry]:
    """The entries of a document that count, in order, with the sensitivity that they have by now. Each scope has its
    own documents: by default, that of the reader."""
    rows = views.scan("documents.entries", views.scope if scope is None else scope, path)
    return _counting(rows, lambda id: views.get("labels", id) or {})


def all_entries(views: ViewReader, below: str = "") -> dict[str, list[DocumentEntry]]:
    """The documents whose path begins with `below` and that have entries, in the order of their paths."""
    changed = {key[0]: labels for key, labels in views.scan("labels")}
    rows: dict[str, list[tuple[Key, Any]]] = {}
    for key, row in views.between("documents.entries", (views.scope,), below, below + _LAST):
        rows.setdefault(str(key[1]), []).append((key, row))
    found = {path: _counting(of_path, lambda id: changed.get(id, {})) for path, of_path in rows.items()}
    return {path: listed for path, listed in found.items() if listed}


def _counting(
    rows: Iterable[tuple[Key, Any]], labels: Callable[[str], Mapping[str, str]]
) -> list[DocumentEntry]:
    since, counting = 0, list[DocumentEntry]()
    for key, row in rows:
        if key[2] == WHOLE:  # the first row of a document
            since = row["since"]
        elif int(key[2]) >= since:
            level = labels(row["id"]).get("sensitivity", row["sensitivity"])
            plain = {**row, "position": key[2], "sensitivity": level}
            counting.append(convert(plain, DocumentEntry))
    return counting


def paths(views: ViewReader, below: str = "") -> list[str]:
    """The paths of the documents that have entries, without daily logs unless `below` names them."""
    places = (below,) if below else (NOTES, SESSIONS, TASKS)
    return [path for place in places for path in all_entries(views, place)]


def folder_entries(views: ViewReader, task: str) -> dict[str, list[DocumentEntry]]:
    """The documents of a task's folder by their paths."""
    below = f"{TASKS}{task}/"
    rows = views.between("documents.entries", (views.scope,), below, below + _LAST)
    listed = {path: entries(views, path) for path in dict.fromkeys(str(key[1]) for key, _ in rows)}
    return {path: of_path for path, of_path in listed.items() if of_path}


def days(views: ViewReader) -> list[str]:
    """The days that something was logged on, in order."""
    rows = views.between("documents.entries", (views.scope,), LOGS, LOGS + _LAST)
    logs = dict.fromkeys(str(key[1]) for key, _ in rows)
    return [path.removeprefix(LOGS).removesuffix(".md") for path in logs]


def archived_us(views: ViewReader, what: str, name: str) -> int | None:
    """When a day or task was put into the archive; None if it is not there."""
    row = views.get("documents.archive", views.scope, what, name)
    return None if row is None else int(row["at_us"])


# rendering


def rendered(path: str, listed: Iterable[DocumentEntry]) -> str:
    """A document as its file holds it."""
    shape = shape_of(path)
    if not shape.titled:
        return "".join(f"{entry.text.rstrip()}\n" for entry in listed)
    listed, parts = list(listed), [f"# {title_of(path)}"]
    for section in shape.sections:
        parts.append(f"## {section}")
        parts += [shape.block(entry) for entry in listed if (entry.section or SECTIONS[-1]) == section]
    if not shape.sections:
        parts += [shape.block(entry).strip() for entry in listed if entry.report is None]
        parts += as_markdown(verified_items(listed))
    return "\n\n".join(parts) + "\n"


def verified_items(listed: Iterable[DocumentEntry]) -> tuple[VerifiedItem, ...]:
    """How the items stand that these entries report on."""
    return standing(
        (
            entry.report,
            RecordedReport(
                entry.id,
                entry.by,
                entry.written_us,
                entry.report.holds,
                entry.report.evidence,
                entry.report.iteration,
            ),
        )
        for entry in listed
        if entry.report is not None
    )


def title_of(path: str) -> str:
    name = path.rpartition("/")[2].removesuffix(".md")
    if shape_of(path).logged:
        return name
    name = name.replace("-", " ").replace("_", " ")
    return name[:1].upper() + name[1:]


def template() -> str:
    """The empty form of session notes."""
    return "\n\n".join(["# Session notes", *(f"## {section}" for section in SECTIONS)]) + "\n"
