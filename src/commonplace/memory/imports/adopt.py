"""Taking in the memories of other tools: what each became, and what was left out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import CommonplaceError
from ...ledger.events import canonical
from ..remember import remember
from ..verbs import Memory
from . import read_memories
from .items import Incoming, Skipped

if TYPE_CHECKING:
    from ...session import Session

BROUGHT = "it was brought from another memory"


class Became(msgspec.Struct, frozen=True):
    """One thing that was found, and what became of it."""

    source: str
    kind: str
    outcome: str
    id: str | None = None
    reason: str = ""


class Adopted(msgspec.Struct, frozen=True):
    """What an import found and did, in the order of the source; `skipped` is what could not be read."""

    format: str
    became: tuple[Became, ...]
    skipped: tuple[Skipped, ...]
    links: int = 0
    done: bool = True

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.became:
            found[one.outcome] = found.get(one.outcome, 0) + 1
        return found


def adopt(
    session: Session,
    path: Path,
    dry_run: bool,
    shared: bool | None,
    progress: Callable[[int, int], None] | None,
) -> Adopted:
    """Remember everything in a foreign memory. Doing it again changes nothing: each has an id of its own."""
    read = read_memories(path)
    became, ids = list[Became](), dict[str, str]()
    for number, one in enumerate(read.items, 1):
        if dry_run:
            became.append(Became(one.source, one.kind, "found", None, _text(one)[:100]))
            continue
        became.append(_taken(session, one, shared))
        if one.name and became[-1].id:
            ids.setdefault(one.name, str(became[-1].id))
        if progress is not None:
            progress(number, len(read.items))
    links = 0 if dry_run else _link(session, read.items, became, ids)
    return Adopted(read.format, tuple(became), read.skipped, links, not dry_run)


def _text(one: Incoming) -> str:
    return one.body or f"{one.key}: {one.value}"


def _taken(session: Session, one: Incoming, shared: bool | None) -> Became:
    metadata = {**one.metadata, **{name: at for name, at in (("agent", one.agent), ("run", one.run)) if at}}
    provenance: dict[str, Any] = {"source_kind": "import", "refs": [one.source], "metadata": metadata}
    given: dict[str, Any] = {"kind": one.kind, "title": one.title, "tags": one.tags, "category": one.category}
    given |= {"key": one.key, "value": one.value} if one.kind == "fact" else {"text": one.body}
    when = _moment(one.occurred_at) or _moment(one.created_at)
    content = canonical([one.source, one.kind, one.title, one.body, one.key, one.value])
    try:
        kept = remember(
            session, **given, provenance=provenance, shared=shared, override=BROUGHT,
            occurred_at=when or (datetime.fromtimestamp(0, UTC) if one.kind == "episode" else None),
            id=f"import-{sha256(content).hexdigest()[:40]}",
        )  # fmt: skip
    except CommonplaceError as error:
        return Became(one.source, one.kind, "rejected", None, str(error))
    return Became(one.source, one.kind, kept.outcome, kept.item_id, kept.reason)


def _moment(said: str | None) -> datetime | None:
    """A time as a source writes it; without a zone it is UTC, and what is no time is none."""
    try:
        found = None if said is None else datetime.fromisoformat(said)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found


def _link(session: Session, found: tuple[Incoming, ...], became: list[Became], ids: dict[str, str]) -> int:
    """Connect what was taken in as its source had connected it."""
    memory, count = Memory(session), 0
    for at, (one, taken) in enumerate(zip(found, became, strict=True)):
        for relation, name in one.links:
            to = ids.get(name)
            if taken.id is None or to is None or to == taken.id:
                continue
            try:
                if (relation[:200] or "related", to) not in memory.get(taken.id).links:
                    memory.link(taken.id, relation[:200] or "related", to)
                    count += 1
            except CommonplaceError as error:  # it merged into an item that is somebody else's
                became[at] = msgspec.structs.replace(
                    taken, reason=f"{taken.reason} (not linked: {error})".strip()
                )
    return count
