"""Keeping memory small: what to put aside or give up, in a fixed order, and why.

    1  logs of days beyond the retention             → archived
    2  papers of tasks that ended long enough ago    → archived
    3  entries of cores past the age that they set   → archived
    4  if a budget is exceeded, until it is kept:
         facts that stand twice under one key        → the strictest, surest, newest stays
         the oldest episodes                         → one note that tells them
         what was derived for searching              → thrown away, and built again when needed
         episodes, notes, procedures, facts          → given up, the oldest first

Planning is a pure function of what there is and the time. Everything can be undone until it is erased.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ..access.commands import need
from ..errors import BadInput, Denied
from ..ledger.checks import from_us
from ..ledger.events import Event, draft
from ..ledger.keys import Key
from ..ledger.labels import strictness
from ..ledger.overlay import Overlay
from ..ledger.reader import ViewReader
from .claims import key_form
from .items import BESIDE, Item
from .reading import Budget, Settings, item_at
from .requests import CREATED

SHELVED = "memory.shelved"
DAY_US = 24 * 3600 * 1_000_000
EVICTED = ("episode", "note", "procedure", "fact")
ENDED = re.compile(r"(?im)^\W*status\W*\b(done|superseded|deferred)\b")
NOT_ENDED = re.compile(r"(?im)^\W*status\W*\b(?!done|superseded|deferred)\w+")


class Chore(msgspec.Struct, frozen=True):
    """One thing to do: archive days, papers or items, consolidate, drop the index, or evict; and why."""

    act: str
    names: tuple[str, ...]
    why: str


class Holdings(msgspec.Struct, frozen=True):
    """What a chore is planned from: all that there is."""

    items: tuple[Item, ...]
    days: tuple[str, ...]
    tasks: Mapping[str, tuple[int, str]]
    """Of each task's folder, when it was last written to, and what its papers say."""
    core_days: Mapping[str, int]
    """Of each core that lets entries grow old, after how many days."""


class Upkeep(msgspec.Struct, frozen=True):
    """What was done, or would be: each chore in order; what was left for a person; and what memory holds now."""

    chores: tuple[Chore, ...]
    left_alone: tuple[str, ...]
    items: int
    chars: int
    done: bool = False


def plan(kept: Holdings, settings: Settings, now_us: int) -> tuple[list[Chore], list[str]]:
    """The chores in their order, and what is too unclear for a program to decide."""
    chores, unclear = _archives(kept, settings, now_us)
    gone = {name for chore in chores if chore.act == "archive items" for name in chore.names}
    live = [one for one in kept.items if one.current and one.id not in gone]
    return chores + _within(live, settings.budget), unclear


def _archives(kept: Holdings, settings: Settings, now_us: int) -> tuple[list[Chore], list[str]]:
    chores, unclear = list[Chore](), list[str]()
    first = f"{from_us(now_us - settings.retention_days * DAY_US):%Y-%m-%d}"
    old = tuple(day for day in kept.days if day < first)
    if old:
        chores.append(Chore("archive days", old, f"logs are kept for {settings.retention_days} days"))
    ended = []
    for task, (written, text) in sorted(kept.tasks.items()):
        if now_us - written < settings.archive_days * DAY_US:
            continue
        statuses = {found.upper() for found in ENDED.findall(text)}
        if len(statuses) == 1 and not NOT_ENDED.search(text):
            ended.append(task)
        else:
            told = (
                f"its papers say {' and '.join(sorted(statuses))}"
                if statuses
                else "no paper says how it ended"
            )
            unclear.append(f"the task {task}: {told}, so a person decides")
    if ended:
        chores.append(
            Chore("archive tasks", tuple(ended), f"they ended {settings.archive_days} days ago or earlier")
        )
    for core, days in sorted(kept.core_days.items()):
        aged = tuple(one.id for one in kept.items if _aged(one, core, days, now_us))
        if aged:
            chores.append(Chore("archive items", aged, f"the core {core!r} keeps entries for {days} days"))
    return chores, unclear


def _aged(item: Item, core: str, days: int, now_us: int) -> bool:
    seen = max(item.updated_us, item.verified_us or 0)
    return item.core == core and item.current and now_us - seen >= days * DAY_US


class Load(msgspec.Struct):
    """How much there is, beside how much there may be."""

    budget: Budget
    items: int = 0
    chars: int = 0

    def add(self, item: Item) -> None:
        self.items, self.chars = self.items + 1, self.chars + len(item.text)

    def take(self, items: Iterable[Item]) -> None:
        for one in items:
            self.items, self.chars = self.items - 1, self.chars - len(one.text)

    @property
    def fits(self) -> bool:
        few = self.budget.max_items is None or self.items <= self.budget.max_items
        return few and (self.budget.max_chars is None or self.chars <= self.budget.max_chars)


def _within(live: list[Item], budget: Budget) -> list[Chore]:
    """What to do until the items fit into the budget, and no more."""
    chores, load, left = list[Chore](), Load(budget), {one.id: one for one in live}
    for one in live:
        load.add(one)
    if load.fits:
        return chores
    for why, losers in _duplicates(live):
        chores.append(Chore("consolidate facts", losers, why))
        load.take(left.pop(id) for id in losers)
        if load.fits:
            return chores
    told = _oldest_episodes(left.values())
    if told:
        ids = tuple(one.id for one in told)
        chores.append(Chore("consolidate episodes", ids, "the oldest episodes become one note"))
        load.take(left.pop(id) for id in ids)
        load.add(_standing_for(told))
        if load.fits:
            return chores
    chores.append(Chore("drop index", (), "it is derived, and built again when something is looked for"))
    for kind in EVICTED:
        given_up = list[str]()
        for one in sorted((one for one in left.values() if one.kind == kind), key=_age):
            if load.fits:
                break
            given_up.append(one.id)
            load.take([one])
        if given_up:
            chores.append(
                Chore(f"evict {kind}s", tuple(given_up), "the budget is exceeded; the oldest go first")
            )
    return chores


