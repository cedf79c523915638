"""Who reads: an actor with its rights, as of a moment and now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from ..access.rights import Rights, may_see_of
from ..documents.document import WRITTEN
from ..ledger.encoding import convert
from ..ledger.keys import Key
from ..ledger.scopes import SCOPE, SCOPED, name_of
from .cores import Core, may_know
from .items import Item, without_secrets
from .reading import all_items, compared, item_at, items_at, may_read
from .settings import Settings, settings_of
from .visibility import readable_ids

if TYPE_CHECKING:
    from ..documents.document import DocumentEntry
    from ..ledger.reader import ViewReader


FEW_SCOPES = 64
"""Up to so many scopes are read one by one."""


class Viewer(NamedTuple):
    """An actor that reads the book as of a moment. What it reads must pass its rights and the labels of then and of
    now: the first pair is of then, the last of now."""

    pairs: tuple[tuple[ViewReader, Rights], ...]

    @property
    def views(self) -> ViewReader:
        """The book as of the moment that is asked about."""
        return self.pairs[0][0]

    @property
    def now(self) -> ViewReader:
        return self.pairs[-1][0]

    @property
    def rights_then(self) -> Rights:
        """Its rights as of the moment that is asked about."""
        return self.pairs[0][1]

    @property
    def rights_now(self) -> Rights:
        return self.pairs[-1][1]

    @property
    def settings(self) -> Settings:
        return settings_of(self.views)

    def sees(self, entry: DocumentEntry) -> bool:
        """Whether it may read an entry of a document."""
        labels = {"sensitivity": entry.sensitivity, "audience": "team", SCOPE: entry.scope}
        return all(
            may_see_of(rights, entry.by, WRITTEN, {**labels, **(views.get("labels", entry.id) or {})})
            for views, rights in self.pairs
        )

    def core(self, scope: str, id: str) -> Core | None:
        """The core of a scope with this id, as it is shown, if the reader may know of it."""
        rows = [(views.get("memory.cores", scope, id), rights) for views, rights in self.pairs]
        if not all(row is not None and may_know(rights, convert(row, Core)) for row, rights in rows):
            return None
        return replace(convert(rows[0][0], Core), scope=name_of(self.now, scope))

    # items

    def rows(self, view: str, *prefix: str | int) -> list[tuple[Key, Any]]:
        """The rows of a view whose keys go on with a scope after these parts, of every scope that it reads."""
        scopes = self.rights_then.scopes
        if scopes is None:
            return self.views.scan(view, *prefix)
        return [row for scope in sorted(scopes) for row in self.views.scan(view, *prefix, scope)]

    @property
    def partitions(self) -> list[str]:
        """Where a view that keeps rows for each scope and for all scopes together is read: a few scopes one by one."""
        scopes = self.rights_then.scopes
        return ["", SCOPED] if scopes is None or len(scopes) > FEW_SCOPES else sorted(scopes)

    def allows(self, item: Item) -> bool:
        """Whether it may read an item, by the rights and labels of then and of now."""
        if not may_read(self.rights_then, item):
            return False
        for views, rights in self.pairs[1:]:
            today = item_at(views, item.id)
            if today is None or not may_read(rights, today):
                return False
        return True

    def item(self, id: str) -> Item | None:
        item = item_at(self.views, id)
        return item if item is not None and self.allows(item) else None

    def items_of(self, ids: Iterable[str]) -> list[Item]:
        """Those of these items that it may see, each once."""
        return list(filter(self.allows, items_at(self.views, ids)))

    def items(self) -> Iterator[Item]:
        """Every item that it may see."""
        if self.rights_then.scopes is None:
            return filter(self.allows, all_items(self.views))
        rows = (row for where in self.partitions for row in self.views.each("memory.order", where))
        return (item for _, id in rows if (item := self.item(str(id))) is not None)

    def links(self, item: Item) -> list[tuple[str, str]]:
        """Where an item's links lead and where links to it come from: relation and item, in a stable order."""
        links = [*item.links, *(("supersedes", id) for id in item.supersedes)]
        if item.superseded_by is not None:
            links.append(("^supersedes", item.superseded_by))
        for key, _ in self.views.scan("memory.links", item.id):
            other = self.item(str(key[1]))
            if other is not None:
                links += [(f"^{relation}", other.id) for relation, to in other.links if to == item.id]
        return sorted(set(links))

    def shown(self, item: Item) -> Item:
        """An item as its reader is shown it: without secrets, and with what it is too near to beside it."""
        if item.held is not None and item.status == "held":
            others = [self._standing(id) for id in item.held.items]
            item = replace(item, held=replace(item.held, comparison=compared(item.as_content(), others)))
        if item.scope:
            item = replace(item, scope=name_of(self.now, item.scope))
        return without_secrets(item if self.rights_then.sees_all else self._without_hidden(item))

    def _standing(self, id: str) -> Item | None:
        """An item, or what has taken its place since, as far as the reader may see it."""
        item = self.item(id)
        while item is not None and item.superseded_by is not None:
            newer = self.item(item.superseded_by)
            if newer is None:
                break
            item = newer
        return item

    def _without_hidden(self, item: Item) -> Item:
        """An item that names no other one which its reader may not see."""
        hidden = convert(readable_ids(to_builtins(item), lambda id: self.item(id) is not None), Item)
        if item.held is None or hidden.held is None or item.agent != self.rights_now.actor:
            return hidden
        return replace(hidden, held=replace(hidden.held, receipts=item.held.receipts))  # its own digests
