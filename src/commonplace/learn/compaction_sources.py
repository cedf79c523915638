"""What must not be lost of a context, from where it is kept: NOTES.md, session notes, the folder of a task, a work."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, TypeVar

from ..documents.document import NOTES, TASKS, DocumentEntry, paths, session_path, slug
from ..documents.verbs import Documents
from ..recall.escaping import as_data, as_name
from ..recall.packing import CUT, PackLine
from ..work.listing import pending, visible_records
from ..work.opening import work as open_work
from ..work.records import EVENTS, Approval, Decision, Discovery, Escalation, WorkRecord
from .compaction_rules import (
    BLOCKER,
    CONSTRAINT,
    DECISION,
    PROPOSED,
    RULE,
    Standing,
    Statement,
    same_words,
    statements,
)

if TYPE_CHECKING:
    from ..session import Session
    from ..work.verbs import Work

T = TypeVar("T", bound=WorkRecord)

OBJECTIVE, BLOCKERS, DECISIONS, CONSTRAINTS = (
    "Objective",
    "Open blockers",
    "Decisions",
    "Constraints",
)
SESSION = "Session notes"

LABELLED = {
    BLOCKER: (BLOCKERS, "BLOCKER"),
    DECISION: (DECISIONS, "APPROVED"),
    CONSTRAINT: (CONSTRAINTS, "CONSTRAINT"),
}
"""The section of each kind of statement, and the label that it has there, by which it is known again."""
IF_ROOM = {RULE: (CONSTRAINTS, "CONSTRAINT"), PROPOSED: (DECISIONS, "DECISION (not approved)")}
"""The same for what is kept as far as there is room: sentences without a label, and what nobody has approved."""

NOT_SHOWN = "(it is sensitive and not copied)"
STATE = "Current State"
LONGEST_NOTE = 400


class CompactLine(PackLine, frozen=True):
    """A line of a summary. Its kind is its section."""

    number: int = 0
    """The number of the message that it shows."""
    sources: tuple[str, ...] = ()
    """The events whose words it holds."""
    whole: bool = True
    """Whether it says all that its source does."""


class Keeping:
    """The lines that a summary must hold, each once, and those that it may hold."""

    def __init__(self, session: Session, allowed: Collection[str]) -> None:
        self._session, self._allowed = session, allowed
        self._lines: dict[tuple[str, str], CompactLine] = {}
        self._said: list[tuple[int, Statement]] = []
        self.notes: list[CompactLine] = []
        """Session notes, the last first: they are shown if there is room."""

    def lines(
        self, messages: list[tuple[int, Statement]]
    ) -> tuple[list[CompactLine], list[CompactLine], Standing]:
        """What must be kept, what is kept if there is room, and what stands of the statements in documents and
        messages. Statements come with their positions in the book, which say which of two is later."""
        said = sorted((*self._said, *messages), key=lambda pair: pair[0])
        standing = Standing(statement for _, statement in said)
        self._state_all(standing, LABELLED)
        must = len(self._lines)
        self._state_all(standing, IF_ROOM)
        lines = list(self._lines.values())
        order = [OBJECTIVE, BLOCKERS, DECISIONS, CONSTRAINTS]
        return sorted(lines[:must], key=lambda line: order.index(line.kind)), lines[must:], standing

    def _state_all(self, standing: Standing, labelled: dict[str, tuple[str, str]]) -> None:
        for what, (section, label) in labelled.items():
            for statement in standing.of(what):
                by = as_name(statement.by)
                where = f"#{statement.number} {by}" if statement.number else statement.by
                self._add(section, f"{label}: ", statement.text, where, (statement.source,), statement.shown)

    def _add(
        self, section: str, label: str, text: str, where: str, sources: tuple[str, ...], shown: bool = True
    ) -> None:
        words = as_data(text) if shown else NOT_SHOWN
        key = (section, same_words(words) if shown else where)
        if words and key not in self._lines:
            line = CompactLine(
                f"{section} {len(self._lines)}", section, f"- {label}", words, f" ({where})",
                sources=sources if shown else (), whole=shown,
            )  # fmt: skip
            self._lines[key] = line

    # documents

    def documents(self, task: str | None) -> None:
        """NOTES.md, and with a task its session notes, the decisions in its folder and its last gates."""
        documents = Documents(self._session)
        for entry in documents.get(NOTES):
            for line in entry.text.splitlines():
                if not self._state(entry, line, NOTES) and line.strip("#-*+ \t"):
                    self._add(OBJECTIVE, "", line.strip("#-*+ \t"), NOTES, (entry.id,), self._shows(entry))
        if task is None:
            return
        listed, state = documents.get(session_path(task)), None
        for entry in listed:
            self._state(entry, entry.text, "session notes")
            state = entry if entry.section == STATE else state
        if state is not None:
            self._add(OBJECTIVE, f"{STATE}: ", state.text, "session notes", (state.id,), self._shows(state))
        self.notes = [self._note(entry) for entry in reversed(listed) if entry is not state]
        folder = f"{TASKS}{slug(task)}/"
        with self._session.viewer() as viewer:
            places = paths(viewer.views, folder)
        gates = [entry for path in places if path.endswith(".ndjson") for entry in documents.get(path)]
        self._gates(sorted(gates, key=lambda entry: entry.position))
        for entry in documents.get(f"{folder}decisions.md"):
            where = f"decisions.md {entry.id}"
            self._add(DECISIONS, "DECISION: ", entry.text, where, (entry.id,), self._shows(entry))

    def _state(self, entry: DocumentEntry, text: str, where: str) -> bool:
        """Take the statements of an entry. Answers whether one of them is kept as such."""
        found = [
            (entry.position, Statement(what, words, entry.id, by=where, shown=self._shows(entry)))
            for what, words in statements(text)
        ]
        self._said += found
        return any(statement.what in LABELLED for _, statement in found)

    def _shows(self, entry: DocumentEntry) -> bool:
        return entry.sensitivity in self._allowed

    def _note(self, entry: DocumentEntry) -> CompactLine:
        if not self._shows(entry):
            return CompactLine(
                entry.id, SESSION, f"- {entry.section}: ", NOT_SHOWN, f" ({entry.id})", whole=False
            )
        cut = len(entry.text) > LONGEST_NOTE
        text = as_data(entry.text[:LONGEST_NOTE]) + (CUT if cut else "")
        return CompactLine(
            entry.id,
            SESSION,
            f"- {entry.section}: ",
            text,
            f" ({entry.id})",
            sources=(entry.id,),
            whole=not cut,
        )

    def _gates(self, gates: list[DocumentEntry]) -> None:
        """The last gate says how the task stands. A gate that is blocked is a blocker until it says otherwise."""
        last = {json.loads(entry.text)["event_type"]: entry for entry in gates}
        for entry in gates:
            gate = json.loads(entry.text)
            payload, name = gate["payload"], gate["event_type"]
            if last[name] is not entry:
                continue
            phase = "" if gate.get("phase") is None else f" of phase {gate['phase']}"
            parts = (
                payload.get("reason", ""),
                payload.get("next_action") and f"next: {payload['next_action']}",
            )
            text = f"{name}{phase} is {payload['decision']}" + "".join(f"; {part}" for part in parts if part)
            if payload["decision"] == "BLOCKED":
                self._add(BLOCKERS, "BLOCKER: ", text, f"gate {entry.id}", (entry.id,), self._shows(entry))
            elif entry is gates[-1]:
                self._add(OBJECTIVE, "", text, f"gate {entry.id}", (entry.id,), self._shows(entry))

    # a work

    def work(self, id: str) -> None:
        """The goal and constraints of a work, decisions that hold, constraints and risks that were found, and what
        holds it up: blocked tasks, approvals and escalations that wait. Raises NotFound."""
        work = open_work(self._session, id)
        with work._reading(None) as (reading, rights):
            info, row = reading.info, reading.views.get("work.works", work.id)
            began = (row["event"], *self._at(info.position))
            blocked = sorted(reading.listed("blocked"), key=lambda task: task.number)
            added = [str(reading.views.get("work.ids", task.id)[2]) for task in blocked]
            waiting = [*pending(Approval, reading, rights), *pending(Escalation, reading, rights)]
        self._add(OBJECTIVE, "Goal: ", info.goal or info.name, f"work {info.id}", began)
        for text in info.constraints:
            self._add(CONSTRAINTS, "CONSTRAINT: ", text, f"work {info.id}", began)
        for task, event in zip(blocked, added, strict=True):
            text = f"{task.heading} is blocked" + (f": {task.reason}" if task.reason else "")
            self._add(BLOCKERS, "BLOCKER: ", text, f"task {task.id}", (event, *self._at(task.position)))
        for record in waiting:
            about = (
                f"{record.action} waits for an approval"
                if isinstance(record, Approval)
                else getattr(record, "text", "")
            )
            self._record(BLOCKERS, "BLOCKER: ", about, record)
        for decision in self._all(work, Decision):
            if decision.reversed_by is None and decision.status != "rejected":
                why = f", because {decision.rationale}" if decision.rationale else ""
                label = "APPROVED: " if decision.status == "approved" else "DECISION: "
                self._record(DECISIONS, label, f"{decision.question} {decision.choice}{why}", decision)
        for discovery in self._all(work, Discovery):
            if discovery.type in ("constraint", "risk"):
                label = "CONSTRAINT: " if discovery.type == "constraint" else "CONSTRAINT (risk): "
                self._record(CONSTRAINTS, label, discovery.text, discovery)

    def _all(self, work: Work, type: type[T]) -> list[T]:
        with work._reading(None) as (reading, rights):
            rows = reading.views.scan("work.log", work.id, EVENTS[type])
            return visible_records(type, reading, rights, [id for _, id in rows])

    def _record(self, section: str, label: str, text: str, record: WorkRecord) -> None:
        where = f"{as_name(record.by)} {record.id}"
        self._add(section, label, text, where, (record.id,), record.sensitivity in self._allowed)

    def _at(self, position: int) -> Iterator[str]:
        """The id of the event at a position."""
        return (event.id for event in self._session.ledger.events(position - 1, position))
