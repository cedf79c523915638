"""Documents of the working tier: daily logs, notes of sessions and tasks, gates, NOTES.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..access.masking import find_secrets, masked
from ..errors import BadInput, TooLarge, shown
from ..ledger.checks import check_each, check_if_position, check_name, check_text
from ..ledger.encoding import blobs_of, encode_payload
from ..ledger.events import Event
from ..verbs import verb
from . import daily, papers, upkeep
from .daily import Log, LogEntry
from .papers import (
    NOTES,
    SECTIONS,
    DocumentLine,
    Note,
    RecordGate,
    checked_gate,
    gates_path,
    session_path,
    task_path,
)
from .reading import settings_of
from .showing import was_shown
from .upkeep import Shelve

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .viewer import Viewer

Texts = list[str]
Entries = list[LogEntry]
Lines = list[DocumentLine]


class Documents:
    """Daily logs, notes of sessions and tasks, gates and NOTES.md: `book.documents`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # daily logs

    @verb
    def log(self, text: str, *, id: str | None = None) -> Event:
        """Add to the day's log, for the whole team. With an `id` of your own the call can be repeated safely.

        `text` is the line to add."""
        text, secrets = self._guarded(text)
        if id is not None:
            id = check_name("id", id)
        request = Log(
            self._session.actor,
            text,
            self._session.run,
            secrets=secrets,
            sensitivity=_sensitivity(secrets),
            id=id,
        )
        event: Event = self._session.submit("memory.log", request, "log")
        return event

    @verb
    def days(self, at: At = None, *, archived: bool = False) -> Texts:
        """The days that have log entries; with `archived`, those that were archived.

        `archived` is whether to list those that were put aside."""
        self._session.check_reads("working")
        with self._session.viewer(at) as viewer:
            views = viewer.views
            days = [day for day in daily.days(views) if upkeep.shelved(views, "day", day) == archived]
            return [day for day in days if any(map(viewer.sees_entry, daily.entries(views, day)))]

    @verb
    def day(self, day: date | str, at: At = None) -> Entries:
        """The log entries of a day, in order.

        `day` is a day, such as 2026-01-31."""
        self._session.check_reads("working")
        named = daily.check_day("day", day)
        with self._session.viewer(at) as viewer:
            found = [
                _shown(entry) for entry in daily.entries(viewer.views, named) if viewer.sees_entry(entry)
            ]
        was_shown(self._session, [one.id for one in found])
        return found

    # documents

    @verb
    def notes(self, at: At = None) -> str:
        """NOTES.md: the active objective."""
        return papers.rendered(NOTES, self.get(NOTES, at))

    @verb
    def write_notes(self, text: str, *, if_position: int | None = None, id: str | None = None) -> Event:
        """Replace NOTES.md. It holds the active objective only: other content is refused, with its line.
        With `if_position`, it is also refused if the notes were written after that position.

        `text` is the whole text of the notes."""
        return self._note(NOTES, "set", text, if_position=check_if_position(if_position), id=id)

    @verb
    def add_to_session(self, task: str, text: str, section: str = "Worklog") -> Event:
        """Add to the notes of a session, in one of five sections.

        `task` is the name of the task. `text` is what to add. `section` is the section to add it to."""
        if section not in SECTIONS:
            raise BadInput(f"there is no section {shown(section)}: the sections are {', '.join(SECTIONS)}")
        return self._note(session_path(task), "append", text, section)

    @verb
    def session(self, task: str, at: At = None) -> str:
        """The notes of a session, as markdown; "" when there are none, or when they were cleared.

        `task` is the name of the task."""
        path = session_path(task)
        found = self.get(path, at)
        return papers.rendered(path, found) if found else ""

    @verb
    def clear_session(self, task: str) -> Event:
        """End a session: agents cannot read its notes any more. The owner still can, as of before.

        `task` is the name of the task."""
        return self._note(session_path(task), "clear", "")

    @verb
    def add_to_task(self, task: str, document: str, text: str, *, replace: bool = False) -> Event:
        """Add to a document in a task's folder (decisions, revisions, verified_items, a report), or replace
        it.

        `task` is the name of the task. `document` is decisions, revisions, verified_items or a report. `text` is
        what to add. `replace` is whether the document is written anew."""
        return self._note(task_path(task, document), "set" if replace else "append", text)

    @verb
    def task(self, task: str, at: At = None) -> dict[str, str]:
        """The documents of a task's folder by their names.

        `task` is the name of the task."""
        self._session.check_reads("working")
        below = f"{papers.TASKS}{papers.slug(task)}/"
        found = {path: self.get(path, at) for path in self.list(at) if path.startswith(below)}
        return {path.removeprefix(below): papers.rendered(path, lines) for path, lines in found.items()}

    @verb
    def record_gate(
        self, task: str, gate: str, decision: str, *, id: str | None = None, **more: Any
    ) -> Event:
        """Record the decision at a gate of a task. `more` may hold phase, confidence, reason, next_action,
        iteration_index (from 0), max_iterations and trace_id; other fields are kept in the event's payload.

        `task` is the name of the task. `gate` is PLAN, PREFLECT, PHASE_REVIEW or the like. `decision` is GO, REPLAN,
        ABSTAIN or BLOCKED."""
        given = encode_payload({**more, "gate": gate, "decision": decision})[1]
        if blobs_of(given):
            raise BadInput("a gate holds no blob: name the file instead, or make an artifact of it")
        event = masked(checked_gate(self._session.actor, given))
        request = RecordGate(self._session.actor, gates_path(task, id), event, self._session.run)
        recorded: Event = self._session.submit("memory.gate", request, "gate")
        return recorded

    @verb
    def gates(self, task: str, id: str | None = None, at: At = None) -> str:
        """The gates of a task, one JSON object per line.

        `task` is the name of the task."""
        path = gates_path(task, id)
        return papers.rendered(path, self.get(path, at))

    @verb
    def list(self, at: At = None) -> Texts:
        """The paths of the documents that have entries this actor may see."""
        self._session.check_reads("working")
        with self._session.viewer(at) as viewer:
            return [path for path in papers.papers(viewer.views) if self._lines(viewer, path)]

    @verb
    def get(self, path: str, at: At = None) -> Lines:
        """The entries of a document by its path.

        `path` is the path of the document."""
        self._session.check_reads("working")
        path = check_name("a document", path)
        with self._session.viewer(at) as viewer:
            return [_shown(line) for line in self._lines(viewer, path)]

    @verb
    def restore(self, *, days: Sequence[str] = (), tasks: Sequence[str] = ()) -> None:
        """Bring back days and tasks that were archived.

        `days` are the days whose logs to bring back. `tasks` are the names of the tasks to bring back."""
        chosen_days = tuple(daily.check_day("a day", day) for day in check_each("days", days))
        chosen_tasks = tuple(check_name("a task", task) for task in check_each("tasks", tasks))
        for what, names in (("day", chosen_days), ("task", chosen_tasks)):
            if names:
                request = Shelve(self._session.actor, what, names, back=True)
                self._session.submit("memory.shelve", request, "unarchive")

    def _lines(self, viewer: Viewer, path: str) -> Lines:
        lines = [line for line in papers.lines(viewer.views, path) if viewer.sees_line(line)]
        if not path.startswith(papers.SESSIONS) or self._session.is_owner:
            return lines
        kept = {
            line.id for line in papers.lines(viewer.now, path)
        }  # what was cleared since is not read as of before
        return [line for line in lines if line.id in kept]

    def _note(self, path: str, act: str, text: str, section: str = "", **more: Any) -> Event:
        secrets: tuple[str, ...] = ()
        if act != "clear":
            text, secrets = self._guarded(text)
        request = Note(
            self._session.actor, path, act, text, section, run=self._session.run, secrets=secrets,
            sensitivity=_sensitivity(secrets), **more,
        )  # fmt: skip
        event: Event = self._session.submit("memory.note", request, "note")
        return event

    def _guarded(self, text: str) -> tuple[str, tuple[str, ...]]:
        """A text to write down, and what kinds of secrets it holds, after what the book's settings say of them."""
        text, secrets = _checked("text", text)
        policy = self._secrets_policy() if secrets else ""
        if policy == "reject":
            raise BadInput(f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and say where")
        return (masked(text), ()) if policy == "mask" else (text, secrets)

    def _secrets_policy(self) -> str:
        with self._session.snapshot() as snapshot:
            return settings_of(snapshot).secrets


def _checked(field: str, text: str) -> tuple[str, tuple[str, ...]]:
    """A text to write down, and what kinds of secrets it holds."""
    if not check_text(field, text).strip():
        raise BadInput(f"{field} is empty: say something")
    if len(text) > papers.MAX_TEXT:
        raise TooLarge(
            f"{field} has {len(text):,} characters and may have {papers.MAX_TEXT:,}: write it in parts"
        )
    return text, tuple(sorted({one.kind for one in find_secrets(text)}))


def _sensitivity(secrets: tuple[str, ...]) -> str:
    return "sensitive" if secrets else "private"


def _shown(one: Any) -> Any:
    return replace(one, text=masked(one.text)) if one.secrets else one
