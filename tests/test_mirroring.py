"""The markdown of a book: what it shows, and what becomes of a person's hand edits."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import commonplace
from commonplace import Book
from commonplace.errors import BadInput
from commonplace.memory.pages import sheets
from commonplace.mirror import book as mirroring

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with commonplace.open(tmp_path / "team.db", mirror=True) as opened:
        yield opened


def files(folder: Path) -> dict[str, bytes]:
    """Every file that people see, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not any(part.startswith((".mirror", "team.db")) for part in path.relative_to(folder).parts)
    }


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def fill(book: Book) -> None:
    ada = book.as_actor("ada")
    book.remember("Postgres listens on 5433", title="db port")
    book.remember(key="api.limit", value={"per": "minute", "most": 60})
    book.remember("First this,\nthen that.", kind="procedure", title="release")
    ada.remember("I prefer short names")
    ada.remember(f"The robot signs with {SECRET} always", shared=True)
    lee = book.as_actor("lee", role="librarian")
    lee.memory.set_core("auth", name="Auth")
    lee.remember("Tokens expire after an hour.", core="auth", type="convention")
    ada.memory.repository_fact(
        "tests", "Run them with make test.", citations=["Makefile:3"], reason="r", category="reference"
    )
    ada.documents.log("The build was red.")
    ada.documents.add_to_session("Login", "half way")
    ada.documents.add_to_task("Login", "decisions", "We use HS256.")
    ada.documents.record_gate("Login", "PLAN", "GO")
    book.documents.write_notes("- Objective: ship the login\n- Blockers: none")


@pytest.mark.spec("3.7", "3.1", "3.2")
def test_everything_that_may_be_seen_stands_where_people_look_for_it(book: Book, tmp_path: Path) -> None:
    fill(book)
    book.mirror.folder().sync()
    (day,) = book.documents.days()
    shown = files(tmp_path)
    assert set(shown) == {
        "MEMORY.md", "NOTES.md", f"memory/{day}.md", "memories/agents/ada.md", "memories/cores/auth.md",
        "memories/repo/reference.md", "memories/session/login-notes.md", "plans/artifacts/login/decisions.md",
        "plans/artifacts/login/observability/login.ndjson", "plans/templates/session-notes-template.md",
    }  # fmt: skip
    memory = shown["MEMORY.md"].decode()
    assert "- **db port** — Postgres listens on 5433" in memory
    assert '- **api.limit**: {"most": 60, "per": "minute"}' in memory
    assert "- **release** — First this,\n  then that." in memory
    assert not any(SECRET.encode() in text for text in shown.values())
    assert b"I prefer short names" not in shown["MEMORY.md"]


@pytest.mark.spec("3.7")
def test_every_place_of_the_markdown_can_be_called_something_else(book: Book, tmp_path: Path) -> None:
    places = {
        "MEMORY.md": "TEAM.md",
        "NOTES.md": "now/NOTES.md",
        "plans/artifacts/": "work/",
        "memory/": "log/days/",
    }
    fill(book)
    book.mirror.folder().sync()
    book.memory.configure(places=places)
    mirror = book.mirror.folder(person="kim")
    mirror.sync()
    shown = set(files(tmp_path))
    assert {"TEAM.md", "now/NOTES.md", "work/login/decisions.md", "memories/cores/auth.md"} <= shown
    assert not any(path.startswith(("MEMORY.md", "NOTES.md", "plans/artifacts", "memory/")) for path in shown)
    edit(tmp_path / "TEAM.md", "Postgres listens on 5433", "Postgres listens on 5444")
    edit(tmp_path / "now/NOTES.md", "ship the login", "ship the logout")
    mirror.sync()
    assert "Postgres listens on 5444" in {one.body for one in book.memory.list()}
    assert "ship the logout" in book.documents.notes()
    for wrong in (
        {"elsewhere/": "x/"}, {"memory/": "../x/"}, {"memory/": "/x/"}, {"memory/": "x"}, {"MEMORY.md": "a/b/"},
        {"memory/": "plans/"}, {"MEMORY.md": "NOTES.md"}, {"memory/": ".mirror/"}, {"memory/": "a//b/"},
    ):  # fmt: skip
        with pytest.raises(BadInput, match=r"place|called"):
            book.memory.configure(places=wrong)
    assert book.memory.settings().places == places


@pytest.mark.spec("L1", "3.7")
def test_rebuilding_gives_the_same_bytes(book: Book, tmp_path: Path) -> None:
    fill(book)
    book.mirror.folder().sync()
    before = files(tmp_path)
    for name in before:
        (tmp_path / name).unlink()
    subprocess.run(["rm", "-r", str(tmp_path / ".mirror")], check=True)
    book.mirror._own = None
    book.rebuild()
    book.mirror.folder().sync()
    assert files(tmp_path) == before
    book.admin.copy(other := commonplace.open(tmp_path / "elsewhere" / "team.db"))
    with other:
        other.mirror.folder().sync()
    assert files(tmp_path / "elsewhere") == before


