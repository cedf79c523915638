"""The verbs of what is written down along the way: daily logs, notes of sessions and tasks, gates, NOTES.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import convert
from msgspec.structs import replace

from ..access.commands import Denial
from ..access.rights import OWNER, Rights, may_see_of, rights_of
from ..access.secrets import find_secrets, masked
from ..errors import BadInput, Denied, TooLarge, shown
from ..events import Event, blobs_of, check_name, check_seen, check_text, encode_payload
from . import daily, papers, upkeep
from .cores import Core, may_know
from .daily import Entry, Log
from .items import mask
from .papers import NOTES, SECTIONS, Gate, Line, Note, checked_gate, gates_path, session_path, task_path
from .reading import settings_of
from .requests import Kept

if TYPE_CHECKING:
    from ..book import At
    from ..ledger import Ledger
    from ..reader import Lens


WRITES = {
    "memory.log": "working", "memory.note": "working", "memory.gate": "working", "memory.shelve": "working",
    "memory.remember": "long_term", "memory.resolve": "long_term", "memory.patch": "long_term",
    "memory.mark": "long_term", "memory.forget": "long_term", "memory.retell": "long_term",
    "memory.core": "long_term",
}  # fmt: skip
"""The tier that a command writes to; other commands are about memory as a whole."""


class Viewer(NamedTuple):
    """An actor that reads the book as of a moment. What it reads must pass its rights and the labels of then and of
    now: the first pair is of then, the last of now."""

    pairs: tuple[tuple[Lens, Rights], ...]

    @property
    def lens(self) -> Lens:
        return self.pairs[0][0]

    @property
    def now(self) -> Lens:
        return self.pairs[-1][0]

    def sees_entry(self, entry: Entry) -> bool:
        return self._sees(entry.id, entry.agent, daily.LOGGED, entry.sensitivity)

    def sees_line(self, line: Line) -> bool:
        return self._sees(line.id, line.by, papers.NOTED, line.sensitivity)

    def _sees(self, id: str, author: str, kind: str, sensitivity: str) -> bool:
        labels = {"sensitivity": sensitivity, "audience": "team"}
        return all(
            may_see_of(rights, author, kind, {**labels, **(lens.get("labels", id) or {})})
            for lens, rights in self.pairs
        )

    def sees_core(self, id: str) -> bool:
        rows = [(lens.get("memory.cores", id), rights) for lens, rights in self.pairs]
        return all(row is not None and may_know(rights, convert(row, Core)) for row, rights in rows)


class Noting:
    """What everybody can write down and read again, each under its own rights.

    Whoever uses it says which ledger, who acts, in which run, and whether it only looks.
    """

    _ledger: Ledger

    @property
    def _memory_actor(self) -> str:
        return OWNER

    @property
    def _memory_run(self) -> str | None:
        return None

    def _memory_acts(self, act: str) -> None:
        """Refuse if whoever acts may only look."""

    def _was_shown(self, ids: Sequence[str]) -> None:
        """Things that were just shown to whoever acts."""

    def _ask_memory(self, command: str, request: Any, act: str) -> Any:
        self._memory_acts(act)
        self._ledger.showing.note(self._ledger)
        return self._ledger.submit(command, request)

    def _may_read_tier(self, tier: str) -> None:
        actor = self._memory_actor
        with self._ledger.snapshot() as snapshot:
            permission = rights_of(snapshot, actor, self._memory_run).tier(tier)
        if permission == "none":
            self._ledger.submit("access.deny", Denial(actor, "memory.read", tier, self._memory_run))
            raise Denied(f"{actor!r} may not read the {tier} tier of memory")

    @contextmanager
    def _seeing(self, at: At) -> Iterator[Viewer]:
        """The actor as a reader of the book as of `at`."""
        asker = (self._memory_actor, self._memory_run)
        with self._ledger.snapshot() as now:
            if at is None:
                yield Viewer(((now, rights_of(now, *asker)),))
            else:
                with self._ledger.snapshot(at) as then:
                    yield Viewer(((then, rights_of(then, *asker)), (now, rights_of(now, *asker))))

    # daily logs

    def log(self, text: str, *, id: str | None = None) -> Event:
        """Add to the day's log, for the whole team. With an `id` of your own the call can be repeated safely."""
        text, secrets = self._guarded(text)
        if id is not None:
            id = check_name("id", id)
        request = Log(
            self._memory_actor,
            text,
            self._memory_run,
            secrets=secrets,
            sensitivity=_sensitivity(secrets),
            id=id,
        )
        event: Event = self._ask_memory("memory.log", request, "log")
        return event

    def days(self, at: At = None, *, archived: bool = False) -> list[str]:
        """The days that something was logged on; with `archived`, those that were put aside."""
        self._may_read_tier("working")
        with self._seeing(at) as viewer:
            days = [
                day for day in daily.days(viewer.lens) if upkeep.shelved(viewer.lens, "day", day) == archived
            ]
            return [day for day in days if any(map(viewer.sees_entry, daily.entries(viewer.lens, day)))]

    def day(self, day: date | str, at: At = None) -> list[Entry]:
        """What was logged on a day, in order."""
        self._may_read_tier("working")
        named = daily.check_day("day", day)
        with self._seeing(at) as viewer:
            found = [_shown(entry) for entry in daily.entries(viewer.lens, named) if viewer.sees_entry(entry)]
        self._was_shown([one.id for one in found])
        return found

    # papers

    def notes(self, at: At = None) -> str:
        """NOTES.md: the active objective."""
        return papers.rendered(NOTES, self.paper(NOTES, at))

    def write_notes(self, text: str, *, seen: int | None = None, id: str | None = None) -> Event:
        """Write NOTES.md anew. It holds the active objective only: what belongs elsewhere is refused, each with
        its line."""
        return self._note(NOTES, "set", text, seen=check_seen(seen), id=id)

    def session_note(self, task: str, text: str, section: str = "Worklog") -> Event:
        """Add to the notes of a session, in one of five sections."""
        if section not in SECTIONS:
            raise BadInput(f"there is no section {shown(section)}: the sections are {', '.join(SECTIONS)}")
        return self._note(session_path(task), "append", text, section)

    def session(self, task: str, at: At = None) -> str:
        """The notes of a session, as markdown; "" when there are none, or when they were cleared."""
        path = session_path(task)
        found = self.paper(path, at)
        return papers.rendered(path, found) if found else ""

    def clear_session(self, task: str) -> Event:
        """End a session: its notes are gone for agents. The owner can still read them as of before."""
        return self._note(session_path(task), "clear", "")

    def task_note(self, task: str, paper: str, text: str, *, anew: bool = False) -> Event:
        """Add to a paper in a task's folder (decisions, revisions, verified_items, a report), or write it anew."""
        return self._note(task_path(task, paper), "set" if anew else "append", text)

    def task_papers(self, task: str, at: At = None) -> dict[str, str]:
        """The papers of a task's folder by their names."""
        self._may_read_tier("working")
        below = f"{papers.TASKS}{papers.slug(task)}/"
        found = {path: self.paper(path, at) for path in self.papers(at) if path.startswith(below)}
        return {path.removeprefix(below): papers.rendered(path, lines) for path, lines in found.items()}

    def gate(self, task: str, gate: str, decision: str, *, id: str | None = None, **more: Any) -> Event:
        """Record a gate that a task has come to: which, what was decided, and with phase, confidence, reason,
        next_action, iteration_index (the first is 0), max_iterations and trace_id if they are known. Further fields are
        kept in the event's payload."""
        given = encode_payload({**more, "gate": gate, "decision": decision})[1]
        if blobs_of(given):
            raise BadInput("a gate holds no blob: name the file instead, or make an artifact of it")
        event = mask(checked_gate(self._memory_actor, given))
        request = Gate(self._memory_actor, gates_path(task, id), event, self._memory_run)
        recorded: Event = self._ask_memory("memory.gate", request, "gate")
        return recorded

    def gates(self, task: str, id: str | None = None, at: At = None) -> str:
        """The gates of a task, one JSON object a line."""
        path = gates_path(task, id)
        return papers.rendered(path, self.paper(path, at))

    def papers(self, at: At = None) -> list[str]:
        """The paths of all papers that hold something which whoever asks may see."""
        self._may_read_tier("working")
        with self._seeing(at) as viewer:
            return [path for path in papers.papers(viewer.lens) if self._lines(viewer, path)]

    def paper(self, path: str, at: At = None) -> list[Line]:
        """The entries of a paper by its path."""
        self._may_read_tier("working")
        path = check_name("a paper", path)
        with self._seeing(at) as viewer:
            return [_shown(line) for line in self._lines(viewer, path)]

    def _lines(self, viewer: Viewer, path: str) -> list[Line]:
        lines = [line for line in papers.lines(viewer.lens, path) if viewer.sees_line(line)]
        if not path.startswith(papers.SESSIONS) or self._memory_actor == OWNER:
            return lines
        still = {
            line.id for line in papers.lines(viewer.now, path)
        }  # what was cleared since is not read as of before
        return [line for line in lines if line.id in still]

    def _note(self, path: str, act: str, text: str, section: str = "", **more: Any) -> Event:
        secrets: tuple[str, ...] = ()
        if act != "clear":
            text, secrets = self._guarded(text)
        request = Note(
            self._memory_actor, path, act, text, section, run=self._memory_run, secrets=secrets,
            sensitivity=_sensitivity(secrets), **more,
        )  # fmt: skip
        event: Event = self._ask_memory("memory.note", request, "note")
        return event

    def _guarded(self, text: str) -> tuple[str, tuple[str, ...]]:
        """A text to write down, and what kinds of secrets it holds, after what the book's settings say of them."""
        text, secrets = _checked("text", text)
        policy = self._secrets_policy() if secrets else ""
        if policy == "reject":
            raise BadInput(f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and say where")
        return (masked(text), ()) if policy == "mask" else (text, secrets)

    def _secrets_policy(self) -> str:
        with self._ledger.snapshot() as snapshot:
            return settings_of(snapshot).secrets

    # facts of the repository

    def repository_fact(
        self, subject: str, fact: str, *, citations: Sequence[str], reason: str, category: str, **more: Any
    ) -> Kept:
        """Keep a fact about the repository that will matter beyond one plan: what it is about, one or two
        sentences, where it can be seen (file:line), why it matters, and its category. It is never changed: a
        new one supersedes it."""
        from .facts import checked_fact

        subject, fact, cited = checked_fact(subject, fact, citations, reason, category)
        kept: Kept = self.remember(  # type: ignore[attr-defined]
            key=subject, value=fact, citations=cited, reason=reason, category=category, scope="repository",
            shared=True, **more,
        )  # fmt: skip
        return kept


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
