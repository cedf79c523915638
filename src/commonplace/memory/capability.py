"""The memory capability: which events there are, who decides them, and what is folded from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from ..access.commands import Denial, need, refuse
from ..access.rights import OWNER, check_actor, rights_of
from ..errors import BadInput, Denied, NotFound
from ..index.names import check_embedder
from ..ledger.events import Event, draft, iso
from ..ledger.keys import Key
from ..ledger.overlay import Overlay
from ..ledger.views import Capability, Kind, View
from . import daily, papers, upkeep
from .changes import (
    decide_forget,
    decide_mark,
    decide_memory_erase,
    decide_patch,
    decide_resolve,
    decide_retell,
    follow_core,
)
from .claims import key_form
from .cores import CORE_SET, Core, SetCore, may_know, no_core
from .items import CONTENT, fingerprint, marks, sketch, words_of
from .pages import check_places
from .portions import merged
from .reading import Settings, settings_of
from .remember import decide_remember
from .requests import (
    CONFIGURED,
    CONSOLIDATED,
    CREATED,
    DELETED,
    FORGOTTEN,
    RECALLED,
    RECEIPT,
    UPDATED,
    Shown,
)

ENDING = (FORGOTTEN, DELETED, CONSOLIDATED)
CHANGING = frozenset({CREATED, UPDATED, *ENDING})


# the items themselves


def touched(event: Event) -> list[Key]:
    payload = event.payload
    if event.kind in ENDING:
        return [(one["id"],) for one in payload["items"]]
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
        was = (
            before.get("was", "live") if before.get("status") == "forgotten" else before.get("status", "live")
        )
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
        for name in ("supersedes", "secrets", "held", "retells", "disputed")
        if name in payload
    }
    if event.labels.get("audience") == "team":
        row["shared"] = True
    if "held" in payload:
        row["status"] = "held"
    return row


# where items are found


class Placed(NamedTuple):
    id: str
    partition: str
    content: dict[str, Any]


def _placed(event: Event) -> Iterator[Placed]:
    """The items whose text or place an event says: under their author's name, or under none for the team's."""
    if event.kind == CREATED:
        if "item" in event.payload:
            whose = event.payload.get("for", event.actor)
            partition = "" if event.labels.get("audience") == "team" else whose
            yield Placed(event.id, partition, event.payload["item"])
        return
    for id, agent, shared, content in event.payload.get("placed", ()):
        yield Placed(id, "" if shared else agent, content)


def _prints(event: Event) -> list[Key]:
    return [(one.partition, fingerprint(one.content)) for one in _placed(event)]


def _marks(event: Event) -> list[Key]:
    return [
        (one.partition, mark.word, mark.size, mark.place, event.position)
        for one in _placed(event)
        for mark in marks(words_of(one.content))
    ]


def _keys(event: Event) -> list[Key]:
    return [
        (key_form(one.content["key"]), one.partition, event.position)
        for one in _placed(event)
        if one.content.get("key")
    ]


def _tags(event: Event) -> list[Key]:
    return [(tag, event.position) for one in _placed(event) for tag in one.content.get("tags") or ()]


def _team(event: Event) -> list[Key]:
    """The items that an event gives to the team, by the event's position: read backwards, the newest come first."""
    if event.kind == CREATED:
        shared = event.labels.get("audience") == "team" and "item" in event.payload
        return [(event.position, event.id)] if shared else []
    return [(event.position, id) for id, fields in event.payload["changes"].items() if fields.get("shared")]


def _pinned(event: Event) -> list[Key]:
    """The items that an event pins or unpins."""
    if event.kind == CREATED:
        return [(event.id,)] if event.payload.get("item", {}).get("pinned") else []
    return [(id,) for id, fields in event.payload["changes"].items() if "pinned" in fields]


def _fold_pinned(key: Key, _before: Any, event: Event) -> Any:
    return event.kind == CREATED or event.payload["changes"][key[0]]["pinned"] or None


def _links(event: Event) -> list[Key]:
    """From the item that a link leads to, back to where it comes from."""
    if event.kind == CREATED:
        return [(to, event.id) for _, to in event.payload.get("item", {}).get("links", ())]
    return [
        (to, id) for id, fields in event.payload["changes"].items() for _, to in fields.get("links") or ()
    ]


def _the_item(_key: Key, _before: Any, event: Event) -> Any:
    """Which item stands under this key: an event places one."""
    return next((one.id for one in _placed(event)), None)


def _sketched(_key: Key, _before: Any, event: Event) -> Any:
    """The item, and a sketch of its words: whether it is worth a look is known before it is read."""
    return next(([one.id, sketch(words_of(one.content))] for one in _placed(event)), None)


def _fold_sums(_key: Key, before: Any, event: Event) -> Any:
    return {"bytes": (before or {"bytes": 0})["bytes"] + event.payload["weight"]}


