"""The history of one item: every change of it, from the versions of its row and the events that made them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..access.masking import masked
from ..access.rights import OWNER, Rights, rights_of
from ..errors import NotFound
from ..ledger.checks import from_us
from ..ledger.events import Event, unseal
from ..ledger.keys import pack
from ..ledger.printing import Readable
from ..ledger.reader import Snapshot
from ..ledger.scopes import SCOPE
from ..ledger.views import read_row
from .items import CONTENT, SHAPES, Item, from_row, value_text, without_secrets
from .reading import item_at, labelled, may_read
from .requests import CONSOLIDATED, CREATED, DELETED, FORGOTTEN, check_item
from .visibility import may_read_id, readable_ids

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session
    from .requests import ItemOrId
    from .viewer import Viewer

ACTS = {
    "patched": "revised", "skip": "dropped", "old": "settled", "new": "settled",
    "both": "settled", "merge": "merged", "create": "settled",
    FORGOTTEN: "forgotten", DELETED: "forgotten", CONSOLIDATED: "consolidated",
}  # fmt: skip
"""What a change is called, by the act or the kind of its event, where that is not the same word."""

UNTOLD = frozenset({
    "id", "position", "updated_us", "recorded_us", "agent", "run", "was", "held", "secrets", "verified_us",
    "superseded_by", "supersedes", "summarizes", "scope",
})  # fmt: skip
"""Fields of an item that the act says, or that tell nobody anything."""

LONGEST = 60
"""How many characters of a value stand in a sentence."""


class FieldChange(msgspec.Struct, frozen=True):
    """One field, before and after."""

    field: str
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        return f"{self.field} {_short(self.before)} → {_short(self.after)}"


class ItemChange(Readable, msgspec.Struct, frozen=True):
    """One change of an item: what was done, by whom and when, which fields changed, and the reason that was given."""

    act: str
    """created, revised, shared, unshared, verified, archived, restored, linked, corroborated, superseded, disputed,
    undisputed, settled, merged, dropped, relabelled, forgotten, consolidated or erased."""
    by: str
    """Who did it; "" for somebody whose own item did it, which the reader may not see."""
    at: datetime
    position: int
    fields: tuple[FieldChange, ...] = ()
    why: str = ""
    other: str | None = None
    """The item that supersedes or disputes it, if the reader may see that."""

    def __str__(self) -> str:
        other = f" by {self.other}" if self.other and self.act in ("superseded", "disputed") else ""
        fields = f": {'; '.join(map(str, self.fields))}" if self.fields else ""
        why = f" (because {self.why})" if self.why else ""
        return f"{self.at:%Y-%m-%d %H:%M} {self.by or 'somebody'}: {self.act}{other}{fields}{why}"


def _short(value: Any) -> str:
    if value in (None, "", (), [], {}):
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = value_text(value)
    return repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")


class _Version(NamedTuple):
    """An item as of one position, as its reader may see it: None if it may not."""

    position: int
    fields: Mapping[str, Any] | None


def history(session: Session, id: ItemOrId, at: At = None) -> list[ItemChange]:
    """Every change of an item as far as this actor may see it, oldest first."""
    session.check_reads("long_term")
    id = check_item("an item", id)
    with session.viewer(at) as viewer:
        item = viewer.item(id)
        if item is None:
            return _erased(session, viewer, id)
        reader = _VersionReader(viewer, session.actor, session.run)
        changes = sorted([*reader.changes(id), *reader.relabelled(id)], key=lambda change: change.position)
    session.was_shown([id])
    return changes


def _erased(session: Session, viewer: Viewer, id: str) -> list[ItemChange]:
    """All that is known of an item whose content is gone. Raises NotFound, alike for one that is not there."""
    stone = viewer.views.get("memory.tombstones", id)
    own = stone is not None and session.actor in (OWNER, stone["agent"])
    if not own or not stone["erased"] or not viewer.rights_now.in_scope(stone.get(SCOPE, "")):
        raise NotFound(f"there is no item {id!r} in this book")
    when = from_us(stone["deleted_us"])
    return [ItemChange("erased", stone["deleted_by"], when, viewer.views.position, why=stone["reason"])]


class _VersionReader:
    """Reads the versions of rows for one actor: what it could see then, and may see now."""

    def __init__(self, viewer: Viewer, actor: str, run: str | None) -> None:
        assert isinstance(viewer.views, Snapshot)
        self._viewer, self._views = viewer, viewer.views
        self._actor, self._run = actor, run

    def changes(self, id: str) -> Iterator[ItemChange]:
        before: Mapping[str, Any] | None = None
        for position, row in self._versions("memory.items", id):
            after = None if row is None else self._visible(position, from_row(row))
            event = self._event(position)
            if after is not None:
                act, other = _act(event, id)
                hidden = other is not None and self._viewer.item(other) is None
                fields = tuple(_changed(before, after, act))
                if fields or act not in ("disputed", "undisputed"):  # else it is about an item that is hidden
                    yield ItemChange(
                        act, "" if hidden else event.actor, event.created_at, position, fields,
                        "" if hidden else _why(event, id), None if hidden else other,
                    )  # fmt: skip
            before = after

    def relabelled(self, id: str) -> Iterator[ItemChange]:
        before = dict[str, Any]()
        for position, labels in self._versions("labels", id):
            item = item_at(self._then(position), id)
            event = self._event(position)
            fields = tuple(
                FieldChange(name, before.get(name), value)
                for name, value in (labels or {}).items()
                if before.get(name) != value
            )
            before = labels or {}
            if item is not None and fields and self._visible(position, item) is not None:
                yield ItemChange(
                    "relabelled", event.actor, event.created_at, position, fields, _why(event, id)
                )

    def _versions(self, view: str, id: str) -> list[tuple[int, Any]]:
        """What a row was from which position on, as far as versions are kept."""
        views, key = self._views, pack((id,))
        rows = views.reads.versions(views.meta.space(views.registry.view(view)), key, key + b"\0")
        kept = sorted((row for row in rows if row.position <= views.position), key=lambda row: row.position)
        return [(row.position, None if row.value is None else read_row(row)) for row in kept]

    def _event(self, position: int) -> Event:
        record = self._views.reads.records(position - 1, position, 1)[0]
        return self._views.registry.current(unseal(record))

    def _then(self, position: int) -> Snapshot:
        return self._views.at(max(position, self._views.meta.horizon))

    def _visible(self, position: int, item: Item) -> Mapping[str, Any] | None:
        """The fields of a version of an item, if the reader could read it then and may now; without secrets, and
        without items that are hidden from it."""
        then = self._then(position)
        rights: Rights = rights_of(then, self._actor, self._run)
        item = labelled(then, item)
        if not may_read(rights, item):
            return None
        now, today = self._viewer.now, self._viewer.rights_now
        fields = msgspec.to_builtins(without_secrets(item))
        return fields if rights.sees_all else readable_ids(fields, lambda id: may_read_id(now, today, id))


def _changed(before: Mapping[str, Any] | None, after: Mapping[str, Any], act: str) -> list[FieldChange]:
    """The fields that changed. Of what the reader could not see before, only the marks are told, not what it said."""
    if act == "created":
        return []
    names = {*before, *after} - UNTOLD if before is not None else {"shared", "status"}
    changed = []
    for name in names:
        was, now = (before or {}).get(name), after.get(name)
        if was != now and (was or now):  # an empty list is as good as none
            default = {"status": "live", "shared": False, "pinned": False}.get(name)
            changed.append(
                FieldChange(
                    _told(name, after["kind"]), _plain(name, was, default), _plain(name, now, default)
                )
            )
    return sorted(changed, key=lambda change: change.field)


def _told(name: str, kind: str) -> str:
    """A field as its author calls it."""
    if name == SHAPES[kind].text and name in CONTENT and name != "value":
        return "text"
    return name.removesuffix("_us")


def _plain(name: str, value: Any, default: Any) -> Any:
    if value is None:
        return default
    return from_us(value).isoformat() if name.endswith("_us") else value


def _act(event: Event, id: str) -> tuple[str, str | None]:
    """What an event did to an item, and the other item that did it, if there is one."""
    if event.erased:
        return "changed", None
    if event.kind == CREATED:
        if event.id == id:
            return "created", None
        return ("superseded" if id in event.payload.get("supersedes", ()) else "disputed"), event.id
    if event.kind in (FORGOTTEN, DELETED, CONSOLIDATED):
        return ACTS[event.kind], None
    fields, act = event.payload["changes"].get(id, {}), event.payload["act"]
    if fields.get("status") == "superseded":
        return "superseded", fields.get("superseded_by")
    return ACTS.get(act, act), None


def _why(event: Event, id: str) -> str:
    """The reason that was given for a change."""
    if event.erased:
        return ""
    if event.kind == CREATED:
        return masked(event.payload.get("override", "")) if event.id == id else ""
    return masked(event.payload.get("why") or event.payload.get("reason") or "")
