"""Full text search over what the ledger says: what is found, by whom, as of when, and what is left after
erasure."""

from __future__ import annotations

import math
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from unittest import mock

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commonplace.errors import BadInput, BookClosed, EngineUnavailable, NotABook
from commonplace.index import (
    Change,
    Doc,
    Erase,
    Index,
    IndexHits,
    Put,
    RemovedDoc,
    Reword,
    Who,
    store,
    tables,
    writing,
)
from commonplace.index.words import near

DAY = 86_400_000_000


def doc(
    id: str, text: str, author: str = "ada", *, shared: bool = True, tier: str = "long_term", time_us: int = 0
) -> Doc:
    return Doc(id, text, Who(author, "note", shared, "private", tier), tier, "MEMORY.md", time_us)


def numbered(changes: Iterable[Change]) -> list[tuple[int, Change]]:
    return list(enumerate(changes, start=1))


def filled(changes: Iterable[Change], path: Path | None = None) -> Index:
    index = Index.open(path)
    every = numbered(changes)
    assert index.apply(0, len(every), every)
    return index


def texts(*written: str) -> Index:
    """An index of documents named a, b, c…"""
    return filled(Put(doc(chr(ord("a") + n), text)) for n, text in enumerate(written))


def everything(_: Who) -> bool:
    return True


def ask(index: Index, query: str, **more: object) -> IndexHits:
    return index.search(query, **{"allowed": everything, **more})  # type: ignore[arg-type]


def ids(index: Index, query: str, **more: object) -> list[str]:
    return [hit.id for hit in ask(index, query, **more).hits]


# What is found


@pytest.mark.spec("4.2")
def test_the_document_that_has_more_of_the_query_comes_first() -> None:
    index = texts(
        "We deployed the payment service on Friday",
        "The payment provider is down",
        "Deploying payments takes an hour",
        "Lunch is at noon",
    )
    assert ids(index, "when was the payment service deployed") == ["a", "c", "b"]
    assert ids(index, "deployments") == ["a", "c"]
    found = ask(index, "payment", limit=1)
    assert (len(found.hits), found.total, found.as_of, found.cut) == (1, 3, 4, False)


@pytest.mark.spec("4.2", "L6")
def test_scores_are_the_same_numbers_on_every_machine() -> None:
    index = texts(
        "the port of the database is 5432",
        "a database needs a backup",
        "backup backup backup of the big old database, every single night",
    )
    found = ask(index, "database backup")
    assert [(hit.id, hit.score) for hit in found.hits] == [("c", 0.658964), ("b", 0.569476), ("a", 0.125996)]


@pytest.mark.spec("4.2")
def test_scores_are_bm25_as_a_share_of_what_could_be_reached() -> None:
    written = ["red fox", "red red wolf runs far", "blue fox blue sky and red moon", "green grass"]
    index = texts(*written)
    words = [[word for word in text.split() if word != "and"] for text in written]
    average = sum(map(len, words)) / len(words)

    def rarity(word: str) -> float:
        having = sum(word in each for each in words)
        return math.log(1 + (len(words) - having + 0.5) / (having + 0.5))

    for hit in ask(index, "red fox unicorn").hits:
        mine = words["abcd".index(hit.id)]
        expected = sum(
            rarity(word) * mine.count(word) / (mine.count(word) + 0.9 * (0.6 + 0.4 * len(mine) / average))
            for word in ("red", "fox")
        )
        total = sum(map(rarity, ("red", "fox", "unicorn")))
        assert hit.score == pytest.approx(expected / total, abs=1e-6)


@pytest.mark.spec("4.2")
def test_stopwords_do_not_score_unless_there_is_nothing_else() -> None:
    index = texts("to be or not to be", "the fox", "be the first")
    assert ids(index, "the fox") == ["b"]
    assert ids(index, "to be") == ["a", "c"]
    assert ids(index, '"to be" fox') == ["a"]
    assert ids(index, "unicorn of the north") == []