def _age(item: Item) -> tuple[bool, int, str]:
    """Pinned items go last."""
    return item.pinned, item.recorded_us, item.id


def _duplicates(live: list[Item]) -> list[tuple[str, tuple[str, ...]]]:
    """For each key that stands more than once in one place, the facts that give way. Those of which somebody has
    decided that they stand beside each other stay."""
    found: dict[tuple[str, str, str], list[Item]] = defaultdict(list)
    for one in live:
        if (
            one.kind == "fact"
            and one.key
            and not one.scope
            and not any(relation == BESIDE for relation, _ in one.links)
            and one.valid_from_us is None
            and one.valid_until_us is None
        ):
            found["" if one.shared else one.agent, one.core or "", key_form(one.key)].append(one)
    told = []
    for _, facts in sorted(found.items()):
        if len(facts) > 1:
            stays = max(facts, key=_standing)
            losers = tuple(one.id for one in facts if one is not stays)
            told.append((f"one key stands {len(facts)} times; {stays.id} stays", losers))
    return told


def _standing(fact: Item) -> tuple[int, float, int, str]:
    """The strictest sensitivity stays, then the surest, then the newest."""
    return strictness("sensitivity", fact.sensitivity), fact.confidence or 0.0, fact.recorded_us, fact.id


def _oldest_episodes(live: Iterable[Item]) -> list[Item]:
    """The older half of somebody's episodes, whose are most."""
    by: dict[tuple[str, bool], list[Item]] = defaultdict(list)
    for one in live:
        if one.kind == "episode" and one.core is None:
            by[one.agent, one.shared].append(one)
    if not by:
        return []
    most = max(sorted(by), key=lambda whose: len(by[whose]))
    episodes = sorted(by[most], key=lambda one: (one.occurred_us or 0, one.id))
    return episodes[: max(2, len(episodes) // 2)] if len(episodes) > 1 else []


def retold(episodes: Iterable[Item]) -> str:
    """Episodes as the text of one note."""
    ordered = sorted(episodes, key=lambda one: (one.occurred_us or 0, one.id))
    return "\n".join(f"{from_us(one.occurred_us or 0):%Y-%m-%d}: {one.summary}" for one in ordered)


def _standing_for(episodes: list[Item]) -> Item:
    """The note that will tell them, as far as a budget is concerned."""
    return Item(id="", kind="note", agent="", title=RETOLD, body=retold(episodes))


RETOLD = "Earlier episodes"


# putting days and tasks aside


class Shelve(msgspec.Struct, frozen=True):
    """Put days or tasks into the archive, or bring them back."""

    by: str
    what: str
    names: tuple[str, ...]
    why: str = ""
    back: bool = False


def decide_shelve(overlay: Overlay, request: Shelve) -> int | Denied:
    if request.what not in ("day", "task"):
        raise BadInput("days and tasks can be put into the archive")
    refused = need(overlay, request.by, "keep_memory", f"archive {request.what}s")
    if refused:
        return refused
    names = [name for name in request.names if shelved(overlay, request.what, name) == request.back]
    if not names:
        return overlay.position
    payload = {"what": request.what, "names": names, "why": request.why, "back": request.back}
    labels = {"sensitivity": "private", "audience": "team"}
    return overlay.emit(draft(SHELVED, actor=request.by, payload=payload, labels=labels)).position


def touched(event: Event) -> list[Key]:
    return [(event.payload["what"], name) for name in event.payload["names"]]


def fold(_key: Key, _before: Any, event: Event) -> Any:
    return None if event.payload["back"] else {"at_us": event.created_us}


def shelved(views: ViewReader, what: str, name: str) -> bool:
    """Whether a day or task is in the archive."""
    return views.get("memory.shelf", what, name) is not None


# telling episodes as one note


class Retell(msgspec.Struct, frozen=True):
    """Let one note stand for episodes, which are forgotten in its favour."""

    by: str
    ids: tuple[str, ...]


def note_of(overlay: Overlay, by: str, ids: Iterable[str]) -> Event | None:
    """The note that tells these episodes, recorded; None when none of them is there any more. It is derived from
    them: as sensitive as they are, and gone when one of them is erased."""
    found = [one for one in (item_at(overlay, id) for id in ids) if one is not None and one.kind == "episode"]
    if not found:
        return None
    content: dict[str, Any] = {"kind": "note", "title": RETOLD, "body": retold(found)}
    payload: dict[str, Any] = {"item": content, "for": found[0].agent, "retells": [one.id for one in found]}
    content["provenance"] = {"source_kind": "system", "channel": "consolidation"}
    secrets = sorted({kind for one in found for kind in one.secrets})
    payload |= {"secrets": secrets} if secrets else {}
    labels = {"sensitivity": "private", **({"audience": "team"} if all(one.shared for one in found) else {})}
    parents = [one.id for one in found]
    return overlay.emit(draft(CREATED, actor=by, payload=payload, parents=parents, labels=labels))
