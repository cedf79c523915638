"""Which pages of markdown memory shows, and what stands on each of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..access.masking import masked
from ..documents.document import (
    NOTES,
    all_entries,
    archived_us,
    rendered,
    shape_of,
    task_of,
    template,
    title_of,
)
from ..ledger.checks import from_us
from ..ledger.reader import ViewReader
from .items import Item, remarks, without_secrets
from .markdown import block, fitting, ordered, remarked
from .places import AGENTS, ARCHIVE, MEMORY_MD, TEMPLATE, source_of
from .reading import all_items, item_at, of_memory
from .settings import settings_of

HOW = "Change a line to change the item, delete it to have it forgotten, write a new one below to have it remembered."


class Sheet(NamedTuple):
    """One page: its path, its head, its blocks by id, and what a person may do there: edit, append or nothing."""

    path: str
    head: str
    blocks: tuple[tuple[str, str], ...]
    may: str = "edit"


def sheets(views: ViewReader, now_us: int) -> tuple[list[Sheet], float]:
    """Every page of a book, and the moment from which on they may be others although the ledger is the same, because
    something begins to hold or expires. Sensitive items are not shown: files have no rights."""
    of_scope = (item for item in all_items(views) if item.scope == views.scope)
    items = [item for item in of_scope if item.current and item.sensitivity != "sensitive"]
    turns = (turn for item in items for turn in (item.valid_from_us, item.valid_until_us))
    until_us = min((turn for turn in turns if turn is not None and turn > now_us), default=math.inf)
    return list(_sheets(views, items, now_us)), until_us


def _sheets(views: ViewReader, items: list[Item], now_us: int) -> Iterator[Sheet]:
    live = [_with_known_disputes(views, item) for item in items if not item.expired(now_us)]
    notes = {item.id: remarks(item, now_us, is_stale(views, item)) for item in live}
    shown, older = fitting(
        [item for item in live if of_memory(item)],
        settings_of(views).max_size_kb * 1024,
        lambda item: notes[item.id],
    )
    yield _items(MEMORY_MD, f"# Memory\n\nWhat the team knows. {HOW}", shown, notes)
    expired = [item for item in items if of_memory(item) and item.expired(now_us)]
    if older or expired:
        head = f"Entries that no longer fit into {MEMORY_MD}, which can still be found, and those that have expired."
        notes |= {item.id: remarks(item, now_us) for item in expired}
        yield _items(ARCHIVE, f"# Memory, archived\n\n{head}", [*older, *expired], notes)
    rest: dict[str, list[Item]] = {}
    for item in live:
        if not of_memory(item):
            rest.setdefault(source_of(item), []).append(item)
    for path, listed in sorted(rest.items()):
        own = path.startswith(AGENTS)
        how = "Only shown here: it is the agent's own." if own else HOW
        yield _items(path, f"# {_title(listed[0])}\n\n{how}", listed, notes, "nothing" if own else "edit")
    yield from _documents(views)
    yield Sheet(TEMPLATE, template(), (), "nothing")


def _with_known_disputes(views: ViewReader, item: Item) -> Item:
    """An item without the claims against it that only their authors may see."""
    others = [(id, item_at(views, id)) for id in item.disputed]
    known = [id for id, other in others if other is not None and (other.shared or other.agent == item.agent)]
    return replace(item, disputed=tuple(known))


def is_stale(views: ViewReader, item: Item) -> bool:
    """Whether something that an item says of files did not hold when it was checked last."""
    row = views.get("recall.checks", item.id)
    return bool(row and row["check"].get("stale"))


def _title(item: Item) -> str:
    if item.core is not None and item.shared:
        return f"Core: {item.core}"
    if item.repository:
        return f"Facts of the repository: {item.category or 'facts'}"
    return f"What {item.agent} remembers"


def _items(
    path: str, head: str, items: Iterable[Item], notes: Mapping[str, Sequence[str]], may: str = "edit"
) -> Sheet:
    blocks = [(item.id, remarked(block(without_secrets(item)), notes[item.id])) for item in ordered(items)]
    return Sheet(path, head, tuple(blocks), may)


def _documents(views: ViewReader) -> Iterator[Sheet]:
    documents = {NOTES: [], **all_entries(views)}
    for path, entries in documents.items():
        shape = shape_of(path)
        visible = [entry for entry in entries if entry.sensitivity != "sensitive"]
        if shape.derived:
            text = masked(rendered(path, visible))
            yield Sheet(_where(views, path), text if shape.may == "raw" else text.rstrip("\n"), (), shape.may)
        else:
            head = f"# {title_of(path)}" if shape.titled else ""
            blocks = tuple((entry.id, masked(shape.block(entry))) for entry in visible)
            yield Sheet(_where(views, path), head, blocks, shape.may)


def _where(views: ViewReader, path: str) -> str:
    """Where the file of a document lies: a log or task that was archived is in the archive."""
    shape, task = shape_of(path), task_of(path)
    if shape.logged:
        day = title_of(path)
        return path if archived_us(views, "day", day) is None else f"archive/{day[:7]}/{day}.md"
    since_us = archived_us(views, "task", task) if task else None
    return path if since_us is None else f"archive/{from_us(since_us):%Y-%m}/{path}"
