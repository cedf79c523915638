"""The reference engine: plain Python in this process, nothing kept after close.

It is the shortest statement of the contract, and every other engine is tested against it. One lock is held
for the life of a transaction, and for each single read. A snapshot remembers how far things went when it was
taken and leaves out what lies beyond.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

from ..errors import BookNotFound, Busy
from .contract import (
    Engine,
    Facts,
    Head,
    Lease,
    Place,
    PurgeReport,
    Reads,
    Record,
    Row,
    Store,
    Tx,
    WriteSet,
    decide_leases,
)
from .forks import Lifetime
from .interrupts import run_inside

FACTS = Facts(
    engine="memory",
    durable="no",
    durable_why="the book lives in this process and ends with it",
    hosts="one",
    purge_why="memory is released when the book closes",
)


class VersionedRows:
    """Versioned rows in memory: per space, the keys in order and each key's versions by position.

    A row at position 0 has no other version. Snapshots that were taken before it is written again or removed still
    show what it was: while some are open, the old value is kept with the number of the change that replaced it, and the
    key of a removed row stays.
    """

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[list[bytes], dict[bytes, list[tuple[int, bytes | None]]]]] = {}
        self.changes = 0
        self._open = 0
        self._before: dict[tuple[str, bytes], list[tuple[int, bytes | None]]] = {}

    def hold(self) -> None:
        """From now on, keep what is to be seen now."""
        self._open += 1

    def let_go(self) -> None:
        self._open -= 1
        if not self._open:
            replaced, self._before = self._before, {}
            for space, key in replaced:
                if self._spaces.get(space, ([], {}))[1].get(key) == [(0, None)]:
                    self.drop(space, key, 0)

    def put(self, row: Row) -> None:
        keys, versions = self._spaces.setdefault(row.space, ([], {}))
        history = versions.setdefault(row.key, [])
        if not history:
            place = bisect_left(keys, row.key)
            if keys[place : place + 1] != [row.key]:
                keys.insert(place, row.key)
        last = not history or history[-1][0] < row.position
        i = len(history) if last else bisect_left(history, row.position, key=lambda v: v[0])
        there = i < len(history) and history[i][0] == row.position
        if self._open and not row.position:
            kept = self._before.setdefault((row.space, row.key), [])
            kept.append((self.changes, history[i][1] if there else None))
        history[i : i + there] = [(row.position, row.value)]

    def drop(self, space: str, key: bytes, position: int) -> None:
        keys, versions = self._spaces.get(space, ([], {}))
        history = versions.get(key, [])
        if self._open and history and history[0][0] == position == 0:
            self.put(Row(space, key, 0, None))
            return
        history[:] = [version for version in history if version[0] != position]
        if not history:
            place = bisect_left(keys, key)
            if keys[place : place + 1] == [key]:
                del keys[place]
            versions.pop(key, None)

    def get(self, space: str, key: bytes, at: int, since: int) -> Row | None:
        """The last version at or below a position; if it is at 0, as it was after so many changes."""
        history = self._spaces.get(space, ([], {}))[1].get(key, [])
        i = bisect_right(history, at, key=lambda v: v[0])
        if not i:
            return None
        position, value = history[i - 1]
        visible = value if position else self._seen(space, key, value, since)
        return None if visible is None else Row(space, key, position, visible)

    def _seen(self, space: str, key: bytes, value: bytes | None, since: int) -> bytes | None:
        replaced = self._before.get((space, key), ())
        return next((before for change, before in replaced if change > since), value)

    def keys(self, space: str, start: bytes, end: bytes | None) -> list[bytes]:
        keys = self._spaces.get(space, ([], {}))[0]
        return keys[bisect_left(keys, start) : len(keys) if end is None else bisect_left(keys, end)]

    def versions(self, space: str, start: bytes, end: bytes | None, since: int) -> Iterator[Row]:
        for key in self.keys(space, start, end):
            for position, value in list(self._spaces[space][1][key]):
                visible = value if position else self._seen(space, key, value, since)
                if position or visible is not None:
                    yield Row(space, key, position, visible)

    def drop_spaces(self, prefix: str) -> None:
        for space in [space for space in self._spaces if space.startswith(prefix)]:
            del self._spaces[space]

    def trim(self, space: str, horizon: int) -> int:
        dropped = 0
        for key in self.keys(space, b"", None):
            history = self._spaces[space][1][key]
            visible = bisect_right(history, horizon, key=lambda v: v[0]) - 1
            for i, (position, value) in enumerate(list(history)):
                if i < visible or (i == visible and value is None):
                    self.drop(space, key, position)
                    dropped += 1
        return dropped


class LeaseBook:
    """Leases on a clock that only runs forward."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, int, float]] = {}

    def in_force(self, name: str, now: float) -> Lease | None:
        holder, fence, until = self.held.get(name, ("", 0, now))
        return Lease(name, holder, fence, until - now) if until > now else None

    def all_in_force(self, names: Iterable[str], now: float) -> dict[str, Lease]:
        leases = (self.in_force(name, now) for name in names)
        return {lease.name: lease for lease in leases if lease is not None}

    def decide(self, asked: Iterable[Lease], now: float) -> list[Lease]:
        """What `decide_leases` grants now; raises WriteConflict."""
        asked = list(asked)
        return decide_leases(asked, self.all_in_force((lease.name for lease in asked), now))

    def write(self, decided: Iterable[Lease], now: float) -> None:
        for lease in decided:
            if lease.seconds:
                self.held[lease.name] = (lease.holder, lease.fence, now + lease.seconds)
            else:
                self.held.pop(lease.name, None)


