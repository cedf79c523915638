"""Reading items: one as of any moment, many by what they are, each only if its reader may see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from ..access.rights import OWNER, Rights, may_see_of, rights_of
from ..access.secrets import masked
from ..ledger.labels import FLOWING
from ..ledger.reader import ViewReader
from ..ledger.views import typed
from .claims import key_form
from .items import Item, from_row, subject_and_fact, without_secrets
from .portions import Count, DigestRules, Salience
from .requests import CREATED, Tombstone
from .similar import near_duplicate

if TYPE_CHECKING:
    from ..ledger.ledger import At, Ledger

MEMORY_MD = "MEMORY.md"


Days = Annotated[int, msgspec.Meta(ge=0, le=36_500)]


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much durable memory may hold before it is consolidated; None: as much as there is."""

    max_items: Count | None = None
    max_chars: Count | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a book's durable memory is kept."""

    max_size_kb: Annotated[int, msgspec.Meta(ge=1, le=10**6)] = 100
    """What MEMORY.md may have; older entries go to its archive."""
    retention_days: Days = 30
    """How long daily logs are kept before they are archived."""
    archive_days: Days = 14
    """How long finished work stays before it is archived."""
    secrets: Literal["label", "mask", "reject"] = "label"
    """What happens to a secret in what is remembered: it is kept and not shown, taken out, or refused."""
    exclusions: Literal["advise", "refuse", "off"] = "advise"
    """What becomes of what can be read elsewhere (code, git) or will not last: it is kept with an advice, refused, or
    not looked at. In memory of the repository it is refused, unless this is off."""
    budget: Budget = Budget()
    v1: DigestRules = DigestRules()
    """What a prompt is given of it, and how much: see `DigestRules`."""
    salience: Salience = Salience()
    """How events of a run are ranked for a prompt."""
    receipts: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """Of how many digests a receipt is written: all, a share, or with 0 none."""
    stale: Literal["mark", "leave_out"] = "mark"
    """What becomes of an item whose files, symbols or commands are not there any more."""
    person: str = "person"
    """Who edits the markdown by hand."""
    places: dict[str, str] = {}
    """Where the markdown stands if not in its usual place, such as `{"plans/artifacts/": "work/"}`: a file or folder
    of the mirror, and what it is called instead."""
    embedder: Annotated[str, msgspec.Meta(max_length=300)] = "static"
    """What makes the vectors that search compares: static, minilm, fastembed:MODEL, sentence-transformers:MODEL or
    openai:MODEL@URL. A new book has the best that was installed when it was made (`best_embedder`)."""


def settings_of(views: ViewReader) -> Settings:
    row = views.get("memory.settings", "")
    if row is None:
        return Settings(embedder=views.meta.embedder)
    return typed(row, Settings, "memory.settings", "")


def tier_of(item: Item) -> str:
    return "episodic" if item.kind == "episode" else "long_term"


def item_at(views: ViewReader, id: str) -> Item | None:
    """An item with the labels that hold for it by now, and its secrets."""
    row = views.get("memory.items", id)
    return None if row is None else labelled(views, from_row(row))


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
    labels = {"sensitivity": item.sensitivity, "trust": item.trust}
    return {**labels, "audience": "team"} if item.shared else labels


def of_memory(item: Item) -> bool:
    """Whether an item stands in MEMORY.md: the team's, of no core, and no fact of the repository."""
    return item.shared and item.core is None and not item.scope and item.sensitivity != "sensitive"


def may_read(rights: Rights, item: Item) -> bool:
    """Whether an actor with these rights may see an item. One that was forgotten is its author's and the owner's."""
    forgotten = item.status == "forgotten" and rights.actor not in (item.agent, OWNER)
    return not forgotten and may_name(rights, item)


def may_name(rights: Rights, item: Item) -> bool:
    """Whether an actor with these rights may be told that an item is there, or was there before it was forgotten."""
    if rights.tier(tier_of(item)) == "none":
        return False
    return may_see_of(rights, item.agent, CREATED, labels_of(item))


