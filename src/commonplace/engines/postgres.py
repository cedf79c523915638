"""PostgreSQL: one book shared by many hosts.

All books of a database live in the tables of one schema, `commonplace`, apart from each other by number. A
writer takes its book's lock before it reads anything, so positions are commit order and a tailing reader
never misses one. Row-level security repeats the book's number as a second fence on every connection.

Text is kept as UTF-8 in bytea: jsonb and text refuse NUL, and collations would let two names meet. A key, a
space, an id or a name longer than about 2,600 bytes does not fit a PostgreSQL index and raises TooLarge.

Needs PostgreSQL 13 or newer. Connections carry session settings and LISTEN, so a pooler in between must pool
by session, not by transaction.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, Literal, LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from ..errors import (
    BadInput,
    BookClosed,
    BookNotFound,
    BookTooNew,
    Busy,
    CommonplaceError,
    Conflict,
    Corrupt,
    EngineUnavailable,
    NotABook,
    OutcomeUnknown,
    StorageFailed,
    TooLarge,
)
from . import postgres_purge
from . import postgres_sql as q
from .contract import (
    GENESIS,
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
    Version,
    WriteSet,
    decide_leases,
    to_bytes,
    to_text,
)
from .forks import Lifetime
from .postgres_connection import Connection

LAYOUT = 1
"""The layout of the tables that this code reads and writes."""

MAX = 2**63 - 1
LOCK_SPACE = 0x636F6D6D
"""The first half of the advisory lock keys of listeners; the second is a book's number, or 0 for the schema itself."""
WRITER_SPACE = LOCK_SPACE + 1
"""The same for the lock that the writers of a book take."""

POOL = 10
"""Connections that one store may hold at once, besides the listening one and those of threads that read while they
read."""
MARGIN = 2.0
"""How much longer than a caller waits for a lock a trip to the server may take, in seconds."""
GOODBYE = 2.0
"""How long one waits for the server when nothing depends on its answer any more."""
LONG = 3600.0
"""How long one statement of upkeep may take that rewrites whole tables."""
PIECE = 500
"""Rows per statement where work is done in pieces."""
SLOW_CHECK = 5.0
"""Seconds between looks at the head in case the listening connection went deaf."""
IDLE_LISTENER = 60.0
"""Seconds without a waiter after which the listening connection is closed."""

CONNECTION = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "application_name": "commonplace",
}
"""What a URL may override. A host that vanishes silently is noticed within about a minute even if nobody waits for
it; a caller that waits has a limit of its own (see `Connection`)."""

# Driver and pool log each failed try; where nobody configured logging, that would land on stderr beside
# the error that we raise.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_Statement = tuple[LiteralString, Sequence[Any] | dict[str, Any] | None]


def _record(row: Sequence[Any]) -> Record:
    position, id, run, created_at, header, hash, body = row
    return Record(
        position, to_text(id), None if run is None else to_text(run), created_at, header, hash, body
    )


def _lease(row: Sequence[Any]) -> Lease:
    name, holder, fence, seconds = row
    return Lease(to_text(name), to_text(holder), fence, seconds)


def _lost(conn: Connection, error: psycopg.Error) -> bool:
    """The server may not have heard us, or we not it: the connection is of no more use."""
    state = error.sqlstate or "08000"
    return conn.closed or state.startswith(("08", "57P"))


@contextmanager
def _together(conn: Connection) -> Iterator[None]:
    """What is executed inside travels in one trip. If the server refuses some of it, that is what is raised; the driver
    would log what follows from it as well."""
    refusal: psycopg.Error | None = None
    try:
        with conn.pipeline():
            try:
                yield
            except psycopg.Error as error:
                refusal = error
    except psycopg.Error as error:
        raise refusal or error from None
    if refusal is not None:
        raise refusal


