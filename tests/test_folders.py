"""A folder from somebody else: it is read, it is synced only if the user trusts it, and nothing in it leads outside."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import commonplace
from commonplace import BadInput, EngineUnavailable, NotABook, NotTrusted, UnsafePath
from commonplace.files import safe
from commonplace.files.safe import Folder
from commonplace.files.trust import is_trusted, trust
from commonplace.mirror.folder import _key, _tag
from commonplace.workflow.load import examine
from commonplace.workflow.model import WORKFLOW_FILE
from tests.shells import Cli
from tests.workflows import changed, example, write

WRITER = "agents/report_writer/agent.awp.yaml"


class Clone:
    """A repository as somebody has prepared it, and the home of the user who has cloned it."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root / "clone", root / "home"
        self.folder = self.root / ".commonplace"
        self.book = self.folder / "book.db"
        self.records = self.folder / ".mirror"
        self.bashrc = self.home / ".bashrc"

    def forge(self, path: str, spare: bytes | None = None) -> None:
        """Record a page at a path, and with `spare` a file that was swapped out of it and is to go back."""
        base = {
            "path": path,
            "token": "t",
            "versions": [],
            "head": "",
            "texts": {},
            "taken": [],
            "asked": False,
        }
        (self.records / "base" / f"{_key(path)}.json").write_text(json.dumps(base))
        if spare is not None:
            file = self.records / "swap" / f"{_key(path)}-{_tag(b'a')}-{_tag(b'b')}-00000000"
            file.write_bytes(spare)
            file.chmod(0o755)

    def outside(self) -> dict[str, Any]:
        """All that the user has besides the folder of the markdown."""
        return {**tree(self.home), **tree(self.root / ".git")}


