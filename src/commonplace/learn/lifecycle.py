"""The lifecycle of a task: five moments, each one call that reads and writes what belongs to it.

                      reads                                                 writes
    context start     session notes and NOTES.md; a list of the files       nothing
    phase start       the task's folder                                     a session note; facts that are promoted
    phase end                                                               the completion report and NOTES.md
    task complete                                                           facts of the repository; that it is DONE
    conversation end                                                        session notes are cleared; which phase is
                                                                            under way goes into the task's folder

The documents of one call are written in one commit. Every call can be repeated, such as after a kill: what is there
already is not written again, and a fact that is known is merged. A report or note is there already if it is the last
one of its phase and says the same, and the phase was not started or ended again since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..access.commands import need_tier
from ..access.masking import masked
from ..access.rights import rights_of
from ..documents.document import (
    NOTES,
    SESSIONS,
    TASKS,
    DocumentEntry,
    entries,
    folder_entries,
    rendered,
    session_path,
    slug,
    task_path,
    verified_items,
)
from ..documents.notes import check_notes
from ..documents.verbs import entry_request
from ..documents.verified import VERIFIED_ITEMS, regressed
from ..documents.writing import DOCUMENTS, WriteDocument, decide_write
from ..errors import BadInput, Conflict, Denied, NotFound, shown
from ..ledger.checks import check_each, check_name, check_text, check_whole
from ..ledger.events import Event
from ..ledger.overlay import Overlay
from ..ledger.printing import LeftOut, Readable, number
from ..memory.tidy import NOT_ENDED
from ..memory.viewer import Viewer
from ..recall.changed_facts import check_entries
from ..recall.verification import Checks
from .note_lines import folder_names, names_task, note_lines, open_blockers
from .notes_review import task_states
from .promotion import PromotionReport, review_candidates
from .resume import (
    COMPLETION,
    PHASES,
    STATE,
    TaskPhases,
    documents_of,
    entry_line,
    folder_lines,
    heading,
    material_of,
    notes_lines,
    outline_line,
    packed_lines,
    phases_of,
    record_reading,
    session_lines,
    staleness_of,
    unknown_lines,
    unknown_task,
)
from .verified import verified

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

LONGEST_PHASE = 80
LONGEST_NAME = 60
"""How long the name of a phase is in the name of its report; a longer one ends in a digest."""
THERE_ALREADY = "it is there already"
HIDDEN = "an item that you may not see"
DESPITE = "\n\nDespite what has regressed: "
"""Stands before what had regressed when a report was written."""


class FileOutline(Readable, msgspec.Struct, frozen=True):
    """A document that can be read: its path, how much it holds, and how it begins."""

    path: str
    lines: int
    chars: int
    first_line: str

    def __str__(self) -> str:
        return f"{number(self.chars, 'character')}, {number(self.lines, 'line')}: {self.first_line}"


class WroteDocument(Readable, msgspec.Struct, frozen=True):
    """An entry that was written, or the clearing of a document."""

    path: str
    id: str

    def __str__(self) -> str:
        return f"{self.path} ({self.id})"


class LifecycleReport(Readable, msgspec.Struct, frozen=True):
    """What a call read, what it wrote, and what it left out or refused, and why."""

    moment: str
    task: str = ""
    phase: str = ""
    text: str = ""
    """What it read, within the budget."""
    read: tuple[str, ...] = ()
    """The documents that it read."""
    files: tuple[FileOutline, ...] = ()
    """The documents that there are."""
    wrote: tuple[WroteDocument, ...] = ()
    promotion: PromotionReport = PromotionReport()
    """What became of each fact."""
    left_out: tuple[LeftOut, ...] = ()
    title: str = ""
    """The name of the task as the caller gave it."""

    def __str__(self) -> str:
        about = ", ".join(
            part for part in (self.title or self.task, self.phase and f"phase {self.phase}") if part
        )
        parts = [self.text] if self.text else []
        parts.append(f"{self.moment} of {about}" if about else self.moment)
        parts += [f"read {', '.join(self.read)}"] if self.read else []
        parts += [f"wrote {each}" for each in self.wrote]
        parts += [f"fact {record}" for record in self.promotion.records]
        parts += [f"left out {each.what}: {each.why}" for each in self.left_out]
        return "\n".join(parts)


# the five moments


def context_start(
    session: Session,
    task: str | None = None,
    *,
    files: Sequence[str] = (),
    max_chars: int = 8000,
    at: At = None,
) -> LifecycleReport:
    """Read what a new context begins with: NOTES.md, the notes of the task's session if there are any, and a list of
    the files of sessions and tasks with their sizes and first lines. Writes nothing.

    `task` is the name of the task; without one, the files of all tasks are listed. `files` are those of the
    list to read in full, by their paths or by their names in the task's folder."""
    budget, checks = check_whole("max_chars", max_chars), Checks(session, at)
    wanted = [check_text("files", name) for name in check_each("files", files)]
    session.check_reads("working")
    folder = "" if task is None else f"{TASKS}{slug(task)}/"
    notes = "" if task is None else session_path(task)
    with session.viewer(at) as viewer:
        places = (SESSIONS, TASKS) if task is None else (notes, folder)
        documents = documents_of(session, viewer, (NOTES, *places))
        wanted_paths = [path if path in documents else folder + path for path in wanted]
        if missing := [
            path for path, found in zip(wanted, wanted_paths, strict=True) if found not in documents
        ]:
            there = ", ".join(documents) or "none"
            raise NotFound(f"files names {shown(missing[0])}, which is not there: there are {there}")
        read = [path for path in dict.fromkeys((NOTES, notes, *wanted_paths)) if path in documents]
        stale = staleness_of(viewer, checks, [entry for path in read for entry in documents[path]])
        known = task is None or any(path.startswith((notes, folder)) for path in documents)
        unknown = "" if task is None or known else unknown_task(session, viewer, task)
    outlines = [_outline(path, listed) for path, listed in documents.items() if path != NOTES]
    in_folder = {path.removeprefix(folder): listed for path, listed in documents.items() if task is not None}
    said = documents.get(notes, [])
    current, other, behind = session_lines(said, phases_of(said, in_folder), stale)
    lines = [
        *unknown_lines(unknown),
        *notes_lines(documents.get(NOTES, ()), stale),
        *current,
        *other,
        *behind,
        *(outline_line(place, each.path, str(each)) for place, each in enumerate(outlines)),
        *(
            entry_line("Task folder", path, entry, stale)
            for path in wanted_paths
            for entry in documents[path]
        ),
    ]
    above = "Context start" if task is None else heading("Context start of", task)
    text, taken, left_out = packed_lines(above, lines, budget)
    if unknown:
        left_out = (LeftOut("the task", unknown), *left_out)
    record_reading(session, checks, taken)
    return LifecycleReport(
        "context start", "" if task is None else slug(task), text=text, read=tuple(read), files=tuple(outlines),
        left_out=left_out, title="" if task is None else _title(task),
    )  # fmt: skip


