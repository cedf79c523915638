"""What in NOTES.md is out of date, by what the folders of tasks say. Pure functions.

A line is `stale` when nothing but removing it is left to do, `rewrite` when it is out of date and holds something that
still counts, and `unclear` when a person has to look. Only what is stale is ever removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from ..documents.document import TASKS, DocumentEntry, task_of
from ..documents.notes import check_notes
from ..ledger.printing import Readable
from .note_lines import NoteLine, awaited, named_tasks, note_lines, standing

Verdict = Literal["stale", "rewrite", "unclear"]

OVER = ("DONE", "SUPERSEDED")
"""What a task's folder says of a task that is over; one that is DEFERRED may go on."""

HISTORY = "notes_history.md"
"""The document of a task's folder that takes what is removed from NOTES.md."""

STATUS = re.compile(r"(?im)^[ \t*_#-]*status[ \t*_]*:[ \t*_]*(\w+)[ \t*_.]*$")
"""A line that says the status and nothing else: a sentence about it, or a quotation, is none."""
_PHASE = re.compile(r"(?i)\bphase\W{0,3}(\d{1,4})\b")
_ENDED = re.compile(r"(?i)\bphase\W{0,3}\d{1,4}\W{1,3}(?:is )?complete")
"""The notes say themselves that the phase is over, as the end of a phase writes them."""
_REPORT = re.compile(r"(?i)report|complet|done|finish")
_SAYS_COMPLETE = re.compile(
    r"(?im)^\W*phase[-_ ]?(\d{1,4})\b"
    r"(?![^\n]*\b(?:not|in progress|when|if|until|once|to be|must|should|will|cannot|can't|half|partly|almost|badly"
    r"|redo|\d+ ?%)(?!\w))"
    r"[^\n]{0,80}\b(?:complete|completed|done|finished)\b"
)


