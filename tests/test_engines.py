"""The five engines keep the contract, and answer like the reference."""

from __future__ import annotations

import functools
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import commonplace
from commonplace.engines.contract import Engine, Lease, WriteSet
from commonplace.engines.postgres import PostgresEngine, PostgresReads, PostgresTx
from commonplace.engines.redis import RedisEngine
from commonplace.errors import EngineUnavailable, NotABook, OutcomeUnknown
from commonplace.testing import (
    EngineConformance,
    Server,
    check_against_reference,
    postgres_server,
    valkey_server,
)
from commonplace.testing.engine import Background, Shelf
from commonplace.testing.workers import MakeEngine, append, record


class TestMemory(EngineConformance):
    many_processes = False

    @pytest.fixture
    def make_engine(self, memory_engine: MakeEngine) -> MakeEngine:
        return memory_engine


class TestFiles(EngineConformance):
    many_books = False

    @pytest.fixture
    def make_engine(self, files_engine: MakeEngine) -> MakeEngine:
        return files_engine

    @pytest.fixture
    def book(self) -> str:
        return "book"

    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        return tmp_path


class TestSqlite(EngineConformance):
    many_books = False

    @pytest.fixture
    def make_engine(self, sqlite_engine: MakeEngine) -> MakeEngine:
        return sqlite_engine

    @pytest.fixture
    def book(self) -> str:
        return "book"

    @pytest.fixture
    def data_dir(self, tmp_path: Path) -> Path:
        return tmp_path


class TestPostgres(EngineConformance):
    @pytest.fixture
    def make_engine(self, postgres_engine: MakeEngine) -> MakeEngine:
        return postgres_engine

    @pytest.fixture
    def data_dir(self, postgres: Server) -> Path | None:
        return postgres.data_dir


class TestRedis(EngineConformance):
    @pytest.fixture
    def make_engine(self, redis_engine: MakeEngine) -> MakeEngine:
        return redis_engine

    @pytest.fixture
    def data_dir(self, valkey: Server) -> Path | None:
        return valkey.data_dir


def test_answers_like_the_reference(any_engine: MakeEngine, engine_name: str) -> None:
    book = "book" if engine_name in ("files", "sqlite") else None
    check_against_reference(any_engine, book, shrink=False)


