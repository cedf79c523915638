"""Sets of tasks by their numbers: which are ready, held, blocked or in review, in the order of priority and age.

A set is a tree of bit masks, two rows deep. A leaf says of 256 tasks in which sets they are, of all sets at once,
because a task mostly goes from one into another; the top, a row for each set, says for each priority which leaves have
some of it. So the first member is found in two reads however many tasks were in the set before, where a list of rows
would have to be read past all that have left it. To add or remove a task changes its leaf, and the top only when the
leaf has the first of a set or loses the last.

A leaf also says which of its tasks others were made to wait for, so that for most there is no need to look.

The rows say what holds now. What held in the past follows from the tasks as they were then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from typing import Any

from ..events import Event, decode
from ..keys import Key
from ..reader import Lens

WIDTH = 256
MOST = WIDTH**3
"""How many tasks a work can number."""
LAST = 8
"""How many leaves are told to be of use to others; tasks are claimed from few of them at a time."""

VIEW = "work.sets"
TOP, LEAF = 0, 1
"""The two sorts of rows: of a set by its name, of a leaf by its number."""

Slot = str
"""A set and a priority in it: the rank (priority turned around), a colon and the set's name."""


NEEDED: Slot = "needed"
"""In a leaf, the tasks that something depends on, or did."""


def _slot(name: str, rank: int) -> Slot:
    return f"{rank}:{name}"


