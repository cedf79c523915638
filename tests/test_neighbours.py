"""Other users of the same host: what they may read, prepare and hold up, and what is left lying around."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import commonplace
from commonplace import EngineUnavailable, NotABook
from commonplace.engines import locate
from commonplace.testing.servers import Server

ROOT = hasattr(os, "getuid") and os.getuid() == 0
NOBODY = 65534


@pytest.fixture(params=[0o000, 0o022], ids=["umask-000", "umask-022"])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def use(url: str, folder: Path, name: str | None = None) -> None:
    """Everything that makes files: items, blobs, an index, a mirror's list, backups, exports, persisted state."""
    out = folder / "out"
    out.mkdir(mode=0o755, exist_ok=True)
    with commonplace.open(url, name=name) as book:
        book.remember("the launch code is 4711-4712-4713", sensitivity="sensitive")
        book.record("agent.spoke", payload={"file": commonplace.Blob(b"minutes" * 500)})
        book.search("launch code")
        book.mirror(folder / "mirror")
        book.work(name="w", id="w").add_tasks([{"title": "one"}])
        book.work(id="w").manage.export(out / "work.json")
        book.backup(out / "backup.db")
        book.export(out / "export.jsonl")
        book.export_items(out / "items.jsonl")
        with closing(commonplace.open(url, name=name)):  # while another has it open
            book.record("agent.spoke")
            check_modes(folder)


def ours(folder: Path) -> list[Path]:
    """The files of a book there; the folder that shows it to people has rules of its own."""
    shown = folder / "mirror"
    return [
        path for path in folder.rglob("*") if shown not in (path, *path.parents) and path != folder / "out"
    ]


def check_modes(folder: Path) -> None:
    assert [path for path in ours(folder) if path.lstat().st_mode & 0o077] == []


@pytest.mark.spec("L5", "5.8")
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_all_that_belongs_to_a_new_book_is_for_its_owner_alone(tmp_path: Path, umask: int, kind: str) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    use(str(home / "deep" / "team.db") if kind == "sqlite" else f"file:{home / 'deep' / 'team'}", home)
    check_modes(home)
    assert len(ours(home)) > 8


