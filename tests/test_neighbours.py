"""Other users of the same host: what they may read, prepare and hold up, and what is left lying around."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

import commonplace
from commonplace import Corrupt, EngineUnavailable, NotABook
from commonplace.access.rights import rights_of
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
        book.mirror.folder(folder / "mirror")
        book.work(name="w", id="w").add_tasks([{"title": "one"}])
        book.work(id="w").manage.export(out / "work.json")
        book.admin.backup(out / "backup.db")
        book.admin.export(out / "export.jsonl")
        book.memory.export(out / "items.jsonl")
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
        book.admin.export(home / "out" / "export.jsonl")
        with commonplace.open(url) as again:
            again.search("launch")
        names = ["team.db-wal", "team.db-shm", "team.db-lock", "team.db.index"]
        if kind == "files":
            names = ["team/lock", "team/ledger.jsonl", "team.index"]
        for name in [*names, "out/export.jsonl"]:
            found = (home / name).stat()
            assert (name, stat.S_IMODE(found.st_mode), found.st_gid) == (name, 0o660, group)


@pytest.mark.spec("5.8")
def test_who_may_only_read_a_book_cannot_hold_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "team.db"
    commonplace.open(path).close()
    path.chmod(0o644)
    with commonplace.open(path) as book:
        book.record("agent.spoke")
        assert stat.S_IMODE((tmp_path / "team.db-wal").stat().st_mode) == 0o644
        assert (tmp_path / "team.db-lock").stat().st_mode & 0o077 == 0


def by_another(*paths: Path, link_to: Path | None = None) -> None:
    """Somebody else has put these there, open to all; without the right to, links stand for them."""
    for path in paths:
        if link_to is not None:
            path.symlink_to(link_to)
        else:
            path.touch()
            path.chmod(0o666)
        if ROOT:
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.mark.spec("L5", "5.8")
@pytest.mark.parametrize("name", ["-lock", "-wal", "-shm", "-journal"])
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


def text_with_a_log(path: Path) -> None:
    """A file of that name which has nothing to do with SQLite."""
    text(path)
    path.with_name(f"{path.name}-wal").write_text("another text")


def foreign_with_a_journal(path: Path) -> None:
    """As a program leaves it that was killed in a transaction."""
    other = path.with_name("other.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE guests (name TEXT)")
        connection.execute("PRAGMA cache_size = 1")
        connection.executemany("INSERT INTO guests VALUES (?)", [("ada" * 500,)] * 500)
        for ending in ("", "-journal"):
            shutil.copy(f"{other}{ending}", f"{path}{ending}")
    other.unlink()


def damaged(path: Path, at: int) -> None:
    """What was a book once."""
    commonplace.open(path).close()
    for beside in (f"{path.name}-lock", f"{path.name}-line"):
        by_path = path.with_name(beside)
        shutil.rmtree(by_path) if by_path.is_dir() else by_path.unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"damage" * 20)


def damaged_at_its_start(path: Path) -> None:
    damaged(path, 0)


def damaged_in_page_one(path: Path) -> None:
    damaged(path, 150)


def damaged_in_page_two(path: Path) -> None:
    damaged(path, 5_000)


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        text,
        text_with_a_log,
        foreign,
        foreign_in_use,
        foreign_with_a_journal,
        damaged_at_its_start,
        damaged_in_page_one,
        damaged_in_page_two,
    ],
)
def test_a_file_that_is_no_book_is_left_as_it_is_with_nothing_beside_it(
    tmp_path: Path, make: Callable[[Path], None], create: bool
) -> None:
    make(tmp_path / "notes.db")
    before = listed(tmp_path)
    with pytest.raises((NotABook, Corrupt)) as refused:
        commonplace.open(tmp_path / "notes.db", create=create)
    assert isinstance(refused.value, Corrupt) == (make in (damaged_in_page_one, damaged_in_page_two))
    assert listed(tmp_path) == before


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("create", [True, False])
def test_a_folder_that_is_no_book_is_left_as_it_is(tmp_path: Path, create: bool) -> None:
    (tmp_path / "ledger.jsonl").write_text("something\n")
    before = listed(tmp_path)
    with pytest.raises(commonplace.CommonplaceError):
        commonplace.open(f"file:{tmp_path}", create=create)
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

        monkeypatch.setattr("commonplace.ledger.transfer.copy_book", failing)
        monkeypatch.setattr("commonplace.engines.sqlite.SqliteReads", failing)
        with pytest.raises(KeyboardInterrupt):
            book.admin.backup(tmp_path / "out" / "backup.db")
        monkeypatch.undo()
        assert listed(tmp_path / "out") == {}
        with pytest.raises(commonplace.StorageFailed):
            book.admin.backup(tmp_path / "missing" / "backup.db")


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
    lock_file = tmp_path / "team.db-lock"
    os.chown(lock_file, 5678, 4321)
    with commonplace.open(path) as book:
        book.remember("The harbour is closed on Sundays")
        assert book.search("harbour").results
    made = [file for file in tmp_path.iterdir() if file.name.startswith("team.db.index")]
    assert {file.stat().st_uid for file in made} == {1234}  # root acts for the owner
    os.chown(lock_file, 5678, 5678)
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
                return f"done at {book.admin.backup(tmp_path / 'copy.db')}"
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


# other users who may use the book

Steps = Callable[[Path, Connection], object]


def use_once(path: Path, _pipe: Connection) -> object:
    with commonplace.open(path) as book:
        book.remember(f"user {os.getuid()} says that the queue is called jobs{os.getuid()}", shared=True)
        return len(book.search("queue").results), book.verify().ok


def use_until_told(path: Path, pipe: Connection) -> object:
    with commonplace.open(path) as book:
        book.record("agent.spoke")
        book.search("queue")
        pipe.send("open")
        pipe.recv()
        book.record("agent.spoke")
        return book.head


def only_read(path: Path, _pipe: Connection) -> object:
    before = listed_names(path.parent)
    with commonplace.open(path) as book:
        assert book.admin.facts.read_only
        ada = book.as_actor("ada")
        seen = len(list(book.events())), len(list(ada.events())), len(book.search("harbour").results)
        assert book.verify().ok
        assert len(ada.search("harbour").results) == 1
        with pytest.raises(commonplace.NotFound):
            ada.event("no such event")
        for write in (
            lambda: book.record("agent.spoke"),
            lambda: ada.remember("The ferry leaves at nine"),
            lambda: book.purge(),
            lambda: book.work(name="w", id="w"),
        ):
            with pytest.raises(commonplace.ReadOnly, match="may read .* and not write it"):
                write()
        assert list(book.watch(after=book.head, timeout=0.1)) == []
    assert listed_names(path.parent) == before
    return seen


def listed_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class User:
    """Another user of this host, in a process of its own: `call` is done there."""

    def __init__(self, uid: int, call: Steps, path: Path, group: int | None = None) -> None:
        self.pipe, theirs = get_context("fork").Pipe()
        self._process = get_context("fork").Process(target=self._run, args=(uid, group, call, path, theirs))
        self._process.start()
        theirs.close()

    @staticmethod
    def _run(uid: int, group: int | None, call: Steps, path: Path, pipe: Connection) -> None:
        if ROOT:
            os.setgroups([] if group is None else [group])
            os.setgid(uid)
            os.setuid(uid)
        try:
            pipe.send(call(path, pipe))
        except BaseException as error:
            pipe.send(f"{type(error).__name__}: {error}")

    def answer(self) -> object:
        told: object = self.pipe.recv()
        self._process.join()
        return told


@pytest.fixture
def common_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that other users can reach. What they do was done once before: they may not be able to import more."""
    folder = Path(tempfile.mkdtemp(prefix="commonplace-common-"))
    pipe, _ = get_context("fork").Pipe()
    use_once(tmp_path / "team.db", pipe)
    with pytest.raises(BaseException, match="assert"):
        only_read(tmp_path / "team.db", pipe)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.spec("5.8")
