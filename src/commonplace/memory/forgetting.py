"""Forgetting and erasing items, and notes that stand for forgotten episodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from ..access.commands import check_names_kept, need
from ..access.rights import OWNER, rights_of
from ..errors import Denied
from ..ledger.checks import from_us
from ..ledger.erase import EraseRequest, Erasure, decide_erase, with_derived
from ..ledger.events import Event, draft
from ..ledger.overlay import Overlay
from ..ledger.scopes import scope_of
from .changes import check_unchanged, end_disputes, refused_change, to_forget, weight_of
from .items import Item
from .reading import item_at
from .requests import CONSOLIDATED, CREATED, DELETED, FORGOTTEN, UPDATED, Forget, Forgotten, Summarize

KINDS = {"consolidation": CONSOLIDATED, "budget": DELETED}
"""The kind of the event that buries items, by what deleted them; otherwise FORGOTTEN."""

SUMMARY_TITLE = "Earlier episodes"


def decide_forget(overlay: Overlay, request: Forget) -> Forgotten | Denied:
    """Forget items; with `erase`, their content and everything derived from it is gone."""
    items = [item for item in (to_forget(overlay, request.by, id) for id in request.ids) if item is not None]
    for item in items:
        refused = refused_change(overlay, request.by, item, "forget", request.run)
        if refused:
            return refused
        check_unchanged(item, request.if_position)
    already = tuple(item.id for item in items if item.status == "forgotten")
    fresh = tuple(item.id for item in items if item.status != "forgotten")
    erasing = tuple(item.id for item in items) if request.erase else ()
    erase = EraseRequest(with_proven(overlay, erasing), request.by, request.reason, True)
    gone: tuple[str, ...] = overlay.run("ledger", decide_erase, erase).erased if erasing else ()
    derived = tuple(id for id in _items_among(overlay, gone) if id not in erasing)
    shown = _shown(overlay, request.by, gone, derived)
    if request.dry_run or not (fresh or gone):
        return Forgotten(fresh, already, *shown)
    position = _bury(overlay, request, [*(erasing or fresh), *derived])
    again = _erase(overlay, replace(erase, dry_run=False), derived) if gone else ()
    return Forgotten(fresh, already, *shown, position, again)


def _shown(
    overlay: Overlay, by: str, gone: tuple[str, ...], derived: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The events and items that somebody may be told of: all for the owner, else only one's own, each of the scopes
    that are read."""
    rights = rights_of(overlay, by)
    if rights.sees_all:
        return gone, derived
    events = [event for id in gone if (event := overlay.event(id)) is not None]
    own = {event.id for event in events if by in (OWNER, event.actor) and rights.in_scope(scope_of(event))}
    return tuple(id for id in gone if id in own), tuple(id for id in derived if id in own)


def _bury(overlay: Overlay, request: Forget, ids: Iterable[str]) -> int:
    """Record the tombstones of these items, for each scope in an event of its own; answers the position."""
    items = [item for item in (item_at(overlay, id) for id in ids) if item is not None]
    items = [item for item in items if request.erase or item.status != "forgotten"]
    stones, weights = dict[str, list[dict[str, str]]](), dict[str, int]()
    for item in items:
        stones.setdefault(item.scope, []).append({"id": item.id, "agent": item.agent})
        weights[item.scope] = weights.get(item.scope, 0) - weight_of(item)
    for item in items:
        end_disputes(overlay, request.by, item)
    kind, erased = KINDS.get(request.deleted_by, FORGOTTEN), {"erased": True} if request.erase else {}
    for scope, weight in weights.items():
        payload: dict[str, Any] = {
            "items": stones[scope], "by": request.deleted_by, "reason": request.reason, "weight": weight, **erased,
        }  # fmt: skip
        overlay.emit(draft(kind, actor=request.by, payload=payload), scope=scope)
    return overlay.position


