"""Keeping memory small: what to put aside or give up, in a fixed order, and why.

    1  logs of days beyond the retention                → archived
    2  documents of tasks that ended long enough ago    → archived
    3  entries of cores past the age that they set      → archived
    4  if a budget is exceeded, until it is kept:
         facts that stand twice under one key           → the strictest, surest, newest stays
         the oldest episodes                            → one note that summarizes them
         what was derived for searching                 → thrown away, and built again when needed
         episodes, notes, procedures, facts             → given up, the oldest first

`plan` is a pure function of what there is and the time. Everything can be undone until it is erased.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..documents.document import TASKS, all_entries, archived_us, days, task_of
from ..documents.writing import ArchiveDocuments
from ..ledger.checks import from_us
from ..ledger.encoding import convert
from ..ledger.labels import strictness
from .claims import key_form
from .cores import Core
from .forgetting import SUMMARY_TITLE, summarized
from .items import BESIDE, Item
from .requests import Forget, MarkItems, Summarize
from .settings import Budget, Settings

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader
    from ..session import Session
    from .viewer import Viewer

DAY_US = 24 * 3600 * 1_000_000
EVICTED = ("episode", "note", "procedure", "fact")
ENDED = re.compile(r"(?im)^\W*status\W*\b(done|superseded|deferred)\b")
NOT_ENDED = re.compile(r"(?im)^\W*status\W*\b(?!done|superseded|deferred)\w+")


class Chore(msgspec.Struct, frozen=True):
    """One thing to do: archive days, tasks or items, consolidate, drop the index, or evict; and why."""

    act: str
    names: tuple[str, ...]
    why: str


class Holdings(msgspec.Struct, frozen=True):
    """What chores are planned from."""

    items: tuple[Item, ...]
    days: tuple[str, ...]
    tasks: Mapping[str, tuple[int, str]]
    """Of each task's folder, when it was last written to, and what its documents say."""
    core_days: Mapping[tuple[str, str], int]
    """Of each core that lets entries grow old, by its scope and id, after how many days."""


class Upkeep(msgspec.Struct, frozen=True):
    """What was done, or would be: each chore in order; what was left for a person; and what memory holds now."""

    chores: tuple[Chore, ...]
    left_alone: tuple[str, ...]
    items: int
    chars: int
    done: bool = False


def tidied(session: Session, now_us: int, dry_run: bool) -> Upkeep:
    """Do what memory needs as of a moment; with `dry_run`, only say what that is."""
    with session.viewer() as viewer:
        settings, holdings = viewer.settings, _holdings(viewer.views, viewer)
        scopes = [str(key) for _, key in viewer.views.scan("scopes.keys")]
    chores, unclear = plan(holdings, settings, now_us)
    for chore in () if dry_run else chores:
        _do(session, chore)
    for each in map(session.alone_in, scopes):  # each scope has documents of its own
        with each.viewer() as viewer:
            more, left = plan(_documents(viewer.views), settings, now_us)
        chores, unclear = [*chores, *more], [*unclear, *left]
        for chore in () if dry_run else more:
            _do(each, chore)
    with session.viewer() as viewer:
        live = [item for item in viewer.items() if item.current]
    size = sum(len(item.text) for item in live)
    return Upkeep(tuple(chores), tuple(unclear), len(live), size, not dry_run)


def _holdings(views: ViewReader, viewer: Viewer) -> Holdings:
    cores = [convert(row, Core) for _, row in views.scan("memory.cores")]
    core_days = {
        (core.scope, core.id): core.config.archive_after_days
        for core in cores
        if core.config.archive_after_days
    }
    return replace(_documents(views), items=tuple(viewer.items()), core_days=core_days)


def _documents(views: ViewReader) -> Holdings:
    """The daily logs and the folders of tasks."""
    tasks: dict[str, tuple[int, str]] = {}
    for path, entries in all_entries(views, TASKS).items():
        task = task_of(path)
        if archived_us(views, "task", task) is None:
            written, text = tasks.get(task, (0, ""))
            last = max(entry.written_us for entry in entries)
            tasks[task] = max(written, last), "\n".join([text, *(entry.text for entry in entries)])
    listed = tuple(day for day in days(views) if archived_us(views, "day", day) is None)
    return Holdings((), listed, tasks, {})


def _do(session: Session, chore: Chore) -> None:
    by, run = session.actor, session.run
    match chore.act:
        case "archive days" | "archive tasks":
            what = "day" if chore.act == "archive days" else "task"
            request = ArchiveDocuments(by, what, chore.names, chore.why, run=run)
            session.submit("documents.archive", request, "tidy")
        case "archive items":
            session.submit("memory.mark", MarkItems(by, chore.names, "archived", chore.why, run=run), "tidy")
        case "consolidate episodes":
            session.submit("memory.summarize", Summarize(by, chore.names, run), "tidy")
        case "drop index":
            session.services.index.throw_away()
        case act:
            reason = "consolidation" if act == "consolidate facts" else "budget"
            session.submit("memory.forget", Forget(by, chore.names, chore.why, reason, run=run), "tidy")


# planning


