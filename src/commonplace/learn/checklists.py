"""Checklists of memory: before a fact of the repository is written (A), and pruning NOTES.md (B)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from ..access.masking import kinds_of_secrets, masked
from ..documents.document import NOTES, TASKS, DocumentEntry, entries, rendered, task_of
from ..documents.notes import check_notes
from ..documents.writing import WriteDocument, WriteDocuments
from ..errors import BadInput
from ..ledger.checks import check_text
from ..ledger.printing import Listing, Readable, number
from ..memory.exclusions import excluded
from ..memory.items import CATEGORIES, Item
from ..memory.judging import Foreseen, foreseen
from ..memory.reading import compared
from ..memory.remember import checked_content
from ..memory.repository_facts import checked_fact, lasting_subject
from ..recall.verification import check, claims
from .hygiene import readable_documents
from .note_lines import objective_of
from .notes_review import HISTORY, NoteFinding, reviewed, task_states

if TYPE_CHECKING:
    from ..ledger.events import Event
    from ..ledger.ledger import At
    from ..memory.viewer import Viewer
    from ..session import Session


# A: before a fact is written


class ChecklistStep(Readable, msgspec.Struct, frozen=True):
    """One step of a checklist: whether it passed, and what to do if it did not."""

    name: str
    outcome: Literal["pass", "fail", "ask", "skipped"]
    """fail: it must not be written so. ask: a choice comes first. skipped: it could not be checked here."""
    says: str

    def __str__(self) -> str:
        return f"{self.outcome}: {self.name}: {self.says}"


class FactChecklist(Listing[ChecklistStep], msgspec.Struct, frozen=True):
    """The steps before a fact of the repository is written, each with its answer."""

    ENTRIES: ClassVar[str] = "steps"

    ok: bool
    """Whether nothing fails and nothing has to be asked."""
    steps: tuple[ChecklistStep, ...]
    subject: str
    """The subject as it would be kept."""

    def __str__(self) -> str:
        head = "it can be written" if self.ok else "not yet"
        return "\n".join([f"{head}: {self.subject!r}", *map(str, self.steps)])


def check_fact(
    session: Session,
    subject: str,
    fact: str,
    *,
    citations: Sequence[str] = (),
    reason: str = "",
    category: str | None = None,
    at: At = None,
) -> FactChecklist:
    """Check a fact of the repository before it is written: every step of the checklist, with pass, fail, ask or skipped
    and what to do. It writes nothing; `memory.repository_fact` takes the same parameters.

    `subject` is what the fact is about. `fact` is one or two sentences."""
    session.check_reads("long_term")
    kept = lasting_subject(" ".join(check_text("subject", subject).split()))
    steps = [
        _classified(category),
        _wanted(check_text("fact", fact)),
        _complete(subject, fact, citations, reason, category),
        _lasting(subject, kept),
    ]
    tasks = _tasks(session, at)
    steps.append(_slugs(kept, tasks))
    if any(step.outcome == "fail" for step in steps):
        told = "not looked at until the steps above pass"
        names = ("same fact", "near-duplicates", "outdated fact", "beyond one plan", "citations")
        steps += [ChecklistStep(name, "skipped", told) for name in names]
    else:
        content = checked_content(
            "fact", key=kept, value=fact, citations=list(citations), reason=reason, category=category, repository=True
        )  # fmt: skip
        with session.viewer(at) as viewer:
            met = _met(viewer, content, session.ledger.moment(at))
            steps += [_same(met), _near(viewer, content, met), _outdated(viewer, content, met)]
        shown = [
            item for item in (met.near, *met.against) if item is not None and item.agent != session.actor
        ]
        session.was_shown([item.id for item in shown])
        steps += [_beyond(fact, reason, tasks), _cited(session, content, at)]
    ok = all(step.outcome in ("pass", "skipped") for step in steps)
    return FactChecklist(ok, tuple(steps), masked(kept))


def _classified(category: str | None) -> ChecklistStep:
    if category in CATEGORIES:
        return ChecklistStep("classified", "pass", f"it is of the category {category}")
    return ChecklistStep("classified", "fail", f"say which category it is: {', '.join(CATEGORIES)}")


def _wanted(fact: str) -> ChecklistStep:
    if secrets := kinds_of_secrets([fact]):
        says = f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and say where"
        return ChecklistStep("exclusions", "fail", says)
    if why := excluded(fact):
        says = f"{why.reason} ({why.rule}: {why.evidence}); if it is worth keeping all the same, say why in override"
        return ChecklistStep("exclusions", "fail", says)
    says = "it is no code state, no git history and no state of a task under way"
    return ChecklistStep("exclusions", "pass", says)


def _complete(
    subject: str, fact: str, citations: Sequence[str], reason: str, category: str | None
) -> ChecklistStep:
    try:
        checked_fact(subject, fact, citations, reason, category)
    except BadInput as error:
        return ChecklistStep("five fields", "fail", str(error).partition("repository: ")[2] or str(error))
    return ChecklistStep("five fields", "pass", "subject, fact, citations, reason and category are there")


def _lasting(subject: str, kept: str) -> ChecklistStep:
    name = "plan names and days"
    if subject.strip() and not kept:
        says = (
            "the subject names only a plan or a day: keep it in the task's folder, with documents.add_to_task"
        )
        return ChecklistStep(name, "fail", says)
    if kept != " ".join(subject.split()):
        return ChecklistStep(name, "pass", f"they are left out: the subject is kept as {masked(kept)!r}")
    return ChecklistStep(name, "pass", "the subject names none")


def _slugs(kept: str, tasks: Sequence[str]) -> ChecklistStep:
    named = [task for task in tasks if _names(kept, task)]
    if named:
        says = f"the subject names the task {named[0]}: leave that out, or keep the fact in the task's folder"
        return ChecklistStep("task names", "fail", says)
    return ChecklistStep("task names", "pass", "the subject names no task")


def _names(text: str, task: str) -> bool:
    """Whether a text names a task by the name of its folder; a single word may mean anything."""
    return "-" in task and task in re.findall(r"[\w-]+", text.casefold())


def _tasks(session: Session, at: At) -> list[str]:
    if not session.reads("working", at):
        return []
    return [
        *dict.fromkeys(task_of(path) for path in readable_documents(session, at) if path.startswith(TASKS))
    ]


def _met(viewer: Viewer, content: dict[str, object], now_us: int) -> Foreseen:
    """What the fact would meet, as far as its author may see it then and now."""
    met = foreseen(viewer.views, viewer.rights_then, content, now_us)
    twin, broader, near = (
        None if item is None or not viewer.allows(item) else item
        for item in (met.twin, met.broader, met.near)
    )
    return Foreseen(twin, broader, tuple(filter(viewer.allows, met.against)), near)


def _same(met: Foreseen) -> ChecklistStep:
    if met.twin is not None:
        return ChecklistStep(
            "same fact", "fail", f"it is known already, as {met.twin.id}: there is nothing to write"
        )
    if met.broader is not None:
        says = f"a more specific fact is known, {met.broader.id}: there is nothing to write, or supersede that one"
        return ChecklistStep("same fact", "fail", says)
    return ChecklistStep("same fact", "pass", "neither the same nor a more specific fact is known")


def _near(viewer: Viewer, content: dict[str, object], met: Foreseen) -> ChecklistStep:
    near = met.near
    if near is None or near in (met.twin, met.broader, *met.against):
        return ChecklistStep("near-duplicates", "pass", "nothing is nearly the same")
    says = (
        f"{compared(content, [viewer.shown(near)])}\nIt will be held. Choose: skip it; merge its citations and reason "
        f"into {near.id}; or create it with a rationale. To take the place of {near.id}, write it with supersedes"
    )
    return ChecklistStep("near-duplicates", "ask", says)


def _outdated(viewer: Viewer, content: dict[str, object], met: Foreseen) -> ChecklistStep:
    against = [item for item in met.against if item != met.broader]
    if not against:
        return ChecklistStep("outdated fact", "pass", "nothing under this subject says otherwise")
    ids = " and ".join(item.id for item in against)
    says = (
        f"{compared(content, map(viewer.shown, against))}\nIf {ids} is out of date, supersede it by name "
        f"(supersedes={against[0].id!r}); if both hold, give them subjects of their own"
    )
    return ChecklistStep("outdated fact", "ask", says)


def _beyond(fact: str, reason: str, tasks: Sequence[str]) -> ChecklistStep:
    name = "beyond one plan"
    plain = " ".join(fact.split())
    named = [task for task in tasks if _names(fact, task) or _names(reason, task)]
    if named:
        says = (
            f"it names the task {named[0]}: does it matter after that? If not, keep it in the task's folder"
        )
        return ChecklistStep(name, "ask", says)
    if lasting_subject(plain) != plain.strip(" ,;:–"):
        says = (
            "the fact names a plan or a day: does it hold beyond that? If not, keep it in the task's folder"
        )
        return ChecklistStep(name, "ask", says)
    return ChecklistStep(name, "pass", "it names no plan, day or task")


def _cited(session: Session, content: dict[str, object], at: At) -> ChecklistStep:
    root = session.services.repository
    item = Item(id="", agent=session.actor, **content)  # type: ignore[arg-type]
    if at is not None or root is None:
        why = "files are only looked at as of now" if at is not None else "the book has no repository"
        return ChecklistStep("citations", "skipped", f"not checked, because {why}: look at them yourself")
    if stale := check(root, item, None).stale:
        return ChecklistStep("citations", "fail", f"{stale}: cite where it can be seen now")
    if not any(claim.cited and claim.file for claim in claims(item)):
        return ChecklistStep(
            "citations", "ask", "no citation names a file that can be looked up: see whether it holds"
        )
    return ChecklistStep("citations", "pass", "what it cites is there")


# B: pruning the notes


class PrunedNotes(Readable, msgspec.Struct, frozen=True):
    """What was removed from NOTES.md, or would be, and what a person has to look at."""

    removed: tuple[NoteFinding, ...] = ()
    moved: tuple[str, ...] = ()
    """The documents that have the removed lines now."""
    left: tuple[NoteFinding, ...] = ()
    """Lines that only a person can judge or rewrite; they stay."""
    diff: str = ""
    blocked: str = ""
    """Why nothing was written though something is stale."""
    done: bool = False

    def __str__(self) -> str:
        if not self.removed and not self.left:
            return "nothing in NOTES.md is stale"
        if self.blocked:
            head = f"nothing was removed: {self.blocked}"
        elif not self.removed:
            head = "nothing in NOTES.md is stale for certain"
        else:
            head = f"{number(len(self.removed), 'line')} {'removed' if self.done else 'would be removed'}"
        lines = [head]
        lines += [f"- {finding}" for finding in self.removed]
        lines += [f"moved to {path}" for path in self.moved] if not self.blocked else []
        lines += [f"for a person: {finding}" for finding in self.left]
        return "\n".join([*lines, self.diff] if self.diff else lines)


def prune_notes(session: Session, *, dry_run: bool = False) -> PrunedNotes:
    """Remove what is stale from NOTES.md, and keep it in the folders of its tasks: an objective whose task is over,
    blockers that are resolved, phases that are reported complete, and lines that do not belong there. What is not
    certain is left for a person, and named. Raises Conflict if somebody writes the notes meanwhile."""
    session.check_reads("working")
    with session.viewer() as viewer:
        every = entries(viewer.views, NOTES)
        notes = [entry for entry in every if viewer.sees(entry)]
    text = rendered(NOTES, notes)
    findings = reviewed(text, task_states(readable_documents(session)))
    stale = tuple(finding for finding in findings if finding.verdict == "stale")
    gone = {finding.line for finding in stale}
    lines = text.splitlines()
    after = [line for number, line in enumerate(lines, 1) if number not in gone]
    report = PrunedNotes(
        tuple(map(_shown, stale)),
        tuple(_histories(stale, text)),
        tuple(_shown(finding) for finding in findings if finding.verdict != "stale"),
        "\n".join(unified_diff(_masked(lines), _masked(after), NOTES, NOTES, lineterm="")),
        _blocked(after, len(every) != len(notes)) if stale else "",
    )
    if not stale or report.blocked or dry_run:
        return report
    request = WriteDocuments(tuple(_writes(session, notes, stale, text, after)))
    events: list[Event] = session.submit("documents.write_many", request, "note")
    return msgspec.structs.replace(report, done=bool(events))


def _masked(lines: Sequence[str]) -> list[str]:
    return [masked(line) for line in lines]


def _shown(finding: NoteFinding) -> NoteFinding:
    return msgspec.structs.replace(finding, text=masked(finding.text))


def _blocked(after: Sequence[str], hidden: bool) -> str:
    """Why the notes cannot be written: the writer would lose lines that it may not read, or the rest breaks a rule."""
    if hidden:
        return "only somebody who may read all of NOTES.md can write it again"
    problems = check_notes("\n".join(after))
    return f"first rewrite what does not belong there: {problems[0].message}" if problems else ""


def _histories(stale: Sequence[NoteFinding], text: str) -> dict[str, list[NoteFinding]]:
    """The removed lines by the document that takes them: of the task that they are about, or of the objective."""
    fallback = objective_of(masked(text)) or "notes"  # the name of a folder is shown to everybody
    histories = defaultdict[str, list[NoteFinding]](list)
    for finding in stale:
        histories[f"{TASKS}{finding.task or fallback}/{HISTORY}"].append(finding)
    return dict(histories)


def _writes(
    session: Session,
    notes: Sequence[DocumentEntry],
    stale: Sequence[NoteFinding],
    text: str,
    after: Sequence[str],
) -> Iterator[WriteDocument]:
    """The notes without the stale lines, and these in the folders of their tasks. Both derive from the notes, so that
    they are as sensitive as these were, and are erased with them."""
    seen = max(entry.position for entry in notes)
    parents = tuple(entry.id for entry in notes)
    rest = "\n".join(after)
    texts = {NOTES: rest} | {
        path: "Removed from NOTES.md:\n\n" + "\n".join(f"{line.text}\n  ({line.why})" for line in lines)
        for path, lines in _histories(stale, text).items()
    }
    for path, content in texts.items():
        act = "append" if path != NOTES else "set" if rest.strip() else "clear"
        secrets = kinds_of_secrets([content])
        yield WriteDocument(
            session.actor, path, act, content if act != "clear" else "", run=session.run, secrets=secrets,
            sensitivity="sensitive" if secrets else "private", if_position=seen if path == NOTES else None,
            parents=parents,
        )  # fmt: skip