def decide_memory_erase(overlay: Overlay, request: EraseRequest) -> Erasure:
    """Erase any events: items among them leave tombstones, and summaries of what is gone are written again. Raises
    Conflict if somebody would gain a right by it."""
    request = replace(request, ids=with_proven(overlay, request.ids))
    plan: Erasure = overlay.run("ledger", decide_erase, replace(request, dry_run=True))
    check_names_kept(overlay, frozenset(plan.erased))
    if request.dry_run or not plan.erased:
        return plan
    items = _items_among(overlay, plan.erased)
    _bury(overlay, Forget(request.actor, tuple(items), request.reason, "operator", True), items)
    _erase(overlay, request, items)
    return Erasure(plan.erased, plan.already, overlay.position)


def with_proven(overlay: Overlay, ids: tuple[str, ...]) -> tuple[str, ...]:
    """These ids, and the items for which one of these events, or something derived from them, was brought as evidence:
    such an item is derived from it, though the item is older."""
    every = list(ids)
    while True:
        gone = with_derived(overlay, every)
        events = [event for id in gone if (event := overlay.event(id)) is not None]
        proven = {id for event in events if not event.erased for id in _proven_by(event, gone)} - gone
        if not proven:
            return tuple(every)
        every += sorted(proven)


def _proven_by(event: Event, gone: set[str]) -> list[str]:
    """The item that a change has brought evidence for, if some of that evidence is gone."""
    changes = event.payload["changes"] if event.kind == UPDATED else {}
    if not any(parent in gone and parent not in changes for parent in event.parents):
        return []
    return [id for id, fields in changes.items() if len(changes) == 1 or "held" in fields]


def _erase(overlay: Overlay, request: EraseRequest, items: Iterable[str]) -> tuple[str, ...]:
    """Erase, and summarize again the episodes that are left of those that a note stood for. Answers the new notes."""
    rows = [overlay.get("memory.items", id) or {} for id in items if id not in request.ids]
    overlay.run("ledger", decide_erase, request)
    notes = (_summary(overlay, request.actor, row["summarizes"]) for row in rows if row.get("summarizes"))
    return tuple(note.id for note in notes if note is not None)


def _items_among(overlay: Overlay, events: Iterable[str]) -> list[str]:
    return [id for id in events if overlay.get("memory.items", id) is not None]


# summaries


def decide_summarize(overlay: Overlay, request: Summarize) -> Forgotten | Denied:
    """Let one note stand for episodes."""
    refused = need(overlay, request.by, "keep_memory", "consolidate episodes")
    if refused:
        return refused
    note = _summary(overlay, request.by, request.ids)
    reason = "it is told in another item" if note is None else f"it is told in {note.id}"
    forgotten = decide_forget(
        overlay, Forget(request.by, request.ids, reason, "consolidation", run=request.run)
    )
    if isinstance(forgotten, Denied) or note is None:
        return forgotten
    return replace(forgotten, rederived=(note.id,))


def _summary(overlay: Overlay, by: str, ids: Iterable[str]) -> Event | None:
    """Record the note that stands for these episodes; None when none of them is there any more. It is derived from
    them: as sensitive as they are, and gone when one of them is erased."""
    items = (item_at(overlay, id) for id in ids)
    episodes = [item for item in items if item is not None and item.kind == "episode"]
    if not episodes:
        return None
    parents = [item.id for item in episodes]
    content = {
        "kind": "note",
        "title": SUMMARY_TITLE,
        "body": summarized(episodes),
        "provenance": {"source_kind": "system", "channel": "consolidation"},
    }
    payload: dict[str, Any] = {"item": content, "for": episodes[0].agent, "summarizes": parents}
    if secrets := sorted({kind for item in episodes for kind in item.secrets}):
        payload["secrets"] = secrets
    team = {"audience": "team"} if all(item.shared for item in episodes) else {}
    labels = {"sensitivity": "private", **team}
    note = draft(CREATED, actor=by, payload=payload, parents=parents, labels=labels)
    return overlay.emit(note, scope=episodes[0].scope)


def summarized(episodes: Iterable[Item]) -> str:
    """Episodes as the text of one note."""
    ordered = sorted(episodes, key=lambda item: (item.occurred_us or 0, item.id))
    return "\n".join(f"{from_us(item.occurred_us or 0):%Y-%m-%d}: {item.summary}" for item in ordered)
