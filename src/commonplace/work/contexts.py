"""What somebody needs to know to do a task, packed into one budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from ..access.rights import Rights, rights_of
from ..errors import BadInput, shown
from ..recall.digest import receipt_of
from ..recall.escaping import as_data, as_name
from ..recall.lines import DigestLine
from ..recall.packing import PackLine, estimated, pack, whole
from ..recall.search import remembered_about
from ..recall.verification import Checks
from .claims import path_key
from .people import may_see_nudge, waiting
from .prompting import WorkFocus
from .radar import Overlap, Sharing, overlaps_of
from .records import Artifact, Decision, Discovery, Nudge, nudge_for
from .tasks import Task
from .transaction import Reading, WorkInfo, info_of
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
"""How many of the things that share a word are looked at, the most recent ones."""
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


class Context(msgspec.Struct, frozen=True):
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
    told = [] if focus is None else focus.nudges(changes=True)
    with work._reading(at) as (reading, rights):
        task, info, position = reading.task(id), info_of(reading.views, work.id), reading.views.position
        assert info is not None
        if agent is not None:
            rights = rights_of(reading.now, agent)
        above = list(_above(reading, task))
        sharing = Sharing(reading, rights.actor)
        ids = dict.fromkeys([*_affecting(reading, rights.actor, [task, *above]), *_by_words(task, sharing)])
        known: dict[Any, list[Any]] = {
            kind: work._seen(kind, reading, rights, list(ids)) for kind in (Decision, Discovery, Artifact)
        }
        if agent is None and (who := task.assigned_to):
            rows = waiting(reading, who, info.leader == who, "turn")
            told = [
                nudge_for(reading, rights.actor, row) for row in rows if may_see_nudge(reading, rights, row)
            ]
        covering = overlaps_of(work, reading, rights, task, sharing)[:DUPLICATES]
        newest = _newest(work, reading, rights, [one.path for one in known[Artifact]])
    decisions = [one for one in known[Decision] if one.reversed_by is None]
    session = work._session if agent is None else work._session.speaking_for(agent)
    checks = Checks(session, at)
    memory = _remembered(session, task, info, at, checks)
    lines = list(
        _lines(info, task, told, covering, above, decisions, known[Discovery], list(newest.values()), memory)
    )
    count = work._session.services.count_tokens or estimated
    packed = pack(lines, whole(max_chars, max_tokens), count, _text, uncut="Nudges")
    taken, left_out = list(packed.taken), packed.omitted

    told_of = [one.about for one in taken if one.kind == "Memory"]
    receipt_id = None
    if focus is not None:
        shown_whole = [one.id for one in taken if one.kind == "Nudges"]
        delivered = set(focus.deliver(shown_whole)) if shown_whole else set()
        taken = [one for one in taken if one.kind != "Nudges" or one.id in delivered]
        receipt_id = receipt_of(session, told_of, checks) if receipt else None
    if receipt_id is None:
        session.was_shown([one.id for one in told_of])

    def of(section: str) -> tuple[Any, ...]:
        return tuple(one.about for one in taken if one.kind == section)

    gone = [
        (one.id, "reversed by a later decision") for one in known[Decision] if one.reversed_by is not None
    ]
    gone += [
        (one.id, f"there is a later version of {one.path}")
        for one in known[Artifact]
        if newest[one.path].id != one.id
    ]
    return Context(
        task, info.goal, info.constraints, of("Nudges"), of("Done before"), of("Decisions"), of("Discoveries"),
        of("Artifacts"), tuple(one.id for one in taken if one.kind == "Memory"), _text(taken),
        (*left_out, *gone), position, of("May be done already"), receipt_id,
    )  # fmt: skip


def _above(reading: Reading, task: Task) -> Iterator[Task]:
    """The tasks that it depends on, and those that these depend on, the nearest first."""
    seen, ahead = {task.id}, [task]
    while ahead:
        needs = [id for one in ahead for id in (*one.depends_on, *((one.parent,) if one.parent else ()))]
        fresh = [id for id in dict.fromkeys(needs) if id not in seen][: max(0, FARTHEST + 1 - len(seen))]
        seen.update(fresh)
        ahead = [found for found in reading.find_all(fresh) if found is not None]
        yield from ahead


def _affecting(reading: Reading, actor: str, tasks: list[Task]) -> Iterator[str]:
    """What an actor may see that says it affects these tasks: of the nearest task first, the most recent first."""
    for task in tasks:
        rows = reading.views.each("work.about", reading.work, task.number, reverse=True)
        for _, id in islice(reading.visible(actor, (("", id) for _, id in rows)), RECENT):
            yield id


def _newest(work: Work, reading: Reading, rights: Rights, paths: Sequence[str]) -> dict[str, Artifact]:
    """The newest version of each of these artifacts that the reader may see, whatever task it was made for."""
    found = dict[str, Artifact]()
    for path in dict.fromkeys(paths):
        last = reading.views.get("work.paths", reading.work, path_key(reading.work, path))
        id = None if last is None else last["id"]
        while id is not None and path not in found:
            for one in work._seen(Artifact, reading, rights, [id]):
                found[path] = one
            id = (reading.views.get("work.records", reading.work, id) or {}).get("previous")
    return found


def _by_words(task: Task, sharing: Sharing) -> list[str]:
    """What shares the rarest words with the task, the best first."""
    found = dict[str, float]()
    for word in words_of(task.title, task.description):
        known = sharing.of(word)
        for kind, id in known:
            if kind.startswith("work."):
                found[id] = found.get(id, 0.0) + 1 / len(known)
    return sorted(found, key=lambda id: (-found[id], id))[:BY_WORDS]


def _remembered(session: Session, task: Task, info: WorkInfo, at: At, checks: Checks) -> list[DigestLine]:
    """What memory has on the task: in the cores of the work, if it names some."""
    with session.snapshot(at) as then:
        if not then.scan("memory.items", limit=1):
            return []
    query = f"{task.title} {task.description}".strip()[:400]
    cores = list(info.cores) or None
    return remembered_about(session, query, cores, MEMORIES, at, checks)


def _lines(
    info: WorkInfo,
    task: Task,
    nudges: list[Nudge],
    covering: list[Overlap],
    above: list[Task],
    decisions: list[Decision],
    discoveries: list[Discovery],
    artifacts: list[Artifact],
    memory: list[DigestLine],
) -> Iterator[ContextLine]:
    """Everything as lines, what matters most first."""
    yield _line("Goal", info.id, as_data(info.goal or info.name))
    for constraint in info.constraints:
        yield _line("Constraints", info.id, as_data(constraint))
    about = f"{as_data(task.title)} ({task.status}, priority {task.priority})"
    yield _line("Task", task.id, about + (f": {as_data(task.description)}" if task.description else ""))
    for comment in task.comments:
        yield _line("Task", task.id, f"reviewer: {as_data(comment)}")
    for nudge in nudges:
        said = f"[{nudge.priority}] {as_data(nudge.text)} (from {as_name(nudge.by)})"
        yield _line("Nudges", nudge.id, said, nudge)
    for other in covering:
        said = f"[{other.kind}, {other.status}] {as_data(other.text)} ({as_name(other.id)}: {as_data(other.why)})"
        yield _line("May be done already", other.id, said, other)
    for one in above:
        result = as_data(one.result.summary) if one.result and one.result.summary else one.status
        yield _line("Done before", one.id, f"{as_data(one.title)}: {result}", one)
    for decision in decisions:
        why = f", because {as_data(decision.rationale)}" if decision.rationale else ""
        said = f"{as_data(decision.question)} {as_data(decision.choice)}{why} ({as_name(decision.by)})"
        yield _line("Decisions", decision.id, said, decision)
    for discovery in discoveries:
        said = f"[{discovery.type}] {as_data(discovery.text)} ({as_name(discovery.by)})"
        yield _line("Discoveries", discovery.id, said, discovery)
    for artifact in artifacts:
        said = f"{as_name(artifact.path)} v{artifact.version}"
        yield _line("Artifacts", artifact.id, f"{said} {as_data(artifact.description)}".rstrip(), artifact)
    for known in memory:
        yield ContextLine(known.id, "Memory", known.before, known.text, known.after, about=known)


def _line(section: str, id: str, text: str, about: Any = None) -> ContextLine:
    return ContextLine(id, section, "- ", text, about=about)


def _text(lines: Sequence[ContextLine]) -> str:
    parts = list[str]()
    for section in SECTIONS:
        own = [one.line for one in lines if one.kind == section]
        if own:
            parts.append("\n".join([f"## {section}", *own]))
    return "\n\n".join(parts) + ("\n" if parts else "")
