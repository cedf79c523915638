"""What may be worth learning from a work: decisions with reasons, insights, and what went well again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ..errors import BadInput, Conflict, NotFound
from ..index.words import tokens
from ..ledger.checks import check_name
from ..ledger.events import MAX_PARENTS
from ..ledger.printing import Readable
from ..memory.remember import remember_or_hold
from ..memory.verbs import Memory
from ..recall.trials import tried_before_keeping
from .checks import checked_text
from .kinds import COMPLETED, SUBMITTED
from .tasks import Task

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..memory.requests import RememberResult
    from ..session import Session
    from .verbs import Work

OFTEN = 3
"""How many tasks must have succeeded with the same step before it counts as a pattern."""


class Candidate(Readable, msgspec.Struct, frozen=True):
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

    def __str__(self) -> str:
        return f"{self.text} ({self.verdict or self.reason})"

    def as_entry(self) -> dict[str, Any]:
        """The fields of an entry of a core."""
        type = {"decision": "decision", "insight": "lesson", "pattern": "pattern"}[self.kind]
        return {"text": self.text, "type": type, "reason": self.reason, "source_type": "promoted"}


def candidates_of(work: Work, judged: bool = False, at: At = None) -> list[Candidate]:
    """Those that nobody had judged as of `at`; with `judged`, those that somebody had, too."""
    core = next(iter(work.info(at).cores), None)
    with work._reading(at) as (reading, _):
        verdicts = {str(key[1]): row["verdict"] for key, row in reading.views.scan("work.judged", work.id)}
    every = [*_decisions(work, core, at), *_insights(work, core, at), *_patterns(work, core, at)]
    candidates = [replace(candidate, verdict=verdicts.get(candidate.id, "")) for candidate in every]
    return [candidate for candidate in candidates if judged or not candidate.verdict]


def _decisions(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    for decision in work.records("decision", at=at):
        if (
            decision.rationale
            and decision.alternatives
            and decision.reversed_by is None
            and decision.status != "rejected"
        ):
            text = f"{decision.question} {decision.choice}, because {decision.rationale}"
            instead = ", ".join(decision.alternatives)
            yield Candidate(
                decision.id,
                "decision",
                text,
                f"a decision with its reasons, instead of {instead}",
                core,
                (decision.id,),
            )


def _insights(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    for discovery in work.records("discovery", at=at):
        if discovery.type == "insight" or discovery.promote_to_core:
            reason = "somebody named a core for it" if discovery.promote_to_core else "an insight"
            yield Candidate(
                discovery.id,
                "insight",
                discovery.text,
                reason,
                discovery.promote_to_core or core,
                (discovery.id,),
            )


def _patterns(work: Work, core: str | None, at: At) -> Iterator[Candidate]:
    """A learning, or a kind of task, that three or more tasks share that were completed."""
    for id, each in shared_steps(work.tasks("completed", at=at)).items():
        tasks = dict.fromkeys(task.id for task, _ in each)
        if len(tasks) >= OFTEN:
            reason = f"{len(tasks)} tasks were completed with it"
            yield Candidate(id, "pattern", each[0][1], reason, core, tuple(tasks))


def shared_steps(tasks: Iterable[Task]) -> dict[str, list[tuple[Task, str]]]:
    """The titles and learnings of tasks, those with the same words together, by the id of the pattern that they are if
    there are enough of them."""
    shared = dict[frozenset[str], list[tuple[Task, str]]]()
    for task in tasks:
        learnings = () if task.result is None else task.result.learnings
        for text in dict.fromkeys((task.title, *learnings)):
            words = frozenset(word for word in tokens(text) if not word.isdigit())
            if words:
                shared.setdefault(words, []).append((task, text))
    return {
        f"pattern-{sha256(' '.join(sorted(words)).encode()).hexdigest()[:24]}": each
        for words, each in shared.items()
    }


def _candidate(work: Work, wanted: str | Candidate) -> Candidate:
    id = wanted.id if isinstance(wanted, Candidate) else check_name("a candidate", wanted)
    for candidate in candidates_of(work, judged=True):
        if candidate.id == id:
            return candidate
    raise NotFound(f"there is no candidate {id!r} in this work: work.candidates() lists them")


def promote(
    work: Work, candidate: str | Candidate, core: str | None, shared: bool, by: str | None, override: str
) -> RememberResult:
    """Put it into the core as an entry, derived from what it comes from, and say so. Out of a work with members
    it goes to where others read it only if somebody says so. If recorded digests would be worse with it, it is held,
    unless `override` says why it goes in all the same."""
    proposed = _candidate(work, candidate)
    where = core or proposed.suggested_core
    if where is None:
        raise BadInput(f"say for which core: promote({proposed.id!r}, core=…), because none is suggested")
    if proposed.verdict:
        raise Conflict(f"candidate {proposed.id!r} was {proposed.verdict} already")
    work._do("judge", by, candidate=proposed.id, verdict="", why="", item=None)  # may they at all?
    events = completion_events(work, proposed)
    if work.info().members and not shared and Memory(work._session).core(where).visibility != "private":
        raise Conflict(
            f"only its members may know of this work, and others read the core {where!r}: say "
            f"promote({proposed.id!r}, shared=True), or name a private core"
        )
    why, session = checked_text("override", override), work._session
    entry = dict(
        **proposed.as_entry(), kind="note", core=where, parents=events, shared=True,
        id=f"learned-{work.id}-{proposed.id}"[:200], override="promoted from a work",
        provenance={"source_kind": "system", "metadata": {"work": work.id, "promoted_by": by or work._actor}},
    )  # fmt: skip
    kept = remember_or_hold(session, None if why else tried_before_keeping(session, **entry), **entry)
    if kept.outcome == "flagged" and kept.item_id is not None:
        kept = _settled(session, kept, kept.item_id, why)
    if kept.outcome in ("stored", "merged"):
        work._do("judge", by, candidate=proposed.id, verdict="promoted", why="", item=kept.item_id)
    return kept


def _settled(session: Session, kept: RememberResult, id: str, why: str) -> RememberResult:
    """What became of an entry that was held when it was promoted before: somebody has created it since, or does now
    by saying why."""
    item = Memory(session).get(id)
    if item.held is not None and item.held.why == "evidence" and why:
        item = Memory(session).resolve(id, "create", why)
    return replace(kept, outcome="stored", held=None, reason="") if item.current else kept


def completion_events(work: Work, candidate: Candidate) -> list[str]:
    """The events that it comes from: of a pattern, those that tell what came of its tasks."""
    if candidate.kind != "pattern":
        return [id for id in candidate.sources if work._ledger.event(id) is not None]
    tasks, ids = {*candidate.sources}, list[str]()
    for event in work._ledger.events(kinds=frozenset({SUBMITTED, COMPLETED})):
        if not event.erased and event.payload["work"] == work.id and event.payload["task_id"] in tasks:
            ids.append(event.id)
    return ids[-MAX_PARENTS:]


def reject(work: Work, candidate: str | Candidate, reason: str, by: str | None) -> None:
    proposed = _candidate(work, candidate)
    work._do(
        "judge", by, candidate=proposed.id, verdict="rejected", why=checked_text("reason", reason), item=None
    )