@pytest.mark.spec("L5", "5.8")
@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_what_is_kept_here_of_a_book_on_a_server_is_for_its_owner_alone(
    tmp_path: Path, umask: int, kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = request.getfixturevalue(kind)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    use(server.url, tmp_path, f"neighbours-{umask}-{tmp_path.name}")
    check_modes(tmp_path)
    assert list((tmp_path / "cache").rglob("*.index"))


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_book_that_a_group_may_use_has_companions_that_it_may_use(tmp_path: Path, kind: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = home / ("team.db" if kind == "sqlite" else "team")
    url = str(path) if kind == "sqlite" else f"file:{path}"
    use(url, home)
    group = 12345 if ROOT else os.getgid()
    for own in [path] if kind == "sqlite" else [path, *path.glob("*.json*")]:
        os.chown(own, -1, group)
        own.chmod(0o2770 if own.is_dir() else 0o660)
    (home / "out" / "export.jsonl").unlink()
    with commonplace.open(url) as book:
        book.record("agent.spoke", payload={"file": commonplace.Blob(b"another" * 500)})
        index = path.with_name(f"{path.name}.index")
        index.unlink()
        book.export(home / "out" / "export.jsonl")
        with commonplace.open(url) as again:
            again.search("launch")
        names = ["team.db-wal", "team.db-shm", "team.db-gate", "team.db-line/table", "team.db.index"]
        if kind == "files":
            names = ["team/gate", "team/line/table", "team/ledger.jsonl", "team.index"]
        for name in [*names, "out/export.jsonl"]:
            found = (home / name).stat()
            assert (name, stat.S_IMODE(found.st_mode), found.st_gid) == (name, 0o660, group)
        line = (home / ("team.db-line" if kind == "sqlite" else "team/line")).stat()
        assert (stat.S_IMODE(line.st_mode) & 0o777, line.st_gid) == (0o770, group)


@pytest.mark.spec("5.8")
def test_who_may_only_read_a_book_cannot_hold_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "team.db"
    commonplace.open(path).close()
    path.chmod(0o644)
    with commonplace.open(path) as book:
        book.record("agent.spoke")
        assert stat.S_IMODE((tmp_path / "team.db-wal").stat().st_mode) == 0o644
        for name in ("team.db-gate", "team.db-line/table", "team.db-line"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0


def by_another(*paths: Path, link_to: Path | None = None) -> None:
    """Somebody else has put these there, open to all; without the right to, links stand for them."""
    for path in paths:
        if link_to is not None:
            path.symlink_to(link_to)
        elif path.name.endswith("line"):
            path.mkdir(mode=0o777)
            path.chmod(0o777)
        else:
            path.touch()
            path.chmod(0o666)
        if ROOT:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.spec("L5", "5.8")
@pytest.mark.parametrize("name", ["-gate", "-line", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("linked", [False, True], ids=["file", "link"])
def test_what_somebody_else_has_put_beside_a_book_is_refused(tmp_path: Path, name: str, linked: bool) -> None:
    if not (ROOT or linked):
        pytest.skip("only root can make files in the name of somebody else")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    by_another(tmp_path / f"team.db{name}", link_to=victim if linked else None)
    with pytest.raises((EngineUnavailable, NotABook)):
        commonplace.open(tmp_path / "team.db")
    assert victim.read_text() == "mine"


@pytest.mark.spec("L5", "5.8")
@pytest.mark.skipif(not ROOT, reason="only root can make files in the name of somebody else")
def test_an_index_that_somebody_else_has_prepared_is_not_used(tmp_path: Path) -> None:
    by_another(tmp_path / "team.db.index")
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("the launch code is 4711-4712-4713")
        assert len(book.search("launch").results) == 1
    assert (tmp_path / "team.db.index").read_bytes() == b""


# what is left lying around


def listed(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def text(path: Path) -> None:
    path.write_text("minutes of the last meeting\n" * 500)


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE guests (name TEXT)")


def foreign_in_use(path: Path) -> None:
    """With a log beside it, as a program leaves it that was killed."""
    foreign(path.with_name("other.db"))
    with closing(sqlite3.connect(path.with_name("other.db"))) as connection:
        connection.execute("INSERT INTO guests VALUES ('ada')")
        connection.commit()
        for ending in ("", "-wal", "-shm"):
            shutil.copy(f"{path.with_name('other.db')}{ending}", f"{path}{ending}")
    path.with_name("other.db").unlink()


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("make", [text, foreign, foreign_in_use])
def test_nothing_is_made_beside_a_file_that_is_no_book(
    tmp_path: Path, make: Callable[[Path], None], create: bool
) -> None:
    make(tmp_path / "notes.db")
    before = listed(tmp_path)
    with pytest.raises(NotABook):
        commonplace.open(tmp_path / "notes.db", create=create)
    assert set(listed(tmp_path)) <= set(
        before
    )  # what SQLite has put into the file itself is no concern of ours
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "ledger.jsonl").write_text("something\n")
    before = listed(tmp_path)
    with pytest.raises(commonplace.CommonplaceError):
        commonplace.open(f"file:{tmp_path / 'folder'}", create=create)
    assert listed(tmp_path) == before


@pytest.mark.spec("1.4")
@pytest.mark.parametrize("kind", ["memory:", "sqlite"])
def test_a_backup_that_fails_leaves_no_part(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    with commonplace.open(kind if kind == "memory:" else tmp_path / "team.db", name=None) as book:
        book.record("agent.spoke")

        def failing(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("commonplace.transfer.copy_book", failing)
        monkeypatch.setattr("commonplace.engines.sqlite.SqliteReads", failing)
        with pytest.raises(KeyboardInterrupt):
            book.backup(tmp_path / "out" / "backup.db")
        monkeypatch.undo()
        assert listed(tmp_path / "out") == {}
        with pytest.raises(commonplace.StorageFailed):
            book.backup(tmp_path / "missing" / "backup.db")


@pytest.mark.spec("3.10")
@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_a_dropped_book_leaves_nothing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("team.db" if kind == "sqlite" else "team")
    url = str(path) if kind == "sqlite" else f"file:{path}"
    with commonplace.open(url) as book:
        book.remember("tea is at four")
        book.search("tea")
    engine, name = locate(url)
    engine.drop(name)
    assert list(listed(tmp_path)) == ([] if kind == "sqlite" else ["team"])


@pytest.mark.spec("3.10")
def test_a_dropped_book_on_a_server_leaves_no_gate(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with commonplace.open(postgres.url, name=f"gone-{tmp_path.name}") as book:
        book.record("agent.spoke")
    folder = tmp_path / f"commonplace-{os.getuid()}"
    assert len(list(folder.iterdir())) == 2
    engine, name = locate(postgres.url, f"gone-{tmp_path.name}")
    engine.drop(name)
    assert list(folder.iterdir()) == []


@pytest.mark.spec("L10")
def test_a_folder_in_the_place_of_an_index_outlives_the_book(tmp_path: Path) -> None:
    """Dropping a book removes its own files, and nothing that somebody has put under their names."""
    for url in (tmp_path / "team.db", f"file:{tmp_path / 'team'}"):
        commonplace.open(url).close()
        theirs = Path(f"{str(url).removeprefix('file:')}.index")
        theirs.mkdir()
        (theirs / "note.txt").write_text("mine")
        engine, name = locate(url)
        engine.drop(name)
        engine.close()
        assert (theirs / "note.txt").read_text() == "mine"
        with pytest.raises(commonplace.BookNotFound):
            commonplace.open(url, create=False)


@pytest.mark.spec("L5")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes files of others")
def test_an_empty_file_that_somebody_else_has_made_becomes_no_book(tmp_path: Path) -> None:
    """Its maker could read all that is written to it."""
    planted = tmp_path / "team.db"
    planted.touch(0o666)
    os.chown(planted, 65534, 65534)
    with pytest.raises(EngineUnavailable, match="another user"):
        commonplace.open(planted)
    assert list(tmp_path.iterdir()) == [planted]


def test_an_empty_file_of_ones_own_becomes_a_book_for_oneself(tmp_path: Path) -> None:
    empty = tmp_path / "team.db"
    empty.touch(0o666)
    with pytest.raises(commonplace.BookNotFound, match="empty"):
        commonplace.open(empty, create=False)
    commonplace.open(empty).close()
    assert stat.S_IMODE(empty.stat().st_mode) == 0o600


@pytest.mark.spec("L5")
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes files of others")
def test_members_of_a_books_group_do_not_lock_each_other_out(tmp_path: Path) -> None:
    """Files beside the book that a member has made are used by the others; those of strangers are not."""
    path = tmp_path / "team.db"
    commonplace.open(path).close()
    os.chown(path, 1234, 4321)
    path.chmod(0o660)
    gate = tmp_path / "team.db-gate"
    os.chown(gate, 5678, 4321)
    with commonplace.open(path) as book:
        book.remember("The harbour is closed on Sundays")
        assert book.search("harbour").results
    made = [file for file in tmp_path.iterdir() if file.name.startswith("team.db.index")]
    assert {file.stat().st_uid for file in made} == {1234}  # root acts for the owner
    os.chown(gate, 5678, 5678)
    with pytest.raises(EngineUnavailable, match="another user"):
        commonplace.open(path)


@pytest.mark.spec("3.9")
def test_the_markdown_of_a_book_is_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    """It shows what agents keep to themselves."""
    with commonplace.open(tmp_path / "team.db", mirror=tmp_path / "notes") as book:
        book.as_actor("ada").remember("The harbour is closed on Sundays")
    pages = list((tmp_path / "notes").rglob("*.md"))
    assert pages
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in pages} == {0}


@pytest.mark.spec("1.4")
def test_backups_to_one_place_at_once_are_one_whole_backup(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        book.record_all([{"kind": "agent.spoke", "actor": "ada", "payload": {"n": n}} for n in range(200)])

        def back_up(_: int) -> str:
            try:
                return f"done at {book.backup(tmp_path / 'copy.db')}"
            except commonplace.BadInput as error:
                return str(error)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(back_up, range(4)))
        assert sum(answer.startswith("done") for answer in answers) == 1
        assert all("exists" in answer for answer in answers if not answer.startswith("done"))
    with commonplace.open(tmp_path / "copy.db", create=False) as copy:
        assert copy.verify().ok
        assert copy.head == 200
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_a_user_without_a_home_searches_in_memory(monkeypatch: pytest.MonkeyPatch, valkey: Server) -> None:
    """As in a container that runs under a number that nobody has."""

    def nowhere(_self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", nowhere)
    with commonplace.open(f"{valkey.url}?book=homeless-{os.getpid()}-{os.urandom(4).hex()}") as book:
        book.remember("The harbour is closed on Sundays")
        assert book.search("harbour").results


@pytest.mark.spec("L10")
def test_the_index_of_a_book_that_was_dropped_on_its_server_does_not_stay(
    valkey: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host is not told. What nobody has opened for a month is removed when another index is opened."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache, url = tmp_path / "commonplace", f"{valkey.url}?book=unused-{os.urandom(6).hex()}"
    with commonplace.open(url) as book:
        book.remember("The harbour is closed on Sundays")
        assert book.search("harbour").results
        mine = cache / f"{book.id}.index"
    dropped, recent = cache / "dropped.index", cache / "recent.index"
    for path in (dropped, cache / "dropped.index-wal", recent):
        path.write_text("something")
    for path in (dropped, mine):
        os.utime(path, (0, 0))
    with commonplace.open(url) as book:
        assert book.search("harbour").results
    left = {path.name for path in cache.iterdir()}
    assert {mine.name, recent.name} <= left
    assert not [name for name in left if name.startswith("dropped")]
    assert mine.stat().st_mtime > 0