def _stones(event: Event) -> list[Key]:
    if event.kind in ENDING:
        return [(one["id"],) for one in event.payload["items"]]
    return [(id,) for id in event.payload["changes"]] if event.payload["act"] == "restored" else []


def _fold_stone(key: Key, before: Any, event: Event) -> Any:
    payload = event.payload
    if event.kind not in ENDING:
        return None
    agent = next(one["agent"] for one in payload["items"] if one["id"] == key[0])
    return {
        "agent": agent,
        "deleted_at": before["deleted_at"] if before else iso(event.created_us),
        "deleted_by": payload["by"],
        "reason": payload["reason"],
        "erased": bool(payload.get("erased")),
    }


# small commands


def decide_shown(overlay: Overlay, request: Shown) -> int | None:
    """Remember what was shown to whom, once. Answers the position, or None when nothing is new."""
    fresh = not_noted(overlay, request)
    if not fresh:
        return None
    one = draft(RECALLED, actor=request.actor, payload={"shown": fresh}, run_id=request.run, parents=fresh)
    return overlay.emit(one).position


def not_noted(overlay: Overlay, request: Shown) -> list[str]:
    """What of this the book does not say yet, without what was erased meanwhile."""
    return [
        id
        for id in dict.fromkeys(request.shown)
        if overlay.get("memory.shown", request.run or "", id, request.actor) is None
        and not _gone(overlay, id)
    ]


def _gone(overlay: Overlay, id: str) -> bool:
    record = overlay.record_of(id)
    return record is None or record.body is None


def _heard(event: Event) -> list[Key]:
    return [(event.run_id or "", event.actor, event.position, n) for n in range(len(event.payload["shown"]))]


def decide_keeper(overlay: Overlay, by: str) -> Denied | None:
    """Refuse whoever does not keep the team's memory."""
    return need(overlay, by, "keep_memory", "upkeep")


class Configure(msgspec.Struct, frozen=True):
    by: str
    fields: dict[str, Any]


FOR_THE_OWNER = {
    "person": "says who edits the markdown, because that is a person's right",
    "embedder": "chooses the embedder, because it is given everybody's texts",
}


def decide_configure(overlay: Overlay, request: Configure) -> Settings | Denied:
    refused = need(overlay, request.by, "keep_memory", "settings")
    if refused is None and "person" in request.fields:
        request.fields["person"] = check_actor(request.fields["person"])
    for name, why in FOR_THE_OWNER.items():
        if refused is None and name in request.fields and request.by != OWNER:
            refused = refuse(
                overlay, Denial(request.by, f"memory.{name}", "settings"), f"only the owner {why}"
            )
    if refused:
        return refused
    before = msgspec.to_builtins(settings_of(overlay))
    said = merged(before, request.fields)
    said |= {name: request.fields[name] for name in ("places",) if name in request.fields}  # said whole
    settings: Settings = _converted(said, Settings, "the settings of memory")
    check_places(settings.places)
    check_embedder(settings.embedder)
    if msgspec.to_builtins(settings) != before:
        overlay.emit(draft(CONFIGURED, actor=request.by, payload=msgspec.to_builtins(settings)))
    return settings


def decide_core(overlay: Overlay, request: SetCore) -> Core | Denied:
    refused = need(overlay, request.by, "keep_memory", request.id)
    if refused:
        return refused
    before = overlay.get("memory.cores", request.id)
    if before is not None and not may_know(rights_of(overlay, request.by), msgspec.convert(before, Core)):
        raise NotFound(no_core(request.id))
    fresh = {"name": request.id, "owner": request.by}
    said = merged(before or fresh, {**request.fields, "id": request.id})
    core: Core = _converted(said, Core, "a core")
    plain = msgspec.to_builtins(core)
    if plain != before:
        if before is not None and (before["visibility"] == "private") != (core.visibility == "private"):
            follow_core(overlay, request.by, core.id, core.visibility != "private")
        audience = {"audience": "team"} if core.visibility != "private" else {}
        overlay.emit(
            draft(CORE_SET, actor=request.by, payload=plain, labels={"sensitivity": "private", **audience})
        )
    return core


def _converted(plain: dict[str, Any], type: Any, what: str) -> Any:
    try:
        return msgspec.convert(plain, type, strict=True)
    except msgspec.ValidationError as error:
        raise BadInput(f"that is not {what}: {error}. The fields are {_fields_of(type)}") from None


def _fields_of(type: Any) -> str:
    """The names of a struct's fields with what is allowed in them."""
    from msgspec import inspect

    about, told = inspect.type_info(type), []
    assert isinstance(about, inspect.StructType)
    for one in about.fields:
        if isinstance(one.type, inspect.LiteralType):
            told.append(f"{one.name} ({', '.join(map(str, one.type.values))})")
        elif isinstance(one.type, inspect.StructType):
            told.append(f"{one.name} ({_fields_of(one.type.cls)})")
        else:
            told.append(one.name)
    return ", ".join(told)


