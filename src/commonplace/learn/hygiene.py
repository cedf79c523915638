"""The periodic audit of memory (checklist D): what pollutes it, and the command that cleans it up. It only reads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from ..documents.document import NOTES, SESSIONS, DocumentEntry, rendered, session_path
from ..documents.notes import check_notes
from ..documents.verbs import Documents
from ..ledger.checks import to_us
from ..ledger.printing import LeftOut, Readable, number
from ..ledger.scopes import name_of
from ..memory.items import Item
from ..memory.tidy import DAY_US
from ..recall.verification import Checks
from .duplicates import DuplicateEntries, duplicates
from .notes_review import TaskState, reviewed, task_states

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

VOLATILE, WINDOW_DAYS = 3, 30
"""A fact that was superseded so often in so many days is volatile."""

SECTIONS = (
    "duplicates", "stale_citations", "stale_notes", "volatile_facts", "unused_sessions", "style_violations",
)  # fmt: skip


class HygieneFinding(Readable, msgspec.Struct, frozen=True):
    """Something that pollutes memory: which items, or which lines of which document, and the commands that help."""

    what: str
    next: tuple[str, ...]
    items: tuple[str, ...] = ()
    document: str = ""
    lines: tuple[int, ...] = ()
    scope: str = ""

    def __str__(self) -> str:
        return self.what


class HygieneReport(Readable, msgspec.Struct, frozen=True):
    """What an audit of memory has found, section by section, and what it could not look at."""

    ok: bool
    """Whether nothing was found."""
    duplicates: tuple[DuplicateEntries, ...] = ()
    """Five or more entries about one subject or command."""
    stale_citations: tuple[HygieneFinding, ...] = ()
    """Items that cite a file, symbol or line that is gone."""
    stale_notes: tuple[HygieneFinding, ...] = ()
    """Lines of NOTES.md about what is over."""
    volatile_facts: tuple[HygieneFinding, ...] = ()
    """Facts that were superseded three times in 30 days."""
    unused_sessions: tuple[HygieneFinding, ...] = ()
    """Session notes that nobody writes to any more, or whose task is over."""
    style_violations: tuple[HygieneFinding, ...] = ()
    """Lines of NOTES.md that do not belong there."""
    left_out: tuple[LeftOut, ...] = ()
    """What was not looked at, and why."""
    as_of: int = 0

    def __str__(self) -> str:
        count = sum(len(getattr(self, section)) for section in SECTIONS)
        lines = [f"{number(count, 'finding') if count else 'memory is clean'} as of position {self.as_of}"]
        for section in SECTIONS:
            findings: Sequence[DuplicateEntries | HygieneFinding] = getattr(self, section)
            lines += [f"{section.replace('_', ' ')}:"] if findings else []
            for finding in findings:
                where = f" (in {finding.scope})" if finding.scope else ""
                lines += [f"- {finding}{where}", *(f"    next: {command}" for command in finding.next)]
        return "\n".join([*lines, *(f"not looked at: {part.what} ({part.why})" for part in self.left_out)])


def hygiene(session: Session, *, at: At = None, now: datetime | None = None) -> HygieneReport:
    """Look through memory for what pollutes it, as of `at`: duplicates, stale citations, stale lines of NOTES.md,
    volatile facts, unused session notes, and lines that do not belong into NOTES.md. Each finding names items or lines
    and the command that helps. It changes nothing: what is found of files is recorded as a check, as every check is."""
    session.check_memory_is_on()
    now_us = session.ledger.moment(at) if now is None else to_us("now", now)
    left_out = list[LeftOut]()
    found = dict[str, tuple[DuplicateEntries, ...] | tuple[HygieneFinding, ...]]()
    if session.reads("long_term", at):
        found |= _of_items(session, at, now_us, left_out)
    else:
        left_out.append(LeftOut("items", f"{session.actor!r} may not read the long_term tier"))
    if session.reads("working", at):
        found |= _of_documents(session, at, now_us)
    else:
        left_out.append(
            LeftOut("NOTES.md and session notes", f"{session.actor!r} may not read the working tier")
        )
    as_of = session.ledger.position(at)
    return HygieneReport(not any(found.values()), **found, left_out=tuple(left_out), as_of=as_of)  # type: ignore[arg-type]


# items


def _of_items(
    session: Session, at: At, now_us: int, left_out: list[LeftOut]
) -> dict[str, tuple[DuplicateEntries, ...] | tuple[HygieneFinding, ...]]:
    checks = Checks(session, at)
    with session.viewer(at) as viewer:
        items = {item.id: item for item in viewer.items()}
        standing = [item for item in items.values() if item.current and not item.expired(now_us)]
        waiting = [item for item in items.values() if item.status == "held" and item.kind != "episode"]
        found = checks.of(viewer.views, standing)
        stale = {id: known.check.stale for id, known in found.items() if known.check.stale}
        entries = [item for item in (*standing, *waiting) if item.valid(now_us) and item.kind != "episode"]
        groups = duplicates(map(viewer.shown, entries), stale)
        citing = [(viewer.shown(items[id]), why) for id, why in sorted(stale.items())]
        volatile = [(viewer.shown(item), ids) for item, ids in _volatile(items, now_us)]
    if not (session.refusal or session.ledger.store.facts.read_only):
        checks.record()
    if at is not None:
        left_out.append(LeftOut("files", "as of the past only the recorded checks of citations count"))
    elif session.services.repository is None:
        left_out.append(
            LeftOut(
                "citations",
                "they were not checked: the book has no repository; open it with repository=FOLDER",
            )
        )
    session.was_shown([item.id for item, _ in (*citing, *volatile)])
    return {
        "duplicates": tuple(groups),
        "stale_citations": tuple(_citing(item, why) for item, why in citing),
        "volatile_facts": tuple(
            HygieneFinding(
                f"{item.id} ({_short(item)}) was superseded {len(ids)} times in {WINDOW_DAYS} days: keep what changes "
                "so often in the task's folder",
                (
                    f"commonplace memory history {item.id}",
                    f"commonplace memory archive {item.id} --why volatile",
                ),
                (item.id, *ids),
                scope=item.scope,
            )
            for item, ids in volatile
        ),
    }


def _citing(item: Item, why: str) -> HygieneFinding:
    again = f"commonplace memory verify {item.id} --why 'looked at it'"
    superseding = (
        f"commonplace memory fact {shlex.quote(item.key or '')} FACT --citation FILE:LINE --reason WHY "
        f"--category {item.category} supersedes={item.id}"
    )
    archive = f"commonplace memory archive {item.id} --why {shlex.quote(why)}"
    changed = "have changed" in why
    commands = [*([again] if changed else []), *([superseding] if item.repository else []), archive]
    return HygieneFinding(f"{item.id} ({_short(item)}): {why}", tuple(commands), (item.id,), scope=item.scope)


def _short(item: Item) -> str:
    return item.text if len(item.text) <= 60 else f"{item.text[:59]}…"


def _volatile(items: Mapping[str, Item], now_us: int) -> Iterator[tuple[Item, tuple[str, ...]]]:
    """The facts that stand and whose forerunners were superseded so often, each with those. What the reader may not see
    does not count."""
    since = now_us - WINDOW_DAYS * DAY_US
    for item in items.values():
        if item.kind != "fact" or not item.current:
            continue
        chain, rest = dict[str, Item](), [*item.supersedes]
        while rest:
            before = items.get(rest.pop())
            if before is not None and before.id not in chain:
                chain[before.id] = before
                rest += before.supersedes
        recent = tuple(id for id, before in chain.items() if since <= before.updated_us <= now_us)
        if len(recent) >= VOLATILE:
            yield item, recent


# documents


def _of_documents(session: Session, at: At, now_us: int) -> dict[str, tuple[HygieneFinding, ...]]:
    """What is found in the notes and session notes of every scope that this session reads."""
    found = dict[str, list[HygieneFinding]]()
    with session.viewer(at) as viewer:
        scopes = viewer.rights_then.scopes
        keys = (
            ["", *(str(key) for _, key in viewer.views.scan("scopes.keys"))]
            if scopes is None
            else sorted(scopes)
        )
        names = {key: name_of(viewer.now, key) for key in keys}
        age = viewer.settings.archive_days
    for key, scope in names.items():
        documents = readable_documents(session.alone_in(key), at)
        tasks = task_states(documents)
        text = rendered(NOTES, documents.get(NOTES, ()))
        option = f" --scope {shlex.quote(scope)}" if scope else ""
        found.setdefault("stale_notes", []).extend(_stale_notes(text, tasks, scope, option))
        found.setdefault("style_violations", []).extend(_style(text, scope, option))
        found.setdefault("unused_sessions", []).extend(_unused(documents, tasks, now_us, age, scope, option))
    return {section: tuple(findings) for section, findings in found.items()}


def readable_documents(session: Session, at: At = None) -> dict[str, Sequence[DocumentEntry]]:
    """The entries of NOTES.md, session notes and task folders of the session's scope that it may see."""
    documents = Documents(session)
    return {path: documents.get(path, at) for path in documents.list(at)}