def _translated(error: psycopg.Error) -> CommonplaceError:
    """Our error for the driver's. Quotes neither SQL nor values: only what the server says about itself."""
    state = error.sqlstate or ""
    message = error.diag.message_primary or "" if state else " ".join(str(error).split())[:300]
    if state in ("55P03", "57014", "40P01", "40001"):
        return Busy("PostgreSQL did not get a lock, or an answer, in time; try again, or raise the timeout")
    if state == "54000":
        return TooLarge(
            "a key, space, id or name is too long for a PostgreSQL index; keep them below 2,600 bytes"
        )
    if state == "23505":
        return Conflict("an event with this id or position is already in the book; read it before you write")
    if state == "25006":
        return EngineUnavailable("this PostgreSQL server is a replica and takes no writes; use the primary")
    if state == "42501":
        return EngineUnavailable(
            f"PostgreSQL refused: {message}. Let its owner grant USAGE on schema commonplace and SELECT, "
            "INSERT, UPDATE, DELETE on its tables; a role that is to make them must own the schema"
        )
    if state in ("42P01", "3F000"):
        return NotABook("the tables of schema commonplace are gone from this database; restore a backup")
    if state in ("XX001", "XX002"):
        return Corrupt("PostgreSQL found its own files damaged; restore a backup, then verify the book")
    if (state.startswith("53") and state != "53300") or state.startswith("58"):
        return StorageFailed(
            f"PostgreSQL could not store it: {message}. Make room or mend the disk, then go again"
        )
    if not state or state.startswith(("08", "28", "3D", "53", "57")):
        return EngineUnavailable(
            f"PostgreSQL cannot be used now: {message or 'the connection was lost'}. "
            "Check that the server runs and that the URL names it, then go again"
        )
    return EngineUnavailable(
        f"PostgreSQL answered with an error (SQLSTATE {state}); look it up in the server's log and report it"
    )


