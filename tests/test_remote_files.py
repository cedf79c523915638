"""Verbs that write or read a file, of a book behind a server: the file is on the caller's host, its content travels."""

from __future__ import annotations

import json
import stat
import tempfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

import commonplace
from commonplace import Book, errors
from commonplace.surfaces.http.limits import ServerLimits

from .proxies import proxied
from .serving import Served, served


class Both(NamedTuple):
    here: Book
    there: Book
    server: Served


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process makes its temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def both(tmp_path: Path, scratch: Path) -> Iterator[Both]:
    with (
        commonplace.open(tmp_path / "book.db") as here,
        served(here) as server,
        commonplace.open(server.url, token=server.token) as there,
    ):
        here.remember("The lift stops at the fourth floor", tags=["lift"])
        here.as_actor("ada").remember("Ada's own note")
        here.thread("t").add([{"role": "user", "content": "hello"}])
        here.work(name="auth", goal="Add JWT", id="auth").add_task("one")
        yield Both(here, there, server)


@pytest.mark.spec("7.4", "3.3")
def test_each_export_is_the_same_file_as_on_the_books_own_host(
    both: Both, tmp_path: Path, scratch: Path
) -> None:
    def written(book: Book, name: str) -> list[tuple[Any, bytes]]:
        folder = tmp_path / name
        folder.mkdir()
        at = both.here.head
        answers = {
            "ledger": book.admin.export(folder / "ledger", at=at),
            "json": book.memory.export(folder / "json", at=at),
            "markdown": book.memory.export(folder / "markdown", format="markdown", tags=["lift"], at=at),
            "thread": book.thread("t").export(folder / "thread", at=at),
            "words": book.thread("t").export(str(folder / "words"), format="markdown", at=at),
            "work": book.work(id="auth").manage.export(folder / "work", at=at),
        }
        assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
        return [(answer, (folder / name).read_bytes()) for name, answer in answers.items()]

    assert written(both.there, "there") == written(both.here, "here")
    assert list(scratch.iterdir()) == []


@pytest.mark.spec("1.8", "7.4")
def test_a_backup_is_a_book_and_replaces_nothing(both: Both, tmp_path: Path, scratch: Path) -> None:
    head = both.there.admin.backup(tmp_path / "copy.db")
    with commonplace.open(tmp_path / "copy.db", create=False) as copy:
        assert (copy.head, copy.id, copy.verify().ok) == (head, both.here.id, True)
    taken = tmp_path / "taken.db"
    taken.write_text("mine")
    with pytest.raises(errors.BadInput, match="exists"):
        both.there.admin.backup(taken)
    assert taken.read_text() == "mine"
    assert list(scratch.iterdir()) == []


@pytest.mark.spec("3.12", "7.4")
def test_the_memory_of_another_tool_is_taken_in(both: Both, tmp_path: Path, scratch: Path) -> None:
    notes = tmp_path / "MEMORY.md"
    notes.write_text("# Memory\n\n- The build takes nine minutes\n- Deploys go out on Tuesdays\n")
    shown = both.there.memory.import_(notes, dry_run=True)
    assert not shown.done
    before = both.here.head
    taken = both.there.as_actor("ada").memory.import_(str(notes), shared=True)
    assert taken.counts == {"stored": 2}
    assert all(item.source.startswith("MEMORY.md") for item in taken.became)
    assert both.here.head > before
    assert both.there.memory.import_(notes).counts.get("stored", 0) == 0  # known already
    assert "nine minutes" in both.here.as_actor("ben").search("how long is the build?")[0].content
    with pytest.raises(errors.NotEnabled, match="folder"):
        both.there.memory.import_(tmp_path)
    with pytest.raises(errors.BadInput, match="cannot be read"):
        both.there.memory.import_(tmp_path / "nothing.md")
    assert list(scratch.iterdir()) == []


@pytest.mark.spec("1.8", "7.4")
def test_a_ledger_travels_from_one_served_book_to_another(both: Both, tmp_path: Path) -> None:
    count = both.there.admin.export(tmp_path / "all.jsonl")
    with (
        commonplace.open("memory:") as empty,
        served(empty) as server,
        commonplace.open(server.url, token=server.token) as other,
    ):
        taken = other.admin.import_(tmp_path / "all.jsonl")
        assert (taken.exact, taken.events) == (True, count)
        assert [event.hash for event in other.events()] == [
            event.hash for event in both.here.events(at=count)
        ]


