"""Appends on PostgreSQL and Redis, beside one raw insert a transaction on the same server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import psycopg
import redis

import commonplace
from commonplace.testing import postgres_server, valkey_server

from .appends import BODY, in_processes, our_writer
from .measure import PAYLOAD, Figure, by_turns, median, microseconds, percentile


def postgres(scale: float) -> Iterator[Figure]:
    with postgres_server() as server, commonplace.open(server.url, name="bench") as book:
        with psycopg.connect(server.url) as raw:
            raw.execute("CREATE TABLE raw_events (position bigserial PRIMARY KEY, body bytea)")
            raw.commit()

            def append(_: int) -> None:
                raw.execute("INSERT INTO raw_events (body) VALUES (%s)", (BODY,))
                raw.commit()

            times = by_turns(
                {
                    "raw": append,
                    "ours": lambda _: book.record("agent.spoke", payload=PAYLOAD, run_id="r1"),
                },
                count=max(20, int(200 * scale)),
            )
    peer, ours = median(times["raw"]), median(times["ours"])
    yield Figure(
        "append, 1 writer, PostgreSQL", peer, ours, "µs", peer / ours, "", note="raw: INSERT and COMMIT"
    )


def raw_writer(url: str, count: int, barrier: threading.Barrier, out: Connection) -> None:
    """The least that gives events positions in commit order: a head row that each transaction moves."""
    with psycopg.connect(url, autocommit=True) as raw:

        def append(_: int) -> None:
            with raw.transaction():
                position = raw.execute(
                    "UPDATE raw_head SET position = position + 1 RETURNING position"
                ).fetchone()
                assert position is not None
                raw.execute("INSERT INTO raw_events VALUES (%s, %s)", (position[0], BODY))

        append(0)
        barrier.wait()
        out.send(microseconds(append, 0, count))


def postgres_processes(scale: float) -> Iterator[Figure]:
    count = max(20, int(150 * scale))
    with postgres_server() as server:
        with psycopg.connect(server.url) as raw:
            raw.execute("CREATE TABLE raw_events (position bigint PRIMARY KEY, body bytea)")
            raw.execute("CREATE TABLE raw_head (position bigint)")
            raw.execute("INSERT INTO raw_head VALUES (0)")
        commonplace.open(server.url).close()
        peers, peer_rate = in_processes(raw_writer, server.url, count)
        ours, rate = in_processes(our_writer, server.url, count)
    yield Figure(
        "append, 8 processes, PostgreSQL: events a second", peer_rate, rate, "", rate / peer_rate, "",
        note="raw: UPDATE of a head row, INSERT, COMMIT",
    )  # fmt: skip
    peer, own = percentile(peers, 0.99), percentile(ours, 0.99)
    yield Figure("append, 8 processes, PostgreSQL: p99", peer, own, "µs", own / peer, "")


def valkey(scale: float) -> Iterator[Figure]:
    with valkey_server() as server, commonplace.open(server.url, name="bench") as book:
        raw = redis.Redis.from_url(server.url)
        times = by_turns(
            {
                "raw": lambda _: raw.xadd("raw_events", {"body": BODY}),
                "ours": lambda _: book.record("agent.spoke", payload=PAYLOAD, run_id="r1"),
            },
            count=max(20, int(200 * scale)),
        )
        raw.close()
    peer, ours = median(times["raw"]), median(times["ours"])
    yield Figure(
        "append, 1 writer, Valkey", peer, ours, "µs", peer / ours, "", note="raw: XADD, fsync always"
    )