@pytest.mark.spec("4.2")
@pytest.mark.parametrize("query", ["", "   ", "*", '"', '""', "\0", "()[]{}", "。、", "__", "--"])
def test_a_query_without_words_finds_nothing(query: str) -> None:
    found = ask(texts("one", "two"), query)
    assert (found.hits, found.total, found.corrected) == ([], 0, {})


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("src/commonplace/index/words.py", ["a"]),
        ("words.py", ["a"]),
        ("SRC", ["a"]),
        ("db.port", ["b", "h"]),
        ("max_open_files", ["c", "e"]),
        ("open", ["e", "c"]),
        ("--no-verify", ["d"]),
        ("no-verify", ["d"]),
        ("verify", ["d"]),
        ("OpenBook", ["e", "c"]),
        ("openbook", ["e"]),
        ("book", ["e"]),
        ("kebab-case", ["f"]),
        ("case", ["f"]),
        ("HTTPServer", ["g"]),
        ("server", ["g"]),
        ("ada@example.org", ["i"]),
        ("user guide", ["j"]),
    ],
)
def test_code_words_are_found_whole_and_in_parts(query: str, expected: list[str]) -> None:
    index = texts(
        "see src/commonplace/index/words.py",
        "db.port is 5432",
        "raise max_open_files",
        "never pass --no-verify",
        "call OpenBook()",
        "in kebab-case",
        "an HTTPServer",
        "the port of the db",
        "mail ada@example.org",
        "The user's guide",
    )
    assert ids(index, query) == expected


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("café", ["a", "b"]),
        ("cafe", ["a", "b"]),
        ("CAFÉS", ["a", "b"]),
        ("cafe\u0301", ["a", "b"]),
        ("strasse", ["c"]),
        ("STRAẞE", ["c"]),
        ("ore", ["d"]),
        ("東京", ["e"]),
        ("京都", ["e"]),
        ("東", ["e"]),
        ("駅", ["e"]),
        ("大阪", []),
        ("한국", ["f"]),
        ("किताब", ["g"]),
        ("कि", []),
        ("ежик", ["h"]),
        ("ＡＢＣ１２３", ["i"]),
        ("5kg", ["j"]),
        ("soft", ["k"]),
    ],
)
def test_words_of_any_script_are_found(query: str, expected: list[str]) -> None:
    index = texts(
        "le café noir",
        "the cafe is open",
        "die Straße",
        "ti øre",
        "東京都の駅",
        "한국어를 배운다",
        "एक किताब",
        "Ёжик",
        "abc123",
        "it weighs 5㎏",
        "so\u00adft",
    )
    assert sorted(ids(index, query)) == expected


@pytest.mark.spec("4.2")
def test_the_very_accents_of_the_query_come_first() -> None:
    index = texts("a cafe there", "a café there")
    assert ids(index, "café") == ["b", "a"]


@pytest.mark.spec("4.2")
def test_a_phrase_must_occur() -> None:
    index = texts(
        "the big red fox",
        "the red, big fox",
        "Big-red foxes",
        "bigred",
        "a BIG… RÉD dog",
        "大きな赤い狐",
    )
    assert sorted(ids(index, '"big red"')) == ["a", "c", "e"]
    assert ids(index, '"big red fox"') == ["a"]
    assert ids(index, '"the red" fox') == ["b"]
    assert sorted(ids(index, "“big red”")) == ["a", "c", "e"]
    assert ids(index, '"赤い"') == ["f"]
    assert ids(index, '"big red" "fox"') == ["a"]
    assert ids(index, '"red big red"') == []
    assert ids(index, '"bigred') == ["d"]  # a quote that does not end is no phrase


@pytest.mark.spec("4.2")
def test_a_star_asks_for_a_prefix() -> None:
    index = texts("deployment", "deploys", "depth", "caféteria", "src/app/main.py")
    assert sorted(ids(index, "deploy*")) == ["a", "b"]
    assert sorted(ids(index, "dep*")) == ["a", "b", "c"]
    assert ids(index, "cafet*") == ["d"]
    assert ids(index, "src/ap*") == ["e"]
    assert ids(index, "deployx*") == []


@pytest.mark.spec("4.2")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("databse", "database"),
        ("dattabase", "database"),
        ("datxbase", "database"),
        ("daatbase", "database"),
        ("atabase", "database"),
        ("databasex", "database"),
        ("wolrd", "world"),
        ("wrold", "world"),
        ("confg.toml", "config.toml"),
    ],
)
def test_a_typing_error_is_seen_through(typed: str, meant: str) -> None:
    index = texts("the database", "hello world", "edit config.toml")
    found = ask(index, typed)
    assert found.corrected[typed] == meant
    assert found.hits[0].id == ids(index, meant)[0]
    assert (typed, meant) in [one[:2] for one in found.hits[0].matched]


