"""The contract between the ledger and the engines that store it.

An engine keeps opaque bytes: numbered records, versioned rows, blobs and leases. It never looks inside
them. Hashing, folding, deciding, group commit and retry are shared code above this line, written once.

The nouns
    Engine   one place that can hold books: a file, a folder, a server, this process
    Store    one opened book in it; safe to use from any number of threads
    Reads    one consistent snapshot of the store
    Tx       a Reads that may also apply one WriteSet
    Record   one event; Row, one version of one view row; Lease, who holds what until when

What every engine owes its callers
    1.  All or nothing. A WriteSet lands whole or leaves no trace, whatever dies in the middle.
    2.  Durable on return. When `apply` returns, kill -9 and power loss cannot undo it, as far as
        `facts.durable` says; where it cannot promise that, the facts say so and why.
    3.  Positions are commit order. Records arrive numbered head+1, head+2, …; a snapshot that shows
        position n shows every position below n. A reader that follows `wait` never misses one.
    4.  Isolation. A Tx sees the head it will build on. Either nobody else can write until it ends (a lock),
        or `apply` notices that somebody did and raises `WriteConflict` with nothing changed (optimistic).
    5.  Versions. A row is (space, key, position). `get` and `scan` answer, per key, with the last version
        at or below `at`; a version whose value is None means "no such row as of here". Keys order by bytes.
    6.  Erasure. After a WriteSet that erases a position, no read returns its body again.
    7.  Honest failure. Before the commit: `StorageFailed`, `EngineUnavailable` or `Busy`, nothing changed.
        At the commit: `OutcomeUnknown`; the store drops its connection and opens a new one when next used.
        A failed fsync is never retried as if it had succeeded.
    8.  Books do not meet. Nothing of one book can be read, written, waited for or dropped through another,
        whatever their names contain.
    9.  No use across fork. In a child process every call raises `ForkedBook`.
    10. Leases run on the engine's clock, never on the caller's wall clock.

`commonplace.testing` checks all of this for any engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from ..errors import Busy, EngineUnavailable
from .interrupts import run_inside

GENESIS = bytes(32)
"""The hash before the first event."""


TIMEOUT = 30.0
"""How many seconds a call waits for a lock or an answer where nobody says otherwise."""


class WriteConflict(Exception):
    """Somebody else committed since this transaction read its head. Nothing happened: go again."""


class Record(NamedTuple):
    """One event as engines keep it. `body` is salt and payload, or None once erased."""

    position: int
    id: str
    run: str | None
    created_at: int
    header: bytes
    hash: bytes
    body: bytes | None


class Row(NamedTuple):
    """One version of one view row. `value` None: there is no such row as of `position`. At position 0 a row has no
    other version, so one without a value is simply removed."""

    space: str
    key: bytes
    position: int
    value: bytes | None


Place = tuple[str, bytes]
"""Where a row lies: its space and its key."""

Version = tuple[str, bytes, int]
"""One version of a row: its space, its key and its position."""


class Lease(NamedTuple):
    """`holder` has `name` for `seconds` more, by the engine's clock. `fence` tells holders apart."""

    name: str
    holder: str
    fence: int
    seconds: float


def decide_leases(asked: Iterable[Lease], in_force: Mapping[str, Lease]) -> list[Lease]:
    """The rule of every engine: which leases to write, given those in force. One of 0 seconds is to be removed.

    A lease is granted if it is free; it is renewed or released if it has the same holder and fence. Otherwise nothing
    is granted and WriteConflict is raised. Each is decided against what was in force before; of several for one name
    the last is written. It runs out so many seconds after the engine's clock read `in_force`. The Redis engine decides
    on the server: `_LEASES` in redis_lua.py repeats this rule.
    """
    decided: dict[str, Lease] = {}
    for lease in asked:
        held = in_force.get(lease.name, lease)
        if (held.holder, held.fence) != (lease.holder, lease.fence):
            raise WriteConflict
        decided[lease.name] = lease._replace(seconds=max(lease.seconds, 0.0))
    return list(decided.values())


def to_bytes(text: str) -> bytes:
    """How engines that keep bytes store text: as UTF-8, with what Python allows in a string besides."""
    return text.encode("utf-8", "surrogatepass")


def to_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


class Head(NamedTuple):
    """The end of the ledger. `meta` is the book's own small record: layout, fold versions, horizon."""

    position: int = 0
    hash: bytes = GENESIS
    created_at: int = 0
    meta: bytes = b""


