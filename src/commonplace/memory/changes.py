"""What happens to items after they are stored: changed, shared, verified, resolved, forgotten.

Whatever makes an item stand, or changes what it says, for whom or from when to when, must not contradict what
stands already, and entries of cores are for keepers of memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ..access.commands import Relabel, decide_relabel, need, need_tier
from ..access.rights import OWNER, rights_of
from ..errors import BadInput, Conflict, Denied, Stale
from ..ledger.encoding import canonical
from ..ledger.erase import EraseRequest, Erasure, decide_erase
from ..ledger.events import draft
from ..ledger.labels import strictness
from ..ledger.overlay import Overlay
from .items import BESIDE, COMMON, CONTENT, SHAPES, Held, Item, named, plain_name
from .reading import all_items, item_at, may_name, may_read, words
from .remember import (
    change,
    contradicts,
    end_disputes,
    from_now,
    known,
    open_rivals,
    standing,
    successors,
    weight_of,
)
from .requests import CONSOLIDATED, DELETED, FORGOTTEN, Forget, Forgotten, MarkItems, Patch, Resolve
from .upkeep import Retell, note_of

DELETERS = ("user", "operator", "system", "budget", "consolidation")


def _may_change(overlay: Overlay, by: str, item: Item, act: str) -> Denied | None:
    """The refusal, already recorded, if somebody may not change an item: its author may, save in a core."""
    refused = need_tier(overlay, by, "long_term", True)
    if refused or (item.agent == by and (item.core is None or item.status == "held") and act != "verified"):
        return refused
    return need(overlay, by, "keep_memory", f"{act} {item.id}")


def _check_consistent(
    overlay: Overlay, by: str, before: Item, after: Item, ending: Collection[str] = ()
) -> None:
    """Raises Conflict if a fact would stand beside another one that says otherwise, unless that ends now or somebody
    has decided that both hold."""
    telling = ("key", "value", "valid_from_us", "valid_until_us", "shared", "status", "core")
    if (
        not after.current
        or after.kind != "fact"
        or all(getattr(before, one) == getattr(after, one) for one in telling)
    ):
        return
    rights = rights_of(overlay, by)
    ending = {*ending, *(id for relation, id in after.links if relation == BESIDE)}

    def comparable(id: str) -> Item | None:
        other = item_at(overlay, id)
        here = other is not None and other.id not in {after.id, *ending} and other.core == after.core
        return other if here and other is not None and may_read(rights, other) else None

    where = ["", after.agent] if not after.shared else [""]
    new = from_now(after, overlay.now)
    against = [one for one in standing(overlay, after.key, where, comparable) if contradicts(new, one)]
    if against:
        told = "; ".join(f"{one.id} says {words(one.as_content())}" for one in against)
        raise Conflict(
            f"under {after.key!r} something else stands already: {told}. Remember the new value, and let somebody "
            "settle it, or supersede the old one",
            [{"id": one.id, "text": words(one.as_content())} for one in against],
        )


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
        raise BadInput(f"{named(item.kind)} has no {', '.join(map(plain_name, stray))} to change")
    if item.scope == "repository" and CONTENT.intersection(request.content):
        raise BadInput(f"{item.id!r} is a fact of the repository: it is not changed, a new one supersedes it")
    if request.if_position is not None and item.position > request.if_position:
        raise Stale(
            f"item {item.id!r} was changed at {item.position}, after position {request.if_position}: read it again",
            [{"seen": request.if_position, "current": item.position, "text": words(item.as_content())}],
        )
    if not item.current and item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}: restore it first")
    before = msgspec.to_builtins(item)
    wanted = {
        name: value
        for name, value in request.content.items()
        if canonical(msgspec.to_builtins(getattr(item, name))) != canonical(value)
    }
    if not wanted:
        return item.position
    secrets = tuple(sorted({*item.secrets, *request.secrets}))
    after = msgspec.convert({**before, **wanted, "secrets": secrets}, Item)
    if (
        after.valid_from_us is not None
        and after.valid_until_us is not None
        and after.valid_from_us >= after.valid_until_us
    ):
        raise BadInput("valid_until lies before valid_from: give the time from which it holds, then the end")
    _check_consistent(overlay, request.by, item, after)
    if request.secrets and strictness("sensitivity", item.sensitivity) < strictness(
        "sensitivity", "sensitive"
    ):
        stricter = Relabel(OWNER, item.id, {"sensitivity": "sensitive"}, "a secret was found in it")
        overlay.run("access", decide_relabel, stricter)
    return change(
        overlay,
        request.by,
        request.act,
        {item.id: {**wanted, "secrets": secrets}},
        why=request.why,
        weight=weight_of(after) - weight_of(item),
        key=request.key,
        placed=[after],
    )


def decide_mark(overlay: Overlay, request: MarkItems) -> int | Denied:
    find = _to_forget if request.act == "restored" else known
    items = [one for one in (find(overlay, request.by, id) for id in request.ids) if one is not None]
    position = overlay.position
    for item in items:
        refused = _may_change(overlay, request.by, item, request.act)
        if refused:
            return refused
        if request.act == "verified" and item.status == "held" and item.held and item.held.why == "proposal":
            decide_resolve(overlay, Resolve(request.by, item.id, "create", request.why))
            item = known(overlay, request.by, item.id)
        position = _put(overlay, request, item, _marked(overlay, request, item)) or position
        if request.act == "restored" and item.held is not None and item.held.why == "dispute":
            position = _dispute_again(overlay, request, item) or position
    return position


def _dispute_again(overlay: Overlay, request: MarkItems, item: Item) -> int | None:
    """Put in doubt again what an item that waits again says otherwise about."""
    held = item.held.items if item.held is not None else ()
    others = [one for one in successors(overlay, held) if one.current and item.id not in one.disputed]
    changes = {one.id: {"disputed": [*one.disputed, item.id]} for one in others}
    return change(overlay, request.by, "disputed", changes, why=request.why) if changes else None


def _put(overlay: Overlay, request: MarkItems, item: Item, after: dict[str, Any]) -> int | None:
    """Record that fields of an item are others now; None if they are as they were."""
    if after == {name: getattr(item, name) for name in after}:
        return None
    changed = replace(item, **after)
    _check_consistent(overlay, request.by, item, changed)
    return change(
        overlay,
        request.by,
        request.act,
        {item.id: after},
        why=request.why,
        weight=weight_of(changed) - weight_of(item),
        placed=[changed] if after.get("shared") else (),
    )


def follow_core(overlay: Overlay, by: str, core: str, team: bool) -> None:
    """Let everybody see the entries of a core, or nobody but its owner: the core says who may see them."""
    request = MarkItems(by, (), "shared" if team else "unshared", "as its core")
    for item in [one for one in all_items(overlay) if one.core == core]:
        _put(overlay, request, item, {"shared": team})


def _marked(overlay: Overlay, request: MarkItems, item: Item) -> dict[str, Any]:
    match request.act:
        case "shared" | "unshared":
            if item.core is not None:
                raise BadInput(f"item {item.id!r} is an entry of a core: the core says who may see it")
            return {"shared": request.act == "shared"}
        case "verified":
            if not item.current:
                raise Conflict(f"item {item.id!r} is {item.status}: only what stands can be verified")
            return {"verified_by": request.by, "verified_us": overlay.now}
        case "archived":
            if not item.current:
                raise Conflict(f"item {item.id!r} is {item.status}, so it cannot be archived")
            return {"status": "archived"}
        case "restored":
            if item.status not in ("archived", "dropped", "forgotten"):
                raise Conflict(f"item {item.id!r} is {item.status}, so there is nothing to restore")
            before = item.was if item.status == "forgotten" else "live"
            return {"status": "held" if item.held is not None else before}
        case _:
            for _, id in request.links:
                known(overlay, request.by, id)
            return {"links": tuple(sorted({*item.links, *request.links}))}


# choosing


def decide_resolve(overlay: Overlay, request: Resolve) -> str | Denied:
    """Settle what an item that is held waits for. Answers which item stands afterwards."""
    item = known(overlay, request.by, request.id)
    if item.held is None or item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}, not held: there is nothing to resolve")
    why = item.held.why
    if request.choice not in item.held.choices:
        raise BadInput(
            f"{request.choice!r:.40} is no choice for a {why}: choose {', '.join(item.held.choices)}"
        )
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
    others = successors(overlay, item.held.items)
    changes = _resolved(overlay, request, item, item.held, others)
    touched = [item, *(one for id in changes if id != item.id and (one := item_at(overlay, id)) is not None)]
    moved = [(one, replace(one, **changes[one.id])) for one in touched if one.id in changes]
    for before, after in moved:
        ending = {id for id, said in changes.items() if said.get("status") == "superseded"}
        _check_consistent(overlay, request.by, before, after, ending)
    weight = sum(weight_of(after) - weight_of(before) for before, after in moved)
    change(overlay, request.by, request.choice, changes, why=request.rationale, weight=weight)
    rights = rights_of(overlay, request.by)
    stands = next((one.id for one in others if one.current and may_read(rights, one)), item.id)
    return stands if request.choice in ("skip", "merge", "old") else item.id


def _resolved(
    overlay: Overlay, request: Resolve, item: Item, held: Held, others: list[Item]
) -> dict[str, dict[str, Any]]:
    undisputed = {
        one.id: {"disputed": [id for id in one.disputed if id != item.id]} for one in others if one.disputed
    }
    dropped: dict[str, Any] = {"status": "dropped"}
    match request.choice:
        case "skip":
            return {item.id: dropped, **undisputed}
        case "old":
            if not any(one.current for one in others):
                raise Conflict("what it contradicted does not stand any more: choose new, or forget it")
            return {item.id: dropped, **undisputed}
        case "merge":
            changes: dict[str, dict[str, Any]] = {item.id: dropped}
            rights = rights_of(overlay, request.by)
            seen = [one for one in others if one.current and may_read(rights, one)]
            if not seen:
                raise Conflict("what it is like does not stand any more: create it, or skip it")
            for one in seen[:1]:
                if strictness("sensitivity", item.sensitivity) > strictness("sensitivity", one.sensitivity):
                    raise Conflict(
                        f"it is more sensitive than {one.id!r}, which may not say so: skip it, or create it"
                    )
                reason = "; ".join(dict.fromkeys(part for part in (one.reason, item.reason) if part))
                merged = {
                    "citations": list(dict.fromkeys((*one.citations, *item.citations))),
                    "reason": reason,
                }
                changes[one.id] = merged
            return changes
    keeps = rights_of(overlay, request.by).may("keep_memory")
    if item.core is not None and not keeps:
        return {item.id: {"held": Held("proposal", supersedes=held.supersedes)}}
    ended = {"status": "superseded", "superseded_by": item.id}
    gone = {id: ended for id in held.supersedes if item_at(overlay, id) is not None}
    if request.choice == "new":
        gone |= {one.id: ended for one in others if one.current}
    old: dict[str, dict[str, Any]] = {
        id: {**undisputed.get(id, {}), **gone.get(id, {})} for id in {**undisputed, **gone}
    }
    stands: dict[str, Any] = {"status": "live", "held": None, "supersedes": list(gone)}
    replaced = [one for one in (item_at(overlay, id) for id in gone) if one is not None]
    if rivals := open_rivals(overlay, replaced, item):
        stands["disputed"] = rivals
    if any(one.pinned for one in replaced):
        stands["pinned"] = True
    if request.choice == "both":
        stands["links"] = tuple(sorted({*item.links, *((BESIDE, one.id) for one in others)}))
        for one in others:
            old.setdefault(one.id, {})["links"] = tuple(sorted({*one.links, (BESIDE, item.id)}))
    return {item.id: stands, **old}


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
        if request.if_position is not None and item.position > request.if_position:
            raise Stale(
                f"item {item.id!r} was changed at {item.position}, after you had read it: read it again"
            )
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
        return Forgotten(tuple(item.id for item in fresh), already, *_shown(overlay, by, gone, derived))
    position = _bury(overlay, request, [*(erasing or [item.id for item in fresh]), *derived])
    again: tuple[str, ...] = ()
    if gone:
        again = _erase(overlay, EraseRequest(erasing, by, request.reason, False), derived)
    shown = _shown(overlay, by, gone, derived)
    return Forgotten(tuple(item.id for item in fresh), already, *shown, position, again)


def _shown(
    overlay: Overlay, by: str, gone: tuple[str, ...], derived: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The events and items that somebody may be told of: all for the owner, else only one's own."""
    if by == OWNER:
        return gone, derived
    mine = {id for id in gone if (event := overlay.event(id)) is not None and event.actor == by}
    return tuple(id for id in gone if id in mine), tuple(id for id in derived if id in mine)


