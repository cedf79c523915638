"""How values and statements go to PostgreSQL.

The driver looks at every element of an array to find its type, and sends it as text; here arrays are of one type each,
and go as the server stores them. And what nearly every commit is, one statement of many parameters, is prepared and run
by libpq's own calls: the driver's way there takes longer than the server needs for it.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, LiteralString, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.adapt import Dumper
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper

LIMIT = 32.0
"""How many seconds one trip to the server may take unless a connection says otherwise: a little more than the longest
wait for a lock that it is asked for."""

T = TypeVar("T")

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Connection(psycopg.Connection[TupleRow]):
    """A connection on which no trip takes longer than `limit` seconds.

    libpq has no such limit. A server that has stopped, or a firewall that drops what it says, looks like one that still
    works on the answer, and as long as its kernel acknowledges what is sent, TCP notices nothing either. So when the
    time is up the socket is shut down here, and what follows is what follows a lost connection.
    """

    limit: float = LIMIT
    pooled: bool = True
    """Whether it goes back to a pool."""

    def wait(self, gen: PQGen[T], *args: Any, **more: Any) -> T:
        limit, silent = self.limit, False

        def watched() -> PQGen[T]:
            nonlocal silent
            until, ready = time.monotonic() + limit, None
            while True:
                try:
                    state = gen.send(ready)  # type: ignore[arg-type]
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                ready = yield state
                if not silent and time.monotonic() > until:
                    silent = True
                    self.shut()

        try:
            return super().wait(watched(), *args, **more)
        except psycopg.OperationalError as error:
            if silent:
                raise psycopg.OperationalError(f"the server has not answered for {limit:g} s") from error
            raise

    def shut(self) -> None:
        """End whatever waits on this connection, in any thread: it sees a lost connection."""
        with (
            suppress(OSError, psycopg.Error),  # it is closed already
            socket.socket(fileno=os.dup(self.fileno())) as same,
        ):
            same.shutdown(socket.SHUT_RDWR)


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def to_text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


class Bytes(list[bytes | None]):
    """An array of bytea."""


class Numbers(list[int]):
    """An array of bigint."""


class Reals(list[float]):
    """An array of double precision."""


def _array(element: int, items: list[bytes | None]) -> bytes:
    """A one-dimensional array as PostgreSQL sends it: how many dimensions, whether some are null, the type of its
    elements, how many from where on, then each with its length."""
    start = struct.pack("!5i", 1, None in items, element, len(items), 1)
    return start + b"".join(
        [b"\xff\xff\xff\xff" if item is None else len(item).to_bytes(4) + item for item in items]
    )


BIGINT, BYTEA, TEXT, FLOAT8 = 20, 17, 25, 701
ARRAYS = {BYTEA: 1001, BIGINT: 1016, FLOAT8: 1022}
"""The numbers by which the server knows types, and arrays of them."""


def _sent(value: Any) -> tuple[int, bytes | None]:
    """A value with its type, as it is sent."""
    if type(value) is int:
        return BIGINT, value.to_bytes(8, signed=True)
    if type(value) is Bytes:
        return ARRAYS[BYTEA], _array(BYTEA, value)
    if type(value) is Numbers:
        return ARRAYS[BIGINT], _array(BIGINT, [one.to_bytes(8, signed=True) for one in value])
    if type(value) is Reals:
        return ARRAYS[FLOAT8], _array(FLOAT8, [struct.pack("!d", one) for one in value])
    if type(value) is str:
        return TEXT, value.encode()
    return BYTEA, value


class _Dumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes | None:
        return _sent(obj)[1]


class _BytesDumper(_Dumper):
    oid = ARRAYS[BYTEA]


class _NumbersDumper(_Dumper):
    oid = ARRAYS[BIGINT]


class _RealsDumper(_Dumper):
    oid = ARRAYS[FLOAT8]


def adapt(conn: Connection) -> None:
    """Let the driver send values the same way, one type for all numbers: one prepared statement each."""
    conn.adapters.register_dumper(int, Int8BinaryDumper)
    conn.adapters.register_dumper(Bytes, _BytesDumper)
    conn.adapters.register_dumper(Numbers, _NumbersDumper)
    conn.adapters.register_dumper(Reals, _RealsDumper)


_prepared: WeakKeyDictionary[Connection, dict[str, tuple[bytes, list[str]]]] = WeakKeyDictionary()
"""Of each connection, under which names statements are prepared, with the names of their parameters in their order."""


def run_prepared(conn: Connection, query: LiteralString, values: Mapping[str, Any]) -> list[int]:
    """Run a statement that answers with one row of numbers, prepared when a connection first runs it. What it raises is
    the driver's error for what the server said."""
    known = _prepared.setdefault(conn, {})
    name = b"direct_%d" % len(known)
    if query in known:
        name, names = known[query]
        try:
            return _run(conn, name, names, values)
        except InvalidSqlStatementName:
            pass  # nothing has happened: the driver has let the server forget all that was prepared
    known[query] = _prepare(conn, name, query, values)
    return _run(conn, *known[query], values)


def _prepare(conn: Connection, name: bytes, query: str, values: Mapping[str, Any]) -> tuple[bytes, list[str]]:
    names = list(dict.fromkeys(_PARAMETER.findall(query)))
    numbered = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", query)
    conn.pgconn.send_prepare(name, numbered.encode(), [_sent(values[one])[0] for one in names])
    _ended(conn, ExecStatus.COMMAND_OK)
    return name, names


def _run(conn: Connection, name: bytes, names: list[str], values: Mapping[str, Any]) -> list[int]:
    sent = [_sent(values[one])[1] for one in names]
    conn.pgconn.send_query_prepared(name, sent, [Format.BINARY] * len(sent), Format.BINARY)
    row = _ended(conn, ExecStatus.TUPLES_OK)
    return [int.from_bytes(row.get_value(0, n) or b"", signed=True) for n in range(row.nfields)]


def _ended(conn: Connection, wanted: ExecStatus) -> PGresult:
    result: PGresult = conn.wait(generators.execute(conn.pgconn))[-1]
    if result.status != wanted:
        raise error_from_result(result)
    return result