@pytest.mark.spec("4.2")
def test_nothing_is_corrected_that_may_be_right() -> None:
    index = texts("version10 of the word world", "whole worlds", "there")
    assert ask(index, "wrd").corrected == {}  # too short
    assert ask(index, "version11").corrected == {}  # a number
    assert ask(index, "word").corrected == {}
    assert ask(index, '"wolrd"').corrected == {}  # a phrase is meant as it stands
    assert ask(index, "wolrd*").corrected == {}
    assert ask(index, "theer").corrected == {}  # nobody searches for a stopword
    assert ids(index, "world") == ["b", "a"]


@pytest.mark.spec("4.2", "4.3")
def test_a_correction_comes_from_documents_that_the_reader_may_see() -> None:
    index = filled(
        [
            Put(doc("a", "the secret is parasol", "eve", shared=False)),
            Put(doc("b", "parasol parasol", "eve", shared=False)),
            Put(doc("c", "parasaul is a name")),
        ]
    )
    assert ask(index, "parasoul").corrected == {"parasoul": "parasol"}
    found = ask(index, "parasoul", allowed=lambda who: who.shared)
    assert found.corrected == {"parasoul": "parasaul"}
    assert [hit.id for hit in found.hits] == ["c"]


@pytest.mark.spec("4.2")
def test_a_query_that_is_too_long_is_cut_and_says_so() -> None:
    many = " ".join(f"word{n}" for n in range(30))
    index = texts("word0", "word11", "word12", "x" * 64 + "y", "the last")
    assert sorted(ids(index, many)) == ["a", "b"]
    assert ask(index, many).cut
    assert ids(index, "x" * 64 + "z") == ["d"]
    assert ask(index, "x" * 65).cut
    assert ask(index, "word0 " * 12).cut is False
    assert ask(index, "word0 the " * 12 + "word11").cut is False
    assert ask(index, " " * 1024 + "word0") == IndexHits([], 0, {}, 5, cut=True)


@pytest.mark.spec("4.11")
def test_a_hit_says_why_it_is_there() -> None:
    index = filled([Put(doc("a", "We deployed twice; deploys fail. Café!")), Put(doc("b", "unrelated"))])
    (hit,) = ask(index, "deploy cafe nothing").hits
    assert [(word, forms) for word, forms, _ in hit.matched] == [
        ("deploy", "deployed deploys"),
        ("cafe", "cafe"),
    ]
    assert sum(weight for _, _, weight in hit.matched) == pytest.approx(hit.score, abs=2e-6)
    assert (hit.author, hit.kind, hit.tier, hit.source, hit.position) == (
        "ada",
        "note",
        "long_term",
        "MEMORY.md",
        1,
    )


@pytest.mark.spec("4.2")
def test_the_snippet_shows_the_first_match() -> None:
    long = "lorem ipsum " * 100
    index = texts(f"{long}the needle is here {long}needle", f"{'①' * 300} Ⅳ needle {long}", "needle")
    found = {hit.id: hit for hit in ask(index, "needles").hits}
    assert len(found["a"].snippet) == 240
    assert "ipsum the needle is here lorem" in found["a"].snippet
    assert found["a"].snippet in found["a"].text
    assert "① Ⅳ needle lorem" in found["b"].snippet
    assert found["c"].snippet == "needle"


# Who sees what, and as of when


@pytest.mark.spec("4.1", "4.3")
def test_filters_choose_among_the_hits_and_leave_the_scores_alone() -> None:
    index = filled(
        [
            Put(doc("a", "red fox", "ada", tier="long_term", time_us=1 * DAY)),
            Put(doc("b", "red wolf", "bob", tier="working", time_us=2 * DAY)),
            Put(doc("c", "red fox den", "bob", tier="episodic", time_us=3 * DAY)),
        ]
    )
    whole = {hit.id: hit for hit in ask(index, "red fox").hits}
    assert list(whole) == ["a", "c", "b"]
    assert ask(index, "red fox", tiers=["working", "episodic"]).hits == [whole["c"], whole["b"]]
    assert ask(index, "red fox", authors={"ada"}).hits == [whole["a"]]
    assert ask(index, "red fox", since_us=2 * DAY).hits == [whole["c"], whole["b"]]
    assert ask(index, "red fox", until_us=2 * DAY).hits == [whole["a"]]
    assert ask(index, "red fox", tiers=[]).total == 0
    assert ask(index, "red fox", authors=["bob"], limit=0).total == 2