@dataclass(slots=True)
class WriteSet:
    """Everything one transaction changes.

    `records` follow the head without a gap. `rows` are new versions, or replace the version with the same
    space, key and position; where one place stands twice, the later entry holds. `drops` remove single
    versions, also ones that `rows` wrote (see `changes`). `erase` lists positions whose bodies go, also ones in
    `records`.
    `leases` are granted as `decide_leases` says. If one cannot be granted, `apply` raises WriteConflict and nothing
    happens. A lease of 0 seconds is released. `meta` None: as it was.
    `folded` is for engines whose rows live in memory: with this write they are complete up to there.
    """

    records: list[Record] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    drops: list[tuple[str, bytes, int]] = field(default_factory=list)
    erase: list[int] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    blob_drops: list[str] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    meta: bytes | None = None
    folded: int = 0

    def changes(self) -> tuple[dict[Version, bytes | None], dict[Version, None]]:
        """The versions of rows to write, and those to remove, none of them twice."""
        rows = {row[:3]: row.value for row in self.rows}
        drops = dict.fromkeys(self.drops)
        drops |= {version: None for version, value in rows.items() if value is None and not version[2]}
        return {version: value for version, value in rows.items() if version not in drops}, drops


@dataclass(frozen=True, slots=True)
class Facts:
    """What an engine can promise, in words that `doctor` repeats."""

    engine: str
    durable: Literal["proven", "configured", "no"]
    durable_why: str
    hosts: Literal["one", "many"]
    optimistic: bool = False
    read_only: bool = False
    """Whether this user may only read the book. Every write raises ReadOnly then."""
    views: Literal["stored", "memory"] = "stored"
    purge: Literal["immediate", "deferred", "operator"] = "immediate"
    purge_why: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilePurged:
    """A file or folder that could hold what was erased, and what became of that. `remains` says why some of it may
    still be there; it is empty when nothing is."""

    path: str
    remains: str = ""

    @property
    def outcome(self) -> Literal["purged", "remains"]:
        return "remains" if self.remains else "purged"


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What `purge` did, and what the store's own files may still hold, and why. A book's report names each `file` of
    the store, of its index and of its markdown, too."""

    done: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    files: tuple[FilePurged, ...] = ()

    @property
    def purged(self) -> bool:
        return not self.remaining and not any(file.remains for file in self.files)


class Reads(ABC):
    """One consistent snapshot: every answer speaks of the same moment, the one `head` names.

    Records and row versions that are added later do not show in it, nor what becomes of rows at position 0, which have
    no other version. What else is erased, replaced or dropped later may: forgetting does not wait for readers.
    """

    head: Head

    @property
    def folded(self) -> int:
        """The position up to which the rows are complete. Below the head only where `facts.views` is
        "memory": there, the caller folds what is missing and applies it as rows before it reads."""
        return self.head.position

    @abstractmethod
    def records(self, after: int, upto: int, limit: int, run: str | None = None) -> list[Record]:
        """Records with after < position ≤ upto in order, at most `limit`, of one run if named."""

    @abstractmethod
    def by_id(self, ids: Collection[str]) -> dict[str, Record]:
        """The records with these ids; an unknown id is left out."""

    @abstractmethod
    def get_all(self, places: Collection[Place], at: int | None = None) -> dict[Place, Row]:
        """The row at each place as of `at` (None: now). Places without a row, or whose row is gone, are left out."""

    def get(self, space: str, keys: Collection[bytes], at: int | None = None) -> dict[bytes, Row]:
        """The same for keys of one space."""
        return {row.key: row for row in self.get_all([(space, key) for key in keys], at).values()}

    @abstractmethod
    def scan(
        self,
        space: str,
        start: bytes = b"",
        end: bytes | None = None,
        at: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        """The rows as of `at` with start ≤ key < end (None: no end) in byte order, or its reverse."""

    @abstractmethod
    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        """Every version, deletions included, with start ≤ key < end, by key and then position."""

    @abstractmethod
    def blob(self, digest: str) -> bytes | None:
        """The content with this sha256 (hex), or None."""

    @abstractmethod
    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        """The leases of these names that are in force; free and expired ones are left out."""


class Tx(Reads):
    """A snapshot that may apply one WriteSet, once. Leaving it without `apply` changes nothing."""

    now: int
    """The engine's wall clock in microseconds since 1970, read when the transaction began."""

    def forget(self) -> None:
        """Drop all rows, to be folded anew: where `facts.views` is "memory"."""
        raise EngineUnavailable(
            "this engine stores its rows; only one that has them in memory folds them anew"
        )

    @abstractmethod
    def apply(self, write: WriteSet) -> None:
        """Make it so, whole and durably. Raises WriteConflict (nothing happened, go again), StorageFailed,
        EngineUnavailable (nothing happened) or OutcomeUnknown (look the ids up)."""


