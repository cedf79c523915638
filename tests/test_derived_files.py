"""The index is derived: it follows redaction, is believed only if it is this ledger's, and hides from no purge."""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import commonplace
from commonplace import Actor, Book, StorageFailed
from commonplace.index import Doc, Index, Put, Who, embedder_of, store
from commonplace.recall import book_index as book_index_module
from commonplace.state.policy import Policy, Start
from commonplace.state.requests import Open
from tests.serving import ledger_below
from tests.shells import Cli

MODES = ("hybrid", "keyword", "semantic")
TIERS = ["long_term", "working", "episodic", "semantic"]
SECRET = "zanzibar-quince"


def answers(who: Book | Actor, *queries: str, at: int | None = None) -> list[Any]:
    """All that searches tell: what is found, how it scores, how much there is, what was corrected, and why."""
    told = []
    for query in queries or ("harbour", "cedar key", '"harbour gate"', "harb*", "harbuor"):
        for mode in MODES:
            answer = who.search(query, mode=mode, at=at, explain=True, max_results=50)
            told.append((query, mode, answer.results, answer.total, answer.corrected))
    return told


def shown(who: Book | Actor, *queries: str, at: int | None = None) -> str:
    """What searches show of what they found, without the words of the question."""
    return str([[(one.content, one.text) for one in told[2]] for told in answers(who, *queries, at=at)])


def anew(book: Book, ask: Callable[[], Any]) -> Any:
    """The same from an index that was built a moment ago."""
    book._session.services.index.throw_away()
    return ask()


def say(book: Book, text: str, run: str = "r", **more: Any) -> str:
    return book.record("agent.spoke", actor="ada", run_id=run, payload={"text": text}, **more).id


def open_run(book: Book, id: str = "r", parent: str | None = None, **rules: Any) -> Any:
    ledger_below(book).submit("state.open", Open(id, "owner", Policy(**rules), Start(), {}, parent=parent))
    return book.run(run_id=id)


# A secret that is declared later.

LEAKS = (
    SECRET,
    "zanzibar",
    "quince",
    "zanzibra",
    "zanz*",
    f'"opens with {SECRET}"',
    "which word opens the gate",
)


@pytest.mark.spec("2.7", "L1", "L6", "4.2")
@pytest.mark.parametrize("rule", ["sensitive_fields", "never_share"])
def test_what_becomes_a_secret_later_leaves_every_search(book: Book, rule: str) -> None:
    rules: dict[str, Any] = {rule: ("code",)}
    run = open_run(book, **rules)
    say(book, f"the harbour gate opens with {SECRET} at night")
    say(book, "the harbour gate is green")
    before = book.head
    everybody: list[Book | Actor] = [book, book.as_actor("ada"), book.as_actor("ben")]
    assert SECRET in shown(book, *LEAKS)
    run.agent("ada").write({"code": SECRET})
    for who in everybody:
        for at in (None, before):
            told = answers(who, *LEAKS, at=at)
            assert "zanzibar" not in shown(who, *LEAKS, at=at)
            assert not any(corrected for *_, corrected in told)
            assert "matched" not in str([one.why for one in told[0][2]])
            book._session.services.index.throw_away()
            assert answers(who, *LEAKS, at=at) == told
    assert "opens with [REDACTED] at night" in shown(book, "harbour gate at night")


@pytest.mark.spec("2.7", "L1")
def test_a_run_that_is_opened_after_its_events_hides_what_fits_its_patterns(book: Book) -> None:
    for n in range(3):
        say(book, f"ticket tok-47{n} waits at the harbour")
    assert "tok-471" in shown(book, "ticket tok-471")
    open_run(book, patterns=("tok-[0-9]+",))
    assert "tok-47" not in shown(book, "ticket tok-471", "tok-47*")
    assert anew(book, lambda: answers(book, "ticket tok-471")) == answers(book, "ticket tok-471")