class _ServerNews:
    """Wakes those who wait for the head to move.

    One thread with one listening connection serves every waiter of the store. It starts with the first
    wait, reconnects when its connection dies, and ends when nobody has waited for a minute. A replica
    cannot listen; there it looks at the head twice a second.
    """

    def __init__(self, connect: Callable[[], Connection], book: int, replica: bool) -> None:
        self._connect = connect
        self._book = book
        self._replica = replica
        self._changed = threading.Condition()
        self._waiters = 0
        self._last_wait = 0.0
        self._thread: threading.Thread | None = None
        self._trouble: psycopg.Error | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._conn: Connection | None = None
        self.position = 0
        self.stopped = False

    def tell(self, position: int) -> None:
        with self._changed:
            if position > self.position:
                self.position = position
                self._changed.notify_all()

    def wait(self, after: int, timeout: float) -> int:
        with self._changed:
            if self._thread is None and not self.stopped:
                self._last_wait = time.monotonic()
                self._thread = threading.Thread(target=self._run, name="commonplace-news", daemon=True)
                self._thread.start()
            self._waiters += 1
            try:
                moved = self._changed.wait_for(lambda: self.position > after or self.stopped, timeout)
            finally:
                self._waiters -= 1
                self._last_wait = time.monotonic()
            if not moved and self._trouble is not None:
                raise _translated(self._trouble) from None
            return self.position

    def stop(self) -> None:
        with self._changed:
            if not self.stopped:
                self.stopped = True
                self._changed.notify_all()
                self._wake_in.send(b"!")

    def close(self) -> None:
        self.stop()
        thread, conn = self._thread, self._conn
        if thread is not None:
            if conn is not None:
                conn.shut()  # it may wait for a server that says nothing
            thread.join(timeout=GOODBYE)
        self._wake_in.close()
        self._wake_out.close()

    def _wanted(self) -> bool:
        return not self.stopped and (self._waiters > 0 or time.monotonic() - self._last_wait < IDLE_LISTENER)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._wanted():
                    self._thread = None
                    return
            try:
                with self._connect() as self._conn:
                    self._conn.limit = SLOW_CHECK  # what it asks is answered at once, or never
                    self._listen(self._conn)
            except psycopg.Error as error:
                self._trouble = error
                self._pause(None, 1.0)
            finally:
                self._conn = None

    def _listen(self, conn: Connection) -> None:
        """Listen while wanted. Being heard comes before the first look at the head, so everybody who commits
        after that look is sure to notify us."""
        if not self._replica:
            conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_channel(self._book))))
            conn.execute(q.BE_HEARD, (LOCK_SPACE, self._book))
        notified: list[int] = []
        while self._wanted():
            # Anybody may notify anything, so what was notified is only a reason to look; what this store
            # committed itself is no reason.
            if not notified or max(notified) > self.position:
                row = conn.execute(q.READ_POSITION, (self._book,)).fetchone()
                self._trouble = None
                self.tell(row[0] if row else 0)
            self._pause(conn, 0.5 if self._replica else SLOW_CHECK)
            notified = [int(news.payload) for news in conn.notifies(timeout=0) if news.payload.isdecimal()]

    def _pause(self, conn: Connection | None, seconds: float) -> None:
        """Until something is heard, `stop` is called or the time is over."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake_out, selectors.EVENT_READ)
            if conn is not None:
                selector.register(conn, selectors.EVENT_READ)
            selector.select(seconds)


def _channel(book: int) -> str:
    return f"commonplace_{book}"


class PostgresReads(Reads):
    def __init__(self, store: PostgresStore, conn: Connection, head: Head) -> None:
        self._store = store
        self._conn = conn
        self.head = head
        self.ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True

    def _all(self, query: LiteralString, values: Sequence[Any] | dict[str, Any]) -> list[TupleRow]:
        self._store.lifetime.check()
        if self.ended:
            raise BookClosed("this snapshot has ended; take a new one")
        try:
            return self._conn.execute(query, values, binary=True).fetchall()
        except psycopg.Error as error:
            raise _translated(error) from None

    def records(self, after: int, upto: int, limit: int, run: str | None = None) -> list[Record]:
        stretch = (self._store.book, max(after, 0), min(upto, MAX))
        if run is None:
            rows = self._all(q.READ_RECORDS, (*stretch, min(limit, MAX)))
        else:
            rows = self._all(q.READ_RUN, (*stretch, to_bytes(run), min(limit, MAX)))
        return [_record(row) for row in rows]

    def by_id(self, ids: Collection[str]) -> dict[str, Record]:
        rows = self._all(q.READ_BY_ID, (self._store.book, [to_bytes(id) for id in ids])) if ids else []
        return {record.id: record for record in map(_record, rows)}

    def get_all(self, places: Collection[Place], at: int | None = None) -> dict[Place, Row]:
        if not places:
            return {}
        spaces, keys = [to_bytes(space) for space, _ in places], [key for _, key in places]
        rows = self._all(q.GET_ROWS, (spaces, keys, self._store.book, _at(at)))
        return {
            (to_text(space), key): Row(to_text(space), key, position, value)
            for space, key, position, value in rows
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
        asked = {
            "book": self._store.book,
            "space": to_bytes(space),
            "start": start,
            "end": end,
            "at": _at(at),
        }
        asked["limit"] = MAX if limit is None else limit
        rows = self._all(q.SCAN_BACK if reverse or limit is None else q.SCAN_SOME, asked)
        if limit is None and not reverse:
            rows.reverse()  # all of them are wanted anyway, and backwards is the faster way
        return [Row(space, key, position, value) for key, position, value in rows]

    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        key, position = start, -1
        while True:
            piece = self._all(q.READ_VERSIONS, (self._store.book, to_bytes(space), key, position, PIECE))
            for key, position, value in piece:
                if end is not None and key >= end:
                    return
                yield Row(space, key, position, value)
            if len(piece) < PIECE:
                return

    def blob(self, digest: str) -> bytes | None:
        rows = self._all(q.READ_BLOB, (self._store.book, to_bytes(digest)))
        return rows[0][0] if rows else None

    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        rows = (
            self._all(q.READ_LEASES, (self._store.book, [to_bytes(name) for name in names])) if names else []
        )
        return {lease.name: lease for lease in map(_lease, rows)}


def _at(at: int | None) -> int:
    return MAX if at is None else min(at, MAX)


class PostgresTx(PostgresReads, Tx):
    """Holds the book's lock from its first trip to its last."""

    def __init__(self, store: PostgresStore, timeout: float) -> None:
        self._store, self._timeout = store, timeout
        self._taken: Connection | None = None
        self.ended = False

    def __enter__(self) -> Self:
        try:
            self._taken, (*_, head) = self._store.opened(self._timeout, self._opening())
            *fields, self.now = self._store.found(_first(head))
            super().__init__(self._store, self._taken, Head(*fields))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.ended = True
        if self._taken is not None:
            self._store.give_back(self._taken)
            self._taken = None

    def _opening(self) -> list[_Statement]:
        book = self._store.book
        opening: list[_Statement] = [
            (q.BEGIN_WRITE, None),
            (q.LOCK_BOOK, (WRITER_SPACE, book)),
            (q.READ_HEAD_AND_CLOCK, (book,)),
        ]
        if self._timeout < 0.9 * self._store.timeout:  # else the session's own limit is near enough
            milliseconds = max(1, int(self._timeout * 1000))  # 0 would be for ever
            opening.insert(1, (q.SET_LOCK_TIMEOUT, (str(milliseconds),)))
        return opening

    def apply(self, write: WriteSet) -> None:
        self._store.lifetime.check()
        if self.ended:
            raise BookClosed("this transaction has ended; begin a new one")
        leases = decide_leases(write.leases, self.leases({lease.name for lease in write.leases}))
        self.ended = True
        conn = self._conn
        try:
            self._commit([*self._statements(write), *self._lease_statements(leases)])
        except psycopg.Error as error:
            if _lost(conn, error):
                conn.close()
                cause = "the connection to PostgreSQL was lost"
                raise OutcomeUnknown([record.id for record in write.records], cause) from None
            raise _translated(error) from None
        if write.records:
            self._store.news.tell(write.records[-1].position)

    def _commit(self, statements: list[_Statement]) -> None:
        """All of it and the COMMIT travel together: one trip. The server skips what follows an error, the COMMIT
        included, so an error it tells us means that nothing happened."""
        conn = self._conn
        with _together(conn):
            for query, values in statements:
                conn.execute(query, values)
            commit = conn.execute("COMMIT")
        if commit.statusmessage != "COMMIT":
            raise EngineUnavailable("PostgreSQL rolled the transaction back; nothing changed, go again")

    def _statements(self, write: WriteSet) -> Iterator[_Statement]:
        """Events, rows and the head are one statement: mostly that is the whole commit."""
        book = self._store.book
        values, drops = write.changes()
        rows = {**self._versions(values), "values": list(values.values())}
        if write.records:
            yield q.ADD, rows | self._events(write)
        else:
            if values:
                yield q.PUT_ROWS, rows
            if write.meta is not None:
                yield q.WRITE_META, (write.meta, book)
        if drops:
            yield q.DROP_ROWS, self._versions(drops)
        if write.erase:
            yield q.ERASE_BODIES, (book, write.erase)
        for digest, content in write.blobs.items():
            yield q.PUT_BLOB, (book, to_bytes(digest), content)
        if write.blob_drops:
            yield q.DROP_BLOBS, (book, [to_bytes(digest) for digest in write.blob_drops])

    def _lease_statements(self, leases: list[Lease]) -> Iterator[_Statement]:
        if taken := [lease for lease in leases if lease.seconds]:
            columns = {
                "names": [to_bytes(lease.name) for lease in taken],
                "holders": [to_bytes(lease.holder) for lease in taken],
                "fences": [lease.fence for lease in taken],
                "seconds": [float(lease.seconds) for lease in taken],
            }
            yield q.TAKE_LEASES, {"book": self._store.book, **columns}
        if released := [to_bytes(lease.name) for lease in leases if not lease.seconds]:
            yield q.RELEASE_LEASES, (self._store.book, released)

    def _versions(self, versions: Collection[Version]) -> dict[str, Any]:
        return {
            "book": self._store.book,
            "spaces": [to_bytes(space) for space, _, _ in versions],
            "keys": [key for _, key, _ in versions],
            "versions": [position for _, _, position in versions],
        }

    def _events(self, write: WriteSet) -> dict[str, Any]:
        records, last = write.records, write.records[-1]
        return {
            "positions": [record.position for record in records],
            "ids": [to_bytes(record.id) for record in records],
            "runs": [None if record.run is None else to_bytes(record.run) for record in records],
            "times": [record.created_at for record in records],
            "headers": [record.header for record in records],
            "hashes": [record.hash for record in records],
            "bodies": [record.body for record in records],
            "position": last.position,
            "hash": last.hash,
            "created_at": last.created_at,
            "meta": write.meta,
            "lock_space": LOCK_SPACE,
            "channel": _channel(self._store.book),
        }


