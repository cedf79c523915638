"""Opening a book: every way it can go wrong is a typed error that says what to do."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import apsw
import pytest
import redis

import commonplace
from commonplace.engines import locate
from commonplace.testing import Server, postgres_server, valkey_server


@pytest.mark.parametrize("url", ["mysql://host/db", "ftp:thing", "", "a\0b", "file:", "s3://bucket"])
def test_a_url_of_no_engine(url: str) -> None:
    with pytest.raises(commonplace.UnknownEngine, match=r"postgresql://"):
        commonplace.open(url)


@pytest.mark.parametrize(
    ("module", "url"), [("psycopg", "postgresql://localhost/x"), ("redis", "redis://localhost:1/0")]
)
def test_a_missing_extra_says_how_to_install_it(module: str, url: str) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "import commonplace\n"
        f"try: commonplace.open({url!r})\n"
        "except commonplace.MissingExtra as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'commonplace-memory[" in run.stdout


@pytest.mark.parametrize(
    "url", ["postgresql://nobody:s3cret@127.0.0.1:1/x?connect_timeout=2", "redis://:s3cret@127.0.0.1:1/0"]
)
def test_a_server_that_is_down(url: str) -> None:
    with pytest.raises(commonplace.EngineUnavailable) as found:
        commonplace.open(url)
    assert "s3cret" not in str(found.value)
    assert "heck that" in str(found.value)


def test_a_file_that_is_not_a_book(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and no database at all " * 100)
    with pytest.raises(commonplace.NotABook, match="another path"):
        commonplace.open(text)
    assert text.read_text().startswith("these are notes")

    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(commonplace.NotABook, match="other program"):
        commonplace.open(other)
    with pytest.raises(commonplace.NotABook, match="folder"):
        commonplace.open(tmp_path)
    with pytest.raises(commonplace.NotABook, match="is a file"):
        commonplace.open(f"file:{text}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "book.json").write_text('{"mine": 1}')
    with pytest.raises(commonplace.NotABook):
        commonplace.open(f"file:{tmp_path / 'folder'}")


def test_a_newer_file_layout(tmp_path: Path) -> None:
    commonplace.open(tmp_path / "b.db").close()
    with closing(apsw.Connection(str(tmp_path / "b.db"))) as connection:  # its pages keep their checksums
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(commonplace.BookTooNew, match="upgrade"):
        commonplace.open(tmp_path / "b.db")
    commonplace.open(f"file:{tmp_path / 'f'}").close()
    book = tmp_path / "f" / "book.json"
    book.write_text(book.read_text().replace('"layout":1', '"layout":99'))
    with pytest.raises(commonplace.BookTooNew, match="upgrade"):
        commonplace.open(f"file:{tmp_path / 'f'}")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (str(tmp_path / "file" / "x.db"), f"file:{tmp_path / 'file' / 'x'}"):
        with pytest.raises(commonplace.CommonplaceError) as found:
            commonplace.open(url)
        assert found.value.code in ("engine_unavailable", "not_a_book")


def test_how_urls_are_read(tmp_path: Path) -> None:
    assert locate("some/team.db")[1] == "team"
    assert locate(tmp_path / "x.db")[1] == "x"
    assert locate("x.db", name="mine")[1] == "mine"
    assert locate("sqlite:x.db")[1] == "x"
    assert locate("file:some/folder")[1] == "folder"
    assert locate("redis://h/0?book=a%20b&db=2")[1] == "a b"
    assert locate("postgresql://h/x", name="n")[1] == "n"
    with pytest.raises(commonplace.BadInput, match="give one"):
        locate("redis://h/0?book=a", name="b")
    for name in ("", "x" * 201, "a\0"):
        with pytest.raises(commonplace.BadInput):
            locate("redis://h/0", name=name)
    with pytest.raises(commonplace.BadInput, match="durability"):
        commonplace.open(tmp_path / "x.db", durability="maybe")


@pytest.mark.spec("L2")
def test_what_an_engine_cannot_promise_is_said_at_open(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "commonplace"):
        with commonplace.open("memory:") as book:
            assert book.admin.facts.durable == "no"
        with commonplace.open(tmp_path / "p.db", durability="process") as book:
            assert book.admin.facts.durable == "configured"
            assert "power" in book.admin.facts.durable_why
        with valkey_server() as server:
            redis.Redis.from_url(server.url).config_set("appendonly", "no")
            with commonplace.open(server.url, name="b") as book:
                assert book.admin.facts.durable == "no"
    said = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if "durable" in record.getMessage()
    ]
    assert [level for level, _ in said] == ["INFO", "WARNING", "WARNING"]
    caplog.clear()
    with commonplace.open(tmp_path / "full.db") as book:
        assert book.admin.facts.durable == "proven"
    assert not caplog.records


@pytest.mark.spec("1.3", "L2")
def test_a_ledger_that_ends_before_what_was_acknowledged_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for url, copies in ((str(tmp_path / "b.db"), ["b.db"]), (f"file:{tmp_path / 'f'}", ["f/ledger.jsonl"])):
        with commonplace.open(url) as book:
            book.record("agent.spoke")
        saved = {name: (tmp_path / name).read_bytes() for name in copies}
        with commonplace.open(url) as book:
            book.record_all([{"kind": "agent.spoke"}] * 3)
        for name, content in saved.items():
            (tmp_path / name).write_bytes(content)
        caplog.clear()
        with commonplace.open(url) as book:
            assert "had reached position 4 and now ends at 1" in caplog.text
            result = book.verify()
            assert (result.ok, result.first_bad) == (False, 2)


@pytest.mark.spec("3.10", "5.8")
def test_books_on_one_server_never_meet(postgres: Server, valkey: Server) -> None:
    names = ["a", "A", "a  b", "a%", "a_", "ab", "ä", "a{b}", "a/b", "a'b\"", "../a", "a\\", "💡"]
    for server in (postgres, valkey):
        join = "&" if "?" in server.url else "?"
        books = {
            name: commonplace.open(f"{server.url}{join}book={quote('iso ' + name, safe='')}")
            for name in names
        }
        for name, book in books.items():
            book.record("agent.spoke", id="same id", payload={"of": name}, run_id="same run")
        for name, book in books.items():
            assert [event.payload["of"] for event in book.events(run_id="same run")] == [name]
            assert book.name == f"iso {name}"
        books["a"].erase("same id")
        assert not books["a%"].event("same id").erased
        for book in books.values():
            assert book.verify().ok
            book.close()


@pytest.mark.spec("L2", "5.7")
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_that_dies_in_the_middle_and_comes_back(kind: str) -> None:
    start = postgres_server if kind == "postgres" else valkey_server
    with start() as server, commonplace.open(server.url, name="b") as book:
        book.record("agent.spoke", id="before")
        server.kill()
        with pytest.raises((commonplace.EngineUnavailable, commonplace.OutcomeUnknown)) as found:
            book.record("agent.spoke", id="during")
        assert len(str(found.value)) > 40
        with pytest.raises(commonplace.EngineUnavailable):
            book.event("before")
        server.start()
        assert book.event("before").position == 1
        assert book.record("agent.spoke", id="during").position == 2
        assert book.verify().ok
