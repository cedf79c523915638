"""The memory capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..access.commands import need
from ..errors import Denied
from ..ledger.events import Event
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.scopes import SCOPE, partitions_of, scope_of
from ..ledger.views import Capability, Kind, View
from .changes import decide_mark, decide_patch, decide_prove, decide_resolve
from .claims import key_form
from .cores import CORE_SET, decide_core
from .curation import CURATED, CURATION_VIEWS, decide_curate
from .forgetting import decide_forget, decide_memory_erase, decide_summarize
from .items import CONTENT
from .judging import decide_preview, decide_remember, decide_remember_many
from .likeness import fingerprint, marks, sketch, words_of
from .requests import CONFIGURED, CONSOLIDATED, CREATED, DELETED, FORGOTTEN, RECALLED, RECEIPT, UPDATED
from .settings import decide_configure
from .showing import decide_shown

ENDING = (FORGOTTEN, DELETED, CONSOLIDATED)
SHAPED = frozenset({"kind", "type", "source_type", "metadata"})
"""Fields besides the content that say what kind of item it is, in words that people choose; an erasure takes them."""
PLACING = frozenset({CREATED, UPDATED})
CHANGING = PLACING | {*ENDING}


# the items themselves


def touched(event: Event) -> list[Key]:
    payload = event.payload
    if event.kind in ENDING:
        return [(stone["id"],) for stone in payload["items"]]
    if event.kind != CREATED:
        return [(id,) for id in payload["changes"]]
    held = payload.get("held") or {}
    disputes = held["items"] if held.get("why") == "dispute" else ()
    return [(event.id,), *((id,) for id in (*payload.get("supersedes", ()), *disputes))]


def _fold_item(key: Key, before: Any, event: Event) -> Any:
    id, payload = key[0], event.payload
    if event.kind == CREATED and id == event.id:
        return _created(event)
    if before is None:
        return None  # it was erased
    changed = {**before, "updated_us": event.created_us, "position": event.position}
    if event.kind in ENDING:
        status = before.get("status", "live")
        was = before.get("was", "live") if status == "forgotten" else status
        return {**changed, "status": "forgotten", "was": was}
    if event.kind != CREATED:
        return {**changed, **payload["changes"][id]}
    if id in payload.get("supersedes", ()):
        return {**changed, "status": "superseded", "superseded_by": event.id}
    return {**changed, "disputed": [*before.get("disputed", ()), event.id]}


def _created(event: Event) -> Any:
    payload = event.payload
    if "item" not in payload:
        return None  # only what an erasure left behind
    row = {**payload["item"], "id": event.id, "agent": payload.get("for", event.actor), "run": event.run_id}
    row |= {"recorded_us": event.created_us, "updated_us": event.created_us, "position": event.position}
    row |= {name: event.labels[name] for name in ("sensitivity", "trust") if name in event.labels}
    row |= {
        name: payload[name]
        for name in ("supersedes", "secrets", "held", "summarizes", "disputed")
        if name in payload
    }
    if event.labels.get("audience") == "team":
        row["shared"] = True
    if SCOPE in event.labels:
        row["scope"] = event.labels[SCOPE]
    if "held" in payload:
        row["status"] = "held"
    return row


# where items are found


class Placed(NamedTuple):
    id: str
    partition: tuple[str, str]
    """Its scope, and its author's name, or "" if it is the team's."""
    content: dict[str, Any]


def _placed(event: Event) -> Iterator[Placed]:
    """The items whose text or place an event says."""
    scope = scope_of(event)
    if event.kind == CREATED:
        if "item" in event.payload:
            whose = event.payload.get("for", event.actor)
            partition = "" if event.labels.get("audience") == "team" else whose
            yield Placed(event.id, (scope, partition), event.payload["item"])
        return
    for id, agent, shared, content in event.payload.get("placed", ()):
        yield Placed(id, (scope, "" if shared else agent), content)


def _prints(event: Event) -> list[Key]:
    return [(*placed.partition, fingerprint(placed.content)) for placed in _placed(event)]


def _marks(event: Event) -> list[Key]:
    return [
        (*placed.partition, mark.word, mark.size, mark.place, event.position)
        for placed in _placed(event)
        for mark in marks(words_of(placed.content))
    ]


def _keys(event: Event) -> list[Key]:
    return [
        (key_form(placed.content["key"]), *placed.partition, event.position)
        for placed in _placed(event)
        if placed.content.get("key")
    ]


def _tags(event: Event) -> list[Key]:
    return [
        (tag, placed.partition[0], event.position)
        for placed in _placed(event)
        for tag in placed.content.get("tags") or ()
    ]


def _order(event: Event) -> list[Key]:
    """The items in the order in which they were recorded."""
    return [(where, event.position) for where in partitions_of(event)] if "item" in event.payload else []


def _team(event: Event) -> list[Key]:
    """The items that an event gives to the team, by the event's position: read backwards, the newest come first."""
    if event.kind == CREATED:
        shared = event.labels.get("audience") == "team" and "item" in event.payload
        ids = [event.id] if shared else []
    else:
        ids = [id for id, fields in event.payload["changes"].items() if fields.get("shared")]
    return [(where, event.position, id) for id in ids for where in partitions_of(event)]


