"""Which facts stand: for which time, under which key, and what disputes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ..ledger.reader import ViewReader
from .claims import key_form, value_form
from .items import Item, from_row
from .reading import item_at


def new_item(by: str, content: Mapping[str, Any], now_us: int) -> Item:
    """What somebody says now, as an item that is not stored yet."""
    return from_now(from_row({"id": "", "agent": by, "recorded_us": now_us, **content}), now_us)


def from_now(item: Item, now_us: int) -> Item:
    """An item with the time from which on it holds: unless it says so itself or is over already, now."""
    dated = item.valid_from_us is not None or item.expired(now_us)
    return item if dated else replace(item, valid_from_us=now_us)


def holds_for(new: Item, known: Item) -> bool:
    """Whether a known item holds now, or when a new one begins to if that is later; of what is over, whether both held
    at some time. If not, it does not say what the new one says: it is neither its twin nor its near-duplicate, and the
    new one is no echo of it."""
    now_us = new.recorded_us
    if new.expired(now_us):
        return overlap(new, known)
    return known.valid(max(now_us, new.valid_from_us or now_us))


def contradicts(new: Item, known: Item) -> bool:
    """Another value under the same key, for a time that both speak of."""
    return overlap(new, known) and value_form(known.value) != value_form(new.value)


def overlap(first: Item, second: Item) -> bool:
    """Whether there is a time for which both hold."""
    return not (_before(first, second) or _before(second, first))


def _before(first: Item, second: Item) -> bool:
    ends, begins = first.valid_until_us, second.valid_from_us
    return ends is not None and begins is not None and ends <= begins


def standing(
    views: ViewReader,
    key: str | None,
    where: Iterable[tuple[str, str]],
    comparable: Callable[[str], Item | None],
) -> list[Item]:
    """The facts under a key that stand, in each of these places (a scope, and an author or "" for the team): the
    newest, and while these hold for some time only, those before."""
    facts = []
    for scope, whose in where if key is not None else ():
        form = key_form(str(key))
        for _, id in views.each("memory.keys", form, scope, whose, reverse=True):
            fact = comparable(id)
            if fact is not None and fact.current and key_form(fact.key or "") == form:
                facts.append(fact)
                if fact.valid_from_us is None and fact.valid_until_us is None:
                    break  # what stands before it was compared with it
    return facts


def open_rivals(views: ViewReader, ended: Collection[Item], new: Item) -> list[str]:
    """The items that dispute those that end and that still wait, unless the new item says the same as they do: they
    dispute the new item from now on."""
    ids = dict.fromkeys(id for item in ended for id in item.disputed)
    others = (item_at(views, id) for id in ids if id not in {new.id, *(item.id for item in ended)})
    return [
        other.id
        for other in others
        if other is not None and other.status == "held" and not _agree(new, other)
    ]


def _agree(new: Item, rival: Item) -> bool:
    return (
        new.kind == rival.kind == "fact"
        and key_form(new.key or "") == key_form(rival.key or "")
        and not contradicts(new, rival)
    )


def successors(views: ViewReader, ids: Iterable[str]) -> list[Item]:
    """These items, or what has taken their place since."""
    newest: dict[str, Item] = {}
    for id in ids:
        item = item_at(views, id)
        while item is not None and item.superseded_by is not None and item.id not in newest:
            item = item_at(views, item.superseded_by)
        if item is not None:
            newest[item.id] = item
    return list(newest.values())