@pytest.mark.spec("3.7")
def test_hand_edits_are_the_acts_of_the_person_who_made_them(book: Book, tmp_path: Path) -> None:
    fill(book)
    mirror = book.mirror.folder(person="kim")
    mirror.sync()
    page = tmp_path / "MEMORY.md"
    edit(page, "listens on 5433", "listens on 6000")
    edit(page, '{"most": 60, "per": "minute"}', "90")
    page.write_text(page.read_text() + "\n- **tea**: at four\n\n- a thing that I know\n")
    report = mirror.sync()
    assert [(one.ok, one.note) for one in report.taken] == [(True, "")] * 3
    texts = {item.text: item for item in book.memory.list()}
    assert {
        "db port: Postgres listens on 6000",
        "api.limit: 90",
        "tea: at four",
        "a thing that I know",
    } <= set(texts)
    assert texts["a thing that I know"].agent == "kim"
    changed = [
        event for event in book.events(kinds=("memory.item.updated",)) if event.payload["act"] != "shared"
    ]
    assert {event.actor for event in changed} == {"kim"}
    edit(page, "- a thing that I know\n", "")
    page.write_text(
        page.read_text().replace("<!-- cp:" + texts["a thing that I know"].id + " -->\n<!-- /cp -->\n", "")
    )
    mirror.sync()
    assert "a thing that I know" not in {item.text for item in book.memory.list()}
    assert [stone.deleted_by for stone in book.memory.tombstones()] == ["user"]
    assert mirror.sync().news is False


@pytest.mark.spec("3.7", "3.2")
def test_a_fact_of_the_repository_is_superseded_and_notes_keep_their_rules(
    book: Book, tmp_path: Path
) -> None:
    fill(book)
    mirror = book.mirror.folder()
    mirror.sync()
    edit(tmp_path / "memories/repo/reference.md", "make test", "make check")
    edit(tmp_path / "memories/cores/auth.md", "an hour", "two hours")
    edit(tmp_path / "NOTES.md", "ship the login", "ship the logout")
    day = tmp_path / "memory" / f"{book.documents.days()[0]}.md"
    day.write_text(day.read_text() + "\nand green again at night\n")
    mirror.sync()
    old, new = book.memory.list(repository=True, status=None)
    assert (old.superseded_by, new.value, new.citations) == (
        new.id,
        "Run them with make check.",
        ("Makefile:3",),
    )
    assert [item.text for item in book.memory.list(core="auth")] == ["Tokens expire after two hours."]
    assert "ship the logout" in book.documents.notes()
    assert "and green again at night" in [one.text for one in book.documents.day(book.documents.days()[0])]
    edit(tmp_path / "NOTES.md", "ship the logout", "iteration 3 of the logout")
    report = mirror.sync()
    assert [(one.ok, "'iteration'" in one.note) for one in report.taken] == [(False, True)]
    assert "ship the logout" in book.documents.notes()
    assert "iteration 3" in (tmp_path / "NOTES.md").read_text()  # it is still there to be mended
    edit(day, "The build was red.", "The build was green.")
    assert [one.ok for one in mirror.sync().taken] == [False]


@pytest.mark.spec("3.7", "L5")
def test_a_clash_shows_both_and_waits_for_the_person(book: Book, tmp_path: Path) -> None:
    fill(book)
    mirror = book.mirror.folder()
    mirror.sync()
    page, item = tmp_path / "MEMORY.md", book.memory.list(kind="note")[0]
    edit(page, "listens on 5433", "listens on 7000")
    book.memory.revise(item.id, text="Postgres listens on 8000")
    report = mirror.sync()
    assert [(one.block, one.taken) if hasattr(one, "taken") else one.block for one in report.clashes] == [
        item.id
    ]
    text = page.read_text()
    assert "listens on 7000" in text
    assert "listens on 8000" in text
    assert book.memory.get(item.id).body == "Postgres listens on 8000"
    assert mirror.sync().written == []
    start, end = (
        text.index(f"<!-- cp:{item.id} -->"),
        text.index("<!-- /cp -->", text.index(f"<!-- cp:{item.id} -->")),
    )
    page.write_text(
        f"{text[:start]}<!-- cp:{item.id} -->\n- **db port** — Postgres listens on 7000\n{text[end:]}"
    )
    assert mirror.sync().clashes == []
    assert book.memory.get(item.id).body == "Postgres listens on 7000"


