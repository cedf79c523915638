"""From the ledger to the index: what each event makes findable, and what it takes away."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from ..access.secrets import SPARE, beginning
from ..commit import Lens
from ..events import ERASED, Event, erased_by
from ..index import Change, Doc, Erase, Gone, Put, Who
from ..memory import daily, papers
from ..memory.capability import CHANGING, touched
from ..memory.items import MAX_TEXT, Item, without_secrets
from ..memory.pages import source_of
from ..memory.reading import item_at, tier_of
from ..memory.requests import CREATED
from ..memory.verbs import SAID, event_text
from ..views import Registry

RELABELLED = "access.relabelled"
RESULT = "memory.result"
"""What the log says of an agent's result: a line of the day, and of the agent's history."""

At = Callable[[int], Lens]
Find = Callable[[str], Event | None]
StandIn = Callable[[Event], Event | None]
Hide = Callable[[Event], Event]
"""An event as a log may show it."""


def changes(
    event: Event, at: At, find: Find, hide: Hide, registry: Registry, stand_in: StandIn
) -> list[Change]:
    """What an event means for the index. `at` looks at the book as of a position, `stand_in` gives what an erased
    event left behind."""
    if event.kind == ERASED:
        return [Erase(tuple(gone.id for gone in erased_by(event)))]
    if event.erased:
        seen = stand_in(event)
        if seen is None or event.kind not in CHANGING:
            return []
        lens = at(event.position)  # what was erased still has superseded others
        return [_of_item(str(key[0]), lens) for key in touched(seen) if key[0] != event.id]
    if event.kind in CHANGING:
        lens = at(event.position)
        return [_of_item(str(key[0]), lens) for key in touched(event)]
    if event.kind == daily.LOGGED:
        return [Put(_logged(event))]
    if event.kind == papers.NOTED:
        return _of_paper(event, at)
    if event.kind == RELABELLED:
        return _relabelled(event, at, find, hide, registry)
    doc = _said(event, hide, registry, {})
    return [] if doc is None else [Put(doc)]


def _of_item(id: str, lens: Lens) -> Change:
    item = item_at(lens, id)
    return Put(item_doc(item)) if item is not None and item.current else Gone(id)


def item_doc(item: Item) -> Doc:
    plain = without_secrets(item)
    tier = tier_of(item)
    who = Who(item.agent, CREATED, item.shared, item.sensitivity, tier, item.core or "")
    text = f"{plain.text}\n{' '.join(plain.tags)}" if plain.tags else plain.text
    return Doc(
        item.id, text, who, tier, source_of(item), item.occurred_us or item.recorded_us, item.run or ""
    )


def _logged(event: Event, sensitivity: str | None = None) -> Doc:
    payload = event.payload
    kind = RESULT if payload.get("about") else event.kind
    level = sensitivity or event.labels.get("sensitivity", "private")
    who = Who(event.actor, kind, True, level, "working")
    text = "\n".join(part for part in (payload.get("about"), payload["text"]) if part)
    source = f"memory/{daily.day_of(event.created_us)}.md"
    return Doc(event.id, _read(text), who, "working", source, event.created_us, event.run_id or "")


def _of_paper(event: Event, at: At) -> list[Change]:
    path = event.payload["path"]
    before = {one.id for one in papers.lines(at(event.position - 1), path)}
    after = {one.id: one for one in papers.lines(at(event.position), path)}
    ended = sorted(before - after.keys())
    if event.payload["act"] == "clear" and path.startswith(papers.SESSIONS):
        return (
            [Erase(tuple(ended))] if ended else []
        )  # a session that has ended is not found as of before, either
    gone: list[Change] = [Gone(id) for id in ended]
    changed = [one for one in after.values() if one.position == event.position]
    return gone + [Put(_line(one, path)) for one in changed]


def _line(line: papers.Line, path: str) -> Doc:
    who = Who(line.by, papers.NOTED, True, line.sensitivity, "working")
    return Doc(line.id, _read(line.text), who, "working", path, line.written_us)


def _said(event: Event, hide: Hide, registry: Registry, labels: dict[str, str]) -> Doc | None:
    """An event that says something: of a kind that anybody may record, or one whose owner says what."""
    if registry.owner(event.kind) is not None:
        return _declared(event, registry, labels)
    if not event_text(event.payload):
        return None
    # The rest of a large payload need not be read to know what the event says.
    said = {name: event.payload[name] for name in SAID if isinstance(event.payload.get(name), str)}
    short = {name: text[: MAX_TEXT + SPARE] for name, text in said.items()}
    text = _read(event_text(hide(replace(event, payload=short)).payload))
    level = {**event.labels, **labels}.get("sensitivity", "public")
    who = Who(event.actor, event.kind, False, level, "episodic")
    source = "the ledger" if event.run_id is None else f"run {event.run_id}"
    time_us = event.created_us if event.occurred_us is None else event.occurred_us
    said_in = event.session_id or event.run_id or ""
    return Doc(event.id, text, who, "episodic", source, time_us, event.run_id or "", said_in)


def _declared(event: Event, registry: Registry, labels: dict[str, str]) -> Doc | None:
    text = registry.says(event)
    if not text.strip():
        return None
    known = {**event.labels, **labels}
    who = Who(
        event.actor,
        event.kind,
        known.get("audience") == "team",
        known.get("sensitivity", "private"),
        "working",
    )
    source = f"work {event.payload['work']}" if "work" in event.payload else "the ledger"
    return Doc(event.id, _read(text), who, "working", source, event.created_us, event.run_id or "")


def _read(text: str) -> str:
    """What is read of a text, without its secrets: no more than an item may have."""
    return beginning(text, MAX_TEXT)


def _relabelled(event: Event, at: At, find: Find, hide: Hide, registry: Registry) -> list[Change]:
    """The same documents under other labels."""
    lens, found = at(event.position), list[Change]()
    for id in event.payload["changes"]:
        labels = lens.get("labels", id) or {}
        about = find(id)
        if item_at(lens, id) is not None:
            found.append(_of_item(id, lens))
        elif about is None or about.erased:
            continue
        elif about.kind == daily.LOGGED:
            found.append(Put(_logged(about, labels.get("sensitivity"))))
        elif about.kind == papers.NOTED:
            path = about.payload["path"]
            found += [Put(_line(one, path)) for one in papers.lines(lens, path) if one.id == id]
        else:
            doc = _said(about, hide, registry, labels)
            found += [] if doc is None else [Put(doc)]
    return found