class Sets:
    """The sets of one work as a lens shows them, and the changes that are being made to them. Without a lens, they hold
    what has been put into them."""

    def __init__(self, lens: Lens | None, work: str) -> None:
        self.lens, self._work = lens, work
        self._leaves: dict[int, dict[Slot, int]] = {}
        self._tops: dict[str, dict[int, int]] = {}
        self._changed: dict[tuple[Slot, int], None] = {}
        self._tops_changed: dict[str, None] = {}

    def put(self, name: str, rank: int, number: int) -> None:
        """Add a task to a set."""
        index, bit = divmod(number, WIDTH)
        leaf, slot = self._leaf(index), _slot(name, rank)
        before = leaf.get(slot, 0)
        leaf[slot] = before | 1 << bit
        self._changed[slot, index] = None
        if not before:
            top = self._top(name)
            top[rank] = top.get(rank, 0) | 1 << index
            self._tops_changed[name] = None

    def take(self, name: str, rank: int, number: int) -> None:
        """Remove a task from a set."""
        index, bit = divmod(number, WIDTH)
        leaf, slot = self._leaf(index), _slot(name, rank)
        before = leaf.get(slot, 0)
        after = before & ~(1 << bit)
        if after == before:
            return
        leaf[slot] = after
        self._changed[slot, index] = None
        if not after:
            top = self._top(name)
            top[rank] &= ~(1 << index)
            if not top[rank]:
                del top[rank]
            self._tops_changed[name] = None

    def walk(self, name: str, start: int = 0) -> Iterator[tuple[int, int]]:
        """The members with their ranks: the highest priority first, then the lowest number, from `start` on."""
        for rank in sorted(self._top(name)):
            slot = _slot(name, rank)
            for index in _bits(self._top(name).get(rank, 0), start // WIDTH):
                first = index * WIDTH
                for bit in _bits(self._leaf(index).get(slot, 0), max(0, start - first)):
                    yield rank, first + bit

    def together(self, names: Sequence[str]) -> Iterator[int]:
        """The members of several sets in the same order, each once."""
        self.look_at(names)
        walks, last = [self.walk(name) for name in names if self.has(name)], -1
        for _, number in walks[0] if len(walks) == 1 else merge(*walks):
            if number != last:  # what is in two sets comes twice, one after the other
                yield number
            last = number

    def first(self, names: Sequence[str]) -> int | None:
        """The first of them, if there is one: the most that is asked of sets, so there is a short way to it."""
        self.look_at(names)
        best: tuple[int, int] | None = None
        for name in names:
            if top := self._tops[name]:
                rank = min(top)
                index = _lowest(top[rank])
                found = rank, index * WIDTH + _lowest(self._leaf(index)[_slot(name, rank)])
                best = found if best is None or found < best else best
        return None if best is None else best[1]

    def look_at(self, names: Iterable[str]) -> None:
        """Read the tops of several sets at once."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._tops]
        rows: list[Any] = [None] * len(wanted)
        if self.lens is not None and wanted:
            rows = self.lens.get_all(decode, VIEW, [(self._work, TOP, name) for name in wanted])
        for name, row in zip(wanted, rows, strict=True):
            self._tops[name] = {int(rank): int(mask, 16) for rank, mask in (row or {}).items()}

    def has(self, name: str) -> bool:
        return bool(self._top(name))

    def needed(self, number: int) -> bool:
        """Whether anything may depend on a task."""
        index, bit = divmod(number, WIDTH)
        return bool(self._leaf(index).get(NEEDED, 0) >> bit & 1)

    def changes(self) -> dict[str, Any]:
        """What has changed since this was last asked, as an event tells it: the new masks, and the sets whose tops are
        others."""
        masks = [[slot, index, f"{self._leaves[index][slot]:x}"] for slot, index in self._changed]
        tops = list(self._tops_changed)
        self._changed.clear()
        self._tops_changed.clear()
        return {"sets": masks, **({"tops": tops} if tops else {})}

    def _leaf(self, index: int) -> dict[Slot, int]:
        leaf = self._leaves.get(index)
        if leaf is None:
            row = None if self.lens is None else self.lens.get(VIEW, self._work, LEAF, index)
            leaf = self._leaves[index] = {slot: int(mask, 16) for slot, mask in (row or {}).items()}
        return leaf

    def _top(self, name: str) -> dict[int, int]:
        if name not in self._tops:
            self.look_at([name])
        return self._tops[name]


def _bits(mask: int, start: int = 0) -> Iterator[int]:
    """The places of the bits that are set, the lowest first."""
    mask = mask >> start << start
    while mask:
        yield _lowest(mask)
        mask &= mask - 1


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


# the rows


def _told(event: Event) -> tuple[list[Any], list[str]]:
    """The masks that an event tells, and the sets whose tops change by it. The first works told whole rows, of leaves
    and of what stood above them."""
    masks, tops = event.payload.get("sets", []), event.payload.get("tops", [])
    if masks and len(masks[0]) == 5:
        tops = list(dict.fromkeys(name for name, level, *_ in masks if level))
        masks = [[_slot(name, rank), index, mask] for name, level, rank, index, mask in masks if not level]
    return masks, tops


def keys(event: Event) -> list[Key]:
    work, (masks, tops) = event.payload["work"], _told(event)
    leaves = {index: None for _, index, _ in masks}
    if edges := event.payload.get("edges"):
        leaves |= {needed // WIDTH: None for needed, _ in edges}
    return [*[(work, LEAF, index) for index in leaves], *[(work, TOP, name) for name in tops]]


def fold(key: Key, before: Any, event: Event) -> Any:
    """A leaf's masks by slot, or a top's masks of leaves by rank."""
    masks, row = _told(event)[0], dict(before or {})
    for needed, _ in event.payload.get("edges", ()) if key[1] == LEAF else ():
        if needed // WIDTH == key[2]:
            row[NEEDED] = f"{int(row.get(NEEDED, '0'), 16) | 1 << needed % WIDTH:x}"
    for slot, index, mask in masks:
        rank, _, name = slot.partition(":")
        if key[1] == LEAF and index == key[2]:
            row[slot] = mask
        elif key[1] == TOP and name == key[2]:
            others = int(row.get(rank, "0"), 16) & ~(1 << index)
            row[rank] = f"{others | (mask != '0') << index:x}"
    return {name: mask for name, mask in row.items() if mask != "0"} or None
