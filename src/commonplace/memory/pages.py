"""Which pages of markdown memory shows, and what stands on each of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

from msgspec.structs import replace

from ..access.masking import masked
from ..errors import BadInput, shown
from ..ledger.checks import from_us
from ..ledger.reader import ViewReader
from . import daily, papers, upkeep
from .items import Item, remarks, without_secrets
from .markdown import block, fitting, ordered, remarked
from .papers import NOTES, file_name
from .reading import MEMORY_MD, all_items, item_at, of_memory, settings_of

ARCHIVE = "archive/MEMORY.md"
AGENTS, CORES, REPOSITORY = "memories/agents/", "memories/cores/", "memories/repo/"
TEMPLATE = "plans/templates/session-notes-template.md"
_PART = re.compile(r"\w[\w. -]{0,79}")

PLACES = (
    MEMORY_MD, NOTES, "memory/", papers.SESSIONS, REPOSITORY, AGENTS, CORES, papers.TASKS, "plans/templates/",
    "archive/",
)  # fmt: skip
"""The files and folders that can be called something else."""

HOW = "Change a line to change the item, delete it to have it forgotten, write a new one below to have it remembered."


class Sheet(NamedTuple):
    """One page: its path, its head, its blocks by id, and what a person may do there: edit, append or nothing."""

    path: str
    head: str
    blocks: tuple[tuple[str, str], ...]
    may: str = "edit"


def check_places(places: Mapping[str, str]) -> None:
    """Raises BadInput unless every place is known and its other name a plain path that no other place has."""
    for usual, name in places.items():
        if usual not in PLACES:
            raise BadInput(f"the mirror has no place {shown(usual)}: it has {', '.join(PLACES)}")
        parts = name.removesuffix("/").split("/")
        if name.endswith("/") != usual.endswith("/") or any(not _PART.fullmatch(one) for one in parts):
            like = "a folder such as 'work/'" if usual.endswith("/") else "a file such as 'TEAM.md'"
            raise BadInput(f"{shown(usual)} cannot be called {shown(name)}: give {like}")
    names = [places.get(one, one) for one in PLACES]
    clash = next((one for one, other in permutations(names, 2) if other.startswith(one)), None)
    if clash is not None:
        raise BadInput(f"two places of the mirror would be in {clash!r}: give each a name of its own")


def renamed(path: str, places: Mapping[str, str], *, back: bool = False) -> str:
    """What a path of the mirror is called, or with `back` what one that is called so usually is."""
    for usual, name in places.items():
        was, becomes = (name, usual) if back else (usual, name)
        if path.startswith(was) and (was.endswith("/") or path == was):
            return becomes + path.removeprefix(was)
    return path


def source_of(item: Item) -> str:
    """The page on which a person finds an item."""
    if item.core is not None and item.shared:
        return f"{CORES}{file_name(item.core)}.md"
    if item.scope == "repository":
        return f"{REPOSITORY}{item.category or 'facts'}.md"
    return MEMORY_MD if item.shared else f"{AGENTS}{file_name(item.agent)}.md"


def sheets(views: ViewReader, now_us: int) -> tuple[list[Sheet], float]:
    """Every page of a book, and the moment from which on they may be others although the ledger is the same, because
    something begins to hold or expires. Sensitive items are not shown: files have no rights."""
    items = [one for one in all_items(views) if one.current and one.sensitivity != "sensitive"]
    turns = (turn for one in items for turn in (one.valid_from_us, one.valid_until_us))
    until_us = min((turn for turn in turns if turn is not None and turn > now_us), default=math.inf)
    return list(_sheets(views, items, now_us)), until_us


def _sheets(views: ViewReader, items: list[Item], now_us: int) -> Iterator[Sheet]:
    settings = settings_of(views)
    live = [_with_known_disputes(views, one) for one in items if not one.expired(now_us)]
    told = {one.id: remarks(one, now_us, _is_stale(views, one)) for one in live}
    shown, older = fitting(
        [one for one in live if of_memory(one)], settings.max_size_kb * 1024, lambda one: told[one.id]
    )
    yield _items(MEMORY_MD, f"# Memory\n\nWhat the team knows. {HOW}", shown, told)
    expired = [one for one in items if of_memory(one) and one.expired(now_us)]
    if older or expired:
        head = f"Entries that no longer fit into {MEMORY_MD}, which can still be found, and those that have expired."
        told |= {one.id: remarks(one, now_us) for one in expired}
        yield _items(ARCHIVE, f"# Memory, archived\n\n{head}", [*older, *expired], told)
    rest: dict[str, list[Item]] = {}
    for one in live:
        if not of_memory(one):
            rest.setdefault(source_of(one), []).append(one)
    for path, found in sorted(rest.items()):
        own = path.startswith(AGENTS)
        how = "Only shown here: it is the agent's own." if own else HOW
        yield _items(path, f"# {_title(found[0])}\n\n{how}", found, told, "nothing" if own else "edit")
    yield from _days(views)
    yield from _papers(views)
    yield Sheet(TEMPLATE, papers.template(), (), "nothing")


def _with_known_disputes(views: ViewReader, item: Item) -> Item:
    """An item without the claims against it that only their authors may see."""
    others = [(id, item_at(views, id)) for id in item.disputed]
    known = [id for id, other in others if other is not None and (other.shared or other.agent == item.agent)]
    return replace(item, disputed=tuple(known))


def _is_stale(views: ViewReader, item: Item) -> bool:
    """Whether something that an item says of files did not hold when it was checked last."""
    row = views.get("recall.checks", item.id)
    return bool(row and row["check"].get("stale"))


def _title(item: Item) -> str:
    if item.core is not None and item.shared:
        return f"Core: {item.core}"
    if item.scope == "repository":
        return f"Facts of the repository: {item.category or 'facts'}"
    return f"What {item.agent} remembers"


def _items(
    path: str, head: str, items: Iterable[Item], told: Mapping[str, Sequence[str]], may: str = "edit"
) -> Sheet:
    blocks = [(one.id, remarked(block(without_secrets(one)), told[one.id])) for one in ordered(items)]
    return Sheet(path, head, tuple(blocks), may)


def _days(views: ViewReader) -> Iterator[Sheet]:
    for day, entries in daily.all_entries(views).items():
        found = [one for one in entries if one.sensitivity != "sensitive"]
        where = f"archive/{day[:7]}/{day}.md" if upkeep.shelved(views, "day", day) else f"memory/{day}.md"
        yield Sheet(where, f"# {day}", tuple((one.id, masked(one.markdown)) for one in found), "append")


def _papers(views: ViewReader) -> Iterator[Sheet]:
    named = papers.papers(views)
    for path in named:
        found = [one for one in papers.lines(views, path) if one.sensitivity != "sensitive"]
        task = path.split("/")[2] if path.startswith(papers.TASKS) else ""
        shelf = views.get("memory.shelf", "task", task) if task else None
        where = path if shelf is None else f"archive/{from_us(shelf['at_us']):%Y-%m}/{path}"
        if path == NOTES:
            yield Sheet(NOTES, "", tuple((one.id, masked(one.text.strip("\n"))) for one in found))
        elif path.endswith(".ndjson"):
            yield Sheet(where, masked(papers.rendered(path, found)), (), "raw")
        elif path.startswith(papers.SESSIONS):
            yield Sheet(where, masked(papers.rendered(path, found).rstrip("\n")), (), "nothing")
        else:
            lines = tuple((one.id, masked(one.text.strip("\n"))) for one in found)
            yield Sheet(where, f"# {papers.title_of(path)}", lines, "nothing")
    if NOTES not in named:
        yield Sheet(NOTES, "", ())
