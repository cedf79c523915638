"""Reading views: by name and key, as of one position. Snapshots and transactions read alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

import msgspec

from ..engines.contract import Reads, Row
from ..errors import BadInput, BeforeHorizon
from .encoding import decode
from .keys import Key, below, pack, unpack
from .scopes import NOWHERE, Bound, key_of, readable
from .views import Meta, Registry, checked, damaged, read_row

T = TypeVar("T")

PAGE, FEW = 500, 32
"""How many rows or events a page holds, and the first page of rows."""


def pages(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """The items in lists of this many; the last one may be shorter."""
    rest = iter(items)
    while page := list(islice(rest, size)):
        yield page


class ViewReader(ABC):
    """Views by name and key, as of one position. Snapshots and transactions look alike through it."""

    registry: Registry
    meta: Meta
    position: int
    past = False
    """Whether it shows an earlier position than the last one."""
    bound: Bound | None = None
    """The part of the book that its reader is bound to."""
    scope: str
    """The key of the scope that its reader writes to."""

    @abstractmethod
    def _row(self, space: str, key: bytes) -> Row | None: ...

    @abstractmethod
    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]: ...

    @abstractmethod
    def at(self, position: int) -> ViewReader:
        """The same as of an earlier position. Raises BeforeHorizon."""

    @property
    def readable(self) -> frozenset[str] | None:
        """The keys of the scopes that its reader reads; None: all of them."""
        return readable(self, self.bound)

    def _space(self, name: str) -> str:
        view = self.registry.view(name)
        if self.past and view.present:
            raise BadInput(f"the view {name!r} keeps no past: read it as of now")
        return self.meta.space(view)

    def get(self, view: str, *key: str | int) -> Any:
        """The value of one row, or None."""
        row = self._row(self._space(view), pack(key))
        return None if row is None or row.value is None else self._read_as(decode, row)

    def get_as(self, read: Callable[[bytes], T], view: str, *key: str | int) -> T | None:
        """The value of one row, read from its bytes by a function that may remember them."""
        row = self._row(self._space(view), pack(key))
        return None if row is None or row.value is None else self._read_as(read, row)

    def get_all(self, read: Callable[[bytes], T], view: str, keys: Sequence[Key]) -> list[T | None]:
        """The values of many rows of one view, each read from its bytes, in one trip to the engine."""
        packed = [pack(key) for key in keys]
        rows = self._some(self._space(view), packed)
        return [None if row is None or row.value is None else self._read_as(read, row) for row in rows]

    def _read_as(self, read: Callable[[bytes], T], row: Row) -> T:
        try:
            return read(self._bytes(row))
        except msgspec.MsgspecError as error:
            raise damaged(row) from error

    def _bytes(self, row: Row) -> bytes:
        return checked(row)

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        return [self._row(space, key) for key in keys]

    def scan(
        self, view: str, *prefix: str | int, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[Key, Any]]:
        """The rows whose key begins with these parts, in key order."""
        return self._scanned(view, *below(prefix), limit, reverse)

    def each(self, view: str, *prefix: str | int, reverse: bool = False) -> Iterator[tuple[Key, Any]]:
        """The same rows one by one, read page by page, for a caller that may stop early."""
        return self._paged(view, *below(prefix), reverse)

    def each_between(
        self, view: str, prefix: Key, first: str | int, last: str | int, reverse: bool = False
    ) -> Iterator[tuple[Key, Any]]:
        """The same for rows whose next part lies between two values, both included."""
        return self._paged(view, below((*prefix, first))[0], below((*prefix, last))[1], reverse)

    def _paged(self, view: str, start: bytes, end: bytes | None, reverse: bool) -> Iterator[tuple[Key, Any]]:
        size = FEW
        while True:
            page = self._scanned(view, start, end, size, reverse)
            yield from page
            if len(page) < size:
                return
            last = pack(page[-1][0])
            start, end = (start, last) if reverse else (last + b"\0", end)
            size = min(size * 4, PAGE)

    def between(
        self,
        view: str,
        prefix: Key,
        first: str | int,
        last: str | int,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[Key, Any]]:
        """The rows whose next part lies between two values, both included, all at once or the first few."""
        return self._scanned(view, below((*prefix, first))[0], below((*prefix, last))[1], limit, reverse)

    def _scanned(
        self, view: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[tuple[Key, Any]]:
        rows = self._rows(self._space(view), start, end, limit, reverse)
        values = [read_row(row) for row in rows]  # first: a damaged key could not be unpacked
        return [(unpack(row.key), value) for row, value in zip(rows, values, strict=True)]


class Snapshot(ViewReader):
    """The book as of a position."""

    def __init__(
        self,
        reads: Reads,
        registry: Registry,
        meta: Meta,
        at: int | None = None,
        bound: Bound | None = None,
    ) -> None:
        self.reads = reads
        self.registry = registry
        self.meta = meta
        self.past = at is not None and at < reads.head.position
        self._at = at if self.past else None
        self.position = reads.head.position if at is None else at
        self.bound = bound
        self.scope = "" if bound is None or not bound.scope else key_of(self, bound.scope) or NOWHERE

    @cached_property
    def readable(self) -> frozenset[str] | None:
        return readable(self, self.bound)

    def at(self, position: int) -> Snapshot:
        check_horizon(self.meta, position)
        return Snapshot(self.reads, self.registry, self.meta, min(position, self.position), self.bound)

    def _row(self, space: str, key: bytes) -> Row | None:
        return self.reads.get(space, (key,), self._at).get(key)

    def _some(self, space: str, keys: Sequence[bytes]) -> list[Row | None]:
        rows = self.reads.get(space, keys, self._at)
        return [rows.get(key) for key in keys]

    def _rows(
        self, space: str, start: bytes, end: bytes | None, limit: int | None, reverse: bool
    ) -> list[Row]:
        return self.reads.scan(space, start, end, self._at, limit, reverse)


def check_horizon(meta: Meta, position: int) -> None:
    if position < meta.horizon:
        raise BeforeHorizon(
            f"position {position} lies below the horizon {meta.horizon}: the versions of views before it "
            "are no longer kept. Ask for a later position; the events themselves are all there"
        )