def test_a_commit_on_a_server_takes_few_trips(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to lock the head and one to write; one more for the rows that an event touches, however many."""
    reads, pipelines = list[str](), list[str]()
    ask, together = PostgresReads._all, psycopg.Connection.pipeline

    def asking(self: PostgresReads, query: Any, values: Any) -> Any:
        reads.append(query)
        return ask(self, query, values)

    def sending(self: Any) -> Any:
        pipelines.append("trip")
        return together(self)

    monkeypatch.setattr(PostgresReads, "_all", asking)
    monkeypatch.setattr(psycopg.Connection, "pipeline", sending)
    with commonplace.open(postgres.url, name=f"trips-{uuid.uuid4().hex}") as book:
        parent = book.record("agent.spoke", run_id="r")
        for given, most in (({}, 1), ({"run_id": "r"}, 2), ({"run_id": "r", "parents": [parent.id]}, 4)):
            reads.clear()
            pipelines.clear()
            book.record("agent.spoke", **given)
            assert (len(pipelines), len(reads) <= most) == (2, True), reads


READ_LEASES_SO_FAR = """
    SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables
    WHERE schemaname = 'commonplace' AND relname = 'leases'
"""


def test_a_few_leases_are_found_without_reading_all(postgres: Server) -> None:
    """5.3: what a claim costs does not grow with how many there are."""
    engine = PostgresEngine(postgres.url)
    store = engine.open(f"leases-{uuid.uuid4().hex}", create=True)
    names = [f"lease-{n}" for n in range(2_000)]
    with store.begin() as tx:
        tx.apply(WriteSet(records=[record(1)], leases=[Lease(name, "me", 1, 600.0) for name in names]))
    with psycopg.connect(postgres.url, autocommit=True) as server:
        server.execute("ANALYZE commonplace.leases")
    some = [Lease(name, "me", 1, 0.0) for name in names[700:704]]
    some += [Lease(f"more-{n}", "me", 2, 600.0) for n in range(4)]
    with store.begin() as tx:
        assert isinstance(tx, PostgresTx)
        tx.leases([lease.name for lease in some])
        for query, values in tx._statements(WriteSet(leases=some)):
            tx._conn.execute(query, values)
        ((read,),) = tx._all(READ_LEASES_SO_FAR, ())
        assert read < 50
    with store.read() as reads:
        assert len(reads.leases(names)) == len(names), "nothing was applied"
    store.close()
    engine.close()


ENGINES: dict[str, Callable[[str], Engine]] = {"postgres": PostgresEngine, "redis": RedisEngine}


class TestServerThatDies:
    """7. Honest failure, on servers that are killed: nothing that was committed goes, nothing else comes."""

    @pytest.fixture(params=["postgres", "redis"])
    def kind(self, request: pytest.FixtureRequest) -> str:
        kind: str = request.param
        return kind

    @pytest.fixture
    def server(self, kind: str) -> Iterator[Server]:
        with postgres_server() if kind == "postgres" else valkey_server() as server:
            yield server

    @pytest.fixture
    def shelf(self, kind: str, server: Server) -> Iterator[Shelf]:
        shelf = Shelf(functools.partial(ENGINES[kind], server.url), "book")
        yield shelf
        shelf.close()

    def test_a_handle_outlives_its_server_and_loses_nothing(self, shelf: Shelf, server: Server) -> None:
        store, other = shelf.open(), shelf.open()
        written = append(store, ["one", "two"])
        waiting = Background(lambda: other.wait(2, 120.0))

        server.kill()
        with pytest.raises(EngineUnavailable), store.read(timeout=1.0):
            pytest.fail("a snapshot of a server that is gone")
        with pytest.raises(EngineUnavailable), store.begin(timeout=1.0):
            pytest.fail("a transaction on a server that is gone")
        with pytest.raises(EngineUnavailable):
            shelf.engine().open("book", create=False)

        server.start()
        with store.read() as reads:
            assert reads.records(0, 9, 9) == written
        assert append(store, ["three"])[0].position == 3
        try:
            assert waiting.result() == 3
        except EngineUnavailable:
            pass  # a waiter may also say that its server went away
        assert other.wait(2, 20.0) == 3

    def test_a_handle_goes_on_when_its_server_was_restarted(self, shelf: Shelf, server: Server) -> None:
        store = shelf.open()
        for n in range(12):
            append(store, [f"before {n}"])
        server.kill()
        server.start()
        assert append(store, ["after"])[0].position == 13

    def test_a_write_set_that_met_a_dead_server_is_reported_as_it_is(
        self, shelf: Shelf, server: Server
    ) -> None:
        store = shelf.open()
        written = append(store, ["one"])
        with store.begin() as tx:
            server.kill()
            with pytest.raises((EngineUnavailable, OutcomeUnknown)) as failure:
                tx.apply(WriteSet(records=[record(2, "two")]))

        server.start()
        with store.read() as reads:
            found = reads.records(0, 9, 9)
        allowed = [written]
        if isinstance(failure.value, OutcomeUnknown):
            assert failure.value.ids == ("two",)
            allowed.append([*written, record(2, "two")])
        assert found in allowed
        assert append(store, ["next"])[0].position == len(found) + 1


class TestNotABook:
    """A place that holds something else is refused and left as it is."""

    @pytest.mark.parametrize("create", [True, False])
    def test_sqlite_refuses_a_file_that_is_no_database(
        self, sqlite_engine: MakeEngine, tmp_path: Path, create: bool
    ) -> None:
        content = b"minutes of the last meeting\n" * 500
        (tmp_path / "book.db").write_bytes(content)
        with pytest.raises(NotABook):
            sqlite_engine().open("book", create)
        assert (tmp_path / "book.db").read_bytes() == content

    @pytest.mark.parametrize("create", [True, False])
    def test_sqlite_refuses_somebody_else_s_database(
        self, sqlite_engine: MakeEngine, tmp_path: Path, create: bool
    ) -> None:
        connection = sqlite3.connect(tmp_path / "book.db")
        connection.execute("CREATE TABLE guests (name TEXT)")
        connection.commit()
        connection.close()
        content = (tmp_path / "book.db").read_bytes()
        with pytest.raises(NotABook):
            sqlite_engine().open("book", create)
        assert (tmp_path / "book.db").read_bytes() == content

    @pytest.mark.parametrize("create", [True, False])
    def test_sqlite_refuses_a_folder(self, sqlite_engine: MakeEngine, tmp_path: Path, create: bool) -> None:
        (tmp_path / "book.db").mkdir()
        with pytest.raises(NotABook):
            sqlite_engine().open("book", create)
        assert list((tmp_path / "book.db").iterdir()) == []

    @pytest.mark.parametrize("create", [True, False])
    def test_files_refuses_a_file_where_its_folder_should_be(
        self, files_engine: MakeEngine, tmp_path: Path, create: bool
    ) -> None:
        (tmp_path / "book").write_bytes(b"minutes of the last meeting\n")
        with pytest.raises(NotABook):
            files_engine().open("book", create)
        assert (tmp_path / "book").read_bytes() == b"minutes of the last meeting\n"
