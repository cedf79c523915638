"""Verified items of a task: what was checked and held, and whether it still does.

Each report is an entry of the task's `verified_items.md`, an event of its own. How an item stands follows from its
reports in their order: it is VERIFIED from the first report that it holds, REGRESSED from a report that it does not
hold any more, and VERIFIED again from the next one that it does. What happened before stays in its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import takewhile
from typing import Literal

import msgspec

from ..ledger.checks import from_us
from ..ledger.printing import Listing, Readable

VERIFIED_ITEMS = "verified_items.md"


class ItemReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What somebody found when they checked an item of a task."""

    item: str
    holds: bool
    description: str = ""
    evidence: str = ""
    iteration: int | None = None

    @property
    def text(self) -> str:
        """The report on one line."""
        parts = [f"{'holds' if self.holds else 'does not hold'}: {self.item}"]
        parts += [f"({self.description})"] if self.description else []
        return " ".join([*parts, *([f"- {self.evidence}"] if self.evidence else [])])


class RecordedReport(Readable, msgspec.Struct, frozen=True):
    """A report on an item, with the event that holds it."""

    id: str
    by: str
    at_us: int
    holds: bool
    evidence: str = ""
    iteration: int | None = None

    @property
    def at(self) -> datetime:
        return from_us(self.at_us)

    @property
    def when(self) -> str:
        """When it was made, as people read it."""
        number = "" if self.iteration is None else f" (iteration {self.iteration})"
        return f"{self.at:%Y-%m-%d %H:%M}{number}"

    def __str__(self) -> str:
        what = "verified" if self.holds else "regressed"
        return f"{what} {self.when} by {self.by}" + (f": {self.evidence}" if self.evidence else "")


class VerifiedItem(Readable, msgspec.Struct, frozen=True):
    """Something about a task that was verified, and how it stands."""

    id: str
    description: str
    status: Literal["VERIFIED", "REGRESSED"]
    first_verified_us: int
    last_verified_us: int
    regressed_us: int | None
    """Since when it does not hold; None if it does."""
    history: tuple[RecordedReport, ...]
    """Every report on it, oldest first."""

    @property
    def first_verified(self) -> datetime:
        return from_us(self.first_verified_us)

    @property
    def last_verified(self) -> datetime:
        return from_us(self.last_verified_us)

    @property
    def regressed_since(self) -> datetime | None:
        return None if self.regressed_us is None else from_us(self.regressed_us)

    @property
    def first(self) -> RecordedReport:
        """The report that verified it first."""
        return next(report for report in self.history if report.holds)

    @property
    def last(self) -> RecordedReport:
        """The last report that verified it."""
        return next(report for report in reversed(self.history) if report.holds)

    @property
    def broke(self) -> RecordedReport | None:
        """The report since which it does not hold; None if it does."""
        return _first_of_last_failures(self.history)

    @property
    def regressions(self) -> tuple[RecordedReport, ...]:
        """The reports that it did not hold, those included after which it was verified again."""
        return tuple(report for report in self.history if not report.holds)

    def __str__(self) -> str:
        about = f": {self.description}" if self.description else ""
        if self.broke is None:
            found = f": {self.last.evidence}" if self.last.evidence else ""
            since = f"first verified {self.first.when}, last {self.last.when}{found}"
            if self.regressions:
                broke = self.regressions[-1]
                since += f"; had regressed {broke.when}" + (f": {broke.evidence}" if broke.evidence else "")
        else:
            why = f": {self.broke.evidence}" if self.broke.evidence else ""
            since = f"since {self.broke.when}{why}; last verified {self.last.when}"
        return f"{self.id} {self.status}{about} ({since})"


class VerifiedItems(Listing[VerifiedItem], msgspec.Struct, frozen=True):
    """The verified items of a task, in the order in which they were first verified."""

    ENTRIES = "items"

    task: str
    items: tuple[VerifiedItem, ...]
    as_of: int

    @property
    def regressed(self) -> tuple[VerifiedItem, ...]:
        """Those that do not hold any more: they block the task."""
        return regressed(self.items)

    def __str__(self) -> str:
        return "\n".join(map(str, self.items)) or f"nothing was verified yet in the task {self.task}"


def regressed(items: Iterable[VerifiedItem]) -> tuple[VerifiedItem, ...]:
    return tuple(item for item in items if item.status == "REGRESSED")


def standing(reports: Iterable[tuple[ItemReport, RecordedReport]]) -> tuple[VerifiedItem, ...]:
    """How items stand after these reports, in their order. A report that an item does not hold which was never
    verified says nothing of it."""
    by_item: dict[str, list[tuple[ItemReport, RecordedReport]]] = {}
    for report, recorded in reports:
        if report.holds or report.item in by_item:
            by_item.setdefault(report.item, []).append((report, recorded))
    return tuple(_standing(id, of_item) for id, of_item in by_item.items())


def _standing(id: str, reports: Sequence[tuple[ItemReport, RecordedReport]]) -> VerifiedItem:
    history = tuple(recorded for _, recorded in reports)
    broke = _first_of_last_failures(history)
    verified = [recorded.at_us for recorded in history if recorded.holds]
    described = [report.description for report, _ in reports if report.description]
    return VerifiedItem(
        id,
        described[-1] if described else "",
        "VERIFIED" if broke is None else "REGRESSED",
        verified[0],
        verified[-1],
        None if broke is None else broke.at_us,
        history,
    )


def _first_of_last_failures(history: Sequence[RecordedReport]) -> RecordedReport | None:
    """Of the reports at the end that an item does not hold, the first."""
    failures = list(takewhile(lambda report: not report.holds, reversed(history)))
    return failures[-1] if failures else None


def as_markdown(items: Sequence[VerifiedItem]) -> list[str]:
    """The items as blocks of markdown: a table, and below it what has ever regressed."""
    if not items:
        return []
    rows = ["| id | description | first verified | last verified | status |", "|---|---|---|---|---|"]
    for item in items:
        cells = (item.id, item.description, item.first.when, item.last.when, item.status)
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    broken = [item for item in items if item.regressions]
    if not broken:
        return ["\n".join(rows)]
    lines = [f"- {item.id}: {'; '.join(map(str, item.history))}" for item in broken]
    return ["\n".join(rows), "## Regressions", "\n".join(lines)]


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")