@pytest.mark.skipif(not ROOT, reason="only root can act in the name of others")
def test_two_users_of_one_group_share_a_book(common_folder: Path) -> None:
    ada, bob, team = 23001, 23002, 23003
    common_folder.chmod(0o770)
    os.chown(common_folder, ada, team)
    path = common_folder / "team.db"
    assert User(ada, use_once, path, team).answer() == (1, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    os.chown(path, -1, team)
    path.chmod(0o660)
    refused = User(bob, use_once, path, team).answer()  # what lies beside it is still for ada alone
    assert "EngineUnavailable" in str(refused)
    assert "let its owner open the book once" in str(refused)
    assert User(ada, use_once, path, team).answer() == (1, True)
    assert User(bob, use_once, path, team).answer() == (2, True)
    for first, second in ((ada, bob), (bob, ada)):
        holding = User(first, use_until_told, path, team)
        assert holding.pipe.recv() == "open"
        assert {beside.stat().st_gid for beside in common_folder.iterdir()} == {team}
        assert all(beside.stat().st_mode & 0o060 == 0o060 for beside in common_folder.iterdir())
        assert User(second, use_once, path, team).answer() == (2, True)
        holding.pipe.send("go on")
        assert isinstance(holding.answer(), int)
    stranger = User(23004, use_once, path).answer()
    assert "PermissionError" in str(stranger) or "EngineUnavailable" in str(stranger)


@pytest.mark.spec("5.8")
@pytest.mark.parametrize("folder_mode", [0o755, 0o777], ids=["folder-too", "only-the-file"])
@pytest.mark.skipif(not ROOT, reason="only root can act in the name of others")
def test_who_may_only_read_a_book_reads_it_and_leaves_nothing_beside_it(
    common_folder: Path, folder_mode: int
) -> None:
    ada, guest = 23001, 23004
    common_folder.chmod(folder_mode)
    os.chown(common_folder, ada, ada)
    path = common_folder / "team.db"

    def begin(path: Path, _pipe: Connection) -> object:
        with commonplace.open(path) as book:
            book.remember("The harbour is closed on Sundays", shared=True)
            return book.head

    def go_on(path: Path, pipe: Connection) -> object:
        with commonplace.open(path) as book:
            book.as_actor("ada").record("agent.spoke")
            pipe.send("open")
            pipe.recv()
            book.as_actor("ada").record("agent.spoke")
            pipe.send("wrote")
            pipe.recv()
        return "closed"

    assert User(ada, begin, path).answer() == 1
    path.chmod(0o644)
    assert User(guest, only_read, path).answer() == (1, 1, 1)
    writing = User(ada, go_on, path)
    assert writing.pipe.recv() == "open"
    assert User(guest, only_read, path).answer() == (2, 2, 1)
    writing.pipe.send("go on")
    assert writing.pipe.recv() == "wrote"
    assert User(guest, only_read, path).answer() == (3, 3, 1)
    writing.pipe.send("go on")
    assert writing.answer() == "closed"
    assert User(guest, only_read, path).answer() == (3, 3, 1)


@pytest.mark.spec("5.8")
def test_a_book_without_the_right_to_write_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with commonplace.open(home / "team.db") as book:
        book.remember("The harbour is closed on Sundays", shared=True)
    (home / "team.db").chmod(0o400)
    if ROOT:  # who may write everything; the system would say so of a disk that cannot be written
        monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    assert only_read(home / "team.db", get_context("fork").Pipe()[0]) == (1, 1, 1)


@pytest.mark.spec("5.8", "L5")
def test_a_reader_without_locks_says_so_when_somebody_begins_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "team.db"
    with commonplace.open(path) as book:
        book.access.grant("ada", role="qa")
    monkeypatch.setattr("commonplace.engines.sqlite.may_write", lambda _: False)
    with commonplace.open(path) as reader:
        monkeypatch.undo()
        with reader.ledger.snapshot() as before:
            assert rights_of(before, "ada").role == "qa"
            with commonplace.open(path) as writer:
                writer.access.grant("ada", role="developer")
                with pytest.raises(commonplace.Busy, match="read again"):
                    rights_of(before, "ada")
            with pytest.raises(commonplace.Busy, match="read again"):
                rights_of(before, "ada")
        assert reader.as_actor("ada").access.rights().role == "developer"
