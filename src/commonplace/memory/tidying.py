"""Keeping memory small: what `plan` says is to be done, is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import convert

from . import daily, papers
from .cores import Core
from .reading import VisibleItems, settings_of
from .requests import Forget, MarkItems
from .upkeep import Chore, Holdings, Retell, Shelve, Upkeep, plan, shelved

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader
    from ..session import Session


def tidied(session: Session, moment: int, dry_run: bool) -> Upkeep:
    """Do what memory needs as of a moment, or with `dry_run` only say what that is."""
    with session.snapshot() as now, session.items() as judge:
        settings, holdings = settings_of(now), _holdings(now, judge)
    chores, unclear = plan(holdings, settings, moment)
    if not dry_run:
        for chore in chores:
            _do(session, chore)
        with session.items() as judge:
            items = tuple(judge.items())
    else:
        items = holdings.items
    live = [item for item in items if item.current]
    size = sum(len(item.text) for item in live)
    return Upkeep(tuple(chores), tuple(unclear), len(live), size, not dry_run)


def _do(session: Session, chore: Chore) -> None:
    by = session.actor
    match chore.act:
        case "archive days" | "archive tasks":
            what = "day" if chore.act == "archive days" else "task"
            session.submit("memory.shelve", Shelve(by, what, chore.names, chore.why), "gc")
        case "archive items":
            session.submit("memory.mark", MarkItems(by, chore.names, "archived", chore.why), "gc")
        case "consolidate facts":
            session.submit("memory.forget", Forget(by, chore.names, chore.why, "consolidation"), "gc")
        case "consolidate episodes":
            session.submit("memory.retell", Retell(by, chore.names), "gc")
        case "drop index":
            session.services.index.throw_away()
        case _:
            session.submit("memory.forget", Forget(by, chore.names, chore.why, "budget"), "gc")


def _holdings(views: ViewReader, judge: VisibleItems) -> Holdings:
    tasks: dict[str, tuple[int, str]] = {}
    for path in papers.papers(views, papers.TASKS):
        task = path.split("/")[2]
        if shelved(views, "task", task):
            continue
        lines = papers.lines(views, path)
        written, text = tasks.get(task, (0, ""))
        last = max((one.written_us for one in lines), default=0)
        tasks[task] = max(written, last), "\n".join([text, *(one.text for one in lines)])
    cores = [convert(row, Core) for _, row in views.scan("memory.cores")]
    return Holdings(
        items=tuple(judge.items()),
        days=tuple(day for day in daily.days(views) if not shelved(views, "day", day)),
        tasks=tasks,
        core_days={one.id: one.config.archive_after_days for one in cores if one.config.archive_after_days},
    )
