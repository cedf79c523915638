"""What spares processes that share a book on a server a trip there: each begins with what the one before it has left,
and is refused if that no longer holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import psycopg
import pytest

import commonplace
from commonplace.commit import RowCache
from commonplace.engines.contract import Head, Moved, Place, Row, Tx, WriteSet
from commonplace.engines.gate import Gate
from commonplace.engines.hope import ALONE, FORMAT, Found, clock, pack, unpack
from commonplace.engines.line import FRESH, MOST_HANDED, Line
from commonplace.engines.postgres import PostgresEngine, PostgresStore, PostgresTx
from commonplace.engines.postgres_wire import Bytes, Connection, Numbers, Reals, adapt, run_prepared
from commonplace.testing import Server
from commonplace.testing.workers import record

ROWS: dict[Place, Row | None] = {("s/1/", b"a"): Row("s/1/", b"a", 7, b"value"), ("s/1/", b"none"): None}


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.close()


def a_book(server: Server) -> str:
    """The URL of a new one."""
    return f"{server.url}{'&' if '?' in server.url else '?'}book=hope-{os.urandom(6).hex()}"


def all_at_once(*each: Callable[[], object]) -> None:
    threads = [threading.Thread(target=one) for one in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()


def baton(tmp_path: Path) -> Path:
    return tmp_path / "line" / "baton"


# what is left at a gate


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "company", True)


def test_whoever_comes_next_finds_what_was_handed_on(gate: Gate, tmp_path: Path, company: None) -> None:
    other = Gate(tmp_path / "gate")
    with gate.inside(5):
        assert gate.handed() == b""
        assert gate.hand_on(lambda: b"a longer thing")
        assert gate.hand_on(lambda: b"this")
    with other.inside(5):
        assert other.handed() == b"this"
    other.close()


def test_who_is_alone_leaves_nothing_and_misleads_nobody(gate: Gate) -> None:
    gate._line.hand_on(b"of before")
    assert not gate.hand_on(lambda: pytest.fail("nobody asks for it"))
    assert gate.handed() == b""


def test_who_waits_is_company_and_who_has_died_is_not(gate: Gate, tmp_path: Path) -> None:
    """It was killed while it waited, and nobody has taken its seat since."""
    waits = """
