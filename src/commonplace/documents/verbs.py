"""Documents of the working tier: daily logs, notes of sessions and tasks, gates, NOTES.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.masking import kinds_of_secrets, masked
from ..errors import BadInput, TooLarge, shown
from ..ledger.checks import check_each, check_if_position, check_name, check_text
from ..ledger.encoding import blobs_of, encode_payload
from ..ledger.events import Event
from ..verbs import verb
from . import document
from .document import (
    NOTES,
    SECTIONS,
    SESSIONS,
    TASKS,
    DocumentEntry,
    archived_us,
    check_day,
    entries,
    gates_path,
    log_path,
    rendered,
    session_path,
    slug,
    task_path,
)
from .notes import NoteViolation, check_notes
from .writing import ArchiveDocuments, Log, RecordGate, WriteDocument, checked_gate

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..memory.viewer import Viewer
    from ..session import Session

MAX_TEXT = 100_000

Texts = list[str]
Entries = list[DocumentEntry]
Violations = list[NoteViolation]


class Documents:
    """Daily logs, notes of sessions and tasks, gates and NOTES.md: `book.documents`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # daily logs

    @verb(own_id=True)
    def log(self, text: str, *, id: str | None = None) -> Event:
        """Add to the day's log, for the whole team. With an `id` of your own the call can be repeated safely.

        `text` is the line to add."""
        text, secrets = guarded(self._session, text)
        id = None if id is None else check_name("id", id)
        request = Log(
            self._session.actor, text, self._session.run, secrets=secrets, sensitivity=_sensitivity(secrets), id=id
        )  # fmt: skip
        event: Event = self._session.submit("documents.log", request, "log")
        return event

    @verb
    def days(self, at: At = None, *, archived: bool = False) -> Texts:
        """The days that have log entries; with `archived`, those that were archived.

        `archived` is whether to list those that were put aside."""
        self._session.check_reads("working")
        with self._session.viewer(at) as viewer:
            days = [
                day
                for day in document.days(viewer.views)
                if (archived_us(viewer.views, "day", day) is not None) == archived
            ]
            return [day for day in days if self._entries(viewer, log_path(day))]

    @verb
    def day(self, day: date | str, at: At = None) -> Entries:
        """The log entries of a day, in order.

        `day` is a day, such as 2026-01-31."""
        listed = self.get(log_path(check_day("day", day)), at)
        self._session.was_shown([entry.id for entry in listed])
        return listed

    # documents

    @verb
    def notes(self, at: At = None) -> str:
        """NOTES.md: the active objective."""
        return rendered(NOTES, self.get(NOTES, at))

    @verb(own_id=True)
    def write_notes(self, text: str, *, if_position: int | None = None, id: str | None = None) -> Event:
        """Replace NOTES.md. It holds the active objective only: other content is refused, with its line.
        With `if_position`, it is also refused if the notes were written after that position.

        `text` is the whole text of the notes."""
        return self._write(NOTES, "set", text, if_position=check_if_position(if_position), id=id)

    @verb
    def check_notes(self, text: str | None = None, at: At = None) -> Violations:
        """What does not belong into NOTES.md, by the rules that `write_notes` enforces: each violation with its line.

        `text` is what to check, in place of the book's notes."""
        return check_notes(self.notes(at) if text is None else check_text("text", text))

    @verb
    def add_to_session(self, task: str, text: str, section: str = "Worklog") -> Event:
        """Add to the notes of a session, in one of five sections.

        `task` is the name of the task. `text` is what to add. `section` is the section to add it to."""
        if section not in SECTIONS:
            raise BadInput(f"there is no section {shown(section)}: the sections are {', '.join(SECTIONS)}")
        return self._write(session_path(task), "append", text, section)

    @verb
    def session(self, task: str, at: At = None) -> str:
        """The notes of a session, as markdown; "" when there are none, or when they were cleared.

        `task` is the name of the task."""
        path = session_path(task)
        listed = self.get(path, at)
        return rendered(path, listed) if listed else ""

    @verb
    def clear_session(self, task: str) -> Event:
        """End a session: agents cannot read its notes any more. The owner still can, as of before.

        `task` is the name of the task."""
        return self._write(session_path(task), "clear", "")

    @verb
    def add_to_task(self, task: str, document: str, text: str, *, replace: bool = False) -> Event:
        """Add to a document in a task's folder (decisions, revisions, verified_items, a report), or replace
        it.

        `task` is the name of the task. `document` is decisions, revisions, verified_items or a report. `text` is what
        to add. `replace` is whether the document is written anew."""
        return self._write(task_path(task, document), "set" if replace else "append", text)

    @verb
    def task(self, task: str, at: At = None) -> dict[str, str]:
        """The documents of a task's folder by their names.

        `task` is the name of the task."""
        folder = f"{TASKS}{slug(task)}/"
        listed = {path: self.get(path, at) for path in self.list(at) if path.startswith(folder)}
        return {path.removeprefix(folder): rendered(path, of_path) for path, of_path in listed.items()}

    @verb
    def record_gate(
        self, task: str, gate: str, decision: str, *, id: str | None = None, **more: Any
    ) -> Event:
        """Record the decision at a gate of a task. `more` may hold phase, confidence, reason, next_action,
        iteration_index (from 0), max_iterations and trace_id; other fields are kept in the event's payload.

        `task` is the name of the task. `gate` is PLAN, PREFLECT, PHASE_REVIEW or the like. `decision` is GO, REPLAN,
        ABSTAIN or BLOCKED. `id` is the name of the file that it stands in, by default that of the task."""
        fields = encode_payload({**more, "gate": gate, "decision": decision})[1]
        if blobs_of(fields):
            raise BadInput("a gate holds no blob: name the file instead, or make an artifact of it")
        event = masked(checked_gate(self._session.actor, fields))
        request = RecordGate(self._session.actor, gates_path(task, id), event, self._session.run)
        recorded: Event = self._session.submit("documents.gate", request, "gate")
        return recorded

    @verb
    def gates(self, task: str, id: str | None = None, at: At = None) -> str:
        """The gates of a task, one JSON object per line.

        `task` is the name of the task. `id` is the name of the file that they stand in, by default that of the
        task."""
        path = gates_path(task, id)
        return rendered(path, self.get(path, at))

    @verb
    def list(self, at: At = None) -> Texts:
        """The paths of the documents that have entries this actor may see; `days` lists the daily logs."""
        self._session.check_reads("working")
        with self._session.viewer(at) as viewer:
            return [path for path in document.paths(viewer.views) if self._entries(viewer, path)]

    @verb
    def get(self, path: str, at: At = None) -> Entries:
        """The entries of a document by its path.

        `path` is the path of the document."""
        self._session.check_reads("working")
        path = check_name("a document", path)
        with self._session.viewer(at) as viewer:
            return self._entries(viewer, path)

    @verb
    def restore(self, *, days: Sequence[str] = (), tasks: Sequence[str] = ()) -> None:
        """Bring back days and tasks that were archived.

        `days` are the days whose logs to bring back. `tasks` are the names of the tasks to bring back."""
        chosen_days = tuple(check_day("a day", day) for day in check_each("days", days))
        chosen_tasks = tuple(check_name("a task", task) for task in check_each("tasks", tasks))
        for what, names in (("day", chosen_days), ("task", chosen_tasks)):
            if names:
                request = ArchiveDocuments(self._session.actor, what, names, back=True, run=self._session.run)
                self._session.submit("documents.archive", request, "unarchive")

    def _entries(self, viewer: Viewer, path: str) -> Entries:
        return visible_entries(self._session, viewer, path)

    def _write(self, path: str, act: str, text: str, section: str = "", **more: Any) -> Event:
        request = entry_request(self._session, path, act, text, section, **more)
        event: Event = self._session.submit("documents.write", request, "note")
        return event


