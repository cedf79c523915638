"""What happens to items after they are stored: changed, shared, verified, archived, resolved.

A change that makes an item stand, or that changes what it says, for whom or from when to when, must not contradict what
stands already. Only keepers of memory change entries of cores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..access.commands import Relabel, decide_relabel, need, need_scope, need_tier
from ..access.rights import OWNER, rights_of
from ..errors import BadInput, Conflict, Denied, Stale
from ..ledger.encoding import canonical, convert
from ..ledger.events import draft
from ..ledger.labels import FLOWING, flow, strictness
from ..ledger.overlay import Overlay
from .fields import check_validity, named, plain_name
from .items import BESIDE, COMMON, CONTENT, SHAPES, Corroboration, Held, Item
from .markdown import size
from .reading import all_items, item_at, known_item, may_name, may_read, of_memory, words
from .requests import UPDATED, MarkItems, Patch, Prove, Resolve
from .standing import contradicts, from_now, open_rivals, standing, successors

Changes = dict[str, dict[str, Any]]
"""The fields that become others, by the id of their item."""

TELLING = ("key", "value", "valid_from_us", "valid_until_us", "shared", "status", "core")
"""The fields of a fact that decide whether it contradicts another one."""


def change(
    overlay: Overlay,
    by: str,
    act: str,
    changes: Changes,
    *,
    why: str = "",
    run: str | None = None,
    weight: int = 0,
    key: str = "",
    placed: Iterable[Item] = (),
    sources: Sequence[str] = (),
) -> int:
    """Record a change of items; answers its position. It is derived from them, so it goes when they go, and an actor
    that may see them before and after it may see it. `placed` are those whose text is another one now, or that more
    people may find; `sources` are other events that it is derived from."""
    payload: dict[str, Any] = {"act": act, "changes": msgspec.to_builtins(changes)}
    places = [
        [item.id, item.agent, item.shared, {**item.as_content(), "tags": list(item.tags)}] for item in placed
    ]
    more = {"why": why, "weight": weight, "key": key, "placed": places}
    payload |= {name: value for name, value in more.items() if value}
    rows = [(overlay.get("memory.items", id) or {}, fields) for id, fields in changes.items()]
    team = all(row.get("shared") and fields.get("shared", True) for row, fields in rows)
    labels = {"sensitivity": "private", **({"audience": "team"} if team else {})}
    event = draft(UPDATED, actor=by, payload=payload, run_id=run, parents=[*changes, *sources], labels=labels)
    return overlay.emit(event, scope=next(row.get("scope", "") for row, _ in rows)).position


def weight_of(item: Item) -> int:
    """What an item takes of the book's MEMORY.md, in bytes."""
    return size(item) if of_memory(item) and item.current and not item.scope else 0


def refused_change(overlay: Overlay, by: str, item: Item, act: str, run: str | None) -> Denied | None:
    """The refusal, already recorded, if somebody may not change an item: its author may, except in a core."""
    refused = need_tier(overlay, by, "long_term", True, run) or need_scope(overlay, by, item.scope)
    if refused or (item.agent == by and (item.core is None or item.status == "held") and act != "verified"):
        return refused
    return need(overlay, by, "keep_memory", f"{act} {item.id}")


def check_unchanged(item: Item, if_position: int | None) -> None:
    """Raises Stale if an item changed after the position at which its reader has read it."""
    if if_position is not None and item.position > if_position:
        raise Stale(
            f"item {item.id!r} was changed at {item.position}, after position {if_position}: read it again",
            [{"seen": if_position, "current": item.position, "text": words(item.as_content())}],
        )


def _check_consistent(
    overlay: Overlay, by: str, before: Item, after: Item, ending: Collection[str] = ()
) -> None:
    """Raises Conflict if a fact would stand beside another one that says otherwise, unless that ends now or somebody
    has decided that both hold."""
    same = all(getattr(before, name) == getattr(after, name) for name in TELLING)
    if not after.current or after.kind != "fact" or same:
        return
    rights = rights_of(overlay, by)
    beside = {id for relation, id in after.links if relation == BESIDE}

    def comparable(id: str) -> Item | None:
        other = None if id in {after.id, *ending, *beside} else item_at(overlay, id)
        same_place = other is not None and (other.core, other.scope) == (after.core, after.scope)
        return other if other is not None and same_place and may_read(rights, other) else None

    where = [(after.scope, whose) for whose in (("",) if after.shared else ("", after.agent))]
    new = from_now(after, overlay.now)
    against = [fact for fact in standing(overlay, after.key, where, comparable) if contradicts(new, fact)]
    if against:
        texts = {fact.id: words(fact.as_content()) for fact in against}
        raise Conflict(
            f"under {after.key!r} something else stands already: "
            + "; ".join(f"{id} says {text}" for id, text in texts.items())
            + ". Remember the new value, and let somebody settle it, or supersede the old one",
            [{"id": id, "text": text} for id, text in texts.items()],
        )