def tree(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        known = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(known.st_mode) else b""
        found[str(path)] = (known.st_mode, known.st_ino, known.st_mtime_ns, content)
    return found


def markdown(folder: Path) -> dict[str, Any]:
    """All in a folder but for the book's own files, which every reader locks."""
    return {path: known for path, known in tree(folder).items() if "book.db" not in path}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    """A book with markdown that another user has made, and whose records name files of ours."""
    made = Clone(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    with commonplace.open(made.book, mirror=True) as book:
        book.remember("Tea is served at four.", title="tea")
    (made.root / ".git" / "hooks").mkdir(parents=True)
    (made.home / ".ssh").mkdir(parents=True)
    made.bashrc.write_text("# mine\n")
    made.bashrc.chmod(0o600)
    made.forge("../.git/hooks/pre-commit", b"#!/bin/sh\necho forged\n")
    made.forge("../../home/.ssh/authorized_keys", b"ssh-ed25519 forged\n")
    made.forge(f"{made.home}/.profile", b"forged\n")
    made.forge("../../home/.bashrc")
    tags = [_tag(b"# mine\n"), _tag(b"# mine")]
    (made.records / "raw.json").write_text(json.dumps({"../../home/.bashrc": tags}))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    monkeypatch.chdir(made.root)
    return made


# on the command line


READING = [
    ["log"], ["status"], ["doctor"], ["runs", "list"], ["book", "verify"], ["memory", "list"], ["search", "tea"],
    ["digest", "tea"], ["prompt", "tea", "--as", "ada"], ["memory", "disputes"], ["memory", "tombstones"],
    ["memory", "cores"], ["documents", "notes"], ["documents", "days"], ["memory", "settings"], ["work", "list"],
    ["mirror", "status"], ["memory", "tidy", "--dry-run"], ["book", "export", "../home/book.jsonl"], ["inbox"],
]  # fmt: skip


@pytest.mark.spec("3.7")
@pytest.mark.parametrize("command", READING, ids=lambda words: " ".join(words))
def test_a_command_that_reads_touches_no_file(
    command: list[str], cli: Cli, clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clone.root)
    before, inside = clone.outside(), markdown(clone.folder)
    cli(*command)
    (clone.home / "book.jsonl").unlink(missing_ok=True)
    assert clone.outside() == before
    assert markdown(clone.folder) == inside


@pytest.mark.spec("3.7")
def test_also_one_s_own_markdown_waits_for_a_command_that_writes(cli: Cli, tmp_path: Path) -> None:
    assert cli("init").code == 0
    assert cli("remember", "Tea is served at four.").code == 0
    assert cli("mirror", "sync").code == 0
    page = Path(".commonplace/MEMORY.md")
    page.write_text(page.read_text().replace("four", "five"))
    assert "at four" in cli("memory", "list").out
    assert cli("documents", "log", "Tea was late.").code == 0
    assert "at five" in cli("memory", "list").out
    assert "Tea was late." in next(Path(".commonplace/memory").iterdir()).read_text()


@pytest.mark.spec("3.7")
def test_a_clone_is_written_to_and_its_markdown_is_left_until_the_user_trusts_it(
    cli: Cli, clone: Clone, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(clone.root)
    before, inside = clone.outside(), markdown(clone.folder)
    kept = cli("remember", "The release is on Monday.")
    assert kept.code == 0
    assert "--trust" in kept.err
    assert ".commonplace" in kept.err
    refused = cli("mirror", "sync", "--json")
    assert (refused.code, refused.error["code"], refused.error["status"]) == (1, "not_trusted", 403)
    assert "mirror sync --trust" in refused.error["message"]
    assert (clone.outside(), markdown(clone.folder)) == (before, inside)

    assert "MEMORY.md" in cli("mirror", "sync", "--trust", "--json").json["written"]
    assert "The release is on Monday." in (clone.folder / "MEMORY.md").read_text()
    assert clone.outside() == before  # trusted or not, its records lead nowhere
    record = tmp_path / "mine" / "commonplace" / "trusted.jsonl"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    again = cli("remember", "The cake is on Tuesday.")
    assert (again.code, again.err) == (0, "")
    assert "The cake is on Tuesday." in (clone.folder / "MEMORY.md").read_text()
    assert cli("forget", "--erase", "--yes", cli("memory", "list", "--json").json["items"][0]["id"]).code == 0
    assert clone.outside() == before


# in Python


@pytest.mark.spec("3.7")
def test_a_folder_of_somebody_else_is_synced_once_it_is_trusted(
    clone: Clone, caplog: pytest.LogCaptureFixture
) -> None:
    before, inside = clone.outside(), markdown(clone.folder)
    with caplog.at_level(logging.WARNING), commonplace.open(clone.book) as book:
        assert [item.title for item in book.memory.list()] == ["tea"]
        with pytest.raises(NotTrusted, match="did not make it"):
            book.mirror.folder().sync()
        with pytest.raises(NotTrusted):
            book.mirror.folder(clone.root / "elsewhere").sync()  # nor is the book to be believed
    assert str(clone.folder) in caplog.text
    with pytest.raises(NotTrusted):
        commonplace.open(clone.book, mirror=True)
    assert (clone.outside(), markdown(clone.folder)) == (before, inside)
    assert not (clone.root / "elsewhere").exists()
    with commonplace.open(clone.book, trust=True) as book:
        book.remember("A new thing.", title="new")
    assert "A new thing." in (clone.folder / "MEMORY.md").read_text()
    with commonplace.open(clone.book, mirror=True) as book:
        assert not book.mirror.folder().sync().news
    assert clone.outside() == before


@pytest.mark.spec("3.7")
def test_whoever_makes_a_book_is_never_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        with commonplace.open(tmp_path / "a" / "team.db") as book:
            book.remember("Tea is served at four.", title="tea")
        with commonplace.open(tmp_path / "a" / "team.db", mirror=True):
            pass
        with commonplace.open(tmp_path / "a" / "team.db") as book:
            book.mirror.folder(tmp_path / "notes").sync()
            book.admin.backup(tmp_path / "backup.db")
        (tmp_path / "a").rename(tmp_path / "b")  # moved, with all that is in it
        with commonplace.open(tmp_path / "b" / "team.db") as book:
            book.remember("Moved.", title="moved")
        shutil.rmtree(tmp_path / "notes")
        with commonplace.open(tmp_path / "backup.db", mirror=tmp_path / "notes") as book:
            assert not book.mirror.folder(tmp_path / "notes").sync().refused
        with commonplace.open(
            "memory:", mirror=tmp_path / "fresh"
        ) as book:  # a server's, as far as folders go
            book.remember("Served.", title="served")
    assert "Moved." in (tmp_path / "b" / "MEMORY.md").read_text()
    assert "Served." in (tmp_path / "fresh" / "MEMORY.md").read_text()
    assert "trust" not in caplog.text


@pytest.mark.spec("3.7")
def test_a_user_without_a_home_is_told_and_not_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING), commonplace.open(tmp_path / "team.db") as book:
        assert caplog.text == ""
        assert book.mirror.folder().sync().written
        assert "cannot be remembered" in caplog.text
    with pytest.raises(NotTrusted):
        commonplace.open(tmp_path / "team.db", mirror=True)
    with commonplace.open(tmp_path / "team.db", mirror=True, trust=True) as book:
        assert book.mirror.folder(trust=True).sync().refused == []


@pytest.mark.spec("3.7")
def test_the_record_of_what_is_trusted_is_this_user_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    trust("book", tmp_path)
    trust("book", tmp_path)
    record = tmp_path / "state" / "commonplace" / "trusted.jsonl"
    assert len(record.read_text().splitlines()) == 1
    assert (is_trusted("book", tmp_path), is_trusted("other", tmp_path)) == (True, False)
    assert not is_trusted("book", tmp_path / "elsewhere")
    record.write_bytes(b"not a line\n[1, 2]\n" + record.read_bytes())
    assert is_trusted("book", tmp_path)
    record.chmod(0o666)  # somebody else may have written it
    assert not is_trusted("book", tmp_path)
    record.chmod(0o600)
    record.rename(tmp_path / "elsewhere")
    record.symlink_to(tmp_path / "elsewhere")
    assert not is_trusted("book", tmp_path)
    monkeypatch.setattr("commonplace.files.trust.LARGEST", 100)
    record.unlink()
    for name in ("gone", "there", "last"):
        (tmp_path / name).mkdir()
        trust("book", tmp_path / name)
        if name == "gone":
            (tmp_path / name).rmdir()
    assert [json.loads(line)[1] for line in record.read_text().splitlines()] == [
        str(tmp_path.resolve() / name) for name in ("there", "last")
    ]


@pytest.mark.spec("L10")
def test_erasing_reaches_trusted_folders_and_names_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with commonplace.open(tmp_path / "team.db") as book:
        kept = book.remember("The door code is 4711.", title="door")
        book.mirror.folder(tmp_path / "mine").sync()
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
        book.mirror.folder(tmp_path / "theirs-too", trust=True).sync()
        monkeypatch.undo()
    theirs = tree(tmp_path / "theirs-too")
    with caplog.at_level(logging.WARNING), commonplace.open(tmp_path / "team.db") as book:
        book.forget(kept.item_id, confirm="FORGET", erase=True)
    assert "4711" not in (tmp_path / "mine" / "MEMORY.md").read_text()
    assert tree(tmp_path / "theirs-too") == theirs
    assert str(tmp_path / "theirs-too") in caplog.text
    assert "may still stand" in caplog.text


# one folder, and nothing outside it


@pytest.mark.spec("3.7")
@pytest.mark.parametrize(
    "path", ["", ".", "..", "/x", "a/../x", "a//x", "./x", "x/", "a\0b", "\ud800", "x" * 5_000]
)
def test_a_path_that_is_not_inside_is_refused(tmp_path: Path, path: str) -> None:
    folder = Folder(tmp_path)
    acts: list[Callable[[], object]] = [
        lambda: folder.read(path),
        lambda: folder.write(path, b""),
        lambda: folder.unlink(path),
        lambda: folder.stat(path),
        lambda: folder.mkdir(path),
        lambda: folder.replace(path, "x"),
        lambda: folder.link("x", path),
    ]
    for act in acts:
        with pytest.raises((UnsafePath, FileNotFoundError)) as caught:
            act()
        assert isinstance(caught.value, UnsafePath) or act is acts[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spec("3.7")
def test_a_link_that_comes_between_two_steps_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, outside, real = tmp_path / "inside", tmp_path / "outside", safe._open
    (inside / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "x").write_text("mine")

    def swapped(name: str, *more: Any, **named: Any) -> int:
        if name == "a" and not (inside / "a").is_symlink():
            (inside / "a").rmdir()
            (inside / "a").symlink_to(outside)
        return real(name, *more, **named)

    monkeypatch.setattr(safe, "_open", swapped)
    folder = Folder(inside)
    acts: list[Callable[[], object]] = [
        lambda: folder.write("a/x", b"theirs"),
        lambda: folder.unlink("a/x"),
        lambda: folder.read("a/x"),
    ]
    for act in acts:
        with pytest.raises(UnsafePath, match="symbolic link"):
            act()
    assert (outside / "x").read_text() == "mine"
    with pytest.raises(UnsafePath):
        Folder(inside / "a").read("x")  # nor may the folder itself be one


@pytest.mark.spec("3.7")
def test_modes_are_ours(clone: Clone) -> None:
    page = clone.folder / "MEMORY.md"
    page.write_text(page.read_text().replace("<!-- /cp page", "- by hand\n<!-- /cp page"))
    page.chmod(0o4775)
    clone.forge("NOTES.md", b"#!/bin/sh\n")
    clone.forge("hidden/.x", b"#!/bin/sh\n")
    with commonplace.open(clone.book, mirror=True, trust=True):
        pass
    assert stat.S_IMODE(page.stat().st_mode) == 0o664
    plain = [path for path in clone.folder.rglob("*") if path.is_file() and "book.db" not in path.name]
    assert [path for path in plain if path.stat().st_mode & 0o7111 and path.parent.name != "swap"] == []
    record = clone.records / "base" / f"{_key('MEMORY.md')}.json"
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


@pytest.mark.spec("3.7")
def test_links_in_the_place_of_a_book_s_own_files_are_not_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mine = tmp_path / "mine"
    with commonplace.open(tmp_path / "team.db") as book:
        book.remember("Tea is served at four.", title="tea")
    for name in ("team.db.index", "team.db.index-lock", "team.db.mirrors"):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(mine)
    with caplog.at_level(logging.WARNING), commonplace.open(tmp_path / "team.db") as book:
        assert book.search("tea").results
        book.mirror.folder().sync()
    assert "the index" in caplog.text
    assert not mine.exists()
    (tmp_path / "link.db").symlink_to(tmp_path / "team.db")
    with pytest.raises(NotABook, match="is a link"):
        commonplace.open(tmp_path / "link.db")
    os.mkfifo(tmp_path / "other.db-lock")
    with pytest.raises(EngineUnavailable, match="no ordinary file"):
        commonplace.open(tmp_path / "other.db")


@pytest.mark.spec("3.7")
def test_a_book_kept_as_files_keeps_to_plain_files(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "book"
    home.mkdir()
    with commonplace.open(f"file:{folder}") as book:
        event = book.record("agent.spoke", payload={"file": commonplace.Blob(b"content")})
    (blob,) = (folder / "blobs").glob("*/*")
    acts: list[Callable[[Path], object]] = [os.mkfifo, lambda path: path.symlink_to(home / "new")]
    for place in ("leases.json", "redo.json", "ledger.torn", "lock", f"blobs/{'0' * 2}"):
        for act in acts:
            (folder / place).unlink(missing_ok=True)
            act(folder / place)
            with pytest.raises(NotABook):
                commonplace.open(f"file:{folder}")
        (folder / place).unlink()
    blob.unlink()
    os.mkfifo(blob)
    with commonplace.open(f"file:{folder}") as book, pytest.raises(NotABook):
        book.blob(book.event(event.id).payload["file"]["$blob"])
    assert list(home.iterdir()) == []


@pytest.mark.spec("3.7")
def test_a_book_that_is_found_behind_a_link_is_not_opened(cli: Cli, tmp_path: Path) -> None:
    home = tmp_path / "home"
    with commonplace.open(home / "book.db"):
        pass
    before = tree(home)
    Path(".commonplace").symlink_to(home)
    refused = cli("log")
    assert (refused.code, "--book" in refused.err) == (1, True)
    assert tree(home) == before
    assert cli("log", "--book", ".commonplace/./book.db").code == 0  # the user's own word


# imports, exports, artifacts, workflows


@pytest.mark.spec("3.7", "1.4")
def test_nothing_is_written_through_a_link(cli: Cli, tmp_path: Path) -> None:
    mine, link, new = tmp_path / "mine", tmp_path / "link", tmp_path / "dangling"
    mine.write_text("mine")
    link.symlink_to(mine)
    new.symlink_to(tmp_path / "new")
    book_path = tmp_path / "team.db"
    with commonplace.open(book_path) as book:
        work = book.work(name="w", goal="g")
        made = work.artifact("out.txt", content=b"theirs")
        acts: list[Callable[[Path], object]] = [
            book.admin.export,
            book.as_actor("ada").export,
            book.memory.export,
            work.manage.export,
            book.admin.backup,
        ]
        for act in acts:
            for target in (link, new):
                with pytest.raises(BadInput):
                    act(target)
        book.admin.export(mine.with_name("plain"))
        book.admin.export(mine.with_name("plain"))  # a file that is there is replaced
    refused = cli("work", "content", made.id, link, "--book", book_path)
    assert (refused.code, "symbolic link" in refused.err) == (1, True)
    assert mine.read_text() == "mine"
    assert not (tmp_path / "new").exists()
    assert not list(tmp_path.glob("tmp-*"))


@pytest.mark.spec("3.7")
def test_an_import_reads_no_link_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("- mine alone\n")
    notes = tmp_path / "notes"
    (notes / "deep").mkdir(parents=True)
    (notes / "plain.md").write_text("- a note of theirs\n")
    (notes / "deep" / "linked.md").symlink_to(tmp_path / "secret.md")
    (notes / "folder").symlink_to(tmp_path)
    os.mkfifo(notes / "pipe.md")
    with commonplace.open(tmp_path / "team.db") as book:
        adopted = book.memory.import_(notes)
        left = {one.source: one.why for one in adopted.skipped}
        assert left["deep/linked.md"] == "a link that leaves the folder; links are not followed"
        assert left["folder"].startswith("a link that leaves the folder")
        assert left["pipe.md"] == "not a file"
        assert not any("mine alone" in item.text for item in book.memory.list())


@pytest.mark.spec("5.6")
def test_an_artifact_that_is_a_link_is_kept_by_reference_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("mine alone")
    (tmp_path / "link").symlink_to("secret/key")
    (tmp_path / "folder").symlink_to("secret")
    os.mkfifo("pipe")
    with commonplace.open("memory:") as book:
        work = book.work(name="w", goal="g")
        for path in ("link", "folder/key", tmp_path / "link", "pipe", "/dev/zero"):
            made = work.artifact(path)
            assert (made.path, made.checksum, made.blob) == (str(path), None, None)
        with pytest.raises(BadInput, match="no file"):
            work.artifact("link", store=True)
        assert work.content(work.artifact("secret/key")) == b"mine alone"


@pytest.mark.spec("7.6")
def test_no_path_of_a_workflow_meets_a_link(tmp_path: Path) -> None:
    flow = tmp_path / "flow"
    for place in ("agents/report_writer", WRITER, WORKFLOW_FILE, "agents"):
        shutil.rmtree(flow, ignore_errors=True)
        write(flow, example())
        (flow / place).rename(flow / "moved")
        (flow / place).symlink_to(flow / "moved")  # also one that stays inside
        found, problems = examine(flow)
        assert found is None
        assert any("link" in problem.message for problem in problems), (place, problems)
    shutil.rmtree(flow)
    write(flow, example())
    (tmp_path / "link").symlink_to(flow)
    assert examine(tmp_path / "link")[0] is not None  # which workflow is run, the user says


@pytest.mark.spec("7.6", "2.4")
@pytest.mark.parametrize("runtime", ["./tool", "../home/tool", "bin/tool", "away:go", "package.away:go"])
def test_a_workflow_runs_nothing_of_its_own_outside_its_folder(tmp_path: Path, runtime: str) -> None:
    home, flow = tmp_path / "home", tmp_path / "flow"
    home.mkdir()
    (home / "tool").write_text(f"#!/bin/sh\ntouch {home}/was-run\necho '{{}}'\n")
    (home / "tool").chmod(0o755)
    (home / "away.py").write_text(
        f"import pathlib\ndef go(task): pathlib.Path({str(home)!r}, 'was-run').touch()\n"
    )
    key, value = ("callable", runtime) if ":" in runtime else ("command", [runtime])
    documents = {
        WORKFLOW_FILE: {
            "awp": "1.0.0",
            "workflow": {"name": "flow", "version": "1.0.0", "description": "d"},
            "orchestration": {"engine": "dag", "graph": [{"id": "one", "agent": "agents/one"}]},
        },
        "agents/one/agent.awp.yaml": {
            "awp": "1.0.0",
            "identity": {"id": "one", "role": "r", "goal": "g"},
            "runtime": {key: value},
        },
    }
    write(flow, documents)
    (flow / "tool").symlink_to(home / "tool")
    (flow / "bin").symlink_to(home)
    (flow / "away.py").symlink_to(home / "away.py")
    (flow / "package").symlink_to(home)
    with commonplace.open("memory:") as book, pytest.raises(commonplace.CommonplaceError):
        book.runs.execute(flow)
    assert not (home / "was-run").exists()


@pytest.mark.spec("2.4")
def test_the_state_is_not_saved_through_a_link(tmp_path: Path) -> None:
    home, flow = tmp_path / "home", tmp_path / "flow"
    home.mkdir()
    write(flow, changed(example(), WORKFLOW_FILE, "state.persistence.interval", "manual"))
    with commonplace.open("memory:") as book:
        run = book.run(flow, run_id="r")
        assert run.save() == flow / "data" / "state" / "r.json"
        shutil.rmtree(flow / "data")
        (flow / "data").symlink_to(home)  # after the workflow was loaded
        with pytest.raises(commonplace.StorageFailed, match="symbolic link"):
            run.save()
    assert list(home.iterdir()) == []


@pytest.mark.spec("L10")
def test_a_purge_does_not_claim_what_it_could_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container that is started anew the record of what is trusted may be gone: the markdown is not touched then,
    and the report says so."""
    with commonplace.open(tmp_path / "team.db", mirror=tmp_path / "notes") as book:
        kept = book.remember("Kim lives at Quartz Lane 7")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with commonplace.open(tmp_path / "team.db") as book:
        book.forget(kept.item_id, erase=True, confirm="FORGET")
        report = book.purge()
        assert not report.purged
        assert any("notes" in line and "--trust" in line for line in report.remaining)
        assert book.admin.find_text(["Quartz Lane"])
        book.mirror.folder(tmp_path / "notes", trust=True).sync()
        assert book.purge().purged
        assert book.admin.find_text(["Quartz Lane"]) == []