class _Data:
    """All that one book holds."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.telling = threading.Lock()
        """The lock of `news`, taken by itself: an interrupt can split what a condition does to take it."""
        self.news = threading.Condition(self.telling)
        self.meta = b""
        self.records: list[Record] = []
        self.by_id: dict[str, int] = {}
        self.by_run: defaultdict[str, list[int]] = defaultdict(list)
        self.rows = VersionedRows()
        self.blobs: dict[str, bytes] = {}
        self.leases = LeaseBook()
        self.top = 0
        """The highest position of any record or row."""

    def add(self, records: list[Record]) -> None:
        for record in records:
            if record.position > len(self.records):
                self.records.append(record)
            self.by_id[record.id] = self.top = record.position
            if record.run is not None and self.by_run[record.run][-1:] != [record.position]:
                self.by_run[record.run].append(record.position)

    def change_rows(self, write: WriteSet) -> None:
        self.rows.changes += 1
        rows, drops = write.changes()
        for version, value in rows.items():
            self.rows.put(Row(*version, value))
            self.top = max(self.top, version[2])
        for version in drops:
            self.rows.drop(*version)

    def blank(self, positions: list[int]) -> None:
        for position in positions:
            self.records[position - 1] = self.records[position - 1]._replace(body=None)

    def head(self) -> Head:
        if not self.records:
            return Head(meta=self.meta)
        last = self.records[-1]
        return Head(last.position, last.hash, last.created_at, self.meta)


class MemoryReads(Reads):
    def __init__(self, data: _Data) -> None:
        self._data = data
        self.head = data.head()
        self._top, self._since = data.top, data.rows.changes

    def hold(self) -> None:
        """Go on showing what it shows now, whatever is written, until `let_go`."""
        with self._data.lock:
            self._data.rows.hold()

    def let_go(self) -> None:
        with self._data.lock:
            self._data.rows.let_go()

    def _upto(self, at: int | None) -> int:
        return self._top if at is None else min(at, self._top)

    def records(self, after: int, upto: int, limit: int, run: str | None = None) -> list[Record]:
        after, upto = max(after, 0), min(upto, self.head.position)
        with self._data.lock:
            if run is None:
                return self._data.records[after : max(after, min(upto, after + limit))]
            positions = self._data.by_run.get(run, [])
            chosen = positions[bisect_right(positions, after) : bisect_right(positions, upto)][:limit]
            return [self._data.records[position - 1] for position in chosen]

    def by_id(self, ids: Collection[str]) -> dict[str, Record]:
        with self._data.lock:
            positions = {id: self._data.by_id.get(id, self.head.position + 1) for id in ids}
            return {
                id: self._data.records[position - 1]
                for id, position in positions.items()
                if position <= self.head.position
            }

    def get_all(self, places: Collection[Place], at: int | None = None) -> dict[Place, Row]:
        upto = self._upto(at)
        with self._data.lock:
            rows = ((place, self._data.rows.get(*place, upto, self._since)) for place in places)
            return {place: row for place, row in rows if row is not None}

    def scan(
        self,
        space: str,
        start: bytes = b"",
        end: bytes | None = None,
        at: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        rows: list[Row] = []
        upto = self._upto(at)
        with self._data.lock:
            keys = self._data.rows.keys(space, start, end)
            for key in reversed(keys) if reverse else keys:
                if limit is not None and len(rows) >= limit:
                    break
                row = self._data.rows.get(space, key, upto, self._since)
                if row is not None:
                    rows.append(row)
        return rows

    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        with self._data.lock:
            rows = list(self._data.rows.versions(space, start, end, self._since))
        return (row for row in rows if row.position <= self._top)

    def blob(self, digest: str) -> bytes | None:
        return self._data.blobs.get(digest)

    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        return self._data.leases.all_in_force(names, time.monotonic())


class MemoryTx(MemoryReads, Tx):
    """Holds the book's lock from `with` to its end."""

    def __init__(self, store: MemoryStore, timeout: float) -> None:
        self._store, self._timeout = store, timeout

    def __enter__(self) -> MemoryTx:
        self._store._lifetime.check()
        try:
            self._store.lock(self._timeout)
            super().__init__(self._store.data)
        except BaseException:
            self.__exit__()
            raise
        self.now = time.time_ns() // 1000
        return self

    def __exit__(self, *_: object) -> None:
        self._store.unlock()

    def apply(self, write: WriteSet) -> None:
        now = time.monotonic()
        leases = self._data.leases.decide(write.leases, now)
        try:
            self._change(write, leases, now)
        except BaseException:  # an interrupt must not leave a part of it, and each step may be done twice
            self._change(write, leases, now)
            raise

    def _change(self, write: WriteSet, leases: list[Lease], now: float) -> None:
        data = self._data
        data.add(write.records)
        data.change_rows(write)
        data.blank(write.erase)
        data.blobs.update(write.blobs)
        for digest in write.blob_drops:
            data.blobs.pop(digest, None)
        data.leases.write(leases, now)
        if write.meta is not None:
            data.meta = write.meta
        if write.records:
            with data.telling:
                data.news.notify_all()