def visible_entries(session: Session, viewer: Viewer, path: str) -> Entries:
    """The entries of a document that an actor may see, without secrets. Agents do not see what was cleared since, also
    as of before."""
    listed = [
        replace(entry, text=masked(entry.text)) if entry.secrets else entry
        for entry in entries(viewer.views, path)
        if viewer.sees(entry)
    ]
    if not path.startswith(SESSIONS) or session.is_owner:
        return listed
    kept = {entry.id for entry in entries(viewer.now, path)}
    return [entry for entry in listed if entry.id in kept]


def entry_request(
    session: Session, path: str, act: str, text: str, section: str = "", *, named: str = "text", **more: Any
) -> WriteDocument:
    """The request to write a document. Raises BadInput or TooLarge for a text that may not stand there, by the name of
    the parameter that it came in."""
    text, secrets = guarded(session, text, named) if act != "clear" else ("", ())
    return WriteDocument(
        session.actor, path, act, text, section, run=session.run, secrets=secrets, sensitivity=_sensitivity(secrets),
        **more,
    )  # fmt: skip


def guarded(session: Session, text: str, named: str = "text") -> tuple[str, tuple[str, ...]]:
    """A text to write down, and what kinds of secrets it holds, after the book's settings were applied."""
    if not check_text(named, text).strip():
        raise BadInput(f"{named} is empty: say something")
    if len(text) > MAX_TEXT:
        raise TooLarge(f"{named} has {len(text):,} characters and may have {MAX_TEXT:,}: write it in parts")
    secrets = kinds_of_secrets([text])
    policy = session.settings().secrets if secrets else ""
    if policy == "reject":
        raise BadInput(f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and say where")
    return (masked(text), ()) if policy == "mask" else (text, secrets)


def _sensitivity(secrets: tuple[str, ...]) -> str:
    return "sensitive" if secrets else "private"
