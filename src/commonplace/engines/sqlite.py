"""SQLite, the default engine: one file, any number of processes on one host.

It is driven through apsw, which carries its own current SQLite. Write-ahead log, synchronous=FULL: one fsync
a commit. Writers of all processes take the lock file before BEGIN, because SQLite's own busy handler lets some
of them starve. After COMMIT the position is published there, which wakes those who wait for it.

Every page carries a checksum (SQLite's own cksumvfs extension, which apsw's wheel brings): a flipped bit can make a
row unfindable as well as unreadable, and a row that is not found would count as "nothing was ever said about it". A
page that fails its checksum is Corrupt, whatever it holds.

Nothing in this process opens the database files by any other means than SQLite itself: closing such a
descriptor would silently drop SQLite's locks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from ..errors import (
    BadInput,
    BookNotFound,
    BookTooNew,
    Busy,
    CommonplaceError,
    Corrupt,
    EngineUnavailable,
    NotABook,
    OutcomeUnknown,
    StorageFailed,
)
from ..files.checksums import CHECKSUM_BYTES, page_checksums
from ..files.safe import (
    FileAccess,
    access_of,
    check_private,
    create_logs,
    create_private,
    make_folder,
    may_write,
)
from .clock import boot_clock
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
    WriteSet,
    decide_leases,
)
from .interrupts import run_inside
from .local import LocalStore, LockedTx, disk_notes, file_identity, remove_beside

APPLICATION_ID = 0x636F6D70  # "comp"
LAYOUT = 2
"""2: pages carry checksums, which a library that knows 1 would not write."""

SCHEMA = """
CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), value BLOB NOT NULL) STRICT;
INSERT INTO meta VALUES (1, x'');
CREATE TABLE events (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, run TEXT, created_at INTEGER NOT NULL,
    header BLOB NOT NULL, hash BLOB NOT NULL, body BLOB
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (id);
CREATE INDEX events_by_run ON events (run) WHERE run IS NOT NULL;
CREATE TABLE rows (
    space TEXT NOT NULL, key BLOB NOT NULL, position INTEGER NOT NULL, value BLOB,
    PRIMARY KEY (space, key, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT;
CREATE TABLE leases (
    name TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL, boot TEXT NOT NULL, until REAL NOT NULL
) STRICT, WITHOUT ROWID;
"""

# The end of the ledger: its last event, and the book's own record.
HEAD = """
SELECT position, hash, created_at, (SELECT value FROM meta) FROM events ORDER BY position DESC LIMIT 1
"""
META = "SELECT value FROM meta"
SET_META = "UPDATE meta SET value = ?"
# Events in order.
EVENTS = """
SELECT position, id, run, created_at, header, hash, body FROM events
WHERE position > ? AND position <= ? ORDER BY position LIMIT ?
"""
# Events of one run in order; the index on run holds the position too.
EVENTS_OF_RUN = """
SELECT position, id, run, created_at, header, hash, body FROM events
WHERE run = ? AND position > ? AND position <= ? ORDER BY position LIMIT ?
"""
EVENT_BY_ID = "SELECT position, id, run, created_at, header, hash, body FROM events WHERE id = ?"
ADD_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
ERASE_EVENT = "UPDATE events SET body = NULL WHERE position = ?"
# A row as of a position: its last version at or below it.
ROW = """
SELECT position, value FROM rows
WHERE space = ? AND key = ? AND position <= ? ORDER BY position DESC LIMIT 1
"""
PUT_ROW = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?)"
DROP_ROW = "DELETE FROM rows WHERE space = ? AND key = ? AND position = ?"
# Rows as of a position in key order. The keys are found one by one with a seek each, so that a key with very
# many versions costs no more than any other. CROSS JOIN keeps SQLite from turning the two around.
SCAN = """
WITH RECURSIVE keys (key) AS (
    SELECT min(key) FROM rows WHERE space = :space AND key >= :start AND key < :end
    UNION ALL
    SELECT (SELECT min(r.key) FROM rows r WHERE r.space = :space AND r.key > keys.key
            AND r.key < :end)
    FROM keys WHERE keys.key IS NOT NULL
)
SELECT r.key, r.position, r.value FROM keys CROSS JOIN rows r ON r.space = :space AND r.key = keys.key
AND r.position = (SELECT max(position) FROM rows WHERE space = :space AND key = keys.key AND position <= :at)
WHERE keys.key IS NOT NULL AND r.value IS NOT NULL LIMIT :limit
"""
# The same from the end.
SCAN_BACK = """
WITH RECURSIVE keys (key) AS (
    SELECT max(key) FROM rows WHERE space = :space AND key >= :start AND key < :end
    UNION ALL
    SELECT (SELECT max(r.key) FROM rows r WHERE r.space = :space AND r.key < keys.key AND r.key >= :start)
    FROM keys WHERE keys.key IS NOT NULL
)
SELECT r.key, r.position, r.value FROM keys CROSS JOIN rows r ON r.space = :space AND r.key = keys.key
AND r.position = (SELECT max(position) FROM rows WHERE space = :space AND key = keys.key AND position <= :at)
WHERE keys.key IS NOT NULL AND r.value IS NOT NULL LIMIT :limit
"""
# Every version in a range of keys.
VERSIONS = """
SELECT space, key, position, value FROM rows
WHERE space = ?1 AND key >= ?2 AND key < ?3 ORDER BY key, position
"""
# Spaces whose name starts with a prefix, compared letter by letter.
SPACES = "SELECT DISTINCT space FROM rows WHERE substr(space, 1, length(?1)) = ?1"
# Some rows of a space, so that nobody waits long for the lock.
DROP_SOME_ROWS = """
DELETE FROM rows WHERE (space, key, position) IN (SELECT space, key, position FROM rows WHERE space = ? LIMIT ?)
"""
# Versions that no read at or above the horizon can see.
TRIM = """
DELETE FROM rows AS r WHERE space = :space AND position <= :horizon AND (
    EXISTS (SELECT 1 FROM rows n WHERE n.space = :space AND n.key = r.key
            AND n.position > r.position AND n.position <= :horizon)
    OR value IS NULL)
"""
BLOB = "SELECT data FROM blobs WHERE digest = ?"
PUT_BLOB = "INSERT OR IGNORE INTO blobs VALUES (?, ?)"
DROP_BLOB = "DELETE FROM blobs WHERE digest = ?"
# A lease in force on this boot's clock.
LEASE = "SELECT holder, fence, until FROM leases WHERE name = ? AND boot = ? AND until > ?"
PUT_LEASE = "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?, ?)"
DROP_LEASE = "DELETE FROM leases WHERE name = ?"

LAST = 2**63 - 1
CHUNK = 10_000
LOG_PAGES = 4_000
"""How long the write-ahead log grows before it is moved into the database: pages that change often are moved once."""


def _checks_pages(connection: apsw.Connection) -> bool:
    """Whether this very connection writes and checks them: only the extension knows this pragma."""
    return connection.pragma("checksum_verification") is not None


def translate(error: apsw.Error, path: Path) -> CommonplaceError:
    """The one place where SQLite's errors become ours."""
    if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
        return Corrupt(
            f"a page of {path} is damaged: it does not match its checksum. Copy the book to a new place with "
            "`commonplace book copy`, which makes all views again from the ledger, or restore a backup"
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return Busy(f"{path} is locked by a program that does not use its lock file: close it and try again")
    if isinstance(error, apsw.NotADBError):
        return NotABook(f"{path} is not a SQLite database: choose another path for the book")
    if isinstance(error, apsw.CorruptError):
        return Corrupt(
            f"{path} is damaged ({error}). Run `commonplace book verify`, and restore from a backup or a copy"
        )
    if isinstance(error, apsw.FullError | apsw.IOError | apsw.NoMemError):
        return StorageFailed(
            f"writing to {path} failed ({error}); nothing was recorded. Free space or mend the disk, then try again"
        )
    if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return EngineUnavailable(
            f"{path} cannot be opened for writing ({error}): check its folder and rights"
        )
    return Corrupt(f"{path} did not behave like a book ({error}): run `commonplace doctor`")


def to_the_end(query: str) -> str:
    """The same without an end to the range. One query for both could not use the index for its end, and would
    read on to the last key of the space."""
    for bound in (" AND r.key < :end", " AND key < :end", " AND key < ?3"):
        query = query.replace(bound, "")
    return query


SCANS = {
    (False, True): SCAN,
    (True, True): SCAN_BACK,
    (False, False): to_the_end(SCAN),
    (True, False): to_the_end(SCAN_BACK),
}
"""By whether it goes backwards, and whether it has an end."""


class SqliteReads(Reads):
    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        head = self._all(HEAD)
        self.head = Head(*head[0]) if head else Head(meta=self._all(META)[0][0])

    def _all(self, query: str, values: Any = ()) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except apsw.Error as error:
            raise translate(error, self._path) from error
        except UnicodeDecodeError as error:
            raise Corrupt(
                f"{self._path} is damaged: text in it is not text. Restore a backup or a copy"
            ) from error

    def records(self, after: int, upto: int, limit: int, run: str | None = None) -> list[Record]:
        if run is None:
            return [Record(*row) for row in self._all(EVENTS, (after, upto, limit))]
        return [Record(*row) for row in self._all(EVENTS_OF_RUN, (run, after, upto, limit))]

    def by_id(self, ids: Collection[str]) -> dict[str, Record]:
        return {id: Record(*row) for id in ids for row in self._all(EVENT_BY_ID, (id,))}

    def get_all(self, places: Collection[Place], at: int | None = None) -> dict[Place, Row]:
        upto = LAST if at is None else at
        return {
            place: Row(*place, position, value)
            for place in places
            for position, value in self._all(ROW, (*place, upto))
            if value is not None
        }

    def scan(
        self,
        space: str,
        start: bytes = b"",
        end: bytes | None = None,
        at: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        bounds = {"space": space, "start": start, "at": LAST if at is None else at}
        bounds |= {"limit": -1 if limit is None else limit, **({} if end is None else {"end": end})}
        rows = self._all(SCANS[reverse, end is not None], bounds)
        return [Row(space, key, position, value) for key, position, value in rows]

    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        try:
            query, bounds = VERSIONS, (space, start, end)
            if end is None:
                query, bounds = to_the_end(VERSIONS), (space, start)  # type: ignore[assignment]
            for row in self._connection.execute(query, bounds):
                yield Row(*row)
        except apsw.Error as error:
            raise translate(error, self._path) from error

    def blob(self, digest: str) -> bytes | None:
        rows = self._all(BLOB, (digest,))
        return rows[0][0] if rows else None

    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        boot, now = boot_clock()
        return {
            name: Lease(name, holder, fence, until - now)
            for name in names
            for holder, fence, until in self._all(LEASE, (name, boot, now))
        }


class UnlockedConnection(apsw.Connection):
    """Reads a file as it stands, without locks and without looking for a log."""

    def __init__(self, path: Path) -> None:
        self.before = file_identity(path)
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        super().__init__(f"{path.absolute().as_uri()}?immutable=1", flags=flags)


class UnlockedReads(SqliteReads):
    """A snapshot without locks, of a file that nobody had open when it was taken. A writer makes a log before it
    changes the file, so what was read before that is whole. Afterwards every read raises Busy."""

    _connection: UnlockedConnection

    def _all(self, query: str, values: Any = ()) -> list[Any]:
        try:
            return super()._all(query, values)
        finally:
            self._check()

    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        rows = list(super().versions(space, start, end))
        self._check()
        return iter(rows)

    def _check(self) -> None:
        if _log_of(self._path).exists() or file_identity(self._path) != self._connection.before:
            raise Busy(f"somebody has begun to write to {self._path} while it was read: read again")


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


class SqliteTx(SqliteReads, LockedTx):
    """Holds the lock file and SQLite's write lock from `with` to its end."""

    def __init__(self, store: SqliteStore, timeout: float) -> None:
        LockedTx.__init__(self, store._lock_file, timeout)
        self._store = store
        self._committed = 0

    def _begin(self) -> None:
        store = self._store
        store._lifetime.check()
        connection = store._writer or store._open_writer()
        connection.execute("BEGIN IMMEDIATE")
        SqliteReads.__init__(self, connection, store.path)
        self.now = time.time_ns() // 1000

    def _end(self, error: BaseException | None) -> None:
        store = self._store
        if store._writer is not None and store._writer.in_transaction:
            store._writer.execute("ROLLBACK")
        if isinstance(error, apsw.Error):
            store.poison()
            raise translate(error, store.path) from error
        if self._committed:
            self._lock_file.publish(self._committed)

    def apply(self, write: WriteSet) -> None:
        do, many = self._connection.execute, self._connection.executemany
        if write.leases:
            self._write_leases(write.leases)
        if len(write.records) == 1:
            do(ADD_EVENT, write.records[0])
        elif write.records:
            many(ADD_EVENT, write.records)
        rows, drops = write.changes()
        if rows:
            many(PUT_ROW, [(*version, value) for version, value in rows.items()])
        if drops:
            many(DROP_ROW, drops)
        if write.erase:
            many(ERASE_EVENT, [(position,) for position in write.erase])
        if write.blobs:
            many(PUT_BLOB, list(write.blobs.items()))
        if write.blob_drops:
            many(DROP_BLOB, [(digest,) for digest in write.blob_drops])
        if write.meta is not None:
            do(SET_META, (write.meta,))
        try:
            do("COMMIT")
        except apsw.Error as error:
            self._store.poison()
            raise OutcomeUnknown([record.id for record in write.records], str(error)) from error
        if write.records:
            self._committed = write.records[-1].position

    def _write_leases(self, asked: list[Lease]) -> None:
        boot, now = boot_clock()
        for lease in decide_leases(asked, self.leases({lease.name for lease in asked})):
            if lease.seconds:
                entry = (lease.name, lease.holder, lease.fence, boot, now + lease.seconds)
                self._connection.execute(PUT_LEASE, entry)
            else:
                self._connection.execute(DROP_LEASE, (lease.name,))


class SqliteStore(LocalStore):
    """One database file. Writers of this process share one connection; each reader has one of a pool."""

    def __init__(self, path: Path, facts: Facts, synchronous: str) -> None:
        super().__init__(path.with_name(path.name + "-lock"), path)
        self.facts = facts
        self.path = path
        self._synchronous = synchronous
        self._writer: apsw.Connection | None = None
        self._idle: list[apsw.Connection] = []

    def _connect(self) -> apsw.Connection:
        if self.facts.read_only:
            connection = self._connect_to_read()
        else:
            create_logs(self.path, access_of(self.path))
            connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        prepare(connection, self._synchronous)
        return connection

    def _connect_to_read(self) -> apsw.Connection:
        """Without making anything beside the book. Where no log lies there, nobody has the book open, and the file is
        read as it stands, without locks: `UnlockedReads` sees that it stays so."""
        if not _log_of(self.path).exists():
            return UnlockedConnection(self.path)
        if not self.path.with_name(self.path.name + "-shm").exists():
            raise EngineUnavailable(
                f"the last process that wrote to {self.path} was killed, and its log is to be taken in first: let "
                "somebody open the book who may write it"
            )
        return apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READONLY)

    def poison(self) -> None:
        """After a failed commit: what this connection believes is not to be trusted."""
        if self._writer is not None:
            self._writer.close(True)
            self._writer = None

    @contextmanager
    def read(self, at_least: int = 0, timeout: float | None = None) -> Iterator[Reads]:
        self._lifetime.check()
        self.reach(at_least, self.within(timeout))
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._open_connection()
        sound = False
        try:
            connection.execute("BEGIN")
            unlocked = isinstance(connection, UnlockedConnection)
            yield UnlockedReads(connection, self.path) if unlocked else SqliteReads(connection, self.path)
            sound = True
        except apsw.Error as error:
            raise translate(error, self.path) from error
        except BaseException:
            sound = True
            raise
        finally:
            if sound and not self._lifetime.ended and not self.facts.read_only:
                if connection.in_transaction:  # SQLite itself ends one in which a page could not be read
                    connection.execute("ROLLBACK")
                self._idle.append(connection)
            else:
                connection.close(True)

    def _open_connection(self) -> apsw.Connection:
        try:
            return self._connect()
        except apsw.Error as error:
            raise translate(error, self.path) from error

    def begin(self, timeout: float | None = None) -> SqliteTx:
        self._lifetime.check()
        return SqliteTx(self, self.within(timeout))

    def _open_writer(self) -> apsw.Connection:
        self._writer = self._connect()
        return self._writer

    def check(self) -> str | None:
        try:
            with self.read() as reads:
                assert isinstance(reads, SqliteReads)
                (answer,) = reads._all("PRAGMA integrity_check(1)")[0]
        except Corrupt as damage:
            return str(damage)
        if answer == "ok":
            return None
        return f"SQLite finds {self.path} damaged ({answer}). Copy the book to a new one with `commonplace book copy`"

    def drop_spaces(self, prefix: str) -> None:
        with self.read() as reads:
            assert isinstance(reads, SqliteReads)
            spaces = [space for (space,) in reads._all(SPACES, (prefix,))]
        for space in spaces:
            while self._change(DROP_SOME_ROWS, (space, CHUNK)):
                pass

    def trim(self, space: str, horizon: int) -> int:
        return self._change(TRIM, {"space": space, "horizon": horizon})

    def _change(self, statement: str, values: Any) -> int:
        def change(tx: SqliteTx) -> int:
            tx._connection.execute(statement, values)
            changed = tx._connection.changes()
            tx.apply(WriteSet())
            return changed

        return run_inside(self.begin(), change)

    def files(self) -> list[Path]:
        return [Path(f"{self.path}{ending}") for ending in ("", "-wal", "-shm", "-journal")]

    def purge(self) -> PurgeReport:
        """Rewrite the file without its free space, then empty the log. Erased bytes are overwritten when
        they are freed (secure_delete), but a page that was rebalanced may hold a stale copy until VACUUM."""
        self._lifetime.check()
        try:
            emptied = run_inside(self._lock_file.inside(self.timeout), lambda _: self._rewrite())
        except apsw.Error as error:
            raise translate(error, self.path) from error
        done = "rewrote the database without its free space"
        if emptied:
            return PurgeReport((done, "emptied the write-ahead log"))
        why = "a reader of an earlier snapshot is still open, so the log keeps it: close it and purge again"
        return PurgeReport((done,), (why,))

    def _rewrite(self) -> bool:
        """Answers whether the log was emptied, too."""
        connection = self._open_connection()
        try:
            connection.execute("VACUUM")
            busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
        finally:
            connection.close(True)
        return not busy and bool(frames == moved)

    def backup(self, to: Path) -> Head | None:
        self._lifetime.check()
        if os.path.lexists(to):
            raise _exists(to)
        source, unfinished = self._open_connection(), _unfinished(to)
        try:
            create_private(unfinished, access_of(self.path))
            # SQLite refuses a link anywhere in the path, so the folder, which may be behind one, is named without.
            flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
            target = apsw.Connection(str(unfinished.parent.resolve() / unfinished.name), flags)
            try:
                # The first page says that the others carry checksums: it has to be there before they are written.
                target.reserve_bytes("main", source.reserve_bytes())
                target.pragma("application_id", APPLICATION_ID)
                with target.backup("main", source, "main") as copy:
                    copy.step(-1)
                head = SqliteReads(target, to).head
            finally:
                target.close(True)
            os.link(unfinished, to)  # only a whole copy has its name, and nothing is overwritten
            return head
        except BaseException as error:
            if isinstance(error, FileExistsError):
                raise _exists(to) from error
            if isinstance(error, apsw.Error):
                raise translate(error, to) from error
            if isinstance(error, OSError) and not isinstance(error, CommonplaceError):
                raise StorageFailed(f"cannot write {to} ({error}); choose another place") from error
            raise
        finally:
            remove_database(unfinished)
            source.close(True)

    def _let_go(self) -> None:
        while self._idle:
            self._idle.pop().close(True)
        self.poison()


def _exists(to: Path) -> BadInput:
    return BadInput(f"{to} exists: choose a file that does not, so that nothing is overwritten")


def _unfinished(to: Path) -> Path:
    """Where a copy is written until it is whole. What processes have left there that died is removed."""
    for left in to.parent.glob(f".{to.name}.*.part"):
        process = left.name.removesuffix(".part").split(".")[-2]
        if process.isdecimal() and not Path(f"/proc/{process}").exists() and Path("/proc/self").exists():
            remove_database(left)
    return to.with_name(f".{to.name}.{os.getpid()}.{os.urandom(4).hex()}.part")


def remove_database(path: Path) -> None:
    """Remove a book's file and all that was made beside it to use it."""
    for suffix in ("", "-wal", "-shm", "-journal", "-lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def prepare(connection: apsw.Connection, synchronous: str) -> None:
    """Set what durability and erasure rest on, each by itself, and read it back."""
    connection.set_busy_timeout(5_000)
    connection.config(
        apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1
    )  # else a new value for a parameter plans the query anew
    connection.wal_autocheckpoint(LOG_PAGES)
    wanted = {"synchronous": synchronous, "secure_delete": 1, "foreign_keys": 0}
    for name, value in wanted.items():
        connection.pragma(name, value)
    numbers = {"FULL": 2, "NORMAL": 1}
    if connection.pragma("synchronous") != numbers[synchronous] or connection.pragma("secure_delete") != 1:
        raise EngineUnavailable(
            "this SQLite does not honour synchronous or secure_delete; install apsw's own wheel"
        )


def _has_no_tables(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get == 0)


class SqliteEngine(Engine):
    """One file that holds one book.

    `durability` "full" (the default) fsyncs every commit; "process" survives the end of any process, and may
    lose the last commits when the power fails.
    """

    def __init__(self, path: Path, durability: str = "full") -> None:
        if durability not in ("full", "process"):
            raise BadInput(f"durability {durability!r} is not known: use 'full' or 'process'")
        self.path = self.beside = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"

    def open(self, book: str, create: bool) -> Store:
        try:
            return self._open(create)
        except OSError as error:
            if isinstance(error, CommonplaceError):
                raise
            raise EngineUnavailable(
                f"cannot open a book at {self.path} ({error}): check its folder"
            ) from error

    def _open(self, create: bool) -> Store:
        if self.path.is_dir():
            raise NotABook(
                f"{self.path} is a folder: for a book kept as files in it, open 'file:{self.path}'"
            )
        if self.path.is_symlink():
            raise NotABook(
                f"{self.path} is a link, and a book keeps to its own folder: open {self.path.resolve()} itself"
            )
        if not self.path.exists():
            if not create:
                raise BookNotFound(f"there is no book at {self.path}; create it with `commonplace init`")
            make_folder(self.path.parent, FileAccess())
            create_private(self.path, FileAccess())
        elif self.path.stat().st_size:
            self._check_whose()
        else:
            self._take_over_empty(create)
        self._check_beside()
        store = SqliteStore(self.path, self._facts(not may_write(self.path)), self._synchronous)
        try:
            self._lay_out(store)
            self._check_beside()  # again: what lies there by now is what SQLite uses
        except BaseException:
            store.close()
            raise
        return store

    def _take_over_empty(self, create: bool) -> None:
        """Make a book of an empty file, if it is ours: another user who made it could read it."""
        if not create:
            raise BookNotFound(
                f"{self.path} is empty, so there is no book: create it with `commonplace init`"
            )
        if hasattr(os, "geteuid") and self.path.lstat().st_uid != os.geteuid():
            raise EngineUnavailable(
                f"{self.path} is empty and belongs to another user of this host: choose another path for the book"
            )
        self.path.chmod(FileAccess().mode)

    def _check_beside(self) -> None:
        """Refuse files of other users: SQLite would use a log that anybody has put there."""
        access = access_of(self.path)
        for suffix in ("-wal", "-shm", "-journal"):
            check_private(self.path.with_name(self.path.name + suffix), access)

    def _check_whose(self) -> None:
        """Refuse what is no book before anything is changed or made beside it: a database that is opened whole is
        recovered from the log that lies beside it. The file names its program from the book's first moment on. It is
        read by SQLite's own means, which do not drop the locks of this process."""
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
        try:
            file = apsw.VFSFile("unix", str(self.path.absolute()), [flags, 0])
            try:
                header = file.xRead(100, 0)
            finally:
                file.xClose()
        except apsw.Error as error:
            raise translate(error, self.path) from error
        if not header.startswith(b"SQLite format 3\0"):
            raise NotABook(f"{self.path} is not a SQLite database: choose another path for the book")
        if header[68:72] != APPLICATION_ID.to_bytes(4):
            raise NotABook(f"{self.path} is some other program's database: choose another path for the book")

    def _lay_out(self, store: SqliteStore) -> None:
        """Make the tables if there is nothing yet, and see that the file is ours. Only making them needs the
        lock: a book that is there opens while others write."""
        try:
            page_checksums()
            connection = store._connect()
            try:
                if _has_no_tables(connection):
                    run_inside(store._lock_file.inside(self.timeout), lambda _: self._make_tables(connection))
                layout = connection.pragma("user_version")
                if layout > LAYOUT:
                    raise BookTooNew(
                        f"{self.path} has file layout {layout} and this library knows up to {LAYOUT}: "
                        "upgrade commonplace to open it"
                    )
                if connection.reserve_bytes() == CHECKSUM_BYTES and not _checks_pages(connection):
                    raise EngineUnavailable(
                        f"the pages of {self.path} carry checksums, and this apsw was built without the extension "
                        "that writes them (cksumvfs): install apsw's own wheel"
                    )
                if not store.facts.read_only and connection.pragma("journal_mode") != "wal":
                    connection.pragma("journal_mode", "wal")
            finally:
                connection.close(True)
        except apsw.Error as error:
            raise translate(error, self.path) from error

    def _make_tables(self, connection: apsw.Connection) -> None:
        if not _has_no_tables(connection):
            return  # another process was quicker
        if _checks_pages(connection):
            connection.reserve_bytes("main", CHECKSUM_BYTES)
        # Before there is a log, so that the file alone says what it is.
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("journal_mode", "wal")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(SCHEMA)
        connection.pragma("user_version", LAYOUT)
        connection.execute("COMMIT")

    def _facts(self, read_only: bool) -> Facts:
        notes = disk_notes(self.path.parent)
        if read_only:
            notes = ("this user may read it and not write it, so its index is kept elsewhere", *notes)
        if not page_checksums():
            notes = (
                "its pages carry no checksums, because this apsw has no cksumvfs: only `verify` notices "
                "every damage. Install apsw's own wheel, then copy the book",
                *notes,
            )
        full = self._synchronous == "FULL"
        return Facts(
            engine="sqlite",
            durable="proven" if full else "configured",
            durable_why=(
                "every commit is fsynced to the write-ahead log before it is answered (synchronous=FULL)"
                if full
                else "commits survive the end of any process; a power cut may lose the last ones (durability=process)"
            ),
            hosts="one",
            read_only=read_only,
            purge="immediate",
            purge_why="VACUUM with secure_delete, then the log is truncated",
            notes=(f"SQLite {apsw.sqlite_lib_version()}", *notes),
        )

    def books(self) -> list[str]:
        return [self.path.stem] if self.path.exists() else []

    def drop(self, book: str) -> None:
        if book not in self.books():
            return
        remove_database(self.path)
        remove_beside(self.path)