import sys
from pathlib import Path
from commonplace.engines.gate import Gate
Gate(Path(sys.argv[1])).enter(600, lambda: b"something")
"""
    with gate.inside(5):
        with subprocess.Popen([sys.executable, "-c", waits, str(tmp_path / "gate")]) as other:
            waited_for(lambda: gate._line.company)
            other.kill()
        time.sleep(2 * FRESH)
        assert not gate._line.company


@pytest.mark.parametrize("harm", ["cut", "changed", "emptied"])
def test_what_is_not_whole_is_not_taken(gate: Gate, tmp_path: Path, harm: str) -> None:
    """Somebody was killed while it wrote, or the disk was full."""
    gate._line.hand_on(b"something to go on with")
    whole = baton(tmp_path).read_bytes()
    harmed = {"cut": whole[:-1], "changed": whole[:-1] + b"H", "emptied": b""}[harm]
    baton(tmp_path).write_bytes(harmed)
    assert gate.handed() == b""


def test_what_was_left_before_the_machine_began_anew_is_not_taken(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate._line.hand_on(b"before")
    monkeypatch.setattr("commonplace.engines.line.boot_clock", lambda: ("another boot", 0))
    later = Gate(tmp_path / "gate")
    assert later.handed() == b""
    later.close()


def test_too_much_is_not_handed_on_and_what_was_there_goes(gate: Gate) -> None:
    gate._line.hand_on(b"!" * MOST_HANDED)
    assert len(gate.handed()) == MOST_HANDED
    gate._line.hand_on(b"?" * (MOST_HANDED + 1))
    assert gate.handed() == b""


def test_a_disk_that_fails_hinders_nobody(gate: Gate, monkeypatch: pytest.MonkeyPatch, company: None) -> None:
    def fails(*_: Any) -> Any:
        raise OSError("no such disk")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", fails)
        assert gate.hand_on(lambda: b"lost")
    assert gate.handed() == b""
    gate._line.hand_on(b"there")
    monkeypatch.setattr(os, "pread", fails)
    assert gate.handed() == b""


def test_a_disk_that_does_not_say_who_waits_hinders_nobody(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError("no such disk")

    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", fails)
        assert gate.hand_on(lambda: b"lost"), "nobody is known to be alone"


def test_sweeping_takes_it_away(gate: Gate, tmp_path: Path) -> None:
    gate._line.hand_on(b"hunter2")
    gate.sweep()
    assert gate.handed() == b""
    assert b"hunter2" not in baton(tmp_path).read_bytes()
    assert baton(tmp_path).stat().st_mode & 0o777 == 0o600


def test_where_nothing_was_handed_on_there_is_nothing_to_sweep(tmp_path: Path) -> None:
    """Somebody has even removed the folder."""
    with commonplace.open(tmp_path / "b.db") as book:
        book.record("agent.spoke")
        shutil.rmtree(tmp_path / "b.db-line")
        book.purge()
    assert not list(tmp_path.rglob("baton"))


def left(alone: int = ALONE, ago: float = 0.0) -> Found:
    return Found(Head(7, b"hash", 5, b"meta"), 99, 1_000_000, clock() - ago, alone)


def test_it_is_read_as_it_was_written() -> None:
    found = left()
    last = unpack(pack(found, 3, ROWS))
    assert last is not None
    assert (last.found, last.run, last.brought) == (found, 3, ROWS)
    assert list(last.brought) == list(ROWS), "the order says what was used last"


def test_what_cannot_be_read_is_nothing() -> None:
    for said in (b"", b"\x00", b"\x94nonsense", pack(left(), 0, {})[:-1]):
        assert unpack(said) is None


def test_what_another_version_says_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commonplace.engines.hope.FORMAT", FORMAT + 1)
    later = pack(left(), 0, ROWS)
    monkeypatch.undo()
    assert unpack(later) is None


@pytest.mark.parametrize(
    ("alone", "ago", "hopeful"),
    [(ALONE, 0.0, True), (ALONE - 1, 0.0, False), (ALONE, 2.0, False), (ALONE, -2.0, False)],
)
def test_there_is_hope_while_nobody_else_seems_to_write(alone: int, ago: float, hopeful: bool) -> None:
    assert left(alone, ago).hopeful is hopeful
    last = unpack(pack(left(0, ago), alone, {}))
    assert last is not None
    assert last.hopeful is hopeful


# two processes of a host, and one of another


class Hosts:
    """Three stores of one book: two that meet at a gate, and one that is elsewhere."""

    def __init__(self, engine: PostgresEngine, book: str) -> None:
        self.here, self.there, self.far = (engine.open(book, create=True) for _ in range(3))
        assert isinstance(self.far, PostgresStore)
        self.far._met = lambda: None  # type: ignore[method-assign]

    def write(self, store: Any, begin: Callable[[], Any] | None = None) -> PostgresTx:
        """One event and one row, and word of both to whoever comes next."""
        with (begin or store.attempt)() as tx:
            assert isinstance(tx, PostgresTx)
            position = tx.head.position + 1
            row = Row("s/1/", b"k", position, b"%d" % position)
            tx.apply(WriteSet(records=[record(position)], rows=[row]))
            tx.hand_on(lambda: {("s/1/", b"k"): row, ("s/1/", b"none"): None})
        return tx

    def warm_up(self) -> None:
        for _ in range(ALONE):
            self.write(self.here)
            self.write(self.there)


@pytest.fixture
def hosts(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(Line, "company", True)
    monkeypatch.setattr("commonplace.engines.hope.FRESH", 600.0)  # however slow the machine is
    engine = PostgresEngine(postgres.url)
    hosts = Hosts(engine, f"hope-{os.urandom(6).hex()}")
    yield hosts
    for store in (hosts.here, hosts.there, hosts.far):
        store.close()
    engine.close()


def hopes(tx: Tx) -> bool:
    assert isinstance(tx, PostgresTx)
    return tx._hopes


def test_whoever_comes_next_begins_with_what_the_one_before_has_written(hosts: Hosts) -> None:
    first = hosts.write(hosts.here)
    assert not hopes(first), "nobody knows yet whether somebody else writes"
    hosts.warm_up()
    last = hosts.write(hosts.here)
    with hosts.there.attempt() as tx:
        assert hopes(tx)
        assert tx.head.position == last.head.position + 1
        value = b"%d" % tx.head.position
        assert tx.brought == {
            ("s/1/", b"k"): Row("s/1/", b"k", tx.head.position, value),
            ("s/1/", b"none"): None,
        }
        assert tx.get("s/1/", [b"k"])[b"k"].value == value
        tx.confirm()


def test_if_somebody_elsewhere_has_written_nothing_of_it_is_taken(hosts: Hosts) -> None:
    hosts.warm_up()
    elsewhere = hosts.write(hosts.far)
    assert not hopes(elsewhere)
    with pytest.raises(Moved):
        hosts.write(hosts.here)
    with pytest.raises(Moved), hosts.there.attempt() as tx:
        tx.confirm()
    found = hosts.write(hosts.here, hosts.here.begin)
    assert not hopes(found)
    assert found.head.position == elsewhere.head.position + 1
    assert not hopes(hosts.write(hosts.there)), "hope comes back slowly"
    hosts.warm_up()
    assert hopes(hosts.write(hosts.there))


def test_who_was_promised_something_takes_the_lock(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has promised it may be dead, and its write still be on its way: only the lock tells."""
    hosts.warm_up()
    monkeypatch.setattr(Gate, "_wait", lambda *_: b"a promise")
    with hosts.there.attempt() as tx:
        assert not hopes(tx)
        tx.forget_promise()