def _pinned(event: Event) -> list[Key]:
    """The items that an event pins or unpins."""
    scope = scope_of(event)
    if event.kind == CREATED:
        return [(scope, event.id)] if event.payload.get("item", {}).get("pinned") else []
    return [(scope, id) for id, fields in event.payload["changes"].items() if "pinned" in fields]


def _fold_pinned(key: Key, _before: Any, event: Event) -> Any:
    return event.kind == CREATED or event.payload["changes"][key[1]]["pinned"] or None


def _links(event: Event) -> list[Key]:
    """From the item that a link leads to, back to where it comes from."""
    if event.kind == CREATED:
        return [(to, event.id) for _, to in event.payload.get("item", {}).get("links", ())]
    return [
        (to, id) for id, fields in event.payload["changes"].items() for _, to in fields.get("links") or ()
    ]


def _the_item(_key: Key, _before: Any, event: Event) -> Any:
    """Which item stands under this key: an event places one item."""
    return next((placed.id for placed in _placed(event)), None)


def _sketched(_key: Key, _before: Any, event: Event) -> Any:
    """The item, and a sketch of its words: whether it is worth a look is known before it is read."""
    return next(([placed.id, sketch(words_of(placed.content))] for placed in _placed(event)), None)


def _fold_sums(_key: Key, before: Any, event: Event) -> Any:
    return {"bytes": (before or {"bytes": 0})["bytes"] + event.payload["weight"]}


def _stones(event: Event) -> list[Key]:
    if event.kind in ENDING:
        return [(stone["id"],) for stone in event.payload["items"]]
    return [(id,) for id in event.payload["changes"]] if event.payload["act"] == "restored" else []