def test_the_reader_is_asked_once_for_each_kind_of_document() -> None:
    index = filled(Put(doc(f"d{n}", "fox", f"agent{n % 3}", tier=f"tier{n % 2}")) for n in range(60))
    asked: list[Who] = []

    def allowed(who: Who) -> bool:
        asked.append(who)
        return who.author != "agent1"

    assert index.search("fox", allowed=allowed).total == 40
    assert len(asked) == len(set(asked)) == 6


@pytest.mark.spec("L7")
def test_the_past_can_be_searched() -> None:
    index = filled(
        [
            Put(doc("a", "the port is 5432")),
            Put(doc("a", "the port is 5433")),
            RemovedDoc("a"),
            Put(doc("a", "the port is 5434")),
            RemovedDoc("never there"),
        ]
    )
    assert [ids(index, "port", at=at) for at in range(6)] == [[], ["a"], ["a"], [], ["a"], ["a"]]
    assert [ask(index, "543*", at=at).hits[0].text[-1] for at in (1, 2, 4)] == ["2", "3", "4"]
    assert [ask(index, "port", at=at).hits[0].position for at in (1, 2, 4, None)] == [1, 2, 4, 4]
    assert ask(index, "port", at=99).as_of == 5


@pytest.mark.spec("L6")
def test_equal_scores_are_ordered_by_id() -> None:
    index = filled(Put(doc(f"{(n * 7) % 40:02}", "same words")) for n in range(40))
    assert ids(index, "words", limit=40) == [f"{n:02}" for n in range(40)]
    assert ids(index, "words", limit=3) == ["00", "01", "02"]


# Catching up


def test_changes_are_taken_in_once() -> None:
    index = texts("one", "two")
    assert index.position == 2
    assert not index.apply(0, 2, numbered([Put(doc("x", "three")), Put(doc("y", "four"))]))
    assert not index.apply(3, 4, [(4, Put(doc("x", "three")))])
    assert ids(index, "three") == []
    assert index.apply(2, 9, [])
    assert (index.position, ids(index, "one")) == (9, ["a"])


def test_an_error_among_the_changes_undoes_all_of_them() -> None:
    index = texts("one")

    def broken() -> Iterator[tuple[int, Change]]:
        yield 2, Put(doc("x", "three"))
        raise LookupError("the ledger is gone")

    with pytest.raises(LookupError):
        index.apply(1, 5, broken())
    with pytest.raises(BadInput, match="order of the ledger"):
        index.apply(1, 5, [(4, Put(doc("x", "three"))), (3, Put(doc("y", "three")))])
    with pytest.raises(BadInput, match="order of the ledger"):
        index.apply(1, 5, [(6, Put(doc("x", "three")))])
    with pytest.raises(BadInput):
        index.apply(1, 0, [])
    assert (index.position, ids(index, "three")) == (1, [])


@pytest.mark.spec("L1")
def test_what_was_written_is_there_after_reopening(tmp_path: Path) -> None:
    index = filled([Put(doc("a", "fox")), Put(doc("b", "wolf"))], tmp_path / "deep" / "index.db")
    index.close()
    with pytest.raises(BookClosed):
        ask(index, "fox")
    index.close()
    again = Index.open(tmp_path / "deep" / "index.db")
    assert (again.position, again.rebuilt, ids(again, "fox")) == (2, "", ["a"])
    again.close()


@pytest.mark.spec("L1")
def test_a_deleted_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    index = filled([Put(doc("a", "fox"))], path)
    other = Index.open(path)
    assert ids(other, "fox") == ["a"]
    path.unlink()
    assert ask(index, "fox") == IndexHits([], 0, {}, 0, False)
    assert index.rebuilt
    assert index.apply(0, 1, [(1, Put(doc("b", "fox")))])
    assert ids(other, "fox") == ["b"]
    index.close()
    assert ids(other, "fox") == ["b"]
    other.close()


