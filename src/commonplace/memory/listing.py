"""Listing items page by page."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from ..errors import BadInput, shown
from ..ledger.checks import check_whole
from ..ledger.printing import LeftOut, Listing, more_than
from .filters import ItemFilter, check_filter, matching
from .items import Item, remarks, value_text

if TYPE_CHECKING:
    from ..ledger.ledger import At
    from ..session import Session

CURSOR = b"memory.list "
"""What a cursor begins with, before it is encoded."""


class ItemList(Listing[Item], msgspec.Struct, frozen=True, eq=False):
    """Items, the oldest first, and what the list leaves out. Items that have expired are among them: they are recorded,
    and printed with that mark."""

    ENTRIES = "items"

    items: tuple[Item, ...]
    left_out: tuple[LeftOut, ...] = ()
    cursor: str | None = None
    """Where the next page begins: give it as `after`. None: there is none."""
    now_us: int = 0
    """The time that the list speaks of."""

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of the same items."""
        if not isinstance(other, ItemList | list | tuple):
            return NotImplemented
        return list(self) == list(other)

    def __ne__(self, other: object) -> bool:
        """Structs compare by themselves unless this is said, too."""
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def marks(self, item: Item) -> list[str]:
        """What a reader has to know of an item besides what it says, such as that it has expired."""
        return remarks(item, self.now_us)

    def all_marks(self, item: Item) -> list[str]:
        """The same with its status, tags and metadata."""
        status = [] if item.current else [item.status]
        fields = [f"{name}={value_text(value)}" for name, value in item.metadata.items()]
        return [*status, *self.marks(item), *(f"#{tag}" for tag in item.tags), *fields]

    def __str__(self) -> str:
        lines = [f"{item.text}{''.join(f' [{mark}]' for mark in self.marks(item))}" for item in self]
        return (
            "\n".join([*lines, *(f"left out: {part.what} ({part.why})" for part in self.left_out)]) or "none"
        )


def listed(
    session: Session, only: ItemFilter, limit: int | None = None, after: str | None = None, at: At = None
) -> ItemList:
    """The items that match, as this actor may see them, oldest first: so many after a cursor. No more are read than the
    page needs."""
    most = None if limit is None else check_whole("limit", limit)
    start = 0 if after is None else _position(after)
    now_us = session.ledger.moment(at)
    with session.viewer(at) as viewer:
        found = matching(viewer, only, start)
        page = list(islice(found, most))
        more = most is not None and next(found, None) is not None
        left_out = check_filter(viewer, only, not page and not start)
        items = tuple(viewer.shown(item) for _, item in page)
    session.was_shown([item.id for item in items])
    if most is None or not more:
        return ItemList(items, tuple(left_out), None, now_us)
    cursor = _cursor(page[-1][0]) if page else after
    return ItemList(items, (*left_out, more_than(most, "items")), cursor, now_us)


def _cursor(position: int) -> str:
    return urlsafe_b64encode(CURSOR + str(position).encode()).decode().rstrip("=")


def _position(cursor: object) -> int:
    """The position that a cursor stands for. Raises BadInput for what is none."""
    if isinstance(cursor, str):
        try:
            text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except (Error, ValueError):
            text = b""
        position = text.removeprefix(CURSOR)
        if text.startswith(CURSOR) and position.isdigit() and len(position) < 19:
            return int(position)
    raise BadInput(
        f"after {shown(cursor)} is no cursor: give the `cursor` of an earlier answer of memory.list"
    )