@pytest.mark.spec("2.7", "2.10", "L8")
def test_runs_within_a_run_and_forks_of_it_keep_its_later_secrets(book: Book) -> None:
    run = open_run(book, sensitive_fields=("code",))
    open_run(book, "inner", parent="r")
    fork = book.fork("inner")
    say(book, f"inner: {SECRET}", "inner")
    say(book, f"forked: {SECRET}", fork.id)
    say(book, f"elsewhere: {SECRET}", "another")
    assert all(word in shown(book, SECRET) for word in ("inner: zan", "forked: zan", "elsewhere: zan"))
    run.agent("ada").write({"code": SECRET})
    told = shown(book, SECRET, "inner", "forked", "elsewhere")
    assert "inner: [REDACTED]" in told
    assert "forked: [REDACTED]" in told
    assert "inner: zan" not in told
    assert "forked: zan" not in told
    assert "elsewhere: zan" in told, "another run has secrets of its own"


@pytest.mark.spec("2.7", "3.1", "5.4")
def test_logs_and_decisions_of_a_run_are_hidden_too(book: Book) -> None:
    run = open_run(book, sensitive_fields=("code", "rationale"))
    me = run.agent("ada")
    me.documents.log(f"the gate took {SECRET}")
    assert SECRET in shown(book, "the gate took")
    run.agent("ada").write({"code": SECRET})
    assert SECRET not in shown(book, "the gate took", SECRET)
    assert "the gate took [REDACTED]" in shown(book, "the gate took")
    told = answers(book, "gate", SECRET)
    assert anew(book, lambda: answers(book, "gate", SECRET)) == told


@pytest.mark.spec("L1", "L10")
def test_what_is_no_secret_any_more_because_it_was_erased_is_as_in_a_new_index(book: Book) -> None:
    run = open_run(book, sensitive_fields=("code",))
    say(book, f"the harbour gate opens with {SECRET}")
    answers(book)
    written = run.agent("ada").write({"code": SECRET})
    answers(book)
    book.erase(next(book.events(after=written.position - 1)).id)
    told = answers(book, SECRET, "harbour")
    assert anew(book, lambda: answers(book, SECRET, "harbour")) == told


@pytest.mark.spec("L8", "4.3", "L7")
def test_what_is_labelled_sensitive_later_shapes_no_answer_of_others(book: Book) -> None:
    with commonplace.open("memory:") as twin:
        for other in (book, twin):
            say(other, "the harbour is calm", id="calm")
            say(other, "boats are at the harbour", id="boats")
            if other is book:
                say(other, f"{SECRET} harbour harbour", id="secret")
            else:
                say(other, f"{SECRET} harbour harbour", id="secret", labels={"sensitivity": "sensitive"})
        before = book.head
        ben = book.as_actor("ben")
        assert SECRET in shown(ben, SECRET)
        book.access.relabel("secret", sensitivity="sensitive", reason="it names the word")

        def scored(who: Actor, at: int | None = None) -> list[Any]:
            return [
                (query, mode, [(one.id, one.score, one.why) for one in results], total, corrected)
                for query, mode, results, total, corrected in answers(who, *LEAKS, "harbour", at=at)
            ]

        assert "secret" not in str([told[2:] for told in scored(ben)])
        assert scored(ben) == scored(twin.as_actor("ben"))
        assert scored(ben, at=before) == scored(twin.as_actor("ben"))


@pytest.mark.spec("2.7", "L6")
def test_many_pages_of_events_are_looked_at_once(monkeypatch: pytest.MonkeyPatch, book: Book) -> None:
    """A page that declares a secret changes what earlier pages have fed, also those of another process."""
    monkeypatch.setattr(book_index_module, "PAGE", 3)
    run = open_run(book, sensitive_fields=("code",))
    for n in range(7):
        say(book, f"{SECRET} at gate {n}")
    assert book.search(SECRET, max_results=50).total >= 7
    for n in range(7, 14):
        say(book, f"{SECRET} at gate {n}")
    run.agent("ada").write({"code": SECRET})
    for n in range(14, 21):
        say(book, f"{SECRET} at gate {n}")
    told = answers(book, SECRET, "gate")
    assert SECRET not in shown(book, SECRET, "gate")
    assert anew(book, lambda: answers(book, SECRET, "gate")) == told


