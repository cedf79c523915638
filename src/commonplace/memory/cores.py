"""Memory cores: named collections of what a team has learned, each with rules of its own."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ..access.rights import Rights, may_see_of
from ..errors import NotFound
from ..ledger.reader import ViewReader
from ..ledger.views import typed
from .items import Item
from .reading import VisibleItems

CORE_SET = "memory.core.set"


class CoreConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A core's own rules. `archive_after_days` None: entries never grow old."""

    auto_dedupe: bool = True
    auto_link: bool = False
    min_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    require_verification: bool = False
    archive_after_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] | None = None
    exclusions: Literal["advise", "refuse", "off"] | None = None
    """As the book's setting of this name, which holds where this says nothing."""


class Core(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    description: str = ""
    type: Literal["technology", "project", "pattern", "personal"] = "project"
    tags: tuple[str, ...] = ()
    owner: str = ""
    visibility: Literal["private", "team", "public"] = "team"
    config: CoreConfig = CoreConfig()


class SetCore(msgspec.Struct, frozen=True):
    """Make a core, or change its settings."""

    by: str
    id: str
    fields: dict[str, Any]


DEEPEST = 10
MOST_STEPS = 1_000


class LinkStep(msgspec.Struct, frozen=True):
    """An item that a link leads to: how far away, by which relation, and from which item. A relation that was
    followed against its direction has `^` before it."""

    depth: int
    relation: str
    source: str
    item: Item


def core_of(views: ViewReader, id: str) -> Core:
    """Raises NotFound."""
    row = views.get("memory.cores", id)
    if row is None:
        raise NotFound(no_core(id))
    return typed(row, Core, "memory.cores", id)


def no_core(id: str) -> str:
    return f"there is no core {id!r}: cores() lists them, and a librarian or person makes one with core()"


def may_know(rights: Rights, core: Core) -> bool:
    audience = {"audience": "team"} if core.visibility != "private" else {}
    return may_see_of(rights, core.owner, CORE_SET, {"sensitivity": "private", **audience})


def walked(judge: VisibleItems, first: Item, depth: int, relations: set[str] | None) -> list[LinkStep]:
    """Every item within so many links of the first one that the reader may see, each once."""
    seen, found, edge = {first.id}, list[LinkStep](), [first]
    for distance in range(1, depth + 1):
        ahead: list[Item] = []
        for item in edge:
            for relation, id in judge.links(item):
                if id in seen or len(found) >= MOST_STEPS:
                    continue
                if relations is not None and relation.removeprefix("^") not in relations:
                    continue
                other = judge.item(id)
                if other is not None and other.status in ("live", "superseded"):
                    seen.add(id)
                    found.append(LinkStep(distance, relation, item.id, judge.shown(other)))
                    ahead.append(other)
        edge = ahead
    return found