class Store(ABC):
    """One opened book."""

    facts: Facts

    timeout: float = TIMEOUT
    """How many seconds a call waits for a lock, or for a server's answer, unless it says otherwise. No call of a server
    that says nothing takes much longer: it ends with EngineUnavailable or Busy, or with OutcomeUnknown if its commit
    may have landed."""

    def within(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else timeout

    def files(self) -> list[Path]:
        """The files and folders on this host that hold the book's raw bytes, as far as anybody can say."""
        return []

    @abstractmethod
    def read(self, at_least: int = 0, timeout: float | None = None) -> AbstractContextManager[Reads]:
        """A snapshot that shows at least position `at_least`; a lagging replica waits for it up to
        `timeout` seconds (None: the store's own), then raises Busy."""

    @abstractmethod
    def begin(self, timeout: float | None = None) -> AbstractContextManager[Tx]:
        """A transaction. Engines that lock raise Busy when they do not get the lock within `timeout` seconds.

        A transaction may be ended twice: when an interrupt (Ctrl-C) falls into its `__exit__`, the caller calls that
        again, and every lock and connection that the first call did not release is released then."""

    @abstractmethod
    def wait(self, after: int, timeout: float) -> int:
        """Block until the head is beyond `after`, or `timeout` seconds have passed; answer the head's
        position. Wakes when any process commits, without busy polling. `wake` ends it early."""

    def reach(self, at_least: int, timeout: float) -> None:
        """Wait until position `at_least` is there to be read; after `timeout` seconds raise Busy."""
        if at_least > 0 and self.wait(at_least - 1, timeout) < at_least:
            raise Busy(
                f"position {at_least} did not arrive within {timeout:g} s; ask for an earlier one, or wait longer"
            )

    @abstractmethod
    def wake(self) -> None:
        """Let every `wait` of this store return at once: it is about to be closed, and nothing else follows."""

    def lease(self, name: str, holder: str, seconds: float, fence: int = 0) -> Lease:
        """Take, renew (same holder and fence) or release (0 seconds) a lease outside any transaction.
        Answers with the lease in force afterwards: somebody else's if it was not free. A release of a
        free lease answers with 0 seconds."""
        asked = Lease(name, holder, fence, seconds)

        def decide(tx: Tx) -> Lease:
            held = tx.leases((name,))
            try:
                (granted,) = decide_leases([asked], held)
            except WriteConflict:
                return held[name]
            tx.apply(WriteSet(leases=[asked]))
            return granted

        return run_inside(self.begin(), decide)

    @abstractmethod
    def drop_spaces(self, prefix: str) -> None:
        """Remove every row of every space whose name starts with `prefix`. May be done in pieces: nobody
        reads these spaces any more."""

    @abstractmethod
    def trim(self, space: str, horizon: int) -> int:
        """Drop the versions of this space that no read at or above `horizon` can see; say how many."""

    @abstractmethod
    def purge(self) -> PurgeReport:
        """Remove what was erased from the store's own files, as far as this engine can."""

    def backup(self, to: Path) -> Head | None:
        """Write a consistent copy of the whole book to the file `to` by the engine's own means.
        None: this engine has none; the caller copies event by event."""
        return None

    def check(self) -> str | None:
        """What is wrong with the store's own structures (indexes, pages), if the engine can tell and
        something is. Reads by position do not rest on them; reads by id, run or key do."""
        return None

    def acknowledged(self) -> int:
        """The last position that anybody on this host was told is durable, as remembered outside the ledger;
        0 where that is not remembered. If the ledger ends before it, something has been lost."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Release everything. Safe to call twice; later calls of other methods raise BookClosed."""


class Engine(ABC):
    """One place that can hold books."""

    timeout: float = TIMEOUT
    """How many seconds opening, listing or dropping waits for a lock or an answer."""

    beside: Path | None = None
    """The file or folder that a book is, on this host: what is derived from it may lie beside it."""

    @abstractmethod
    def open(self, book: str, create: bool) -> Store:
        """Open a book. A new one has an empty head (position 0, meta b""). Raises BookNotFound when it does
        not exist and `create` is false, NotABook when something else is there."""

    @abstractmethod
    def books(self) -> list[str]:
        """The names of the books here, sorted."""

    @abstractmethod
    def drop(self, book: str) -> None:
        """Remove a book and all it holds. No such book: nothing happens."""

    def close(self) -> None:  # noqa: B027  most engines hold nothing
        """Release what the engine itself holds; its stores are closed by their own close."""
