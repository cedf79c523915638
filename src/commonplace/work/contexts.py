"""What somebody needs to know to do a task, packed into one budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..access.rights import Rights, rights_of
from ..errors import BadInput, shown
from ..ledger.printing import Readable
from ..recall.digest import receipt_of
from ..recall.escaping import as_data, as_name
from ..recall.lines import DigestLine
from ..recall.packing import PackLine, estimated, pack, whole
from ..recall.search import remembered_about
from ..recall.verification import Checks
from .artifacts import path_key
from .info import WorkInfo
from .listing import visible_records
from .people import may_see_nudge, nudge_line, waiting
from .prompting import WorkFocus
from .radar import Overlap, Sharing, overlaps_of
from .reading import Reading
from .records import Artifact, Decision, Discovery, Nudge, nudge_for
from .tasks import Task
from .words import words_of

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .verbs import Work

FARTHEST = 200
"""How many tasks upwards of a task are looked at."""
BY_WORDS = 8
"""How many things are found by the words of the task, beside those that say that they affect it."""
RECENT = 64
"""How many of the things that say that they affect a task are looked at, the most recent ones."""
MEMORIES = 6
DUPLICATES = 3
"""How many things are named that may make a task needless."""

SECTIONS = (
    "Goal",
    "Constraints",
    "Task",
    "Nudges",
    "May be done already",
    "Done before",
    "Decisions",
    "Discoveries",
    "Artifacts",
    "Memory",
)


class Context(Readable, msgspec.Struct, frozen=True):
    """What a task's holder is told: the text, what it is made of, and what was left out and why."""

    task: Task
    goal: str
    constraints: tuple[str, ...]
    nudges: tuple[Nudge, ...]
    before: tuple[Task, ...]
    """The tasks that it depends on."""
    decisions: tuple[Decision, ...]
    discoveries: tuple[Discovery, ...]
    artifacts: tuple[Artifact, ...]
    memory: tuple[str, ...]
    """The ids of what is remembered."""
    text: str
    left_out: tuple[tuple[str, str], ...]
    as_of: int
    overlaps: tuple[Overlap, ...] = ()
    """What may make it needless."""
    receipt_id: str | None = None
    """The receipt of what it told its holder, if it left one."""

    def __str__(self) -> str:
        return self.text


class ContextLine(PackLine, frozen=True):
    """A line of a context, whose kind is its section, and what it is about."""

    about: Any = None


class Material(NamedTuple):
    """What a context can be made of, besides memory."""

    task: Task
    info: WorkInfo
    position: int
    nudges: list[Nudge]
    overlaps: list[Overlap]
    above: list[Task]
    decisions: list[Decision]
    discoveries: list[Discovery]
    artifacts: list[Artifact]
    outdated: list[tuple[str, str]]
    """What is left out because something later has taken its place, and why."""


def context_of(
    work: Work,
    id: str,
    max_chars: int | None,
    max_tokens: int | None,
    at: At,
    agent: str | None = None,
    receipt: bool = False,
) -> Context:
    """With an agent, it is made for its eyes; without, for the caller, with what it may see of the nudges that wait for
    the holder. With a `receipt`, what is shown of its nudges is told by this."""
    for name, most in (("max_chars", max_chars), ("max_tokens", max_tokens)):
        if most is not None and (type(most) is not int or most < 1):
            raise BadInput(f"{name} {shown(most)} is not a budget: give a whole number from 1, or None")
    focus = None if agent is None else WorkFocus(work, agent, receipt)
    material = _material(work, id, at, agent, [] if focus is None else focus.nudges(changes=True))
    task, info = material.task, material.info
    session = work._session if agent is None else work._session.speaking_for(agent)
    checks = Checks(session, at)
    memory = _remembered(session, task, info, at, checks)
    count = work._session.services.count_tokens or estimated
    packed = pack(list(_lines(material, memory)), whole(max_chars, max_tokens), count, _text, uncut="Nudges")
    taken = list(packed.taken)
    remembered = [line.about for line in taken if line.kind == "Memory"]
    receipt_id = None
    if focus is not None:
        nudges = [line.id for line in taken if line.kind == "Nudges"]
        delivered = set(focus.deliver(nudges)) if nudges else set()
        taken = [line for line in taken if line.kind != "Nudges" or line.id in delivered]
        receipt_id = receipt_of(session, remembered, checks) if receipt else None
    if receipt_id is None:
        session.was_shown([line.id for line in remembered])

    def of(section: str) -> tuple[Any, ...]:
        return tuple(line.about for line in taken if line.kind == section and line.about is not None)

    return Context(
        task, info.goal, info.constraints, of("Nudges"), of("Done before"), of("Decisions"), of("Discoveries"),
        of("Artifacts"), tuple(line.id for line in remembered), _text(taken), (*packed.omitted, *material.outdated),
        material.position, of("May be done already"), receipt_id,
    )  # fmt: skip


