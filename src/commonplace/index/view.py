"""What one reader may see as of one position, and what is counted over it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .score import Floats, Ints, Mask
from .words import names

if TYPE_CHECKING:
    from .columns import Columns


class IndexView:
    """The documents that a reader may see. It is remembered from one search to the next, and never changed."""

    def __init__(self, columns: Columns, visible: Mask) -> None:
        self.columns = columns
        self.visible = visible
        self.documents = int(np.count_nonzero(visible))
        self.length = int(columns.length[visible].sum())
        """Of all of them together."""

    @cached_property
    def talks(self) -> Talks | None:
        """The conversations among them; None where there are none."""
        every = self.columns.conversations()
        order = every[self.visible[every]]
        return _talks(self.columns, order) if len(order) else None

    @property
    def average(self) -> float:
        return self.length / self.documents if self.documents else 0.0

    @cached_property
    def usual(self) -> float:
        """How long a document is on average together with what was said before it."""
        if self.talks is None:
            return self.average
        before = self.talks.before[self.talks.order]
        more = int(self.columns.length[before[before >= 0]].sum())
        return (self.length + more) / self.documents

    @cached_property
    def speakers(self) -> list[str]:
        """Who says something in conversations."""
        if self.talks is None:
            return []
        columns, order = self.columns, self.talks.order
        speakers = {columns.speakers[num] for num in np.unique(columns.speaker[order]).tolist() if num}
        authors = np.unique(columns.kind[order[columns.speaker[order] == 0]]).tolist()
        return sorted((speakers | {columns.classes[kind][0].author for kind in authors}) - {""})

    @cached_property
    def names(self) -> frozenset[str]:
        """The words of their names."""
        return frozenset(name for speaker in self.speakers for name in names(speaker))

    @property
    def memory(self) -> int:
        talks = self.__dict__.get("talks")
        return self.visible.nbytes + (0 if talks is None else sum(part.nbytes for part in talks[:5]))


class Talks(NamedTuple):
    order: Ints
    """The documents, conversation by conversation, each in the order of the ledger."""
    starts: Ints
    """Where in this order each conversation begins, by its number, and at the end where the last one ends."""
    before: NDArray[np.int32]
    """What comes before each document in its conversation; −1: nothing. Below, what comes after."""
    after: NDArray[np.int32]
    lengths: Floats
    """How long each conversation is, by its number."""
    there: int
    """How many there are."""

    @property
    def usual(self) -> float:
        return float(self.lengths.sum()) / self.there

    def members(self, sessions: Ints) -> Ints:
        """The documents of some conversations, one after the other."""
        bounds = zip(self.starts[sessions].tolist(), self.starts[sessions + 1].tolist(), strict=True)
        return np.concatenate([np.zeros(0, np.int64), *(self.order[start:end] for start, end in bounds)])


def _talks(columns: Columns, order: Ints) -> Talks:
    session = columns.session[order]
    before, after = (np.full(columns.size, -1, np.int32) for _ in range(2))
    same = session[1:] == session[:-1]
    before[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    starts = np.searchsorted(session, np.arange(int(session[-1]) + 2))
    lengths = np.bincount(session, columns.length[order]).astype(np.float64)
    return Talks(order, starts, before, after, lengths, int(np.count_nonzero(np.diff(starts))))