# changing fields


def decide_patch(overlay: Overlay, request: Patch) -> int | Denied:
    """Answers the position of the change, or of the last one if nothing changes."""
    item = known_item(overlay, request.by, request.id)
    if request.key and overlay.get("memory.edits", item.id, request.key) is not None:
        return item.position
    refused = refused_change(overlay, request.by, item, request.act, request.run)
    if refused:
        return refused
    _check_changeable(item, request)
    wanted = {
        name: value
        for name, value in request.content.items()
        if canonical(msgspec.to_builtins(getattr(item, name))) != canonical(value)
    }
    if not wanted:
        return item.position
    wanted["secrets"] = tuple(sorted({*item.secrets, *request.secrets}))
    after = convert({**msgspec.to_builtins(item), **wanted}, Item)
    check_validity(after.valid_from_us, after.valid_until_us)
    _check_consistent(overlay, request.by, item, after)
    if request.secrets and item.sensitivity != "sensitive":
        stricter = Relabel(OWNER, item.id, {"sensitivity": "sensitive"}, "a secret was found in it")
        overlay.run("access", decide_relabel, stricter)
    weight = weight_of(after) - weight_of(item)
    return change(
        overlay, request.by, request.act, {item.id: wanted}, why=request.why, weight=weight,
        key=request.key, placed=[after],
    )  # fmt: skip


def _check_changeable(item: Item, request: Patch) -> None:
    shape = SHAPES[item.kind]
    allowed = {*shape.needs, *shape.may, *COMMON} - {"core", "repository"}
    stray = sorted(name for name in request.content if name not in allowed)
    if stray:
        raise BadInput(f"{named(item.kind)} has no {', '.join(map(plain_name, stray))} to change")
    if item.repository and CONTENT.intersection(request.content):
        raise BadInput(f"{item.id!r} is a fact of the repository: it is not changed, a new one supersedes it")
    check_unchanged(item, request.if_position)
    if not item.current and item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}: restore it first")


# marking


def decide_mark(overlay: Overlay, request: MarkItems) -> int | Denied:
    find = to_forget if request.act == "restored" else known_item
    items = [item for item in (find(overlay, request.by, id) for id in request.ids) if item is not None]
    position = overlay.position
    for item in items:
        refused = refused_change(overlay, request.by, item, request.act, request.run)
        if refused:
            return refused
        if request.act == "verified" and item.status == "held" and item.held and item.held.why == "proposal":
            decide_resolve(overlay, Resolve(request.by, item.id, "create", request.why, request.run))
            item = known_item(overlay, request.by, item.id)
        position = _put(overlay, request, item, _marked(overlay, request, item)) or position
        if request.act == "restored" and item.held is not None and item.held.why == "dispute":
            position = _dispute_again(overlay, request, item, item.held) or position
    return position


def _dispute_again(overlay: Overlay, request: MarkItems, item: Item, held: Held) -> int | None:
    """Put in doubt again what an item that waits again contradicts."""
    others = [other for other in successors(overlay, held.items) if other.current]
    changes = {
        other.id: {"disputed": [*other.disputed, item.id]}
        for other in others
        if item.id not in other.disputed
    }
    return change(overlay, request.by, "disputed", changes, why=request.why) if changes else None


def _put(overlay: Overlay, request: MarkItems, item: Item, fields: dict[str, Any]) -> int | None:
    """Record that fields of an item are others now; None if they are as they were."""
    if fields == {name: getattr(item, name) for name in fields}:
        return None
    after = replace(item, **fields)
    _check_consistent(overlay, request.by, item, after)
    return change(
        overlay,
        request.by,
        request.act,
        {item.id: fields},
        why=request.why,
        weight=weight_of(after) - weight_of(item),
        placed=[after] if fields.get("shared") else (),
    )


