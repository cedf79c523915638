"""Promotion at a phase boundary: what one task has found out becomes a fact of the repository, waits, or stays with the
task.

Each fact goes through the same checklist: classify it; keep what is about one task with the task; compare it with what
is known; all five fields; evidence; and no recorded digest may get worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from ..access.masking import masked
from ..errors import BadInput, Conflict, NotFound, shown
from ..ledger.checks import check_flag, check_text
from ..ledger.printing import Listing, Readable
from ..memory.items import Held, Item
from ..memory.judging import DECLINED
from ..memory.likeness import near_duplicate
from ..memory.remember import previewed, remember_or_hold
from ..memory.repository_facts import checked_fact
from ..memory.requests import Prove, RememberResult
from ..recall.trials import DigestTrial, tried_on_digests
from .checklists import ABOUT_A_TASK, ChecklistStep, WrittenFact, steps_of_fact
from .evidence import evidence_of, source_events, sources_so_far

if TYPE_CHECKING:
    from ..session import Session

FIVE = ("subject", "fact", "citations", "reason", "category")
MORE = ("sources", "supersedes", "override")

Verdict = Literal["yes", "no", "defer"]


class CandidateRecord(Readable, msgspec.Struct, frozen=True):
    """What the checklist says of one fact: promote it (yes), let it wait in the inbox (defer), or neither (no)."""

    subject: str
    classification: str
    """user, feedback, project or reference; "task" for what is about one task; "" if nobody said which."""
    evidence: tuple[str, ...]
    """Where it can be seen: file and line."""
    promote: Verdict
    reason: str
    confidence: float = 0.0
    origins: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    """Sources that say otherwise, and items that dispute a source."""
    not_counted: tuple[tuple[str, str], ...] = ()
    """Sources and citations that are no evidence, and why."""
    item: str = ""
    """The item that it has become, is known as, or waits as."""
    comparison: str = ""
    """What it is nearly the same as, beside it."""
    choices: tuple[str, ...] = ()
    """What `memory.resolve` can make of it, if it waits."""
    trial: DigestTrial = DigestTrial()
    """What it would have done to recorded digests."""
    basis: str = ""
    """What it is promoted on, as it is recorded."""

    def __str__(self) -> str:
        kind = f" [{self.classification}]" if self.classification else ""
        lines = [f"{self.promote}: {self.subject or '(no subject)'}{kind}: {self.reason}"]
        lines += [f"  {line}" for line in self.comparison.splitlines()]
        lines += [f"  {digest}" for digest in self.trial.worse]
        lines += [f"  against it: {id}" for id in self.against]
        lines += [f"  not counted: {id} ({why})" for id, why in self.not_counted]
        if self.choices and self.item:
            lines.append(f"  waits as {self.item}: resolve it with {', '.join(self.choices)}")
        return "\n".join(lines)


class PromotionReport(Listing[CandidateRecord], msgspec.Struct, frozen=True):
    """One record for each fact, in their order; and whether it was written, or only looked at."""

    ENTRIES = "records"

    records: tuple[CandidateRecord, ...] = ()
    task: str = ""
    written: bool = False

    def of(self, verdict: Verdict) -> tuple[CandidateRecord, ...]:
        """The records with this verdict: yes, no or defer."""
        return tuple(record for record in self.records if record.promote == verdict)

    def __str__(self) -> str:
        if not self.records:
            return "no facts were given"
        counts = ", ".join(f"{len(self.of(verdict))} {verdict}" for verdict in ("yes", "defer", "no"))
        only = "" if self.written else "; nothing was written"
        return "\n".join([*map(str, self.records), f"promote: {counts}{only}"])


def promote(
    session: Session,
    facts: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    *,
    task: str = "",
    dry_run: bool = False,
) -> PromotionReport:
    """Promote what was found out to facts of the repository, each through the checklist of a phase boundary.

    A fact has subject, fact (one or two sentences), citations (file:line), reason and category (user, feedback, project
    or reference); and, if there are any, sources (ids of the events and items and paths of the documents that it comes
    from), supersedes (ids of facts that it takes the place of) and override (why it is kept although it looks like
    something that is told elsewhere). It is promoted by itself if two independent origins, a citation that holds or a
    person speak for it, and if no recorded digest would be worse with it. Otherwise it waits in the inbox, and more
    sources, or a librarian or person with `memory.resolve`, let it stand. What is about one task stays with the task.
    What somebody has declined is not proposed again without an override. Repeating it changes nothing.

    `facts` are the facts, or one alone. `task` is the name of the task that found them out."""
    return review_candidates(session, facts, task=task, write=not check_flag("dry_run", dry_run))


def review_candidates(
    session: Session,
    facts: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    *,
    task: str = "",
    write: bool = False,
) -> PromotionReport:
    """The checklist for each of these facts; with `write`, what it says is done. Raises BadInput if they are no list of
    mappings."""
    checked, name = _checked(facts), check_text("task", task).strip()
    records, earlier = list[CandidateRecord](), list[tuple[str, str]]()
    for fact in checked:
        record = _reviewed(session, fact, name, write)
        if not write and record.promote != "no":
            record = _unless_twice(record, fact, earlier)
            earlier.append((record.subject, str(fact["fact"])))
        records.append(record)
    return PromotionReport(tuple(records), name, write)


def _checked(facts: object) -> list[Mapping[str, Any]]:
    if isinstance(facts, Mapping):
        facts = [facts]
    if isinstance(facts, str) or not isinstance(facts, Sequence):
        raise BadInput(f"facts {shown(facts)} is not a list: give mappings with {', '.join(FIVE)}")
    for place, fact in enumerate(facts, 1):
        if not isinstance(fact, Mapping):
            raise BadInput(f"fact {place}: {shown(fact)} is not a mapping with {', '.join(FIVE)}")
        if stray := sorted(str(name) for name in fact if name not in (*FIVE, *MORE)):
            fields = "an unknown field" if len(stray) == 1 else "unknown fields"
            raise BadInput(
                f"fact {place} has {fields} {', '.join(map(repr, stray))}: its fields are {', '.join((*FIVE, *MORE))}"
            )
    return list(facts)


def _unless_twice(
    record: CandidateRecord, fact: Mapping[str, Any], earlier: Sequence[tuple[str, str]]
) -> CandidateRecord:
    """The record, or that it would wait because an earlier fact of the same call says nearly the same."""
    for subject, other in earlier:
        likeness = near_duplicate(subject, other, record.subject, str(fact["fact"]))
        if likeness.flagged:
            why = f"nearly the same as {subject!r}, an earlier fact of this call"
            return replace(record, promote="defer", reason=why, comparison=str(likeness), item="")
    return record


# the checklist


def _reviewed(session: Session, fact: Mapping[str, Any], task: str, write: bool) -> CandidateRecord:
    written = WrittenFact(*(fact.get(name) or "" for name in (*FIVE, "override")))
    places = tuple(map(str, written.citations)) if isinstance(written.citations, list | tuple) else ()
    subject = " ".join(str(written.subject).split())
    record = CandidateRecord(masked(subject), written.classified or "", masked(places), "no", "")
    try:
        steps = steps_of_fact(session, written, task)
        failed = [step for step in steps if step.outcome == "fail"]
        if failed:
            return _refused(record, min(failed, key=_first), task)
        kept, said, cited = checked_fact(
            written.subject, written.fact, written.citations, written.reason, written.classified
        )
        sources = source_events(session, fact.get("sources") or ())
        fields = {
            "key": kept, "value": said, "citations": cited, "reason": written.reason, "category": written.classified,
            "repository": True, "shared": True, "parents": sources, "supersedes": fact.get("supersedes") or (),
            "override": written.override,
        }  # fmt: skip
        not_after = () if written.override else DECLINED
        preview = previewed(session, not_after, **fields)
    except (BadInput, NotFound) as error:
        return replace(record, reason=str(error))
    asks = next((step.says for step in steps if step.outcome == "ask"), "")
    record, result = replace(record, subject=kept), preview.result
    if (waiting := _waiting(session, result)) is not None:
        return _tried_again(session, record, waiting, sources, asks, write)
    hold: Held | None = None
    if preview.item is not None:
        hold, record = _examined(
            session, record, preview.item, sources, result.superseded, asks, vouches=not sources
        )
        noted = {name: value for name, value in (("evidence", record.basis), ("task", task)) if value}
        fields["provenance"] = {"metadata": noted} if noted else {}
    if write:
        return _judged(record, remember_or_hold(session, hold, not_after, **fields))
    judged = _judged(record, result)
    return judged if preview.item is None else replace(judged, item="")  # it has no id yet


def _first(step: ChecklistStep) -> int:
    """What a refusal names first: that it is unclassified, then that it is about one task."""
    return 0 if step.name == "classified" else 1 if step.name in ABOUT_A_TASK else 2


def _refused(record: CandidateRecord, step: ChecklistStep, task: str) -> CandidateRecord:
    """The record of a fact that a step of the checklist keeps out."""
    if step.name == "classified":
        return replace(record, reason=f"unclassified: {step.says}")
    if step.name not in ABOUT_A_TASK:
        return replace(record, reason=step.says)
    where = f"the folder of the task {task!r}" if task else "the task's folder"
    return replace(
        record,
        classification="task",
        reason=f"it is about one task: {step.says}".replace("the task's folder", where),
    )


def _examined(
    session: Session, record: CandidateRecord, item: Item, sources: Sequence[str], ends: Sequence[str],
    asks: str, *, vouches: bool, waiting: bool = False,
) -> tuple[Held | None, CandidateRecord]:  # fmt: skip
    """Whether what is new has to wait, and the record of why or why not."""
    found = evidence_of(session, item, sources, vouches=vouches, waiting=waiting)
    trial = tried_on_digests(session, item, ends) if found.enough else DigestTrial()
    hold = trial.hold() or (Held("evidence", reason=asks) if asks else None)
    if not found.enough:
        hold = Held("evidence", reason=found.lacking)
    record = replace(
        record, confidence=found.confidence, origins=found.origins, against=found.against,
        not_counted=found.not_counted, trial=trial, promote="yes" if hold is None else "defer",
        reason=str(found) if hold is None else hold.because, basis=found.basis,
        choices=() if hold is None else hold.choices,
    )  # fmt: skip
    return hold, record


def _judged(record: CandidateRecord, result: RememberResult) -> CandidateRecord:
    """The record with what became of the fact, or would: kept, held for the reason that the record gives, or known
    already, nearly known, contradicted or refused."""
    held, id = result.held, result.item_id or ""
    if result.outcome == "stored":
        return replace(record, item=id if record.promote == "yes" else "")
    if result.outcome != "flagged" or held is None:
        return replace(record, promote="no", reason=result.reason, item=id, trial=DigestTrial(), choices=())
    if held.why == "evidence":
        return replace(record, item=id)
    return replace(
        record,
        promote="defer",
        reason=result.reason,
        item=id,
        comparison=held.comparison,
        choices=held.choices,
    )


# what waits for evidence already


def _waiting(session: Session, result: RememberResult) -> Item | None:
    """The item that says the same and waits for evidence, if that is what became of it."""
    if result.outcome != "flagged" or result.item_id is None or result.held is None:
        return None
    with session.viewer() as viewer:
        item = viewer.item(result.item_id)
    waits = (
        item is not None and item.status == "held" and item.held is not None and item.held.why == "evidence"
    )
    return item if waits else None


def _tried_again(
    session: Session, record: CandidateRecord, waiting: Item, sources: Sequence[str], asks: str, write: bool
) -> CandidateRecord:
    """Count what is new with what it waits with, and record it. If that is enough, it stands from now on."""
    before = sources_so_far(session, waiting)
    ends = () if waiting.held is None else waiting.held.supersedes
    vouches = not sources and session.actor != waiting.agent
    every = list(dict.fromkeys([*before, *sources]))
    hold, record = _examined(session, record, waiting, every, ends, asks, vouches=vouches, waiting=True)
    record = replace(record, item=waiting.id)
    if not write:
        return record
    unfit = {id for id, _ in record.not_counted}
    brought = tuple(id for id in sources if id not in before and id not in unfit)
    try:
        request = Prove(session.actor, waiting.id, record.basis, session.run, brought, vouches, hold)
        session.submit("memory.prove", request, "promote")
    except Conflict as error:  # something contradicts it by now, or somebody else was faster
        with session.viewer() as viewer:
            now = viewer.item(waiting.id)
        known = now is not None and now.current
        return replace(record, promote="no" if known else "defer", reason=str(error), choices=())
    return record
