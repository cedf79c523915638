"""The places the tests run on: a fixture per engine, one for URLs, and servers that all workers share."""

from __future__ import annotations

import functools
import io
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonplace
from commonplace import Book
from commonplace.engines.memory import MemoryEngine
from commonplace.memory import showing
from commonplace.testing.servers import Server, postgres_server, valkey_server
from commonplace.testing.workers import MakeEngine
from commonplace.work.verbs import Work
from tests.models import ModelServer
from tests.served_stories import BEHIND_A_SERVER, is_behind_a_server, is_served_story
from tests.serving import served
from tests.shells import Cli, Ran
from tests.telemetry_seen import Seen, watching

pytest.register_assert_rewrite("tests.work_rules")

os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="commonplace-cache-")
"""Indexes of books on servers lie in the user's cache; tests have one of their own."""

os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="commonplace-state-")
"""Which folders a user trusts is remembered there."""

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
"""Tests run side by side already; threads of one that wait for those of another only slow both down."""

os.environ["COMMONPLACE_EMBEDDER"] = "static"
"""A model that is installed would take its time in every test."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in the background so, and every program that a test starts would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

showing.IDLE = 600
"""A slow test must not find an event that was noted meanwhile; the test of that waits less."""

ENGINES = ["memory", "files", "sqlite", "postgres", "redis"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running PostgreSQL for this test run; every test uses a book name of its own on it."""
    with postgres_server(shared=True) as server:
        yield server


@pytest.fixture(scope="session")
def valkey() -> Iterator[Server]:
    """A running Valkey for this test run; every test uses a book name of its own on it."""
    with valkey_server(shared=True) as server:
        yield server


@pytest.fixture
def model_server() -> Iterator[ModelServer]:
    """A server on loopback that answers as a model's does."""
    with ModelServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def seen() -> Iterator[Seen]:
    """What OpenTelemetry is told during a test."""
    with watching() as watched:
        yield watched


@pytest.fixture
def memory_engine() -> MakeEngine:
    engine = MemoryEngine()
    return lambda: engine


@pytest.fixture
def files_engine(tmp_path: Path) -> MakeEngine:
    from commonplace.engines.files import FilesEngine

    return functools.partial(FilesEngine, tmp_path / "book")


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> MakeEngine:
    from commonplace.engines.sqlite import SqliteEngine

    return functools.partial(SqliteEngine, tmp_path / "book.db")


@pytest.fixture
def postgres_engine(postgres: Server) -> MakeEngine:
    from commonplace.engines.postgres import PostgresEngine

    return functools.partial(PostgresEngine, postgres.url)


@pytest.fixture
def redis_engine(valkey: Server) -> MakeEngine:
    from commonplace.engines.redis import RedisEngine

    return functools.partial(RedisEngine, valkey.url)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Stories that use only the public API run through a server, too: see `served_stories`."""
    chosen = [item for item in items if not is_behind_a_server(item) or is_served_story(item)]
    if len(chosen) < len(items):
        items[:] = chosen


@pytest.fixture(params=[*ENGINES, BEHIND_A_SERVER])
def engine_name(request: pytest.FixtureRequest) -> str:
    """The engine that this round of the test runs on."""
    name: str = request.param
    return name


@pytest.fixture
def any_engine(engine_name: str, request: pytest.FixtureRequest) -> MakeEngine:
    """A callable that opens an engine on the same place each time, on all five engines in turn."""
    make_engine: MakeEngine = request.getfixturevalue(f"{engine_name}_engine")
    return make_engine


@pytest.fixture
def book_url(engine_name: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A URL for `commonplace.open` where there is no book yet, on all five engines in turn."""
    if engine_name == "served":
        yield BEHIND_A_SERVER
    elif engine_name == "memory":
        yield "memory:"
    elif engine_name == "files":
        yield f"file:{tmp_path / 'folder'}"
    elif engine_name == "sqlite":
        yield str(tmp_path / "team.db")
    else:
        server: Server = request.getfixturevalue("postgres" if engine_name == "postgres" else "valkey")
        make_engine: MakeEngine = request.getfixturevalue(f"{engine_name}_engine")
        name = f"book-{uuid.uuid4().hex[:12]}"
        yield f"{server.url}{'&' if '?' in server.url else '?'}book={name}"
        engine = make_engine()
        engine.drop(name)
        engine.close()


@pytest.fixture
def book(book_url: str) -> Iterator[Book]:
    """A new book, on all five engines in turn, and for the stories of SERVED also behind a server."""
    if book_url != BEHIND_A_SERVER:
        with commonplace.open(book_url) as opened:
            yield opened
        return
    with (
        commonplace.open("memory:") as behind,
        served(behind) as server,
        commonplace.open(server.url, token=server.token) as remote,
    ):
        yield remote


@pytest.fixture
def work(book: Book) -> Work:
    """A new work without tasks."""
    return book.work(
        name="auth", goal="Add JWT authentication to the API", constraints=["No breaking changes"], id="auth"
    )


@pytest.fixture
def plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell that has no settings of its own, in an empty folder."""
    for name in ("COMMONPLACE_BOOK", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def cli(plain_shell: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the entry point in this process."""
    from commonplace.surfaces.cli import main

    def run(*args: object, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["commonplace", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, *capsys.readouterr())

    return run
