"""What the suite runs outside the test itself: made-up records, patient writers, and whole processes.

Processes are spawned, and import this module instead of the suite so that they start without pytest.
"""

from __future__ import annotations

import base64
import hashlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeAlias

from ..engines.contract import Engine, Head, Record, Row, Store, WriteConflict, WriteSet

MakeEngine: TypeAlias = Callable[[], Engine]

WHEN = 4_102_444_800_000_001
"""A moment in the year 2100, in microseconds: too large for 32 bits, or for a float of 32 bits."""


def record(
    position: int, id: str | None = None, run: str | None = None, body: bytes | None = b"body"
) -> Record:
    """A record whose every field can be told from those of its neighbours."""
    name = f"id-{position}" if id is None else id
    return Record(
        position=position,
        id=name,
        run=run,
        created_at=WHEN + position,
        header=b"header\x00\xff" + str(position).encode(),
        hash=hashlib.sha256(name.encode()).digest(),
        body=body,
    )


def commit(store: Store, plan: Callable[[Head], WriteSet], timeout: float = 30.0) -> Head:
    """Apply what `plan` makes of the head, again after each WriteConflict; answer with the head it was built on."""
    while True:
        with store.begin(timeout) as tx:
            head = tx.head
            write = plan(head)
            try:
                tx.apply(write)
            except WriteConflict:
                continue
        return head


def append(store: Store, ids: Sequence[str], run: str | None = None, body: bytes = b"body") -> list[Record]:
    """Commit one record for each id, in one write set, at whatever the head is by then."""
    written: list[Record] = []

    def plan(head: Head) -> WriteSet:
        written[:] = [record(head.position + i, id, run, body) for i, id in enumerate(ids, start=1)]
        return WriteSet(records=list(written))

    commit(store, plan)
    return written


def burst(
    make_engine: MakeEngine, book: str, writer: str, rounds: int, together: Barrier, say: Connection
) -> None:
    """One of several writing processes: `rounds` commits of one to three records each; reports what it wrote,
    or what went wrong."""
    wrote: list[tuple[int, str]] = []
    try:
        engine = make_engine()
        store = engine.open(book, create=False)
        together.wait(60)
        for n in range(rounds):
            mine = append(store, [f"{writer}/{n}/{part}" for part in range(1 + n % 3)], run=writer)
            with store.read(at_least=mine[-1].position) as reads:
                seen = reads.by_id([each.id for each in mine])
            assert seen == {each.id: each for each in mine}, "cannot read back what it committed"
            wrote += [(each.position, each.id) for each in mine]
        store.close()
        engine.close()
    except Exception as error:  # noqa: BLE001  reported to the test, which fails with it
        say.send(f"{writer} failed: {error!r}")
    else:
        say.send(wrote)
    say.close()


def whole(head: Head) -> WriteSet:
    """A write set that touches everything, three records long, so that a torn one shows: after n of them the
    head is at 3n, meta says n, and row, blob and records n are there."""
    n = head.position // 3 + 1
    return WriteSet(
        records=[record(head.position + i) for i in (1, 2, 3)],
        rows=[Row("torn", str(n % 5).encode(), head.position + 3, str(n).encode())],
        blobs={hashlib.sha256(str(n).encode()).hexdigest(): str(n).encode()},
        meta=str(n).encode(),
    )


def write_until_killed(make_engine: MakeEngine, book: str) -> None:
    """Commit one whole write set after another until somebody kills this process, or its parent is gone."""
    store = make_engine().open(book, create=False)
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        commit(store, whole)


def die_after_apply(make_engine: MakeEngine, book: str) -> None:
    """Commit, and die by kill -9 before the transaction is even left."""
    with make_engine().open(book, create=False).begin() as tx:
        tx.apply(whole(tx.head))
        os.kill(os.getpid(), signal.SIGKILL)


def die_before_apply(make_engine: MakeEngine, book: str) -> None:
    """Begin, read, and die by kill -9 without having applied anything."""
    with make_engine().open(book, create=False).begin() as tx:
        tx.records(0, tx.head.position, 10)
        os.kill(os.getpid(), signal.SIGKILL)


def hold(make_engine: MakeEngine, book: str, say: Connection) -> None:
    """Begin a transaction, say so, and keep it open until told to go on."""
    store = make_engine().open(book, create=False)
    with store.begin():
        say.send("holding")
        say.recv()
    store.close()


def look_for(folder: Path, secret: bytes, say: Connection) -> None:
    """Report the files below `folder` that hold `secret` as it is, in hexadecimal or in base64."""
    forms = [secret, secret.hex().encode(), secret.hex().upper().encode()]
    for shift in range(3):
        # In base64 the bytes before the secret decide how it is cut up; its ends mix with its neighbours.
        encoded = base64.b64encode(bytes(shift) + secret)
        forms.append(encoded[4:-4] if shift else encoded[:-4])
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            try:
                content = path.read_bytes()
            except FileNotFoundError:  # a server's own files come and go
                continue
            if any(form in content for form in forms):
                found.append(str(path.relative_to(folder)))
    say.send(found)
    say.close()
