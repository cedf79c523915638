"""How answers print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Generic, TypeVar, overload

import msgspec

Entry = TypeVar("Entry")

LONGEST = 120
"""How many characters of an answer's first line stand in its `repr`."""


class LeftOut(msgspec.Struct, frozen=True):
    """Something that an answer does not show, and why."""

    what: str
    why: str


def more_than(limit: int, what: str) -> LeftOut:
    """What a page leaves out if more follow."""
    return LeftOut(f"more {what}", f"only {limit} were asked for: after=cursor gives the next")


PLURALS = {
    "branch": "branches",
    "change of labels": "changes of labels",
    "check of an item": "checks of items",
    "discovery": "discoveries",
    "record of a look": "records of looks",
    "record of learning": "records of learning",
    "record of logging": "records of logging",
    "record of what was shown": "records of what was shown",
    "state": "changes of state",
    "summary": "summaries",
    "work": "events of works",
}
"""Those of things that do not end in s."""


def number(count: int, thing: str) -> str:
    """So many things, as people say it: "14 items"."""
    return f"{count:,} {thing if count == 1 else PLURALS.get(thing, f'{thing}s')}"


def told(counts: Mapping[str, int]) -> str:
    """Counts by kind of thing as people say them: "14 items, 1 task"."""
    return ", ".join(number(count, thing) for thing, count in counts.items())


class Readable:
    """An answer that prints as a person would read it, also in a list: `<Task Write the labels (pending)>`."""

    __slots__ = ()

    def __repr__(self) -> str:
        first, _, rest = str(self).partition("\n")
        cut = rest or len(first) > LONGEST
        return f"<{type(self).__name__} {first[:LONGEST]}{' …' if cut else ''}>"


class Listing(Readable, Generic[Entry]):
    """An answer that is read as the list of its entries: iterable, with a length and places."""

    __slots__ = ()

    ENTRIES: ClassVar[str]
    """The field that holds the entries."""

    def _entries(self) -> Sequence[Entry]:
        entries: Sequence[Entry] = getattr(self, self.ENTRIES)
        return entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    @overload
    def __getitem__(self, place: int) -> Entry: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Entry]: ...
    def __getitem__(self, place: int | slice) -> Entry | Sequence[Entry]:
        return self._entries()[place]
