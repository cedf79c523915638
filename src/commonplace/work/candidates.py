"""What may be worth learning from a work: decisions with reasons, insights, and what went well again and again."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import BadInput, Conflict, NotFound
from ..index.words import tokens
from ..ledger.events import MAX_PARENTS, check_name
from ..memory.remember import remember
from ..memory.verbs import Memory
from .kinds import COMPLETED, SUBMITTED
from .tasks import Task, checked_text

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..memory.requests import RememberResult
    from .verbs import Work

OFTEN = 3
"""How many tasks must have succeeded with the same step before it counts as a pattern."""


class Candidate(msgspec.Struct, frozen=True):
    """A learning that waits for review: what it says, why it may be worth keeping, and a core it may belong to."""

    id: str
    kind: Literal["decision", "insight", "pattern"]
    text: str
    reason: str
    suggested_core: str | None
    sources: tuple[str, ...]
    """The events that it comes from."""
    verdict: str = ""
    """promoted or rejected, once somebody has said so."""

    def as_entry(self) -> dict[str, Any]:
        """The fields of an entry of a core."""
        type = {"decision": "decision", "insight": "lesson", "pattern": "pattern"}[self.kind]
        return {"text": self.text, "type": type, "reason": self.reason, "source_type": "promoted"}


def candidates_of(work: Work, judged: bool = False, at: At = None) -> list[Candidate]:
    """Those that nobody had judged as of `at`; with `judged`, those that somebody had, too."""
    core = next(iter(work.info(at).cores), None)
    with work._reading(at) as (reading, _):
        known = {str(key[1]): row["verdict"] for key, row in reading.views.scan("work.judged", work.id)}
    found = [*_decisions(work, core, at), *_insights(work, core, at), *_patterns(work, core, at)]
    told = [msgspec.structs.replace(one, verdict=known.get(one.id, "")) for one in found]
    return [one for one in told if judged or not one.verdict]


def _decisions(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    for one in work.records("decision", at=at):
        if one.rationale and one.alternatives and one.reversed_by is None and one.status != "rejected":
            text = f"{one.question} {one.choice}, because {one.rationale}"
            instead = ", ".join(one.alternatives)
            yield Candidate(
                one.id,
                "decision",
                text,
                f"a decision with its reasons, instead of {instead}",
                core,
                (one.id,),
            )


def _insights(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    for one in work.records("discovery", at=at):
        if one.type == "insight" or one.promote_to_core:
            reason = "somebody named a core for it" if one.promote_to_core else "an insight"
            yield Candidate(one.id, "insight", one.text, reason, one.promote_to_core or core, (one.id,))


def _patterns(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    """A learning, or a kind of task, that three or more tasks share that were completed."""
    shared = dict[frozenset[str], list[tuple[Task, str]]]()
    for task in work.tasks("completed", at=at):
        learnings = () if task.result is None else task.result.learnings
        for text in dict.fromkeys((task.title, *learnings)):
            words = frozenset(word for word in tokens(text) if not word.isdigit())
            if words:
                shared.setdefault(words, []).append((task, text))
    for words, each in shared.items():
        tasks = dict.fromkeys(task.id for task, _ in each)
        if len(tasks) >= OFTEN:
            id = f"pattern-{sha256(' '.join(sorted(words)).encode()).hexdigest()[:24]}"
            reason = f"{len(tasks)} tasks were completed with it"
            yield Candidate(id, "pattern", each[0][1], reason, core, tuple(tasks))


def _candidate(work: Work, given: str | Candidate) -> Candidate:
    id = given.id if isinstance(given, Candidate) else check_name("a candidate", given)
    for one in candidates_of(work, judged=True):
        if one.id == id:
            return one
    raise NotFound(f"there is no candidate {id!r} in this work: work.candidates() lists them")


def promote(
    work: Work, candidate: str | Candidate, core: str | None, shared: bool, by: str | None
) -> RememberResult:
    """Put it into the core as an entry, derived from what it comes from, and say so. Out of a work with members
    it goes to where others read it only if somebody says so."""
    one = _candidate(work, candidate)
    where = core or one.suggested_core
    if where is None:
        raise BadInput(f"say for which core: promote({one.id!r}, core=…), because none is suggested")
    if one.verdict:
        raise Conflict(f"candidate {one.id!r} was {one.verdict} already")
    work._do("judge", by, candidate=one.id, verdict="", why="", item=None)  # may they at all?
    events = _origins(work, one)
    if work.info().members and not shared and Memory(work._session).core(where).visibility != "private":
        raise Conflict(
            f"only its members may know of this work, and others read the core {where!r}: say "
            f"promote({one.id!r}, shared=True), or name a private core"
        )
    kept = remember(
        work._session,
        **one.as_entry(), kind="note", core=where, parents=events, shared=True,
        id=f"learned-{work.id}-{one.id}"[:200], override="promoted from a work",
        provenance={"source_kind": "system", "metadata": {"work": work.id, "promoted_by": by or work._actor}},
    )  # fmt: skip
    if kept.outcome in ("stored", "merged"):
        work._do("judge", by, candidate=one.id, verdict="promoted", why="", item=kept.item_id)
    return kept


def _origins(work: Work, candidate: Candidate) -> list[str]:
    """The events that it comes from: of a pattern, those that tell what came of its tasks."""
    if candidate.kind != "pattern":
        return [id for id in candidate.sources if work._ledger.event(id) is not None]
    tasks, found = {*candidate.sources}, list[str]()
    for event in work._ledger.events(kinds=frozenset({SUBMITTED, COMPLETED})):
        if not event.erased and event.payload["work"] == work.id and event.payload["task_id"] in tasks:
            found.append(event.id)
    return found[-MAX_PARENTS:]


def reject(work: Work, candidate: str | Candidate, reason: str, by: str | None) -> None:
    one = _candidate(work, candidate)
    work._do("judge", by, candidate=one.id, verdict="rejected", why=checked_text("reason", reason), item=None)
