"""Appends on PostgreSQL and Redis, beside one raw insert a transaction on the same server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import redis

import commonplace
from commonplace.testing import postgres_server, valkey_server

from .appends import BODY
from .measure import PAYLOAD, Figure, by_turns, median


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