class VisibleItems:
    """Whether a reader may see an item: by the rights and labels of then, and of now."""

    def __init__(self, then: ViewReader, now: ViewReader, rights: Callable[[ViewReader], Rights]) -> None:
        self._then, self._now = then, now
        self._rights = [rights(then)] if then is now else [rights(then), rights(now)]

    @property
    def settings(self) -> Settings:
        return settings_of(self._then)

    @property
    def then(self) -> ViewReader:
        """The book as of the moment that is asked about."""
        return self._then

    @property
    def now(self) -> ViewReader:
        return self._now

    def item(self, id: str) -> Item | None:
        found = item_at(self._then, id)
        return found if found is not None and self.allows(found) else None

    def links(self, item: Item) -> list[tuple[str, str]]:
        """Where an item's links lead and where links to it come from: relation and item, in a stable order."""
        out = [*item.links, *(("supersedes", id) for id in item.supersedes)]
        if item.superseded_by is not None:
            out.append(("^supersedes", item.superseded_by))
        for key, _ in self._then.scan("memory.links", item.id):
            other = self.item(str(key[1]))
            if other is not None:
                out += [(f"^{relation}", other.id) for relation, to in other.links if to == item.id]
        return sorted(set(out))

    def shown(self, item: Item) -> Item:
        """An item as its reader is shown it: without secrets, and with what it is too near to beside it."""
        if item.held is not None and item.status == "held":
            others = [self._standing(id) for id in item.held.items]
            item = replace(item, held=replace(item.held, comparison=compared(item.as_content(), others)))
        return without_secrets(item if self._rights[0].owner else self._without_hidden(item))

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
        shown = {
            name: tuple(id for id in getattr(item, name) if self.item(id) is not None)
            for name in ("supersedes", "disputed", "retells")
            if getattr(item, name)
        }
        links = tuple(link for link in item.links if self.item(link[1]) is not None)
        by = item.superseded_by if item.superseded_by and self.item(item.superseded_by) is not None else None
        held = item.held
        if held is not None:
            ids = tuple(id for id in held.items if self.item(id) is not None)
            held = replace(held, items=ids, supersedes=tuple(id for id in held.supersedes if self.item(id)))
        return replace(item, **shown, links=links, superseded_by=by, held=held)

    def allows(self, item: Item) -> bool:
        if not may_read(self._rights[0], item):
            return False
        if self._then is self._now:
            return True
        today = item_at(self._now, item.id)
        return today is not None and may_read(self._rights[1], today)

    def items(self) -> Iterator[Item]:
        """Every item of the book that the reader may see, oldest first."""
        return filter(self.allows, all_items(self._then))


@contextmanager
def judging(ledger: Ledger, actor: str, at: At, run: str | None = None) -> Iterator[VisibleItems]:
    """A judge of what an actor may see, as of `at`, for the length of a `with` block; in a run, under its rules."""

    def rights(views: ViewReader) -> Rights:
        return rights_of(views, actor, run)

    with ledger.snapshot() as now:
        if at is None:
            yield VisibleItems(now, now, rights)
            return
        with ledger.snapshot(at) as then:
            yield VisibleItems(then, now, rights)


def chosen(
    items: Iterable[Item],
    *,
    kind: str | None = None,
    key: str | None = None,
    tag: str | None = None,
    agent: str | None = None,
    core: str | None = None,
    scope: str | None = None,
    category: str | None = None,
    provenance: dict[str, Any] | None = None,
    status: str | None = "live",
    valid_at: int | None = None,
) -> Iterator[Item]:
    """Those of the items that match everything that is given."""
    form = None if key is None else key_form(key)
    for item in items:
        wanted = (
            (kind is None or item.kind == kind)
            and (key is None or (item.key is not None and key_form(item.key) == form))
            and (tag is None or tag in item.tags)
            and (agent is None or item.agent == agent)
            and (core is None or item.core == core)
            and (scope is None or item.scope == scope)
            and (category is None or item.category == category)
            and (status is None or item.status == status)
            and (provenance is None or provenance.items() <= item.provenance.items())
            and (valid_at is None or item.valid(valid_at))
        )
        if wanted:
            yield item


def words(content: Mapping[str, Any]) -> str:
    """What an item says, short enough to be shown beside another one."""
    subject, fact = subject_and_fact(content)
    return masked(f"{subject} | {fact}"[:300])


def compared(content: Mapping[str, Any], others: Iterable[Item | None]) -> str:
    """What is new beside what is there, for whoever has to choose."""
    told = [f"new:   {words(content)}"]
    for one in others:
        if one is not None:
            likeness = near_duplicate(*subject_and_fact(content), *subject_and_fact(one.as_content()))
            told += [f"known: {words(one.as_content())} ({one.id})", masked(str(likeness))]
    return "\n".join(told)


def tombstones(views: ViewReader) -> list[Tombstone]:
    rows = views.scan("memory.tombstones")
    found = [typed({**row, "id": str(key[0])}, Tombstone, "memory.tombstones", *key) for key, row in rows]
    return sorted(found, key=lambda one: (one.deleted_at, one.id))