def follow_core(overlay: Overlay, by: str, core: str, team: bool) -> None:
    """Let everybody see the entries of a core, or nobody but its owner: the core says who may see them."""
    request = MarkItems(by, (), "shared" if team else "unshared", "as its core")
    for item in [item for item in all_items(overlay) if (item.core, item.scope) == (core, overlay.scope)]:
        _put(overlay, request, item, {"shared": team})


def _marked(overlay: Overlay, request: MarkItems, item: Item) -> dict[str, Any]:
    """The fields that a mark changes. Raises BadInput or Conflict if the item cannot be marked so."""
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
            if item.superseded_by is not None:  # perhaps while it was held: it does not wait again
                return {"status": "superseded"}
            before = item.was if item.status == "forgotten" else "live"
            return {"status": "held" if item.held is not None else before}
        case _:
            for _, id in request.links:
                known_item(overlay, request.by, id)
            return {"links": tuple(sorted({*item.links, *request.links}))}


def to_forget(overlay: Overlay, by: str, id: str) -> Item | None:
    """The item, also one that was forgotten before but not yet erased; None for one whose content is gone."""
    item, rights = item_at(overlay, id), rights_of(overlay, by)
    keeps = rights.may("keep_memory")
    own = (
        item is not None
        and rights.in_scope(item.scope)
        and (by in (OWNER, item.agent) or (keeps and may_name(rights, item)))
    )
    if item is not None and item.status == "forgotten" and own:
        return item
    if item is None and keeps and overlay.get("memory.tombstones", id) is not None:
        return None
    return known_item(overlay, by, id)


# resolving what is held


def decide_resolve(overlay: Overlay, request: Resolve) -> str | Denied:
    """Settle what an item that is held waits for. Answers which item stands afterwards."""
    item = known_item(overlay, request.by, request.id)
    if item.held is None or item.status != "held":
        raise Conflict(f"item {item.id!r} is {item.status}, not held: there is nothing to resolve")
    why = item.held.why
    if request.choice not in item.held.choices:
        raise BadInput(
            f"{request.choice!r:.40} is no choice for a {why}: choose {', '.join(item.held.choices)}"
        )
    if why in ("dispute", "proposal", "evidence") and request.choice != "skip":
        refused = need_tier(overlay, request.by, "long_term", True, request.run)
        refused = refused or need(overlay, request.by, "keep_memory", f"settle {item.id}")
    else:
        refused = refused_change(overlay, request.by, item, "resolve", request.run)
    if refused:
        return refused
    if request.choice in ("create", "new", "both") and why != "proposal" and not request.rationale.strip():
        raise BadInput(f"the choice {request.choice!r} takes a rationale: say why")
    others = successors(overlay, item.held.items)
    _settle(overlay, request, _resolved(overlay, request, item, item.held, others))
    rights = rights_of(overlay, request.by)
    stands = next((other.id for other in others if other.current and may_read(rights, other)), item.id)
    return stands if request.choice in ("skip", "merge", "old") else item.id


def decide_prove(overlay: Overlay, request: Prove) -> str | Denied:
    """Record what speaks for an item that waits for evidence; if that is enough, which was decided before, it stands.
    Everybody who may write may bring it. Answers the item's id."""
    item = known_item(overlay, request.by, request.id)
    refused = need_tier(overlay, request.by, "long_term", True, request.run)
    refused = refused or need_scope(overlay, request.by, item.scope)
    if refused:
        return refused
    if item.held is None or item.status != "held" or item.held.why != "evidence":
        raise Conflict(f"item {item.id!r} is {item.status} and waits for no evidence")
    vouched: dict[str, Any] = {}
    if request.vouches and request.by not in {item.agent, *(added.actor for added in item.corroborated)}:
        added = Corroboration(request.by, overlay.position + 1, request.run)
        vouched = {"corroborated": [*item.corroborated, added]}
    _take_labels(overlay, item, request.sources)
    if request.hold is not None:
        held = replace(request.hold, supersedes=item.held.supersedes)
        waits = {**vouched, **({"held": held} if held != item.held else {})}
        if waits or request.sources:
            change(
                overlay, request.by, "evidence", {item.id: waits}, why=request.why, run=request.run,
                sources=request.sources,
            )  # fmt: skip
        return item.id
    choice = Resolve(request.by, item.id, "create", request.why, request.run)
    changes = _resolved(overlay, choice, item, item.held, [])
    changes[item.id] |= vouched
    _settle(overlay, choice, changes, request.sources)
    return item.id


