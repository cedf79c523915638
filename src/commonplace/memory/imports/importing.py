"""Taking in the memories of other tools: what each became, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...access.rights import OWNER
from ...errors import CommonplaceError
from ...ledger.encoding import canonical
from ..remember import remember
from ..verbs import Memory
from . import read_memories
from .incoming import Incoming, Skipped

if TYPE_CHECKING:
    from ...session import Session

BROUGHT = "it was brought from another memory"


class ImportedItem(msgspec.Struct, frozen=True):
    """Something that a source holds, and what became of it."""

    source: str
    kind: str
    outcome: str
    id: str | None = None
    reason: str = ""


class ImportReport(msgspec.Struct, frozen=True):
    """What an import read and did, in the order of the source; `skipped` is what could not be read."""

    format: str
    became: tuple[ImportedItem, ...]
    skipped: tuple[Skipped, ...]
    links: int = 0
    done: bool = True

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(item.outcome for item in self.became))


def import_memories(
    session: Session,
    path: Path,
    dry_run: bool,
    shared: bool | None,
    progress: Callable[[int, int], None] | None,
) -> ImportReport:
    """Remember everything in a foreign memory. Doing it again changes nothing: each has an id of its own."""
    memories = read_memories(path)
    scope = ""  # an item of another scope is another item, so the scope's key is a part of its id
    if session.scope and not dry_run:
        (scope,) = session.write("scopes.name", (session.scope,))
    became, ids = list[ImportedItem](), dict[str, str]()
    for number, incoming in enumerate(memories.items, 1):
        if dry_run:
            text = incoming.body or f"{incoming.key}: {incoming.value}"
            became.append(ImportedItem(incoming.source, incoming.kind, "found", None, text[:100]))
            continue
        item = _remembered(session, incoming, shared, scope)
        became.append(item)
        if incoming.name and item.id:
            ids.setdefault(incoming.name, item.id)
        if progress is not None:
            progress(number, len(memories.items))
    links = 0 if dry_run else _link(session, memories.items, became, ids)
    return ImportReport(memories.format, tuple(became), memories.skipped, links, not dry_run)


def _remembered(session: Session, incoming: Incoming, shared: bool | None, scope: str) -> ImportedItem:
    origin = {name: value for name, value in (("agent", incoming.agent), ("run", incoming.run)) if value}
    metadata = {**incoming.metadata, **origin}
    provenance = {"source_kind": "import", "refs": [incoming.source], "metadata": metadata}
    fields: dict[str, Any] = {name: getattr(incoming, name) for name in ("kind", "title", "tags", "category")}
    is_fact = incoming.kind == "fact"
    fields |= incoming.fields
    fields |= {"key": incoming.key, "value": incoming.value} if is_fact else {"text": incoming.body}
    when = _moment(incoming.occurred_at) or _moment(incoming.created_at)
    said = [incoming.source, incoming.kind, incoming.title, incoming.body, incoming.key, incoming.value]
    if session.actor != OWNER:  # what another actor took in may be hidden from this one
        said += [scope, session.actor]
    elif scope:
        said += [scope]
    content = canonical(said)
    try:
        result = remember(
            session, **fields, provenance=provenance, shared=shared, override=BROUGHT,
            occurred_at=when or (datetime.fromtimestamp(0, UTC) if incoming.kind == "episode" else None),
            id=f"import-{sha256(content).hexdigest()[:40]}",
        )  # fmt: skip
    except CommonplaceError as error:
        return ImportedItem(incoming.source, incoming.kind, "rejected", None, str(error))
    return ImportedItem(incoming.source, incoming.kind, result.outcome, result.item_id, result.reason)


def _moment(text: str | None) -> datetime | None:
    """A time as a source writes it; without a zone it is UTC, and what is no time is none."""
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _link(
    session: Session, memories: tuple[Incoming, ...], became: list[ImportedItem], ids: dict[str, str]
) -> int:
    """Connect the items as their source had connected them. Answers how many links that made."""
    memory, count = Memory(session), 0
    for at, (incoming, item) in enumerate(zip(memories, became, strict=True)):
        for name, target in incoming.links:
            relation, to = name[:200] or "related", ids.get(target)
            if item.id is None or to is None or to == item.id:
                continue
            try:
                if (relation, to) not in memory.get(item.id).links:
                    memory.link(item.id, relation, to)
                    count += 1
            except CommonplaceError as error:  # it merged into an item that is somebody else's
                reason = f"{item.reason} (not linked: {error})".strip()
                became[at] = msgspec.structs.replace(item, reason=reason)
    return count