def _first(rows: list[TupleRow]) -> TupleRow | None:
    return rows[0] if rows else None


class PostgresStore(Store):
    def __init__(
        self, conninfo: str, name: str, book: int, facts: Facts, replica: bool, timeout: float
    ) -> None:
        self.timeout = timeout
        self.book = book
        self.facts = facts
        self._conninfo = conninfo
        self._name = name
        self._mine = threading.local()
        self.lifetime = Lifetime()
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            conninfo,
            connection_class=Connection,
            kwargs={"autocommit": True},
            configure=self._configure,
            min_size=0,
            max_size=POOL,
            num_workers=1,
            reconnect_timeout=0.1,  # trouble is told at once; the next caller makes the next try
            name="commonplace",
            open=True,
        )
        self.news = _ServerNews(self._connect, book, replica)

    def _configure(self, conn: Connection) -> None:
        conn.execute(q.SET_SESSION, (str(self.book), f"{self.timeout:g}s"))

    def _connect(self, timeout: float | None = None) -> Connection:
        """A connection beside the pool, with the session that the pool's have."""
        timeout = self.within(timeout)
        conn = _connected(self._conninfo, timeout)
        try:
            self._configure(conn)
        except BaseException:
            conn.close()
            raise
        return conn

    def _take(self, timeout: float) -> Connection:
        """A connection from the pool. The pool itself would go on trying in silence while the server is
        away; so after a moment without one, a try of our own says what the trouble is, or gives a connection
        while the pool still waits for an answer to an earlier try.

        A thread that has a connection already, because it reads something while it reads something else, gets one
        beside the pool where that has none left: if it waited for the others, and they for it, all would wait until
        their time is up."""
        me = threading.get_ident()
        mine = [conn for conn in getattr(self._mine, "lent", ()) if conn.lent and conn.holder == me]
        deadline = time.monotonic() + max(timeout, 1.0)  # making a connection is not waiting for a lock
        moment = 0.001 if mine else 0.25
        while True:
            try:
                conn = self._pool.getconn(timeout=max(0.001, min(moment, deadline - time.monotonic())))
                conn.limit, conn.lent, conn.holder = timeout + MARGIN, True, me
                self._mine.lent = [*mine, conn]
                return conn
            except PoolClosed:
                raise BookClosed("this book is closed; open it again") from None
            except PoolTimeout:
                if mine or self._pool.get_stats()["pool_size"] < POOL:
                    try:
                        conn = self._connect(max(deadline - time.monotonic(), 0.001))
                        conn.limit, conn.pooled, conn.holder = timeout + MARGIN, False, me
                        self._mine.lent = [*mine, conn]
                        return conn
                    except psycopg.Error as error:
                        raise _translated(error) from None
                if time.monotonic() >= deadline:
                    raise Busy(
                        f"all {POOL} connections of this book were in use for {timeout:g} s; try again, or "
                        "raise the timeout"
                    ) from None

    def give_back(self, conn: Connection) -> None:
        """End what a connection was used for. May be called twice."""
        if self.lifetime.in_child or not conn.lent:
            return  # the parent's socket, or given back already
        conn.limit = GOODBYE
        status = conn.info.transaction_status
        if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
            try:
                if status == TransactionStatus.INTRANS:
                    conn.execute("ROLLBACK")
                else:  # the driver forgets what it has prepared, for it may believe so of what the server has skipped
                    conn.rollback()
            except psycopg.Error:
                conn.close()  # the server rolls back what a lost connection left
        elif status == TransactionStatus.ACTIVE:
            conn.close()
        conn.lent = False
        if conn.pooled:
            self._pool.putconn(conn)
        else:
            conn.close()

    def opened(
        self, timeout: float, statements: Sequence[_Statement], again: bool = True
    ) -> tuple[Connection, list[list[TupleRow]]]:
        """A connection on which these statements were run, in one trip, and the rows that each answered.

        A pooled connection may have died since it was last used, so the statements are tried once more on
        a fresh one if there is time left; all that come here may be run twice.
        """
        deadline = time.monotonic() + timeout
        conn = self._take(timeout)
        try:
            with _together(conn):
                answers = [conn.execute(query, values, binary=True) for query, values in statements]
            return conn, [answer.fetchall() if answer.description else [] for answer in answers]
        except psycopg.Error as error:
            lost = _lost(conn, error)
            conn.close()  # the driver may believe to be prepared what the server has skipped
            self.give_back(conn)
            if not (lost and again and time.monotonic() < deadline):
                raise _translated(error) from None
        except BaseException:
            conn.close()
            self.give_back(conn)
            raise
        self._pool.drain()
        return self.opened(deadline - time.monotonic(), statements, again=False)

    @contextmanager
    def _session(
        self, timeout: float, *statements: _Statement
    ) -> Iterator[tuple[Connection, list[list[TupleRow]]]]:
        self.lifetime.check()
        conn, answers = self.opened(timeout, statements)
        try:
            yield conn, answers
        finally:
            self.give_back(conn)

    def _ask(self, query: LiteralString, values: Any, timeout: float | None = None) -> TupleRow | None:
        """One statement in a transaction of its own: its first row."""
        with self._session(self.within(timeout), (query, values)) as (_, answers):
            return _first(answers[-1])

    def found(self, head: TupleRow | None) -> TupleRow:
        if head is None:
            raise BookNotFound(f"the book {self._name!r} was dropped; open it again with create=True")
        return head

    @contextmanager
    def read(self, at_least: int = 0, timeout: float | None = None) -> Iterator[Reads]:
        timeout = self.within(timeout)
        deadline = time.monotonic() + timeout
        while True:
            snapshot = ((q.BEGIN_SNAPSHOT, None), (q.READ_HEAD, (self.book,)))
            with self._session(self.timeout, *snapshot) as (conn, answers):
                head = Head(*self.found(_first(answers[-1])))
                if head.position >= at_least:
                    with PostgresReads(self, conn, head) as reads:
                        yield reads
                    return
            left = deadline - time.monotonic()
            if left <= 0 or self.news.stopped:
                raise Busy(
                    f"this server shows position {head.position}, not yet {at_least}; wait for the "
                    "replica, raise the timeout, or read from the primary"
                )
            if self.wait(at_least - 1, left) >= at_least:
                time.sleep(0.01)  # one of several servers behind the URL is ahead of the one that answered

    def begin(self, timeout: float | None = None) -> PostgresTx:
        self.lifetime.check()
        return PostgresTx(self, self.within(timeout))

    def wait(self, after: int, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        self.lifetime.check()
        if not self.news.stopped:
            self.news.tell(
                self.found(self._ask(q.READ_POSITION, (self.book,), min(timeout, self.timeout)))[0]
            )
        left = deadline - time.monotonic()
        return self.news.wait(after, left) if left > 0 else self.news.position

    def wake(self) -> None:
        self.lifetime.check()
        self.news.stop()

    def drop_spaces(self, prefix: str) -> None:
        start = to_bytes(prefix)
        end = start[:-1] + bytes([start[-1] + 1]) if start else b"\xff"  # no UTF-8 has a byte 0xff
        at: TupleRow | None = (start, b"")
        while at is not None:
            piece = {"book": self.book, "space": at[0], "key": at[1], "end": end, "piece": PIECE}
            at = self._ask(q.DROP_SPACES, piece)

    def trim(self, space: str, horizon: int) -> int:
        asked = {"book": self.book, "space": to_bytes(space), "horizon": min(horizon, MAX), "piece": PIECE}
        dropped, key, position, count = 0, b"", -1, PIECE
        while count == PIECE:
            last = self._ask(q.TRIM_SPACE, {**asked, "key": key, "position": position})
            key, position, count = last or (key, position, 0)
            dropped += count
        return dropped

    def files(self) -> list[Path]:
        """The server's folder, if it tells and lies on this host."""
        try:
            with self._connect() as conn:
                row = conn.execute("SHOW data_directory").fetchone()
        except psycopg.Error:
            return []  # a role that may not know it
        return [Path(row[0])] if row and Path(row[0]).is_dir() else []

    def purge(self) -> PurgeReport:
        """Rewrites the tables, those of the database's other books with them, and turns over the server's
        log. Everybody waits meanwhile. Does what the role may do and names what is left."""
        self.lifetime.check()
        try:
            with self._connect() as conn:
                conn.limit = LONG
                conn.execute(q.DROP_OLD_LEASES, (self.book,))
                return postgres_purge.purge(conn)
        except psycopg.Error as error:
            raise _translated(error) from None

    def close(self) -> None:
        if self.lifetime.ended or self.lifetime.in_child:
            return
        self.lifetime.ended = True
        self.news.close()
        self._pool.close(timeout=GOODBYE)


class PostgresEngine(Engine):
    """The books of one database. `url` is what libpq understands; special characters are %-encoded."""

    def __init__(self, url: str) -> None:
        hint = "write special characters in it as %XX (an @ as %40, a / as %2F)"
        try:
            fields = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            raise BadInput(f"this is not a PostgreSQL URL; {hint}") from None
        # a password with a bare @ or / spills into host and port, which errors would then quote
        if "@" in str(fields.get("host", "")) or not str(fields.get("port", "1")).replace(",", "").isdigit():
            raise BadInput(f"the host or port of this PostgreSQL URL cannot be right; {hint}")
        self._conninfo = make_conninfo(**CONNECTION | {name: str(value) for name, value in fields.items()})

    @contextmanager
    def _connection(self, limit: float = 0.0) -> Iterator[Connection]:
        try:
            with _connected(self._conninfo, self.timeout) as conn:
                conn.limit = max(conn.limit, limit)
                conn.execute(q.SET_SESSION, ("", f"{self.timeout:g}s"))
                yield conn
        except psycopg.Error as error:
            raise _translated(error) from None

    def _ours(self, conn: Connection) -> bool:
        """Whether our tables are here. Raises NotABook or BookTooNew when they are not ours to use."""
        _, relations, markers = conn.execute(q.FIND_LAYOUT).fetchone() or (0, 0, 0)
        if not markers:
            if relations:
                raise NotABook(
                    "this database has a schema commonplace that commonplace did not make; use another "
                    "database, or rename that schema"
                )
            return False
        (version,) = conn.execute(q.READ_LAYOUT).fetchone() or (None,)
        if version is None:
            raise NotABook("the schema commonplace in this database has no layout version; restore a backup")
        if version > LAYOUT:
            raise BookTooNew(
                f"this database has layout {version}, this library knows {LAYOUT}; upgrade commonplace"
            )
        return True

    def _make_tables(self, conn: Connection) -> None:
        with conn.transaction():
            conn.execute(q.LOCK_LAYOUT, (LOCK_SPACE,))
            if self._ours(conn):
                return
            schemas, _, _ = conn.execute(q.FIND_LAYOUT).fetchone() or (0, 0, 0)
            if not schemas:
                conn.execute(q.CREATE_SCHEMA)
            conn.execute(q.CREATE_TABLES)
            conn.execute(q.WRITE_LAYOUT, (LAYOUT,))

    def open(self, book: str, create: bool) -> Store:
        with self._connection() as conn:
            ours = self._ours(conn)
            row = conn.execute(q.FIND_BOOK, (to_bytes(book),)).fetchone() if ours else None
            if row is None and not create:
                raise BookNotFound(f"there is no book named {book!r} here; open it with create=True")
            if not ours:
                self._make_tables(conn)
            if row is None:
                with conn.transaction():
                    row = conn.execute(q.MAKE_BOOK, (to_bytes(book),)).fetchone()
                    assert row is not None
                    conn.execute(q.ENTER_BOOK, (str(row[0]),))
                    conn.execute(q.MAKE_HEAD, (row[0], GENESIS))
            facts, replica = _facts(conn)
        return PostgresStore(self._conninfo, book, row[0], facts, replica, self.timeout)

    def books(self) -> list[str]:
        with self._connection() as conn:
            if not self._ours(conn):
                return []
            return sorted(to_text(name) for (name,) in conn.execute(q.LIST_BOOKS, binary=True))

    def drop(self, book: str) -> None:
        with self._connection(LONG) as conn:
            if not self._ours(conn):
                return
            with conn.transaction():
                row = conn.execute(q.FIND_BOOK + " FOR UPDATE", (to_bytes(book),)).fetchone()
                if row is None:
                    return
                conn.execute(q.LOCK_BOOK, (WRITER_SPACE, row[0]))  # waits for a writer to end
                conn.execute(q.ENTER_BOOK, (str(row[0]),))
                for table in q.FENCED:
                    name = sql.Identifier("commonplace", table)
                    conn.execute(sql.SQL("DELETE FROM {} WHERE book = %s").format(name), row)
                conn.execute(q.DROP_BOOK, row)


def _connected(conninfo: str, timeout: float) -> Connection:
    """A new connection, within about this time: libpq counts whole seconds, and no fewer than two."""
    configured = conninfo_to_dict(conninfo)["connect_timeout"]
    seconds = min(float(str(configured)) or timeout, timeout)
    conn = Connection.connect(conninfo, autocommit=True, connect_timeout=max(2, ceil(seconds)))
    conn.limit = timeout + MARGIN
    return conn


def _facts(conn: Connection) -> tuple[Facts, bool]:
    fsync, full_pages, commits, checksums, replica = conn.execute(q.READ_SETTINGS).fetchone() or (
        *("",) * 4,
        False,
    )
    notes = ["a replica: it reads, and takes no writes"] if replica else []
    if checksums != "on":
        notes.append(
            "data_checksums is off: a damaged page can lose rows silently. Turn it on with pg_checksums"
        )
    durable: Literal["proven", "configured", "no"]
    if fsync != "on":
        durable, why = "no", "the server has fsync = off: a crash of its host can lose or damage everything"
    elif full_pages != "on":
        durable, why = "configured", "fsync is on, but full_page_writes = off: only some disks survive that"
    else:
        durable, why = "proven", f"fsync and full_page_writes are on, synchronous_commit = {commits}"
    return (
        Facts(
            engine="postgres",
            durable=durable,
            durable_why=why,
            hosts="many",
            purge="operator",
            purge_why="purge rewrites the tables and turns over the write-ahead log as far as the role may; "
            "backups, archives and standbys are the operator's to clean",
            notes=tuple(notes),
        ),
        replica,
    )
