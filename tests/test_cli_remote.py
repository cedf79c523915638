"""The shell on a book behind a server: `--book http://…`, or COMMONPLACE_BOOK, with a token that is no argument."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import commonplace
from commonplace import Book

from .serving import served
from .shells import Cli


@pytest.fixture
def behind(plain_shell: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    """A book that the shell reaches over HTTP alone."""
    with commonplace.open("memory:") as book, served(book) as server:
        monkeypatch.setenv("COMMONPLACE_BOOK", server.url)
        monkeypatch.setenv("COMMONPLACE_TOKEN", server.token)
        yield book


@pytest.mark.spec("7.1", "7.4")
def test_the_everyday_commands_work_on_a_book_behind_a_server(behind: Book, cli: Cli) -> None:
    assert "stored" in cli("remember", "the lift stops at four", "--shared").out
    assert "the lift stops" in cli("search", "lift").out
    assert "the lift stops" in cli("digest", "lift").out
    assert "the lift stops" in cli("prompt", "lift").out
    assert cli("record", "agent.spoke", '{"text": "hi"}').code == 0
    log = cli("log").out
    assert "hi" in log
    assert [event["position"] for event in json.loads(cli("--json", "log").out)] == list(
        range(1, behind.head + 1)
    )
    status = json.loads(cli("--json", "status").out)
    assert (status["head"], status["engine"], status["size"]) == (behind.head, "memory", None)
    assert cli("doctor").code == 1  # a book in memory can be lost
    assert "already there" in cli("init").out
    assert "the lift" in cli("memory", "list").out
    assert "the chain holds" in cli("book", "verify").out
    assert cli("book", "reindex").code == 0
    assert cli("inbox").code == 0
    assert cli("receipts", "list").code == 0
    assert cli("runs", "list").code == 0
    assert cli("--as", "ada", "remember", "mine").code == 0
    assert next(behind.events(kinds=["agent.spoke"])).actor == "owner"


@pytest.mark.spec("7.1", "5.3")
def test_a_work_is_done_from_the_shell(behind: Book, cli: Cli, tmp_path: Path) -> None:
    work = json.loads(cli("--json", "work", "new", "auth", "--goal", "Add JWT").out)["id"]
    assert cli("task", "add", work, "one").code == 0
    assert cli("task", "add", work, "two").code == 0
    assert "one" in cli("task", "list", work).out
    claim = json.loads(cli("--json", "--as", "dev", "task", "claim", work).out)
    task, token = claim["task"]["id"] if isinstance(claim["task"], dict) else claim["task"], claim["token"]
    assert cli("--as", "dev", "task", "heartbeat", task, token).code == 0
    assert cli("--as", "dev", "task", "complete", task, token, "--summary", "done").code == 0
    assert behind.work(id=work).counts()["completed"] == 1
    assert cli("thread", "messages", "t").code == 0


@pytest.mark.spec("7.1", "7.4")
def test_files_are_written_and_read_where_the_shell_is(behind: Book, cli: Cli, tmp_path: Path) -> None:
    notes, ledger, copy, items = (
        tmp_path / name for name in ("MEMORY.md", "all.jsonl", "copy.db", "items.md")
    )
    notes.write_text("# Memory\n\n- The build takes nine minutes\n")
    assert "1 stored" in cli("import", notes).out
    assert "1 record" in cli("memory", "export", items, "--format", "markdown").out
    assert "nine minutes" in items.read_text()
    assert cli("book", "export", ledger).code == 0
    assert len(ledger.read_text().splitlines()) > behind.head
    assert cli("book", "backup", copy).code == 0
    with commonplace.open(copy, create=False) as backup:
        assert backup.head == behind.head
    assert "0 events taken in" in cli("import", ledger).out


@pytest.mark.spec("7.1")
def test_what_is_for_the_books_host_says_so(behind: Book, cli: Cli, tmp_path: Path) -> None:
    for command in (("mirror", "status"), ("import", tmp_path)):
        ran = cli(*command)
        assert ran.code == 1, ran
        assert "host" in ran.err


@pytest.mark.spec("7.4")
def test_a_wrong_token_and_no_server_are_told(
    behind: Book, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMMONPLACE_TOKEN", "cpl_wrong_token")
    ran = cli("status")
    assert ran.code == 1
    assert "cpl_wrong_token" not in ran.out + ran.err
    monkeypatch.delenv("COMMONPLACE_TOKEN")
    assert "token" in cli("status").err
