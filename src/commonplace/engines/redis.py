"""Books on a Redis or Valkey server (7.0 or newer): many hosts, one round trip a step, no locks.

A transaction reads the head with its revision, decides in Python, and sends everything it changes to one
script: "if the revision is still this one, apply these bytes". Every applied WriteSet raises the revision.

Where things live. One hash tag a book, so that all its keys share a cluster slot; no key is ever guessed from
a name by pattern. `redis_lua.Keys` names them:
    head     hash: layout, name, rev, pos, hash, at (created_at), meta
    stream   one entry a record under the id <position>-0, without its body; XREAD serves `wait`
    bodies   hash: position → body. Apart, because deleted stream entries survive in AOF rewrites
    ids      hash: record id → position
    runs     sorted set, all scores 0: run ‖ position
    rows     sorted set, all scores 0: space ‖ key ‖ position ‖ revision ‖ flag ‖ value: every read is a range
    stale    sorted set of replaced and dropped versions, scored by the time they became so
    blobs    hash: digest → revision ‖ content
    leases   hash: name → "until fence holder", in microseconds of the server's clock
    turn     list: at most one token, the hint that orders writers who collide (see `RedisStore.begin`)
Texts inside members are escaped (`_text`), which keeps byte order and makes every range end exact.

What a snapshot is here. Nothing is locked: a snapshot is the head it read, and every later answer leaves out
what has a higher position or revision. A version that is replaced or dropped stays GRACE_SECONDS for the
snapshots that are open, then the next write that replaces or drops one sweeps it out, and so do trim and
purge; a snapshot kept open longer may miss it. A row at position 0 that was dropped stays for 5 seconds.
Erased bodies and dropped blobs are gone at once, from open snapshots too.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.retry import Retry

from ..errors import (
    BadInput,
    BookClosed,
    BookNotFound,
    BookTooNew,
    CommonplaceError,
    Corrupt,
    EngineUnavailable,
    NotABook,
    OutcomeUnknown,
    StorageFailed,
)
from . import redis_lua as lua
from .contract import (
    GENESIS,
    TIMEOUT,
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
    WriteConflict,
    WriteSet,
    to_bytes,
    to_text,
)
from .forks import Lifetime

LAYOUT = 1
BOOKS = b"commonplace:books"

MARGIN = 2.0  # how much longer than its caller's timeout a trip may take
GOODBYE_SECONDS = 1.0  # how long one waits for an answer on which nothing depends any more
CONNECT_SECONDS = 5.0
FSYNC_SECONDS = 10.0  # how long a write waits for WAITAOF before its outcome is unknown
SLICE_SECONDS = 1.0  # a wait asks again this often, in case the word to wake up cannot be sent
TURN_SECONDS = 0.25  # how long a colliding writer waits for its turn before it tries all the same
LONG_SECONDS = 10.0  # how long it waits at most for one that has said that it needs longer
GRACE_SECONDS = 60.0  # how long a replaced or dropped version stays for open snapshots
PURGE_SECONDS = 300.0
PAGE = 256
FOREVER = 2**53 - 2  # beyond every position; what Lua's numbers still hold exactly


# --- Bytes --------------------------------------------------------------------------------------------------


def _escape(data: bytes) -> bytes:
    return data.replace(b"\0", b"\0\xff")


def _text(data: bytes) -> bytes:
    """Bytes as a part of a member: parts order as the bytes do, and none is the beginning of another."""
    return _escape(data) + b"\0\1"


def _eight(position: int) -> bytes:
    return min(max(position, 0), FOREVER + 1).to_bytes(8, "big")


def _span(space: bytes, start: bytes, end: bytes | None) -> tuple[bytes, bytes]:
    """The range of the members of the space whose part is `space` with start ≤ key < end."""
    return b"[" + space + _text(start), b"(" + (space[:-1] + b"\2" if end is None else space + _text(end))


def _row(name: str, space: bytes, member: bytes) -> Row:
    end = member.index(b"\0\1", len(space)) + 2
    key = member[len(space) : end - 2].replace(b"\0\xff", b"\0")
    position = int.from_bytes(member[end : end + 8], "big")
    return Row(name, key, position, member[end + 17 :] if member[end + 16] == 1 else None)


def _lease(name: str, reply: list[bytes]) -> Lease:
    return Lease(name, to_text(reply[0]), int(reply[1]), int(reply[2]) / 1_000_000)


def _info(reply: object) -> dict[str, str]:
    """An INFO answer as a dict; empty where the server refused to give one."""
    if not isinstance(reply, bytes):
        return {}
    return dict(line.split(":", 1) for line in reply.decode("utf-8", "replace").splitlines() if ":" in line)


def _setting(reply: object) -> str | None:
    """A CONFIG GET answer; None where the server refused or does not know the name."""
    return reply[1].decode("utf-8", "replace") if isinstance(reply, list) and len(reply) == 2 else None


# --- The server ---------------------------------------------------------------------------------------------

Command = tuple[bytes | str | int | float, ...]


class _Wire(Protocol):
    """What this engine uses of a redis-py connection."""

    def connect(self) -> None: ...
    def can_read(self) -> bool: ...
    def pack_commands(self, commands: Iterable[Command]) -> list[bytes]: ...
    def send_packed_command(self, command: list[bytes]) -> None: ...
    def read_response(self) -> Any: ...
    def disconnect(self) -> None: ...

    socket_timeout: float
    deadline: float
    _sock: _Timed | None


class _Timed:
    """A socket of which every wait ends at one deadline: a server that sends a byte now and then gets no more time."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self.deadline = sock, deadline

    def _hurry(self) -> None:
        left, usual = max(0.001, self.deadline - time.monotonic()), self._sock.gettimeout()
        if usual is None or usual > left:
            self._sock.settimeout(left)

    def recv(self, *args: Any) -> bytes:
        self._hurry()
        return self._sock.recv(*args)

    def recv_into(self, *args: Any) -> int:
        self._hurry()
        return self._sock.recv_into(*args)

    def sendall(self, *args: Any) -> None:
        self._hurry()
        self._sock.sendall(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def _timed(connection: type[Any]) -> Callable[..., _Wire]:
    """A class of redis-py's connections whose sockets have a deadline, also while they introduce themselves."""

    class Timed(connection):  # type: ignore[misc]
        deadline = float("inf")

        def _connect(self) -> _Timed:
            return _Timed(super()._connect(), self.deadline)

    return Timed


def _within(wire: _Wire, deadline: float) -> None:
    """Let whatever comes next on this connection fail when the time is up."""
    if wire._sock is not None:
        wire._sock.deadline = deadline
        wire._sock.settimeout(max(0.001, deadline - time.monotonic()))


class _Server:
    """Connections to one server, and the one place where redis-py's errors become ours.

    redis-py's connections are used, not its client: the client raises the same for "never sent" as for "sent,
    and the answer was lost", and that is the whole difference between a failed write and an unknown one.
    """

    def __init__(self, url: str, timeout: float = TIMEOUT) -> None:
        self.timeout = timeout
        try:
            options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
            # RESP2, because scripts answer in it; no retries, because redis-py would send a write again.
            options.update(protocol=2, decode_responses=False, socket_timeout=CONNECT_SECONDS)
            options.update(retry=Retry(NoBackoff(), 0), retry_on_timeout=False, retry_on_error=[])
            options.setdefault("socket_connect_timeout", min(CONNECT_SECONDS, timeout))
            for pooling in ("max_connections", "timeout"):
                options.pop(pooling, None)
            made = _timed(options.pop("connection_class", Connection))
            self._make: Callable[[], _Wire] = partial(made, **options)
            self._make()  # refuses unknown options now, not at first use
        except (ValueError, TypeError, redis.RedisError):
            # Neither the URL nor the cause is repeated: a badly quoted password shows in both.
            raise BadInput(
                "this is not a URL that redis-py can read; allowed are redis://[user:password@]host:port/db, "
                "rediss://… and unix:///path?db=0, with special characters in a password percent-encoded"
            ) from None
        self.where = str(
            options["path"]
            if "path" in options
            else f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        )
        self._idle: list[_Wire] = []
        self.lifetime = Lifetime()

    def close(self) -> None:
        """Ends idle connections; one that is in use ends when its user gives it back."""
        if not self.lifetime.ended and not self.lifetime.in_child:
            self.lifetime.ended = True
            self._drain()

    def _drain(self) -> None:
        while self._idle:
            with suppress(IndexError):  # two threads may reach for the last one
                self._idle.pop().disconnect()

    def _wire(self, limit: float) -> _Wire:
        """A connection that is open as far as can be seen: the server may have hung up on an idle one. A new one is
        tried once, so that a server that says nothing is not waited for twice."""
        with suppress(IndexError):
            wire = self._idle.pop()
            try:
                wire.connect()
                if not wire.can_read():
                    return wire
            except (redis.ConnectionError, redis.TimeoutError):
                pass  # so it has; a new one tells what is the matter
            wire.disconnect()
        wire = self._make()
        wire.socket_timeout = min(limit, CONNECT_SECONDS)  # of each answer while it introduces itself
        wire.deadline = time.monotonic() + limit
        wire.connect()
        return wire

    def ask(
        self, *commands: Command, ids: Sequence[str] | None = None, limit: float | None = None
    ) -> list[Any]:
        """One round trip: the answers, refusals among them as exception objects. `ids` marks a write: once
        it may have been sent, a lost answer is OutcomeUnknown. It takes `limit` seconds at most; None: what the
        store's timeout allows."""
        self.lifetime.check()
        limit = self.timeout + MARGIN if limit is None else limit
        deadline = time.monotonic() + limit
        try:
            wire = self._wire(limit)
        except (redis.RedisError, OSError) as error:
            raise self._unavailable(error) from error
        try:
            _within(wire, deadline)
            wire.send_packed_command(wire.pack_commands(commands))
            answers = [self._answer(wire, deadline) for _ in commands]
        except BaseException as error:
            wire.disconnect()  # answers may be under way that nobody will read
            if isinstance(error, redis.exceptions.BusyLoadingError | redis.AuthenticationError):
                raise self._unavailable(error) from error  # the server's own words: it did nothing
            if not isinstance(error, redis.RedisError | OSError):
                raise
            if ids is None:
                raise self._unavailable(error) from error
            raise OutcomeUnknown(ids, f"lost the connection to {self.where}") from error
        self._idle.append(wire)
        if self.lifetime.ended:
            self._drain()
        return answers

    @staticmethod
    def _answer(wire: _Wire, deadline: float) -> Any:
        _within(wire, deadline)
        try:
            return wire.read_response()
        except redis.ResponseError as error:
            return error

    def read(self, *commands: Command, limit: float | None = None) -> list[Any]:
        """One round trip in which every command must succeed."""
        replies = self.ask(*commands, limit=limit)
        for reply in replies:
            if isinstance(reply, redis.RedisError):
                raise self.refusal(reply) from reply
        return replies

    def run(
        self,
        script: lua.Script,
        keys: Sequence[bytes],
        *args: bytes | str | int,
        ids: Sequence[str] | None = None,
        fsync: bool = False,
        limit: float | None = None,
    ) -> Any:
        """A script's answer. With `fsync`, unless the answer is 0 it is on the server's disk as well."""
        synced = min(FSYNC_SECONDS, self.timeout)
        tail: list[Command] = [("WAITAOF", 1, 0, max(1, int(synced * 1000)))] if fsync else []
        replies = self.ask(("EVALSHA", script.sha, len(keys), *keys, *args), *tail, ids=ids, limit=limit)
        if isinstance(replies[0], redis.exceptions.NoScriptError):
            replies = self.ask(("EVAL", script.text, len(keys), *keys, *args), *tail, ids=ids, limit=limit)
        reply = replies[0]
        if isinstance(reply, redis.RedisError):
            raise self.refusal(reply, ids) from reply
        if fsync and reply != 0 and not (isinstance(replies[1], list) and replies[1][0] >= 1):
            why = replies[1] if isinstance(replies[1], redis.RedisError) else f"within {synced:g} s"
            raise OutcomeUnknown(ids or (), f"the server did not confirm the fsync: {why}")
        return reply

    def _unavailable(self, error: Exception) -> CommonplaceError:
        if isinstance(error, redis.exceptions.BusyLoadingError):
            return EngineUnavailable(f"the server at {self.where} is loading its data; try again in a moment")
        if isinstance(error, redis.AuthenticationError | redis.exceptions.AuthorizationError):
            return EngineUnavailable(f"the server at {self.where} refused the URL's user or password")
        if isinstance(error, redis.ResponseError):
            return self.refusal(error)
        return EngineUnavailable(
            f"the server at {self.where} cannot be reached, or did not answer ({type(error).__name__}); "
            f"check that it runs and that the URL is right, then try again"
        )

    def refusal(self, error: redis.RedisError, ids: Sequence[str] | None = None) -> CommonplaceError:
        """What the server's error answer means. All but the last are given before a script's first write."""
        text, at = str(error), f"the server at {self.where}"
        if isinstance(error, redis.OutOfMemoryError):
            return StorageFailed(f"{at} is full: raise maxmemory, or erase and trim; nothing was written")
        if text.startswith("MISCONF"):
            return StorageFailed(
                f"{at} cannot write to its disk and takes no writes; see its log and its disk"
            )
        if text.startswith("NOREPLICAS"):
            return StorageFailed(
                f"{at} has fewer replicas than min-replicas-to-write asks for; nothing was written"
            )
        if isinstance(error, redis.ReadOnlyError):
            return EngineUnavailable(f"{at} is a read-only replica; point the URL at its primary")
        if isinstance(error, redis.exceptions.NoPermissionError):
            return EngineUnavailable(f"{at} does not let the URL's user do this; see ACL LOG on the server")
        if isinstance(error, redis.exceptions.AskError | redis.exceptions.ClusterDownError):
            return EngineUnavailable(
                f"{at} is a cluster node that does not hold this book; name the one that does"
            )
        if text.startswith("BUSY"):
            return EngineUnavailable(f"{at} is busy with somebody's script; try again")
        if text.startswith("WRONGTYPE"):
            return NotABook(f"{at} holds something else under this book's keys: {text}")
        return EngineUnavailable(f"{at} refused: {text}") if ids is None else OutcomeUnknown(ids, text)


def _survey(server: _Server) -> tuple[Facts, bool]:
    """What the server can promise, and whether a write has to ask for its fsync with WAITAOF."""
    replies = server.ask(
        *(("INFO", section) for section in ("persistence", "memory", "replication")),
        *(("CONFIG", "GET", name) for name in ("appendfsync", "no-appendfsync-on-rewrite")),
        ("WAITAOF", 1, 0, 1),
    )
    persistence, memory, replication = map(_info, replies[:3])
    policy, lax = _setting(replies[3]), _setting(replies[4])
    can_ask = isinstance(replies[5], list)
    off = persistence.get("aof_enabled") == "0" or "appendonly is disabled" in str(replies[5])
    notes = []
    fsync = False
    if off:
        durable, why = "no", "the server runs without an append-only file; set appendonly yes"
    elif policy == "no":
        durable, why = "no", "appendfsync is no: nobody asks the disk; set it to always or everysec"
    elif policy == "always" and lax == "no":
        # The server flushes and syncs the AOF before it writes any answer of the same turn of its loop.
        durable, why = "proven", "appendfsync is always: the server answers after its fsync"
    elif can_ask:
        durable, why, fsync = "proven", "every write waits for the server's fsync by WAITAOF", True
        if policy != "always":
            notes.append("unless appendfsync is always, a lone write waits up to a second for its fsync")
    else:
        durable, why = "configured", "the server refuses WAITAOF and cannot show that a write is on disk"
    eviction = memory.get("maxmemory_policy", "noeviction")
    if eviction != "noeviction":
        notes.append(
            f"maxmemory-policy is {eviction}: a full server may evict the ledger; set it to noeviction"
        )
    if replication.get("connected_slaves", "0") != "0":
        notes.append("replicas follow behind: a failover to one can lose writes that were acknowledged")
    if replication.get("role", "master") != "master":
        notes.append("this is a replica: it can be read, not written")
    facts = Facts(
        engine="redis",
        durable=durable,  # type: ignore[arg-type]
        durable_why=why,
        hosts="many",
        optimistic=True,
        purge="deferred",
        purge_why="the append-only file and snapshots hold erased content until purge has them rewritten; "
        "the slow log, in memory, may show the start of a slow write until it rolls over",
        notes=tuple(notes),
    )
    return facts, fsync


# --- One book -----------------------------------------------------------------------------------------------


class RedisReads(Reads):
    """A snapshot: the head as it was read, and answers fitted to it (see the module's first words)."""

    def __init__(self, store: RedisStore, head: Head, revision: int) -> None:
        self.head = head
        self._store = store
        self._server = store.server
        self._keys = store.keys
        self._revision = revision

    def _until(self, at: int | None) -> tuple[int, bytes]:
        """What a script needs to know which versions this snapshot sees: its revision, the first position
        too late."""
        return self._revision, _eight(FOREVER if at is None else at + 1)

    def records(self, after: int, upto: int, limit: int, run: str | None = None) -> list[Record]:
        first, last = max(after, 0) + 1, min(upto, self.head.position)
        if run is None:
            return self._fetch(range(first, min(last, first + limit - 1) + 1))
        if first > last or limit <= 0:
            return []
        part = _text(to_bytes(run))
        low, high = b"[" + part + _eight(first), b"[" + part + _eight(last)
        (members,) = self._server.read(("ZRANGEBYLEX", self._keys.runs, low, high, "LIMIT", 0, limit))
        return self._fetch([int.from_bytes(member[-8:], "big") for member in members])

    def by_id(self, ids: Collection[str]) -> dict[str, Record]:
        if not ids:
            return {}
        (replies,) = self._server.read(("HMGET", self._keys.ids, *map(to_bytes, ids)))
        positions = sorted({int(reply) for reply in replies if reply is not None})
        return {
            record.id: record for record in self._fetch([p for p in positions if p <= self.head.position])
        }

    def _fetch(self, positions: Sequence[int]) -> list[Record]:
        """The records at these ascending positions, which exist; a page of them a round trip."""
        records = []
        for i in range(0, len(positions), PAGE):
            page = positions[i : i + PAGE]
            gaps = page[-1] - page[0] + 1 != len(page)
            spans = [(p, p) for p in page] if gaps else [(page[0], page[-1])]
            *parts, bodies = self._server.read(
                *(("XRANGE", self._keys.stream, f"{low}-0", f"{high}-0") for low, high in spans),
                ("HMGET", self._keys.bodies, *page),
            )
            entries = [entry for part in parts for entry in part]
            for position, (name, pairs), body in zip(page, entries, bodies, strict=False):
                if name != b"%d-0" % position:
                    break
                field = dict(zip(pairs[::2], pairs[1::2], strict=True))
                run = to_text(field[b"r"]) if b"r" in field else None
                id, created_at = to_text(field[b"i"]), int(field[b"t"])
                records.append(Record(position, id, run, created_at, field[b"h"], field[b"x"], body))
            if len(records) < i + len(page):
                missing = positions[len(records)]
                raise Corrupt(
                    f"the server no longer holds event {missing}: evicted, or the book dropped", missing
                )
        return records

    def get_all(self, places: Collection[Place], at: int | None = None) -> dict[Place, Row]:
        until, parts = self._until(at), {space: _text(to_bytes(space)) for space, _ in places}
        wanted, rows = list(places), dict[Place, Row]()
        for i in range(0, len(wanted), PAGE):
            page = wanted[i : i + PAGE]
            stems = (parts[space] + _text(key) for space, key in page)
            members = self._server.run(lua.GET, self._keys, *until, *stems)
            for place, member in zip(page, members, strict=True):
                row = _row(place[0], parts[place[0]], member) if member else None
                if row is not None and row.value is not None:
                    rows[place] = row
        return rows

    def scan(
        self,
        space: str,
        start: bytes = b"",
        end: bytes | None = None,
        at: int | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[Row]:
        part = _text(to_bytes(space))
        low, high = _span(part, start, end)
        until, most = self._until(at), FOREVER if limit is None else limit
        rows: list[Row] = []
        while len(rows) < most:
            span = (low, high, most - len(rows), int(reverse), len(part))
            bound, *members = self._server.run(lua.SCAN, self._keys, *until, *span)
            rows.extend(_row(space, part, member) for member in members)
            if not bound:
                break
            low, high = (low, bound) if reverse else (bound, high)
        return rows[:most]

    def versions(self, space: str, start: bytes = b"", end: bytes | None = None) -> Iterator[Row]:
        part = _text(to_bytes(space))
        low, high = _span(part, start, end)
        last: tuple[Row, bool] | None = None  # the last revision so far of one version; was it dropped?
        while True:
            (members,) = self._server.read(("ZRANGEBYLEX", self._keys.rows, low, high, "LIMIT", 0, PAGE))
            for member in members:
                row = _row(space, part, member)
                named = len(part) + len(_text(row.key)) + 8
                if int.from_bytes(member[named : named + 8], "big") > self._revision:
                    continue
                if last is not None and not last[1] and last[0][:3] != row[:3]:
                    yield last[0]
                last = row, member[named + 8] == 2
            if len(members) < PAGE:
                break
            low = b"(" + member[: named + 8] + b"\xff"
        if last is not None and not last[1]:
            yield last[0]

    def blob(self, digest: str) -> bytes | None:
        (content,) = self._server.read(("HGET", self._keys.blobs, to_bytes(digest)))
        return content[8:] if content and int.from_bytes(content[:8], "big") <= self._revision else None

    def leases(self, names: Collection[str]) -> dict[str, Lease]:
        replies = self._server.run(lua.LEASES_NOW, self._keys, *map(to_bytes, names)) if names else []
        return {name: _lease(name, reply) for name, reply in zip(names, replies, strict=True) if reply}


class RedisTx(RedisReads, Tx):
    def __init__(self, store: RedisStore, head: Head, revision: int, now: int, has_turn: bool) -> None:
        super().__init__(store, head, revision)
        self.now = now
        self.has_turn = has_turn
        self._began = time.monotonic()

    def apply(self, write: WriteSet) -> None:
        ids = [record.id for record in write.records]
        args = self._arguments(write)
        self.has_turn = False  # the script passes it on, whatever comes of it
        collided = self._server.run(lua.APPLY, self._keys, *args, ids=ids, fsync=self._store.fsync) == 0
        self._store.applied(self._began, collided)
        if collided:
            raise WriteConflict

    def _arguments(self, write: WriteSet) -> list[bytes | str | int]:
        """The write set as the script reads it, in its order: what goes, then what comes. What comes and goes
        in the same set is settled here."""
        first = self.head.position + 1
        if [record.position for record in write.records] != list(range(first, first + len(write.records))):
            raise BadInput(f"records must follow the head without a gap, from position {first}")
        erased, dropped_blobs = set(write.erase), set(write.blob_drops)
        rows, drops = write.changes()
        stems = {space: _text(to_bytes(space)) for space in {version[0] for version in (*rows, *drops)}}
        blobs = {digest: content for digest, content in write.blobs.items() if digest not in dropped_blobs}
        counts = (write.leases, erased, drops, dropped_blobs, write.records, rows, blobs)
        # By the clock: when a crash loses the last writes, their revisions are not given out again.
        following = max(self._revision + 1, self.now)
        revision = _eight(following)
        args: list[bytes | str | int] = [self._revision, following, revision]
        meta = self.head.meta if write.meta is None else write.meta
        args += (int(GRACE_SECONDS * 1_000_000), meta, *map(len, counts))
        for lease in write.leases:
            args += (
                to_bytes(lease.name),
                to_bytes(lease.holder),
                lease.fence,
                int(lease.seconds * 1_000_000),
            )
        args += erased
        for space, key, position in drops:
            args.append(stems[space] + _text(key) + _eight(position))
        args += map(to_bytes, dropped_blobs)
        for record in write.records:
            body = None if record.position in erased else record.body
            run, member = b"", b""
            if record.run is not None:
                run = to_bytes(record.run)
                member = _text(run) + _eight(record.position)
            args += (record.position, to_bytes(record.id), record.created_at, record.header, record.hash)
            args += (run, member, int(body is not None), body or b"")
        for (space, key, position), value in rows.items():
            name = stems[space] + _text(key) + _eight(position)
            args += (name, name + revision + (b"\0" if value is None else b"\1" + value))
        for digest, content in blobs.items():
            args += (to_bytes(digest), revision + content)
        return args


class RedisStore(Store):
    """One opened book. Threads share its pool of connections; each wait has one of its own."""

    def __init__(self, server: _Server, book: str, facts: Facts, fsync: bool) -> None:
        self.server = server
        self.keys = lua.Keys.of(book)
        self.facts = facts
        self.fsync = fsync
        self._book = book
        self._news = threading.Lock()
        self._waiting = 0
        self._wakes = 0
        self._wake_key = self.keys.head.removesuffix(b"head") + b"wake:" + secrets.token_hex(8).encode()
        self._long_key = self.keys.turn + b":long"
        self._crowded_until = self._needs = 0.0

    def _head(self, reply: list[bytes | None]) -> tuple[Head, int]:
        layout, revision, position, hash, created_at, meta = reply
        if layout is None or revision is None:
            raise BookNotFound(f"the book {self._book!r} was dropped from {self.server.where}; open it again")
        if int(layout) > LAYOUT:
            raise BookTooNew(
                f"the book has layout {int(layout)}, this library knows {LAYOUT}; upgrade commonplace"
            )
        return Head(int(position or 0), hash or GENESIS, int(created_at or 0), meta or b""), int(revision)

    @property
    def _ask_head(self) -> Command:
        return ("HMGET", self.keys.head, "layout", "rev", "pos", "hash", "at", "meta")

    @contextmanager
    def read(self, at_least: int = 0, timeout: float | None = None) -> Iterator[Reads]:
        head, revision = self._head(self.server.read(self._ask_head)[0])
        if head.position < at_least:
            self.reach(at_least, self.within(timeout))
            head, revision = self._head(self.server.read(self._ask_head)[0])
        yield RedisReads(self, head, revision)

    @contextmanager
    def begin(self, timeout: float | None = None) -> Iterator[Tx]:
        """A transaction; it never waits for a lock. But writers that keep colliding waste their work, and the
        unlucky starve, so one that has collided lately first waits for its turn: a token in a list, which the
        server hands out in the order of asking and every apply puts back. It is only a hint. If a token dies
        with its holder, a writer that has waited long enough goes ahead without, and its apply puts back a new one;
        one too many is lost in the collision that it causes. A writer that needs longer than others wait says so, once
        it has its turn: else it would collide for ever."""
        deadline = time.monotonic() + self.within(timeout)
        crowded, granted = time.monotonic() < self._crowded_until, list[Any]()
        while True:
            left = deadline - time.monotonic()
            turn: list[Command] = []
            if crowded:
                turn = [
                    ("BLPOP", self.keys.turn, max(0.01, min(left, TURN_SECONDS))),
                    ("PTTL", self._long_key),
                ]
            *granted, reply, clock = self.server.read(*turn, self._ask_head, ("TIME",))
            if not granted or granted[0] or granted[1] <= 0 or left <= TURN_SECONDS:
                break
        has_turn = bool(granted and granted[0])
        if has_turn and self._needs > TURN_SECONDS / 2:
            milliseconds = int(min(2 * self._needs, LONG_SECONDS) * 1000)
            self.server.read(("SET", self._long_key, "", "PX", milliseconds))
        head, revision = self._head(reply)
        now = int(clock[0]) * 1_000_000 + int(clock[1])
        tx = RedisTx(self, head, revision, now, has_turn)
        try:
            yield tx
        finally:
            if tx.has_turn:
                self._pass_turn()

    def _pass_turn(self) -> None:
        try:
            self.server.run(lua.PASS_TURN, self.keys, limit=GOODBYE_SECONDS)
        except (EngineUnavailable, BookClosed):
            pass  # nobody may wait for this turn any more, and those who do are not held up for long

    def applied(self, began: float, collided: bool) -> None:
        """Remember what became of the last try, and how long it took."""
        now = time.monotonic()
        self._needs = now - began if collided else 0.0
        if collided:
            self._crowded_until = now + 1.0

    def wait(self, after: int, timeout: float) -> int:
        self.server.lifetime.check()
        deadline = time.monotonic() + timeout
        with self._news:
            self._waiting += 1
            wakes = self._wakes
        try:
            position = self._position()
            while position <= after and wakes == self._wakes:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                block = max(1, int(min(left, SLICE_SECONDS) * 1000))
                # The woken are called by an entry in a stream of this store, so a call cannot come too early.
                streams = (self.keys.stream, self._wake_key, f"{max(after, 0)}-0", f"{wakes}-0")
                if self.server.read(("XREAD", "COUNT", 1, "BLOCK", block, "STREAMS", *streams))[0]:
                    position = max(position, self._position()) if wakes == self._wakes else position
        finally:
            with self._news:
                self._waiting -= 1
        return position

    def _position(self) -> int:
        (position,) = self.server.read(("HGET", self.keys.head, "pos"))
        return int(position or 0)

    def wake(self) -> None:
        self.server.lifetime.check()
        with self._news:
            self._wakes += 1
            wakes, waiting = self._wakes, self._waiting
        if waiting:
            try:
                self.server.read(
                    ("XADD", self._wake_key, "MAXLEN", 1, f"{wakes}-0", "w", ""),
                    ("PEXPIRE", self._wake_key, 60_000),
                    limit=GOODBYE_SECONDS,
                )
            except EngineUnavailable:
                pass  # a replica, or no server: each wait looks at the count by itself after its slice

    def lease(self, name: str, holder: str, seconds: float, fence: int = 0) -> Lease:
        asked = (to_bytes(name), to_bytes(holder), fence, int(seconds * 1_000_000))
        reply = self.server.run(lua.LEASE, self.keys, *asked)
        if not reply:
            raise BookNotFound(f"the book {self._book!r} was dropped from {self.server.where}; open it again")
        return _lease(name, reply)

    def drop_spaces(self, prefix: str) -> None:
        first = _escape(to_bytes(prefix))
        after = first.rstrip(b"\xff")  # the first bytes beyond all that begin with `first`
        high = b"(" + after[:-1] + bytes([after[-1] + 1]) if after else b"+"
        while self.server.run(lua.DROP_SPACES, self.keys, b"[" + first, high):
            pass

    def trim(self, space: str, horizon: int) -> int:
        part = _text(to_bytes(space))
        low, high = _span(part, b"", None)
        dropped = 0
        while low:
            low, gone = self.server.run(lua.TRIM, self.keys, low, high, _eight(horizon + 1), len(part))
            dropped += gone
        return dropped

    def files(self) -> list[Path]:
        """The server's folder, if it tells and lies on this host."""
        (reply,) = self.server.ask(("CONFIG", "GET", "dir"))
        folder = _setting(reply)
        return [Path(folder)] if folder and Path(folder).is_dir() else []

    def purge(self) -> PurgeReport:
        """Has the server write its append-only file and its snapshot anew. Both hold every book there, and
        the machine needs the disk space and memory that a rewrite takes."""
        persistence, replication, saves, keep = self.server.ask(
            ("INFO", "persistence"),
            ("INFO", "replication"),
            ("CONFIG", "GET", "save"),
            ("CONFIG", "GET", "aof-disable-auto-gc"),
        )
        while self.server.run(lua.SWEEP, self.keys):
            pass
        state = _info(persistence)
        done: list[str] = []
        remaining: list[str] = []
        if not state:
            remaining.append(
                "the server does not tell its state (INFO): its operator must run BGREWRITEAOF and BGSAVE"
            )
        if state.get("aof_enabled") == "1":
            problem = self._rewrite("BGREWRITEAOF", "aof_last_bgrewrite_status")
            (remaining if problem else done).append(problem or "the append-only file was rewritten")
            if _setting(keep) == "yes":
                remaining.append("aof-disable-auto-gc is yes: the files before the rewrite are kept")
        # A load counts only without an AOF, which may begin with an RDB of its own.
        loaded = state.get("aof_enabled") == "0" and state.get("rdb_last_load_keys_loaded", "0") != "0"
        saved = loaded or state.get("rdb_last_bgsave_time_sec", "-1") != "-1"
        if state and (_setting(saves) or saved):
            problem = self._rewrite("BGSAVE", "rdb_last_bgsave_status")
            (remaining if problem else done).append(problem or "the snapshot (RDB) was written anew")
        elif state and _setting(saves) is None:
            remaining.append("CONFIG is not allowed: if the server writes snapshots (RDB), run BGSAVE on it")
        replicas = _info(replication).get("connected_slaves", "0")
        if replicas != "0":
            remaining.append(
                f"{replicas} replica(s) have files of their own: run BGREWRITEAOF and BGSAVE there"
            )
        if not done and not remaining:
            done.append("nothing to do: this server keeps no files")
        return PurgeReport(tuple(done), tuple(remaining))

    def _rewrite(self, command: str, status: str) -> str | None:
        """Start this background job after the one that may be running, which began before the erasure, and
        see it end. Answers with what went wrong."""
        deadline = time.monotonic() + PURGE_SECONDS
        started = False
        while time.monotonic() < deadline:
            state = _info(self.server.read(("INFO", "persistence"))[0])
            if not any(
                state.get(f"{job}_{end}", "0") == "1"
                for job in ("rdb_bgsave", "aof_rewrite")
                for end in ("in_progress", "scheduled")
            ):
                if started:
                    return (
                        None if state.get(status) == "ok" else f"{command} failed on the server; see its log"
                    )
                (reply,) = self.server.ask((command,))
                if isinstance(reply, redis.RedisError) and "in progress" not in str(reply):
                    return f"{command} was refused ({reply}): its operator must run it"
                started = not isinstance(reply, redis.RedisError)
            time.sleep(0.02)
        return f"{command} did not end within {PURGE_SECONDS:g} s; purge again later"

    def close(self) -> None:
        if not self.server.lifetime.ended:
            self.wake()
            self.server.close()


class RedisEngine(Engine):
    """The books of one database of one server, by a redis://, rediss:// or unix:// URL."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._server = _Server(url)

    @property
    def timeout(self) -> float:
        return self._server.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._server.timeout = seconds

    def open(self, book: str, create: bool) -> Store:
        self._server.lifetime.check()
        server = _Server(self._url, self.timeout)
        try:
            facts, fsync = _survey(server)
            if create:
                self._enlist(server, book)
            words = (int(create), to_bytes(book), LAYOUT, GENESIS, *lua.Keys())
            state, *more = server.run(lua.OPEN, lua.Keys.of(book), *words, fsync=fsync and create)
            self._admit(book, state, more)
        except BaseException:
            server.close()
            raise
        store = RedisStore(server, book, facts, fsync)
        store.timeout = self.timeout
        return store

    @staticmethod
    def _enlist(server: _Server, book: str) -> None:
        """Before the book is made: a name without a book is passed over by `books`, a book without a name
        would be lost to it. Nothing is written for a book that is there, so a replica can open it."""
        (listed,) = server.read(("SISMEMBER", BOOKS, to_bytes(book)))
        if not listed:
            server.read(("SADD", BOOKS, to_bytes(book)))

    def _admit(self, book: str, state: bytes, more: list[Any]) -> None:
        where = self._server.where
        if state == b"absent":
            raise BookNotFound(f"there is no book named {book!r} at {where}; open it with create=True")
        if state == b"foreign":
            raise NotABook(
                f"{where} holds something else under the key {to_text(more[0])}; use another database"
            )
        if state == b"newer":
            raise BookTooNew(
                f"the book has layout {int(more[0])}, this library knows {LAYOUT}; upgrade commonplace"
            )
        if state == b"there" and not int(more[0]) == more[1] == more[2]:
            raise Corrupt(
                f"the head of {book!r} counts {int(more[0])} events, there are {more[1]}, and {more[2]} ids: "
                f"the server lost some (is maxmemory-policy noeviction?); restore the book from a copy"
            )

    def books(self) -> list[str]:
        (names,) = self._server.read(("SMEMBERS", BOOKS))
        there = (
            self._server.ask(*(("HGET", lua.Keys.of(to_text(name)).head, "name") for name in names))
            if names
            else []
        )
        return sorted(to_text(name) for name, stored in zip(names, there, strict=True) if stored == name)

    def drop(self, book: str) -> None:
        _, fsync = _survey(self._server)
        self._server.run(lua.DROP, lua.Keys.of(book), to_bytes(book), fsync=fsync)
        self._server.read(("SREM", BOOKS, to_bytes(book)))

    def close(self) -> None:
        self._server.close()