@pytest.mark.spec("2.7", "L6")
@pytest.mark.parametrize("engine_name", ["sqlite", "postgres"], indirect=True)
def test_what_another_process_declares_secret_leaves_this_ones_searches(book: Book, book_url: str) -> None:
    run = open_run(book, sensitive_fields=("code",))
    say(book, f"the harbour gate opens with {SECRET}")
    with commonplace.open(book_url) as other:
        assert SECRET in shown(other, SECRET)
        say(other, f"again, {SECRET} opens it")
        assert "again, zan" in shown(book, SECRET)
        run.agent("ada").write({"code": SECRET})
        assert SECRET not in shown(other, SECRET)
        assert SECRET not in shown(book, SECRET)
        assert answers(other, SECRET, "harbour") == answers(book, SECRET, "harbour")


# An index that is not this ledger's.


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[str], bool]:
    caplog.set_level(logging.WARNING, "commonplace")
    return lambda text: any(text in record.getMessage() for record in caplog.records)


def talk(book: Book, who: str = "harbour", count: int = 12) -> None:
    for n in range(count):
        say(book, f"{who} gate {n} is open, says the cedar key", f"run-{n % 3}")
    book.remember(f"The {who} freezes in January", title=who)


def place_of(book: Book) -> Path:
    place = book._session.services.index.place
    assert isinstance(place, Path)
    return place


def right(book: Book) -> list[Any]:
    """What the book answers, compared with an index that is built from its ledger in memory."""
    told = answers(book)
    with commonplace.open("memory:") as copy:
        book.admin.copy(copy)
        assert told == answers(copy)
    return told


@pytest.fixture
def home(book_url: str, engine_name: str) -> str:
    """A book with an index, closed; not the one in memory, whose index is a part of the process."""
    if engine_name == "memory":
        pytest.skip("it has no file")
    with commonplace.open(book_url) as book:
        talk(book)
        answers(book)
    return book_url