class NoteFinding(Readable, msgspec.Struct, frozen=True):
    """A line of NOTES.md that is out of date, or may be, and why."""

    line: int
    text: str
    why: str
    verdict: Verdict = "stale"
    task: str = ""
    """The folder of the task that it belongs to, if one is known."""
    style: bool = False
    """Whether it breaks a rule for notes, whatever the tasks say."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.text.strip()!r}: {self.why}"


class TaskState(NamedTuple):
    """What the folder of a task says of it: its last status, and the phases that are reported complete."""

    status: str = ""
    phases: frozenset[int] = frozenset()

    @property
    def over(self) -> bool:
        return self.status in OVER


def task_states(documents: Mapping[str, Sequence[DocumentEntry]]) -> dict[str, TaskState]:
    """The states of tasks by the names of their folders, from the entries of documents by their paths. Of several
    statuses the one that was written last counts."""
    statuses, phases = dict[str, tuple[int, str]](), dict[str, set[int]]()
    for path, entries in documents.items():
        task, name = task_of(path), path.rpartition("/")[2]
        if not path.startswith(TASKS) or name == HISTORY:
            continue
        statuses.setdefault(task, (0, ""))
        of_task = phases.setdefault(task, set())
        if _REPORT.search(name):
            of_task.update(int(phase) for phase in re.findall(r"(?i)phase[-_]?(\d{1,4})", name))
        for entry in entries:
            status, complete = _gate(entry.text) if path.endswith(".ndjson") else _said(entry.text)
            of_task.update(complete)
            if status:
                statuses[task] = max(statuses[task], (entry.position, status))
    return {task: TaskState(status, frozenset(phases[task])) for task, (_, status) in statuses.items()}


def _said(text: str) -> tuple[str, set[int]]:
    statuses = STATUS.findall(text)
    return (statuses[-1].upper() if statuses else ""), {int(phase) for phase in _SAYS_COMPLETE.findall(text)}


def _gate(text: str) -> tuple[str, set[int]]:
    """A review that lets a phase pass reports it complete; a completion without a phase ends the task."""
    gate = json.loads(text)
    passed = gate["payload"].get("decision") == "GO"
    phase, kind = gate.get("phase"), gate["event_type"]
    if not passed or kind not in ("PHASE_REVIEW", "COMPLETION"):
        return "", set()
    if phase is None:
        return ("DONE" if kind == "COMPLETION" else ""), set()
    return "", {phase}


def reviewed(text: str, tasks: Mapping[str, TaskState]) -> list[NoteFinding]:
    """What in the notes is out of date or may be, in the order of its lines, each line once."""
    lines = list(note_lines(text))
    goal = next(
        (task for line in lines if line.role == "objective" for task in named_tasks(line.says, tasks)), ""
    )
    findings = dict[int, NoteFinding]()
    for finding in (*_by_content(lines, tasks, goal), *_by_style(text, lines, goal)):
        known = findings.get(finding.line)
        if known is None or (known.verdict == "unclear" and finding.verdict != "unclear"):
            findings[finding.line] = finding
    return [findings[line] for line in sorted(findings)]


def _by_content(
    lines: Iterable[NoteLine], tasks: Mapping[str, TaskState], goal: str
) -> Iterator[NoteFinding]:
    for line in lines:
        judged = None
        if line.role == "objective":
            judged = _objective(line, tasks)
        elif line.role == "phase":
            judged = _phase(line, tasks, goal)
        elif line.role in ("blocker", "pending"):
            judged = _waiting(line, tasks)
        if judged is not None:
            verdict, why, task = judged
            yield NoteFinding(line.number, line.text, why, verdict, task or goal)


Judged = tuple[Verdict, str, str] | None


def _objective(line: NoteLine, tasks: Mapping[str, TaskState]) -> Judged:
    named = named_tasks(line.says, tasks)
    over = [task for task in named if tasks[task].over]
    if over and len(over) == len(named):
        return "stale", f"the folder of {over[0]} says {tasks[over[0]].status}", over[0]
    if named:
        state = tasks[named[0]]
        if state.status == "DEFERRED":
            return "unclear", f"the folder of {named[0]} says DEFERRED", named[0]
        done = [int(phase) for phase in _PHASE.findall(line.says) if int(phase) in state.phases]
        if done and not _ENDED.search(line.says):
            return "rewrite", f"phase {done[0]} is reported complete: name the phase that comes now", named[0]
        return None
    mentioned = [task for task in _mentioned(line.says, tasks) if tasks[task].over]
    if mentioned:
        task = mentioned[0]
        return "unclear", f"it mentions {task}, whose folder says {tasks[task].status}", task
    return None


def _phase(line: NoteLine, tasks: Mapping[str, TaskState], goal: str) -> Judged:
    state = tasks.get(goal, TaskState())
    if state.over:
        return "stale", f"the folder of {goal} says {state.status}", goal
    number = _PHASE.search(line.says) or re.match(r"\W*(\d{1,4})\b", line.says)
    if number and int(number[1]) in state.phases:
        return "stale", f"phase {number[1]} of {goal} is reported complete", goal
    return None


def _waiting(line: NoteLine, tasks: Mapping[str, TaskState]) -> Judged:
    """A blocker, or what is pending, that is marked as resolved or that waits for a task that is over. Of several in
    one line all must be so."""
    judged = [_resolved(part, line.ticked, tasks) for part in line.parts]
    states = [state for state in judged if state is not None]
    telling = [state for state in states if state[0]]
    if not telling:
        return None
    if all(over == "stale" for over, _, _ in states):
        return "stale", telling[0][1], telling[0][2]
    return "unclear", f"{telling[0][1]}; a person decides whether all of it is", telling[0][2]


def _resolved(
    part: str, ticked: bool, tasks: Mapping[str, TaskState]
) -> tuple[Verdict | Literal[""], str, str] | None:
    """What becomes of one blocker; None if it says that there is none."""
    task, stands = awaited(part), standing(part, ticked)
    if stands == "none":
        return None
    if task in tasks and tasks[task].over:
        return "stale", f"the folder of {task} says {tasks[task].status}", task
    if stands == "resolved":
        return "stale", "it is ticked off" if ticked else "it is marked as resolved", ""
    if stands == "unclear":
        return "unclear", "it may be resolved", ""
    mentioned = [name for name in _mentioned(part, tasks) if tasks[name].over]
    if mentioned:
        name = mentioned[0]
        return "unclear", f"it mentions {name}, whose folder says {tasks[name].status}", name
    return "", "", ""


def _by_style(text: str, lines: Sequence[NoteLine], goal: str) -> Iterator[NoteFinding]:
    """What does not belong into notes. Lines that break a rule only together with others are taken from the end; what
    holds the objective, the phase or a blocker is rewritten by a person."""
    left, fenced = [*lines], list[NoteLine]()
    for violation in check_notes(text):
        if violation.rule == "code_fence":
            fenced += _fence(lines, violation.line)
        elif violation.rule in ("journal", "plan_phase"):
            line = lines[violation.line - 1]
            verdict: Verdict = "rewrite" if line.role in ("objective", "blocker") else "stale"
            yield NoteFinding(line.number, line.text, violation.message, verdict, goal, True)
            left = [other for other in left if other is not line or verdict == "rewrite"]
    for line in dict.fromkeys(fenced):
        yield NoteFinding(line.number, line.text, "no code here: name the file it is in", "stale", goal, True)
    left = [line for line in left if line not in fenced]
    while crowd := [
        problem
        for problem in check_notes("\n".join(line.text for line in left))
        if problem.rule in ("length", "bullets")
    ]:
        line = left.pop(crowd[0].line - 1)
        verdict = "rewrite" if line.role in ("objective", "phase", "blocker") else "stale"
        yield NoteFinding(line.number, line.text, crowd[0].message, verdict, goal, True)


def _fence(lines: Sequence[NoteLine], first: int) -> list[NoteLine]:
    """The lines of a block of code, up to the end of the notes if it is not closed."""
    mark = lines[first - 1].text.strip()[:3]
    rest = lines[first:]
    size = next((at for at, line in enumerate(rest, 1) if line.text.strip().startswith(mark)), len(rest))
    return [lines[first - 1], *rest[:size]]


def _mentioned(says: str, tasks: Mapping[str, TaskState]) -> list[str]:
    """The tasks whose names of two words or more stand somewhere in a text."""
    words = "-".join(re.findall("[a-z0-9]+", says.casefold()))
    return [task for task in tasks if "-" in task and f"-{_plain(task)}-" in f"-{words}-"]


def _plain(task: str) -> str:
    """The name of a folder without the digest that some end with."""
    return re.sub(r"-[0-9a-f]{8}$", "", task)
