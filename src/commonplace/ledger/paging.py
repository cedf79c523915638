"""How long lists are read: a page at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

PAGE = 500
"""How many events or rows are read at once."""


def pages(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """The items in lists of this many; the last one may be shorter."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page