def phase_start(
    session: Session,
    task: str,
    phase: str | int,
    *,
    note: str = "",
    facts: Sequence[Mapping[str, Any]] = (),
    max_chars: int = 8000,
) -> LifecycleReport:
    """Begin a phase of a task: read the task's folder, note in the session which phase is under way, and promote facts
    that hold beyond this task to the repository. The call can be repeated safely.

    `task` is the name of the task. `phase` is the name or number of the phase. `note` is what else the session should
    know. `facts` are what may be promoted, each a mapping (in a shell, a JSON object) with subject, fact, citations,
    reason and category."""
    budget, named = check_whole("max_chars", max_chars), _phase(phase)
    path, report = session_path(task), _report_path(task, named)
    said = f"Phase {named} started." + (f" {note.strip()}" if check_text("note", note).strip() else "")
    request = entry_request(session, path, "append", said, STATE, named="note", about=named)
    checks = Checks(session)
    material = material_of(session, task, None, checks)
    text, taken, left_out = packed_lines(
        heading("Folder of", material.title), [*folder_lines(material)], budget
    )
    record_reading(session, checks, taken)
    promotion = _promoted(session, task, facts)
    written = _write(session, WriteMoment(session.actor, session.run, (request,), beside=(report,)))
    folder = tuple(f"{TASKS}{material.slug}/{name}" for name in material.folder)
    return LifecycleReport(
        "phase start", material.slug, named, text, folder, (), written.wrote, promotion,
        (*left_out, *written.left_out), material.title,
    )  # fmt: skip


