"""From the ledger to the index: what each event makes findable, and what it takes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from ..access.masking import SPARE, beginning
from ..access.redact import TOKEN
from ..access.rights import AUTHOR
from ..documents.document import LOGGED, SESSIONS, WRITTEN, DocumentEntry, day_of, entries, log_path
from ..index import Change, Doc, Erase, Put, RemovedDoc, Who
from ..ledger.events import ERASED, Event, erased_by
from ..ledger.labels import flow
from ..ledger.reader import ViewReader
from ..ledger.scopes import scope_of
from ..ledger.views import Registry
from ..memory.capability import CHANGING, touched
from ..memory.items import MAX_TEXT, SAID, Item, event_text, without_secrets
from ..memory.places import source_of
from ..memory.reading import item_at, tier_of
from ..memory.requests import CREATED, UPDATED
from .escaping import RESULT

RELABELLED = "access.relabelled"

NO_LABELS: Mapping[str, str] = MappingProxyType({})

ViewsAt = Callable[[int], ViewReader]
Find = Callable[[str], Event | None]
StandIn = Callable[[Event], Event | None]
Hide = Callable[[Event], Event]
"""An event as a log may show it, by what is known of its run when it is asked for the first time."""


def changes(
    event: Event, at: ViewsAt, find: Find, hide: Hide, registry: Registry, stand_in: StandIn
) -> list[Change]:
    """What an event means for the index. `at` looks at the book as of a position, `stand_in` gives what an erased
    event left behind."""
    if event.kind == ERASED:
        return [Erase(tuple(gone.id for gone in erased_by(event)))]
    if event.erased:
        residue = stand_in(event)
        if residue is None or event.kind not in CHANGING:
            return []
        views = at(event.position)  # what was erased still has superseded others
        return [
            change
            for key in touched(residue)
            if key[0] != event.id
            for change in _of_item(str(key[0]), views)
        ]
    if event.kind in CHANGING:
        views = at(event.position)
        return [change for key in touched(event) for change in _of_item(str(key[0]), views)]
    if event.kind == WRITTEN:
        return _of_document(event, at)
    if event.kind == RELABELLED:
        return _relabelled(event, at, find, hide, registry)
    doc = event_doc(event, hide, registry)
    return [] if doc is None else [Put(doc)]


def told_again(erasure: Event, now: ViewReader, find: Find) -> Iterator[Change]:
    """The items whose change was erased, but not they themselves: each of their versions as it is since. The index
    knows a version by its item, so it cannot take out the erased one alone."""
    gone = [entry for entry in erased_by(erasure) if entry.residue and entry.residue.get("changes")]
    updates = [entry for entry in gone if (event := find(entry.id)) is not None and event.kind == UPDATED]
    for id in dict.fromkeys(id for entry in updates for id in (entry.residue or {})["changes"]):
        if item_at(now, id) is None:
            continue
        yield Erase((id,))
        positions, at = list[int](), erasure.position
        while at >= now.meta.horizon and (item := item_at(now.at(at), id)) is not None:
            positions.append(item.position)
            at = item.position - 1
        for position in reversed(positions):
            for change in _of_item(id, now.at(max(position, now.meta.horizon))):
                yield replace(change, since=position)


def event_doc(
    event: Event, hide: Hide, registry: Registry, labels: Mapping[str, str] = NO_LABELS
) -> Doc | None:
    """The document that an event is by itself, as a log may show it now; None for one that is none, or that became an
    item or an entry of a document."""
    if event.erased or event.kind in CHANGING or event.kind in (WRITTEN, RELABELLED, ERASED):
        return None
    if event.kind == LOGGED:
        doc = _logged(event, labels)
    elif registry.owner(event.kind) is not None:
        doc = (_declared if event.session_id is None else _in_thread)(event, registry, labels)
    else:
        event = _short(event)
        doc = _spoken(event, labels)
    return replace(doc, text=shown_text(doc.text, event, hide)) if doc.text.strip() else None


def shown_text(text: str, event: Event, hide: Hide, most: int = MAX_TEXT) -> str:
    """The beginning of a text made of what an event says, without what must not be shown of the event."""
    hidden = _hidden(event.payload, hide(event).payload)
    for value, instead in sorted(hidden, key=lambda pair: -len(pair[0])):  # a long one may hold a short one
        text = text.replace(value, instead)
    return beginning(text, most)


def _hidden(value: object, shown: object) -> Iterator[tuple[str, str]]:
    """Every text and number within a value that is shown as something else, and as what."""
    if isinstance(value, Mapping):
        parts = shown if isinstance(shown, Mapping) else {}
        for name, inner in value.items():
            yield from _hidden(inner, parts.get(name, TOKEN))
    elif isinstance(value, list | tuple):
        others = shown if isinstance(shown, list) and len(shown) == len(value) else [TOKEN] * len(value)
        for inner, other in zip(value, others, strict=True):
            yield from _hidden(inner, other)
    elif value not in (shown, None, "") and not isinstance(value, bool):
        yield str(value), shown if isinstance(shown, str) else TOKEN


def _of_item(id: str, views: ViewReader) -> list[Put | RemovedDoc]:
    """An item that does not hold any more leaves an empty last version: a reader who may see that one may find, as of
    before, what the item said."""
    item = item_at(views, id)
    if item is None:
        return [RemovedDoc(id)]
    doc = item_doc(item)
    return [Put(doc)] if item.current else [Put(replace(doc, text="")), RemovedDoc(id)]


def item_doc(item: Item) -> Doc:
    plain = without_secrets(item)
    tier = tier_of(item)
    who = Who(item.agent, CREATED, item.shared, item.sensitivity, tier, item.core or "")
    if item.status == "forgotten":
        level = flow({"sensitivity": item.sensitivity}, [{"sensitivity": "private"}])["sensitivity"]
        who = replace(who, shared=False, sensitivity=level)
    text = f"{plain.text}\n{' '.join(plain.tags)}" if plain.tags else plain.text
    return Doc(
        item.id, text, who, tier, source_of(item), item.occurred_us or item.recorded_us, item.run or "",
        scope=item.scope,
    )  # fmt: skip


def _logged(event: Event, labels: Mapping[str, str]) -> Doc:
    payload = event.payload
    kind = RESULT if payload.get("about") else event.kind
    level = {**event.labels, **labels}.get("sensitivity", "private")
    who = Who(event.actor, kind, True, level, "working")
    text = "\n".join(part for part in (payload.get("about"), payload["text"]) if part)
    source = log_path(day_of(event.created_us))
    return Doc(
        event.id, text, who, "working", source, event.created_us, event.run_id or "", scope=scope_of(event)
    )


def _of_document(event: Event, at: ViewsAt) -> list[Change]:
    path, scope = event.payload["path"], scope_of(event)
    before = {entry.id for entry in entries(at(event.position - 1), path, scope)}
    after = {entry.id: entry for entry in entries(at(event.position), path, scope)}
    ended = sorted(before - after.keys())
    if event.payload["act"] == "clear" and path.startswith(SESSIONS):
        # A session that has ended is not found as of before, either.
        return [Erase(tuple(ended))] if ended else []
    gone: list[Change] = [RemovedDoc(id) for id in ended]
    changed = [entry for entry in after.values() if entry.position == event.position]
    return gone + [Put(_entry(entry, path)) for entry in changed]


def _entry(entry: DocumentEntry, path: str) -> Doc:
    who = Who(entry.by, WRITTEN, True, entry.sensitivity, "working")
    return Doc(
        entry.id, beginning(entry.text, MAX_TEXT), who, "working", path, entry.written_us, scope=entry.scope
    )


def _spoken(event: Event, labels: Mapping[str, str]) -> Doc:
    """An event of a kind that anybody may record."""
    text = event_text(event.payload)
    level = {**event.labels, **labels}.get("sensitivity", "public")
    own = event.labels.get("audience") == AUTHOR
    who = Who(event.actor, event.kind, False, level, "episodic", own=own)
    source = "the ledger" if event.run_id is None else f"run {event.run_id}"
    time_us = event.created_us if event.occurred_us is None else event.occurred_us
    said_in = event.session_id or event.run_id or ""
    return Doc(event.id, text, who, "episodic", source, time_us, event.run_id or "", said_in, scope_of(event))


def _declared(event: Event, registry: Registry, labels: Mapping[str, str]) -> Doc:
    """An event of a kind whose owner says what it says."""
    labels = {**event.labels, **labels}
    shared, level = labels.get("audience") == "team", labels.get("sensitivity", "private")
    who = Who(event.actor, event.kind, shared, level, "working")
    source = f"work {event.payload['work']}" if "work" in event.payload else "the ledger"
    text = registry.says(event)
    return Doc(
        event.id, text, who, "working", source, event.created_us, event.run_id or "", scope=scope_of(event)
    )


def _in_thread(event: Event, registry: Registry, labels: Mapping[str, str]) -> Doc:
    """A turn of a conversation. What was said on one day belongs together: a thread may go on for years, and what the
    whole of it is about says nothing about a turn."""
    labels = {**event.labels, **labels}
    shared, level = labels.get("audience") == "team", labels.get("sensitivity", "private")
    who = Who(event.actor, event.kind, shared, level, "episodic")
    time_us = event.created_us if event.occurred_us is None else event.occurred_us
    said_in = f"{event.session_id}@{day_of(time_us)}"
    source = f"thread {event.session_id}"
    run = event.run_id or ""
    return Doc(
        event.id, registry.says(event), who, "episodic", source, time_us, run, said_in, scope_of(event),
        event.payload.get("name", ""),
    )  # fmt: skip


def _short(event: Event) -> Event:
    """An event with no more of its payload than has to be read to know what it says; a secret at the end is whole."""
    texts = {name: event.payload[name] for name in SAID if isinstance(event.payload.get(name), str)}
    return replace(event, payload={name: text[: MAX_TEXT + SPARE] for name, text in texts.items()})


def _relabelled(event: Event, at: ViewsAt, find: Find, hide: Hide, registry: Registry) -> list[Change]:
    """The same documents under other labels."""
    views, changed = at(event.position), list[Change]()
    for id in event.payload["changes"]:
        labels = views.get("labels", id) or {}
        about = find(id)
        if item_at(views, id) is not None:
            changed += _of_item(id, views)
        elif about is None or about.erased:
            continue
        elif about.kind == WRITTEN:
            path = about.payload["path"]
            kept = entries(views, path, scope_of(about))
            changed += [Put(_entry(entry, path)) for entry in kept if entry.id == id]
        else:
            doc = event_doc(about, hide, registry, labels)
            changed += [] if doc is None else [Put(doc)]
    return changed