class MemoryStore(Store):
    facts = FACTS

    def __init__(self, data: _Data) -> None:
        self.data = data
        self._lifetime = Lifetime()

    def lock(self, timeout: float) -> None:
        if not self.data.lock.acquire(timeout=timeout):
            raise Busy(f"the book's lock was not free within {timeout:g} s; try again, or raise the timeout")

    def unlock(self) -> None:
        """Release the lock, if this thread has it."""
        try:
            self.data.lock.release()
        except RuntimeError:
            pass

    @contextmanager
    def read(self, at_least: int = 0, timeout: float | None = None) -> Iterator[Reads]:
        self._lifetime.check()
        self.reach(at_least, self.within(timeout))
        try:
            self.lock(self.within(timeout))
            reads = MemoryReads(self.data)
            reads.hold()
        finally:
            self.unlock()
        try:
            yield reads
        finally:
            reads.let_go()

    def begin(self, timeout: float | None = None) -> MemoryTx:
        return MemoryTx(self, self.within(timeout))

    def wait(self, after: int, timeout: float) -> int:
        self._lifetime.check()
        with self.data.telling:
            self.data.news.wait_for(lambda: len(self.data.records) > after or self._lifetime.ended, timeout)
        return len(self.data.records)

    def wake(self) -> None:
        self._lifetime.ended = True
        with self.data.telling:
            self.data.news.notify_all()

    def drop_spaces(self, prefix: str) -> None:
        run_inside(self.begin(), lambda _: self.data.rows.drop_spaces(prefix))

    def trim(self, space: str, horizon: int) -> int:
        return run_inside(self.begin(), lambda _: self.data.rows.trim(space, horizon))

    def purge(self) -> PurgeReport:
        self._lifetime.check()
        return PurgeReport(done=("nothing to do: erased content leaves memory at once",))

    def close(self) -> None:
        self.wake()


class MemoryEngine(Engine):
    """Books in this process. Opening the same name twice on one engine gives the same book."""

    def __init__(self) -> None:
        self._books: dict[str, _Data] = {}

    def open(self, book: str, create: bool) -> Store:
        if book not in self._books:
            if not create:
                raise BookNotFound(f"there is no book named {book!r} in memory; open it with create=True")
            self._books[book] = _Data()
        return MemoryStore(self._books[book])

    def books(self) -> list[str]:
        return sorted(self._books)

    def drop(self, book: str) -> None:
        self._books.pop(book, None)