def _stale_notes(
    text: str, tasks: Mapping[str, TaskState], scope: str, option: str
) -> Iterator[HygieneFinding]:
    for finding in reviewed(text, tasks):
        if finding.verdict != "unclear" and not finding.style:
            prune = f"commonplace learn prune-notes{option}"
            command = (
                prune if finding.verdict == "stale" else f"commonplace documents write-notes TEXT{option}"
            )
            yield HygieneFinding(str(finding), (command,), document=NOTES, lines=(finding.line,), scope=scope)


def _style(text: str, scope: str, option: str) -> Iterator[HygieneFinding]:
    for violation in check_notes(text):
        command = f"commonplace learn prune-notes{option}"
        yield HygieneFinding(str(violation), (command,), document=NOTES, lines=(violation.line,), scope=scope)


def _unused(
    documents: Mapping[str, Sequence[DocumentEntry]],
    tasks: Mapping[str, TaskState],
    now_us: int,
    age: int,
    scope: str,
    option: str,
) -> Iterator[HygieneFinding]:
    for path, entries in documents.items():
        if not path.startswith(SESSIONS):
            continue
        task = path.removeprefix(SESSIONS).removesuffix("-notes.md")
        last = max(entry.written_us for entry in entries)
        state = tasks.get(task, TaskState())
        days = (now_us - last) // DAY_US
        if state.over:
            why = f"its task is over: the folder of {task} says {state.status}"
        elif days >= age:
            why = f"nobody has written to it for {days} days"
        else:
            continue
        # the folder of a long title ends in a digest, which its name does not lead back to
        named = session_path(task) == path
        command = f"commonplace documents {f'clear-session {task}' if named else f'get {path}'}{option}"
        yield HygieneFinding(f"{path}: {why}", (command,), document=path, scope=scope)