@pytest.mark.spec("3.7", "L10")
def test_erasing_takes_the_text_out_of_the_files_also_where_it_was_edited(book: Book, tmp_path: Path) -> None:
    fill(book)
    mirror = book.mirror.folder()
    mirror.sync()
    item = book.memory.list(kind="note")[0]
    edit(tmp_path / "MEMORY.md", "listens on 5433", "listens on 5433, says the person")
    book.remember("Something else to keep", title="else")
    book.forget(item.id, erase=True, confirm="FORGET")
    assert not any(b"5433" in text for text in files(tmp_path).values())
    assert not any(
        b"5433" in path.read_bytes() for path in (tmp_path / ".mirror").rglob("*") if path.is_file()
    )
    assert "Something else to keep" in (tmp_path / "MEMORY.md").read_text()
    book.purge()
    assert book.admin.find_text(["Postgres listens on 5433"]) == []


@pytest.mark.spec("3.7", "L10", "1.4")
def test_an_erasure_that_arrives_with_a_copy_reaches_the_files_of_the_copy(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    with (
        commonplace.open(tmp_path / "source.db") as source,
        commonplace.open(folder / "team.db", mirror=True) as copy,
    ):
        fill(source)
        source.admin.copy(copy)
        copy.mirror.sync()
        assert b"5433" in files(folder)["MEMORY.md"]
        source.forget(source.memory.list(kind="note")[0].id, erase=True, confirm="FORGET")
        source.admin.copy(copy)
        kept = [path for path in folder.rglob("*") if path.is_file() and "team.db" not in path.name]
        assert not any(b"5433" in path.read_bytes() for path in kept)


@pytest.mark.spec("3.6")
def test_opening_and_closing_makes_the_pages_once_unless_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()

    def counted(views: Any, now_us: int) -> Any:
        made.append(now_us)
        return sheets(views, now_us)

    monkeypatch.setattr(mirroring, "sheets", counted)
    later = datetime.now(UTC) + timedelta(hours=1)
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        book.remember(key="port", value=5433, valid_until=later)
    made.clear()
    with commonplace.open(tmp_path / "team.db"):
        pass
    assert len(made) == 1
    with commonplace.open(tmp_path / "team.db") as book:
        moment = int((later + timedelta(hours=1)).timestamp() * 1e6)
        monkeypatch.setattr(book.ledger, "moment", lambda: moment)
    assert len(made) == 3
    assert "5433" not in (tmp_path / "MEMORY.md").read_text()
    assert "5433" in (tmp_path / "archive/MEMORY.md").read_text()


@pytest.mark.spec("3.1", "3.4", "L5")
def test_what_stands_on_other_pages_does_not_fill_memory_md(book: Book, tmp_path: Path) -> None:
    book.memory.configure(max_size_kb=1)
    book.memory.set_core("tools", name="tools")
    for number in range(30):
        text = f"number {number} of many lines, which are all about {number * number}"
        assert book.remember(text, core="tools", shared=True).overflow == ""
    assert book.remember("The only entry of the team's memory").overflow == ""
    book.mirror.folder().sync()
    assert "The only entry" in (tmp_path / "MEMORY.md").read_text()
    assert not (tmp_path / "archive/MEMORY.md").exists()


@pytest.mark.spec("3.1")
def test_what_does_not_fit_into_memory_md_goes_to_its_archive_and_is_said(book: Book, tmp_path: Path) -> None:
    book.memory.configure(max_size_kb=1)
    kept = [book.remember(f"number {n} of many lines, which are all about {n * n}") for n in range(30)]
    assert "full" in kept[-1].overflow
    assert kept[0].overflow == ""
    assert book.remember("what a person alone may read", sensitivity="sensitive").overflow == ""
    book.mirror.folder().sync()
    memory, archive = ((tmp_path / name).read_text() for name in ("MEMORY.md", "archive/MEMORY.md"))
    assert "number 29 of" in memory
    assert "number 0 of" not in memory
    assert "number 0 of" in archive
    assert sum(text.count("of many lines") for text in (memory, archive)) == 30
    assert len(book.memory.long_term()) == memory.count("of many lines")
    assert [one.content for one in book.search('"number 0 of"').results]
    book.memory.configure(max_size_kb=3)
    book.mirror.folder().sync()
    assert 2 * 1024 < (tmp_path / "MEMORY.md").stat().st_size <= 3 * 1024


@pytest.mark.spec("3.7")
def test_edits_are_found_on_open_and_by_watching(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        book.remember("The gate closes at nine.")
    edit(tmp_path / "MEMORY.md", "at nine", "at ten")
    with commonplace.open(tmp_path / "team.db") as book:
        assert book.memory.list()[0].body == "The gate closes at ten."
        stop, seen = threading.Event(), threading.Event()
        first = threading.Event()

        def told(report: object) -> None:
            first.set()
            if getattr(report, "taken", None):
                seen.set()

        watcher = threading.Thread(target=book.mirror.folder().watch, args=(stop, told))
        watcher.start()
        try:
            assert first.wait(30)
            edit(tmp_path / "MEMORY.md", "at ten", "at eleven")
            assert seen.wait(30)
        finally:
            stop.set()
            watcher.join(30)
        assert book.memory.list()[0].body == "The gate closes at eleven."


@pytest.mark.spec("3.7")
def test_it_works_in_a_git_repository_with_merges(tmp_path: Path) -> None:
    def git(*args: str) -> str:
        base = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(tmp_path)]
        return subprocess.run([*base, *args], check=False, capture_output=True, text=True).stdout

    with commonplace.open(tmp_path / "team.db", mirror=True) as book:
        for n in range(6):
            book.remember(f"Maxim {n} of what the team has learned about the weather")
        book.mirror.folder().sync()
        git("init", "-q", "-b", "main")
        (tmp_path / ".gitignore").write_text("team.db*\n")
        git("add", "-A")
        git("commit", "-qm", "one")
        git("checkout", "-qb", "side")
        edit(tmp_path / "MEMORY.md", "Maxim 0", "Motto 0")
        git("commit", "-qam", "side")
        git("checkout", "-q", "main")
        edit(tmp_path / "MEMORY.md", "Maxim 5", "Motto 5")
        git("commit", "-qam", "main")
        git("merge", "-q", "side", "-m", "merged")
        report = book.mirror.folder().sync()
        assert report.clashes == []
        bodies = {str(item.body)[:7] for item in book.memory.list()}
        assert bodies == {"Motto 0", "Maxim 1", "Maxim 2", "Maxim 3", "Maxim 4", "Motto 5"}
        text = (tmp_path / "MEMORY.md").read_text()
        (tmp_path / "MEMORY.md").write_text(f"<<<<<<< ours\n{text}=======\n{text}>>>>>>> theirs\n")
        refused = book.mirror.folder().sync().refused
        assert refused
        assert refused[0][0] == "MEMORY.md"
        assert (tmp_path / "MEMORY.md").read_text().startswith("<<<<<<<")
        (tmp_path / "MEMORY.md").write_text(text)
        assert book.mirror.folder().sync().refused == []


def test_a_folder_shows_one_book_and_a_server_needs_to_be_told_where(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "one.db", mirror=True), commonplace.open(tmp_path / "two.db") as two:
        with pytest.raises(BadInput, match="another book"):
            two.mirror.folder().sync()
        two.mirror.folder(tmp_path / "two").sync()
    with commonplace.open("memory:") as book, pytest.raises(BadInput, match="say in which one"):
        book.mirror.folder()


@pytest.mark.spec("3.7", "L5")
def test_of_several_lines_by_hand_the_file_says_which_wait(book: Book, tmp_path: Path) -> None:
    book.remember("The lift is slow on Mondays and on Tuesdays in winter.")
    book.mirror.folder().sync()
    page = tmp_path / "MEMORY.md"
    added = "- The stairs are steep.\n- The lift is slow on Mondays and on Tuesdays in late winter.\n"
    page.write_text(f"{page.read_text()}\n{added}")
    (taken,) = book.mirror.folder().sync().taken
    assert (taken.ok, "1 of 2 are taken in" in taken.note) == (False, True)
    assert "The stairs are steep." in {one.body for one in book.memory.list()}
    assert taken.note in page.read_text()
    book.mirror.folder().sync()
    assert len(book.memory.list(status=None)) == 3


@pytest.mark.spec("L10")
@pytest.mark.parametrize("again", ["forget", "erase"])
def test_an_erasure_that_the_disk_refused_is_finished_when_it_is_asked_for_again(
    book: Book, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    kept = book.remember("The courier's number is 5550147")
    book.mirror.sync()
    with monkeypatch.context() as broken:
        broken.setattr(mirroring.BookMirror, "erase", Mock(side_effect=OSError("no space left")))
        with pytest.raises(commonplace.StorageFailed, match="erased from the book, and may still stand in"):
            book.forget(kept.id, erase=True, confirm="FORGET")
    assert kept.id is not None
    assert book.event(kept.id).erased
    assert "5550147" in (tmp_path / "MEMORY.md").read_text()
    if again == "forget":
        book.forget(kept.id, erase=True, confirm="FORGET")
    else:
        book.erase(kept.id)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".md"]
    assert files
    assert all("5550147" not in path.read_text() for path in files)
