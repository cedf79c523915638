"""What was decided, found, made, asked and said about a work, as its readers see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ..memory.visibility import may_read_id
from .kinds import ASKED, BRANCHED, DECIDED, DISCOVERED, ESCALATED, NUDGED, PRODUCED
from .transaction import Reading


class WorkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What all of these have: who said it when, and which tasks it is about."""

    id: str
    by: str
    at_us: int = 0
    position: int = 0
    task: str | None = None
    affects: tuple[str, ...] = ()
    sensitivity: str = "private"


class Decision(WorkRecord, frozen=True, kw_only=True):
    """A choice that was made. `reversed_by` is the decision that took its place."""

    question: str = ""
    choice: str = ""
    alternatives: tuple[str, ...] = ()
    rationale: str = ""
    confidence: float | None = None
    reversible: bool = True
    reverses: str | None = None
    reversed_by: str | None = None
    status: str = "made"
    """made, or what a person has said of it: approved, rejected."""
    answered_by: str | None = None


class Discovery(WorkRecord, frozen=True, kw_only=True):
    """Something that was learned: a constraint, opportunity, risk or insight."""

    text: str = ""
    type: str = "insight"
    promote_to_core: str | None = None


class Artifact(WorkRecord, frozen=True, kw_only=True):
    """Something that was made, by reference. `blob` names its content, if it is stored."""

    path: str = ""
    type: str = "file"
    description: str = ""
    version: int = 1
    previous: str | None = None
    checksum: str | None = None
    size: int | None = None
    blob: str | None = None
    commit: str | None = None
    branch: str | None = None


class Nudge(WorkRecord, frozen=True, kw_only=True):
    """A word to an agent, to whoever leads, or to all."""

    text: str = ""
    target: str
    priority: str = "normal"
    delivery: str = "next_turn"
    premise: str | None = None
    """What made it, if it tells that something has changed that its addressee relied on."""
    acknowledged: tuple[str, ...] = ()


class Approval(WorkRecord, frozen=True, kw_only=True):
    """Something that a person has to allow."""

    action: str = ""
    risk: str = ""
    status: str = "pending"
    decision: str | None = None
    answered_by: str | None = None
    why: str = ""


class Escalation(WorkRecord, frozen=True, kw_only=True):
    """Something that an agent cannot settle by itself."""

    text: str = ""
    type: str
    status: str = "open"
    resolved_by: str | None = None
    answer: str = ""


class Branch(WorkRecord, frozen=True, kw_only=True):
    """Alternatives of which one is to be chosen. `status` is the one that was, or pending."""

    question: str = ""
    options: dict[str, tuple[str, ...]]
    status: str = "pending"


KINDS: dict[type[WorkRecord], str] = {
    Decision: DECIDED, Discovery: DISCOVERED, Artifact: PRODUCED, Nudge: NUDGED, Approval: ASKED, Escalation: ESCALATED,
    Branch: BRANCHED,
}  # fmt: skip

T = TypeVar("T", bound=WorkRecord)


def record_of(type: type[T], id: str, row: Mapping[str, Any], words: Mapping[str, Any] | None = None) -> T:
    """A row as what it is, with further words that others have said of it."""
    fields = {**row, **row["said"], **(words or {}), "id": id}
    fields["affects"] = tuple(id for _, id in row.get("affects", ()))
    if "acknowledged" in row:
        fields["acknowledged"] = sorted(row["acknowledged"])
    if "answer" in row and "answer" not in (words or {}):
        del fields["answer"]
    content = row["said"].get("content")
    if isinstance(content, Mapping):
        fields["blob"] = content.get("$blob")
    known = type.__struct_fields__
    return msgspec.convert({name: value for name, value in fields.items() if name in known}, type)


def nudge_for(reading: Reading, reader: str, row: Mapping[str, Any]) -> Nudge:
    """A nudge as a reader is told it: it quotes an item only as long as the reader may read that item."""
    quote = row["said"].get("quote")
    readable = quote and all(
        may_read_id(lens, reading.rights(lens, reader), row["item"]) for lens in reading.lenses
    )
    return record_of(
        Nudge, row["id"], row, {"text": f"{row['said']['text']} ({quote})"} if readable else None
    )


class Contribution(msgspec.Struct, frozen=True):
    """What one agent has done for a work."""

    agent: str
    role: str | None
    tasks: tuple[str, ...] = ()
    reviews: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()
    artifacts: tuple[str, ...] = ()
    first_us: int | None = None
    last_us: int | None = None
    log_ref: str = ""
    """A command that shows all that the agent did."""
