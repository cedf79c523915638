"""What happens to items after they are stored: changed, shared, verified, resolved, forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ..access.commands import Audience, decide_audience, need, need_tier
from ..access.rights import OWNER, rights_of
from ..commit import Overlay
from ..erase import EraseRequest, Erasure, decide_erase
from ..errors import BadInput, Conflict, Denied
from ..events import draft
from .items import COMMON, CONTENT, SHAPES, Item, plain_name
from .reading import item_at, words
from .remember import change, known, weight_of
from .requests import CONSOLIDATED, CREATED, DELETED, FORGOTTEN, Forget, Forgotten, Mark, Patch, Resolve
from .upkeep import Retell, note_of

CHOICES = ("skip", "merge", "create")
SETTLEMENTS = ("new", "old", "both")
DELETERS = ("user", "operator", "system", "budget", "consolidation")


def _may_change(overlay: Overlay, by: str, item: Item, act: str) -> Denied | None:
    refused = need_tier(overlay, by, "long_term", True)
    if refused or item.agent == by:
        return refused
    return need(overlay, by, "keep_memory", f"{act} {item.id}")


def decide_patch(overlay: Overlay, request: Patch) -> int | Denied:
    """Answers the position of the change, or of the last one if nothing changes."""
    item = known(overlay, request.by, request.id)
    if request.key and overlay.get("memory.edits", request.key) is not None:
        return item.position
    refused = _may_change(overlay, request.by, item, request.act)
    if refused:
        return refused
    shape = SHAPES[item.kind]
    allowed = {*shape.needs, *shape.may, *COMMON} - {"core", "scope"}
    stray = sorted(name for name in request.content if name not in allowed)
    if stray:
        raise BadInput(f"a {item.kind} has no {', '.join(map(plain_name, stray))} to change")
    if item.scope == "repository" and CONTENT.intersection(request.content):
        raise BadInput(f"{item.id!r} is a fact of the repository: it is not changed, a new one supersedes it")
    if request.seen is not None and item.position > request.seen:
        raise Conflict(
            f"item {item.id!r} was changed at {item.position}, after you had read it at {request.seen}: read it again",
            [{"seen": request.seen, "current": item.position, "text": words(item.as_content())}],
        )
    if not item.current and item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}: restore it first")
    before = msgspec.to_builtins(item)
    wanted = {name: value for name, value in request.content.items() if before.get(name) != value}
    if not wanted:
        return item.position
    after = replace(item, **wanted, secrets=tuple(sorted({*item.secrets, *request.secrets})))
    return change(
        overlay,
        request.by,
        request.act,
        {item.id: {**wanted, "secrets": after.secrets}},
        why=request.why,
        weight=weight_of(after) - weight_of(item),
        key=request.key,
        placed=[after],
    )


def decide_mark(overlay: Overlay, request: Mark) -> int | Denied:
    find = _to_forget if request.act == "restored" else known
    items = [one for one in (find(overlay, request.by, id) for id in request.ids) if one is not None]
    position = overlay.position
    for item in items:
        refused = _may_change(overlay, request.by, item, request.act)
        if refused:
            return refused
        after = _marked(overlay, request, item)
        if after != {name: getattr(item, name) for name in after}:
            changed = replace(item, **after)
            position = change(
                overlay,
                request.by,
                request.act,
                {item.id: after},
                why=request.why,
                weight=weight_of(changed) - weight_of(item),
                placed=[changed] if "shared" in after else (),
            )
            if "shared" in after:
                events = (item.id, *(id for _, id in overlay.scan("children", item.id)))
                overlay.run("access", decide_audience, Audience(request.by, events, changed.shared))
    return position


def _marked(overlay: Overlay, request: Mark, item: Item) -> dict[str, Any]:
    match request.act:
        case "shared" | "unshared":
            return {"shared": request.act == "shared"}
        case "verified":
            return {"verified_by": request.by, "verified_us": overlay.now}
        case "archived":
            if not item.current:
                raise Conflict(f"item {item.id!r} is {item.status}, so it cannot be archived")
            return {"status": "archived"}
        case "restored":
            if item.status not in ("archived", "dropped", "forgotten"):
                raise Conflict(f"item {item.id!r} is {item.status}, so there is nothing to restore")
            return {"status": "live", "held": None}
        case _:
            for _, id in request.links:
                known(overlay, request.by, id)
            return {"links": tuple(sorted({*item.links, *request.links}))}


def decide_resolve(overlay: Overlay, request: Resolve) -> str | Denied:
    """Settle what an item that is held waits for. Answers which item stands afterwards."""
    item = known(overlay, request.by, request.id)
    if item.held is None or item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}, not held: there is nothing to resolve")
    why = item.held.why
    allowed = SETTLEMENTS if why == "dispute" else CHOICES
    if request.choice not in allowed:
        raise BadInput(f"{request.choice!r:.40} is no choice for a {why}: choose {', '.join(allowed)}")
    if why in ("dispute", "proposal") and request.choice != "skip":
        refused = need(overlay, request.by, "keep_memory", f"settle {item.id}")
    else:
        refused = _may_change(overlay, request.by, item, "resolve")
    if refused:
        return refused
    if request.choice in ("create", "new", "both") and why != "proposal" and not request.rationale.strip():
        raise BadInput(
            f"to {request.choice} it beside what is there takes a rationale: say why both are needed"
        )
    others = [one for one in (item_at(overlay, id) for id in item.held.items) if one is not None]
    changes = _resolved(request, item, others)
    weight = sum(
        weight_of(replace(one, **changes[one.id])) - weight_of(one)
        for one in (item, *others)
        if one.id in changes
    )
    change(overlay, request.by, request.choice, changes, why=request.rationale, weight=weight)
    return others[0].id if request.choice in ("skip", "merge", "old") and others else item.id


def _resolved(request: Resolve, item: Item, others: list[Item]) -> dict[str, dict[str, Any]]:
    undisputed = {
        one.id: {"disputed": [id for id in one.disputed if id != item.id]} for one in others if one.disputed
    }
    match request.choice:
        case "skip" | "old":
            return {item.id: {"status": "dropped", "held": None}, **undisputed}
        case "merge":
            changes: dict[str, dict[str, Any]] = {item.id: {"status": "dropped", "held": None}}
            for one in others[:1]:
                reason = "; ".join(dict.fromkeys(part for part in (one.reason, item.reason) if part))
                merged = {
                    "citations": list(dict.fromkeys((*one.citations, *item.citations))),
                    "reason": reason,
                }
                changes[one.id] = merged
            return changes
        case "new":
            old = {
                one.id: {**undisputed.get(one.id, {}), "status": "superseded", "superseded_by": item.id}
                for one in others
            }
            return {
                item.id: {"status": "live", "held": None, "supersedes": [one.id for one in others]},
                **old,
            }
        case _:
            return {item.id: {"status": "live", "held": None}, **undisputed}


# forgetting


def decide_forget(overlay: Overlay, request: Forget) -> Forgotten | Denied:
    """Forget items; with `erase`, their content and everything derived from it is gone."""
    if request.deleted_by not in DELETERS:
        raise BadInput(f"deleted_by is one of {', '.join(DELETERS)}, not {request.deleted_by!r:.40}")
    items = [one for one in (_to_forget(overlay, request.by, id) for id in request.ids) if one is not None]
    for item in items:
        refused = _may_change(overlay, request.by, item, "forget")
        if refused:
            return refused
    already = tuple(item.id for item in items if item.status == "forgotten")
    fresh = [item for item in items if item.status != "forgotten"]
    erasing = tuple(item.id for item in items) if request.erase else ()
    by = request.by
    plan = (
        overlay.run("ledger", decide_erase, EraseRequest(erasing, by, request.reason, True))
        if erasing
        else None
    )
    gone = () if plan is None else plan.erased
    derived = tuple(id for id in _items_among(overlay, gone) if id not in erasing)
    if request.dry_run or not (fresh or gone):
        return Forgotten(tuple(item.id for item in fresh), already, gone, derived)
    position = overlay.position
    stones = [(item.id, item.agent) for item in fresh if not request.erase]
    if request.erase:
        agents = {item.id: item.agent for item in items}
        stones = [(id, agents.get(id) or _agent_of(overlay, id)) for id in (*agents, *derived)]
    weight = -sum(weight_of(one) for one in (item_at(overlay, id) for id, _ in stones) if one is not None)
    payload: dict[str, Any] = {
        "items": [{"id": id, "agent": agent} for id, agent in stones],
        "by": request.deleted_by,
        "reason": request.reason,
        "weight": weight,
    }
    if request.erase:
        payload["erased"] = True
    kind = {"consolidation": CONSOLIDATED, "budget": DELETED, "system": DELETED}.get(
        request.deleted_by, FORGOTTEN
    )
    if stones:
        position = overlay.emit(draft(kind, actor=by, payload=payload)).position
    again: tuple[str, ...] = ()
    if gone:
        again = _erase(overlay, EraseRequest(erasing, by, request.reason, False), derived)
    return Forgotten(tuple(item.id for item in fresh), already, gone, derived, position, again)


def decide_memory_erase(overlay: Overlay, request: EraseRequest) -> Erasure:
    """Erase any events; notes that retold what is gone are told again without it."""
    plan: Erasure = overlay.run("ledger", decide_erase, replace(request, dry_run=True))
    if not request.dry_run and plan.erased:
        _erase(overlay, request, _items_among(overlay, plan.erased))
        return Erasure(plan.erased, plan.already, overlay.position)
    return plan


def _erase(overlay: Overlay, request: EraseRequest, items: Iterable[str]) -> tuple[str, ...]:
    """Erase, and derive anew what stood for several episodes of which some are left. Answers the new notes."""
    rows = [overlay.get("memory.items", id) or {} for id in items if id not in request.ids]
    overlay.run("ledger", decide_erase, request)
    notes = (note_of(overlay, request.actor, row["retells"]) for row in rows if row.get("retells"))
    return tuple(one.id for one in notes if one is not None)


def decide_retell(overlay: Overlay, request: Retell) -> Forgotten | Denied:
    """Let one note stand for episodes."""
    refused = need(overlay, request.by, "keep_memory", "consolidate episodes")
    if refused:
        return refused
    note = note_of(overlay, request.by, request.ids)
    told = "it is told in another item" if note is None else f"it is told in {note.id}"
    forgotten = decide_forget(overlay, Forget(request.by, request.ids, told, "consolidation"))
    if isinstance(forgotten, Denied) or note is None:
        return forgotten
    return replace(forgotten, rederived=(note.id,))


def _to_forget(overlay: Overlay, by: str, id: str) -> Item | None:
    """The item, also one that was forgotten before but not yet erased; None for one whose content is gone."""
    found = item_at(overlay, id)
    if found is not None and found.status == "forgotten" and (by == OWNER or found.agent == by):
        return found
    if (
        found is None
        and overlay.get("memory.tombstones", id) is not None
        and rights_of(overlay, by).may("keep_memory")
    ):
        return None
    return known(overlay, by, id)


def _items_among(overlay: Overlay, events: Iterable[str]) -> list[str]:
    return [id for id in events if overlay.get("memory.items", id) is not None]


def _agent_of(overlay: Overlay, id: str) -> str:
    event = overlay.event(id)
    return "" if event is None or event.kind != CREATED else event.actor