def phase_end(
    session: Session,
    task: str,
    phase: str | int,
    *,
    report: str,
    notes: str | None = None,
    next_phase: str | int | None = None,
    despite: str = "",
) -> LifecycleReport:
    """End a phase of a task: write its completion report into the task's folder, and NOTES.md, in one commit. The call
    can be repeated safely. Raises Conflict, and writes nothing, while a verified item of the task has regressed.

    `task` is the name of the task. `phase` is the name or number of the phase. `report` is what was done. `notes` is
    the whole text of NOTES.md; without it, the line of the objective names the task and this phase, and the other
    lines stay. If the objective is another task that is not over, NOTES.md stays as it is. `next_phase` is the name or
    number of the phase that comes next, as that line will say. `despite` is a reason to end it although an
    item has regressed, which is recorded with the report."""
    named, path, phases = _phase(phase), session_path(task), task_path(task, PHASES)
    writes = [
        entry_request(session, _report_path(task, named), "append", report, named="report", about=named)
    ]
    objective = ""
    if notes is None:
        follows = "" if next_phase is None else f"; next: {_phase(next_phase)}"
        objective = f"- Objective: {_title(task)} (phase: {named}, complete{follows})"
        if wrong := check_notes(objective):
            raise BadInput(
                f"NOTES.md cannot name this task and phase ({'; '.join(each.message for each in wrong)}): give notes "
                "as it should read"
            )
    else:
        writes.append(entry_request(session, NOTES, "set", notes, named="notes"))
    moment = WriteMoment(
        session.actor, session.run, tuple(writes), beside=(path, phases), items=task_path(task, VERIFIED_ITEMS),
        despite=_why(despite), objective=objective, what=f"phase {named} of {slug(task)} cannot end",
        task=_title(task), ends=named,
    )  # fmt: skip
    written = _write(session, moment)
    return LifecycleReport(
        "phase end", slug(task), named, wrote=written.wrote, left_out=written.left_out, title=_title(task)
    )


def task_complete(
    session: Session,
    task: str,
    *,
    facts: Sequence[Mapping[str, Any]] = (),
    report: str = "",
    despite: str = "",
) -> LifecycleReport:
    """Complete a task: promote what was learned to facts of the repository, and write into the task's folder that it is
    DONE, so that it can be archived. The call can be repeated safely. Raises Conflict, and writes nothing, while a
    verified item of the task has regressed.

    `task` is the name of the task. `facts` are what may be promoted, each a mapping (in a shell, a JSON object) with
    subject, fact, citations, reason and category. `report` is what came of it. `despite` is a reason to complete it
    although an item has regressed, which is recorded with the report."""
    said = "Status: DONE" + (f"\n\n{report.strip()}" if check_text("report", report).strip() else "")
    request = entry_request(session, task_path(task, COMPLETION), "append", said, named="report")
    moment = WriteMoment(
        session.actor, session.run, (request,), items=task_path(task, VERIFIED_ITEMS), despite=_why(despite),
        what=f"the task {slug(task)} cannot be completed",
    )  # fmt: skip
    if not moment.despite:  # before facts are promoted; it is checked again with the write
        _check_none_regressed(moment.what, [str(item) for item in verified(session, task).regressed])
    unknown = _unknown(session, task)
    promotion = _promoted(session, task, facts)
    written = _write(session, moment)
    return LifecycleReport(
        "task complete", slug(task), wrote=written.wrote, promotion=promotion,
        left_out=(*unknown, *written.left_out, *_unfinished(session, task)), title=_title(task),
    )  # fmt: skip