def plan(holdings: Holdings, settings: Settings, now_us: int) -> tuple[list[Chore], list[str]]:
    """The chores in their order, and what is too unclear for a program to decide."""
    chores = list[Chore]()
    first = f"{from_us(now_us - settings.retention_days * DAY_US):%Y-%m-%d}"
    old = tuple(day for day in holdings.days if day < first)
    if old:
        chores.append(Chore("archive days", old, f"logs are kept for {settings.retention_days} days"))
    ended, unclear = _ended_tasks(holdings, settings.archive_days, now_us)
    if ended:
        chores.append(
            Chore("archive tasks", ended, f"they ended {settings.archive_days} days ago or earlier")
        )
    gone = set[str]()
    for core, age in sorted(holdings.core_days.items()):
        aged = tuple(item.id for item in holdings.items if _aged(item, core, age, now_us))
        if aged:
            chores.append(Chore("archive items", aged, f"the core {core[1]!r} keeps entries for {age} days"))
            gone.update(aged)
    live = [item for item in holdings.items if item.current and item.id not in gone]
    return chores + _within(live, settings.budget), unclear


def _ended_tasks(holdings: Holdings, age: int, now_us: int) -> tuple[tuple[str, ...], list[str]]:
    """The tasks whose documents say, since so many days, that they ended; and those that do not say so clearly."""
    ended, unclear = list[str](), list[str]()
    for task, (written_us, text) in sorted(holdings.tasks.items()):
        if now_us - written_us < age * DAY_US:
            continue
        statuses = {status.upper() for status in ENDED.findall(text)}
        if len(statuses) == 1 and not NOT_ENDED.search(text):
            ended.append(task)
        else:
            listed = " and ".join(sorted(statuses))
            reason = f"its documents say {listed}" if statuses else "no document says how it ended"
            unclear.append(f"the task {task}: {reason}, so a person decides")
    return tuple(ended), unclear


def _aged(item: Item, core: tuple[str, str], days: int, now_us: int) -> bool:
    touched = max(item.updated_us, item.verified_us or 0)
    return (item.scope, item.core) == core and item.current and now_us - touched >= days * DAY_US


class Load(msgspec.Struct):
    """How much there is, beside how much there may be."""

    budget: Budget
    items: int = 0
    chars: int = 0

    def add(self, item: Item) -> None:
        self.items, self.chars = self.items + 1, self.chars + len(item.text)

    def take(self, items: Iterable[Item]) -> None:
        for item in items:
            self.items, self.chars = self.items - 1, self.chars - len(item.text)

    @property
    def fits(self) -> bool:
        few = self.budget.max_items is None or self.items <= self.budget.max_items
        return few and (self.budget.max_chars is None or self.chars <= self.budget.max_chars)


def _within(live: list[Item], budget: Budget) -> list[Chore]:
    """What to do until the items fit into the budget, and no more."""
    chores, load, left = list[Chore](), Load(budget), {item.id: item for item in live}
    for item in live:
        load.add(item)
    if load.fits:
        return chores
    for why, losers in _duplicates(live):
        chores.append(Chore("consolidate facts", losers, why))
        load.take(left.pop(id) for id in losers)
        if load.fits:
            return chores
    oldest = _oldest_episodes(left.values())
    if oldest:
        ids = tuple(item.id for item in oldest)
        chores.append(Chore("consolidate episodes", ids, "the oldest episodes become one note"))
        load.take(left.pop(id) for id in ids)
        load.add(Item(id="", kind="note", agent="", title=SUMMARY_TITLE, body=summarized(oldest)))
        if load.fits:
            return chores
    chores.append(Chore("drop index", (), "it is derived, and built again when something is looked for"))
    for kind in EVICTED:
        evicted = list[str]()
        for item in sorted((item for item in left.values() if item.kind == kind), key=_age):
            if load.fits:
                break
            evicted.append(item.id)
            load.take([item])
        if evicted:
            chores.append(
                Chore(f"evict {kind}s", tuple(evicted), "the budget is exceeded; the oldest go first")
            )
    return chores


def _age(item: Item) -> tuple[bool, int, str]:
    """Pinned items go last."""
    return item.pinned, item.recorded_us, item.id


def _duplicates(live: list[Item]) -> list[tuple[str, tuple[str, ...]]]:
    """For each key that stands more than once in one place, the facts that give way. Those of which somebody has
    decided that they stand beside each other stay, and those that hold for some time only."""
    by_key: dict[tuple[str, ...], list[Item]] = defaultdict(list)
    for item in live:
        beside = any(relation == BESIDE for relation, _ in item.links)
        dated = item.valid_from_us is not None or item.valid_until_us is not None
        if item.kind == "fact" and item.key and not (item.repository or beside or dated):
            where = (item.scope, "" if item.shared else item.agent, item.core or "")
            by_key[*where, key_form(item.key)].append(item)
    duplicates = []
    for _, facts in sorted(by_key.items()):
        if len(facts) > 1:
            stays = max(facts, key=_standing)
            losers = tuple(fact.id for fact in facts if fact is not stays)
            duplicates.append((f"one key stands {len(facts)} times; {stays.id} stays", losers))
    return duplicates


def _standing(fact: Item) -> tuple[int, float, int, str]:
    """The strictest sensitivity stays, then the surest, then the newest."""
    return strictness("sensitivity", fact.sensitivity), fact.confidence or 0.0, fact.recorded_us, fact.id


def _oldest_episodes(live: Iterable[Item]) -> list[Item]:
    """The older half of the episodes of the author who has most, in one scope."""
    by_author: dict[tuple[str, str, bool], list[Item]] = defaultdict(list)
    for item in live:
        if item.kind == "episode" and item.core is None:
            by_author[item.scope, item.agent, item.shared].append(item)
    if not by_author:
        return []
    most = max(sorted(by_author), key=lambda author: len(by_author[author]))
    episodes = sorted(by_author[most], key=lambda item: (item.occurred_us or 0, item.id))
    return episodes[: max(2, len(episodes) // 2)] if len(episodes) > 1 else []
