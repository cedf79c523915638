"""Checklists of memory: before a fact of the repository is written (A), and pruning NOTES.md (B)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import msgspec

from ..access.masking import kinds_of_secrets, masked
from ..documents.document import NOTES, TASKS, DocumentEntry, entries, rendered, slug, task_of
from ..documents.notes import check_notes
from ..documents.writing import WriteDocument, WriteDocuments
from ..errors import BadInput
from ..ledger.checks import check_each, check_text
from ..ledger.printing import Listing, Readable, number
from ..memory.exclusions import excluded
from ..memory.items import CATEGORIES
from ..memory.judging import Foreseen, foreseen
from ..memory.reading import compared
from ..memory.remember import checked_content
from ..memory.repository_facts import about_one_plan, checked_fact, lasting_subject
from ..recall.verification import cited_lines
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


class WrittenFact(NamedTuple):
    """A fact of the repository as its author gives it."""

    subject: str
    fact: str
    citations: Sequence[str] = ()
    reason: str = ""
    category: str | None = None
    override: str = ""

    @property
    def classified(self) -> str | None:
        """The category, however it is spelled; None if it is none."""
        form = self.category.strip().casefold() if isinstance(self.category, str) else ""
        return form if form in CATEGORIES else None


ABOUT_A_TASK = ("plan names and days", "task names", "beyond one plan")
"""The steps that keep what is about one task with the task."""


def check_fact(
    session: Session,
    subject: str,
    fact: str,
    *,
    citations: Sequence[str] = (),
    reason: str = "",
    category: str | None = None,
    override: str = "",
    at: At = None,
) -> FactChecklist:
    """Check a fact of the repository before it is written: every step of the checklist, with pass, fail, ask or skipped
    and what to do. It writes nothing; `memory.repository_fact` takes the same parameters, and `learn.promote` goes
    through the same steps.

    `subject` is what the fact is about. `fact` is one or two sentences. `override` is why it is kept although it looks
    like something that is told elsewhere, or names a day."""
    session.check_reads("long_term")
    citations = tuple(check_each("citations", citations))
    written = WrittenFact(subject, fact, citations, reason, category, override)
    kept = lasting_subject(" ".join(check_text("subject", subject).split()))
    steps = steps_of_fact(session, written, at=at)
    if any(step.outcome == "fail" for step in steps):
        told = "not looked at until the steps above pass"
        names = ("same fact", "near-duplicates", "outdated fact", "citations")
        steps += [ChecklistStep(name, "skipped", told) for name in names]
    else:
        content = checked_content(
            "fact", key=kept, value=fact, citations=list(citations), reason=reason, category=written.classified,
            repository=True,
        )  # fmt: skip
        with session.viewer(at) as viewer:
            met = _met(viewer, content, session.ledger.moment(at))
            steps += [_same(met), _near(viewer, content, met), _outdated(viewer, content, met)]
        shown = [
            item for item in (met.near, *met.against) if item is not None and item.agent != session.actor
        ]
        session.was_shown([item.id for item in shown])
        steps.append(_cited(session, citations, at))
    ok = all(step.outcome in ("pass", "skipped") for step in steps)
    return FactChecklist(ok, tuple(steps), masked(kept))


def steps_of_fact(
    session: Session, written: WrittenFact, task: str = "", at: At = None
) -> list[ChecklistStep]:
    """The steps that need no look at what is known. `check_fact` and `promote` go through them. `task` is the name of
    the task that has found it out. Raises BadInput for what is no text."""
    tasks = [*([slug(task)] if task else []), *_tasks(session, at)]
    kept = lasting_subject(" ".join(check_text("subject", written.subject).split()))
    return [
        _classified(written),
        _wanted(written, session.settings(at).exclusions == "off"),
        _complete(written),
        _lasting(written.subject, kept),
        _slugs(kept, tasks),
        _beyond(written, tasks),
    ]


def _classified(written: WrittenFact) -> ChecklistStep:
    if written.classified is not None:
        return ChecklistStep("classified", "pass", f"it is of the category {written.classified}")
    return ChecklistStep("classified", "fail", f"say which category it is: {', '.join(CATEGORIES)}")


def _wanted(written: WrittenFact, anything: bool) -> ChecklistStep:
    texts = [
        written.subject,
        check_text("fact", written.fact),
        written.reason,
        *check_each("citations", written.citations),
    ]
    if secrets := kinds_of_secrets([text for text in texts if isinstance(text, str)]):
        says = f"it holds a secret ({', '.join(secrets)}): keep that in a vault, and say where"
        return ChecklistStep("exclusions", "fail", says)
    why = None if anything or check_text("override", written.override).strip() else excluded(written.fact)
    if why:
        says = f"{why.reason} ({why.rule}: {why.evidence}); if it is worth keeping all the same, say why in override"
        return ChecklistStep("exclusions", "fail", says)
    says = "it is no code state, no git history and no state of a task under way"
    return ChecklistStep("exclusions", "pass", says)


def _complete(written: WrittenFact) -> ChecklistStep:
    try:
        checked_fact(written.subject, written.fact, written.citations, written.reason, written.category)
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


def _beyond(written: WrittenFact, tasks: Sequence[str]) -> ChecklistStep:
    name, plain = "beyond one plan", " ".join(written.fact.split())
    named = next((task for task in tasks if _names(plain, task)), "") or about_one_plan(plain)
    if named:
        says = (
            f"the fact is about one task ({named}): keep it in the task's folder, or say what holds beyond it"
        )
        return ChecklistStep(name, "fail", says)
    if written.override.strip():
        return ChecklistStep(name, "pass", "it names no plan or task, and override says why it is kept")
    reason = check_text("reason", written.reason)
    named = next((task for task in tasks if _names(reason, task)), "") or about_one_plan(reason)
    if named:
        says = f"the reason names one task ({named}): does it matter after that? If so, say why in override"
        return ChecklistStep(name, "ask", says)
    if lasting_subject(plain) != plain.strip(" ,;:–"):
        says = "the fact names a ticket or a day: does it hold beyond that? If so, say why in override"
        return ChecklistStep(name, "ask", says)
    return ChecklistStep(name, "pass", "it names no plan, day or task")


def _met(viewer: Viewer, content: dict[str, object], now_us: int) -> Foreseen:
    """What the fact would meet, as far as its author may see it then and now."""
    met = foreseen(viewer.views, viewer.rights_then, content, now_us)
    twin, broader, near = (
        None if item is None or not viewer.allows(item) else item
        for item in (met.twin, met.broader, met.near)
    )
    return Foreseen(twin, broader, tuple(filter(viewer.allows, met.against)), near, met.ended)


def _same(met: Foreseen) -> ChecklistStep:
    if met.twin is not None and not met.twin.current:
        says = f"the same waits already, as {met.twin.id}: bring more evidence with promote, or let it be resolved"
        return ChecklistStep("same fact", "ask", says)
    if met.ended:
        return ChecklistStep("same fact", "fail", met.ended)
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


def _cited(session: Session, citations: Sequence[str], at: At) -> ChecklistStep:
    root = session.services.repository
    if at is not None or root is None:
        why = "files are only looked at as of now" if at is not None else "the book has no repository"
        return ChecklistStep("citations", "skipped", f"not checked, because {why}: look at them yourself")
    found = [(citation, cited_lines(root, citation)) for citation in citations]
    if wrong := [f"{citation}: {place.wrong}" for citation, place in found if place.wrong and place.named]:
        return ChecklistStep("citations", "fail", f"{'; '.join(wrong)}. Cite where it can be seen now")
    if all(place.wrong for _, place in found):
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