@pytest.mark.spec("7.4", "L6")
def test_a_token_exports_what_its_actor_may_see(both: Both, tmp_path: Path) -> None:
    both.here.as_actor("ben").remember("Ben's own note")
    token = both.here.access.tokens.create("ada").secret
    with commonplace.open(both.server.url, token=token) as ada:
        assert ada.memory.export(tmp_path / "ada.json") == 2
        assert "Ben's" not in (tmp_path / "ada.json").read_text()
        for act in (
            lambda: ada.admin.export(tmp_path / "x"),
            lambda: ada.admin.backup(tmp_path / "x"),
            lambda: ada.admin.import_(tmp_path / "ada.json"),
        ):
            with pytest.raises(errors.Denied, match="owner"):
                act()
    narrow = both.here.access.tokens.create("ada", verbs=["search"]).secret
    with (
        commonplace.open(both.server.url, token=narrow) as ada,
        pytest.raises(errors.Denied, match="token does not allow"),
    ):
        ada.memory.export(tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("L2", "7.4")
def test_a_file_is_written_whole_or_not_at_all(both: Both, tmp_path: Path) -> None:
    target = tmp_path / "notes.json"
    target.write_text("the old one")
    both.here.remember("x" * 50_000)
    tries = iter(("cut", "unanswered", "502 after", "pass"))

    def fate(path: str) -> str:
        return next(tries) if path == "/v1/memory/export" else "pass"

    with (
        proxied(both.server.url, fate) as proxy,
        commonplace.open(proxy.url, token=both.server.token) as there,
    ):
        assert there.memory.export(target) == 3
        assert proxy.met["cut"] == proxy.met["unanswered"] == 1
    with (
        proxied(both.server.url, lambda path: "cut" if "export" in path else "pass") as proxy,
        commonplace.open(proxy.url, token=both.server.token, timeout=1) as there,
        pytest.raises(errors.EngineUnavailable),
    ):
        there.memory.export(target, tags=["lift"])
    for book in (both.here, both.there):  # the same error, whichever side writes
        for export in (book.memory.export, book.admin.export):
            with pytest.raises(errors.BadInput, match="cannot be written"):
                export(tmp_path / "no folder" / "x")
    assert len([json.loads(line) for line in target.read_text().splitlines()]) == 3


def asked(both: Both, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, bytes]:
    connection = HTTPConnection(urlsplit(both.server.url).netloc, timeout=30)
    own = {"Authorization": f"Bearer {both.server.token}"}
    try:
        connection.request(method, path, body, own | {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


@pytest.mark.spec("7.4")
def test_any_program_gets_and_sends_files(both: Both, scratch: Path) -> None:
    status, headers, content = asked(both, "GET", "/v1/memory/export?format=markdown&tags=lift")
    assert (status, headers["content-type"]) == (200, "application/octet-stream")
    assert headers["commonplace-answer"] == "1"
    assert b"fourth floor" in content
    note = b"# Memory\n\n- The roof is flat\n"
    sent = {"Commonplace_File": "MEMORY.md", "Idempotency_Key": "k", "Content_Type": "text/markdown"}
    first = asked(both, "POST", "/v1/memory/import_", note, **sent)
    assert first[0] == 200, first
    assert asked(both, "POST", "/v1/memory/import_", note, **sent)[2] == first[2]
    assert asked(both, "POST", "/v1/memory/import_?dry_run=true", note, **sent)[0] == 409
    assert asked(both, "POST", "/v1/memory/import_", note + b"x", **sent)[0] == 409
    assert list(scratch.iterdir()) == []


@pytest.mark.spec("7.4", "L6")
@pytest.mark.parametrize("name", ["../../x.md", "/etc/passwd", "a\\b.md", "..", "a\0b", "é" * 150, "x\n.md"])
def test_a_name_leads_to_no_file_of_the_server(both: Both, tmp_path: Path, scratch: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    sent = {"Commonplace_File": quote(name, safe="")}
    status, _, content = asked(
        both, "POST", "/v1/memory/import_", b"# Memory\n\n- The roof is flat\n", **sent
    )
    assert (status, json.loads(content)["code"]) == (400, "bad_input")
    for verb in ("memory/export", "admin/export", "admin/backup"):
        status, _, content = asked(both, "POST", f"/v1/{verb}", json.dumps({"to": name}).encode())
        assert (status, json.loads(content)["code"]) == (400, "bad_input"), verb
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.spec("7.4")
def test_a_file_over_the_servers_limit_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "MEMORY.md"
    large.write_text("# Memory\n\n" + "- The roof is flat\n" * 1_000)
    with (
        commonplace.open("memory:") as here,
        served(here, ServerLimits(body=1_000)) as server,
        commonplace.open(server.url, token=server.token) as there,
    ):
        with pytest.raises(errors.TooLarge, match="over the limit"):
            there.memory.import_(large)
        assert here.head == 0