# what survives an erasure: that something was superseded, never what it said


def _created_without_content(payload: dict[str, Any]) -> dict[str, Any]:
    return {name: payload[name] for name in ("supersedes", "weight") if name in payload}


def _change_without_content(payload: dict[str, Any]) -> dict[str, Any]:
    kept = {
        id: {name: value for name, value in fields.items() if name not in CONTENT and name != "kind"}
        for id, fields in payload["changes"].items()
    }
    return {
        "act": payload["act"],
        "changes": kept,
        **({"weight": payload["weight"]} if "weight" in payload else {}),
    }


def _note_without_content(payload: dict[str, Any]) -> dict[str, Any]:
    """That a paper was written anew or cleared still holds; what an entry said does not."""
    return {
        **payload,
        "act": "clear" if payload["act"] in ("set", "clear") else "gone",
        "text": "",
        "section": "",
    }


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
        Kind(CORE_SET),
        Kind(daily.LOGGED),
        Kind(papers.NOTED, residue=_note_without_content),
        Kind(papers.GATED),
        Kind(upkeep.SHELVED, residue=lambda payload: payload),
    ),
    commands={
        "memory.remember": decide_remember,
        "memory.patch": decide_patch,
        "memory.mark": decide_mark,
        "memory.resolve": decide_resolve,
        "memory.forget": decide_forget,
        "memory.shown": decide_shown,
        "memory.keeper": decide_keeper,
        "memory.configure": decide_configure,
        "memory.core": decide_core,
        "memory.log": daily.decide_log,
        "memory.note": papers.decide_note,
        "memory.gate": papers.decide_gate,
        "memory.shelve": upkeep.decide_shelve,
        "memory.retell": decide_retell,
        "memory.erase": decide_memory_erase,
    },
    views=(
        View("memory.items", 1, touched, _fold_item, kinds=CHANGING),
        View("memory.exact", 3, _prints, _the_item, kinds=frozenset({CREATED, UPDATED})),
        View("memory.alike", 2, _marks, _sketched, kinds=frozenset({CREATED, UPDATED}), fresh=True),
        View("memory.keys", 2, _keys, _the_item, kinds=frozenset({CREATED, UPDATED}), fresh=True),
        View(
            "memory.links",
            1,
            _links,
            lambda _key, _before, event: event.position,
            kinds=frozenset({CREATED, UPDATED}),
        ),
        View("memory.tags", 1, _tags, _the_item, kinds=frozenset({CREATED, UPDATED}), fresh=True),
        View(
            "memory.team", 1, _team, lambda _key, _before, event: event.created_us,
            kinds=frozenset({CREATED, UPDATED}), fresh=True,
        ),
        View("memory.pinned", 1, _pinned, _fold_pinned, kinds=frozenset({CREATED, UPDATED})),
        View(
            "memory.sums",
            1,
            lambda event: [("team",)] if event.payload.get("weight") else [],
            _fold_sums,
            kinds=CHANGING,
        ),
        View("memory.tombstones", 1, _stones, _fold_stone, kinds=frozenset({UPDATED, *ENDING})),
        View(
            "memory.edits",
            1,
            lambda event: [(event.payload["key"],)] if event.payload.get("key") else [],
            lambda _key, before, event: before or event.position,
            kinds=frozenset({UPDATED}),
        ),
        View(
            "memory.shown",
            2,
            lambda event: [(event.run_id or "", id, event.actor) for id in event.payload["shown"]],
            lambda _key, _before, event: event.position,
            kinds=frozenset({RECALLED, RECEIPT}),
        ),
        View(
            "memory.heard",
            2,
            _heard,
            lambda key, _before, event: event.payload["shown"][key[3]],
            kinds=frozenset({RECALLED, RECEIPT}),
            fresh=True,
        ),
        View(
            "memory.settings", 1, lambda _: [("",)], lambda _key, _before, event: event.payload,
            kinds=frozenset({CONFIGURED}),
        ),
        View(
            "memory.cores", 1, lambda event: [(event.payload["id"],)], lambda _key, _before, event: event.payload,
            kinds=frozenset({CORE_SET}),
        ),
        View("memory.shelf", 1, upkeep.touched, upkeep.fold, kinds=frozenset({upkeep.SHELVED})),
        View("memory.days", 1, daily.touched, daily.fold, kinds=frozenset({daily.LOGGED}), fresh=True),
        View("memory.papers", 1, papers.touched, papers.fold, kinds=frozenset({papers.NOTED, papers.GATED})),
    ),
)  # fmt: skip