def _overwritten(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.spec("L1")
@pytest.mark.parametrize("damage", ["not a database", "torn", "header", "pages"])
def test_a_damaged_file_is_thrown_away(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index.db"
    changes = [Put(doc(f"d{n}", f"fox number{n} {n * n}")) for n in range(200)]
    index = filled(changes, path)
    index.purge()
    index.close()
    if damage == "not a database":
        path.write_bytes(b"Dear diary, " * 1000)
    elif damage == "torn":
        path.write_bytes(path.read_bytes()[:8192])
    elif damage == "header":
        _overwritten(path, 0, b"\0" * 100)
    else:
        _overwritten(path, 4096, b"\xff" * (path.stat().st_size - 4096))
    index = Index.open(path)
    assert ask(index, "fox") == IndexHits([], 0, {}, 0, False)
    assert "damaged" in index.rebuilt
    every = numbered(changes)
    assert index.apply(0, len(every), every)
    assert ask(index, "fox").total == 200
    index.close()


def test_damage_found_later_empties_the_index_and_says_so(tmp_path: Path) -> None:
    index = filled([Put(doc("a", "fox"))], tmp_path / "index.db")
    with mock.patch.object(store.File, "recent", side_effect=apsw.CorruptError("found while reading")):
        assert ask(index, "fox") == IndexHits([], 0, {}, 0, False)
    assert "found while reading" in index.rebuilt
    assert index.apply(0, 1, [(1, Put(doc("a", "fox")))])
    with mock.patch.object(writing, "counted", side_effect=apsw.CorruptError("found while writing")):
        assert not index.apply(1, 2, [(2, Put(doc("b", "fox")))])
    assert (index.position, ids(index, "fox")) == (0, [])
    assert "found while writing" in index.rebuilt
    index.close()


@pytest.mark.spec("L1", "4.13")
def test_a_file_of_another_version_is_built_again(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    filled([Put(doc("a", "fox"))], path).close()
    with mock.patch.object(store, "FINGERPRINT", "of tomorrow"):
        index = Index.open(path)
        assert (index.position, index.rebuilt) == (0, "it was made by another version")
        index.close()
    assert "BM25" in store.FINGERPRINT


def test_the_database_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with apsw.Connection(str(path)) as theirs:
        theirs.execute("CREATE TABLE precious (thing); INSERT INTO precious VALUES (1)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(NotABook):
        Index.open(path)
    assert path.read_bytes() == before
    with pytest.raises(NotABook, match="not a file"):
        Index.open(tmp_path)
    with pytest.raises(EngineUnavailable):
        Index.open(path / "below a file")


OTHER = """
import sys
from pathlib import Path
from commonplace.index import Doc, Index, Put, Who
index = Index.open(Path(sys.argv[1]))
who = Who("ada", "note", True, "private", "long_term")
wrote = 0
while (at := index.position) < 300:
    found = index.search("fox", allowed=lambda who: True)
    assert found.total >= at and found.as_of >= at, (found.total, at)
    wrote += index.apply(at, at + 1, [(at + 1, Put(Doc(f"d{at}", f"fox {at}", who, "long_term", "x", 0)))])
index.close()
print(wrote)
"""


def in_python(code: str, *args: object) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_processes_share_one_file(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    index = Index.open(path)
    command = [sys.executable, "-c", OTHER, str(path)]
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    seen = 0
    while seen < 300:
        found = ask(index, "fox")
        assert found.total == found.as_of >= seen
        seen = found.as_of
    wrote = [int(other.communicate(timeout=60)[0]) for other in others]
    assert sum(wrote) == 300
    alone = filled(Put(doc(f"d{n}", f"fox {n}")) for n in range(300))
    assert [hit.score for hit in ask(index, "fox 17").hits] == [
        hit.score for hit in ask(alone, "fox 17").hits
    ]
    index.close()


def test_threads_share_an_index(tmp_path: Path) -> None:
    index = Index.open(tmp_path / "index.db")

    def work(_: int) -> int:
        wrote = 0
        while (at := index.position) < 60:
            wrote += index.apply(at, at + 1, [(at + 1, Put(doc(f"d{at}", "fox")))])
            assert ask(index, "fox").total > at
        return wrote

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(work, range(4))) == 60
    assert ask(index, "fox").total == 60
    index.close()


FORK = """
import os, sys
from pathlib import Path
from commonplace.index import Doc, Index, Put, Who

def foxes(index):
    return index.search("fox", allowed=lambda who: True).total

def add(index, at):
    who = Who("ada", "note", True, "private", "long_term")
    assert index.apply(at, at + 1, [(at + 1, Put(Doc(f"d{at}", "fox", who, "long_term", "x", 0)))])

for path in (Path(sys.argv[1]), None):
    index, second = Index.open(path), Index.open(path)
    add(index, 0)
    said, heard = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        assert foxes(index) == 1
        add(index, 1)
        os.write(said[1], b"1")
        os.read(heard[0], 1)  # the parent has closed it: that must not take the file away from under us
        add(index, 2)
        assert foxes(index) == 3
        index.close()
        os._exit(0)
    os.read(said[0], 1)
    assert foxes(index) == (2 if path else 1)
    index.close()
    second.close()
    again = Index.open(path)
    os.write(heard[1], b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert foxes(again) == (3 if path else 0)
    again.close()
print("fine")
"""


def test_a_child_process_opens_the_file_for_itself(tmp_path: Path) -> None:
    assert in_python(FORK, tmp_path / "index.db") == "fine\n"


# Erasure

SCAN = """
import sys
from pathlib import Path
for path in Path(sys.argv[1]).iterdir():
    content = path.read_bytes()
    for word in sys.argv[2:]:
        for form in (word, word[::-1], word.upper()):
            for encoding in ("utf-8", "utf-16-le"):
                if form.encode(encoding) in content:
                    print(path.name, form)
"""


@pytest.mark.spec("L10")
@pytest.mark.parametrize("buffer", [1, tables.BUFFER])
def test_what_was_erased_is_nowhere_in_the_files(tmp_path: Path, buffer: int) -> None:
    with mock.patch.object(tables, "BUFFER", buffer):
        index = filled(
            [
                Put(doc("secret", "the passphrase is xylophonic")),
                Put(doc("other", "the passphrase policy")),
                Put(doc("secret", "the passphrase is now quagmireful")),
                *(Put(doc(f"d{n}", f"filler number{n}")) for n in range(300)),
            ],
            tmp_path / "index.db",
        )
        assert in_python(SCAN, tmp_path, "xylophonic", "quagmireful")
        assert index.apply(303, 304, [(304, Erase(("secret", "secret", "unknown")))])
        for at in range(1, 305, 50):
            assert ids(index, "xylophonic quagmireful passphrase secret", at=at) == (
                ["other"] if at > 1 else []
            )
        assert ask(index, "xylophonicc").corrected == {}
        assert index.purge()
        assert in_python(SCAN, tmp_path, "xylophonic", "quagmireful", "secret") == ""
        assert ids(index, "passphrase") == ["other"]
        index.close()
        assert in_python(SCAN, tmp_path, "xylophonic", "quagmireful", "secret") == ""


@pytest.mark.spec("2.7", "L1", "L6")
@pytest.mark.parametrize("buffer", [1, tables.BUFFER])
@pytest.mark.parametrize("block", [4, tables.BLOCK])
def test_a_document_that_is_reworded_is_as_if_it_had_always_said_so(
    tmp_path: Path, buffer: int, block: int
) -> None:
    rng = random.Random(7)
    words = ["fox", "wolf", "lynx", "hare", "stoat", "xylophonic", "quagmireful", "den", "den", "den"]
    said = [(f"d{n % 23}", " ".join(rng.choices(words, k=rng.randint(1, 9)))) for n in range(60)]

    def changes(texts: Iterable[tuple[str, str]]) -> list[Change]:
        return [Put(doc(id, text, author=f"a{n % 3}")) for n, (id, text) in enumerate(texts)]

    with mock.patch.object(tables, "BUFFER", buffer), mock.patch.object(tables, "BLOCK", block):
        index = filled(changes(said), tmp_path / "index.db")
        new = {f"d{n}": f"{rng.choice(words[:5])} token token vole{n}" for n in range(0, 23, 2)}
        rewords = [(61, Reword(doc(id, text))) for id, text in new.items()]
        assert index.apply(60, 61, [*rewords, rewords[0]])
        anew = filled(changes((id, new.get(id, text)) for id, text in said))
        assert anew.apply(60, 61, [])
        for query in (*words, "token", "vole4", "vol*", "xylophonicc", '"token token"', "den fox wolf token"):
            for at in (5, 30, 60, None):
                for how in ("keyword", "hybrid"):
                    assert ask(index, query, at=at, how=how, limit=60) == ask(
                        anew, query, at=at, how=how, limit=60
                    )
        index.close()


@pytest.mark.spec("L10")
def test_purge_says_when_a_reader_keeps_the_log(tmp_path: Path) -> None:
    index = filled([Put(doc("a", "fox"))], tmp_path / "index.db")
    reader = apsw.Connection(str(tmp_path / "index.db"))
    reader.execute("BEGIN; SELECT * FROM docs").fetchall()
    index.apply(1, 2, [(2, Erase(("a",)))])
    index._file.connection.set_busy_timeout(0)
    assert not index.purge()
    reader.close()
    assert index.purge()
    index.close()


# Laws

WORDS = [
    "fox",
    "foxes",
    "wolf",
    "wolves",
    "café",
    "cafe",
    "東京",
    "db.port",
    "port",
    "the",
    "running",
    "parasol",
]
QUERIES = [
    "fox wolf",
    "cafe port",
    "café",
    "東京",
    "db.port",
    '"the fox"',
    '"fox wolf" run',
    "pa*",
    "parasal",
    "the",
    "wolv* the running",
    "nothing",
]
READERS: list[Callable[[Who], bool]] = [
    everything,
    lambda who: who.shared or who.author == "ada",
    lambda who: who.author == "bob",
]

docs = st.builds(
    lambda id, words, author, shared: doc(id, " ".join(words), author, shared=shared),
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.lists(st.sampled_from(WORDS), max_size=6),
    st.sampled_from(["ada", "bob"]),
    st.booleans(),
)
lasting = st.one_of(docs.map(Put), docs.map(Put), st.sampled_from(["a", "b", "c"]).map(RemovedDoc))
some_changes = st.lists(lasting, max_size=25)
erasing = st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1).map(lambda ids: Erase(tuple(ids)))
any_changes = st.lists(st.one_of(lasting, lasting, lasting, erasing), max_size=25)


def answers(
    index: Index, at: int | None = None, readers: list[Callable[[Who], bool]] = READERS
) -> list[bytes]:
    """The bytes of all that can be asked."""
    return [
        msgspec.json.encode(index.search(query, allowed=reader, at=at))
        for query in QUERIES
        for reader in readers
    ]


@contextmanager
def small_lists(buffer: int) -> Iterator[None]:
    """Buffers and blocks so small that a handful of documents fills many."""
    with mock.patch.object(tables, "BUFFER", buffer), mock.patch.object(tables, "BLOCK", 4):
        yield


@pytest.mark.spec("L6")
@settings(deadline=None, max_examples=60)
@given(any_changes, st.lists(st.integers(1, 6), min_size=1), st.integers(1, 20))
def test_however_the_changes_are_cut_up_the_answers_are_the_same(
    changes: list[Change], sizes: list[int], buffer: int
) -> None:
    every = numbered(changes)
    whole = answers(filled(changes))
    with small_lists(buffer):
        index = Index.open(None)
        at = 0
        for size in cycle(sizes):
            if at == len(every):
                break
            upto = min(at + size, len(every))
            assert index.apply(at, upto, every[at:upto])
            at = upto
            ask(index, "fox")  # what it remembers from here must not show later
        assert answers(index) == whole


@pytest.mark.spec("L1", "L6")
@settings(deadline=None, max_examples=25)
@given(any_changes, st.integers(1, 20))
def test_a_file_reopened_or_built_again_gives_the_same_answers(changes: list[Change], buffer: int) -> None:
    with tempfile.TemporaryDirectory() as folder, small_lists(buffer):
        path = Path(folder) / "index.db"
        index = filled(changes, path)
        first = answers(index)
        other = Index.open(path)
        assert answers(other) == first
        index.purge()
        index.close()
        assert answers(other) == first
        other.close()
        path.unlink()
        index = filled(changes, path)
        assert answers(index) == first
        index.close()


@pytest.mark.spec("L7")
@settings(deadline=None, max_examples=40)
@given(some_changes, st.integers(1, 20), st.data())
def test_the_past_is_what_it_was(changes: list[Change], buffer: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(changes)))
    with small_lists(buffer):
        index, then = filled(changes), filled(changes[:at])
        assert answers(index, at, READERS[:1]) == answers(then, readers=READERS[:1])
        last = {change.doc.id: change.doc.who for change in changes if isinstance(change, Put)}
        for reader in READERS[1:]:  # who may no longer see a document does not see what it was, either
            for query in QUERIES:
                shown = {hit.id for hit in index.search(query, allowed=reader, at=at).hits}
                known = {hit.id for hit in then.search(query, allowed=reader).hits}
                assert all(reader(last[id]) for id in shown)
                assert shown >= {id for id in known if reader(last[id])}


@pytest.mark.spec("4.1")
def test_without_a_query_all_there_is_can_be_listed() -> None:
    index = filled(
        [Put(doc("a", "fox", "ada", shared=True)), Put(doc("b", "hen", "ben", shared=True)), RemovedDoc("a")]
    )
    found = index.search("", allowed=lambda _: True, listing=True)
    assert ([hit.id for hit in found.hits], found.total) == (["b"], 1)
    assert (
        index.search("", allowed=lambda _: True, listing=True, chosen=lambda who: who.author == "ada").hits
        == []
    )
    assert index.search("", allowed=lambda _: True).hits == []


@pytest.mark.spec("4.3")
@settings(deadline=None, max_examples=60)
@given(some_changes)
def test_hidden_documents_leave_no_trace_in_an_answer(changes: list[Change]) -> None:
    """A reader's answers are those of an index in which what it may not see never was."""
    for reader in READERS[1:]:
        index, without = filled(changes), Index.open(None)
        seen = [
            RemovedDoc(change.doc.id) if isinstance(change, Put) and not reader(change.doc.who) else change
            for change in changes
        ]
        assert without.apply(0, len(seen), numbered(seen))
        for query in QUERIES:
            found = msgspec.json.encode(index.search(query, allowed=reader))
            assert found == msgspec.json.encode(without.search(query, allowed=everything))


@pytest.mark.spec("L10")
@settings(deadline=None, max_examples=40)
@given(some_changes, st.sets(st.sampled_from(["a", "b", "c", "d", "e"])), st.integers(1, 20))
def test_erased_documents_never_were(changes: list[Change], gone: set[str], buffer: int) -> None:
    with small_lists(buffer):
        index = filled([*changes, Erase(tuple(gone))])
        kept = [
            RemovedDoc("-") if isinstance(change, Put) and change.doc.id in gone else change
            for change in changes
        ]
        assert answers(index) == answers(filled([*kept, RemovedDoc("-")]))
        left = {word for (word,) in index._file.rows("SELECT word FROM words")}
        assert left == {word for (word,) in filled(kept)._file.rows("SELECT word FROM words")}


@pytest.mark.spec("4.2")
@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=60), max_size=4), st.text(max_size=200))
def test_any_text_can_be_stored_and_any_query_asked(written: list[str], query: str) -> None:
    sound = [text.encode("utf-8", "replace").decode() for text in written]
    index = texts(*sound)
    ask(index, query)
    for text in sound:
        for hit in ask(index, text).hits:
            assert 0 <= hit.score <= 1
            assert hit.snippet in hit.text


@pytest.mark.parametrize(
    "query",
    [
        "a AND OR NOT b",
        "NEAR(a b, 5)",
        "col:term^2~0.5",
        "'; DROP TABLE docs; --",
        '"' * 999,
        "*" * 999,
        "(" * 999,
        "\ud800\udfff",
        "\u202e\u0301" * 400,
        "\u0301*",
        "\u0301" * 70 + "a*",
        "a" * 100_000,
        "ﷺ" * 1024,
        "a/" * 600,
        "東" * 1024,
    ],
)
def test_hostile_queries_are_just_words(query: str) -> None:
    assert ask(texts("a fox", "東東東"), query).total <= 2


@given(st.text("abc1", max_size=6), st.text("abc1", max_size=6))
def test_near_words_are_one_typing_error_apart(word: str, other: str) -> None:
    letters = "abc1"
    edits = {word[:at] + letter + word[at:] for at in range(len(word) + 1) for letter in letters}
    edits |= {word[:at] + letter + word[at + 1 :] for at in range(len(word)) for letter in ["", *letters]}
    edits |= {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
    edits.discard(word)
    if near(word, other):
        assert other in edits
    elif other in edits:
        assert "1" in word + other  # digits are no typing errors