def _material(work: Work, id: str, at: At, agent: str | None, nudges: list[Nudge]) -> Material:
    """What there is for a task as of then, for the eyes of an agent, or of the caller."""
    with work._reading(at) as (reading, rights):
        task, info = reading.task(id), reading.info
        if agent is not None:
            rights = rights_of(reading.now, agent)
        elif (holder := task.assigned_to) is not None:
            rows = waiting(reading, holder, info.leader == holder, "turn")
            nudges = [
                nudge_for(reading, rights.actor, row) for row in rows if may_see_nudge(reading, rights, row)
            ]
        above = list(_above(reading, task))
        sharing = Sharing(reading, rights.actor)
        affecting = _affecting(reading, rights.actor, [task, *above])
        ids = list(dict.fromkeys([*affecting, *_by_words(task, sharing)]))
        decisions = visible_records(Decision, reading, rights, ids)
        artifacts = visible_records(Artifact, reading, rights, ids)
        newest = _newest(reading, rights, [artifact.path for artifact in artifacts])
        outdated = [
            (decision.id, "reversed by a later decision")
            for decision in decisions
            if decision.reversed_by is not None
        ]
        outdated += [
            (artifact.id, f"there is a later version of {artifact.path}")
            for artifact in artifacts
            if newest[artifact.path].id != artifact.id
        ]
        return Material(
            task, info, reading.views.position, nudges,
            overlaps_of(reading, rights, task, sharing)[:DUPLICATES], above,
            [decision for decision in decisions if decision.reversed_by is None],
            visible_records(Discovery, reading, rights, ids), list(newest.values()), outdated,
        )  # fmt: skip


def _above(reading: Reading, task: Task) -> Iterator[Task]:
    """The tasks that it depends on, and those that these depend on, the nearest first."""
    reached, ahead = {task.id}, [task]
    while ahead:
        needs = [id for task in ahead for id in (*task.depends_on, *((task.parent,) if task.parent else ()))]
        fresh = [id for id in dict.fromkeys(needs) if id not in reached][
            : max(0, FARTHEST + 1 - len(reached))
        ]
        reached.update(fresh)
        ahead = [task for task in reading.find_all(fresh) if task is not None]
        yield from ahead


def _affecting(reading: Reading, actor: str, tasks: list[Task]) -> Iterator[str]:
    """What an actor may see that says it affects these tasks: of the nearest task first, the most recent first."""
    for task in tasks:
        rows = reading.views.each("work.about", reading.work, task.number, reverse=True)
        for _, id in islice(reading.visible(actor, (("", id) for _, id in rows)), RECENT):
            yield id


def _newest(reading: Reading, rights: Rights, paths: Sequence[str]) -> dict[str, Artifact]:
    """The newest version of each of these artifacts that the reader may see, whatever task it was made for."""
    newest = dict[str, Artifact]()
    for path in dict.fromkeys(paths):
        last = reading.views.get("work.paths", reading.work, path_key(reading.work, path))
        id = None if last is None else last["id"]
        while id is not None and path not in newest:
            for artifact in visible_records(Artifact, reading, rights, [id]):
                newest[path] = artifact
            id = (reading.views.get("work.records", reading.work, id) or {}).get("previous")
    return newest