@pytest.mark.spec("L1", "L6")
def test_an_index_of_another_book_is_not_believed(
    home: str, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    with commonplace.open(tmp_path / "other.db") as other:
        talk(other, "prison")
        answers(other)
        theirs = place_of(other)
    with commonplace.open(home) as book:
        shutil.copyfile(theirs, place_of(book))
        assert "prison" not in str(right(book))
    assert warned("another book")


@pytest.mark.spec("L1", "L6")
@pytest.mark.parametrize("ahead", [0, 5])
def test_an_index_of_another_past_is_not_believed(
    home: str, ahead: int, warned: Callable[[str], bool]
) -> None:
    with commonplace.open(home) as book:
        place, embedder = place_of(book), embedder_of("static")
        place.unlink()
        forged = Index.open(place, embedder, embedder, book.id)
        who = Who("ada", "agent.spoke", False, "public", "episodic")
        doc = Doc("ghost", "a harbour ghost", who, "episodic", "the ledger", 0)
        assert forged.apply(0, book.head + ahead, [(1, Put(doc))], b"another hash")
        forged.close()
        assert "ghost" not in str(right(book))
    assert warned("another event" if ahead == 0 else "the book ends at")


@pytest.mark.spec("L1", "1.4")
@pytest.mark.parametrize("engine_name", ["sqlite", "files"], indirect=True)
@pytest.mark.parametrize("goes_on", [False, True])
def test_after_an_older_book_is_put_back_nothing_later_is_found(
    book_url: str, engine_name: str, goes_on: bool, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    path, kept = Path(book_url.removeprefix("file:")), tmp_path / "kept"
    with commonplace.open(book_url) as book:
        talk(book)
        if engine_name == "sqlite":
            book.admin.backup(kept)
        else:
            shutil.copytree(path, kept)
        talk(book, "lighthouse", count=20)
        assert "lighthouse" in shown(book, "lighthouse")
        if engine_name == "files":  # as a checkout does, under a process that goes on
            shutil.copy(kept / "ledger.jsonl", path / "ledger.jsonl.new")
            (path / "ledger.jsonl.new").replace(path / "ledger.jsonl")
            assert "lighthouse" not in shown(book, "lighthouse")
    if engine_name == "sqlite":
        kept.replace(path)
        for ending in ("-wal", "-shm", "-lock"):
            Path(f"{path}{ending}").unlink(missing_ok=True)
    with commonplace.open(book_url) as book:
        if goes_on:
            talk(book, "windmill", count=40)
        assert "lighthouse" not in str(right(book))
        assert "lighthouse" not in shown(book, "lighthouse")
    assert warned("put in its place")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "cut within a page": lambda path: path.write_bytes(path.read_bytes()[:-1000]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "a text": lambda path: path.write_text("Dear diary, " * 1000),
    "a later version": lambda path: pragma(path, "user_version", 99),
}


def pragma(path: Path, name: str, value: int) -> None:
    connection = apsw.Connection(str(path))
    connection.pragma(name, value)
    connection.close()


@pytest.mark.spec("L1", "L5")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_built_again_with_a_word(
    home: str, damage: str, warned: Callable[[str], bool]
) -> None:
    with commonplace.open(home) as book:
        DAMAGE[damage](place_of(book))
        right(book)
        assert warned("is built again")
        assert book._session.services.index.trouble == ""
    with commonplace.open(home) as book:
        right(book)
        assert book._session.services.index.open().rebuilt == ""


@pytest.mark.spec("L1", "L5")
def test_no_flipped_bit_is_believed(tmp_path: Path, warned: Callable[[str], bool]) -> None:
    """One bit in each page: in lists of documents, vectors, numbers, texts, and in what leads to them."""
    with commonplace.open(tmp_path / "book.db") as book:
        talk(book)
        told = right(book)
        place = place_of(book)
        book._session.services.index.close()
        whole = place.read_bytes()
        for page in range(0, len(whole), 4096):
            book._session.services.index.close()
            flipped = bytearray(whole)
            flipped[page + page // 4096 * 37 % 4096] ^= 1 << page // 4096 % 8
            place.write_bytes(flipped)
            assert answers(book) == told
    assert warned("does not fit its checksum")


@pytest.mark.spec("L1", "L5")
def test_damage_that_is_found_in_the_middle_of_a_search_does_not_empty_the_answer(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        talk(book)
        told = right(book)
        ranked = book._session.services.index.asked(
            lambda index: index.ranked("gate", [one.id for one in book.events()])
        )
        assert ranked
        for ask, expected in (
            (lambda: answers(book), told),
            (
                lambda: book._session.services.index.asked(
                    lambda index: index.ranked("gate", [one.id for one in book.events()])
                ),
                ranked,
            ),
        ):
            with apsw.Connection(str(place_of(book))) as other:
                other.execute("UPDATE vectors SET vector = x'00' WHERE num = 3")
            other.close()
            book._session.services.index.close()
            assert ask() == expected


# What is not ours.


def make(kind: str, path: Path, theirs: Path) -> None:
    path.unlink(missing_ok=True)
    if kind == "a folder":
        path.mkdir()
        (path / "precious").write_text("precious")
    elif kind == "a link":
        path.symlink_to(theirs)
    elif kind == "a dangling link":
        path.symlink_to(theirs.with_name("nowhere"))
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a database":
        shutil.copyfile(theirs, path)
    elif kind == "of another user":
        shutil.copyfile(theirs, path)
        os.chown(path, 12345, 12345)
    else:
        path.write_bytes(theirs.read_bytes())
        path.chmod(0)


FOREIGN = ["a folder", "a link", "a dangling link", "a pipe", "a database", "of another user"]


@pytest.mark.spec("L1", "L5", "L10")
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_not_ours_is_neither_used_nor_written_nor_removed(
    kind: str, tmp_path: Path, warned: Callable[[str], bool]
) -> None:
    if kind == "of another user" and os.geteuid():
        pytest.skip("only root can give a file away")
    theirs = tmp_path / "theirs" / "precious.db"
    theirs.parent.mkdir()
    with apsw.Connection(str(theirs)) as connection:
        connection.execute("CREATE TABLE precious (thing); INSERT INTO precious VALUES ('harbour gate')")
    connection.close()
    before = theirs.read_bytes()
    with commonplace.open(tmp_path / "book.db") as book:
        talk(book)
        erased = say(book, f"the {SECRET}")
        place = place_of(book)
        make(kind, place, theirs)
        right(book)
        assert warned("is kept in memory")
        book.erase(erased)
        report = book.purge()
        entry = next(file for file in report.files if file.path == str(place))
        assert (entry.outcome, report.purged) == ("remains", False)
        assert any(str(place) in line for line in report.remaining)
        book.rebuild()
        book.admin.migrate_index("static", queries=["harbour"], switch=True)
        right(book)
    assert theirs.read_bytes() == before
    assert list(theirs.parent.iterdir()) == [theirs]
    assert os.path.lexists(place)


@pytest.mark.spec("L1", "L5")
@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_cannot_be_read_is_built_again(tmp_path: Path, warned: Callable[[str], bool]) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        talk(book)
        answers(book)
        book._session.services.index.close()
        place_of(book).chmod(0)
        right(book)
        assert warned("could not be read")


# Purge.


@pytest.mark.spec("L10")
def test_purge_names_every_file_and_what_became_of_it(home: str) -> None:
    with commonplace.open(home) as book:
        canary = f"canary-{uuid.uuid4().hex}"
        erased = say(book, f"a {canary} in the harbour")
        answers(book)
        place = place_of(book)
        shutil.copyfile(place, f"{place}.next")  # a migration that was killed
        Path(f"{place}-journal").write_text(canary)
        Path(f"{place}.bak").write_text(canary)  # somebody's copy
        book.erase(erased)
        report = book.purge()
        outcomes = {Path(file.path).name: file.outcome for file in report.files}
        assert outcomes[place.name] == "purged"
        assert outcomes[f"{place.name}.next"] == "purged"
        assert outcomes[f"{place.name}.bak"] == "remains"
        assert not report.purged
        assert any(f"{place}.bak" in line for line in report.remaining)
        assert not Path(f"{place}.next").exists()
        try:
            traces = {one.path for one in book.admin.find_text(canary)}
        except commonplace.BadInput:
            traces = {f"{place}.bak"}  # a server that does not say where its files are
        assert traces == {f"{place}.bak"}
        Path(f"{place}.bak").unlink()
        assert not [file for file in book.purge().files if place.name in file.path and file.remains]


@pytest.mark.spec("L10")
def test_an_index_that_fails_is_not_counted_as_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is kept in memory because its file failed; the file still holds the text, and goes."""
    with commonplace.open(tmp_path / "book.db") as book:
        erased = say(book, f"the {SECRET} of the harbour")
        answers(book)
        whole = store.File.apply

        def failing(self: store.File, *args: Any) -> bool:
            if self.path is not None:
                raise StorageFailed("the disk is tired")
            return whole(self, *args)

        monkeypatch.setattr(store.File, "apply", failing)
        book.erase(erased)
        assert SECRET not in shown(book, SECRET)
        assert str(place_of(book)) in [one.path for one in book.admin.find_text(SECRET)]
        report = book.purge()
        assert str(place_of(book)) in [file.path for file in report.files]
        assert report.purged
        assert book.admin.find_text(SECRET) == []


@pytest.mark.spec("L10", "3.7")
def test_a_folder_that_no_longer_shows_the_book_is_named(tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        item = book.remember(f"{SECRET} opens the harbour").item_id
        assert item
        book.mirror.folder(tmp_path / "pages").sync()
        assert {one.path for one in book.admin.find_text(SECRET)} >= {str(tmp_path / "pages" / "MEMORY.md")}
        assert str(tmp_path / "pages" / "MEMORY.md") in [file.path for file in book.purge().files]
        shutil.rmtree(tmp_path / "pages" / ".mirror")
        book._session.services.outside._mirrors.clear()
        book.erase(item)
        report = book.purge()
        assert [file.outcome for file in report.files if file.path == str(tmp_path / "pages")] == ["remains"]
        assert not report.purged
        assert {one.path for one in book.admin.find_text(SECRET)} == {str(tmp_path / "pages" / "MEMORY.md")}


@pytest.mark.spec("L10", "7.2")
def test_the_command_shows_each_file(cli: Cli, tmp_path: Path) -> None:
    with commonplace.open(tmp_path / "book.db") as book:
        talk(book)
        answers(book)
    Path(tmp_path / "book.db.index.bak").write_text("a copy")
    ran = cli("book", "purge", "--book", tmp_path / "book.db")
    assert "book.db.index.bak" in ran.out.replace("\n", "")
    assert "remains" in ran.out
    ran = cli("book", "purge", "--json", "--book", tmp_path / "book.db")
    assert '"outcome": "purged"' in ran.out
    assert '"purged": false' in ran.out
