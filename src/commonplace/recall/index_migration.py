"""Migration is replay: another index is built from the ledger beside the one in use, both are asked what was asked
before, and then all switch at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..access.rights import OWNER, rights_of
from ..errors import NotEnabled
from ..memory.requests import RECEIPT
from .book_index import BESIDE
from .search import visible

if TYPE_CHECKING:
    from ..index import Index
    from ..ledger.ledger import Ledger, Progress
    from .book_index import BookIndex

LATELY = 5_000
"""Among how many of the last events recorded queries are looked for."""
MOST = 50
TOP = 10


class Compared(msgspec.Struct, frozen=True):
    """One query of somebody, and what each index finds first."""

    query: str
    actor: str
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def alike(self) -> float:
        """How much of what was found is still found."""
        return (
            len({*self.before} & {*self.after}) / len(self.before) if self.before else float(not self.after)
        )


class Migrated(msgspec.Struct, frozen=True):
    """The two indexes by their fingerprints, what each found, how alike that is, and whether all have switched."""

    embedder: str
    before: str
    after: str
    compared: tuple[Compared, ...]
    switched: bool = False

    @property
    def alike(self) -> float:
        return sum(one.alike for one in self.compared) / len(self.compared) if self.compared else 1.0


def recorded_queries(ledger: Ledger, head: int) -> list[tuple[str, str]]:
    """Who asked what lately, as receipts tell, the last first."""
    found = ledger.events(max(0, head - LATELY), head, kinds=(RECEIPT,))
    asked = [(one.actor, one.payload["request"]["query"]) for one in found if not one.erased]
    return [one for one in dict.fromkeys(reversed(asked)) if one[1].strip()][:MOST]


def compared(
    ledger: Ledger, old: Index, new: Index, queries: Sequence[tuple[str, str]]
) -> tuple[Compared, ...]:
    return tuple(
        Compared(query, actor, _found(ledger, old, actor, query), _found(ledger, new, actor, query))
        for actor, query in queries
    )


def _found(ledger: Ledger, index: Index, actor: str, query: str) -> tuple[str, ...]:
    with ledger.snapshot() as now:
        rights = rights_of(now, actor)
    found = index.search(query, allowed=visible([rights]), how="hybrid", limit=TOP)
    return tuple(hit.id for hit in found.hits)


def built_beside(indexing: BookIndex, embedder: str, progress: Progress | None) -> BookIndex:
    """An index with another embedder, as far as the ledger is now. Raises NotEnabled if that cannot be had."""
    place = None if indexing.place is None else Path(f"{indexing.place}{BESIDE}")
    beside = indexing.with_embedder(place, embedder)
    beside.throw_away()  # what an earlier try has left
    try:
        beside.catch_up(progress)
        if beside.missing:
            raise NotEnabled(beside.missing)
    except NotEnabled as error:
        beside.throw_away()
        raise NotEnabled(f"the index stays as it is: {error}") from error
    return beside


def given_queries(queries: Sequence[str]) -> list[tuple[str, str]]:
    return [(OWNER, query) for query in queries]