def conversation_end(session: Session, task: str) -> LifecycleReport:
    """End a conversation: clear the notes of the task's session. Agents cannot read them any more, also as of before;
    the owner still can, as of before. Which phases are under way is written into the task's folder in the same commit,
    so that resume still names them.

    `task` is the name of the task."""
    request = entry_request(session, session_path(task), "clear", "")
    written = _write(session, WriteMoment(session.actor, session.run, (request,), task=_title(task)))
    return LifecycleReport(
        "conversation end", slug(task), wrote=written.wrote, left_out=written.left_out, title=_title(task)
    )


def _promoted(session: Session, task: str, facts: Sequence[Mapping[str, Any]]) -> PromotionReport:
    """Promote facts, unless the write that comes next will be refused: then nothing is written."""
    if not facts or session.rights().tier("working") != "read_write":
        return PromotionReport()
    return review_candidates(session, facts, task=task, write=True)


def _phase(phase: object) -> str:
    """The name of a phase. Raises BadInput."""
    name = str(phase) if type(phase) is int and 0 <= phase < 2**63 else phase
    if not isinstance(name, str) or len(name) > LONGEST_PHASE or not any(sign.isalnum() for sign in name):
        raise BadInput(
            f"phase {shown(phase)} does not name a phase: give a number, or up to {LONGEST_PHASE} characters with a "
            "letter or digit"
        )
    return check_name("phase", name)


def _title(task: str) -> str:
    return " ".join(task.split())


def _why(despite: str) -> str:
    return str(masked(" ".join(check_text("despite", despite).split())))


def _report_path(task: str, phase: str) -> str:
    name = slug(phase)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
    return task_path(task, f"phase-{name}-report")


def _outline(path: str, listed: Sequence[DocumentEntry]) -> FileOutline:
    text = rendered(path, listed)
    first = next((line for line in text.splitlines() if line.strip() and not line.startswith("#")), "")
    if items := verified_items(listed):
        first = "; ".join(f"{item.id} {item.status}" for item in items)
    return FileOutline(path, len(text.splitlines()), len(text), first[:120])


def _unknown(session: Session, task: str) -> list[LeftOut]:
    """That nothing is written about a task, if it is so: its name may be mistyped."""
    with session.viewer() as viewer:
        if documents_of(session, viewer, (session_path(task), f"{TASKS}{slug(task)}/")):
            return []
        return [LeftOut("the task", f"before this call: {unknown_task(session, viewer, task)}")]


def _unfinished(session: Session, task: str) -> list[LeftOut]:
    """What keeps the folder of a completed task from being archived, and what NOTES.md still says."""
    with session.viewer() as viewer:
        documents = documents_of(session, viewer, (NOTES, f"{TASKS}{slug(task)}/"))
    left = list[LeftOut]()
    for path, listed in documents.items():
        if path == NOTES:
            title = " ".join(task.split()).casefold()
            if any(title in entry.text.casefold() for entry in listed):
                left.append(LeftOut(NOTES, "it still names this task: write the next objective"))
        elif other := next((found for entry in listed if (found := NOT_ENDED.search(entry.text))), None):
            why = f"it says {other[0].strip()!r}, so that a person decides whether the folder is archived"
            left.append(LeftOut(path, why))
    return left


# writing


class WriteMoment(msgspec.Struct, frozen=True):
    """Write the documents of one moment in the lifecycle of a task, those that are not there already."""

    by: str
    run: str | None
    writes: tuple[WriteDocument, ...]
    beside: tuple[str, ...] = ()
    """The documents that the other end of the phase is noted in: an entry there means that the phase was started or
    ended again since."""
    items: str = ""
    """The verified items of the task: while one has regressed, nothing is written."""
    despite: str = ""
    objective: str = ""
    """The line of NOTES.md that names the objective; the other lines stay."""
    what: str = ""
    """What cannot be done while an item has regressed."""
    task: str = ""
    """The name of the task."""
    ends: str = ""
    """The phase that ends."""


