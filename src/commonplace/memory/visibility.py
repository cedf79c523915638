"""Who may see an event of memory: an actor that may see what the event is about, now as well as then.

An event's own labels say who could see it when it was recorded. What it is about may have been taken back since: an
item was unshared or forgotten, its core made private, a session cleared. So events follow what they are about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ..access.rights import WORKING, Rights, labels_allow, work_shows
from ..documents.document import SESSIONS, WRITTEN, entries
from ..ledger.encoding import convert
from ..ledger.events import Event
from ..ledger.labels import Labels
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from .cores import CORE_SET, Core, may_know
from .reading import item_at, may_read
from .requests import CREATED, UPDATED

QUOTING = {"premise.changed": ("text",), "work.nudged": ("said", "quote")}
"""Events that quote an item, which their payload names as `item`: where in the payload the quote stands."""


def may_see(views: ViewReader, rights: Rights, event: Event, relabelled: Labels | None = None) -> bool:
    """Whether an actor may see an event, by the labels and the book that the views show. `relabelled`: what its labels
    were changed to, if the caller has read that already."""
    if rights.sees_all:
        return True
    if relabelled is None:
        relabelled = views.get("labels", event.id) or {}
    if not labels_allow(rights, event, {**event.labels, **relabelled} if relabelled else event.labels):
        return False
    if event.erased or rights.owner:
        return True
    if event.kind in (CREATED, UPDATED):
        return all(may_read_id(views, rights, id) for id in _items_of(event))
    if event.kind == WRITTEN and event.payload["path"].startswith(
        SESSIONS
    ):  # cleared notes are gone for their author, too
        counting = entries(views, event.payload["path"], scope_of(event))
        return event.payload["act"] == "clear" or any(entry.id == event.id for entry in counting)
    if event.actor == rights.actor:
        return True
    if event.kind == CORE_SET:
        core = views.get("memory.cores", scope_of(event), event.payload["id"])
        return core is not None and may_know(rights, convert(core, Core))
    return True


def may_be_told(views: ViewReader, rights: Rights, event: Event) -> bool:
    """Whether an actor that was once shown an event, perhaps by a work, may see it still."""
    labels = {**event.labels, **(views.get("labels", event.id) or {})}
    told_by_a_work = event.kind.startswith(WORKING) and work_shows(rights, event.actor, event.kind, labels)
    return told_by_a_work or may_see(views, rights, event)


def may_read_id(views: ViewReader, rights: Rights, id: str) -> bool:
    """Whether an actor may read an item; one that was erased hides nothing."""
    item = item_at(views, id)
    return item is None or may_read(rights, item)


def _items_of(event: Event) -> Iterable[str]:
    return [event.id] if event.kind == CREATED else event.payload["changes"]


def without_hidden(views: ViewReader, rights: Rights, event: Event) -> Event:
    """The event without ids and quotes of items that the reader may not read."""
    if rights.sees_all or event.erased:
        return event

    def visible(fields: Mapping[str, Any]) -> dict[str, Any]:
        return readable_ids(fields, lambda id: may_read_id(views, rights, id))

    payload = event.payload
    if event.kind == CREATED:
        payload = visible(payload)
        if "item" in payload:
            payload["item"] = visible(payload["item"])
    elif event.kind == UPDATED:
        changes = {id: visible(fields) for id, fields in payload["changes"].items()}
        payload = {**payload, "changes": changes}
    elif "joins" in payload and event.kind.startswith(WORKING):  # what the agent did before may be hidden
        payload = {name: value for name, value in payload.items() if name != "joins"}
    elif event.kind in QUOTING and "item" in payload and not may_read_id(views, rights, payload["item"]):
        payload = _unquoted(payload, QUOTING[event.kind])
    return event if payload is event.payload else replace(event, payload=payload)


def readable_ids(fields: Mapping[str, Any], readable: Callable[[str], bool]) -> dict[str, Any]:
    """Fields of an item, without the ids of other items that the reader may not read."""
    kept = dict(fields)
    for name, value in fields.items():
        if name in ("supersedes", "disputed", "summarizes"):
            kept[name] = [id for id in value if readable(id)]
        elif name == "links":
            kept[name] = [link for link in value if readable(link[1])]
        elif name == "superseded_by" and value is not None:
            kept[name] = value if readable(value) else None
        elif name == "held" and value is not None:
            parts = {
                part: [id for id in value.get(part, ()) if readable(id)] for part in ("items", "supersedes")
            }
            kept[name] = {**value, **parts, "receipts": []}  # those are their readers' own
    return kept


def _unquoted(payload: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    name, *inner = place
    return {**payload, name: _unquoted(payload[name], tuple(inner)) if inner else ""}