def _bury(overlay: Overlay, request: Forget, ids: Iterable[str]) -> int:
    """Record the tombstones of these items; answers the position."""
    items = [one for one in (item_at(overlay, id) for id in ids) if one is not None]
    stones = [
        {"id": one.id, "agent": one.agent} for one in items if request.erase or one.status != "forgotten"
    ]
    if not stones:
        return overlay.position
    for item in items:
        end_disputes(overlay, request.by, item)
    payload: dict[str, Any] = {
        "items": stones,
        "by": request.deleted_by,
        "reason": request.reason,
        "weight": -sum(map(weight_of, items)),
    }
    if request.erase:
        payload["erased"] = True
    kind = {"consolidation": CONSOLIDATED, "budget": DELETED, "system": DELETED}.get(
        request.deleted_by, FORGOTTEN
    )
    return overlay.emit(draft(kind, actor=request.by, payload=payload)).position


def decide_memory_erase(overlay: Overlay, request: EraseRequest) -> Erasure:
    """Erase any events: items among them leave tombstones, and notes that retold what is gone are told again."""
    plan: Erasure = overlay.run("ledger", decide_erase, msgspec.structs.replace(request, dry_run=True))
    if request.dry_run or not plan.erased:
        return plan
    items = _items_among(overlay, plan.erased)
    _bury(overlay, Forget(request.actor, tuple(items), request.reason, "operator", True), items)
    _erase(overlay, request, items)
    return Erasure(plan.erased, plan.already, overlay.position)


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
    found, rights = item_at(overlay, id), rights_of(overlay, by)
    keeps = rights.may("keep_memory")
    own = found is not None and (by == OWNER or found.agent == by or (keeps and may_name(rights, found)))
    if found is not None and found.status == "forgotten" and own:
        return found
    if found is None and keeps and overlay.get("memory.tombstones", id) is not None:
        return None
    return known(overlay, by, id)


def _items_among(overlay: Overlay, events: Iterable[str]) -> list[str]:
    return [id for id in events if overlay.get("memory.items", id) is not None]
