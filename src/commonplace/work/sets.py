"""Sets of tasks by their numbers: which are ready, held, blocked or in review, in the order of priority and age.

A set is a tree of bit masks, three rows deep: a leaf says which of 256 tasks are in the set, a branch which of 256
leaves are not empty, and the top, one row for the whole set, which branches are not, for each priority. So the first
member is found in three reads however many tasks were in the set before, where a list of rows would have to be read
past all that have left it. To add or remove a task changes its leaf, and the rows above it only when the leaf becomes
empty or ceases to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..commit import Lens
from ..events import Event, decode
from ..keys import Key

WIDTH = 256
MOST = WIDTH**3
"""How many tasks a work can number."""

VIEW = "work.sets"
LEAF, BRANCH, TOP = 0, 1, 2

Node = tuple[str, int, int, int]
"""A row of a set: the set's name, the level, the rank (priority turned around) and the index."""


class Sets:
    """The sets of one work as a lens shows them, and the changes that are being made to them."""

    def __init__(self, lens: Lens, work: str) -> None:
        self._lens, self._work = lens, work
        self._masks: dict[Node, int] = {}
        self._tops: dict[str, dict[int, int]] = {}
        self._changed: dict[Node, None] = {}

    def put(self, name: str, rank: int, number: int) -> None:
        """Add a task to a set."""
        leaf, bit = divmod(number, WIDTH)
        branch, place = divmod(leaf, WIDTH)
        before = self._mask(name, LEAF, rank, leaf)
        self._set((name, LEAF, rank, leaf), before | 1 << bit)
        if not before:
            above = self._mask(name, BRANCH, rank, branch)
            self._set((name, BRANCH, rank, branch), above | 1 << place)
            if not above:
                top = self._top(name)
                top[rank] = top.get(rank, 0) | 1 << branch
                self._changed[name, TOP, 0, 0] = None

    def take(self, name: str, rank: int, number: int) -> None:
        """Remove a task from a set."""
        leaf, bit = divmod(number, WIDTH)
        branch, place = divmod(leaf, WIDTH)
        before = self._mask(name, LEAF, rank, leaf)
        after = before & ~(1 << bit)
        if after == before:
            return
        self._set((name, LEAF, rank, leaf), after)
        if not after:
            above = self._mask(name, BRANCH, rank, branch) & ~(1 << place)
            self._set((name, BRANCH, rank, branch), above)
            if not above:
                top = self._top(name)
                top[rank] &= ~(1 << branch)
                if not top[rank]:
                    del top[rank]
                self._changed[name, TOP, 0, 0] = None

    def walk(self, name: str, start: int = 0) -> Iterator[tuple[int, int]]:
        """The members with their ranks: the highest priority first, then the lowest number, from `start` on."""
        for rank in sorted(self._top(name)):
            for branch in _bits(self._top(name).get(rank, 0), start // WIDTH**2):
                for place in _bits(self._mask(name, BRANCH, rank, branch)):
                    leaf = branch * WIDTH + place
                    if (leaf + 1) * WIDTH > start:
                        for bit in _bits(self._mask(name, LEAF, rank, leaf)):
                            if leaf * WIDTH + bit >= start:
                                yield rank, leaf * WIDTH + bit

    def look_at(self, names: Iterable[str]) -> None:
        """Read the tops of several sets at once."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._tops]
        rows = self._lens.get_all(decode, VIEW, [(self._work, name, TOP, 0, 0) for name in wanted])
        for name, row in zip(wanted, rows, strict=True):
            self._tops[name] = {int(rank): int(mask, 16) for rank, mask in (row or {}).items()}

    def has(self, name: str) -> bool:
        return bool(self._top(name))

    def changes(self) -> list[list[Any]]:
        """The rows that have changed, as an event tells them."""
        return [
            [*node, {str(rank): f"{mask:x}" for rank, mask in sorted(self._top(node[0]).items())}]
            if node[1] == TOP
            else [*node, f"{self._masks[node]:x}"]
            for node in self._changed
        ]

    def _set(self, node: Node, mask: int) -> None:
        self._masks[node] = mask
        self._changed[node] = None

    def _mask(self, name: str, level: int, rank: int, index: int) -> int:
        node = (name, level, rank, index)
        if node not in self._masks:
            self._masks[node] = int(self._lens.get(VIEW, self._work, *node) or "0", 16)
        return self._masks[node]

    def _top(self, name: str) -> dict[int, int]:
        if name not in self._tops:
            self.look_at([name])
        return self._tops[name]


def _bits(mask: int, start: int = 0) -> Iterator[int]:
    """The places of the bits that are set, the lowest first."""
    mask = mask >> start << start
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def keys(event: Event) -> list[Key]:
    work = event.payload["work"]
    return [(work, *node[:4]) for node in event.payload.get("sets", ())]


def fold(key: Key, _before: Any, event: Event) -> Any:
    told = next(node[4] for node in event.payload["sets"] if tuple(node[:4]) == key[1:])
    return None if told in ("0", {}) else told