def test_who_has_company_does_not_go_by_the_gate(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could do nothing for those who wait there."""
    entered = Counter[Gate]()
    enter = Gate.enter

    def counted(self: Gate, *how: Any) -> None:
        entered[self] += 1
        enter(self, *how)

    hosts.write(hosts.here)  # from here on it knows the server, and where to meet
    monkeypatch.setattr(Gate, "enter", counted)
    for _ in range(3 * ALONE):
        hosts.write(hosts.here)
    assert entered.total() == 3 * ALONE
    monkeypatch.setattr(Line, "company", False)
    for _ in range(3 * ALONE):
        hosts.write(hosts.here)
    assert entered.total() < 5 * ALONE, "who is alone goes by it, and nobody was misled by what lay there"


def test_a_connection_that_was_idle_is_tried_first(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been lost without a word: then a trip that can be made again is better than a write that cannot."""
    hosts.warm_up()
    hosts.write(hosts.here)
    assert isinstance(hosts.there, PostgresStore)
    hosts.there._used.update(dict.fromkeys(hosts.there._used, -700.0))
    assert not hopes(hosts.write(hosts.there))
    assert hopes(hosts.write(hosts.here))


def test_large_rows_are_left_where_they_are(hosts: Hosts) -> None:
    known = RowCache()
    rows = {
        ("s/1/", b"%d" % n): Row("s/1/", b"%d" % n, 1, b"!" * (10 if n % 2 else 50_000)) for n in range(200)
    }
    known.bring(rows)
    found = known.recent()
    assert list(found) == [place for n, place in enumerate(rows) if n % 2][: len(found)]
    assert len(found) == RowCache.HANDED // 2


def test_statements_are_prepared_anew_when_the_server_has_forgotten_them(postgres: Server) -> None:
    """The driver does so after some errors, with all that a connection has prepared."""
    add, take = "SELECT %(a)s + %(b)s, %(a)s::bigint", "SELECT %(a)s - %(b)s"
    with Connection.connect(postgres.url, autocommit=True) as conn:
        for order in ((add, take), (take, add), (add, take)):
            for query in order:
                found = run_prepared(conn, query, {"a": 7, "b": 9})
                assert found == ([16, 7] if query is add else [-2])
            conn.execute("DEALLOCATE ALL")
        with pytest.raises(psycopg.errors.DivisionByZero):
            run_prepared(conn, "SELECT %(a)s / %(b)s", {"a": 1, "b": 0})
        assert run_prepared(conn, "SELECT %(a)s / %(b)s", {"a": 8, "b": 2}) == [4]


def test_values_arrive_as_they_are(postgres: Server) -> None:
    sent = {
        "bytes": Bytes([b"a\0\xff", None, b""]),
        "numbers": Numbers([-(2**63), 0, 2**63 - 1]),
        "reals": Reals([0.1, -1e300]),
        "number": -5,
        "raw": b"\0\xff",
        "none": None,
        "text": "\u00fc",
    }
    same = """
        SELECT (%(bytes)s::bytea[] IS NOT DISTINCT FROM '{"\\\\x6100ff",NULL,"\\\\x"}'::bytea[])::int,
            (%(numbers)s::bigint[] = '{-9223372036854775808,0,9223372036854775807}'::bigint[])::int,
            (%(reals)s::float8[] = '{0.1,-1e300}'::float8[])::int, (%(number)s = -5)::int,
            (%(raw)s = '\\x00ff'::bytea)::int, (%(none)s::bytea IS NULL)::int, (%(text)s = U&'\\00fc')::int
    """
    with Connection.connect(postgres.url, autocommit=True) as conn:
        assert run_prepared(conn, same, sent) == [1] * 7
        adapt(conn)
        with conn.cursor(binary=True) as cursor:
            assert cursor.execute(same, sent).fetchone() == (1,) * 7, "the driver sends them alike"


# whole books


def test_purge_reaches_what_was_handed_on_anywhere(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """L10: also at the gate of another role, or of the server before it was restarted."""
    monkeypatch.setattr(Line, "company", True)
    url = a_book(postgres)
    with commonplace.open(url) as book:
        work = book.work(name="w")
        task = work.add_task("the word is hunter2")
        work.claim("dev-1")
        store = book._ledger.store
        assert isinstance(store, PostgresStore)
        old, store._server = store._met(), ("as it was before",)
        assert old is not None
        assert b"hunter2" in (old.folder / "baton").read_bytes()
        assert store._met() is not old
        for event in list(book.events()):
            if "hunter2" in str(event.payload):
                book.erase(event.id)
        assert not [line for line in book.purge().remaining if "swept" in line]
        assert b"hunter2" not in (old.folder / "baton").read_bytes()
        assert work.task(task.id).info().title == ""


def test_books_that_meet_at_a_gate_spare_trips_and_lose_nothing(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.2: what many write at once is one history, and each task has one holder."""
    monkeypatch.setattr("commonplace.engines.hope.FRESH", 600.0)
    begun, begins = Counter[bool](), PostgresTx.__init__

    def counted(self: PostgresTx, *how: Any) -> None:
        begins(self, *how)
        begun[self._hopes and self.brought != {}] += 1

    monkeypatch.setattr(PostgresTx, "__init__", counted)
    url = a_book(postgres)
    books = [commonplace.open(url) for _ in range(4)]
    work = books[0].work(name="w")
    work.add_tasks([{"title": f"t{n}"} for n in range(240)])
    claimed, completed = list[str](), list[str]()

    def worker(book: commonplace.Book, agent: str) -> None:
        theirs = book.work(id=work.id)
        while (claim := theirs.claim(agent)) is not None:
            claimed.append(claim.task.id)
            completed.append(claim.complete("done").id)

    all_at_once(*(partial(worker, book, f"dev-{n}") for n, book in enumerate(books)))
    assert Counter(claimed) == Counter(completed) == Counter(task.id for task in work.tasks())
    assert begun[True] > begun[False], "most began with what another had written"
    assert books[0].verify().ok
    before = [(task, work.task(task.id).info()) for task in work.tasks()]
    books[1].rebuild()
    assert before == [(task, work.task(task.id).info()) for task in work.tasks()], (
        "views are as they would be made anew"
    )
    for book in books:
        book.close()


def test_what_is_handed_on_is_what_the_server_holds(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While tasks are claimed, completed and failed, events erased and views made anew."""
    monkeypatch.setattr(Line, "company", True)
    wrong, looked_at, hands_on = list[Any](), Counter[str](), PostgresTx.hand_on

    def compared(self: PostgresTx, known: Callable[[], dict[Place, Row | None]]) -> None:
        rows, ledger = known(), books[0]._ledger
        with self._store.read() as reads:  # nobody else is inside before this one has left
            assert reads.head.position == self._store.left.head.position  # type: ignore[union-attr]
            meta, stored = ledger.meta_of(reads.head), reads.get_all(rows)
        now = {
            meta.space(view) for view in ledger.registry.views.values()
        }  # those of before nobody reads any more
        held = {place: None if row is None or row.value is None else row for place, row in rows.items()}
        wrong.extend(
            (place, row) for place, row in held.items() if place[0] in now and stored.get(place) != row
        )
        looked_at.update(space for space, _ in rows)
        hands_on(self, known)

    url = a_book(postgres)
    books = [commonplace.open(url) for _ in range(4)]
    monkeypatch.setattr(PostgresTx, "hand_on", compared)
    work = books[0].work(name="w", on_failure={"policy": "retry", "retries": 1, "backoff": 0.0})
    work.add_tasks([{"title": f"t{n}", "priority": n % 3} for n in range(90)])

    def worker(book: commonplace.Book, agent: str) -> None:
        theirs, count = book.work(id=work.id), 0
        while (claim := theirs.claim(agent)) is not None:
            count += 1
            if count % 7 == 3:
                claim.fail("not today")
            else:
                claim.complete("done")

    def meddler(book: commonplace.Book) -> None:
        for n in range(3):
            book.erase(book.record("agent.spoke", payload={"n": n}).id)
            book.rebuild()

    workers = (partial(worker, book, f"dev-{n}") for n, book in enumerate(books[1:]))
    all_at_once(*workers, partial(meddler, books[0]))
    assert wrong == []
    assert {space.partition("/")[0] for space in looked_at} >= {"work.tasks", "work.counts"}
    assert books[0].verify().ok
    for book in books:
        book.close()


def test_what_was_known_before_the_books_record_changed_is_not_handed_on(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit raises the horizon and adds a task, and whoever comes next adds another one."""
    monkeypatch.setattr(Line, "company", True)
    monkeypatch.setattr("commonplace.engines.hope.FRESH", 600.0)
    url = a_book(postgres)
    with commonplace.open(url) as one, commonplace.open(url) as two:
        first = one.work(name="w")
        second = two.work(id=first.id)
        for _ in range(ALONE):
            first.add_task("a task")
            second.add_task("a task")
        store = one._ledger.store
        assert isinstance(store, PostgresStore)
        committer, gate = one._ledger._committer, store._met()
        assert gate is not None
        door = Gate(gate.path)
        with door.inside(5):
            raising = threading.Thread(target=lambda: one._ledger.raise_horizon(5))
            raising.start()
            waited_for(lambda: committer._leading)
            adding = threading.Thread(target=lambda: first.add_task("along with it"))
            adding.start()
            waited_for(lambda: bool(committer._queue))
        raising.join(30)
        adding.join(30)
        door.close()
        second.add_task("after it")
        assert [task.number for task in first.tasks()] == list(range(2 * ALONE + 2))
        titles = [task.title for task in first.tasks()]
        two.rebuild()
        assert titles == [task.title for task in first.tasks()]


def waited_for(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def _claims(url: str, work: str, runtime: str, agent: str) -> list[str]:
    os.environ["XDG_RUNTIME_DIR"] = runtime
    found = list[str]()
    with commonplace.open(url) as book:
        while (claim := book.work(id=work).claim(agent)) is not None:
            found.append(claim.task.id)
            claim.complete("done")
    return found


def test_two_hosts_with_two_processes_each_share_a_book(postgres: Server, tmp_path: Path) -> None:
    """5.3: hosts know nothing of each other's gates, and still each task is done once."""
    url = a_book(postgres)
    with commonplace.open(url) as book:
        work = book.work(name="w")
        work.add_tasks([{"title": f"t{n}"} for n in range(160)])
        runtimes = [tmp_path / name for name in ("one", "two")]
        for runtime in runtimes:
            runtime.mkdir()
        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as four:
            done = [four.submit(_claims, url, work.id, str(runtimes[n % 2]), f"dev-{n}") for n in range(4)]
            found = [id for one in done for id in one.result(120)]
        assert Counter(found) == Counter(task.id for task in work.tasks(status="completed"))
        assert len(found) == 160
        assert book.verify().ok
    assert all(any(runtime.glob("commonplace-*/*-line/table")) for runtime in runtimes), (
        "each had its own gate"
    )
