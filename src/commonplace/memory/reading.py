"""Reading items: one as of any moment, many by what they are, each only if its reader may see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from ..access.masking import masked
from ..access.rights import OWNER, Rights, may_see_of, rights_of
from ..errors import NotFound
from ..ledger.encoding import decode
from ..ledger.labels import FLOWING
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPE
from ..ledger.views import typed
from .items import Item, from_row, subject_and_fact
from .likeness import near_duplicate
from .requests import CREATED, Tombstone


def tier_of(item: Item) -> str:
    return "episodic" if item.kind == "episode" else "long_term"


def item_at(views: ViewReader, id: str) -> Item | None:
    """An item with the labels that hold for it by now, and its secrets."""
    row = views.get("memory.items", id)
    return None if row is None else labelled(views, from_row(row))


def items_at(views: ViewReader, ids: Iterable[str]) -> list[Item]:
    """Those of these items that there are, each once, read together."""
    keys = [(id,) for id in dict.fromkeys(ids)]
    rows = [row for row in views.get_all(decode, "memory.items", keys) if row is not None]
    items = [from_row(row) for row in rows]
    changed = views.get_all(decode, "labels", [(item.id,) for item in items])
    return [_with_labels(item, labels or {}) for item, labels in zip(items, changed, strict=True)]


def labelled(views: ViewReader, item: Item) -> Item:
    return _with_labels(item, views.get("labels", item.id) or {})


def _with_labels(item: Item, changed: Mapping[str, str]) -> Item:
    labels = {name: changed[name] for name in FLOWING if name in changed}
    return replace(item, **labels) if labels else item


def all_items(views: ViewReader) -> Iterator[Item]:
    """Every item with the labels that hold for it by now."""
    changed = {key[0]: labels for key, labels in views.scan("labels")}
    return (_with_labels(from_row(row), changed.get(key[0], {})) for key, row in views.scan("memory.items"))


def labels_of(item: Item) -> dict[str, str]:
    labels = {"sensitivity": item.sensitivity, "trust": item.trust, SCOPE: item.scope}
    return {**labels, "audience": "team"} if item.shared else labels


def of_memory(item: Item) -> bool:
    """Whether an item stands in MEMORY.md: the team's, of no core, and no fact of the repository."""
    return item.shared and item.core is None and not item.repository and item.sensitivity != "sensitive"


def may_read(rights: Rights, item: Item) -> bool:
    """Whether an actor with these rights may see an item. One that was forgotten is its author's and the owner's."""
    forgotten = item.status == "forgotten" and rights.actor not in (item.agent, OWNER)
    return not forgotten and may_name(rights, item)


def may_name(rights: Rights, item: Item) -> bool:
    """Whether an actor with these rights may be told that an item is there, or was there before it was forgotten."""
    if rights.tier(tier_of(item)) == "none":
        return False
    return may_see_of(rights, item.agent, CREATED, labels_of(item))


def known_item(views: ViewReader, actor: str, id: str) -> Item:
    """An item that an actor may read. Raises NotFound, alike for one that is not there."""
    item = item_at(views, id)
    if item is None or item.status == "forgotten" or not may_read(rights_of(views, actor), item):
        raise NotFound(f"there is no item {id!r} in this book")
    return item


def words(content: Mapping[str, Any]) -> str:
    """What an item says, short enough to be shown beside another one."""
    subject, fact = subject_and_fact(content)
    return masked(f"{subject} | {fact}"[:300])


def compared(content: Mapping[str, Any], others: Iterable[Item | None]) -> str:
    """What is new beside what is there, for the person who has to choose."""
    lines = [f"new:   {words(content)}"]
    for other in others:
        if other is not None:
            likeness = near_duplicate(*subject_and_fact(content), *subject_and_fact(other.as_content()))
            lines += [f"known: {words(other.as_content())} ({other.id})", masked(str(likeness))]
    return "\n".join(lines)


def tombstones(views: ViewReader) -> list[Tombstone]:
    rows = views.scan("memory.tombstones")
    stones = [typed({**row, "id": str(key[0])}, Tombstone, "memory.tombstones", *key) for key, row in rows]
    return sorted(stones, key=lambda stone: (stone.deleted_us, stone.id))
