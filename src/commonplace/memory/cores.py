"""Memory cores: named collections of what a team has learned, each with rules of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from ..access.commands import need, need_tier
from ..access.rights import Rights, may_see_of, rights_of
from ..errors import Denied, NotFound
from ..ledger.encoding import convert
from ..ledger.events import draft
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from ..ledger.scopes import SCOPE
from ..ledger.views import typed
from .changes import follow_core
from .items import Item
from .portions import merged
from .settings import converted

if TYPE_CHECKING:
    from .viewer import Viewer

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
    scope: str = ""
    """The scope that it belongs to; "" for the root. In the book, the scope's key; as it is shown, its path."""

    def __str__(self) -> str:
        about = f": {self.description}" if self.description else ""
        return f"core {self.id} ({self.type}, {self.visibility}){about}"

    def __repr__(self) -> str:
        return f"<{self}>"


class SetCore(msgspec.Struct, frozen=True):
    """Make a core, or change its settings."""

    by: str
    id: str
    fields: dict[str, Any]
    run: str | None = None


def decide_core(overlay: Overlay, request: SetCore) -> Core | Denied:
    refused = need_tier(overlay, request.by, "long_term", True, request.run)
    refused = refused or need(overlay, request.by, "keep_memory", request.id)
    if refused:
        return refused
    before = overlay.get("memory.cores", overlay.scope, request.id)
    if before is not None and not may_know(rights_of(overlay, request.by), convert(before, Core)):
        raise NotFound(no_core(request.id))
    fields = before or {"name": request.id, "owner": request.by}
    core = converted(merged(fields, {**request.fields, "id": request.id}), Core, "a core")
    after = msgspec.to_builtins(core)
    if after != {"scope": "", **(before or {})}:
        team = core.visibility != "private"
        if before is not None and (before["visibility"] != "private") != team:
            follow_core(overlay, request.by, core.id, team)
        labels = {"sensitivity": "private", **({"audience": "team"} if team else {})}
        del after["scope"]
        overlay.emit(draft(CORE_SET, actor=request.by, payload=after, labels=labels))
    return core


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
    """A core of the scope that the reader writes to. Raises NotFound."""
    row = views.get("memory.cores", views.scope, id)
    if row is None:
        raise NotFound(no_core(id))
    return typed(row, Core, "memory.cores", views.scope, id)


def no_core(id: str) -> str:
    return (
        f"there is no core {id!r}: memory.cores() lists them, and a librarian or person makes one with "
        "memory.set_core(…)"
    )


def may_know(rights: Rights, core: Core) -> bool:
    audience = {"audience": "team"} if core.visibility != "private" else {}
    labels = {"sensitivity": "private", SCOPE: core.scope, **audience}
    return may_see_of(rights, core.owner, CORE_SET, labels)


def walked(viewer: Viewer, first: Item, depth: int, relations: set[str] | None) -> list[LinkStep]:
    """Every item within so many links of the first one that the reader may see, each once."""
    visited, steps, edge = {first.id}, list[LinkStep](), [first]
    for distance in range(1, depth + 1):
        ahead: list[Item] = []
        for item in edge:
            for relation, id in viewer.links(item):
                if id in visited or len(steps) >= MOST_STEPS:
                    continue
                if relations is not None and relation.removeprefix("^") not in relations:
                    continue
                other = viewer.item(id)
                if other is not None and other.status in ("live", "superseded"):
                    visited.add(id)
                    steps.append(LinkStep(distance, relation, item.id, viewer.shown(other)))
                    ahead.append(other)
        edge = ahead
    return steps