def _by_words(task: Task, sharing: Sharing) -> list[str]:
    """What shares the rarest words with the task, the best first."""
    scores = dict[str, float]()
    for word in words_of(task.title, task.description):
        matches = sharing.of(word)
        for kind, id in matches:
            if kind.startswith("work."):
                scores[id] = scores.get(id, 0.0) + 1 / len(matches)
    return sorted(scores, key=lambda id: (-scores[id], id))[:BY_WORDS]


def _remembered(session: Session, task: Task, info: WorkInfo, at: At, checks: Checks) -> list[DigestLine]:
    """What memory has on the task: in the cores of the work, if it names some."""
    with session.snapshot(at) as then:
        if not then.scan("memory.items", limit=1):
            return []
    query = f"{task.title} {task.description}".strip()[:400]
    cores = list(info.cores) or None
    return remembered_about(session, query, cores, MEMORIES, at, checks)


def _lines(material: Material, memory: list[DigestLine]) -> Iterator[ContextLine]:
    """Everything as lines, what matters most first."""
    task, info = material.task, material.info
    yield _line("Goal", info.id, as_data(info.goal or info.name))
    for constraint in info.constraints:
        yield _line("Constraints", info.id, as_data(constraint))
    about = f"{as_data(task.title)} ({task.status}, priority {task.priority})"
    yield _line("Task", task.id, about + (f": {as_data(task.description)}" if task.description else ""))
    for comment in task.comments:
        yield _line("Task", task.id, f"reviewer: {as_data(comment)}")
    for nudge in material.nudges:
        yield _line("Nudges", nudge.id, nudge_line(nudge), nudge)
    for other in material.overlaps:
        text = f"[{other.kind}, {other.status}] {as_data(other.text)} ({as_name(other.id)}: {as_data(other.why)})"
        yield _line("May be done already", other.id, text, other)
    for earlier in material.above:
        result = (
            as_data(earlier.result.summary) if earlier.result and earlier.result.summary else earlier.status
        )
        yield _line("Done before", earlier.id, f"{as_data(earlier.title)}: {result}", earlier)
        yield from _passed_on(earlier)
    for decision in material.decisions:
        why = f", because {as_data(decision.rationale)}" if decision.rationale else ""
        text = f"{as_data(decision.question)} {as_data(decision.choice)}{why} ({as_name(decision.by)})"
        yield _line("Decisions", decision.id, text, decision)
    for discovery in material.discoveries:
        text = f"[{discovery.type}] {as_data(discovery.text)} ({as_name(discovery.by)})"
        yield _line("Discoveries", discovery.id, text, discovery)
    for artifact in material.artifacts:
        text = f"{as_name(artifact.path)} v{artifact.version}"
        yield _line("Artifacts", artifact.id, f"{text} {as_data(artifact.description)}".rstrip(), artifact)
    for memory_line in memory:
        yield ContextLine(
            memory_line.id,
            "Memory",
            memory_line.before,
            memory_line.text,
            memory_line.after,
            about=memory_line,
        )


def _passed_on(task: Task) -> Iterator[ContextLine]:
    """What came of a task besides its summary. Each line names the task, whose own line may not fit."""
    if task.result is None:
        return
    after = f" ({as_name(task.assigned_to or task.by)}, {as_data(task.title)})"
    lines = [("learned", text) for text in task.result.learnings]
    lines += [("next step", text) for text in task.result.next_steps]
    for what, text in lines:
        yield ContextLine(task.id, "Done before", f"- {what}: ", as_data(text), after)


def _line(section: str, id: str, text: str, about: Any = None) -> ContextLine:
    return ContextLine(id, section, "- ", text, about=about)


def _text(lines: Sequence[ContextLine]) -> str:
    parts = list[str]()
    for section in SECTIONS:
        own = [line.line for line in lines if line.kind == section]
        if own:
            parts.append("\n".join([f"## {section}", *own]))
    return "\n\n".join(parts) + ("\n" if parts else "")