class WrittenMoment(msgspec.Struct, frozen=True):
    events: tuple[Event, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def wrote(self) -> tuple[WroteDocument, ...]:
        return tuple(WroteDocument(event.payload["path"], event.id) for event in self.events)


def _write(session: Session, moment: WriteMoment) -> WrittenMoment:
    session.check_enabled("memory.write", "working")
    written: WrittenMoment = session.submit("lifecycle.write", moment, "note")
    check_entries(session, written.events)
    return written


def decide_moment(overlay: Overlay, moment: WriteMoment) -> WrittenMoment | Denied:
    """All documents, or none. What is there already is read inside the transaction: so of two calls at once, or of a
    call and its repetition, the second finds what the first has written."""
    refused = need_tier(overlay, moment.by, "working", True, moment.run)
    if refused:
        return refused
    main = moment.writes[0]
    before = _last_alike(overlay, main, moment.beside)
    notes, left_out = _notes(overlay, moment)
    writes = list[WriteDocument]()
    if notes is not None and before is not None and _last_position(overlay, NOTES) > before.position:
        left_out.append(LeftOut(NOTES, "it was written since this call was first made"))
    elif notes is not None:
        writes.append(notes)
    if before is not None:
        left_out.append(LeftOut(main.path, THERE_ALREADY))
    elif main.act == "clear" and not entries(overlay, main.path):
        left_out.append(LeftOut(main.path, "there is nothing to clear"))
    elif main.act == "clear":
        writes += [*_under_way(overlay, moment), main]
    else:  # after NOTES.md: what is written to that later has a later position than this
        writes.append(_despite(overlay, moment))
        if moment.despite and writes[-1] is main:
            left_out.append(LeftOut("despite", "nothing has regressed, so no reason was needed"))
        left_out += _still_under_way(overlay, moment)
    events = list[Event]()
    for write in writes:
        event = overlay.run(DOCUMENTS.name, decide_write, write)
        if isinstance(event, Denied):  # of the first one, before anything was written
            return event
        events.append(event)
    return WrittenMoment(tuple(events), tuple(left_out))


def _last_alike(overlay: Overlay, write: WriteDocument, beside: Sequence[str]) -> DocumentEntry | None:
    """The entry that an earlier call with the same content has written, if nothing came after it that makes this
    another call."""
    of_phases = [entry for entry in entries(overlay, write.path) if bool(entry.about) == bool(write.about)]
    last = of_phases[-1] if of_phases and write.act != "clear" else None
    if last is None or last.about != write.about:
        return None
    if last.text != write.text and not last.text.startswith(write.text + DESPITE):
        return None
    others = [entry for path in beside for entry in entries(overlay, path)]
    again = any(entry.about == last.about and entry.position > last.position for entry in others)
    return None if again else last


def _last_position(overlay: Overlay, path: str) -> int:
    return max((entry.position for entry in entries(overlay, path)), default=0)


def _phases(overlay: Overlay, moment: WriteMoment) -> TaskPhases:
    """The phases of the task of a moment, as far as its author may see them."""
    name, viewer = slug(moment.task), _viewer(overlay, moment)
    folder = {
        path.removeprefix(f"{TASKS}{name}/"): [entry for entry in listed if viewer.sees(entry)]
        for path, listed in folder_entries(overlay, name).items()
    }
    notes = [entry for entry in entries(overlay, session_path(moment.task)) if viewer.sees(entry)]
    return phases_of(notes, folder)


def _viewer(overlay: Overlay, moment: WriteMoment) -> Viewer:
    return Viewer(((overlay, rights_of(overlay, moment.by, moment.run)),))


def _under_way(overlay: Overlay, moment: WriteMoment) -> list[WriteDocument]:
    """What the folder of the task must say of phases under way before the session notes, which say so, are cleared. It
    says nothing else of these notes, and is as sensitive as they are."""
    path = task_path(moment.task, PHASES)
    noted = {entry.id for entry in entries(overlay, path)}
    return [
        WriteDocument(
            moment.by, path, "append", f"A conversation ended while phase {start.about} was under way.", run=moment.run,
            about=start.about, secrets=start.secrets, parents=(start.id,),
        )
        for start in _phases(overlay, moment).open.values()
        if start.id not in noted
    ]  # fmt: skip


def _still_under_way(overlay: Overlay, moment: WriteMoment) -> list[LeftOut]:
    """The phases that are under way while one ends that was never started: one of the names may be mistyped."""
    if not moment.ends:
        return []
    phases = _phases(overlay, moment)
    if phases.was_started(moment.ends):
        return []
    why = f"it is still under way; {moment.ends!r}, which ends, was not started"
    return [LeftOut(f"phase {phase!r}", why) for phase in phases.under_way]


def _notes(overlay: Overlay, moment: WriteMoment) -> tuple[WriteDocument | None, list[LeftOut]]:
    """What to write to NOTES.md, if it is to be written, and what stays as it is, and why."""
    there = entries(overlay, NOTES)
    current = rendered(NOTES, there).strip()
    notes, left_out = next(iter(moment.writes[1:]), None), list[LeftOut]()
    viewer = _viewer(overlay, moment)
    if notes is None and moment.objective and not all(viewer.sees(entry) for entry in there):
        why = "you may not read all of it, so it stays: give notes, as it should read, or leave it to somebody who may"
        return None, [LeftOut(NOTES, why)]
    if notes is None and moment.objective:
        lines, place = current.splitlines(), 0
        if current:
            found = _objective(overlay, moment, current)
            if isinstance(found, LeftOut):
                return None, [found]
            place, left_out = found
        lines[place : place + 1] = [moment.objective]
        notes = WriteDocument(moment.by, NOTES, "set", "\n".join(lines), run=moment.run)
        if there and len(lines) > 1:
            # the lines that stay are as sensitive as before, and are erased with their source
            notes = replace(notes, secrets=there[-1].secrets, parents=(there[-1].id,))
    if notes is not None and notes.text.strip() == current:
        return None, [LeftOut(NOTES, THERE_ALREADY)]
    return notes, left_out


def _objective(overlay: Overlay, moment: WriteMoment, notes: str) -> tuple[int, list[LeftOut]] | LeftOut:
    """The place of the line that names the objective, if it is this task, or a task that is over; or why the notes stay
    as they are. Whatever is the objective of others stays."""
    lines = [line for line in note_lines(notes) if line.role == "objective"]
    named = [line for line in lines if line.says] or lines
    if not named:
        return LeftOut(NOTES, "no line of it names the objective: give notes, as it should read")
    states = {
        line.number: task_states(
            {
                path: listed
                for name in folder_names(line.says)
                for path, listed in folder_entries(overlay, name).items()
            }
        )
        for line in named
    }
    for line in named:
        if not line.says or names_task(line.says, moment.task, states[line.number]):
            return line.number - 1, []
    first, over = named[0], states[named[0].number].values()
    what = repr(masked(first.says))
    if not over or not all(state.over for state in over):
        return LeftOut(
            NOTES, f"its objective is {what}, not this task, so it stays: give notes, as it should read"
        )
    why = f"they were written for {what}, which is over: see whether they still hold"
    return first.number - 1, [LeftOut(f"blockers in {NOTES}", why)] if open_blockers(notes) else []


def _despite(overlay: Overlay, moment: WriteMoment) -> WriteDocument:
    """The main document of a moment, with the reason to write it although items have regressed. Raises Conflict if
    there is none."""
    main, listed = moment.writes[0], entries(overlay, moment.items) if moment.items else []
    viewer = _viewer(overlay, moment)
    hidden = {entry.report.item for entry in listed if entry.report is not None and not viewer.sees(entry)}
    items = regressed(verified_items(listed))
    if not moment.despite:
        _check_none_regressed(moment.what, [HIDDEN if item.id in hidden else str(item) for item in items])
    if not items:
        return main
    # Only names: what was found stands in the reports on the items, and is erased with them.
    names = ", ".join(HIDDEN if item.id in hidden else item.id for item in items)
    return replace(main, text=f"{main.text}{DESPITE}{names}\nReason to go on: {moment.despite}")


def _check_none_regressed(what: str, broken: Sequence[str]) -> None:
    if broken:
        raise Conflict(
            f"{what}: {'; '.join(broken)}. Verify it again (verify_item), or give a reason to go on as `despite`"
        )