def _take_labels(overlay: Overlay, item: Item, sources: Sequence[str]) -> None:
    """Make an item as sensitive as the most sensitive of these events, and as trusted as the least trusted."""
    before = overlay.labels_of(item.id)
    after = flow(before, [overlay.labels_of(id) for id in sources])
    stricter = {name: after[name] for name in FLOWING if after.get(name) != before.get(name)}
    if stricter:
        overlay.run("access", decide_relabel, Relabel(OWNER, item.id, stricter, "as its sources"))


def _settle(overlay: Overlay, request: Resolve, changes: Changes, sources: Sequence[str] = ()) -> None:
    """Record the changes that a choice means. Raises Conflict if what stands afterwards contradicts itself."""
    items = [item for item in (item_at(overlay, id) for id in changes) if item is not None]
    ending = {id for id, fields in changes.items() if fields.get("status") == "superseded"}
    weight = 0
    for item in items:
        after = replace(item, **changes[item.id])
        _check_consistent(overlay, request.by, item, after, ending)
        weight += weight_of(after) - weight_of(item)
    change(
        overlay, request.by, request.choice, changes, why=request.rationale, weight=weight, sources=sources
    )


def _resolved(overlay: Overlay, request: Resolve, item: Item, held: Held, others: list[Item]) -> Changes:
    """What a choice changes in the item that is held and in the others."""
    undisputed: Changes = {
        other.id: {"disputed": [id for id in other.disputed if id != item.id]}
        for other in others
        if other.disputed
    }
    match request.choice:
        case "old" if not any(other.current for other in others):
            raise Conflict("what it contradicted does not stand any more: choose new, or forget it")
        case "skip" | "old":
            return {item.id: {"status": "dropped"}, **undisputed}
        case "merge":
            return {item.id: {"status": "dropped"}, **_merged(overlay, request.by, item, others)}
    rights = rights_of(overlay, request.by)
    if item.core is not None and not rights.may("keep_memory"):
        return {item.id: {"held": Held("proposal", supersedes=held.supersedes)}}
    if held.why == "near_duplicate" and held.reason and not rights.may("keep_memory"):
        return {item.id: {"held": Held("evidence", supersedes=held.supersedes, reason=held.reason)}}
    ended = [other for id in held.supersedes if (other := item_at(overlay, id)) is not None]
    if request.choice == "new":
        ended += [other for other in others if other.current and other.id not in held.supersedes]
    changes = undisputed
    for other in ended:
        changes.setdefault(other.id, {}).update(status="superseded", superseded_by=item.id)
    superseded = dict.fromkeys((*item.supersedes, *(other.id for other in ended)))
    stands: dict[str, Any] = {"status": "live", "held": None, "supersedes": [*superseded]}
    if rivals := open_rivals(overlay, ended, item):
        stands["disputed"] = rivals
    if any(other.pinned for other in ended):
        stands["pinned"] = True
    if request.choice == "both":
        stands["links"] = tuple(sorted({*item.links, *((BESIDE, other.id) for other in others)}))
        for other in others:
            changes.setdefault(other.id, {})["links"] = tuple(sorted({*other.links, (BESIDE, item.id)}))
    return {item.id: stands, **changes}


def _merged(overlay: Overlay, by: str, item: Item, others: list[Item]) -> Changes:
    """The first of the others that stands, with the item's citations and reason."""
    rights = rights_of(overlay, by)
    other = next((other for other in others if other.current and may_read(rights, other)), None)
    if other is None:
        raise Conflict("what it is like does not stand any more: create it, or skip it")
    if strictness("sensitivity", item.sensitivity) > strictness("sensitivity", other.sensitivity):
        raise Conflict(
            f"it is more sensitive than {other.id!r}, whose readers may not see its reason and citations: skip it, or "
            "create it"
        )
    reason = "; ".join(dict.fromkeys(part for part in (other.reason, item.reason) if part))
    citations = list(dict.fromkeys((*other.citations, *item.citations)))
    return {other.id: {"citations": citations, "reason": reason}}


def end_disputes(overlay: Overlay, by: str, item: Item) -> None:
    """The items that an item disputed, while it waited, are not disputed by it any more."""
    if item.held is None or item.held.why != "dispute" or item.status != "held":
        return
    for other in successors(overlay, item.held.items):
        if item.id in other.disputed:
            left = [id for id in other.disputed if id != item.id]
            change(overlay, by, "undisputed", {other.id: {"disputed": left}})