def _fold_stone(key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    if event.kind not in ENDING:
        return None
    agent = next(stone["agent"] for stone in payload["items"] if stone["id"] == key[0])
    return {
        "agent": agent,
        "deleted_us": before["deleted_us"] if before else event.created_us,
        "deleted_by": payload["by"],
        "reason": payload["reason"],
        "erased": bool(payload.get("erased")),
        **({SCOPE: event.labels[SCOPE]} if SCOPE in event.labels else {}),
    }


def _sums(event: Event) -> list[Key]:
    return [("team",)] if event.payload.get("weight") else []


def _edits(event: Event) -> list[Key]:
    key = event.payload.get("key")
    return [(id, key) for id in event.payload["changes"]] if key else []


def _shown(event: Event) -> list[Key]:
    return [(scope_of(event), event.run_id or "", id, event.actor) for id in event.payload["shown"]]


def _heard(event: Event) -> list[Key]:
    where = (scope_of(event), event.run_id or "", event.actor, event.position)
    return [(*where, n) for n in range(len(event.payload["shown"]))]


def _fold_heard(key: Key, _before: Any, event: Event) -> Any:
    return event.payload["shown"][int(key[4])]


def _position(_key: Key, _before: Any, event: Event) -> Any:
    return event.position


def _first_position(_key: Key, before: Any, event: Event) -> Any:
    return before or event.position


def _payload(_key: Key, _before: Any, event: Event) -> Any:
    return event.payload


def _cores(event: Event) -> list[Key]:
    return [(scope_of(event), event.payload["id"])]


def _fold_core(_key: Key, _before: Any, event: Event) -> Any:
    scope = scope_of(event)
    return {**event.payload, "scope": scope} if scope else event.payload


def decide_keeper(overlay: Overlay, by: str) -> Denied | None:
    """Refuse actors that do not keep the team's memory."""
    return need(overlay, by, "keep_memory", "upkeep")


# what survives an erasure: that something was superseded, never what it said


def _created_without_content(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in ("supersedes", "weight") if name in payload}


def _change_without_content(payload: dict[str, Any]) -> dict[str, Any]:
    kept = {id: _marks_in(fields) for id, fields in payload["changes"].items()}
    return {
        "act": payload["act"],
        "changes": kept,
        **({"weight": payload["weight"]} if "weight" in payload else {}),
    }


def _core_without_words(payload: dict[str, Any]) -> dict[str, Any]:
    """Who may see a core and write to it still holds: nobody gains a right by an erasure."""
    return {**payload, "name": payload["id"], "description": "", "tags": []}


def _marks_in(fields: dict[str, Any]) -> dict[str, Any]:
    """The changed fields that are marks: who has confirmed it counts, not what they have said."""
    kept = {name: value for name, value in fields.items() if name not in CONTENT and name not in SHAPED}
    if kept.get("corroborated"):
        kept["corroborated"] = [
            {name: value for name, value in entry.items() if name != "source"}
            for entry in kept["corroborated"]
        ]
    return kept


MEMORY = Capability(
    "memory",
    kinds=(
        Kind(CREATED, residue=_created_without_content),
        Kind(UPDATED, residue=_change_without_content),
        Kind(CONSOLIDATED, residue=lambda payload: {**payload, "reason": ""}),
        Kind(FORGOTTEN, residue=lambda payload: {**payload, "reason": ""}),
        Kind(DELETED, residue=lambda payload: {**payload, "reason": ""}),
        Kind(RECALLED, residue=lambda payload: payload),
        Kind(CONFIGURED, residue=lambda payload: payload),
        Kind(CORE_SET, residue=_core_without_words),
        Kind(CURATED, residue=lambda payload: payload),
    ),
    commands={
        "memory.remember": decide_remember,
        "memory.remember_many": decide_remember_many,
        "memory.patch": decide_patch,
        "memory.mark": decide_mark,
        "memory.preview": decide_preview,
        "memory.resolve": decide_resolve,
        "memory.prove": decide_prove,
        "memory.forget": decide_forget,
        "memory.shown": decide_shown,
        "memory.keeper": decide_keeper,
        "memory.configure": decide_configure,
        "memory.core": decide_core,
        "memory.summarize": decide_summarize,
        "memory.erase": decide_memory_erase,
        "memory.curate": decide_curate,
    },
    views=(
        View("memory.items", 1, touched, _fold_item, kinds=CHANGING),
        View("memory.order", 1, _order, _the_item, kinds=frozenset({CREATED}), insert_only=True),
        View("memory.exact", 3, _prints, _the_item, kinds=PLACING),
        View("memory.alike", 2, _marks, _sketched, kinds=PLACING, insert_only=True),
        View("memory.keys", 2, _keys, _the_item, kinds=PLACING, insert_only=True),
        View("memory.links", 1, _links, _position, kinds=PLACING),
        View("memory.tags", 1, _tags, _the_item, kinds=PLACING, insert_only=True),
        View("memory.team", 1, _team, lambda _key, _before, event: event.created_us, kinds=PLACING, insert_only=True),
        View("memory.pinned", 1, _pinned, _fold_pinned, kinds=PLACING),
        View("memory.sums", 1, _sums, _fold_sums, kinds=CHANGING),
        View("memory.tombstones", 1, _stones, _fold_stone, kinds=frozenset({UPDATED, *ENDING})),
        View("memory.edits", 2, _edits, _first_position, kinds=frozenset({UPDATED})),
        View("memory.shown", 2, _shown, _position, kinds=frozenset({RECALLED, RECEIPT})),
        View("memory.heard", 2, _heard, _fold_heard, kinds=frozenset({RECALLED, RECEIPT}), insert_only=True),
        View("memory.settings", 1, lambda _: [("",)], _payload, kinds=frozenset({CONFIGURED})),
        View("memory.cores", 1, _cores, _fold_core, kinds=frozenset({CORE_SET})),
        *CURATION_VIEWS,
    ),
)  # fmt: skip
