"""Purging on PostgreSQL: what was erased leaves the tables' files and the server's log, as far as the role may."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from . import postgres_sql as q
from .contract import PurgeReport

_Connection = psycopg.Connection[TupleRow]

WAL_ROUNDS = 256
"""Segments of the server's log that a purge will write over before it gives up."""


def purge(conn: _Connection) -> PurgeReport:
    """Do what the role may do, and name what is left."""

    def first_row(query: LiteralString, values: Any = None) -> TupleRow:
        row = conn.execute(query, values).fetchone()
        assert row is not None
        return row

    done: list[str] = []
    remaining: list[str] = []
    try:
        _rewrite_tables(conn, first_row, done, remaining)
    except psycopg.errors.InsufficientPrivilege as error:
        remaining.append(
            f"the tables were not rewritten ({error.diag.message_primary}): purge as their owner"
        )
    archive, statements, slow, followers = first_row(q.READ_COPIES)
    if followers:
        # Turning the log over would take from them what they have yet to read.
        remaining.append(
            f"{followers} standbys follow this server, so its write-ahead log and theirs may hold erased "
            "content: when they have caught up, turn it over there and here (pg_switch_wal, CHECKPOINT)"
        )
    else:
        try:
            _turn_log(conn, first_row, done, remaining)
        except psycopg.errors.InsufficientPrivilege as error:
            remaining.append(
                f"the server's write-ahead log may hold erased content ({error.diag.message_primary}): purge "
                "as a superuser, or grant this role pg_checkpoint, pg_monitor, EXECUTE on pg_switch_wal()"
            )
    if archive != "off":
        remaining.append("archived write-ahead log holds erased content: delete what was archived before now")
    if statements in ("mod", "all") or slow != "-1":
        remaining.append("the server's text log may quote what was written: delete it, or log less")
    return PurgeReport(tuple(done), tuple(remaining))


def _rewrite_tables(
    conn: _Connection, first_row: Callable[..., TupleRow], done: list[str], remaining: list[str]
) -> None:
    """VACUUM FULL leaves out what nobody can see any more; so look first who may still see it."""
    (xid,) = first_row(q.NEXT_XID)
    for pause in (0.1, 0.4, 1.5, 0):
        old, all_seen = first_row(q.OLD_SNAPSHOTS, {"xid": xid})
        if not old:
            break
        time.sleep(pause)
    if old:
        remaining.append(
            f"{old} transactions or replication slots from before this purge can still see erased content, "
            "so the tables may keep it: end them and purge again"
        )
    if not all_seen:
        remaining.append(
            "other roles' open transactions may make the tables keep erased content, and this role cannot "
            "see them: grant it pg_read_all_stats and purge again"
        )
    for table in q.TABLES:
        before = first_row(q.TABLE_FILE, (f"commonplace.{table}",))
        try:
            conn.execute(sql.SQL("VACUUM (FULL) {}").format(sql.Identifier("commonplace", table)))
        except psycopg.errors.LockNotAvailable:
            remaining.append(f"the table {table} was in use for too long to be rewritten: purge again")
            continue
        if first_row(q.TABLE_FILE, (f"commonplace.{table}",)) == before:
            remaining.append(f"the table {table} was not rewritten: purge as its owner")
        else:
            done.append(f"rewrote the table {table}")


def _turn_log(
    conn: _Connection, first_row: Callable[..., TupleRow], done: list[str], remaining: list[str]
) -> None:
    """Old segments are removed at a checkpoint, or renamed for reuse with their content. So go on to new
    segments, each filled up with zeros, until every file that was there has been removed or written over."""
    first_row(q.SWITCH_WAL)
    (first,) = first_row(q.CURRENT_WAL)
    conn.execute("CHECKPOINT")
    oldest, last = first_row(q.WAL_FILES)
    if oldest < first:
        remaining.append(
            "old segments of the write-ahead log are kept (by a replication slot, wal_keep_size or the "
            "archiver) and hold erased content: release them and purge again"
        )
    rounds = 0
    while first_row(q.CURRENT_WAL)[0] <= last and rounds < WAL_ROUNDS:
        first_row(q.NEXT_XID)
        first_row(q.SWITCH_WAL)
        rounds += 1
    conn.execute("CHECKPOINT")
    if first_row(q.CURRENT_WAL)[0] <= last:
        remaining.append(
            "segments kept for reuse may hold erased content: set wal_recycle = off, purge again"
        )
    done.append(f"turned over {rounds + 1} segments of the write-ahead log")
