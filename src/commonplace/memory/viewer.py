"""Who reads: an actor with its rights of then and of now."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import convert

from ..access.rights import Rights, may_see_of
from . import daily, papers
from .cores import Core, may_know
from .daily import LogEntry
from .papers import DocumentLine

if TYPE_CHECKING:
    from ..ledger.reader import ViewReader


class Viewer(NamedTuple):
    """An actor that reads the book as of a moment. What it reads must pass its rights and the labels of then and of
    now: the first pair is of then, the last of now."""

    pairs: tuple[tuple[ViewReader, Rights], ...]

    @property
    def views(self) -> ViewReader:
        return self.pairs[0][0]

    @property
    def now(self) -> ViewReader:
        return self.pairs[-1][0]

    def sees_entry(self, entry: LogEntry) -> bool:
        return self._sees(entry.id, entry.agent, daily.LOGGED, entry.sensitivity)

    def sees_line(self, line: DocumentLine) -> bool:
        return self._sees(line.id, line.by, papers.NOTED, line.sensitivity)

    def _sees(self, id: str, author: str, kind: str, sensitivity: str) -> bool:
        labels = {"sensitivity": sensitivity, "audience": "team"}
        return all(
            may_see_of(rights, author, kind, {**labels, **(views.get("labels", id) or {})})
            for views, rights in self.pairs
        )

    def sees_core(self, id: str) -> bool:
        rows = [(views.get("memory.cores", id), rights) for views, rights in self.pairs]
        return all(row is not None and may_know(rights, convert(row, Core)) for row, rights in rows)
