"""Migration is replay: another index is built from the ledger beside the one in use, both are asked what was asked
before, and then all switch at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..access.rights import rights_of
from ..errors import NotEnabled
from ..ledger.printing import Listing, Readable
from ..memory.requests import RECEIPT
from .book_index import BESIDE
from .search import visible

if TYPE_CHECKING:
    from ..index import Index
    from ..ledger.ledger import Ledger, Progress
    from .book_index import BookIndex

LAST_EVENTS = 5_000
"""Among how many of the last events recorded queries are looked for."""
MOST_QUERIES = 50
TOP = 10


class ComparedQuery(Readable, msgspec.Struct, frozen=True):
    """One query of an actor, and what each index finds first."""

    query: str
    actor: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def alike(self) -> float:
        """How much of what was found is still found."""
        if not self.before:
            return float(not self.after)
        return len({*self.before} & {*self.after}) / len(self.before)

    def __str__(self) -> str:
        return f"{self.alike:.0%}  {self.actor}: {self.query}"


class Migrated(Listing[ComparedQuery], msgspec.Struct, frozen=True):
    """The two indexes by their fingerprints, what each found, how alike that is, and whether all have switched."""

    ENTRIES = "compared"

    embedder: str
    before: str
    after: str
    compared: tuple[ComparedQuery, ...]
    switched: bool = False

    @property
    def alike(self) -> float:
        if not self.compared:
            return 1.0
        return sum(query.alike for query in self.compared) / len(self.compared)

    def __str__(self) -> str:
        switched = "every process uses it from now on" if self.switched else "nothing was changed"
        summary = f"{self.alike:.0%} of the first {TOP} results are the same, {switched}"
        return "\n".join([*map(str, self.compared), f"{self.embedder}: {summary}"])


def recorded_queries(ledger: Ledger) -> list[tuple[str, str]]:
    """Who asked what lately, as receipts tell, the last first."""
    head = ledger.head
    receipts = ledger.events(max(0, head - LAST_EVENTS), head, kinds=(RECEIPT,))
    asked = [(event.actor, event.payload["request"]["query"]) for event in receipts if not event.erased]
    return [(actor, query) for actor, query in dict.fromkeys(reversed(asked)) if query.strip()][:MOST_QUERIES]


def compared(
    ledger: Ledger, old: Index, new: Index, queries: Sequence[tuple[str, str]]
) -> tuple[ComparedQuery, ...]:
    """What both indexes find for queries of actors, each under the actor's rights."""

    def first(index: Index, actor: str, query: str) -> tuple[str, ...]:
        with ledger.snapshot() as now:
            rights = rights_of(now, actor)
        found = index.search(query, allowed=visible([rights]), scopes=rights.scopes, how="hybrid", limit=TOP)
        return tuple(hit.id for hit in found.hits)

    return tuple(
        ComparedQuery(query, actor, first(old, actor, query), first(new, actor, query))
        for actor, query in queries
    )


def built_beside(index: BookIndex, embedder: str, progress: Progress | None) -> BookIndex:
    """An index with another embedder, as far as the ledger is now. Raises NotEnabled if that cannot be had."""
    place = None if index.place is None else Path(f"{index.place}{BESIDE}")
    beside = index.with_embedder(place, embedder)
    beside.throw_away()  # what an earlier try has left
    try:
        beside.catch_up(progress)
        if beside.missing:
            raise NotEnabled(beside.missing)
    except NotEnabled as error:
        beside.throw_away()
        raise NotEnabled(f"the index stays as it is: {error}") from error
    return beside
